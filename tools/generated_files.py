"""Write the files of a generator, or check with ``--check`` that they are up to date."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def stale(files: Mapping[Path, str]) -> list[Path]:
    """Return the files that do not have the text that would be written."""
    return [
        path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text
    ]


def run(files: Mapping[Path, str]) -> int:
    """Write the files that changed, so that no others are compiled again. Return the exit code."""
    found = stale(files)
    names = ", ".join(str(path.relative_to(ROOT)) for path in found)
    if "--check" in sys.argv[1:]:
        if found:
            print(f"not up to date: {names}. Run this without --check", file=sys.stderr)
        return int(bool(found))
    for path in found:
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[path], "utf-8")
    print(f"written: {names}" if found else "all files are up to date")
    return 0
