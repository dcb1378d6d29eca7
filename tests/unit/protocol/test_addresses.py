"""Addresses in responses: found where the plain reader finds them, replaced, and nothing else
touched.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.protocol import messages
from batchval.protocol.apis import APIS
from batchval.protocol.errors import ProtocolError
from batchval.protocol.gate_versions import (
    CLIENTS_OWN_HOSTS,
    CONTROLLERS_HOSTS,
    carried_versions,
    intersect_api_versions,
)
from batchval.protocol.message import Response
from batchval.protocol.messages.api_versions import ApiVersion
from batchval.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchNodeEndpoint,
    PartitionData,
)
from batchval.protocol.messages.metadata import MetadataResponseBroker
from batchval.protocol.walkers.addresses import (
    WITH_ADDRESSES,
    addresses,
    may_hold_addresses,
    rewrite_addresses,
)
from batchval.proxy.life.listener_server import ListenerServer
from tests.unit.protocol.address_messages import describe_cluster
from tests.unit.protocol.values import CLASSES, frame, invented, refusal, structs

KINDS = [kind for kind in CLASSES if issubclass(kind, Response) and kind.api_key in WITH_ADDRESSES]
ALL = [(kind, v) for kind in KINDS for v in range(kind.min_version, kind.max_version + 1)]
IDS = [f"{kind.__name__}-{v}" for kind, v in ALL]


def nodes(message: Any, version: int) -> list[Any]:
    """The structs with a host and a port, those of fields that this version has."""
    found = [one for one in structs(message) if hasattr(one, "host") and hasattr(one, "port")]
    if message.api_key == 10:
        found = [one for one in found if (one is message) == (version <= 3)]
    return found


def node_id(one: Any) -> int:
    return one.node_id if hasattr(one, "node_id") else one.broker_id


def many(kind: Any, version: int, seed: int) -> Any:
    message = invented(kind, version, seed)
    for one in nodes(message, version):
        one.port = abs(one.port) % 65536
    return message


@pytest.mark.parametrize(("kind", "version"), ALL, ids=IDS)
def test_every_address_is_found_and_replaced_and_nothing_else(kind: Any, version: int) -> None:
    rng = random.Random(version)
    seen = 0
    for seed in range(40):
        message = many(kind, version, seed)
        data = frame(message, version)[4:]
        here = nodes(message, version)
        expected = [(node_id(one), one.host, one.port) for one in here]
        assert addresses(data, kind.api_key, version) == expected
        seen += len(here)
        new_addresses = {
            n: (rng.choice(["", "h", "a" * 130, "é.example"]), rng.randrange(65536))
            for n, _, _ in expected
        }
        asked = []

        def replace(
            node: int, host: str, port: int, new_addresses: Any = new_addresses, asked: Any = asked
        ) -> tuple[str, int]:
            asked.append((node, host, port))
            return new_addresses[node]  # type: ignore[no-any-return]

        out = b"".join(rewrite_addresses(data, kind.api_key, version, replace, correlation_id=99))
        assert asked == [one for one in expected if one[1]]
        for one in here:
            if one.host:
                one.host, one.port = new_addresses[node_id(one)]
        assert out == frame(message, version, 99)
    assert (seen > 0) == may_hold_addresses(kind.api_key, version)


def test_a_fetch_response_is_not_copied_for_its_endpoints() -> None:
    records = b"r" * 100_000
    message = messages.FetchResponse(
        responses=[
            FetchableTopicResponse(topic_id=bytes(16), partitions=[PartitionData(records=records)])
        ],
        node_endpoints=[FetchNodeEndpoint(1, "broker", 9092)],
    )
    chunks = rewrite_addresses(
        frame(message, 16)[4:], 1, 16, lambda *_: ("gate", 1), correlation_id=1
    )
    assert sum(len(chunk) for chunk in chunks if isinstance(chunk, bytes)) < 200
    message.node_endpoints[0].host, message.node_endpoints[0].port = "gate", 1
    assert b"".join(chunks) == frame(message, 16, 1)


@pytest.mark.parametrize("version", range(messages.MetadataResponse.max_version + 1))
def test_known_brokers_are_written_as_before_and_not_asked_about(version: int) -> None:
    known: dict[bytes, bytes] = {}
    asked: list[int] = []

    def replace(node: int, host: str, port: int) -> tuple[str, int]:
        asked.append(node)
        return f"gate-{host}"[:200], (port + node) % 65536

    for seed in range(40):
        message = many(messages.MetadataResponse, version, seed)
        data = frame(message, version)[4:]
        expected = b"".join(rewrite_addresses(data, 3, version, replace, correlation_id=5))
        for _ in range(2):
            asked.clear()
            assert (
                b"".join(
                    rewrite_addresses(data, 3, version, replace, correlation_id=5, known=known)
                )
                == expected
            )
        assert asked == []
        message.cluster_id = f"another {seed}"
        message.throttle_time_ms = seed
        topics = frame(message, version)[4:]
        plain = b"".join(rewrite_addresses(topics, 3, version, replace))
        asked.clear()
        assert b"".join(rewrite_addresses(topics, 3, version, replace, known=known)) == plain
        assert asked == []
        assert len(known) <= 8


def test_many_brokers_are_not_kept_and_other_responses_neither() -> None:
    brokers = [MetadataResponseBroker(i, "broker" * 20, 9092) for i in range(1000)]
    known: dict[bytes, bytes] = {}
    large = frame(messages.MetadataResponse(brokers=brokers), 12)[4:]
    assert (
        len(b"".join(rewrite_addresses(large, 3, 12, lambda *_: ("gate", 1), known=known))) > 10_000
    )
    cluster = frame(many(describe_cluster.DescribeClusterResponse, 0, 3), 0)[4:]
    assert addresses(cluster, 60, 0)
    rewrite_addresses(cluster, 60, 0, lambda *_: ("gate", 1), known=known)
    assert known == {}


@pytest.mark.parametrize(("kind", "version"), ALL, ids=IDS)
def test_broken_frames_are_refused_or_read(kind: Any, version: int) -> None:
    rng = random.Random(version)
    data = min(
        (frame(many(kind, version, seed), version)[4:] for seed in range(6)),
        key=lambda d: abs(len(d) - 400),
    )
    cases = [data[:n] for n in range(len(data))]
    for _ in range(300):
        broken = bytearray(data)
        broken[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        cases.append(bytes(broken))
    for case in cases:
        refused = refusal(
            lambda c=case: rewrite_addresses(c, kind.api_key, version, lambda *_: ("h", 1))
        )  # type: ignore[misc]
        assert refused is None or refused.position <= len(case)


def test_what_the_callback_says() -> None:
    data = frame(many(messages.MetadataResponse, 12, 3), 12)[4:]
    assert any(host for _, host, _ in addresses(data, 3, 12))
    with pytest.raises(KeyError):
        rewrite_addresses(data, 3, 12, lambda *_: {}["unknown"])
    for wrong in (("h" * 40_000, 1), ("h", 65536), ("h", -2)):
        with pytest.raises(ProtocolError, match="cannot be an address"):
            rewrite_addresses(data, 3, 12, lambda *_, w=wrong: w)  # type: ignore[misc]
    with pytest.raises(ProtocolError, match="not known to hold addresses"):
        addresses(data, 2, 1)
    with pytest.raises(ProtocolError, match="not known here"):
        addresses(data, 3, 14)


def test_no_version_that_is_carried_names_an_address_that_is_not_rewritten() -> None:
    carried = carried_versions()
    for key, (_, last) in carried.items():
        first = APIS[key].addresses_from
        passed = CLIENTS_OWN_HOSTS | CONTROLLERS_HOSTS
        assert first is None or last < first or key in WITH_ADDRESSES | passed
        assert "broker" in APIS[key].listeners
    assert set(WITH_ADDRESSES) <= carried.keys()


def test_the_newest_version_of_each_api_of_brokers_is_carried() -> None:
    newest = {key: api.max_version for key, api in APIS.items() if "broker" in api.listeners}
    assert {key: last for key, (_, last) in carried_versions().items()} == newest
    assert newest[55] == 2  # DescribeQuorum, as kafka-metadata-quorum and kafka-python send it


@pytest.mark.parametrize("version", range(6))
def test_api_versions_are_intersected(version: int) -> None:
    broker = invented(messages.ApiVersionsResponse, version, 8)
    broker.error_code = 0
    broker.api_keys = [
        ApiVersion(0, 0, 13),
        ApiVersion(3, 0, 13),
        ApiVersion(1, 4, 30),
        ApiVersion(999, 0, 1),
        ApiVersion(18, 0, 5),
        ApiVersion(2, 12, 13),
    ]
    out = b"".join(
        intersect_api_versions(
            frame(broker, version)[4:], version, carried_versions(), correlation_id=3
        )
    )
    broker.api_keys = [
        ApiVersion(0, 0, 13),
        ApiVersion(3, 0, 13),
        ApiVersion(1, 4, 18),
        ApiVersion(18, 0, 5),
    ]
    assert out == frame(broker, version, 3)


@pytest.mark.parametrize(("size", "kept"), [(16, 1), (17, 0)])
def test_a_large_answer_of_api_versions_is_not_kept(size: int, kept: int) -> None:
    keys = [ApiVersion(key, 0, 1) for key in range(1_000, 1_000 + (size << 10) // 6 - 2)]
    body = frame(messages.ApiVersionsResponse(api_keys=[ApiVersion(0, 0, 13), *keys]), 0)[4:]
    proxy: Any = SimpleNamespace(_versions={}, carried=carried_versions())
    for _ in range(2):
        answer = b"".join(ListenerServer.intersected(proxy, memoryview(body), 0, 7, {}))
        assert answer == frame(messages.ApiVersionsResponse(api_keys=[ApiVersion(0, 0, 13)]), 0, 7)
        assert len(proxy._versions) == kept


def test_a_broker_that_does_not_know_the_version() -> None:
    broker = messages.ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 3)])
    data = frame(broker, 0)
    for version in range(6):
        assert b"".join(intersect_api_versions(data[4:], version, carried_versions())) == data
    with pytest.raises(ProtocolError):
        intersect_api_versions(data[4:-1], 0, carried_versions())


def test_a_broker_that_says_so_in_no_version_of_the_answer() -> None:
    """As librdkafka's mock broker does: a compact array, its length one too low."""
    broker_answer = bytes.fromhex("00000001002301001200000002 0000000000".replace(" ", ""))
    answer = b"".join(
        intersect_api_versions(broker_answer, 3, carried_versions(), correlation_id=9)
    )
    assert answer == frame(messages.ApiVersionsResponse(error_code=35), 0, 9)
    with pytest.raises(ProtocolError):
        intersect_api_versions(
            broker_answer[:4] + b"\0\1" + broker_answer[6:9], 3, carried_versions()
        )
