"""The addresses in answers, where NAT, load balancers or server names stand between: in every
answer that can hold one.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import pytest

from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from batchval.protocol.walkers.addresses import WITH_ADDRESSES, addresses
from batchval.proxy.cluster.listeners import Advertised
from batchval.proxy.settings.host_patterns import HostPattern, ServerNames
from tests.support.ports import free_ports
from tests.support.proxy import (
    batch,
    connected_gate,
    other_frame,
    produce_frame,
    proxy_options,
    read_frame,
)
from tests.unit.protocol.address_messages import share_acknowledge, share_fetch
from tests.unit.proxy.test_addresses import SECRET, answer_of

LATEST = {key: 12 if key == 0 else carried_versions()[key][1] for key in WITH_ADDRESSES}
NAMES = ServerNames("kafka.example.com", "b{node}.example.com")
#: Where broker 4 is, by the options: {port} stands for the port of the listener, {own} for its
#: broker's.
WAYS: list[tuple[dict[str, Any], tuple[str, str]]] = [
    (
        {"advertised_host": "b{node}.example.com", "advertised_port": 9092},
        ("b4.example.com", "9092"),
    ),
    ({"advertised_host": "b{node}.example.com"}, ("b4.example.com", "{own}")),
    ({"advertised_host": "gate", "advertised_first_port": 30000}, ("gate", "30004")),
    ({"advertised_first_port": 65431}, ("127.0.0.1", "65435")),
    ({"sni": NAMES}, ("b4.example.com", "{port}")),
    ({"sni": NAMES, "advertised_port": 443}, ("b4.example.com", "443")),
]


def answer(frame: bytes) -> bytes:
    key, version, correlation_id = struct.unpack(">hhi", frame[:8])
    if key == 78:
        shared = share_fetch.ShareFetchResponse(
            node_endpoints=[share_fetch.ShareFetchNodeEndpoint(4, *SECRET, None)]
        )
        return b"".join(shared.encode(correlation_id, version))
    if key == 79:
        acknowledged = share_acknowledge.ShareAcknowledgeResponse(
            node_endpoints=[share_acknowledge.ShareAcknowledgeNodeEndpoint(4, *SECRET, None)]
        )
        return b"".join(acknowledged.encode(correlation_id, version))
    return answer_of(frame)


@pytest.mark.parametrize(("options", "expected"), WAYS)
def test_every_answer_that_can_name_a_broker(
    options: dict[str, Any], expected: tuple[str, str]
) -> None:
    port = free_ports(6)
    assert len(LATEST) == 7
    with connected_gate(answer, listen=("127.0.0.1", port), broker_ports=5, **options) as (
        _,
        proxy,
        sock,
    ):
        for key, version in LATEST.items():
            if key == 0:
                sock.sendall(produce_frame(8, ("t", 0, batch()), version=version))
            else:
                sock.sendall(other_frame(8, key=key, version=version, body=b"\0" * 12))
            found = read_frame(sock)
            assert b"internal" not in found
            (named,) = addresses(found, key, version)
            assert named == (4, expected[0], int(expected[1].format(port=port, own=port + 5)))
        assert proxy.own_ports() == ({port} if "sni" in options else {port, port + 5, port + 1})


def test_a_broker_above_the_range_is_at_its_own_port() -> None:
    # NAT maps the ports of the settings alone; the log says that this broker has another.
    listed = [
        MetadataResponseBroker(node_id=n, host="broker.internal", port=9000 + n) for n in (1, 2)
    ]
    response = MetadataResponse(brokers=listed)
    port = free_ports(3)
    with connected_gate(
        lambda frame: b"".join(response.encode(struct.unpack(">i", frame[4:8])[0], 12)),
        listen=("127.0.0.1", port),
        broker_ports=2,
        advertised_first_port=30000,
    ) as (_, proxy, sock):
        sock.sendall(b"".join(MetadataRequest(api_version=12, topics=[]).encode(1, "c")))
        found = addresses(read_frame(sock), 3, 12)
        own = proxy.proxy.listening[2][1]
        assert own != port + 3
        assert found == [(1, "127.0.0.1", 30001), (2, "127.0.0.1", own)]


def test_other_options_are_in_the_next_answer() -> None:
    port = free_ports(6)
    with connected_gate(answer, listen=("127.0.0.1", port), advertised_host="old") as (
        _,
        proxy,
        sock,
    ):
        for host, first_port in (("old", None), ("new", None), ("b{node}", 30000)):
            options = proxy_options(
                ("127.0.0.1", port), advertised_host=host, advertised_first_port=first_port
            )
            used = threading.Event()
            proxy.loop.call_soon_threadsafe(
                lambda options, used: (proxy.proxy.cluster.use(options), used.set()), options, used
            )
            assert used.wait(10)
            for _ in range(2):  # the second answer is a known one
                sock.sendall(other_frame(8, key=3, version=12, body=b"\0" * 12))
                expected = host.replace("{node}", "4"), port + 5 if first_port is None else 30004
                assert addresses(read_frame(sock), 3, 12) == [(4, *expected)]


def test_an_answer_of_a_broker_without_an_id() -> None:
    def bootstrap(**options: Any) -> tuple[str, int]:
        return Advertised(proxy_options(**options)).bootstrap(9092)

    assert bootstrap() == ("", 9092)
    assert bootstrap(advertised_host="gate") == ("gate", 9092)
    assert bootstrap(advertised_host="b{node}") == ("", 9092)
    assert bootstrap(sni=NAMES) == ("kafka.example.com", 9092)
    assert bootstrap(sni=NAMES, advertised_port=443) == ("kafka.example.com", 443)


def test_patterns() -> None:
    pattern = HostPattern.parse("b{node}1.example")
    assert pattern.host_of(0) == "b01.example"
    for node_id in (0, 1, 11, 2**31 - 1):
        assert pattern.node_of(pattern.host_of(node_id)) == node_id
    for host in ("b1.example", "b.example", "b1.exampl", "", "b1.example1.example", "b-11.example"):
        assert pattern.node_of(host) is None
    fixed = HostPattern.parse("gate")
    assert (fixed.host_of(7), fixed.node_of("gate")) == ("gate", None)
