"""Lines of a producer's run that Kafka's lines have no place for; they go to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchval.perf.lines import fixed, latency_line

if TYPE_CHECKING:
    from batchval.perf.calibrate import Calibration
    from batchval.perf.tally import ClientRoundTrips, Tally

__all__ = ["accuracy_lines", "calibration_lines"]


def accuracy_lines(seen: Tally, round_trips: ClientRoundTrips | None) -> Iterator[str]:
    """Yield the latencies that are not the headline, and the rate of the sends."""
    if seen.scheduled and seen.latencies.count:
        yield latency_line("latency from the send", seen.latencies)
    if seen.wire.count:
        yield latency_line(f"on the wire, {seen.wire.count} requests", seen.wire)
    if round_trips is not None:
        average = fixed(round_trips.sum_us / round_trips.count / 1000, 3)
        yield f"round trips that librdkafka counts, {round_trips.count} requests: average {average} (ms)"
    if seen.scheduled and (rate := seen.sent_per_second) is not None:
        yield f"sent: {fixed(rate, 3)} records/s from the first send to the last"


def calibration_lines(found: Calibration) -> Iterator[str]:
    """Yield what the tool itself measures where the broker's part is known; it is subtracted from
    nothing.
    """
    where = f"calibration, a broker on this machine that answers after {found.delay_us} us"
    yield latency_line(where, found.tally.headline)
    if found.tally.wire.count:
        yield latency_line("calibration, on the wire", found.tally.wire)
