"""Deliveries: who receives a failure, and what flush, close and the end of ``async with`` raise."""

from __future__ import annotations

import array
import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.errors import ErrorCode
from batchval.network.errors import BrokerError
from batchval.producer import BatchDone, Delivery, DeliveryError, Producer
from batchval.producer.delivery import Failures, Outcome
from batchval.producer.errors import ProducerClosedError, ProducerFencedError
from tests.support.deliveries import acked
from tests.support.network import until
from tests.unit.producer.partition_leader import PartitionLeader
from tests.unit.producer.test_sending import options, run


def refuse(partition: int, batch: RecordBatch) -> ErrorCode:
    return ErrorCode.INVALID_RECORD


def fence(partition: int, batch: RecordBatch) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH


async def sent(producer: Producer, count: int, partition: int = 0) -> list[Delivery]:
    return [await producer.send("t", b"%d" % n * 150, partition=partition) for n in range(count)]


def refusing(broker: PartitionLeader, code: Any = refuse) -> None:
    broker.faults.extend([code] * 1_000)


@pytest.mark.parametrize("is_counted_before", [False, True])
def test_a_failure_is_not_received_by_a_task_that_is_cancelled_in_the_same_step(
    is_counted_before: bool,
) -> None:
    async def work() -> None:
        failures = Failures(transactional=False)
        error = BrokerError(ErrorCode.INVALID_RECORD, "Produce")
        outcome = Outcome("t", 0, -1, -1, error, failures, failures.generation)
        deliveries = [Delivery(0), Delivery(0)]

        async def wait() -> None:
            await deliveries[0]

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        deliveries[0].settle(outcome, 0)
        if is_counted_before:
            deliveries[1].settle(outcome, 1)
        failures.add(outcome)
        assert failures.count == int(is_counted_before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        raised = failures.take()
        assert raised is not None
        assert (raised.count, raised.failures[0].records) == (1 + is_counted_before,) * 2
        assert failures.take() is None

    run(work())


def test_a_delivery_is_awaited_again_and_by_several() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            await producer.partitions_for("t")
            broker.holding = True
            delivery = await producer.send("t", b"value", partition=1, timestamp_ms=17)
            assert not delivery.done()
            with pytest.raises(asyncio.InvalidStateError):
                delivery.result()
            order: list[str] = []
            delivery.add_done_callback(lambda _: order.append("first"))
            delivery.add_done_callback(lambda _: order.append("second"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(delivery, 0.01)  # type: ignore[arg-type]
            await until(lambda: broker.held)
            waiting = asyncio.gather(delivery, delivery)
            await asyncio.sleep(0)
            broker.let_go()
            assert await waiting == [("t", 1, 0, 17)] * 2
            assert await delivery == delivery.result() == ("t", 1, 0, 17)
            assert order == ["first", "second"]
            delivery.add_done_callback(lambda _: order.append("late"))
            assert order[2:] == []
            await asyncio.sleep(0)
            assert order[2:] == ["late"]

    run(work())


async def used(producer: Producer, end: str) -> None:
    async with producer:
        await sent(producer, 10)
        await sent(producer, 5, partition=1)
        if end != "leave":
            await getattr(producer, end)()


@pytest.mark.parametrize("end", ["flush", "close", "leave"])
def test_failures_that_nobody_received_are_raised_once(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            producer = Producer(options(broker))
            await producer.partitions_for("t")
            refusing(broker)
            with pytest.raises(DeliveryError, match=r"^15 records .*INVALID_RECORD") as raised:
                await used(producer, end)
            assert raised.value.count == sum(one.records for one in raised.value.failures) == 15
            assert {(one.topic, one.partition) for one in raised.value.failures} == {
                ("t", 0),
                ("t", 1),
            }
            assert {getattr(one.error, "code", None) for one in raised.value.failures} == {
                ErrorCode.INVALID_RECORD
            }
            await producer.close()
            assert producer.buffer_used == 0
            assert broker.logs == {}

    run(work())
    warned = [line for line in caplog.messages if "INVALID_RECORD" in line]
    assert sorted(line[:4] for line in warned) == ["t-0:", "t-1:"]


def test_flush_raises_only_what_came_since_the_last(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            await producer.partitions_for("t")
            for count in (3, 2):
                refusing(broker)
                await sent(producer, count)
                with pytest.raises(DeliveryError) as raised:
                    await producer.flush()
                assert raised.value.count == count
                broker.faults.clear()
                await sent(producer, count)
                await producer.flush()

    run(work())
    assert len(caplog.messages) == 2, "one a partition until it is raised"


@pytest.mark.parametrize(
    "how", ["await", "await early", "exception", "callback", "late callback", "on_batch"]
)
def test_failures_that_were_received_are_not_raised(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            await producer.partitions_for("t")
            refusing(broker)
            received: list[Any] = []
            if how == "on_batch":
                producer.on_batch = received.append
                assert (
                    producer.send_many("t", b"x" * 60, array.array("q", range(4)), partition=0) == 4
                )
                await producer.flush()
                assert (
                    sum(one.records for one in received if isinstance(one, BatchDone) and one.error)
                    == 4
                )
                return
            deliveries = await sent(producer, 4)
            if how == "callback":
                for one in deliveries:
                    one.add_done_callback(received.append)
                await producer.flush()
                assert received == deliveries
                return
            if how == "await early":
                waiting = asyncio.gather(*deliveries, return_exceptions=True)
                await asyncio.sleep(0)
                await producer.flush()
                assert [type(error) for error in await waiting] == [BrokerError] * 4
                return
            await until(lambda: all(one.done() for one in deliveries))
            for one in deliveries:
                if how == "await":
                    with pytest.raises(BrokerError, match="INVALID_RECORD"):
                        await one
                elif how == "exception":
                    assert isinstance(one.exception(), BrokerError)
                else:
                    one.add_done_callback(received.append)
            await producer.flush()
            await asyncio.sleep(0)
            assert received == (deliveries if how == "late callback" else [])

    run(work())
    assert len(caplog.messages) == (how in ("await", "exception", "late callback")), (
        "it had failed before"
    )


def test_many_records_without_on_batch() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            await producer.partitions_for("t")
            refusing(broker)
            assert (
                producer.send_many("t", b"x" * 60, array.array("q", range(40)), partition=0) == 40
            )
            with pytest.raises(DeliveryError, match=r"^40 records"):
                await producer.flush()

    run(work())


def test_the_error_of_the_body_goes_on_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    async def body(broker: PartitionLeader) -> None:
        async with Producer(options(broker)) as producer:
            await sent(producer, 3)
            raise KeyError("the caller's")

    async def work() -> None:
        async with PartitionLeader() as broker:
            broker.holding = True
            with pytest.raises(KeyError) as raised:
                await body(broker)
            (note,) = raised.value.__notes__
            assert note.startswith(
                "3 records that nobody awaited were not delivered; the first: the producer was cl"
            )
            assert raised.value.__context__ is None

    run(work())
    assert sum("the producer was closed" in line for line in caplog.messages) == 1


def test_close_raises_once_all_is_ended() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            producer = Producer(options(broker))
            await producer.partitions_for("t")
            broker.holding = True
            deliveries = await sent(producer, 3)
            with pytest.raises(DeliveryError, match=r"^3 records"):
                await producer.close(50)
            assert producer.buffer_used == 0
            await producer.close()
            for one in deliveries:
                with pytest.raises(ProducerClosedError):
                    await one

    run(work())


def test_memory_for_failures_is_bounded_and_the_count_exact() -> None:
    failures = Failures(False)
    outcomes = [
        Outcome(
            "t", 0, -1, -1, BrokerError(87, str(n)), failures, failures.generation, unreceived=2
        )
        for n in range(1_000)
    ]
    for one in outcomes:
        failures.add(one)
    for one in outcomes[:100]:  # those that are kept are received
        for _ in range(2):
            one.unreceived -= 1
            failures.received(one)
    error = failures.take()
    assert error is not None
    assert (error.count, [str(one.error) for one in error.failures]) == (1_800, ["999"])
    outcomes[500].unreceived -= 1
    failures.received(outcomes[500])  # it was raised before
    assert failures.count == 0
    assert failures.take() is None


@pytest.mark.parametrize("first", ["await", "commit", "send"])
def test_a_fenced_producer_says_so_once_and_closes(
    first: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Five batches fail; the caller hears of one of them, whichever way."""

    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, transactional_id="id")) as producer,
        ):
            await producer.init_transactions()
            producer.begin_transaction()
            await acked(producer, "t", b"first", partition=0)
            refusing(broker, fence)
            deliveries = await sent(producer, 5)
            calls: dict[str, Callable[[], Awaitable[Any]]] = {
                "await": lambda: deliveries[0],
                "commit": producer.commit_transaction,
                "send": lambda: producer.send("t", b"more"),
            }
            if first != "commit":
                await until(deliveries[0].done)
            with pytest.raises(ProducerFencedError, match="t-0: INVALID_PRODUCER_EPOCH"):
                await calls[first]()
            for call in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(ProducerFencedError):
                    await call()
        assert producer.buffer_used == 0
        assert [type(one.exception()) for one in deliveries] == [ProducerFencedError] * 5

    run(work())
    assert len([one for one in caplog.records if one.levelno >= logging.WARNING]) <= 1


def test_an_abort_that_fails_does_not_hide_the_error_of_the_body(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            producer = Producer(options(broker, transactional_id="id"))
            await producer.init_transactions()
            producer.begin_transaction()
            await acked(producer, "t", b"first", partition=0)

            async def fenced(*_: object) -> None:
                raise ProducerFencedError(ErrorCode.PRODUCER_FENCED, "transactional id id")

            assert producer._transactions is not None
            producer._transactions.end = fenced  # type: ignore[method-assign]
            await producer.close()
            assert producer.buffer_used == 0

    run(work())
    assert any("abort failed" in line and "PRODUCER_FENCED" in line for line in caplog.messages)


def test_a_transaction_that_was_aborted_is_not_raised() -> None:
    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, transactional_id="id")) as producer,
        ):
            await producer.init_transactions()
            for _ in range(2):
                producer.begin_transaction()
                await acked(producer, "t", b"first", partition=0)
                broker.faults.append(refuse)
                await sent(producer, 1)
                with pytest.raises(BrokerError, match="INVALID_RECORD"):
                    await producer.commit_transaction()
                await producer.abort_transaction()
            producer.begin_transaction()
            await acked(producer, "t", b"next", partition=0)
            broker.faults.append(refuse)
            await sent(producer, 1)
            with pytest.raises(DeliveryError):
                await producer.flush()
            await producer.abort_transaction()

    run(work())
