"""A run of ``batchval perf roundtrip``: all topics of a workload at once, produced and consumed in
one process.

All clients are connected, and all consumers have their partitions, before the first schedule
begins. Producers end with their schedule and its answers; consumers end when they have read what
was acknowledged, or when nothing has come for the timeout.

    open_clients    the clients by name, with their properties
    partitions_of   the topics, made where that is asked for
    RoundtripRun    the run of all topics; TopicRun has the part of one topic
    GroupCheck      whether a group has read each record of a topic once, in the order of its
                    partition
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from batchval.errors import ErrorCode
from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata, bootstrap_nodes
from batchval.network.errors import (
    AuthenticationError,
    NetworkError,
    RequestTimeoutError,
    UnsupportedVersionError,
    broker_error,
)
from batchval.network.loops import loop_factory
from batchval.network.request import Build
from batchval.network.security import PROPERTIES as SECURITY
from batchval.network.security import Security
from batchval.perf import properties
from batchval.perf.clients import producers
from batchval.perf.consume import ConsumeError
from batchval.perf.histogram import Histogram, now_ns
from batchval.perf.produce import (
    INTERVAL_PERCENTILES,
    OnBatch,
    OnWire,
    PerfProducer,
    ProduceError,
    ProduceRun,
    ProduceSettings,
)
from batchval.perf.producer_lines import Window
from batchval.perf.properties import CONSUMER, PRODUCER
from batchval.perf.roundtrip_record import HEADER, SizedLetters, heads_of, with_headers
from batchval.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from batchval.fetch import ConsumerOptions
    from batchval.perf.tally import ClientRoundTrips
    from batchval.perf.workload import Topic, Workload

__all__ = [
    "Clients",
    "Figures",
    "GroupCheck",
    "NotBegunError",
    "Numbers",
    "OpenClients",
    "Reader",
    "RoundtripRun",
    "Start",
    "TopicRun",
    "open_clients",
    "partitions_of",
]

_BLOCK: Final = 4096


class Numbers:
    """Numbers of one producer that have been seen.

    A block of 4,096 numbers takes as many bytes until all of them have been seen, then one entry of
    a set.
    """

    def __init__(self) -> None:
        self.count = 0
        self._open: dict[int, Any] = {}
        self._full: set[int] = set()

    def add(self, numbers: Any) -> Any:
        """Return for each number whether it is new; of one that stands twice, the first is."""
        _, first = np.unique(numbers, return_index=True)
        is_new = np.zeros(len(numbers), bool)
        is_new[first] = True
        blocks, places = np.divmod(numbers, _BLOCK)
        for block in np.unique(blocks).tolist():
            chosen = np.flatnonzero((blocks == block) & is_new)
            is_new[chosen] = self._add(block, places[chosen])
        self.count += int(is_new.sum())
        return is_new

    def _add(self, block: int, places: Any) -> Any:
        if block in self._full:
            return np.zeros(len(places), bool)
        seen = self._open.setdefault(block, np.zeros(_BLOCK, bool))
        is_new = ~seen[places]
        seen[places] = True
        if seen.all():
            self._full.add(block)
            del self._open[block]
        return is_new

    def having(self, numbers: Any) -> int:
        """Return how many of these, each of which stands once, have been seen."""
        blocks, places = np.divmod(numbers, _BLOCK)
        found = 0
        for block in np.unique(blocks).tolist():
            chosen = places[blocks == block]
            if block in self._full:
                found += len(chosen)
            elif block in self._open:
                found += int(self._open[block][chosen].sum())
        return found


class GroupCheck:
    """The records of one topic that the consumers of one group have read. Each method is one step
    under a lock.

    A producer numbers its records over all partitions, so within a partition its numbers only grow.
    """

    def __init__(self, producers: int) -> None:
        self.doubled = self.reordered = 0
        self.foreign = 0  # records of others
        self._numbers = [Numbers() for _ in range(producers)]
        # (partition, producer): the highest number read
        self._highest: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    @property
    def read(self) -> int:
        """Return how many different records were read."""
        return sum(numbers.count for numbers in self._numbers)

    def add(self, partition: int, headers: Any, foreign: int = 0) -> Any:
        """Count what a poll has brought of a partition, and return for each header whether its
        record is new.

        ``foreign``: how many records of others came with them
        """
        is_new = np.zeros(len(headers), bool)
        with self._lock:
            self.foreign += foreign
            for producer in np.unique(headers["producer"]).tolist():
                chosen = np.flatnonzero(headers["producer"] == producer)
                is_new[chosen] = self._add(partition, producer, headers["number"][chosen])
        return is_new

    def _add(self, partition: int, producer: int, numbers: Any) -> Any:
        is_new = self._numbers[producer].add(numbers)
        before = np.maximum.accumulate(
            np.concatenate(([self._highest.get((partition, producer), -1)], numbers))
        )
        self._highest[partition, producer] = int(before[-1])
        self.doubled += int((~is_new).sum())
        self.reordered += int((is_new & (numbers < before[:-1])).sum())
        return is_new

    def lost(self, acked: int, failed: list[Any]) -> int:
        """Return how many acknowledged records were not read.

        ``failed``: for each producer the numbers of the records that were not acknowledged, which
        may have been stored all the same
        """
        with self._lock:
            unexpected = sum(
                mine.having(numbers) for mine, numbers in zip(self._numbers, failed, strict=True)
            )
            return max(0, acked - (self.read - unexpected))


_POLL_MS: Final = 100
_NEVER_MS: Final = 2**31 - 1
_SETTLE_NS: Final = 50_000_000


class NotBegunError(ProduceError):
    """Another client of the run could not be opened, or the run was interrupted before it began."""


class Reader(Protocol):
    """A consumer of some partitions, used by one thread."""

    def open(self) -> None:
        """Take the partitions at their ends: what is written later is read. ConsumeError."""

    def poll(self, timeout_ms: int) -> list[tuple[int, list[bytes | None]]]:
        """Return values by partition, in order; wait for the first no longer than this.
        ConsumeError for what does not pass by itself.
        """

    def at_end(self) -> bool:
        """Return whether everything that the partitions hold now was read."""

    def last_error(self) -> str:
        """Return what did not work last, or nothing."""

    def close(self) -> None:
        """End all connections."""


class Start(threading.Barrier):
    """The barrier at which clients wait until all are connected and all consumers have
    partitions.
    """

    def meet(self) -> None:
        """Return when all are there. NotBegunError where that cannot be any more."""
        try:
            self.wait()
        except threading.BrokenBarrierError:
            raise NotBegunError("the run did not begin") from None


@dataclass(slots=True)
class Figures:
    """Latencies from the intended instants, and the records and time that they belong to."""

    histogram: Histogram = field(default_factory=Histogram)
    value_bytes: int = 0
    begin_ns: int = 0
    end_ns: int = 0

    def add(self, other: Figures) -> None:
        """Add what another has, over the time from the first begin to the last end."""
        self.histogram.merge(other.histogram)
        self.value_bytes += other.value_bytes
        if other.begin_ns:
            self.begin_ns = min(self.begin_ns or other.begin_ns, other.begin_ns)
            self.end_ns = max(self.end_ns, other.end_ns)

    @property
    def elapsed_ns(self) -> int:
        return max(self.end_ns - self.begin_ns, 0)


class _Sending:
    """A producer of ``perf produce`` whose values get headers."""

    def __init__(self, client: PerfProducer, topic: TopicRun, number: int) -> None:
        self._client, self._topic, self._number = client, topic, number
        self.failed: list[Any] = []  # arrays of numbers
        self._on_batch: OnBatch

    @property
    def partitions(self) -> int:
        return self._client.partitions

    async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
        self._on_batch = on_batch
        await self._client.open(self._answered, on_wire)
        await asyncio.to_thread(self._topic.start.meet)

    def _answered(
        self, stamps: Any, error: str | None, value_bytes: int, wire_bytes: int | None
    ) -> None:
        if error is not None:
            self.failed.append(np.array(stamps, np.int64))
        self._on_batch(stamps, error, value_bytes, wire_bytes)

    def send(self, values: Any, stamps: Any) -> int:
        schedule = self._topic.producing.workers[self._number].schedule
        assert schedule is not None  # a workload has rates
        numbers = np.array(stamps, np.int64)
        headed = with_headers(
            self._topic.run_id, self._number, numbers, schedule.instants(numbers), values
        )
        return self._client.send(headed, stamps)

    async def wait_for_space(self) -> None:
        await self._client.wait_for_space()

    async def pause(self, seconds: float) -> None:
        await self._client.pause(seconds)

    async def flush(self) -> None:
        await self._client.flush()

    async def begin(self) -> None:
        await self._client.begin()

    async def commit(self) -> None:
        await self._client.commit()

    async def close(self) -> None:
        await self._client.close()

    def in_flight(self) -> tuple[Mapping[int, int], int, bool]:
        return self._client.in_flight()

    def waiting(self) -> int:
        return self._client.waiting()

    def round_trips(self) -> ClientRoundTrips | None:
        return self._client.round_trips()

    def metrics(self) -> Mapping[str, float | str]:
        return self._client.metrics()


class _Came(NamedTuple):
    """A poll's result for one partition: headers, sizes of their values, and when."""

    partition: int
    raw: bytes
    sizes: list[int]
    now_ns: int
    foreign: int


class _Reading:
    """A consumer's part, in a thread of its own."""

    def __init__(self, topic: TopicRun, check: GroupCheck, reader: Reader) -> None:
        self.topic, self.check, self.reader = topic, check, reader
        self.figures = Figures()
        self.last_ns = 0
        # what polls brought and was not looked at: that is done for many records at once
        self._waiting: list[_Came] = []
        self._waiting_ns = 0  # since when

    def run(self) -> None:
        """Read until everything that was acknowledged has come, or nothing comes any more."""
        try:
            self.reader.open()
            self.topic.start.meet()
            has_nothing = True
            while not self._is_over(has_nothing=has_nothing):
                came = self.reader.poll(_POLL_MS)
                now = now_ns()
                has_nothing = not came
                for partition, values in came:
                    raw, sizes = heads_of(self.topic.run_id, values)
                    self._waiting.append(
                        _Came(partition, raw, sizes, now, len(values) - len(sizes))
                    )
                if not self._waiting:
                    self._waiting_ns = now
                elif has_nothing or now - self._waiting_ns > _SETTLE_NS:
                    self._settle()
                    self._waiting_ns = now
            self._settle()
        finally:
            self.reader.close()

    def _settle(self) -> None:
        for partition in {one.partition for one in self._waiting}:
            self._count(partition, [one for one in self._waiting if one.partition == partition])
        self._waiting = []

    def _count(self, partition: int, parts: list[_Came]) -> None:
        topic = self.topic
        headers = np.frombuffer(b"".join([part.raw for part in parts]), HEADER)
        sizes = np.array([size for part in parts for size in part.sizes], np.int64)
        instants = np.repeat([part.now_ns for part in parts], [len(part.sizes) for part in parts])
        known = (headers["producer"] < topic.topic.producers) & (headers["number"] >= 0)
        known &= headers["number"] < topic.records
        headers, sizes, instants = headers[known], sizes[known], instants[known]
        foreign = sum(part.foreign for part in parts) + int((~known).sum())
        is_new = self.check.add(partition, headers, foreign)
        if is_new.any():
            self.last_ns = int(instants[is_new].max())
        counted = is_new & (headers["number"] >= topic.warmup[headers["producer"]])
        if counted.any():
            # both are truncated to µs first, as all instants here
            latencies = instants[counted] // 1000 - headers["intended"][counted] // 1000
            self.figures.histogram.record_many(np.maximum(latencies, 0))
            self.figures.value_bytes += int(sizes[counted].sum())
            self.figures.end_ns = int(instants[counted].max())

    def _is_over(self, *, has_nothing: bool) -> bool:
        """Return whether to end. ``has_nothing``: the last poll brought no records."""
        topic = self.topic
        if topic.abandoned:
            return True
        if not topic.produced_ns:
            return False
        if (
            has_nothing
            and now_ns() - max(topic.produced_ns, self.last_ns) > topic.timeout_ms * 1_000_000
        ):
            return True
        return topic.lost(self.check) == 0 and self.reader.at_end()


class TopicRun:
    """One topic's part of a run. ``make_producer(n)`` makes producer n, ``make_reader(partitions)``
    a consumer.

    The producers are those of ``perf produce``, whose records get a header just before they are
    sent. Each consumer has a thread. It notes the instant once after each poll, which is when the
    records are handed over.
    """

    def __init__(
        self,
        topic: Topic,
        workload: Workload,
        partitions: int,
        start: Start,
        make_producer: Callable[[int], PerfProducer],
        make_reader: Callable[[list[int]], Reader],
        *,
        timeout_ms: int,
        many_values: bool,
        new_loop: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        self.topic, self.start, self.timeout_ms = topic, start, timeout_ms
        self.run_id = os.urandom(8)
        self.produced_ns = 0  # when all records had been answered
        self.abandoned = False
        self.records = workload.records(topic)
        self._made: dict[int, _Sending] = {}
        settings = ProduceSettings(
            num_records=self.records,
            throughput=topic.rate,
            warmup_records=workload.warmup_records(topic),
            threads=topic.producers,
            reporting_interval_ms=_NEVER_MS,
        )

        def sending(number: int) -> PerfProducer:
            self._made[number] = made = _Sending(make_producer(number), self, number)
            return made

        self.producing = ProduceRun(
            settings,
            sending,
            lambda number: SizedLetters(topic.record_size, many=many_values, seed=number),
            new_loop=new_loop,
        )
        self.warmup = np.array([worker.warmup for worker in self.producing.workers], np.int64)
        self.checks = [GroupCheck(topic.producers) for _ in range(topic.groups)]
        self.readings = [
            _Reading(self, check, make_reader(list(range(number, partitions, topic.consumers))))
            for check in self.checks
            for number in range(topic.consumers)
        ]

    def produce(self) -> None:
        """Send everything and wait for the answers. Raises what ``ProduceRun.run`` raises."""
        try:
            self.producing.run()
        finally:
            self.produced_ns = now_ns()

    def interrupt(self) -> None:
        """Send nothing more. Called again: wait for nothing."""
        if self.producing.interrupted:
            self.abandoned = True
        self.producing.interrupt()

    def lost(self, check: GroupCheck) -> int:
        """Return how many acknowledged records this group has not read."""
        failed = [self._made[number].failed for number in range(self.topic.producers)]
        arrays = [np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in failed]
        return check.lost(self.producing.total_acked(), arrays)

    def published(self) -> Figures:
        """Return latencies from the intended instants to the answers, after the warm-up."""
        tally = self.producing.steady() or self.producing.total()
        return Figures(tally.intended, tally.value_bytes, tally.begin_ns, tally.end_ns)

    def read(self) -> Figures:
        """Return latencies from the intended instants to the consumers, after the warm-up."""
        total = Figures(begin_ns=self.published().begin_ns)
        for reading in self.readings:
            total.add(reading.figures)
        total.end_ns = max((reading.figures.end_ns for reading in self.readings), default=0)
        return total

    def findings(self) -> dict[str, int]:
        """Return what must not happen to a record, or not always, and to how many it did; of all
        groups.
        """
        return {
            "failed": self.producing.total().failed,
            "unanswered": self.producing.unanswered,
            "lost": sum(map(self.lost, self.checks)),
            "doubled": sum(check.doubled for check in self.checks),
            "reordered": sum(check.reordered for check in self.checks),
            "foreign": sum(check.foreign for check in self.checks),
        }

    def last_error(self) -> str:
        """Return what a consumer complained of last, or nothing."""
        return next(
            (text for reading in self.readings if (text := reading.reader.last_error())), ""
        )


_LOOK_S: Final = 0.02
#: How long a thread may keep the interpreter from another that wants to note an instant; Python's
#: is 5 ms.
_SWITCH_S: Final = 0.0005
_INTERRUPTED_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Clients:
    """The factories of a run's clients."""

    producer: Callable[[Topic, int], PerfProducer]
    reader: Callable[[Topic, list[int]], Reader]
    new_loop: Callable[[], asyncio.AbstractEventLoop]


class RoundtripRun:
    """All topics of a run. ``run()`` is called once, in the main thread.

    ``partitions``   how many each topic has
    ``many_values``  whether values differ, which matters where they are compressed
    """

    def __init__(
        self,
        workload: Workload,
        partitions: Mapping[str, int],
        clients: Clients,
        *,
        many_values: bool = False,
        timeout_ms: int = 10_000,
        reporting_interval_ms: int = 5_000,
        on_interval: Callable[[Window], None] | None = None,
    ) -> None:
        self._start = Start(workload.clients, action=self._begin)
        self.topics = [
            TopicRun(
                topic,
                workload,
                partitions[topic.name],
                self._start,
                lambda number, topic=topic: clients.producer(topic, number),  # type: ignore[misc]
                lambda part, topic=topic: clients.reader(topic, part),  # type: ignore[misc]
                timeout_ms=timeout_ms,
                many_values=many_values,
                new_loop=clients.new_loop,
            )
            for topic in workload.topics
        ]
        self.begin_ns = 0
        self.interrupted = False
        self.intervals: list[dict[str, Any]] = []
        self._on_interval, self._interval_ms = on_interval, reporting_interval_ms
        self._reported = (0, 0)  # the instant, bytes
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()

    def _begin(self) -> None:
        self.begin_ns = now_ns()
        self._reported = (self.begin_ns, 0)

    def run(self) -> None:
        """Run to the end, or to an interruption (KeyboardInterrupt). Raises what a client raised:
        ProduceError, ConsumeError, or a defect.
        """
        work: list[Callable[[], None]] = [topic.produce for topic in self.topics]
        work += [reading.run for topic in self.topics for reading in topic.readings]
        # not Thread.join: on Python 3.11 one that is interrupted takes a thread that lives for dead
        ended = [threading.Event() for _ in work]
        with _switching_soon():
            for one, end in zip(work, ended, strict=True):
                threading.Thread(
                    target=self._thread, args=(one, end), name="roundtrip", daemon=True
                ).start()
            self._watch(ended)
        self._interval()
        error = next(
            (error for error in self._errors if not isinstance(error, NotBegunError)), None
        )
        if error is not None:
            raise error

    def _watch(self, ended: list[threading.Event]) -> None:
        due: float | None = None
        while not all(end.is_set() for end in ended):
            try:
                time.sleep(_LOOK_S)
                if due is None and self.begin_ns:
                    due = time.monotonic() + self._interval_ms / 1000
                if due is not None and time.monotonic() >= due:
                    due += self._interval_ms / 1000
                    self._interval(self._on_interval)
            except KeyboardInterrupt:
                self.interrupted = True
                self._stop()

    def _thread(self, work: Callable[[], None], ended: threading.Event) -> None:
        try:
            work()
        except BaseException as error:
            with self._lock:
                self._errors.append(error)
            for _ in range(2):  # the second time no answer is waited for
                self._stop()
        finally:
            ended.set()

    def _stop(self) -> None:
        self._start.abort()
        for topic in self.topics:
            topic.timeout_ms = min(topic.timeout_ms, _INTERRUPTED_MS)
            topic.interrupt()

    def _interval(self, report: Callable[[Window], None] | None = None) -> None:
        readings = [reading for topic in self.topics for reading in topic.readings]
        latencies = Histogram()
        for reading in readings:
            latencies.merge(reading.figures.histogram.window())
        now, (since, before_bytes) = now_ns(), self._reported
        size = sum(reading.figures.value_bytes for reading in readings)
        window = Window(
            latencies.count, size - before_bytes, now - since, latencies.sum, latencies.max
        )
        self._reported = (now, size)
        if not window.records:
            return
        self.intervals.append(
            {
                "t_ms": (now - self.begin_ns) // 1_000_000,
                "records": window.records,
                "bytes": window.value_bytes,
                "elapsed_ns": window.elapsed_ns,
                "sum_us": window.sum_us,
                "max_us": window.max_us,
                "latency_us": {"stddev": latencies.stddev}
                | {
                    f"{percent:g}": latencies.percentile(percent)
                    for percent in INTERVAL_PERCENTILES
                },
            }
        )
        if report is not None:
            report(window)

    def published(self) -> Figures:
        """Return the sum of all topics."""
        return _sum(topic.published() for topic in self.topics)

    def read(self) -> Figures:
        """Return the sum of all topics."""
        return _sum(topic.read() for topic in self.topics)


def _sum(parts: Iterator[Figures]) -> Figures:
    total = Figures()
    for part in parts:
        total.add(part)
    return total


@contextmanager
def _switching_soon() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


METADATA_MS = 10_000
_CREATE_MS: Final = 30_000
#: From this version -1 stands for the broker's default replication factor (KIP-464).
_DEFAULT_FACTOR_FROM: Final = 4


def partitions_of(options: ConsumerOptions, topics: Iterable[Topic]) -> dict[str, int]:
    """Return how many partitions each topic has; those with ``create`` are made where they do not
    exist.

    ConsumeError: no broker, no such topic, no permission, fewer partitions than a group has
    consumers, or other partitions than ``create`` asks for.
    """
    loop = loop_factory()()
    servers = ",".join(options.bootstrap_servers)
    try:
        return loop.run_until_complete(_partitions_of(options, list(topics)))
    except RequestTimeoutError as error:
        raise ConsumeError(f"no broker answers at {servers}: {error}") from None
    except AuthenticationError as error:
        raise ConsumeError(f"refused: {error}") from None
    except (NetworkError, ValueError) as error:
        raise ConsumeError(str(error)) from None
    finally:
        loop.close()


async def _partitions_of(options: ConsumerOptions, topics: list[Topic]) -> dict[str, int]:
    async with ConsumerNetworkClient(options.client_options()) as client:
        nodes = bootstrap_nodes(options.bootstrap_servers)
        # brokers that make topics on demand do so, as for perf produce
        metadata = ClusterMetadata(client, nodes)
        try:
            await _create(client, metadata, [topic for topic in topics if topic.create is not None])
            found = {
                topic.name: await metadata.wait_for(topic.name, METADATA_MS) for topic in topics
            }
        finally:
            metadata.close()
    for topic in topics:
        _check(topic, found[topic.name])
    return found


def _check(topic: Topic, partitions: int) -> None:
    wanted = partitions if topic.create is None else topic.create.partitions
    if wanted != partitions:
        raise ConsumeError(
            f"topic {topic.name} exists: create.partitions is {wanted}, it has {partitions}"
        )
    if topic.consumers > partitions:
        raise ConsumeError(
            f"topic {topic.name}: consumers is {topic.consumers}, it has {partitions} partitions"
        )


async def _create(
    client: ConsumerNetworkClient, metadata: ClusterMetadata, topics: list[Topic]
) -> None:
    """Make those that do not exist. A broker that is not the controller passes the request on
    (KIP-590); before Kafka 2.8 it refuses, and the others are asked.
    """
    if not topics:
        return
    await metadata.update([], METADATA_MS)
    has_factors = all(topic.create and topic.create.replication_factor > 0 for topic in topics)
    least = CreateTopicsRequest.min_version if has_factors else _DEFAULT_FACTOR_FROM
    request = Build(
        CreateTopicsRequest.api_key,
        (least, CreateTopicsRequest.max_version),
        lambda version: CreateTopicsRequest(
            [_wanted(topic) for topic in topics], _CREATE_MS, api_version=version
        ),
    )
    for node in metadata.nodes():
        try:
            answer: CreateTopicsResponse = (await client.send(node, request)).response
        except UnsupportedVersionError as error:
            raise ConsumeError(f"topics cannot be created: {error}") from None
        refused = [one for one in answer.topics if one.error_code == ErrorCode.NOT_CONTROLLER]
        if not refused:
            break
    for one in answer.topics:
        if one.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise broker_error(
                one.error_code, f"topic {one.name} cannot be created", one.error_message
            )


def _wanted(topic: Topic) -> CreatableTopic:
    assert topic.create is not None
    create = topic.create
    configs = [CreatableTopicConfig(name, value) for name, value in create.config.items()]
    return CreatableTopic(topic.name, create.partitions, create.replication_factor, configs=configs)


@dataclass(frozen=True, slots=True)
class OpenClients:
    """``setup``: how topics are looked for, and made."""

    clients: Clients
    setup: ConsumerOptions
    version: str
    producer: Mapping[str, str]  # properties
    consumer: Mapping[str, str]


def open_clients(
    client: str, workload: Workload, common: Mapping[str, str], say: Callable[[str], None]
) -> OpenClients:
    """Check all properties; nothing is connected. PropertyError, ConsumeError, ProduceError.

    ``common``  properties of the command line for all clients, bootstrap.servers among them
    """
    from batchval.fetch import ConsumerOptions

    own = client == "batchval"
    producer = (
        _of(PRODUCER, CONSUMER, common, own) | _idempotent(workload.producer) | workload.producer
    )
    consumer = _of(CONSUMER, PRODUCER, common, own) | workload.consumer
    if own:
        for name in common:
            if name not in PRODUCER and name not in CONSUMER and name not in SECURITY:
                say(f"{name}: the own clients have no such setting, it is not used")
    opened = {
        topic.name: producers.open_client(
            producers.ClientChoice(client, topic.name, workload.clients), producer, lambda _: None
        )
        for topic in workload.topics
    }
    first = opened[workload.topics[0].name]
    read, security, _ = properties.consumer_options(consumer)
    options = ConsumerOptions(
        bootstrap_servers=common["bootstrap.servers"].split(","),
        allow_auto_create_topics=False,
        security=Security.from_properties(security),
        **({"client_id": "perf-roundtrip"} | read),
    )
    reader = (
        _own(options)
        if own
        else _librdkafka(consumer | {"bootstrap.servers": common["bootstrap.servers"]})
    )
    clients = Clients(lambda topic, number: opened[topic.name].make(number), reader, first.new_loop)
    return OpenClients(clients, options, first.version, producer, consumer)


def _of(
    known: Mapping[str, Any], other: Mapping[str, Any], common: Mapping[str, str], own: bool
) -> dict[str, str]:
    """Return the common properties without those that only the other kind of client has."""
    return {
        name: value
        for name, value in common.items()
        if name in known or name in SECURITY or (name not in other and not own)
    }


def _idempotent(found: Mapping[str, str]) -> dict[str, str]:
    """Return enable.idempotence and what it rests on, as perf produce sets them."""
    acks, cap = found.get("acks", "all"), found.get("max.in.flight.requests.per.connection", "5")
    possible = acks in ("all", "-1") and cap.isdigit() and int(cap) <= 5
    return {
        "acks": acks,
        "max.in.flight.requests.per.connection": cap,
        "enable.idempotence": str(possible).lower(),
    }


def _own(options: ConsumerOptions) -> Callable[[Topic, list[int]], Reader]:
    from batchval.perf.clients.own_consumer import OwnReader

    return lambda topic, partitions: OwnReader(options, topic.name, partitions)


def _librdkafka(consumer: Mapping[str, str]) -> Callable[[Topic, list[int]], Reader]:
    from batchval.perf.clients.rdkafka import RdkafkaReader

    names = {"isolation.level": "read_uncommitted", **properties.rdkafka(consumer)}
    if "fetch.max.wait.ms" in names:
        names["fetch.wait.max.ms"] = names.pop("fetch.max.wait.ms")
    return lambda topic, partitions: RdkafkaReader(names, topic.name, partitions)
