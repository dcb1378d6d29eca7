"""Names and first bytes of files that are not segments: Kafka's other files and common formats."""

from __future__ import annotations

from pathlib import PurePath

__all__ = ["START_SIZE", "foreign_reason"]

START_SIZE = 64  # bytes of a file that foreign_reason looks at

_SUFFIXES = {
    ".index": "an offset index of Kafka",
    ".timeindex": "a time index of Kafka",
    ".txnindex": "an index of aborted transactions of Kafka",
    ".snapshot": "a producer snapshot of Kafka",
    ".checkpoint": "a KRaft snapshot of Kafka",
}
_NAMES = {
    "leader-epoch-checkpoint": "a leader epoch checkpoint of Kafka",
    "partition.metadata": "the partition.metadata of Kafka",
    "meta.properties": "the meta.properties of Kafka",
    "recovery-point-offset-checkpoint": "an offset checkpoint of Kafka",
    "replication-offset-checkpoint": "an offset checkpoint of Kafka",
    "log-start-offset-checkpoint": "an offset checkpoint of Kafka",
    "cleaner-offset-checkpoint": "an offset checkpoint of Kafka",
}
_STARTS = {
    b"\x1f\x8b": "gzip data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"PK\x03\x04": "a ZIP or JAR file",
    b"PAR1": "a Parquet file",
    b"\x7fELF": "an ELF program",
}


def foreign_reason(file: PurePath, start: bytes) -> str | None:
    """Return why a file without record batches is not a segment, or None if its kind is unknown.

    ``start``: the first START_SIZE bytes of the file.
    """
    kind = _NAMES.get(file.name) or _SUFFIXES.get(file.suffix) or _kind_of(start)
    if kind is None:
        return None
    return f"this is not a segment: the file holds no record batch; it looks like {kind}"


def _kind_of(start: bytes) -> str | None:
    for magic, kind in _STARTS.items():
        if start.startswith(magic):
            return kind
    return "text" if _is_text(start) else None


def _is_text(start: bytes) -> bool:
    """Return whether bytes are UTF-8 of printable characters; the last one may be cut."""
    text = start.decode("utf-8", "replace").rstrip("\ufffd")
    return len(text) > len(start) // 2 and all(c.isprintable() or c in "\t\n\r" for c in text)
