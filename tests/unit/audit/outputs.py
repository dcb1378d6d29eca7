"""Outputs of an audit, made by hand: what report, compare and plan read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from batchval.audit.hours import SUMS
from batchval.audit.outputs import ERRORS, SEGMENTS, SUMMARY, place_of, write_table

HOUR = 1_795_212_000  # 2026-11-20 22:00 UTC, in seconds
_BY_CODEC = ("batches", "records", "bytes", "uncompressed_bytes", "claims_batches", "claims_bytes")


def hour(
    topic: str,
    partition: int,
    at: int | None,
    codecs: dict[str | None, tuple[int | None, ...]],
    **others: Any,
) -> list[dict[str, Any]]:
    """Return the rows of an hour of a partition.

    ``codecs``: batches, records, bytes; or also uncompressed bytes, batches and bytes that claims
    would let by.
    """
    rows = []
    for codec, counts in codecs.items():
        sums = dict(
            zip(_BY_CODEC, (*counts, None, 0, 0) if len(counts) == 3 else counts, strict=True)
        )
        place = {
            "topic": topic,
            "partition": partition,
            "hour": None if at is None else at * 1000,
            "codec": codec,
        }
        rows.append(dict.fromkeys(SUMS, 0) | place | sums | others)
    return rows


def finding(topic: str, rule: str, reason: str, **others: Any) -> dict[str, Any]:
    place = {
        "partition": 0,
        "segment": 0,
        "position": 0,
        "offset": None,
        "file": f"{topic}-0/{0:020}.log",
    }
    return (
        {
            "topic": topic,
            "rule": rule,
            "reason": reason,
            "level": "unreadable" if rule == "UNREADABLE" else "finding",
        }
        | place
        | others
    )


def write(
    out: Path,
    hours: Iterable[list[dict[str, Any]]],
    errors: list[dict[str, Any]] | None = None,
    segments: list[dict[str, Any]] | None = None,
) -> str:
    summary = [row for rows in hours for row in rows]
    if segments is None:
        segments = [
            {
                "topic": topic,
                "partition": partition,
                "base_offset": 0,
                "size": 1000,
                "file": f"{topic}-{partition}/0.log",
            }
            for topic, partition in dict.fromkeys(
                (row["topic"], row["partition"]) for row in summary
            )
        ]
    for name, schema, rows in (
        ("summary", SUMMARY, summary),
        ("errors", ERRORS, errors or []),
        ("segments", SEGMENTS, segments),
    ):
        (out / name).mkdir(parents=True)
        place, path = place_of(str(out / name))
        write_table(place, f"{path}/part-0.parquet", pa.Table.from_pylist(rows, schema))
    return str(out)
