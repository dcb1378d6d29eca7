"""Lines of Kafka's consumer performance tool, byte for byte, with the thread column of KIP-628.

    start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, …
    2026-11-20 23:58:43:430, 2026-11-20 23:58:46:221, 190.7349, 68.3393, 200000, 71658.9036, …

A MB is 2^20 bytes. Where no time has passed a rate is 0.0, in both rows.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from batchval.errors import ArgumentValueError, shown_value

__all__ = [
    "DETAILED_HEADER",
    "INTERVAL_MESSAGE",
    "ISO_DATES",
    "KAFKA_DATES",
    "SUMMARY_HEADER",
    "Interval",
    "Summary",
    "check_date_format",
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


_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

#: A letter's text for an instant and how often the letter stands there.
_Letter = Callable[[datetime.datetime, int], str]


def _number(of: Callable[[datetime.datetime], int]) -> _Letter:
    return lambda when, count: f"{of(when):0{count}d}"


def _name(names: tuple[str, ...], of: Callable[[datetime.datetime], int]) -> _Letter:
    return lambda when, count: names[of(when)][: None if count > 3 else 3]


def _year(when: datetime.datetime, count: int) -> str:
    return f"{when.year % 100:02d}" if count == 2 else f"{when.year:0{count}d}"


def _month(when: datetime.datetime, count: int) -> str:
    if count > 2:
        return _name(_MONTHS, lambda one: one.month - 1)(when, count)
    return f"{when.month:0{count}d}"


def _offset(when: datetime.datetime, count: int) -> str:
    """Return the offset from UTC of letter X: ``Z``, ``+05``, ``+0530`` or ``+05:30``."""
    text = when.strftime("%z")[:5]
    if text[1:] == "0000":
        return "Z"
    return text[: 3 if count == 1 else 5] if count < 3 else f"{text[:3]}:{text[3:]}"


#: The letters of Java's SimpleDateFormat that ``--date-format`` takes. Its others need tables of
#: weeks, eras or names of time zones.
_LETTERS: Final[dict[str, _Letter]] = {
    "y": _year,
    "M": _month,
    "L": _month,
    "d": _number(lambda when: when.day),
    "D": _number(lambda when: when.timetuple().tm_yday),
    "E": _name(_DAYS, lambda when: when.weekday()),
    "u": _number(lambda when: when.isoweekday()),
    "a": lambda when, _: "AM" if when.hour < 12 else "PM",
    "H": _number(lambda when: when.hour),
    "k": _number(lambda when: when.hour or 24),
    "K": _number(lambda when: when.hour % 12),
    "h": _number(lambda when: when.hour % 12 or 12),
    "m": _number(lambda when: when.minute),
    "s": _number(lambda when: when.second),
    "S": _number(lambda when: when.microsecond // 1000),
    "Z": lambda when, _: when.strftime("%z")[:5],
    "X": _offset,
}


def check_date_format(date_format: str) -> None:
    """Check a ``--date-format``: ``iso``, or a pattern of Java's SimpleDateFormat.

    Raises ArgumentValueError for a letter that is not known and a quote without an end.
    """
    if date_format != ISO_DATES:
        _parts(date_format)


@functools.lru_cache(maxsize=16)
def _parts(pattern: str) -> tuple[tuple[_Letter | None, str, int], ...]:
    """Return a pattern's parts: a letter and its count, or None and a text."""
    found: list[tuple[_Letter | None, str, int]] = []
    i, end = 0, len(pattern)
    while i < end:
        first = pattern[i]
        if first == "'":
            text, i = _quoted(pattern, i)
            found.append((None, text, 0))
            continue
        n = i + 1
        while n < end and pattern[n] == first:
            n += 1
        if not (first.isascii() and first.isalpha()):
            found.append((None, pattern[i:n], 0))
        elif (letter := _LETTERS.get(first)) is None:
            raise ArgumentValueError(
                f"{shown_value(pattern)}: letter {first} is not known: the letters are "
                f"{' '.join(_LETTERS)}; other text stands in single quotes"
            )
        elif first == "X" and n - i > 3:
            raise ArgumentValueError(
                f"{shown_value(pattern)}: at most three X in a row, not {n - i}"
            )
        else:
            found.append((letter, first, n - i))
        i = n
    return tuple(found)


def _quoted(pattern: str, start: int) -> tuple[str, int]:
    """Return the text between quotes and the place after it. Two quotes are one, everywhere."""
    if pattern.startswith("''", start):
        return "'", start + 2
    text, i = "", start + 1
    while (quote := pattern.find("'", i)) >= 0:
        text += pattern[i:quote]
        if not pattern.startswith("''", quote):
            return text, quote + 1
        text += "'"
        i = quote + 2
    raise ArgumentValueError(f"{shown_value(pattern)}: the quote at {start} has no end")


def date_text(at_ms: int, date_format: str, zone: datetime.tzinfo | None = None) -> str:
    """Return an instant, in milliseconds since 1970 UTC, as ``--date-format`` has it, in English.

    The time zone is the machine's without ``zone``. Raises ArgumentValueError as
    ``check_date_format`` does.
    """
    seconds, millis = divmod(at_ms, 1000)
    when = datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone(zone)
    when = when.replace(microsecond=millis * 1000)
    if date_format == ISO_DATES:
        return when.isoformat("T", "milliseconds")
    return "".join(
        text if letter is None else letter(when, count)
        for letter, text, count in _parts(date_format)
    )


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
