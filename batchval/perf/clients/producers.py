"""The clients of perf produce, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batchval.perf import properties
from batchval.perf.produce import PerfProducer, ProduceError
from batchval.perf.properties import PropertyError
from batchval.report.units import printable

__all__ = ["OpenClient", "open_client"]


@dataclass(frozen=True, slots=True)
class OpenClient:
    """A factory of producers for threads, with the client's name and version."""

    make: Callable[[int], PerfProducer]
    version: str
    new_loop: Callable[[], asyncio.AbstractEventLoop]


def open_client(
    arguments: Mapping[str, Any], found: Mapping[str, str], say: Callable[[str], None]
) -> OpenClient:
    """Return the function that opens the client of --client, with the properties ``found``.

    Raises ProduceError, PropertyError.
    """
    return (_librdkafka if arguments["client"] == "librdkafka" else _own)(arguments, found, say)


def _librdkafka(
    arguments: Mapping[str, Any], found: Mapping[str, str], say: Callable[[str], None]
) -> OpenClient:
    try:
        from batchval.perf.clients.rdkafka import RdkafkaProducer, version
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "confluent_kafka":
            raise
        raise ProduceError(
            "confluent-kafka is not installed: pip install 'batchval[perf]'"
        ) from None
    config = properties.rdkafka(found)
    if arguments["partitioner"] == "murmur2":
        config["partitioner"] = "murmur2_random"

    def make(thread: int) -> PerfProducer:
        own = dict(config)
        if arguments["transactional_id"]:
            own["transactional.id"] = _of_thread(arguments, thread)
        return RdkafkaProducer(
            own,
            arguments["topic"],
            partition=arguments["partition"],
            round_robin=arguments["partitioner"] == "round_robin",
        )

    return OpenClient(make, version(), asyncio.new_event_loop)


def _of_thread(arguments: Mapping[str, Any], thread: int) -> str:
    """Return a thread's transactional id: each producer needs its own."""
    name: str = arguments["transactional_id"]
    return name if arguments["threads"] == 1 else f"{name}-{thread}"


def _own(
    arguments: Mapping[str, Any], found: Mapping[str, str], say: Callable[[str], None]
) -> OpenClient:
    from importlib.metadata import PackageNotFoundError, version

    from batchval.network.loops import loop_factory
    from batchval.network.security import Security
    from batchval.perf.clients.own_producer import OwnProducer
    from batchval.producer import ProducerOptions

    options, security, unknown = properties.producer_options(found)
    for name in unknown:
        say(f"{printable(name)}: batchval's client has no such setting, it is ignored")
    settings = options | {name: arguments[name] for name in ("claims", "partitioner")}
    settings["security"] = Security.from_properties(security)

    def of(thread: int) -> ProducerOptions:
        own = (
            {"transactional_id": _of_thread(arguments, thread)}
            if arguments["transactional_id"]
            else {}
        )
        try:
            return ProducerOptions(**settings | own)
        except ValueError as error:
            raise PropertyError(str(error)) from None

    of(0)  # report contradictory options now
    try:
        installed = version("batchval")
    except PackageNotFoundError:
        installed = "from its sources"
    return OpenClient(
        lambda thread: OwnProducer(
            of(thread),
            arguments["topic"],
            partition=arguments["partition"],
            is_alone=arguments["threads"] == 1,
        ),
        f"batchval {installed}",
        loop_factory(),
    )
