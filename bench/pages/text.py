"""Markdown for the pages: paragraphs, tables, numbers, and where a result was measured."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

COLUMNS = 100


def paragraph(*sentences: str) -> str:
    """Return sentences as one wrapped paragraph."""
    text = " ".join(sentence for sentence in sentences if sentence)
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. A column after the first is left out if it is empty in every row."""
    kept = [list(row) for row in rows]
    used = [i for i in range(len(headings)) if i == 0 or any(row[i] for row in kept)]
    lines = [
        [headings[i] for i in used],
        ["---"] * len(used),
        *([row[i] for i in used] for row in kept),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(*parts: str) -> str:
    """Return the parts with an empty line between them."""
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def number(value: float | None) -> str:
    """Return a number with three or so significant digits; an empty string for None."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1:
        return f"{value:.3f}"
    return f"{value:.2f}" if size < 20 else f"{value:,.0f}"


def micro(nanoseconds: float | None) -> str:
    """Return nanoseconds as microseconds."""
    return "" if nanoseconds is None else number(nanoseconds / 1e3)


def percent(share: float | None) -> str:
    """Return a share as a percentage; an empty string for none."""
    return f"{share:.0%}" if share else ""


def date_of(result: dict[str, Any]) -> str:
    """Return the day a result was measured, YYYY-MM-DD."""
    return str(result.get("date") or result["machine"]["date"])[:10]


def processor_of(result: dict[str, Any]) -> str:
    """Return processor and cores."""
    return str(result["machine"]["processor"]).replace("(R)", "").replace(" Processor", "")


def machine_of(result: dict[str, Any]) -> str:
    """Return processor, cores and system."""
    return f"{processor_of(result)}, {result['machine']['system']}"


def measured(result: dict[str, Any], versions: str = "") -> str:
    """Return a sentence: the day, the commit, the machine and the versions of a result."""
    machine = result["machine"]
    using = f"CPython {machine['python']}" + (f", {versions}" if versions else "")
    when = f"Measured on {date_of(result)} at commit `{machine['commit']}`"
    return f"{when}, on {machine_of(result)}, with {using}."


def versions_of(result: dict[str, Any]) -> str:
    """Return the versions of a result's programs; an empty string without them."""
    return ", ".join(f"{name} {version}" for name, version in result.get("versions", {}).items())


def load_of(loads: Sequence[float]) -> str:
    """Return a sentence about the load average before and after, or at the end alone."""
    if len(loads) == 2:
        return f"Load average: {loads[0]:.1f} before, {loads[1]:.1f} after."
    return f"Load average at the end: {loads[0]:.1f}."


def how(anchor: str) -> str:
    """Return a sentence with a link to the method."""
    return f"How it was measured: [method](method-details.md#{anchor})."
