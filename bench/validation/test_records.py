"""Records in Python: as objects like aiokafka's, and as columns, next to the batch's check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cells
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from batchval import LogValidator, RecordBatch, record_columns

CELLS = [cells.Cell(2, codec, 100, size) for codec in cells.CODECS for size in cells.VALUE_SIZES]
VALIDATOR = LogValidator()
NOW = 1_700_000_000_000


def read_all(records: Any) -> int:
    """Read what a consumer reads of each record. Return the sum of the values' lengths."""
    total = 0
    for record in records:
        record.offset, record.timestamp, record.key  # noqa: B018
        total += len(record.value)
    return total


READERS: dict[str, Callable[[bytes], Any]] = {
    "records()": lambda data: read_all(RecordBatch(data)),
    "aiokafka": lambda data: read_all(DefaultRecordBatch(data)),
    "record_columns": lambda data: int(record_columns(data)["value_length"].sum()),
    "rule over columns": lambda data: bool((record_columns(data)["key_length"] < 0).any()),
    "rule over records()": lambda data: any(record.key is None for record in RecordBatch(data)),
    "check": lambda data: VALIDATOR.check(data, now_ms=NOW),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_records(benchmark: Any, folder: Path, cell: cells.Cell, reader: str) -> None:
    data = cell.path(folder).read_bytes()
    benchmark.group = f"records, {cell.codec}, {cell.records} x {cell.value_size} B"
    benchmark.extra_info.update({"operation": reader, "codec": cell.codec, "value_size": cell.value_size})
    answer = benchmark(READERS[reader], data)
    assert reader not in ("records()", "record_columns") or answer == READERS["aiokafka"](data)
