"""The tables of docs/guide/old-clients.md: old clients against Kafka 4.4, directly and through the
gate.

The result holds client -> operation -> route -> whether it worked and a few words. A cell of the
table has one mark for each route, ``?`` for one that was not taken. What failed is a numbered note
below the tables.
"""

from __future__ import annotations

from typing import Any

from bench.pages.text import date_of, paragraph, table

__all__ = ["GROUPS", "ROUTES", "SOURCE", "render"]

SOURCE = "old-clients"
#: route -> how the summary names it, in the order of the marks
ROUTES = {"3.9": "Kafka 3.9", "direct": "Kafka 4.4", "gate": "Kafka 4.4 through the gate"}
#: title of a table -> its operations
GROUPS = {
    "Produce": ("none", "gzip", "snappy", "lz4", "acks=1", "acks=0"),
    "Consume": ("own", "headers", "zstd", "transactions"),
    "Groups, offsets, administration": ("group", "offsets", "commit", "admin"),
    "Authentication": ("PLAIN", "SCRAM-SHA-256"),
}

Outcomes = dict[str, tuple[bool, str]]
Clients = dict[str, dict[str, Outcomes]]


def render(result: dict[str, Any]) -> str:
    """Return the tables and their notes."""
    clients: Clients = result["clients"]
    opening = paragraph(
        f"{date_of(result)}, latest run at commit {result['machine']['commit']};",
        f"brokers {result['versions']}.",
        f"Operations that work: {_summary(clients)}.",
    )
    parts, notes = [opening], dict[str, int]()
    for title, operations in GROUPS.items():
        rows = [
            [name, *(_cell(known.get(operation, {}), notes) for operation in operations)]
            for name, known in clients.items()
            if any(operation in known for operation in operations)
        ]
        if rows:
            parts += [f"### {title}", table(("client", *operations), rows)]
    if notes:
        numbered = [[str(number), text] for text, number in notes.items()]
        parts += ["### Notes", table(("note", "what came of it"), numbered)]
    return "\n\n".join(parts) + "\n"


def _summary(clients: Clients) -> str:
    counts = []
    for route, title in ROUTES.items():
        found = [
            known[route][0] for one in clients.values() for known in one.values() if route in known
        ]
        if found:
            counts.append(f"{title} {sum(found)} of {len(found)}")
    return ", ".join(counts)


def _cell(outcomes: Outcomes, notes: dict[str, int]) -> str:
    marks = []
    for route in ROUTES:
        is_ok, text = outcomes.get(route, (True, ""))
        mark = "ok" if is_ok else f"no ({notes.setdefault(_escaped(text), len(notes) + 1)})"
        marks.append(mark if route in outcomes else "?")
    return " / ".join(marks) if outcomes else ""


def _escaped(text: str) -> str:
    """Return the text of a client as Markdown shows it."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|" else letter for letter in text)
