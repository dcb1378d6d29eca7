"""The lines about connections: one for each that the gate ended, what it says, and no flood."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from batchval.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from batchval.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from batchval.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from batchval.proxy.session.connection_log import DEBUG_LINES, ConnectionLog
from batchval.proxy.settings.options import Counters
from batchval.proxy.watch.audit_log import MAX_LINES_AT_ONCE, LineFormatter, text_line
from batchval.proxy.watch.metrics import GateMetrics
from batchval.proxy.watch.senders import LineShares, SenderTable
from tests.support.clock import Clock
from tests.support.log_lines import ended, facts
from tests.support.network import closed_port, reset_on_close
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
    read_frame,
)

HTTP = b"GET / HTTP/1.1\r\n\r\n"
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, LIST_GROUPS = 18, 17, 36, 16


class Unasked:
    """A session that a line would ask: none may be written."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a line that is left out needs no {name}")


@contextlib.contextmanager
def at_level(level: int) -> Iterator[None]:
    log = logging.getLogger("batchval")
    before = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)


@pytest.fixture(autouse=True)
def info() -> Iterator[None]:
    with at_level(logging.INFO):
        yield


def ends(proxy: RunningProxy, *requests: bytes) -> str:
    """Send requests, and wait for the end of the connection; returns the client's address."""
    with connected(proxy) as sock:
        sock.sendall(b"".join(requests))
        name = "{}:{}".format(*sock.getsockname())
        try:
            while sock.recv(65536):
                pass
        except ConnectionResetError:
            pass
    return name


# ---- what the lines say --------------------------------------------------------------------------


def test_each_connection_that_the_gate_ended_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    # About fifty connections of ten reasons; the log and the metric have the same counts.
    limits = limits_with(handshake_timeout_ms=200, idle_timeout_ms=300)
    too_long = struct.pack(">i", limits.max_frame_bytes + 1)
    what = {
        "frame_http": (9, HTTP),
        "frame_tls": (7, b"\x16\3\1\0\x20\1"),
        "frame_size": (8, too_long + b"garbage"),
        "request_version": (7, other_frame(1, key=99)),
        "request_header": (3, b"\0\0\0\4abcd"),
        "version_too_old": (5, other_frame(1, key=0, version=1)),
        "produce_malformed": (4, other_frame(1, key=0, version=9)),
        "acks_0_refused": (5, produce_frame(1, ("t", 0, BAD), acks=0)),
        "handshake": (2, b""),
        "idle": (2, other_frame(1)),
    }
    with ScriptedBroker() as broker, RunningProxy(broker.address, limits=limits) as proxy:
        proxy.proxy.connection_log._lines = LineShares("connections", 100, 100, SenderTable())
        names: dict[str, str] = {}
        for reason, (number, data) in what.items():
            socks = [socket.create_connection(proxy.address, 10) for _ in range(number)]
            for sock in socks:
                sock.sendall(data)
                names["{}:{}".format(*sock.getsockname())] = reason
            for sock in socks:
                with sock:
                    while sock.recv(65536):
                        pass
        lines = eventually(lambda: len(found := ended(caplog)) == len(names) and found)
        assert len(lines) > 50
        assert {line["client"]: line["reason"] for line in lines} == names
        assert Counter(line["reason"] for line in lines) == proxy.counters.connections_closed
    for line in lines:
        assert line["listener"] == "default"
        assert line["principal"] == "User:ANONYMOUS"
        assert line["broker"] == "bootstrap"
        assert line["received"] == len(what[line["reason"]][1])
        assert 0 <= line["seconds"] < 10
        assert line["meaning"].endswith(".")
    by_reason = {line["reason"]: line for line in lines}
    assert (
        by_reason["frame_size"]["detail"]
        == f"length {limits.max_frame_bytes + 1}, allowed 0 to 104857600"
    )
    assert (by_reason["request_version"]["api"], by_reason["version_too_old"]["api"]) == (
        99,
        "Produce",
    )
    assert by_reason["acks_0_refused"]["client_id"] == "test"
    idle = by_reason["idle"]
    assert (idle["broker_address"], idle["api"], idle["sent"]) == (
        broker.address,
        "InitProducerId",
        8,
    )
    assert (idle["requests"], by_reason["frame_http"]["requests"]) == (1, 0)
    assert "broker_address" not in by_reason["handshake"]
    levels = {
        record.__dict__["facts"]["reason"]: record.levelname
        for record in caplog.records
        if ended_line(record)
    }
    assert levels.pop("idle") == "INFO"
    assert set(levels.values()) == {"WARNING"}


def ended_line(record: logging.LogRecord) -> bool:
    return record.getMessage() == "connection ended"


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_line_names_the_client_and_what_was_under_way(
    is_reset: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(frame: bytes) -> bytes | None:
        if frame[:2] == struct.pack(">h", LIST_GROUPS):
            assert broker.talking is not None
            if is_reset:
                reset_on_close(broker.talking)
                broker.talking.close()
            else:
                broker.talking.shutdown(socket.SHUT_RDWR)
            return None
        if frame[:2] == struct.pack(">h", API_VERSIONS):
            return b"".join(ApiVersionsResponse().encode(1, 3))
        return answered(frame)

    versions = ApiVersionsRequest(
        api_version=3, client_software_name="shop", client_software_version="2.1"
    )
    hello = b"".join(versions.encode(1, "checkout"))
    with ScriptedBroker(answer) as broker, RunningProxy(broker.address) as proxy:
        ends(
            proxy,
            hello,
            produce_frame(2, ("t", 0, GOOD)),
            other_frame(3, key=LIST_GROUPS, version=1),
        )
        (line,) = eventually(lambda: ended(caplog))
    assert line["reason"] == "upstream_lost"
    assert line.get("detail") == ("Connection reset by peer" if is_reset else None)
    assert (line["software"], line["software_version"], line["client_id"]) == (
        "shop",
        "2.1",
        "test",
    )
    assert (line["api"], line["version"], line["requests"]) == ("ListGroups", 1, 3)
    assert (line["broker"], line["broker_address"]) == ("bootstrap", broker.address)


def test_a_broker_that_ends_an_idle_connection_causes_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(other_frame(1))
        read_frame(sock)
        assert broker.talking is not None
        broker.talking.shutdown(socket.SHUT_RDWR)
        assert sock.recv(1) == b""
        (line,) = eventually(lambda: ended(caplog))
        assert (line["reason"], line["api"]) == ("upstream_closed", "InitProducerId")
        assert proxy.counters.connections_closed == {"upstream_closed": 1}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_broker_that_cannot_be_reached_is_named(caplog: pytest.LogCaptureFixture) -> None:
    port = closed_port()
    with RunningProxy(f"127.0.0.1:{port}") as proxy:
        ends(proxy, other_frame(1))
        (line,) = eventually(lambda: ended(caplog))
    assert line["reason"] == "upstream_unreachable"
    assert line["detail"] == f"127.0.0.1:{port}: Connection refused"


def test_versions_that_are_carried_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        ends(proxy, other_frame(1, key=3, version=99))
        (line,) = eventually(lambda: ended(caplog))
    assert (line["api"], line["version"]) == ("Metadata", 99)
    first, last = proxy.proxy.carried[3]
    assert line["detail"] == f"the gate supports versions {first} to {last}"


@pytest.mark.parametrize(
    ("reason", "limited"),
    [
        ("max_connections", {"limits": limits_with(max_connections=1)}),
        ("max_listener_connections", {"max_connections": 1}),
        ("max_connections_per_address", {"limits": limits_with(max_connections_per_address=1)}),
    ],
)
def test_clients_that_are_not_admitted_have_a_line(
    reason: str, limited: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address, **limited) as proxy,
    ):
        with connected(proxy) as first:
            first.sendall(other_frame(1))
            read_frame(first)
            name = ends(proxy)
        (line,) = eventually(lambda: ended(caplog))
        assert proxy.counters.connections_refused_by == {reason: 1}
    assert (line["listener"], line["client"], line["reason"]) == ("default", name, reason)


# ---- SASL and TLS --------------------------------------------------------------------------------


@pytest.mark.parametrize("who_closes", ["broker", "client"])
def test_credentials_that_the_broker_does_not_accept(
    who_closes: str, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(frame: bytes) -> bytes | None:
        key, _, correlation_id = struct.unpack_from(">hhi", frame)
        if key == SASL_HANDSHAKE:
            return b"".join(SaslHandshakeResponse(0, ["PLAIN"]).encode(correlation_id, 1))
        if key == SASL_AUTHENTICATE:
            answer = b"".join(SaslAuthenticateResponse(58, "no").encode(correlation_id, 2))
            assert broker.talking is not None
            broker.talking.sendall(answer)
            if who_closes == "broker":
                broker.talking.shutdown(socket.SHUT_RDWR)
            return None
        return answered(frame)

    handshake = b"".join(SaslHandshakeRequest(api_version=1, mechanism="PLAIN").encode(1, "shop"))
    password = b"\0alice\0pl4nted-s3cret"
    token = b"".join(SaslAuthenticateRequest(api_version=2, auth_bytes=password).encode(2, "shop"))
    with ScriptedBroker(answer) as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            sock.sendall(handshake + token)
            read_frame(sock), read_frame(sock)
            if who_closes == "broker":
                assert sock.recv(1) == b""
        (line,) = eventually(lambda: ended(caplog))
        assert proxy.counters.connections_closed == {"authentication_failed": 1}
    assert line["detail"] == "PLAIN, User:alice, SASL_AUTHENTICATION_FAILED"
    assert line["principal"] == "User:ANONYMOUS"
    assert "pl4nted" not in str(line)


@contextlib.contextmanager
def secured(
    tmp_path: Path, broker: ScriptedBroker
) -> Iterator[tuple[RunningProxy, ssl.SSLContext]]:
    """Yield a proxy that requires client certificates, and a client's context with one."""
    authority = trustme.CA()
    server, client = (
        authority.issue_cert("127.0.0.1"),
        authority.issue_cert("edge-1", common_name="edge-1"),
    )
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.configure_cert(listening)
    authority.configure_trust(listening)
    listening.verify_mode = ssl.CERT_REQUIRED
    context = ssl.create_default_context()
    authority.configure_trust(context)
    client.configure_cert(context)
    with RunningProxy(
        broker.address,
        listen_tls=listening,
        sender=lambda _: "edge-1",
        principal=lambda _: "User:CN=edge-1",
        limits=limits_with(idle_timeout_ms=200, handshake_timeout_ms=5_000),
    ) as proxy:
        yield proxy, context


def test_tls_that_fails_says_why_in_the_librarys_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with ScriptedBroker() as broker, secured(tmp_path, broker) as (proxy, _):
        plain = ends(proxy, other_frame(1))
        with connected(proxy) as sock:
            name = "{}:{}".format(*sock.getsockname())
            with contextlib.suppress(OSError), stranger.wrap_socket(sock) as tls:
                assert tls.recv(1) == b""
        hello = b"\x16\3\1\0\x20\1\0\0\x1c" + bytes(28)
        broken = ends(proxy, hello)
        with connected(proxy) as sock:
            sock.sendall(hello[:10])  # and it leaves
        eventually(lambda: len(proxy.counters.handshakes_failed) == 4)
        lines = {line["client"]: (line["reason"], line["detail"]) for line in ended(caplog)}
    assert lines.pop(plain) == ("handshake_plaintext", "the client does not speak TLS")
    assert lines.pop(name) == ("handshake_certificate", "the client has shown no certificate")
    reason, detail = lines.pop(broken)
    assert reason == "handshake_protocol"
    assert detail
    assert lines == {}


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_probe_of_a_tls_port_is_a_client_that_closes(tmp_path: Path, is_reset: bool) -> None:
    # As it is without TLS: health checks connect and close, and nothing has failed.
    with ScriptedBroker() as broker, secured(tmp_path, broker) as (proxy, _):
        with connected(proxy) as sock:
            eventually(lambda: proxy.counters.connections_open)
            if is_reset:
                reset_on_close(sock)
        eventually(lambda: not proxy.counters.connections_open)
        assert (proxy.counters.handshakes_failed, proxy.counters.connections_closed) == ({}, {})


def test_debug_shows_the_life_of_a_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        at_level(logging.DEBUG),
        ScriptedBroker() as broker,
        secured(tmp_path, broker) as (proxy, context),
    ):
        with context.wrap_socket(
            socket.create_connection(proxy.address, 10), server_hostname="127.0.0.1"
        ) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
            client = "{}:{}".format(*sock.getsockname())
        eventually(lambda: facts(caplog, "connection closed by the client"))
    debug = [
        record
        for record in caplog.records
        if record.levelno == logging.DEBUG and record.name == PROXY
    ]
    lines = {record.getMessage(): record.__dict__["facts"] for record in debug}
    assert {line["client"] for line in lines.values()} == {client}
    assert list(lines) == [
        "connection accepted",
        "client authenticated",
        "first request of a client id",
        "reading paused",
        "broker connected",
        "reading resumed",
        "connection closed by the client",
    ]
    assert lines["connection accepted"]["tls"] == "TLSv1.3"
    assert lines["connection accepted"]["cipher"].startswith("TLS_")
    assert lines["client authenticated"]["mechanism"] == "client certificate"
    assert lines["client authenticated"]["principal"] == "User:CN=edge-1"
    assert lines["first request of a client id"]["client_id"] == "test"
    assert lines["broker connected"]["broker_address"] == broker.address
    assert (
        lines["reading paused"]["why"]
        == lines["reading resumed"]["why"]
        == "the broker takes no requests"
    )
    assert lines["connection closed by the client"]["requests"] == 1


PROXY = "batchval.proxy"


def test_without_debug_a_client_that_leaves_has_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
        eventually(lambda: not proxy.proxy.connections)
        assert proxy.proxy.connection_log.left_out == {}
    assert not [record for record in caplog.records if "facts" in record.__dict__]


# ---- how many ------------------------------------------------------------------------------------


class Described:
    """The least that a line needs."""

    def __init__(self, client_id: str) -> None:
        from batchval.proxy.settings.options import Facts
        from batchval.proxy.watch.clients import Software

        name = "10.0.0.7:1"
        self.identity = SimpleNamespace(
            name=name, facts=Facts("", name, "User:alice", "edge"), software=Software()
        )
        self.connections = self.client = self.requests = self.fast_path = self
        self.node_id, self.broker, self.answers, self.transport, self.last = 3, None, (), None, -1
        self.opened, self.now = 0.0, 1.5
        self.seen = SimpleNamespace(client_id=client_id, requests=0, collect=lambda: None)


def described(client_id: str = "c") -> Any:
    return Described(client_id)


def unasked() -> Any:
    return Unasked()


def of_sender() -> Any:
    """Return a session that is asked for its sender alone."""
    found = Unasked()
    found.identity = described().identity
    return found


def test_a_flood_is_bounded_and_counted_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = ConnectionLog(10, clock)
    for n in range(1_000):
        log.ended(described() if n < 10 else of_sender(), "frame_http")
    assert len(ended(caplog)) == 10
    assert log.left_out == {"frame_http": 990}
    log.ended(described(), "upstream_lost")
    log.ended(of_sender(), "upstream_lost")
    log.refused("edge", "10.0.0.9:1", "max_connections")
    log.refused("edge", "10.0.0.9:2", "max_connections")
    assert [line["reason"] for line in ended(caplog)[10:]] == ["upstream_lost", "max_connections"]
    log.flush()
    (left_out,) = facts(caplog, "connections left out of the log")
    assert left_out == {"count": 992, "reasons": "frame_http:990,upstream_lost:1,max_connections:1"}
    log.ended(described(), "frame_http")
    clock.now += 0.1
    log.ended(described(), "frame_http")
    log.ended(of_sender(), "frame_http")
    assert len(ended(caplog)) == 14
    metrics = GateMetrics(Counters(), mode="enforce", version="1")
    metrics.add(log.families)
    assert (
        'batchval_gate_log_connections_left_out_total{reason="frame_http"} 991.0'
        in metrics.page()().decode()
    )
    log.flush()
    log.flush()
    assert len(facts(caplog, "connections left out of the log")) == 2


def test_a_flood_of_one_sender_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    log = ConnectionLog(10, Clock())
    for _ in range(100):
        log.ended(described(), "frame_http")
    other = described("other")
    facts = other.identity.facts
    other.identity.facts = facts._replace(principal="User:bob")
    log.ended(other, "frame_http")
    log.ended(other, "frame_http")
    assert [line["client_id"] for line in ended(caplog)] == ["c"] * 10 + ["other"]


def test_few_lines_come_at_once(caplog: pytest.LogCaptureFixture) -> None:
    log = ConnectionLog(1_000, Clock())
    for _ in range(100):
        log.ended(described(), "idle")
    assert len(ended(caplog)) == MAX_LINES_AT_ONCE


def test_lines_that_the_level_hides_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    with at_level(logging.ERROR):
        log = ConnectionLog(1, Clock())
        for _ in range(9):
            log.ended(unasked(), "frame_http")
            log.closed_by_client(unasked())
        log.flush()
    assert (log.left_out, caplog.records) == ({}, [])


def test_lines_of_debug_are_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = ConnectionLog(1, clock)
    assert not log.is_debug
    with at_level(logging.DEBUG):
        log.flush()  # a level that was set anew
        assert log.is_debug
        for _ in range(100):
            log.debug(described().identity, "reading paused", why="x")
        for _ in range(50):
            log.closed_by_client(unasked())
        clock.now += 1 / DEBUG_LINES
        log.closed_by_client(described())
    assert len(facts(caplog, "reading paused")) == MAX_LINES_AT_ONCE
    assert len(facts(caplog, "connection closed by the client")) == 1
    assert log.left_out == {"debug": 100 - MAX_LINES_AT_ONCE, "client": 50}


@pytest.mark.parametrize(
    "detail", ["plain", 'x\n2026-01-01T00:00:00.000Z WARNING \r\x1b[2J\u2028 "' * 20]
)
def test_what_a_client_chose_begins_no_line(detail: str) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(text_line))
    log = logging.getLogger("batchval")
    log.addHandler(handler)
    try:
        ConnectionLog().ended(described(detail), "frame_http", detail, (0, 9))
    finally:
        log.removeHandler(handler)
    (line,) = stream.getvalue().splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 3_000
    assert "api=Produce version=9 reason=frame_http" in line
    assert line.endswith("requests=0 seconds=1.5")
