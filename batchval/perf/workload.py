"""The workload of ``batchval perf roundtrip``: a YAML file of topics, rates and sizes.

    duration_s: 60
    warmup_s: 10
    topics:
      - {name: orders, rate: 2000, record_size: 1000, create: {partitions: 6}}
      - {name: clicks, rate: 500, record_size: [100, 100, 5000], groups: 2, consumers: 3}
    producer: {linger.ms: 0}
    consumer: {fetch.min.bytes: 1}

Every fault is a line with the file, the line, the key and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from batchval.optional import require
from batchval.perf import properties
from batchval.perf.properties import CONSUMER, PRODUCER, PropertyError
from batchval.perf.roundtrip_record import HEADER_BYTES
from batchval.policy import nearest

require(__name__)

# an extra, which the line above names where it is missing
from pydantic import (  # noqa: E402
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
)

from batchval.yaml_settings.faults import Fault, Source, lines_of  # noqa: E402
from batchval.yaml_settings.wording import STRICT, fault_of  # noqa: E402
from batchval.yaml_settings.yaml_values import ConfigError, parsed, read_bytes, text_of  # noqa: E402

__all__ = ["MAX_CLIENTS", "Create", "Topic", "Workload", "load", "workload_of"]

#: Producers and consumers of a workload, all topics together: each has a thread.
MAX_CLIENTS: Final = 1024
_MAX_SIZES: Final = 1000
_MAX_RECORDS: Final = 2**40
_DEFAULT_REQUEST: Final = 1_048_576
_MAX_DIGITS: Final = 10  # of an int32
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: Properties that the run sets by itself.
_OWN: Final = {
    "bootstrap.servers": "--bootstrap-server",
    "transactional.id": "",
    "group.id": "",
    "auto.offset.reset": "",
    "enable.auto.commit": "",
}


def _topic_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"must be 1 to 249 letters, digits, '.', '_' or '-', not {name!r:.80}")
    return name


def _sizes(value: Any) -> Any:
    """Return a list of sizes; one size is a list of one."""
    sizes = value if isinstance(value, list) else [value]
    if not 1 <= len(sizes) <= _MAX_SIZES or not all(type(size) is int for size in sizes):
        raise ValueError(f"must be a number of bytes, or a list of 1 to {_MAX_SIZES} of them")
    for size in sizes:
        if not HEADER_BYTES <= size < 2**31:
            raise ValueError(f"must be {HEADER_BYTES} to {2**31 - 1} bytes, not {size}")
    return tuple(sizes)


def _property_value(value: Any) -> Any:
    """Return a property's value as its text in a file of properties."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("must be text, a number, true or false")
    return value


_Clients = Annotated[int, Field(ge=1, le=MAX_CLIENTS)]
_Property = Annotated[str, BeforeValidator(_property_value)]


class Create(BaseModel):
    """The settings of a topic that has to be created. ``replication_factor`` -1: the broker's
    default.
    """

    model_config = STRICT

    partitions: Annotated[int, Field(ge=1, le=100_000)]
    replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    config: dict[str, _Property] = {}


class Topic(BaseModel):
    """One topic. ``rate`` is records a second of all its producers; each group reads all of
    them.
    """

    model_config = STRICT

    name: Annotated[str, AfterValidator(_topic_name)]
    rate: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
    record_size: Annotated[tuple[int, ...], BeforeValidator(_sizes)]
    producers: _Clients = 1
    groups: _Clients = 1
    consumers: _Clients = 1
    create: Create | None = None


class Workload(BaseModel):
    """A whole run. ``producer`` and ``consumer``: properties by Kafka's names."""

    model_config = STRICT

    duration_s: Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]
    warmup_s: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] = 0
    topics: Annotated[list[Topic], Field(min_length=1, max_length=MAX_CLIENTS)]
    producer: dict[str, _Property] = {}
    consumer: dict[str, _Property] = {}

    @property
    def clients(self) -> int:
        """Return how many producers and consumers there are, each with a thread."""
        return sum(topic.producers + topic.groups * topic.consumers for topic in self.topics)

    def warmup_records(self, topic: Topic) -> int:
        """Return how many records of a topic belong to the warm-up."""
        return round(self.warmup_s * topic.rate)

    def records(self, topic: Topic) -> int:
        """Return how many records are sent to a topic, those of the warm-up included."""
        return self.warmup_records(topic) + max(1, round(self.duration_s * topic.rate))


def load(path: Path, common: Mapping[str, str], *, own_client: bool) -> Workload:
    """Return the workload of a file. OSError, ConfigError with a line for each fault.

    ``common``      properties of the command line, which hold for all clients
    ``own_client``  whether batchval's clients run it; librdkafka checks names that are not known
                    here
    """
    values, lines, twice = parsed(text_of(read_bytes(path), str(path)), str(path))
    return workload_of(
        values, common, own_client=own_client, source=Source(str(path), lines), faults=twice
    )


def workload_of(
    values: Mapping[str, Any],
    common: Mapping[str, str],
    *,
    own_client: bool,
    source: Source | None = None,
    faults: list[Fault] | None = None,
) -> Workload:
    """Return the workload of what a YAML file would hold. ConfigError."""
    source, found = source or Source(), list(faults or ())
    try:
        workload = Workload.model_validate(values)
    except ValidationError as error:
        found += [
            fault_of(problem, source, Workload) for problem in error.errors(include_url=False)
        ]
        raise ConfigError(lines_of(found, source)) from None
    found += _topics(workload)
    found += _sizes_fit(workload, common)
    for name, known in (("producer", PRODUCER), ("consumer", CONSUMER)):
        found += _properties(name, getattr(workload, name), known, own_client)
    if found:
        raise ConfigError(lines_of(found, source))
    return workload


def _topics(workload: Workload) -> Iterator[Fault]:
    seen: dict[str, int] = {}
    for i, topic in enumerate(workload.topics):
        if topic.name in seen:
            yield Fault(
                ("topics", i, "name"), f"{topic.name} is the name of topics[{seen[topic.name]}] too"
            )
        seen.setdefault(topic.name, i)
        if topic.create is not None and topic.consumers > topic.create.partitions:
            text = f"must be at most {topic.create.partitions}, one for each partition, not {topic.consumers}"
            yield Fault(("topics", i, "consumers"), text)
        if (records := workload.records(topic)) > _MAX_RECORDS:
            yield Fault(
                ("topics", i, "rate"),
                f"must make at most {_MAX_RECORDS} records in the run, not {records}",
            )
    if workload.clients > MAX_CLIENTS:
        most = f"at most {MAX_CLIENTS} producers and consumers together"
        yield Fault(("topics",), f"must have {most}, not {workload.clients}")


def _sizes_fit(workload: Workload, common: Mapping[str, str]) -> Iterator[Fault]:
    """Find records that the producer would refuse."""
    text = (dict(common) | workload.producer).get("max.request.size", str(_DEFAULT_REQUEST))
    most = (
        int(text)
        if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
        else _DEFAULT_REQUEST
    )
    for i, topic in enumerate(workload.topics):
        if (largest := max(topic.record_size)) > most:
            yield Fault(
                ("topics", i, "record_size"),
                f"must be at most {most} (max.request.size), not {largest}",
            )


def _properties(
    where: str, found: Mapping[str, str], known: Mapping[str, Any], own_client: bool
) -> Iterator[Fault]:
    read = properties.producer_options if where == "producer" else properties.consumer_options
    for name, value in found.items():
        if name in _OWN:
            instead = f": use {_OWN[name]}" if _OWN[name] else ""
            yield Fault((where, name), f"is set by the run{instead}")
            continue
        try:
            _, _, unknown = read({name: value})
        except PropertyError as error:
            # without the name, which the fault has already
            yield Fault((where, name), str(error).removeprefix("invalid ").removeprefix(f"{name} "))
            continue
        if unknown and own_client:
            yield Fault(
                (where, name), f"unknown property (nearest known property: {nearest(name, known)})"
            )
