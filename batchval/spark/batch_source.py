"""``spark.read.format("kafka-segments")``: one row a batch of the segments below a folder, straight
from Arrow.

The unit of work is a range of bytes of one segment. The driver lists and cuts (``partitions``, once
for each DataFrame: load again to see new segments), workers read. What cannot be read is a row with
a reason, never a failed job.

No ``pushFilters`` here, ever: in Spark 4.3 the filter that one query pushes stays with the
DataFrame, and the next one gets wrong rows in silence (tests/system/spark/test_guards.py notices
when that is repaired). Options and ``.schema(…)`` narrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from batchval.audit.audit_run import list_work
from batchval.segment.options import Options
from batchval.segment.store import Unreadable
from batchval.spark.finding_rows import KafkaFindings
from batchval.spark.live import KafkaBatches
from batchval.spark.options import SEGMENT_OPTIONS, known, paths, row_options
from batchval.spark.refusal import sentences, stream_or_refusal
from batchval.spark.spark_types import Shape, row_type
from batchval.spark.stream import stream_reader
from batchval.spark.tasks import Piece, pieces, read_piece
from batchval.spark.udf import register_sql

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["KafkaSegments", "register"]


class KafkaSegments(DataSource):
    """The format ``kafka-segments``, in batches and streams. Options: docs/guide/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "kafka-segments"

    def schema(self) -> StructType:
        with sentences():
            return row_type(row_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        with sentences():
            known(self.options, SEGMENT_OPTIONS, self.name())
            shape = Shape(schema)
            return SegmentsReader(
                paths(self.options), shape.options(row_options(self.options)), shape
            )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return stream_or_refusal(lambda: stream_reader(self.options, schema))


class SegmentsReader(DataSourceReader):
    """A reader that lists and cuts on the driver and reads on workers."""

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
    """Register the formats and the SQL function in a session, also in one of Spark Connect."""
    for source in (KafkaSegments, KafkaFindings, KafkaBatches):
        spark.dataSource.register(source)
    register_sql(spark)
