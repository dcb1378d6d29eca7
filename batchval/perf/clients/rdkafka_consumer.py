"""librdkafka (the package confluent-kafka) as a consumer to be measured: a Python object a record.

Its configuration names are librdkafka's. ``fetch.queue.backoff.ms`` is 2 unless set: at
librdkafka's 1,000 a consumer that has filled its queue sleeps most of the time, and the backoff is
measured, not the client.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from batchval.perf.clients.kafka_metrics import Metrics, Rebalances, average, named
from batchval.perf.clients.rdkafka import METADATA_S, LastError, error_text, list_topics, reason
from batchval.perf.clients.rdkafka_package import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from batchval.perf.consume import ConsumeError, Polled
from batchval.perf.properties import PropertyError

__all__ = ["RdkafkaConsumer", "partitions_of"]

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
