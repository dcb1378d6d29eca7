"""The state of one broker: its connection, its backoff, the API versions that it supports.

The waits are Kafka's: reconnecting from 50 ms to 1 s (KIP-144), setting up from 10 s to 30 s
(KIP-601), doubled at each failure and spread by 20 %. All addresses of a name are tried before it
is resolved again.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from batchval.network.connection import Connection
from batchval.network.errors import AuthenticationError
from batchval.network.request import Node

__all__ = ["Backoff", "ConnectionState", "NodeState", "Resolve", "resolve"]

#: (host, port) to the addresses to try, in order.
Resolve = Callable[[str, int], Awaitable[list[str]]]


class ConnectionState(enum.Enum):
    """The states of a connection, with Kafka's names."""

    DISCONNECTED = enum.auto()
    CONNECTING = enum.auto()
    CHECKING_API_VERSIONS = enum.auto()
    READY = enum.auto()
    AUTHENTICATION_FAILED = enum.auto()

    @property
    def is_disconnected(self) -> bool:
        """Return whether there is neither a connection nor an attempt."""
        return self in (ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED)


@dataclass(slots=True, frozen=True)
class Backoff:
    """A wait: first_ms · 2^failures, at most last_ms, times a random 1 ± ``jitter``."""

    first_ms: float
    last_ms: float
    jitter: float = 0.2

    def after(self, failures: int) -> float:
        """Return the wait in milliseconds after ``failures`` earlier failures of the same kind."""
        if self.first_ms <= 0:
            return 0.0
        exact = min(self.first_ms * 2.0 ** min(failures, 60), max(self.first_ms, self.last_ms))
        return exact * random.uniform(1 - self.jitter, 1 + self.jitter)


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name as the system gives them, without repetition."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)  # SOCK_STREAM
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(slots=True, eq=False)
class NodeState:
    """The state of one node, by its id."""

    node: Node
    state: ConnectionState = ConnectionState.DISCONNECTED
    connection: Connection | None = None
    connecting: asyncio.Task[None] | None = None
    api_versions: dict[int, tuple[int, int]] | None = None
    authentication_error: AuthenticationError | None = None
    addresses: list[str] = field(default_factory=list)  # still to be tried, the current one first
    last_attempt_ms: float = 0.0
    failures: int = 0  # since the connection last was ready
    setup_failures: int = 0  # of connecting alone
    backoff_ms: float = 0.0
    setup_timeout_ms: float = 0.0
    error: BaseException | None = None  # why the last connection ended or was not made
    failure_unseen: bool = False  # check_disconnects has to look before anyone connects again

    def connection_delay_ms(self, now_ms: float) -> float:
        """Return the ms until a connection may be tried; infinite while one exists or is made."""
        if not self.state.is_disconnected:
            return float("inf")
        return max(0.0, self.last_attempt_ms + self.backoff_ms - now_ms) if self.backoff_ms else 0.0

    @property
    def in_flight_count(self) -> int:
        """Return how many requests the node has not answered."""
        return len(self.connection.in_flight) if self.connection is not None else 0

    @property
    def is_ready(self) -> bool:
        """Return whether it is connected, its versions are known and it is not throttled."""
        return (
            self.state is ConnectionState.READY
            and self.connection is not None
            and self.connection.is_open
            and not self.connection.throttled_ms
        )

    @property
    def can_send(self) -> bool:
        """Return whether it can take a request now."""
        return (
            self.state is ConnectionState.READY
            and self.connection is not None
            and self.connection.can_send_more()
        )
