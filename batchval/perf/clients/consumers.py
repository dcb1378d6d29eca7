"""Opens what ``batchval perf consume`` measures: the partitions to share out, and a consumer for each thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batchval.perf.consume import ConsumeError, PerfConsumer, TopicPartition
from batchval.perf.properties import rdkafka, translated

__all__ = ["OpenClient", "open_client"]


#: Kafka's names -> those of ConsumerOptions, and how their values are read
_OWN: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "client.id": ("client_id", str),
    "fetch.max.bytes": ("fetch_max_bytes", int),
    "fetch.min.bytes": ("fetch_min_bytes", int),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", int),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", int),
    "receive.buffer.bytes": ("receive_buffer_bytes", lambda text: None if text == "-1" else int(text)),
    "session.timeout.ms": ("session_timeout_ms", int),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", int),
    "max.poll.interval.ms": ("max_poll_interval_ms", int),
    "request.timeout.ms": ("request_timeout_ms", int),
    "isolation.level": ("isolation_level", str),
    "auto.offset.reset": ("auto_offset_reset", str),
    "enable.auto.commit": ("enable_auto_commit", lambda text: {"true": True, "false": False}[text]),
    "check.crcs": ("check_crcs", lambda text: {"true": True, "false": False}[text]),
}
#: Not Kafka's 50 MiB: fresh memory for frames of that size costs more than it saves.
_FETCH_MAX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class OpenClient:
    """A client that has found its partitions. ``make(i)`` makes the consumer of thread i."""

    partitions: list[TopicPartition]
    make: Callable[[int], PerfConsumer]
    last_error: Callable[[], str]
    version: str


def open_client(given: Mapping[str, Any], properties: Mapping[str, str], say: Callable[[str], None]) -> OpenClient:
    """``given``: the options of the command by their names. Raises ConsumeError for what the cluster does not give."""
    if given["client"] == "librdkafka":
        return _librdkafka(given, properties)
    return _own(given, properties, say)


def _librdkafka(given: Mapping[str, Any], properties: Mapping[str, str]) -> OpenClient:
    try:
        import confluent_kafka

        from batchval.perf.clients.rdkafka_consumer import RdkafkaConsumer, partitions_of
    except ModuleNotFoundError as error:
        raise ConsumeError(f"--client librdkafka needs {error.name}: pip install batchval[perf]") from None
    common = {**_librdkafka_names(properties), "bootstrap.servers": given["bootstrap_server"]}
    config = (
        {"isolation.level": "read_uncommitted"}
        | common
        | {  # Kafka's default; librdkafka's is read_committed
            "group.id": given["group"],
            "auto.offset.reset": "latest" if given["from_latest"] else "earliest",
            "max.partition.fetch.bytes": given["fetch_size"],
            "check.crcs": given["check_crcs"],
        }
    )
    if given["fetch_size"] > 52_428_800:  # the whole fetch cannot be smaller than a partition's part
        config["fetch.max.bytes"] = min(given["fetch_size"], 2**31 - 513)
        config["receive.message.max.bytes"] = config["fetch.max.bytes"] + 512
    if given["socket_buffer_size"] is not None:
        config["socket.receive.buffer.bytes"] = given["socket_buffer_size"]
    partitions = partitions_of({**common, "group.id": given["group"]}, given["topic"], given["include"])
    topics = sorted({topic for topic, _ in partitions})
    made: list[RdkafkaConsumer] = []

    def make(_: int) -> PerfConsumer:
        consumer = RdkafkaConsumer(config, topics, with_metrics=given["print_metrics"])
        made.append(consumer)
        return consumer

    def last_error() -> str:
        return next((said for consumer in made if (said := consumer.last_error())), "")

    version, _ = confluent_kafka.libversion()
    return OpenClient(
        partitions, make, last_error, f"librdkafka {version}, confluent-kafka {confluent_kafka.__version__}"
    )


def _librdkafka_names(properties: Mapping[str, str]) -> dict[str, Any]:
    found = rdkafka(properties)
    if "fetch.max.wait.ms" in found:
        found["fetch.wait.max.ms"] = found.pop("fetch.max.wait.ms")
    return found


def _own(given: Mapping[str, Any], properties: Mapping[str, str], say: Callable[[str], None]) -> OpenClient:
    from batchval.fetch import ConsumerOptions
    from batchval.network.security import Security
    from batchval.perf.clients.own_consumer import OwnConsumer, partitions_of

    read, security, unknown = translated(properties, _OWN)
    for name in unknown:
        say(f"{name}: the own client has no such setting, it is not used")
    said = {
        "client_id": "perf-consumer",
        "auto_offset_reset": "latest" if given["from_latest"] else "earliest",
        "fetch_max_bytes": max(_FETCH_MAX_BYTES, given["fetch_size"]),
        "max_partition_fetch_bytes": given["fetch_size"],
        "receive_buffer_bytes": given["socket_buffer_size"],
        "check_crcs": given["check_crcs"],
    }
    options = ConsumerOptions(
        bootstrap_servers=given["bootstrap_server"].split(","),
        group_id=given["group"],
        allow_auto_create_topics=False,
        security=Security.from_properties(security),
        **(said | read),
    )
    partitions = partitions_of(options, given["topic"], given["include"])
    topics = sorted({topic for topic, _ in partitions})
    made: list[OwnConsumer] = []

    def make(_: int) -> PerfConsumer:
        consumer = OwnConsumer(options, topics, given["decode"], check_crcs=options.check_crcs)
        made.append(consumer)
        return consumer

    def last_error() -> str:
        return next((said for consumer in made if (said := consumer.last_error())), "")

    return OpenClient(partitions, make, last_error, "batchval")
