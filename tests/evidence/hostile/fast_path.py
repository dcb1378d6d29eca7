"""The target ``fast_path``: what the gate's native path passes on, judged by the plain readers.

Requests, whole and broken, come through a FrameSplitter in pieces of any size. Of every request
that is passed on:

* it can be read, and every partition's records pass the check of the gate's own validator;
* the bytes sent are those that came, with another correlation id, without their claims, and with
  those that ``compute`` finds where the gate makes claims;
* its answer comes back with the correlation id of the client, and no other byte changed.

A broker's answers may be broken, late, or answers to nothing. Claims are true, false or absent.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from functools import cache
from typing import Any

from batchval.core.batches.validator import LogValidator
from batchval.core.claims import BatchClaims, attach, compute, to_tag
from batchval.errors import BatchvalError
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.walkers.broker_requests import SHARED_WITH_BROKERS
from batchval.protocol.walkers.produce import CLAIMS_TAG, ProduceRequestView
from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.session.fast_path import FastPath, Routes
from batchval.proxy.settings.config import ClaimsOut
from batchval.proxy.settings.options import Counters, TopicPolicies
from tests.evidence.hostile.marked import Case, cases
from tests.evidence.hostile.mutator import crc32c
from tests.evidence.hostile.seeds import NOW
from tests.evidence.hostile.wire import broken
from tests.support.proxy import answered, other_frame, produce_frame, proxy_options

__all__ = ["fast_path_case"]

_GLOBS = {
    "compact*": TopicPolicy(cleanup_policy="compact"),
    "small*": TopicPolicy(max_message_bytes=300),
    "append*": TopicPolicy(message_timestamp_type="LogAppendTime"),
}
_TOPICS = ("topic", "compact", "small", "append")
_WORDS = ("ignore", "verify", "trust", "audit:0.5")
_CLAIMS_OUT: tuple[ClaimsOut, ...] = ("none", "tag", "payload")
_TAGS_FROM = 9
_CODEC_AT, _CODECS = 22, 7
_ROUTES = Routes(
    {key: (first, last, 1 << 30) for key, (first, last) in carried_versions().items()},
    SHARED_WITH_BROKERS,
)


@cache
def _batches() -> tuple[Case, ...]:
    return tuple(case for case in cases() if case.kind == "batch" and len(case.data) < 20_000)


def _gate(word: str, by_topic: bool, claims_out: ClaimsOut) -> ProduceValidator:
    options = proxy_options(
        topics=TopicPolicies(TopicPolicy(), _GLOBS if by_topic else None),
        claims_in=ClaimsPolicy.parse(word),
        claims_out=claims_out,
    )
    return ProduceValidator(options, Counters())


def _records(rng: random.Random) -> tuple[bytes, bytes | None]:
    """Return a batch and its claims: good, or damaged under a right or a wrong checksum."""
    case = rng.choice(_batches())
    data, tag = bytearray(case.data), case.tag
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        at, _ = rng.choice(case.places)
        data[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8)))
        if rng.random() < 0.8:
            data[17:21] = struct.pack(">I", crc32c(data[21:]))
    if rng.random() < 0.05:
        del data[rng.randrange(len(data)) :]
    kind = rng.random()
    if kind < 0.3:
        tag = None
    elif kind < 0.6 and len(data) > 60:
        false_claims = BatchClaims(
            NOW + rng.choice((0, 1)), data[60] + rng.choice((0, 1)), rng.choice((0, 1, 2))
        )
        tag = to_tag(false_claims, int.from_bytes(data[17:21], "big"))
    elif kind < 0.65:
        tag = rng.randbytes(rng.randrange(25))
    return bytes(data), tag


def _request(rng: random.Random, number: int) -> bytes:
    """Return a frame with its length."""
    if rng.random() < 0.2:
        return other_frame(
            number,
            rng.choice((22, 12, 3, 18, 1, 2, 23, 24, 99)),
            rng.randrange(19),
            rng.randbytes(rng.randrange(40)),
        )
    records, tag = _records(rng)
    version = rng.choice((3, 7, 8, 9, 9, 10, 11, 12))
    tags = () if tag is None or version < 9 else ((CLAIMS_TAG, tag),)
    if version >= 9 and rng.random() < 0.1:
        tags += ((30000, b"other"),)
    parts = [(rng.choice(_TOPICS), i, records) for i in range(rng.choice((1, 1, 1, 1, 2)))]
    frame = produce_frame(number, *parts, version=version, acks=rng.choice((1, -1, 0)), tags=tags)
    if rng.random() < 0.15:
        body = broken(rng, frame[4:200]) + frame[200:]
        frame = len(body).to_bytes(4, "big") + body
    return frame


def _split(rng: random.Random, stream: bytes) -> list[memoryview]:
    splitter, at, frames = FrameSplitter(1 << 20, whole=True), 0, []
    step = rng.choice((7, 300, 1 << 20))
    while at < len(stream):
        target = splitter.get_buffer()
        size = min(len(target), len(stream) - at, step)
        target[:size] = stream[at : at + size]
        at += size
        frames += splitter.buffer_updated(size)
    return frames


def _frames(stream: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(stream):
        size = 4 + int.from_bytes(stream[at : at + 4], "big")
        found.append(stream[at : at + size])
        at += size
    return found


def _expected(request: ProduceRequestView, wire_id: int, gate: ProduceValidator) -> bytes:
    """Return what goes on of a request whose records may enter, with its length."""
    tags: list[bytes | None] = [None] * len(request)
    batches: list[bytes | None] = [None] * len(request)
    for i in range(len(request)):
        data = bytes(request.records(i) or b"")
        found = (
            None if gate.claims_out == "none" or not data[_CODEC_AT] & _CODECS else compute(data)
        )
        if found is None:
            continue
        most = gate.topics.of(request.topic(i)).max_message_bytes
        carrying = _with_payload(data, found) if gate.claims_out == "payload" else None
        if carrying is not None and len(carrying) <= most:
            batches[i] = carrying
        elif request.api_version >= _TAGS_FROM:
            tags[i] = to_tag(found, int.from_bytes(data[17:21], "big"))
    claims = tags if any(tags) or request.has_claims else None
    return b"".join(request.rewritten(correlation_id=wire_id, claims=claims, batches=batches))


def _with_payload(data: bytes, found: BatchClaims) -> bytes | None:
    """Return a batch with claims in its payload; None where it has no place for them."""
    try:
        return attach(data, found, carrier="payload")
    except BatchvalError:
        return None


def _sent_wrongly(
    came: bytes, sent: bytes, wire_id: int, gate: ProduceValidator, trusts: bool
) -> list[str]:
    """Return what is wrong with one request that was passed on."""
    if came[4:6] != b"\0\0":
        return (
            []
            if sent == came[:8] + struct.pack(">i", wire_id) + came[12:]
            else ["another request was changed"]
        )
    try:
        request = ProduceRequestView(came[4:])
    except ProtocolError as error:
        return [f"a request was passed on that cannot be read: {error}"]
    if sent != _expected(request, wire_id, gate):
        return ["the request sent is not the one that came with the gate's claims"]
    for i in range(len(request)):
        validator: LogValidator = gate.validators_of(request.topic(i))[1]
        if trusts and request.has_claims:
            continue
        result = validator.check(
            request.records(i) or b"", now_ms=NOW, produce_version=request.api_version
        )
        if not result.ok:
            return [f"records were passed on that the validator refuses: {result}"]
    return []


def _answers(
    rng: random.Random, path: FastPath, waiting: deque[Any], sent: dict[int, bytes]
) -> list[str]:
    """Answer what was sent, as far as the path takes it; return what is wrong."""
    while waiting:
        wire_id = (path.received + 1) & 0x7FFFFFFF
        request = sent.get(wire_id)
        answer = None if request is None else answered(request[4:])
        if answer is None:
            return [f"the path waits for answer {wire_id}, which nobody was asked for"]
        if request is not None and request[4:6] != b"\0\0":
            answer = struct.pack(">ii", 12, wire_id) + rng.randbytes(8)
        if rng.random() < 0.3:
            body = answer[4:8] + broken(rng, answer[8:])
            if rng.random() < 0.3:
                body = struct.pack(">i", wire_id + 1) + body[4:]
            answer = len(body).to_bytes(4, "big") + body
        client = waiting[0] & 0xFFFFFFFF if isinstance(waiting[0], int) else None
        out: list[Any] = []
        if not path.give(_split(rng, answer), 0, out):
            if out:
                return ["an answer goes on that was not taken"]
            waiting.popleft()
            path.received = wire_id
            continue
        if client is None or answer[4:8] != struct.pack(">i", wire_id):
            return ["an answer was taken that is not the next one"]
        if b"".join(out) != answer[:4] + struct.pack(">I", client) + answer[8:]:
            return ["an answer was changed beyond its correlation id"]
    return []


def fast_path_case(seed: int) -> list[str]:
    """Return what is wrong with the connection that follows from this number."""
    rng = random.Random(seed)
    word = rng.choice(_WORDS)
    claims_out = rng.choice(_CLAIMS_OUT) if word in ("ignore", "verify") else "none"
    gate = _gate(word, rng.random() < 0.3, claims_out)
    waiting: deque[Any] = deque()
    path = FastPath(_ROUTES, gate, gate.counters, waiting, {})
    path.name("CN=x")
    frames = _split(rng, b"".join(_request(rng, 1000 + i) for i in range(rng.randrange(1, 8))))
    came = [bytes(frame) for frame in frames]
    at, wire_id, sent = 0, 0, {}  # type: ignore[var-annotated]
    while at < len(frames):
        out: list[Any] = []
        end = path.take(frames, at, NOW, out)
        gone = _frames(b"".join(out))
        if len(gone) != end - at:
            return [f"{len(gone)} requests go on, {end - at} were taken"]
        for one, other in zip(came[at:end], gone, strict=True):
            asks = one[4:6] != b"\0\0" or ProduceRequestView(one[4:]).expects_response
            wire_id += asks
            if found := _sent_wrongly(
                one, other, wire_id if asks else 0, gate, word in ("trust", "audit:0.5")
            ):
                return found
            if asks:
                sent[wire_id] = other
        at = end + 1
    return _answers(rng, path, waiting, sent)
