"""The page of bench/claims/saturation.py, and its chart: a broker that is bound by its CPU."""

from __future__ import annotations

from typing import Any

from bench.pages import bars
from bench.pages.text import how, load_of, measured, page, paragraph, table

TITLE = "A Kafka broker that is bound by its CPU"
ABOUT = "throughput and CPU of a saturated broker by codec, with and without trusted claims"
COMMAND = "python -m bench saturation --write"
SOURCES = ("saturation",)

STOCK, TRUST = "stock", "trust"
FULL, PACED = "full", "pace"
#: what a part differs in from the first one
NAMES = {
    FULL: "64 kB",
    "small": "16 kB",
    "partitions": "100 partitions",
    "tls": "TLS",
    "replicas": "three replicas",
    "jdk": "newest JDK",
}
PARTS = tuple(NAMES)
Rows = list[dict[str, Any]]

RIGHT, TOP, BAR, BETWEEN = 190, 76, 14, 12


def interval(ratio: list[float]) -> str:
    """Return a ratio with its interval."""
    return "{:.2f} ({:.2f} to {:.2f})".format(*ratio)


def rows_of(result: dict[str, Any], part: str) -> Rows:
    """Return the rows of a part; those at a pace are measured with the whole one."""
    measured_in = result["parts"].get(FULL if part == PACED else part, {"rows": []})
    return [row for row in measured_in["rows"] if row["part"] == part]


def stock_of(rows: Rows, row: dict[str, Any]) -> dict[str, Any]:
    """Return the stock broker's row of the same codec."""
    (found,) = (one for one in rows if (one["way"], one["codec"]) == (STOCK, row["codec"]))
    return found


def place_of(part: dict[str, Any]) -> str:
    """Return where and how a part was measured."""
    settings = part["settings"]
    versions = f"Kafka {settings['kafka']}, Java {settings['java']}"
    effort = f"{settings['rounds']} rounds of {settings['seconds']:g} s for each way."
    return f"{measured(part, versions)} {effort} {load_of(settings['load'])}"


def full(result: dict[str, Any]) -> list[str]:
    """Return the section of all policies."""
    rows = rows_of(result, FULL)
    lines = [
        [
            row["codec"],
            row["way"],
            f"{row['mb_s']:,.0f}",
            "" if row["way"] == STOCK else interval(row["mb_s_over_stock"]),
            f"{row['us']:,.0f}",
            f"{row['cpu']:.0%}",
        ]
        for row in rows
    ]
    headings = ("", "policy", "MB/s on the wire", "over stock (95 %)", "µs a batch", "CPU")
    return [
        "## Throughput at saturation",
        "![Throughput of a saturated broker by codec, stock and with trusted claims](saturation.svg)",
        paragraph(
            "Batches of 64 kB, one partition. `stock` ignores the claims that the requests carry.",
            "`audit:0.01` verifies one batch of a hundred, `verify` every one. `header` is the",
            "alternative of the [KIP](../concepts/kip.md#the-simplest-alternative): a broker that",
            "believes today's header of trusted principals, without claims. CPU is the broker's",
            "process as a share of its core. Uncompressed batches are validated in any case.",
        ),
        table(headings, lines),
    ]


def at_pace(result: dict[str, Any]) -> list[str]:
    """Return the section of CPU at the stock broker's throughput."""
    rows, settings = rows_of(result, PACED), result["parts"][FULL]["settings"]
    lines = []
    for row in (row for row in rows if row["way"] == TRUST):
        stock = stock_of(rows, row)
        shares = (f"{stock['cpu']:.0%}", f"{row['cpu']:.0%}")
        ratio = interval(row["cpu_over_stock"])
        met = "" if row["codec"] == "none" else "met" if row["cpu"] <= 0.30 else "missed"
        lines.append([row["codec"], f"{stock['mb_s']:,.0f}", *shares, ratio, met])
    headings = ("", "MB/s", "stock, of a core", "trust", "over stock (95 %)", "below 30 %")
    return [
        "## CPU at the stock broker's throughput",
        paragraph(
            f"Both at {settings['pace']:.0%} of what the stock broker has at saturation. KAFKA-8364",
            "quotes more than 97 % of CPU, below 60 % without a buffer for each record (which is",
            "KAFKA-8106, in Kafka since 2.4), and below 30 % without decompression. What is left is",
            "the request, the CRC, the append and the answer.",
        ),
        table(headings, lines),
    ]


def variants(result: dict[str, Any]) -> list[str]:
    """Return the section of other loads and brokers: trust over stock."""
    found = {
        (part, row["codec"]): interval(row["mb_s_over_stock"])
        for part in NAMES
        for row in rows_of(result, part)
        if row["way"] == TRUST and row["codec"] != "none"
    }
    codecs = list(dict.fromkeys(codec for _, codec in found))
    lines = [
        [name, *(found.get((part, codec), "") for codec in codecs)]
        for part, name in NAMES.items()
        if part in result["parts"]
    ]
    return [
        "## Other loads and brokers",
        paragraph(
            "Throughput of `trust` over `stock` at saturation. Each row differs from the first one",
            "in what it names. 16 kB is the producer's default `batch.size`, 64 kB a tuned one.",
            "*100 partitions*: each request has a batch for each. *Three replicas*: the followers",
            "fetch from the measured leader, on the client's core; `acks` is 1.",
            others(result["parts"]),
        ),
        table(("", *codecs), lines),
    ]


def others(parts: dict[str, Any]) -> str:
    """Return how each part beside the whole one was measured, where that differs."""
    texts: dict[str, list[str]] = {}
    for part, found in parts.items():
        if part != FULL:
            settings = found["settings"]
            text = f"Java {settings['java']}, {settings['rounds']} rounds of"
            text += f" {settings['seconds']:g} s, commit `{found['machine']['commit']}`"
            texts.setdefault(text, []).append(NAMES[part])
    return " ".join(f"{', '.join(names)}: {text}." for text, names in texts.items())


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    result = results["saturation"]
    opening = paragraph(
        "What KAFKA-8364 is about is a broker that has no CPU left. Here one broker has one core,",
        "and a client in C on another core sends as fast as the broker answers.",
        place_of(result["parts"][FULL]) if FULL in result["parts"] else "",
        how("a-broker-at-saturation"),
    )
    whole = (*full(result), *at_pace(result)) if FULL in result["parts"] else ()
    return page(opening, *whole, *variants(result))


def proposal(result: dict[str, Any]) -> str:
    """Return what docs/concepts/kip.md says about the saving."""
    rows, at = rows_of(result, FULL), rows_of(result, PACED)
    paces = {row["codec"]: row for row in at if row["way"] == TRUST}
    lines = []
    for row in (row for row in rows if row["way"] == TRUST):
        pace = paces[row["codec"]]
        steps = f"{stock_of(at, pace)['cpu']:.0%} to {pace['cpu']:.0%}"
        others = [
            interval(one["mb_s_over_stock"])
            for way in ("audit:0.01", "header")
            for one in rows
            if (one["way"], one["codec"]) == (way, row["codec"])
        ]
        ratio = interval(row["mb_s_over_stock"])
        lines.append([row["codec"], ratio, *(others or ("", "")), steps])
    about = paragraph(
        "A broker on one core, kept busy: throughput over the stock broker's, and CPU of the core at",
        "95 % of the stock broker's throughput. Batches of 64 kB, one partition.",
        place_of(result["parts"][FULL]),
        "More loads, TLS, replicas and JDKs: [benchmarks](../benchmarks/saturation.md).",
    )
    headings = ("", "trust", "audit:0.01", "header alone", "CPU, stock to trust")
    return f"{about}\n\n{table(headings, lines)}\n"


def draw(result: dict[str, Any]) -> str:
    """Return the chart: throughput at saturation, stock and trust."""
    rows = {
        (row["codec"], row["way"]): row
        for row in rows_of(result, FULL)
        if row["way"] in (STOCK, TRUST)
    }
    most = max((row["mb_s"] for row in rows.values()), default=1.0)
    scale = (bars.WIDTH - bars.LEFT - RIGHT) / most
    parts, y = [], float(TOP)
    for codec in dict.fromkeys(codec for codec, _ in rows):
        parts.append(bars.label(y, codec, BAR))
        for way, kind in ((STOCK, "other"), (TRUST, "ours")):
            row = rows[codec, way]
            words = f"{row['mb_s']:,.0f} MB/s"
            if way == TRUST:
                words += f", {row['mb_s_over_stock'][0]:.2f} times"
            parts.append(bars.bar(y, max(row["mb_s"] * scale, 1.0), kind, words, BAR))
            y += BAR + 1
        y += BETWEEN
    legend = [
        '<rect x="20" y="46" width="12" height="12" rx="2" class="other"/>',
        bars.text(38, 57, f"Apache Kafka {result['parts'][FULL]['settings']['kafka']}"),
        '<rect x="190" y="46" width="12" height="12" rx="2" class="ours"/>',
        bars.text(208, 57, "the same with the agent, claims trusted"),
    ]
    title = "Throughput of a broker on one core, batches of 64 kB"
    return bars.framed(title, y + 26, legend, parts, f"{bars.measured(result)}one JVM, in turns")
