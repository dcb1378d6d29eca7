"""Records as Python objects and as columns, and rules over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from batchval import RecordBatch, record_columns
from bench.validation import cells

CELLS = [cells.Cell(2, codec, 100, size) for codec in cells.CODECS for size in cells.VALUE_SIZES]


def read_all(records: Any) -> int:
    """Read what a consumer reads of each record. Return the sum of the values' lengths."""
    total = 0
    for record in records:
        record.offset, record.timestamp, record.key  # noqa: B018
        total += len(record.value)
    return total


READERS: dict[str, Callable[[bytes], Any]] = {
    "records()": lambda data: read_all(RecordBatch(data)),
    "record_columns": lambda data: int(record_columns(data)["value_length"].sum()),
    "aiokafka": lambda data: read_all(DefaultRecordBatch(data)),
    "kafka-python": lambda data: read_all(KafkaPythonBatch(data)),
}
RULES: dict[str, Callable[[bytes], bool]] = {
    "record_columns": lambda data: bool((record_columns(data)["key_length"] < 0).any()),
    "records()": lambda data: any(record.key is None for record in RecordBatch(data)),
}


def info(reader: str, cell: cells.Cell) -> dict[str, Any]:
    """Return the extra_info of a row."""
    return {"operation": reader, "cell": cell.name, "batches_a_call": 1}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_read(benchmark: Any, folder: Path, cell: cells.Cell, reader: str) -> None:
    data = cell.path(folder).read_bytes()
    benchmark.group = f"lengths of all values, {cell.codec}, {cell.records} × {cell.value_size} B"
    benchmark.extra_info.update(info(reader, cell))
    assert benchmark(READERS[reader], data) == READERS["records()"](data)


@pytest.mark.parametrize("reader", RULES)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_rule(benchmark: Any, folder: Path, cell: cells.Cell, reader: str) -> None:
    data = cell.path(folder).read_bytes()
    benchmark.group = f"any null key, {cell.codec}, {cell.records} × {cell.value_size} B"
    benchmark.extra_info.update(info(reader, cell))
    assert benchmark(RULES[reader], data) is RULES["records()"](data)
