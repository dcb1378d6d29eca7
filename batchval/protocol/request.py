"""What a client needs to know of a request: its key, its version, whether an answer comes, and two functions.

The generated request classes of ``batchval.protocol.messages`` satisfy it; a client needs nothing else of them.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["AnyRequest", "Chunks"]

#: One frame in pieces, for writelines: the first piece starts with the frame's length (int32, big-endian).
Chunks = list[bytes | memoryview]

ResponseT_co = TypeVar("ResponseT_co", covariant=True)


class AnyRequest(Protocol[ResponseT_co]):
    """One request at one version of its API."""

    @property
    def api_key(self) -> int:
        """Kafka's number of the API: Produce 0, Fetch 1, Metadata 3, ApiVersions 18."""

    @property
    def api_version(self) -> int:
        """The version that ``encode`` writes and ``decode`` reads."""

    @property
    def expects_response(self) -> bool:
        """False for a Produce request with acks=0, which no broker answers."""

    def encode(self, correlation_id: int, client_id: str | None) -> Chunks:
        """The whole frame: length, header, body. Record batches are in it as the slices they were given as.

        Raises ProtocolError for a value that this version cannot carry.
        """

    def decode(self, frame: memoryview) -> ResponseT_co:
        """The response in a frame (its header first, without the length). Raises ProtocolError."""
