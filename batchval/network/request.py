"""The protocols of requests and answers that the network needs, without their contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from batchval.network.future import RequestFuture

__all__ = [
    "AnyRequest",
    "Build",
    "ClientRequest",
    "ClientResponse",
    "FrameSplitter",
    "Node",
    "RequestBuilder",
]


class AnyRequest(Protocol):
    """One request at one version of its API; what ``batchval.protocol`` generates satisfies it."""

    @property
    def api_key(self) -> int:
        """Return the API key."""

    @property
    def api_version(self) -> int:
        """Return the version that ``encode`` writes and ``decode`` reads."""

    @property
    def expects_response(self) -> bool:
        """Return whether a response follows: False for a Produce request with acks=0."""

    def encode(self, correlation_id: int, client_id: str | None) -> Sequence[bytes | memoryview]:
        """Return the chunks of a whole frame, length first; they must not change until written."""

    def decode(self, frame: memoryview) -> Any:
        """Return the response in a frame without length, which starts with the correlation id."""


@runtime_checkable
class RequestBuilder(Protocol):
    """A request whose version is chosen later: the highest that both sides speak."""

    @property
    def api_key(self) -> int:
        """Return the API key."""

    @property
    def versions(self) -> tuple[int, int]:
        """Return the lowest and highest version that ``build`` takes."""

    def build(self, api_version: int) -> AnyRequest:
        """Return the request at that version."""


@dataclass(slots=True, frozen=True)
class Build:
    """A RequestBuilder of a function from the version to the request."""

    api_key: int
    versions: tuple[int, int]
    make: Callable[[int], AnyRequest]

    def build(self, api_version: int) -> AnyRequest:
        """Return the request at that version."""
        return self.make(api_version)


class FrameSplitter(Protocol):
    """A splitter of a stream into frames, read as asyncio.BufferedProtocol reads.

    A method ``expect(correlation_id, pieces)``, where it exists, is called for each request that
    has ``pieces``. It may pass them the answer as that comes; the frame is then the correlation id
    alone. ``has_piece`` is whether the last bytes completed a piece.

    A length that is negative or above the limit is an exception before anything of the frame is
    stored; its ``frames`` are those that came whole before it.
    """

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into, at least one byte."""

    def buffer_updated(self, nbytes: int) -> Sequence[memoryview]:
        """Return the frames that those bytes complete, without lengths; each may be kept."""


class Node(NamedTuple):
    """A broker: its id in the cluster (below 0: a bootstrap address), and where it listens."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


@dataclass(slots=True, eq=False)
class ClientRequest:
    """A request on its way to one node. Times in milliseconds of the client's clock."""

    node: Node
    request: AnyRequest | RequestBuilder
    created_time_ms: float
    request_timeout_ms: float
    future: RequestFuture[ClientResponse]


@dataclass(slots=True, frozen=True)
class ClientResponse:
    """An answer. ``response`` is what ``decode`` returned; None where none comes (acks=0)."""

    node: Node
    request: AnyRequest
    response: Any
    created_time_ms: float
    received_time_ms: float

    @property
    def request_latency_ms(self) -> float:
        """Return the ms from ``send`` to the answer, with waits for a connection and a slot."""
        return self.received_time_ms - self.created_time_ms
