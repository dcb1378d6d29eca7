"""The page of bench/validation with the times of all libraries."""

from __future__ import annotations

from typing import Any

from bench.pages import tables
from bench.pages.text import how, measured, page, paragraph
from bench.pages.validation import CODECS, SHAPES, setting, versions

TITLE = "Validation by all libraries"
ABOUT = "the times of batchval, Kafka and three Kafka clients, side by side"
COMMAND = "make bench"
SOURCES = ("validation",)

RECORDS = (
    ("native check_ranges", "batchval, 100 per call"),
    ("native check", "batchval, 1 per call"),
    ("packages check_ranges", "batchval, codecs of packages"),
    ("kafka", "Kafka"),
    ("franz-go records", "franz-go"),
    ("aiokafka records", "aiokafka"),
    ("kafka-python records", "kafka-python"),
)
HEADERS = (
    ("native scan_batches", "batchval, `scan_batches`"),
    ("native validate_in_place", "batchval, append in place"),
    ("aiokafka header", "aiokafka"),
    ("kafka-python header", "kafka-python"),
)
LEGACY = (
    ("native validate_messages", "batchval"),
    ("packages validate_messages", "batchval, codecs of packages"),
    ("kafka", "Kafka"),
    ("aiokafka records", "aiokafka"),
    ("kafka-python records", "kafka-python"),
)


def peer_parts(times: tables.Times) -> list[str]:
    """Return the times of all peers."""
    two = [f"v2-{codec}-{shape}" for codec in CODECS for shape in SHAPES]
    one = [
        f"v1-{codec}-{n}-{size}" for codec in CODECS[:-1] for n in (1, 100) for size in (100, 1000)
    ]
    parts = []
    for title, text, columns, cells in (
        ("CRC and all records", "Clients build record objects and validate nothing.", RECORDS, two),
        (
            "Header and CRC alone",
            "With it: every record checked, then appended in place.",
            HEADERS,
            two,
        ),
        ("Batches of magic 1, wrappers unpacked", "Kafka: LogValidator alone.", LEGACY, one),
    ):
        if found := tables.peers(times, columns, cells):
            parts += [f"## {title}", text, found]
    if not parts:
        return []
    text = paragraph(
        "Microseconds per batch; Kafka by medians. In brackets: allocator calls per batch where",
        "they were counted, for Kafka bytes.",
    )
    return [text, *parts]


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    result = results["validation"]
    machine = result["machine"]
    opening = paragraph(
        "The same run as [validation](validation.md), as times instead of ratios.",
        measured(result, versions(machine)),
        how("validation"),
    )
    return page(opening, setting(machine), *peer_parts(result["times"]))
