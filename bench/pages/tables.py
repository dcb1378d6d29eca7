"""Tables that the pages of validation and claims share: ratios of two times, times of all peers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.pages.text import micro, number, percent, table

Rows = list[dict[str, Any]]
Times = dict[str, dict[str, Any]]


def of_groups(rows: Rows, *groups: str) -> Rows:
    """Return the rows of these groups, in the order of the rows."""
    return [row for row in rows if row["group"] in groups]


def ratios(rows: Rows, ours: str, other: str) -> str:
    """Return a table of two times in microseconds and their ratio; nothing without rows."""
    if not rows:
        return ""
    headings = ("", f"{ours}, µs", f"{other}, µs", "ratio", "ratio of medians", "spread", "")
    return table(
        headings,
        (
            (
                row["name"],
                micro(row["ours_ns"]),
                micro(row["peer_ns"]),
                f"{number(row['value'])}×",
                f"{number(row['median_value'])}×" if row["median_value"] is not None else "",
                percent(row["spread"]),
                row["note"],
            )
            for row in rows
        ),
    )


def allocator(rows: Rows) -> str:
    """Return a sentence about rows that count allocator calls; nothing without rows."""
    if not rows:
        return ""
    most = max(row["value"] for row in rows)
    return f"Allocator calls per batch, besides those of the result: at most {most:g} ({len(rows)} cells)."


def cell_name(cell: str) -> str:
    """Return v2-lz4-100-1000 as people write it."""
    _, codec, records, size = cell.split("-")
    return f"{codec} {records} × {size} B"


def peers(times: Times, columns: Sequence[tuple[str, str]], cells: Iterable[str]) -> str:
    """Return microseconds of each peer for each cell; nothing where no cell was measured.

    In brackets: allocator calls per batch where they were counted, for Kafka bytes.
    """
    here = [cell for cell in cells if any(what in times.get(cell, {}) for what, _ in columns)]
    if not here:
        return ""
    rows = (
        [cell_name(cell), *(_peer(times[cell].get(what)) for what, _ in columns)] for cell in here
    )
    return table(["", *(label for _, label in columns)], rows)


def _peer(time: dict[str, Any] | None) -> str:
    if time is None:
        return ""
    if "allocations" in time:
        return f"{number(time['us'])} ({time['allocations']:g})"
    return number(time["us"]) + (f" ({time['bytes']:,.0f} B)" if time.get("bytes") else "")
