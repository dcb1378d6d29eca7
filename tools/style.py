"""Check the columns of the project's files and the subjects of its commits.

    python tools/style.py

Every file that git knows or would add is checked. The limits and the exceptions are data:
tools/style.toml. A line that cannot be shorter ends with ``# style: allow(columns)``. Long lines
are findings where a folder has more of them than ``[long_lines]`` allows.

Exit codes: 0, or 1 with findings.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(__file__).with_name("style.toml")


@dataclass(frozen=True)
class Style:
    """The data of tools/style.toml."""

    subjects_since: str
    columns: int
    subject: int
    suffixes: tuple[str, ...]
    skipped: tuple[str, ...]
    long_lines: dict[str, int]

    @classmethod
    def read(cls, path: Path = DATA) -> Style:
        """Return the limits of a file. Raises TypeError where one is missing or unknown."""
        data = tomllib.loads(path.read_text("utf-8"))
        return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in data.items()})

    def covers(self, name: str) -> bool:
        """Return whether a file is checked."""
        skipped = any(fnmatch.fnmatch(name, glob) for glob in self.skipped)
        return name.endswith(self.suffixes) and not skipped


def _is_long(name: str, line: str, columns: int) -> bool:
    """Return whether a line is too long and can be broken.

    A row of a table cannot, nor can a URL, path or string without a space.
    """
    is_row = name.endswith(".md") and line.lstrip().startswith("|")
    if len(line) <= columns or is_row or "style: allow(columns)" in line:
        return False
    return " " in re.sub(r"^\s*(?:#|//|[-*])?\s*", "", line[:columns])


def check_lines(style: Style, name: str, source: str) -> Iterator[str]:
    """Yield a finding for each long line of a file."""
    for number, line in enumerate(source.split("\n"), 1):
        if _is_long(name, line, style.columns):
            yield f"{name}:{number}: {len(line)} columns: at most {style.columns}"


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints: nothing if it fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout.decode("utf-8", "replace")


def files(style: Style, root: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, source) of each checked file that git knows or would add."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in sorted(filter(style.covers, set(listed.split("\0")))):
        try:
            yield name, (root / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # deleted, a submodule, a broken link


def check_subjects(style: Style, root: Path) -> Iterator[str]:
    """Yield the findings of the commits since ``subjects_since``.

    A shallow clone, where that commit is missing, has only its last commit checked.
    """
    log = ("log", "--no-merges", "--format=%h %s")
    since = _git(root, *log, f"{style.subjects_since}..HEAD")
    known = _git(root, "cat-file", "-t", style.subjects_since)
    for line in (since if known else _git(root, *log, "-1")).splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) > style.subject:
            what = f"a subject of {len(subject)} characters: at most {style.subject}: {subject}"
            yield f"{commit}: {what}"


def check(style: Style, root: Path) -> Iterator[str]:
    """Yield the findings of all files and commits."""
    long: defaultdict[str, list[str]] = defaultdict(list)
    for name, source in files(style, root):
        long[name.partition("/")[0]] += check_lines(style, name, source)
    for folder, found in long.items():
        if len(found) > (most := style.long_lines.get(folder, 0)):
            yield from found
            yield f"{folder}: {len(found)} long lines: at most {most} in tools/style.toml"
    yield from check_subjects(style, root)


def main() -> int:
    """Run the command."""
    found = list(check(Style.read(), ROOT))
    print(*found, f"style: {len(found)} findings", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
