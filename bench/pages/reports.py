"""The measured parts of docs/reports: sections between the marks of a page, the newest first.

A measurement has a title, a date, a machine with its commit, and tables whose cells are numbers,
texts or None. ``save`` is what the tools call that measure.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import bench.pages as place
from bench.pages import headline
from bench.pages.text import page, paragraph, processor_of, table

#: its commit stands outside of marks
SCORES = "conformance-scores.md"
COMMIT = re.compile(r"commit `?([0-9a-f]{7,40})")

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


def render(found: Measurement) -> str:
    """Return the section of a measurement."""
    parts = [f"### {found['title']}", paragraph(when(found), *found.get("about", ()))]
    parts += map(_table, found["tables"])
    return page(*parts, *(paragraph(note) for note in found.get("notes", ())))


def sections(text: str) -> dict[str, str]:
    """Return the measurements of a page, the newest first, by title."""
    found = headline.MARKS.search(text)
    parts = re.split(r"^### ", found[0] if found else "", flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: f"### {part.rstrip()}\n" for part in parts}


def rows(name: str) -> list[list[str]]:
    """Return the cells of every row of a report's tables."""
    text = (place.REPORTS / f"{name}.md").read_text("utf-8")
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


def commits() -> list[tuple[str, str]]:
    """Return the name of each measured page and the commits that its measurements name."""
    found = []
    for path in sorted(place.REPORTS.glob("*.md")):
        text = path.read_text("utf-8")
        for part in sections(text).values():
            found += [(path.name, commit) for commit in COMMIT.findall(part)[:1]]
        if path.name == SCORES:
            found += [(path.name, commit) for commit in COMMIT.findall(text)[:1]]
    return found


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
    """Write a measurement into its page, in place of the one of the same title."""
    path = place.REPORTS / f"{name}.md"
    text = path.read_text("utf-8")
    others = {
        title: part for title, part in sections(text).items() if title != measurement["title"]
    }
    path.write_text(
        headline.put(text, "\n" + page(render(measurement), *others.values()) + "\n"), "utf-8"
    )
