"""Text of ``batchval dump``: words that can be searched, or lines of 80 columns for a terminal.

position=0 size_in_bytes=96 magic=2 …         a batch, all fields
| offset=0 timestamp=… key=… value=…          one of its records

 position            offsets  records     bytes  codec   max timestamp (UTC)
        0               0-99      100     1,096  lz4     2026-11-21 12:00:00
          producer 2005 epoch 1 sequence 0-99, transactional
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["HEADER", "compact_lines", "plain_lines"]

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.+-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INDENT = " " * 14
_OFFSETS = 17  # columns
HEADER = f"{'position':>12}  {'offsets':>{_OFFSETS}}  {'records':>7}  {'bytes':>9}  {'codec':<6}  max timestamp (UTC)"


def plain_lines(row: dict[str, Any]) -> Iterator[str]:
    """Yield a line for a batch or a damaged place, and one for each record, as NAME=VALUE words."""
    records = row.get("records") or []
    yield " ".join(f"{name}={_word(value)}" for name, value in row.items() if name != "records")
    for record in records:
        yield "| " + " ".join(f"{name}={_word(value)}" for name, value in record.items())


def compact_lines(row: dict[str, Any], width: int) -> Iterator[str]:
    """Yield a line for a batch or a damaged place, one for unusual header fields, and one for each
    record.

    Records are cut at ``width`` columns.
    """
    if "damage" in row:
        yield f"{row['position']:>12}  {row['size_in_bytes']:,} damaged bytes"
        yield from _wrapped(row["reason"], width)
        return
    count = "?" if row["records_count"] < 0 else f"{row['records_count']:,}"
    codec, size = f"{row['compression_type']}", f"{row['size_in_bytes']:,}"
    yield (
        f"{row['position']:>12}  {_offsets(row):>{_OFFSETS}}  {count:>7}  {size:>9}  {codec:<6}  "
        f"{_time(row['max_timestamp'])}"
    )
    if notes := ", ".join(_notes(row)):
        yield from _wrapped(notes, width)
    for record in row.get("records") or []:
        line = f"{_INDENT}{record['offset']}  {_shown(record)}"
        yield line if len(line) <= width else line[: width - 1] + "…"


def _offsets(row: dict[str, Any]) -> str:
    """Return ``first-last``, or ``first+delta`` where that is too long for its column."""
    first, last = row["base_offset"], row["last_offset"]
    text = f"{first}" if first == last else f"{first}-{last}"
    return text if len(text) <= _OFFSETS else f"{first}+{last - first}"


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(width, 40), initial_indent=_INDENT, subsequent_indent=_INDENT)


def _notes(row: dict[str, Any]) -> Iterator[str]:
    """Yield the unusual header fields."""
    if row["magic"] != 2:
        yield f"magic {row['magic']}"
    if row["producer_id"] >= 0:
        sequence = f"{row['base_sequence']}"
        if row["last_sequence"] != row["base_sequence"]:
            sequence += f"-{row['last_sequence']}"
        yield f"producer {row['producer_id']} epoch {row['producer_epoch']} sequence {sequence}"
    names = {"is_transactional": "transactional", "is_control_batch": "control"}
    yield from (word for name, word in names.items() if row[name])
    if row["timestamp_type"] == "LogAppendTime":
        yield "LogAppendTime"
    if not row["is_valid"]:
        yield "wrong checksum"
    if row.get("rule") is not None:
        yield f"{row['rule']} {row['slug']}: {row['reason']}"
    if "records_error" in row:
        yield f"records cannot be read: {row['records_error']}"


def _shown(record: dict[str, Any]) -> str:
    if "control_type" in record:
        return f"{record['control_type']}"
    headers = f" headers={_word(record['headers'])}" if record["headers"] else ""
    return f"{_time(record['timestamp'])}  key={_word(record['key'])} value={_word(record['value'])}{headers}"


def _time(milliseconds: int) -> str:
    """Return a time in UTC, ``-`` for -1, and the number itself where no calendar has it."""
    if milliseconds == -1:
        return "-"
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{milliseconds}"


def _word(value: Any) -> str:
    """Return plain text without blanks, or JSON without control characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
