"""The protocol's target: frames of every message, broken, before all that reads or rewrites them.

What must hold: nothing but ProtocolError; the walk of a Produce request refuses what the plain
reader refuses, and what it rewrites can be read; frames come out of the splitter as they went in,
whatever the pieces. The bytes lie against a forbidden page (see buffers.py).
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from batchval.protocol import messages
from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.gate_versions import carried_versions, intersect_api_versions
from batchval.protocol.message import Request
from batchval.protocol.walkers.addresses import (
    WITH_ADDRESSES,
    addresses,
    may_hold_addresses,
    rewrite_addresses,
)
from batchval.protocol.walkers.broker_requests import is_from_broker
from batchval.protocol.walkers.fetch_tail import WITH_TAIL, FetchTail, rewrite_tail
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView, merge, refuse
from batchval.protocol.walkers.topic_ids import topics_in_metadata
from tests.evidence.hostile.buffers import buffer_of
from tests.unit.protocol.values import VERSIONS, frame, invented, read_frame, refusal

__all__ = ["Frames", "broken", "judge"]

_HOT = [(kind, v) for kind, v in VERSIONS if kind.api_key in (*WITH_ADDRESSES, 18)]
_REPLICA_STATE_FROM = 15  # of Fetch
_FUTURE_LOCAL_REPLICA = -3
_CARRIED = carried_versions()
_BYTES = (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


class Frames:
    """Makes cases; ``state`` is all that the next ones hang on."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def cases(self) -> list[tuple[int, bytes]]:
        """Return (number in VERSIONS, frame without its length): messages broken in one to four
        places.
        """
        rng = random.Random(self.state)
        self.state = rng.getrandbits(32)
        pair = rng.choice(_HOT if rng.random() < 0.7 else VERSIONS)
        whole = frame(invented(*pair, rng.getrandbits(32)), pair[1])[4:]
        return [(VERSIONS.index(pair), broken(rng, whole)) for _ in range(8)]


def broken(rng: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at : at + 1] = bytes([rng.choice(_BYTES)])
            case 1:
                del data[at : at + rng.choice((1, 2, 4, 50))]
            case 2:
                data[at:at] = bytes(rng.choices(_BYTES, k=rng.randint(1, 5)))
            case 3:
                data[at : at + 4] = rng.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0")
                )
    return bytes(data)


def _produce(data: memoryview) -> list[str]:
    plain = refusal(lambda: messages.ProduceRequest.parse(data))
    walked = refusal(lambda: ProduceRequestView(data))
    if (plain is None) != (walked is None):
        return [f"Produce request: the reader says {plain}, the walk {walked}"]
    if walked is not None:
        return []
    view = ProduceRequestView(data)
    n = len(view)
    [(view.topic(i), view.records(i), view.claims(i)) for i in range(n)]
    if not n:
        return []
    kept = [i % 2 == 0 for i in range(n)]
    claims = None if view.api_version < 9 else [b"c" * 18 if i % 3 else None for i in range(n)]
    out = b"".join(view.rewritten(keep=kept, claims=claims, correlation_id=1))[4:]
    again = ProduceRequestView(out)
    if len(again) != sum(kept) or [view.records(i) for i in range(0, n, 2)] != [
        again.records(i) for i in range(len(again))
    ]:
        return ["Produce request: rewritten, its records are others"]
    answer = b"".join(refuse(view, [(87, [(0, None)], "r")] * n))[4:]
    response = ProduceResponseView(answer, view.api_version)
    if len(response) != n:
        return ["Produce request: the refusal has other partitions"]
    merge(view, [None if one else (2, [], None) for one in kept], response)
    return []


def _old_produce(data: memoryview) -> list[str]:
    """Read the bytes of a request as versions 0 to 2, which have no transactional id."""
    body = 10 + max(0, int.from_bytes(data[8:10], "big", signed=True))
    for version in range(3):
        old = (
            bytes(data[:2])
            + version.to_bytes(2, "big")
            + bytes(data[4:body])
            + bytes(data[body + 2 :])
        )
        if refusal(partial(ProduceRequestView, old, oldest=0)) is not None:
            continue
        view = ProduceRequestView(old, oldest=0)
        written = b"".join(view.rewritten(correlation_id=1))[4:]
        raised = refusal(partial(messages.ProduceRequest.parse, written))
        again = ProduceRequestView(written)
        if raised is not None or again.transactional_id is not None or again.acks != view.acks:
            return [f"Produce {version}: raised, it is {raised}"]
        if [view.records(i) for i in range(len(view))] != [
            again.records(i) for i in range(len(again))
        ]:
            return [f"Produce {version}: raised, its records are others"]
        if len(view):
            refuse(view, [(0 if i % 2 else 87, (), None) for i in range(len(view))])
    return []


def _pieces(data: bytes) -> list[str]:
    rng = random.Random(len(data))
    whole = b"".join(len(part).to_bytes(4, "big") + part for part in (data, b"", data[:7]))
    found, splitter, at = [], FrameSplitter(1 << 20), 0
    while at < len(whole):
        size = rng.choice((1, 2, 5, 100, 1000))
        found += splitter.feed(whole[at : at + size])
        at += size
    return [] if found == [data, b"", data[:7]] else ["the splitter gives other frames"]


def _tail(data: memoryview, key: int, version: int) -> list[str]:
    """Walk a response in pieces up to its tail; the walk of the whole frame must agree."""
    whole = refusal(lambda: addresses(data, key, version))
    walk = FetchTail(key, version)
    rng = random.Random(len(data))
    before = walk.feed(len(data).to_bytes(4, "big")) - 4
    at = 0
    while at < len(data) and before >= 0 and walk.tail_size < 0:
        piece = data[at : at + rng.choice((1, 3, 50, 1000))]
        at += len(piece)
        passed = walk.feed(piece)
        before = -1 if passed < 0 else before + passed
    if before < 0 or walk.tail_size < 0:
        return [] if whole else [f"tail: {before} bytes before it, and the whole frame is read"]
    if walk.tail_size != len(data) - before:
        return [f"tail: {walk.tail_size} bytes at {before} of {len(data)}"]
    tail = data[before:]
    wrong = refusal(lambda: rewrite_tail(tail, key, version, lambda *_: ("gate", 9)))
    if wrong is not None:
        # the walk of a whole ShareFetch response ends before the tagged fields
        return [] if whole or key == ApiKey.SHARE_FETCH else [f"tail: {wrong}"]
    if whole is not None:
        return [f"tail: read, and of the whole frame: {whole}"]
    out = rewrite_tail(tail, key, version, lambda *_: ("gate", 9))
    if len(out) != len(tail):
        return [f"tail: {len(out)} bytes for {len(tail)}"]
    named = {
        (host, port)
        for _, host, port in addresses(bytes(data[:before]) + out, key, version)
        if host
    }
    return [] if named <= {("gate", 9)} else [f"tail: still names {named}"]


def _topics(held: Any, version: int) -> list[str]:
    """Compare the topics of the walk with those of the plain reader."""
    try:
        answer = messages.MetadataResponse.decode(held, version)
    except ProtocolError:
        refusal(lambda: topics_in_metadata(held, version))
        return []
    plain = [
        (topic.topic_id if any(topic.topic_id) else b"", topic.name)
        for topic in answer.topics
        if not topic.error_code and topic.name
    ]
    # the plain reader refuses text that is not UTF-8
    return [] if topics_in_metadata(held, version) == plain else ["Metadata response: other topics"]


def _replica(held: Any, version: int) -> list[str]:
    """Compare what is found of a Fetch request's replica id with the plain reader."""
    refused = refusal(lambda: is_from_broker(held))
    try:
        _, request = messages.FetchRequest.parse(held)
    except ProtocolError:
        return []
    if refused is not None:
        return [f"Fetch request: read, and of its replica id: {refused}"]
    state = request.replica_state
    replica_id = request.replica_id if version < _REPLICA_STATE_FROM else state.replica_id
    is_replica = replica_id >= 0 or replica_id == _FUTURE_LOCAL_REPLICA
    # of several fields the reader takes the last one; here each counts
    if is_from_broker(held) < is_replica:
        return [f"Fetch request of replica {replica_id}: taken for a consumer's"]
    return []


def judge(number: int, data: bytes) -> list[str]:
    """Return the errors in the answers to these bytes."""
    kind, version = VERSIONS[number]
    held: Any = buffer_of(data)
    try:
        again = read_frame(kind, version, held)
        if not issubclass(kind, Request):
            frame(again, version)
    except ProtocolError:
        pass
    found = _pieces(data)
    if kind is messages.ProduceRequest:
        found += _produce(held) + _old_produce(held)
    elif kind is messages.FetchRequest:
        found += _replica(held, int.from_bytes(data[2:4], "big", signed=True))
    elif not issubclass(kind, Request) and kind.api_key in WITH_ADDRESSES:
        if refusal(lambda: addresses(held, kind.api_key, version)) is None:
            refusal(lambda: rewrite_addresses(held, kind.api_key, version, lambda *_: ("gate", 9)))
        if kind.api_key in WITH_TAIL and may_hold_addresses(kind.api_key, version):
            found += _tail(memoryview(held), kind.api_key, version)
        if kind is messages.ProduceResponse:
            refusal(lambda: ProduceResponseView(held, version))
        elif kind is messages.MetadataResponse:
            found += _topics(held, version)
    elif kind is messages.ApiVersionsResponse:
        refusal(lambda: intersect_api_versions(held, version, _CARRIED))
    return found
