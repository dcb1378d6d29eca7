"""No acknowledged record is lost, doubled, moved or reordered, however often gate and broker are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chain.senders import chase, read_all
from tests.interop.kafka_broker import KafkaBroker
from tests.support.gate_process import GateProcess
from tests.support.record_checker import check

pytestmark = pytest.mark.jvm

PARTITIONS = 4


@pytest.mark.alone
def test_a_short_run(broker: KafkaBroker) -> None:
    """Released frames are poisoned."""
    with GateProcess(broker.bootstrap, poison=True) as gate:
        run = chase(
            broker, gate, topic="short", partitions=PARTITIONS, producers=3, java=1, records=40_000, kills="ggsxg",
            pause_s=(0.3, 0.6), seed=1,
        )  # fmt: skip
        assert gate.counters()["partitions_refused"] == {}
    assert run.errors == []
    assert (run.gate_kills, run.broker_kills) == (4, 1)
    assert len(run.acked) == sum(run.sent.values()) >= 40_000
    found = check(run.acked, read_all(broker.bootstrap, "short", PARTITIONS), run.sent)
    assert not found, str(found)


@pytest.mark.alone
@pytest.mark.slow
def test_a_million_records_and_forty_kills(broker: KafkaBroker, tmp_path: Path) -> None:
    with GateProcess(broker.bootstrap, poison=True) as gate, (tmp_path / "run.log").open("w") as log:
        run = chase(
            broker, gate, topic="long", partitions=PARTITIONS, producers=5, java=1, records=1_200_000,
            kills="gsgbgx" * 10, pause_s=(0.5, 3.0), seed=7, say=lambda line: print(line, file=log, flush=True),
        )  # fmt: skip
        assert gate.counters()["partitions_refused"] == {}
    assert run.errors == []
    assert run.gate_kills + run.broker_kills >= 40
    assert len(run.acked) == sum(run.sent.values()) >= 1_000_000
    found = check(run.acked, read_all(broker.bootstrap, "long", PARTITIONS), run.sent)
    kills = f"{run.gate_kills} + {run.broker_kills} kills"
    print(f"{len(run.acked)} records, {kills}, {run.seconds:.0f} s: {found or 'sound'}")
    assert not found, str(found)
