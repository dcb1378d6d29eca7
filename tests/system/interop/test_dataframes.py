"""Columns in pandas, polars and DuckDB, by Arrow's PyCapsule interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from batchval.core.batches.arrow import binary_views
from batchval.core.batches.columns import BatchColumns, scan_batches
from batchval.core.batches.validator import LogValidator
from tests.support.batches import CODECS, batch, message, records

DATA = b"".join(
    [
        batch(records(3)),
        batch(attributes=64, base_timestamp=5, base_offset=5),
        batch(crc=1, base_offset=6),
        message(0, offset=7),
        *(batch(attributes=codec, base_offset=8 + codec) for codec in (5, 6, 7)),
        *(batch(codec=codec, base_offset=20 + codec) for codec in CODECS.values()),
    ]
)

KINDS: dict[str, Callable[[bytes], BatchColumns]] = {
    "scanned": scan_batches,
    "checked": LogValidator(profile="log").check_batches,
}


def selected(sql: str, columns: BatchColumns) -> pa.Table:
    """Ask DuckDB about ``columns``. It is imported here, because it reports leaks at the end of a
    process in which a test module still refers to it.
    """
    import duckdb

    assert len(columns) >= 0  # DuckDB finds the local variable by its name
    return duckdb.sql(sql).to_arrow_table()


CONSUMERS: dict[str, Any] = {
    "polars": lambda c: pl.DataFrame(c).to_dicts(),
    "duckdb": lambda c: selected("from columns", c).to_pylist(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_the_rows_are_those_of_pyarrow(consumer: str, kind: str) -> None:
    for data in (DATA, b""):
        columns = KINDS[kind](data)
        assert CONSUMERS[consumer](columns) == pa.table(columns).to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_pandas(kind: str) -> None:
    columns = KINDS[kind](DATA)
    without = [row.delete_horizon_ms is None for row in columns]
    for frame in (columns.to_pandas(), pd.DataFrame.from_arrow(columns)):
        assert list(frame.columns) == list(columns.names)
        assert frame["compression_type"].tolist() == [str(row.compression_type) for row in columns]
        assert frame["base_offset"].tolist() == columns["base_offset"].tolist()
        assert frame["delete_horizon_ms"].isna().tolist() == without
    assert list(pd.DataFrame(columns).columns) == list(columns[0]._fields)
    assert len(KINDS[kind](b"").to_pandas()) == 0


def test_sql_over_columns() -> None:
    columns = LogValidator(profile="log").check_batches(DATA)
    found = selected(
        "select base_offset, rule from columns where rule is not null order by 1", columns
    )
    assert found["rule"].to_pylist() == [row.rule for row in columns if row.rule is not None]
    assert {"base_offset": 6, "rule": "14"} in found.to_pylist()


def test_a_frame_outlives_the_columns() -> None:
    columns = scan_batches(DATA)
    expected = columns["crc"].tolist()
    frame = pl.DataFrame(columns)
    del columns
    assert frame["crc"].to_list() == expected


def test_polars_reads_views() -> None:
    data = b"key, and a value that is longer than its view"
    column = binary_views(data, [0, 5, 0, 0], [3, len(data) - 5, -1, 0])
    assert pl.Series(column).to_list() == [b"key", data[5:], None, b""]
