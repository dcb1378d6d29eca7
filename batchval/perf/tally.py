"""The figures of a part of a run: counts, and latencies from three instants.

intended --- sent ------ last byte written ===== first byte of the answer --- reported
|-- headline with a schedule ------------------------------------------------|
             |-- headline without one, "from the send" with a schedule ------|
                         |---- on the wire -----|
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from batchval.perf.histogram import Histogram
from batchval.perf.results import latencies_us

__all__ = ["ClientRoundTrips", "Tally"]


@dataclass(slots=True)
class ClientRoundTrips:
    """Round trips that a client counts by itself, in µs, without telling each."""

    count: int = 0
    sum_us: float = 0.0
    min_us: int = 0
    max_us: int = 0

    def add(self, count: int, sum_us: float, min_us: int, max_us: int) -> None:
        """Count some more."""
        if count:
            self.min_us = min(self.min_us, min_us) if self.count else min_us
            self.max_us = max(self.max_us, max_us)
            self.count += count
            self.sum_us += sum_us

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        avg = self.sum_us / self.count if self.count else 0.0
        return {"requests": self.count, "avg_us": avg, "min_us": self.min_us, "max_us": self.max_us}


@dataclass(slots=True)
class Tally:
    """A thread's warm-up or steady state, or the sum of several."""

    measure: bool = True
    scheduled: bool = False
    latencies: Histogram = field(default_factory=Histogram)
    intended: Histogram = field(default_factory=Histogram)
    wire: Histogram = field(default_factory=Histogram)  # of Produce requests
    acked: int = 0
    value_bytes: int = 0
    wire_bytes: int | None = 0
    errors: Counter[str] = field(default_factory=Counter)
    begin_ns: int = 0
    end_ns: int = 0
    sent: int = 0
    first_sent_ns: int = 0
    last_sent_ns: int = 0
    in_flight: int = 0  # the most that was seen since the last interval

    @property
    def headline(self) -> Histogram:
        """Return the latencies of the total line: a schedule's own, where there is one."""
        return self.intended if self.scheduled else self.latencies

    def note_sent(self, count: int, now: int) -> None:
        """Count records that the client took at this instant."""
        self.sent += count
        self.last_sent_ns = now
        if not self.first_sent_ns:
            self.first_sent_ns = now

    def add(self, other: Tally) -> None:
        """Add another tally, over the time from the first begin to the last end."""
        self.latencies.merge(other.latencies)
        self.intended.merge(other.intended)
        self.wire.merge(other.wire)
        self.acked += other.acked
        self.value_bytes += other.value_bytes
        if self.wire_bytes is None or other.wire_bytes is None:
            self.wire_bytes = None
        else:
            self.wire_bytes += other.wire_bytes
        self.errors.update(other.errors)
        self.sent += other.sent
        if other.begin_ns:
            self.begin_ns = min(self.begin_ns or other.begin_ns, other.begin_ns)
            self.end_ns = max(self.end_ns, other.end_ns)
        if other.first_sent_ns:
            self.first_sent_ns = min(self.first_sent_ns or other.first_sent_ns, other.first_sent_ns)
            self.last_sent_ns = max(self.last_sent_ns, other.last_sent_ns)

    @property
    def failed(self) -> int:
        return self.errors.total()

    @property
    def elapsed_ns(self) -> int:
        return max(self.end_ns - self.begin_ns, 0)

    @property
    def sending_ns(self) -> int:
        """Return the time from the first send to the last."""
        return self.last_sent_ns - self.first_sent_ns

    @property
    def sent_per_second(self) -> float | None:
        """Return the rate from the first send to the last, without the wait for the last
        answers.
        """
        return (self.sent - 1) * 1e9 / self.sending_ns if self.sending_ns > 0 else None

    def as_json(self) -> dict[str, Any]:
        """Return the totals of a result; ``avg_us`` and the percentiles are those of the
        headline.
        """
        found: dict[str, Any] = {
            "records": self.acked,
            "failed": self.failed,
            "bytes": self.value_bytes,
            "wire_bytes": self.wire_bytes,
            "elapsed_ns": self.elapsed_ns,
            "errors": dict(self.errors),
            "latency_from": "intended" if self.scheduled else "send",
            **latencies_us(self.headline),
            "sent_records": self.sent,
            "sending_ns": self.sending_ns,
            "sent_per_second": self.sent_per_second,
        }
        if self.scheduled:
            found["from_send"] = latencies_us(self.latencies)
        if self.wire.count:
            found["on_the_wire"] = {"requests": self.wire.count} | latencies_us(self.wire)
        return found
