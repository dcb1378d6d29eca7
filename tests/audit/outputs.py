"""Outputs of an audit, made by hand: what report, compare and plan read. A row is an hour of a partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from batchval.audit.hours import CODECS
from batchval.audit.outputs import ERRORS, SEGMENTS, SUMMARY

HOUR = 1_795_212_000  # 2026-11-20 22:00 UTC, in seconds
_BY_CODEC = ("batches", "records", "bytes", "uncompressed_bytes", "claims_batches", "claims_bytes")


def hour(
    topic: str,
    partition: int,
    at: int | None,
    codecs: dict[str, tuple[int | None, ...]],
    rules: dict[str, int] | None = None,
    **others: int | None,
) -> dict[str, Any]:
    """``codecs``: batches, records, bytes; or also uncompressed bytes, batches and bytes that claims would let by."""
    row: dict[str, Any] = {name: 0 for name in SUMMARY.names if SUMMARY.field(name).type == pa.int64()}
    row |= {
        "topic": topic,
        "partition": partition,
        "hour": None if at is None else at * 1000,
        "rules": list((rules or {}).items()),
    }
    row |= dict.fromkeys(("min_timestamp", "max_timestamp", "min_offset", "max_offset"))
    for codec in CODECS:
        row[f"uncompressed_bytes_{codec}"] = None  # not known where there are none, as if the audit were not deep
    for codec, counts in codecs.items():
        found = dict(zip(_BY_CODEC, (*counts, None, 0, 0) if len(counts) == 3 else counts, strict=True))
        row |= {f"{name}_{codec}": value for name, value in found.items()}
        for name in ("batches", "records", "bytes"):
            row[name] += found[name]
    return row | others


def finding(topic: str, rule: str, reason: str, **others: Any) -> dict[str, Any]:
    place = {"partition": 0, "segment": 0, "position": 0, "offset": None, "file": f"{topic}-0/{0:020}.log"}
    return {"topic": topic, "rule": rule, "reason": reason} | place | others


def write(
    out: Path,
    summary: list[dict[str, Any]],
    errors: list[dict[str, Any]] | None = None,
    segments: list[dict[str, Any]] | None = None,
) -> str:
    if segments is None:
        segments = [
            {
                "topic": topic,
                "partition": partition,
                "base_offset": 0,
                "size": 1000,
                "file": f"{topic}-{partition}/0.log",
            }
            for topic, partition in dict.fromkeys((row["topic"], row["partition"]) for row in summary)
        ]
    for name, schema, rows in (
        ("summary", SUMMARY, summary),
        ("errors", ERRORS, errors or []),
        ("segments", SEGMENTS, segments),
    ):
        (out / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema), out / name / "part-0.parquet")
    return str(out)
