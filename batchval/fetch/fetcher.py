"""Fetch records from leaders: one Fetch a node at a time, the next while an answer is read.

With plain sockets a native thread does so (``streams``); what it returns is asked for here.

    FetchRequest v4–12 (offset, max bytes of each partition) → records: batches, the last often cut
    off

A partition's records are there for the next poll as soon as they have come, before the rest of the
answer has. What is done for them does not grow with their number: their headers are walked in one
native call.

With read_committed, the batches of aborted transactions are left out:

    aborted_transactions: (producer_id, first_offset) …, those that reach into the answer's records
    records: batches; the control batch "abort" of a producer ends its aborted transaction

The broker sends nothing after the last stable offset, so that every transaction in the answer has
been decided.

    ListOffsets v2-9 (-2 earliest, -1 latest, else the first offset with that timestamp) → offset
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from batchval.core.batches.batch import RecordBatch, batches
from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError, ErrorCode
from batchval.fetch.errors import OffsetOutOfRangeError
from batchval.fetch.options import ISOLATION_LEVELS, ConsumerOptions
from batchval.fetch.partition_chunks import FetchPieces
from batchval.fetch.receiver import Quota
from batchval.fetch.streams import Streams
from batchval.fetch.subscription_state import (
    ConsumerMetrics,
    FetchedBatches,
    PartitionState,
    TopicPartition,
)
from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata
from batchval.network.errors import ClosedError, NetworkError, broker_error
from batchval.network.request import Build, ClientResponse, Node
from batchval.protocol.message import Chunks
from batchval.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from batchval.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ["Fetcher", "OffsetLookup", "committed_parts"]

#: Topics by name, which every version to 12 has; nothing later is used here.
_FETCH_VERSIONS: Final = (4, 12)
_MAX_BUFFERED: Final = 1  # answers of a partition that wait while another is asked for
_MAX_ERRORS: Final = 16  # that wait for a poll

log = logging.getLogger("batchval.fetch")
_ABORT = b"\x00\x00"  # of a control record's key: version (int16), type (int16)
_LIST_VERSIONS: Final = (2, 9)
_TIMESTAMPS: Final = {"earliest": -2, "latest": -1}


class _Fetch:
    """A request whose answer is reported partition by partition."""

    __slots__ = ("_request", "api_version", "pieces")

    api_key: Final = FetchRequest.api_key
    expects_response: Final = True

    def __init__(
        self, request: FetchRequest, on_partition: Callable[[str, PartitionData, bool], object]
    ) -> None:
        self._request = request
        self.api_version = request.api_version
        self.pieces = FetchPieces(request.api_version, on_partition)

    def encode(self, correlation_id: int, client_id: str | None) -> Chunks:
        return self._request.encode(correlation_id, client_id)

    def decode(self, frame: memoryview) -> FetchPieces:
        return self.pieces.read(frame)


class Fetcher:
    """The Fetch requests of one consumer. ``wake`` is called when a poll can return something."""

    def __init__(
        self,
        options: ConsumerOptions,
        client: ConsumerNetworkClient,
        metadata: ClusterMetadata,
        metrics: ConsumerMetrics,
        wake: Callable[[], None],
    ) -> None:
        self.options = options
        self._isolation = ISOLATION_LEVELS[options.isolation_level]
        self.client = client
        self.metadata = metadata
        self.metrics = metrics
        self.states: dict[TopicPartition, PartitionState] = {}
        self.errors: deque[BaseException] = deque()
        self._ready: deque[tuple[PartitionState, int, FetchedBatches]] = deque()
        self._asked: set[int] = set()  # ids of nodes with a Fetch under way
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.offsets = OffsetLookup(client, metadata, self._isolation).offsets
        self.streams = self._open_streams("blocks", None)

    # --- which partitions

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions; those assigned before keep their positions."""
        before, self.states = self.states, {}
        for tp in partitions:
            self.states[tp] = before.pop(tp) if tp in before else PartitionState(tp)
        for state in before.values():
            state.token += 1
        self.settle()

    def settle(self) -> None:
        """Move positions to what was counted natively; the thread follows seeks and pauses."""
        if self.streams is not None:
            self.streams.settle()

    def hold(self) -> None:
        """Count nothing more natively: positions are about to be committed."""
        if self.streams is not None and self.streams.counts:
            for state in self.states.values():
                state.paused = True
            self.settle()

    @property
    def is_used_up(self) -> bool:
        """Return whether nothing more is counted."""
        return self.streams is not None and self.streams.is_used_up

    def count(self, decode: str, quota: Quota | None) -> None:
        """Count natively from now on, where that is possible; ``take`` has the rest."""
        if self.streams is not None:
            self.streams.close()
        self.streams = self._open_streams(decode, quota)

    def _open_streams(self, decode: str, quota: Quota | None) -> Streams | None:
        """Return streams; None with TLS, which their thread does not speak."""
        if self.options.security.ssl_context is not None:
            return None
        shared = (self.options, self.client, self.metrics)
        return Streams(*shared, decode, quota, self._block_came, self._streams_changed)

    def _block_came(
        self,
        state: PartitionState,
        records: memoryview,
        offset: int,
        next_offset: int,
        high_watermark: int,
    ) -> None:
        state.fetch_position = next_offset
        self._append(state, FetchedBatches(*state.tp, records, high_watermark, offset, next_offset))
        self._wake()

    def _append(self, state: PartitionState, batches: FetchedBatches) -> None:
        state.buffered += 1
        self._ready.append((state, state.token, batches))

    def _streams_changed(self) -> None:
        self.send()
        self._wake()

    def note_metrics(self) -> None:
        """Bring the consumer's metrics up to date."""
        if self.streams is not None:
            self.streams.note_metrics()

    def close(self) -> None:
        """Stop fetching."""
        self.assign([])
        if self.streams is not None:
            self.streams.close()
        if self._timer is not None:
            self._timer.cancel()

    # --- records

    def take(self, most: int | None = None) -> list[FetchedBatches]:
        """Return what has come, at most so many; whose positions are the caller's to move."""
        if self.streams is not None:
            self.streams.collect()
        taken: list[FetchedBatches] = []
        used: list[PartitionState] = []
        kept: deque[tuple[PartitionState, int, FetchedBatches]] = deque()
        while self._ready and (most is None or len(taken) < most):
            entry = self._ready.popleft()
            state, token, batches = entry
            if state.token != token:
                continue
            if state.paused:
                kept.append(entry)
                continue
            state.buffered -= 1
            used.append(state)
            taken.append(batches)
        kept.extend(self._ready)
        self._ready = kept
        if self.streams is not None:
            self.streams.used(used)
        return taken

    def send(self) -> None:
        """Send a Fetch to each leader without one in flight that leads a partition to fetch."""
        now = self._loop.time()
        soonest = float("inf")
        wanted: dict[Node, list[PartitionState]] = {}
        self.settle()
        idle = [state for state in self.states.values() if state.share is None]
        if self.streams is not None and (idle or self.streams.is_lacking):
            self.streams.prepare(self.metadata.leader(*tp) for tp in self.states)
        for state in idle:
            if state.position is None or state.paused or state.in_flight:
                continue
            if state.buffered > _MAX_BUFFERED:
                continue
            if state.retry_at > now:
                soonest = min(soonest, state.retry_at)
                continue
            leader = self.metadata.leader(*state.tp)
            if leader is None:
                state.retry_at = now + self.options.retry_backoff_ms / 1000
                soonest = min(soonest, state.retry_at)
                self.metadata.request_update()
            elif self._is_streamed(leader, state):
                continue
            elif leader.id not in self._asked:
                wanted.setdefault(leader, []).append(state)
        for node, states in wanted.items():
            self._send_to(node, states)
        if soonest < float("inf"):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(soonest, self.send)

    def _is_streamed(self, leader: Node, state: PartitionState) -> bool:
        """Let the thread fetch it if it can. What cannot be asked for is an error of a poll."""
        if self.streams is None:
            return False
        try:
            return self.streams.take(leader, state, self.metadata.leader_epoch(*state.tp))
        except (BatchvalError, OverflowError, MemoryError) as error:
            self._later(state)
            self._tell(error)
            return True

    def _send_to(self, node: Node, states: list[PartitionState]) -> None:
        topics: dict[str, FetchTopic] = {}
        asked: dict[TopicPartition, tuple[PartitionState, int]] = {}
        for state in states:
            name, number = state.tp
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(name)
            topic.partitions.append(
                FetchPartition(
                    number,
                    self.metadata.leader_epoch(name, number),
                    state.fetch_position,
                    partition_max_bytes=self.options.max_partition_fetch_bytes,
                )
            )
            asked[state.tp] = (state, state.token)
            state.in_flight = True
            state.plain = max(0, state.plain - 1)

        refused: list[tuple[str, PartitionData]] = []

        def make(version: int) -> _Fetch:
            request = FetchRequest(
                max_wait_ms=self.options.fetch_max_wait_ms,
                min_bytes=self.options.fetch_min_bytes,
                max_bytes=self.options.fetch_max_bytes,
                isolation_level=self._isolation,
                topics=list(topics.values()),
                api_version=version,
            )
            return _Fetch(request, partial(self._came, asked, refused))

        self._asked.add(node.id)
        self.metrics.requests += 1
        timeout = self.options.request_timeout_ms + self.options.fetch_max_wait_ms
        future = self.client.send(node, Build(FetchRequest.api_key, _FETCH_VERSIONS, make), timeout)
        future.add_callbacks(
            partial(self._answered, node, asked, refused), partial(self._failed, node, asked)
        )
        self.client.flush_nowait()  # now, not in the loop's next round

    def _done(self, node: Node, asked: dict[TopicPartition, tuple[PartitionState, int]]) -> None:
        self._asked.discard(node.id)
        for state, _ in asked.values():
            state.in_flight = False

    def _failed(
        self,
        node: Node,
        asked: dict[TopicPartition, tuple[PartitionState, int]],
        error: BaseException,
    ) -> None:
        self._done(node, asked)
        if isinstance(error, ClosedError):
            return
        log.debug("fetching from %s: %s", node, error)
        if not getattr(error, "retriable", isinstance(error, NetworkError)):
            self._tell(error)
        for state, _ in asked.values():
            self._later(state)
        self.metadata.request_update()
        self.send()

    def _later(self, state: PartitionState) -> None:
        state.retry_at = self._loop.time() + self.options.retry_backoff_ms / 1000

    def _tell(self, error: BaseException) -> None:
        if len(self.errors) < _MAX_ERRORS:
            self.errors.append(error)
        self._wake()

    def _came(
        self,
        asked: dict[TopicPartition, tuple[PartitionState, int]],
        refused: list[tuple[str, PartitionData]],
        topic: str,
        data: PartitionData,
        ended: bool,
    ) -> None:
        """Take one partition of an answer; send nothing, since the next request goes first."""
        known = asked.get(TopicPartition(topic, data.partition_index))
        if known is None or known[0].token != known[1]:
            return
        if data.error_code:
            refused.append((topic, data))
        elif data.records and self._arrived(known[0], data) and not ended:
            self._wake()

    def _answered(
        self,
        node: Node,
        asked: dict[TopicPartition, tuple[PartitionState, int]],
        refused: list[tuple[str, PartitionData]],
        sent: ClientResponse,
    ) -> None:
        self._done(node, asked)
        self.metrics.answers += 1
        self.metrics.fetch_latency_ms += sent.request_latency_ms
        self.metrics.fetch_latency_ms_max = max(
            self.metrics.fetch_latency_ms_max, sent.request_latency_ms
        )
        answer: FetchPieces = sent.response
        if answer.error_code:
            self._tell(broker_error(answer.error_code, f"fetching from {node}"))
        for topic, data in refused:
            state, token = asked[TopicPartition(topic, data.partition_index)]
            if state.token == token:
                self._refused(state, data)
        self.send()
        if self._ready:
            self._wake()

    def _arrived(self, state: PartitionState, data: PartitionData) -> bool:
        """Find from batch headers where the whole batches end and which offset is next."""
        topic, partition = state.tp
        offset = state.fetch_position
        records = memoryview(data.records or b"").toreadonly()
        try:
            found = walk_fetched(records, offset, "headers", self.options.check_crcs)
            parts = self._parts(records[: found.end], data)
        except BatchvalError as error:
            self._later(state)
            if state.buffered:  # what has come before is polled first; then this is met again
                return False
            self._tell(type(error)(f"{topic}-{partition} at offset {offset}: {error}"))
            return False
        if found.next_offset == offset:
            # the frame was full: what was cut off comes whole with the next, first of all; else the
            # broker has nothing that leads further, and is not asked without a pause
            state.stalled += 1
            if state.stalled > 1:
                self._later(state)
            return False
        state.stalled = 0
        self.metrics.bytes += found.wire_bytes
        state.fetch_position = found.next_offset
        self.states.pop(state.tp, None)
        self.states[state.tp] = state  # last in the next request: none starves when frames are full
        for number, part in enumerate(parts, 1):
            next_offset = (
                found.next_offset
                if number == len(parts)
                else walk_fetched(part, offset, "headers").next_offset
            )
            facts = part, data.high_watermark, offset, next_offset
            self._append(state, FetchedBatches(topic, partition, *facts))
            offset = next_offset
        return True

    def _parts(self, whole: memoryview, data: PartitionData) -> list[memoryview]:
        """Return all of it, or with read_committed the parts without aborted transactions.

        At least one part, which may be empty.
        """
        if not self._isolation or not data.aborted_transactions:
            return [whole]
        aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions]
        return [whole[begin:end] for begin, end in committed_parts(whole, aborted)] or [whole[:0]]

    def _refused(self, state: PartitionState, data: PartitionData) -> None:
        topic, partition = state.tp
        what = f"{topic}-{partition} at offset {state.fetch_position}"
        self._later(state)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # records that came before are returned first; then it is requested again
            if state.buffered:
                return
            policy = self.options.auto_offset_reset
            if policy == "none":
                self._tell(
                    OffsetOutOfRangeError(f"{what}: not in the log, and auto_offset_reset is none")
                )
                return
            log.info("%s is not in the log: reset to %s", what, policy)
            state.seek(None)
            state.reset = policy
            self._wake()
            return
        error = broker_error(data.error_code, what)
        if error.retriable:
            leader = data.current_leader
            if not self.metadata.leader_is(topic, partition, leader.leader_id, leader.leader_epoch):
                self.metadata.request_update()
            return
        self._tell(error)


def committed_parts(
    records: memoryview, aborted: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return where in ``records`` (whole batches) lies what is left: (begin, end) of each run of
    batches.

    As Kafka's consumer has it: a transaction counts as aborted from its first offset to its
    producer's abort marker. Raises NotABatch for a control batch that cannot be read.
    """
    waiting = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
    open_now: set[int] = set()
    parts: list[tuple[int, int]] = []
    begin = at = 0
    for batch in batches(records):
        if batch.producer_id >= 0:
            while waiting and waiting[-1][0] <= batch.last_offset:
                open_now.add(waiting.pop()[1])
            if batch.is_control_batch:
                if batch.producer_id in open_now and _is_abort(batch):
                    open_now.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in open_now:
                if at > begin:
                    parts.append((begin, at))
                begin = at + batch.size_in_bytes
        at += batch.size_in_bytes
    if at > begin:
        parts.append((begin, at))
    return parts


def _is_abort(batch: RecordBatch) -> bool:
    key = next((record.key for record in batch.records()), None)
    return key is not None and key[2:4] == _ABORT


class OffsetLookup:
    """The lookup of partitions' offsets for one consumer."""

    def __init__(
        self, client: ConsumerNetworkClient, metadata: ClusterMetadata, isolation: int
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._isolation = isolation

    async def offsets(self, wanted: dict[TopicPartition, int | str]) -> dict[TopicPartition, int]:
        """Return each partition's offset for "earliest", "latest" or a timestamp (-1: none), in one
        round.

        Partitions that cannot be looked up at the moment are left out. Raises errors that are not
        retriable.
        """
        by_node: dict[Node, dict[TopicPartition, int]] = {}
        for tp, what in wanted.items():
            leader = self._metadata.leader(*tp)
            if leader is None:
                self._metadata.follow(tp.topic)
                self._metadata.request_update()
                continue
            by_node.setdefault(leader, {})[tp] = (
                _TIMESTAMPS[what] if isinstance(what, str) else what
            )
        found: dict[TopicPartition, int] = {}
        for node, timestamps in by_node.items():
            found |= await self._offsets_of(node, timestamps)
        return found

    async def _offsets_of(
        self, node: Node, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, number), timestamp in timestamps.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name))
            topic.partitions.append(
                ListOffsetsPartition(number, self._metadata.leader_epoch(name, number), timestamp)
            )

        def make(version: int) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                -1, self._isolation, topics=list(topics.values()), api_version=version
            )

        try:
            sent = await self._client.send(
                node, Build(ListOffsetsRequest.api_key, _LIST_VERSIONS, make)
            )
        except NetworkError as error:
            if not error.retriable:
                raise
            self._metadata.request_update()
            return {}
        answer: ListOffsetsResponse = sent.response
        found: dict[TopicPartition, int] = {}
        for result in answer.topics:
            for one in result.partitions:
                tp = TopicPartition(result.name, one.partition_index)
                if tp not in timestamps:
                    continue
                if not one.error_code:
                    # -1 is an answer to a timestamp alone; others are asked for again
                    if one.offset >= (-1 if timestamps[tp] >= 0 else 0):
                        found[tp] = one.offset
                    continue
                failure = broker_error(
                    one.error_code, f"offsets of {result.name}-{one.partition_index}"
                )
                if not failure.retriable:
                    raise failure
                self._metadata.request_update()
        return found
