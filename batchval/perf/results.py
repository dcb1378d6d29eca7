"""The result of a run as JSON, its figures, and results of runs side by side added up.

    {"schema_version": 1, "batchval_perf": 1, "kind": "produce", "client": "batchval",
     "date": "2026-11-21T12:00:00+00:00",
     "settings": {…}, "totals": {…}, "intervals": [{"t_ms": …, "records": …, "bytes": …}, …],
     "histogram": {…}, "histogram_intended": {…} | null, "histogram_wire": {…} | null,
     "calibration": {…} | null, "machine": {…}, "versions": {…}}

``histogram`` counts from the send, ``histogram_intended`` from the instants of the schedule: where
it is there, the latencies of ``totals`` and of the intervals are its own. ``histogram_wire`` counts
requests, from the last byte written to the first byte of the answer.

``totals`` of a producer: records, failed, bytes, wire_bytes (or null), elapsed_ns,
highest_in_flight, highest_in_flight_total, errors {name: count}, latency_from ("intended" or
"send") with avg_us, stddev_us, max_us and percentiles_us, from_send and on_the_wire (the same of
the others), client_round_trips (what librdkafka counts), sent_records, sending_ns and
sent_per_second (first to last send), and steady_state (the same after the warm-up, or null).
"""

from __future__ import annotations

import base64
import json
import os
import platform
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from batchval.errors import BatchvalError
from batchval.named_files import read_whole, write_text
from batchval.perf.consumer_lines import fixed4, rate
from batchval.perf.histogram import Histogram
from batchval.perf.producer_lines import in_ms
from batchval.segment.file_formats import START_SIZE, json_fault, not_json_reason

__all__ = [
    "PERCENTILES",
    "VERSION",
    "NotAResult",
    "Result",
    "ResultError",
    "figures",
    "hdr_encoded",
    "hdr_log",
    "is_better",
    "latencies_us",
    "latency_from",
    "machine",
    "merge",
    "throughput",
    "versions",
]

VERSION = 1
_KINDS = ("produce", "consume", "roundtrip")
_HISTOGRAMS = ("histogram", "histogram_intended", "histogram_wire")


class ResultError(BatchvalError):
    """Results that cannot be read, merged or compared."""


class NotAResult(ResultError, OSError):
    """A file is not the result of a run, or of a version that is not known here."""


def machine() -> dict[str, Any]:
    """Return a description of the machine, without names of hosts or people."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": model or platform.machine(),
        "cores": os.cpu_count(),
    }


def versions() -> dict[str, str]:
    """Return the versions of all software that can change a figure."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in ("batchval", "uvloop", "confluent-kafka"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@dataclass(slots=True)
class Result:
    """A run: what was asked, what came of it, and where."""

    kind: str
    client: str
    settings: dict[str, Any]
    totals: dict[str, Any]
    intervals: list[dict[str, Any]]
    histogram: Histogram | None
    histogram_intended: Histogram | None = None
    histogram_wire: Histogram | None = None
    calibration: dict[str, Any] | None = None
    machine: dict[str, Any] = field(default_factory=machine)
    versions: dict[str, str] = field(default_factory=versions)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def headline(self) -> Histogram | None:
        """Return the latencies that count: from the instants of the schedule, where there was
        one.
        """
        return self.histogram if self.histogram_intended is None else self.histogram_intended

    def to_json(self) -> dict[str, Any]:
        """Return plain values for json.dumps."""
        return {
            "schema_version": VERSION,
            "batchval_perf": VERSION,
            "kind": self.kind,
            "client": self.client,
            "date": self.date,
            "settings": self.settings,
            "totals": self.totals,
            "intervals": self.intervals,
            **{
                name: None if (one := getattr(self, name)) is None else one.to_json()
                for name in _HISTOGRAMS
            },
            "calibration": self.calibration,
            "machine": self.machine,
            "versions": self.versions,
        }

    @classmethod
    def from_json(cls, data: Any) -> Result:
        """Return the result that to_json gave. ResultError for anything else."""
        if not isinstance(data, dict) or "batchval_perf" not in data:
            raise ResultError(f"not the result of a perf run{_other_json(data)}")
        if data["batchval_perf"] != VERSION:
            raise ResultError(
                f"a result of version {data['batchval_perf']!r}; known here: {VERSION}"
            )
        kinds = {
            "settings": dict,
            "totals": dict,
            "machine": dict,
            "versions": dict,
            "intervals": list,
        }
        kinds |= {"client": str, "date": str, "kind": str}
        for name, kind in kinds.items():
            if not isinstance(data.get(name), kind):
                raise ResultError(f"a result without {name}")
        if data["kind"] not in _KINDS:
            raise ResultError(f"a result of {data['kind']!r}: known are {', '.join(_KINDS)}")
        try:
            found = {
                name: None if data.get(name) is None else Histogram.from_json(data[name])
                for name in _HISTOGRAMS
            }
        except ValueError as error:
            raise ResultError(str(error)) from None
        return cls(
            data["kind"],
            data["client"],
            data["settings"],
            data["totals"],
            data["intervals"],
            **found,
            calibration=data.get("calibration"),
            machine=data["machine"],
            versions=data["versions"],
            date=data["date"],
        )

    def write(self, path: Path | str) -> None:
        """Write the result into a file. Raises OSError."""
        write_text(Path(path), json.dumps(self.to_json(), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path | str) -> Result:
        """Read a result from a file. Raises OSError; NotAResult says what the file holds."""
        path = Path(path)
        data = read_whole(path)
        try:
            found = cls.from_json(json.loads(data.decode()))
            for name in ("records", "bytes", "elapsed_ns"):
                if not isinstance(found.totals.get(name), int | float):
                    raise ResultError(f"a result without totals.{name}")
            return found
        except ResultError as error:
            raise NotAResult(f"{path}: {error}") from None
        except (ValueError, RecursionError) as error:
            reason = not_json_reason(path, data[:START_SIZE]) or json_fault(error)
            raise NotAResult(f"{path}: not the result of a perf run: {reason}") from None


def _other_json(data: Any) -> str:
    """Return what else a JSON document is, where its ``type`` says so."""
    if isinstance(data, dict) and "schema_version" in data and isinstance(data.get("type"), str):
        return f": it is a {data['type']!r} document that --json of a command printed"
    return ": expected a file that --output of perf produce, consume or roundtrip wrote"


PERCENTILES = (50.0, 75.0, 95.0, 99.0, 99.9)
_MB = 1024 * 1024


def latencies_us(histogram: Histogram) -> dict[str, Any]:
    """Return the latencies of a producer's totals, by their names in a result; microseconds."""
    return {
        "avg_us": histogram.mean,
        "stddev_us": histogram.stddev,
        "max_us": histogram.max,
        "percentiles_us": {
            f"{percent:g}": histogram.percentile(percent)
            for percent in (50, 75, 95, 99, 99.9, 99.99)
        },
    }


def figures(result: Result) -> dict[str, str]:
    """Return the figures by name as compare and the report print them, in this order.

    Latencies are milliseconds with three decimals; a consumer's are those of its row.
    """
    totals = result.totals
    records, nbytes, elapsed_ms = totals["records"], totals["bytes"], totals["elapsed_ns"] / 1e6
    if result.kind == "consume":
        mb = nbytes / _MB
        return {
            "MB.sec": fixed4(rate(mb, elapsed_ms)),
            "nMsg.sec": fixed4(rate(records, elapsed_ms)),
            "rebalance.time.ms": str(int(totals["rebalance_ms"])),
            "fetch.time.ms": str(int(totals["fetch_ms"])),
            "fetch.MB.sec": fixed4(rate(mb, totals["fetch_ms"])),
            "fetch.nMsg.sec": fixed4(rate(records, totals["fetch_ms"])),
        }
    found = {
        "records/sec": f"{rate(records, elapsed_ms):.1f}",
        "MB/sec": f"{rate(nbytes / _MB, elapsed_ms):.2f}",
    }
    histogram = result.headline
    if histogram is not None and histogram.count:
        found["ms avg latency"] = in_ms(round(histogram.mean))
        found["ms max latency"] = in_ms(histogram.max)
        found |= {
            f"ms {percent:g}th": in_ms(histogram.percentile(percent)) for percent in PERCENTILES
        }
    return found


def is_better(name: str, share: float) -> bool:
    """Return whether a change of this figure by this share is better: more throughput, less
    time.
    """
    return share > 0 if name.lower().endswith("sec") else share < 0


def throughput(result: Result) -> list[tuple[float, float]]:
    """Return seconds since the start and records a second, at the end of each interval.

    A rest shorter than a tenth of an interval is part of the last one: its own rate would mean
    nothing.

    """
    parts: list[tuple[float, float, int]] = []  # end and length in ms, records
    before = 0.0
    for interval in result.intervals:
        took = interval["t_ms"] - before
        if took > 0:
            parts.append((interval["t_ms"], took, interval["records"]))
            before = interval["t_ms"]
    if len(parts) > 1 and parts[-1][1] < parts[-2][1] / 10:
        (_, length, records), (end, rest, more) = parts[-2:]
        parts[-2:] = [(end, length + rest, records + more)]
    return [(end / 1000, records / took * 1000) for end, took, records in parts]


def latency_from(result: Result) -> str:
    """Return from which instant the latencies of the figures are: ``intended``, ``send``, or
    nothing.
    """
    if result.headline is None:
        return ""
    return "send" if result.histogram_intended is None else "intended"


#: Numbers that are not sums.
_MERGED_BY_MAX = {
    "elapsed_ns",
    "sending_ns",
    "highest_in_flight",
    "max_us",
    "t_ms",
    "throttle_time_ms",
}
#: Those of consumers: averages over threads, and dates in ms.
_AVERAGED = {"rebalance_ms"}
_FIRST = {"start_ms", "assigned_ms", "min_us"}
_LAST = {"end_ms"}
#: Those of a histogram: they are not added, but read from the sum of the histograms.
_LATENCIES = ("avg_us", "stddev_us", "max_us", "percentiles_us")


def merge(results: Sequence[Result]) -> Result:
    """Return results of runs side by side, on one machine or on many, as one. Histograms are added
    exactly.

    Records and bytes are sums, the time is that of the longest run, so rates are never above what
    was seen. What each connection had in flight at most is the highest of all; the sum over brokers
    is the sum over the runs, an upper bound. Averages and percentiles of latencies are those of the
    added histograms. Raises ResultError for no results, producers with consumers, and overflow.
    """
    if not results:
        raise ResultError("nothing to merge")
    kinds = sorted({result.kind for result in results})
    if len(kinds) > 1:
        raise ResultError(f"results of {' and '.join(kinds)} cannot be merged")
    totals = _totals([result.totals for result in results])
    if kinds == ["consume"]:
        totals["fetch_ms"] = max(result.totals["fetch_ms"] for result in results)
    histogram, intended, wire = (
        _histogram([getattr(result, name) for result in results])
        for name in ("histogram", "histogram_intended", "histogram_wire")
    )
    if kinds == ["produce"]:
        _add_latencies(totals, histogram if intended is None else intended)
        _add_second_latencies(totals, {"from_send": histogram, "on_the_wire": wire})
        if "latency_from" in totals:
            totals["latency_from"] = "send" if intended is None else "intended"
        if totals.get("steady_state") is not None:
            steady = totals["steady_state"].setdefault("histogram", None)
            _add_latencies(
                totals["steady_state"], None if steady is None else Histogram.from_json(steady)
            )
            _add_second_latencies(totals["steady_state"], {})
    return Result(
        kind=kinds[0],
        client=" + ".join(sorted({result.client for result in results})),
        settings={"merged": len(results)} | _common([result.settings for result in results]),
        totals=totals,
        intervals=_intervals(results),
        histogram=histogram,
        histogram_intended=intended,
        histogram_wire=wire,
        machine=_common([result.machine for result in results]),
        versions=_common([result.versions for result in results]),
        date=min(result.date for result in results),
    )


def _histogram(histograms: Sequence[Histogram | None]) -> Histogram | None:
    """Return the sum; None if one result has no histogram, since a part would pass for the
    whole.
    """
    total = Histogram()
    for histogram in histograms:
        if histogram is None:
            return None
        try:
            total.merge(histogram)
        except OverflowError as error:
            raise ResultError(str(error)) from None
    return total


def _added(many: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the sum of histograms in JSON; None where one has none."""
    try:
        found = _histogram([None if one is None else Histogram.from_json(one) for one in many])
    except ValueError as error:
        raise ResultError(str(error)) from None
    return None if found is None else found.to_json()


def _add_latencies(totals: dict[str, Any], histogram: Histogram | None) -> None:
    """Replace what cannot be added up: averages and percentiles."""
    known = dict.fromkeys(_LATENCIES) if histogram is None else latencies_us(histogram)
    totals |= {name: value for name, value in known.items() if name in totals}


def _add_second_latencies(totals: dict[str, Any], histograms: dict[str, Histogram | None]) -> None:
    """Do the same for latencies that are not the headline; those of unknown histograms are None."""
    for name in ("from_send", "on_the_wire"):
        if isinstance(totals.get(name), dict):
            _add_latencies(totals[name], histograms.get(name))
    if isinstance(trips := totals.get("client_round_trips"), dict):
        # librdkafka reports sums per window; the sum of averages means nothing
        trips["avg_us"] = None


def _totals(many: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for one in many for name in one))
    return {name: _together(name, [one.get(name) for one in many]) for name in names}


def _together(name: str, values: list[Any]) -> Any:
    if name == "histogram":
        return _added(values)
    if name == "topics" and all(isinstance(value, dict) for value in values):
        return {
            topic: _totals([one[topic] for one in values if topic in one])
            for one in values
            for topic in one
        }
    if name == "errors" or (
        name != "highest_in_flight" and any(isinstance(value, dict) for value in values)
    ):
        known = [value for value in values if isinstance(value, dict)]
        if name != "errors" and len(known) < len(values):
            return None  # the steady state of some is not that of all
        return _totals(known) if name != "errors" else _summed(known)
    if name == "highest_in_flight" and all(isinstance(value, dict) for value in values):
        nodes = dict.fromkeys(node for value in values for node in value)
        return {node: max(value.get(node, 0) for value in values) for node in nodes}
    if any(value is None for value in values):
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return values[0] if all(value == values[0] for value in values) else values
    if name in _AVERAGED:
        return sum(values) / len(values)
    if name in _FIRST:
        return min(values)
    return max(values) if name in _MERGED_BY_MAX | _LAST else sum(values)


def _summed(many: Sequence[dict[str, int]]) -> dict[str, int]:
    names = dict.fromkeys(name for one in many for name in one)
    return {name: sum(one.get(name, 0) for one in many) for name in names}


def _common(many: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the values that all share; where they differ, each one's."""
    names = dict.fromkeys(name for one in many for name in one)
    found: dict[str, Any] = {}
    for name in names:
        values = [one.get(name) for one in many]
        found[name] = values[0] if all(value == values[0] for value in values) else values
    return found


def _intervals(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Add up intervals that end at about the same time of their runs: sums and maxima only."""
    width = min((_width(result.intervals) for result in results if result.intervals), default=0.0)
    if width <= 0:
        return []
    bins: dict[int, dict[str, Any]] = {}
    for result in results:
        for interval in result.intervals:
            bin_ = bins.setdefault(
                round(interval["t_ms"] / width), {"t_ms": 0, "records": 0, "bytes": 0}
            )
            for name, value in interval.items():
                if isinstance(value, int | float):
                    bin_[name] = (
                        max(bin_.get(name, 0), value)
                        if name in _MERGED_BY_MAX
                        else bin_.get(name, 0) + value
                    )
    return [bins[i] for i in sorted(bins)]


def _width(intervals: Sequence[dict[str, Any]]) -> float:
    """Return the usual length: the last interval may be short."""
    ends = [0.0] + [float(interval["t_ms"]) for interval in intervals]
    return max(b - a for a, b in pairwise(ends))


_COOKIE = 0x1C849303 | 0x10
_COMPRESSED_COOKIE = 0x1C849304 | 0x10
_DIGITS = 3
_HOUR_US = 3_600_000_000


def hdr_encoded(histogram: Histogram) -> str:
    """Return the HistogramString: HdrHistogram's compressed V2 form in base64.

    It holds the cookie 0x1c849314, the length of what follows and zlib's form of: cookie
    0x1c849313, the counters' length, offset 0, significant digits, lowest and highest value (8
    bytes each), ratio 1.0 (8 bytes); then each counter as a ZigZag LEB128 number (in 9 bytes at
    most), and a run of n zeros as -n. All big-endian.
    """
    body = bytearray()
    at = 0
    for counter, count in histogram.counts():
        if counter > at:
            body += _zigzag(at - counter)
        body += _zigzag(count)
        at = counter + 1
    highest = max(histogram.max, _HOUR_US)
    header = struct.pack(">iiiiqqd", _COOKIE, len(body), 0, _DIGITS, 1, highest, 1.0)
    packed = zlib.compress(header + body)
    return base64.b64encode(struct.pack(">ii", _COMPRESSED_COOKIE, len(packed)) + packed).decode(
        "ascii"
    )


def _zigzag(value: int) -> bytes:
    left = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while left > 0x7F and len(out) < 8:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)  # the ninth byte has eight bits
    return bytes(out)


def hdr_log(intervals: Iterable[tuple[str | None, float, float, Histogram]], start: float) -> str:
    """Return a whole log of one or more intervals, as HdrHistogram's tools read it.

        #[Histogram log format version 1.3]
        #[StartTime: 1441812279.474 (seconds since epoch)]
        "StartTimestamp","Interval_Length","Interval_Max","HistogramString"
        0.000,1.007,2.769,HISTFAAAA…

    Each interval is: tag or None, start in seconds after ``start`` (seconds of the epoch), length,
    histogram. Values are µs, and Interval_Max is in ms.
    """
    lines = [
        "#[Latencies in microseconds, Interval_Max in milliseconds]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start:.3f} (seconds since epoch)]",
        f"#[BaseTime: {start:.3f} (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","HistogramString"',
    ]
    for tag, begin, length, histogram in intervals:
        words = "" if tag is None else f"Tag={tag},"
        lines.append(
            f"{words}{begin:.3f},{length:.3f},{histogram.max / 1000:.3f},{hdr_encoded(histogram)}"
        )
    return "\n".join(lines) + "\n"
