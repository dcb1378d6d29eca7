"""The fast path and the full one do the same: bytes on both sides, counts and ends are equal.

Each case goes through two sessions without sockets: one as it is, one whose fast path knows no API
and takes nothing.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from dataclasses import asdict
from typing import Any

import pytest

from batchval.core.claims import compute, to_tag
from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol.frames import SpareBlock
from batchval.protocol.messages.produce import ProduceResponse
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.proxy.life.listener_server import ListenerServer
from batchval.proxy.produce.produce_validator import INLINE_COMPRESSED
from batchval.proxy.session.connections import BrokerConnection, ClientConnection
from batchval.proxy.session.fast_path import Routes
from batchval.proxy.session.session import Session
from batchval.proxy.session.session_states import SessionState
from batchval.proxy.settings.options import Counters, Refusal, TopicPolicies
from batchval.proxy.watch.request_latency import Traffic, histograms_of
from tests.support.proxy import (
    answered,
    batch,
    damaged,
    other_frame,
    produce_frame,
    proxy_options,
    requests_of,
)
from tests.support.seeds import seeds

ZSTD, LZ4, GZIP = 4, 3, 1
NOW_NS = time.time_ns()
SECRET = bytes(range(32))
#: Counters that depend on the time that a path takes.
TIMED = {"bytes_held", "judging_cpu_seconds_total", "reading_paused_total"}


class Wire:
    """A stand-in for a transport, which keeps what is written to it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.data += data

    def writelines(self, pieces: Any) -> None:
        for piece in pieces:
            self.data += piece

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return None

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Place:
    broker_name = "broker:9092"
    brokers = (("broker", 9092),)
    node_id, port = 1, 19092


class Side:
    """A connection in a proxy of its own, with wires for sockets."""

    def __init__(self, *, uses_fast_path: bool, **options: Any) -> None:
        self.refusals: list[Refusal] = []
        self.counters = Counters()
        self.proxy = ListenerServer(
            proxy_options(
                ("127.0.0.1", 0), (("broker", 9092),), on_refusal=self.refusals.append, **options
            ),
            self.counters,
        )
        if not uses_fast_path:
            self.proxy.fast_routes = Routes({})
        if self.proxy.gate.ledger is not None:
            self.proxy.gate.ledger = ClaimsLedger(
                self.proxy.gate.ledger.policy, secret=SECRET, first_checked=3
            )
        self.proxy.loop = asyncio.get_running_loop()
        self.proxy.budget.start(self.proxy.loop)
        # a test reads megabytes in one turn of the loop
        self.proxy.budget.is_turn_long = lambda: False  # type: ignore[method-assign]
        self.proxy.validation.start(self.proxy.loop)
        self.session = Session(self.proxy, Place())  # type: ignore[arg-type]
        self.proxy.connections[self.session] = None
        self.client, self.broker = Wire(), Wire()
        self.session.client.transport = self.client  # type: ignore[assignment]
        self.session.identity.sender = "listener x"
        identity = self.session.identity
        identity.facts = identity.facts._replace(sender="listener x")
        self.session.fast_path.name("listener x")
        self.up = BrokerConnection(self.session, self.session.limits, SpareBlock())
        self.up.transport = self.broker  # type: ignore[assignment]
        self.session.connections.broker = self.up
        self.session.lifetime.state = SessionState.OPEN
        self.answered = 0

    def read(self, of: ClientConnection | BrokerConnection, data: bytes) -> None:
        at = 0
        while at < len(data):
            buffer = of.get_buffer(-1)
            size = min(len(buffer), len(data) - at)
            buffer[:size] = data[at : at + size]
            del buffer
            of.buffer_updated(size)
            at += size

    def answer(self, split: int) -> None:
        """Let the broker answer what it has, some of it in the next read."""
        out = bytearray()
        while self.answered + 4 <= len(self.broker.data):
            size = struct.unpack_from(">i", self.broker.data, self.answered)[0]
            frame = bytes(self.broker.data[self.answered + 4 : self.answered + 4 + size])
            self.answered += 4 + size
            out += answered(frame) or b""
        self.read(self.up, bytes(out[:split]))
        self.read(self.up, bytes(out[split:]))

    def seen(self) -> dict[str, Any]:
        ledger = self.proxy.gate.ledger
        return {
            "broker": bytes(self.broker.data),
            "client": bytes(self.client.data),
            "ending": self.session.lifetime.reason,
            "counters": {
                name: count for name, count in asdict(self.counters).items() if name not in TIMED
            },
            "refusals": self.refusals,
            "ledger": None if ledger is None else ledger.counts("listener x"),
            "left": len(self.session.requests.answers),
            "requests": requests_of(self.proxy.traffic),
            "measured": measured(
                self.session.fast_path.take_served(), self.proxy.traffic.of("default", 1)
            ),
        }


def measured(served: tuple[int, int, int, int, int], traffic: Traffic) -> dict[Any, Any]:
    """Return the facts that do not depend on time: bytes, answers, and the durations' numbers."""
    of_api = {
        key: [sum(counts) for counts, _ in histograms_of(taken)]
        for key, taken in traffic.taken().items()
    }
    return {"served": served[:3], "of_api": of_api}


def claimed(frame: bytes, tags: list[bytes | None]) -> bytes:
    """Return a Produce request's frame with these claims in its partitions."""
    return b"".join(ProduceRequestView(frame[4:]).rewritten(claims=tags))


def tag_of(records: bytes, *, sizes: bool = True) -> bytes:
    found = compute(records)
    assert found is not None
    return to_tag(found if sizes else found[:3], int.from_bytes(records[17:21], "big"))


PLAIN = batch(b"one", b"two")
SMALL = {codec: batch(b"one" * 50, b"two" * 50, codec=codec) for codec in (GZIP, LZ4, ZSTD)}
LARGE = batch(*(random.Random(7).randbytes(1000) for _ in range(60)), codec=LZ4)
OLD = batch(b"a", timestamp=1000)


def one_frame(rng: random.Random, number: int) -> bytes:
    version = rng.randrange(3, 13)
    kind = rng.randrange(12)
    if kind == 0:
        return other_frame(number)
    records = rng.choice(
        [PLAIN, PLAIN, *SMALL.values(), LARGE, OLD, damaged(PLAIN), damaged(SMALL[ZSTD])]
    )
    parts = [(rng.choice(["t", "compacted"]), 0, records)]
    if kind == 1:
        parts += [("u", 1, PLAIN), ("u", 2, rng.choice([PLAIN, damaged(PLAIN)]))]
    frame = produce_frame(number, *parts, version=version, acks=rng.choice([1, 1, 1, -1, 0]))
    if version >= 9 and kind >= 6 and records not in (damaged(PLAIN), damaged(SMALL[ZSTD])):
        tag = rng.choice([tag_of(records)] * 4 + [tag_of(PLAIN), b"", b"x" * 18, bytes(200)])
        frame = claimed(frame, [tag] + [None] * (len(parts) - 1))
    if kind == 2:
        at = rng.randrange(12, len(frame))
        frame = frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :]
    return frame


def settings(rng: random.Random) -> dict[str, Any]:
    word = rng.choice(["ignore", "verify", "audit:0.2", "trust"])
    chosen: dict[str, Any] = {
        "claims_in": ClaimsPolicy.parse(word),
        "mode": rng.choice(["enforce", "enforce", "observe"]),
    }
    if word in ("ignore", "verify") and rng.random() < 0.5:
        chosen["claims_out"] = rng.choice(["tag", "payload"])
    if rng.random() < 0.5:
        policy = TopicPolicy(message_timestamp_before_max_ms=60_000)
        chosen["topics"] = TopicPolicies(
            policy, {"compacted": TopicPolicy(cleanup_policy="compact")}
        )
    return chosen


@pytest.mark.parametrize("seed", seeds(60))
def test_both_ways_do_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: NOW_NS)
    asyncio.run(both_ways(random.Random(seed)))


async def both_ways(rng: random.Random) -> None:
    chosen = settings(rng)
    sides = [Side(uses_fast_path=one, **chosen) for one in (True, False)]
    for turn in range(12):
        frames = [one_frame(rng, turn * 10 + n) for n in range(rng.randrange(1, 7))]
        data, split = b"".join(frames), rng.randrange(0, 400)
        cut = rng.randrange(len(data))
        for side in sides:
            if side.session.lifetime.reason is None:
                side.read(side.session.client, data[:cut])
            if side.session.lifetime.reason is None:
                side.read(side.session.client, data[cut:])
        for side in sides:  # what threads validate is settled before the broker answers
            for _ in range(2000):
                if not side.session.requests.outbox and not side.session.requests.untaken:
                    break
                await asyncio.sleep(0.001)
            side.answer(split)
        fast, full = (side.seen() for side in sides)
        assert fast == full
        if fast["ending"] is not None:
            break
    for side in sides:
        side.proxy.validation.stop()
        # the memory of frames is counted for the process: later tests look at it
        side.session.client.splitter.clear()
        side.up.splitter.clear()


def test_the_fast_path_is_taken() -> None:
    # Without this, the test above would compare the full path with itself.
    asyncio.run(the_fast_path())


async def the_fast_path() -> None:
    side = Side(uses_fast_path=True, claims_in=ClaimsPolicy.parse("audit:0.001"))
    # a fixed time, hence a fixed checksum: which batches are sampled depends on it, and 1 of 200 is
    small = batch(b"one" * 50, b"two" * 50, codec=LZ4, timestamp=1_790_000_000_000)
    frames = [claimed(produce_frame(n, ("t", 0, small)), [tag_of(small)]) for n in range(8)]
    frames += [produce_frame(n, ("t", 0, PLAIN)) for n in range(8, 12)]
    taken: list[memoryview] = []
    side.session._take_one = lambda *args: taken.append(args[0])  # type: ignore[method-assign]
    side.read(side.session.client, b"".join(frames))
    assert taken == []
    assert side.counters.batches_by_path["claims"] == 5  # 3 are checked first
    assert side.counters.claims_tags_dropped_total == 8
    assert len(side.broker.data) == sum(map(len, frames)) - 8 * (3 + 1 + 27)
    side.answer(0)
    codes = []
    at = 0
    while at < len(side.client.data):
        size = struct.unpack_from(">i", side.client.data, at)[0]
        answer = ProduceResponse.decode(bytes(side.client.data[at + 4 : at + 4 + size]), 9)
        codes.append(answer.responses[0].partition_responses[0].error_code)
        at += 4 + size
    assert codes == [0] * 12
    side.proxy.validation.stop()


@pytest.mark.parametrize("uses_fast_path", [True, False])
@pytest.mark.parametrize("word", ["verify", "audit:0.2", "trust"])
@pytest.mark.parametrize("sizes", [True, False])
def test_only_the_whole_limit_makes_a_bomb(uses_fast_path: bool, word: str, sizes: bool) -> None:
    # A batch above what the loop decompresses, and within the whole limit, is not a lie; above both
    # it is.
    asyncio.run(only_the_whole_limit(uses_fast_path, word, sizes))


async def only_the_whole_limit(uses_fast_path: bool, word: str, sizes: bool) -> None:
    side = Side(
        uses_fast_path=uses_fast_path,
        claims_in=ClaimsPolicy.parse(word),
        validation={"max_decompressed_bytes": 3 << 20},
    )
    large, bomb = (batch(bytes(size << 20), codec=GZIP) for size in (2, 4))  # gzip states no size
    assert len(bomb) < INLINE_COMPRESSED
    ledger = side.proxy.gate.ledger
    assert ledger is not None
    await judged(
        side, [claimed(produce_frame(n, ("t", 0, large)), [tag_of(large)]) for n in range(20)]
    )
    assert (ledger.counts().lying, ledger.counts().unjudged, side.refusals) == (0, 0, [])
    assert ledger.counts().honest + ledger.counts().trusted == 20
    tag, now_ms, refused = tag_of(bomb, sizes=sizes), NOW_NS // 1_000_000, 0
    for n in range(60):
        await judged(side, [claimed(produce_frame(n, ("t", 0, bomb)), [tag])])
        demoted = ledger.is_demoted("listener x", now_ms)
        refused += demoted
        assert demoted == (ledger.counts().lying > 0)
        assert len(side.refusals) == ledger.counts().lying == refused
    counts = ledger.counts()
    if word == "trust" and not sizes:
        assert (counts.trusted, counts.lying) == (80, 0)
    else:
        assert refused > 10
        assert (counts.demotions, counts.unjudged) == (1, 0)
        assert {refusal.rule for refusal in side.refusals} == {"decompressed-too-large"}
    side.proxy.validation.stop()


async def judged(side: Side, frames: list[bytes]) -> None:
    """Read the frames, and wait for what is validated in a thread."""
    side.read(side.session.client, b"".join(frames))
    for _ in range(10_000):
        if not side.session.requests.outbox and not side.session.requests.untaken:
            break
        await asyncio.sleep(0.001)
    assert not side.session.requests.outbox
    assert not side.session.requests.untaken
    side.answer(0)


def test_frames_are_what_a_splitter_gives() -> None:
    async def wrong() -> None:
        side = Side(uses_fast_path=True)
        for frames in ([b"x" * 20], [None], [bytearray(20)]):
            with pytest.raises(TypeError, match="memoryviews"):
                side.session.fast_path.take(frames, 0, 0, [])  # type: ignore[arg-type]
            side.session.requests.answers.append(1)
            with pytest.raises(TypeError, match="memoryviews"):
                side.session.fast_path.give(frames, 0, [])  # type: ignore[arg-type]
        side.proxy.validation.stop()

    asyncio.run(wrong())
