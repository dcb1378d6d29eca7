"""``validate_batches(column)``: batches that lie in a column, such as values that a pipeline has
kept, validated in Arrow.

A value is any number of batches back to back, validated as a segment is; the answer is an array
with a struct for each, the columns of ``kafka-segments`` without those that only a file has,
``position`` within the value. Bytes that are not a batch give such a struct too (``magic`` is
null). An empty value has an empty array, a null one null.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from batchval.audit.arrow_rows import ROW_SCHEMA, damaged_rows, row_schema, to_rows
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, shown_value
from batchval.segment.options import Options, validator_of
from batchval.segment.reader import Damage, InMemory, SegmentReader
from batchval.segment.topic_rules import is_json, rules_of
from batchval.spark.options import CHECK_OPTIONS, RECORD_RULES, known, row_options
from batchval.spark.refusal import sentences
from batchval.spark.spark_types import row_type
from batchval.spark.tasks import NOWHERE

__all__ = ["register_sql", "validate_batches", "verdict_type"]

#: the function of SQL passes its options to this one as JSON
_SQL_WORKER: Final = "batchval_validate_batches"
_OF_A_FILE: Final = ("cluster", "broker", "file", "topic", "partition", "segment")
_COLUMNS: Final = tuple(name for name in ROW_SCHEMA.names if name not in _OF_A_FILE)


def verdict_type() -> StructType:
    """Return the type of a verdict on one batch."""
    return row_type(_COLUMNS)


def validate_batches(column: Column | str, **options: str | bool | int) -> Column:
    """Validate the batches in each value of a binary column. Returns an array of ``verdict_type``.

    ``options``: ``deep="true"`` (or ``True``), ``mode="kafka"``, ``kafkaVersion="3.9"``,
    ``acceptClaimsHeader="true"``, ``maxDecompressedBytes``, ``trustClaims``, ``seed``,
    ``recordRules``; as those of ``kafka-segments``. Values have no topic: they have the record
    rules of ``*``. Raises BatchvalError for a wrong option.
    """
    passed = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    known(passed, CHECK_OPTIONS, "validate_batches")
    checked = _checked_options(passed)

    def validate(values: pa.Array) -> pa.Array:
        with sentences():
            return verdicts_of(values, checked)

    # the annotations have its kind: Spark warns about an explicit one, and its stubs require one
    kind = ArrayType(verdict_type())
    run: Callable[[Column], Column] = arrow_udf(validate, kind)  # type: ignore[call-overload]
    value = F.col(column) if isinstance(column, str) else column
    return run(_binary(value)).alias("validate_batches")


def _checked_options(passed: Mapping[str, str]) -> Options:
    """Return the options. Raises BatchvalError, also for record rules of topics alone."""
    options = row_options(passed)
    if options.record_rules and rules_of(options.record_rules, NOWHERE.topic) is None:
        raise BatchvalError(
            f"option {RECORD_RULES} needs the pattern '*': values of validate_batches have no topic"
        )
    return options


def _binary(column: Column) -> Column:
    """Return the column; Spark's analysis refuses one that is not of binary type.

    Spark does not know which types a Python function takes. It does know them of bitmap_count,
    which is in the plan until the optimizer sees that it is never called.
    """
    named = column.alias("the argument of validate_batches")
    return F.when(F.lit(False) & (F.bitmap_count(named) > 0), F.lit(None)).otherwise(column)


def register_sql(spark: SparkSession) -> None:
    """Register ``validate_batches(value, deep => true, ...)`` for the SQL of a session.

    Names of options and the type of the value are checked by Spark's analysis, which casts text to
    its UTF-8 bytes as for all functions that take binary values.
    """

    def validate(values: pa.Array, options: pa.Array) -> pa.Array:
        with sentences():
            return verdicts_of(values, _options_of(options))

    kind = ArrayType(verdict_type())
    spark.udf.register(_SQL_WORKER, arrow_udf(validate, kind))  # type: ignore[call-overload]
    parameters = ", ".join(f"{name} STRING DEFAULT NULL" for name in CHECK_OPTIONS)
    fields = ", ".join(f"'{name}', {name}" for name in CHECK_OPTIONS)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY FUNCTION validate_batches(value BINARY, {parameters}) "
        f"RETURNS {kind.simpleString()} "
        f"RETURN {_SQL_WORKER}(value, to_json(named_struct({fields})))"
    )


def _options_of(texts: pa.Array) -> Options:
    """Return the options of a JSON object for each row: the same for all of them."""
    different = texts.unique().to_pylist()
    if len(different) > 1:
        raise BatchvalError(
            "options of validate_batches must be literals: they cannot differ between rows"
        )
    passed = json.loads(different[0] if different else "{}")
    rules = passed.get(RECORD_RULES)
    if rules is not None and not is_json(rules):
        # this is a worker, which may be on another machine
        raise BatchvalError(
            f"option {RECORD_RULES} is {shown_value(rules)}: SQL takes a JSON object, not a file"
        )
    return _checked_options(passed)


def verdicts_of(values: pa.Array, options: Options) -> pa.Array:
    """Return one array of verdicts per value. Values that hold only complete batches are validated
    in one call.

    BatchvalError for a column that is not of bytes: text is none, whatever lies in its buffers.
    """
    if pa.types.is_null(values.type):
        values = values.cast(pa.binary())
    if values.type not in (pa.binary(), pa.large_binary()):
        raise BatchvalError(f"validate_batches takes a binary column, not one of {values.type}")
    options = replace(options, columns=_COLUMNS)
    validator = validator_of(options)
    null = values.is_null() if values.null_count else None
    if null is not None:
        values = values.fill_null(b"")
    ends = _ends(values)
    data = values.buffers()[2]
    whole = memoryview(data)[int(ends[0]) : int(ends[-1])] if data is not None else memoryview(b"")
    starts = ends - ends[0]
    columns = validator.check_batches(whole, deep=options.deep, trust_claims=options.sample)
    begun = starts[:-1][starts[:-1] < starts[1:]]  # of values that are not empty
    if columns.end == len(whole) and np.isin(begun, columns["position"]).all():
        rows = [to_rows(columns, NOWHERE, 0, options)]
        counts = np.diff(np.searchsorted(columns["position"], starts))
        base = np.repeat(starts[:-1], counts)
    else:  # bytes outside of batches, or a size that leads into the next value: each value alone
        each = [
            _rows_of(whole[start:end], validator, options)
            for start, end in pairwise(starts.tolist())
        ]
        rows = [one for of_value in each for one in of_value]
        counts = np.array([sum(one.num_rows for one in of_value) for of_value in each], "<i8")
        base = np.zeros(int(counts.sum()), "<i8")
    return _lists(rows, counts, base, null)


def _ends(values: pa.Array) -> NDArray[np.int64]:
    """Return where values begin in their buffer, and where the last one ends."""
    width = "<i4" if values.type == pa.binary() else "<i8"
    offsets = values.buffers()[1]
    if offsets is None or not len(values):
        return np.zeros(len(values) + 1, "<i8")
    return np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1].astype(
        "<i8"
    )


def _lists(
    rows: list[pa.RecordBatch],
    counts: NDArray[np.int64],
    base: NDArray[np.int64],
    null: pa.Array | None,
) -> pa.Array:
    """Return rows as lists: ``counts`` rows for each value, positions from ``base`` on."""
    joined = (
        pa.concat_batches(rows)
        if rows
        else pa.RecordBatch.from_pylist([], schema=row_schema(_COLUMNS))
    )
    kind = (
        to_arrow_schema(
            StructType([StructField("verdicts", ArrayType(verdict_type()))]), timezone="UTC"
        )
        .field(0)
        .type
    )
    columns = [joined.column(field.name).cast(field.type) for field in kind.value_type]
    at = kind.value_type.get_field_index("position")
    columns[at] = pa.array(np.asarray(columns[at]) - base)
    structs = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, structs, type=kind, mask=null)


def _rows_of(data: memoryview, validator: LogValidator, options: Options) -> list[pa.RecordBatch]:
    """Return rows as of a segment file that holds these bytes."""
    found = []
    with SegmentReader(InMemory(data), accept_claims_header=options.accept_claims_header) as file:
        scan = functools.partial(
            validator.check_batches, deep=options.deep, trust_claims=options.sample
        )
        for part in file.stretches(scan=scan, reuse=True):
            if isinstance(part, Damage):
                found.append(damaged_rows(NOWHERE, [part], file.size, options))
            else:
                found.append(to_rows(part.columns, NOWHERE, part.position, options))
    return found
