"""Reads what --print-metrics prints, by the format of Kafka's ToolsUtils.printMetrics."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["KAFKAS", "generic", "parse_metrics"]

#: What the tools of 4.3.1 printed, and those of 4.4.0 print, with client-id, topic, node-id and
#: partition made generic.
KAFKAS = frozenset(
    (Path(__file__).parent / "golden/metric_names_4.3.1.txt").read_text().splitlines()
)


def generic(name: str) -> str:
    """Return a name without the values of its tags."""
    for tag, letter in (("client-id", "C"), ("topic", "T"), ("node-id", "N"), ("partition", "P")):
        name = re.sub(rf"\b{tag}=[^,}}]*", f"{tag}={letter}", name)
    return name


def parse_metrics(text: str) -> list[dict[str, float]]:
    """Return each list: a header, names padded to the longest, three decimals."""
    found: list[dict[str, float]] = []
    width = 0
    for line in text.splitlines():
        if match := re.fullmatch(r"(Metric Name *)   Value", line):
            found.append({})
            width = len(match[1])
        elif found and line and not line.startswith("Metrics for thread "):
            name, value = line[:width], line[width:]
            assert re.fullmatch(r" : (-?\d+\.\d{3}|NaN)", value), line
            found[-1][name.rstrip()] = float(value[3:])
    return found
