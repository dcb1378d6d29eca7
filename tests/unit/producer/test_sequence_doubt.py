"""OUT_OF_ORDER_SEQUENCE_NUMBER for batches that may be stored: only the leader that says so can
settle it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.errors import ErrorCode
from batchval.network.errors import BrokerError
from batchval.producer import Producer
from batchval.producer.batch import Doubt, PartitionQueue
from batchval.producer.errors import DeliveryUnknownError
from batchval.producer.sequence_doubt import TRANSITIONS, Action, Doubts, Event, follow
from tests.support.network import until
from tests.unit.producer.partition_leader import Fault, PartitionLeader, no_fault
from tests.unit.producer.test_sending import fill, options, run

#: each value fills a batch
VALUES = [b"%d" % n * 150 for n in range(10)]
FIRST, FIVE = VALUES[:1], VALUES[1:6]

AGAIN = (Doubt.NONE, Action.ASK_AGAIN)


@pytest.mark.parametrize("state", Doubt)
@pytest.mark.parametrize("event", Event)
def test_transitions(state: Doubt, event: Event) -> None:
    expected = {
        (Doubt.NONE, Event.DOUBTED): (Doubt.CONFIRMING, Action.KEEP),
        (Doubt.CONFIRMING, Event.DOUBTED): (Doubt.CONFIRMING, Action.KEEP),
        (Doubt.CONFIRMING, Event.CONFIRMED): (Doubt.ASKING, Action.KEEP),
        (Doubt.CONFIRMING, Event.PROVED): (Doubt.NONE, Action.DELIVERED),
        (Doubt.ASKING, Event.DOUBTED): (Doubt.ASKING, Action.KEEP),
        (Doubt.ASKING, Event.CONFIRMED): (Doubt.ASKING, Action.KEEP),
        (Doubt.ASKING, Event.PROVED): (Doubt.NONE, Action.DELIVERED),
    }.get((state, event), (Doubt.NONE, Action.KEEP) if state is Doubt.NONE else AGAIN)
    queue = PartitionQueue("t", 0, doubt=state)
    assert (follow(queue, event), queue.doubt) == (expected[1], expected[0])
    assert TRANSITIONS[state][event] == expected


def test_metadata_that_was_asked_for_before_the_doubt_confirms_no_leader() -> None:
    """The leader may have changed after the broker made that answer."""
    asked_again: list[bool] = []
    metadata: Any = SimpleNamespace(
        asked=3, answered=2, request_update=lambda: asked_again.append(True)
    )
    leaders: Any = SimpleNamespace(metadata=metadata, is_known=lambda queue: True)
    queue = PartitionQueue("t", 0)
    batch: Any = SimpleNamespace(partition=queue)
    doubts = Doubts(leaders, lambda batch: None, lambda batch, error, is_lost: None)
    doubts.add(batch)
    assert asked_again == [True]
    metadata.answered = 3
    doubts.look(queue)
    assert queue.doubt is Doubt.CONFIRMING
    metadata.asked = metadata.answered = 4
    doubts.look(queue)
    assert queue.doubt is Doubt.ASKING


def then(action: Callable[[], object], code: ErrorCode | None = ErrorCode.NONE) -> Fault:
    """A fault: something happens to the leader when it is asked, then it answers."""

    def fault(partition: int, batch: RecordBatch) -> ErrorCode | None:
        action()
        return code

    return fault


class Case:
    """A producer whose first batch is acknowledged, and a broker that has stored five more and
    answered none.
    """

    def __init__(self, broker: PartitionLeader, producer: Producer) -> None:
        self.broker, self.producer = broker, producer
        self.results: list[Any] = []

    @property
    def offsets(self) -> list[int | type[Exception]]:
        return [
            type(error) if error is not None else where.offset for _, where, error in self.results
        ]

    def other_log(self, keep: int) -> None:
        """Elect a leader whose log ends after so many batches, and which knows no producer."""
        self.broker.truncate(0, keep)
        self.broker.lose_state()

    async def settled(self) -> None:
        await self.producer.flush()
        assert self.producer.buffer_used == 0
        assert [value for value, _, _ in self.results] == FIVE


@asynccontextmanager
async def five_stored() -> AsyncIterator[Case]:
    async with PartitionLeader(nodes=2) as broker, Producer(options(broker)) as producer:
        case = Case(broker, producer)
        await fill(producer, FIRST, [])
        await producer.flush()
        broker.holding = True
        await fill(producer, FIVE, case.results)
        await until(lambda: len(broker.held) == 5)
        broker.holding = False
        broker.forget()
        yield case


def test_a_leader_that_has_kept_its_state_settles_the_doubt() -> None:
    async def work() -> None:
        async with five_stored() as case:
            case.broker.cut()
            await case.settled()
            assert case.offsets == [-1, -1, -1, -1, 5]
            assert case.broker.values(0) == FIRST + FIVE

    run(work())


@pytest.mark.parametrize("how", ["another node", "another connection", "NOT_LEADER"])
@pytest.mark.parametrize("doubted", [1, 3])
def test_another_leader_is_asked_again_from_the_first(how: str, doubted: int) -> None:
    """It was elected uncleanly: it has none of the five, knows no producer, and would take any of
    them.
    """

    async def work() -> None:
        async with five_stored() as case:

            def elected() -> None:
                case.other_log(1)
                if how != "NOT_LEADER":
                    case.broker.elect(2 if how == "another node" else 1)

            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if how == "NOT_LEADER" else None
            case.broker.faults.extend([no_fault] * doubted + [then(elected, code)])
            case.broker.cut()
            await case.settled()
            assert case.offsets == [1, 2, 3, 4, 5]
            assert case.broker.values(0) == FIRST + FIVE

    run(work())


@pytest.mark.parametrize("kept", [False, True])
def test_another_epoch_on_the_same_connection_is_asked_again_from_the_first(kept: bool) -> None:
    """Metadata that is asked for when the doubt begins shows it."""

    async def work() -> None:
        async with five_stored() as case:
            broker = case.broker
            broker.faults.append(then(lambda: broker.elect(1, cut=False)))
            if not kept:
                broker.faults.append(then(lambda: case.other_log(1)))
            broker.cut()
            await case.settled()
            assert case.offsets == ([-1, -1, -1, -1, 5] if kept else [1, 2, 3, 4, 5])
            assert broker.values(0) == FIRST + FIVE

    run(work())


def test_a_second_kill_that_truncates_makes_no_duplicates() -> None:
    """Three are doubted because the fifth was the last; then the last is the second."""

    async def work() -> None:
        async with five_stored() as case:
            broker = case.broker
            broker.faults.extend([no_fault] * 3)
            broker.faults.append(then(lambda: broker.truncate(0, 3), None))
            broker.cut()
            await case.settled()
            assert case.offsets == [-1, 2, 3, 4, 5]
            assert broker.values(0) == FIRST + FIVE

    run(work())


def test_a_leader_that_lost_its_state_unseen_proves_nothing() -> None:
    """On one connection and in one epoch: too few offsets lie between the acknowledged batches."""

    async def work() -> None:
        async with five_stored() as case:
            broker = case.broker
            broker.faults.extend([no_fault, then(lambda: case.other_log(1))])
            broker.cut()
            await case.settled()
            assert case.offsets == [DeliveryUnknownError, 1, 2, 3, 4]
            (error,) = [error for _, _, error in case.results if error]
            assert "whether 1 records for t-0 are in the log cannot be known" in str(error)
            assert broker.values(0) == FIRST + FIVE[1:]
            assert {RecordBatch(one).producer_epoch for one in broker.logs[0]} == {0}

    run(work())


@pytest.mark.parametrize("truth", ["duplicate", "out of order", "cut"])
def test_a_batch_that_a_later_one_has_passed(truth: str) -> None:
    """Stored with an error for an answer; the later ones are acknowledged on the same
    connection.
    """

    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, retry_backoff_ms=50)) as producer,
        ):
            case = Case(broker, producer)
            await fill(producer, FIRST, [])
            await producer.flush()
            broker.after.append(lambda partition, batch: ErrorCode.REQUEST_TIMED_OUT)
            await fill(producer, FIVE, case.results)
            await until(lambda: len(broker.logs[0]) == 6)
            if truth != "duplicate":
                broker.forget()
            if truth == "cut":
                broker.cut()
            await case.settled()
            assert case.offsets == [1 if truth == "duplicate" else -1, 2, 3, 4, 5]
            assert broker.values(0) == FIRST + FIVE

    run(work())


@pytest.mark.parametrize("when", ["the first waits to go again", "it has come again"])
def test_not_leader_then_a_later_one_is_acknowledged(when: str) -> None:
    """The leader of before and after may have lost its state in between; a cut ends the last chance
    to ask it.
    """

    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, retry_backoff_ms=500)) as producer,
        ):
            case = Case(broker, producer)
            await fill(producer, FIRST, [])
            await producer.flush()
            broker.after.append(lambda partition, batch: ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if when == "it has come again":
                broker.faults.extend([no_fault] * 5 + [then(broker.cut, None)])
            broker.holding = True
            await fill(producer, FIVE, case.results)
            await until(lambda: len(broker.held) == 5)
            broker.let_go()
            if when == "the first waits to go again":
                # looks in each turn of the loop: the first goes again 500 ms later
                while producer._client.network.in_flight_count():
                    await asyncio.sleep(0)
                broker.cut()
            await case.settled()
            assert not broker.faults
            assert case.offsets == [DeliveryUnknownError, 2, 3, 4, 5]
            assert broker.values(0) == FIRST + FIVE

    run(work())


@pytest.mark.parametrize("leader", ["keeps all", "remembers the last", "lost its state", "refuses"])
def test_the_next_batch_goes_first_to_a_leader_that_may_not_know_the_producer(leader: str) -> None:
    """The first of five is stored and answered with an error. Sent again, it is answered with
    NOT_LEADER_OR_FOLLOWER, and the second is acknowledged. Then the connection ends.

    The third shows whether the new connection's leader knows the producer. After it the first can
    be asked for without the risk that it is stored after later ones.

    The first goes again some time after its answer. Where that was before the end of the
    connection, the order of events is another one, and all begins anew.
    """
    not_leader = lambda partition, batch: ErrorCode.NOT_LEADER_OR_FOLLOWER  # noqa: E731

    async def had_this_order() -> bool:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, retry_backoff_ms=600)) as producer,
        ):
            case = Case(broker, producer)
            await fill(producer, FIRST, [])
            await producer.flush()
            broker.after.append(lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS)
            await fill(producer, FIVE[:1], case.results)
            await until(lambda: len(broker.requests) == 2 and not broker.unanswered)
            broker.holding = True
            await fill(producer, FIVE[1:], case.results)
            broker.faults.extend([not_leader, no_fault, *[not_leader] * 3])
            await until(lambda: len(broker.held) == 5)
            broker.let_go()
            while producer._client.network.in_flight_count():
                await asyncio.sleep(0)
            if len(broker.requests) > 7:
                return False
            assert not case.results
            broker.cut()
            if leader == "remembers the last":
                broker.forget()
            elif leader == "lost its state":
                broker.lose_state()
            elif leader == "refuses":
                broker.faults.append(lambda partition, batch: ErrorCode.INVALID_RECORD)
            await case.settled()
            first = 1 if leader == "keeps all" else DeliveryUnknownError
            if leader == "refuses":
                assert case.offsets == [first, 2, BrokerError, 3, 4]
                assert broker.values(0) == FIRST + FIVE[:2] + FIVE[3:]
            else:
                assert case.offsets == [first, 2, 3, 4, 5]
                assert broker.values(0) == FIRST + FIVE
                assert {RecordBatch(one).producer_epoch for one in broker.logs[0]} == {0}
            return True

    assert any(run(had_this_order()) for _ in range(50))


def test_a_leader_that_may_know_nothing_gets_one_batch_first() -> None:
    """It refuses the first of five, and would take the second."""

    async def work() -> None:
        async with five_stored() as case:
            case.other_log(1)
            case.broker.elect(2)
            await case.settled()
            await fill(case.producer, VALUES[6:7], [])
            await case.producer.flush()
            case.broker.elect(1)
            case.broker.lose_state()
            case.broker.faults.append(lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS)
            await fill(case.producer, VALUES[7:], [])
            await case.producer.flush()
            assert case.broker.values(0) == VALUES

    run(work())


def test_a_stored_batch_before_one_that_fails_stays_in_its_epoch() -> None:
    """Its answer was an error. With the epoch of those after the gap it would be stored twice."""

    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            case = Case(broker, producer)
            await fill(producer, FIRST, [])
            await producer.flush()
            broker.after.append(lambda partition, batch: ErrorCode.REQUEST_TIMED_OUT)
            broker.faults.extend([no_fault, lambda partition, batch: ErrorCode.INVALID_RECORD])
            await fill(producer, FIVE, case.results)
            await case.settled()
            assert case.offsets == [1, BrokerError, 2, 3, 4]
            assert broker.values(0) == FIRST + FIVE[:1] + FIVE[2:]
            epochs = [RecordBatch(one).producer_epoch for one in broker.logs[0]]
            assert epochs == [0, 0, 1, 1, 1]

    run(work())


def test_batches_of_a_new_epoch_are_doubted_too() -> None:
    """A batch that was sent in two epochs, and a new one that follows it: Kafka's client would ask
    for ever.
    """

    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            case = Case(broker, producer)
            await fill(producer, FIRST, [])
            await producer.flush()
            broker.faults.append(lambda partition, batch: ErrorCode.INVALID_RECORD)
            # the second and third go again as 0 and 1 of the next epoch
            await fill(producer, VALUES[1:4], [])

            def held(partition: int, batch: RecordBatch) -> ErrorCode:
                if batch.producer_epoch == 1 and batch.base_sequence == 1:
                    broker.holding = True
                return ErrorCode.NONE

            broker.faults.extend([held] * 8)
            await until(lambda: broker.holding)
            await fill(producer, VALUES[4:6], case.results)
            await until(lambda: len(broker.held) == 3)
            broker.holding = False
            broker.faults.clear()
            broker.forget()
            broker.cut()
            async with asyncio.timeout(5):
                await producer.flush()
            assert broker.values(0) == FIRST + VALUES[2:6]
            assert {RecordBatch(one).producer_epoch for one in broker.logs[0]} == {0, 1}

    run(work())
