"""Read the output of Kafka's perf tools as other projects do, by their public sources.

Each entry says which expression or which split a project applies, and to which lines; the code is
written here. Percentiles with a decimal point are right, nothing, or wrong to a reader.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["CONSUMERS", "PRODUCERS", "Figures", "Reader"]

#: records, rate, mb, avg, max, p50, p95, p99, p999: as much as a reader takes
Figures = dict[str, float]


@dataclass(frozen=True)
class Reader:
    """A project, and how it reads a tool's stdout. None: it found nothing."""

    project: str
    read: Callable[[str], Figures | None]
    decimals: Literal["right", "nothing", "wrong"] = "right"


def _figures(match: re.Match[str] | None) -> Figures | None:
    if match is None:
        return None
    found = {name: value for name, value in match.groupdict().items() if value is not None}
    return {name: float(value.replace(",", "")) for name, value in found.items()}


def _last(pattern: str, has: str = "") -> Callable[[str], Figures | None]:
    """Apply ``pattern`` everywhere; the last match counts, or the last that has this group."""
    compiled = re.compile(pattern, re.MULTILINE)

    def read(text: str) -> Figures | None:
        matches = [one for one in compiled.finditer(text) if not has or one[has]]
        return _figures(matches[-1]) if matches else None

    return read


def _first(pattern: str) -> Callable[[str], Figures | None]:
    compiled = re.compile(pattern)
    return lambda text: _figures(compiled.search(text))


def _last_line(pattern: str) -> Callable[[str], Figures | None]:
    """Match ``pattern`` at the start of the last line."""
    compiled = re.compile(pattern)
    return lambda text: _figures(compiled.match(text.splitlines()[-1]))


def _ducktape_producer(text: str) -> Figures | None:
    """Split the last line at its commas: the first word of each part."""
    parts = text.splitlines()[-1].split(",")
    words = [part.split()[0] for part in parts]
    names = ("rate", "avg", "max", "p50", "p95", "p99", "p999")
    found = {"records": float(int(words[0])), "mb": float(parts[1].split("(")[1].split()[0])}
    return found | {name: float(word) for name, word in zip(names, words[1:], strict=True)}


def _without_units(text: str) -> Figures | None:
    """Split the last line with "records sent" at ", "; take the units off each part."""
    lines = [line for line in text.splitlines() if "records sent" in line]
    parts = lines[-1].split(", ")
    names = {4: ("p50", " ms 50th"), 5: ("p95", " ms 95th"), 6: ("p99", " ms 99th")}
    return {name: float(parts[i].replace(unit, "")) for i, (name, unit) in names.items()}


def _fourth_word(text: str) -> Figures | None:
    """grep "sent", awk: the fourth word of each line; the last counts."""
    lines = [line for line in text.splitlines() if "sent" in line]
    return {"rate": float(lines[-1].split()[3])}


def _piecewise(text: str) -> Figures | None:
    """Search the last line with "records sent" once for each figure."""
    line = [line for line in text.splitlines() if "records sent" in line][-1]
    patterns = {"records": r"^(\d+) records sent", "rate": r"([\d.]+) records/sec"}
    patterns |= {"mb": r"([\d.]+) MB/sec", "avg": r"([\d.]+) ms avg", "max": r"([\d.]+) ms max"}
    patterns |= {"p50": r"(\d+) ms 50th", "p95": r"(\d+) ms 95th", "p999": r"(\d+) ms 99\.9th"}
    found = {name: re.search(pattern, line) for name, pattern in patterns.items()}
    matches = {name: match for name, match in found.items() if match is not None}
    return {name: float(match[1]) for name, match in matches.items()}


_HEAD = r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec \((?P<mb>[\d.]+) MB/sec\), "
_LATENCIES = r"(?P<avg>[\d.]+) ms avg latency, (?P<max>[\d.]+) ms max latency, "
_WHOLE = (
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th"
)
_DIGITS = r"\d+[.]?\d*"

PRODUCERS = (
    Reader("Apache Kafka, producer_performance.py", _ducktape_producer),
    Reader(
        "Kroxylicious, perf-tests.sh",
        _last(
            rf"^(?P<records>\d+) *records sent, *(?P<rate>{_DIGITS}) records/sec "
            rf"[(](?P<mb>{_DIGITS}) MB/sec[)], *(?P<avg>{_DIGITS}) ms avg latency"
            rf", *(?P<max>{_DIGITS}) ms max latency(, *(?P<p50>{_DIGITS}) ms 50th"
            rf", *(?P<p95>{_DIGITS}) ms 95th, *(?P<p99>{_DIGITS}) ms 99th"
            rf", *(?P<p999>{_DIGITS}) ms 99.9th)?[.]"
        ),
    ),
    Reader(
        "AWS performance testing framework",
        _last(
            r"(?P<records>\S+) records sent, (?P<rate>\S+) records.sec \((?P<mb>\S+) MB.sec\), "
            r"(?P<avg>\S+) ms avg latency, (?P<max>\S+) ms max latency, (?P<p50>\S+) ms 50th, "
            r"(?P<p95>\S+) ms 95th, (?P<p99>\S+) ms 99th, (?P<p999>\S+) ms 99.9th"
        ),
    ),
    Reader(
        "PBAC in Pub/Sub, benchmark logs",
        _last(r"^.*?(?P<rate>[\d,.]+) records/sec.*?(?P<avg>[\d,.]+) ms avg latency"),
    ),
    Reader("hello-python-web, test-pub.sh", _fourth_word),
    Reader(
        "a benchmark of publishers, last match",
        _last(
            r"(?P<records>[\d,]+) records sent, (?P<rate>[\d.]+) records/sec .*?"
            + _LATENCIES
            + r"(?P<p50>[\d.]+) ms 50th, (?P<p95>[\d.]+) ms 95th, "
            r"(?P<p99>[\d.]+) ms 99th, (?P<p999>[\d.]+) ms 99.9th"
        ),
    ),
    Reader(
        "a benchmark of appends, first match",
        _first(
            r"(?P<records>\d+) records sent, (?P<rate>[0-9.]+) records/sec .*?, "
            r"(?P<avg>[0-9.]+) ms avg latency, .*?, (?P<p50>[0-9.]+) ms 50th, "
            r"(?P<p95>[0-9.]+) ms 95th, (?P<p99>[0-9.]+) ms 99th"
        ),
    ),
    Reader(
        "a loop in bash",
        _last(
            r"\d+ records sent, .+ records/sec \((?P<mb>.+) MB/sec\), (?P<avg>.+) ms avg latency"
        ),
    ),
    Reader("a script that splits at commas", _without_units),
    Reader("AutoMQ, automq_e2e_util.py", _last_line(_HEAD + _LATENCIES + _WHOLE + "."), "nothing"),
    Reader(
        "kacrab, latency_gate.sh",
        _last(r"^.*, (?P<p50>[0-9]+) ms 50th, [0-9]+ ms 95th, (?P<p99>[0-9]+) ms 99th,.*"),
        "nothing",
    ),
    Reader(
        "Brahmaputra, bench scripts",
        _last(
            r"records sent.*, (?P<avg>[0-9.]*) ms avg latency, (?P<max>[0-9.]*) ms max latency, "
            r"(?P<p50>[0-9]*) ms 50th, [0-9]* ms 95th, (?P<p99>[0-9]*) ms 99th, "
            r"(?P<p999>[0-9]*) ms 99.9th"
        ),
        "nothing",
    ),
    Reader(
        "kbench, stock clients",
        _last(rf"^{_HEAD.replace(' ', ' (?:steady state )?', 1)}{_LATENCIES}{_WHOLE}\.$"),
        "nothing",
    ),
    Reader(
        "a cgroup benchmark",
        _last(
            _HEAD.replace(r"\d+", "[0-9.]+", 1)
            + _LATENCIES.removesuffix(", ")
            + rf"(?:, {_WHOLE})?",
            has="p50",
        ),
        "nothing",
    ),
    Reader(
        "jobs on OpenShift, from logs",
        _last(
            r"^(?P<records>\d+) records sent, (?P<rate>\d+\.\d+) records/sec "
            r"\((?P<mb>\d+.\d+) MB/sec\), (?P<avg>\d+.\d+) ms avg latency, "
            rf"(?P<max>\d+.\d+) ms max latency, {_WHOLE}\.$"
        ),
        "nothing",
    ),
    Reader("a script in PowerShell", _last(rf"^\s*{_HEAD}{_LATENCIES}{_WHOLE}"), "nothing"),
    Reader("sed into producer.csv", _last(_HEAD + _LATENCIES + _WHOLE + r"\."), "nothing"),
    Reader("a report of sums, one search a figure", _piecewise, "wrong"),
)

_CONSUMER_NAMES = (
    "mb",
    "mb_rate",
    "records",
    "rate",
    "rebalance",
    "fetch",
    "fetch_mb_rate",
    "fetch_rate",
)


def _ducktape_consumer(text: str) -> Figures | None:
    """Split the last line at its commas: the third, fourth and sixth part."""
    parts = text.splitlines()[-1].split(",")
    return {"mb": float(parts[2]), "mb_rate": float(parts[3]), "rate": float(parts[5])}


def _sixth_of_each(text: str) -> Figures | None:
    """awk -F',': the sixth part of each line that has one."""
    found = [parts[5] for line in text.splitlines() if len(parts := line.split(",")) > 5]
    return {"rate": float(found[-1])}


def _dated_lines(text: str) -> Figures | None:
    """Take lines that begin with a year; the last counts."""
    lines = [line for line in text.splitlines() if re.match(r"^\d{4}-", line)]
    parts = [part.strip() for part in lines[-1].split(",")]
    return {"mb": float(parts[2]), "mb_rate": float(parts[3]), "rate": float(parts[5])}


def _by_header(text: str) -> Figures | None:
    """Read as CSV with the header's names, without lines that begin with WARNING."""
    lines = [one for one in text.splitlines() if one.strip() and not one.startswith("WARNING")]
    row = {name.strip(): value for name, value in list(csv.DictReader(lines))[-1].items()}
    columns = {"mb": "data.consumed.in.MB", "records": "data.consumed.in.nMsg", "rate": "nMsg.sec"}
    columns |= {"mb_rate": "MB.sec", "rebalance": "rebalance.time.ms", "fetch": "fetch.time.ms"}
    return {name: float(row[column]) for name, column in columns.items()}


def _line_below_the_header(text: str) -> Figures | None:
    """Take the line after the header, by the header's names."""
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("start.time,"))
    values = [part.strip() for part in lines[at + 1].split(",")][2:]
    return {name: float(value) for name, value in zip(_CONSUMER_NAMES, values, strict=True)}


_STAMP = r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}:\d{3}"

CONSUMERS = (
    Reader("Apache Kafka, consumer_performance.py", _ducktape_consumer),
    Reader("hello-python-web, test-sub.sh", _sixth_of_each),
    Reader("a cgroup benchmark", _dated_lines),
    Reader("a result as JSON, by the header", _by_header),
    Reader("kbench, stock clients", _line_below_the_header),
    Reader(
        "a parser of consumer logs",
        _last(
            rf"{_STAMP}, {_STAMP}, (?P<mb>[\d.]+), (?P<mb_rate>[\d.]+), (?P<records>\d+), "
            r"(?P<rate>[\d.]+), (?P<rebalance>\d+), (?P<fetch>\d+), (?P<fetch_mb_rate>[\d.]+), "
            r"(?P<fetch_rate>[\d.]+)"
        ),
    ),
    Reader("AWS performance testing framework", _last(r"(?P<fetch_rate>\S+)$")),
)
