"""A closed session is freed by reference counts, however it ends: the cycle collector is off here.

Each case ends some sessions in one way, and then counts what they were made of.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import trustme

from batchval.proxy.life import listener_server
from batchval.proxy.produce.validation_queue import Job, OneSlice
from batchval.proxy.session.connections import BrokerConnection, ClientConnection, Connections
from batchval.proxy.session.fast_path import AnswerPassage, FastPath, RequestPassage
from batchval.proxy.session.identity import Identity
from batchval.proxy.session.lifetime import Lifetime
from batchval.proxy.session.requests import Answer, Item, Lowering, Requests
from batchval.proxy.session.session import Session
from batchval.proxy.session.socket_transport import SocketTransport
from batchval.proxy.settings.config import Limits
from batchval.proxy.tls.handshakes import HandshakeError
from tests.support.network import closed_port, reset_on_close, until
from tests.support.old_fetches import fetch_frame
from tests.support.proxy import (
    BAD,
    GOOD,
    LOOPBACK,
    RunningProxy,
    ScriptedBroker,
    answered,
    batch,
    eventually,
    limits_with,
    other_frame,
    produce_frame,
    read_frame,
)
from tests.unit.proxy.test_bridge_fetch import list_offsets, offsets_answer
from tests.unit.proxy.test_session_order import Rig
from tests.unit.proxy.test_strangers import guarded, handshake, requiring

KINDS = (
    *(Session, ClientConnection, BrokerConnection, FastPath, Requests, Connections),
    *(Identity, Lifetime, Answer, Item, Job, OneSlice, Lowering),
    *(SocketTransport, RequestPassage, AnswerPassage),
    HandshakeError,
)
#: What is in the cycles of an exception and of a transport.
CYCLIC = ("traceback", "frame", "Future", "Task", "TCPTransport", "SSLProtocol", "SSLObject")
SESSIONS = 5

AUTHORITY = trustme.CA()
SERVER = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
AUTHORITY.issue_cert(LOOPBACK).configure_cert(SERVER)
CLIENT = ssl.create_default_context()
AUTHORITY.configure_trust(CLIENT)
STRANGER = ssl.create_default_context()  # does not trust the gate
ASKING = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # for a client's certificate
AUTHORITY.issue_cert(LOOPBACK).configure_cert(ASKING)
ASKING.verify_mode = ssl.CERT_REQUIRED
HELLO = bytes.fromhex("16030102000100")  # the beginning of a ClientHello of 508 bytes

Ends = Callable[[RunningProxy, ScriptedBroker], object]


def counted() -> Counter[str]:
    """Return how many objects of a session there are, by class."""
    return Counter(type(one).__name__ for one in gc.get_objects() if issubclass(type(one), KINDS))


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Free by reference counts alone, and let nothing be left that would need the collector."""
    gc.collect()
    gc.disable()
    before = counted()
    try:
        yield
        eventually(lambda: counted() <= before)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        # of a loop of an earlier test, not of each session
        left = Counter(type(one).__name__ for one in gc.garbage)
        assert not {name: left[name] for name in CYCLIC if left[name] >= SESSIONS}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


class Case(NamedTuple):
    """One way to end: ``end`` ends one session, ``prepare`` comes before the first."""

    end: Ends
    answer: Callable[[bytes], bytes | None] = answered
    limits: Limits = Limits()
    prepare: Ends = lambda proxy, broker: None
    options: Mapping[str, Any] = MappingProxyType({})


def connect(proxy: RunningProxy) -> socket.socket:
    return socket.create_connection(proxy.address, 20)


def until_closed(sock: socket.socket) -> None:
    """Read until the gate closes the connection."""
    with sock, contextlib.suppress(OSError):
        while sock.recv(1 << 16):
            pass


def sends(*frames: bytes, answers: int = 0, wait_s: float = 0.0) -> Ends:
    """Send these and leave, once so many answers are here."""

    def end(proxy: RunningProxy, broker: ScriptedBroker) -> None:
        with connect(proxy) as sock:
            sock.sendall(b"".join(frames))
            for _ in range(answers):
                read_frame(sock)
            time.sleep(wait_s)

    return end


def is_closed(*frames: bytes) -> Ends:
    """Send these, and let the gate close the connection."""

    def end(proxy: RunningProxy, broker: ScriptedBroker) -> None:
        sock = connect(proxy)
        sock.sendall(b"".join(frames))
        until_closed(sock)

    return end


def resets(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    with connect(proxy) as sock:
        sock.sendall(other_frame(1))
        read_frame(sock)
        reset_on_close(sock)


def broker_closes(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    def answer(_: bytes) -> None:
        assert broker.talking is not None
        broker.talking.shutdown(socket.SHUT_RDWR)

    broker.answer = answer


def broker_leaves_later(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    with connect(proxy) as sock:
        sock.sendall(other_frame(1))
        read_frame(sock)
        assert broker.talking is not None
        broker.talking.shutdown(socket.SHUT_RDWR)
        until_closed(sock)


def secured(proxy: RunningProxy, context: ssl.SSLContext = CLIENT) -> ssl.SSLSocket:
    return context.wrap_socket(connect(proxy), server_hostname=LOOPBACK)


def over_tls(*frames: bytes, answers: int = 0, is_ended: bool = False) -> Ends:
    def end(proxy: RunningProxy, broker: ScriptedBroker) -> None:
        with secured(proxy) as sock:
            sock.sendall(b"".join(frames))
            for _ in range(answers):
                read_frame(sock)
            if is_ended:
                until_closed(sock)

    return end


def does_not_trust(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    with contextlib.suppress(ssl.SSLError):
        secured(proxy, STRANGER).close()


def shows_no_certificate(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    with contextlib.suppress(OSError):
        until_closed(secured(proxy))


def leaves_in_the_handshake(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    tls = CLIENT.wrap_bio(ssl.MemoryBIO(), out := ssl.MemoryBIO(), server_hostname=LOOPBACK)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    with connect(proxy) as sock:
        sock.sendall(out.read())
        assert sock.recv(1)


def malformed_hello(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    tls = CLIENT.wrap_bio(ssl.MemoryBIO(), out := ssl.MemoryBIO(), server_hostname=LOOPBACK)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = out.read()
    is_closed(hello[:60] + bytes(len(hello) - 60))(proxy, broker)


def authenticates(version: int) -> Ends:
    def end(proxy: RunningProxy, broker: ScriptedBroker) -> None:
        token = b"\0ann\0secret"
        with connect(proxy) as sock:
            sock.sendall(handshake(1, version))
            read_frame(sock)
            sock.sendall(struct.pack(">i", len(token)) + token)
            with contextlib.suppress(EOFError):
                read_frame(sock)

    return end


def in_threads(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    gate = proxy.proxy.gate
    gate.inline_compressed = gate.inline_uncompressed = 0


def slow_threads(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    """Let a thread take longer than a client stays."""
    in_threads(proxy, broker)
    work = proxy.proxy.gate.work

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.02)
        return work(*args, **kwargs)

    proxy.proxy.gate.work = slow  # type: ignore[method-assign]


def failing_threads(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    in_threads(proxy, broker)

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError

    proxy.proxy.gate.work = fails  # type: ignore[method-assign]


def full(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    """Let one client take the place of all others."""
    sock = connect(proxy)
    proxy.loop.call_soon_threadsafe(lambda: None)
    eventually(lambda: proxy.proxy.connections)
    proxy.kept = sock  # type: ignore[attr-defined]


def evicted(proxy: RunningProxy, broker: ScriptedBroker) -> None:
    """End a session that is in all lists of the budget."""
    eventually(lambda: not proxy.proxy.connections)
    with connect(proxy) as sock:
        sock.sendall(other_frame(1)[:9])
        eventually(lambda: proxy.proxy.connections)

        async def evict() -> None:
            budget = proxy.proxy.budget
            (session,) = proxy.proxy.connections
            budget.note_full(session, True)
            budget.begin_large(session, 1 << 20)
            budget._pause(session)
            budget._look_again()
            budget._evict(session)

        proxy.call(evict())
        until_closed(sock)


def in_the_loop(act: Callable[[Session], object], *frames: bytes) -> Ends:
    """Send these, and call ``act`` with the session on the loop."""

    def end(proxy: RunningProxy, broker: ScriptedBroker) -> None:
        eventually(lambda: not proxy.proxy.connections)
        with connect(proxy) as sock:
            sock.sendall(b"".join(frames))
            eventually(lambda: proxy.proxy.connections)
            if frames:
                eventually(lambda: all(one.lifetime.spoke for one in list(proxy.proxy.connections)))

            async def call() -> None:
                for session in list(proxy.proxy.connections):
                    act(session)

            proxy.call(call())
            until_closed(sock)

    return end


def empty_fetch(frame: bytes) -> bytes:
    """Answer ListOffsets 1, else a Fetch 10 with so many bytes that a thread converts it."""
    if frame[:2] == b"\0\2":
        return offsets_answer(frame)
    records = batch(*[b"v" * 100] * 100)
    part = struct.pack(">ihqqqii", 0, 0, 200, 200, 0, 0, len(records)) + records
    body = frame[4:8] + struct.pack(">ihi", 0, 0, 0) + struct.pack(">ih1si", 1, 1, b"t", 1) + part
    return struct.pack(">i", len(body)) + body


BRIDGE = {"bridge": ("consumers", "producers")}
TLS = {"listen_tls": SERVER}
QUICK = limits_with(handshake_timeout_ms=100, idle_timeout_ms=100, drain_timeout_ms=1_000)
REQUEST = other_frame(1)
PRODUCE = produce_frame(1, ("t", 0, GOOD))
FETCH = fetch_frame(3, 1, {("t", 0): (0, 1 << 20)})

CASES = {
    "client closes": Case(sends(REQUEST, answers=1)),
    "client never sends": Case(sends()),
    "client closes in a request": Case(sends(REQUEST[:9])),
    "client closes before the answer": Case(sends(REQUEST, wait_s=0.02), lambda _: None),
    "client closes at once": Case(sends(REQUEST)),
    "client closes at once, acks 0": Case(sends(produce_frame(1, ("t", 0, GOOD), acks=0))),
    "client resets": Case(resets),
    "frame size": Case(is_closed(b"\xff" * 4)),
    "plain HTTP": Case(is_closed(b"GET / HTTP/1.1\r\n\r\n")),
    "no header": Case(is_closed(b"\0\0\0\2\0\0")),
    "unknown API": Case(is_closed(other_frame(1, key=99))),
    "malformed Produce": Case(is_closed(struct.pack(">i", 20) + PRODUCE[4:24])),
    "no first request": Case(is_closed(), limits=QUICK),
    "idle": Case(is_closed(REQUEST), limits=QUICK),
    "max_age": Case(is_closed(REQUEST), limits=limits_with(max_connection_age_ms=100)),
    "refused by the address": Case(
        is_closed(REQUEST), limits=limits_with(max_connections_per_address=1), prepare=full
    ),
    "refused by the listener": Case(
        is_closed(REQUEST), options={"max_connections": 1}, prepare=full
    ),
    "evicted": Case(evicted),
    "aborted": Case(in_the_loop(lambda session: session.abort("fault"))),
    "aborted while it connects": Case(
        in_the_loop(lambda session: (session._connect_later(), session.abort("fault")))
    ),
    "ended and aborted": Case(
        in_the_loop(lambda session: (session.end("drain"), session.abort("fault")), REQUEST)
    ),
    "half closed": Case(in_the_loop(lambda session: session.end("drain"), REQUEST)),
    "half closed, and then sends": Case(
        in_the_loop(lambda session: session.end("drain"), REQUEST, other_frame(2))
    ),
    "broker closes at a request": Case(is_closed(REQUEST), prepare=broker_closes),
    "broker closes later": Case(broker_leaves_later),
    "broker answers out of turn": Case(is_closed(REQUEST), lambda _: struct.pack(">ii", 4, 77)),
    "broker's frame is malformed": Case(is_closed(REQUEST), lambda _: b"\xff" * 4),
    "broker's answer is malformed": Case(
        is_closed(other_frame(1, key=3, version=9)),
        lambda frame: struct.pack(">i", 6) + frame[4:8] + b"\0\0",
    ),
    "a batch is refused": Case(sends(produce_frame(1, ("t", 0, BAD)), answers=1)),
    "a batch of acks 0 is refused": Case(is_closed(produce_frame(1, ("t", 0, BAD), acks=0))),
    "a part of a request is refused": Case(
        sends(produce_frame(1, ("t", 0, BAD), ("t", 1, GOOD)), answers=1)
    ),
    "validated in a thread": Case(sends(PRODUCE, answers=1), prepare=in_threads),
    "closes while a thread validates": Case(
        sends(PRODUCE, PRODUCE, REQUEST, wait_s=0.01), prepare=slow_threads
    ),
    "closes while a thread validates acks 0": Case(
        sends(produce_frame(1, ("t", 0, GOOD), acks=0), wait_s=0.01), prepare=slow_threads
    ),
    "a thread fails": Case(is_closed(PRODUCE), prepare=failing_threads),
    "an old Fetch": Case(sends(FETCH, answers=1), empty_fetch, options=BRIDGE),
    "closes while an answer is lowered": Case(
        sends(FETCH, wait_s=0.005), empty_fetch, options=BRIDGE
    ),
    "raised in a thread": Case(sends(list_offsets(1, 600), answers=1), empty_fetch, options=BRIDGE),
    "closes while a request is raised": Case(
        sends(list_offsets(1, 600), REQUEST), empty_fetch, options=BRIDGE
    ),
    "a malformed request is raised": Case(
        is_closed(other_frame(1, key=2, version=0, body=b"\x7f" * 5000)), options=BRIDGE
    ),
    "a malformed answer is lowered": Case(
        is_closed(FETCH),
        lambda frame: struct.pack(">i", 5000) + frame[4:8] + b"\x7f" * 4996,
        options=BRIDGE,
    ),
    "SASL": Case(authenticates(0), guarded, prepare=lambda proxy, _: requiring(proxy)),
    "SASL is not finished": Case(
        sends(handshake(1, 0), answers=1), guarded, prepare=lambda proxy, _: requiring(proxy)
    ),
    "TLS": Case(over_tls(REQUEST, answers=1), options=TLS),
    "TLS and no request": Case(over_tls(), options=TLS),
    "TLS, frame size": Case(over_tls(b"\xff" * 4, is_ended=True), options=TLS),
    "TLS, idle": Case(over_tls(REQUEST, is_ended=True), limits=QUICK, options=TLS),
    "TLS, not trusted": Case(does_not_trust, options=TLS),
    "TLS, no certificate": Case(shows_no_certificate, options={"listen_tls": ASKING}),
    "TLS, plain text": Case(is_closed(REQUEST), options=TLS),
    "TLS, no byte": Case(sends(), options=TLS),
    "TLS, part of a hello": Case(sends(HELLO), options=TLS),
    "TLS, malformed hello": Case(malformed_hello, options=TLS),
    "TLS, never finished": Case(is_closed(HELLO), limits=QUICK, options=TLS),
    "TLS, closes in the handshake": Case(leaves_in_the_handshake, options=TLS),
    "TLS, aborted in the handshake": Case(
        in_the_loop(lambda session: session.abort("fault")), options=TLS
    ),
}


@pytest.mark.parametrize("loop_kind", ["uvloop", "asyncio"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_of_a_session_is_left(
    name: str, loop_kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[name]
    with ScriptedBroker(case.answer) as broker:
        proxy = RunningProxy(broker.address, limits=case.limits, **case.options)
        end_all(proxy, broker, case, loop_kind, caplog)


def end_all(
    proxy: RunningProxy,
    broker: ScriptedBroker,
    case: Case,
    loop_kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """End some sessions, and look for what is left of them."""
    caplog.set_level(logging.CRITICAL)  # a log record may hold an exception
    if loop_kind == "asyncio":
        proxy.loop = asyncio.new_event_loop()
    with proxy:
        kept = 1 if case.prepare is full else 0
        case.prepare(proxy, broker)

        counters = proxy.counters

        def is_idle(ended: int) -> bool:
            came = counters.connections_total + counters.connections_refused_total
            is_over = came == kept + ended and len(proxy.proxy.connections) == kept
            return is_over and not len(proxy.proxy.validation)

        case.end(proxy, broker)  # what is made once
        eventually(lambda: is_idle(1))
        broker.frames.clear()
        gc.collect()  # sessions of other tests
        eventually(lambda: counted()["Session"] == kept)
        with no_collector():
            for _ in range(SESSIONS):
                case.end(proxy, broker)
            eventually(lambda: is_idle(1 + SESSIONS), 30.0)
            broker.frames.clear()
        if kept:
            proxy.kept.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("loop_kind", ["uvloop", "asyncio"])
def test_nothing_is_left_where_no_broker_can_be_reached(
    loop_kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(is_closed(REQUEST))
    proxy = RunningProxy(f"{LOOPBACK}:{closed_port()}")
    with ScriptedBroker() as broker:
        end_all(proxy, broker, case, loop_kind, caplog)
    assert proxy.counters.connections_closed == {"upstream_unreachable": 1 + SESSIONS}


@pytest.mark.long
def test_nothing_is_left_of_many_sessions() -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy, no_collector():
        for _ in range(1_000):
            CASES["client closes"].end(proxy, broker)
        broker.frames.clear()
        eventually(lambda: proxy.counters.connections_total == 1_000)
        eventually(lambda: not proxy.proxy.connections)


@pytest.mark.parametrize("options", [{}, TLS], ids=["plain", "TLS"])
def test_a_connection_that_cannot_be_opened(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    async def fails(*_: Any, **__: Any) -> None:
        failed.append(1)
        raise OSError

    class Failing:
        def __init__(self, _loop: Any, sock: socket.socket, protocol: Any) -> None:
            self.sock = sock
            self.protocol = protocol

        def get_protocol(self) -> Any:
            return self.protocol

        def start(self) -> None:
            self.sock.close()
            failed.append(1)
            raise OSError

    monkeypatch.setattr(asyncio.BaseEventLoop, "connect_accepted_socket", fails)
    monkeypatch.setattr(listener_server, "SocketTransport", Failing)
    proxy = RunningProxy(f"{LOOPBACK}:{closed_port()}", **options)
    proxy.loop = asyncio.new_event_loop()
    with proxy, no_collector():
        for _ in range(SESSIONS):
            is_closed()(proxy, ScriptedBroker.__new__(ScriptedBroker))
        eventually(lambda: len(failed) == SESSIONS)


@pytest.mark.parametrize("turns", range(6))
def test_a_session_that_is_aborted_while_it_connects(turns: int) -> None:
    async def abort(proxy: RunningProxy) -> None:
        (session,) = proxy.proxy.connections
        session._connect_later()
        for _ in range(turns):
            await asyncio.sleep(0)
        session.abort("fault")

    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy, no_collector():
        for _ in range(SESSIONS):
            with connect(proxy) as sock:
                sock.sendall(REQUEST[:9])
                eventually(lambda: proxy.proxy.connections)
                proxy.call(abort(proxy))
                until_closed(sock)
            eventually(lambda: not proxy.proxy.connections)


def test_a_closed_session_may_still_be_called() -> None:
    # By a job in a thread, a turn of the loop, a reload: late, and more than once.
    async def test() -> None:
        rig = Rig(in_threads=True)
        rig.keep_turns()
        rig.go.clear()
        rig.send(PRODUCE, REQUEST)
        item = rig.session.requests.outbox[0]
        session = rig.session
        assert item.request is not None
        assert item.verdict is not None
        job = Job(session.identity, item, item.request, item.verdict)
        session.abort("fault")
        rig.up.connection_lost(None)
        rig.client_leaves()
        rig.go.set()
        await until(lambda: not len(rig.proxy.validation))
        for _ in range(2):
            session.job_done(job, None)
            session.job_done(job, ZeroDivisionError())
            session.requests.put(Item(memoryview(bytearray(REQUEST))))
            session.send_ready()
            session._connect_later()
            session.renew()
            session.end("drain")
            session.end_when_taken("drain")
            session.abort("fault")
            session.check_time(0.0)
            session.close_if_done()
            rig.up.session.broker_lost()
            rig.proxy.budget.look(session, spoke=True)
            session.dissolve()
        while rig.turns:
            rig.turns.pop()()
        assert session.lifetime.reason == "fault"
        assert session not in rig.proxy.connections
        rig.proxy.validation.stop()

    asyncio.run(test())
