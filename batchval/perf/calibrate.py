"""The latency that the tool adds: a run with the same options at a broker of known delay.

The broker is ``batchval.perf.responder``, a process of its own, without TLS and without a log. Its
delay is the median of the run's times on the wire, so that as many requests are in flight. The
result stands next to the run's own figures and is never subtracted from them: the same options at
another broker meet other batches and other queues.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from batchval.perf import responder
from batchval.perf.payloads import Payloads
from batchval.perf.produce import ProduceRun, ProduceSettings
from batchval.perf.tally import Tally

__all__ = ["Calibration", "calibrate", "delay_like", "plain"]

MAX_DURATION_S: Final = 5.0
#: The broker needs about half of it to read a request and make the answer.
MIN_DELAY_US: Final = 150
DEFAULT_DELAY_US: Final = 1_000


@dataclass(frozen=True, slots=True)
class Calibration:
    """A run at the broker of known delay; of one with a warm-up the part after it, if there is
    one.
    """

    delay_us: int
    tally: Tally

    def as_json(self) -> dict[str, Any]:
        """Return the figures of the run, and its median beyond the delay."""
        median = self.tally.headline.percentile(50)
        return {
            "delay_us": self.delay_us,
            "beyond_the_delay_us": {"50": median - self.delay_us},
        } | self.tally.as_json()


def delay_like(run: ProduceRun) -> int:
    """Return the delay of a broker as fast as the one of this run, in µs."""
    wire, counted = run.total().wire, run.round_trips()
    if wire.count:
        found = wire.percentile(50)
    elif counted is not None:
        found = round(counted.sum_us / counted.count)
    else:
        found = DEFAULT_DELAY_US
    return min(max(found, MIN_DELAY_US), responder.MAX_DELAY_US)


def plain(found: Mapping[str, str], bootstrap: str) -> dict[str, str]:
    """Return a producer's properties for this broker: no TLS, no SASL."""
    secrets = ("security.", "ssl.", "sasl.")
    return {name: value for name, value in found.items() if not name.startswith(secrets)} | {
        "bootstrap.servers": bootstrap
    }


def calibrate(
    run: ProduceRun,
    open_at: Callable[[str], Any],
    make_payloads: Callable[[int], Payloads],
    delay_us: int,
) -> Calibration:
    """Run the same settings at such a broker, 5 seconds at most. ``open_at``: an OpenClient at an
    address.
    """
    settings = run.settings
    partitions = max(worker.client.partitions for worker in run.workers)
    with responder.running(delay_us, partitions) as bootstrap:
        client = open_at(bootstrap)
        again = ProduceRun(
            _shortened(settings), client.make, make_payloads, new_loop=client.new_loop
        )
        again.run()
    steady = again.steady()
    return Calibration(delay_us, again.total() if steady is None or not steady.acked else steady)


def _shortened(settings: ProduceSettings) -> ProduceSettings:
    """Return settings for a run of a few seconds; with a schedule, a third of it is for the warm-up
    at most.
    """
    seconds = min(settings.duration_s or MAX_DURATION_S, MAX_DURATION_S)
    warmup = settings.warmup_records
    if settings.throughput > 0:
        warmup = min(warmup, int(settings.throughput * seconds / 3))
    return dataclasses.replace(settings, duration_s=seconds, warmup_records=warmup)
