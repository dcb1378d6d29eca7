"""Dates as Java's SimpleDateFormat writes them in English, for ``--date-format``.

A pattern is letters and text: a run of one letter is a field, its length the width. ``'text'`` stands for itself, two
quotes for one. Each letter that SimpleDateFormat knows is known here, but for zone names in full (``zzzz``).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

from batchval.errors import BatchvalError

__all__ = ["DEFAULT_PATTERN", "DateFormat", "DatePatternError"]

#: Kafka's default of ``--date-format``.
DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss:SSS"

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PIECES = re.compile(r"'(?:[^']|'')*'|'|([A-Za-z])\1*|[^A-Za-z']+")
_FULL = 4  # letters from which on a name is written in full

Field = Callable[[datetime.datetime, int], str]


class DatePatternError(BatchvalError):
    """A pattern that SimpleDateFormat refuses, or a letter that is not known here."""


def _number(value: Callable[[datetime.datetime], int]) -> Field:
    return lambda when, width: f"{value(when):0{width}d}"


def _name(names: tuple[str, ...], index: Callable[[datetime.datetime], int]) -> Field:
    return lambda when, width: names[index(when)][: None if width >= _FULL else 3]


def _month(when: datetime.datetime, width: int) -> str:
    return _name(_MONTHS, lambda w: w.month - 1)(when, width) if width > 2 else f"{when.month:0{width}d}"


def _short_year(year: int, width: int) -> str:
    return f"{year % 100:02d}" if width == 2 else f"{year:0{width}d}"


def _sunday_before(day: datetime.date) -> datetime.date:
    return day - datetime.timedelta(days=day.isoweekday() % 7)


def _week_year(when: datetime.datetime) -> tuple[int, int]:
    """Week year and week as Java counts in English: weeks begin on Sunday, the first is that of 1 January."""
    day = when.date()
    year = day.year
    if (day + datetime.timedelta(days=6 - day.isoweekday() % 7)).year > year:  # its Saturday is in the next year
        year += 1
    first = _sunday_before(datetime.date(year, 1, 1))
    return year, (day - first).days // 7 + 1


def _week_of_month(when: datetime.datetime) -> int:
    return (when.date() - _sunday_before(when.date().replace(day=1))).days // 7 + 1


def _offset(when: datetime.datetime, colon: str, minutes_too: bool) -> str:
    offset = when.utcoffset() or datetime.timedelta()
    minutes = (
        round(offset.total_seconds()) // 60
        if offset >= datetime.timedelta()
        else -(round(-offset.total_seconds()) // 60)
    )
    sign, minutes = "-" if minutes < 0 else "+", abs(minutes)
    return f"{sign}{minutes // 60:02d}{colon}{minutes % 60:02d}" if minutes_too else f"{sign}{minutes // 60:02d}"


def _iso_zone(when: datetime.datetime, width: int) -> str:
    if not when.utcoffset():
        return "Z"
    return _offset(when, ":" if width == 3 else "", width > 1)


_FIELDS: dict[str, Field] = {
    "G": lambda *_: "AD",
    "y": lambda when, width: _short_year(when.year, width),
    "Y": lambda when, width: _short_year(_week_year(when)[0], width),
    "M": _month,
    "L": _month,
    "w": _number(lambda when: _week_year(when)[1]),
    "W": _number(_week_of_month),
    "D": _number(lambda when: when.timetuple().tm_yday),
    "d": _number(lambda when: when.day),
    "F": _number(lambda when: (when.day - 1) // 7 + 1),
    "E": _name(_DAYS, lambda when: when.weekday()),
    "u": _number(lambda when: when.isoweekday()),
    "a": lambda when, _: "PM" if when.hour >= 12 else "AM",
    "H": _number(lambda when: when.hour),
    "k": _number(lambda when: when.hour or 24),
    "K": _number(lambda when: when.hour % 12),
    "h": _number(lambda when: when.hour % 12 or 12),
    "m": _number(lambda when: when.minute),
    "s": _number(lambda when: when.second),
    "S": _number(lambda when: when.microsecond // 1000),
    "z": lambda when, _: when.tzname() or "",
    "Z": lambda when, _: _offset(when, "", True),
    "X": _iso_zone,
}


class DateFormat:
    """A pattern, read once. Raises DatePatternError for one that SimpleDateFormat would refuse, naming the letter."""

    def __init__(self, pattern: str = DEFAULT_PATTERN, zone: datetime.tzinfo | None = None) -> None:
        self._pieces: list[str | tuple[Field, int]] = []
        self._zone = zone
        for match in _PIECES.finditer(pattern):
            piece, letter = match[0], match[1]
            if piece == "'":
                raise DatePatternError(f"date format {pattern!r}: a quote is not closed")
            if piece[0] == "'":
                self._pieces.append("'" if piece == "''" else piece[1:-1].replace("''", "'"))
            elif not letter:
                self._pieces.append(piece)
            elif letter not in _FIELDS:
                known = "".join(_FIELDS)
                raise DatePatternError(
                    f"date format {pattern!r}: unknown letter {letter!r} (known: {known}; 'text' in quotes)"
                )
            elif letter == "X" and len(piece) > 3:
                raise DatePatternError(f"date format {pattern!r}: X stands at most three times")
            elif letter == "z" and len(piece) >= _FULL:
                raise DatePatternError(
                    f"date format {pattern!r}: zone names in full (zzzz) are not known, use z, Z or X"
                )
            else:
                self._pieces.append((_FIELDS[letter], len(piece)))

    def format(self, at_ms: int) -> str:
        """The instant, in milliseconds since 1970 UTC, in the machine's time zone or in the one that was given."""
        seconds, millis = divmod(at_ms, 1000)
        when = (
            datetime.datetime.fromtimestamp(seconds, datetime.UTC)
            .astimezone(self._zone)
            .replace(microsecond=millis * 1000)
        )
        return "".join(piece if isinstance(piece, str) else piece[0](when, piece[1]) for piece in self._pieces)
