"""Compare what proxies.py has measured with internal goals: JSON rows, a table for the terminal.

A figure is the median of its rounds. A ratio is taken round by round, so that a slow minute hits
both sides; the spread is half the distance from the lowest to the highest, as a share of the
median. ``met`` where the figure reaches its target, ``noise`` where it misses it by no more than
its spread or cannot be true, ``missed`` else.

    python -m bench.proxy.verdicts RESULT.json [--write]
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from bench import runs
from bench.pages import proxy as page
from bench.pages.proxy import METADATA, number

PEERS = {
    "kafka-proxy": "kafka-proxy, tuned",
    "kroxylicious": "Kroxylicious, no filter",
    "kroxylicious validating": "Kroxylicious with RecordValidation",
}
RATIOS = {
    ("64 kB none", "kroxylicious"): 0.55,
    ("64 kB none", "kafka-proxy"): 0.5,
    ("64 kB none", "kroxylicious validating"): 0.3,
    ("1 kB none", "kroxylicious"): 0.3,
    ("1 kB none", "kafka-proxy"): 0.3,
}
TLS_SIZES = ("1 kB", "64 kB")
CLAIMS = {"64 kB": 1.35, "1 MB": 1.15}


class Goals(page.Samples):
    """Rows of the table of goals."""

    def __init__(self, measured: dict[str, Any]) -> None:
        super().__init__(measured["samples"])
        self.memory: dict[str, Any] = measured["memory"]
        self.rows: list[dict[str, Any]] = []

    def row(self, figure: str, target: float, values: list[float], unit: str) -> None:
        """Add a row of the rounds' values."""
        row: dict[str, Any] = {"figure": figure, "target": target, "unit": unit}
        self.rows.append(row)
        if not values:
            row["verdict"] = "not measured"
            return
        value, spread = statistics.median(values), runs.spread(values)
        row |= {"measured": value, "best": min(values), "spread": spread}
        # below 0: no proxy is faster than none, so this is the machine's other work
        row["verdict"] = runs.NOISE if value < 0 else runs.verdict(value, target, "lower", spread)

    def all(self) -> list[dict[str, Any]]:
        for cell, target, unit, what in (
            ("64 kB none", 0.45, "CPU s/GB", "cpu_s_a_gb"),
            ("1 kB none", 10.0, "µs CPU a request", "cpu_us_a_request"),
            ("1 MB none", 0.45, "CPU s/GB", "cpu_s_a_gb"),
        ):
            size = cell.removesuffix(" none")
            self.row(
                f"validating, uncompressed, {size} frames",
                target,
                self.values(cell, "validating", what),
                unit,
            )
            for (at, peer), bound in RATIOS.items():
                if at == cell:
                    self.row(
                        f"the same over {PEERS[peer]}",
                        bound,
                        self.ratios(cell, "validating", peer),
                        "×",
                    )
        for size, target in CLAIMS.items():
            for cell in self.samples:
                if cell.startswith(size) and not cell.endswith(("none", "TLS")):
                    figure = f"audited claims over validation off, {cell} frames"
                    self.row(figure, target, self.ratios(cell, "audit", "off"), "×")
        self.row(
            f"{METADATA}: addresses rewritten",
            30.0,
            self.values(METADATA, "validating", "us"),
            "µs",
        )
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
            (
                "stalled_broker",
                f"growth, {self.memory['stalled_broker']['clients']:,} clients on a stalled broker",
            ),
            (
                "stalled_client",
                f"growth, {self.memory['stalled_client']['bytes_queued'] / 1e9:.2g} GB for a stalled client",
            ),
        ):
            found = self.memory[key]
            self.row(figure, found["limit_bytes"] / 1e6, [found["growth_bytes"] / 1e6], "MB")
        return self.rows


def rated(measured: dict[str, Any]) -> dict[str, Any]:
    return measured | {"rows": Goals(measured).all()}


# ---- Markdown ------------------------------------------------------------------------------------


def markdown(result: dict[str, Any]) -> str:
    """Return what the terminal shows: the page's part, and the internal goals."""
    rows = [
        (
            row["figure"],
            f"≤ {row['target']:g} {row['unit']}",
            f"{number(row['measured'])} {row['unit']}" if "measured" in row else "",
            f"± {row['spread']:.0%}" if row.get("spread") else "",
            number(row.get("best")),
            row["verdict"],
        )
        for row in result["rows"]
    ]
    headings = ("figure", "target", "measured", "spread", "best round", "verdict")
    return f"{page.proxy_body(result)}\n{runs.goals(headings, rows)}"


def main() -> int:
    """Run the command."""
    return runs.again(__doc__, "proxy", rated, markdown)


if __name__ == "__main__":
    sys.exit(main())
