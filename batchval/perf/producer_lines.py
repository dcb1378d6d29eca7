"""Lines of Kafka's producer performance tool: its words, in its order, with microseconds as three
decimals of ms.

    8416 records sent, 8407.6 records/sec (8.02 MB/sec), 1.846 ms avg latency, 2.214 ms max latency.
    200000 records sent, 16969.285593 records/sec (16.18 MB/sec), 1.729 ms avg latency,
      3.711 ms max latency, 1.468 ms 50th, 3.348 ms 95th, 3.652 ms 99th, 3.706 ms 99.9th.
    150000 steady state records sent, …

The second is one line of the output; the third follows with --warmup-records. Lines in addition to
Kafka's go to stderr.

With ``unit="ms"`` a line is what Kafka's tool prints, byte for byte: averages with one or two
decimals, percentiles in whole ms, rounded down. A MB is 2^20 bytes. Halves round up, as Java's
formats do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from batchval.perf.histogram import Histogram

__all__ = [
    "PERCENTILES",
    "Window",
    "fixed",
    "in_flight_line",
    "in_ms",
    "interval_line",
    "latency_line",
    "second_line",
    "total_line",
]

MB = 1024 * 1024
PERCENTILES = (50.0, 95.0, 99.0, 99.9)  # those of Kafka's line
_MANY_DIGITS = Context(prec=400)


@dataclass(frozen=True, slots=True)
class Window:
    """The counts of one interval, for its line."""

    records: int
    value_bytes: int
    elapsed_ns: int
    sum_us: int
    max_us: int

    @property
    def records_per_second(self) -> float:
        return self.records * 1e9 / self.elapsed_ns if self.elapsed_ns > 0 else 0.0

    @property
    def mb_per_second(self) -> float:
        return self.value_bytes * 1e9 / self.elapsed_ns / MB if self.elapsed_ns > 0 else 0.0


def fixed(value: float, places: int) -> str:
    """Return ``%.{places}f`` as Java writes it: halves of the shortest decimal form round up."""
    exact = Decimal(repr(float(value)))
    return f"{exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _MANY_DIGITS):f}"


def interval_line(window: Window, unit: str = "us") -> str:
    """Return the line of an interval; Kafka's has one decimal."""
    mean = window.sum_us / window.records / 1000 if window.records else 0.0
    start = (
        f"{window.records} records sent, {fixed(window.records_per_second, 1)} records/sec "
        f"({fixed(window.mb_per_second, 2)} MB/sec)"
    )
    if unit == "ms":
        return (
            f"{start}, {fixed(mean, 1)} ms avg latency, {window.max_us // 1000}.0 ms max latency."
        )
    return f"{start}, {fixed(mean, 3)} ms avg latency, {in_ms(window.max_us)} ms max latency."


def total_line(
    histogram: Histogram,
    value_bytes: int,
    elapsed_ns: int,
    unit: str = "us",
    *,
    steady_state: bool = False,
) -> str:
    """Return the line at the end of a run; of the part after the warm-up with ``steady_state``."""
    window = Window(histogram.count, value_bytes, elapsed_ns, histogram.sum, histogram.max)
    start = (
        f"{window.records}{' steady state' if steady_state else ''} records sent, "
        f"{fixed(window.records_per_second, 6)} records/sec ({fixed(window.mb_per_second, 2)} MB/sec)"
    )
    percentiles = [(f"{percent:g}th", histogram.percentile(percent)) for percent in PERCENTILES]
    if unit == "ms":
        start += f", {fixed(histogram.mean / 1000, 2)} ms avg latency, {histogram.max // 1000}.00 ms max latency, "
        return start + ", ".join(f"{us // 1000} ms {name}" for name, us in percentiles) + "."
    start += f", {fixed(histogram.mean / 1000, 3)} ms avg latency, {in_ms(histogram.max)} ms max latency, "
    return start + ", ".join(f"{in_ms(us)} ms {name}" for name, us in percentiles) + "."


def second_line(
    histogram: Histogram,
    value_bytes: int,
    wire_bytes: int | None,
    elapsed_ns: int,
) -> str:
    """Return what Kafka's line has no place for.

    ``wire_bytes`` is None where a client does not count them.
    """

    def rate(n: int) -> str:
        return fixed(Window(0, n, elapsed_ns, 0, 0).mb_per_second, 2)

    wire = "not counted" if wire_bytes is None else f"{rate(wire_bytes)} MiB/s"
    deviation = fixed(histogram.stddev / 1000, 3)
    return (
        f"latency: 75 % {in_ms(histogram.percentile(75))}, standard deviation {deviation} (ms); "
        f"values {rate(value_bytes)} MiB/s, on the wire {wire}"
    )


def latency_line(of: str, histogram: Histogram) -> str:
    """Return the latencies of a histogram.

    In other words than Kafka's, for readers that search all output.
    """
    shares = [f"{percent:g} % {in_ms(histogram.percentile(percent))}" for percent in PERCENTILES]
    mean = fixed(histogram.mean / 1000, 3)
    return f"{of}: average {mean}, {', '.join(shares)}, highest {in_ms(histogram.max)} (ms)"


def in_flight_line(
    highest: Mapping[int, int],
    over_all: int,
    *,
    sampled: bool = False,
) -> str:
    """Return the highest number of requests in flight, per connection and over all brokers."""
    each = ", ".join(f"broker {node} {n}" for node, n in sorted(highest.items()))
    seen = " (seen every 200 ms)" if sampled else ""
    return f"highest in flight: {each or 'none'}; over all brokers {over_all}{seen}"


def in_ms(us: int) -> str:
    """Return microseconds as milliseconds with three decimals."""
    return f"{us // 1000}.{us % 1000:03d}"
