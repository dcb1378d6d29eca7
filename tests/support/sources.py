"""Reads what Python and Cython files import, as text: no linter looks into .pyx and .pxd files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "batchval"

_FROM = re.compile(r"^\s*from\s+([.\w]+)\s+(c?)import\s+\(?(.*)")
_IMPORT = re.compile(r"^\s*(c?)import\s+(.*)")
_EXTERN = re.compile(r"^\s*cdef\s+extern\s+from\s+[\"<]*([^\">]+)")
_STRINGS = re.compile(r'("""|\'\'\').*?\1', re.DOTALL)


class Import(NamedTuple):
    """One module (or a name inside it) that a line of a file asks for."""

    line: int
    module: str
    name: str  # empty for a plain import
    native: bool  # a cimport

    @property
    def whole(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


def _blank(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments and docstrings; lines within brackets or after a backslash
    joined.
    """
    text = _STRINGS.sub(_blank, text)
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].rstrip()
        start = start or number
        joined += line.removesuffix("\\") + " "
        if line.endswith("\\") or joined.count("(") > joined.count(")"):
            continue
        yield start, joined
        joined, start = "", 0
    if joined:
        yield start, joined


def _names(text: str) -> Iterator[str]:
    for part in text.strip(" ()").split(","):
        name = part.split(" as ")[0].strip(" ()")
        if name:
            yield name


def imports(path: Path, package: Path = PACKAGE) -> Iterator[Import]:
    """Yield every import and cimport of a file; relative ones are made absolute."""
    folder = [package.name, *path.relative_to(package).parts[:-1]]
    for number, line in _logical_lines(path.read_text("utf-8")):
        for statement in line.split(";"):
            if found := _FROM.match(statement):
                module, native, names = found.groups()
                dots = len(module) - len(module.lstrip("."))
                if dots:
                    module = ".".join(
                        [*folder[: len(folder) - dots + 1], *filter(None, [module.lstrip(".")])]
                    )
                for name in _names(names):
                    yield Import(number, module, name, bool(native))
            elif found := _IMPORT.match(statement):
                for name in _names(found.group(2)):
                    yield Import(number, name, "", bool(found.group(1)))


def externs(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the headers from which a .pyx or .pxd takes C declarations."""
    for number, line in _logical_lines(path.read_text("utf-8")):
        if found := _EXTERN.match(line):
            yield number, found.group(1).strip(" :")


def files(package: Path, *suffixes: str) -> list[Path]:
    return sorted(p for p in package.rglob("*") if p.suffix in suffixes)
