"""Open files: how many this process may have, and how many connections of clients that allows.

Each client takes two: its own connection and the one to its broker. The rest is a reserve:
listeners, the port of /metrics with its connections, threads, files of libraries, and connections
that are accepted only to be closed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from typing import Final

__all__ = ["SpareFiles", "connections_allowed", "raise_limit", "reserve_for", "too_few"]

#: More is useless, and some libraries walk over all descriptors that a process may have.
MAX_DESCRIPTORS: Final = 1 << 20
#: Those of the interpreter, the loop, look-ups of names, certificates, and requests for topics.
LIBRARIES: Final = 64


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # a container may refuse it
        return soft
    return wanted


def reserve_for(listening: int, threads: int, health: int) -> int:
    """Return how many open files are not for clients.

    ``listening`` ports of clients, ``threads`` that validate, ``health`` connections to /metrics at
    a time, each with a spare descriptor; 0 without such a port.
    """
    return LIBRARIES + listening + threads + (2 * health + 1 if health else 0)


def connections_allowed(limit: int, wanted: int, reserve: int) -> int:
    """Return how many clients there may be, two open files each; 0 or less: none."""
    return min(wanted, (limit - reserve) // 2)


def too_few(limit: int, whose: str, advice: str = "") -> OSError:
    """Return the error of a process whose open files do not suffice. ``advice``: what else helps."""
    text = f"at most {limit} open files are allowed, and {whose}"
    return OSError(errno.EMFILE, f"{text}: raise it (ulimit -n, LimitNOFILE=){advice}")


class SpareFiles:
    """Descriptors kept open so that others can be opened when the process has no more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: list[int] = []
        self.fill()

    def __len__(self) -> int:
        return len(self._files)

    def take(self) -> None:
        """Close one, if any is left, so that another descriptor can be opened."""
        if self._files:
            os.close(self._files.pop())

    def fill(self) -> None:
        """Open as many as are missing; fewer where the process has no more descriptors."""
        with contextlib.suppress(OSError):
            while len(self._files) < self._most:
                self._files.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def close(self) -> None:
        """Close all of them."""
        while self._files:
            self.take()
