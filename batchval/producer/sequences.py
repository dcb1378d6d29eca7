"""Idempotence: the producer id and epoch, and each partition's sequence (KIP-98, KIP-360, TransactionManager).

A batch keeps its sequence through retries. Where that cannot be (a batch is given up, the broker has lost its state),
the epoch is raised and the partition's sequences start at 0 again, once nothing of it is on the wire.
"""

from __future__ import annotations

from batchval.errors import ErrorCode
from batchval.producer.batch import PartitionQueue, ProducerBatch

__all__ = ["Sequences", "next_sequence"]

_LAST_EPOCH = 0x7FFF - 1  # 32767 fences all: a broker never gives it out


def next_sequence(sequence: int, records: int) -> int:
    """After 2147483647 comes 0 (DefaultRecordBatch.incrementSequence)."""
    return (sequence + records) & 0x7FFFFFFF


class Sequences:
    """One producer's. ``producer_id`` -1: there is none yet, nothing can be sent."""

    def __init__(self, transactional: bool) -> None:
        self.transactional = transactional
        self.producer_id = -1
        self.producer_epoch = -1

    @property
    def has_id(self) -> bool:
        """InitProducerId has been answered."""
        return self.producer_id >= 0

    def set_id(self, producer_id: int, producer_epoch: int) -> None:
        """What InitProducerId answered."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def bump(self, queue: PartitionQueue) -> None:
        """Another epoch for this partition; others take it when they have nothing under way."""
        if queue.rewind:
            return
        queue.rewind = True
        if not self.has_id or queue.producer_epoch != self.producer_epoch or queue.producer_id != self.producer_id:
            return  # another partition has done it already
        if self.producer_epoch >= _LAST_EPOCH:
            self.producer_id = self.producer_epoch = -1  # asked for anew
        else:
            self.producer_epoch += 1

    def _rewound(self, queue: PartitionQueue) -> None:
        queue.producer_id, queue.producer_epoch = self.producer_id, self.producer_epoch
        queue.rewind = queue.unresolved = False
        queue.next_sequence, queue.last_acked_sequence = 0, -1
        for batch in queue.sequenced:
            batch.sequence, batch.sequence_was_reset = queue.next_sequence, True
            queue.next_sequence = next_sequence(queue.next_sequence, batch.builder.count)

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the first that waits may go now. One that was sent before goes only as the oldest under way."""
        queue = batch.partition
        if not self.has_id:
            return False
        if queue.rewind:
            if queue.on_the_wire:
                return False
            self._rewound(queue)
        if batch.sequence >= 0:
            return queue.sequenced[len(queue.doubted)] is batch
        if queue.unresolved:
            if queue.sequenced or queue.on_the_wire:
                return False
            if next_sequence(queue.last_acked_sequence, 1) != queue.next_sequence and not self.transactional:
                self.bump(queue)
                if not self.has_id:
                    return False
                self._rewound(queue)
            queue.unresolved = False
        if queue.last_acked_sequence < 0 and queue.sequenced:
            # a broker that knows nothing of a producer takes any first sequence: were the first batch refused and the
            # second not, their order would be lost
            return False
        if not queue.sequenced and (queue.producer_id, queue.producer_epoch) != (self.producer_id, self.producer_epoch):
            self._rewound(queue)
        return True

    def assign(self, batch: ProducerBatch) -> None:
        """A sequence, if it has none; and into the header."""
        queue = batch.partition
        if batch.sequence < 0:
            batch.sequence = queue.next_sequence
            queue.next_sequence = next_sequence(queue.next_sequence, batch.builder.count)
            queue.sequenced.append(batch)
        batch.builder.seal(queue.producer_id, queue.producer_epoch, batch.sequence, self.transactional)

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The broker has it."""
        queue = batch.partition
        self._settled(batch)
        if batch.sequence >= 0 and (batch.builder.producer_id, batch.builder.producer_epoch) == (
            queue.producer_id,
            queue.producer_epoch,
        ):
            last = next_sequence(batch.sequence, batch.builder.count - 1)
            queue.last_acked_sequence = last
            if base_offset >= 0:
                queue.last_acked_offset = base_offset + batch.builder.count - 1

    def _settled(self, batch: ProducerBatch) -> None:
        if batch in batch.partition.sequenced:
            batch.partition.sequenced.remove(batch)

    def doubts(self, batch: ProducerBatch, code: int) -> bool:
        """Whether the broker may have this batch although it says OUT_OF_ORDER_SEQUENCE_NUMBER, and another will tell.

        A broker that was killed finds in its log of each producer the last batch alone (ProducerStateManager, 4.4.0).
        Of five that it had stored and not answered, sent again, only the fifth is a duplicate to it, the others are out
        of order. So the next is asked for: a broker that has it, or takes it, has all before it. (Kafka's client raises
        the epoch and sends all again: they are in the log twice.)
        """
        queue, at = batch.partition, len(batch.partition.doubted)
        if code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or queue.rewind or queue.unresolved:
            return False
        if batch.attempts < 2 or batch.sequence_was_reset:
            return False
        if queue.sequenced[at : at + 1] != [batch] or at + 1 == len(queue.sequenced):
            return False
        queue.doubted.append(batch)
        return True

    def should_retry(self, batch: ProducerBatch, code: int, log_start_offset: int, all_doubted: bool) -> bool:
        """For UNKNOWN_PRODUCER_ID and OUT_OF_ORDER_SEQUENCE_NUMBER (TransactionManager.canRetry).

        ``all_doubted``: the broker says so of all that were sent before, so it has none of them.
        """
        queue = batch.partition
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1 or (batch.sequence_was_reset and queue.sequenced[:1] != [batch]):
                return True
            if self.transactional and queue.last_acked_offset < log_start_offset and not batch.sequence_was_reset:
                queue.rewind = True  # its records were deleted, and the state with them
                return True
            if not self.transactional:
                self.bump(queue)
                return True
            return False
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            is_next = batch.sequence == next_sequence(queue.last_acked_sequence, 1)
            if not all_doubted and not queue.unresolved and (batch.sequence_was_reset or not is_next):
                return True  # one before it failed, and is tried again first
            if not self.transactional:
                self.bump(queue)
                return True
        return False

    def given_up(self, batch: ProducerBatch, broker_has_it_not: bool) -> None:
        """The batch failed for good. What comes behind it would leave a gap."""
        queue = batch.partition
        self._settled(batch)
        if batch.sequence < 0:
            return
        if not broker_has_it_not:
            queue.unresolved = True
        elif not self.transactional:
            self.bump(queue)
