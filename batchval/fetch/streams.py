"""Leaders' connections that a native thread reads: from the first Fetch on without Python.

    closed      nothing is known of the leader, or its connection has ended
    opening     the network client connects, with SASL where it has to; ApiVersions is asked
    running     a Receiver has the socket; partitions are added to it and come back
    refused     the leader speaks no version that a Receiver reads

Records are counted (``decode`` "headers" or "records") or handed over ("blocks"). Where they are
counted, positions are moved here; positions of blocks are the caller's to move.

A partition is here or with the Fetcher, never with both. What the thread cannot see to (an error
code, damage, aborted transactions, a connection that has ended) comes back with its position, and
the Fetcher asks again and finds out: errors are handled in one place.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from batchval.fetch.options import ISOLATION_LEVELS, ConsumerOptions
from batchval.fetch.receive_loop import ReceiveLoop
from batchval.fetch.receiver import Counted, Quota, Receiver
from batchval.fetch.subscription_state import ConsumerMetrics, PartitionState
from batchval.network.client import ConsumerNetworkClient
from batchval.network.errors import DisconnectError
from batchval.network.request import Build, ClientResponse, Node
from batchval.network.version_negotiation import ApiVersions
from batchval.protocol.apis import ApiKey
from batchval.protocol.messages.fetch import FetchRequest

__all__ = ["Streams"]

#: To each leader where records are counted: while one answer is on its way, the broker reads for
#: the other. Where they are handed over, one: two take more CPU than the caller's work leaves.
CONNECTIONS: Final = 2
#: Ids of the nodes that these connections are to, above those of brokers and coordinators.
_NODE_IDS: Final = 1 << 32
_OLDEST, _NEWEST = 4, 12
#: Fetches by the Fetcher of a partition that came back. An error code may be gone with the next;
#: records that this cannot read are likely to be followed by others.
_AFTER_AN_ERROR: Final = 1
_AFTER_RECORDS: Final = 16

#: state, records, fetch offset, next offset, high watermark
OnBlock = Callable[[PartitionState, memoryview, int, int, int], None]

log = logging.getLogger("batchval.fetch")
NOTHING: Final = Counted(0, 0, 0, 0, 0, 0, 0, 0, -1, 0)


class Streams:
    """The leaders' connections of one consumer, with one thread.

    ``on_block`` is called with each block, ``on_change`` when partitions came back.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        client: ConsumerNetworkClient,
        metrics: ConsumerMetrics,
        decode: str,
        quota: Quota | None,
        on_block: OnBlock,
        on_change: Callable[[], None],
    ) -> None:
        self._options = options
        self._client = client
        self._metrics = metrics
        self._decode = decode
        self.counts = decode != "blocks"
        self._quota = quota
        self._on_block = on_block
        self._on_change = on_change
        self._lines: dict[int, list[LeaderConnection]] = {}  # by the leader's id
        self._loop = asyncio.get_running_loop()
        self._left = NOTHING  # of receivers that are gone
        self._thread: ReceiveLoop | None = None
        self._runner: threading.Thread | None = None
        self._notified = self._wake_end = -1
        self._descriptors: set[int] = set()  # that are to be closed

    @property
    def is_used_up(self) -> bool:
        """Return whether nothing more is to be counted."""
        return self._quota is not None and self._quota.remaining <= 0

    def close(self) -> None:
        """End the thread, and the connections that it has read."""
        for line in list(self._running()):
            self._end(line)
            self._client.network.disconnect(line.node, DisconnectError("nothing more is fetched"))
        self._lines.clear()
        self._end_thread()
        self.note_metrics()

    def _end_thread(self) -> None:
        if self._thread is None:
            return
        self._loop.remove_reader(self._notified)
        self._thread = self._runner = None
        self._abandon()

    # --- partitions

    @property
    def is_lacking(self) -> bool:
        """Return whether a connection has to be opened again."""
        return any(
            line.state is LeaderConnectionState.CLOSED
            for lines in self._lines.values()
            for line in lines
        )

    def prepare(self, leaders: Iterable[Node | None]) -> None:
        """Open connections to the leaders of all partitions, if it is time."""
        for leader, partitions in Counter(leaders).items():
            if leader is not None:
                self._prepare(leader, min(partitions, CONNECTIONS if self.counts else 1))

    def _prepare(self, leader: Node, connections: int) -> None:
        lines = self._lines.get(leader.id, [])
        if (
            lines
            and lines[0].leader != leader
            and all(line.state is not LeaderConnectionState.RUNNING for line in lines)
        ):
            lines = []
        if not lines:
            self._lines[leader.id] = lines
        for number in range(connections):
            if number == len(lines):
                node = Node(_NODE_IDS + leader.id * CONNECTIONS + number, leader.host, leader.port)
                lines.append(LeaderConnection(leader, node, lines))
            if (
                lines[number].state is LeaderConnectionState.CLOSED
                and self._loop.time() >= lines[number].opens_at
            ):
                self._open(lines[number])

    def _open(self, line: LeaderConnection) -> None:
        line.state = LeaderConnectionState.OPENING
        kind = Build(ApiKey.API_VERSIONS, (0, ApiVersions.latest), ApiVersions())
        future = self._client.send(line.node, kind)
        future.add_callbacks(
            lambda sent: self._opened(line, sent), lambda error: self._failed(line, error)
        )

    def _running(self) -> Iterator[LeaderConnection]:
        """Yield the lines whose sockets the thread reads."""
        for lines in self._lines.values():
            yield from (line for line in lines if line.receiver is not None)

    def take(self, leader: Node, state: PartitionState, leader_epoch: int) -> bool:
        """Take a partition over; to count it, as soon as what came of it has been polled.

        False: it is the Fetcher's for now.
        """
        lines = [line for line in self._lines.get(leader.id, ()) if line.receiver is not None]
        if not lines or state.plain:
            return False
        if state.buffered and self.counts:
            return True
        line = min(lines, key=lambda one: len(one.slots))
        receiver = line.receiver
        assert receiver is not None
        topic, partition = state.tp
        slot = receiver.add(topic, partition, state.fetch_position, leader_epoch, state.buffered)
        line.slots[slot] = state
        line.tokens[slot] = (state.token, False)
        state.share = (receiver, slot)
        self._wake()
        return True

    def _wake(self) -> None:
        """Let the thread look for what it may ask now."""
        if self._thread is not None:
            self._thread.wake()

    def collect(self) -> None:
        """Hand over the blocks that have come."""
        for line in self._running():
            self._collect(line)

    def _collect(self, line: LeaderConnection) -> None:
        assert line.receiver is not None
        for slot, records, fetch_offset, next_offset, high_watermark in line.receiver.blocks():
            state = line.slots.get(slot)
            if state is not None and line.tokens[slot][0] == state.token:
                self._on_block(state, records, fetch_offset, next_offset, high_watermark)

    def used(self, states: Iterable[PartitionState]) -> None:
        """Note that the caller has taken a block of each of these."""
        must_wake = False
        for state in states:
            if state.share is not None:
                receiver, slot = state.share
                must_wake |= receiver.used(slot)
        if must_wake:
            self._wake()

    def settle(self) -> None:
        """Move the positions of partitions to what was counted, and follow seeks and pauses."""
        for line in self._running():
            assert line.receiver is not None
            for slot, position, _ in line.receiver.positions() if self.counts else ():
                state = line.slots.get(slot)
                if state is not None and line.tokens[slot][0] == state.token:
                    state.position = state.fetch_position = position
            for slot, state in list(line.slots.items()):
                if line.tokens[slot] != (state.token, state.paused):
                    self._follow(line, slot, state)

    def _follow(self, line: LeaderConnection, slot: int, state: PartitionState) -> None:
        assert line.receiver is not None
        if state.token != line.tokens[slot][0]:
            line.receiver.drop(slot)
            self._let_go(line, slot)
        else:
            line.receiver.pause(slot, state.paused)
            line.tokens[slot] = (state.token, state.paused)
        self._wake()  # others are held back no more

    def _let_go(self, line: LeaderConnection, slot: int) -> PartitionState:
        state = line.slots.pop(slot)
        del line.tokens[slot]
        state.share = None
        return state

    def counted(self) -> Counted:
        """Return what was counted since the last call."""
        total, self._left = self._left, NOTHING
        for line in self._running():
            assert line.receiver is not None
            total = added(total, line.receiver.counted())
        metrics = self._metrics
        metrics.bytes += total.wire_bytes
        metrics.requests += total.requests
        metrics.answers += total.answers
        metrics.fetch_latency_ms += total.latency_ns / 1e6
        metrics.fetch_latency_ms_max = max(metrics.fetch_latency_ms_max, total.latency_ns_max / 1e6)
        return total

    def note_metrics(self) -> None:
        """Bring the consumer's metrics up to date; ``counted`` does where records are counted."""
        if not self.counts:
            self.counted()

    # --- connections

    def _opened(self, line: LeaderConnection, sent: ClientResponse) -> None:
        if self._lines.get(line.leader.id) is not line.others:
            return
        spoken = next(
            (api for api in sent.response.api_keys if api.api_key == FetchRequest.api_key), None
        )
        if spoken is None or spoken.max_version < _OLDEST or spoken.min_version > _NEWEST:
            line.state = LeaderConnectionState.REFUSED
            return
        connection = self._client.network.connection(line.node)
        descriptor = connection.detach() if connection is not None else None
        if descriptor is None:
            self._failed(line, DisconnectError("the connection has ended"))
            return
        try:
            thread = self._started()
            # the thread's own: its number is not used again before ``_end``
            socket = os.dup(descriptor)
        except OSError as error:  # too many open files
            self._client.network.disconnect(line.node, DisconnectError(str(error)))
            self._failed(line, error)
            return
        self._descriptors.add(socket)
        line.socket = socket
        line.receiver = self._receiver(min(_NEWEST, spoken.max_version))
        line.state = LeaderConnectionState.RUNNING
        thread.add(line.receiver, line.socket)
        self._even_out(line)
        self._on_change()

    def _receiver(self, version: int) -> Receiver:
        options = self._options
        return Receiver(
            version,
            decode=self._decode,
            client_id=options.client_id,
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            partition_max_bytes=options.max_partition_fetch_bytes,
            isolation=ISOLATION_LEVELS[options.isolation_level],
            check_crcs=options.check_crcs,
            frame_limit=options.frame_limit,
            quota=self._quota,
        )

    def _even_out(self, line: LeaderConnection) -> None:
        """Let a connection that was opened have its part of the leader's partitions."""
        for other in line.others:
            if other.receiver is None or other is line:
                continue
            self._collect(other)
            for slot in list(other.slots)[: (len(other.slots) - len(line.slots)) // 2]:
                self._give_back(other, slot, other.receiver.drop(slot), 0)

    def _failed(self, line: LeaderConnection, error: BaseException) -> None:
        log.debug("connecting to %s for fetching: %s", line.leader, error)
        line.state = LeaderConnectionState.CLOSED
        line.opens_at = self._loop.time() + self._options.retry_backoff_ms / 1000

    def _started(self) -> ReceiveLoop:
        """Return the loop, started in its thread."""
        if self._thread is None:
            wake, self._wake_end, self._notified, notify = _pipes()
            timeout_ms = self._options.request_timeout_ms + self._options.fetch_max_wait_ms
            thread = ReceiveLoop(wake, self._wake_end, notify, timeout_ms)
            runner = threading.Thread(
                target=_run, args=(thread, wake, notify), name="batchval-fetch", daemon=True
            )
            runner.start()
            self._thread, self._runner = thread, runner
            self._descriptors |= {self._wake_end, self._notified}
            self._abandon = weakref.finalize(self, abandon, thread, self._descriptors, os.getpid())
            self._loop.add_reader(self._notified, self._look)
        return self._thread

    def _look(self) -> None:
        """Handle what the thread has left to Python."""
        assert self._thread is not None
        assert self._runner is not None
        self._thread.drain(self._notified)
        if not self._runner.is_alive():
            self._give_up()
            return
        if self.counts:
            self.settle()
        ended = dict(self._thread.ended())
        has_changed = self.counts or bool(ended)
        for line in list(self._running()):
            assert line.receiver is not None
            returned = line.receiver.returned()
            self._collect(line)  # before their partitions are gone
            for slot, code, position in returned:
                self._give_back(
                    line, slot, position, _AFTER_AN_ERROR if code > -2 else _AFTER_RECORDS
                )
            if line.receiver in ended:
                self._lost(line, ended[line.receiver])
            has_changed |= bool(returned)
        if has_changed:
            self._on_change()

    def _give_up(self) -> None:
        """Begin again: the thread has ended, for lack of memory."""
        for line in list(self._running()):
            self._lost(line, "the thread that reads it has ended")
        self._end_thread()
        self._on_change()

    def _give_back(self, line: LeaderConnection, slot: int, position: int, plain: int) -> None:
        token = line.tokens[slot][0]
        state = self._let_go(line, slot)
        state.plain = plain
        if state.token == token:
            state.fetch_position = position
            if self.counts:
                state.position = position

    def _lost(self, line: LeaderConnection, why: str) -> None:
        error = DisconnectError(why or "the connection was closed by the broker")
        log.debug("fetching from %s: %s", line.leader, error)
        slots = list(line.slots.values())
        self._end(line)
        for state in slots:
            state.retry_at = self._loop.time() + self._options.retry_backoff_ms / 1000
        self._client.network.disconnect(line.node, error)

    def _end(self, line: LeaderConnection) -> None:
        assert self._thread is not None
        assert line.receiver is not None
        self._thread.remove(line.receiver)
        self._collect(line)
        for slot, position, _ in line.receiver.positions():
            if slot in line.slots:
                self._give_back(line, slot, position, 0)
        self._left = added(self._left, line.receiver.counted())
        self._descriptors.remove(line.socket)
        os.close(line.socket)
        line.receiver = None
        line.state = LeaderConnectionState.CLOSED


def _pipes() -> tuple[int, int, int, int]:
    """Return the ends of two pipes, that to read first; none blocks. Raises OSError."""
    first = os.pipe()
    try:
        ends = first + os.pipe()
    except OSError:
        for end in first:
            os.close(end)
        raise
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _run(loop: ReceiveLoop, wake: int, notify: int) -> None:
    """Serve the loop's sockets; then close its ends of the pipes."""
    try:
        loop.run()
    finally:
        os.close(wake)
        os.close(notify)


class LeaderConnectionState(enum.Enum):
    """The state of a leader's connection."""

    CLOSED = enum.auto()
    OPENING = enum.auto()
    RUNNING = enum.auto()
    REFUSED = enum.auto()


@dataclass(slots=True, eq=False)
class LeaderConnection:
    """A connection to one leader."""

    leader: Node
    node: Node
    others: list[LeaderConnection]  # all to this leader
    state: LeaderConnectionState = LeaderConnectionState.CLOSED
    opens_at: float = 0.0  # seconds of the loop's clock: not before
    receiver: Receiver | None = None
    socket: int = -1  # the thread's own descriptor
    slots: dict[int, PartitionState] = field(default_factory=dict)
    #: token and pause of each slot as the receiver has them
    tokens: dict[int, tuple[int, bool]] = field(default_factory=dict)


def added(one: Counted, other: Counted) -> Counted:
    """Return the sum of two counts."""
    return Counted(
        one.records + other.records,
        one.bytes + other.bytes,
        one.batches + other.batches,
        one.wire_bytes + other.wire_bytes,
        one.requests + other.requests,
        one.answers + other.answers,
        one.latency_ns + other.latency_ns,
        max(one.latency_ns_max, other.latency_ns_max),
        max(one.lag, other.lag),
        max(one.last_ns, other.last_ns),
    )


def abandon(thread: ReceiveLoop, descriptors: set[int], process: int) -> None:
    """End the thread, also of a consumer that was never closed, and close what it has used.

    ``process``  the one that it runs in: a child has no such thread, and would wait for it
    """
    if os.getpid() != process:
        return
    thread.stop()
    while descriptors:
        os.close(descriptors.pop())
