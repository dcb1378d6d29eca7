"""Batches into Produce requests (v3 to v12), answers into results: Kafka's Sender, without a thread
of its own.

    one request holds the first ready batch of each partition that a node leads, up to
        max_request_size
    a node has at most max_in_flight requests in flight
    a batch that is retried keeps its place in the queue and waits for its backoff

``pump`` does all that can be done now. It is called when a batch is full, when something was
answered, when metadata has changed, and by one timer for what only time makes ready.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from batchval.errors import RETRIABLE, ErrorCode, shown_ms
from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata
from batchval.network.errors import DisconnectError, NetworkError, broker_error
from batchval.network.request import Build, ClientResponse, Node
from batchval.producer.accumulator import Accumulator
from batchval.producer.batch import BatchDone, PartitionQueue, Passed, ProducerBatch, _Result
from batchval.producer.batch_compression import Compressing
from batchval.producer.delivery import Failures
from batchval.producer.errors import FENCED, DeliveryTimeoutError, ProducerFencedError
from batchval.producer.options import ProducerOptions
from batchval.producer.sequence_doubt import Doubts, Event, Leaders
from batchval.producer.sequences import Sequences
from batchval.protocol.apis import ApiKey
from batchval.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from batchval.types import CompressionType

__all__ = ["ProducerMetrics", "Sender"]

CLAIMS_TAG = 25206
_OLDEST, _LATEST = 3, 12  # from v13 on topics go by id
_LATEST_IN_TRANSACTIONS = 11  # v12 adds partitions to a transaction by itself (KIP-890)
_ZSTD_FROM = 7
_TAGS_FROM = 9
# brokers 0.11 speak no later one, and remember one batch of a producer (KAFKA-5494)
_ONE_IN_FLIGHT_UP_TO = 3
_LEADER_IS_ANOTHER = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LISTENER_NOT_FOUND,
}
_NO_SEQUENCE_USED = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}

log = logging.getLogger("batchval.producer")


@dataclass(slots=True)
class ProducerMetrics:
    """Counts since the producer was made. ``highest_in_flight``: requests of any API, by node."""

    records_acked: int = 0
    records_failed: int = 0
    #: with those of batches that were sent again
    records_sent: int = 0
    records_retried: int = 0
    batches: int = 0
    requests: int = 0
    bytes_wire: int = 0
    retries: int = 0
    splits: int = 0
    throttle_time_ms: int = 0
    answers: int = 0
    #: of answered Produce requests, from ``send`` on
    request_latency_ms: float = 0.0
    request_latency_ms_max: float = 0.0
    highest_in_flight: dict[int, int] = field(default_factory=dict)
    highest_in_flight_total: int = 0


class Sender:
    """The sender of one producer. ``hold`` returns whether a partition waits for a transaction."""

    def __init__(
        self,
        options: ProducerOptions,
        client: ConsumerNetworkClient,
        metadata: ClusterMetadata,
        accumulator: Accumulator,
        sequences: Sequences | None,
    ) -> None:
        self.options = options
        self.client = client
        self.metadata = metadata
        self.accumulator = accumulator
        self.sequences = sequences
        self.metrics = ProducerMetrics()
        self.failures = Failures(options.transactional_id is not None)
        self.on_batch: Callable[[BatchDone], object] | None = None
        self.on_settled: Callable[[], None] = lambda: None  # called after a batch was reported
        # called for final failures that the caller did not ask for
        self.on_failed: Callable[[Exception], None] = lambda error: None
        self.need_id: Callable[[], None] = lambda: None
        self.hold: Callable[[PartitionQueue], bool] = lambda queue: False
        self.fatal: Exception | None = None
        self.leaders = Leaders(client, metadata)
        self.doubts = Doubts(
            self.leaders, lambda batch: self._acknowledged(batch, -1, -1), self._fail
        )
        self.compressing = Compressing(
            options.codec,
            options.compression_level,
            options.compression_threads,
            accumulator.finish,
            self._compressed,
        )
        self._loop = asyncio.get_running_loop()
        self._outstanding: dict[int, int] = {}
        self._turn = 0
        self._pumping = False
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0
        self._reporting = False
        self._closed = False
        lowest = _ZSTD_FROM if options.codec == CompressionType.ZSTD else _OLDEST
        self._versions = (lowest, _LATEST_IN_TRANSACTIONS if options.transactional_id else _LATEST)
        metadata.add_listener(self.pump_soon)

    def now_ms(self) -> float:
        """Return the loop's time in milliseconds."""
        return self._loop.time() * 1000

    # --- when

    def pump_soon(self) -> None:
        """Schedule ``pump`` for the loop's next iteration."""
        if self._soon is None and not self._closed:
            self._soon = self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Send what can be sent; schedule the next call for when more can be."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._pumping or self._closed:
            return
        self._pumping = True
        try:
            wake = self._pump(self.now_ms())
        finally:
            self._pumping = False
        self._wake_at(wake)

    def _wake_at(self, when_ms: float) -> None:
        if self._timer is not None:
            if self._timer_ms <= when_ms:
                return
            self._timer.cancel()
            self._timer = None
        if when_ms < float("inf"):
            self._timer_ms = when_ms
            # a loop whose timers count whole milliseconds would wake too early
            self._timer = self._loop.call_later(
                max(when_ms - self.now_ms(), 1.0) / 1000, self._woken
            )

    def _woken(self) -> None:
        self._timer = None
        self.pump()

    def _pump(self, now: float) -> float:
        """Send what is ready; return when more will be, in the loop's milliseconds."""
        wake = float("inf")
        ready: dict[Node, list[PartitionQueue]] = {}
        for queue in list(self.accumulator.active):
            wake = min(wake, self._expire(queue, now))
            if self.sequences is not None and not queue.on_the_wire:
                self.doubts.look(queue)
            if not queue.queue:
                continue
            if self.compressing.threads:
                self._compress_ahead(queue)
            batch = queue.queue[0]
            if batch.attempts and batch.retry_at_ms > now:
                wake = min(wake, batch.retry_at_ms)
                continue
            if not self.accumulator.is_ready(batch, now):
                wake = min(wake, batch.created_ms + self.options.linger_ms)
                continue
            leader = self.metadata.leader(queue.topic, queue.partition)
            if leader is None:
                self.metadata.follow(queue.topic)
                self.metadata.request_update()
                wake = min(wake, now + self.options.retry_backoff_ms)
                continue
            ready.setdefault(leader, []).append(queue)
        for node, queues in ready.items():
            self._serve(node, queues, now)
        return wake

    def _expire(self, queue: PartitionQueue, now: float) -> float:
        """Fail batches older than delivery_timeout_ms; return when the next one expires."""
        limit = self.options.delivery_timeout_ms
        while queue.unreported:
            batch = next((one for one in queue.unreported if not one.is_done), None)
            if batch is None:
                break
            if batch.created_ms + limit > now:
                return batch.created_ms + limit
            if batch in queue.queue:
                queue.queue.remove(batch)
            what = f"{batch.builder.count} records for {queue}"
            self._fail(
                batch,
                DeliveryTimeoutError(f"{what} were not acknowledged in {shown_ms(limit)}"),
                False,
            )
        return float("inf")

    # --- out

    def _cap(self, node: Node) -> int:
        """Return how many requests to a node may be in flight or wait to be written."""
        state = self.client.network.state(node)
        if not state.is_ready:
            return 1  # it connects; meanwhile batches grow
        versions = state.api_versions or {}
        if (
            self.sequences is not None
            and versions.get(ApiKey.PRODUCE, (0, _LATEST))[1] <= _ONE_IN_FLIGHT_UP_TO
        ):
            return 1
        return self.options.max_in_flight

    def _serve(self, node: Node, queues: list[PartitionQueue], now: float) -> None:
        cap = self._cap(node)
        while self._outstanding.get(node.id, 0) < cap:
            batches = self._take(node, queues, now)
            if not batches:
                return
            self._send(node, batches)

    def _take(self, node: Node, queues: list[PartitionQueue], now: float) -> list[ProducerBatch]:
        """Take one batch of each partition at most; the first rotates, so that none starves."""
        taken: list[ProducerBatch] = []
        size = 0
        self._turn = (self._turn + 1) % len(queues)
        for n in range(len(queues)):
            at = (self._turn + n) % len(queues)
            queue = queues[at]
            batch = queue.queue[0] if queue.queue else None
            if (
                batch is None
                or (batch.attempts and batch.retry_at_ms > now)
                or not self.accumulator.is_ready(batch, now)
            ):
                continue
            if (self.options.mute_partitions and queue.on_the_wire) or self.hold(queue):
                continue
            if self.sequences is not None:
                if not self.sequences.has_id:
                    self.need_id()
                    return taken
                if not self.sequences.may_send(batch, self.leaders.now(node, queue)):
                    continue
            try:
                if not self.compressing.finished(batch):
                    continue
            except Exception as error:  # a compressor that fails
                queue.queue.popleft()
                self._fail(batch, error, True)
                self.pump_soon()  # no answer will come that has the next one tried
                continue
            if taken and size + batch.builder.wire_size > self.options.max_request_size:
                self._turn = at - 1
                break
            size += batch.builder.wire_size
            queue.queue.popleft()
            taken.append(batch)
        return taken

    def _send(self, node: Node, batches: list[ProducerBatch]) -> None:
        topics: dict[str, TopicProduceData] = {}
        claims = self.options.claims != "none"
        for batch in batches:
            queue = batch.partition
            if self.sequences is not None:
                self.sequences.assign(batch)
            else:
                batch.builder.seal()
            batch.on_the_wire = True
            batch.attempts += 1
            queue.on_the_wire += 1
            self.metrics.records_sent += batch.builder.count
            if batch.attempts > 1:
                self.metrics.retries += 1
                self.metrics.records_retried += batch.builder.count
            self.metrics.batches += 1
            self.metrics.bytes_wire += batch.builder.wire_size
            part = PartitionProduceData(queue.partition, batch.builder.view())
            if claims and not batch.builder.carries_claims:
                part.unknown_tagged_fields = ((CLAIMS_TAG, batch.builder.tag()),)
            topic = topics.get(queue.topic)
            if topic is None:
                topic = topics[queue.topic] = TopicProduceData(queue.topic)
            topic.partition_data.append(part)
        data = list(topics.values())

        def make(version: int) -> ProduceRequest:
            if self.sequences is not None:
                self.leaders.ask(node, batches)
            if claims and version < _TAGS_FROM:
                for one in data:
                    for part in one.partition_data:
                        part.unknown_tagged_fields = ()
            return ProduceRequest(
                self.options.transactional_id,
                self.options.acks,
                int(self.options.request_timeout_ms),
                data,
                api_version=version,
            )

        self.metrics.requests += 1
        self._outstanding[node.id] = self._outstanding.get(node.id, 0) + 1
        future = self.client.send(node, Build(ApiKey.PRODUCE, self._versions, make))
        future.add_callbacks(
            lambda answer: self._answered(node, batches, data, answer),
            lambda error: self._not_answered(node, batches, data, error),
        )
        self.client.flush_nowait()
        self.metrics.highest_in_flight_total = max(
            self.metrics.highest_in_flight_total, self.client.network.in_flight_count()
        )

    # --- compression, where it takes long

    def _compress_ahead(self, queue: PartitionQueue) -> None:
        """Compress full batches that wait for earlier ones, while threads are idle."""
        for batch in islice(queue.queue, self.options.max_in_flight):
            if self.compressing.under_way >= self.compressing.threads or not batch.closed:
                return
            if not batch.builder.is_finished and self.compressing.holds_up(batch):
                self.compressing.begin(batch)

    def _compressed(self, batch: ProducerBatch, error: BaseException | None) -> None:
        """Continue with a batch that a thread has compressed."""
        if batch.is_done:  # it expired meanwhile
            self._free(batch)
        elif error is not None:
            batch.partition.queue.remove(batch)
            self._fail(
                batch, error if isinstance(error, Exception) else RuntimeError(str(error)), True
            )
        self.pump()

    # --- in

    def _returned(
        self, node: Node, batches: list[ProducerBatch], data: list[TopicProduceData]
    ) -> None:
        data.clear()  # the request lets go of the buffers
        self._outstanding[node.id] -= 1
        connection = self.client.network.connection(node)
        if connection is not None:
            highest = self.metrics.highest_in_flight
            highest[node.id] = max(highest.get(node.id, 0), connection.in_flight.peak)
        for batch in batches:
            batch.on_the_wire = False
            batch.partition.on_the_wire -= 1

    def _answered(
        self,
        node: Node,
        batches: list[ProducerBatch],
        data: list[TopicProduceData],
        answer: ClientResponse,
    ) -> None:
        self._returned(node, batches, data)
        response: ProduceResponse | None = answer.response
        if response is None:  # acks=0
            for batch in batches:
                self._acknowledged(batch, -1, -1)
        else:
            metrics, latency_ms = self.metrics, answer.request_latency_ms
            metrics.throttle_time_ms += response.throttle_time_ms
            metrics.answers += 1
            metrics.request_latency_ms += latency_ms
            metrics.request_latency_ms_max = max(metrics.request_latency_ms_max, latency_ms)
            responses = {
                (topic.name, one.index): one
                for topic in response.responses
                for one in topic.partition_responses
            }
            for endpoint in response.node_endpoints:
                log.debug("node %s is at %s:%s", endpoint.node_id, endpoint.host, endpoint.port)
            endpoints = {one.node_id: (one.host, one.port) for one in response.node_endpoints}
            for batch in batches:
                one = responses.get((batch.partition.topic, batch.partition.partition))
                if one is None:
                    error = broker_error(
                        ErrorCode.UNKNOWN_SERVER_ERROR, f"{batch.partition}: nothing in the answer"
                    )
                    self._failed(batch, error, ErrorCode.UNKNOWN_SERVER_ERROR, -1)
                    continue
                try:
                    self._handle_partition(batch, one, endpoints)
                except Exception as fault:  # of whatever kind: its records wait for an outcome
                    log.exception("%s: the answer could not be handled", batch.partition)
                    self._fail(batch, fault, False)
        self.pump()

    def _not_answered(
        self,
        node: Node,
        batches: list[ProducerBatch],
        data: list[TopicProduceData],
        error: BaseException,
    ) -> None:
        self._returned(node, batches, data)
        if isinstance(error, DisconnectError):
            self.metadata.request_update()
        assert isinstance(error, Exception)
        retriable = isinstance(error, NetworkError) and error.retriable
        for batch in batches:
            if retriable:
                self._retry_or_fail(batch, error, False)
            else:
                self._fail(batch, error, False)
        self.pump_soon()

    def _handle_partition(
        self,
        batch: ProducerBatch,
        result: PartitionProduceResponse,
        endpoints: dict[int, tuple[str, int]],
    ) -> None:
        queue, code = batch.partition, result.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledged(
                batch,
                result.base_offset if code == ErrorCode.NONE else -1,
                result.log_append_time_ms,
            )
            return
        leader = result.current_leader
        news = leader.leader_id >= 0 and self.metadata.leader_is(
            queue.topic,
            queue.partition,
            leader.leader_id,
            leader.leader_epoch,
            endpoints.get(leader.leader_id),
        )
        if code in _LEADER_IS_ANOTHER and not news:
            self.metadata.request_update()
        what = f"{batch.builder.count} records for {queue}"
        if result.record_errors:
            first = result.record_errors[0]
            what += f", record {first.batch_index}: {first.batch_index_error_message or 'refused'}"
        error = broker_error(code, what, result.error_message)
        if code in FENCED and self.options.transactional_id is not None:
            error = ProducerFencedError(code, what)
        self._failed(batch, error, code, result.log_start_offset)

    def _failed(
        self, batch: ProducerBatch, error: Exception, code: int, log_start_offset: int
    ) -> None:
        if batch.is_done:  # it expired while it was on the wire
            self._free(batch)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.builder.carries_claims:
            batch.builder.drop_claims()  # the topic may allow the batch without them
            self._retry_or_fail(batch, error, True)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.builder.count > 1:
            batch.attempts -= 1
            self.accumulator.split(batch)
            self.metrics.splits += 1
            level = logging.WARNING if self.metrics.splits == 1 else logging.DEBUG
            log.log(
                level, "%s: a batch of %d bytes was split", batch.partition, batch.builder.wire_size
            )
            self.accumulator.release(batch)
        elif self.sequences is not None and code in _NO_SEQUENCE_USED:
            self._no_sequence_used(self.sequences, batch, error, code, log_start_offset)
        elif code in RETRIABLE:
            if code in _LEADER_IS_ANOTHER:
                batch.partition.known_by = None
                self.doubts.move(batch.partition, Event.LEADER_CHANGED)
            self._retry_or_fail(batch, error, False)
        else:
            self._fail(batch, error, True)

    def _retry_or_fail(
        self, batch: ProducerBatch, error: Exception, broker_has_it_not: bool
    ) -> None:
        if batch.is_done:
            self._free(batch)
            return
        if self.fatal is not None or batch.attempts > self.options.retries:
            self._fail(batch, error, broker_has_it_not)
            return
        backoff = min(
            self.options.retry_backoff_ms * 2 ** min(batch.attempts - 1, 20),
            self.options.retry_backoff_max_ms,
        )
        batch.retry_at_ms = self.now_ms() + backoff * random.uniform(0.8, 1.2)
        batch.partition.requeue(batch)

    def _no_sequence_used(
        self,
        sequences: Sequences,
        batch: ProducerBatch,
        error: Exception,
        code: int,
        log_start_offset: int,
    ) -> None:
        """Handle a sequence error: the leader refused the batch, but may have stored it before."""
        queue, all_doubted = batch.partition, False
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if batch.passed is not Passed.NO:
                self.doubts.settle_passed(batch)
                return
            if not sequences.is_current(batch) or not self.leaders.still_leads(batch):
                queue.known_by = None
                self.doubts.move(queue, Event.LEADER_CHANGED)
                self._retry_or_fail(batch, error, False)
                return
            queue.known_by = batch.asked
            if sequences.doubts(batch):
                self.doubts.add(batch)
                return
            all_doubted = bool(queue.doubted) and queue.sequenced[len(queue.doubted)] is batch
        self.doubts.move(queue, Event.ALL_DOUBTED, batch)
        if sequences.should_retry(batch, code, log_start_offset, all_doubted):
            self._retry_or_fail(batch, error, True)
        else:
            self._fail(batch, error, True)

    def _fail(self, batch: ProducerBatch, error: Exception, broker_has_it_not: bool) -> None:
        if batch.is_done:
            self._free(batch)
            return
        self.doubts.move(batch.partition, Event.FAILED, batch)
        if self.sequences is not None:
            self.sequences.abandoned(batch, broker_has_it_not)
        self.on_failed(error)
        self._done(batch, -1, -1, error)

    def _acknowledged(
        self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int
    ) -> None:
        if self.sequences is not None:
            proved = batch.asked == batch.partition.known_by and self.leaders.still_leads(batch)
            found = self.sequences.passed(batch, base_offset, proved)
            self.doubts.move(
                batch.partition, Event.PROVED if found is Passed.PROVED else Event.UNPROVED
            )
            self.sequences.acknowledged(batch, base_offset)
        if batch.is_done:
            self._free(batch)
        else:
            self._done(batch, base_offset, log_append_time_ms, None)

    def _free(self, batch: ProducerBatch) -> None:
        """Free a batch that was settled before its request completed."""
        if batch not in batch.partition.unreported:
            self.accumulator.release(batch)

    def _done(
        self,
        batch: ProducerBatch,
        base_offset: int,
        log_append_time_ms: int,
        error: Exception | None,
    ) -> None:
        """Settle a batch. It is reported once all earlier ones of its partition are."""
        batch.result = _Result(base_offset, log_append_time_ms, error)
        if error is None:
            self.metrics.records_acked += batch.builder.count
        else:
            self.metrics.records_failed += batch.builder.count
        self._report(batch.partition)

    def _report(self, queue: PartitionQueue) -> None:
        if self._reporting:  # this is inside a callback, which comes to its end first
            self._loop.call_soon(self._report, queue)
            return
        self._reporting = True
        try:
            while queue.unreported and queue.unreported[0].is_done:
                batch = queue.unreported.popleft()
                batch.report(self.on_batch, self.failures)
                if not batch.in_use:
                    self.accumulator.release(batch)
        finally:
            self._reporting = False
        if not queue.unreported:
            self.accumulator.active.pop(queue, None)
        self.on_settled()

    # --- the end

    def abandon(self, error: Exception, but_on_the_wire: bool = False) -> None:
        """Fail all batches that are not settled, those on the wire unless ``but_on_the_wire``."""
        for batch in list(self.accumulator.incomplete()):
            if batch.is_done or (but_on_the_wire and (batch.on_the_wire or batch.sequence >= 0)):
                continue
            self.doubts.move(batch.partition, Event.FAILED)
            if batch in batch.partition.queue:
                batch.partition.queue.remove(batch)
            if self.sequences is not None:
                self.sequences.abandoned(batch, False)
            self._done(batch, -1, -1, error)

    def close(self) -> None:
        """Stop sending."""
        self._closed = True
        self.compressing.close()
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
