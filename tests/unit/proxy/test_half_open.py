"""A peer that is gone without a word: no FIN, no RST, and nothing acknowledged. And one that only
does not read.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time

import pytest

from batchval.protocol.frames import allocated
from tests.support.namespaces import neighbour
from tests.support.proxy import (
    RunningProxy,
    ScriptedBroker,
    batch,
    connected,
    connected_gate,
    eventually,
    limits_with,
    other_frame,
    produce_frame,
    read_exactly,
    read_frame,
)

SHORT_S = 2.0
LONG = limits_with(
    idle_timeout_ms=60_000, drain_timeout_ms=30_000
)  # nothing else may end what is tested here
SHORT = limits_with(idle_timeout_ms=60_000, drain_timeout_ms=30_000, peer_timeout_ms=1000 * SHORT_S)
MB = 1 << 20
FETCH = other_frame(2, key=1, version=11, body=b"\0" * 8)
NO_NAMESPACES = "network namespaces are needed: run as root on Linux"


def options_of(transport) -> dict[str, int]:
    sock = transport.get_extra_info("socket")
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT", "TCP_NODELAY")
    options = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names}
    return options | {"SO_KEEPALIVE": sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)}


@pytest.mark.parametrize(
    ("limits", "idle", "interval", "timeout_ms"),
    [(LONG, 60, 10, 120_000), (SHORT, 1, 1, int(SHORT_S * 1000))],
)
def test_options_of_sockets(limits, idle, interval, timeout_ms):
    # Needs no namespace. The bound on unacknowledged bytes is the broker's alone: consumers may go
    # long unread.
    with connected_gate(limits=limits) as (_, proxy, sock):
        sock.sendall(other_frame(1))
        read_frame(sock)
        (connection,) = proxy.proxy.connections
        assert connection.connections.broker is not None
        both = {
            "TCP_KEEPIDLE": idle,
            "TCP_KEEPINTVL": interval,
            "TCP_KEEPCNT": 6,
            "TCP_NODELAY": 1,
            "SO_KEEPALIVE": 1,
        }
        assert options_of(connection.connections.broker.transport) == both | {
            "TCP_USER_TIMEOUT": timeout_ms
        }
        assert options_of(connection.client.transport) == both | {"TCP_USER_TIMEOUT": 0}


def gone(sock: socket.socket, timeout: float) -> float:
    """Return the seconds until the gate ends a connection."""
    started = time.monotonic()
    sock.settimeout(timeout)
    with contextlib.suppress(ConnectionResetError):
        assert sock.recv(1) == b""
    return time.monotonic() - started


def test_a_broker_that_is_gone_without_a_word():
    # With a request under way to it, and with nothing under way; other brokers' connections go on.
    before = allocated()  # blocks are counted for the process: a fixture may hold one
    with neighbour() as there:
        if there is None:
            pytest.skip(NO_NAMESPACES)
        with (
            ScriptedBroker(lambda _: None, there.listen()) as broker,
            ScriptedBroker() as other,
            RunningProxy(broker.address, limits=SHORT) as proxy,
            RunningProxy(other.address, limits=SHORT) as other_proxy,
            connected(proxy) as asking,
            connected(proxy) as waiting,
            connected(other_proxy) as well,
        ):
            for sock in (asking, waiting, well):
                sock.sendall(other_frame(1))
            read_frame(well)
            eventually(lambda: len(broker.frames) == 2)
            there.pull()
            asking.sendall(produce_frame(2, ("t", 0, batch(b"never"))))
            assert gone(asking, 20) > SHORT_S * 0.9  # both within 20 s: other limits are longer
            gone(waiting, 20)
            eventually(lambda: proxy.counters.connections_open == 0)
            # the loop gives up what it had to write in a later turn
            eventually(lambda: proxy.proxy.budget.measure() <= before)
            assert len(broker.frames) == 2
            well.sendall(other_frame(2))
            assert read_frame(well) == struct.pack(">i", 2)


def answer(frame: bytes) -> bytes | None:
    """Answer a Fetch request with 4 MB, Produce with nothing, and others with their id."""
    if frame[:2] == b"\0\1":
        return struct.pack(">i", 4 * MB) + frame[4:8] + bytes(4 * MB - 4)
    return None if frame[:2] == b"\0\0" else struct.pack(">i", 4) + frame[4:8]


def test_a_client_that_is_gone_without_a_word():
    # Answers under way to it, more than the kernel takes, or none.
    with neighbour() as there, ScriptedBroker(answer) as broker, contextlib.ExitStack() as open_:
        if there is None:
            pytest.skip(NO_NAMESPACES)
        listen = (there.here, 0)
        proxy = open_.enter_context(RunningProxy(broker.address, limits=SHORT, listen=listen))
        idle, fetching = (open_.enter_context(there.connect(proxy.address)) for _ in range(2))
        for sock in (idle, fetching):
            sock.sendall(other_frame(1))
            read_frame(sock)
        fetching.sendall(FETCH)
        eventually(lambda: proxy.counters.answers_total >= 3)
        there.pull()
        fetching.close()  # nobody hears of it
        eventually(lambda: proxy.counters.connections_open == 0, SHORT_S * 6)
        assert proxy.counters.connections_closed.get("client_gone", 0) >= 1


def test_a_client_that_acknowledges_and_does_not_read():
    with connected_gate(answer, limits=SHORT) as (_, proxy, unread):
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        unread.sendall(FETCH * 3)
        time.sleep(SHORT_S * 1.5)
        assert proxy.counters.connections_open == 1
        for _ in range(3):
            assert read_exactly(unread, 4) == struct.pack(">i", 4 * MB)
            assert read_exactly(unread, 4 * MB)[:4] == struct.pack(">i", 2)
