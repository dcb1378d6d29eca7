"""Input of a task of a Spark source: pieces, made on the driver and read on workers."""

from __future__ import annotations

import functools
import gc
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from batchval.audit.arrow_rows import read_range, unreadable_row
from batchval.errors import BatchvalError
from batchval.segment.options import Options
from batchval.segment.ranges import Range, Task, pack
from batchval.segment.store import SegmentInfo, Unreadable, one_line

__all__ = ["NOWHERE", "Piece", "pieces", "placeless", "read_piece", "settle"]

#: where no file is known
NOWHERE: Final = SegmentInfo(uri="", topic="", partition=-1, base_offset=-1, size=0, mtime_ns=0)
_WHICH: Final = ("topic", "partition", "segment")


@dataclass
class Piece(InputPartition):
    """The input of one task: ranges, and files that could not be listed. Small to pickle."""

    ranges: Task = ()
    unreadable: tuple[Unreadable, ...] = ()


def pieces(
    ranges: Iterable[Range], unreadable: Iterable[Unreadable], split_bytes: int
) -> list[InputPartition]:
    """Return ranges in tasks (``pack``), and what the listing could not read in one more."""
    found: list[InputPartition] = [Piece(task) for task in pack(ranges, split_bytes)]
    if lost := tuple(unreadable):
        found.append(Piece(unreadable=lost))
    return found or [Piece()]


def read_piece(piece: Piece, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task. A storage error is a row, and the other ranges are read."""
    for lost in piece.unreadable:
        yield placeless(unreadable_row(NOWHERE, f"{lost.uri}: {lost.reason}", options), _WHICH)
    for one in piece.ranges:
        try:
            yield from read_range(one, options)
        except (OSError, pa.ArrowException, BatchvalError, MemoryError) as error:
            yield unreadable_row(one.segment, one_line(error), options)
    settle()


@functools.cache
def settle() -> None:
    """Exclude the worker's modules from the garbage collector's rounds. Called at the end of each
    task, done once per worker.

    A worker collects after each task, which looks through all that Spark, pyarrow, pandas and numpy
    have made (80,000 objects, 50 ms of CPU: what validating 100 MB costs).
    """
    gc.freeze()


def placeless(rows: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
    """Return the rows with null in the columns that are unknown."""
    arrays = [
        pa.nulls(rows.num_rows, field.type) if field.name in columns else rows.column(field.name)
        for field in rows.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)
