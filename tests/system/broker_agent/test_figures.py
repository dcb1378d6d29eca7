"""Figures of a broker with the agent, small: `found.py` and `retained.py` take them by hand."""

from __future__ import annotations

import pytest

from tests.system.broker_agent.found import KINDS, measure
from tests.system.broker_agent.retained import measure as retained

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def test_lies_and_bombs_are_found_when_the_formula_says() -> None:
    """Expect a mean of 400 trials within 20 %: the chance to miss it is 1 in 15,000; the seed is
    fixed.
    """
    for cell in measure(KINDS, rates=(0.1,), shares=(0.1, 1.0), trials=400):
        assert 0.8 < cell.ratio < 1.2, cell.as_json()


@pytest.mark.alone
@pytest.mark.parametrize("policy", ["trust", "audit:0.01", "verify"])
def test_nothing_of_a_hundred_thousand_requests_is_retained(policy: str) -> None:
    result = retained(100_000, 1, policy)
    assert result.trusted > 0 or policy == "verify"
    assert sum(result.last.of_requests().values()) == 0
    # a tag and its request's principal are 80 bytes: 90,000 of them would be 7 MB
    assert result.growth < 2_000_000, result.growth
