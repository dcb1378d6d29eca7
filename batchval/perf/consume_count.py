"""The count and the two clocks that the threads of a run of consumers share.

The run's clock starts before the consumers are made, that of fetching with the last assignment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Clock", "Polled", "RunOptions", "Shared", "TopicPartition"]

TopicPartition = tuple[str, int]

#: A group that has not settled by then will not: it is longer than the default session of a member
#: that died.
JOIN_TIMEOUT_MS = 60_000
#: Partitions may be with members elsewhere: then the clock starts when nothing has moved for so
#: long.
SETTLED_MS = 3_000
_NS = 1_000_000


class Polled(NamedTuple):
    """The result of one poll: records, and their key and value bytes (wire bytes, where only
    headers are decoded).
    """

    records: int
    bytes: int
    #: when the last of them came (time.monotonic_ns), where the client knows
    at_ns: int | None = None


class Clock:
    """The two clocks; tests bring their own."""

    def monotonic_ns(self) -> int:
        """Return monotonic nanoseconds."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return time.time_ns() // _NS


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run: amount, threads, waits. Times are milliseconds."""

    num_records: int
    threads: int
    timeout_ms: int = 10_000
    reporting_interval_ms: int = 5_000
    join_timeout_ms: int = JOIN_TIMEOUT_MS


def _no_more(polled: Polled, wanted: int) -> Polled:
    """Return as many of the records as are wanted, with their share of the bytes."""
    if polled.records <= wanted:
        return polled
    records = max(wanted, 0)
    return polled._replace(records=records, bytes=polled.bytes * records // polled.records)


class Shared:
    """The shared state of a run's threads. Each method is one step under one lock."""

    def __init__(
        self, options: RunOptions, partitions: Collection[TopicPartition], clock: Clock
    ) -> None:
        self.options = options
        self.clock = clock
        self.stop = threading.Event()
        self.records = self.bytes = 0
        self.start_ns = clock.monotonic_ns()
        self.start_wall_ms = clock.wall_ms()
        self.assigned_ns: int | None = None
        self.last_records_ns = 0
        self._partitions = frozenset(partitions)
        self._assigned: list[frozenset[TopicPartition] | None] = [None] * options.threads
        self._moved_ns = clock.monotonic_ns()
        self._idle: set[int] = set()
        self._lock = threading.Lock()

    def remaining(self) -> int:
        return self.options.num_records - self.records

    def begin(self) -> None:
        """Start the run's clock."""
        self.start_wall_ms = self.clock.wall_ms()
        self.start_ns = self.clock.monotonic_ns()

    def ms(self, at_ns: int) -> int:
        """Return whole milliseconds since the run began."""
        return (at_ns - self.start_ns) // _NS

    def add(self, polled: Polled, now_ns: int) -> Polled:
        """Count what a poll brought, and return what counts of it: no more than is still wanted."""
        with self._lock:
            counted = _no_more(polled, self.remaining())
            if counted.records:
                self.records += counted.records
                self.bytes += counted.bytes
                self.last_records_ns = max(now_ns, self.last_records_ns)
            return counted

    def assigned(
        self, thread: int, partitions: Collection[TopicPartition] | None, now_ns: int
    ) -> bool:
        """Note what a thread has; True once all have theirs. The last one starts fetching."""
        now_has = None if partitions is None else frozenset(partitions)
        with self._lock:
            if self.assigned_ns is not None:
                return True
            if now_has != self._assigned[thread]:
                self._assigned[thread] = now_has
                self._moved_ns = now_ns
            held: list[TopicPartition] = []
            for has in self._assigned:
                if has is None:
                    return False
                held += has
            twice = len(held) != len(set(held))  # somebody has not yet heard of the others
            whole = self._partitions.issubset(held)
            if twice or not (whole or now_ns - self._moved_ns >= SETTLED_MS * _NS):
                return False
            self.assigned_ns = self.last_records_ns = self.clock.monotonic_ns()
            return True

    def idle(self, thread: int, *, is_idle: bool) -> bool:
        """Note whether a thread's last record is too long ago; True once that holds for all.

        A thread that left earlier would make the others read its partitions and, as nothing is
        committed, their own again from the start.
        """
        with self._lock:
            if len(self._idle) < self.options.threads:
                (self._idle.add if is_idle else self._idle.discard)(thread)
            return len(self._idle) == self.options.threads

    def totals(self) -> tuple[int, int]:
        with self._lock:
            return self.records, self.bytes
