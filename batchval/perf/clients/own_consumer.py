"""batchval's own consumer to be measured: raw batches from the socket, walked by the core without the GIL.

Each thread has its event loop, its connections and its share of the partitions (as the range assignor would give them;
no group is joined, so nothing is rebalanced). The next Fetch is on its way before the last answer is walked. A poll
runs the loop until an answer has come.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError, ErrorCode
from batchval.network.client import ClientOptions, ConsumerNetworkClient
from batchval.network.errors import AuthenticationError, NetworkError, RequestTimeoutError, broker_error
from batchval.network.metadata import ClusterMetadata, bootstrap_nodes
from batchval.network.network_client import NetworkOptions
from batchval.network.options import ConnectionOptions
from batchval.network.request import Build, Node
from batchval.network.security import Security
from batchval.perf.consume import ConsumeError, Polled
from batchval.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from batchval.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

__all__ = ["OwnConsumer", "OwnOptions", "partitions_of", "shares"]

TopicPartition = tuple[str, int]
ResultT = TypeVar("ResultT")

METADATA_MS = 10_000
BACKOFF_S = 0.1
EARLIEST, LATEST = -2, -1
_BY_NAME = (4, 12)  # from 13 on Fetch names topics by their ids


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOptions:
    """Of all threads of a run. Sizes in bytes, times in milliseconds."""

    servers: str
    security: Security
    from_latest: bool = False
    fetch_size: int = 1_048_576
    fetch_max_bytes: int = (
        8_388_608  # not Kafka's 50 MiB: fresh memory for frames of that size costs more than it saves
    )
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    receive_buffer_bytes: int | None = None
    isolation_level: int = 0
    decode: str = "records"
    check_crcs: bool = False

    def client(self) -> ConsumerNetworkClient:
        """Connections as these options want them. Called in a running loop."""
        connection = ConnectionOptions(
            ssl=self.security.ssl_context,
            client_id="perf-consumer",
            receive_buffer_bytes=self.receive_buffer_bytes,
        )
        network = NetworkOptions(connection=connection, authenticate=self.security.authenticate)
        return ConsumerNetworkClient(ClientOptions(network=network))

    def metadata(self, client: ConsumerNetworkClient) -> ClusterMetadata:
        """What is known of the cluster; no topic is made by asking for it."""
        return ClusterMetadata(client, bootstrap_nodes([self.servers]), allow_auto_topic_creation=False)


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is there."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _completed(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, ResultT], servers: str) -> ResultT:
    """Runs it, and makes one sentence of what a network can say."""
    try:
        return loop.run_until_complete(coroutine)
    except RequestTimeoutError as error:
        raise ConsumeError(f"no broker answers at {servers}: {error}") from None
    except AuthenticationError as error:
        raise ConsumeError(f"refused: {error}") from None
    except (NetworkError, ValueError) as error:
        raise ConsumeError(str(error)) from None


def partitions_of(options: OwnOptions, topic: str | None, include: str | None) -> list[TopicPartition]:
    """The partitions of the topic, or of all topics whose whole name matches ``include`` (internal ones left out).

    Raises ConsumeError: no broker, no such topic, no permission, no match.
    """
    loop = new_loop()
    try:
        return _completed(loop, _partitions_of(options, topic, include), options.servers)
    finally:
        loop.close()


async def _partitions_of(options: OwnOptions, topic: str | None, include: str | None) -> list[TopicPartition]:
    async with options.client() as client:
        metadata = options.metadata(client)
        try:
            if topic is not None:
                return [(topic, i) for i in range(await metadata.wait_for(topic, METADATA_MS))]
            names = await metadata.matching(re.compile(include or ""), METADATA_MS)
            if not names:
                raise ConsumeError(f"no topic matches {include!r}")
            return [(name, i) for name in names for i in range(metadata.partitions(name))]
        finally:
            metadata.close()


def shares(partitions: Sequence[TopicPartition], threads: int) -> list[list[TopicPartition]]:
    """Each thread's part: runs of neighbours, the first threads with one more where it does not come out even."""
    each, more = divmod(len(partitions), threads)
    found, at = [], 0
    for i in range(threads):
        size = each + (i < more)
        found.append(list(partitions[at : at + size]))
        at += size
    return found


class OwnConsumer:
    """The consumer of one thread, with a fixed share of the partitions."""

    def __init__(self, options: OwnOptions, share: Collection[TopicPartition]) -> None:
        self._options = options
        self._share = list(share)
        self._loop = new_loop()
        self._client: ConsumerNetworkClient | None = None
        self._metadata: ClusterMetadata | None = None
        self._offsets: dict[TopicPartition, int] = {}
        self._under_way: dict[asyncio.Task[FetchResponse], Node] = {}
        self._ready = False
        self._going = False
        self._setup_ms = 0.0
        self._not_before: dict[Node, float] = {}
        self._said = ""
        self._requests = self._batches = self._bytes = 0

    # --- the beginning

    def subscribe(self) -> None:
        """Finds leaders and offsets."""
        began = time.monotonic_ns()
        _completed(self._loop, self._subscribe(), self._options.servers)
        self._setup_ms = (time.monotonic_ns() - began) / 1e6

    async def _subscribe(self) -> None:
        self._client = self._options.client()
        self._metadata = self._options.metadata(self._client)
        for topic in sorted({topic for topic, _ in self._share}):
            await self._metadata.wait_for(topic, METADATA_MS)
        await self._list_offsets(self._share, LATEST if self._options.from_latest else EARLIEST)
        self._ready = True

    async def _list_offsets(self, partitions: Collection[TopicPartition], when: int) -> None:
        """Where to begin. Leaders that are not known or not there yet are asked again for ten seconds."""
        client, metadata = self._both()
        wanted = set(partitions)
        deadline = self._loop.time() + METADATA_MS / 1000
        last: NetworkError = RequestTimeoutError(f"no offsets in {METADATA_MS} ms")
        while wanted:
            for node, tps in self._by_leader(wanted).items():
                request = Build(2, (1, 6), partial(_offsets_request, tps, when, self._options.isolation_level))
                try:
                    answer = (await client.send(node, request)).response
                except NetworkError as error:
                    if not error.retriable:
                        raise
                    last = error
                    continue
                for topic in answer.topics:
                    for one in topic.partitions:
                        if one.error_code == ErrorCode.NONE:
                            self._offsets[topic.name, one.partition_index] = one.offset
                            wanted.discard((topic.name, one.partition_index))
                            continue
                        last = broker_error(one.error_code, f"{topic.name}-{one.partition_index}")
                        if not last.retriable:
                            raise last
            if wanted:
                if self._loop.time() > deadline:
                    raise last
                metadata.request_update()
                await asyncio.sleep(BACKOFF_S)

    def _both(self) -> tuple[ConsumerNetworkClient, ClusterMetadata]:
        assert self._client is not None
        assert self._metadata is not None
        return self._client, self._metadata

    def _by_leader(self, partitions: Collection[TopicPartition]) -> dict[Node, list[TopicPartition]]:
        _, metadata = self._both()
        found: defaultdict[Node, list[TopicPartition]] = defaultdict(list)
        for topic, number in partitions:
            node = metadata.leader(topic, number)
            if node is not None:
                found[node].append((topic, number))
        return found

    def assignment(self) -> list[TopicPartition] | None:
        """Its share, once offsets are known."""
        return self._share if self._ready else None

    def go(self) -> None:
        """Fetches from now on."""
        self._going = True

    # --- fetching

    def poll(self, timeout_ms: int, most: int) -> Polled:
        """What has come from the leaders; whole answers, so it may be more than ``most``."""
        answers = _completed(self._loop, self._answers(timeout_ms / 1000), self._options.servers)
        records = nbytes = 0
        for at, data in answers:
            counted = self._walked(at, data, self._options.decode, self._options.check_crcs)
            records += counted.records
            nbytes += counted.wire_bytes if self._options.decode == "headers" else counted.key_value_bytes
            self._batches += counted.batches
        return Polled(records, nbytes)

    def _walked(self, at: tuple[str, int, int], data: Any, decode: str, check_crcs: bool) -> Any:
        topic, number, offset = at
        try:
            return walk_fetched(data, offset, decode, check_crcs)
        except BatchvalError as error:
            raise ConsumeError(f"{topic}-{number} at offset {offset}: {error}") from None

    async def _answers(self, timeout_s: float) -> list[tuple[tuple[str, int, int], Any]]:
        if not self._going:
            await asyncio.sleep(timeout_s)
            return []
        self._ask()
        if not self._under_way:
            await asyncio.sleep(min(timeout_s, BACKOFF_S))
            return []
        done, _ = await asyncio.wait(self._under_way, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        found: list[tuple[tuple[str, int, int], Any]] = []
        again: list[TopicPartition] = []
        for task in done:
            node = self._under_way.pop(task)
            try:
                self._take(task.result(), found, again)
            except NetworkError as error:
                if not error.retriable:
                    raise
                self._complain(node, error)
        if again:
            await self._list_offsets(again, LATEST if self._options.from_latest else EARLIEST)
        self._ask()
        await asyncio.sleep(0)  # the next requests go out before these answers are walked
        await asyncio.sleep(0)
        return found

    def _complain(self, node: Node, error: NetworkError) -> None:
        _, metadata = self._both()
        self._said = str(error)
        self._not_before[node] = self._loop.time() + BACKOFF_S
        metadata.request_update()

    def _ask(self) -> None:
        """A Fetch to each leader that has none under way and may be asked now."""
        busy = set(self._under_way.values())
        now = self._loop.time()
        for node, tps in self._by_leader(self._share).items():
            if node not in busy and self._not_before.get(node, 0.0) <= now:
                self._under_way[self._loop.create_task(self._fetch(node, tps))] = node
                self._requests += 1

    async def _fetch(self, node: Node, partitions: Sequence[TopicPartition]) -> FetchResponse:
        client, _ = self._both()
        offsets = {at: self._offsets[at] for at in partitions}
        build = Build(1, _BY_NAME, partial(_fetch_request, self._options, offsets))
        answer: FetchResponse = (await client.send(node, build)).response
        return answer

    def _take(
        self, answer: FetchResponse, found: list[tuple[tuple[str, int, int], Any]], again: list[TopicPartition]
    ) -> None:
        """Moves the offsets past what came; the walk itself comes later."""
        if answer.error_code:
            raise broker_error(answer.error_code, "fetch")
        for topic in answer.responses:
            for part in topic.partitions:
                at = (topic.topic, part.partition_index)
                if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    again.append(at)
                elif part.error_code:
                    error = broker_error(part.error_code, f"topic {at[0]}, partition {at[1]}")
                    if not error.retriable:
                        raise error
                    self._said = str(error)
                    self._both()[1].request_update()
                elif part.records:
                    offset = self._offsets[at]
                    self._offsets[at] = self._walked((*at, offset), part.records, "headers", False).next_offset
                    self._bytes += len(part.records)
                    self._share.remove(at)  # to the end of the line: a broker fills an answer from the front
                    self._share.append(at)
                    found.append(((*at, offset), part.records))

    # --- the end

    def rebalance_ms(self) -> float:
        """The time until leaders and offsets were known; no group is joined."""
        return self._setup_ms

    def metrics(self) -> Mapping[str, float | str]:
        """What was counted."""
        return {
            "consumer-fetch-manager-metrics:batches-total": self._batches,
            "consumer-fetch-manager-metrics:bytes-total": self._bytes,
            "consumer-fetch-manager-metrics:fetch-total": self._requests,
            "consumer-coordinator-metrics:rebalance-total": 0,
        }

    def last_error(self) -> str:
        """What did not work last; empty if all did."""
        return self._said

    def close(self) -> None:
        """Closes the connections."""
        try:
            self._loop.run_until_complete(self._close())
        finally:
            self._loop.close()

    async def _close(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._metadata is not None:
            self._metadata.close()
        if self._client is not None:
            self._client.close()


def _offsets_request(
    partitions: Sequence[TopicPartition], when: int, isolation_level: int, version: int
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(ListOffsetsPartition(partition_index=number, timestamp=when))
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level if version >= 2 else 0,
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        api_version=version,
    )


def _fetch_request(options: OwnOptions, offsets: Mapping[TopicPartition, int], version: int) -> FetchRequest:
    topics: dict[str, list[FetchPartition]] = defaultdict(list)
    for (topic, number), offset in offsets.items():
        topics[topic].append(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=options.fetch_size)
        )
    return FetchRequest(
        max_wait_ms=options.fetch_max_wait_ms,
        min_bytes=options.fetch_min_bytes,
        max_bytes=max(options.fetch_max_bytes, options.fetch_size),
        isolation_level=options.isolation_level,
        topics=[FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
        api_version=version,
    )
