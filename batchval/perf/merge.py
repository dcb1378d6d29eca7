"""One result of several that ran side by side, on one machine or on many: histograms are added
exactly.

Records and bytes are sums, the time is that of the longest run, so rates are never above what was
seen. What each connection had in flight at most is the highest of all; the sum over brokers is the
sum over the runs, an upper bound. Averages and percentiles of latencies are those of the added
histograms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from batchval.perf.figures import latencies_us
from batchval.perf.histogram import Histogram
from batchval.perf.results import Result, ResultError

__all__ = ["merge"]

#: Numbers that are not sums.
_LONGEST = {"elapsed_ns", "sending_ns", "highest_in_flight", "max_us", "t_ms", "throttle_time_ms"}
#: Those of consumers: averages over threads, and dates in ms.
_AVERAGED = {"rebalance_ms"}
_FIRST = {"start_ms", "assigned_ms", "min_us"}
_LAST = {"end_ms"}
#: Those of a histogram: they are not added, but read from the sum of the histograms.
_LATENCIES = ("avg_us", "stddev_us", "max_us", "percentiles_us")


def merge(results: Sequence[Result]) -> Result:
    """Return all results as one.

    Raises ResultError for no results, producers with consumers, and overflow.

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
    return max(values) if name in _LONGEST | _LAST else sum(values)


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
                        if name in _LONGEST
                        else bin_.get(name, 0) + value
                    )
    return [bins[i] for i in sorted(bins)]


def _width(intervals: Sequence[dict[str, Any]]) -> float:
    """Return the usual length: the last interval may be short."""
    ends = [0.0] + [float(interval["t_ms"]) for interval in intervals]
    return max(b - a for a, b in pairwise(ends))
