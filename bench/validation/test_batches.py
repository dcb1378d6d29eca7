"""batchval and other libraries on the same bytes, in groups of the same work.

    header and CRC         the header of a batch and its checksum
    CRC and all records    batchval validates; a client makes an object of each record
    CRC-32C                the checksum alone

Compressed batches are decompressed where records are read. Batches of magic 0 and 1 have the
records of those of magic 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.validation import cells

if TYPE_CHECKING:
    from bench.conftest import Measure

CLIENTS = ("aiokafka", "kafka-python")
HEADER = [("batchval", "scan_batches"), *((client, "header") for client in CLIENTS)]
RECORDS = [
    *(("batchval", name) for name in ("check", "check_ranges", "validate_in_place")),
    *((client, "records") for client in CLIENTS),
]
VALIDATE = [("batchval", "validate_messages")]
LEGACY = [*VALIDATE, *((client, "records") for client in CLIENTS)]
CRC_SIZES = {"16 kB": 16 << 10, "1 MiB": 1 << 20}


def cases(operations: list[tuple[str, str]], found: list[cells.Cell]) -> list[object]:
    """Return a parameter for each operation and each cell."""
    return [
        pytest.param(peer, operation, cell, id=f"{peer}-{operation}-{cell.name}")
        for cell in found
        for peer, operation in operations
    ]


def legacy_cases() -> list[object]:
    """Return the parameters of magic 0 and 1. The clients do not read lz4 of magic 0."""
    found = cells.legacy_cells()
    unread = [cell for cell in found if (cell.magic, cell.codec) == (0, "lz4")]
    return cases(LEGACY, [cell for cell in found if cell not in unread]) + cases(VALIDATE, unread)


def shape_of(cell: cells.Cell) -> str:
    """Return codec, records and size of a value, as groups are named."""
    return f"{cell.codec}, {cell.records} × {cell.value_size} B"


@pytest.mark.parametrize(("peer", "operation", "cell"), cases(HEADER, cells.cells(2)))
def test_header(
    measure: Measure, folder: Path, peer: str, operation: str, cell: cells.Cell
) -> None:
    group = f"header and CRC, {shape_of(cell)}"
    assert measure(group, peer, operation, cell.path(folder), cell=cell) is not None


@pytest.mark.parametrize(("peer", "operation", "cell"), cases(RECORDS, cells.cells(2)))
def test_records(
    measure: Measure, folder: Path, peer: str, operation: str, cell: cells.Cell
) -> None:
    group = f"CRC and all records, {shape_of(cell)}"
    assert measure(group, peer, operation, cell.path(folder), cell=cell) is not None


@pytest.mark.parametrize(("peer", "operation", "cell"), legacy_cases())
def test_legacy(
    measure: Measure, folder: Path, peer: str, operation: str, cell: cells.Cell
) -> None:
    group = f"CRC and all records, magic {cell.magic}, {shape_of(cell)}"
    assert measure(group, peer, operation, cell.path(folder), cell=cell) is not None


@pytest.mark.parametrize("peer", ["batchval", "crc32c", "google-crc32c"])
@pytest.mark.parametrize("size", CRC_SIZES)
def test_crc32c(measure: Measure, tmp_path: Path, peer: str, size: str) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(i % 251 for i in range(CRC_SIZES[size])))
    assert measure(f"CRC-32C, {size}", peer, "crc32c", path, size=CRC_SIZES[size]) > 0
