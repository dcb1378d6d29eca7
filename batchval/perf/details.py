"""Lines of a producer's run in addition to Kafka's lines; they go to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchval.perf.producer_lines import fixed, in_flight_line, latency_line, second_line

if TYPE_CHECKING:
    from batchval.perf.calibrate import Calibration
    from batchval.perf.produce import ProduceRun
    from batchval.perf.tally import Tally

__all__ = ["calibration_lines", "details"]


def details(run: ProduceRun, total: Tally) -> Iterator[str]:
    """Yield the other figures of a run; after a warm-up, those of the steady state.

    They are printed before the totals, so that a total is the last line after ``2>&1`` too.
    """
    seen = run.steady() or total
    each, over_all, sampled = run.in_flight()
    yield second_line(seen.headline, seen.value_bytes, seen.wire_bytes, seen.elapsed_ns)
    if seen.scheduled and seen.latencies.count:
        yield latency_line("latency from the send", seen.latencies)
    if seen.wire.count:
        yield f"{latency_line('on the wire', seen.wire)}, {seen.wire.count} requests"
    if (counted := run.round_trips()) is not None:
        mean = fixed(counted.sum_us / counted.count / 1000, 3)
        yield f"on the wire: average {mean} (ms), {counted.count} requests as librdkafka counts"
    if seen.scheduled and (rate := seen.sent_per_second) is not None:
        yield f"first to last send: {fixed(rate, 3)} records/s"
    yield in_flight_line(each, over_all, sampled=sampled)


def calibration_lines(found: Calibration) -> Iterator[str]:
    """Yield what the tool measures where the broker's part is known; it is subtracted nowhere."""
    yield latency_line(f"calibration, a broker of {found.delay_us} us", found.tally.headline)
    if found.tally.wire.count:
        yield latency_line("calibration on the wire", found.tally.wire)
