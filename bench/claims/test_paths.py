"""The same records four ways, each codec and size: by their claims, unpacked and walked, uncompressed, as magic 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cells
import pytest

CASES = []
for shape in [cell for cell in cells.cells(2) if cell.codec != "none"]:
    ways = {
        "claims in a tag": ("claims", shape),
        "claims in a header": ("claims_header", shape),
        "shallow": ("check", shape),
        "full uncompressed": ("check", replace(shape, codec="none")),
    }
    if shape.codec != "zstd":  # magic 1 knows none
        ways["full of magic 1"] = ("validate_messages", replace(shape, magic=1))
    group = f"{shape.codec}, {shape.records} × {shape.value_size} B"
    for way, (operation, cell) in ways.items():
        name = f"{shape.codec}-{shape.records}-{shape.value_size}-{way.replace(' ', '-')}"
        CASES.append(pytest.param(way, operation, cell, group, id=name))


@pytest.mark.parametrize(("way", "operation", "cell", "group"), CASES)
def test_path(
    measure: Callable[[str, str, cells.Cell, str], None], way: str, operation: str, cell: cells.Cell, group: str
) -> None:
    # claims paths are named by their carrier, the path itself is their first word
    measure(way, operation, cell, group)
