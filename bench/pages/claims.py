"""The page of bench/claims."""

from __future__ import annotations

from typing import Any

from bench.pages import tables, validation
from bench.pages.text import how, measured, number, page, paragraph, table

TITLE = "Claims (KAFKA-8364)"
ABOUT = "validation by claims, without decompression, and Kafka's LogValidator; CPU at 600 MB/s and 1 GB/s"
COMMAND = "make bench-claims"
SOURCES = ("claims",)

CODEC = "lz4"
MIDDLE = 12
#: what ran at a fixed rate, and its name in tables and in the chart
PACED = {
    "full": "Kafka, full iterator",
    "skip": "Kafka, skip iterator",
    "validator": "Kafka, LogValidator",
    "shallow": "batchval, shallow path",
    "claims": "batchval, claims path",
    "audit": "batchval, claims path, 1 % audited",
    "none": "the pacing alone",
}
#: what KAFKA-8364 reports of its server: network, disk and replication included
PROPOSAL = (
    ("an allocation per record, 600 MB/s", "> 97 %", 97),
    ("no allocation per record, 1 GB/s", "< 60 %", 60),
    ("no decompression, 1 GB/s", "< 30 %", 30),
)
KEPT_UP = 0.98  # share of the bytes that were due
#: title, what the ratio is, names of the two times, group of rows
RATIOS = (
    (
        "Claims path and Kafka's LogValidator",
        "One Python call per batch. The ratio is Kafka's best time over batchval's median.",
        ("batchval", "Kafka"),
        "claims path vs Kafka, one Python call a batch",
    ),
    (
        "Claims path over header and CRC alone, many batches per call",
        "`check_ranges` with trusted claims over `scan_batches`.",
        ("claims path", "header and CRC"),
        "claims path over header + CRC alone, many a call",
    ),
    (
        "Claims path over header and CRC alone, one batch per call",
        "`check` with trusted claims over `RecordBatch(data).is_valid`.",
        ("claims path", "header and CRC"),
        "the same, one Python call each",
    ),
    (
        "A validated batch's claims",
        "`check` with the claims computed, over `check`.",
        ("with claims", "without"),
        "check and claims of it, over check alone",
    ),
    (
        "The new CRC after attach and strip",
        "A pass over all bytes, over the CRC computed from the changed bytes.",
        ("changed bytes", "all bytes"),
        "the new CRC of attach and strip, against a full pass",
    ),
    (
        "Attach and strip over memcpy",
        "",
        ("batchval", "memcpy"),
        "attach and strip, whole, over memcpy of the batch",
    ),
    (
        "Attach and strip over a copy that allocates",
        "",
        ("batchval", "`bytes(batch)`"),
        "attach and strip, whole, over bytes(batch), which allocates too",
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


def share(row: dict[str, Any] | None) -> str:
    """Return the share of one core that a paced run needs, with its spread."""
    if row is None:
        return ""
    percent = row["cores"] * 100
    digits = 1 if percent < 10 else 0
    text = f"{percent:.{digits}f} %"
    if row["spread"]:
        text += f" ± {row['spread'] * percent:.{digits}f}"
    return text if row["fed"] >= KEPT_UP else f"{text} ({row['fed']:.0%} fed)"


def _points(rows: tables.Rows, first: str, columns: list[tuple[str, tuple[str, int, int]]]) -> str:
    """Return one line per way, one column per (codec, MB/s, partitions)."""
    found = {
        (row["codec"], row["mb_per_second"], row["partitions"], row["way"]): row for row in rows
    }
    lines = [
        [label, *(share(found.get((*at, way))) for _, at in columns)]
        for way, label in PACED.items()
    ]
    return table(
        [first, *(title for title, _ in columns)], [line for line in lines if any(line[1:])]
    )


def paced_parts(rows: tables.Rows) -> list[str]:
    """Return the tables of CPU at a fixed rate."""
    if not rows:
        return []
    rates = sorted({row["mb_per_second"] for row in rows})
    counts = sorted({row["partitions"] for row in rows})
    points = [(f"{mb} MB/s, {n} partitions", (CODEC, mb, n)) for mb in rates for n in counts]
    others = [
        codec
        for codec in validation.CODECS
        if codec != CODEC and any(r["codec"] == codec for r in rows)
    ]
    codecs = [(f"{codec}, {mb} MB/s", (codec, mb, MIDDLE)) for codec in others for mb in rates]
    text = paragraph(
        "CPU time of one process, all threads, as a share of one core, at a fixed rate of",
        "uncompressed bytes. Medians of the rounds, ± half their range. Where more than 100 % is",
        "needed, one thread cannot keep the rate: the share of the bytes that it was fed is in",
        "brackets, and the CPU is scaled to the full rate.",
    )
    scope = paragraph(
        "The proposal's figures are of its authors' whole server: network, disks and replication",
        "included. The figures above are of validation alone, over bytes in memory. Comparable is",
        "the step from one line to the next. A broker that does not read claims decompresses as",
        "before.",
    )
    proposal = table(("KAFKA-8364, its server", "CPU"), ((what, cpu) for what, cpu, _ in PROPOSAL))
    return [
        "## CPU at a fixed rate",
        "![CPU share of one core at 600 MB/s and 1 GB/s, by path](claims.svg)",
        text,
        _points(rows, CODEC, points),
        _points(rows, f"{MIDDLE} partitions", codecs) if codecs else "",
        proposal,
        scope,
    ]


def ratio_parts(rows: tables.Rows) -> list[str]:
    """Return the tables of ratios."""
    parts = []
    for title, text, names, group in RATIOS:
        found = tables.of_groups(rows, group)
        if found:
            parts += [f"### {title}", text, tables.ratios(found, *names)]
    ledger = tables.of_groups(rows, "the ledger")
    if ledger:
        named = (
            (r["name"], number(r["value"]) + (" ns" if r["unit"] == "ns" else ""), r["note"])
            for r in ledger
        )
        parts += ["### The ledger of senders", table(("", "measured", ""), named)]
    parts.append(
        tables.allocator(
            tables.of_groups(rows, "claims path: allocator calls a batch beyond the result")
        )
    )
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
    fed = machine["paced"]
    rounds = max((row["rounds"] for row in result["paced"]), default=0)
    paced = paragraph(
        f"At a fixed rate: {fed['producers']} producers' streams in turns,",
        f"{fed['distinct batches']:,} distinct batches of {fed['records a batch']} records of",
        f"{fed['value size']} bytes, one batch per partition in each request; {rounds} rounds of",
        f"{fed['seconds a point']:g} s; JVM {fed['heap']}.",
    )
    return page(
        opening,
        validation.setting(machine),
        paced,
        *paced_parts(result["paced"]),
        *ratio_parts(result["rows"]),
        *time_parts(result["times"]),
    )


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    return body(results["claims"])
