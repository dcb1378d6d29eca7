"""Magic 2: headers and CRCs alone, checks, and the in-place append; compressed batches are unpacked to be walked."""

from __future__ import annotations

from collections.abc import Callable

import cells
import pytest

OPERATIONS = ("scan_batches", "check", "check_ranges", "validate_in_place")
CASES = [
    pytest.param(operation, cell, id=f"{operation}-{cell.name}") for operation in OPERATIONS for cell in cells.cells(2)
]


@pytest.mark.parametrize(("operation", "cell"), CASES)
def test_magic_2(measure: Callable[[str, cells.Cell], None], operation: str, cell: cells.Cell) -> None:
    measure(operation, cell)
