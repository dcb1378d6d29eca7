"""Clients that wait for a broker which is not known yet: a server name may come before discovery.

Each of them waits until the broker is known, ``WAIT_S`` at most. The cluster is asked at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from batchval.proxy.cluster.discovery import Discovery

__all__ = ["WAIT_S", "AwaitedBrokers", "UnknownBrokerError"]

WAIT_S: Final = 5.0


class UnknownBrokerError(ConnectionError):
    """An error: no Metadata answer has named this broker."""


class AwaitedBrokers:
    """The waiting clients, by the broker's id."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}

    async def known(self, node_id: int, wait_s: float) -> None:
        """Return once the broker is known. Raises UnknownBrokerError."""
        if node_id in self._discovery.brokers:
            return
        self._discovery.look()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(node_id, set()).add(future)
        try:
            async with asyncio.timeout(wait_s):
                await future
        except TimeoutError:
            raise UnknownBrokerError(f"broker {node_id} is not known") from None
        finally:
            self._forget(node_id, future)

    def learned(self, node_id: int) -> None:
        """Let those go on that wait for this broker: one in each turn of the loop connects."""
        if node_id in self._waiting:
            self._release(deque(self._waiting[node_id]))

    def _release(self, futures: deque[asyncio.Future[None]]) -> None:
        future = futures.popleft()
        if not future.done():
            future.set_result(None)
        if futures:
            asyncio.get_running_loop().call_soon(self._release, futures)

    def _forget(self, node_id: int, future: asyncio.Future[None]) -> None:
        waiting = self._waiting[node_id]
        waiting.discard(future)
        if not waiting:
            del self._waiting[node_id]
