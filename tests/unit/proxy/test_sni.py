"""One port for all brokers: the server name of a TLS client chooses the broker."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from batchval.protocol.walkers.addresses import addresses
from batchval.proxy.settings.host_patterns import ServerNames
from batchval.proxy.tls.sni import node_asked_for
from batchval.proxy.tls.tls import identity_of, subject_of
from tests.support.proxy import RunningProxy, eventually, other_frame, read_frame
from tests.support.secured import SecuredServer
from tests.system.auth.conftest import Certificates
from tests.unit.proxy.test_discovery import NamingBroker

BOOTSTRAP = "kafka.gate.example"
BROKER = "broker-{node}.gate.example"
NAMES = ServerNames(BOOTSTRAP, BROKER)


def of(node_id: int) -> str:
    return BROKER.replace("{node}", str(node_id))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("sni"))
    made.issue("gate", "*.gate.example")
    return made


def listening(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path("gate.pem"), certificates.path("gate.key"))
    return context


class Rig:
    """Two brokers and a gate with one port. ``named``: brokers that the cluster has at first."""

    def __init__(
        self, certificates: Certificates, named: tuple[int, ...] = (1, 2), **options: Any
    ) -> None:
        self.certificates = certificates
        self.brokers = {node_id: NamingBroker() for node_id in (1, 2)}
        self.name(*named)
        options.setdefault("listen_tls", listening(certificates))
        self.proxy = RunningProxy(self.brokers[1].address, sni=NAMES, **options)

    def name(self, *node_ids: int) -> None:
        """Let the cluster consist of these."""
        for broker in self.brokers.values():
            broker.named = {node_id: self.brokers[node_id].at for node_id in node_ids}

    def __enter__(self) -> Rig:
        for broker in self.brokers.values():
            broker.__enter__()
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.__exit__()
        for broker in self.brokers.values():
            broker.__exit__()

    def is_known(self, *node_ids: int) -> bool:
        return set(self.proxy.proxy.listening) == set(node_ids)

    @contextmanager
    def client(
        self, name: str | None, context: ssl.SSLContext | None = None, **options: Any
    ) -> Iterator[ssl.SSLSocket]:
        if context is None:
            context = self.certificates.context()
            context.check_hostname = False
        with (
            socket.create_connection(self.proxy.address, 10) as sock,
            context.wrap_socket(sock, server_hostname=name, **options) as secured,
        ):
            yield secured

    def ask(self, name: str, **options: Any) -> None:
        """Send one request and return its answer."""
        with self.client(name, **options) as sock:
            sock.sendall(other_frame(7))
            assert read_frame(sock) == struct.pack(">i", 7)

    def asked(self) -> tuple[int, int]:
        """Return the requests that each broker has seen."""
        return len(self.brokers[1].frames), len(self.brokers[2].frames)

    def closed(self) -> dict[str, int]:
        return self.proxy.counters.connections_closed


@pytest.fixture
def rig(certificates: Certificates) -> Iterator[Rig]:
    with Rig(certificates) as made:
        eventually(lambda: made.is_known(1, 2))
        yield made


def test_the_name_chooses_the_broker(rig: Rig) -> None:
    port = rig.proxy.address[1]
    assert rig.proxy.own_ports() == {port}
    rig.ask(of(2))
    assert rig.asked() == (0, 1)
    rig.ask(of(1))
    rig.ask(of(1).upper())
    rig.ask(f"{of(1)}.")
    assert rig.asked() == (3, 1)
    rig.ask(BOOTSTRAP)  # any broker: the first address
    assert rig.asked() == (4, 1)
    assert rig.proxy.counters.handshakes_failed == {}


def test_both_versions_of_tls_and_no_resumption(rig: Rig) -> None:
    # A session of one broker's name does not lead there with another name.
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = rig.certificates.context()
        context.maximum_version = version
        before = rig.asked()
        with rig.client(of(1), context) as sock:
            sock.sendall(other_frame(7))
            read_frame(sock)
            session = sock.session
        rig.ask(of(2), context=context, session=session)
        assert rig.asked() == (before[0] + 1, before[1] + 1)


REFUSED = [
    ("kafka.gate.example.org", "sni_unknown", "UNRECOGNIZED_NAME"),
    ("broker-01.gate.example", "sni_unknown", "UNRECOGNIZED_NAME"),
    ("x" * 63 + ".gate.example", "sni_unknown", "UNRECOGNIZED_NAME"),
    (None, "sni_missing", "MISSING_EXTENSION"),
]


@pytest.mark.parametrize(("name", "reason", "alert"), REFUSED)
def test_a_client_without_a_known_name_is_refused_before_anything_goes_upstream(
    rig: Rig, name: str | None, reason: str, alert: str, caplog: pytest.LogCaptureFixture
) -> None:
    connections = [len(broker.connections) for broker in rig.brokers.values()]
    for _ in range(2):
        with pytest.raises(ssl.SSLError, match=alert), rig.client(name):
            pass
    eventually(lambda: rig.closed() == {f"handshake_{reason}": 2})
    assert rig.proxy.counters.handshakes_failed == {reason: 2}
    assert rig.asked() == (0, 0)
    assert connections == [len(broker.connections) for broker in rig.brokers.values()]
    eventually(lambda: rig.proxy.counters.connections_open == 0)
    ended = [record.__dict__["facts"] for record in caplog.records if "facts" in record.__dict__]
    assert [facts["reason"] for facts in ended] == [f"handshake_{reason}"] * 2
    assert all((name or "SNI") in facts["detail"] for facts in ended)
    rig.ask(BOOTSTRAP)


async def test_the_alert_on_both_loops(certificates: Certificates) -> None:
    context = listening(certificates)
    async with SecuredServer(
        lambda: context, look=lambda hello: node_asked_for(hello, NAMES)
    ) as server:
        for _ in range(3):
            with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
                await server.ask(certificates.context())  # for localhost
    assert server.failures == ["sni_unknown"] * 3
    assert server.secured == []


def test_a_client_certificate_goes_with_a_name(certificates: Certificates) -> None:
    context = listening(certificates)
    context.load_verify_locations(certificates.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    options = {
        "listen_tls": context,
        "sender": identity_of,
        "principal": lambda one: f"User:{subject_of(one)}",
    }
    with Rig(certificates, **options) as rig:
        eventually(lambda: rig.is_known(1, 2))
        with rig.client(of(2), certificates.context("client")) as sock:
            sock.sendall(other_frame(7))
            read_frame(sock)
            (session,) = rig.proxy.proxy.connections
            assert session.listener.node_id == 2
            assert session.identity.facts.principal.startswith("User:CN=trusted-client")
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            rig.ask(of(1))  # without a certificate
        eventually(lambda: rig.proxy.counters.handshakes_failed == {"certificate": 1})
        assert rig.asked() == (0, 1)


def test_answers_hold_the_names_and_the_one_port(rig: Rig) -> None:
    at = {node_id: broker.at for node_id, broker in rig.brokers.items()} | {
        3: ("broker.internal", 9003)
    }
    listed = [
        MetadataResponseBroker(node_id=node_id, host=host, port=port)
        for node_id, (host, port) in at.items()
    ]
    response = MetadataResponse(brokers=listed)
    rig.brokers[1].answer = lambda frame: b"".join(
        response.encode(struct.unpack(">i", frame[4:8])[0], 12)
    )
    port = rig.proxy.address[1]
    for name in (BOOTSTRAP, of(1)):
        with rig.client(name) as sock:
            for _ in range(2):  # the second one is known
                sock.sendall(b"".join(MetadataRequest(api_version=12, topics=[]).encode(1, "c")))
                assert addresses(read_frame(sock), 3, 12) == [(n, of(n), port) for n in (1, 2, 3)]


def test_a_name_may_come_before_its_broker_is_known(certificates: Certificates) -> None:
    with Rig(certificates, (1,)) as rig:
        eventually(lambda: rig.is_known(1))
        with rig.client(of(2)) as sock:
            sock.sendall(other_frame(7))
            eventually(lambda: len(rig.proxy.proxy.cluster._awaited._waiting) == 1)
            rig.name(1, 2)
            rig.proxy.loop.call_soon_threadsafe(
                rig.proxy.proxy.discovery.learn, 2, *rig.brokers[2].at
            )
            assert read_frame(sock) == struct.pack(">i", 7)
        assert rig.asked() == (0, 1)
        eventually(lambda: rig.proxy.proxy.cluster._awaited._waiting == {})


def test_the_cluster_is_asked_at_once_for_a_broker_that_a_client_asks_for(
    certificates: Certificates,
) -> None:
    # Another gate may have sent the client the new broker's name; rounds are 30 seconds apart.
    with Rig(certificates, (1,)) as rig:
        eventually(lambda: rig.is_known(1))
        rig.name(1, 2)
        rig.ask(of(2))
        assert rig.asked() == (0, 1)


def test_many_that_wait_for_one_broker(certificates: Certificates) -> None:
    with Rig(certificates, (1,)) as rig:
        eventually(lambda: rig.is_known(1))
        context = rig.certificates.context()
        socks = []
        for _ in range(20):
            sock = context.wrap_socket(
                socket.create_connection(rig.proxy.address, 10), server_hostname=of(2)
            )
            sock.sendall(other_frame(7))
            socks.append(sock)
        waiting = rig.proxy.proxy.cluster._awaited._waiting
        eventually(lambda: len(waiting.get(2, ())) == 20)
        rig.proxy.loop.call_soon_threadsafe(rig.proxy.proxy.discovery.learn, 2, *rig.brokers[2].at)
        for sock in socks:
            assert read_frame(sock) == struct.pack(">i", 7)
            sock.close()
        assert rig.asked() == (0, 20)


def test_a_broker_that_nobody_knows_ends_the_connection(certificates: Certificates) -> None:
    with Rig(certificates, connect_timeout_ms=300) as rig:
        eventually(lambda: rig.is_known(1, 2))
        with rig.client(of(77)) as sock:
            sock.sendall(other_frame(7))
            with pytest.raises(EOFError):
                read_frame(sock)
        assert rig.closed() == {"broker_unknown": 1}
        assert rig.asked() == (0, 0)
        assert rig.is_known(1, 2)
        eventually(lambda: rig.proxy.counters.connections_open == 0)


def test_a_client_that_leaves_while_it_waits(certificates: Certificates) -> None:
    with Rig(certificates, connect_timeout_ms=500) as rig:
        eventually(lambda: rig.is_known(1, 2))
        waiting = rig.proxy.proxy.cluster._awaited._waiting
        with rig.client(of(77)) as sock:
            sock.sendall(other_frame(7, key=3, version=1, body=b"\0\0\0\0"))
            eventually(lambda: waiting)
        eventually(lambda: not waiting and rig.proxy.counters.connections_open == 0, 20)


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
