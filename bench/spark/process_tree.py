"""CPU of this process and of all below it (driver, JVM, Python workers), from /proc/PID/stat."""

from __future__ import annotations

import os
from pathlib import Path

HZ = os.sysconf("SC_CLK_TCK")


def tree() -> dict[int, tuple[str, float]]:
    """Return name and CPU seconds, ended children included, of this process and its descendants."""
    found: dict[int, tuple[str, float]] = {}
    below: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = file.read_text()
        except OSError:
            continue
        pid, name = int(text.split()[0]), text[text.index("(") + 1 : text.rindex(")")]
        fields = text.rpartition(")")[2].split()
        found[pid] = name, sum(map(int, fields[11:15])) / HZ
        below.setdefault(int(fields[1]), []).append(pid)
    left, mine = [os.getpid()], {}
    while left:
        pid = left.pop()
        if pid in found:
            mine[pid] = found[pid]
        left += below.get(pid, [])
    return mine


def cpu() -> float:
    """Return the CPU seconds of the process tree; Spark's workers outlive a job, so none are
    lost.
    """
    return sum(seconds for _, seconds in tree().values())
