"""Seeds of tests that try random cases: a quarter of them in ``make test``, all of them in CI."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["seeds"]


def seeds(count: int) -> list[Any]:
    """Return the numbers below ``count``; from the first quarter on they are marked ``long``."""
    brief = -(-count // 4)
    return [*range(brief), *(pytest.param(n, marks=pytest.mark.long) for n in range(brief, count))]
