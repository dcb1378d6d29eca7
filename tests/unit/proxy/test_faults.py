"""Faults: frames cut anywhere, strangers' bytes, brokers that stall or die, clients that do."""

from __future__ import annotations

import contextlib
import gc
import random
import resource
import socket
import struct
import threading
import time

import pytest

from batchval.proxy.session import connections
from tests.support.network import closed_port, reset_on_close
from tests.support.proxy import (
    BAD,
    GOOD,
    RunningProxy,
    ScriptedBroker,
    answered,
    batch,
    codes,
    connected,
    connected_gate,
    eventually,
    limits_with,
    other_frame,
    produce_frame,
    read_exactly,
    read_frame,
)

QUICK = limits_with(handshake_timeout_ms=300, idle_timeout_ms=400, drain_timeout_ms=1_000)


AFTER = b"\0\xff"  # bytes after the end of a message


def longer(frame: bytes) -> bytes:
    """Return the frame with bytes after the end of its message."""
    return struct.pack(">i", len(frame) - 4 + len(AFTER)) + frame[4:] + AFTER


def ended(sock: socket.socket) -> bytes:
    """Read until the end of the stream."""
    got = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(1 << 16):
            got += piece
    return bytes(got)


# ---- frames --------------------------------------------------------------------------------------


def test_one_byte_at_a_time():
    sent = produce_frame(1, ("t", 0, GOOD), ("t", 1, BAD)) + other_frame(2)
    with connected_gate() as (_, _, sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(sent)):
            sock.sendall(sent[i : i + 1])
        assert codes(read_frame(sock)) == {("t", 0): 0, ("t", 1): 2}
        assert read_frame(sock) == struct.pack(">i", 2)


def test_a_hundred_frames_in_one_write():
    frames = [
        produce_frame(i, ("t", 0, BAD if i % 3 == 0 else GOOD)) if i % 2 else other_frame(i)
        for i in range(100)
    ]
    with connected_gate() as (_, _, sock):
        sock.sendall(b"".join(frames))
        for i in range(100):
            answer = read_frame(sock)
            assert struct.unpack(">i", answer[:4]) == (i,)
            if i % 2:
                assert codes(answer) == {("t", 0): 2 if i % 3 == 0 else 0}


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_cut_at_every_byte_of_a_frame(how):
    # Nothing of an unfinished frame reaches the broker, what was whole before it does.
    gc.collect()  # the memory of frames is counted for the process
    whole = produce_frame(1, ("t", 0, GOOD), acks=0)
    cut = produce_frame(2, ("t", 0, batch(b"never")), acks=0)
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        for at in range(len(cut)):
            with socket.create_connection(proxy.address) as sock:
                sock.sendall(whole + cut[:at])
                if how == "reset":
                    eventually(lambda at=at: len(broker.frames) == at + 1)
                    reset_on_close(sock)
        eventually(lambda: len(broker.frames) == len(cut))
        assert all(b"never" not in frame for frame in broker.frames)
        eventually(lambda: proxy.counters.connections_open == 0)
        eventually(lambda: proxy.proxy.budget.measure() == 0)


def test_an_answer_cut_at_every_byte_ends_the_connection():
    request = produce_frame(1, ("t", 0, GOOD))
    whole = answered(request[4:])
    assert whole is not None
    cuts = iter(range(len(whole)))

    def cut(_: bytes) -> bytes | None:
        assert broker.talking is not None
        with contextlib.suppress(OSError):
            broker.talking.sendall(whole[: next(cuts)])
            broker.talking.shutdown(socket.SHUT_RDWR)
        return None

    with ScriptedBroker(cut) as broker, RunningProxy(broker.address) as proxy:
        for _ in range(len(whole)):
            with connected(proxy) as sock:
                sock.sendall(request)
                assert ended(sock) == b""
        assert proxy.counters.connections_closed == {"upstream_lost": len(whole)}


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (struct.pack(">i", -1), "frame_size"),
        (struct.pack(">i", -(2**31)), "frame_size"),
        (struct.pack(">i", 2**31 - 1), "frame_size"),
        (struct.pack(">i", 1 << 20), "frame_size"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "frame_http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "frame_tls"),
        (struct.pack(">i", 4) + b"\0\3\0\1", "request_header"),
        (struct.pack(">i", 0), "request_header"),
        (other_frame(1, key=999), "request_version"),
        (other_frame(1, key=-1), "request_version"),
        (other_frame(1, key=0, version=14), "request_version"),
        (other_frame(1, key=3, version=-1), "request_version"),
        (other_frame(1, key=17, version=0), "request_malformed"),
        (other_frame(1, key=7, version=0), "request_version"),  # ControlledShutdown, a broker's
        (other_frame(1, key=0, version=9), "produce_malformed"),
        (longer(other_frame(1, key=17, version=1, body=b"\0\5PLAIN")), "request_malformed"),
        (longer(produce_frame(1, ("t", 0, GOOD))), "produce_malformed"),
        (longer(produce_frame(1, ("t", 0, GOOD), ("t", 1, BAD))), "produce_malformed"),
        (
            produce_frame(1, ("t", 0, GOOD))[:-5].replace(b"", b"", 1)[:0]
            + b"\0\0\0\x20"
            + b"\0\0\0\x09"
            + b"\xff" * 28,
            "produce_malformed",
        ),
    ],
)
def test_a_frame_that_is_not_a_request_ends_the_connection_after_earlier_ones(first, reason):
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address, limits=limits_with(max_frame_bytes=1000)) as proxy,
    ):
        with connected(proxy) as sock:
            sock.sendall(other_frame(7) + first)
            assert ended(sock) == struct.pack(">ii", 4, 7)
        assert proxy.counters.connections_closed == {reason: 1}
        eventually(lambda: proxy.counters.connections_open == 0)
        assert len(broker.frames) == 1


@pytest.mark.alone
def test_a_length_buys_no_memory():
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address) as proxy,
        contextlib.ExitStack() as open_,
    ):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(40):
            sock = open_.enter_context(connected(proxy))
            sock.sendall(struct.pack(">i", 100 << 20) + b"\0\0\0\x09")
        eventually(lambda: proxy.counters.connections_open == 40)
        time.sleep(0.1)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 100 << 10  # KiB; it stated 4 GB


def test_random_bytes_do_no_harm():
    rng = random.Random(5)
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        good = [produce_frame(1, ("t", 0, GOOD), ("u", 1, BAD)), other_frame(2)]
        for _ in range(150):
            frame = bytearray(rng.choice(good))
            for _ in range(rng.randint(1, 6)):
                frame[rng.randrange(4, len(frame))] = rng.randrange(256)
            with connected(proxy) as sock:
                sock.sendall(frame)
                sock.shutdown(socket.SHUT_WR)
                ended(sock)
        with connected(proxy) as sock:
            sock.sendall(good[0])
            assert codes(read_frame(sock)) == {("t", 0): 0, ("u", 1): 2}
        eventually(lambda: proxy.counters.connections_open == 0)


# ---- time and number -----------------------------------------------------------------------------


@pytest.mark.alone
def test_who_says_nothing_is_not_kept():
    with ScriptedBroker() as broker, RunningProxy(broker.address, limits=QUICK) as proxy:
        started = time.monotonic()
        with connected(proxy) as silent, connected(proxy) as slow:
            slow.sendall(other_frame(1)[:-1])
            assert ended(silent) == b""
            assert ended(slow) == b""
        assert 0.25 < time.monotonic() - started < 30
        assert proxy.counters.connections_closed == {"handshake": 2}


@pytest.mark.alone
def test_a_byte_now_and_then_is_not_a_handshake():
    with connected_gate(limits=QUICK) as (broker, proxy, sock):
        sent = other_frame(1)
        with contextlib.suppress(OSError):
            for i in range(len(sent)):
                sock.sendall(sent[i : i + 1])
                time.sleep(0.05)
        assert proxy.counters.connections_closed == {"handshake": 1}
        assert broker.frames == []


@pytest.mark.alone
def test_idle_connections_end_and_those_that_wait_for_an_answer_do_not():
    late = threading.Event()

    def answer(frame: bytes) -> bytes | None:
        if frame[4:8] == struct.pack(">i", 1) and frame[1] == 1:  # a fetch that waits
            late.wait(5)
        return answered(frame)

    with ScriptedBroker(answer) as broker, RunningProxy(broker.address, limits=QUICK) as proxy:
        with connected(proxy) as idle, connected(proxy) as waiting:
            idle.sendall(other_frame(1))
            waiting.sendall(other_frame(1, key=1, version=11, body=b"\0" * 8))
            read_frame(idle)
            started = time.monotonic()
            assert ended(idle) == b""
            assert time.monotonic() - started > 0.3
            time.sleep(0.5)
            late.set()
            assert read_frame(waiting) == struct.pack(">i", 1)
        assert proxy.counters.connections_closed == {"idle": 1}


def test_no_more_connections_than_allowed():
    limits = limits_with(max_connections=3)
    with ScriptedBroker() as broker, RunningProxy(broker.address, limits=limits) as proxy:
        with contextlib.ExitStack() as open_:
            socks = [open_.enter_context(connected(proxy)) for _ in range(3)]
            for sock in socks:
                sock.sendall(other_frame(1))
                read_frame(sock)
            with connected(proxy) as fourth:
                assert ended(fourth) == b""
            socks[0].sendall(other_frame(2))
            assert read_frame(socks[0]) == struct.pack(">i", 2)
        eventually(lambda: proxy.counters.connections_open == 0)
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
        assert proxy.counters.connections_refused_total == 1


# ---- the broker ----------------------------------------------------------------------------------


def test_no_broker_no_connection():
    with RunningProxy(f"127.0.0.1:{closed_port()}") as proxy, connected(proxy) as sock:
        sock.sendall(other_frame(1))
        assert ended(sock) == b""
        assert proxy.counters.connections_closed == {"upstream_unreachable": 1}
        assert proxy.counters.upstream_failures_total == 1
        eventually(lambda: proxy.counters.connections_open == 0)


@pytest.mark.parametrize("what", ["swapped", "twice", "unasked", "empty"])
def test_an_answer_out_of_turn_is_not_passed_on(what):
    held: list[bytes] = []

    def answer(frame: bytes) -> bytes | None:
        held.append(frame)
        if len(held) < 2:
            return b"\0\0\0\4\0\0\0\x63" if what == "unasked" else None
        first, second = (answered(one) or b"" for one in held)
        return {
            "swapped": second + first,
            "twice": first + first,
            "unasked": b"",
            "empty": b"\0\0\0\0",
        }[what]

    with connected_gate(answer) as (_, proxy, sock):
        # the client's own correlation ids are equal: they alone would not show it
        sock.sendall(produce_frame(9, ("t", 0, GOOD)) + other_frame(9))
        got = ended(sock)
        if what == "twice":
            assert codes(got[4:]) == {("t", 0): 0}
        else:
            assert got == b""
        assert proxy.counters.connections_closed == {"answer_out_of_turn": 1}


@pytest.mark.parametrize("length", [-1, 2**31 - 1])
def test_an_answer_of_a_length_that_is_none(length, monkeypatch):
    # The client still gets the answer before it.
    def answer(frame: bytes) -> bytes:
        return (answered(frame) or b"") + struct.pack(">i", length) + b"\0" * 8

    monkeypatch.setattr(connections, "MAX_ANSWER_BYTES", 1 << 20)
    with ScriptedBroker(answer) as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(3))
            assert ended(sock) == struct.pack(">ii", 4, 3)
        assert proxy.counters.connections_closed == {"upstream_frame": 1}


@pytest.mark.parametrize("refused", [(), (("t", 1, BAD),)])
def test_bytes_after_an_answer_are_passed_on_as_they_came(refused):
    request = produce_frame(1, ("t", 0, GOOD), *refused)
    plain = answered(request[4:])
    assert plain is not None

    def answer(frame: bytes) -> bytes:
        return longer(answered(frame) or b"")

    with connected_gate(answer) as (_, _, sock):
        sock.sendall(request + other_frame(2))
        got = read_frame(sock)
        assert got[-len(AFTER) :] == AFTER
        assert codes(got) == {("t", 0): 0} | ({("t", 1): 2} if refused else {})
        if not refused:
            assert got == longer(plain)[4:]
        assert read_frame(sock) == struct.pack(">i", 2) + AFTER


def test_an_answer_that_might_hide_an_address_is_not_passed_on():
    def answer(frame: bytes) -> bytes:
        return struct.pack(">i", 24) + frame[4:8] + b"\xff" * 20

    with connected_gate(answer) as (_, proxy, sock):
        sock.sendall(other_frame(3, key=3, version=9, body=b"\0" * 10))
        assert ended(sock) == b""
        assert proxy.counters.connections_closed == {"answer_malformed": 1}


def test_a_broker_that_dies_with_requests_in_flight_ends_the_connection_after_what_it_answered():
    count = 0

    def answer(frame: bytes) -> bytes | None:
        nonlocal count
        count += 1
        if count <= 2:
            return answered(frame)
        if count == 5:
            assert broker.talking is not None
            broker.talking.shutdown(socket.SHUT_RDWR)
        return None

    with connected_gate(answer) as (broker, _, sock):
        sock.sendall(b"".join(produce_frame(i, ("t", 0, GOOD)) for i in range(5)))
        got = ended(sock)
        answers = 0
        while got:
            (size,) = struct.unpack(">i", got[:4])
            assert codes(got[4 : 4 + size]) == {("t", 0): 0}
            got = got[4 + size :]
            answers += 1
        assert answers == 2


@pytest.mark.alone
def test_a_broker_that_stalls_stops_the_reading_and_loses_nothing():
    limits = limits_with(write_buffer_bytes=64 << 10)
    big = produce_frame(1, ("t", 0, batch(b"x" * 100_000)), acks=0)
    with connected_gate(limits=limits) as (broker, proxy, sock):
        sock.sendall(big)
        eventually(lambda: len(broker.frames) == 1)
        broker.reading.clear()
        sock.setblocking(False)
        sent = 0
        stuck = None
        while stuck is None or time.monotonic() - stuck < 0.5:
            try:
                sent += sock.send(big[sent % len(big) :])
                stuck = None
            except BlockingIOError:
                stuck = stuck or time.monotonic()
                time.sleep(0.01)
            assert sent < 64 << 20, "it never stopped reading"
        assert 0 < proxy.counters.bytes_held < 4 << 20
        broker.reading.set()
        sock.setblocking(True)
        sock.sendall(big[sent % len(big) :])
        total = sent // len(big) + 2
        eventually(lambda: len(broker.frames) == total)
        assert {frame[8:] for frame in broker.frames} == {big[12:]}
        eventually(lambda: proxy.counters.bytes_held == 0)


@pytest.mark.alone
def test_a_client_that_does_not_read_is_not_filled_up():
    # A thousand answers of a megabyte for somebody who takes none.
    large = 1 << 20

    def answer(frame: bytes) -> bytes:
        return struct.pack(">i", large) + frame[4:8] + bytes(large - 4)

    limits = limits_with(write_buffer_bytes=64 << 10)
    with connected_gate(answer, limits=limits) as (_, proxy, sock):
        sock.sendall(b"".join(other_frame(i) for i in range(1000)))
        eventually(lambda: proxy.counters.answers_total > 0)
        time.sleep(0.5)
        assert proxy.counters.answers_total < 50
        assert proxy.counters.bytes_held < 8 << 20
        for i in range(60):
            (size,) = struct.unpack(">i", read_exactly(sock, 4))
            assert read_exactly(sock, size)[:4] == struct.pack(">i", i)


def test_refusals_are_bounded_while_an_answer_does_not_come():
    limits = limits_with(max_requests_waiting=50)
    bad = produce_frame(1, ("t", 0, BAD))
    with connected_gate(lambda _: None, limits=limits) as (_, proxy, sock):
        sock.sendall(other_frame(0))
        sock.setblocking(False)
        sent = stuck = 0
        while stuck < 30:
            try:
                sent += sock.send((bad * 100)[sent % len(bad) :])
                stuck = 0
            except BlockingIOError:
                time.sleep(0.01)
                stuck += 1
            assert sent < 256 << 20
        (connection,) = proxy.proxy.connections
        assert 50 < len(connection.requests.answers) < 10_000
        assert proxy.counters.connections_closed == {}


@pytest.mark.alone
def test_all_together_hold_no_more_than_allowed():
    limits = limits_with(max_bytes_held=1 << 20, write_buffer_bytes=1 << 20)
    big = produce_frame(1, ("t", 0, batch(b"x" * 200_000)), acks=0)
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address, limits=limits) as proxy,
        contextlib.ExitStack() as open_,
    ):
        broker.reading.clear()
        socks = [open_.enter_context(connected(proxy)) for _ in range(20)]
        threads = [
            threading.Thread(
                target=lambda sock=sock: [sock.sendall(big) for _ in range(20)], daemon=True
            )
            for sock in socks
        ]
        for sock in socks:
            sock.settimeout(60)
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        assert proxy.counters.bytes_held < (1 << 20) + 20 * (len(big) + (512 << 10))
        broker.reading.set()
        for thread in threads:
            thread.join(30)
        eventually(lambda: len(broker.frames) == 20 * 20, 30)
        eventually(lambda: proxy.counters.bytes_held == 0)


@pytest.mark.alone
def test_a_client_that_leaves_while_it_is_not_read_is_noticed():
    limits = limits_with(write_buffer_bytes=64 << 10, drain_timeout_ms=400)
    with ScriptedBroker() as broker, RunningProxy(broker.address, limits=limits) as proxy:
        broker.reading.clear()
        big = produce_frame(1, ("t", 0, batch(b"x" * 20_000)), acks=0)
        with connected(proxy) as sock:
            sent, since = 0, time.monotonic()
            while (
                time.monotonic() - since < 0.5
            ):  # one frame after the other, until one is not read
                if proxy.counters.requests_total == sent:
                    sock.sendall(big)
                    sent, since = sent + 1, time.monotonic()
        eventually(lambda: proxy.counters.connections_open == 0)
        assert proxy.counters.connections_closed == {"client_gone": 1}


# ---- the end -------------------------------------------------------------------------------------


def test_draining_delivers_what_is_under_way_and_takes_no_more():
    go = threading.Event()

    def answer(frame: bytes) -> bytes | None:
        go.wait(10)
        return answered(frame)

    with ScriptedBroker(answer) as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock, connected(proxy) as idle:
            sock.sendall(produce_frame(1, ("t", 0, GOOD)) + produce_frame(2, ("t", 0, BAD)))
            eventually(lambda: len(broker.frames) == 1)
            stopping = threading.Thread(target=proxy.stop, args=(10,))
            stopping.start()
            assert ended(idle) == b""
            with pytest.raises(OSError):  # noqa: PT011
                socket.create_connection(proxy.address, 1).close()
            go.set()
            assert codes(read_frame(sock)) == {("t", 0): 0}
            assert codes(read_frame(sock)) == {("t", 0): 2}
            assert ended(sock) == b""
            stopping.join(10)
            assert not stopping.is_alive()
        assert proxy.counters.connections_closed == {"drain": 2}


@pytest.mark.alone
def test_draining_ends_although_a_broker_does_not_answer():
    with connected_gate(lambda _: None) as (broker, proxy, sock):
        sock.sendall(other_frame(1))
        eventually(lambda: len(broker.frames) == 1)
        started = time.monotonic()
        proxy.stop(0.3)
        assert time.monotonic() - started < 30
        assert ended(sock) == b""
