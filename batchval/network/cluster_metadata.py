"""Leaders of partitions and their addresses, from Metadata answers and from the leaders that other
answers report.

    MetadataRequest v1–10 (names; null: all) → brokers (id, host, port), topics (error, id,
    partitions (leader, epoch))

One answer at a time is asked for in the background, at most one each ``retry_backoff_ms``; an older
leader epoch never replaces a newer one (KIP-320), unless the topic was made anew (another topic
id).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from batchval.errors import ErrorCode, shown_ms
from batchval.network.client import ConsumerNetworkClient, Timer
from batchval.network.errors import (
    DisconnectError,
    InvalidAnswerError,
    NetworkError,
    RequestTimeoutError,
    broker_error,
)
from batchval.network.option_checks import refusal
from batchval.network.request import Build, Node
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

__all__ = ["ClusterMetadata", "bootstrap_nodes"]

#: Topic ids came with 10; nothing later is used here.
_VERSIONS: Final = (1, 10)
_CREATION_FROM: Final = 4  # the first version that can say that topics are not to be made
#: Answers with an older leader epoch before one is believed: the newer epoch was never the
#: cluster's, or the topic was made anew and has no id.
_MAX_OLDER: Final = 20
_GONE = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
_ADDRESS = re.compile(
    r"(?:[A-Za-z_][A-Za-z0-9_]*://)?(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/]+)):(?P<port>\d{1,5})"
)

log = logging.getLogger("batchval.network")
T = TypeVar("T")


def bootstrap_nodes(servers: Iterable[str]) -> list[Node]:
    """Return addresses as nodes with ids below 0.

    An address is ``host:port``, ``[::1]:port`` or ``PROTOCOL://host:port``; a text may hold several
    with commas.

    Raises ArgumentValueError.
    """
    nodes: list[Node] = []
    for text in (one.strip() for several in servers for one in several.split(",")):
        if not text:
            continue
        match = _ADDRESS.fullmatch(text)
        if match is None or not 0 < int(match["port"]) <= 0xFFFF:
            raise refusal("server", text, "host:port")
        nodes.append(Node(-1 - len(nodes), match["six"] or match["host"], int(match["port"])))
    if not nodes:
        raise refusal("bootstrap servers", list(servers), "at least one host:port")
    return nodes


@dataclass(slots=True)
class _Topic:
    topic_id: bytes = bytes(16)
    error: ErrorCode | None = None
    internal: bool = False
    count: int = 0
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)  # partition: (id, epoch)
    older: dict[int, int] = field(default_factory=dict)  # partition: answers with an older epoch


class ClusterMetadata:
    """The metadata of a cluster, for its client's loop. ``close`` ends what it does there."""

    def __init__(
        self,
        client: ConsumerNetworkClient,
        bootstrap: Sequence[Node],
        *,
        max_age_ms: float = 300_000,
        retry_backoff_ms: float = 100,
        allow_auto_topic_creation: bool = True,
    ) -> None:
        self.client = client
        self.bootstrap = list(bootstrap)
        self.max_age_ms = max_age_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.cluster_id: str | None = None
        #: requests that were sent, and the latest of them that has an answer: what changed after a
        #: request was sent need not be in its answer
        self.asked = self.answered = 0
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[int, Node] = {}
        self._topics: dict[str, _Topic] = {}
        self._followed: dict[str, None] = {}
        self._all = False
        self._listeners: list[Callable[[], None]] = []
        self._wanted = False
        self._task: asyncio.Task[None] | None = None
        self._aged: asyncio.TimerHandle | None = None
        self._last_s = float("-inf")
        self._closed = False

    # --- what is known

    def follow(self, topic: str) -> None:
        """Add a topic to the metadata requests, and send one if it is unknown; does not wait."""
        if topic not in self._followed:
            self._followed[topic] = None
            if topic not in self._topics:
                self.request_update()

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0: unknown."""
        known = self._topics.get(topic)
        return known.count if known is not None else 0

    def leader(self, topic: str, partition: int) -> Node | None:
        """Return the leader of a partition; None: not known."""
        known = self._topics.get(topic)
        return (
            self._nodes.get(known.leaders.get(partition, (-1, -1))[0])
            if known is not None
            else None
        )

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the epoch of that leader; -1: not known."""
        known = self._topics.get(topic)
        return known.leaders.get(partition, (-1, -1))[1] if known is not None else -1

    def topic_id(self, topic: str) -> bytes:
        """Return the topic id, 16 bytes; zeros where the brokers have none or it is not known."""
        known = self._topics.get(topic)
        return known.topic_id if known is not None else bytes(16)

    def nodes(self) -> list[Node]:
        """Return the brokers of the last answer; before the first: the bootstrap addresses."""
        return list(self._nodes.values()) or list(self.bootstrap)

    def node(self, node_id: int) -> Node | None:
        """Return the broker of that id."""
        return self._nodes.get(node_id)

    def error(self, topic: str) -> ErrorCode | None:
        """Return the error of a topic in the last answer, None after success."""
        known = self._topics.get(topic)
        return known.error if known is not None else None

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Add a function that is called after each change."""
        self._listeners.append(listener)

    def leader_is(
        self,
        topic: str,
        partition: int,
        node_id: int,
        leader_epoch: int,
        endpoint: tuple[str, int] | None = None,
    ) -> bool:
        """Take a leader from another response (CurrentLeader, NodeEndpoints: KIP-951).

        Return whether it was new.
        """
        known = self._topics.get(topic)
        if known is None or node_id < 0 or leader_epoch <= self.leader_epoch(topic, partition):
            return False
        if endpoint is not None:
            self._nodes[node_id] = Node(node_id, *endpoint)
        if node_id not in self._nodes:
            return False
        known.leaders[partition] = (node_id, leader_epoch)
        self._changed()
        return True

    # --- asking

    async def update(self, topics: Iterable[str] | None = None, timeout_ms: float = 60_000) -> None:
        """Ask until there is an answer: for these topics, or for those that are followed.

        Raises RequestTimeoutError, or at once what does not pass by itself (AuthenticationError,
        ClosedError …).
        """
        await self._update(None if topics is None else list(topics), timeout_ms)

    async def _update(
        self, topics: list[str] | None, timeout_ms: float, every: bool = False
    ) -> None:
        async def ask(node: Node) -> None:
            try:
                await self._ask(node, topics, every)
            except ProtocolError as error:  # another broker may answer as it should
                raise DisconnectError(str(error)) from error

        where = ", ".join(f"{node.host}:{node.port}" for node in self.nodes())
        await self.ask_any(ask, timeout_ms, f"no metadata from {where}")

    async def ask_any(
        self, ask: Callable[[Node], Awaitable[T]], timeout_ms: float, failure: str
    ) -> T:
        """Ask one broker after the other until one answers: those known, else the bootstrap
        addresses again.

        Raises RequestTimeoutError with ``failure`` and the last reason, or at once what does not
        pass by itself.
        """
        timer = Timer(timeout_ms)
        last: Exception | None = None
        while not timer.expired:
            find, is_unavailable = self.client.least_loaded_node, self.client.is_unavailable
            known = [node for node in self._nodes.values() if not is_unavailable(node)]
            node = find(known) or find(self.bootstrap)
            if node is not None:
                try:
                    async with asyncio.timeout(timer.remaining_ms / 1000):
                        return await ask(node)
                except NetworkError as error:
                    if not error.retriable:
                        raise
                    last = error
                    log.debug("%s: %s", node, error)
                except TimeoutError as error:
                    last = last or error
            await asyncio.sleep(min(self.retry_backoff_ms, timer.remaining_ms) / 1000)
        reason = f": {last}" if last is not None and str(last) else ""
        raise RequestTimeoutError(f"{failure} in {shown_ms(timeout_ms)}{reason}") from last

    async def _ask(self, node: Node, topics: list[str] | None, every: bool) -> None:
        every = every or (topics is None and self._all)
        names = (
            None
            if every
            else [MetadataRequestTopic(name=name) for name in topics or self._followed]
        )
        create = self.allow_auto_topic_creation and not every

        def make(version: int) -> MetadataRequest:
            creating = create or version < _CREATION_FROM
            return MetadataRequest(names, allow_auto_topic_creation=creating, api_version=version)

        self._last_s = self._loop.time()
        self.asked += 1
        number = self.asked
        answer: MetadataResponse = (
            await self.client.send(node, Build(MetadataRequest.api_key, _VERSIONS, make))
        ).response
        _check(answer)
        self._take(answer, every, number)

    def _take(self, answer: MetadataResponse, every: bool, number: int) -> None:
        self.cluster_id = answer.cluster_id
        if answer.brokers:  # none: a broker that has just started knows of nobody yet
            self._nodes = {
                one.node_id: Node(one.node_id, one.host, one.port) for one in answer.brokers
            }
        for topic in answer.topics:
            if topic.name is not None:
                self._take_topic(topic.name, topic)
        if every:
            there = {topic.name for topic in answer.topics}
            for name in [
                name for name in self._topics if name not in there and name not in self._followed
            ]:
                del self._topics[name]
        self.answered = max(self.answered, number)
        self._age()
        self._changed()

    def _age(self) -> None:
        """Ask again when what is known is ``max_age_ms`` old."""
        if not self._closed:
            if self._aged is not None:
                self._aged.cancel()
            self._aged = self._loop.call_later(self.max_age_ms / 1000, self.request_update)

    def _take_topic(self, name: str, topic_metadata: MetadataResponseTopic) -> None:
        before = self._topics.get(name)
        code = topic_metadata.error_code
        error = (
            ErrorCode(code)
            if code in ErrorCode.__members__.values()
            else ErrorCode.UNKNOWN_SERVER_ERROR
        )
        known = _Topic(
            topic_metadata.topic_id,
            None if code == ErrorCode.NONE else error,
            topic_metadata.is_internal,
        )
        if known.error is not None and not topic_metadata.partitions:
            if before is not None and known.error not in _GONE:
                before.error = known.error  # for the moment nobody can say more
                return
            self._topics[name] = known
            return
        same = before is not None and before.topic_id == known.topic_id
        known.count = max((one.partition_index + 1 for one in topic_metadata.partitions), default=0)
        for one in topic_metadata.partitions:
            number, leader = one.partition_index, (one.leader_id, one.leader_epoch)
            if (
                same
                and before is not None
                and one.leader_epoch < before.leaders.get(number, (-1, -1))[1]
                and (older := before.older.get(number, 0)) < _MAX_OLDER
            ):
                leader = before.leaders[number]
                known.older[number] = older + 1
            known.leaders[number] = leader
        self._topics[name] = known

    def _changed(self) -> None:
        for listener in list(self._listeners):
            try:
                listener()
            except Exception:
                log.exception("a listener of metadata failed")

    async def wait_for(self, topic: str, timeout_ms: float = 60_000) -> int:
        """Follow a topic, wait until its partitions are known, and return their number.

        Raises AuthorizationError or BrokerError at once where the topic may not be seen or cannot
        be; after the time UnknownTopicOrPartitionError where brokers do not know it,
        RequestTimeoutError where none answered.
        """
        self._followed.setdefault(topic)
        timer = Timer(timeout_ms)
        failure: NetworkError | None = None
        while not self.partitions(topic):
            try:
                await self._update([topic], timer.remaining_ms)
            except RequestTimeoutError:
                if failure is None:
                    raise
                raise failure from None
            error = self.error(topic)
            if error is not None:
                failure = broker_error(error, f"topic {topic}")
                if not failure.retriable:
                    raise failure
            if not self.partitions(topic):
                await asyncio.sleep(self.retry_backoff_ms / 1000)
        return self.partitions(topic)

    async def matching(
        self, pattern: str | re.Pattern[str], timeout_ms: float = 60_000
    ) -> list[str]:
        """Return the topics whose whole names match, without internal ones; follow none of them."""
        compiled = re.compile(pattern)
        await self._update(None, timeout_ms, every=True)
        return sorted(
            name
            for name, known in self._topics.items()
            if known.count and not known.internal and compiled.fullmatch(name)
        )

    def request_update(self) -> None:
        """Ask soon, in the background, until there is an answer. Does not wait."""
        if self._closed:
            return
        self._wanted = True
        if self._task is None:
            self._task = self._loop.create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            while self._wanted and not self._closed:
                wait = self._last_s + self.retry_backoff_ms / 1000 - self._loop.time()
                await asyncio.sleep(max(0.0, wait))
                self._wanted = False
                if not self._followed and not self._all:
                    break
                try:
                    await self._update(None, 60_000)
                except RequestTimeoutError:
                    self._wanted = True
                if any(self._is_unsettled(topic) for topic in self._followed):
                    self._wanted = True
        except Exception as error:  # refused for good: callers get it from their own requests
            log.warning("metadata is not refreshed: %s", error)
            self._age()
        finally:
            self._task = None

    def _is_unsettled(self, topic: str) -> bool:
        """Return whether to request again: a leader is being elected, or the topic created."""
        known = self._topics.get(topic)
        if known is None:
            return True
        if known.error is not None:
            return broker_error(known.error, topic).retriable
        return any(leader < 0 for leader, _ in known.leaders.values())

    def close(self) -> None:
        """Stop all requests."""
        self._closed = True
        if self._aged is not None:
            self._aged.cancel()
        if self._task is not None:
            self._task.cancel()


def _check(answer: MetadataResponse) -> None:
    """Check that an answer can be a cluster's, before anything of it is taken.

    Raises InvalidAnswerError: another broker may answer as it should.
    """
    for topic in answer.topics:
        numbers = [one.partition_index for one in topic.partitions]
        if sorted(numbers) != list(range(len(numbers))):
            raise InvalidAnswerError(
                f"the {len(numbers)} partitions of topic {topic.name} are not 0 to "
                f"{len(numbers) - 1}: {str(numbers)[:100]}"
            )
