"""``spark.readStream.format("kafka-segments")``: the bytes of each file that are read, in Spark's
checkpoint.

An offset is ``{uri: bytes}``. Of a partition's newest segment, which a broker may be writing, only
the bytes up to the end of its last valid batch are taken: a half-written batch and preallocated
zeros wait for a later micro-batch. Older segments, and objects of a store, are whole. A file that
has shrunk is another one (the cleaner or a truncation was there): it is read again from its start.
A file that is gone is forgotten. What could not be listed has -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from batchval.segment.options import Options
from batchval.segment.ranges import Range, cut
from batchval.segment.reader import Stretch
from batchval.segment.store import SegmentInfo, Store, Unreadable, folder_and_name
from batchval.spark.options import SEGMENT_OPTIONS, known, paths, row_options, size
from batchval.spark.spark_types import Shape
from batchval.spark.tasks import Piece, pieces, read_piece

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["SegmentsStreamReader", "stream_reader"]

STREAM_OPTIONS: Final = (*SEGMENT_OPTIONS, "maxBytesPerTrigger")
NOT_LISTED: Final = -1

FileOffsets = dict[str, int]


def stream_reader(options: MutableMapping[str, str], schema: StructType) -> SegmentsStreamReader:
    """Return the stream reader of ``kafka-segments``. Raises BatchvalError for a wrong option."""
    known(options, STREAM_OPTIONS, "kafka-segments (streaming)")
    most = size(options, "maxBytesPerTrigger", 0)
    shape = Shape(schema)
    return SegmentsStreamReader(paths(options), shape.options(row_options(options)), shape, most)


class SegmentsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream's reader of segments. ``most``: bytes of a micro-batch, 0 for all there are."""

    def __init__(self, paths: tuple[str, ...], options: Options, shape: Shape, most: int) -> None:
        self.paths = paths
        self.options = options
        self.shape = shape
        self.most = most
        self.target: FileOffsets | None = (
            None  # of a query that ends where all that was there is read
        )

    def initialOffset(self) -> FileOffsets:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self.most) if self.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._reach({})

    def latestOffset(self, start: FileOffsets, limit: ReadLimit) -> FileOffsets:
        left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 1 << 62
        end: FileOffsets = {}
        for uri, reached in (self.target or self._reach(start)).items():
            begun = start.get(uri, 0)
            if reached == NOT_LISTED or reached < begun:
                end[uri] = reached
            elif begun == NOT_LISTED:
                begun = 0
            if uri not in end and (begun or left > 0):
                end[uri] = min(reached, begun + max(left, 0))
                left -= end[uri] - begun
        return end

    def partitions(self, start: FileOffsets, end: FileOffsets) -> list[InputPartition]:
        ranges: list[Range] = []
        lost: list[Unreadable] = []
        listed = {one.uri: (store, one) for store, one in self._list()}
        for uri, reached in end.items():
            begun = max(start.get(uri, 0), 0)
            if reached == begun or reached == start.get(uri):
                continue
            store, one = listed.get(
                uri, (None, Unreadable(uri, "the file was deleted after it was listed"))
            )
            if isinstance(one, Unreadable):
                lost.append(one)
            elif store is not None:
                ranges += _between(
                    cut(one, self.options.split_bytes, store),
                    begun if begun < reached else 0,
                    reached,
                )
        return pieces(ranges, lost, self.options.split_bytes) if ranges or lost else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        return self.shape(read_piece(partition, self.options))

    def commit(self, end: FileOffsets) -> None:
        """Do nothing: Spark's checkpoint holds all state."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""

    def _list(self) -> Iterator[tuple[Store, SegmentInfo | Unreadable]]:
        for uri in self.paths:
            store, path = Store.of(uri)
            for one in store.list_segments(path, self.options.topics):
                yield store, one

    def _reach(self, start: Mapping[str, int]) -> FileOffsets:
        """Return how far each file can be read now; a partition's files in order, newest last."""
        listed = list(self._list())
        # segments of a folder come in order
        newest = {
            folder_and_name(one.uri)[0]: one.uri
            for _, one in listed
            if isinstance(one, SegmentInfo)
        }
        found: FileOffsets = {}
        for store, one in listed:
            if isinstance(one, Unreadable):
                found[one.uri] = NOT_LISTED
            elif store.grows and newest[folder_and_name(one.uri)[0]] == one.uri:
                begun = max(start.get(one.uri, 0), 0)
                found[one.uri] = settled(
                    store, one, begun if one.size >= begun else 0, self.options
                )
            else:
                found[one.uri] = one.size
        return found


def settled(store: Store, segment: SegmentInfo, start: int, options: Options) -> int:
    """Return the end of the last valid batch of a file that may be growing, else ``start``."""
    end = start
    try:
        path = Store.of(segment.uri)[1]
        with store.open(path, accept_claims_header=options.accept_claims_header) as file:
            for piece in file.stretches(start, segment.size):
                if isinstance(piece, Stretch):
                    columns = piece.columns
                    proven = np.flatnonzero(columns["is_valid"])
                    if len(proven):
                        last = int(proven[-1])
                        end = piece.position + int(
                            columns["position"][last] + columns["size_in_bytes"][last]
                        )
    except OSError:
        return end  # the next micro-batch asks again
    return end


def _between(ranges: list[Range], start: int, end: int) -> Iterator[Range]:
    for one in ranges:
        low, high = max(one.start, start), min(one.end, end)
        if low < high:
            yield one._replace(start=low, end=high)
