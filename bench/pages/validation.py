"""The page of bench/validation."""

from __future__ import annotations

from typing import Any

from bench.pages import Result, tables
from bench.pages.text import (
    how,
    load_of,
    measured,
    number,
    page,
    paragraph,
    table,
)

TITLE = "Validation of record batches"
ABOUT = "batchval, Kafka's LogValidator and three Kafka clients on the same batches"
COMMAND = "make bench"
SOURCES = ("validation",)

SHAPES = ("1-100", "100-100", "100-1000")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

MORE = "The times of all libraries side by side: [libraries](libraries.md)."
#: groups of rows whose ratio is Kafka's time over batchval's: title, what was called, groups
AGAINST_KAFKA = (
    (
        "100 batches per call",
        "batchval: one `check_ranges` call for 100 batches.",
        (
            "slow path vs Kafka, 100 × 1000 B",
            "slow path vs Kafka, 100 × 100 B",
            "vs Kafka, 1 × 100 B, 100 a call",
            "vs Kafka, every other cell",
        ),
    ),
    (
        "One batch per call",
        "batchval: one `check` call from Python for each batch.",
        ("vs Kafka, 1 × 100 B, one Python call a batch",),
    ),
    (
        "Codecs from Python packages",
        "The same as the first table, with the codec provider `packages`.",
        ("provider packages vs Kafka (no target)",),
    ),
    (
        "Batches of magic 1",
        "batchval: one `validate_messages_and_assign_offsets` call from Python for each set of messages.\n"
        "Kafka: LogValidator alone. Both in place.",
        ("magic 1 vs Kafka (no target)",),
    ),
)


def versions(machine: dict[str, Any]) -> str:
    """Return the compiler, Kafka and the libraries that ran."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    kafka = "" if machine["kafka"] == "not measured" else f"Kafka {machine['kafka']}, "
    return f"{machine['compiler']}, {kafka}{packages}, franz-go {machine['franz-go']}"


def setting(machine: dict[str, Any]) -> str:
    """Return codecs, cores, rounds and load as a paragraph."""
    codecs = ", ".join(f"{name} by {what}" for name, what in machine["codecs"].items())
    cores = machine["cores"]
    own = ", ".join(map(str, cores["one-threaded peers"]))
    others = ", ".join(map(str, cores["JVM and Go"]))
    parts = [
        f"Codecs of batchval: {codecs}; CRC-32C kernel {machine['crc32c']}.",
        f"{machine['rounds']} rounds, peers in turns, over batches made by {machine['batches']}.",
        f"Peers with one thread ran on core {own}, JVM and Go on {others}.",
        load_of(machine["load_before_and_after"]),
        f"The measured processes ran at nice {machine['nice']}." if machine.get("nice") else "",
    ]
    parts += [f"Not measured: {name} ({reason})." for name, reason in machine["missing"].items()]
    return paragraph(*parts)


def kafka_parts(rows: tables.Rows) -> list[str]:
    """Return the tables whose ratio is Kafka's time over batchval's."""
    parts = []
    for title, called, groups in AGAINST_KAFKA:
        found = tables.of_groups(rows, *groups)
        if found:
            parts += [f"### {title}", called, tables.ratios(found, "batchval", "Kafka")]
    if not parts:
        return []
    text = paragraph(
        "Microseconds per batch in strict mode. Kafka is shown by its best JMH iteration of all",
        "rounds, batchval by its median, which favours Kafka. The ratio is Kafka's time over",
        "batchval's: above 1, batchval is faster. Spread is half the range of the ratios of",
        "single rounds.",
    )
    return ["## batchval and Kafka's LogValidator", text, *parts]


def other_parts(rows: tables.Rows) -> list[str]:
    """Return the smallest batch, and the allocator calls."""
    parts = []
    if small := tables.of_groups(rows, "180-byte batches, 100 a call, ns"):
        named = ((row["name"], number(row["value"])) for row in small)
        parts += ["## A batch of 180 bytes, 100 per call", table(("", "ns"), named)]
    group = "allocator calls a batch beyond the result"
    if counted := tables.allocator(tables.of_groups(rows, group)):
        parts += ["## Allocator calls", counted]
    return parts


def body(result: Result) -> str:
    """Return everything under the title."""
    machine = result["machine"]
    opening = paragraph(
        "This page compares the time that batchval, Apache Kafka's LogValidator and three Kafka",
        "clients need for one record batch.",
        measured(result, versions(machine)),
        how("validation"),
    )
    parts = [opening, setting(machine), *kafka_parts(result["rows"])]
    return page(*parts, *other_parts(result["rows"]), MORE)


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    return body(results["validation"])
