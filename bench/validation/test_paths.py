"""The same records by all paths: claims, decompressed, uncompressed, as magic 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.validation import cells

if TYPE_CHECKING:
    from bench.conftest import Measure

CASES = []
for shape in [cell for cell in cells.cells(2) if cell.codec != "none"]:
    ways = {
        "claims in a tag": ("claims", shape),
        "claims in a header": ("claims_header", shape),
        "shallow": ("check", shape),
        "full uncompressed": ("check", replace(shape, codec="none")),
    }
    if shape.codec != "zstd":  # which magic 1 does not have
        ways["full of magic 1"] = ("validate_messages", replace(shape, magic=1))
    for way, (operation, batch) in ways.items():
        name = f"{shape.codec}-{shape.records}-{shape.value_size}-{way.replace(' ', '-')}"
        CASES.append(pytest.param(way, operation, shape, batch, id=name))


@pytest.mark.parametrize(("way", "operation", "cell", "batch"), CASES)
def test_path(
    measure: Measure, folder: Path, way: str, operation: str, cell: cells.Cell, batch: cells.Cell
) -> None:
    group = f"paths, {cell.codec}, {cell.records} × {cell.value_size} B"
    result = measure(group, "claims", operation, batch.path(folder), way=way, cell=batch)
    # a way that is named after a carrier of claims begins with the name of its path
    assert result.path == way.partition(" ")[0]
    assert result.records_count == cell.records
