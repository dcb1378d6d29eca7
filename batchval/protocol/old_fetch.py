"""Fetch 0 to 3, which Kafka 4 no longer knows, as Fetch 10, and the answers back.

    request   int32 replica_id, int32 max_wait_ms, int32 min_bytes, int32 max_bytes (3), topics
    answer    int32 throttle_time_ms (1 and later), topics

What a partition's records become is the caller's matter: ``read_answer`` finds them, and
``AnswerWriter`` puts message sets in their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Chunks
from batchval.protocol.old_versions import ERROR_CODES
from batchval.protocol.primitives import Reader, Writer
from batchval.protocol.raised_fetch import read_partitions

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "AnswerWriter",
    "FetchedAnswer",
    "OldFetch",
    "OldFetchedPartition",
    "WantedPartition",
    "read_answer",
]

_MAX_BYTES_FROM: Final = 3
_THROTTLE_FROM: Final = 1
_MAGIC_1_FROM: Final = 2
_NO_SESSION: Final = 0  # KIP-227
_FULL_FETCH: Final = -1
_NO_EPOCH: Final = -1
_NO_LOG_START: Final = -1


class WantedPartition(NamedTuple):
    """A partition of a request."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class OldFetch:
    """A request of version 0 to 3, read: at most ``max_partitions`` topics and partitions.
    ProtocolError.

    ``partitions``  in the request's order
    ``topics``      (name, number of its partitions) in the request's order
    """

    __slots__ = (
        "_max_wait_ms",
        "_min_bytes",
        "_replica_id",
        "max_bytes",
        "partitions",
        "topics",
        "version",
    )

    def __init__(self, body: Buffer, version: int, *, max_partitions: int) -> None:
        r = Reader(body)
        self.version = version
        self._replica_id = r.int32()
        self._max_wait_ms = r.int32()
        self._min_bytes = r.int32()
        self.max_bytes = r.int32() if version >= _MAX_BYTES_FROM else 0x7FFFFFFF
        self.partitions: list[WantedPartition] = []
        self.topics: list[tuple[str, int]] = []
        count = self._bounded(r, max_partitions)
        left = max_partitions - count
        for _ in range(count):
            name = r.string()
            count = self._bounded(r, left)
            left -= count
            self.topics.append((name, count))
            for _ in range(count):
                self.partitions.append(WantedPartition(name, r.int32(), r.int64(), r.int32()))
        r.finish()

    @staticmethod
    def _bounded(r: Reader, most: int) -> int:
        count = r.count()
        if count > most:
            raise ProtocolError("more topics or partitions than are allowed", r.position)
        return count

    @property
    def is_cut(self) -> bool:
        """Return whether a partition's answer may end within a message: below version 3 (KIP-74) it
        does not exceed the partition's ``max_bytes``.
        """
        return self.version < _MAX_BYTES_FROM

    @property
    def magic(self) -> int:
        """Return the newest message format that this version's clients read."""
        return 1 if self.version >= _MAGIC_1_FROM else 0

    def raised(
        self, offsets: list[int], max_bytes: int, isolation_level: int, turn: int = 0
    ) -> bytes:
        """Return the body of version 10.

        ``offsets``    where each partition is read from
        ``max_bytes``  of the answer, and of each partition, where the request allows more
        ``turn``       the topics are rotated by it, and once all were first, the partitions of
                       each: a broker fills an answer in this order (KIP-74)
        """
        w = Writer()
        w.int32(self._replica_id)
        w.int32(self._max_wait_ms)
        w.int32(self._min_bytes)
        w.int32(min(self.max_bytes, max_bytes))
        w.int8(isolation_level)
        w.int32(_NO_SESSION)
        w.int32(_FULL_FETCH)
        w.count(len(self.topics))
        starts = [0, *accumulate(count for _, count in self.topics)]
        for topic in _turned(len(self.topics), turn):
            name, count = self.topics[topic]
            w.string(name)
            w.count(count)
            for partition in _turned(count, turn // len(self.topics)):
                i = starts[topic] + partition
                wanted = self.partitions[i]
                w.int32(wanted.partition)
                w.int32(_NO_EPOCH)
                w.int64(offsets[i])
                w.int64(_NO_LOG_START)
                w.int32(min(wanted.max_bytes, max_bytes))
        w.count(0)  # forgotten_topics_data
        return w.getvalue()


def _turned(count: int, turn: int) -> Iterator[int]:
    """Yield the places of ``count`` elements, from that of the turn on."""
    for i in range(count):
        yield (i + turn) % count


class OldFetchedPartition(NamedTuple):
    """A partition of an answer. ``records`` is a slice of the answer."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    aborted: list[tuple[int, int]]
    records: memoryview | None


class FetchedAnswer(NamedTuple):
    """An answer of version 10, read; ``topics`` as in OldFetch."""

    throttle_time_ms: int
    error_code: int
    topics: list[tuple[str, int]]
    partitions: list[OldFetchedPartition]


def read_answer(body: Buffer) -> FetchedAnswer:
    """Read the body of an answer of version 10. Bytes after its end are ignored. ProtocolError."""
    return FetchedAnswer(*read_partitions(Reader(body), OldFetchedPartition))


class AnswerWriter:
    """A writer of an answer of version 0 to 3, partition by partition."""

    def __init__(self, answer: FetchedAnswer, version: int, correlation_id: int) -> None:
        self._w = Writer(has_length=True)
        self._w.int32(correlation_id)
        if version >= _THROTTLE_FROM:
            self._w.int32(answer.throttle_time_ms)
        self._w.count(len(answer.topics))
        self._topics = iter(answer.topics)
        self._left = 0  # partitions of the topic

    def put(self, fetched: OldFetchedPartition, error_code: int, output: list[Buffer]) -> None:
        """Write the next partition with its message sets, in pieces."""
        w = self._w
        while not self._left:
            name, self._left = next(self._topics)
            w.string(name)
            w.count(self._left)
        self._left -= 1
        w.int32(fetched.partition)
        w.int16(ERROR_CODES[ApiKey.FETCH].get(error_code, error_code))
        w.int64(fetched.high_watermark)
        w.record_pieces(output)

    def finish(self) -> Chunks:
        """Return the frame."""
        for name, count in self._topics:  # topics without partitions
            self._w.string(name)
            self._w.count(count)
        return self._w.finish()
