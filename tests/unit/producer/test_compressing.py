"""Compression off the event loop: in order, and what ends meanwhile leaks nothing."""

from __future__ import annotations

import array
import asyncio
import threading
import time
from typing import Any

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.errors import ErrorCode
from batchval.producer import BatchDone, Producer, batch_compression
from batchval.producer.errors import DeliveryTimeoutError, ProducerClosedError
from tests.support.deliveries import acked
from tests.support.network import until
from tests.unit.producer.partition_leader import PartitionLeader
from tests.unit.producer.test_sending import VALUES, fill, options, run

real = batch_compression.compress


class Gate:
    """Compression that waits until it is let go; and in which threads it was done."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.began = 0
        self.threads: set[str] = set()
        self.error: Exception | None = None

    def __call__(self, codec: int, data: Any, magic: int, level: int | None = None) -> bytes:
        self.began += 1
        self.threads.add(threading.current_thread().name)
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        return real(codec, data, magic, level)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(batch_compression, "compress", gate)
    monkeypatch.setattr(batch_compression, "HOLDS_UP_NS", 0)
    return gate


def lz4(broker: PartitionLeader, **more: Any) -> Any:
    return options(broker, compression_type="lz4", **more)


def test_acks_are_reported_while_threads_compress(gate: Gate) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(lz4(broker)) as producer:
            gate.open.set()
            broker.holding = True
            first: list[Any] = []
            await fill(producer, [b"first"], first, partition=1)
            await until(lambda: broker.held)
            gate.open.clear()
            reported: list[Any] = []
            await fill(producer, VALUES, reported)
            await until(lambda: gate.began == 3)
            broker.let_go()
            await until(lambda: first)
            assert reported == []
            assert gate.began == 3  # the pool has two threads, and none has ended
            gate.open.set()
            await producer.flush()
            assert broker.values(0) == VALUES
            assert [value for value, _, _ in reported] == VALUES
            assert broker.highest_unanswered <= 5
            assert all(name.startswith("batchval-compress") for name in gate.threads)
            assert producer.buffer_used == 0

    run(work())


def test_faults_and_splits_with_batches_of_threads(gate: Gate) -> None:
    gate.open.set()

    async def work() -> None:
        async with PartitionLeader() as broker:
            answers = [
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.MESSAGE_TOO_LARGE,
                None,
                ErrorCode.NONE,
            ] * 4

            def fault(answer: ErrorCode | None, batch: RecordBatch) -> ErrorCode | None:
                alone = answer == ErrorCode.MESSAGE_TOO_LARGE and batch.records_count == 1
                return ErrorCode.NONE if alone else answer

            broker.faults.extend(
                lambda partition, batch, answer=answer: fault(answer, batch) for answer in answers
            )
            async with Producer(lz4(broker, batch_size=700)) as producer:
                reported: list[Any] = []
                await asyncio.gather(
                    *(fill(producer, VALUES, reported, partition) for partition in range(2))
                )
                await producer.flush()
                assert producer.buffer_used == 0
                assert producer.metrics.splits > 0
            for partition in range(2):
                assert broker.values(partition) == VALUES

    run(work())


def test_a_codec_that_fails_fails_its_batch_alone(gate: Gate) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker, Producer(lz4(broker)) as producer:
            gate.error = MemoryError("no memory for it")
            gate.open.set()
            reported: list[Any] = []
            await fill(producer, [b"lost"], reported)
            await until(lambda: reported)
            gate.error = None
            await fill(producer, [b"kept"], reported)
            await producer.flush()
            assert isinstance(reported[0][2], MemoryError)
            assert broker.values(0) == [b"kept"]
            assert producer.buffer_used == 0

    run(work())


def test_a_codec_that_fails_in_the_loop_holds_up_nobody(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many batches wait for the connection; each is tried, though no answer comes that would have
    the sender look.
    """
    monkeypatch.setattr(batch_compression, "HOLDS_UP_NS", 1 << 60)

    async def work() -> None:
        async with PartitionLeader() as broker, Producer(lz4(broker)) as producer:
            gate.error = MemoryError("no memory for it")
            gate.open.set()
            reported: list[Any] = []
            await fill(producer, VALUES, reported)
            await producer.flush(10_000)
            assert len(reported) == len(VALUES)
            assert all(isinstance(error, MemoryError) for _, _, error in reported)
            assert producer.buffer_used == 0

    run(work())


def test_callbacks_do_not_run_inside_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these has a batch of the other partition fail at once."""
    stamps, depth, deepest = array.array("q", [0]), 0, 0

    def fails(*_: Any) -> bytes:
        raise ValueError("no codec")

    async def work() -> None:
        async with (
            PartitionLeader() as broker,
            Producer(lz4(broker, compression_threads=0)) as producer,
        ):
            results: list[Exception | None] = []

            def reported(done: BatchDone) -> None:
                nonlocal depth, deepest
                depth += 1
                deepest = max(deepest, depth)
                results.append(done.error)
                monkeypatch.setattr(batch_compression, "compress", fails)
                if len(results) < 6:
                    assert producer.send_many("t", b"x", stamps, partition=len(results) % 2) == 1
                depth -= 1

            producer.on_batch = reported
            await producer.partitions_for("t")
            assert producer.send_many("t", b"x", stamps, partition=0) == 1
            await until(lambda: len(results) == 6)
            assert [type(error) for error in results] == [type(None), *[ValueError] * 5]
            assert deepest == 1

    run(work())


def test_expired_while_a_thread_has_it(gate: Gate) -> None:
    """Its memory is its own until the thread is done with it."""

    async def work() -> None:
        async with PartitionLeader() as broker:
            short = lz4(broker, delivery_timeout_ms=150, request_timeout_ms=100)
            async with Producer(short) as producer:
                reported: list[Any] = []
                await fill(producer, [b"late"], reported)
                await until(lambda: reported)
                assert isinstance(reported[0][2], DeliveryTimeoutError)
                assert producer.buffer_used > 0
                gate.open.set()
                await until(lambda: producer.buffer_used == 0)
                await acked(producer, "t", b"next", partition=0)
                assert broker.values(0) == [b"next"]

    run(work())


def test_closed_while_threads_compress(gate: Gate) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            producer = Producer(lz4(broker))
            done: list[BatchDone] = []
            producer.on_batch = done.append
            await producer.partitions_for("t")
            stamps = array.array("q", range(60))
            assert producer.send_many("t", VALUES, stamps, partition=0) == 60
            await until(lambda: gate.began == 2)
            begin = time.monotonic()
            await producer.close(0)
            assert time.monotonic() - begin < 10
            assert [stamp for one in done for stamp in one.stamps] == list(range(60))
            assert all(isinstance(one.error, ProducerClosedError) for one in done)
            gate.open.set()
            await until(lambda: producer.buffer_used == 0)
            assert broker.values(0) == []

    run(work())


@pytest.mark.parametrize("threads", [0, 2])
def test_small_and_quick_batches_stay_in_the_loop(threads: int) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            async with Producer(lz4(broker, compression_threads=threads)) as producer:
                await fill(producer, VALUES, [])
                await producer.flush()
                assert producer._sender.compressing.in_threads == 0
            async with Producer(
                options(
                    broker, compression_type="gzip", batch_size=200_000, compression_threads=threads
                )
            ) as producer:
                await fill(producer, [b"%07d" % n * 20 for n in range(5000)], [])
                await producer.flush()
                assert (producer._sender.compressing.in_threads > 0) == (threads > 0)

    run(work())
