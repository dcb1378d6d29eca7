"""The tables of the READMEs in broker/: what Kafka's LogValidator and producer take with an agent."""

from __future__ import annotations

from typing import Any

from bench.pages.text import measured, number, paragraph, table

#: a README in broker/ -> the result that it shows
SOURCES = {
    "README.md": "broker-validator",
    "producer-agent/README.md": "producer-cost",
}


def _ratio(row: dict[str, Any], name: str) -> str:
    """Return the ratio over stock with its interval."""
    values = (row[f"{name} ratio"], *row[f"{name} interval"])
    digits = 2 if values[0] > 0.2 else 4
    middle, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{middle} ({low} to {high})"


def _table(result: dict[str, Any], unit: str, names: tuple[str, ...]) -> str:
    headings = ("codec", f"stock, {unit}", *names)
    return table(
        headings,
        (
            [row["codec"], number(row[f"stock {unit}"]), *(_ratio(row, name) for name in names)]
            for row in result["rows"]
        ),
    )


def render(source: str, result: dict[str, Any]) -> str:
    """Return the text between the marks of a README."""
    when = measured(result, f"Kafka {result['kafka']}")
    if source == "producer-cost":
        effort = f"Medians of {result['jvms']} JVMs of each kind, in turns, with 95 % intervals."
        rows = _table(result, "ns", ("again", "tag", "payload"))
    else:
        effort = f"Medians of {result['rounds']} rounds in turns, with 95 % intervals."
        rows = _table(result, "us", ("trust", "audit", "verify")).replace(" us |", " µs |", 1)
    return f"{rows}\n\n{paragraph(effort, when)}\n"
