"""Check the options of all clients. Errors have the name, the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any, Final

from batchval.errors import ArgumentValueError, shown_value

__all__ = ["INT32", "check_choice", "check_numbers", "check_text", "refusal"]

INT32: Final = 0x7FFFFFFF  # the largest number of most fields on the wire


def refusal(name: str, value: object, expected: str) -> ArgumentValueError:
    """Return the error to raise for a value."""
    return ArgumentValueError(f"invalid {name} {shown_value(value)}: expected {expected}")


def check_numbers(
    options: Any, names: Iterable[str], low: float, high: float = math.inf, *, whole: bool = True
) -> None:
    """Check that options are numbers from ``low`` to ``high``, or None where that is their default.

    Times need not be ``whole``.
    """
    fields = type(options).__dataclass_fields__
    span = f"at least {low}" if high == math.inf else f"{low} to {high}"
    for name in names:
        value = getattr(options, name)
        if value is None and fields[name].default is None:
            continue
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise refusal(name, value, f"{'an integer' if whole else 'a number'}, {span}")


def check_choice(name: str, value: object, allowed: Collection[str]) -> None:
    """Check that the value is one of the words that are allowed."""
    if value not in allowed:
        raise refusal(name, value, f"one of {', '.join(allowed)}")


def check_text(name: str, value: str | None) -> None:
    """Check that the value is None or text that is not empty."""
    if value == "":
        raise refusal(name, value, "text that is not empty")
