"""CPU time in seconds of the reference machine, so that a ceiling holds on any machine.

A ceiling of CPU time is written as it was measured on the reference machine. A test compares it
with `cpu_s`, which measures a fixed piece of work in turns with the step of the test, and divides
by what that work has taken. A machine that is slower by half takes half more for both. Other
processes on the machine, which take caches and the other half of a core, slow down both as well.

    assert cpu_s(lambda: gate.validate(request, "s")) < 0.005

Where the step runs in another process, multiply its ceiling by `slowness`, measured meanwhile
(`Watch`).
"""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections.abc import Callable
from statistics import median
from typing import Any, Self

#: CPU seconds of `fixed_work` on the machine where the ceilings were measured
REFERENCE_S = 0.0040
#: between two measurements of a `Watch`, which are not to take a core
PAUSE_S = 0.1

_HEAD = struct.Struct(">iqhb")
_TEXT = bytes(range(256)) * 256
_PACKED = zlib.compress(_TEXT, 1)


def fixed_work() -> int:
    """Do what a gate does: integers, dicts, objects, struct, and native code over some memory."""
    names: dict[str, int] = {}
    total = 0
    for n in range(5_000):
        name = f"topic-{n % 500}"
        names[name] = names.get(name, 0) + n
        total += sum(_HEAD.unpack(_HEAD.pack(n, n << 20, n & 0x7FFF, 2)))
    for _ in range(4):
        data = bytearray(zlib.decompress(_PACKED))
        total += zlib.crc32(data) + len(zlib.compress(data[:16_384], 6))
    large = bytearray(1 << 20)
    large[1:] = large[:-1]
    return total + len(names)


def _taken(step: Callable[[], Any], clock: Callable[[], float]) -> float:
    began = clock()
    step()
    return clock() - began


def slowness(times: int = 5) -> float:
    """Return the CPU time that this machine takes now, by that of the reference machine."""
    return median(_taken(fixed_work, time.thread_time) for _ in range(times)) / REFERENCE_S


class Watch:
    """Measures in a thread, for as long as the block lasts."""

    def __init__(self) -> None:
        self._taken: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S) or not self._taken:
            self._taken.append(_taken(fixed_work, time.thread_time))

    def slowness(self) -> float:
        """Return the CPU time that this machine took meanwhile, by that of the reference."""
        return median(self._taken) / REFERENCE_S


def cpu_s(
    step: Callable[[], Any],
    times: int = 5,
    *,
    prepare: Callable[[], Any] = lambda: None,
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """Return the least CPU time of some runs of a step, in seconds of the reference machine.

    ``prepare`` is called before each run, and not measured. ``clock`` is ``time.process_time``
    where the step uses threads.
    """
    units, steps = [], []
    for _ in range(times):
        prepare()
        units.append(_taken(fixed_work, time.thread_time))
        steps.append(_taken(step, clock))
    if times < 5:
        units += [_taken(fixed_work, time.thread_time) for _ in range(5 - times)]
    return min(steps) * REFERENCE_S / median(units)
