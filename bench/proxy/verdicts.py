"""Judges what proxies.py has measured, and writes it down: JSON, Markdown, the README's section.

A figure is the median of its rounds. A ratio is taken round by round, so that a slow minute hits both sides; the spread
is half the distance from the lowest to the highest, as a share of the median. ``met`` where the figure reaches its
target, ``noise`` where it misses it by no more than its spread or cannot be true, ``missed`` else.

    python bench/proxy/verdicts.py RESULT.json [--save]
"""

from __future__ import annotations

import json
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "validation"))

import readme_section  # noqa: E402
import result_files  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "proxy"

PEERS = {
    "kafka-proxy": "kafka-proxy, tuned",
    "kroxylicious": "Kroxylicious, no filter",
    "kroxylicious validating": "Kroxylicious with RecordValidation",
}
NAMES = {
    "validating": "this gate, validating",
    "off": "this gate, validation off",
    "pump": "a relay in C that reads and writes and looks at nothing",
    **PEERS,
}
RATIOS = {
    ("64 kB none", "kroxylicious"): 0.55,
    ("64 kB none", "kafka-proxy"): 0.5,
    ("64 kB none", "kroxylicious validating"): 0.3,
    ("1 kB none", "kroxylicious"): 0.3,
    ("1 kB none", "kafka-proxy"): 0.3,
}
METADATA = "Metadata, 600 partitions"
TLS_SIZES = ("1 kB", "64 kB")
CLAIMS = {"64 kB": 1.35, "1 MB": 1.15}

Samples = list[dict[str, Any]]


def middle(values: list[float]) -> float:
    return statistics.median(values)


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / 2 / abs(middle(values)) if values and middle(values) else 0.0


class Judge:
    """Rows of the table of targets."""

    def __init__(self, measured: dict[str, Any]) -> None:
        self.samples: dict[str, dict[str, Samples]] = measured["samples"]
        self.memory: dict[str, Any] = measured["memory"]
        self.rows: list[dict[str, Any]] = []

    def values(self, cell: str, name: str, what: str) -> list[float]:
        return [one[what] for one in self.samples.get(cell, {}).get(name, []) if what in one]

    def ratios(self, cell: str, name: str, other: str, what: str = "cpu_s_a_gb") -> list[float]:
        pairs = zip(self.samples.get(cell, {}).get(name, []), self.samples.get(cell, {}).get(other, []), strict=False)
        return [a[what] / b[what] for a, b in pairs if what in a and what in b]

    def row(self, figure: str, target: float, values: list[float], unit: str) -> None:
        if not values:
            self.rows.append({"figure": figure, "target": target, "unit": unit, "verdict": "not measured"})
            return
        value, margin = middle(values), spread(values)
        verdict = "met" if value <= target else "noise" if value * (1 - margin) <= target else "missed"
        if value < 0:
            verdict = "noise"  # no proxy is faster than none: what was compared is the machine's other work
        self.rows.append(
            {
                "figure": figure,
                "target": target,
                "measured": value,
                "best": min(values),
                "spread": margin,
                "unit": unit,
                "verdict": verdict,
            }
        )

    def all(self) -> list[dict[str, Any]]:
        for cell, target, unit, what in (
            ("64 kB none", 0.45, "CPU s/GB", "cpu_s_a_gb"),
            ("1 kB none", 10.0, "µs CPU a request", "cpu_us_a_request"),
            ("1 MB none", 0.45, "CPU s/GB", "cpu_s_a_gb"),
        ):
            size = cell.removesuffix(" none")
            self.row(f"validating, uncompressed, {size} frames", target, self.values(cell, "validating", what), unit)
            for (at, peer), bound in RATIOS.items():
                if at == cell:
                    self.row(f"the same over {PEERS[peer]}", bound, self.ratios(cell, "validating", peer), "×")
        for size, target in CLAIMS.items():
            for cell in self.samples:
                if cell.startswith(size) and not cell.endswith(("none", "TLS")):
                    figure = f"audited claims over validation off, {cell} frames"
                    self.row(figure, target, self.ratios(cell, "audit", "off"), "×")
        self.row(f"{METADATA}: addresses rewritten", 30.0, self.values(METADATA, "validating", "us"), "µs")
        for what, target in (("p50_us", 150.0), ("p99_us", 300.0)):
            pairs = zip(
                self.values("latency 64 kB", "validating", what),
                self.values("latency 64 kB", "direct", what),
                strict=False,
            )
            self.row(f"added latency, 64 kB, {what[:3]}", target, [a - b for a, b in pairs], "µs")
        idle = self.memory["idle"]["validating"]["bytes_a_connection"]
        self.row("memory of an idle connection", 25.0, [idle / 1000], "kB")
        for key, figure in (
            ("stalled_broker", f"growth, {self.memory['stalled_broker']['clients']:,} clients on a stalled broker"),
            (
                "stalled_client",
                f"growth, {self.memory['stalled_client']['bytes_queued'] / 1e9:.2g} GB for a stalled client",
            ),
        ):
            found = self.memory[key]
            self.row(figure, found["limit_bytes"] / 1e6, [found["growth_bytes"] / 1e6], "MB")
        return self.rows


def judged(measured: dict[str, Any]) -> dict[str, Any]:
    return measured | {"rows": Judge(measured).all()}


# ---- Markdown ------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    if value is None:
        return ""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def targets(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| figure | target | measured | spread | best round | verdict |", "|---|---|---|---|---|---|"]
    for row in rows:
        margin = f"± {row['spread']:.0%}" if row.get("spread") else ""
        unit = row["unit"]
        shown = f"{number(row.get('measured'))} {unit}" if "measured" in row else ""
        verdict = row["verdict"] if row["verdict"] in ("met", "noise") else f"**{row['verdict']}**"
        cells = row["figure"], f"≤ {row['target']:g} {unit}", shown, margin, number(row.get("best")), verdict
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def proxies(judge: Judge) -> list[str]:
    lines = [
        "| | 1 kB: µs a request | 64 kB: CPU s/GB | 1 MB: CPU s/GB | MB/s at 64 kB | latency p50 / p99, µs "
        "| meanwhile without a core |",
        "|---|---|---|---|---|---|---|",
    ]

    def cell(name: str, at: str, what: str) -> str:
        values = judge.values(at, name, what)
        return number(middle(values)) if values else ""

    for name, text in ({"direct": "no proxy"} | NAMES).items():
        of = partial(cell, name)
        figures = [
            of("1 kB none", "cpu_us_a_request"),
            of("64 kB none", "cpu_s_a_gb"),
            of("1 MB none", "cpu_s_a_gb"),
            of("64 kB none", "mb_a_second"),
            " / ".join(filter(None, (of("latency 64 kB", "p50_us"), of("latency 64 kB", "p99_us")))),
            f"{middle(waited):.0%}" if (waited := judge.values("latency 64 kB", name, "waited")) else "",
        ]
        if any(figures):
            lines.append(f"| {text} | {' | '.join(figures)} |")
    return lines


def tls(judge: Judge) -> list[str]:
    lines = [
        "| | 1 kB: µs a request, plain | TLS | 64 kB: CPU s/GB, plain | TLS | TLS costs, s/GB | MB/s at 64 kB, TLS |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, text in NAMES.items():
        of = [
            judge.values(f"{size} {end}", name, what)
            for size, what in (("1 kB", "cpu_us_a_request"), ("64 kB", "cpu_s_a_gb"))
            for end in ("none", "TLS")
        ]
        if all(of):
            middles = [middle(values) for values in of]
            figures = [*middles, middles[3] - middles[2], middle(judge.values("64 kB TLS", name, "mb_a_second"))]
            lines.append(f"| {text} | {' | '.join(map(number, figures))} |")
    return lines


def compressed(judge: Judge, loads: dict[str, Any]) -> list[str]:
    lines = [
        "| wire frames | records | off | no claims | trusted | audited 0.001 | claims save | audited over off |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in judge.samples:
        if cell.startswith(("latency", METADATA)) or cell.endswith(("none", "TLS")):
            continue
        of = [judge.values(cell, way, "cpu_s_a_gb") for way in ("off", "validating", "trust", "audit")]
        saved = judge.ratios(cell, "audit", "validating")
        over = judge.ratios(cell, "audit", "off")
        if all(of) and saved and over:
            figures = " | ".join(number(middle(values)) for values in of)
            records = loads[f"{cell} claims"]["records"]
            lines.append(f"| {cell} | {records:,} | {figures} | {1 - middle(saved):.0%} | {middle(over):.2f}× |")
    return lines


def memory_lines(memory: dict[str, Any]) -> list[str]:
    idle = ", ".join(
        f"{NAMES.get(name, name)} {found['bytes_a_connection'] / 1000:.1f} kB" for name, found in memory["idle"].items()
    )
    broker, client = memory["stalled_broker"], memory["stalled_client"]
    return [
        f"Memory (resident): an idle connection, {memory['idle']['validating']['connections']:,} of them: {idle}. "
        f"{broker['clients']:,} clients on a stalled broker: {broker['bytes_taken'] / 1e6:,.0f} MB taken (the kernel's "
        f"buffers included), growth {broker['growth_bytes'] / 1e6:,.0f} MB. {client['bytes_queued'] / 1e6:,.0f} MB "
        f"queued for a stalled client: growth {client['growth_bytes'] / 1e6:,.0f} MB. All was answered afterwards."
    ]


def head(result: dict[str, Any]) -> list[str]:
    on, settings = result["machine"], result["settings"]
    lines = [
        f"{on['processor']}; {on['system']}; CRC32C kernel {on['crc32c']}; Python {on['python']}; {result['date']}; "
        f"batchval at {on['commit']}. {settings['rounds']} rounds of {settings['seconds']:g} s a cell, medians; "
        f"{settings['connections']} connections with {settings['window']} requests in flight each, loopback; records "
        "of 1 kB; CPU: user and system time of the proxy's process."
    ]
    if "load" in settings:
        lines.append(f"Load average {settings['load'][0]:.1f} before, {settings['load'][1]:.1f} after.")
    if settings["missing"]:
        lines.append("Not in this run: " + ", ".join(sorted(settings["missing"])) + ".")
    return lines


def markdown(result: dict[str, Any]) -> str:
    judge = Judge(result)
    parts = [head(result), targets(result["rows"]), proxies(judge)]
    table = tls(judge)
    if len(table) > 2:
        parts.append(["TLS 1.3 (AES-128-GCM) from the clients, plain to the broker:", "", *table])
    table = compressed(judge, result["loads"])
    if len(table) > 2:
        parts.append(["Compressed, CPU s a GB on the wire:", "", *table])
    parts.append(memory_lines(result["memory"]))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def save(result: dict[str, Any]) -> None:
    """bench/results/proxy.* and the README's section."""
    readme_section.check("proxy-bench")
    result_files.write(RESULTS, result, markdown(result))
    readme_section.put("proxy-bench", markdown(result))


def main() -> None:
    result = judged(json.loads(Path(sys.argv[1]).read_text()))
    print(markdown(result))
    if "--save" in sys.argv:
        save(result)


if __name__ == "__main__":
    main()
