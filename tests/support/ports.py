"""Ports for servers whose port is chosen before they bind it, and kept while they are down.

A process takes whole blocks of ports. The first port of a block is the lock: a socket is bound to
it until the process ends. So no two processes of tests choose the same port, and none chooses
one twice.
"""

from __future__ import annotations

import contextlib
import random
import socket

__all__ = ["free_port", "free_ports"]

#: below the ports that the kernel gives to outgoing connections (ip_local_port_range: from 32768)
RANGE = range(20_000, 32_000)
BLOCK = 50


class Block:
    """The ports after ``first``, each returned once."""

    def __init__(self, first: int) -> None:
        self._lock = socket.socket()
        self._lock.bind(("", first))
        self._left = list(range(first + BLOCK - 1, first, -1))

    def take(self, count: int) -> int | None:
        """Return the first of ``count`` free ports in a row, or None if the block has no more."""
        while len(self._left) >= count:
            ports = [self._left.pop() for _ in range(count)]
            if all(map(is_free, ports)):
                return ports[0]
        return None


#: the block that ports are taken from is the last one; those before it stay locked
_blocks: list[Block] = []


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
    if _blocks and (port := _blocks[-1].take(count)):
        return port
    for first in random.sample(RANGE[::BLOCK], len(RANGE) // BLOCK):
        with contextlib.suppress(OSError):
            _blocks.append(Block(first))
            if port := _blocks[-1].take(count):
                return port
    raise OSError(f"no free ports between {RANGE[0]} and {RANGE[-1]}")


def is_free(port: int) -> bool:
    """Return whether the port can be bound at this moment."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
