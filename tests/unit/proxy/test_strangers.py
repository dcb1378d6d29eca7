"""The resources of unauthenticated clients, and their cost for other clients."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time

import pytest

from batchval.protocol.messages.api_versions import ApiVersionsRequest
from batchval.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from batchval.protocol.messages.sasl_handshake import SaslHandshakeResponse
from batchval.proxy.session.connections import UNKNOWN
from batchval.proxy.session.session_states import SessionState
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
    read_frame,
)

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LIMIT = 512 << 10


def version_of(frame: bytes) -> int:
    return int.from_bytes(frame[2:4], "big")


def guarded(frame: bytes) -> bytes | None:
    """Answer as a broker does that takes PLAIN, whatever the password; it answers others, too."""
    key, correlation_id = frame[:2], int.from_bytes(frame[4:8], "big")
    if key == struct.pack(">h", SASL_HANDSHAKE):
        return b"".join(
            SaslHandshakeResponse(0, ["PLAIN"]).encode(correlation_id, version_of(frame))
        )
    if key == struct.pack(">h", SASL_AUTHENTICATE):
        return b"".join(
            SaslAuthenticateResponse(0, None, b"").encode(correlation_id, version_of(frame))
        )
    return answered(frame)


def asked(correlation_id: int, key: int, body: bytes, version: int) -> bytes:
    frame = struct.pack(">hhih", key, version, correlation_id, 4) + b"test" + body
    return struct.pack(">i", len(frame)) + frame


def handshake(correlation_id: int, version: int = 1) -> bytes:
    return asked(correlation_id, SASL_HANDSHAKE, struct.pack(">h", 5) + b"PLAIN", version)


def authenticate(correlation_id: int, user: bytes = b"ann") -> bytes:
    token = b"\0" + user + b"\0secret"
    return asked(correlation_id, SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token, 1)


def requiring(proxy: RunningProxy) -> None:
    """Note that brokers answer only authenticated clients, as where they hang up."""
    eventually(lambda: proxy.proxy.discovery.ready)
    proxy.proxy.discovery.requires_authentication = True


def send(sock: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the gate may close the connection meanwhile
        sock.sendall(data)


def ended(sock: socket.socket) -> bytes:
    got = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            got += piece
    return bytes(got)


def test_no_broker_is_connected_to_before_the_first_whole_request():
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address) as proxy,
        contextlib.ExitStack() as open_,
    ):
        eventually(lambda: proxy.proxy.discovery.ready)
        before = len(broker.connections)
        socks = [open_.enter_context(connected(proxy)) for _ in range(50)]
        for sock in socks:
            sock.sendall(other_frame(1)[:-1])
        eventually(lambda: proxy.counters.connections_open == 50)
        time.sleep(0.2)
        assert len(broker.connections) == before
        socks[7].sendall(other_frame(1)[-1:])
        read_frame(socks[7])
        assert len(broker.connections) == before + 1


def test_a_request_that_is_refused_here_needs_no_broker():
    with connected_gate() as (broker, proxy, sock):
        eventually(lambda: proxy.proxy.discovery.ready)
        before = len(broker.connections)
        sock.sendall(produce_frame(1, ("t", 0, BAD)))
        assert codes(read_frame(sock)) == {("t", 0): 2}
        assert len(broker.connections) == before


def test_frames_are_small_until_the_broker_has_authenticated_the_client():
    with ScriptedBroker(guarded) as broker, RunningProxy(broker.address) as proxy:
        requiring(proxy)
        with connected(proxy) as sock:
            sock.sendall(struct.pack(">i", LIMIT + 1))
            assert ended(sock) == b""
        assert proxy.counters.connections_closed == {"frame_unauthenticated": 1}
        large = produce_frame(3, ("t", 0, GOOD), ("u", 0, GOOD))
        with connected(proxy) as sock:
            sock.sendall(handshake(1) + authenticate(2))
            assert [len(read_frame(sock)) for _ in range(2)] == [
                4 + 2 + 4 + 2 + 5,
                4 + 2 + 2 + 4 + 8,
            ]
            (session,) = proxy.proxy.connections
            eventually(lambda: session.lifetime.state is SessionState.OPEN)
            assert session.identity.facts.principal == "User:ann"
            sock.sendall(large)
            assert set(codes(read_frame(sock)).values()) == {0}
            sock.sendall(struct.pack(">i", LIMIT + 1))
            time.sleep(0.1)
            assert session.lifetime.reason is None


@pytest.mark.parametrize("requires", [True, False])
def test_a_large_request_waits_until_it_is_known_whether_brokers_authenticate(requires: bool):
    large = produce_frame(1, ("t", 0, batch(random.Random(1).randbytes(LIMIT * 3 // 2))))
    with connected_gate() as (_, proxy, sock):
        eventually(lambda: proxy.proxy.discovery.ready)
        proxy.proxy.discovery.requires_authentication = None
        sock.sendall(produce_frame(0, ("t", 0, GOOD)))
        assert codes(read_frame(sock)) == {("t", 0): 0}
        (session,) = proxy.proxy.connections
        session.identity.is_unknown = True  # it came before the gate knew
        session.connections.let_pass(requests=False, answers=False)
        sender = threading.Thread(target=send, args=(sock, large))
        sender.start()
        eventually(lambda: session.client.holds & UNKNOWN)
        assert session.client.splitter.buffered < len(large)
        proxy.proxy.discovery.requires_authentication = requires
        if requires:
            assert ended(sock) == b""
            assert proxy.counters.connections_closed == {"frame_unauthenticated": 1}
        else:
            assert codes(read_frame(sock)) == {("t", 0): 0}
            assert not session.identity.is_unknown
        sender.join()


def test_a_large_request_does_not_wait_for_ever():
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address, limits=limits_with(frame_timeout_ms=200)) as proxy,
    ):
        eventually(lambda: proxy.proxy.discovery.ready)
        proxy.proxy.discovery.requires_authentication = None
        with connected(proxy) as sock:
            sock.sendall(struct.pack(">i", LIMIT + 1) + bytes(100))
            assert ended(sock) == b""
        assert proxy.counters.connections_closed == {"upstream_unreachable": 1}


def test_a_broker_that_answers_shows_that_it_asks_nobody():
    # The gate may have taken a broker that was just stopping for one that wants credentials.
    with ScriptedBroker(guarded) as broker, RunningProxy(broker.address) as proxy:
        requiring(proxy)
        with connected(proxy) as sock:
            sock.sendall(produce_frame(1, ("t", 0, GOOD)) + produce_frame(2, ("t", 0, BAD)))
            assert codes(read_frame(sock)) == {("t", 0): 0}
            assert codes(read_frame(sock)) == {("t", 0): 2}
            session = next(one for one in proxy.proxy.connections if one.lifetime.spoke)
            assert session.lifetime.state is SessionState.OPEN
        assert not proxy.proxy.discovery.requires_authentication


def test_nothing_is_judged_for_a_client_that_nobody_knows():
    # The broker is asked first; it hangs up, and the batch is not looked at.
    def hangs_up(frame: bytes) -> bytes | None:
        if frame[:2] == struct.pack(">h", 3):
            broker.talking.shutdown(socket.SHUT_RDWR)
            return None
        return guarded(frame)

    with ScriptedBroker(hangs_up) as broker, RunningProxy(broker.address) as proxy:
        requiring(proxy)
        with connected(proxy) as sock:
            sock.sendall(produce_frame(1, ("t", 0, BAD)))
            assert ended(sock) == b""
        assert proxy.counters.produce_partitions_total == 0
        assert proxy.refusals == []


@pytest.mark.alone
def test_a_request_must_come_in_time():
    limits = limits_with(frame_timeout_ms=500, idle_timeout_ms=60_000, handshake_timeout_ms=2_000)
    with ScriptedBroker() as broker, RunningProxy(broker.address, limits=limits) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
            began = time.monotonic()
            sock.sendall(other_frame(2)[:-1])
            assert ended(sock) == b""
            assert time.monotonic() - began >= 0.4
        eventually(lambda: proxy.counters.connections_closed == {"frame_timeout": 1})


@pytest.mark.alone
def test_a_request_that_drips_is_ended_too():
    limits = limits_with(frame_timeout_ms=500, idle_timeout_ms=60_000, handshake_timeout_ms=2_000)
    frame = other_frame(2)
    with ScriptedBroker() as broker, RunningProxy(broker.address, limits=limits) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
            began = time.monotonic()
            with contextlib.suppress(OSError):
                for n in range(len(frame) - 1):
                    sock.sendall(frame[n : n + 1])
                    time.sleep(0.2)
            assert time.monotonic() - began < 10.0
        assert proxy.counters.connections_closed == {"frame_timeout": 1}


def test_a_large_answer_gives_its_client_no_more_time_for_a_request():
    def begins(frame: bytes) -> bytes | None:
        is_produce = frame[:2] == struct.pack(">h", 0)
        return struct.pack(">i", 16 << 20) + frame[4:8] if is_produce else answered(frame)

    limits = limits_with(frame_timeout_ms=200, idle_timeout_ms=60_000)
    with connected_gate(begins, limits=limits) as (_, proxy, sock):
        sock.sendall(other_frame(1))
        read_frame(sock)
        sock.sendall(produce_frame(2, ("t", 0, GOOD)))
        (session,) = proxy.proxy.connections
        eventually(lambda: session.connections.broker.splitter.partial_size)
        sock.sendall(other_frame(3)[:-1])
        eventually(lambda: proxy.counters.connections_closed == {"frame_timeout": 1})


def test_a_slow_request_that_waits_for_the_gate_is_not_ended():
    # While the gate does not read the client, the time of its request stands still.
    limits = limits_with(frame_timeout_ms=300, idle_timeout_ms=60_000, handshake_timeout_ms=1_000)
    with connected_gate(limits=limits) as (_, proxy, sock):
        sock.sendall(other_frame(1))
        read_frame(sock)
        (session,) = proxy.proxy.connections
        sock.sendall(other_frame(2)[:-1])
        eventually(lambda: session.client.splitter.buffered)
        proxy.loop.call_soon_threadsafe(session.client.hold, 8)
        time.sleep(1.0)
        assert session.lifetime.reason is None
        proxy.loop.call_soon_threadsafe(session.client.release, 8)
        sock.sendall(other_frame(2)[-1:])
        read_frame(sock)


def test_one_address_has_its_share_of_connections():
    limits = limits_with(max_connections_per_address=3)
    with ScriptedBroker() as broker, RunningProxy(broker.address, limits=limits) as proxy:
        with contextlib.ExitStack() as open_:
            socks = [open_.enter_context(connected(proxy)) for _ in range(4)]
            assert ended(socks[3]) == b""
            for sock in socks[:3]:
                sock.sendall(other_frame(1))
                read_frame(sock)
        eventually(lambda: proxy.counters.connections_open == 0)
        assert proxy.counters.connections_refused_by == {"max_connections_per_address": 1}
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)


def test_no_answer_is_merged_from_megabytes_of_names():
    # No topic has such a name, and the loop would copy all of them.
    names = [f"{i}" + "n" * 32_000 for i in range(150)]
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(produce_frame(1, *((name, 0, BAD) for name in names)))
        assert set(codes(read_frame(sock)).values()) == {2}  # written in a thread
        sock.sendall(produce_frame(2, *((name, 0, BAD if name < "1" else GOOD) for name in names)))
        assert ended(sock) == b""
        assert broker.frames == []
        assert proxy.counters.connections_closed == {"request_names": 1}


def test_many_requests_of_one_client_take_turns_with_the_others():
    # One write of thousands of requests is taken in slices, other clients' requests in between.
    many = b"".join(produce_frame(n, ("t", 0, BAD)) for n in range(3000))
    with connected_gate() as (_, proxy, greedy):
        greedy.settimeout(60)
        sent = [0]
        turns = []
        take_turn = proxy.proxy.budget.take_turn

        def watched(work, sender):
            turns.append(work)
            take_turn(work, sender)

        proxy.proxy.budget.take_turn = watched
        greedy.sendall(many)
        while sent[0] < 3000:
            assert codes(read_frame(greedy)) == {("t", 0): 2}
            sent[0] += 1
        assert len(turns) >= 10


def test_api_versions_are_remembered_by_what_the_broker_answers():
    with connected_gate(versions) as (_, _, sock):
        request = ApiVersionsRequest(api_version=0)
        answers = []
        for n in range(3):
            sock.sendall(b"".join(request.encode(n + 5, "test")))
            answers.append(read_frame(sock))
        assert [int.from_bytes(one[:4], "big") for one in answers] == [5, 6, 7]
        assert len({one[4:] for one in answers}) == 1
        offered = request.decode(memoryview(answers[2]))
        assert [(api.api_key, api.max_version) for api in offered.api_keys] == [(0, 7)]


def versions(frame: bytes) -> bytes | None:
    if frame[:2] != struct.pack(">h", 18):
        return answered(frame)
    body = (
        frame[4:8]
        + struct.pack(">hi", 0, 2)
        + struct.pack(">hhh", 0, 0, 7)
        + struct.pack(">hhh", 999, 0, 1)
    )
    return struct.pack(">i", len(body)) + body
