"""Lines of Kafka's consumer performance tool, byte for byte, with the thread column of KIP-628.

    start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, …
    2026-11-20 23:58:43:430, 2026-11-20 23:58:46:221, 190.7349, 68.3393, 200000, 71658.9036, …

A MB is 2^20 bytes. Where no time has passed a rate is 0.0, in both rows.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

__all__ = [
    "DETAILED_HEADER",
    "INTERVAL_MESSAGE",
    "ISO_DATES",
    "KAFKA_DATES",
    "SUMMARY_HEADER",
    "Interval",
    "Summary",
    "date_text",
    "detailed_row",
    "fixed4",
    "rate",
    "summary_row",
    "threads_warning",
    "timeout_warning",
]

_COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
SUMMARY_HEADER = f"start.time, end.time, {_COLUMNS}"
DETAILED_HEADER = f"time, threadId, {_COLUMNS}"
#: Kafka's default of ``--date-format``, a pattern of Java's SimpleDateFormat.
KAFKA_DATES = "yyyy-MM-dd HH:mm:ss:SSS"
#: ISO 8601, with the offset from UTC.
ISO_DATES = "iso"
INTERVAL_MESSAGE = "Reporting interval must be greater than 0."

_MB = 1024 * 1024
_PLACES = Decimal("0.0001")
_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)


def threads_warning(threads: int, partitions: int) -> str:
    """Return the proposal's line for more threads than partitions."""
    return f"Warning: numThreads {threads} is bigger than numPartition {partitions}, set numThread to numPartition"


def timeout_warning(timeout_ms: int) -> str:
    """Return Kafka's line for a run that ended short."""
    return (
        "WARNING: Exiting before consuming the expected number of records: "
        f"timeout ({timeout_ms} ms) exceeded. "
        "You can use the --timeout option to increase the timeout."
    )


def fixed4(value: float) -> str:
    """Return Java's ``%.4f``: the shortest decimal of this double, rounded half up.

    (Python rounds the double itself.)

    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{Decimal(repr(value)).quantize(_PLACES, context=_WIDE):f}"


def rate(amount: float, ms: float) -> float:
    """Return the amount per second, 0.0 where no time has passed."""
    return amount / (ms / 1000.0) if ms > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run: ``rebalance_ms + fetch_ms == elapsed_ms == end_ms - start_ms``.

    ``start_ms`` is of the wall clock, the differences are of the monotonic one.
    """

    #: before the consumers were made
    start_ms: int
    end_ms: int
    elapsed_ms: int
    bytes: int
    records: int
    #: until every partition was assigned, and the average over the threads of later rebalances
    rebalance_ms: int
    #: from the last assignment on, less the average of the rebalances in it
    fetch_ms: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A thread's reporting interval: totals of the thread, and what came in the interval."""

    at_ms: int
    thread: int
    bytes: int
    records: int
    new_bytes: int
    new_records: int
    elapsed_ms: int
    rebalance_ms: int


def date_text(at_ms: int, date_format: str, zone: datetime.tzinfo | None = None) -> str:
    """Return an instant, in milliseconds since 1970 UTC, as ``--date-format`` has it.

    The time zone is the machine's without ``zone``.
    """
    seconds, millis = divmod(at_ms, 1000)
    when = datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone(zone)
    when = when.replace(microsecond=millis * 1000)
    if date_format == ISO_DATES:
        return when.isoformat("T", "milliseconds")
    return when.replace(tzinfo=None).isoformat(" ", "milliseconds").replace(".", ":")


def _row(
    first: str,
    second: object,
    nbytes: int,
    records: int,
    shares: tuple[float, ...],
    joined: float,
    fetched: float,
) -> str:
    mb, nmsg, fetch_mb, fetch_nmsg = map(fixed4, shares)
    return (
        f"{first}, {second}, {fixed4(nbytes / _MB)}, {mb}, {records}, {nmsg}, {int(joined)}, {int(fetched)}, "
        f"{fetch_mb}, {fetch_nmsg}"
    )


def summary_row(run: Summary, date_format: str = KAFKA_DATES) -> str:
    """Return the one row of a run without ``--show-detailed-stats``."""
    mb = run.bytes / _MB
    shares = (
        rate(mb, run.elapsed_ms),
        rate(run.records, run.elapsed_ms),
        rate(mb, run.fetch_ms),
        rate(run.records, run.fetch_ms),
    )
    ends = date_text(run.start_ms, date_format), date_text(run.end_ms, date_format)
    return _row(*ends, run.bytes, run.records, shares, run.rebalance_ms, run.fetch_ms)


def detailed_row(part: Interval, date_format: str = KAFKA_DATES) -> str:
    """Return a thread's row for one interval: amounts since the start, rates over the interval."""
    mb, fetch_ms = part.new_bytes / _MB, part.elapsed_ms - part.rebalance_ms
    shares = (
        rate(mb, part.elapsed_ms),
        rate(part.new_records, part.elapsed_ms),
        rate(mb, fetch_ms),
        rate(part.new_records, fetch_ms),
    )
    return _row(
        date_text(part.at_ms, date_format),
        part.thread,
        part.bytes,
        part.records,
        shares,
        part.rebalance_ms,
        fetch_ms,
    )
