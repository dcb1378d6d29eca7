"""Batches that are filled, and their memory: Kafka's RecordAccumulator and BufferPool.

A batch is ready when it is full, when its oldest record has waited linger_ms, when somebody waits
for memory, or while the producer is flushed. Memory is counted as written, before compression, from
a batch's first record until its answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from batchval.core.convert.builder import (
    BATCH_OVERHEAD,
    MAX_RECORD_OVERHEAD,
    BatchBuilder,
    RecordValues,
)
from batchval.errors import shown_ms
from batchval.producer.batch import PartitionQueue, ProducerBatch
from batchval.producer.delivery import Delivery
from batchval.producer.errors import BufferExhaustedError, RecordTooLargeError
from batchval.producer.options import ProducerOptions
from batchval.producer.sequences import next_sequence

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Accumulator"]

#: CompressionRatioEstimator: rises at once by at least this, falls slowly; a batch is filled to
#: size / (ratio x 1.05).
_RISES: Final = 0.05
_FALLS: Final = 0.005
_SAFETY: Final = 1.05


class Accumulator:
    """The batches of all partitions. Only for the loop's thread."""

    def __init__(self, options: ProducerOptions, now_ms: Callable[[], float]) -> None:
        self.options = options
        self.now_ms = now_ms
        self.codec = int(options.codec)
        self.used = 0
        self.flushing = 0
        self.partitions: dict[tuple[str, int], PartitionQueue] = {}
        self.active: dict[PartitionQueue, None] = {}  # those with batches that are not reported
        self._ratios: dict[str, float] = {}
        self._number = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._turn = 0  # bytes of the waiter that goes on in this step of the loop
        self._refused = False  # send_many met a full buffer, and nothing was freed since
        # a batch was begun or is full: there may be something to send, or to wait for
        self._stirred = False
        self._turns: dict[str, list[PartitionQueue]] = {}  # a topic's, by partition
        self._spare: list[bytearray] = []
        self._spare_limit = max(1, options.buffer_memory // max(options.batch_size, 16_384))

    # --- memory

    @property
    def exhausted(self) -> bool:
        """Return whether a caller waits for memory: batches are then sent, full or not."""
        return self._refused or bool(self._waiters)

    @property
    def free(self) -> int:
        """Return the free bytes. While callers wait, only the first of them may take any."""
        free = max(0, self.options.buffer_memory - self.used)
        return min(free, self._turn) if self._waiters else free

    def check_size(self, size: int) -> None:
        """Raise RecordTooLargeError for a record that can never be sent."""
        size += BATCH_OVERHEAD
        for name in ("max_request_size", "buffer_memory"):
            if size > (limit := getattr(self.options, name)):
                raise RecordTooLargeError(
                    f"a record of up to {size} bytes is larger than {name} ({limit})"
                )

    async def wait_for_space(self, size: int, on_full: Callable[[], None]) -> None:
        """Wait until so many bytes are free, first come, first served.

        They are the caller's until it awaits again. Raises BufferExhaustedError after max_block_ms.
        """
        if size <= self.free:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        entry = (size, waiter)
        self._waiters.append(entry)
        on_full()
        try:
            async with asyncio.timeout(self.options.max_block_ms / 1000):
                await waiter
            self._turn = size
        except TimeoutError:
            raise BufferExhaustedError(
                f"the buffer of {self.options.buffer_memory} bytes had no space for {size} in "
                f"{shown_ms(self.options.max_block_ms)}"
            ) from None
        finally:
            self._waiters.remove(entry)
            loop.call_soon(self._next)  # not now: what is free has not been taken yet

    def refused(self) -> None:
        """Remember that the buffer was too full for ``send_many``."""
        self._refused = True

    def stirred(self) -> bool:
        """Return whether a batch was begun or filled, or memory refused, since the last call.

        Without such a change the sender has no reason to run.
        """
        was, self._stirred = self._stirred or self.exhausted, False
        return was

    def release(self, batch: ProducerBatch) -> None:
        """Free the batch's memory."""
        self.used -= batch.reserved
        batch.reserved = 0
        self._refused = False
        spare = batch.builder.recycle()
        if spare is not None and len(self._spare) < self._spare_limit:
            self._spare.append(spare)
        self._wake()

    def _next(self) -> None:
        self._turn = 0
        self._wake()

    def _wake(self) -> None:
        free = self.options.buffer_memory - self.used
        for size, waiter in self._waiters:
            if size > free:
                break
            free -= size
            if not waiter.done():
                waiter.set_result(None)

    # --- filling

    def queue_of(self, topic: str, partition: int) -> PartitionQueue:
        """Return the queue of a partition. The first call creates it."""
        found = self.partitions.get((topic, partition))
        if found is None:
            found = self.partitions[topic, partition] = PartitionQueue(topic, partition)
        return found

    def append(
        self,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
        timestamp_ms: int,
        delivery: Delivery,
    ) -> bool:
        """Append one record. Return whether a batch was full and another one was begun."""
        batch, began = self._open(queue, many=False), False
        before = batch.builder.size if batch is not None else 0
        if batch is None or not batch.builder.append(key, value, headers, timestamp_ms):
            began = batch is not None
            if batch is not None:
                batch.closed = True
            batch, before = self._begin(queue, many=False), 0
            batch.builder.append(key, value, headers, timestamp_ms)
        self._reserve(batch, batch.builder.size - before)
        batch.deliveries.append(delivery)
        return began

    def append_many(
        self,
        queue: PartitionQueue,
        prepared: RecordValues,
        first: int,
        count: int,
        step: int,
        timestamp_ms: int,
        batches: int = 0,
    ) -> int:
        """Append records first, first + step, …; return how many were appended.

        These are all, or those that filled ``batches`` batches (0: no limit).
        """
        taken = 0
        while taken < count:
            last = queue.queue[-1] if queue.queue else None
            if last is None or last.closed or last.attempts or not last.many:
                last = self._open(queue, many=True) or self._begin(queue, many=True)
            builder = last.builder
            taken += builder.append_many(
                prepared, first + taken * step, count - taken, step, timestamp_ms
            )
            size = builder.size
            self.used += size - last.reserved
            last.reserved = size
            if size >= builder.limit:
                self._stirred = True
            if taken < count:
                last.closed = self._stirred = True
                if (batches := batches - 1) == 0:
                    break
        return taken

    def append_in_turn(
        self,
        topic: str,
        prepared: RecordValues,
        first: int,
        partitions: int,
        count: int,
        timestamp_ms: int,
    ) -> None:
        """Append ``count`` records, one a partition in turn, starting at partition ``first``."""
        queues = self._turns.get(topic, [])
        if len(queues) != partitions:
            queues = self._turns[topic] = [
                self.queue_of(topic, number) for number in range(partitions)
            ]
        for n in range(min(count, partitions)):
            self.append_many(
                queues[(first + n) % partitions],
                prepared,
                n,
                (count - n - 1) // partitions + 1,
                partitions,
                timestamp_ms,
            )

    def _open(self, queue: PartitionQueue, many: bool) -> ProducerBatch | None:
        batch = queue.open_batch()
        if batch is not None and batch.many != many:
            batch.closed = True
            return None
        return batch

    def _begin(self, queue: PartitionQueue, many: bool) -> ProducerBatch:
        limit = self.options.batch_size
        if self.codec:
            limit = int(limit / (self._ratios.get(queue.topic, 1.0) * _SAFETY))
        spare = self._spare.pop() if self._spare else None
        ids = self.options.claims_schema_ids
        builder = BatchBuilder(limit, self.codec, self.options.compression_level, spare, ids)
        self._number += 1
        self._stirred = True
        batch = ProducerBatch(queue, builder, (self._number,), self.now_ms(), many)
        queue.queue.append(batch)
        queue.unreported.append(batch)
        self.active[queue] = None
        return batch

    def _reserve(self, batch: ProducerBatch, size: int) -> None:
        batch.reserved += size
        self.used += size

    def overhead(self, prepared: RecordValues, partitions: int) -> int:
        """Return the most bytes that the headers of the batches of these records can take."""
        filled = (
            prepared.count
            * (prepared.largest() + MAX_RECORD_OVERHEAD)
            // max(self.options.batch_size, 1)
        )
        return BATCH_OVERHEAD * (min(partitions, prepared.count) + min(filled, prepared.count))

    def most_that_fit(self, prepared: RecordValues, partitions: int) -> int:
        """Return how many records fit in the free memory, each counted at its largest size.

        At least one fits where no memory is in use.
        """
        fitting = prepared.fitting(self.free - self.overhead(prepared, partitions))
        return fitting or int(
            self.used == 0 and prepared.count > 0 and (self._turn > 0 or not self._waiters)
        )

    # --- what is ready

    def is_ready(self, batch: ProducerBatch, now_ms: float) -> bool:
        """Return whether a batch, the first of its queue, can be sent. Ignores backoff."""
        return (
            batch.closed
            or batch.attempts > 0
            or len(batch.partition.queue) > 1
            or batch.builder.size >= batch.builder.limit
            or now_ms - batch.created_ms >= self.options.linger_ms
            or self.flushing > 0
            or self.exhausted
        )

    def finish(self, batch: ProducerBatch, payload: bytes | None) -> None:
        """Close the batch and record its compression ratio for the next batches of the topic."""
        batch.closed = True
        builder = batch.builder
        if builder.is_finished:
            return
        builder.finish(
            payload, self.options.max_request_size if self.options.claims == "payload" else 0
        )
        if self.codec:
            topic = batch.partition.topic
            known = self._ratios.get(topic, 1.0)
            seen = builder.wire_size / builder.size
            self._ratios[topic] = (
                max(known + _RISES, seen) if seen > known else max(known - _FALLS, seen)
            )

    def split(self, batch: ProducerBatch) -> None:
        """Split a batch of several records that was too large for the broker; queue both parts."""
        parts: list[ProducerBatch] = []
        sequence, deliveries, reserved = batch.sequence, batch.deliveries, batch.reserved
        for n, builder in enumerate(batch.builder.split()):
            part = ProducerBatch(
                batch.partition, builder, (*batch.number, n), batch.created_ms, batch.many
            )
            part.closed, part.attempts, part.sequence, part.passed = (
                True,
                batch.attempts,
                sequence,
                batch.passed,
            )
            part.deliveries, deliveries = deliveries[: builder.count], deliveries[builder.count :]
            part.reserved = min(reserved, builder.size)
            reserved -= part.reserved
            if sequence >= 0:
                sequence = next_sequence(sequence, builder.count)
            parts.append(part)
        parts[-1].reserved += reserved
        batch.reserved = 0
        batch.partition.replace(batch, parts)
        # no compression is expected until it is measured again
        self._ratios[batch.partition.topic] = 1.0

    def incomplete(self) -> Iterator[ProducerBatch]:
        """Yield all batches whose result was not reported."""
        for queue in list(self.active):
            yield from queue.unreported
