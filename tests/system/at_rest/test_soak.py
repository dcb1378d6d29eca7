"""Forty seconds next to a live broker. For longer ones: python -m tests.system.at_rest.soak."""

from __future__ import annotations

import pytest

from tests.system.at_rest.soak import enough, soak
from tests.system.interop.kafka_broker import ToolMissing


@pytest.mark.slow
@pytest.mark.alone
def test_a_healthy_live_broker_has_no_finding() -> None:
    try:
        result = soak(40, spark=True)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    assert result.failures == []
    assert enough(result.seen), result.seen
    assert {"audit local", "audit spark", "audit --since", "check"} <= result.runs.keys()
