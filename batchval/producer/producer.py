"""The producer: takes records, sends batches, reports the outcome.

docs/reference/library/producer.md describes how it behaves.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from batchval.core.convert.builder import BATCH_OVERHEAD, MAX_RECORD_OVERHEAD, RecordValues
from batchval.errors import ArgumentValueError, BatchvalError, shown_ms
from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata, bootstrap_nodes
from batchval.network.errors import NetworkError, RequestTimeoutError
from batchval.producer.accumulator import Accumulator
from batchval.producer.batch import BatchDone
from batchval.producer.delivery import Delivery
from batchval.producer.errors import DeliveryError, ProducerClosedError, TransactionAbortedError
from batchval.producer.options import ProducerOptions
from batchval.producer.partitioners import RoundRobin, partitioner
from batchval.producer.sender import ProducerMetrics, Sender
from batchval.producer.sequences import Sequences
from batchval.producer.transaction_manager import State, Transactions

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Producer"]

_LAST_ABORT_MS = 5_000.0
_HEADER_OVERHEAD = 10  # two varints of an int32

log = logging.getLogger("batchval.producer")


class Producer:
    """A producer of one running loop and its thread. ``async with`` flushes and closes it."""

    def __init__(self, options: ProducerOptions) -> None:
        self.options = options
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._closing = False
        self._wanted: dict[str, None] = {}  # topics that send_many knew nothing of
        self._refused = 0  # bytes that send_many had no space for
        # set when a batch was reported or the producer closed, cleared by ``_flush``
        self._settled = asyncio.Event()
        self._client = ConsumerNetworkClient(options.client_options())
        self._metadata = ClusterMetadata(
            self._client,
            bootstrap_nodes(options.bootstrap_servers),
            max_age_ms=options.metadata_max_age_ms,
            retry_backoff_ms=options.retry_backoff_ms,
        )
        self._partitioner = partitioner(options.partitioner)
        self._accumulator = Accumulator(options, lambda: self._loop.time() * 1000)
        self._sequences = (
            Sequences(options.transactional_id is not None) if options.enable_idempotence else None
        )
        self._sender = Sender(
            options, self._client, self._metadata, self._accumulator, self._sequences
        )
        self._sender.on_settled = self._settled.set
        self._transactions: Transactions | None = None
        if self._sequences is not None:
            self._transactions = Transactions(
                options, self._client, self._metadata, self._sequences, self._changed
            )
            if options.transactional_id is None:
                self._sender.need_id = self._transactions.need_id
            else:
                self._sender.hold = self._transactions.hold
                self._sender.on_failed = self._transactions.failed
        if options.may_reorder:
            log.warning(
                "without idempotence and with max_in_flight %d a retry may reorder batches: "
                "mute_partitions, max_in_flight 1 or enable_idempotence prevent it",
                options.max_in_flight,
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        failed = await self._close(None if error is None else 0)
        if failed is None:
            return
        if error is None:
            raise failed
        error.add_note(str(failed))  # the body's own error goes on

    # --- questions

    @property
    def metrics(self) -> ProducerMetrics:
        """Return the counts so far."""
        return self._sender.metrics

    @property
    def buffer_used(self) -> int:
        """Return the bytes of buffer_memory in use; 0 once all records are settled."""
        return self._accumulator.used

    @property
    def requests_in_flight(self) -> int:
        """Return how many requests of any API await an answer now, over all nodes."""
        return self._client.network.in_flight_count()

    @property
    def on_batch(self) -> Callable[[BatchDone], object] | None:
        """Return the callback for each batch that ``send_many`` filled.

        It is called once a batch, in order within a partition."""
        return self._sender.on_batch

    @on_batch.setter
    def on_batch(self, callback: Callable[[BatchDone], object] | None) -> None:
        self._sender.on_batch = callback

    async def partitions_for(self, topic: str) -> int:
        """Return how many partitions a topic has; request metadata if that is not known."""
        self._guard()
        return self._metadata.partitions(topic) or await self._metadata.wait_for(
            topic, self.options.max_block_ms
        )

    def _guard(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError("a producer is used on its loop's thread alone")
        if self._closing:
            raise ProducerClosedError("the producer is closed")

    def _may_send(self) -> None:
        self._guard()
        if self.options.transactional_id is not None:
            self._must_be(State.IN_TRANSACTION)
        elif self._sender.fatal is not None:
            raise self._sender.fatal

    def _must_be(self, *states: State) -> Transactions:
        """Raise what made it impossible: with that the caller knows why records failed."""
        transactions = self._transactional()
        try:
            transactions.must_be(*states)
        except BatchvalError:
            if transactions.error is not None:
                self._sender.failures.discard()
            raise
        return transactions

    # --- records

    async def send(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Put a record into a batch, and return its delivery, awaited for the acknowledgement.

        Waits while nothing is known of the topic, or the buffer is full, for max_block_ms at most.
        Raises RecordTooLargeError, BufferExhaustedError, ValueError for a partition that the topic
        has not, TypeError for what cannot be bytes, and what asking for the topic raised.
        """
        self._may_send()
        partitions = self._metadata.partitions(topic)
        if not partitions:
            partitions = await self._metadata.wait_for(topic, self.options.max_block_ms)
        size = MAX_RECORD_OVERHEAD + _length(key) + _length(value)
        for name, text in headers:
            size += 3 * len(name) + _length(text) + _HEADER_OVERHEAD
        self._accumulator.check_size(size)
        while (
            needed := min(size + BATCH_OVERHEAD, self.options.buffer_memory)
        ) > self._accumulator.free:
            await self._accumulator.wait_for_space(needed, self._sender.pump_soon)
        self._may_send()  # much may have happened while it waited
        if partition is None:
            chosen = self._partitioner.partition(topic, key, partitions)
        elif 0 <= partition < partitions:
            chosen = partition
        else:
            raise ArgumentValueError(
                f"invalid partition {partition} of {topic}: expected 0 to {partitions - 1}"
            )
        queue = self._accumulator.queue_of(topic, chosen)
        now = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        first = not queue.queue
        delivery = Delivery(now)
        if self._accumulator.append(queue, key, value, headers, now, delivery):
            if key is None and partition is None:
                self._partitioner.on_new_batch(topic, chosen)
            self._sender.pump()
        elif first:
            self._sender.pump_soon()
        return delivery

    def send_many(
        self,
        topic: str,
        values: Buffer | Sequence[Buffer | None],
        stamps: Buffer,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Put many records without keys into batches; return how many were taken, from the first.

        One native call fills a batch.

        ``values``: one bytes-like, the value of every record, or a sequence of them. ``stamps``: a
        buffer of int64, one a record, of any meaning: they come back through ``on_batch``. Fewer
        are taken, or none, when the buffer is full or nothing is known of the topic yet: await
        ``wait_for_space()``, then go on. Raises RecordTooLargeError and ValueError.
        """
        self._may_send()
        partitions = self._metadata.partitions(topic)
        if not partitions:
            self._wanted[topic] = None
            return 0
        if partition is not None and not 0 <= partition < partitions:
            raise ArgumentValueError(
                f"invalid partition {partition} of {topic}: expected 0 to {partitions - 1}"
            )
        prepared = RecordValues(values, stamps)
        try:
            return self._send_many(topic, prepared, partition, partitions, timestamp_ms)
        finally:
            prepared.close()

    def _send_many(
        self,
        topic: str,
        prepared: RecordValues,
        partition: int | None,
        partitions: int,
        timestamp_ms: int | None,
    ) -> int:
        largest = prepared.largest() + MAX_RECORD_OVERHEAD
        self._accumulator.check_size(largest)
        now = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        count = self._accumulator.most_that_fit(prepared, partitions)
        if count and partition is not None:
            self._accumulator.append_many(
                self._accumulator.queue_of(topic, partition), prepared, 0, count, 1, now
            )
        elif count and isinstance(self._partitioner, RoundRobin):
            first = self._partitioner.turn(topic, count, partitions)
            self._accumulator.append_in_turn(topic, prepared, first, partitions, count, now)
        elif count:
            self._fill_sticky(topic, prepared, count, partitions, now)
        if count < prepared.count:
            self._refused = largest + self._accumulator.overhead(prepared, partitions)
            self._accumulator.refused()
        if self._accumulator.stirred():
            self._sender.pump()
        return count

    def _fill_sticky(
        self, topic: str, prepared: RecordValues, count: int, partitions: int, now: int
    ) -> None:
        taken = 0
        while taken < count:
            chosen = self._partitioner.partition(topic, None, partitions)
            queue = self._accumulator.queue_of(topic, chosen)
            taken += self._accumulator.append_many(
                queue, prepared, taken, count - taken, 1, now, batches=1
            )
            if taken < count:
                self._partitioner.on_new_batch(topic, chosen)

    async def wait_for_space(self) -> None:
        """Wait until ``send_many`` can take a record of the refused size and knows its topic.

        Raises BufferExhaustedError after max_block_ms, and what asking for the topic raised.
        """
        self._guard()
        wanted, self._wanted = list(self._wanted), {}
        refused = min(self._refused, self.options.buffer_memory)
        await asyncio.sleep(0)  # a caller that asks again and again lets others in
        for topic in wanted:
            if not self._metadata.partitions(topic):
                await self._metadata.wait_for(topic, self.options.max_block_ms)
        await self._accumulator.wait_for_space(refused, self._sender.pump_soon)
        self._refused = 0

    # --- the end of things

    def _changed(self) -> None:
        """Continue after the producer id came, a partition was added, or the producer failed."""
        transactions = self._transactions
        if transactions is not None and transactions.state is State.FATAL:
            self._sender.fatal = transactions.error
            if transactions.error is not None:
                self._sender.abandon(transactions.error, but_on_the_wire=True)
        elif (
            transactions is not None
            and transactions.state is State.ABORTABLE
            and transactions.error is not None
        ):
            # nothing of this transaction is sent any more (Kafka's abortUndrainedBatches)
            self._sender.abandon(transactions.error, but_on_the_wire=True)
        self._sender.pump_soon()
        self._settled.set()

    async def _flush(
        self, timeout_ms: float | None, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._accumulator.flushing += 1
        # by number: a batch that is split is gone, what it was split into has its number
        queues = [
            (queue, queue.unreported[-1].number[0])
            for queue in self._accumulator.active
            if queue.unreported
        ]
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                self._sender.pump()
                for queue, last in queues:
                    while queue.unreported and queue.unreported[0].number[0] <= last and not stop():
                        self._settled.clear()
                        await self._settled.wait()
        except TimeoutError:
            raise RequestTimeoutError(
                f"not all records were acknowledged in {shown_ms(timeout_ms or 0)}"
            ) from None
        finally:
            self._accumulator.flushing -= 1

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Send all there is, full or not, and wait until each record passed before is settled.

        Raises DeliveryError for all failed records that nobody has awaited and that were not raised
        before; RequestTimeoutError after ``timeout_ms``: the records are sent all the same.
        """
        self._guard()
        await self._flush(timeout_ms)
        failed = self._sender.failures.take()
        if failed is not None:
            raise failed

    async def close(self, timeout_ms: float | None = None) -> None:
        """Flush for at most ``timeout_ms`` (None: without a limit), and end all connections.

        Records that are left then fail. A transaction that is open is aborted. Once all is ended,
        raises DeliveryError as ``flush`` does.
        """
        failed = await self._close(timeout_ms)
        if failed is not None:
            raise failed

    async def _close(self, timeout_ms: float | None) -> DeliveryError | None:
        if self._closing:
            return None
        self._guard()
        self._closing = True
        try:
            if self.options.transactional_id is None:
                if timeout_ms is None or timeout_ms > 0:
                    await self._flush(timeout_ms)
            elif self._transactions is not None and self._transactions.state in (
                State.IN_TRANSACTION,
                State.ABORTABLE,
            ):
                await self._abort_quietly(_LAST_ABORT_MS if timeout_ms is None else timeout_ms)
        except RequestTimeoutError as error:
            log.warning("closed before all was settled: %s", error)
        finally:
            self._sender.close()
            self._sender.abandon(ProducerClosedError("the producer was closed"))
            self._metadata.close()
            if self._transactions is not None:
                await self._transactions.close()
            self._client.close()
            await self._client.network.wait_closed()
            await asyncio.sleep(0)  # what the last callbacks left
        return self._sender.failures.take()

    async def _abort_quietly(self, limit_ms: float) -> None:
        """Abort for ``close``. Whatever fails here, the coordinator ends after
        transaction_timeout_ms."""
        log.warning("closed in a transaction, which is aborted")
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._abort()
        except NetworkError as error:
            log.warning("the transaction's abort failed: %s", error)
        except TimeoutError:
            log.warning("the transaction's abort was not answered in %s", shown_ms(limit_ms))

    # --- transactions

    def _transactional(self) -> Transactions:
        self._guard()
        if self._transactions is None or self.options.transactional_id is None:
            raise ArgumentValueError("invalid transactional_id None: transactions need one")
        return self._transactions

    async def init_transactions(self) -> None:
        """Fence earlier producers with this transactional_id and end their transactions.

        Call it once, before anything else.
        """
        await self._transactional().init(self.options.max_block_ms)

    def begin_transaction(self) -> None:
        """Begin a transaction: the records that follow are all committed, or none of them."""
        self._must_be(State.READY).begin()
        self._sender.failures.begin()

    async def commit_transaction(self) -> None:
        """Flush, then commit. Raises what made that impossible: then abort, or close if fenced.

        After RequestTimeoutError (or cancellation by the caller) the transaction may be committed.
        As with Kafka's producer the caller can then only commit again or close the producer.
        """
        transactions = self._must_be(State.IN_TRANSACTION, State.COMMITTING)
        if transactions.state is State.IN_TRANSACTION:
            transactions.state = State.ENDING
            try:
                await self._flush(None, lambda: transactions.state is not State.ENDING)
            except asyncio.CancelledError:
                if transactions.state is State.ENDING:
                    transactions.state = State.IN_TRANSACTION
                raise
            if transactions.state is not State.ENDING:
                assert transactions.error is not None
                self._sender.failures.discard()
                raise transactions.error
            transactions.state = State.COMMITTING
        try:
            await transactions.end(True, self.options.max_block_ms)
        except RequestTimeoutError:
            raise
        except Exception as error:
            transactions.failed(error)
            self._sender.failures.discard()
            raise

    async def abort_transaction(self) -> None:
        """Abort: a consumer with read_committed sees none of the transaction's records."""
        self._must_be(State.IN_TRANSACTION, State.ABORTABLE)
        await self._abort()
        self._sender.failures.discard()

    async def _abort(self) -> None:
        transactions = self._transactions
        assert transactions is not None
        if transactions.state is State.IN_TRANSACTION:
            transactions.state = State.ENDING
        self._sender.on_failed = transactions.failed_in_abort
        try:
            self._sender.abandon(
                TransactionAbortedError("the transaction was aborted"), but_on_the_wire=True
            )
            await self._flush(None)
            await transactions.end(False, self.options.max_block_ms)
        except Exception as error:
            transactions.failed(error)
            raise
        except asyncio.CancelledError:  # it can be asked for again
            transactions.failed(TransactionAbortedError("the transaction's abort was cancelled"))
            raise
        finally:
            self._sender.on_failed = transactions.failed


def _length(data: Buffer | None) -> int:
    return 0 if data is None else len(data) if isinstance(data, bytes) else memoryview(data).nbytes
