"""Magic 0 and 1: the path that unpacks a wrapper and reads every field of every message, by LogValidator's own door.

The records are those of the magic 2 cells; magic 0 knows no timestamps, and neither knows zstd.
"""

from __future__ import annotations

from collections.abc import Callable

import cells
import pytest

CASES = [pytest.param(cell, id=cell.name) for cell in cells.legacy_cells()]


@pytest.mark.parametrize("cell", CASES)
def test_magic_0_and_1(measure: Callable[[str, cells.Cell], None], cell: cells.Cell) -> None:
    measure("validate_messages", cell)
