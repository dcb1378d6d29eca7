"""A bench's section of the README: what is between <!-- NAME:start --> and <!-- NAME:end -->."""

from __future__ import annotations

import re

import cells

README = cells.ROOT / "README.md"


def check(name: str) -> re.Pattern[str]:
    """The section's pattern; SystemExit where the README has no such section."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    marks = re.compile(f"({start}\n).*?({end})", re.DOTALL)
    if not marks.search(README.read_text()):
        raise SystemExit(f"README.md has no {start} … {end}")
    return marks


def put(name: str, text: str) -> None:
    marks = check(name)
    README.write_text(marks.sub(lambda found: found[1] + text + found[2], README.read_text()))
