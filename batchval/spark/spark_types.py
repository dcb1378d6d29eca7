"""Rows in Spark's form: its types for their columns, and Arrow batches in exactly the columns
that a schema names.

Spark compares the Arrow schema of what a reader yields with the one it expects, types and all, and
never says which columns a query uses. So the schema that the user gives with ``.schema(…)`` is the
projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from batchval.audit.arrow_rows import ROW_SCHEMA, row_schema
from batchval.errors import BatchvalError
from batchval.segment.options import Options

__all__ = ["Shape", "row_type"]

#: rows that go to the JVM at once: each Arrow batch costs both sides about as much as a thousand
#: rows
TOGETHER: Final = 16_384


def row_type(columns: tuple[str, ...] = ("all",)) -> StructType:
    """Return the columns of rows in Spark's types."""
    return from_arrow_schema(row_schema(columns))


class Shape:
    """A conversion of rows into the columns of ``schema``, some of those of ``rows`` in any order.

    Small to pickle. Raises BatchvalError for a column that rows lack or have in another type.
    """

    def __init__(self, schema: StructType, rows: pa.Schema = ROW_SCHEMA) -> None:
        whole = {field.name: field.dataType for field in from_arrow_schema(rows)}
        seen: set[str] = set()
        for field in schema:
            if field.name in seen:
                raise BatchvalError(f"the schema names column {field.name!r} twice")
            seen.add(field.name)
            there = whole.get(field.name)
            if there is None:
                raise BatchvalError(
                    f"rows have no column {field.name!r}: they have {', '.join(whole)}"
                )
            if there != field.dataType:
                raise BatchvalError(
                    f"column {field.name} is a {there.simpleString()}, not a {field.dataType.simpleString()}"
                )
        if not len(schema):
            raise BatchvalError("the schema names no column")
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def options(self, options: Options) -> Options:
        """Return the options with this schema's columns."""
        return replace(options, columns=tuple(self.schema.names))

    def __call__(self, blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same rows, some thousands together."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for block in blocks:
            if block.num_rows:
                waiting.append(self._narrow(block))
                rows += block.num_rows
            if rows >= TOGETHER:
                yield _joined(waiting)
                waiting, rows = [], 0
        if waiting:
            yield _joined(waiting)

    def _narrow(self, block: pa.RecordBatch) -> pa.RecordBatch:
        # Spark's timestamps are in microseconds
        columns = [block.column(field.name).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _joined(blocks: list[pa.RecordBatch]) -> pa.RecordBatch:
    return blocks[0] if len(blocks) == 1 else pa.concat_batches(blocks)
