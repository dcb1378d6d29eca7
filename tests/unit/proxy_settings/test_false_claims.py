"""Senders of false claims are named in the log, each once for each time that it loses the trust."""

from __future__ import annotations

import logging

import pytest

from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy
from batchval.proxy.watch.audit_file import MAX_LINES, FalseClaims


def ledger() -> ClaimsLedger:
    return ClaimsLedger(ClaimsPolicy.parse("audit:0.01"), demotion_ms=1000)


def facts(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """Return the facts of the lines since the last call."""
    found = [vars(record)["facts"] for record in caplog.records if record.message == "false claims"]
    caplog.clear()
    return found


async def test_each_sender_is_named_once_for_each_loss(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
    log, one = FalseClaims(), ledger()
    await log.look(None)
    one.note("honest", "honest", 0)
    await log.look(one)
    assert facts(caplog) == []
    one.note("listener edge", "lying", 0)
    one.note("listener edge", "lying", 1)
    await log.look(one)
    await log.look(one)
    assert facts(caplog) == [{"sender": "listener edge", "checked_for_s": 1}]
    one.decide("listener edge", 1, 2000)  # trusted again
    one.note("listener edge", "lying", 2000)
    one.note("CN=a", "lying", 2000)
    await log.look(one)
    assert [line["sender"] for line in facts(caplog)] == ["listener edge", "CN=a"]
    other = ledger()  # of a reload
    other.note("CN=a", "lying", 0)
    await log.look(other)
    assert [line["sender"] for line in facts(caplog)] == ["CN=a"]


async def test_many_at_once_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
    one = ledger()
    for n in range(MAX_LINES + 3):
        one.note(f"CN={n}", "lying", 0)
    await FalseClaims().look(one)
    lines = facts(caplog)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == {"more_senders": 3}
