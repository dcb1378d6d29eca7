"""Membership of a group by the classic protocol: join, sync, heartbeat, commit, leave.

    JoinGroup → generation, and for the leader the subscription of every member
    SyncGroup → the partitions of this member
    Heartbeat each heartbeat_interval_ms; error 27 asks all members to join again

Joining goes on in the background; ``Consumer.poll…`` starts it, takes its result, and tells the
caller's functions.

Requests are such that brokers other than Kafka's accept them. Versions end before the flexible
ones, which have nothing that is used here: librdkafka's mock cluster announces some of them and
reads them as the older ones. With an error it sends null for the protocol's name and for the
assignment, which no version of JoinGroup's and SyncGroup's answers allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from batchval.errors import BatchvalError, ErrorCode
from batchval.fetch.assignor import (
    assign_range,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from batchval.fetch.errors import CommitFailedError
from batchval.fetch.options import ConsumerOptions
from batchval.fetch.subscription_state import ConsumerMetrics, TopicPartition
from batchval.network.client import ConsumerNetworkClient, Timer
from batchval.network.cluster_metadata import ClusterMetadata
from batchval.network.coordinator import GROUP, find_coordinator
from batchval.network.errors import (
    BrokerError,
    InvalidAnswerError,
    NetworkError,
    RequestTimeoutError,
    broker_error,
)
from batchval.network.request import AnyRequest, Build, Node
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.heartbeat import HeartbeatRequest
from batchval.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from batchval.protocol.messages.leave_group import LeaveGroupRequest
from batchval.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from batchval.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from batchval.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["JOIN_VERSIONS", "SYNC_VERSIONS", "JoinRequest", "Membership", "SyncRequest"]

_PROTOCOL: Final = "consumer"
_RANGE: Final = "range"
# a JoinGroup is answered when all have come: rebalance timeout, and this
_JOIN_SLACK_MS: Final = 5_000
_HEARTBEAT_VERSIONS: Final = (0, 3)  # as of JOIN_VERSIONS
_LEAVE_VERSIONS: Final = (0, 2)
#: Errors in a row after which joining is tried again at once, as in Kafka; then there is a backoff.
_AT_ONCE: Final = 3
_LOST = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
_MOVED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}

log = logging.getLogger("batchval.fetch")
T = TypeVar("T")

JOIN_VERSIONS: Final = (0, 5)
SYNC_VERSIONS: Final = (0, 3)
_AFTER_ID: Final = 4  # where the error code stands: after the correlation id
_AFTER_THROTTLE: Final = 8  # or after the throttle time


class Membership:
    """The group membership of one consumer. ``wake`` is called when a poll should run."""

    def __init__(
        self,
        options: ConsumerOptions,
        group_id: str,
        client: ConsumerNetworkClient,
        metadata: ClusterMetadata,
        metrics: ConsumerMetrics,
        wake: Callable[[], None],
    ) -> None:
        self.options = options
        self.group_id = group_id
        self.client = client
        self.metadata = metadata
        self.metrics = metrics
        self.member_id = ""
        self.generation = -1
        self.needs_join = True
        self.lost = False  # what was assigned is another's already
        self.joining: asyncio.Task[list[TopicPartition]] | None = None
        self.last_poll_s = 0.0
        self.topics: list[str] = []
        self.pattern: re.Pattern[str] | None = None
        self._counts: dict[str, int] = {}  # of partitions, when this member led and assigned
        self._coordinator: Node | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        metadata.add_listener(self._metadata_changed)

    # --- requests

    async def coordinator(self, timeout_ms: float) -> Node:
        """Return the coordinator; find it if it is unknown."""
        if self._coordinator is None:
            self._coordinator = await find_coordinator(
                self.client, self.metadata, self.group_id, GROUP, timeout_ms
            )
        return self._coordinator

    async def _ask(
        self,
        api_key: int,
        versions: tuple[int, int],
        make: Callable[[int], AnyRequest],
        timer: Timer,
        timeout_ms: float | None = None,
    ) -> Any:
        """Send one request to the coordinator, and forget the coordinator if it does not answer."""
        node = await self.coordinator(timer.remaining_ms)
        try:
            return (
                await self.client.send(node, Build(api_key, versions, make), timeout_ms)
            ).response
        except NetworkError:
            self._coordinator = None
            raise

    def _check(self, code: int, what: str) -> None:
        if not code:
            return
        if code in _MOVED:
            self._coordinator = None
        if code in _LOST:
            self._forget(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
        raise broker_error(code, f"{what} of group {self.group_id}")

    # --- joining

    def start_joining(self) -> None:
        """Join in the background until it is a member. ``joining`` returns the assignment."""
        self.needs_join = False
        self._stop_heartbeats()
        self.joining = self._loop.create_task(self._join())
        self.joining.add_done_callback(_noted)  # who leaves does not ask what came of it

    async def _join(self) -> list[TopicPartition]:
        started, tries = self._loop.time(), 0
        while True:
            try:
                assigned = await self._join_once()
            except RequestTimeoutError as error:
                log.info("joining group %s: %s", self.group_id, error)
            except NetworkError as error:
                code = getattr(error, "code", None)
                tries += 1
                is_expected = code in (
                    *_LOST,
                    ErrorCode.REBALANCE_IN_PROGRESS,
                    ErrorCode.MEMBER_ID_REQUIRED,
                )
                if not is_expected and not error.retriable:
                    raise
                if not is_expected or tries > _AT_ONCE:
                    await asyncio.sleep(self.options.retry_backoff_ms / 1000)
            else:
                self.metrics.rebalances += 1
                self.metrics.rebalance_time_ms += (self._loop.time() - started) * 1000
                self._heartbeats = self._loop.create_task(self._beat())
                return assigned

    async def _join_once(self) -> list[TopicPartition]:
        timer = Timer(self.options.default_api_timeout_ms)
        if self.pattern is not None:
            self.topics = await self.metadata.matching(self.pattern, timer.remaining_ms)
        for topic in self.topics:
            self.metadata.follow(topic)
        rebalance_ms = self.options.rebalance_timeout_ms or self.options.max_poll_interval_ms
        wanted = write_subscription(self.topics)

        def join(version: int) -> AnyRequest:
            return JoinRequest(
                self.group_id,
                self.options.session_timeout_ms,
                rebalance_ms if version >= 1 else -1,
                self.member_id,
                protocol_type=_PROTOCOL,
                protocols=[JoinGroupRequestProtocol(_RANGE, wanted)],
                api_version=version,
            )

        wait_ms = max(self.options.request_timeout_ms, rebalance_ms + _JOIN_SLACK_MS)
        joined: JoinGroupResponse = await self._ask(
            JoinRequest.api_key, JOIN_VERSIONS, join, timer, wait_ms
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        self._check(joined.error_code, "joining")
        members = {one.member_id for one in joined.members}
        leads = joined.leader == joined.member_id
        if (
            not joined.member_id
            or joined.generation_id < 0
            or (leads and joined.member_id not in members)
        ):
            who = f"member {joined.member_id!r:.100} of generation {joined.generation_id}"
            who += f", with {len(members)} members"
            raise InvalidAnswerError(f"joining group {self.group_id}: a broker answered with {who}")
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = []
        self._counts = {}
        if leads:
            assignments = await self._assign(joined)

        def sync(version: int) -> AnyRequest:
            return SyncRequest(
                self.group_id,
                self.generation,
                self.member_id,
                assignments=assignments,
                api_version=version,
            )

        synced: SyncGroupResponse = await self._ask(
            SyncRequest.api_key, SYNC_VERSIONS, sync, timer, wait_ms
        )
        self._check(synced.error_code, "joining")
        return read_assignment(synced.assignment)

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        wanted = {member.member_id: read_subscription(member.metadata) for member in joined.members}
        topics = sorted({topic for several in wanted.values() for topic in several})
        for topic in topics:
            self.metadata.follow(topic)
        if any(not self.metadata.partitions(topic) for topic in topics):
            await self.metadata.update(topics, self.options.default_api_timeout_ms)
        self._counts = {topic: self.metadata.partitions(topic) for topic in topics}
        return [
            SyncGroupRequestAssignment(member, write_assignment(assigned))
            for member, assigned in assign_range(wanted, self._counts).items()
        ]

    def _metadata_changed(self) -> None:
        """Rejoin, as the leader, when there are more partitions than were assigned."""
        if any(self.metadata.partitions(topic) != count for topic, count in self._counts.items()):
            self._counts = {}
            self.rejoin()

    def rejoin(self) -> None:
        """Rejoin with the next poll."""
        self.needs_join = True
        self._wake()

    def _forget(self, keep_id: bool = False) -> None:
        self.generation = -1
        self.lost = True
        if not keep_id:
            self.member_id = ""

    # --- heartbeats

    async def _beat(self) -> None:
        interval = self.options.heartbeat_interval_ms / 1000
        looked = self._loop.time()
        while self.generation >= 0:
            await asyncio.sleep(interval)
            now = self._loop.time()
            if (now - self.last_poll_s) * 1000 > self.options.max_poll_interval_ms:
                log.warning(
                    "no poll for more than max_poll_interval_ms: leaving group %s", self.group_id
                )
                with contextlib.suppress(NetworkError):
                    await self._send_leave()
                self._forget()
                self.rejoin()
                return
            try:
                await self._beat_once()
                if (
                    self.pattern is not None
                    and (now - looked) * 1000 > self.options.metadata_max_age_ms
                ):
                    looked = now
                    if await self.metadata.matching(self.pattern) != self.topics:
                        self.rejoin()
            except BatchvalError as error:
                log.debug("heartbeat of group %s: %s", self.group_id, error)
                code = getattr(error, "code", None)
                if code == ErrorCode.REBALANCE_IN_PROGRESS:
                    self.rejoin()
                elif code in _LOST:
                    self.rejoin()
                    return
            except Exception:  # the next one may be answered as it should
                log.exception("heartbeat of group %s", self.group_id)

    async def _beat_once(self) -> None:
        timer = Timer(self.options.session_timeout_ms)
        who = self.group_id, self.generation, self.member_id
        answer = await self._ask(
            HeartbeatRequest.api_key,
            _HEARTBEAT_VERSIONS,
            lambda version: HeartbeatRequest(*who, api_version=version),
            timer,
            min(self.options.session_timeout_ms, 10_000),
        )
        self.metrics.heartbeats += 1
        self._check(answer.error_code, "heartbeat")

    def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None

    # --- leaving

    async def leave(self) -> None:
        """Leave at the coordinator, if it is a member, and drop the subscription.

        The coordinator's answer is ignored.
        """
        self._stop_heartbeats()
        if self.joining is not None:
            self.joining.cancel()
            self.joining = None
        if self.member_id and self._coordinator is not None:
            with contextlib.suppress(BatchvalError, TimeoutError):
                async with asyncio.timeout(2):
                    await self._send_leave()
        self._forget()
        self.topics, self.pattern = [], None
        self.lost = False
        self.needs_join = True

    async def _send_leave(self) -> None:
        def make(version: int) -> AnyRequest:
            return LeaveGroupRequest(self.group_id, self.member_id, api_version=version)

        await self._ask(LeaveGroupRequest.api_key, _LEAVE_VERSIONS, make, Timer(2_000), 2_000)

    # --- offsets

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_ms: float) -> None:
        """Commit, and repeat until it is done.

        Raises CommitFailedError where the group has moved on or this member has left it,
        BrokerError where the commit is refused.
        """
        await self._repeated(partial(self._commit_once, offsets), Timer(timeout_ms))
        self.metrics.commits += 1

    async def _repeated(self, ask: Callable[[Timer], Awaitable[T]], timer: Timer) -> T:
        """Repeat a request while its error may pass by itself, and there is time."""
        while True:
            try:
                return await ask(timer)
            except NetworkError as error:
                if not error.retriable or timer.remaining_ms <= self.options.retry_backoff_ms:
                    raise
            await asyncio.sleep(self.options.retry_backoff_ms / 1000)

    async def _commit_once(self, offsets: Mapping[TopicPartition, int], timer: Timer) -> None:
        if (self.topics or self.pattern is not None) and self.generation < 0:
            # As ConsumerCoordinator: generation -1 is that of consumers with assigned partitions,
            # and a group without members takes it.
            raise CommitFailedError(
                f"this consumer is not a member of group {self.group_id}: nothing was committed"
            )
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, number), offset in offsets.items():
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name))
            topic.partitions.append(OffsetCommitRequestPartition(number, offset))

        def make(version: int) -> AnyRequest:
            return OffsetCommitRequest(
                self.group_id,
                self.generation,
                self.member_id,
                topics=list(topics.values()),
                api_version=version,
            )

        answer: OffsetCommitResponse = await self._ask(
            OffsetCommitRequest.api_key, (2, 9), make, timer
        )
        try:
            for result in answer.topics:
                for one in result.partitions:
                    self._check(one.error_code, f"commit of {result.name}-{one.partition_index}")
        except BrokerError as error:
            if error.code in _LOST or error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.rejoin()
                text = f"the group has moved on ({error}): nothing was committed"
                raise CommitFailedError(text) from error
            raise

    async def committed(
        self, partitions: list[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition; those without one are left out."""
        return await self._repeated(partial(self._committed_once, partitions), Timer(timeout_ms))

    async def _committed_once(
        self, partitions: list[TopicPartition], timer: Timer
    ) -> dict[TopicPartition, int]:
        numbers: dict[str, list[int]] = {}
        for name, number in partitions:
            numbers.setdefault(name, []).append(number)

        def make(version: int) -> AnyRequest:
            if version < 8:
                topics = [OffsetFetchRequestTopic(*one) for one in numbers.items()]
                return OffsetFetchRequest(self.group_id, topics, api_version=version)
            several = [
                OffsetFetchRequestTopics(name, partition_indexes=indexes)
                for name, indexes in numbers.items()
            ]
            return OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(self.group_id, topics=several)], api_version=version
            )

        answer: OffsetFetchResponse = await self._ask(
            OffsetFetchRequest.api_key, (1, 9), make, timer
        )
        self._check(answer.error_code, "offsets")
        for group in answer.groups:
            self._check(group.error_code, "offsets")
        found: dict[TopicPartition, int] = {}
        topics: list[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = list(answer.topics)
        for group in answer.groups:
            topics += group.topics
        for topic in topics:
            for one in topic.partitions:
                self._check(one.error_code, f"offset of {topic.name}-{one.partition_index}")
                found[TopicPartition(topic.name, one.partition_index)] = one.committed_offset
        if missing := [tp for tp in partitions if tp not in found]:
            # not the same as no committed offset: the consumer would begin elsewhere
            what = f"offset of {missing[0].topic}-{missing[0].partition} in group {self.group_id}"
            raise InvalidAnswerError(f"{what}: the coordinator did not answer for it")
        return {tp: found[tp] for tp in partitions if found[tp] >= 0}


def _noted(task: asyncio.Task[Any]) -> None:
    """Take a task's error, which asyncio would report as lost where nobody asks for it."""
    if not task.cancelled():
        task.exception()


class JoinRequest(JoinGroupRequest):
    """A JoinGroup request that reads an error code even if the rest cannot be read."""

    __slots__ = ()

    def decode(self, frame: Buffer) -> JoinGroupResponse:
        at = _AFTER_THROTTLE if self.api_version >= 2 else _AFTER_ID
        return _decoded(super().decode, JoinGroupResponse, frame, at)


class SyncRequest(SyncGroupRequest):
    """A SyncGroup request that reads an error code even if the rest cannot be read."""

    __slots__ = ()

    def decode(self, frame: Buffer) -> SyncGroupResponse:
        at = _AFTER_THROTTLE if self.api_version >= 1 else _AFTER_ID
        return _decoded(super().decode, SyncGroupResponse, frame, at)


def _decoded(decode: Callable[[Buffer], T], kind: Callable[..., T], frame: Buffer, at: int) -> T:
    try:
        return decode(frame)
    except ProtocolError:
        code = int.from_bytes(memoryview(frame)[at : at + 2], "big", signed=True)
        if not code:
            raise
        return kind(error_code=code)
