"""librdkafka (the package confluent-kafka) as a client to be measured, and its mock cluster.

    RdkafkaConsumer  of perf consume: a Python object a record
    RdkafkaProducer  of perf produce: one produce() and one callback for each record
    RdkafkaReader    of perf roundtrip: some partitions, without a group being joined
    MockCluster      brokers in the memory of this process, in one thread of librdkafka

Configuration names are librdkafka's. ``fetch.queue.backoff.ms`` is 2 unless set: at librdkafka's
1,000 a consumer that has filled its queue sleeps most of the time, and the backoff is measured, not
the client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import signal
import threading
import time
from array import array
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, Final

from batchval.errors import BatchvalError
from batchval.optional import require
from batchval.perf.clients.kafka_metrics import Metrics, Rebalances, Windows, average, named
from batchval.perf.consume import MAX_RECORDS, ConsumeError, Polled
from batchval.perf.produce import OnBatch, OnWire, ProduceError
from batchval.perf.properties import PropertyError
from batchval.perf.tally import ClientRoundTrips

try:
    from confluent_kafka import (
        Consumer,
        KafkaError,
        KafkaException,
        Producer,
        TopicPartition,
        __version__,
        libversion,
    )
except ModuleNotFoundError:
    require(__name__)
    raise

__all__ = [
    "METADATA_S",
    "LastError",
    "MockCluster",
    "RdkafkaConsumer",
    "RdkafkaProducer",
    "RdkafkaReader",
    "error_text",
    "list_topics",
    "partitions_of",
    "reason",
    "version",
]

METADATA_S = 10.0
_CREDENTIALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}


def error_text(error: KafkaError) -> str:
    """Return an error's text without the scheme that librdkafka puts before an address."""
    return re.sub(r"^(sasl_)?(plaintext|ssl)://", "", error.str(), flags=re.IGNORECASE).strip()


def reason(error: Exception) -> str:
    """Return the text of a KafkaException, or of what a wrong configuration raises."""
    first = error.args[0] if error.args else error
    return error_text(first) if isinstance(first, KafkaError) else str(first)


def version() -> str:
    """Return the version of the library and of the package that carries it."""
    return f"librdkafka {libversion()[0]}, confluent-kafka {__version__}"


class LastError:
    """An ``error_cb`` that keeps librdkafka's last error, to explain a timeout."""

    def __init__(self) -> None:
        self.text = ""
        self.refused: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() in _CREDENTIALS:
            self.refused = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.text:
            self.text = error_text(error)


def list_topics(
    client: Any,
    topic: str | None,
    last_error: LastError,
    servers: str,
    end: float,
    raised: type[BatchvalError],
) -> Any:
    """Return metadata of the topic, or of all topics.

    Raises ``raised`` where a broker refuses, or none answers before ``end`` (monotonic). Waits in
    short turns, because librdkafka reports a refusal only to ``poll``.

    """
    while True:
        try:
            return client.list_topics(topic, 1.0) if topic else client.list_topics(timeout=1.0)
        except KafkaException as error:
            client.poll(0)
            if last_error.refused is not None:
                raise raised(f"refused: {error_text(last_error.refused)}") from None
            if time.monotonic() >= end:
                raise raised(
                    f"no broker answers at {servers}: {last_error.text or reason(error)}"
                ) from None


#: One ``consume`` call at most: a Python object each.
MAX_POLL_RECORDS = 10_000
#: Retriable errors, and codes that do not mean an error.
_PASSING = {
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
_QUIET: Mapping[str, Any] = {"log_level": 0, "log.connection.close": False}


def partitions_of(
    config: Mapping[str, Any], topic: str | None, include: str | None
) -> list[tuple[str, int]]:
    """Return the partitions of the topic, or of all topics whose whole name matches ``include``
    (internal ones left out).

    Raises ConsumeError: no broker, no such topic, no permission, no match.
    """
    last_error = LastError()
    try:
        consumer = Consumer(
            {**_QUIET, **config, "error_cb": last_error, "allow.auto.create.topics": False}
        )
    except (KafkaException, ValueError, TypeError) as error:
        raise PropertyError(f"librdkafka: {reason(error)}") from None
    try:
        servers = config.get("bootstrap.servers", "")
        found = list_topics(
            consumer, topic, last_error, servers, time.monotonic() + METADATA_S, ConsumeError
        )
    finally:
        consumer.close()
    if topic:
        about = found.topics[topic]
        if about.error is not None:
            raise ConsumeError(f"topic {topic}: {error_text(about.error)}")
        names = [topic]
    else:
        names = sorted(
            n for n in found.topics if re.fullmatch(include or "", n) and not n.startswith("__")
        )
        if not names:
            raise ConsumeError(f"no topic matches {include!r}")
    partitions = [
        (name, number) for name in names for number in sorted(found.topics[name].partitions)
    ]
    if not partitions:
        raise ConsumeError(f"topic {names[0]}: it has no partitions")
    return partitions


class RdkafkaConsumer:
    """One consumer of the group, for one thread. ``config``: librdkafka's names, with group.id."""

    def __init__(
        self, config: Mapping[str, Any], topics: Collection[str], *, with_metrics: bool = False
    ) -> None:
        self._topics = list(topics)
        self._last_error = LastError()
        self._assigned: frozenset[tuple[str, int]] | None = None
        self._going = threading.Event()
        self._rebalances = Rebalances()
        self._client_id = str(config.get("client.id", "rdkafka"))
        self._records = self._bytes = 0
        self._lag_max = math.nan
        self._going_ns = 0
        self._statistics: dict[str, Any] = {}
        extra: dict[str, Any] = (
            {"statistics.interval.ms": 1000, "stats_cb": self._on_statistics}
            if with_metrics
            else {}
        )
        defaults = {
            "fetch.queue.backoff.ms": 2,
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",
        }
        try:
            self._consumer = Consumer(
                {**_QUIET, **defaults, **extra, **config, "error_cb": self._last_error}
            )
        except (KafkaException, ValueError, TypeError) as error:
            raise PropertyError(f"librdkafka: {reason(error)}") from None
        self._cooperative = "cooperative" in str(config.get("partition.assignment.strategy", ""))

    def subscribe(self) -> None:
        """Start to join the group."""
        self._rebalances.begin()
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        if not self._going.is_set():
            consumer.pause(partitions)
        assigned = frozenset((p.topic, p.partition) for p in partitions)
        self._assigned = (
            (self._assigned or frozenset()) | assigned if self._cooperative else assigned
        )
        self._rebalances.end()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances.begin()
        if self._cooperative:
            taken = frozenset((p.topic, p.partition) for p in partitions)
            self._assigned = (self._assigned or frozenset()) - taken
            consumer.incremental_unassign(partitions)
        else:
            self._assigned = None
            consumer.unassign()

    def assignment(self) -> frozenset[tuple[str, int]] | None:
        """Return its partitions; None while it has none from the group."""
        return self._assigned

    def go(self) -> None:
        """Resume the assigned partitions."""
        self._going.set()
        self._going_ns = time.monotonic_ns()
        self._consumer.resume(
            [TopicPartition(topic, number) for topic, number in self._assigned or ()]
        )

    def poll(self, timeout_ms: int, most: int) -> Polled:
        """Call ``consume`` once, for at most the wanted records, and at most 10,000."""
        nbytes = records = 0
        try:
            messages = self._consumer.consume(
                min(MAX_POLL_RECORDS, max(most, 1)), timeout_ms / 1000
            )
        except KafkaException as error:
            raise ConsumeError(reason(error)) from None
        for message in messages:
            failure = message.error()
            if failure is not None:
                if failure.code() not in _PASSING and not failure.retriable():
                    raise ConsumeError(error_text(failure))
                self._last_error(failure)
                continue
            records += 1
            key, value = message.key(), message.value()
            if key is not None:
                nbytes += len(key)
            if value is not None:
                nbytes += len(value)
        if self._last_error.refused is not None:
            raise ConsumeError(f"refused: {error_text(self._last_error.refused)}")
        self._records += records
        self._bytes += nbytes
        return Polled(records, nbytes)

    def rebalance_ms(self) -> float:
        """Return the duration of all joins until now, the current one included."""
        return self._rebalances.ms()

    def _on_statistics(self, text: str) -> None:
        self._statistics = found = json.loads(text)
        for topic in found.get("topics", {}).values():
            for partition in topic["partitions"].values():
                lag = partition.get("consumer_lag", -1)
                if lag >= 0 and not lag <= self._lag_max:  # NaN is not above it either
                    self._lag_max = lag

    def metrics(self) -> Metrics:
        """Return Kafka's names for what is counted here, and librdkafka's statistics.

        Those are a second old at most. What librdkafka does not tell apart (the latency of Fetch)
        has no name of Kafka's.
        """
        found = self._rebalances.metrics(self._client_id, len(self._assigned or ()))
        seconds = (time.monotonic_ns() - self._going_ns) / 1e9 if self._going.is_set() else 0.0
        fetch = {
            "bytes-consumed-rate": average(self._bytes, seconds),
            "bytes-consumed-total": self._bytes,
            "records-consumed-rate": average(self._records, seconds),
            "records-consumed-total": self._records,
            "records-lag-max": self._lag_max,
        }
        brokers = self._statistics.get("brokers", {}).values()
        if brokers:
            fetches = sum(broker.get("req", {}).get("Fetch", 0) for broker in brokers)
            fetch |= {"fetch-total": fetches, "fetch-rate": average(fetches, seconds)}
        found |= named("consumer-fetch-manager-metrics", fetch, self._client_id)
        for name in (
            "tx",
            "tx_bytes",
            "rx",
            "rx_bytes",
            "rxmsgs",
            "rxmsg_bytes",
            "replyq",
            "metadata_cache_cnt",
        ):
            if name in self._statistics:
                found[f"librdkafka:{name}"] = self._statistics[name]
        for broker in brokers:
            if broker.get("nodeid", -1) >= 0:
                for name in ("avg", "p99"):
                    found[f"librdkafka:rtt-{name}-us:{{node-id={broker['nodeid']}}}"] = broker[
                        "rtt"
                    ][name]
        return found

    def last_error(self) -> str:
        """Return librdkafka's last error, empty without one."""
        return self._last_error.text

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


#: what librdkafka would print by itself; fatal errors it prints at any level
_SILENT = logging.getLogger("batchval.perf.librdkafka")
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())
_PRODUCER_DEFAULTS = {"log_level": 0, "statistics.interval.ms": 200}
_UNKNOWN_S = 5.0  # a topic that is made on demand is unknown at first
_SHORT_S = 0.0015  # librdkafka waits whole milliseconds: below, the thread sleeps in turns
_TURN_S = 0.00005
_TOGETHER = 64  # answers whose instant is read together: within about 40 µs


class RdkafkaProducer:
    """One producer, for one thread. ``config``: librdkafka's names. ``partition``: None lets
    librdkafka choose.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        *,
        partition: int | None = None,
        round_robin: bool = False,
    ) -> None:
        self._config, self._topic, self._partition, self._round_robin = (
            config,
            topic,
            partition,
            round_robin,
        )
        self._last_error = LastError()
        self._statistics: dict[str, Any] = {}
        self._highest: dict[int, int] = {}
        self._highest_total = 0
        self._stamps, self._bytes = array("q"), 0
        self._next = self._errors = 0
        self.partitions = 0
        self._waiting = 0
        self._round_trips = ClientRoundTrips()
        self._windows = -1  # of statistics, since the first record was sent
        self._requests, self._batch_bytes, self._batch_records = Windows(), Windows(), Windows()
        self._opened_ns = self._closed_ns = 0
        self._transactional = bool(config.get("transactional.id"))

    async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
        """Connect and look up the topic.

        ``on_wire`` is never called: librdkafka has no times of single requests.
        """
        self._on_batch = on_batch
        try:
            self._producer = Producer(
                {
                    **_PRODUCER_DEFAULTS,
                    **self._config,
                    "error_cb": self._last_error,
                    "stats_cb": self._on_statistics,
                },
                logger=_SILENT,
            )
        except (KafkaException, ValueError, TypeError) as error:
            raise ProduceError(f"librdkafka: {reason(error)}") from None
        self.partitions = self._known()
        self._opened_ns = time.monotonic_ns()
        if self._partition is not None and self._partition >= self.partitions:
            raise ProduceError(
                f"topic {self._topic} has no partition {self._partition}, but {self.partitions} of them"
            )
        if self._transactional:
            try:
                self._producer.init_transactions(30.0)
            except KafkaException as error:
                raise ProduceError(
                    f"transactional.id {self._config['transactional.id']}: {reason(error)}"
                ) from None

    def _known(self) -> int:
        """Return how many partitions the topic has."""
        begin = time.monotonic()
        servers = self._config.get("bootstrap.servers", "")
        while True:
            found = list_topics(
                self._producer,
                self._topic,
                self._last_error,
                servers,
                begin + METADATA_S,
                ProduceError,
            )
            about = found.topics[self._topic]
            if about.error is None and about.partitions:
                return len(about.partitions)
            retriable = about.error is None or about.error.code() in {
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError.LEADER_NOT_AVAILABLE,
            }
            if not retriable or time.monotonic() - begin >= _UNKNOWN_S:
                why = "it has no partitions" if about.error is None else error_text(about.error)
                raise ProduceError(f"topic {self._topic}: {why}")
            time.sleep(0.2)

    def _on_statistics(self, text: str) -> None:
        self._statistics = found = json.loads(text)
        total = 0
        for broker in found["brokers"].values():
            node, waiting = broker["nodeid"], broker["waitresp_cnt"]
            rtt = broker["rtt"]  # of requests since the last statistics: written to answered, µs
            if self._windows > 0:  # the first one has what was asked before the first record
                self._round_trips.add(rtt["cnt"], rtt["sum"], rtt["min"], rtt["max"])
            if node >= 0:
                total += waiting
                self._highest[node] = max(self._highest.get(node, 0), waiting)
                self._requests.add(rtt)
        for topic in found["topics"].values():
            self._batch_bytes.add(topic["batchsize"])
            self._batch_records.add(topic["batchcnt"])
        self._windows += self._windows >= 0
        self._waiting = total
        self._highest_total = max(self._highest_total, total)

    def _done(self, stamp: int, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._errors += 1
            self._tell()
            self._on_batch(array("q", [stamp]), error.name(), 0, None)
            return
        self._stamps.append(stamp)
        self._bytes += len(message)
        if len(self._stamps) >= _TOGETHER:
            self._tell()

    def _tell(self) -> None:
        if self._stamps:
            stamps, size = self._stamps, self._bytes
            self._stamps, self._bytes = array("q"), 0
            self._on_batch(stamps, None, size, None)

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._tell()

    def send(self, values: Any, stamps: Any) -> int:
        produce, topic, done = self._producer.produce, self._topic, self._done
        one = values if isinstance(values, bytes) else None
        where = self._partition
        options: dict[str, Any] = {} if where is None else {"partition": where}
        taken = 0
        self._windows = max(self._windows, 0)
        for stamp in stamps:
            if self._round_robin:
                options["partition"] = self._next % self.partitions
                self._next += 1
            try:
                produce(
                    topic,
                    values[taken] if one is None else one,
                    on_delivery=partial(done, stamp),
                    **options,
                )
            except BufferError:
                if len(self._producer):
                    self._next -= self._round_robin
                    break
                # its queue is empty, and it still refuses the record: it always will
                self._tell()
                self._on_batch(array("q", [stamp]), "_QUEUE_FULL", 0, None)
            except KafkaException as error:
                self._tell()
                self._on_batch(array("q", [stamp]), error.args[0].name(), 0, None)
            taken += 1
        self._poll(0)
        return taken

    async def wait_for_space(self) -> None:
        self._poll(0.01)

    async def pause(self, seconds: float) -> None:
        if seconds > _SHORT_S:
            self._poll(seconds - _SHORT_S / 2)
            return
        time.sleep(min(seconds, _TURN_S))
        self._poll(0)

    async def flush(self) -> None:
        while len(self._producer):
            self._poll(0.01)
            await asyncio.sleep(0)
        self._poll(0)

    async def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            failed = error_text(error.args[0])
            raise ProduceError(f"the transaction is not begun: {failed}") from None

    async def commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(30.0)
                break
            except KafkaException as error:
                failed = error.args[0]
                if failed.txn_requires_abort():
                    with suppress(KafkaException):  # the caller gets the reason to abort
                        self._producer.abort_transaction(30.0)
                if not failed.retriable():
                    raise ProduceError(
                        f"the transaction is not committed: {error_text(failed)}"
                    ) from None
        self._tell()

    async def close(self) -> None:
        if not hasattr(self, "_producer"):
            return
        self._closed_ns = time.monotonic_ns()
        end = time.monotonic() + 0.3
        before = self._statistics.get("ts")
        while self.partitions and self._statistics.get("ts") == before and time.monotonic() < end:
            self._poll(0.05)
        if len(self._producer):
            self._producer.purge()
            with suppress(KafkaException):  # a fatal error, which was reported before
                self._producer.flush(1.0)
        del self._producer

    def in_flight(self) -> tuple[Mapping[int, int], int, bool]:
        return self._highest, self._highest_total, True

    def waiting(self) -> int:
        return self._waiting

    def round_trips(self) -> ClientRoundTrips | None:
        return self._round_trips

    def metrics(self) -> Metrics:
        """Return Kafka's names for what is counted here, and librdkafka's statistics at the end."""
        found: Metrics = {
            f"librdkafka:{name}": value
            for name, value in sorted(self._statistics.items())
            if isinstance(value, int | float) and name not in {"ts", "time"}
        }
        sent, client_id = (
            self._statistics.get("txmsgs", 0),
            str(self._statistics.get("client_id", "")),
        )
        seconds = (self._closed_ns or time.monotonic_ns()) / 1e9 - self._opened_ns / 1e9
        values = {
            "batch-size-avg": self._batch_bytes.mean,
            "record-error-total": self._errors,
            "record-send-rate": average(sent, seconds),
            "record-send-total": sent,
            "records-per-request-avg": self._batch_records.mean,  # a batch a request
            "request-latency-avg": self._requests.mean / 1000,
            "request-latency-max": self._requests.max / 1000,
        }
        return found | named("producer-metrics", values, client_id)


_READER_DEFAULTS: Final = {
    "log_level": 0,
    "fetch.queue.backoff.ms": 2,
    "enable.auto.commit": False,
    "group.id": "perf-roundtrip",
}
_READER_PASSING: Final = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
}


class RdkafkaReader:
    """One consumer, for one thread. ``config``: librdkafka's names."""

    def __init__(self, config: Mapping[str, Any], topic: str, partitions: list[int]) -> None:
        self._partitions = [TopicPartition(topic, number) for number in partitions]
        self._complaint = LastError()
        self._final: dict[int, int] | None = None  # ends, once all was produced
        try:
            self._consumer = Consumer({**_READER_DEFAULTS, **config, "error_cb": self._complaint})
        except (KafkaException, ValueError, TypeError) as error:
            raise PropertyError(f"librdkafka: {reason(error)}") from None

    def open(self) -> None:
        """Take the partitions at their ends. ConsumeError."""
        places = [TopicPartition(one.topic, one.partition, end) for one, end in self._ends()]
        self._consumer.assign(places)

    def _ends(self) -> list[tuple[TopicPartition, int]]:
        end = time.monotonic() + METADATA_S
        return [(one, self._end_of(one, end)) for one in self._partitions]

    def _end_of(self, partition: TopicPartition, end: float) -> int:
        while True:
            try:
                offset: int = self._consumer.get_watermark_offsets(partition, METADATA_S)[1]
                return offset
            except KafkaException as error:
                refused = self._complaint.refused
                if refused is not None:
                    raise ConsumeError(f"refused: {error_text(refused)}") from None
                if not self._passes(error.args[0]) or time.monotonic() > end:
                    raise ConsumeError(reason(error)) from None
                self._consumer.poll(0.1)

    @staticmethod
    def _passes(error: KafkaError) -> bool:
        return error.code() in _READER_PASSING or error.retriable()

    def poll(self, timeout_ms: int) -> list[tuple[int, list[bytes | None]]]:
        """Return values by partition, at most 500. ConsumeError."""
        try:
            # consume() alone would wait for as many until the time is over
            first = self._consumer.poll(timeout_ms / 1000)
            came = [] if first is None else [first, *self._consumer.consume(MAX_RECORDS - 1, 0)]
        except KafkaException as error:
            raise ConsumeError(reason(error)) from None
        if self._complaint.refused is not None:
            raise ConsumeError(f"refused: {error_text(self._complaint.refused)}")
        messages = [message for message in came if not self._is_error(message.error())]
        return [
            (partition, [message.value() for message in part])
            for partition, part in groupby(messages, lambda message: message.partition())
        ]

    def _is_error(self, error: KafkaError | None) -> bool:
        if error is not None and not self._passes(error):
            raise ConsumeError(error_text(error))
        return error is not None

    def at_end(self) -> bool:
        """Return whether every position is at the end that its partition had at the first call."""
        if self._final is None:
            self._final = {one.partition: end for one, end in self._ends()}
        ends = self._final
        return all(
            one.offset >= ends[one.partition]
            for one in self._consumer.position(self._partitions)
            if ends[one.partition]
        )

    def last_error(self) -> str:
        """Return what librdkafka complained of last, or nothing."""
        return self._complaint.text

    def close(self) -> None:
        """End all connections."""
        self._consumer.close()


_START_S = 10.0


class MockCluster:
    """A mock cluster that runs as long as the object lives.

    ``bootstrap``  the brokers' addresses, as ``--bootstrap-server`` takes them
    """

    def __init__(self, brokers: int = 1) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:  # its threads have this mask: signals are the main thread's
            self._owner = Producer({"test.mock.num.brokers": brokers, "log_level": 0})
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        found = self._owner.list_topics(timeout=_START_S).brokers.values()
        self.bootstrap = ",".join(sorted(f"{broker.host}:{broker.port}" for broker in found))
