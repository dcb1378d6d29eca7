"""CPU time, memory and descriptors of a parent and its workers together.

The names are those of Prometheus' clients for one process: a dashboard shows the whole gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

__all__ = ["Processes"]

_CPU: Final = "process_cpu_seconds"
#: Metrics that are summed; the others, such as the start time, are the parent's.
_SUMMED: Final = frozenset({_CPU, "process_resident_memory_bytes", "process_virtual_memory_bytes"})
#: Metrics of the process that uses the largest part of its limit of open files.
_OPEN: Final = "process_open_fds"
_MAX_FDS: Final = "process_max_fds"


class Processes:
    """The usage of processes by /proc. One thread at a time may call its method."""

    def __init__(self) -> None:
        self._own = ProcessCollector(registry=None)
        self._platform = PlatformCollector(registry=CollectorRegistry(auto_describe=False))
        self._cpu_s: dict[int, float] = {}  # of workers that run, when they were looked at last
        self._ended_cpu_s = 0.0

    def collect(self, pids: Iterable[int]) -> Iterator[Metric]:
        """Yield the metrics of this process, with those of its workers added.

        Open files, and how many are allowed, are those of the process that has the fewest left.
        """
        running = set(pids)
        for pid in self._cpu_s.keys() - running:
            self._ended_cpu_s += self._cpu_s.pop(pid)
        own = list(self._own.collect())
        all_values = [_values(own), *map(self._of, running)]
        fullest = max(all_values, key=_used_files)
        for metric in own:
            if metric.name in _SUMMED:
                total = sum(values.get(metric.name, 0) for values in all_values)
                total += self._ended_cpu_s if metric.name == _CPU else 0
                metric.samples = [sample._replace(value=total) for sample in metric.samples]
            elif metric.name in (_OPEN, _MAX_FDS):
                metric.samples = [
                    sample._replace(value=fullest[metric.name]) for sample in metric.samples
                ]
            yield metric
        yield from self._platform.collect()

    def _of(self, pid: int) -> Mapping[str, float]:
        values = _values(ProcessCollector(registry=None, pid=lambda: pid).collect())
        if _CPU in values:
            self._cpu_s[pid] = values[_CPU]
        return values


def _values(metrics: Iterable[Metric]) -> Mapping[str, float]:
    """Return the values of one process by metric; its files are not there if it has just ended."""
    return {metric.name: sample.value for metric in metrics for sample in metric.samples}


def _used_files(values: Mapping[str, float]) -> float:
    """Return the part of its open files that a process uses."""
    return values[_OPEN] / values[_MAX_FDS] if values.get(_MAX_FDS) and _OPEN in values else -1.0
