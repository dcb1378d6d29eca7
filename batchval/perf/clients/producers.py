"""The clients of perf produce, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from batchval.perf import properties
from batchval.perf.produce import PerfProducer, ProduceError
from batchval.perf.properties import PropertyError
from batchval.report.units import printable

__all__ = ["ClientChoice", "ProducerFactory", "open_client"]


@dataclass(frozen=True, slots=True)
class ClientChoice:
    """Which client, and what its producers need besides their properties."""

    client: str
    topic: str
    threads: int
    partition: int | None = None
    partitioner: str = "default"
    claims: str = "none"
    transactional_id: str | None = None

    def transactional_id_of(self, thread: int) -> str | None:
        """Return a thread's transactional id: each producer needs its own."""
        if not self.transactional_id:
            return None
        return self.transactional_id if self.threads == 1 else f"{self.transactional_id}-{thread}"


@dataclass(frozen=True, slots=True)
class ProducerFactory:
    """A factory of producers for threads, with the client's name and version."""

    make: Callable[[int], PerfProducer]
    version: str
    new_loop: Callable[[], asyncio.AbstractEventLoop]


def open_client(
    choice: ClientChoice, found: Mapping[str, str], say: Callable[[str], None]
) -> ProducerFactory:
    """Return the function that opens the client of --client, with the properties ``found``.

    Raises ProduceError, PropertyError.
    """
    return (_librdkafka if choice.client == "librdkafka" else _own)(choice, found, say)


def _librdkafka(
    choice: ClientChoice, found: Mapping[str, str], say: Callable[[str], None]
) -> ProducerFactory:
    try:
        from batchval.perf.clients.rdkafka import RdkafkaProducer, version
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "confluent_kafka":
            raise
        raise ProduceError(
            "confluent-kafka is not installed: pip install 'batchval[perf]'"
        ) from None
    config = properties.rdkafka(found)
    if choice.partitioner == "murmur2":
        config["partitioner"] = "murmur2_random"

    def make(thread: int) -> PerfProducer:
        own = dict(config)
        if (name := choice.transactional_id_of(thread)) is not None:
            own["transactional.id"] = name
        return RdkafkaProducer(
            own,
            choice.topic,
            partition=choice.partition,
            round_robin=choice.partitioner == "round_robin",
        )

    return ProducerFactory(make, version(), asyncio.new_event_loop)


def _own(
    choice: ClientChoice, found: Mapping[str, str], say: Callable[[str], None]
) -> ProducerFactory:
    from importlib.metadata import PackageNotFoundError, version

    from batchval.network.loops import loop_factory
    from batchval.network.security import Security
    from batchval.perf.clients.own_producer import OwnProducer
    from batchval.producer import ProducerOptions

    options, security, unknown = properties.producer_options(found)
    for name in unknown:
        say(f"{printable(name)}: batchval's client has no such setting, it is ignored")
    settings = options | {"claims": choice.claims, "partitioner": choice.partitioner}
    settings["security"] = Security.from_properties(security)

    def of(thread: int) -> ProducerOptions:
        name = choice.transactional_id_of(thread)
        own = {} if name is None else {"transactional_id": name}
        try:
            return ProducerOptions(**settings | own)
        except ValueError as error:
            raise PropertyError(str(error)) from None

    of(0)  # report contradictory options now
    try:
        installed = version("batchval")
    except PackageNotFoundError:
        installed = "from its sources"
    return ProducerFactory(
        lambda thread: OwnProducer(
            of(thread),
            choice.topic,
            partition=choice.partition,
            is_alone=choice.threads == 1,
        ),
        f"batchval {installed}",
        loop_factory(),
    )
