"""Ports for servers whose port is chosen before they bind it, and kept while they are down.

A process takes whole blocks of ports. The first port of a block is the lock: a socket is bound to
it until the process ends. So no two processes of tests choose the same port, and none chooses
one twice.
"""

from __future__ import annotations

import random
import socket

__all__ = ["free_port", "free_ports"]

#: below the ports that the kernel gives to outgoing connections (ip_local_port_range: from 32768)
RANGE = range(20_000, 32_000)
BLOCK = 50


class _Ports:
    """The ports of this process: those of its last block that nobody has asked for yet."""

    def __init__(self) -> None:
        self._locks: list[socket.socket] = []
        self._left = range(0)

    def take(self, count: int) -> int:
        while True:
            while len(self._left) >= count:
                ports, self._left = self._left[:count], self._left[count:]
                if all(map(is_free, ports)):
                    return ports[0]
            self._lock_another()

    def _lock_another(self) -> None:
        for first in random.sample(RANGE[::BLOCK], len(RANGE) // BLOCK):
            if lock := _bound(first):
                self._locks.append(lock)
                self._left = range(first + 1, first + BLOCK)
                return
        raise OSError(f"no free ports between {RANGE[0]} and {RANGE[-1]}")


_ports = _Ports()


def free_port() -> int:
    """Return a port that nobody listens on."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of ``count`` (1 to 49) such ports in a row.

    Raises:
        OSError: all blocks are taken.
    """
    if not 1 <= count < BLOCK:
        raise ValueError(f"count is {count}: expected 1 to {BLOCK - 1}")
    return _ports.take(count)


def is_free(port: int) -> bool:
    """Return whether the port can be bound at this moment."""
    probe = _bound(port)
    if probe is None:
        return False
    probe.close()
    return True


def _bound(port: int) -> socket.socket | None:
    """Return a socket that is bound to the port, or None where that is not possible now."""
    one = socket.socket()
    try:
        one.bind(("", port))
    except OSError:
        one.close()
        return None
    return one
