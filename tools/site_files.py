"""Write the site's lists of the package's files: a row a file, the first sentence of its docstring.

    python -m tools.site_files [WORD]    print the rows, or those that have a word

A .pyx file stands for its .pxd and .pyi. The text of C is its first comment, that of a template its
first ``{# … #}``. Nothing is imported. Folders stand in the order of their contract in
``[tool.importlinter]``, highest first, those without one by name.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.pages.text import table

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES: Final = frozenset((".py", ".pyx", ".pxd", ".c", ".h", ".j2"))
_COMMENT: Final = {
    ".c": re.compile(r"\s*/\*(.*?)\*/", re.DOTALL),
    ".h": re.compile(r"\s*/\*(.*?)\*/", re.DOTALL),
    ".j2": re.compile(r"\s*\{#-?(.*?)-?#\}", re.DOTALL),
}
_HOW = (
    "A `.pyx` file comes with its `.pxd` (what other native code may use) and `.pyi` (types). "
    "Part of [ARCHITECTURE.md](../../ARCHITECTURE.md)."
)
_DOCSTRING = re.compile(r'(?:#[^\n]*\n|\s)*r?"""(.*?)"""', re.DOTALL)


class Page(NamedTuple):
    """A page: its title, what it is about, and its packages. An empty name: the top folder."""

    title: str
    about: str
    packages: tuple[str, ...]


#: {page: its content}: which page has which package, in the order of the page
PAGES: Final = {
    "core": Page(
        "core",
        "The validator, its codecs, the wire protocol, and what all parts share.",
        ("", "core", "compression", "ledger", "protocol"),
    ),
    "gate": Page(
        "gate",
        "The proxy and what only it uses.",
        ("proxy", "schema_registry", "yaml_settings"),
    ),
    "clients": Page(
        "clients",
        "Network client, producer, consumer, and the perf tools on them.",
        ("network", "producer", "fetch", "perf"),
    ),
    "logs": Page(
        "logs and command line",
        "Segments at rest, audits, Spark, reports, and the commands.",
        ("segment", "audit", "spark", "report", "cli"),
    ),
}


def sentence(path: Path) -> str:
    """Return the first sentence of a file, without its full stop. Raises ValueError: it has none.

    An empty file has an empty one.
    """
    text = path.read_text("utf-8")
    found = _COMMENT.get(path.suffix, _DOCSTRING).match(text)
    if not text.strip():
        return ""
    if found is None:
        raise ValueError(f"{path} begins with no docstring or comment that says what it holds")
    lines = (re.sub(r"^\s*\*\s?", "", line) for line in found[1].strip().splitlines())
    paragraph = " ".join("\n".join(lines).split("\n\n")[0].split())
    return re.split(r"(?<=[.?!])\s", paragraph)[0].removesuffix(".")


def prose(text: str) -> str:
    """Return a docstring as Markdown: lines that begin with a name in backticks become a list."""
    lines: list[str] = []
    within = False
    for line in text.splitlines():
        item = re.match(r"\s*((?:``[^`]+``(?:, )?)+)\s{2,}(.*)", line)
        if item:
            if lines and lines[-1] and not within:
                lines.append("")
            lines.append(f"* {item[1]}: {item[2]}")
        elif within and line.startswith("  "):
            lines.append(f"  {line.strip()}")
        elif within and line:
            lines += ["", line]
        else:
            lines.append(line)
        within = bool(item) or (within and line.startswith("  "))
    return re.sub(r"<(?=\w)", "&lt;", re.sub(r"``", "`", "\n".join(lines)))


def files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that have a row. C that Cython has written is not one."""
    for path in sorted(folder.iterdir()):
        source = path.with_suffix(".pyx")
        if path.suffix in SUFFIXES and (path == source or not source.exists()):
            yield path


def order(root: Path) -> dict[str, int]:
    """Return the place of each folder that a contract of layers names, as ``proxy/session``."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    places: dict[str, int] = {}
    for contract in settings["tool"]["importlinter"]["contracts"]:
        for container in contract.get("containers", ()):
            names = "|".join(contract["layers"]).split("|")
            for place, name in enumerate(names):
                below = [*container.split(".")[1:], name.strip(" ()")]
                places["/".join(below)] = place
    return places


def folders(package: Path, places: dict[str, int]) -> Iterator[Path]:
    """Yield a package's folder and all folders below it that have files."""
    if any(files(package)):
        yield package
    top = ROOT / "batchval"
    inner = {
        place: places.get(place.relative_to(top).as_posix(), 0) for place in package.glob("*/")
    }
    for folder in sorted(inner, key=lambda one: (inner[one], one.name)):
        yield from folders(folder, places)


def sections(page: Page) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield (folder, its rows) of a page. A row is a file's name and its sentence."""
    top, places = ROOT / "batchval", order(ROOT)
    for package in page.packages:
        for folder in folders(top / package, places) if package else [top]:
            rows = [(path.name, sentence(path)) for path in files(folder)]
            yield f"{folder.relative_to(ROOT).as_posix()}/", [row for row in rows if row[1]]


def missing() -> set[str]:
    """Return the packages that no page has."""
    there = {path.parent.name for path in (ROOT / "batchval").glob("*/__init__.py")}
    return there - {package for page in PAGES.values() for package in page.packages}


def markdown(page: Page) -> str:
    """Return the Markdown of one page."""
    text = f"# Files: {page.title}\n\n{page.about} {_HOW}\n"
    for folder, rows in sections(page):
        cells = [(f"`{name}`", prose(what).replace("|", r"\|")) for name, what in rows]
        text += f"\n## `{folder}`\n\n{table(['file', 'holds'], cells)}\n"
    return text


def pages() -> dict[str, str]:
    """Return {path below docs/: Markdown} of all lists. Raises ValueError: a package has no page."""
    if lost := missing():
        raise ValueError(f"PAGES in tools/site_files.py lacks {', '.join(sorted(lost))}")
    return {f"architecture/files-{name}.md": markdown(page) for name, page in PAGES.items()}


def main(words: list[str]) -> int:
    """Print the rows."""
    for page in PAGES.values():
        for folder, rows in sections(page):
            for name, text in rows:
                line = f"{folder}{name}: {text}"
                if all(word.lower() in line.lower() for word in words):
                    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
