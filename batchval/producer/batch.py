"""A batch, and the queue of its partition: waiting, in flight, or not reported yet.

A partition's batches are reported in the order of their creation, whatever the order they end in.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from batchval.core.convert.builder import BatchBuilder
from batchval.producer.delivery import Delivery, Failures, Outcome

__all__ = ["BatchDone", "Doubt", "Leader", "PartitionQueue", "Passed", "ProducerBatch"]

log = logging.getLogger("batchval.producer")


class BatchDone(NamedTuple):
    """The outcome of a batch that ``send_many`` filled. ``stamps``: one int64 a record."""

    topic: str
    partition: int
    base_offset: int
    error: Exception | None
    stamps: memoryview
    value_bytes: int
    wire_bytes: int
    records: int


class _Result(NamedTuple):
    base_offset: int
    log_append_time_ms: int
    error: Exception | None


class Leader(NamedTuple):
    """A partition's leader as a request met it; another connection may be another process."""

    node_id: int
    connection: object
    leader_epoch: int
    topic_id: bytes


class Doubt(Enum):
    """The state of a partition's doubt."""

    NONE = auto()
    CONFIRMING = auto()  # metadata was asked for: the epoch that was known may have been an old one
    ASKING = auto()  # the batch after the doubted ones is asked for


class Passed(Enum):
    """The knowledge about a batch after a later one was acknowledged before it.

    It goes again, since an answer that it is a duplicate brings its offset. If it is called out of
    order, this says what became of it. UNPROVED ones go only to a leader that knows the producer:
    any other might store them after the later one.
    """

    NO = auto()
    PROVED = auto()  # by a leader that knew the producer before: this batch is in the log
    UNPROVED = auto()  # perhaps by one that did not: it is not known


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """A batch of one partition. Times: ms of the loop's clock. ``reserved``: buffer bytes."""

    partition: PartitionQueue
    builder: BatchBuilder
    number: tuple[int, ...]  # in order of creation; parts of a split batch have one more
    created_ms: float
    many: bool
    deliveries: list[Delivery] = field(default_factory=list)
    reserved: int = 0
    attempts: int = 0
    retry_at_ms: float = 0.0
    closed: bool = False
    on_the_wire: bool = False
    compressing: bool = False  # a thread reads its records
    sequence: int = -1
    sequence_was_reset: bool = False
    asked: Leader | None = None  # whom it was sent to last
    passed: Passed = Passed.NO
    result: _Result | None = None

    @property
    def in_use(self) -> bool:
        """Return whether a request or a compressor still reads its bytes."""
        return self.on_the_wire or self.compressing

    @property
    def is_done(self) -> bool:
        """Return whether the batch is acknowledged or failed."""
        return self.result is not None

    @property
    def needs_known_leader(self) -> bool:
        """Return whether only the leader that has shown that it knows the producer may be asked."""
        sequenced, at = self.partition.sequenced, len(self.partition.deferred)
        return self.passed is Passed.UNPROVED or (len(sequenced) > at and sequenced[at] is not self)

    def report(self, on_batch: Callable[[BatchDone], object] | None, failures: Failures) -> None:
        """Settle the deliveries, or call ``on_batch``. What is raised there is logged."""
        assert self.result is not None
        builder, queue, (base, appended, error) = self.builder, self.partition, self.result
        outcome = Outcome(
            queue.topic, queue.partition, base, appended, error, failures, failures.generation
        )
        if not self.many:
            for n, delivery in enumerate(self.deliveries):
                delivery.settle(outcome, n)
        elif on_batch is None:
            outcome.unreceived = builder.count if error is not None else 0
        else:
            done = BatchDone(
                queue.topic,
                queue.partition,
                base,
                error,
                builder.stamps,
                builder.value_bytes,
                builder.wire_size,
                builder.count,
            )
            try:
                on_batch(done)
            except Exception:
                log.exception("on_batch failed; the others are called all the same")
        failures.add(outcome)


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, and where its sequence stands."""

    topic: str
    partition: int
    queue: deque[ProducerBatch] = field(default_factory=deque)  # to be sent, oldest first
    unreported: deque[ProducerBatch] = field(default_factory=deque)  # oldest first
    on_the_wire: int = 0
    # --- idempotence
    producer_id: int = -1
    producer_epoch: int = -1
    next_sequence: int = 0
    last_acked_sequence: int = -1
    last_acked_offset: int = -1
    # have a sequence and no answer that settles them
    sequenced: list[ProducerBatch] = field(default_factory=list)
    doubt: Doubt = Doubt.NONE
    doubted: list[ProducerBatch] = field(default_factory=list)  # the first of these
    doubted_at: int = 0  # how many metadata requests had been sent
    # UNPROVED, and wait for a leader that knows the producer; the first of these too, but never
    # together with doubted ones
    deferred: list[ProducerBatch] = field(default_factory=list)
    known_by: Leader | None = None  # the leader that has shown that it knows the producer
    unresolved: bool = False  # it is not known whether the broker has an expired batch
    rewind_at: tuple[int, ...] | None = None  # number of the first that gets another sequence

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def is_rewound(self, batch: ProducerBatch) -> bool:
        """Return whether the batch gets another sequence, because one failed that is not later."""
        return self.rewind_at is not None and batch.number >= self.rewind_at

    def open_batch(self) -> ProducerBatch | None:
        """Return the batch that takes records, or None."""
        last = self.queue[-1] if self.queue else None
        return None if last is None or last.closed or last.attempts else last

    def requeue(self, batch: ProducerBatch) -> None:
        """Put a batch back into the queue, in the order of creation."""
        later = [one for one in self.queue if one.number > batch.number]
        for _ in later:
            self.queue.pop()
        self.queue.append(batch)
        self.queue.extend(later)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Queue the parts that a batch, itself not in the queue, was split into."""
        at = self.unreported.index(batch)
        rest = list(self.unreported)
        self.unreported = deque([*rest[:at], *parts, *rest[at + 1 :]])
        for part in parts:
            self.requeue(part)
        if batch in self.sequenced:
            at = self.sequenced.index(batch)
            self.sequenced[at : at + 1] = parts
