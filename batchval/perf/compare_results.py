"""The difference between two printed figures (KAFKA-7722): a figure printed as 2 lies between
1.5 and 2.5.

With half a unit of the last printed place to either side, the change is at least (b - half - (a +
half)) / a and at most (b + half - (a - half)) / a: 2 to 3 ms is 0 to 100 %, 1.001 to 1.002 about 0
to 0.2 %. That is the proposal's spread, with the printed a as the denominator. The exact bound,
with the smallest a there, is b_hi / a_lo - 1.

That is rounding alone. How much runs differ by themselves is seen where each side has several: the
spread is then that of all pairs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any

from batchval.errors import BatchvalError

__all__ = ["Change", "CompareError", "between", "change", "percent", "rows", "spread", "spread_of"]


class CompareError(BatchvalError):
    """The figures or results cannot be compared."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change from ``a`` to ``b``, as printed. Shares of ``a``: 1 is 100 %. None where ``a`` is
    0: nothing is a share of it.
    """

    a: Decimal
    b: Decimal
    change: Decimal | None
    low: Decimal | None
    high: Decimal | None
    exact_low: Decimal | None
    #: None too where ``a`` may be 0: the change then has no upper bound
    exact_high: Decimal | None
    #: pairs of runs that the spread is of; 1: what rounding leaves open
    pairs: int = 1

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers; shares, not per cent."""
        shares = {
            "change": self.change,
            "spread_low": self.low,
            "spread_high": self.high,
            "exact_low": self.exact_low,
            "exact_high": self.exact_high,
        }
        return {"a": str(self.a), "b": str(self.b)} | {
            k: None if v is None else float(v) for k, v in shares.items()
        }


def change(a: str, b: str) -> Change:
    """Return the change between two figures as they were printed (``"1.10"`` says more than
    ``"1.1"``).

    Raises CompareError for a text that is not a number, or below 0.
    """
    first, second = _figure(a), _figure(b)
    half_a, half_b = _half_unit(first), _half_unit(second)
    a_low, a_high = first - half_a, first + half_a
    b_low, b_high = max(second - half_b, Decimal()), second + half_b
    if first == 0:
        return Change(first, second, None, None, None, None, None)
    return Change(
        first,
        second,
        (second - first) / first,
        (second - half_b - a_high) / first,
        (b_high - a_low) / first,
        b_low / a_high - 1,
        b_high / a_low - 1 if a_low > 0 else None,
    )


def _figure(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise CompareError(f"invalid figure {text!r}: expected a number of at least 0") from None
    if not value.is_finite() or value < 0:
        raise CompareError(f"invalid figure {text!r}: expected a finite number of at least 0")
    return value


def _half_unit(value: Decimal) -> Decimal:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # finite: see _figure
    return Decimal(5).scaleb(exponent - 1)


def percent(share: Decimal | None) -> str:
    """Return a share in per cent with its significant digits: ``0 %``, ``0.2 %``, ``18 %``; – if
    None.
    """
    if share is None:
        return "–"
    value = share * 100
    size = abs(value)
    text = f"{value:.0f}" if size >= 9.95 else f"{value:.1f}" if size >= 0.095 else f"{value:.2f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace(
        "-0", "0" if not float(text) else "-0"
    ) + " %"


def rows(
    a: Sequence[Mapping[str, str]], b: Sequence[Mapping[str, str]]
) -> list[tuple[str, Change]]:
    """Return the change of each figure that all runs of both sides have."""
    names = [name for name in a[0] if all(name in run for run in (*a, *b))]
    return [(name, between([run[name] for run in a], [run[name] for run in b])) for name in names]


def between(a: Sequence[str], b: Sequence[str]) -> Change:
    """Return the change from the median of some runs to that of others, as they were printed.

    Its spread is that of all pairs, one run of each side: from the least change that a pair allows
    to the largest. Of one run a side it is what rounding leaves open, and says nothing of how runs
    differ.
    """
    if len(a) == len(b) == 1:
        return change(a[0], b[0])
    pairs = [change(one, other) for one in a for other in b]
    first, second = (_median([_figure(text) for text in side]) for side in (a, b))
    return Change(
        first,
        second,
        (second - first) / first if first else None,
        _bound(min, [pair.low for pair in pairs]),
        _bound(max, [pair.high for pair in pairs]),
        _bound(min, [pair.exact_low for pair in pairs]),
        _bound(max, [pair.exact_high for pair in pairs]),
        len(pairs),
    )


def _median(values: Sequence[Decimal]) -> Decimal:
    """Return the value in the middle; of an even count half the sum of two, with the places of the
    values.
    """
    exponent = min(values, key=lambda value: int(value.as_tuple().exponent)).as_tuple().exponent
    assert isinstance(exponent, int)  # finite: see _figure
    return statistics.median(values).quantize(Decimal(1).scaleb(exponent))


def _bound(
    choose: Callable[[list[Decimal]], Decimal], shares: Sequence[Decimal | None]
) -> Decimal | None:
    known = [share for share in shares if share is not None]
    return choose(known) if len(known) == len(shares) else None


def spread_of(a: int, b: int) -> str:
    """Return what the spread between so many runs and so many others shows."""
    return "spread, rounding only" if a == b == 1 else f"spread, {a} by {b} runs"


def spread(found: Change) -> str:
    """Return ``0 to 20 %``, or – without a spread.

    A bound of rounding has one digit, two from 100 % on, as in the proposal, and is rounded
    outwards: 1.1 to 1.2 is 18.2 % at most, so at most 20 %.
    """
    low, high = found.low, found.high
    if low is None or high is None:
        return "–"
    if found.pairs == 1:
        low, high = _outward(low, ROUND_FLOOR), _outward(high, ROUND_CEILING)
    return f"{percent(low).removesuffix(' %')} to {percent(high)}"


def _outward(share: Decimal, rounding: str) -> Decimal:
    if not share:
        return share
    digits = 1 if abs(share) < 1 else 2
    return share.quantize(Decimal(1).scaleb(share.adjusted() + 1 - digits), rounding=rounding)
