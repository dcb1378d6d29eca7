"""Opens what ``batchval perf consume`` measures: the partitions to share out, and a consumer for each thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batchval.perf.consume import ConsumeError, PerfConsumer, TopicPartition
from batchval.perf.properties import rdkafka

__all__ = ["OpenClient", "open_client"]


@dataclass(frozen=True, slots=True)
class OpenClient:
    """A client that has found its partitions. ``make(i)`` makes the consumer of thread i."""

    partitions: list[TopicPartition]
    make: Callable[[int], PerfConsumer]
    last_error: Callable[[], str]
    version: str


def open_client(given: Mapping[str, Any], properties: Mapping[str, str]) -> OpenClient:
    """``given``: the options of the command by their names. Raises ConsumeError for what the cluster does not give."""
    if given["client"] == "librdkafka":
        return _librdkafka(given, properties)
    return _own(given, properties)


def _librdkafka(given: Mapping[str, Any], properties: Mapping[str, str]) -> OpenClient:
    try:
        import confluent_kafka

        from batchval.perf.clients.rdkafka_consumer import RdkafkaConsumer, partitions_of
    except ModuleNotFoundError as error:
        raise ConsumeError(f"--client librdkafka needs {error.name}: pip install batchval[perf]") from None
    common = {**_librdkafka_names(properties), "bootstrap.servers": given["bootstrap_server"]}
    config = common | {
        "group.id": given["group"],
        "auto.offset.reset": "latest" if given["from_latest"] else "earliest",
        "max.partition.fetch.bytes": given["fetch_size"],
        "check.crcs": given["check_crcs"],
    }
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


def _own(given: Mapping[str, Any], properties: Mapping[str, str]) -> OpenClient:
    raise ConsumeError("--client batchval is not there yet: use --client librdkafka")
