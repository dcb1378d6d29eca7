"""Opens what ``batchval perf consume`` measures: the partitions to share out, and a consumer for
each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from batchval.perf import properties
from batchval.perf.consume import ConsumeError, PerfConsumer, TopicPartition
from batchval.report.units import printable

__all__ = ["ConsumerFactory", "open_client"]

#: Not Kafka's 50 MiB: fresh memory for frames of that size costs more than it saves.
_FETCH_MAX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ConsumerFactory:
    """A client that has found its partitions. ``make(i)`` makes the consumer of thread i, whose
    client id is as Kafka's consumers have it, ``consumer-<group>-<i + 1>``, unless a property
    gives all of them one.
    """

    partitions: list[TopicPartition]
    make: Callable[[int], PerfConsumer]
    last_error: Callable[[], str]
    version: str


def open_client(
    arguments: Mapping[str, Any], found: Mapping[str, str], say: Callable[[str], None]
) -> ConsumerFactory:
    """Return the client of the command's options.

    ``arguments`` are the options by name. Raises ConsumeError for what the cluster lacks.

    """
    if arguments["client"] == "librdkafka":
        return _librdkafka(arguments, found)
    return _own(arguments, found, say)


class _Consumer(PerfConsumer, Protocol):
    def last_error(self) -> str:
        """Return the last error, empty without one."""


def _opened(
    partitions: list[TopicPartition],
    group: str,
    make_one: Callable[[list[str], str], _Consumer],
    version: str,
) -> ConsumerFactory:
    """Return a client whose consumers ``make_one`` makes for a list of topics and a client id."""
    topics = sorted({topic for topic, _ in partitions})
    made: list[_Consumer] = []

    def make(thread: int) -> PerfConsumer:
        made.append(consumer := make_one(topics, f"consumer-{group}-{thread + 1}"))
        return consumer

    def last_error() -> str:
        return next((text for consumer in made if (text := consumer.last_error())), "")

    return ConsumerFactory(partitions, make, last_error, version)


def _librdkafka(arguments: Mapping[str, Any], found: Mapping[str, str]) -> ConsumerFactory:
    try:
        from batchval.perf.clients.rdkafka import RdkafkaConsumer, partitions_of, version
    except ModuleNotFoundError as error:
        raise ConsumeError(
            f"--client librdkafka needs {error.name}: pip install batchval[perf]"
        ) from None
    common = {
        **_librdkafka_names(found),
        "bootstrap.servers": arguments["bootstrap_server"],
        "group.id": arguments["group"],
    }
    config = {
        "isolation.level": "read_uncommitted",  # Kafka's default; librdkafka's is read_committed
        **common,
        "auto.offset.reset": "latest" if arguments["from_latest"] else "earliest",
        "max.partition.fetch.bytes": arguments["fetch_size"],
        "check.crcs": arguments["check_crcs"],
    }
    # the whole fetch cannot be smaller than a partition's part
    if arguments["fetch_size"] > 52_428_800:
        config["fetch.max.bytes"] = min(arguments["fetch_size"], 2**31 - 513)
        config["receive.message.max.bytes"] = config["fetch.max.bytes"] + 512
    if arguments["socket_buffer_size"] is not None:
        config["socket.receive.buffer.bytes"] = arguments["socket_buffer_size"]
    return _opened(
        partitions_of(common, arguments["topic"], arguments["include"]),
        arguments["group"],
        lambda topics, client_id: RdkafkaConsumer(
            {"client.id": client_id, **config}, topics, with_metrics=arguments["print_metrics"]
        ),
        version(),
    )


def _librdkafka_names(found: Mapping[str, str]) -> dict[str, Any]:
    names = properties.rdkafka(found)
    if "fetch.max.wait.ms" in names:
        names["fetch.wait.max.ms"] = names.pop("fetch.max.wait.ms")
    return names


def _own(
    arguments: Mapping[str, Any], found: Mapping[str, str], say: Callable[[str], None]
) -> ConsumerFactory:
    from batchval.fetch import ConsumerOptions
    from batchval.fetch.receiver import Quota
    from batchval.network.security import Security
    from batchval.perf.clients.own_consumer import OwnConsumer, partitions_of

    read, security, unknown = properties.consumer_options(found)
    for name in unknown:
        say(f"{printable(name)}: batchval's client has no such setting, it is ignored")
    from_options = {
        "auto_offset_reset": "latest" if arguments["from_latest"] else "earliest",
        "fetch_max_bytes": max(_FETCH_MAX_BYTES, arguments["fetch_size"]),
        "max_partition_fetch_bytes": arguments["fetch_size"],
        "receive_buffer_bytes": arguments["socket_buffer_size"],
        "check_crcs": arguments["check_crcs"],
    }
    options = ConsumerOptions(
        bootstrap_servers=arguments["bootstrap_server"].split(","),
        group_id=arguments["group"],
        allow_auto_create_topics=False,
        security=Security.from_properties(security),
        **(from_options | read),
    )
    quota = Quota(arguments["num_records"])
    return _opened(
        partitions_of(options, arguments["topic"], arguments["include"]),
        arguments["group"],
        lambda topics, client_id: OwnConsumer(
            options if "client_id" in read else replace(options, client_id=client_id),
            topics,
            arguments["decode"],
            quota,
        ),
        "batchval",
    )
