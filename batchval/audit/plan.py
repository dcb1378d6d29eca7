"""Numbers of machines that audit a rate of bytes, and of brokers that validate it: ``batchval
audit --plan``.

Machines are what CPU asks for (rate × CPU-s/GB over cores × utilisation) or what the network asks
for, the higher. CPU-s/GB are the benches' (costs.json): another processor needs others. All that is
assumed is printed with the answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.text import Text

from batchval.audit import costs
from batchval.audit.hours import CODECS
from batchval.errors import BatchvalError
from batchval.report.tables import plain_table, render
from batchval.report.units import plural

__all__ = ["Assumptions", "Broker", "Plan", "PlanError", "parse_rate", "plan"]

_RATE = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*([kMGTPE]?)(i?)B\s*(?:/|per\s)\s*(s|sec|second|min|minute|h|hour|d|day)\s*"
)
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DAY = 86_400


class PlanError(BatchvalError):
    """A rate or an assumption is invalid."""


def parse_rate(text: str) -> float:
    """Return a rate such as ``1GB/s``, ``10PB/day`` or ``3.5 TiB/h`` in bytes per second. Raises
    PlanError.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise PlanError(
            f"invalid rate {text!r}: expected a number and a unit, such as 1GB/s, 2TB/h or 10PB/day"
        )
    number, unit, binary, per = match.groups()
    rate = float(number) * float(1024 if binary else 1000) ** _POWERS[unit] / _SECONDS[per[0]]
    if not 1 <= rate <= 1e18:
        raise PlanError(f"invalid rate {text!r}: expected 1 to 10^18 bytes per second")
    return rate


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of a plan. Machines are all alike; replicas are made of what was stored, as
    it was stored.
    """

    engine: Literal["spark", "local"] = "spark"
    rows: Literal["all", "bad", "none"] = "bad"
    deep: bool = False
    split_bytes: int = 256 << 20
    cores: int = 16
    utilisation: float = 0.6
    network_gbit: float = 25.0
    network_utilisation: float = 0.7
    replication_factor: int = 3
    readers: int = 1  # how many times consumers read each byte
    tasks_a_job: int = 100_000  # what one driver holds

    def __post_init__(self) -> None:
        for name in ("split_bytes", "cores", "network_gbit", "replication_factor", "tasks_a_job"):
            if not (value := getattr(self, name)) > 0:
                raise PlanError(f"{_label(name)} is {value}: expected a number above 0")
        for name in ("utilisation", "network_utilisation"):
            if not 0 < (value := getattr(self, name)) <= 1:
                allowed = "a number above 0 and at most 1"
                raise PlanError(f"{_label(name)} is {value}: expected {allowed}")
        if self.readers < 0:
            raise PlanError(f"readers is {self.readers}: expected 0 or more")


def _label(name: str) -> str:
    return name.replace("_", " ")


@dataclass(frozen=True)
class Broker:
    """Cost of validation at the leaders, for batches of one codec, in cores at full speed and in
    machines.
    """

    codec: str
    cpu_s_a_gb: float
    cores: float
    brokers: int
    cpu_s_a_gb_claims: float
    cores_claims: float
    brokers_claims: int


@dataclass(frozen=True)
class Plan:
    """A plan. ``brokers_network``: brokers for copying and reading, independent of validation."""

    bytes_a_second: float
    assumptions: Assumptions
    cpu_s_a_gb: float
    cores: float  # at full speed
    executors_cpu: int
    executors_network: int
    tasks_a_second: float
    tasks_a_day: int
    jobs_a_day: int
    hours_a_job: float
    brokers_network: int
    by_codec: tuple[Broker, ...]
    measured_on: str

    @property
    def executors(self) -> int:
        return max(self.executors_cpu, self.executors_network)

    @property
    def limit(self) -> str:
        """Return the resource that limits the audit: ``network`` or ``CPU``."""
        return "network" if self.executors_network > self.executors_cpu else "CPU"

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"executors": self.executors, "limit": self.limit}

    def text(self) -> str:
        """Return the plan as text for people. Ends a line."""
        rate = self.bytes_a_second
        head = (
            f"{_g(rate / 1e9)} GB/s, {_g(rate * _DAY / 1e15)} PB a day, {_g(rate * 8 / 1e9)} Gbit/s"
        )
        return "\n".join([head, "", *self._audit(), "", *self._brokers(), "", *self._assumed(), ""])

    def _audit(self) -> Iterator[str]:
        assumed = self.assumptions
        cpu, network = (
            plural(self.executors_cpu, "executor"),
            plural(self.executors_network, "executor"),
        )
        executors = plural(self.executors, "executor")
        yield f"audit: {executors} of {plural(assumed.cores, 'core')}, by {self.limit}"
        yield f"  by CPU:     {cpu}: {_g(self.cores)} cores at full speed, {_g(self.cpu_s_a_gb)} CPU-s/GB"
        usable = _g(assumed.network_gbit * assumed.network_utilisation)
        yield f"  by network: {network}: {usable} Gbit/s each"
        size = f"{assumed.split_bytes >> 20} MiB each"
        yield f"  tasks:      {self.tasks_a_day:,} a day, {_g(self.tasks_a_second)} a second, {size}"
        often = f", one every {_g(self.hours_a_job)} h" if self.jobs_a_day > 1 else ""
        yield (
            f"  jobs:       {self.jobs_a_day:,} a day at least{often}: "
            f"a driver holds {assumed.tasks_a_job:,} tasks"
        )

    def _brokers(self) -> Iterator[str]:
        assumed = self.assumptions
        yield "brokers: validation at the leaders alone, without network threads, disks and copies"
        yield ""
        table = plain_table()
        table.add_column("codec")
        for head in ("CPU-s/GB", "cores", "brokers", "by claims", "cores", "brokers"):
            table.add_column(head, justify="right", no_wrap=True)
        for row in self.by_codec:
            today = (_g(row.cpu_s_a_gb), _g(row.cores), f"{row.brokers:,}")
            by_claims = (_g(row.cpu_s_a_gb_claims), _g(row.cores_claims), f"{row.brokers_claims:,}")
            table.add_row(*map(Text, (row.codec, *today, *by_claims)))
        yield render(table)
        readers = plural(assumed.readers, "reader")
        copies = f"{assumed.replication_factor} copies, {readers} of each byte"
        yield f"{plural(self.brokers_network, 'broker')} by network: {copies}"

    def _assumed(self) -> Iterator[str]:
        assumed = self.assumptions
        depth = "every record" if assumed.deep else "compressed payloads unopened"
        yield "assumed:"
        cores = plural(assumed.cores, "core")
        yield f"  machines of {cores}, {assumed.utilisation:.0%} of them used"
        used = f"{assumed.network_utilisation:.0%} of it used"
        yield f"  {_g(assumed.network_gbit)} Gbit/s each, {used}; storage that delivers this"
        yield f"  engine {assumed.engine}, rows={assumed.rows}, {depth}"
        yield "  bytes as stored; 1 GB is 10^9 bytes"
        yield "  at brokers: batches of 100 records of 1,000 bytes; claims honoured by a broker or gate, none sampled"
        yield f"  CPU-s/GB of the audit: {costs.engines_measured_on()}"
        yield f"  CPU-s/GB of brokers: {self.measured_on}"


def _g(value: float) -> str:
    """Return a number with three digits and without an exponent."""
    return f"{float(f'{value:.3g}'):,.12g}"


def plan(rate: float, assumptions: Assumptions | None = None) -> Plan:
    """Return the plan for ``rate`` stored bytes per second. Raises PlanError where the engine was
    not measured.
    """
    assumed = assumptions or Assumptions()
    engine = costs.engine(assumed.engine, assumed.rows, assumed.deep)
    if engine is None:
        raise PlanError(
            f"engine {assumed.engine}, rows={assumed.rows}{', deep' * assumed.deep} was "
            "not measured"
        )
    a_task, a_gb = engine
    cpu = a_gb + a_task * 1e9 / assumed.split_bytes
    gb = rate / 1e9
    usable, wire = (
        assumed.cores * assumed.utilisation,
        assumed.network_gbit * assumed.network_utilisation,
    )
    tasks = rate / assumed.split_bytes
    jobs = math.ceil(tasks * _DAY / assumed.tasks_a_job)
    # a byte comes in once from its producer, and once at each follower; it goes out to followers
    # and readers
    busier = max(assumed.replication_factor, assumed.replication_factor - 1 + assumed.readers)
    return Plan(
        bytes_a_second=rate,
        assumptions=assumed,
        cpu_s_a_gb=cpu,
        cores=gb * cpu,
        executors_cpu=math.ceil(gb * cpu / usable),
        executors_network=math.ceil(gb * 8 / wire),
        tasks_a_second=tasks,
        tasks_a_day=math.ceil(tasks * _DAY),
        jobs_a_day=jobs,
        hours_a_job=24 / jobs,
        brokers_network=math.ceil(gb * 8 * busier / wire),
        by_codec=tuple(_broker(codec, gb, usable) for codec in CODECS),
        measured_on=costs.measured_on(),
    )


def _broker(codec: str, gb: float, usable: float) -> Broker:
    today = costs.measured("kafka", codec)
    assert today is not None
    by_claims = costs.measured("claims", codec) or today  # uncompressed batches are always walked
    cores, cores_claims = gb * today[0], gb * by_claims[0]
    return Broker(
        codec,
        today[0],
        cores,
        math.ceil(cores / usable),
        by_claims[0],
        cores_claims,
        math.ceil(cores_claims / usable),
    )
