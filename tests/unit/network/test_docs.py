"""docs/reference/library/network.md names tests that exist, and every point of the checklist has
one.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_point_is_in_the_page_with_its_tests() -> None:
    page = (HERE.parents[2] / "docs" / "reference" / "library" / "network.md").read_text("utf-8")
    tests = set(re.findall(r"def (test_\d\d_\w+)", (HERE / "test_checklist.py").read_text("utf-8")))
    assert set(re.findall(r"`(test_\d\d_\w+)`", page)) == tests
    assert {test[5:7] for test in tests} == {f"{n:02}" for n in range(1, 21)}
