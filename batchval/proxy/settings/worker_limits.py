"""The number of workers of a gate, and the part of its limits that each has."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

from batchval.proxy.settings.config import MAX_WORKERS, Settings

__all__ = ["share_of", "usable_cores", "workers_of"]

#: "max 100000" or "200000 100000": microseconds of CPU in each period, of this container.
_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(cpu_max: Path = _CPU_MAX) -> int:
    """Return how many cores this process may use: by its affinity and its container's limit."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        limit = math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # "max", or no such file
        return cores
    return max(1, min(cores, limit))


def workers_of(settings: Settings) -> int:
    """Return the number of workers; 1 stands for a single process without a parent.

    ``auto`` is one for each usable core, as far as the largest request fits into each one's part
    of ``max_bytes_held``.
    """
    if settings.workers != "auto":
        return settings.workers
    fitting = settings.limits.max_bytes_held // settings.limits.max_frame_bytes
    return max(1, min(usable_cores(), fitting, MAX_WORKERS))


def share_of(settings: Settings, workers: int) -> Settings:
    """Return the settings of one worker.

    Limits on connections are whole: the parent counts them. A worker listens nowhere and keeps
    no files.
    """
    limits, log = settings.limits, settings.log
    divided = {
        "max_bytes_held": limits.max_bytes_held // workers,
        "threads": max(1, limits.threads // workers),
    }
    lines = {
        key: max(1, getattr(log, key) // workers)
        for key in ("refusals_per_second", "connections_per_second")
    }
    whole = {"max_connections_per_address": limits.max_connections}  # the parent counts
    return settings.model_copy(
        update={
            "workers": 1,
            "limits": limits.model_copy(update=divided | whole),
            "log": log.model_copy(update=lines),
            "metrics": settings.metrics.model_copy(update={"address": None}),
            "state_directory": None,
            "control": None,
        }
    )
