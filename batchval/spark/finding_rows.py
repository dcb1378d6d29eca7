"""``spark.read.format("kafka-findings")``: the findings of an audit, as rows of its errors/ table.

The unit of work is a partition's folder. A task reads its segments and Kafka's other files there,
and joins them: what lies between batches, such as a lost one, is found. Small folders share a task.
A folder that a broker changes meanwhile is listed and read again in the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from batchval.audit.audit_run import list_work
from batchval.audit.outputs import ERRORS
from batchval.audit.reduce import reduce
from batchval.audit.task import work
from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.segment.partition import by_folder
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import OPENING, Range, together
from batchval.segment.segment_run import Work
from batchval.segment.store import SegmentInfo, Unreadable
from batchval.spark.options import FINDING_OPTIONS, known, paths, row_options
from batchval.spark.refusal import sentences, stream_or_refusal
from batchval.spark.spark_types import Shape
from batchval.spark.tasks import settle

__all__ = ["FINDINGS", "KafkaFindings"]

#: what a finding has from one audit to the next
_OF_AUDITS: Final = ("state", "first_seen")
#: The columns of errors/ that one reading of the segments fills.
FINDINGS: Final = pa.schema([one for one in ERRORS if one.name not in _OF_AUDITS])

Listed = Sequence[SegmentInfo | Unreadable]


@dataclass
class Folders(InputPartition):
    """The input of one task: the listings of whole folders. Small to pickle."""

    listed: tuple[Listed, ...] = ()


class KafkaFindings(DataSource):
    """The format ``kafka-findings``, in batches. Options: docs/guide/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "kafka-findings"

    def schema(self) -> StructType:
        """Return FINDINGS in Spark's types."""
        return from_arrow_schema(FINDINGS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader. Raises BatchvalError for a wrong option or column."""
        with sentences():
            known(self.options, FINDING_OPTIONS, self.name())
            shape = Shape(schema, FINDINGS)
            return FindingsReader(paths(self.options), row_options(self.options), shape)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Refuse to stream: a finding belongs to a whole partition, not to the new bytes."""

        def refuse() -> DataSourceStreamReader:
            raise BatchvalError(
                "kafka-findings is not a stream: use spark.read, once for each audit"
            )

        return stream_or_refusal(refuse)


class FindingsReader(DataSourceReader):
    """A reader that lists on the driver, and reads and joins on workers."""

    def __init__(self, paths: tuple[str, ...], options: Options, shape: Shape) -> None:
        self.paths = paths
        self.options = options
        self.shape = shape

    def partitions(self) -> list[InputPartition]:
        """Return the folders in tasks, the largest first."""
        with sentences():
            listed = by_folder(list_work(self.paths, self.options).listed).values()
        weighed = [(sum(_weight(one) for one in folder), folder) for folder in listed]
        tasks = together(weighed, self.options.split_bytes)
        return [Folders(tuple(folders)) for folders in tasks] or [Folders()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the findings of a task's folders."""
        assert isinstance(partition, Folders)
        return self.shape(self._found(partition))

    def _found(self, folders: Folders) -> Iterator[pa.RecordBatch]:
        for listed in folders.listed:
            table = _audited(Work(list(listed), paths=self.paths), self.options)
            yield from table.select(FINDINGS.names).to_batches()
        settle()


def _weight(one: SegmentInfo | Unreadable) -> int:
    return max(one.size, OPENING) if isinstance(one, SegmentInfo) else OPENING


def _audited(todo: Work, options: Options) -> pa.Table:
    """Return the errors/ table of an audit of these segments, one range each."""

    def engine(ranges: Iterable[Range]) -> Iterator[RangeResult]:
        return iter(work(tuple(ranges), options, None))

    segments = (one for one in todo.listed if isinstance(one, SegmentInfo))
    results = engine(Range(one, 0, one.size) for one in segments)
    return reduce(todo, results, options, engine).tables["errors"]
