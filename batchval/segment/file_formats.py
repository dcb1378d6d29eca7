"""Files that are not what was expected, a segment or JSON, by their names and first bytes: Kafka's
files and common formats.
"""

from __future__ import annotations

import json
import struct
from pathlib import PurePath
from typing import Any

from batchval.segment.file_names import (
    CHECKPOINTS,
    LEADER_EPOCHS,
    META_PROPERTIES,
    PARTITION_METADATA,
)

__all__ = [
    "START_SIZE",
    "foreign_reason",
    "json_fault",
    "json_of_line",
    "not_json_reason",
]

START_SIZE = 64  # bytes of a file that the functions look at
_MIN_BATCH_SIZE = 14  # bytes after the size field: a record of magic 0

_SUFFIXES = {
    ".index": "an offset index of Kafka",
    ".timeindex": "a time index of Kafka",
    ".txnindex": "an index of aborted transactions of Kafka",
    ".snapshot": "a producer snapshot of Kafka",
    ".checkpoint": "a KRaft snapshot of Kafka",
    ".csv": "a CSV file",
    ".tar": "a tar archive",
}
_NAMES = {
    LEADER_EPOCHS: "a leader epoch checkpoint of Kafka",
    PARTITION_METADATA: "the partition.metadata of Kafka",
    META_PROPERTIES: "the meta.properties of Kafka",
    **dict.fromkeys(CHECKPOINTS, "an offset checkpoint of Kafka"),
}
_STARTS = {
    b"\x1f\x8b": "gzip data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"\x04\x22\x4d\x18": "lz4 data",
    b"\xfd7zXZ": "xz data",
    b"BZh": "bzip2 data",
    b"PK\x03\x04": "a ZIP or JAR file",
    b"PAR1": "a Parquet file",
    b"Obj\x01": "an Avro file",
    b"SQLite format 3": "an SQLite database",
    b"%PDF-": "a PDF document",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG": "a PNG image",
    b"\xff\xfe": "text in UTF-16",
    b"\x7fELF": "an ELF program",
    b"<!doctype html": "an HTML page",
    b"<!DOCTYPE html": "an HTML page",
}


def foreign_reason(file: PurePath, start: bytes) -> str | None:
    """Return why a file without record batches is not a segment, or None if its kind is unknown.

    ``start``: the first START_SIZE bytes of the file.
    """
    kind = _kind_of(file, start) or ("text" if _is_text(start) else None)
    if kind is None:
        return None
    return f"this is not a segment: the file holds no record batch; it looks like {kind}"


def not_json_reason(file: PurePath, start: bytes) -> str | None:
    """Return why a file does not hold JSON, or None if it starts as a text of an unknown kind.

    ``start``: the first START_SIZE bytes of the file.
    """
    if not start:
        return "the file is empty"
    kind = "a segment of Kafka" if _is_batch(start) else _kind_of(file, start)
    if kind is not None:
        return f"this is not JSON: it looks like {kind}"
    return None if _is_text(start) else "this is not JSON: the file is not text in UTF-8"


def json_fault(error: ValueError | RecursionError, *, with_line: bool = True) -> str:
    """Return what json.loads raised as a sentence, with the place of the fault.

    ``with_line``: False where the caller names the line.
    """
    if isinstance(error, json.JSONDecodeError):
        place = (
            f"line {error.lineno}, column {error.colno}" if with_line else f"column {error.colno}"
        )
        found = "more than one document" if error.msg == "Extra data" else "not JSON"
        return f"{found} ({place})"
    if isinstance(error, RecursionError):
        return "nested too deep to be read"
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8"
    return "a number has more than 4,300 digits"  # sys.get_int_max_str_digits()


def json_of_line(line: bytes) -> Any:
    """Return the document of a line. Raises ValueError with json_fault's sentence."""
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(json_fault(error, with_line=False)) from None


def _kind_of(file: PurePath, start: bytes) -> str | None:
    kind = _NAMES.get(file.name) or _SUFFIXES.get(file.suffix)
    return kind or next((kind for magic, kind in _STARTS.items() if start.startswith(magic)), None)


def _is_batch(start: bytes) -> bool:
    """Return whether bytes start as a record batch: offset, size and magic have possible values."""
    if len(start) < 17:
        return False
    offset, size = struct.unpack_from(">qi", start)
    return offset >= 0 and size >= _MIN_BATCH_SIZE and start[16] <= 2


def _is_text(start: bytes) -> bool:
    """Return whether bytes are UTF-8 of printable characters; the last one may be cut."""
    text = start.decode("utf-8", "replace").rstrip("\ufffd")
    return len(text) > len(start) // 2 and all(c.isprintable() or c in "\t\n\r" for c in text)
