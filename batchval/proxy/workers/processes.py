"""CPU time, memory and descriptors of a parent and its workers together.

The names are those of Prometheus' clients for one process: a dashboard shows the whole gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

__all__ = ["Processes"]

#: Metrics that are summed; the others, such as the start time, are the parent's.
_SUMMED: Final = frozenset(
    {"process_cpu_seconds", "process_open_fds", "process_resident_memory_bytes", "process_virtual_memory_bytes"}
)
_CPU: Final = "process_cpu_seconds"


class Processes:
    """Its method belongs to one thread at a time: it reads /proc."""

    def __init__(self) -> None:
        self._own = ProcessCollector(registry=None)
        self._platform = PlatformCollector(registry=CollectorRegistry(auto_describe=False))
        self._cpu_s: dict[int, float] = {}  # of workers that run, when they were looked at last
        self._ended_cpu_s = 0.0

    def collect(self, pids: Iterable[int]) -> Iterator[Metric]:
        """Yield the metrics of this process, with those of its workers added."""
        running = set(pids)
        for pid in self._cpu_s.keys() - running:
            self._ended_cpu_s += self._cpu_s.pop(pid)
        others = [value for pid in running for value in self._of(pid)]
        for metric in self._own.collect():
            if metric.name in _SUMMED:
                more = sum(value for name, value in others if name == metric.name)
                more += self._ended_cpu_s if metric.name == _CPU else 0
                metric.samples = [sample._replace(value=sample.value + more) for sample in metric.samples]
            yield metric
        yield from self._platform.collect()

    def _of(self, pid: int) -> Iterator[tuple[str, float]]:
        for metric in ProcessCollector(registry=None, pid=lambda: pid).collect():
            for sample in metric.samples:
                yield metric.name, sample.value
                if metric.name == _CPU:
                    self._cpu_s[pid] = sample.value
