"""The page of bench/proxy: the gate and other proxies."""

from __future__ import annotations

import statistics
from typing import Any

from bench import runs
from bench.pages.text import how, load_of, measured, page, paragraph, table, versions_of

TITLE = "The gate"
ABOUT = "CPU, latency and memory of the gate, Kroxylicious and kafka-proxy"
PEERS = "--kroxylicious FOLDER --record-validation FOLDER --kafka-proxy PROGRAM"
COMMAND = f'make bench-proxy PROXY_BENCH="--write {PEERS}"'
SOURCES = ("proxy",)
#: What Produce requests and their answers pass. The result is measured again when it changes, and
#: once a month.
DATA_PATH = (
    "batchval/protocol/frames.pyx",
    "batchval/proxy/session/fast_path.pyx",
    "batchval/proxy/session/socket_transport.pyx",
)
MAX_AGE_DAYS = 31

NAMES = {
    "direct": "without a proxy",
    "validating": "gate, validating",
    "off": "gate, validation off",
    "pump": "relay in C, passes bytes",
    "kafka-proxy": "kafka-proxy, tuned",
    "kroxylicious": "Kroxylicious, no filter",
    "kroxylicious validating": "Kroxylicious with RecordValidation",
}
COMPRESSED = ("off", "validating", "trust", "audit")
#: Rates of the open loop, in percent of the highest rate at 64 kB of the proxy whose highest is
#: lowest.
SHARES = (10, 50, 80)
#: Clients of the crowd, the greedy ones next to it, and the requests of 1 kB a second that the crowd
#: sends together.
CROWD, GREEDY, CROWD_RATE = 990, 10, 2000
CODECS = ("lz4", "zstd", "gzip", "snappy")
#: What is compared round by round: a text, a cell, what, over what, and the figure.
PEER, TUNED = "kroxylicious", "kafka-proxy"
RATIOS = (
    *(
        (f"CPU at {size}", f"{size} none", "validating", other, "cpu_s_a_gb")
        for other in ("pump", PEER, TUNED)
        for size in ("1 kB", "64 kB", "1 MB")
    ),
    *(
        ("MB/s at 64 kB", "64 kB none", "validating", other, "mb_a_second")
        for other in (PEER, TUNED)
    ),
    *(
        (
            f"{quantile}, open loop, {share} %",
            f"open {share} %",
            "validating",
            PEER,
            f"{quantile}_us",
        )
        for share in SHARES
        for quantile in ("p50", "p99")
    ),
    *(
        (f"CPU with TLS, {size}", f"{size} TLS", "validating", PEER, "cpu_s_a_gb")
        for size in ("1 kB", "64 kB")
    ),
)
Taken = dict[str, dict[str, list[dict[str, Any]]]]


class Samples:
    """Samples of a run, by cell and proxy, one per round."""

    def __init__(self, samples: Taken) -> None:
        self.samples = samples

    def values(self, cell: str, name: str, what: str) -> list[float]:
        """Return one value per round; none where it was not measured."""
        return [one[what] for one in self.samples.get(cell, {}).get(name, []) if what in one]

    def ratios(self, cell: str, name: str, other: str, what: str = "cpu_s_a_gb") -> list[float]:
        """Return the ratio of two proxies in each round."""
        rounds = self.samples.get(cell, {})
        pairs = zip(rounds.get(name, []), rounds.get(other, []), strict=False)
        return [a[what] / b[what] for a, b in pairs if what in a and what in b]

    def sums(self, cell: str, names: tuple[str, ...], what: str = "cpu_s_a_gb") -> list[float]:
        """Return the sum of some proxies in each round."""
        rounds = self.samples.get(cell, {})
        each = zip(*(rounds.get(name, []) for name in names), strict=False)
        return [sum(one[what] for one in them) for them in each if all(what in one for one in them)]

    def middle(self, cell: str, name: str, what: str) -> float | None:
        """Return the median of the rounds, or None."""
        values = self.values(cell, name, what)
        return statistics.median(values) if values else None


def ratio_row(text: str, over: str, values: list[float]) -> list[str]:
    low, high = runs.interval(values)
    return [text, over, f"{statistics.median(values):.2f}", f"{low:.2f} to {high:.2f}"]


def ratios(samples: Samples) -> list[str]:
    """Return what the validating gate takes over others, paired round by round."""
    rows = [
        ratio_row(text, NAMES[other], found)
        for text, cell, ours, other, what in RATIOS
        if len(found := samples.ratios(cell, ours, other, what)) > 1
    ]
    for codec in CODECS:
        cell = f"64 kB {codec}"
        both = samples.sums(cell, ("library", "pump"))
        gate = samples.values(cell, "validating", "cpu_s_a_gb")
        if len(both) > 1 and len(both) == len(gate):
            over = [a / b for a, b in zip(gate, both, strict=True)]
            rows.append(ratio_row(f"CPU at 64 kB, {codec}", "library and relay in C", over))
    if not rows:
        return []
    text = paragraph(
        "The validating gate over others: medians of the ratios of each round, with the interval of",
        "95 % (of few rounds, all of them). For CPU and latency less is better, for MB/s more.",
    )
    return ["## Ratios", text, table(("", "over", "ratio", "95 %"), rows)]


def quantiles(samples: Samples, cell: str, name: str) -> str:
    found = [number(samples.middle(cell, name, key)) for key in ("p50_us", "p99_us")]
    return " / ".join(filter(None, found))


def open_loop(samples: Samples, rate: float) -> list[str]:
    """Return latencies at rates that all proxies can pass, or nothing where none was measured."""
    cells = ["latency 1 kB", *(f"open {share} %" for share in SHARES)]
    rows = [
        [label, *(quantiles(samples, cell, name) for cell in cells)]
        for name, label in NAMES.items()
        if quantiles(samples, cells[1], name)
    ]
    if not rows:
        return []
    text = paragraph(
        f"An open loop of requests of 64 kB at shares of {rate:,.0f} a second, the highest rate of",
        "the slowest proxy: requests are due whatever the answers do, and a latency counts from",
        "then. First, one request of 1 kB at a time.",
    )
    headings = ("p50 / p99, µs", "1 kB, unloaded", *(f"{share} %" for share in SHARES))
    return ["## Latency at equal load", text, table(headings, rows)]


def crowd(samples: Samples) -> list[str]:
    """Return what greedy clients do to others, or nothing where it was not measured."""
    rows = [
        [label, quantiles(samples, "crowd", name), quantiles(samples, "crowd and greedy", name)]
        for name, label in NAMES.items()
        if quantiles(samples, "crowd", name)
    ]
    if not rows:
        return []
    text = paragraph(
        f"{CROWD} clients send {CROWD_RATE:,} requests of 1 kB a second together, alone and next to",
        f"{GREEDY} clients that keep their sockets full of requests of 64 kB.",
    )
    return ["## A crowd", text, table(("p50 / p99, µs", "alone", "next to greedy ones"), rows)]


def number(value: float | None) -> str:
    """Return a number with three or so significant digits."""
    if value is None:
        return ""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def proxies(samples: Samples) -> str:
    """Return CPU, throughput and latency of each proxy."""
    rows = []
    for name, label in NAMES.items():
        waited = samples.middle("latency 64 kB", name, "waited")
        row = [
            number(samples.middle("1 kB none", name, "cpu_us_a_request")),
            number(samples.middle("64 kB none", name, "cpu_s_a_gb")),
            number(samples.middle("1 MB none", name, "cpu_s_a_gb")),
            number(samples.middle("64 kB none", name, "mb_a_second")),
            quantiles(samples, "latency 64 kB", name),
            "" if waited is None else f"{waited:.0%}",
        ]
        if any(row):
            rows.append([label, *row])
    headings = (
        "",
        "1 kB: µs per request",
        "64 kB: CPU s/GB",
        "1 MB: CPU s/GB",
        "MB/s at 64 kB",
        "latency p50 / p99, µs",
        "waited for a core",
    )
    return table(headings, rows)


def tls(samples: Samples) -> list[str]:
    """Return the cost of TLS, or nothing where it was not measured."""
    rows = []
    for name, label in NAMES.items():
        kinds = (("1 kB", "cpu_us_a_request"), ("64 kB", "cpu_s_a_gb"))
        found = [
            samples.middle(f"{size} {end}", name, what)
            for size, what in kinds
            for end in ("none", "TLS")
        ]
        small, small_tls, large, large_tls = found
        if small is None or small_tls is None or large is None or large_tls is None:
            continue
        speed = samples.middle("64 kB TLS", name, "mb_a_second")
        rows.append(
            [label, *map(number, (small, small_tls, large, large_tls, large_tls - large, speed))]
        )
    if not rows:
        return []
    headings = (
        "",
        "1 kB: µs per request, plain",
        "1 kB, TLS",
        "64 kB: CPU s/GB, plain",
        "64 kB, TLS",
        "TLS costs, s/GB",
        "MB/s at 64 kB, TLS",
    )
    text = "TLS 1.3 (AES-128-GCM) from the clients, plain TCP to the broker."
    return ["## TLS", text, table(headings, rows)]


def compressed(samples: Samples, loads: dict[str, Any]) -> list[str]:
    """Return what claims save for compressed frames, or nothing where it was not measured."""
    rows = []
    for cell in samples.samples:
        found = [samples.middle(cell, way, "cpu_s_a_gb") for way in COMPRESSED]
        saved, over = (
            samples.ratios(cell, "audit", "validating"),
            samples.ratios(cell, "audit", "off"),
        )
        if f"{cell} claims" not in loads or None in found or not saved or not over:
            continue
        saves, times = 1 - statistics.median(saved), statistics.median(over)
        records = loads[f"{cell} claims"]["records"]
        rows.append([cell, f"{records:,}", *map(number, found), f"{saves:.0%}", f"{times:.2f}×"])
    if not rows:
        return []
    headings = (
        "frames",
        "records",
        "validation off",
        "without claims",
        "claims trusted",
        "claims audited (0.001)",
        "claims save",
        "audited over off",
    )
    text = "CPU seconds per GB on the wire. Claims spare the gate the decompression."
    return ["## Compressed frames and claims", text, table(headings, rows)]


def memory(found: dict[str, Any]) -> list[str]:
    """Return resident memory: idle connections, a stalled broker, a stalled client."""
    idle, broker, client = found["idle"], found["stalled_broker"], found["stalled_client"]
    rows = [
        (NAMES.get(name, name), f"{one['bytes_a_connection'] / 1000:.1f} kB")
        for name, one in idle.items()
    ]
    text = paragraph(
        f"Growth of the gate's resident memory: {broker['growth_bytes'] / 1e6:,.0f} MB while",
        f"{broker['clients']:,} clients send to a stalled broker",
        f"({broker['bytes_taken'] / 1e6:,.0f} MB were taken, the kernel's buffers included);",
        f"{client['growth_bytes'] / 1e6:,.0f} MB while {client['bytes_queued'] / 1e6:,.0f} MB of",
        "responses wait for a stalled client. All requests were answered afterwards.",
    )
    return [
        "## Memory",
        table((f"{idle['validating']['connections']:,} idle connections", "each"), rows),
        text,
    ]


def proxy_body(result: dict[str, Any]) -> str:
    """Return the part about proxies."""
    settings, samples = result["settings"], Samples(result["samples"])
    missing = ", ".join(sorted(settings["missing"]))
    opening = paragraph(
        "This page compares the gate with other proxies for Kafka, and with a relay that only",
        "passes bytes.",
        measured(result, versions_of(settings)),
        f"CRC-32C kernel {result['machine']['crc32c']}.",
        how("the-gate"),
    )
    setting = paragraph(
        f"{settings['rounds']} rounds of {settings['seconds']:g} s for each cell, medians;",
        f"{settings['connections']} connections over loopback with {settings['window']} requests",
        "in flight each; records of 1 kB. CPU is the user and system time of the proxy's process;",
        "a GB is 10^9 bytes of frames.",
        load_of(settings["load"]) if "load" in settings else "",
        f"Not in this run: {missing}." if missing else "",
    )
    return page(
        opening,
        setting,
        "## Proxies, uncompressed Produce requests",
        proxies(samples),
        *ratios(samples),
        *open_loop(samples, settings.get("open_loop_rate", 0.0)),
        *crowd(samples),
        *tls(samples),
        *compressed(samples, result["loads"]),
        *memory(result["memory"]),
    )


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    return proxy_body(results["proxy"])
