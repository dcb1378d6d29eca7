"""The messages between a parent and its workers.

    control  both directions, in order: the messages below, with their length, pickled
    passing  parent to worker: PassedHeader with the connection's descriptor, one packet each
    asking   worker to parent and back, one packet each; the worker waits for the answer

All three are pairs of Unix sockets that no other process has. Both ends run the same code for the
same user, so what comes is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from batchval.proxy.cluster.discovery import ClusterNews
from batchval.proxy.cluster.listening_sockets import SocketKey
from batchval.proxy.cluster.metadata_client import BrokerAddress
from batchval.proxy.settings.config import Settings
from batchval.proxy.watch.clients import ClientKey, Served
from batchval.proxy.watch.observed_batches import ObservedRow, RowKey

__all__ = [
    "AddressFailed",
    "AddressReached",
    "AnswerMessage",
    "Begin",
    "Closed",
    "Drain",
    "Failed",
    "Heartbeat",
    "Learned",
    "ObservedRows",
    "OwnRequest",
    "PassedHeader",
    "PortAnswer",
    "PortOf",
    "Question",
    "Ready",
    "RefreshMetadata",
    "Reopen",
    "Seen",
    "Unauthenticated",
    "WorkerConfiguration",
]


# ---- to a worker ---------------------------------------------------------------------------------


class WorkerConfiguration(NamedTuple):
    """The facts from which a worker is made.

    ``settings``       of this worker: its part of the gate's limits
    ``instance``       begins the client ids of the parent's own requests to brokers
    ``claims_secret``  decides which claims are sampled
    """

    worker: int
    settings: Settings
    version: str
    instance: str
    claims_secret: bytes
    news: ClusterNews


class Begin(NamedTuple):
    """The first message. ``path``: the parent's sys.path. ``parts``: a pickled WorkerConfiguration."""

    path: list[str]
    parts: bytes


class Drain(NamedTuple):
    """Deliver what is under way for at most ``seconds``, and end."""

    seconds: float


class Question(NamedTuple):
    """A question, which an Answer of the same number answers."""

    number: int
    what: Literal["families", "clients", "prepare"]
    content: bytes = b""


class Apply(NamedTuple):
    """Take these settings, which are pickled; most workers have prepared them."""

    settings: bytes


class Reopen(NamedTuple):
    """Open files that may have been rotated anew: SIGHUP reaches the parent alone."""


class PassedHeader(NamedTuple):
    """One accepted connection. ``broker``: port of the gate and address of the broker; None where
    ``node_id`` is, and while the parent does not know the broker any more.
    """

    number: int
    listener: str
    node_id: int | None
    broker: tuple[int, BrokerAddress] | None


class PortAnswer(NamedTuple):
    """The ports of one broker by listener, or why there is none."""

    ports: Mapping[SocketKey, int]
    error: tuple[int, str] | None = None


# ---- to the parent -------------------------------------------------------------------------------


class Ready(NamedTuple):
    """The worker can serve so many connections."""

    connections: int


class Failed(NamedTuple):
    """The worker cannot start. ``problems`` of the settings, else ``error`` of the system."""

    problems: list[str]
    error: tuple[int, str] | None = None


class Heartbeat(NamedTuple):
    """The worker's event loop turns. ``validated``: batches so far."""

    validated: int


class Closed(NamedTuple):
    """Connections that are gone on both sides, by the numbers of their headers."""

    numbers: list[int]


class Seen(NamedTuple):
    """Arguments of ClientTable.add, in order."""

    clients: Sequence[tuple[ClientKey, Mapping[int, int], Served]]


class ObservedRows(NamedTuple):
    """Refusals that were counted, and whether the topic of each is known."""

    rows: list[tuple[RowKey, ObservedRow, bool]]


class Learned(NamedTuple):
    """An answer of a broker names this broker."""

    node_id: int
    host: str
    port: int


class AddressReached(NamedTuple):
    """A connection to a broker was opened."""

    address: BrokerAddress


class AddressFailed(NamedTuple):
    """A connection to a broker could not be opened."""

    address: BrokerAddress
    reason: str


class RefreshMetadata(NamedTuple):
    """A client asks for a broker that is not known."""


class Unauthenticated(NamedTuple):
    """A broker has answered a client that it had not authenticated."""


class AnswerMessage(NamedTuple):
    """The answer to a Question. ``content`` is pickled again, so that a thread can read it."""

    number: int
    content: bytes


class PortOf(NamedTuple):
    """A question for the port of a broker."""

    listener: str
    node_id: int
    address: BrokerAddress


class OwnRequest(NamedTuple):
    """A question whether the parent has sent a request with this client id."""

    client_id: str
