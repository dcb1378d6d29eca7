"""The result of a run as JSON: what perf merge and perf compare read.

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

import json
import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from batchval.errors import BatchvalError
from batchval.named_files import read_whole, write_text
from batchval.perf.histogram import Histogram
from batchval.segment.foreign import START_SIZE, json_fault, not_json_reason

__all__ = ["VERSION", "NotAResult", "Result", "ResultError", "machine", "versions"]

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
