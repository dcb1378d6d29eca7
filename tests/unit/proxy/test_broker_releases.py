"""validation.kafka_version: auto. What brokers say of their release, what is in force, and what a
gate does when it changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from batchval.kafka_versions import find_release, least_refusing, releases_from
from batchval.network.errors import NetworkError
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.api_versions import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from batchval.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from batchval.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from batchval.proxy.cluster.discovery import ClusterNews
from batchval.proxy.life.gate import Gate
from batchval.proxy.produce.broker_releases import (
    BrokerAnswer,
    BrokerReleases,
    BrokerView,
    counted_as,
    read_broker,
)
from batchval.proxy.settings.config import Settings, Upstream
from batchval.proxy.settings.setting_types import Address
from batchval.proxy.workers.control_messages import WorkerConfiguration
from batchval.proxy.workers.worker import WorkerGate
from tests.support.broker_node import BrokerNode
from tests.support.network import Peer, closed_port, until
from tests.support.proxy import batch, codes, produce_frame, success

BOUNDED = "max.decompressed.message.bytes"
SINCE_3_6 = ("message.timestamp.before.max.ms",)
SINCE_3_8 = (*SINCE_3_6, "compression.gzip.level")
SINCE_4_2_2 = (*SINCE_3_8, BOUNDED)


def answer(level: int | None, *configurations: str, **more: Any) -> BrokerAnswer:
    told = frozenset(configurations) if configurations else None
    return BrokerAnswer(level, more.pop("versions", {}), configurations=told, **more)


def zookeeper(produce: int, fetch: int, add: int, *configurations: str) -> BrokerAnswer:
    return answer(None, *configurations, versions={0: produce, 1: fetch, 24: add})


@pytest.mark.parametrize(
    ("said", "release", "text"),
    [
        (answer(14, *SINCE_3_6), "3.6.2", "3.6.2"),
        (answer(19), "3.7.2", "3.7.2"),
        (answer(20, *SINCE_3_8), "3.8.1", "3.8.1"),
        # followers alone differ
        (answer(21, *SINCE_3_8), "3.9.2", "3.9.2"),
        (answer(25, *SINCE_3_8), "4.0.2", "4.0.2"),
        (answer(27), "4.1.2", "4.1.2"),
        (answer(29, *SINCE_3_8), "4.2.1", "4.2.1"),
        (answer(29, *SINCE_4_2_2), "4.2.2", "4.2.2"),
        (answer(29), "4.2.1", "4.2.1 or 4.2.2"),
        (answer(28), "4.2.1", "4.2.1 or 4.2.2"),
        (answer(30, *SINCE_3_8), "4.3.1", "4.3.1"),
        (answer(30, *SINCE_4_2_2), "4.3.2", "4.3.2"),
        (answer(33, *SINCE_4_2_2), "4.4.0", "4.4.0"),
        # a vendor's: no range of 4.1 has it
        (answer(27, *SINCE_4_2_2), "4.1.2", "4.1.2"),
        (zookeeper(9, 15, 4, *SINCE_3_6), "3.6.2", "3.6.2"),
        (zookeeper(10, 16, 4), "3.7.2", "3.7.2"),
        (zookeeper(11, 16, 5, *SINCE_3_8), "3.8.1", "3.8.1"),
        (zookeeper(11, 17, 5), "3.9.2", "3.9.2"),
    ],
)
def test_what_a_broker_says_names_its_release(said: BrokerAnswer, release: str, text: str) -> None:
    counted = counted_as(said)
    assert (counted.release.name, counted.text, counted.warning) == (release, text, "")


def test_a_broker_outside_of_the_table_is_warned_of() -> None:
    newer = counted_as(answer(40, *SINCE_4_2_2))
    assert newer.release.name == "4.4.0"
    assert newer.warning == "is newer than this batchval (metadata.version 40)"
    unknown = counted_as(zookeeper(7, 11, 1))
    assert unknown.release == find_release("4.4.0")
    assert unknown.warning == "names no release of Kafka (no metadata.version, Produce 7, Fetch 11)"
    assert counted_as(answer(None)).warning == "names no release of Kafka (no metadata.version)"
    assert counted_as(zookeeper(1, 1, 0)).release.name == "4.4.0"


def test_releases_that_answer_clients_alike_are_one() -> None:
    """Kafka 2.8 and 3.0 have the same requests, and refuse the same."""
    oldest = counted_as(zookeeper(9, 12, 3))
    assert (oldest.text, oldest.release.name, oldest.warning) == ("3.0.2", "3.0.2", "")


# ---- all brokers ---------------------------------------------------------------------------------


class Cluster:
    """Brokers whose answers a test sets. An answer that is an error is raised."""

    def __init__(self, **answers: BrokerAnswer | Exception) -> None:
        self.answers: dict[int, BrokerAnswer | Exception] = {
            int(name[1:]): one for name, one in answers.items()
        }
        self.away: set[int] = set()
        self.asked: list[int] = []

    def brokers(self) -> Mapping[int, BrokerView]:
        return {node: BrokerView((("broker", node),), node in self.away) for node in self.answers}

    async def read(self, address: tuple[str, int], _: str | None) -> BrokerAnswer:
        node = address[1]
        self.asked.append(node)
        one = self.answers[node]
        if isinstance(one, Exception):
            raise one
        return one

    def releases(self, refresh_s: float = 60.0) -> BrokerReleases:
        return BrokerReleases(self.brokers, self.read, refresh_s, look_s=0.01, retry_s=(0.02, 0.04))


@contextlib.asynccontextmanager
async def running(releases: BrokerReleases) -> AsyncIterator[None]:
    task = asyncio.create_task(releases.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


OLD, NEW = answer(29, *SINCE_3_8), answer(33, *SINCE_4_2_2)


async def test_a_rolling_upgrade(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster = Cluster(n1=OLD, n2=OLD, n3=NEW)
    releases = cluster.releases(0.05)
    assert releases.release == least_refusing(releases_from())
    async with running(releases):
        await until(lambda: releases.release.name == "4.2.1")
        assert (
            "kafka_version: brokers are 4.2.1 (1, 2) and 4.4.0 (3): the gate answers as Kafka 4.2.1"
            ", which refuses less" in caplog.messages
        )
        assert releases.disagree
        assert releases.by_text() == {"4.2.1": [1, 2], "4.4.0": [3]}
        cluster.answers[2] = NEW
        await until(lambda: releases.by_text() == {"4.2.1": [1], "4.4.0": [2, 3]})
        assert releases.release.name == "4.2.1"
        cluster.answers[1] = NEW
        await until(lambda: releases.release.name == "4.4.0")
        last = "kafka_version: brokers are 4.4.0 (1, 2, 3): the gate answers as Kafka 4.4.0"
        await until(lambda: caplog.messages[-1] == last)
        assert not releases.disagree
        count = len(caplog.messages)
        await asyncio.sleep(0.15)
        assert len(caplog.messages) == count


async def test_what_a_broker_said_holds_while_it_is_away_and_goes_with_it() -> None:
    cluster = Cluster(n1=NEW, n2=OLD)
    releases = cluster.releases(0.2)
    async with running(releases):
        await until(lambda: releases.disagree)
        cluster.answers[2] = ConnectionRefusedError("gone")
        await until(lambda: releases.failures_total)
        assert releases.release.name == "4.2.1"
        assert releases.problem == "broker 2 at broker:2: gone"
        del cluster.answers[2]
        await until(lambda: releases.release.name == "4.4.0")
        assert releases.problem == ""


async def test_a_broker_that_is_back_is_asked_at_once() -> None:
    cluster = Cluster(n1=OLD)
    releases = cluster.releases()
    async with running(releases):
        await until(lambda: releases.release.name == "4.2.1")
        cluster.away.add(1)
        await asyncio.sleep(0.05)
        cluster.answers[1] = NEW
        assert cluster.asked == [1]
        cluster.away.clear()
        await until(lambda: releases.release.name == "4.4.0")
        cluster.answers[2] = OLD  # a new one, too
        await until(lambda: releases.release.name == "4.2.1")
        assert cluster.asked == [1, 1, 2]


async def test_a_broker_without_an_answer_counts_from_the_finalised_level_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    dead = ConnectionRefusedError("gone")
    cluster = Cluster(n1=NEW._replace(finalized=(7, 29)), n2=dead)
    releases = cluster.releases()
    async with running(releases):
        await until(lambda: releases.release.name == "4.2.1")
        assert (
            "kafka_version: brokers are 4.4.0 (1), without an answer (2): the gate answers as "
            "Kafka 4.2.1, which refuses less" in caplog.messages
        )
    finished = Cluster(n1=NEW._replace(finalized=(8, 33)), n2=dead)
    releases = finished.releases()
    async with running(releases):
        await until(lambda: releases.release.name == "4.4.0")
    unknown = Cluster(n1=NEW, n2=dead)
    releases = unknown.releases()
    async with running(releases):
        await until(lambda: unknown.asked.count(2) > 1)
        assert releases.release == least_refusing(releases_from())


async def test_rows_that_are_not_comparable_are_combined() -> None:
    cluster = Cluster(n1=answer(14, *SINCE_3_6), n2=answer(25, *SINCE_3_8))
    releases = cluster.releases()
    async with running(releases):
        await until(lambda: releases.release.name == "3.6.2 or 4.0.2")
    row = releases.release.row
    assert (row.rebuilds_empty_batches, row.first_checked_produce_version) == (True, 3)


async def test_configurations_hold_while_they_cannot_be_read() -> None:
    cluster = Cluster(n1=answer(29, *SINCE_4_2_2))
    releases = cluster.releases(0.03)
    async with running(releases):
        await until(lambda: releases.release.name == "4.2.2")
        cluster.answers[1] = answer(29, problem="not allowed")
        asked = len(cluster.asked)
        await until(lambda: len(cluster.asked) > asked + 1)
        assert releases.release.name == "4.2.2"
        cluster.answers[1] = answer(33, problem="not allowed")  # another release: told by itself
        await until(lambda: releases.release.name == "4.4.0")
        assert releases.problem == ""
        cluster.answers[1] = answer(29, problem="not allowed")
        await until(lambda: releases.release.name == "4.2.1")
        assert releases.problem == "broker 1 at broker:1: not allowed"
        assert releases.by_text() == {"4.2.1 or 4.2.2": [1]}


async def test_failures_are_counted_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(n1=NetworkError("no"))
    releases = cluster.releases()
    async with running(releases):
        await until(lambda: releases.failures_total >= 3)
    lines = [line for line in caplog.messages if "could not be read" in line]
    assert lines == [
        "the release could not be read: broker 1 at broker:1: no; it counts as every release that "
        "it may be"
    ]
    found = {one.name: list(one.samples) for one in releases.families()}
    assert found["kafka_version_unread"] == [((), 1.0)]
    assert found["kafka_version_disagree"] == [((), 0.0)]


async def test_a_broker_of_an_unknown_release_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(n1=answer(40, *SINCE_4_2_2))
    releases = cluster.releases(0.02)
    async with running(releases):
        await until(lambda: len(cluster.asked) > 3)
    text = "broker 1 is newer than this batchval (metadata.version 40): it counts as Kafka 4.4.0"
    assert [line for line in caplog.messages if "newer" in line] == [text]


# ---- the requests --------------------------------------------------------------------------------


class Broker(BrokerNode):
    """A broker of a release, with one topic. ``error`` answers DescribeConfigs."""

    def __init__(self, level: int, *configurations: str, node_id: int = 1) -> None:
        handlers = {3: self._metadata, 32: self._describe, 0: success, 17: lambda _: None}
        super().__init__(handlers, node_id, {18: (0, 4)})
        self.level = level
        self.configurations = configurations
        self.topics = ["orders"]
        self.error = 0
        self.cluster: dict[int, Broker] = {node_id: self}

    @property
    def bootstrap(self) -> Address:
        return Address("127.0.0.1", self.port)

    def _api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=self._versions(),
            supported_features=[SupportedFeatureKey("metadata.version", 1, self.level)],
            finalized_features_epoch=3,
            finalized_features=[FinalizedFeatureKey("metadata.version", 21, 21)],
        )

    def _metadata(self, _: Any) -> MetadataResponse:
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node, "127.0.0.1", one.port)
                for node, one in self.cluster.items()
            ],
            topics=[MetadataResponseTopic(name=name) for name in self.topics],
        )

    def _describe(self, request: Any) -> DescribeConfigsResponse:
        rows = [
            DescribeConfigsResourceResult(name=key, value="1")
            for key in self.configurations
            if key in request.resources[0].configuration_keys
        ]
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_code=self.error if one.resource_name in self.topics else 3,
                    resource_type=2,
                    resource_name=one.resource_name,
                    configs=[] if self.error else rows,
                )
                for one in request.resources
            ]
        )


def upstream(*brokers: Broker, admin: bool = True) -> Upstream:
    values: dict[str, Any] = {"bootstrap": [one.bootstrap for one in brokers]}
    if admin:
        values["admin"] = {"mechanism": "NONE"}
    return Upstream.model_validate(values)


async def test_a_broker_is_asked_for_its_features_and_a_topic() -> None:
    async with Broker(29, *SINCE_4_2_2) as broker:
        asked = await read_broker(upstream(broker), None, broker.bootstrap, None)
        assert asked.metadata_version == 29
        assert asked.finalized == (3, 21)
        assert asked.configurations == set(SINCE_4_2_2)
        assert (asked.topic, asked.problem) == ("orders", "")
        assert counted_as(asked).release.name == "4.2.2"
        await read_broker(upstream(broker), None, broker.bootstrap, "orders")
        assert len(broker.of(3)) == 1  # the names of topics are asked for once
        again = await read_broker(upstream(broker), None, broker.bootstrap, "gone")
        assert again.topic == "orders"
        broker.topics = []
        empty = await read_broker(upstream(broker), None, broker.bootstrap, "orders")
        assert (empty.configurations, empty.problem) == (None, "")


async def test_without_rights_or_credentials_features_are_known() -> None:
    async with Broker(29, *SINCE_4_2_2) as broker:
        broker.error = 29
        denied = await read_broker(upstream(broker), None, broker.bootstrap, None)
        assert denied.problem == "DescribeConfigs was answered with TOPIC_AUTHORIZATION_FAILED"
        assert counted_as(denied).text == "4.2.1 or 4.2.2"
        broker.seen.clear()
        bare = await read_broker(upstream(broker, admin=False), None, broker.bootstrap, None)
        assert (bare.metadata_version, bare.configurations, bare.problem) == (29, None, "")
        assert broker.seen == []
        login = {"mechanism": "PLAIN", "username": "gate", "password": "secret"}
        settings = Upstream.model_validate({"bootstrap": [broker.bootstrap], "admin": login})
        refused = await read_broker(settings, None, broker.bootstrap, None)
        assert refused.metadata_version == 29
        assert refused.problem


async def test_a_broker_before_kafka_2_4_names_its_versions() -> None:
    async with Broker(29) as broker:
        broker.ranges[18] = (0, 0)
        found = await read_broker(upstream(broker, admin=False), None, broker.bootstrap, None)
        assert found.metadata_version is None
        assert found.versions[3] == 13


HUGE = struct.pack(">hI", 0, 2**31 - 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        struct.pack(">h", 77),
        HUGE,
        b"\0\0\xff\xff\xff\xff\x0f" + bytes(20),  # a compact array of 2^32 elements
        b"\0\0\2" + bytes(3),  # cut within an element
        b"\0\0\1" + bytes(4) + b"\3\0\x05\2\x10met",  # a feature that is cut
        bytes(70_000),
    ],
)
async def test_a_bad_answer_is_an_error(body: bytes) -> None:
    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            frame = await peer.read(reader)
            writer.write(struct.pack(">ii", 4 + len(body), frame.correlation_id) + body)

    async with Peer(script) as peer:
        at = Address("127.0.0.1", peer.port)
        settings = Upstream.model_validate({"bootstrap": [at], "admin": {"mechanism": "NONE"}})
        with pytest.raises((NetworkError, ProtocolError, OSError)) as caught:
            await read_broker(settings, None, at, None)
        assert str(caught.value)


async def test_features_without_sense_name_nothing() -> None:
    async with Broker(-5) as broker:
        found = await read_broker(upstream(broker, admin=False), None, broker.bootstrap, None)
    assert found.metadata_version is None


# ---- a gate --------------------------------------------------------------------------------------


def settings_of(*brokers: Broker, **validation: Any) -> Settings:
    """Return the settings of a gate that does not know what brokers run, if not told."""
    return Settings.model_validate(
        {
            "mode": "enforce",
            "listeners": [{"address": "127.0.0.1:0", "first_broker_port": 0}],
            "upstream": {
                "bootstrap": [str(one.bootstrap) for one in brokers],
                "admin": {"mechanism": "NONE"},
            },
            "validation": {"kafka_version": "auto"} | validation,
            "metrics": {"address": None},
            "topics": {"policies": [{"match": "*", "max.message.bytes": 1_000_000}]},
        }
    )


async def answered_code(gate: Gate, records: bytes) -> int:
    """Return the error code of one batch that a client sends to the gate."""
    host, port = next(iter(gate.addresses.values()))
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(produce_frame(1, ("orders", 0, records)))
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    frame = await reader.readexactly(size)
    writer.close()
    return codes(frame)["orders", 0]


@contextlib.asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Broker, Broker]]:
    async with Broker(21, *SINCE_3_8) as one, Broker(33, *SINCE_4_2_2, node_id=2) as two:
        one.cluster = two.cluster = {1: one, 2: two}
        yield one, two


TOMORROW = 24 * 3_600_000


async def test_a_gate_answers_as_the_broker_that_refuses_less(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    caplog.set_level(logging.INFO)
    early = batch(b"v", timestamp=int(time.time() * 1000) + TOMORROW)
    async with two_brokers() as (one, two):
        gate = Gate(settings_of(one, two))
        await gate.start()
        try:
            await until(lambda: gate.broker_releases.disagree)
            await until(lambda: gate.parts.release.name == "3.9.2")
            # Kafka 3.9 takes a timestamp of tomorrow, and 4.4 does not (KIP-1030)
            assert await answered_code(gate, early) == 0
            page = gate.metrics.page()().decode()
            assert 'batchval_gate_kafka_version{release="3.9.2"} 1.0' in page
            assert 'batchval_gate_kafka_version_brokers{release="4.4.0"} 1.0' in page
            assert "batchval_gate_kafka_version_disagree 1.0" in page
            one.level, one.configurations = 33, SINCE_4_2_2
            gate.broker_releases.refresh_s = 0.1
            for known in gate.broker_releases._known.values():
                known.due_s = 0.0
            await until(lambda: gate.parts.release.name == "4.4.0")
            assert await answered_code(gate, early) == 32
            assert "batchval_gate_kafka_version_disagree 0.0" in gate.metrics.page()().decode()
            # what an operator sets in the file wins over what brokers say
            fixed = settings_of(one, two, kafka_version="3.9.2")
            (await gate.prepare(fixed)).apply()
            assert gate.parts.release.name == "3.9.2"
            assert await answered_code(gate, early) == 0
            await asyncio.sleep(0.5)
            assert gate.parts.release.name == "3.9.2"
            (await gate.prepare(settings_of(one, two))).apply()
            assert await answered_code(gate, early) == 32
        finally:
            await gate.stop(0)


async def test_other_settings_that_come_meanwhile_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Broker(33, *SINCE_4_2_2) as broker:
        gate = Gate(settings_of(broker))
        await gate.start()
        try:
            await until(lambda: gate.parts.release.name == "4.4.0")
            step = await gate.prepare(settings_of(broker, max_decompressed_bytes=1_000_000))
            gate.broker_releases.follow(find_release("4.1.2"))
            gate._releases_task.cancel()  # type: ignore[union-attr]
            await until(lambda: gate.parts.release.name == "4.1.2")
            step.apply()  # was prepared for the release before
            assert gate.parts.release.name == "4.4.0"
            await until(lambda: gate.parts.release.name == "4.1.2")
            assert gate.settings.validation.max_decompressed_bytes == 1_000_000
        finally:
            await gate.stop(0)


async def test_a_gate_whose_brokers_cannot_be_reached_refuses_least() -> None:
    settings = Settings.model_validate(
        {
            "listeners": [{"address": "127.0.0.1:0"}],
            "upstream": {"bootstrap": f"127.0.0.1:{closed_port()}"},
            "validation": {"kafka_version": "auto"},
            "metrics": {"address": None},
        }
    )
    gate = Gate(settings)
    await gate.start()
    try:
        least = least_refusing(releases_from())
        assert gate.parts.release == least
        assert [proxy.gate.validator.kafka_version for proxy in gate.proxies.values()] == [
            least.name
        ]
    finally:
        await gate.stop(0)


async def test_workers_take_the_release_from_their_parent() -> None:
    async with Broker(33) as broker:
        settings = settings_of(broker)
        news = ClusterNews({}, None, None, {}, {("default", None): 9092}, find_release("4.1.2"))
        parts = WorkerConfiguration(0, settings, "", "instance", b"", news)
        asking: Any = None
        worker = WorkerGate(parts, asking, lambda _: None)
        assert worker.gate.parts.release.name == "4.1.2"
        await worker.gate.start()
        try:
            worker.follow(news._replace(release=find_release("4.2.2")))
            await until(lambda: worker.gate.parts.release.name == "4.2.2")
            assert "kafka_version" not in worker.gate.metrics.page()().decode()
            assert worker.gate.broker_releases.by_text() == {}  # it asks no broker
        finally:
            await worker.gate.stop(0)
