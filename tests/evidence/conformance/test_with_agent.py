"""Fresh cases with the agent of ``broker/`` loaded; `with_agent.py` asks more by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.evidence.conformance.with_agent import rounds

pytestmark = pytest.mark.jvm
#: releases that the agent knows, besides the newest
OTHERS = ("3.9.0", "3.9.2", "4.0.0", "4.0.2", "4.1.2", "4.2.1", "4.2.2", "4.3.1")


@pytest.mark.parametrize(
    ("version", "cases"),
    [
        pytest.param("4.4.0", 1000, marks=pytest.mark.long),
        *(pytest.param(v, 3000, marks=pytest.mark.slow) for v in OTHERS),
    ],
)
def test_ignore_is_stock_and_trust_refuses_no_honest_batch(version: str, cases: int) -> None:
    total: Counter[str] = Counter()
    for one in rounds(20261125, cases, version):
        assert one.differences == []
        total += one.counts
    assert total["ignore"] > cases * 0.9
    assert total["trust: Trusted"] > cases / 20
