"""Pending requests of a session: places in its queue of answers, and requests that cannot go on
yet.

In the queue, an answer that is only passed on is an int (see fast_path.pyx), any other an Answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from batchval.protocol.apis import ApiKey
from batchval.protocol.message import Chunks
from batchval.protocol.old_versions import Raised
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView
from batchval.proxy.cluster.discovery import Discovery
from batchval.proxy.kit.topics import KnownTopics
from batchval.proxy.produce.produce_validator import ProduceValidator, RequestVerdict
from batchval.proxy.produce.validation_queue import OneSlice, ValidationQueue
from batchval.proxy.session.fast_path import FastPath
from batchval.proxy.session.old_fetches import OldFetches
from batchval.proxy.session.sasl_exchange import SaslExchange
from batchval.proxy.settings.config import Limits
from batchval.proxy.settings.options import Counters, Facts, ProxyOptions
from batchval.proxy.watch.senders import Sender, Share

__all__ = [
    "Answer",
    "Item",
    "Lowering",
    "Queue",
    "Respond",
    "Surroundings",
    "facts_of",
    "throttle_ms",
]

_FETCH_BIT: Final = 48

#: Makes of a broker's frame (with its length) what goes to the client; None: nothing does.
Respond = Callable[["Queue", "Answer", memoryview], "Chunks | None"]


class Surroundings(Protocol):
    """The objects that all sessions of a listener share and handlers use."""

    topics: KnownTopics
    loop: asyncio.AbstractEventLoop
    carried: Mapping[int, tuple[int, int]]
    validation: ValidationQueue
    options: ProxyOptions
    discovery: Discovery

    def log_error(self, text: str, error: BaseException | None) -> None: ...
    def learn_topics(self, body: memoryview, version: int) -> None: ...
    def learn_topics_then(
        self, body: memoryview, version: int, then: Callable[[], None]
    ) -> None: ...
    def intersected(
        self, body: memoryview, version: int, correlation_id: int, raised: Mapping[int, Raised]
    ) -> Chunks: ...


class AnswerPlaces(Protocol):
    """The requests of a session and the places of their answers: ``requests.Requests``."""

    made: int
    fast_path: FastPath

    @property
    def outbox(self) -> deque[Item]: ...
    @property
    def answers(self) -> deque[Answer | int]: ...
    def next_id(self, answer: Answer) -> int: ...
    def place(self, answer: Answer) -> None: ...
    def forward(
        self,
        frame: memoryview,
        answer: Answer,
        to_broker: list[bytes | memoryview],
        *,
        is_own: bool = False,
    ) -> None: ...
    def put(self, item: Item) -> None: ...
    def keep(self, answer: Answer, held: int) -> None: ...
    def let_go(self, answer: Answer) -> None: ...
    def take_raised(
        self, item: Item, frame: memoryview, questions: list[tuple[memoryview, Answer]]
    ) -> None: ...


class Authenticated(Protocol):
    """The client's identity: ``identity.Identity``."""

    def authenticate(self) -> None: ...
    def authentication_begins(self) -> None: ...
    def authenticated_as(self, principal: str) -> None: ...
    def introduce(self, frame: memoryview, version: int) -> None: ...


class Queue(Protocol):
    """The part of a session that handlers use."""

    gate: ProduceValidator
    raised: Mapping[int, Raised]
    limits: Limits
    counters: Counters
    sasl: SaslExchange
    old_fetches: OldFetches
    account: Sender
    share: Share
    facts: Facts
    sender: str
    authenticated: bool

    @property
    def requests(self) -> AnswerPlaces: ...
    @property
    def identity(self) -> Authenticated: ...
    @property
    def proxy(self) -> Surroundings: ...
    def validated(self, item: object, error: BaseException | None) -> None: ...
    def keep(self, answer: Answer, held: int) -> None: ...
    def send_ready(self) -> None: ...
    def drop_from(self, item: Item) -> None: ...
    def convert(self, lowering: Lowering) -> None: ...
    def converted(self, lowering: Lowering, error: BaseException | None) -> None: ...
    def conversion_grew(self, lowering: Lowering, held: int) -> None: ...
    def fault(self, what: str, error: BaseException | None) -> None: ...
    def answer_here(self, answer: Answer, ready: list[bytes | memoryview]) -> None: ...
    def wait_for_handshake(self) -> None: ...
    def handshake_answered(self) -> None: ...
    def replace(self, node_id: int, host: str, port: int) -> tuple[str, int]: ...
    def written_brokers(self, version: int) -> dict[bytes, bytes]: ...
    def abort(self, why: str, detail: str = "") -> None: ...
    def end(self, why: str, detail: str = "") -> bool: ...


@dataclass(slots=True, eq=False)
class Answer:
    """A place in the queue of answers.

    ``respond``  what is done with the broker's answer; None for an answer that is made here
    ``ready``    an answer that is made here, once it is known
    ``held``     bytes that the session holds until this place is left
    ``taken_ns`` when the client's request was taken; 0 for one of the gate's own
    """

    correlation_id: int
    key: int
    version: int
    respond: Respond | None
    ready: Chunks | None = None
    held: int = 0
    taken_ns: int = 0
    facts: Any = None  # what respond needs besides

    @property
    def has_id(self) -> bool:
        """Return whether the broker's frame starts with a correlation id; a SASL token has none."""
        return self.key >= 0


def facts_of(first: Answer | int) -> tuple[int, int, int]:
    """Return (correlation id, API key, version) of a place in the queue; key -1: not known."""
    if isinstance(first, Answer):
        return first.correlation_id, first.key, first.version
    correlation_id = (first + 0x80000000 & 0xFFFFFFFF) - 0x80000000
    if first <= 0x7FFFFFFF:
        return correlation_id, -1, 0
    return (
        correlation_id,
        ApiKey.FETCH if first >> _FETCH_BIT else ApiKey.PRODUCE,
        first >> 32 & 0xFFFF,
    )


def throttle_ms(key: int, version: int, body: memoryview) -> int:
    """Return the throttle time in ms of a Produce or Fetch answer without its length; else 0."""
    if key == ApiKey.FETCH:
        at = 4 if version < 12 else 5
    elif key == ApiKey.PRODUCE and version >= 10:
        return ProduceResponseView(body, version).throttle_time_ms
    elif key == ApiKey.PRODUCE:
        at = len(body) - (4 if version < 9 else 5)
    else:
        return 0
    return int.from_bytes(body[at : at + 4], "big", signed=True)


class Lowering(OneSlice):
    """A job that makes the client's answer of the broker's.

    ``answer``  its place in the queue
    ``held``    bytes that the session holds for it
    """

    def __init__(self, session: Queue, answer: Answer, frame: memoryview) -> None:
        super().__init__(frame)
        self.session = session
        self.answer = answer
        self.held = len(frame)
        self._ready: Chunks = []

    def done(self, error: BaseException | None) -> None:
        """Hand the answer to the session."""
        self.session.converted(self, error)

    def finish(self) -> Chunks:
        """Return the client's answer, on the loop."""
        return self._ready


@dataclass(slots=True, eq=False)
class Item:
    """A request that cannot go on yet: its own verdict is awaited, or that of a request before it.

    ``frame``      as it came
    ``answer``     its place, None where no answer comes (acks=0)
    ``request``, ``verdict``  of a Produce request
    ``waits``      True until its verdict is known
    ``copied``     bytes of batches that go on with other claims, once they are made
    ``work``       of a request of an old version that is raised in a thread
    """

    frame: memoryview
    answer: Answer | None = None
    request: ProduceRequestView | None = None
    verdict: RequestVerdict | None = None
    waits: bool = False
    copied: int = 0
    work: OneSlice | None = None

    @property
    def size(self) -> int:
        """Return the bytes that the session holds for this request."""
        return len(self.frame) + self.copied
