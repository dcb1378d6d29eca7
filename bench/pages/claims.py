"""The page of bench/validation/run_claims.py."""

from __future__ import annotations

from typing import Any

from bench.pages import tables, validation
from bench.pages.text import how, measured, page, paragraph

TITLE = "Claims (KAFKA-8364)"
ABOUT = "validation by claims, without decompression, and Kafka's LogValidator"
COMMAND = "make bench-claims"
SOURCES = ("claims",)

OVER_KAFKA = "claims path vs Kafka, one Python call a batch"
MANY = "claims path over header + CRC alone, many a call"
ONE = "the same, one Python call each"
OF_WALK = "check and claims of it, over check alone"
CALLS = "claims path: allocator calls a batch beyond the result"
#: title, what the ratio is, names of the two times, group of rows
RATIOS = (
    (
        "Claims path and Kafka's LogValidator",
        "One Python call per batch. The ratio is Kafka's best time over batchval's median.",
        ("batchval", "Kafka"),
        OVER_KAFKA,
    ),
    (
        "Claims path over header and CRC alone, many batches per call",
        "`check_ranges` with trusted claims over `scan_batches`.",
        ("claims path", "header and CRC"),
        MANY,
    ),
    (
        "Claims path over header and CRC alone, one batch per call",
        "`check` with trusted claims over `RecordBatch(data).is_valid`.",
        ("claims path", "header and CRC"),
        ONE,
    ),
    (
        "A validated batch's claims",
        "`check` with the claims computed, over `check`.",
        ("with claims", "without"),
        OF_WALK,
    ),
)
TIMES = (
    ("claims", "claims path"),
    ("claims_ranges_header", "claims path, many per call"),
    ("check", "shallow path (none: full path)"),
    ("kafka brokerPath", "Kafka, batch loop and LogValidator"),
    ("kafka validateInPlace", "Kafka, LogValidator"),
    ("kafka iterateSkip", "Kafka, skip iterator"),
    ("kafka iterateStreaming", "Kafka, full iterator"),
)
LEGACY = (
    ("validate_messages", "batchval, full path"),
    ("kafka validateInPlace", "Kafka, LogValidator"),
)


def ratio_parts(rows: tables.Rows) -> list[str]:
    """Return the tables of ratios."""
    parts = []
    for title, text, names, group in RATIOS:
        found = tables.of_groups(rows, group)
        if found:
            parts += [f"### {title}", text, tables.ratios(found, *names)]
    parts.append(tables.allocator(tables.of_groups(rows, CALLS)))
    return ["## Ratios", *parts] if any(parts) else []


def time_parts(times: tables.Times) -> list[str]:
    """Return the times of all ways."""
    two = [f"v2-{codec}-{shape}" for codec in validation.CODECS for shape in validation.SHAPES]
    one = [f"v1-{codec}-{shape}" for codec in validation.CODECS[:-1] for shape in validation.SHAPES]
    found, legacy = tables.peers(times, TIMES, two), tables.peers(times, LEGACY, one)
    text = paragraph(
        "Microseconds per batch, one Python call per batch unless the column says otherwise;",
        "Kafka by medians. In brackets: allocator calls per batch, the result's included; for",
        "Kafka bytes. Kafka's iterators compute no CRC.",
    )
    parts = [text, found] if found else []
    if legacy:
        parts += ["The same records as magic 1, which has no claims:", legacy]
    return ["## All paths", *parts] if parts else []


def body(result: dict[str, Any]) -> str:
    """Return everything under the title."""
    machine = result["machine"]
    opening = paragraph(
        "This page compares validation by [claims](../concepts/claims.md), which needs no",
        "decompression, with batchval's other paths and with Apache Kafka's LogValidator.",
        measured(result, validation.versions(machine)),
        how("claims"),
    )
    return page(
        opening,
        validation.setting(machine),
        *ratio_parts(result["rows"]),
        *time_parts(result["times"]),
    )


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    return body(results["claims"])
