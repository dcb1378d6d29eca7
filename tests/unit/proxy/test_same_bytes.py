"""The fast path and the full path send the same bytes to the broker, and count the same.

Every frame goes through both: a fixed corpus, and requests that follow from a number, good and
damaged. What the fast path does not take is validated by the full path alone.
"""

from __future__ import annotations

import random
import struct
import time
from collections import deque
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.core.claims import compute, to_tag
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.walkers.produce import CLAIMS_TAG, ProduceRequestView
from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.session.fast_path import FastPath, Routes
from batchval.proxy.settings.config import ClaimsOut
from batchval.proxy.settings.options import Counters, TopicPolicies
from tests.evidence.hostile.fast_path import _request
from tests.support.proxy import BAD, COMPRESSED, GOOD, batch, produce_frame, proxy_options

FACTS = SimpleNamespace(sender="CN=x", client="c:1", principal="User:x", listener="l")
ROUTES = Routes({0: (3, 13, 1 << 30)})
#: claims_in and claims_out
WAYS: tuple[tuple[str, ClaimsOut], ...] = (
    ("ignore", "none"),
    ("verify", "none"),
    ("trust", "none"),
    ("ignore", "tag"),
    ("ignore", "payload"),
    ("verify", "tag"),
    ("verify", "payload"),
)
COUNTED = (
    "batches_by_path",
    "produce_partitions_total",
    "claims_tags_added_total",
    "claims_tags_dropped_total",
    "claims_payloads_added_total",
    "partitions_refused",
)
TRUE_CLAIMS = compute(COMPRESSED)
assert TRUE_CLAIMS is not None
CLAIMS = to_tag(TRUE_CLAIMS, int.from_bytes(COMPRESSED[17:21], "big"))
GZIP, LZ4 = batch(b"one" * 50, codec=1), batch(b"one" * 50, codec=3)
GLOBS = {
    "compact*": TopicPolicy(cleanup_policy="compact"),
    "small*": TopicPolicy(max_message_bytes=80),
    # a batch, and no byte of claims more
    "full*": TopicPolicy(max_message_bytes=len(COMPRESSED)),
}

CORPUS = {
    f"{name}, version {version}, acks {acks}": produce_frame(
        5,
        *[(topic, i, records) for i, (topic, records) in enumerate(parts)],
        version=version,
        acks=acks,
        tags=tags,
    )
    for name, parts, tags in (
        ("good", [("t", GOOD)], ()),
        ("bad", [("t", BAD)], ()),
        ("compressed", [("t", COMPRESSED)], ()),
        ("compressed to what its topic allows", [("full-a", COMPRESSED)], ()),
        ("compressed by gzip", [("t", GZIP)], ()),
        ("compressed by lz4", [("t", LZ4)], ()),
        ("of others: compressed", [("t", COMPRESSED)], ((30000, b"x"),)),
        ("claims", [("t", COMPRESSED)], ((CLAIMS_TAG, CLAIMS),)),
        ("claims of another batch", [("t", COMPRESSED)], ((CLAIMS_TAG, CLAIMS[:-1] + b"\0"),)),
        ("claims and others", [("t", COMPRESSED)], ((CLAIMS_TAG, CLAIMS), (30000, b"x"))),
        ("two", [("t", GOOD), ("u", COMPRESSED)], ()),
        ("compacted", [("compact-a", batch(b"v", key=None))], ()),
        ("too large", [("small-a", GOOD)], ()),
        ("large", [("t", batch(b"v" * 500_000))], ()),
        ("very large", [("t", batch(b"v" * 2_000_000))], ()),
        ("many records", [("t", batch(*[b""] * 50_000))], ()),
        ("no records", [("t", b"")], ()),
        ("a name that cannot be", [("a b", GOOD)], ()),
    )
    for version in (3, 8, 9, 12)
    for acks in (1, 0)
    if version >= 9 or not tags
}


def gate_of(word: str, claims_out: ClaimsOut, **validation: Any) -> ProduceValidator:
    options = proxy_options(
        topics=TopicPolicies(TopicPolicy(), GLOBS),
        claims_in=ClaimsPolicy.parse(word),
        claims_out=claims_out,
        validation=validation,
    )
    return ProduceValidator(options, Counters())


def _received(frame: bytes) -> memoryview:
    """Return the frame as a connection receives it."""
    splitter, at = FrameSplitter(8 << 20, whole=True), 0
    found: list[memoryview] = []
    while at < len(frame):
        target = splitter.get_buffer()
        size = min(len(target), len(frame) - at)
        target[:size] = frame[at : at + size]
        at += size
        found += splitter.buffer_updated(size)
    (view,) = found
    return view


def by_fast_path(gate: ProduceValidator, frame: bytes) -> bytes | None:
    """Return what goes to the broker; None where the fast path does not take the frame."""
    answers: deque[Any] = deque()
    path = FastPath(ROUTES, gate, gate.counters, answers, {})
    path.name(FACTS.sender)
    out: list[Any] = []
    view = _received(frame)
    taken = path.take([view], 0, time.time_ns() // 1_000_000, out)
    assert bool(out) == bool(taken)
    assert all(map(len, out)), "an empty piece: asyncio's transports do not get rid of it"
    return b"".join(out) if taken else None


def by_full_path(gate: ProduceValidator, frame: bytes) -> bytes | None:
    """Return what goes to the broker; None where nothing does."""
    request = ProduceRequestView(frame[4:])
    wire_id = 1 if request.expects_response else 0
    verdict = gate.validate(request, FACTS.sender)
    while not verdict.done:
        gate.work(request, verdict, heavy=True, budget_s=1.0)
    gate.settle(request, verdict, FACTS)
    if not verdict.any_left:
        return None
    if verdict.untouched:
        return frame[:8] + struct.pack(">i", wire_id) + frame[12:]
    return b"".join(verdict.forwarded(request, wire_id))


def compared(word: str, claims_out: ClaimsOut, frame: bytes) -> bool:
    """Return whether the fast path took the frame."""
    fast, full = gate_of(word, claims_out), gate_of(word, claims_out)
    sent = by_fast_path(fast, frame)
    if sent is None:
        return False
    assert sent == by_full_path(full, frame)
    ours, theirs = asdict(fast.counters), asdict(full.counters)
    for name in COUNTED:
        assert ours[name] == theirs[name], name
    if fast.ledger is not None and full.ledger is not None:
        assert fast.ledger.counts() == full.ledger.counts()
    return True


@pytest.mark.parametrize(("word", "claims_out"), WAYS)
@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus(name: str, word: str, claims_out: ClaimsOut) -> None:
    took = compared(word, claims_out, CORPUS[name])
    if name.startswith(("good", "a name", "large")):
        assert took
    if name.startswith("compressed"):  # zstd came with version 7
        assert took == ("version 3" not in name or "by" in name)
    if name.startswith(
        ("bad", "two", "very large", "many records", "too large", "compacted", "no records")
    ):
        assert not took


@pytest.mark.parametrize(("word", "claims_out"), WAYS)
def test_requests_that_follow_from_a_number(word: str, claims_out: ClaimsOut) -> None:
    rng = random.Random(20)
    took = 0
    for n in range(1500):
        frame = _request(rng, n)
        try:
            ProduceRequestView(frame[4:])
        except ProtocolError:
            if frame[4:6] == b"\0\0":
                assert by_fast_path(gate_of(word, claims_out), frame) is None
            continue
        took += compared(word, claims_out, frame)
    # where claims are made, what brings some goes the full path
    assert took > (150 if claims_out == "none" else 100)


@pytest.mark.parametrize("claims_out", ["tag", "payload"])
@pytest.mark.parametrize("more", [bytes(5), COMPRESSED[:40]], ids=["bytes", "part of a batch"])
@pytest.mark.parametrize("mode", ["kafka", "strict"])
def test_claims_do_not_enter_a_payload_with_bytes_after_the_batch(
    mode: str, more: bytes, claims_out: ClaimsOut
) -> None:
    # Kafka cuts them off; a batch that counted them would have a wrong crc.
    frame = produce_frame(5, ("t", 0, COMPRESSED + more), version=9)
    sent = [by_full_path(gate_of("ignore", claims_out, rules=mode), frame)]
    if mode == "kafka":  # strict rules report the bytes
        sent.append(by_fast_path(gate_of("ignore", claims_out, rules=mode), frame))
    for one in sent:
        assert one is not None
        request = ProduceRequestView(one[4:])
        assert bytes(request.records(0) or b"") == COMPRESSED + more
        assert request.claims(0) == CLAIMS


def test_requests_that_take_long_leave_the_rest_of_the_turn_to_others() -> None:
    """A call of the fast path ends when it has worked for a millisecond; these take a hundred."""
    gate = gate_of("ignore", "none")
    frame = produce_frame(1, ("t", 0, batch(bytes(500_000), codec=1)))
    frames = [_received(frame) for _ in range(300)]
    path = FastPath(ROUTES, gate, gate.counters, deque(), {})
    path.name(FACTS.sender)
    out: list[Any] = []
    first = path.take(frames, 0, time.time_ns() // 1_000_000, out)
    assert path.spent
    assert 0 < first < 100
    assert first < path.take(frames, first, time.time_ns() // 1_000_000, out) < first + 100
