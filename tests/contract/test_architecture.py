"""The pages for maintainers name the files that are there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.contract.sources import PACKAGE, ROOT

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = [ARCHITECTURE, *sorted((ROOT / "docs" / "architecture").glob("*.md"))]
#: what a list of files names: a .pyx stands for its .pxd and .pyi
SUFFIXES = {".py", ".pyx", ".pxd", ".c", ".h", ".j2"}
_FOLDER = re.compile(r"^## `batchval/([\w/]*)`$", re.MULTILINE)
_ROW = re.compile(r"^\| `([\w.*]+)` \| (.*) \|$", re.MULTILINE)
#: pages that name paths, from the root or below the package
NAMING = [
    *PAGES,
    *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "RELEASING", "SECURITY")),
    ROOT / "docs" / "versioning.md",
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
]
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")


def listed(pages: list[Path]) -> Counter[str]:
    """Return the files that the lists name, below the package; a star for all of a folder."""
    found: Counter[str] = Counter()
    for page in pages:
        folders = _FOLDER.split(page.read_text("utf-8"))[1:]
        for folder, text in zip(folders[::2], folders[1::2], strict=True):
            found.update(f"{folder}{name}" for name, what in _ROW.findall(text) if what.strip())
    return found


def files(package: Path) -> set[str]:
    """Return the files that a list has to name. C that Cython has written is not one."""
    found = set()
    for path in package.rglob("*"):
        source = path.with_suffix(".pyx")
        if path.suffix in SUFFIXES and (path == source or not source.exists()):
            found.add(path.relative_to(package).as_posix())
    return found


def unlike(pages: list[Path], package: Path) -> list[str]:
    """Return what the lists lack, what they have twice, and what is gone."""
    named, there = listed(pages), files(package)
    stars = {name.removesuffix("*.py") for name in named if name.endswith("/*.py")}
    covered = {name for name in there if name.rpartition("/")[0] + "/" in stars}
    gone = {name for name in named if not name.endswith("*.py")} - there
    return [
        *(f"missing: {name}" for name in sorted(there - covered - set(named))),
        *(f"gone: {name}" for name in sorted(gone)),
        *(f"twice: {name}" for name, count in named.items() if count > 1),
    ]


def test_every_file_has_a_line() -> None:
    assert unlike(PAGES, PACKAGE) == []


def test_a_missing_and_a_lost_file_are_found(tmp_path: Path) -> None:
    package, page = tmp_path / "batchval", tmp_path / "files.md"
    (package / "core").mkdir(parents=True)
    for name in ("core/a.pyx", "core/a.pxd", "core/a.c", "core/b.h", "core/new.py"):
        (package / name).write_text("")
    rows = [f"| `{name}` | x |" for name in ("a.pyx", "b.h", "old.py", "b.h")]
    page.write_text("\n".join(["## `batchval/core/`", *rows, ""]))
    assert unlike([page], package) == [
        "missing: core/new.py",
        "gone: core/old.py",
        "twice: core/b.h",
    ]


def test_the_files_to_read_first_exist() -> None:
    """Resolve the bare names of the table of packages: each is in one of its row's packages."""
    rows = re.findall(
        r"^\| (`.*`) \| .* \| (`.*`) \|$", ARCHITECTURE.read_text("utf-8"), re.MULTILINE
    )
    names = [[re.findall(r"`([\w.]+)`", cell) for cell in row] for row in rows]
    first = [row for row in names if row[0] and (PACKAGE / row[0][0]).is_dir()]
    assert len(first) > 10
    gone = [
        name
        for packages, files in first
        for name in files
        if not any(any((PACKAGE / package).rglob(name)) for package in packages)
    ]
    assert gone == []


@pytest.mark.parametrize("page", NAMING, ids=lambda page: page.name)
def test_paths_exist(page: Path) -> None:
    """Resolve paths from the root, or from the package in records and where the page states it."""
    text = page.read_text("utf-8")
    is_below = page.parent.name == "adr" or "Paths are below `batchval/`" in text
    roots = [ROOT, PACKAGE] if is_below else [ROOT]
    paths = [path for path in _PATH.findall(text) if not path.startswith(("build/", "dist/"))]
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []
