"""The target ``histogram``: latencies and whole histograms, compared with a dictionary of counts.

counts     {latency: times}; every answer of Histogram follows from it, within 1/1024 above 2047 µs
from_json  what it takes can be merged, recorded into and written; what it refuses is a ValueError
"""

from __future__ import annotations

import contextlib
import random
from array import array
from collections import Counter
from typing import Any

from batchval.perf.histogram import COUNTERS, MAX_SUM, Histogram, now_ns, stamp_many
from batchval.perf.results import hdr_encoded

__all__ = ["histogram_case"]

_CORNERS = (0, 1, 2047, 2048, 2049, 4095, 4096, 10**6, 2**31, 2**40, 2**62, MAX_SUM)
_ODD = (
    -1,
    0,
    1,
    5,
    2047,
    2048,
    COUNTERS - 1,
    COUNTERS,
    2**31,
    2**62,
    MAX_SUM,
    2**63,
    -(2**63),
    None,
    "7",
    1.5,
)


def _latency(rng: random.Random) -> int:
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(_CORNERS)
    return rng.randrange(5000) if kind < 0.6 else rng.randrange(1 << rng.randrange(1, 40))


def _record(rng: random.Random, counted: Histogram, model: Counter[int]) -> list[str]:
    """Call one method that counts: the model counts the same, or both refuse."""
    total = sum(us * times for us, times in model.items())
    kind = rng.randrange(4)
    many = [_latency(rng) for _ in range(1 if kind == 0 else rng.randrange(20))]
    if rng.random() < 0.05:
        many += [rng.choice((-1, -(2**63)))]
    times = rng.choice((0, 1, 3, 2**31)) if kind == 1 else 1
    if kind < 2:
        many = many[-1:] or [5]
    refused = any(us < 0 for us in many) or total + sum(many) * times > MAX_SUM
    if kind == 1 and times == 0:
        refused = False
    try:
        if kind == 0:
            counted.record(many[0])
        elif kind == 1:
            counted.record_repeated(many[0], times)
        elif kind == 2:
            counted.record_many(array("q", many))
        else:
            now = 1 << 62
            stamps = array("q", [max(now - us * 1000, 0) for us in many])
            many = [now // 1000 - stamp // 1000 for stamp in stamps]
            refused = any(us < 0 for us in many) or total + sum(many) > MAX_SUM
            counted.record_since(stamps, now)
    except (ValueError, OverflowError):
        return [] if refused else [f"{many[:5]} refused, after a sum of {total}"]
    if refused:
        return [f"{many[:5]} counted, after a sum of {total}"]
    for us in many:
        model[us] += times
    model += Counter()
    return []


def _compared(counted: Histogram, model: Counter[int], rng: random.Random) -> list[str]:
    count, total = sum(model.values()), sum(us * times for us, times in model.items())
    if (counted.count, counted.sum) != (count, total):
        return [f"count and sum {counted.count}, {counted.sum}, expected {count}, {total}"]
    if sum(times for _, times in counted.counts()) != count:
        return ["the counters do not add up to the count"]
    if not count:
        return []
    if (counted.min, counted.max) != (min(model), max(model)):
        return [f"min and max {counted.min}, {counted.max}, expected {min(model)}, {max(model)}"]
    percent = rng.choice((0.0, 50.0, 99.0, 99.9, 100.0))
    place = min(round(percent * 1_000_000) * count // 100_000_000, count - 1)
    seen = 0
    for us in sorted(model):
        seen += model[us]
        if seen > place:
            break
    found = counted.percentile(percent)
    if abs(found - us) * 1000 > us:
        return [f"percentile {percent} is {found}, expected {us}"]
    return []


def _from_json(rng: random.Random) -> list[str]:
    """Read a histogram of a file, often wrong in one place."""
    source = Histogram()
    for _ in range(rng.randrange(5)):
        source.record(rng.randrange(1 << rng.randrange(1, 50)))
    data: dict[str, Any] = source.to_json()
    for _ in range(rng.randrange(3)):
        key = rng.choice((*data, "more"))
        if key == "counts" and rng.random() < 0.7:
            pair: Any = [rng.choice(_ODD), rng.choice(_ODD)]
            data["counts"] = rng.choice(
                ([*source.to_json()["counts"], pair], [pair], [pair, pair], [[1]], [1], None)
            )
        elif rng.random() < 0.2:
            data.pop(key, None)
        else:
            data[key] = rng.choice(_ODD)
    try:
        one, other = Histogram.from_json(data), Histogram.from_json(data)
    except ValueError:
        return []
    if one != other or Histogram.from_json(one.to_json()) != one:
        return ["a histogram read from JSON is another when it is written and read again"]
    for use in (
        lambda: one.merge(other),
        lambda: one.record(5),
        lambda: one.record_repeated(7, 2**62),
        lambda: one.percentile(99.9),
        lambda: one.stddev,
        one.window,
        lambda: hdr_encoded(one),
    ):
        with contextlib.suppress(OverflowError, ValueError):
            use()
    if sum(times for _, times in one.counts()) != one.count:
        return ["after a merge the counters do not add up to the count"]
    return []


def histogram_case(seed: int) -> list[str]:
    """Return what is wrong in the calls that follow from this number."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return _from_json(rng)
    parts: list[tuple[Histogram, Counter[int]]] = [(Histogram(), Counter()) for _ in range(2)]
    for _ in range(rng.randrange(1, 8)):
        counted, model = rng.choice(parts)
        if found := _record(rng, counted, model):
            return found
    (one, of_one), (other, of_other) = parts
    fits = sum(us * times for us, times in (of_one + of_other).items()) <= MAX_SUM
    try:
        one.merge(other)
        of_one.update(of_other)
    except OverflowError:
        if fits:
            return ["a merge refused although its sum fits"]
    stamps = array("q", [0] * 3)
    before = now_ns()
    if stamp_many(stamps) != stamps[1] or stamps[2] < before:
        return ["stamp_many writes another instant"]
    return _compared(one, of_one, rng)
