"""Idempotence: the producer id and epoch, and each partition's sequence (KIP-98, KIP-360,
TransactionManager).

A batch keeps its sequence through retries. Where that cannot be (a batch has expired, the broker
has lost its state), the epoch is raised and the partition's sequences start at 0 again, once
nothing of it is on the wire.
"""

from __future__ import annotations

from batchval.errors import ErrorCode
from batchval.producer.batch import Doubt, Leader, PartitionQueue, Passed, ProducerBatch

__all__ = ["Sequences", "next_sequence"]

_LAST_EPOCH = 0x7FFF - 1  # 32767 fences all: a broker never gives it out


def next_sequence(sequence: int, records: int) -> int:
    """Return the sequence after ``records`` records.

    0 follows 2147483647 (DefaultRecordBatch.incrementSequence)."""
    return (sequence + records) & 0x7FFFFFFF


class Sequences:
    """The sequences of one producer. ``producer_id`` -1: not known yet, so nothing can be sent."""

    def __init__(self, transactional: bool) -> None:
        self.transactional = transactional
        self.producer_id = -1
        self.producer_epoch = -1

    @property
    def has_id(self) -> bool:
        """Return whether InitProducerId has been answered."""
        return self.producer_id >= 0

    def set_id(self, producer_id: int, producer_epoch: int) -> None:
        """Set the id and epoch of an InitProducerId response."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def bump(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Raise the epoch of this partition, from this batch on; others follow when all is settled.

        Earlier batches are settled in the old epoch first: the log may hold them.
        """
        if queue.rewind_at is not None:
            queue.rewind_at = min(queue.rewind_at, batch.number)
            return
        queue.rewind_at = batch.number
        if (
            not self.has_id
            or queue.producer_epoch != self.producer_epoch
            or queue.producer_id != self.producer_id
        ):
            return  # another partition has done it already
        if self.producer_epoch >= _LAST_EPOCH:
            self.producer_id = self.producer_epoch = -1  # asked for anew
        else:
            self.producer_epoch += 1

    def _rewound(self, queue: PartitionQueue) -> None:
        queue.producer_id, queue.producer_epoch = self.producer_id, self.producer_epoch
        queue.rewind_at, queue.unresolved = None, False
        queue.next_sequence, queue.last_acked_sequence, queue.known_by = 0, -1, None
        for batch in queue.sequenced:
            batch.sequence, batch.sequence_was_reset = queue.next_sequence, True
            queue.next_sequence = next_sequence(queue.next_sequence, batch.builder.count)

    def may_send(self, batch: ProducerBatch, leader: Leader) -> bool:
        """Return whether the first waiting batch may be sent now.

        A batch that was sent before goes again only as the oldest in flight.

        With an earlier batch in flight it goes only to a leader that knows the producer: any other
        leader takes any sequence, and if it refused the earlier batch, the order would be lost.
        A deferred batch does not count: a later one has been acknowledged already.
        """
        queue = batch.partition
        if not self.has_id:
            return False
        if queue.rewind_at is not None:
            first = queue.sequenced[0] if queue.sequenced else batch
            if queue.is_rewound(first):
                if queue.on_the_wire or first.passed is not Passed.NO:
                    return False
                self._rewound(queue)
            elif queue.is_rewound(batch):
                return False
        if queue.doubt is Doubt.CONFIRMING or (
            batch.needs_known_leader and leader != queue.known_by
        ):
            return False
        if batch.sequence >= 0:
            return queue.sequenced[len(queue.doubted) + len(queue.deferred)] is batch
        if queue.doubted:
            return False
        if queue.unresolved:
            if queue.sequenced or queue.on_the_wire:
                return False
            if (
                next_sequence(queue.last_acked_sequence, 1) != queue.next_sequence
                and not self.transactional
            ):
                self.bump(queue, batch)
                if not self.has_id:
                    return False
                self._rewound(queue)
            queue.unresolved = False
        if not queue.sequenced and (queue.producer_id, queue.producer_epoch) != (
            self.producer_id,
            self.producer_epoch,
        ):
            self._rewound(queue)
        return True

    def assign(self, batch: ProducerBatch) -> None:
        """Assign a sequence to a batch that has none, and write it into the header."""
        queue = batch.partition
        if batch.sequence < 0:
            batch.sequence = queue.next_sequence
            queue.next_sequence = next_sequence(queue.next_sequence, batch.builder.count)
            queue.sequenced.append(batch)
        batch.builder.seal(
            queue.producer_id, queue.producer_epoch, batch.sequence, self.transactional
        )

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Remove a batch that the broker acknowledged."""
        queue = batch.partition
        self._settled(batch)
        if not self.is_current(batch):
            return
        queue.known_by = batch.asked
        if batch.passed is Passed.NO:  # else a later one has been acknowledged
            last = next_sequence(batch.sequence, batch.builder.count - 1)
            queue.last_acked_sequence = last
            if base_offset >= 0:
                queue.last_acked_offset = base_offset + batch.builder.count - 1

    def is_current(self, batch: ProducerBatch) -> bool:
        """Return whether the batch was last sent with the partition's producer id and epoch."""
        queue, builder = batch.partition, batch.builder
        return batch.sequence >= 0 and (builder.producer_id, builder.producer_epoch) == (
            queue.producer_id,
            queue.producer_epoch,
        )

    def _settled(self, batch: ProducerBatch) -> None:
        for batches in (batch.partition.sequenced, batch.partition.deferred):
            if batch in batches:
                batches.remove(batch)

    def doubts(self, batch: ProducerBatch) -> bool:
        """Return whether the leader may have a batch that it calls out of order; a later one shows.

        (Kafka's client raises the epoch and sends all again: they are in the log twice.)
        """
        queue, at = batch.partition, len(batch.partition.doubted)
        if queue.unresolved or batch.attempts < 2 or queue.sequenced[at : at + 1] != [batch]:
            return False
        return any(not queue.is_rewound(one) for one in queue.sequenced[at + 1 : at + 2])

    def passed(self, batch: ProducerBatch, base_offset: int, proved: bool) -> Passed:
        """Mark the earlier batches that are not settled when this one is acknowledged; return what
        they are.

        ``proved``: by the leader that they were last sent to, which knew the producer. Even then
        they are not in the log if too few offsets lie between the last acknowledged batch and this
        one.
        """
        queue = batch.partition
        if queue.sequenced[:1] == [batch] or batch not in queue.sequenced:
            return Passed.PROVED
        earlier = [
            one
            for one in queue.sequenced[: queue.sequenced.index(batch)]
            if one.passed is Passed.NO
        ]
        if base_offset >= 0 and queue.last_acked_offset >= 0:
            records = sum(one.builder.count for one in earlier)
            proved = proved and base_offset - queue.last_acked_offset > records
        found = Passed.PROVED if proved else Passed.UNPROVED
        for one in earlier:
            one.passed = found
        return found

    def should_retry(
        self, batch: ProducerBatch, code: int, log_start_offset: int, all_doubted: bool
    ) -> bool:
        """Return whether to retry after UNKNOWN_PRODUCER_ID or OUT_OF_ORDER_SEQUENCE_NUMBER
        (TransactionManager.canRetry).

        ``all_doubted``: the broker returned this for all batches in flight, so it has none of them.
        """
        queue = batch.partition
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1 or (
                batch.sequence_was_reset and queue.sequenced[:1] != [batch]
            ):
                return True
            if (
                self.transactional
                and queue.last_acked_offset < log_start_offset
                and not batch.sequence_was_reset
            ):
                # its records were deleted, and the state with them
                queue.rewind_at = min(queue.rewind_at or batch.number, batch.number)
                return True
            if not self.transactional:
                self.bump(queue, batch)
                return True
            return False
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if not all_doubted and queue.sequenced[:1] != [batch]:
                return True  # one before it failed, and is tried again first
            if not self.transactional:
                self.bump(queue, queue.sequenced[0] if queue.sequenced else batch)
                return True
        return False

    def abandoned(self, batch: ProducerBatch, broker_has_it_not: bool) -> None:
        """Remove a batch that failed for good. Its sequence would leave a gap before later ones."""
        queue = batch.partition
        self._settled(batch)
        if batch.sequence < 0:
            return
        if not broker_has_it_not:
            queue.unresolved = True
        elif not self.transactional:
            self.bump(queue, batch)
