"""Deliveries of single records, and failures that no caller has received.

pending → acknowledged
        → failed → received: awaited, asked for, or passed to a callback
                 → raised by flush() or close(), once, in one DeliveryError
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, NamedTuple

from batchval.producer.errors import DeliveryError, DeliveryFailure, TransactionAbortedError

__all__ = ["Delivery", "Failures", "Outcome", "RecordMetadata"]

NO_OFFSET: Final = -1
_MAX_KEPT_FAILURES: Final = 100  # failed batches that a DeliveryError names

log = logging.getLogger("batchval.producer")


class RecordMetadata(NamedTuple):
    """A record's position in the log. ``offset`` is -1 where it is not known, as with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(slots=True, eq=False)
class Outcome:
    """The outcome of a batch; its deliveries share it. ``unreceived`` counts its failed records."""

    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int
    error: Exception | None
    failures: Failures
    generation: int  # of the failures
    unreceived: int = 0
    counted: bool = False


class Delivery:
    """The delivery of one record: ``await`` it for its RecordMetadata, or for the error.

    It can be awaited more than once, by several tasks, or never. A task that is cancelled while it
    waits does not take the record back.
    """

    __slots__ = ("_n", "_outcome", "_received", "_timestamp_ms", "_waiters")

    _n: int  # the record's place in its batch, once it is settled
    _received: bool  # likewise: it did not fail, or somebody has the failure

    def __init__(self, timestamp_ms: int) -> None:
        self._timestamp_ms = timestamp_ms
        self._outcome: Outcome | None = None
        self._waiters: list[asyncio.Future[None] | Callable[[Delivery], object]] | None = None

    def done(self) -> bool:
        """Return whether the record was acknowledged or has failed."""
        return self._outcome is not None

    def exception(self) -> Exception | None:
        """Return why the record failed, or None; asyncio.InvalidStateError before it is done."""
        outcome = self._outcome
        if outcome is None:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor failed yet")
        if not self._received:
            self._received = True
            outcome.unreceived -= 1
            outcome.failures.received(outcome)
        return outcome.error

    def result(self) -> RecordMetadata:
        """Return where the record is, or raise why it failed."""
        error = self.exception()
        if error is not None:
            raise error.with_traceback(None)  # all records of the batch share it
        outcome = self._outcome
        assert outcome is not None
        offset = outcome.base_offset + self._n if outcome.base_offset >= 0 else NO_OFFSET
        appended = outcome.log_append_time_ms
        when = appended if appended >= 0 else self._timestamp_ms
        return RecordMetadata(outcome.topic, outcome.partition, offset, when)

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Call ``function(delivery)`` once it is done; of a partition's records in their order.

        A failure that is passed to a callback is received. What the callback raises is logged.
        """
        if self._outcome is not None:
            self.exception()
            asyncio.get_running_loop().call_soon(function, self)
            return
        self._wait(function)

    def _wait(self, waiter: asyncio.Future[None] | Callable[[Delivery], object]) -> None:
        if self._waiters is None:
            self._waiters = [waiter]
        else:
            self._waiters.append(waiter)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        if self._outcome is None:
            future = asyncio.get_running_loop().create_future()
            self._wait(future)
            try:
                yield from future
            except BaseException:
                self._give_back()
                raise
        return self.result()

    def _give_back(self) -> None:
        """Count the failure again: the task that waited for it was cancelled in the same step."""
        outcome = self._outcome
        if outcome is not None and outcome.error is not None and self._received:
            self._received = False
            outcome.unreceived += 1
            outcome.failures.returned(outcome)

    def settle(self, outcome: Outcome, n: int) -> None:
        """Settle the record and wake those who wait. Called by the batch alone."""
        self._outcome = outcome
        self._n = n
        self._received = outcome.error is None
        waiters, self._waiters = self._waiters, None
        if outcome.error is not None:
            outcome.unreceived += 1
            if waiters is not None and any(callable(one) or not one.done() for one in waiters):
                self.exception()
        for one in waiters or ():
            if isinstance(one, asyncio.Future):
                if not one.done():
                    one.set_result(None)
                continue
            try:
                one(self)
            except Exception:
                log.exception("a callback failed; the others are called all the same")


class Failures:
    """Failed records that nobody has received: all are counted, and 100 batches are kept.

    One failure that was received, or raised, stands for all others of the same transaction.
    """

    def __init__(self, transactional: bool) -> None:
        self.count = 0
        self.generation = 0  # those of an earlier one have been raised or discarded
        self._transactional = transactional
        self._muted = False  # until the next transaction
        self._kept: dict[Outcome, None] = {}
        self._newest: Outcome | None = None
        self._warned: set[tuple[str, int]] = set()

    def add(self, outcome: Outcome) -> None:
        """Count what nobody has received of a batch. Logs one warning for each partition."""
        if (
            not outcome.unreceived
            or self._muted
            or isinstance(outcome.error, TransactionAbortedError)
        ):
            return
        self.count += outcome.unreceived
        outcome.counted = True
        self._newest = outcome
        if len(self._kept) < _MAX_KEPT_FAILURES:
            self._kept[outcome] = None
        where = (outcome.topic, outcome.partition)
        if where not in self._warned:
            self._warned.add(where)
            log.warning(
                "%s-%d: %s; later failures of this partition are counted only",
                *where,
                outcome.error,
            )

    def received(self, outcome: Outcome) -> None:
        """Note that the caller has received the failure of one record."""
        if outcome.generation != self.generation:
            return
        if self._transactional:
            self.discard()
        elif outcome.counted:
            self.count -= 1
            if outcome.unreceived == 0:
                self._kept.pop(outcome, None)

    def returned(self, outcome: Outcome) -> None:
        """Note that the caller has not received the failure of one record after all."""
        if outcome.generation != self.generation:
            return
        if not outcome.counted:
            self.add(outcome)
            return
        self.count += 1
        if len(self._kept) < _MAX_KEPT_FAILURES:
            self._kept[outcome] = None

    def discard(self) -> None:
        """Forget all until now, and what is to come of this transaction: the caller knows."""
        self.generation += 1
        self._muted = self._transactional
        self.count = 0
        self._kept.clear()
        self._newest = None
        self._warned.clear()

    def begin(self) -> None:
        """Count again: another transaction has begun."""
        self.generation += 1
        self._muted = False

    def take(self) -> DeliveryError | None:
        """Return one error for all failures, which are not counted any more; None without any."""
        if not self.count:
            return None
        kept = list(self._kept) or [one for one in (self._newest,) if one is not None]
        failures = tuple(
            DeliveryFailure(one.topic, one.partition, one.unreceived, one.error)
            for one in kept
            if one.error is not None
        )
        error = DeliveryError(self.count, failures)
        self.discard()
        return error
