"""An enumerator has the same C type with every compiler.

In an enum that has a number of more than 31 bits, GCC before 13 gives the others the type int; GCC
13 and Clang 20 give all the type of the enum, which is unsigned. A comparison of a negative number
with such an enumerator then has another answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchval.core.records.record_errors import KINDS
from tests.support.sources import PACKAGE, files

_ENUM = re.compile(r"^( *)(?:cdef|cpdef) enum\b.*:.*\n((?:\1 .*\n|\n)+)", re.MULTILINE)
_NUMBER = re.compile(r"^ +(\w+) *= *([^#\n]+)", re.MULTILINE)
_PLAIN = re.compile(r"[\d\s()+*|<xA-Fa-f-]+")


def _enums(text: str) -> Iterator[dict[str, int]]:
    """Yield the enumerators of each enum. Sums of other names are small, and left out."""
    for found in _ENUM.finditer(text):
        numbers = ((name, value.strip(" ,")) for name, value in _NUMBER.findall(found[2]))
        yield {name: eval(value, {}) for name, value in numbers if _PLAIN.fullmatch(value)}


def _mixed(numbers: dict[str, int]) -> bool:
    return len({-(1 << 31) <= number < 1 << 31 for number in numbers.values()}) > 1


def test_the_pattern_sees_enums() -> None:
    text = "cdef enum:  # two\n    A = 1 << 3  # of them\n\n    B = 0x80000000\n\ncdef int c = 5\n"
    (found,) = _enums(text)
    assert found == {"A": 8, "B": 1 << 31}
    assert _mixed(found)
    layout = (PACKAGE / "core" / "format" / "layout.pxd").read_text("utf-8")
    assert {"MAX_OFFSET": (1 << 63) - 1} in _enums(layout)


SOURCES = files(PACKAGE, ".pxd", ".pyx")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_large_numbers_have_an_enum_of_their_own(path: Path) -> None:
    mixed = [list(numbers) for numbers in _enums(path.read_text("utf-8")) if _mixed(numbers)]
    assert mixed == [], "put the numbers of more than 31 bits into an enum of their own"


def test_kinds_of_record_errors_are_those_of_the_core() -> None:
    text = (PACKAGE / "core" / "records" / "compiled_rules.pxd").read_text("utf-8")
    block = text.partition("cdef enum:  # RecordError.kind")[2].partition("\n\n")[0]
    names = [line.split()[0] for line in block.splitlines()[1:]]
    assert [name.partition("=")[0] for name in names] == list(KINDS)
