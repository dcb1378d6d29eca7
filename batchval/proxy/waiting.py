"""What a connection has under way: places in its queue of answers, and requests that cannot go on yet.

An answer that is only passed on is an int in the queue (see lane.pyx), all others are an Answer.
"""

from __future__ import annotations

from typing import Final

from batchval.protocol.apis import ApiKey
from batchval.protocol.produce import ProduceRequestView
from batchval.protocol.produce_answer import ProduceResponseView
from batchval.protocol.request import Chunks
from batchval.proxy.gate import Judgement

__all__ = ["ADDRESSES", "HERE", "MERGE", "PASS", "VERSIONS", "Answer", "Item", "answer_of", "throttle_ms"]

_FETCH_BIT: Final = 48

# what is done with an answer
PASS: Final = 0
ADDRESSES: Final = 1
VERSIONS: Final = 2
MERGE: Final = 3
HERE: Final = 4  # made here; nothing comes


class Answer:
    """A place in the queue of answers. ``ready`` is what is to be sent, once that is known here."""

    __slots__ = ("action", "correlation_id", "held", "key", "ready", "refusals", "request", "version")

    def __init__(self, correlation_id: int, key: int, version: int, action: int) -> None:
        self.correlation_id = correlation_id
        self.key = key
        self.version = version
        self.action = action
        self.ready: Chunks | None = None
        self.request: ProduceRequestView | None = None  # of MERGE
        self.refusals: object = None
        self.held = 0


def answer_of(first: Answer | int) -> Answer:
    """What an int in the queue stands for (see lane.pyx)."""
    if isinstance(first, Answer):
        return first
    correlation_id = (first + 0x80000000 & 0xFFFFFFFF) - 0x80000000
    if first <= 0x7FFFFFFF:
        return Answer(correlation_id, -1, 0, PASS)
    version = first >> 32 & 0xFFFF
    if first >> _FETCH_BIT:
        return Answer(correlation_id, ApiKey.FETCH, version, PASS)
    return Answer(correlation_id, ApiKey.PRODUCE, version, PASS if version < 10 else ADDRESSES)


def throttle_ms(key: int, version: int, body: memoryview) -> int:
    """How long a Produce or Fetch answer (without its length) tells the client to wait; 0 for all others."""
    if key == ApiKey.FETCH:
        at = 4 if version < 12 else 5
    elif key == ApiKey.PRODUCE and version >= 10:
        return ProduceResponseView(body, version).throttle_time_ms
    elif key == ApiKey.PRODUCE:
        at = len(body) - (4 if version < 9 else 5)
    else:
        return 0
    return int.from_bytes(body[at : at + 4], "big", signed=True)


class Item:
    """A request that cannot go on yet: a verdict is awaited, its own or that of one before it."""

    __slots__ = ("answer", "frame", "judgement", "request")

    def __init__(
        self,
        frame: memoryview,
        answer: Answer | None = None,
        request: ProduceRequestView | None = None,
        judgement: Judgement | None = None,
    ) -> None:
        self.frame = frame
        self.answer = answer  # of a produce request, None with acks=0
        self.request = request
        self.judgement = judgement
