"""What ends an idempotent producer of librdkafka, without any gate; and the figures of a run.

A broker remembers the last five batches of a producer in a partition, and after a restart the last
one alone. A producer whose answers to two batches were lost sends both again: after a restart the
first of them is out of order to the broker, and librdkafka has a fatal error.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from tests.support.fixtures import running_kafka
from tests.support.gate_command import GateCommand
from tests.support.ports import free_port
from tests.support.processes import HANGS_S, until
from tests.support.topics import log_end, make_topic
from tests.system.chain.fatal_errors import (
    PRODUCER,
    TOPIC,
    CountedSender,
    difference,
    limits,
    out_of_order,
    table,
)
from tests.system.chain.relay import RelayProcess
from tests.system.interop.kafka_broker import KafkaBroker


class OneByOne(CountedSender):
    """A producer that sends each record in a batch of its own, at once."""

    def __init__(self, bootstrap: str, in_flight: int) -> None:
        tuned = {"max.in.flight": in_flight, "batch.num.messages": 1, "linger.ms": 0}
        self.in_flight = in_flight
        super().__init__(0, bootstrap, partitions=1, config=PRODUCER | tuned)


@contextlib.contextmanager
def relayed_broker() -> Iterator[tuple[KafkaBroker, RelayProcess, str]]:
    """Run a broker whose clients reach it through a relay; yield the relay's address, too."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with (
        running_kafka(config={"advertised.listeners": f"PLAINTEXT://{address}"}) as broker,
        contextlib.closing(RelayProcess(port, broker.port)) as relay,
    ):
        make_topic(address, TOPIC, 1)
        yield broker, relay, address


def send_two_without_answers(sender: OneByOne, relay: RelayProcess, bootstrap: str) -> None:
    """Send a record, and two more whose answers the relay holds back, although they are stored."""
    sender.burst(1)
    assert sender.left(HANGS_S) == 0
    relay.hold_answers()
    sender.burst(2)
    end, stored = TopicPartition(TOPIC, 0), 1 + min(sender.in_flight, 2)
    until(
        "the broker has the batches",
        lambda: log_end(bootstrap, end, time.monotonic() + HANGS_S) == stored,
    )


def restart_and_finish(
    broker: KafkaBroker, restart: str, relay: RelayProcess, sender: OneByOne
) -> None:
    """Reset all connections, while the broker is down if it restarts; wait until each record has an
    answer, or the producer is at its end.
    """
    if restart:
        getattr(broker, restart)()
    relay.reset()
    if restart:
        broker.start()
    until("the end", lambda: sender.left(0.2) == 0)


@pytest.mark.jvm
@pytest.mark.long
@pytest.mark.parametrize(
    ("restart", "in_flight", "is_fatal"),
    [
        ("kill", 5, True),
        pytest.param("stop", 5, True, marks=pytest.mark.slow),
        pytest.param("kill", 1, False, marks=pytest.mark.slow),
        pytest.param("", 5, False, marks=pytest.mark.slow),
    ],
)
def test_two_lost_answers_and_a_restart_are_fatal_without_a_gate(
    restart: str, in_flight: int, is_fatal: bool
) -> None:
    with relayed_broker() as (broker, relay, address):
        sender = OneByOne(address, in_flight)
        send_two_without_answers(sender, relay, address)
        restart_and_finish(broker, restart, relay, sender)
        refused = out_of_order(broker)
    assert bool(refused) == is_fatal
    if is_fatal:
        assert sender.fatal is not None
        assert sender.fatal["code"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert len(sender.acked) + sender.failed == 3
        assert sender.failed >= 1
    else:
        assert sender.fatal is None
        assert [one.offset for one in sender.acked] == [0, 1, 2]


@pytest.mark.jvm
@pytest.mark.long
def test_a_hand_over_loses_no_answer() -> None:
    """Hand over while two answers are under way, then restart the broker: nothing is fatal."""
    with (
        relayed_broker() as (broker, relay, address),
        GateCommand(address, workers=1, bridge="none") as gate,
    ):
        sender = OneByOne(gate.bootstrap, 5)
        send_two_without_answers(sender, relay, gate.bootstrap)
        before = gate.take_over()
        assert len(sender.acked) == 1
        relay.let_go()
        assert gate.ended(before) == 0
        assert sender.left(HANGS_S) == 0
        restart_and_finish(broker, "kill", relay, sender)
        sender.burst(1)
        assert sender.left(HANGS_S) == 0
    assert sender.fatal is None
    assert [one.offset for one in sender.acked] == [0, 1, 2, 3]


def test_limits_are_those_of_clopper_and_pearson() -> None:
    # Published: 0 of 10 and 3 of 10, 95 %.
    assert limits(0, 10) == pytest.approx((0.0, 0.3085), abs=1e-4)
    assert limits(3, 10) == pytest.approx((0.0667, 0.6525), abs=1e-4)
    assert limits(10, 10) == pytest.approx((0.6915, 1.0), abs=1e-4)


def test_a_difference_has_limits() -> None:
    found, low, high = difference((0, 200), (0, 200))
    assert found == 0
    assert low == -high == pytest.approx(-0.01828, abs=1e-4)
    found, low, high = difference((60, 200), (10, 200))
    assert found == pytest.approx(0.25)
    assert 0.15 < low < found < high < 0.35


def test_the_table_counts_producers() -> None:
    run = {"cell": "gate/both", "producers": 50, "acknowledged": 7, "findings": {}}
    run |= {"fatal": [{}], "events": {"hand_overs": [[0, 1]] * 4, "kills": [[0, 1]] * 3}}
    other = run | {"cell": "direct/kills", "fatal": []}
    lines = table([run, run, other]).splitlines()
    assert "| gate | both | 100 | 8 | 6 | 14 | 0 | 2 | 2.0% (0.2% to 7.0%) |" in lines
    assert lines[-1].startswith("gate/both less direct/kills: +2.0% (")
