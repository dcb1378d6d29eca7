"""``spark.read.format("kafka-segments")``: one row a batch of the segments below a folder, straight from Arrow.

The unit of work is a range of bytes of one segment. The driver lists and cuts (``partitions``, once for each DataFrame:
load again to see new segments), workers read. What cannot be read is a row with a reason, never a failed job.

No ``pushFilters`` here, ever: in Spark 4.3 the filter that one query pushes stays with the DataFrame, and the next one
gets wrong rows in silence (tests/spark/test_guards.py notices when that is mended). Options and ``.schema(…)`` narrow.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from batchval.audit.rows import Options, read_range, unreadable_row
from batchval.audit.run import list_work
from batchval.audit.segments import Range, SegmentInfo, Unreadable
from batchval.audit.store import one_line
from batchval.errors import BatchvalError
from batchval.spark.options import SEGMENT_OPTIONS, known, paths, row_options
from batchval.spark.refusal import sentences, stream_or_refusal
from batchval.spark.schema import Shape, row_type

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["KafkaSegments", "Piece", "pieces", "placeless", "read_piece", "register", "settle"]

#: Small files share a task, for a task costs some 50 ms however small it is: a file counts as at least this many bytes,
OPENING: Final = 64 << 10
#: ... and a task takes as much as makes this many tasks of all,
TASKS: Final = 64
#: ... but at least so much.
LEAST: Final = 4 << 20


_NOWHERE: Final = SegmentInfo(uri="", topic="", partition=-1, base_offset=-1, size=0, mtime_ns=0)
_WHICH: Final = ("topic", "partition", "segment")


@dataclass
class Piece(InputPartition):
    """What one task reads: ranges, and what the listing could not read. Small to pickle."""

    ranges: tuple[Range, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def pieces(ranges: Iterable[Range], unreadable: Iterable[Unreadable], split_bytes: int) -> list[InputPartition]:
    """Ranges in tasks, the largest first; small ones together."""
    weighed = sorted(((max(one.end - one.start, OPENING), one) for one in ranges), key=lambda pair: -pair[0])
    enough = min(split_bytes, max(LEAST, sum(weight for weight, _ in weighed) // TASKS))
    found: list[InputPartition] = []
    held: list[Range] = []
    holding = 0
    for weight, one in weighed:
        if held and holding + weight > enough:
            found.append(Piece(tuple(held)))
            held, holding = [], 0
        held.append(one)
        holding += weight
    if held:
        found.append(Piece(tuple(held)))
    if lost := tuple(unreadable):
        found.append(Piece(unreadable=lost))
    return found or [Piece()]


def read_piece(piece: Piece, options: Options) -> Iterator[pa.RecordBatch]:
    """The rows of a task. What storage refuses is a row, and the other ranges are read."""
    for lost in piece.unreadable:
        yield placeless(unreadable_row(_NOWHERE, f"{lost.uri}: {lost.reason}", options), _WHICH)
    for one in piece.ranges:
        try:
            for block in read_range(one, options):
                yield block.rows
        except (OSError, pa.ArrowException, BatchvalError, MemoryError) as error:
            yield unreadable_row(one.segment, one_line(error), options)
    settle()


@functools.cache
def settle() -> None:
    """Called at the end of a task, done once a worker: its modules are left out of the garbage collector's rounds.

    A worker collects after each task, which looks through all that Spark, pyarrow, pandas and numpy have made (80,000
    objects, 50 ms of CPU: what judging 100 MB costs).
    """
    gc.freeze()


def placeless(rows: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
    """The rows without what is not known of them: these columns are null."""
    arrays = [
        pa.nulls(rows.num_rows, field.type) if field.name in columns else rows.column(field.name)
        for field in rows.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


class KafkaSegments(DataSource):
    """The format ``kafka-segments``, in batches and streams. Options: docs/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "kafka-segments"

    def schema(self) -> StructType:
        return row_type()

    def reader(self, schema: StructType) -> DataSourceReader:
        with sentences():
            known(self.options, SEGMENT_OPTIONS, self.name())
            return SegmentsReader(paths(self.options), row_options(self.options), Shape(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from batchval.spark.stream import stream_reader

        return stream_or_refusal(lambda: stream_reader(self.options, schema))


class SegmentsReader(DataSourceReader):
    """Lists and cuts on the driver, reads on workers."""

    def __init__(self, paths: tuple[str, ...], options: Options, shape: Shape) -> None:
        self.paths = paths
        self.options = options
        self.shape = shape

    def partitions(self) -> list[InputPartition]:
        with sentences():
            todo = list_work(self.paths, self.options)
        lost = [one for one in todo.listed if isinstance(one, Unreadable)]
        return pieces(todo.ranges, lost, self.options.split_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        return self.shape(read_piece(partition, self.options))


def register(spark: SparkSession) -> None:
    """Makes ``kafka-segments`` and ``kafka-batches`` known to a session, also to one of Spark Connect."""
    from batchval.spark.live import KafkaBatches

    spark.dataSource.register(KafkaSegments)
    spark.dataSource.register(KafkaBatches)
