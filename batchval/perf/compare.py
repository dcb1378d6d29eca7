"""What two printed figures say of their difference (KAFKA-7722): a figure printed as 2 lies between 1.5 and 2.5.

With half a unit of the last printed place to either side, the change is at least (b - half - (a + half)) / a and at
most (b + half - (a - half)) / a: 2 to 3 ms is 0 to 100 %, 1.001 to 1.002 about 0 to 0.2 %. That is the proposal's
spread, with a as it is printed below the line. The exact bound, with the smallest a there, is b_hi / a_lo - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from batchval.errors import BatchvalError

__all__ = ["Change", "CompareError", "change", "percent", "rows", "spread"]


class CompareError(BatchvalError):
    """What was given cannot be compared."""


@dataclass(frozen=True, slots=True)
class Change:
    """From ``a`` to ``b``, as printed. Shares of ``a``: 1 is 100 %. None where ``a`` is 0: nothing is a share of it."""

    a: Decimal
    b: Decimal
    change: Decimal | None
    low: Decimal | None
    high: Decimal | None
    exact_low: Decimal | None
    #: None too where ``a`` may be 0: then there is no upper bound
    exact_high: Decimal | None

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; shares, not per cent."""
        shares = {
            "change": self.change,
            "spread_low": self.low,
            "spread_high": self.high,
            "exact_low": self.exact_low,
            "exact_high": self.exact_high,
        }
        return {"a": str(self.a), "b": str(self.b)} | {k: None if v is None else float(v) for k, v in shares.items()}


def change(a: str, b: str) -> Change:
    """The change between two figures as they were printed (``"1.10"`` says more than ``"1.1"``).

    Raises CompareError for what is no number, or below 0.
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
        raise CompareError(f"{text!r} is no number") from None
    if not value.is_finite() or value < 0:
        raise CompareError(f"{text!r} is no figure that can be compared")
    return value


def _half_unit(value: Decimal) -> Decimal:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # finite: see _figure
    return Decimal(5).scaleb(exponent - 1)


def percent(share: Decimal | None) -> str:
    """Per cent with what says something: ``0 %``, ``0.2 %``, ``18 %``; – where there is none."""
    if share is None:
        return "–"
    value = share * 100
    size = abs(value)
    text = f"{value:.0f}" if size >= 9.95 else f"{value:.1f}" if size >= 0.095 else f"{value:.2f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace(
        "-0", "0" if not float(text) else "-0"
    ) + " %"


def rows(a: Mapping[str, str], b: Mapping[str, str]) -> list[tuple[str, Change]]:
    """Each figure that both have, in the order of ``a``."""
    return [(name, change(a[name], b[name])) for name in a if name in b]


def spread(found: Change) -> str:
    """``0 to 100 %``, or – where there is none."""
    if found.low is None or found.high is None:
        return "–"
    return f"{percent(found.low).removesuffix(' %')} to {percent(found.high)}"
