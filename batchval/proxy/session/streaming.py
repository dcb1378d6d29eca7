"""A large answer that is passed on while it comes.

    length:4 correlation_id:4 … records … tail

Nothing changes in it but the correlation id and, in a Fetch or ShareFetch answer that may name
brokers, the tail: what comes after the last topic. Only the tail is held. Written again it has the
same length, since the answer's length has been written long before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.fetch_tail import FetchTail, rewrite_tail
from batchval.proxy.session.handlers import is_passed_on, is_rewritten
from batchval.proxy.session.pending import Answer, facts_of

__all__ = ["AnswerStream", "check_size", "stream_of"]

#: Bytes of a tail: brokers are few.
LONGEST_TAIL: Final = 1 << 20

#: Bytes of an answer that is read here as a whole, by API: several times what the largest clusters
#: need. A Metadata answer has 42 bytes for a partition of three replicas, so this is for 1.5 million.
MAX_ANSWER: Final[Mapping[int, int]] = {
    ApiKey.METADATA: 64 << 20,
    ApiKey.API_VERSIONS: 16 << 10,
    ApiKey.FIND_COORDINATOR: 16 << 20,
    ApiKey.DESCRIBE_CLUSTER: 1 << 20,
    ApiKey.PRODUCE: 16 << 20,
    ApiKey.SHARE_ACKNOWLEDGE: 16 << 20,
    ApiKey.SASL_HANDSHAKE: 64 << 10,
    ApiKey.SASL_AUTHENTICATE: 1 << 20,
}
MAX_TOKEN: Final = 1 << 20  # bytes of a SASL token without a header

Replace = Callable[[int, str, int], tuple[str, int]]


@dataclass(slots=True, eq=False)
class AnswerStream:
    """One answer on its way. ``left``: bytes of it that have not come yet."""

    correlation_id: int
    key: int
    version: int
    left: int
    tail: FetchTail | None
    held: bytearray = field(default_factory=bytearray)

    def feed(self, piece: memoryview, replace: Replace) -> list[bytes | memoryview]:
        """Return what goes to the client now. Raises ProtocolError for any other answer."""
        self.left -= len(piece)
        if self.tail is None:
            return [piece]
        out: list[bytes | memoryview] = []
        count = self.tail.feed(piece)
        if count < 0:
            raise ProtocolError("its fields do not fit its length")
        if count:
            out.append(piece[:count])
        self.held += piece[count:]
        if len(self.held) > LONGEST_TAIL:
            raise ProtocolError(
                f"its fields after the last topic take more than {LONGEST_TAIL} bytes"
            )
        if not self.left:
            out.append(rewrite_tail(bytes(self.held), self.key, self.version, replace))
        return out


def check_size(first: Answer | int, size: int) -> None:
    """Check the size of an answer that is read as a whole, before it is. Raises ProtocolError."""
    has_id = isinstance(first, int) or first.has_id
    most = MAX_ANSWER.get(facts_of(first)[1]) if has_id else MAX_TOKEN
    if most is not None and size > most:
        raise ProtocolError(f"it has {size} bytes, at most {most} are allowed")


def stream_of(first: Answer | int, size: int) -> AnswerStream | None:
    """Return the stream for the answer at the head of the queue; None where it is handled whole."""
    correlation_id, key, version = facts_of(first)
    if key == ApiKey.PRODUCE:
        # it may hold addresses, and says at its end how long to wait; such answers are small
        return None
    if isinstance(first, int) or is_passed_on(first):
        return AnswerStream(correlation_id, key, version, size, None)
    if key in (ApiKey.FETCH, ApiKey.SHARE_FETCH) and is_rewritten(first):
        return AnswerStream(correlation_id, key, version, size, FetchTail(key, version))
    return None
