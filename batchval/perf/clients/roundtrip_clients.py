"""The clients of perf roundtrip, by name: producers of perf produce, and readers of partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchval.network.security import PROPERTIES as SECURITY
from batchval.network.security import Security
from batchval.perf import properties
from batchval.perf.clients import producers
from batchval.perf.properties import CONSUMER, PRODUCER
from batchval.perf.roundtrip import Clients

if TYPE_CHECKING:
    from batchval.fetch import ConsumerOptions
    from batchval.perf.roundtrip_topic import Reader
    from batchval.perf.workload import Topic, Workload

__all__ = ["OpenClients", "open_clients"]


@dataclass(frozen=True, slots=True)
class OpenClients:
    """``setup``: how topics are looked for, and made."""

    clients: Clients
    setup: ConsumerOptions
    version: str
    producer: Mapping[str, str]  # properties
    consumer: Mapping[str, str]


def open_clients(
    client: str, workload: Workload, common: Mapping[str, str], say: Callable[[str], None]
) -> OpenClients:
    """Check all properties; nothing is connected. PropertyError, ConsumeError, ProduceError.

    ``common``  properties of the command line for all clients, bootstrap.servers among them
    """
    from batchval.fetch import ConsumerOptions

    own = client == "batchval"
    producer = (
        _of(PRODUCER, CONSUMER, common, own) | _idempotent(workload.producer) | workload.producer
    )
    consumer = _of(CONSUMER, PRODUCER, common, own) | workload.consumer
    if own:
        for name in common:
            if name not in PRODUCER and name not in CONSUMER and name not in SECURITY:
                say(f"{name}: the own clients have no such setting, it is not used")
    choice: dict[str, Any] = {"client": client, "claims": "none", "partitioner": "default"}
    choice |= {"threads": workload.clients, "transactional_id": None, "partition": None}
    opened = {
        topic.name: producers.open_client(choice | {"topic": topic.name}, producer, lambda _: None)
        for topic in workload.topics
    }
    first = opened[workload.topics[0].name]
    read, security, _ = properties.consumer_options(consumer)
    options = ConsumerOptions(
        bootstrap_servers=common["bootstrap.servers"].split(","),
        allow_auto_create_topics=False,
        security=Security.from_properties(security),
        **({"client_id": "perf-roundtrip"} | read),
    )
    reader = (
        _own(options)
        if own
        else _librdkafka(consumer | {"bootstrap.servers": common["bootstrap.servers"]})
    )
    clients = Clients(lambda topic, number: opened[topic.name].make(number), reader, first.new_loop)
    return OpenClients(clients, options, first.version, producer, consumer)


def _of(
    known: Mapping[str, Any], other: Mapping[str, Any], common: Mapping[str, str], own: bool
) -> dict[str, str]:
    """Return the common properties without those that only the other kind of client has."""
    return {
        name: value
        for name, value in common.items()
        if name in known or name in SECURITY or (name not in other and not own)
    }


def _idempotent(found: Mapping[str, str]) -> dict[str, str]:
    """Return enable.idempotence and what it rests on, as perf produce sets them."""
    acks, cap = found.get("acks", "all"), found.get("max.in.flight.requests.per.connection", "5")
    possible = acks in ("all", "-1") and cap.isdigit() and int(cap) <= 5
    return {
        "acks": acks,
        "max.in.flight.requests.per.connection": cap,
        "enable.idempotence": str(possible).lower(),
    }


def _own(options: ConsumerOptions) -> Callable[[Topic, list[int]], Reader]:
    from batchval.perf.clients.own_reader import OwnReader

    return lambda topic, partitions: OwnReader(options, topic.name, partitions)


def _librdkafka(consumer: Mapping[str, str]) -> Callable[[Topic, list[int]], Reader]:
    from batchval.perf.clients.rdkafka_reader import RdkafkaReader

    names = {"isolation.level": "read_uncommitted", **properties.rdkafka(consumer)}
    if "fetch.max.wait.ms" in names:
        names["fetch.wait.max.ms"] = names.pop("fetch.max.wait.ms")
    return lambda topic, partitions: RdkafkaReader(names, topic.name, partitions)
