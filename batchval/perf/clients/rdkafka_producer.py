"""librdkafka as the client of perf produce, through confluent-kafka: one produce() and one callback
for each record.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from array import array
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from batchval.perf.clients.kafka_metrics import Metrics, Windows, average, named
from batchval.perf.clients.rdkafka import METADATA_S, LastError, error_text, list_topics, reason
from batchval.perf.clients.rdkafka_package import KafkaError, KafkaException, Producer
from batchval.perf.produce import OnBatch, OnWire, ProduceError
from batchval.perf.tally import ClientRoundTrips

__all__ = ["RdkafkaProducer"]

#: what librdkafka would print by itself; fatal errors it prints at any level
_SILENT = logging.getLogger("batchval.perf.librdkafka")
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())
_QUIET = {"log_level": 0, "statistics.interval.ms": 200}
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
                    **_QUIET,
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
