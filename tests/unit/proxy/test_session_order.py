"""The answers of a client and their order, while requests wait, are refused, or end the session.

A session without sockets: the test plays the client and the broker, and gives turns on the loop.
"""

from __future__ import annotations

import asyncio
import gc
import random
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchval.protocol.frames import SpareBlock
from batchval.proxy.session.connections import BROKER, SASL, TURN, VALIDATING, BrokerConnection
from batchval.proxy.session.lifetime import End, How
from batchval.proxy.session.requests import Answer
from batchval.proxy.session.session import MAX_HELD_BYTES, Session
from batchval.proxy.session.session_states import SessionState
from tests.support.network import until
from tests.support.proxy import (
    BAD,
    GOOD,
    answered,
    batch,
    codes,
    limits_with,
    other_frame,
    produce_frame,
)
from tests.support.seeds import seeds
from tests.unit.proxy.test_fast_path import Place, Side, Wire
from tests.unit.proxy.test_topic_ids import ORDERS, Broker
from tests.unit.proxy.test_topic_ids import request as by_id

pytestmark = pytest.mark.usefixtures("unhurried")

GZIP = 1
CORRUPT = 2  # CORRUPT_MESSAGE


class Rig(Side):
    """A session whose turns on the loop and whose threads go on when the test says so."""

    def __init__(self, *, in_threads: bool = False, **options: Any) -> None:
        super().__init__(uses_fast_path=True, **options)
        self.go = threading.Event()
        self.go.set()
        work = self.proxy.gate.work

        def waits(*args: Any, **kwargs: Any) -> Any:
            assert self.go.wait(30)
            return work(*args, **kwargs)

        self.proxy.gate.work = waits  # type: ignore[method-assign]
        if in_threads:
            self.proxy.gate.inline_compressed = self.proxy.gate.inline_uncompressed = 0
            self.session = Session(self.proxy, Place())  # type: ignore[arg-type]
            self.proxy.connections = {self.session: None}
            self.connect()
        self.turns: list[Callable[[], None]] = []

    def connect(self) -> None:
        session = self.session
        session.client.transport = self.client  # type: ignore[assignment]
        self.up = BrokerConnection(session, session.limits, SpareBlock())
        self.up.transport = self.broker  # type: ignore[assignment]
        session.connections.broker = self.up
        session.lifetime.state = SessionState.OPEN

    def keep_turns(self) -> None:
        budget: Any = self.proxy.budget
        budget.take_turn = lambda work, _sender: self.turns.append(work)

    def send(self, *frames: bytes) -> None:
        self.read(self.session.client, b"".join(frames))

    def got(self) -> list[bytes]:
        return frames_of(self.client.data)

    def asked(self) -> list[bytes]:
        return frames_of(self.broker.data)

    def client_leaves(self) -> None:
        self.client.closed = True
        self.session.client.connection_lost(None)

    async def judged(self) -> None:
        self.go.set()
        outbox = self.session.requests.outbox
        await until(
            lambda: not any(item.waits for item in outbox) and not len(self.proxy.validation)
        )


def frames_of(data: bytes | bytearray) -> list[bytes]:
    """Return whole frames, without their lengths."""
    found, at = [], 0
    while at + 4 <= len(data):
        size = struct.unpack_from(">i", data, at)[0]
        if at + 4 + size > len(data):
            break
        found.append(bytes(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def ids(frames: list[bytes], at: int = 0) -> list[int]:
    return [int.from_bytes(frame[at : at + 4], "big") for frame in frames]


def test_requests_that_may_go_on_are_sent_in_more_than_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batchval.proxy.session.requests.SEND_S", 0.0)

    async def test() -> None:
        rig = Rig(in_threads=True, limits=limits_with(threads=1))
        rig.keep_turns()
        rig.go.clear()
        after = [other_frame(n, body=b"after") for n in (2, 3)]
        rig.send(produce_frame(1, ("t", 0, GOOD)), *after)
        await rig.judged()
        for sent in (1, 2):
            assert len(rig.asked()) == sent
            assert len(rig.turns) == 1
            rig.turns.pop()()
        assert ids(rig.asked(), 4) == [1, 2, 3]
        assert rig.turns == []
        for at in range(3):
            rig.answer(at)
        assert ids(rig.got()) == [1, 2, 3]
        rig.proxy.validation.stop()

    run(test)


# ---- a request without an answer that is refused -------------------------------------------------


def test_nothing_that_came_after_a_refused_acks_0_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither what waits after it, nor what has not been taken; no answer changes its owner.
    monkeypatch.setattr("batchval.proxy.session.session.SLICE_S", 0.0)

    async def test() -> None:
        rig = Rig(in_threads=True)
        rig.keep_turns()
        rig.go.clear()
        after = [other_frame(n, body=b"after") for n in (3, 4, 5)]
        rig.send(other_frame(1), produce_frame(2, ("t", 0, BAD), acks=0), *after)
        rig.turns.pop()()  # takes the next one
        assert len(rig.session.requests.outbox) == 2
        await rig.judged()
        await until(lambda: rig.session.lifetime.reason)
        for turn in rig.turns:
            turn()
        assert ids(rig.asked(), 4) == [1]
        rig.answer(0)
        assert ids(rig.got()) == [1]
        assert rig.client.closed
        assert rig.session.lifetime.reason == "acks_0_refused"
        assert rig.session.requests.waiting == 0
        rig.proxy.validation.stop()

    run(test)


def test_nothing_is_taken_after_a_malformed_request_that_waited_for_its_turn() -> None:
    async def test() -> None:
        rig = Rig()
        rig.keep_turns()
        frames = [other_frame(1, key=99), other_frame(2)]
        rig.session._put_off([memoryview(bytearray(frame)) for frame in frames])
        rig.session._client_frame_error(_frame_error())
        rig.turns.pop()()
        assert rig.asked() == []
        assert rig.session.lifetime.reason == "request_version"
        rig.proxy.validation.stop()

    run(test)


def _frame_error() -> Any:
    from batchval.protocol.frames import FrameError

    return FrameError("frame length -1 is negative", -1, 100, b"", None, [])


def test_a_gate_that_stops_takes_what_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.proxy.session.session.SLICE_S", 0.0)

    async def test() -> None:
        rig = Rig()
        rig.keep_turns()
        rig.send(*(other_frame(n, key=3, version=1, body=struct.pack(">i", 0)) for n in range(4)))
        rig.session.end_when_taken("drain")
        while rig.turns:
            rig.turns.pop()()
        assert ids(rig.asked(), 4) == [1, 2, 3, 4]
        assert rig.session.lifetime.reason == "drain"
        rig.proxy.validation.stop()

    run(test)


# ---- connecting ----------------------------------------------------------------------------------


class Full(Wire):
    """A transport whose buffer is full after the first write."""

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.owner = owner

    def write(self, data: Any) -> None:
        super().write(data)
        self.owner().pause_writing()


async def connecting(rig: Rig, frames: list[bytes], wire: Callable[[Any], Wire]) -> None:
    """Send requests before the broker is connected."""
    rig.session.connections.broker, rig.session.lifetime.state = None, SessionState.CONNECTING

    async def connect(listener: object, broker: BrokerConnection) -> None:
        broker.transport = wire(broker)  # type: ignore[assignment]

    rig.proxy.connect = connect  # type: ignore[method-assign, assignment]
    rig.send(*frames)
    await until(lambda: rig.session.connections.broker is not None)


def test_a_broker_that_is_full_at_once_stops_the_client() -> None:
    async def test() -> None:
        rig = Rig()
        await connecting(rig, [other_frame(1)], lambda broker: Full(lambda: broker))
        assert rig.session.client.holds == BROKER
        assert rig.session.connections.broker is not None
        rig.session.connections.broker.resume_writing()
        assert rig.session.client.holds == 0
        rig.proxy.validation.stop()

    run(test)


def test_a_client_is_read_on_after_a_large_first_request_without_an_answer() -> None:
    async def test() -> None:
        rig = Rig()
        parts = [("t", n, batch(bytes(1_000_000))) for n in range(MAX_HELD_BYTES // 1_000_000 + 1)]
        await connecting(rig, [produce_frame(1, *parts, acks=0)], lambda broker: rig.broker)
        await until(lambda: len(rig.asked()) == 1)  # it is written in parts
        assert not rig.session.client.holds & VALIDATING
        assert rig.session.requests.waiting == 0
        rig.proxy.validation.stop()

    run(test)


# ---- a client that leaves ------------------------------------------------------------------------


def test_what_came_with_acks_0_is_judged_after_its_client_has_left() -> None:
    # Also where it waits for a thread while another request is dropped: nobody gets its answer.
    async def test() -> None:
        rig = Rig(in_threads=True, limits=limits_with(threads=1))
        rig.go.clear()
        frames = [produce_frame(n, ("t", n, GOOD), acks=0) for n in range(3)]
        dropped = [produce_frame(n, ("t", n, GOOD), acks=n % 2) for n in (3, 4)]
        rig.send(*frames, *dropped)
        rig.client_leaves()
        assert len(rig.session.requests.outbox) == 3
        await rig.judged()
        await until(lambda: not rig.session.requests.outbox)
        assert rig.asked() == [frame[4:8] + bytes(4) + frame[12:] for frame in frames]
        assert rig.broker.closed
        rig.proxy.validation.stop()

    run(test)


def test_what_came_with_acks_0_is_judged_although_the_broker_had_to_be_asked() -> None:
    async def test() -> None:
        rig = Rig()
        script = Broker()
        rig.send(by_id(1, (ORDERS, 0, GOOD), acks=0))
        rig.session.client_full(True)
        rig.client_leaves()
        assert rig.up.holds == 0
        (question,) = rig.asked()
        rig.read(rig.up, script(question) or b"")
        await until(lambda: rig.broker.closed)
        assert [frame[:2] for frame in rig.asked()] == [b"\0\3", b"\0\0"]
        rig.proxy.validation.stop()

    run(test)


def test_a_client_that_leaves_with_requests_not_taken_is_forgotten_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batchval.proxy.session.session.SLICE_S", 0.0)

    async def test() -> None:
        rig = Rig()
        rig.keep_turns()
        rig.send(*(produce_frame(n, ("t", 0, GOOD), ("u", 0, GOOD)) for n in range(3)))
        rig.client_leaves()
        while rig.turns:
            rig.turns.pop()()
        assert len(rig.asked()) == 3
        assert rig.broker.closed
        rig.up.connection_lost(None)
        assert rig.proxy.connections == {}
        rig.proxy.validation.stop()

    run(test)


# ---- tokens --------------------------------------------------------------------------------------


def test_what_comes_while_the_handshake_is_not_answered_waits() -> None:
    # TLS hands over what it has decrypted in several pieces, also to a client that is not read.
    async def test() -> None:
        rig = Rig()
        rig.send(other_frame(1, key=17, body=struct.pack(">h", 5) + b"PLAIN"))
        assert rig.session.client.holds & SASL
        rig.send(struct.pack(">i", 9) + b"\0ann\0pass")
        assert rig.session.lifetime.reason is None
        (asked,) = rig.asked()
        rig.read(rig.up, struct.pack(">i", 10) + asked[4:8] + struct.pack(">hi", 0, 0))
        await until(lambda: len(rig.broker.data) > len(asked) + 4)
        assert rig.asked()[1] == b"\0ann\0pass"
        rig.read(rig.up, bytes(4))
        assert rig.session.identity.facts.principal == "User:ann"
        rig.proxy.validation.stop()

    run(test)


def authenticate(correlation_id: int, user: bytes) -> bytes:
    token = b"\0" + user + b"\0secret"
    body = struct.pack(">i", len(token)) + token
    return other_frame(correlation_id, key=36, version=1, body=body)


def handshake(correlation_id: int, mechanism: bytes = b"PLAIN", version: int = 1) -> bytes:
    body = struct.pack(">h", len(mechanism)) + mechanism
    return other_frame(correlation_id, key=17, version=version, body=body)


def accepted(correlation_id: int) -> bytes:
    """Return the answer to a handshake."""
    return struct.pack(">iihi", 10, correlation_id, 0, 0)


def authenticated(correlation_id: int) -> bytes:
    """Return the answer to SaslAuthenticate 1."""
    return struct.pack(">iihhiq", 20, correlation_id, 0, -1, 0, 0)


def test_a_principal_is_that_of_the_token_which_the_broker_has_accepted() -> None:
    # Brokers refuse a second exchange within a second, and leave the connection as it is.
    async def test() -> None:
        rig = Rig()
        rig.session.identity.authenticated = False
        rig.send(handshake(1), authenticate(2, b"ann"), handshake(3), authenticate(4, b"admin"))
        refused = struct.pack(">iihi", 10, 3, 34, 0) + struct.pack(">iihhiq", 20, 4, 34, -1, 0, 0)
        rig.read(rig.up, accepted(1) + authenticated(2) + refused)
        assert ids(rig.got()) == [1, 2, 3, 4]
        assert rig.session.identity.authenticated
        assert rig.session.identity.facts.principal == "User:ann"
        rig.proxy.validation.stop()

    run(test)


def test_a_token_of_version_0_names_its_own_principal() -> None:
    async def test() -> None:
        rig = Rig()
        rig.send(handshake(1, version=0))
        rig.read(rig.up, accepted(1))
        rig.send(struct.pack(">i", 9) + b"\0ann\0pass", handshake(3), authenticate(4, b"admin"))
        rig.read(rig.up, bytes(4))
        assert rig.session.identity.facts.principal == "User:ann"
        rig.proxy.validation.stop()

    run(test)


def test_tokens_follow_the_handshake_of_version_0_alone() -> None:
    # The answer to one of version 1 does not accept the one of version 0 that came after it.
    async def test() -> None:
        rig = Rig()
        rig.send(handshake(1, version=1), handshake(2, version=0))
        rig.read(rig.up, accepted(1))
        rig.read(rig.up, struct.pack(">iihi", 10, 2, 34, 0))
        rig.send(produce_frame(3, ("t", 0, BAD)))
        assert len(rig.asked()) == 2
        assert codes(rig.got()[2]) == {("t", 0): 2}
        rig.proxy.validation.stop()

    run(test)


@pytest.mark.parametrize(("mechanism", "requires"), [(b"GSSAPI", True), (None, False)])
def test_an_answer_after_an_exchange_does_not_show_that_nobody_is_asked(
    mechanism: bytes | None, requires: bool
) -> None:
    async def test() -> None:
        rig = Rig()
        rig.proxy.discovery.requires_authentication = True
        rig.session.identity.authenticated = False
        first = [] if mechanism is None else [handshake(1, mechanism), authenticate(2, b"ann")]
        rig.send(*first, other_frame(3))
        answers = accepted(1) + struct.pack(">iihhi1sq", 21, 2, 0, -1, 1, b"x", 0) if first else b""
        rig.read(rig.up, answers + struct.pack(">ii", 4, len(first) + 1))
        assert rig.session.identity.authenticated
        assert rig.proxy.discovery.requires_authentication is requires
        rig.proxy.validation.stop()

    run(test)


# ---- large answers -------------------------------------------------------------------------------


def test_a_large_produce_answer_says_at_its_end_how_long_to_wait() -> None:
    async def test() -> None:
        rig = Rig(in_threads=True)
        rig.send(produce_frame(1, *(("t", n, GOOD) for n in range(3000)), version=8))
        await rig.judged()
        await until(lambda: len(rig.asked()) == 1)
        answer = answered(rig.asked()[0]) or b""
        # what has come ends like a time to wait
        cut = answer.index(struct.pack(">ih", 2500, 0)) + 4
        rig.read(rig.up, answer[:cut])
        rig.read(rig.up, answer[cut:])
        assert len(codes(rig.got()[0], 8)) == 3000
        assert rig.counters.answers_throttled == {}
        rig.proxy.validation.stop()

    run(test)


# ---- any order -----------------------------------------------------------------------------------

LARGE = batch(*(random.Random(7).randbytes(1000) for _ in range(100)), codec=GZIP)
LARGE_BAD = LARGE[:-1] + bytes([LARGE[-1] ^ 1])


KINDS = ["good", "bad", "acks0", "large", "large bad", "part", "other", "answer", "meta", "id"]


class Model:
    """The expected requests to the broker and answers to the client, for requests of all kinds."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.forwarded: list[bytes] = []  # key and the part of the request that is its own
        self.answers: list[tuple[int, object]] = []  # correlation id, and the body or what it says
        self.script = Broker()
        self.number = 0

    def request(self) -> bytes:
        """Return the next request, and note what becomes of it."""
        n = self.number = self.number + 1
        kind = self.rng.choice(KINDS)
        if kind == "other":
            return self.other(n, 22, self.rng.randrange(20))
        if kind == "answer":  # a large answer
            return self.other(n, 22, self.rng.choice([70_000, 300_000]))
        if kind == "meta":
            self.forwarded.append(b"meta")
            self.answers.append((n, "meta"))
            return other_frame(n, key=3, version=1, body=struct.pack(">i", 0))
        if kind == "id":
            self.forwarded.append(b"id")
            self.answers.append((n, {(ORDERS, n): 0}))
            return by_id(n, (ORDERS, n, GOOD))
        records = {"bad": BAD, "large": LARGE, "large bad": LARGE_BAD}.get(kind, GOOD)
        parts = [("t", n, records)] + ([("u", n, BAD)] if kind == "part" else [])
        if kind not in ("bad", "large bad"):
            self.forwarded.append(b"produce %d" % n)
        if kind != "acks0":
            found = {(name, n): CORRUPT * (data in (BAD, LARGE_BAD)) for name, _, data in parts}
            self.answers.append((n, found))
        return produce_frame(n, *parts, acks=0 if kind == "acks0" else 1)

    def other(self, n: int, key: int, size: int) -> bytes:
        body = struct.pack(">ii", n, size)
        self.forwarded.append(body)
        self.answers.append((n, body + bytes(size)))
        return other_frame(n, key=key, body=body)


def replied(frame: bytes, seen: list[bytes], script: Broker) -> bytes:
    """Return the broker's answer; ``seen`` gets its requests."""
    from batchval.protocol.messages.produce import ProduceRequest

    key, version = struct.unpack_from(">hh", frame)
    if key == 22:
        seen.append(frame[-8:])
        body = frame[4:8] + frame[-8:] + bytes(struct.unpack(">i", frame[-4:])[0])
        return struct.pack(">i", len(body)) + body
    if key == 3 and version == 1:
        seen.append(b"meta")
        body = frame[4:8] + struct.pack(">iii", 0, 1, 0)
        return struct.pack(">i", len(body)) + body
    if key == 3:  # the gate's own question
        return script(frame) or b""
    if version == 13:
        seen.append(b"id")
        return script(frame) or b""
    first = ProduceRequest.parse(frame)[1].topic_data[0].partition_data[0]
    seen.append(b"produce %d" % first.index)
    return answered(frame) or b""


@pytest.mark.parametrize("seed", seeds(25))
def test_every_request_is_answered_in_its_turn(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("batchval.proxy.session.session.SLICE_S", rng.choice([0.0, 0.001]))
    run(lambda: in_turn(rng))


async def in_turn(rng: random.Random) -> None:
    from tests.unit.proxy.test_topic_ids import answer

    rig, model, seen = Rig(in_threads=rng.random() < 0.3), Model(rng), []
    data = b"".join(model.request() for _ in range(40))
    sent = taken = delivered = 0
    out = bytearray()
    async with asyncio.timeout(60):
        while len(rig.got()) < len(model.answers) or len(seen) < len(model.forwarded):
            step = rng.randrange(3)
            if step == 0 and sent < len(data) and not rig.session.client.holds:
                size = rng.choice([1, 50, 400, 5000, 400_000])
                rig.send(data[sent : sent + size])
                sent += size
            elif step == 1:
                asked = rig.asked()
                for frame in asked[taken:]:
                    out += replied(frame, seen, model.script)
                taken = len(asked)
                size = rng.choice([1, 20, 3000, 100_000, 700_000])
                rig.read(rig.up, bytes(out[delivered : delivered + size]))
                delivered = min(len(out), delivered + size)
            else:
                await asyncio.sleep(0)
            assert rig.session.lifetime.reason is None
    assert seen == model.forwarded
    found = rig.got()
    assert ids(found) == [n for n, _ in model.answers]
    for frame, (_, wanted) in zip(found, model.answers, strict=True):
        if isinstance(wanted, bytes):
            assert frame[4:] == wanted
        elif isinstance(wanted, dict):
            is_id = any(isinstance(name, bytes) for name, _ in wanted)
            assert (answer(frame) if is_id else codes(frame)) == wanted
    assert list(rig.session.requests.answers) == []
    assert (rig.session.requests.waiting, rig.session.requests.made) == (0, 0)
    rig.proxy.validation.stop()


# ---- long turns of the loop ----------------------------------------------------------------------


def test_large_requests_and_answers_are_read_on_in_later_turns() -> None:
    async def test() -> None:
        rig = Rig(in_threads=False)
        rig.keep_turns()
        budget: Any = rig.proxy.budget
        budget.is_turn_long = lambda: True
        request = other_frame(1, body=bytes(300_000))
        rig.send(request[:200_000])
        assert rig.session.client.holds == TURN
        rig.turns.pop()()
        assert rig.session.client.holds == 0
        rig.send(request[200_000:])
        assert rig.asked() == [request[4:]]
        answer = struct.pack(">ii", 9_000_000, 1) + bytes(9_000_000 - 4)
        rig.read(rig.up, answer[:200_000])
        assert rig.up.holds == TURN
        rig.turns.pop()()
        assert rig.up.holds == 0
        rig.session.broker_lost()
        rig.session._release_broker(TURN)  # nothing is left to read

    run(test)


# ---- one owner -----------------------------------------------------------------------------------


def test_the_parts_of_a_session_do_not_know_it() -> None:
    async def test() -> None:
        rig = Rig()
        session = rig.session
        rig.send(produce_frame(1, ("t", 0, GOOD)), other_frame(2))
        lifetime, identity, seen = session.lifetime, session.identity, session.seen_client
        for part in (lifetime, session.connections, session.requests, identity, seen):
            assert not any(one is session for one in gc.get_referents(part)), part
        rig.proxy.validation.stop()

    run(test)


def test_requests_ask_for_an_end_that_the_session_carries_out() -> None:
    async def test() -> None:
        rig = Rig()
        requests = rig.session.requests
        requests.end("first", "why")
        requests.abort("second")
        assert requests.effects == [End("first", How.DRAIN, "why"), End("second", How.NOW)]
        assert rig.session.lifetime.reason is None
        rig.session._carry_out()
        assert requests.effects == []
        assert rig.session.lifetime.reason == "first"
        assert rig.session.lifetime.state is SessionState.CLOSED
        rig.proxy.validation.stop()

    run(test)


def test_a_refused_request_waits_in_its_place_for_the_answers_before_it() -> None:
    async def test() -> None:
        rig = Rig()
        rig.send(other_frame(1), produce_frame(2, ("t", 0, BAD)))
        assert rig.got() == []
        requests = rig.session.requests
        waits = requests.answers[1]
        assert isinstance(waits, Answer)
        assert requests.made == waits.held == sum(map(len, waits.ready or ())) > 0
        rig.answer(1 << 20)
        assert ids(rig.got()) == [1, 2]
        assert (requests.made, list(requests.answers)) == (0, [])
        rig.proxy.validation.stop()

    run(test)
