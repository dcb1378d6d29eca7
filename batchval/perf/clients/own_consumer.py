"""batchval's own consumer as a client to be measured: of perf consume, where a native thread counts
records and Python reads its counts, and of perf roundtrip.

Each consumer has its event loop. A poll runs the loop, which has heartbeats and what the native
thread leaves to Python (batchval.fetch.streams); with TLS all batches come through the loop.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Collection, Coroutine, Iterable
from itertools import groupby
from typing import Any, Final, TypeVar

from batchval.core.fetched import Fetched, walk_fetched
from batchval.errors import BatchvalError
from batchval.fetch import Consumer, ConsumerOptions, FetchedBatches, TopicPartition
from batchval.fetch.receiver import Quota
from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata, bootstrap_nodes
from batchval.network.errors import AuthenticationError, NetworkError, RequestTimeoutError
from batchval.network.loops import loop_factory
from batchval.perf.clients.kafka_metrics import Metrics, Rebalances, average, named
from batchval.perf.consume import MAX_RECORDS, ConsumeError, Polled

__all__ = ["OwnConsumer", "OwnReader", "partitions_of"]

METADATA_MS = 10_000
OPEN_MS: Final = 10_000
#: What has come is walked before more is read, while it is in the processor's cache; so much of it
#: makes a poll.
POLL_BYTES = 8 << 20
MORE_MS = 2
USED_UP_S = 0.005


def partitions_of(
    options: ConsumerOptions, topic: str | None, include: str | None
) -> list[tuple[str, int]]:
    """Return the partitions of the topic, or of all topics whose whole name matches ``include``
    (internal ones left out).

    Raises ConsumeError: no broker, no such topic, no permission, no match.
    """
    loop = loop_factory()()
    servers = ",".join(options.bootstrap_servers)
    try:
        return loop.run_until_complete(_partitions_of(options, topic, include))
    except RequestTimeoutError as error:
        raise ConsumeError(f"no broker answers at {servers}: {error}") from None
    except AuthenticationError as error:
        raise ConsumeError(f"refused: {error}") from None
    except (NetworkError, ValueError) as error:
        raise ConsumeError(str(error)) from None
    finally:
        loop.close()


async def _partitions_of(
    options: ConsumerOptions, topic: str | None, include: str | None
) -> list[tuple[str, int]]:
    async with ConsumerNetworkClient(options.client_options()) as client:
        nodes = bootstrap_nodes(options.bootstrap_servers)
        metadata = ClusterMetadata(client, nodes, allow_auto_topic_creation=False)
        try:
            if topic is not None:
                return [(topic, i) for i in range(await metadata.wait_for(topic, METADATA_MS))]
            names = await metadata.matching(re.compile(include or ""), METADATA_MS)
            if not names:
                raise ConsumeError(f"no topic matches {include!r}")
            return [(name, i) for name in names for i in range(metadata.partitions(name))]
        finally:
            metadata.close()


T = TypeVar("T")


class _OnItsLoop:
    """A consumer with its own loop, which runs in the thread that polls."""

    def __init__(self, options: ConsumerOptions) -> None:
        self._options = options
        self._loop = loop_factory()()
        self._consumer: Consumer | None = None
        self._last_error = ""

    def _run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return its result, or None where it met what passes by itself. ConsumeError."""
        try:
            return self._loop.run_until_complete(work)
        except AuthenticationError as error:
            raise ConsumeError(f"refused: {error}") from None
        except NetworkError as error:
            if not error.retriable:
                raise ConsumeError(str(error)) from None
            self._last_error = str(error)
            return None
        except BatchvalError as error:
            raise ConsumeError(str(error)) from None

    def last_error(self) -> str:
        """Return the last error, empty without one."""
        return self._last_error

    def close(self) -> None:
        """Leave the group, if it is in one, and end all connections."""
        try:
            if self._consumer is not None:
                self._run(self._consumer.close())
        finally:
            self._loop.close()


class OwnConsumer(_OnItsLoop):
    """One consumer of the group, for one thread. Made in that thread or another; its loop runs
    where it is polled.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        topics: Collection[str],
        decode: str,
        quota: Quota | None = None,
    ) -> None:
        super().__init__(options)
        self._topics = list(topics)
        self._decode = decode
        self._quota = quota  # records of all threads that are still wanted
        self._check_crcs = options.check_crcs
        self._assigned: frozenset[tuple[str, int]] | None = None
        self._going = False
        self._rebalances = Rebalances()
        self._records = self._bytes = self._polls = 0
        self._lag_max = math.nan
        self._going_ns = 0
        self._failure: Exception | None = None

    def subscribe(self) -> None:
        """Start to join the group."""
        self._rebalances.begin()
        self._run(self._subscribe())

    async def _subscribe(self) -> None:
        self._consumer = Consumer(self._options)
        await self._consumer.__aenter__()
        self._consumer.count_only(self._decode, self._quota)
        self._consumer.subscribe(
            self._topics, on_assigned=self._on_assigned, on_revoked=self._on_revoked
        )

    def _on_assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        assigned = frozenset((topic, number) for topic, number in partitions)
        self._assigned = assigned
        if not self._going and self._consumer is not None:
            self._consumer.pause(*sorted(assigned))
        self._rebalances.end()

    def _on_revoked(self, _: Iterable[tuple[str, int]]) -> None:
        self._assigned = None
        self._rebalances.begin()

    def assignment(self) -> frozenset[tuple[str, int]] | None:
        """Return its partitions; None while it has none from the group."""
        return self._assigned

    def go(self) -> None:
        """Resume the assigned partitions."""
        self._going = True
        self._going_ns = time.monotonic_ns()
        if self._consumer is not None and self._assigned:
            self._consumer.resume(*sorted(self._assigned))

    def poll(self, timeout_ms: int, most: int) -> Polled:
        """Return what a native thread has counted, and the counts of all other batches."""
        return self._run(self._poll(timeout_ms, most)) or Polled(0, 0)

    async def _poll(self, timeout_ms: int, most: int) -> Polled:
        assert self._consumer is not None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        records = nbytes = taken = last_ns = 0
        while records < most and taken < POLL_BYTES:
            try:
                counted, came = await self._consumer.poll_counts(timeout_ms)
            except Exception as error:
                if not records:
                    raise
                self._failure = error  # what has come is counted first
                break
            if counted is not None:
                records += counted.records
                nbytes += counted.bytes
                if counted.lag >= 0:
                    self._lagged(counted.lag)
                last_ns = max(last_ns, counted.last_ns)
            if not came:
                break
            timeout_ms = MORE_MS
            for fetched in came:
                walked = self._walked(fetched)
                some = walked.records if self._quota is None else self._quota.take(walked.records)
                size = walked.wire_bytes if self._decode == "headers" else walked.key_value_bytes
                records += some
                nbytes += size * some // max(walked.records, 1)
                taken += walked.wire_bytes
                last_ns = time.monotonic_ns()
                self._lagged(fetched.high_watermark - fetched.next_offset)
            del came, fetched  # their memory is read into next
        self._polls += 1
        self._records += records
        self._bytes += nbytes
        if not records and self._quota is not None and self._quota.remaining <= 0:
            await asyncio.sleep(USED_UP_S)  # other threads have what is not counted yet
        return Polled(records, nbytes, last_ns or None)

    def _walked(self, fetched: FetchedBatches) -> Fetched:
        try:
            return walk_fetched(
                fetched.records, fetched.fetch_offset, self._decode, self._check_crcs
            )
        except BatchvalError as error:
            raise ConsumeError(f"{fetched.topic}-{fetched.partition}: {error}") from None

    def _lagged(self, records: int) -> None:
        self._lag_max = records if math.isnan(self._lag_max) else max(records, self._lag_max)

    def rebalance_ms(self) -> float:
        """Return the duration of all joins until now, the current one included."""
        return self._rebalances.ms()

    def metrics(self) -> Metrics:
        """Return what the consumer counted, by Kafka's names."""
        client_id = str(self._options.client_id)
        found = self._rebalances.metrics(client_id, len(self._assigned or ()))
        if self._consumer is None:
            return found
        counted = self._consumer.metrics
        seconds = (time.monotonic_ns() - self._going_ns) / 1e9 if self._going else 0.0
        group = {"heartbeat-total": counted.heartbeats, "commit-total": counted.commits}
        fetch = {
            "bytes-consumed-rate": average(self._bytes, seconds),
            "bytes-consumed-total": self._bytes,
            "fetch-latency-avg": average(counted.fetch_latency_ms, counted.answers),
            "fetch-latency-max": counted.fetch_latency_ms_max if counted.answers else math.nan,
            "fetch-rate": average(counted.requests, seconds),
            "fetch-size-avg": average(counted.bytes, counted.answers),
            "fetch-total": counted.requests,
            "records-consumed-rate": average(self._records, seconds),
            "records-consumed-total": self._records,
            "records-lag-max": self._lag_max,
            "records-per-request-avg": average(self._records, counted.answers),
        }
        found |= named("consumer-coordinator-metrics", group, client_id)
        found |= named("consumer-fetch-manager-metrics", fetch, client_id)
        return found | named("batchval-consumer-metrics", {"poll-total": self._polls}, client_id)


class OwnReader(_OnItsLoop):
    """A consumer of given partitions, from their ends on."""

    def __init__(self, options: ConsumerOptions, topic: str, partitions: list[int]) -> None:
        super().__init__(options)
        self._partitions = [(topic, number) for number in partitions]
        self._final: dict[TopicPartition, int] | None = None  # ends, once all was produced

    def open(self) -> None:
        """Take the partitions at their ends. ConsumeError."""
        if self._run(self._open()) is None:
            raise ConsumeError(self._last_error)

    async def _open(self) -> bool:
        self._consumer = consumer = Consumer(self._options)
        await consumer.__aenter__()
        consumer.assign(self._partitions)
        ends = await consumer.offsets_for(dict.fromkeys(self._partitions, "latest"), OPEN_MS)
        for partition, end in ends.items():
            await consumer.seek(partition, end)
        return True

    def poll(self, timeout_ms: int) -> list[tuple[int, list[bytes | None]]]:
        """Return values by partition, at most 500. ConsumeError."""
        assert self._consumer is not None
        came = self._run(self._consumer.poll(timeout_ms, MAX_RECORDS)) or []
        return [
            (partition, [record.value for record in records])
            for partition, records in groupby(came, lambda record: record.partition)
        ]

    def at_end(self) -> bool:
        """Return whether every position is at the end that its partition had at the first call."""
        return bool(self._run(self._at_end()))

    async def _at_end(self) -> bool:
        assert self._consumer is not None
        if self._final is None:
            wanted = dict.fromkeys(self._partitions, "latest")
            self._final = await self._consumer.offsets_for(wanted, OPEN_MS)
        return all(
            (self._consumer.position(partition) or 0) >= end
            for partition, end in self._final.items()
        )
