"""tools/style.py: long lines of files."""

from __future__ import annotations

import pytest

from tools import style as tool

STYLE = tool.Style.read()


def found(name: str, source: str) -> list[str]:
    return list(tool.check_lines(STYLE, name, source))


@pytest.mark.parametrize("name", ["a.pyx", "a.md", "A.java", "a.h"])
def test_a_hundred_columns(name: str) -> None:
    line = ("word " * 40)[:99] + "x"
    assert found(name, line + "\n") == []
    assert found(name, f"\n{line}x\n") == [f"{name}:2: 101 columns: at most 100"]


def test_lines_that_cannot_be_broken_pass() -> None:
    assert found("a.md", "| a | " + "b " * 80 + "|\n") == []
    assert found("a.py", "# https://kafka.apache.org/" + "x" * 100 + "\n") == []
    assert found("a.md", "- https://kafka.apache.org/" + "x" * 100 + "\n") == []
    assert found("a.py", "# " + "x " * 60 + " style: allow(columns)\n") == []
