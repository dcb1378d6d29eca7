"""No acknowledged record is lost, doubled, moved or reordered when gate and broker are killed.

`kills.py` is the same by hand, with more records and kills: ``python -m tests.system.chain.kills``.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.support.gate_command import GateCommand
from tests.support.gate_process import GateProcess
from tests.system.chain.kills import (
    OPERATIONS,
    Plan,
    checked,
    kill_and_write,
    of_old_clients,
    pattern,
    summary,
)
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm


def killed(broker: KafkaBroker, plan: Plan) -> None:
    """Run a plan; assert that all was written, and that nothing is wrong. Frames are poisoned."""
    with GateProcess(broker.bootstrap, poison=True, bridge=plan.bridge) as gate:
        run = kill_and_write((broker,), gate, plan)
        counters = gate.counters()
        assert counters["partitions_refused"] == {}
        assert (counters["batches_converted_total"] > 0) == bool(plan.old_clients)
    assert run.errors == []
    assert run.kills == plan.kills.count("g") + plan.kills.count("b") + 2 * plan.kills.count("x")
    found = checked(run, (broker,), plan)
    print(summary(run, found))
    assert not found, str(found)
    assert len(run.acked) + sum(one.end - one.first for one in run.transactions) == sum(
        run.sent.values()
    )
    assert sum(run.sent.values()) >= plan.records
    assert plan.transactional == 0 or {"committed", "aborted"} <= set(run.outcomes())


@pytest.mark.long
@pytest.mark.alone
def test_fifty_thousand_records_and_six_kills(broker: KafkaBroker) -> None:
    killed(broker, Plan(50_000, pattern(6), topic="kills-short"))


@pytest.mark.long
@pytest.mark.alone
def test_old_clients_and_four_kills(broker: KafkaBroker) -> None:
    killed(broker, of_old_clients(20_000, pattern(4), ("0.8.2", "0.9.0"), topic="kills-old"))


@pytest.mark.alone
@pytest.mark.slow
def test_a_million_records_and_a_hundred_kills(broker: KafkaBroker) -> None:
    killed(broker, Plan(1_000_000, pattern(100), topic="kills-long", seed=7))


def operated(broker: KafkaBroker, plan: Plan, **limits: int) -> str:
    """Reload, kill workers and hand over as planned; assert that nothing is wrong; return the last
    gate's metrics.
    """
    with GateCommand(broker.bootstrap, workers=2, limits=limits) as gate:
        run = kill_and_write((broker,), gate, plan)
        assert gate.codes == [0] * plan.kills.count("h")
        metrics = gate.get("/metrics")[1]
    assert run.errors == []
    assert run.operations == Counter(plan.kills)
    found = checked(run, (broker,), plan)
    print(summary(run, found))
    assert not found, str(found)
    assert len(run.acked) + sum(one.end - one.first for one in run.transactions) == sum(
        run.sent.values()
    )
    return metrics


@pytest.mark.long
@pytest.mark.alone
def test_a_gate_is_operated(broker: KafkaBroker) -> None:
    pause_s = (0.1, 0.2)
    plan = Plan(
        10_000,
        "rwhrw",
        idempotent=1,
        transactional=1,
        java=0,
        pause_s=pause_s,
        topic="operated-short",
    )
    operated(broker, plan)


@pytest.mark.slow
@pytest.mark.alone
def test_a_million_records_while_a_gate_is_operated(broker: KafkaBroker) -> None:
    operated(broker, Plan(1_000_000, OPERATIONS, topic="operated-long"))


@pytest.mark.slow
def test_ages_end_connections_between_hand_overs(broker: KafkaBroker) -> None:
    plan = Plan(100_000, "hh", topic="handed-aged")
    metrics = operated(broker, plan, max_connection_age_ms=1_000)
    assert re.search(r'connections_closed_total\{.*reason="max_age".*\} [1-9]', metrics)


def test_a_plan_has_as_many_kills_as_it_says() -> None:
    for kills in (1, 6, 7, 10, 100, 401):
        letters = pattern(kills)
        assert letters.count("g") + letters.count("b") + 2 * letters.count("x") == kills
    assert set(pattern(10)) == set("gbxs")
