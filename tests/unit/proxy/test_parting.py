"""The end of a client's connection that the gate chooses: drain, idle, age of connections."""

from __future__ import annotations

import itertools
import random
import socket
import ssl
import struct
import threading
import time
from typing import Any

import pytest
import trustme

from batchval.proxy.session import lifetime
from batchval.proxy.session.lifetime import AgeLimit, End, How, Lifetime
from batchval.proxy.session.sasl_exchange import SaslExchange
from batchval.proxy.settings.options import Counters
from tests.support.proxy import (
    BAD,
    GOOD,
    RunningProxy,
    ScriptedBroker,
    answered,
    connected,
    connected_gate,
    eventually,
    limits_with,
    other_frame,
    produce_frame,
    read_exactly,
    read_frame,
)

AGED = limits_with(max_connection_age_ms=200, handshake_timeout_ms=1_000)


def drained(proxy: RunningProxy, drain_s: float = 10.0) -> threading.Thread:
    """Start to drain; the thread ends when it is done."""
    thread = threading.Thread(target=proxy.stop, args=(drain_s,))
    thread.start()
    return thread


def is_refused(sock: socket.socket, data: bytes) -> bool:
    try:
        sock.sendall(data)
    except OSError:
        return True
    return False


def closed(proxy: RunningProxy) -> dict[str, int]:
    return dict(proxy.counters.connections_closed)


def test_no_answer_is_destroyed_by_requests_that_come_after_the_end() -> None:
    # A connection that is closed with something unread is reset, and loses what is on its way.
    large = struct.pack(">i", 3 << 20) + bytes(3 << 20)
    go = threading.Event()

    def answer(frame: bytes) -> bytes | None:
        go.wait(10)
        return large[:4] + frame[4:8] + large[8:]

    with ScriptedBroker(answer) as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            eventually(lambda: broker.frames)
            done = drained(proxy)
            eventually(lambda: closed(proxy) == {"drain": 1})
            sock.sendall(b"".join(other_frame(n) for n in range(2, 200)))
            go.set()
            time.sleep(0.1)  # the answer is in the kernel's buffers, as far as they go
            assert len(read_frame(sock)) == 3 << 20
            assert sock.recv(1) == b""
        done.join(10)
        assert not proxy.proxy.connections
    assert len(broker.frames) == 1


def test_no_answer_is_destroyed_with_tls() -> None:
    large = bytes(3 << 20)
    go = threading.Event()

    def answer(frame: bytes) -> bytes | None:
        go.wait(10)
        return struct.pack(">i", 4 + len(large)) + frame[4:8] + large

    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    with ScriptedBroker(answer) as broker, RunningProxy(broker.address, listen_tls=server) as proxy:
        with (
            connected(proxy) as plain,
            client.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
        ):
            sock.sendall(other_frame(1))
            eventually(lambda: broker.frames)
            done = drained(proxy)
            eventually(lambda: closed(proxy) == {"drain": 1})
            sock.sendall(b"".join(other_frame(n) for n in range(2, 200)))
            go.set()
            time.sleep(0.1)
            assert len(read_frame(sock)) == 4 + len(large)
            assert sock.recv(1) == b""
        done.join(10)
        assert not proxy.proxy.connections
    assert len(broker.frames) == 1


def test_batches_without_an_answer_are_delivered_after_the_end_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batchval.proxy.session.lifetime.QUIET_S", 5.0)  # on a busy machine, too
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(produce_frame(1, ("orders", 0, GOOD), acks=0))
        half = produce_frame(2, ("orders", 0, GOOD), acks=0)
        eventually(lambda: len(broker.frames) == 1)
        sock.sendall(half[:20])
        eventually(lambda: next(iter(proxy.proxy.connections)).client.splitter.buffered == 20)
        done = drained(proxy)
        assert sock.recv(1) == b""  # the end, and the rest still arrives
        sock.sendall(half[20:])
        sock.sendall(produce_frame(3, ("orders", 1, GOOD)) + other_frame(4))
        sock.sendall(produce_frame(5, ("orders", 2, BAD), acks=0))
        sock.sendall(produce_frame(6, ("orders", 2, GOOD), ("orders", 3, GOOD), acks=0))
        eventually(lambda: len(broker.frames) == 3)
        sock.close()
        done.join(10)
        frames = broker.frames
        assert [frame[8:] for frame in frames[:2]] == [half[12:]] * 2
        assert (
            frames[2][8:] == produce_frame(6, ("orders", 2, GOOD), ("orders", 3, GOOD), acks=0)[12:]
        )
        assert proxy.counters.partitions_refused == {"crc-mismatch": 1}
        assert closed(proxy) == {"drain": 1}


def test_a_client_that_stays_is_closed_soon() -> None:
    with connected_gate() as (_, proxy, sock):
        sock.sendall(other_frame(1))
        read_frame(sock)
        began = time.monotonic()
        proxy.stop(30.0)
        assert time.monotonic() - began < 20
        assert sock.recv(1) == b""


def test_one_that_never_stops_sending_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.proxy.session.lifetime.MAX_CLOSE_S", 0.4)
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(other_frame(1))
        read_frame(sock)
        done = drained(proxy, 30.0)
        assert sock.recv(1) == b""
        eventually(lambda: is_refused(sock, other_frame(2)))
        done.join(20)
        assert not done.is_alive()
        assert len(broker.frames) == 1


def test_rubbish_after_the_end_closes_at_once() -> None:
    with connected_gate() as (_, proxy, sock):
        sock.sendall(other_frame(1))
        read_frame(sock)
        done = drained(proxy, 30.0)
        assert sock.recv(1) == b""
        sock.sendall(b"\xff" * 100)
        done.join(20)
        assert not done.is_alive()
        assert closed(proxy) == {"drain": 1}


# ---- the age of connections ----------------------------------------------------------------------


def test_an_old_connection_ends_after_its_answers() -> None:
    go = threading.Event()

    def answer(frame: bytes) -> bytes | None:
        go.wait(10)
        return answered(frame)

    with ScriptedBroker(answer) as broker, RunningProxy(broker.address, limits=AGED) as proxy:
        with connected(proxy) as sock:
            sock.sendall(produce_frame(1, ("orders", 0, GOOD)) + other_frame(2))
            eventually(lambda: closed(proxy) == {"max_age": 1})
            go.set()
            assert read_frame(sock)[:4] == struct.pack(">i", 1)
            assert read_frame(sock) == struct.pack(">i", 2)
            assert sock.recv(1) == b""
        eventually(lambda: not proxy.proxy.connections)
        with connected(proxy) as sock:
            sock.sendall(other_frame(3))
            assert read_frame(sock) == struct.pack(">i", 3)


def test_an_unfinished_request_is_waited_for() -> None:
    with connected_gate(limits=AGED) as (_, proxy, sock):
        frame = other_frame(2)
        sock.sendall(other_frame(1) + frame[:-1])
        assert read_frame(sock) == struct.pack(">i", 1)
        (session,) = proxy.proxy.connections
        eventually(lambda: session.lifetime.is_aged)
        assert closed(proxy) == {}
        sock.sendall(frame[-1:])
        assert read_frame(sock) == struct.pack(">i", 2)
        assert sock.recv(1) == b""
        assert closed(proxy) == {"max_age": 1}


def test_young_connections_stay() -> None:
    limits = limits_with(max_connection_age_ms=3_600_000, handshake_timeout_ms=200)
    with connected_gate(limits=limits) as (_, proxy, sock):
        for n in range(20):
            sock.sendall(other_frame(n))
            assert read_frame(sock) == struct.pack(">i", n)
            time.sleep(0.02)
        assert closed(proxy) == {}


class Aging:
    """A connection of which the lifetime sees what a test sets."""

    def __init__(self, ages: AgeLimit, max_age_s: float) -> None:
        self.limits = limits_with(max_connection_age_ms=1000 * max_age_s, idle_timeout_ms=1e12)
        self.ages = ages
        self.lifetime = Lifetime(self.limits, 0.0)
        self.lifetime.spoke = True
        self.client: Any = self
        self.splitter: Any = self
        self.transport = None
        self.buffered = self.holds = 0
        self.sasl = SaslExchange()
        self.ended: list[End] = []

    def check(self, now: float) -> None:
        end = self.lifetime.check(
            now,
            self.client,
            self.limits,
            self.ages,
            is_idle=True,
            is_between_requests=not self.sasl.is_open,
        )
        if end is not None:
            self.ended.append(end)
            self.lifetime.end(end.why, now, self.limits)


def limit(monkeypatch: pytest.MonkeyPatch, now: list[float], open_connections: int) -> AgeLimit:
    monkeypatch.setattr(lifetime.time, "monotonic", lambda: now[0])
    counters = Counters()
    counters.connections_open = open_connections
    return AgeLimit(counters)


def test_connections_that_came_at_once_end_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime.random, "uniform", random.Random(1).uniform)
    now, age_s, count = [0.0], 100.0, 1_000
    ages = limit(monkeypatch, now, count)
    sessions = [Aging(ages, age_s) for _ in range(count)]
    ended = [0]
    while ended[-1] < count:
        now[0] += 1.0
        assert now[0] < 2 * age_s, "they do not end"
        if now[0] > 0.85 * age_s:
            for session in sessions:
                if not session.ended:
                    session.check(now[0])
        ended.append(sum(bool(one.ended) for one in sessions))
        if now[0] <= 0.9 * age_s:
            assert ended[-1] == 0
    most = max(after - before for before, after in itertools.pairwise(ended))
    assert most <= 2 * count / age_s + 1
    assert now[0] < 1.45 * age_s


def test_few_connections_do_not_wait_for_each_other_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    ages = limit(monkeypatch, now, 10)
    assert sum(ages.take(3600.0) for _ in range(10)) == 5
    now[0] += 1.0
    assert sum(ages.take(3600.0) for _ in range(10)) == 5


def test_a_sasl_exchange_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    session = Aging(limit(monkeypatch, now, 1), 100.0)
    session.sasl.begin("SCRAM-SHA-256")
    session.check(111.0)
    session.check(111.0 + lifetime.AGED_S)
    assert session.lifetime.is_aged
    assert not session.ended
    session.check(111.5 + lifetime.AGED_S)
    assert session.ended == [End("max_age", How.WHEN_TAKEN)]


def test_a_connection_that_already_ends_is_not_ended_by_its_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Aging(limit(monkeypatch, [0.0], 1), 100.0)
    session.lifetime.end("client", 0.0, limits_with(drain_timeout_ms=1e12))
    session.check(1000.0)
    assert not session.ended


def test_an_idle_connection_ends_with_an_end_of_file_not_a_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batchval.proxy.session.lifetime.QUIET_S", 5.0)
    limits = limits_with(idle_timeout_ms=200)
    with connected_gate(limits=limits) as (broker, _, sock):
        sock.sendall(other_frame(1))
        read_exactly(sock, 8)
        assert sock.recv(1) == b""
        sock.sendall(produce_frame(2, ("orders", 0, GOOD), acks=0))
        eventually(lambda: len(broker.frames) == 2)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
