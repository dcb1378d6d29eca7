"""Retries, order, back-pressure and errors, with a broker that fails by script."""

from __future__ import annotations

import array
import asyncio
import random
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from batchval.compression.compressors import compress_in_one_piece
from batchval.core.batches.batch import RecordBatch
from batchval.core.claims import TAG, carrier_of, compute, from_tag, read, strip
from batchval.core.convert.builder import BatchBuilder
from batchval.errors import ArgumentValueError, ErrorCode
from batchval.network.errors import BrokerError, RequestTimeoutError
from batchval.producer import BatchDone, Producer, ProducerOptions
from batchval.producer.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    TransactionStateError,
)
from tests.support.deliveries import acked, outcome
from tests.support.network import until
from tests.support.seeds import seeds
from tests.unit.producer.partition_leader import PartitionLeader, no_fault

RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CORRUPT_MESSAGE,
    None,
]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def options(broker: PartitionLeader, **more: Any) -> ProducerOptions:
    settings = {"linger_ms": 0, "retry_backoff_ms": 5, "batch_size": 200}
    return ProducerOptions(bootstrap_servers=[broker.bootstrap], **settings | more)


async def fill(
    producer: Producer, values: list[bytes], reported: list[Any], partition: int = 0
) -> None:
    for value in values:
        delivery = await producer.send("t", value, partition=partition)
        delivery.add_done_callback(lambda one, value=value: reported.append((value, *outcome(one))))


VALUES = [b"%03d" % n + b"x" * 60 for n in range(60)]


@pytest.mark.parametrize("seed", seeds(12))
def test_whatever_fails_nothing_is_lost_doubled_or_reordered(seed: int) -> None:
    """Faults before and after the batch was kept, at random, with five in flight: idempotent, so it
    does not show.
    """
    chance = random.Random(seed)

    async def work() -> None:
        async with PartitionLeader() as broker:
            for faults, errors in ((broker.faults, RETRIED), (broker.after, RETRIED[1:])):
                for _ in range(40):
                    fault = chance.choice([*errors, *[ErrorCode.NONE] * 6])
                    faults.append(lambda partition, batch, fault=fault: fault)
            async with Producer(options(broker)) as producer:
                reported: list[Any] = []
                await asyncio.gather(
                    *(fill(producer, VALUES, reported, partition) for partition in range(2))
                )
                await producer.flush()
                assert producer.buffer_used == 0
                assert producer.metrics.records_acked == 120
                assert producer.metrics.retries > 0
            for partition in range(2):
                assert broker.values(partition) == VALUES
                of_one = [
                    (value, one.offset) for value, one, _ in reported if one.partition == partition
                ]
                assert of_one == [(value, n) for n, value in enumerate(VALUES)]
            assert broker.highest_unanswered <= 5

    run(work())


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_the_cap_is_reached_and_kept(cap: int) -> None:
    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, max_in_flight=cap)) as producer,
        ):
            await acked(producer, "t", b"first", partition=0)
            broker.holding = True
            reported: list[Any] = []
            await fill(producer, VALUES, reported)
            await until(lambda: len(broker.held) == cap)
            await asyncio.sleep(0.05)
            assert len(broker.held) == cap
            assert producer.metrics.highest_in_flight_total == cap
            broker.let_go()
            await producer.flush()
            assert broker.highest_unanswered == cap
            assert producer.metrics.highest_in_flight == {1: cap}
            assert broker.values(0) == [b"first", *VALUES]

    run(work())


def test_all_in_flight_lost_at_once_go_again_in_order() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            await acked(producer, "t", b"first", partition=0)
            for kept in (True, False):
                broker.logs.clear()
                broker.holding = True
                if not kept:
                    broker.faults.extend([lambda partition, batch: ErrorCode.REQUEST_TIMED_OUT] * 5)
                reported: list[Any] = []
                await fill(producer, VALUES, reported)
                await until(lambda: len(broker.held) == 5)
                broker.cut()
                broker.holding = False
                await producer.flush()
                assert broker.values(0) == VALUES
                assert [value for value, _, _ in reported] == VALUES
                assert not any(error for _, _, error in reported)
                assert producer.buffer_used == 0

    run(work())


def test_an_expired_batch_makes_no_gap() -> None:
    """One of five in flight is refused for good; the four after it go again under another epoch,
    in order.
    """

    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            await acked(producer, "t", b"first", partition=0)
            broker.faults.append(lambda partition, batch: ErrorCode.INVALID_RECORD)
            reported: list[Any] = []
            await fill(producer, VALUES, reported)
            await producer.flush()
            lost = [value for value, _, error in reported if error is not None]
            assert 0 < len(lost) < 5
            assert lost == VALUES[: len(lost)]
            assert {error.code for _, _, error in reported if error is not None} == {
                ErrorCode.INVALID_RECORD
            }
            assert [value for value, _, _ in reported] == VALUES
            assert broker.values(0) == [b"first", *VALUES[len(lost) :]]
            assert {RecordBatch(batch).producer_epoch for batch in broker.logs[0]} == {0, 1}
            assert producer.buffer_used == 0

    run(work())


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
)
def test_a_broker_that_forgot_the_producer(code: ErrorCode) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            await acked(producer, "t", b"first", partition=0)
            broker.faults.append(lambda partition, batch: code)
            reported: list[Any] = []
            await fill(producer, VALUES, reported)
            await producer.flush()
            assert broker.values(0) == [b"first", *VALUES]
            assert not any(error for _, _, error in reported)

    run(work())


def test_a_first_batch_that_is_refused_lets_none_pass() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            broker.faults.extend([lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
            reported: list[Any] = []
            await fill(producer, VALUES, reported)
            await producer.flush()
            assert broker.values(0) == VALUES

    run(work())


def test_errors_that_do_not_pass_and_retries_that_run_out() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker, retries=2)) as producer:
            broker.faults.append(lambda partition, batch: ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            with pytest.raises(BrokerError, match=r"1 records for t-0: TOPIC_AUTHORIZATION_FAILED"):
                await acked(producer, "t", b"x", partition=0)
            broker.faults.extend([lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
            with pytest.raises(BrokerError, match="NOT_ENOUGH_REPLICAS"):
                await acked(producer, "t", b"y", partition=0)
            assert (await acked(producer, "t", b"z", partition=0)).offset == 0
            assert producer.metrics.records_failed == 2
            assert producer.metrics.retries == 2
            assert producer.buffer_used == 0

    run(work())


def test_back_pressure() -> None:
    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, buffer_memory=2_000)) as producer,
        ):
            await producer.partitions_for("t")
            # only while the broker holds its answers: a loaded machine needs more for the others
            patience, producer.options.max_block_ms = producer.options.max_block_ms, 100
            broker.holding = True
            reported: list[Any] = []
            with pytest.raises(BufferExhaustedError, match="the buffer of 2000 bytes had no space"):
                await fill(producer, VALUES, reported)
            assert 1_700 < producer.buffer_used <= 2_000
            taken = producer.send_many("t", b"x" * 60, array.array("q", range(50)), partition=0)
            assert taken == 0
            with pytest.raises(BufferExhaustedError):
                await producer.wait_for_space()
            producer.options.max_block_ms = patience
            broker.let_go()
            await producer.wait_for_space()
            assert producer.send_many("t", b"x" * 60, array.array("q", [1]), partition=0) == 1
            await producer.flush()
            assert producer.buffer_used == 0
            with pytest.raises(RecordTooLargeError, match="buffer_memory"):
                await acked(producer, "t", b"x" * 2_000)
            assert len(reported) + 1 == producer.metrics.records_acked

    run(work())


def test_tasks_that_wait_for_a_full_buffer_have_their_turns() -> None:
    """Each needs the whole buffer: one that was woken takes it before the next one is."""

    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, buffer_memory=2_000)) as producer,
        ):
            await producer.partitions_for("t")
            asked = 0

            async def send(partition: int) -> None:
                nonlocal asked
                for n in range(10):
                    while not producer.send_many(
                        "t", b"x" * 1_800, array.array("q", [n]), partition=partition
                    ):
                        asked += 1
                        await producer.wait_for_space()

            async with asyncio.timeout(30):
                await asyncio.gather(*(send(partition) for partition in (0, 1, 0)))
            await producer.flush()
            assert producer.metrics.records_acked == 30
            assert asked < 100
            assert producer.buffer_used == 0

    run(work())


def too_large(partition: int, batch: RecordBatch) -> ErrorCode:
    return ErrorCode.MESSAGE_TOO_LARGE


def test_what_was_split_is_flushed_and_committed_too() -> None:
    """A batch that is split twice is not done when it is gone: its parts are waited for."""

    async def work() -> None:
        async with PartitionLeader() as broker:
            async with Producer(options(broker, batch_size=8_000)) as producer:
                reported: list[Any] = []
                await acked(producer, "t", b"first", partition=0)
                broker.faults.extend([too_large] * 2)
                await fill(producer, VALUES, reported)
                await producer.flush()
                assert [(value, error) for value, _, error in reported] == [
                    (value, None) for value in VALUES
                ]
                assert broker.values(0) == [b"first", *VALUES]
            async with Producer(
                options(broker, batch_size=8_000, transactional_id="id")
            ) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                broker.faults.append(too_large)
                await fill(producer, VALUES, [], partition=1)
                await producer.commit_transaction()
                assert broker.values(1) == VALUES
                assert broker.ends == [(True, sum(map(len, broker.logs.values())))]

    run(work())


def test_a_record_that_fails_while_its_transaction_is_aborted_makes_no_gap() -> None:
    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(
                options(
                    broker,
                    transactional_id="id",
                    delivery_timeout_ms=5_000,
                    request_timeout_ms=4_000,
                )
            ) as producer,
        ):
            await producer.init_transactions()
            for fault in (ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.NONE):
                producer.begin_transaction()
                await acked(producer, "t", b"first", partition=0)
                broker.holding = True
                broker.faults.append(lambda partition, batch, fault=fault: fault)
                await fill(producer, [b"second"], [])
                await until(lambda: broker.held)
                if fault == ErrorCode.NONE:
                    broker.let_go()
                    await producer.commit_transaction()
                else:
                    aborting = asyncio.ensure_future(producer.abort_transaction())
                    await asyncio.sleep(0.01)
                    broker.let_go()
                    await aborting
            assert broker.values(0) == [b"first", b"second", b"first", b"first", b"second"]
            assert [committed for committed, _ in broker.ends] == [True, False, True]

    run(work())


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_commit_without_an_answer_can_only_be_repeated(cancelled: bool) -> None:
    """As with Kafka's producer: it may have come about, so an abort would say what is not so."""

    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(
                options(
                    broker,
                    transactional_id="id",
                    max_block_ms=1_000,
                    request_timeout_ms=700,
                    delivery_timeout_ms=900,
                )
            ) as producer,
        ):
            await producer.init_transactions()
            producer.begin_transaction()
            await acked(producer, "t", b"once", partition=0)
            broker.mute_ends = 2
            with pytest.raises(TimeoutError if cancelled else RequestTimeoutError):
                await asyncio.wait_for(producer.commit_transaction(), 0.3 if cancelled else None)
            with pytest.raises(TransactionStateError, match="commit again, or close"):
                await producer.abort_transaction()
            with pytest.raises(TransactionStateError, match="commit again, or close"):
                producer.begin_transaction()
            with pytest.raises(TransactionStateError, match="commit again, or close"):
                await acked(producer, "t", b"too late", partition=0)
            broker.mute_ends = 0
            await producer.commit_transaction()
            producer.begin_transaction()
            await acked(producer, "t", b"next", partition=0)
            await producer.commit_transaction()
            assert broker.values(0) == [b"once", b"next"]
            assert {committed for committed, _ in broker.ends} == {True}

    run(work())


def test_a_transaction_s_end_that_was_cancelled_can_be_asked_for_again() -> None:
    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(options(broker, transactional_id="id")) as producer,
        ):
            await producer.init_transactions()
            for end in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                broker.holding = True
                await fill(producer, [end.__name__.encode()], [])
                await until(lambda: broker.held)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(end(), 0.05)  # it waits for the record
                broker.let_go()
                await end()
            assert [committed for committed, _ in broker.ends] == [True, False]

    run(work())


@pytest.mark.parametrize("stored", range(1, 6))
@pytest.mark.parametrize("transactional", [False, True])
def test_a_broker_that_remembers_the_last_batch_alone(stored: int, transactional: bool) -> None:
    """Five in flight, some of them stored, none answered; killed. The answer to the last says of
    those before it.
    """

    async def work() -> None:
        more = {"transactional_id": "id"} if transactional else {}
        async with PartitionLeader() as broker, Producer(options(broker, **more)) as producer:
            if transactional:
                await producer.init_transactions()
                producer.begin_transaction()
            await acked(producer, "t", b"first" * 30, partition=0)
            broker.holding = True
            reported: list[Any] = []
            broker.faults.extend(
                [no_fault] * stored + [lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS] * 5
            )
            values = [b"%d" % n * 150 for n in range(5)]
            await fill(producer, values, reported)
            await until(lambda: len(broker.held) == 5)
            broker.faults.clear()
            broker.forget()
            broker.holding = False
            broker.cut()
            await acked(producer, "t", b"last", partition=0)
            if transactional:
                await producer.commit_transaction()
            assert broker.values(0) == [b"first" * 30, *values, b"last"]
            assert [(value, error) for value, _, error in reported] == [
                (value, None) for value in values
            ]
            assert [None if where.offset < 0 else where.offset for _, where, _ in reported] == [
                None if n < stored - 1 else n + 1 for n in range(5)
            ]
            assert producer.buffer_used == 0
            assert {RecordBatch(one).producer_epoch for one in broker.logs[0]} == {0}

    run(work())


@pytest.mark.parametrize("then", ["lost", "refused", "expired", "closed"])
def test_doubts_that_come_to_nothing(then: str) -> None:
    """All are out of order to the broker (it has lost its log's end), or the one that would tell is
    no more.
    """

    async def work() -> None:
        more = (
            {"delivery_timeout_ms": 1_500, "request_timeout_ms": 1_000} if then == "expired" else {}
        )
        async with PartitionLeader() as broker:
            producer = Producer(options(broker, **more))
            await acked(producer, "t", b"first" * 30, partition=0)
            broker.holding = True
            reported: list[Any] = []
            await fill(producer, [b"%d" % n * 150 for n in range(3)], reported)
            await until(lambda: len(broker.held) == 3)
            broker.holding = False
            out_of_order = lambda partition, batch: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # noqa: E731
            if then == "lost":
                del broker.logs[0][1:]
                (where, (epoch, _)) = next(iter(broker.states.items()))
                broker.states[where] = epoch, -5 & 0x7FFFFFFF  # so that nothing is next
                broker.seen.clear()
            elif then == "refused":
                broker.faults.extend(
                    [out_of_order, lambda partition, batch: ErrorCode.INVALID_RECORD]
                )
            else:
                broker.faults.append(out_of_order)
                broker.faults.extend(
                    [lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000
                )
            broker.cut()
            if then == "closed":
                await until(
                    lambda: (
                        producer._sender.accumulator.active
                        and any(queue.doubted for queue in producer._sender.accumulator.active)
                    )
                )
                await producer.close(timeout_ms=0)
                assert [type(error) for _, _, error in reported] == [ProducerClosedError] * 3
                assert producer.buffer_used == 0
                return
            await until(lambda: len(reported) == 3)
            broker.faults.clear()
            errors = [error for _, _, error in reported]
            if then == "lost":
                assert errors == [None] * 3
                assert broker.values(0) == [b"first" * 30, *(b"%d" % n * 150 for n in range(3))]
            elif then == "refused":
                assert [type(error) for error in errors] == [type(None), BrokerError, type(None)]
            else:
                assert [type(error) for error in errors] == [DeliveryTimeoutError] * 3
            await acked(producer, "t", b"last", partition=0)
            assert broker.values(0)[-1] == b"last"
            assert producer.buffer_used == 0
            await producer.close()

    run(work())


def test_delivery_timeout() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            more = {"delivery_timeout_ms": 300, "request_timeout_ms": 250}
            async with Producer(options(broker, **more)) as producer:
                await acked(producer, "t", b"first", partition=0)
                broker.faults.extend(
                    [lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000
                )
                with pytest.raises(DeliveryTimeoutError, match=r"1 records for t-0 .* in 300 ms"):
                    await acked(producer, "t", b"lost", partition=0)
                broker.faults.clear()
                await acked(producer, "t", b"later", partition=0)
                assert broker.values(0) == [b"first", b"later"]
                assert producer.buffer_used == 0

    run(work())


def test_close_fails_what_cannot_be_sent() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            producer = Producer(options(broker))
            await producer.partitions_for("t")
            broker.holding = True
            reported: list[Any] = []
            await fill(producer, VALUES, reported)
            await producer.close(100)
            assert len(reported) == len(VALUES)
            assert {type(error) for _, _, error in reported} == {ProducerClosedError}
            with pytest.raises(ProducerClosedError):
                await acked(producer, "t", b"x")
            assert producer.buffer_used == 0

    run(work())


def test_an_old_broker_gets_one_at_a_time() -> None:
    """Brokers 0.11 (Produce v3) remember one batch of an idempotent producer."""

    async def work() -> None:
        async with PartitionLeader(produce=(0, 3)) as broker, Producer(options(broker)) as producer:
            await fill(producer, VALUES, [])
            await producer.flush()
            assert broker.highest_unanswered == 1
            assert broker.values(0) == VALUES

    run(work())


def test_muted_partitions_keep_the_order_without_idempotence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(mute: bool) -> bool:
        async with PartitionLeader() as broker:
            more = {"enable_idempotence": False, "mute_partitions": mute}
            async with Producer(options(broker, **more)) as producer:
                await acked(producer, "t", b"first", partition=0)
                broker.faults.append(lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS)
                reported: list[Any] = []
                await fill(producer, VALUES, reported)
                await producer.flush()
                assert [value for value, _, _ in reported] == VALUES, (
                    "callbacks in order in any case"
                )
                assert sorted(broker.values(0)) == sorted([b"first", *VALUES])
                return broker.values(0) == [b"first", *VALUES]

    assert run(work(True))
    assert not any("may reorder" in line for line in caplog.messages)
    assert not run(work(False))
    assert sum("may reorder" in line for line in caplog.messages) == 1


def test_claims_are_in_the_tag_and_true() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            async with Producer(options(broker, claims="tag", compression_type="lz4")) as producer:
                await fill(producer, VALUES, [])
            for request in broker.requests:
                for data in request.topic_data[0].partition_data:
                    ((tag, carried),) = data.unknown_tagged_fields
                    batch = RecordBatch(bytes(data.records or b""))
                    assert tag == TAG
                    assert from_tag(carried, batch.crc) == compute(bytes(data.records or b""))
            assert sorted(broker.values(0)) == sorted(VALUES)

    run(work())


@pytest.mark.parametrize("carrier", ["tag", "payload"])
def test_claims_state_schema_ids_where_the_option_is_set(carrier: str) -> None:
    values = [bytes([0, 0, 0, 0, 7 + n % 2]) + b"avro" for n in range(20)]

    async def work() -> None:
        async with PartitionLeader() as broker:
            settings = options(
                broker, claims=carrier, claims_schema_ids=True, compression_type="zstd"
            )
            async with Producer(settings) as producer:
                await fill(producer, values, [])
            for request in broker.requests:
                for data in request.topic_data[0].partition_data:
                    raw, tags = (
                        bytes(data.records or b""),
                        [content for _, content in data.unknown_tagged_fields],
                    )
                    found = read(raw, tags[0] if tags else None)
                    assert found is not None
                    assert found.schema_ids is not None
                    assert found == compute(raw, schema_ids=True)

    run(work())
    with pytest.raises(ValueError, match="claims_schema_ids True: expected claims"):
        ProducerOptions(bootstrap_servers=["localhost:9092"], claims_schema_ids=True)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_claims_are_in_the_payload_and_true(codec: str) -> None:
    """The payloads of lz4 and snappy have no place for them: those go into the tag."""

    async def work() -> None:
        async with PartitionLeader(produce=(3, 8) if codec == "gzip" else (3, 9)) as broker:
            settings = options(broker, claims="payload", compression_type=codec)
            async with Producer(settings) as producer:
                await fill(producer, VALUES, [])
            assert broker.values(0) == VALUES
            for request in broker.requests:
                for data in request.topic_data[0].partition_data:
                    raw, tags = (
                        bytes(data.records or b""),
                        [content for _, content in data.unknown_tagged_fields],
                    )
                    assert RecordBatch(raw).is_valid
                    in_payload = codec in ("gzip", "zstd")
                    assert (carrier_of(raw), len(tags)) == (
                        ("payload", 0) if in_payload else (None, 1)
                    )
                    assert read(raw, tags[0] if tags else None) == compute(raw)

    run(work())


def test_claims_that_make_a_batch_too_large_go_into_the_tag() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            settings = options(
                broker, claims="payload", compression_type="zstd", transactional_id="id"
            )
            async with Producer(settings) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                broker.faults.append(too_large)
                await fill(producer, VALUES, [])
                await producer.commit_transaction()
                assert producer.metrics.splits == 0
            assert broker.values(0) == VALUES
            sent = [request.topic_data[0].partition_data[0] for request in broker.requests]
            first, second = (bytes(data.records or b"") for data in sent[:2])
            assert (carrier_of(first), carrier_of(second)) == ("payload", None)
            assert strip(first) == second
            ((_, tag),) = sent[1].unknown_tagged_fields
            assert read(second, tag) == compute(second)

    run(work())


def test_a_batch_at_the_limit_has_no_room_for_claims() -> None:
    made = BatchBuilder(10_000, 4)
    made.append(b"key", random.Random(1).randbytes(500), (), 1_700_000_000_000)
    payload = compress_in_one_piece(4, made.payload(), 2)
    size = 61 + len(payload)
    made.finish(payload, size + 32)
    assert (made.carries_claims, made.wire_size) == (False, size)
    again = BatchBuilder(10_000, 4)
    again.append(b"key", random.Random(1).randbytes(500), (), 1_700_000_000_000)
    again.finish(payload, size + 33)
    again.seal()
    assert (again.carries_claims, again.wire_size) == (True, size + 33)
    assert read(bytes(again.view())) == again.claims == compute(bytes(again.view()))
    again.drop_claims()
    again.drop_claims()
    again.seal()
    made.seal()
    assert bytes(again.view()) == bytes(made.view())


def test_one_request_holds_all_partitions_and_callbacks_may_fail() -> None:
    async def work() -> None:
        async with (
            PartitionLeader(partitions=50) as broker,
            Producer(
                options(broker, linger_ms=50, batch_size=10_000, partitioner="round_robin")
            ) as producer,
        ):
            done: list[BatchDone] = []

            def reported(batch: BatchDone) -> None:
                done.append(batch)
                raise RuntimeError("of no matter")

            producer.on_batch = reported
            await producer.partitions_for("t")
            assert producer.send_many("t", b"v", array.array("q", range(500))) == 500
            await producer.flush()
            assert len(done) == 50
            assert producer.metrics.requests <= 2
            assert sorted(stamp for batch in done for stamp in batch.stamps) == list(range(500))

    run(work())


def test_another_thread_is_refused() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(options(broker)) as producer:
            refused: list[BaseException] = []

            def other() -> None:
                try:
                    producer.send_many("t", b"v", array.array("q", [1]))
                except RuntimeError as error:
                    refused.append(error)

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert "loop's thread alone" in str(refused[0])

    run(work())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"max_in_flight": 6},
            "enable_idempotence True: expected max_in_flight of at most 5, not 6",
        ),
        ({"acks": 1}, "enable_idempotence True: expected acks -1 (all), not 1"),
        ({"acks": 2, "enable_idempotence": False}, "acks 2: expected -1 (all), 1 or 0"),
        (
            {"transactional_id": "t", "enable_idempotence": False},
            "transactional_id 't': expected enable_idempotence to be True",
        ),
        ({"transactional_id": ""}, "transactional_id '': expected text that is not empty"),
        (
            {"compression_type": "brotli"},
            "compression_type 'brotli': expected one of none, gzip, snappy, lz4, zstd",
        ),
        (
            {"compression_type": "snappy", "compression_level": 1},
            "compression_level 1: expected none with snappy",
        ),
        (
            {"compression_type": "gzip", "compression_level": 10},
            "compression_level 10: expected an integer, -1 to 9",
        ),
        (
            {"partitioner": "random"},
            "partitioner 'random': expected one of default, round_robin, manual, murmur2",
        ),
        (
            {"delivery_timeout_ms": 1},
            "delivery_timeout_ms 1: expected at least linger_ms + request_timeout_ms, 30005 ms",
        ),
        ({"buffer_memory": 0}, "buffer_memory 0: expected an integer, at least 1"),
        ({"batch_size": 2**31}, "batch_size 2147483648: expected an integer, 0 to 2147483647"),
        ({"batch_size": 1.5}, "batch_size 1.5: expected an integer, 0 to 2147483647"),
        ({"linger_ms": "5"}, "linger_ms '5': expected a number, at least 0"),
        ({"max_block_ms": float("nan")}, "max_block_ms nan: expected a number, at least 0"),
        ({"bootstrap_servers": ["localhost"]}, "server 'localhost': expected host:port"),
    ],
)
def test_options_that_do_not_fit(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentValueError) as raised:
        ProducerOptions(**more)
    assert str(raised.value) == f"invalid {message}"
