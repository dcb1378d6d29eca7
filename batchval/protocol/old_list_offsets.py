"""ListOffsets 0, whose answers have arrays of offsets, as ListOffsets 1.

    request  int32 replica_id, topics of (int32 partition, int64 timestamp, int32 max_num_offsets)
    answer   topics of (int32 partition, int16 error_code, offsets), the highest offset first

Kafka answered version 0 with the base offsets of segments last written before a timestamp, or with
the log's end. Version 1 has one offset: that of the first record from the timestamp on, which is
more exact. The gate asks for the log's end first, which is the answer where no record is as late,
and for its start, which is the second offset where two or more are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.old_versions import ERROR_CODES
from batchval.protocol.primitives import Reader, Writer

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["EARLIEST", "LATEST", "OldListOffsets"]

LATEST: Final = -1
EARLIEST: Final = -2

_NOT_FOUND: Final = -1
_MIN_TIMESTAMP: Final = 0
#: Times its size that a request takes until its answer comes, with the answers to both questions.
_HELD_TIMES: Final = 4


class _Wanted(NamedTuple):
    """A partition of a request."""

    partition: int
    timestamp: int
    most: int


_Topics: TypeAlias = list[tuple[str, list[_Wanted]]]


class OldListOffsets:
    """A request of version 0, read: at most ``max_partitions`` topics and partitions.
    ProtocolError.
    """

    __slots__ = ("_body", "_bounds", "_max_partitions", "_replica_id", "_topics")

    def __init__(self, body: Buffer, *, max_partitions: int) -> None:
        self._body = bytes(body)
        self._max_partitions = max_partitions
        self._replica_id = 0
        self._bounds: dict[int, bytes] = {}  # answers to questions, by timestamp
        self._topics: _Topics | None = self._read_topics()

    def _read_topics(self) -> _Topics:
        r = Reader(self._body)
        self._replica_id = r.int32()
        topics: _Topics = []
        left = self._max_partitions
        for _ in range(r.count()):
            name, count = r.string(), r.count()
            left -= 1 + count
            if left < 0:
                raise ProtocolError("more topics or partitions than are allowed", r.position)
            topics.append((name, [_Wanted(r.int32(), r.int64(), r.int32()) for _ in range(count)]))
        r.finish()
        return topics

    def _all(self) -> _Topics:
        return self._read_topics() if self._topics is None else self._topics

    @property
    def held(self) -> int:
        """Return about how many bytes of memory this takes until the answer comes."""
        return _HELD_TIMES * len(self._body)

    def shrink(self) -> None:
        """Keep the bytes alone until the answer comes: partitions as objects take ten times as
        much.
        """
        self._topics = None

    def questions(self) -> list[int]:
        """Return what else the broker is to be asked first: LATEST, EARLIEST."""
        everything = [wanted for _, parts in self._all() for wanted in parts]
        found = []
        if any(wanted.timestamp >= _MIN_TIMESTAMP for wanted in everything):
            found.append(LATEST)
        if any(wanted.most > 1 and wanted.timestamp != EARLIEST for wanted in everything):
            found.append(EARLIEST)
        return found

    def raised(self, timestamp: int | None = None) -> bytes:
        """Return the request in version 1, with ``timestamp`` for all its partitions where set."""
        w = Writer()
        w.int32(self._replica_id)
        topics = self._all()
        w.count(len(topics))
        for name, parts in topics:
            w.string(name)
            w.count(len(parts))
            for wanted in parts:
                w.int32(wanted.partition)
                w.int64(wanted.timestamp if timestamp is None else timestamp)
        return w.getvalue()

    def note(self, timestamp: int, body: Buffer) -> None:
        """Keep the answer to a question, which ``lowered`` reads."""
        self._bounds[timestamp] = bytes(body)

    def _bound(self, timestamp: int) -> dict[tuple[str, int], int]:
        """Return where each partition's log ends or starts."""
        body = self._bounds.get(timestamp)
        return (
            {}
            if body is None
            else {(topic, part[0]): part[2] for topic, parts in _read(body) for part in parts}
        )

    def lowered(self, body: Buffer) -> bytes:
        """Return the answer in version 0. ProtocolError."""
        places = {
            (topic, wanted.partition): wanted for topic, parts in self._all() for wanted in parts
        }
        codes = ERROR_CODES[ApiKey.LIST_OFFSETS]
        ends, starts = self._bound(LATEST), self._bound(EARLIEST)
        answer = _read(body)
        w = Writer()
        w.count(len(answer))
        for topic, parts in answer:
            w.string(topic)
            w.count(len(parts))
            for partition, error_code, offset in parts:
                w.int32(partition)
                w.int16(codes.get(error_code, error_code))
                place = topic, partition
                if place not in places:
                    raise ProtocolError(f"partition {partition} of the answer was not asked for")
                bounds = ends.get(place, _NOT_FOUND), starts.get(place, _NOT_FOUND)
                offsets = [] if error_code else _offsets(places[place], offset, *bounds)
                w.count(len(offsets))
                for one in offsets:
                    w.int64(one)
        return w.getvalue()


def _offsets(wanted: _Wanted, offset: int, end: int, start: int) -> list[int]:
    """Return the offsets of one partition, the highest first."""
    if offset < 0 and wanted.timestamp >= _MIN_TIMESTAMP:
        offset = end
    found = [offset] if offset >= 0 else []
    if 0 <= start < offset:
        found.append(start)
    return found[: max(0, wanted.most)]


def _read(body: Buffer) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """Read an answer of version 1: partition, error code and offset.

    Bytes after its end are ignored.
    """
    r = Reader(body)
    found = []
    for _ in range(r.count()):
        topic = r.string()
        parts = []
        for _ in range(r.count()):
            partition, error_code = r.int32(), r.int16()
            r.int64()  # timestamp
            parts.append((partition, error_code, r.int64()))
        found.append((topic, parts))
    return found
