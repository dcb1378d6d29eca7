"""Magic 1: the path that unpacks a wrapper and reads every field of every message, by LogValidator's own door."""

from __future__ import annotations

from collections.abc import Callable

import cells
import pytest

CASES = [pytest.param(cell, id=cell.name) for cell in cells.cells(1)]


@pytest.mark.parametrize("cell", CASES)
def test_magic_1(measure: Callable[[str, cells.Cell], None], cell: cells.Cell) -> None:
    measure("validate_messages", cell)
