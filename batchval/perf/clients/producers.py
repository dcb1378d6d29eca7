"""The clients of perf produce, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batchval.perf import properties
from batchval.perf.produce import PerfProducer, ProduceError
from batchval.perf.properties import PropertyError

__all__ = ["OpenClient", "open_client"]


@dataclass(frozen=True, slots=True)
class OpenClient:
    """What makes a producer for each thread, and what it is."""

    make: Callable[[int], PerfProducer]
    version: str
    new_loop: Callable[[], asyncio.AbstractEventLoop]


def open_client(
    given: Mapping[str, Any], found: Mapping[str, str], say: Callable[[str], None]
) -> OpenClient:
    """By --client; ``found``: properties. Raises ProduceError, PropertyError."""
    return (_librdkafka if given["client"] == "librdkafka" else _own)(given, found, say)


def _librdkafka(
    given: Mapping[str, Any], found: Mapping[str, str], say: Callable[[str], None]
) -> OpenClient:
    try:
        from batchval.perf.clients.rdkafka import version
        from batchval.perf.clients.rdkafka_producer import RdkafkaProducer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "confluent_kafka":
            raise
        raise ProduceError(
            "confluent-kafka is not installed: pip install 'batchval[perf]'"
        ) from None
    config = properties.rdkafka(found)
    if given["partitioner"] == "murmur2":
        config["partitioner"] = "murmur2_random"

    def make(thread: int) -> PerfProducer:
        own = dict(config)
        if given["transactional_id"]:
            own["transactional.id"] = _of_thread(given, thread)
        return RdkafkaProducer(
            own,
            given["topic"],
            partition=given["partition"],
            round_robin=given["partitioner"] == "round_robin",
        )

    return OpenClient(make, version(), asyncio.new_event_loop)


def _of_thread(given: Mapping[str, Any], thread: int) -> str:
    """A transactional id is of one producer."""
    name: str = given["transactional_id"]
    return name if given["threads"] == 1 else f"{name}-{thread}"


def _own(
    given: Mapping[str, Any], found: Mapping[str, str], say: Callable[[str], None]
) -> OpenClient:
    from importlib.metadata import PackageNotFoundError, version

    from batchval.network.loops import loop_factory
    from batchval.network.security import Security
    from batchval.perf.clients.own_producer import OwnProducer
    from batchval.producer import ProducerOptions

    options, security, unknown = properties.producer_options(found)
    for name in unknown:
        say(f"{name}: the own client has no such setting, it is not used")
    settings = options | {name: given[name] for name in ("claims", "partitioner")}
    settings["security"] = Security.from_properties(security)

    def of(thread: int) -> ProducerOptions:
        own = {"transactional_id": _of_thread(given, thread)} if given["transactional_id"] else {}
        try:
            return ProducerOptions(**settings | own)
        except ValueError as error:
            raise PropertyError(str(error)) from None

    of(0)  # what does not fit together is said now
    try:
        installed = version("batchval")
    except PackageNotFoundError:
        installed = "from its sources"
    return OpenClient(
        lambda thread: OwnProducer(
            of(thread), given["topic"], partition=given["partition"], is_alone=given["threads"] == 1
        ),
        f"batchval {installed}",
        loop_factory(),
    )
