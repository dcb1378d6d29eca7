"""The measured parts of docs/reports: a JSON file next to each page, and text between its marks.

A file holds measurements, the newest first. Each has a date, a machine with its commit, and tables
whose cells are numbers, texts or null. ``save`` is what the tools call that measure.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bench.pages as place
from bench.pages import headline
from bench.pages.text import page, paragraph, processor_of, table

NAMES = ("coverage", "hostile-runs", "mutants")

Measurement = dict[str, Any]


def cell(value: float | str | None) -> str:
    """Return a cell: numbers with thousands apart, an empty string for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _with_total(rows: list[list[Any]]) -> list[list[Any]]:
    """Return the rows and their sums by column."""
    columns = list(zip(*rows, strict=True))[1:]
    sums = [sum(filter(None, column)) for column in columns]
    return [*rows, ["**total**", *sums]]


def _with_share(rows: list[list[Any]]) -> list[list[Any]]:
    """Return rows of (name, all, missed) with the share that is not missed."""
    return [[*row, f"{100 - 100 * row[2] / row[1]:.1f} %"] for row in rows]


def _table(found: dict[str, Any]) -> str:
    rows = found["rows"]
    if found.get("total"):
        rows = _with_total(rows)
    if found.get("share"):
        rows = _with_share(rows)
    lines = table(found["headings"], [[cell(value) for value in row] for row in rows])
    return page(paragraph(*found.get("about", ())), lines)


def when(found: Measurement) -> str:
    """Return a sentence: date, commit, machine and versions, as far as they are known."""
    machine = found["machine"]
    known = [processor_of(found)] if "processor" in machine else []
    known += [machine["system"]] if "system" in machine else []
    known += [f"Python {machine['python']}"] if "python" in machine else []
    known += found.get("versions", [])
    return f"{', '.join([found['date'], 'commit `' + machine['commit'] + '`', *known])}."


def render(measurements: list[Measurement]) -> str:
    """Return the text between the marks of a report."""
    parts = []
    for found in measurements:
        opening = paragraph(when(found), *found.get("about", ()))
        parts += [f"### {found['title']}", opening, *map(_table, found["tables"])]
        parts += [paragraph(note) for note in found.get("notes", ())]
    return "\n" + page(*parts) + "\n"


def read(name: str) -> list[Measurement]:
    """Return the measurements of a report."""
    found: list[Measurement] = json.loads((place.REPORTS / f"{name}.json").read_text("utf-8"))
    return found


def documents() -> dict[Path, str]:
    """Return the text of each report."""
    pages = {name: place.REPORTS / f"{name}.md" for name in NAMES}
    return {
        path: headline.put(path.read_text("utf-8"), render(read(name)))
        for name, path in pages.items()
    }


def here() -> dict[str, Any]:
    """Return date and machine of a run that begins now. Raises SystemExit without a commit."""
    from bench import runs  # which imports bench.pages

    described = runs.describe()
    place.check_commit(described)
    kept = ("processor", "system", "python", "commit")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {name: described[name] for name in kept},
    }


def save(name: str, measurement: Measurement) -> None:
    """Add a measurement, in place of the one of the same title, and write the page."""
    others = [one for one in read(name) if one["title"] != measurement["title"]]
    text = json.dumps([measurement, *others], indent=1, ensure_ascii=False) + "\n"
    (place.REPORTS / f"{name}.json").write_text(text, "utf-8")
    page_of = place.REPORTS / f"{name}.md"
    page_of.write_text(documents()[page_of], "utf-8")
