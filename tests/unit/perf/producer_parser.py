"""Reads the lines of a producer's run by the formats of Kafka's ProducerPerformance; anything else
is an error.

"%d records sent, %.1f records/sec (%.2f MB/sec), %.1f ms avg latency, %.1f ms max latency."
"%d%s records sent, %f records/sec (%.2f MB/sec), %.2f ms avg latency, %.2f ms max latency, %d ms
50th, …"
"""

from __future__ import annotations

import re
from dataclasses import dataclass

KAFKAS = {"rate": r"\d+\.\d{1}", "total_rate": r"\d+\.\d{6}", "mb": r"\d+\.\d{2}"}


@dataclass
class Line:
    kind: str  # "interval", "total" or "steady"
    records: int
    rate: float
    mb: float
    avg: float
    max: float
    percentiles: dict[str, float]


def _pattern(unit: str, *, total: bool) -> re.Pattern[str]:
    """``unit`` "ms": Kafka's places; "us": three decimals of ms everywhere."""
    rate = KAFKAS["total_rate" if total else "rate"]
    avg = r"\d+\.\d{3}" if unit == "us" else r"\d+\.\d{2}" if total else r"\d+\.\d{1}"
    place = r"\d+\.\d{3}" if unit == "us" else r"\d+"
    text = (
        rf"(?P<records>\d+)(?P<steady> steady state)? records sent, (?P<rate>{rate}) records/sec "
    )
    text += rf"\((?P<mb>{KAFKAS['mb']}) MB/sec\), (?P<avg>{avg}) ms avg latency, (?P<max>{avg}) ms max latency"
    if total:
        for name in ("50th", "95th", "99th", "99.9th"):
            text += rf", (?P<p{name.replace('.', '_')}>{place}) ms {re.escape(name)}"
    return re.compile(text + r"\.")


PATTERNS = {
    (unit, total): _pattern(unit, total=total) for unit in ("us", "ms") for total in (False, True)
}


def parse_line(line: str, unit: str = "us") -> Line | None:
    """A line of Kafka's, or None where it is none of them."""
    for total in (True, False):
        if match := PATTERNS[unit, total].fullmatch(line):
            found = match.groupdict()
            kind = "steady" if found["steady"] else "total" if total else "interval"
            assert total or not found["steady"]
            places = {
                k[1:].replace("_", "."): float(v) for k, v in found.items() if re.match(r"p\d", k)
            }
            numbers = (float(found[k]) for k in ("rate", "mb", "avg", "max"))
            return Line(kind, int(found["records"]), *numbers, places)
    return None


def parse(text: str, unit: str = "us", *, strict: bool = False) -> list[Line]:
    """All lines of Kafka's. With ``strict`` there may be no others."""
    lines = [(line, parse_line(line, unit)) for line in text.splitlines()]
    assert not strict or all(parsed for _, parsed in lines), [
        line for line, parsed in lines if parsed is None
    ]
    assert all(parsed is not None for line, parsed in lines if "records sent" in line), text
    return [parsed for _, parsed in lines if parsed is not None]


#: Lines on stderr at the end of a run in microseconds; those of sends with --throughput alone.
DETAILS = (
    "latency",
    "latency from the send",
    "on the wire",
    "first to last send",
    "highest in flight",
)


def complaints(stderr: str) -> list[str]:
    """Return the lines of stderr without the details of the run."""
    return [line for line in stderr.splitlines() if line.partition(":")[0] not in DETAILS]
