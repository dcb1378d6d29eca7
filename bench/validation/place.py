"""Run a program on some cores, at a priority.

    python bench/validation/place.py CORES NICE PROGRAM…

It imports nothing of the project: the program may have another working directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


class Place:
    """Where and how urgently a process runs. ``nice`` below 0 needs root, and outweighs the
    neighbours' programs.
    """

    def __init__(self, cores: set[int], nice: int = 0) -> None:
        self.cores, self.nice = cores, nice

    def prefix(self) -> list[str]:
        """Return the command prefix that runs this file as a program."""
        return [
            sys.executable,
            str(Path(__file__)),
            ",".join(map(str, sorted(self.cores))),
            str(self.nice),
        ]


def take(cores: str, nice: int) -> None:
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    if nice:
        # the scheduler weighs sessions against each other before it looks at the nice value of a
        # process
        os.setsid()
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice))
        os.nice(nice)


if __name__ == "__main__":
    take(sys.argv[1], int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
