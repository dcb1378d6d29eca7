"""The pages for maintainers name the files that are there; every native module is fuzzed, and fuzzed
under the sanitizers too.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.support.sources import PACKAGE, ROOT
from tools import site_files

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = [ARCHITECTURE, *sorted((ROOT / "docs" / "architecture").glob("*.md"))]
#: pages that name paths, from the root or below the package
NAMING = [
    *PAGES,
    *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "RELEASING", "SECURITY")),
    ROOT / "docs" / "versioning.md",
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
]
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")


def test_every_file_says_what_it_holds() -> None:
    """Make the lists of files of the site: each file has one row, with a sentence."""
    rows = [
        (f"{folder}{name}", text)
        for page in site_files.PAGES.values()
        for folder, found in site_files.sections(page)
        for name, text in found
    ]
    names = [name for name, _ in rows]
    modules = [path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py*")]
    wanted = {
        name for name in modules if name.endswith((".py", ".pyx")) and (ROOT / name).stat().st_size
    }
    assert len(names) == len(set(names))
    assert wanted <= set(names)
    assert [name for name, text in rows if not text] == []
    assert site_files.missing() == set()


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


HOSTILE = ROOT / "tests" / "evidence" / "hostile"
COVERED: dict[str, tuple[str, ...]] = runpy.run_path(str(HOSTILE / "covered.py"))["COVERED"]
NATIVE = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "batchval").rglob("*.pyx")
}


def test_every_native_module_has_a_target() -> None:
    named = {module for modules in COVERED.values() for module in modules}
    assert named == NATIVE


def test_the_sanitizers_run_every_target() -> None:
    assert set(runpy.run_path(str(HOSTILE / "sanitizers.py"))["TARGETS"]) == set(COVERED)
