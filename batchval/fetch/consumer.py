"""Consumer: assign or subscribe, poll, commit. One asyncio loop, one thread, one poll at a time.

Raw batches (``poll_batches``) or records (``poll``). Whatever waits for brokers goes on in the
background of the loop; what went wrong there is raised by the next poll, once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

from batchval.core.batches.batch import DecodedRecord, batches
from batchval.errors import ArgumentValueError, BatchvalError
from batchval.fetch.errors import FetchError, NoOffsetForPartitionError
from batchval.fetch.fetcher import Fetcher
from batchval.fetch.group import Membership
from batchval.fetch.options import ConsumerOptions
from batchval.fetch.receiver import Counted, Quota
from batchval.fetch.subscription_state import (
    ConsumerMetrics,
    ConsumerRecord,
    FetchedBatches,
    PartitionState,
    TopicPartition,
)
from batchval.network.client import ConsumerNetworkClient, Timer
from batchval.network.cluster_metadata import ClusterMetadata, bootstrap_nodes
from batchval.network.errors import RequestTimeoutError

__all__ = ["Consumer"]

Rebalanced = Callable[[list[TopicPartition]], Awaitable[None] | None]

_MAX_OFFSET: Final = 2**63 - 1
POLL_MS: Final = 500.0  # how long polls wait by default
_LAST_COMMIT_MS: Final = 5_000  # before partitions are revoked: others wait for them
_NAP_S: Final = 1.0  # a poll that waits still tells the group that it polls
_SLICE_S: Final = 0.001  # of ``async for``, before heartbeats and sockets have their turn

log = logging.getLogger("batchval.fetch")


class Consumer:
    """A consumer, opened by ``async with``.

    Raises RuntimeError where two threads, or two tasks, use it at once.
    """

    def __init__(self, options: ConsumerOptions) -> None:
        self.options = options
        self._metrics = ConsumerMetrics()
        self._thread: int | None = None
        self._polling = False
        self._closed = False
        self._subscribed = False
        self._on_assigned: Rebalanced | None = None
        self._on_revoked: Rebalanced | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._looking: asyncio.Task[None] | None = None  # for offsets to begin at
        self._committing: asyncio.Task[None] | None = None
        self._next_commit_s = 0.0
        self._open: tuple[PartitionState, int, FetchedBatches, Iterator[DecodedRecord]] | None = (
            None
        )
        self._slice_ends_s = 0.0
        often_ms = options.auto_commit_interval_ms if options.enable_auto_commit else math.inf
        self._nap_s = max(
            _NAP_S / 100, min(_NAP_S, often_ms / 1000, options.max_poll_interval_ms / 3000)
        )

    async def __aenter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("a consumer is opened once")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        options = self.options
        self._client = ConsumerNetworkClient(options.client_options())
        self._metadata = ClusterMetadata(
            self._client,
            bootstrap_nodes(options.bootstrap_servers),
            max_age_ms=options.metadata_max_age_ms,
            retry_backoff_ms=options.retry_backoff_ms,
            allow_auto_topic_creation=options.allow_auto_create_topics,
        )
        self._fetcher = Fetcher(options, self._client, self._metadata, self._metrics, self._wake)
        self._group: Membership | None = None
        if options.group_id is not None:
            shared = (self._client, self._metadata, self._metrics, self._wake)
            self._group = Membership(options, options.group_id, *shared)
        self._next_commit_s = self._loop.time() + options.auto_commit_interval_ms / 1000
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Commit (with enable_auto_commit), leave the group, close all connections.

        A second call does nothing.
        """
        self._guard(closing=True)
        if self._closed:
            return
        self._closed = True
        self._wake()
        for task in (self._looking, self._committing):
            if task is not None:
                task.cancel()
        self._fetcher.hold()
        try:
            if self._group is not None:
                if self.options.enable_auto_commit and not self._group.lost:
                    await self._commit_quietly(
                        self._group, self._consumed(), _LAST_COMMIT_MS, "the last commit"
                    )
                await self._group.leave()
        finally:  # also where closing is cancelled
            self._fetcher.close()
            self._metadata.close()
            self._client.close()
        await self._client.network.wait_closed()

    def _guard(self, closing: bool = False) -> None:
        if self._thread is None:
            raise RuntimeError(
                "a consumer is opened first: async with Consumer(options) as consumer"
            )
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                "a consumer belongs to the thread that opened it: another one has called it"
            )
        if self._closed and not closing:
            raise RuntimeError("the consumer is closed")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._guard()
        if self._polling:
            raise RuntimeError("another task polls this consumer")
        self._polling = True
        try:
            yield
        finally:
            self._polling = False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def metrics(self) -> ConsumerMetrics:
        """Return the counts since the consumer was opened."""
        if self._thread == threading.get_ident():
            self._fetcher.note_metrics()
        return self._metrics

    # --- which partitions

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Assign these partitions, without a group. Raises RuntimeError after ``subscribe``."""
        self._guard()
        if self._subscribed:
            raise RuntimeError(
                "the consumer has subscribed: it is assigned what the group gives it"
            )
        wanted = [TopicPartition(*one) for one in partitions]
        if any(number < 0 for _, number in wanted):
            raise ArgumentValueError(
                f"invalid partition {min(wanted, key=lambda one: one[1])[1]}: expected 0 or above"
            )
        self._assigned(wanted)

    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str],
        on_assigned: Rebalanced | None = None,
        on_revoked: Rebalanced | None = None,
    ) -> None:
        """Subscribe to topics by name, or to all whose whole names match a pattern
        (``re.compile``).

        The group assigns the partitions.

        The functions are called inside polls, with lists of partitions, and may be coroutine
        functions: ``on_revoked`` before they are revoked, or after they were lost, ``on_assigned``
        before they are fetched. Needs a group_id. Raises RuntimeError after
        ``assign``.
        """
        self._guard()
        if self._group is None:
            raise RuntimeError("subscribing needs a group_id")
        if self._fetcher.states and not self._subscribed:
            raise RuntimeError("the consumer has been assigned partitions: unsubscribe first")
        pattern = topics if isinstance(topics, re.Pattern) else None
        names = (
            []
            if isinstance(topics, re.Pattern)
            else [topics]
            if isinstance(topics, str)
            else sorted(set(topics))
        )
        if pattern is None and not names:
            raise ArgumentValueError("invalid topics []: expected at least one topic")
        self._group.pattern, self._group.topics = pattern, names
        self._subscribed = True
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._group.last_poll_s = self._loop.time()
        self._group.rejoin()

    async def unsubscribe(self) -> None:
        """Leave the group and release all partitions."""
        with self._alone():
            if self._subscribed and self._group is not None:
                await self._group.leave()
            self._subscribed = False
            self._assigned([])

    def assignment(self) -> list[TopicPartition]:
        """Return what is assigned now, sorted."""
        self._guard()
        return sorted(self._fetcher.states)

    def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._fetcher.assign(partitions)
        for topic in {tp.topic for tp in self._fetcher.states}:
            self._metadata.follow(topic)

    # --- where

    def _state(self, partition: tuple[str, int]) -> PartitionState:
        self._guard()
        state = self._fetcher.states.get(TopicPartition(*partition))
        if state is None:
            raise FetchError(f"{partition[0]}-{partition[1]} is not assigned")
        return state

    def position(self, partition: tuple[str, int]) -> int | None:
        """Return the next offset of a poll, None: not known. Raises FetchError unless assigned."""
        return self._state(partition).position

    async def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Set the offset that the next poll starts at. Raises FetchError unless assigned."""
        state = self._state(partition)
        if not 0 <= offset <= _MAX_OFFSET:
            raise ArgumentValueError(f"invalid offset {offset}: expected 0 to {_MAX_OFFSET}")
        state.seek(offset)

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Seek these partitions, or all assigned ones; the next poll requests the offset."""
        self._seek_to("earliest", partitions)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Seek these partitions, or all assigned ones; the next poll requests the offset."""
        self._seek_to("latest", partitions)

    def _seek_to(self, where: str, partitions: tuple[tuple[str, int], ...]) -> None:
        for one in partitions or self.assignment():
            state = self._state(one)
            state.seek(None)
            state.reset = where

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Stop polling and fetching these partitions until ``resume``. Fetched records stay."""
        for one in partitions:
            self._state(one).paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Resume paused partitions."""
        for one in partitions:
            self._state(one).paused = False
        self._wake()

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions, sorted."""
        self._guard()
        return sorted(tp for tp, state in self._fetcher.states.items() if state.paused)

    async def partitions_for(self, topic: str, timeout_ms: float | None = None) -> int:
        """Return how many partitions a topic has. Raises as ``ClusterMetadata.wait_for``."""
        self._guard()
        return await self._metadata.wait_for(topic, self._limit(timeout_ms))

    async def topics_matching(self, pattern: str | re.Pattern[str]) -> list[str]:
        """Return the topics whose whole names match, in order, without Kafka's internal ones."""
        self._guard()
        return await self._metadata.matching(pattern, self._limit(None))

    async def offsets_for(
        self, wanted: Mapping[tuple[str, int], int | str], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return offsets: "earliest", "latest", or the first from a time (ms) on (-1: none)."""
        self._guard()
        timer = Timer(self._limit(timeout_ms))
        left = {TopicPartition(*tp): what for tp, what in wanted.items()}
        found: dict[TopicPartition, int] = {}
        while left:
            for topic in {tp.topic for tp in left}:
                await self._metadata.wait_for(topic, timer.remaining_ms)
            found |= await self._fetcher.offsets(left)
            left = {tp: what for tp, what in left.items() if tp not in found}
            if left and timer.remaining_ms <= self.options.retry_backoff_ms:
                raise RequestTimeoutError(
                    f"no offsets of {', '.join(f'{t}-{n}' for t, n in left)} in time"
                )
            if left:
                await asyncio.sleep(self.options.retry_backoff_ms / 1000)
        return found

    def _limit(self, timeout_ms: float | None) -> float:
        return self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms

    # --- polling

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; end when the consumer is closed, also by another task.

        A position moves with each record: ``commit`` in the loop's body commits what was yielded.
        Raises as ``poll``; the loop can be begun again, also after a ``break`` or a cancellation.
        """
        self._guard(closing=True)
        if self._closed:
            raise StopAsyncIteration
        if self._loop_has_time():
            with self._alone():
                records: list[ConsumerRecord] = []
                self._read(records, 1)
                if records:
                    return records[0]
        try:
            records = await self._poll_slice()
        except RuntimeError:
            if self._closed:
                raise StopAsyncIteration from None
            raise
        return records[0]

    def _loop_has_time(self) -> bool:
        """Return whether a record can be read without a look at group and sockets."""
        now, group = self._loop.time(), self._group
        if self._open is None or now >= self._slice_ends_s or self._fetcher.errors:
            return False
        if group is not None:
            group.last_poll_s = now
            return not group.needs_join and group.joining is None
        return True

    async def _poll_slice(self) -> list[ConsumerRecord]:
        await asyncio.sleep(0)
        records = await self.poll(None, 1)
        self._slice_ends_s = self._loop.time() + _SLICE_S
        return records

    async def poll_batches(self, timeout_ms: float | None = POLL_MS) -> list[FetchedBatches]:
        """Return all that has come; wait for something for at most ``timeout_ms``, else [].

        None waits until something has come; 0 does not wait. Raises what brokers refuse
        (AuthorizationError, AuthenticationError …), NotABatch, OffsetOutOfRangeError,
        NoOffsetForPartitionError, what the subscription's functions raise, and RuntimeError when
        another task closes the consumer.
        """
        with self._alone():
            self._shut()
            taken = await self._poll(math.inf if timeout_ms is None else timeout_ms, None)
            for one in taken:
                self._fetcher.states[
                    TopicPartition(one.topic, one.partition)
                ].position = one.next_offset
            return taken

    def count_only(self, decode: str, quota: Quota | None = None) -> None:
        """Count records without handing them over, natively where that is possible.

        ``decode`` is "headers" or "records". ``poll_counts`` has the figures, and what came
        otherwise; nothing is fetched natively when ``quota`` is used up. For a consumer that has no
        partitions yet.
        """
        self._guard()
        if self._fetcher.states:
            raise RuntimeError("the consumer has partitions already: count_only comes first")
        self._fetcher.count(decode, quota)

    async def poll_counts(
        self, timeout_ms: float = POLL_MS
    ) -> tuple[Counted | None, list[FetchedBatches]]:
        """Return what was counted since the last call, and batches that nobody has counted.

        Waits for the latter as ``poll_batches`` does, or until the quota is used up, and raises as
        it does. None where counting is not native (TLS).
        """
        taken = await self.poll_batches(timeout_ms)
        streams = self._fetcher.streams
        return streams.counted() if streams is not None and streams.counts else None, taken

    async def poll(
        self, timeout_ms: float | None = POLL_MS, max_records: int = 500
    ) -> list[ConsumerRecord]:
        """Return at most so many records, in order of each partition. See ``poll_batches``."""
        if max_records < 1:
            raise ArgumentValueError(f"invalid max_records {max_records}: expected at least 1")
        with self._alone():
            timer = Timer(math.inf if timeout_ms is None else timeout_ms)
            records: list[ConsumerRecord] = []
            while len(records) < max_records:
                # first of all the group is seen to, whatever is left to read
                if not records or self._open is None:
                    taken = (
                        self._fetcher.take(1)
                        if records
                        else await self._poll(timer.remaining_ms, 1)
                    )
                    if taken:
                        state = self._fetcher.states[
                            TopicPartition(taken[0].topic, taken[0].partition)
                        ]
                        self._open = (state, state.token, taken[0], _records_of(taken[0]))
                    elif self._open is None:
                        break
                self._read(records, max_records)
            return records

    def _read(self, records: list[ConsumerRecord], most: int) -> None:
        """Read records of the open answer."""
        assert self._open is not None
        state, token, fetched, iterator = self._open
        if state.token != token or state.paused:
            self._shut()
            return
        try:
            for one in iterator:
                if one.offset < fetched.fetch_offset:
                    continue
                records.append(
                    ConsumerRecord(
                        fetched.topic,
                        fetched.partition,
                        one.offset,
                        one.timestamp,
                        one.key,
                        one.value,
                        one.headers,
                    )
                )
                state.position = one.offset + 1
                if len(records) == most:
                    return
        except BatchvalError as error:
            self._shut()
            if not records:  # else they are returned first, and this is met again
                place = f"{fetched.topic}-{fetched.partition} at offset {state.position}"
                raise type(error)(f"{place}: {error}") from error
            return
        state.position = fetched.next_offset
        self._open = None

    def _shut(self) -> None:
        """Drop the open answer: what was not read of it is fetched again."""
        if self._open is not None:
            state, token, _, _ = self._open
            if state.token == token:
                state.seek(state.position)
            self._open = None

    async def _poll(self, timeout_ms: float, most: int | None) -> list[FetchedBatches]:
        """Poll for batches; return [] at once while an answer is open."""
        deadline = self._loop.time() + timeout_ms / 1000
        if self._open is None:
            # sockets are read and heartbeats sent, however often the caller asks
            await asyncio.sleep(0)
        while True:
            if self._group is not None:
                self._group.last_poll_s = self._loop.time()
                if self._subscribed:
                    await self._rebalance(self._group, deadline)
                self._go_on()
                self._auto_commit(self._group)
            if self._fetcher.errors and self._open is None:  # what came before comes first
                raise self._fetcher.errors.popleft()
            self._look_for_offsets()
            taken = self._fetcher.take(most) if self._open is None else []
            self._fetcher.send()
            if (
                taken
                or self._open is not None
                or self._fetcher.is_used_up
                or self._loop.time() >= deadline
            ):
                return taken
            await self._wait(deadline)
            self._go_on()

    def _go_on(self) -> None:
        if self._closed:
            raise RuntimeError("the consumer was closed during this poll")

    async def _wait(self, deadline: float) -> None:
        """Wait until ``_wake``, the deadline, or the time to tell the group that this polls."""
        self._waiter = self._loop.create_future()
        now = self._loop.time()
        handle = self._loop.call_at(max(min(deadline, now + self._nap_s), now + 0.001), self._wake)
        try:
            await self._waiter
        finally:
            handle.cancel()
            self._waiter = None

    # --- the group

    async def _rebalance(self, group: Membership, deadline: float) -> None:
        """Release the revoked partitions and take the assigned ones, before the deadline."""
        if group.needs_join and group.joining is None:
            await self._revoke(group)
            group.start_joining()
        if group.joining is None:
            return
        done = False
        while not done:
            left = max(0.0, min(deadline - self._loop.time(), self._nap_s))
            done = bool((await asyncio.wait([group.joining], timeout=left))[0])
            group.last_poll_s = self._loop.time()
            if self._closed or (not done and group.last_poll_s >= deadline):
                return
        joining, group.joining = group.joining, None
        try:
            assigned = joining.result()
        except BaseException:
            group.needs_join = True
            raise
        group.lost = False
        self._assigned(assigned)
        if self._on_assigned is not None:
            await _called(self._on_assigned, sorted(assigned))

    async def _revoke(self, group: Membership) -> None:
        held = sorted(self._fetcher.states)
        if not held:
            return
        self._shut()
        self._fetcher.hold()
        if self.options.enable_auto_commit and not group.lost:
            await self._commit_quietly(
                group, self._consumed(), _LAST_COMMIT_MS, "the commit before a rebalance"
            )
        try:
            if self._on_revoked is not None:
                await _called(self._on_revoked, held)
        finally:
            self._fetcher.assign([])

    def _consumed(self) -> dict[TopicPartition, int]:
        self._fetcher.settle()
        return {
            tp: state.position
            for tp, state in self._fetcher.states.items()
            if state.position is not None
        }

    def _auto_commit(self, group: Membership) -> None:
        """Commit what earlier polls have returned."""
        if not self.options.enable_auto_commit or self._loop.time() < self._next_commit_s:
            return
        if self._committing is None or self._committing.done():
            self._next_commit_s = self._loop.time() + self.options.auto_commit_interval_ms / 1000
            limit_ms = self.options.default_api_timeout_ms
            work = self._commit_quietly(group, self._consumed(), limit_ms, "an automatic commit")
            self._committing = self._loop.create_task(work)

    @staticmethod
    async def _commit_quietly(
        group: Membership, offsets: dict[TopicPartition, int], timeout_ms: float, what: str
    ) -> None:
        try:
            if offsets:
                await group.commit(offsets, timeout_ms)
        except Exception as error:  # of whatever kind: nobody awaits it
            log.warning("%s failed: %s", what, error)

    async def commit(
        self, offsets: Mapping[tuple[str, int], int] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit these offsets (each that of the next record to be read), or all positions.

        Raises CommitFailedError where the group has moved on or this consumer has lost its
        membership, AuthorizationError, RequestTimeoutError.
        """
        self._guard()
        if self._group is None:
            raise RuntimeError("committing needs a group_id")
        wanted = (
            self._consumed()
            if offsets is None
            else {TopicPartition(*tp): at for tp, at in offsets.items()}
        )
        if wanted:
            await self._group.commit(wanted, self._limit(timeout_ms))

    async def committed(
        self, partitions: Iterable[tuple[str, int]] | None = None, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the committed offsets, of these or of all assigned; those without are left out."""
        self._guard()
        if self._group is None:
            raise RuntimeError("committed offsets need a group_id")
        wanted = (
            self.assignment()
            if partitions is None
            else [TopicPartition(*one) for one in partitions]
        )
        return await self._group.committed(wanted, self._limit(timeout_ms)) if wanted else {}

    # --- where to begin

    def _look_for_offsets(self) -> None:
        if self._looking is None and any(
            state.position is None for state in self._fetcher.states.values()
        ):
            self._looking = self._loop.create_task(self._find_offsets())

    async def _find_offsets(self) -> None:
        """Set unknown positions from committed offsets or auto_offset_reset, in the background."""
        try:
            while lacking := [
                state for state in self._fetcher.states.values() if state.position is None
            ]:
                tokens = {state.tp: (state, state.token) for state in lacking}
                if self._group is not None and (
                    asked := [s.tp for s in lacking if s.reset is None]
                ):
                    found = await self._group.committed(asked, self.options.default_api_timeout_ms)
                    self._begin(tokens, found)
                resets: dict[TopicPartition, int | str] = {}
                for state in lacking:
                    if state.position is None and tokens[state.tp][1] == state.token:
                        state.reset = state.reset or self.options.auto_offset_reset
                        if state.reset == "none":
                            state.reset = None
                            topic, number = state.tp
                            raise NoOffsetForPartitionError(
                                f"{topic}-{number} has no committed offset to begin at"
                            )
                        resets[state.tp] = state.reset
                if resets:
                    self._begin(tokens, await self._fetcher.offsets(resets))
                if any(state.position is None for state in self._fetcher.states.values()):
                    await asyncio.sleep(self.options.retry_backoff_ms / 1000)
        except Exception as error:  # of whatever kind: the next poll raises it
            self._fetcher.errors.append(error)
        finally:
            self._looking = None
            self._wake()

    def _begin(
        self,
        tokens: dict[TopicPartition, tuple[PartitionState, int]],
        found: dict[TopicPartition, int],
    ) -> None:
        for tp, offset in found.items():
            state, token = tokens[tp]
            if state.token == token and state.position is None:
                state.seek(offset)
        self._wake()


async def _called(function: Rebalanced, partitions: list[TopicPartition]) -> None:
    answer: Any = function(partitions)
    if inspect.isawaitable(answer):
        await answer


def _records_of(fetched: FetchedBatches) -> Iterator[DecodedRecord]:
    for batch in batches(fetched.records):
        if not batch.is_control_batch and batch.last_offset >= fetched.fetch_offset:
            yield from batch.records()
