"""Reads what Kafka's perf tools print, by Kafka's own formats; anything else is an error."""

from __future__ import annotations

import re
from typing import Any

FRACTION, WHOLE = r"(\d+\.\d{4})", r"(-?\d+)"
#: %s, %s, %.4f, %.4f, %d, %.4f, %d, %d, %.4f, %.4f
ROW = re.compile(
    ", ".join(
        [
            r"([^,]+)",
            r"([^,]+)",
            FRACTION,
            FRACTION,
            r"(\d+)",
            FRACTION,
            r"(\d+)",
            WHOLE,
            FRACTION,
            FRACTION,
        ]
    )
)
TYPES = (str, str, float, float, int, float, int, int, float, float)


def parse_consumer(text: str) -> list[dict[str, Any]]:
    """The rows below a header, by its words. Warnings and what --print-metrics adds are passed
    over.
    """
    header: list[str] | None = None
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        if line.startswith(("start.time, ", "time, ")):
            header = line.split(", ")
            assert len(header) == len(TYPES), line
        elif line.startswith(("Warning: ", "WARNING: ")) or not line.strip():
            continue
        elif line.startswith("Metrics for thread "):
            break
        else:
            match = ROW.fullmatch(line)
            assert match is not None, f"no row of Kafka's: {line!r}"
            assert header is not None, f"a row before its header: {line!r}"
            row = {
                name: kind(value)
                for name, kind, value in zip(header, TYPES, match.groups(), strict=True)
            }
            if "threadId" in row:
                row["threadId"] = int(row["threadId"])
            rows.append(row)
    return rows
