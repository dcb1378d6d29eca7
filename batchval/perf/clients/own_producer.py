"""batchval's own producer as perf produce: one native call for many records; stamps come back by
batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import functools
import math
import os
import struct
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from batchval.errors import BatchvalError, ErrorCode
from batchval.network.errors import BrokerError
from batchval.perf.clients.kafka_metrics import Metrics, average, named
from batchval.perf.histogram import now_ns
from batchval.perf.produce import OnBatch, OnWire, ProduceError
from batchval.perf.tally import ClientRoundTrips
from batchval.producer import BatchDone, Producer, ProducerOptions
from batchval.producer.errors import RecordTooLargeError
from batchval.protocol.apis import ApiKey

__all__ = ["OwnProducer", "Pause"]

#: The last part of a wait, in turns of the loop: as late a wake-up may be.
_TURNS_NS: Final = 60_000
#: The same for a thread that shares its interpreter with none: a processor that has gone to sleep
#: takes 50 to 150 µs to wake, and has cold caches then.
_AWAKE_NS: Final = 2_000_000
_LOOP_NS: Final = 1_500_000  # a timer of a loop is late by this at most
_CLOCK_MONOTONIC: Final = 1  # Linux, time.h
_TFD_NONBLOCK, _TFD_CLOEXEC, _TFD_TIMER_ABSTIME = os.O_NONBLOCK, getattr(os, "O_CLOEXEC", 0), 1
_ITIMERSPEC: Final = struct.Struct("@llll")


class Pause:
    """A timer on the running loop, exact to one iteration of it. ``close`` it on that loop.

    A loop's timers count whole milliseconds. Linux's timerfd counts nanoseconds: the loop waits for
    one that ends shortly before the instant, and takes turns through the rest, so answers are read
    meanwhile.

    ``is_alone``  no other thread of the process needs the interpreter: stay awake for longer
    """

    def __init__(self, *, is_alone: bool = False) -> None:
        self._awake_ns = _AWAKE_NS if is_alone else _TURNS_NS
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._timer = _timer()
        if self._timer is not None:
            self._loop.add_reader(self._timer, self._fired)

    async def until(self, instant: int) -> None:
        """Return at ``instant`` (ns of the monotonic clock), or soon after it."""
        early = self._awake_ns if self._timer is not None else max(self._awake_ns, _LOOP_NS)
        rest = instant - now_ns()
        if rest > early:
            await self._sleep(instant - early, (rest - early) / 1e9)
        while True:
            await asyncio.sleep(0)
            if now_ns() >= instant:
                return

    async def _sleep(self, instant: int, seconds: float) -> None:
        if self._timer is None:
            await asyncio.sleep(seconds)
            return
        self._waiting = self._loop.create_future()
        _set(self._timer, instant)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _fired(self) -> None:
        assert self._timer is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer, 8)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._loop.remove_reader(self._timer)
            os.close(self._timer)
            self._timer = None


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _timer() -> int | None:
    """Return a timerfd, None where the system has none. (Python 3.13 has os.timerfd_create.)"""
    if sys.platform != "linux":
        return None
    try:
        made: int = _libc().timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
    except AttributeError:
        return None
    return made if made >= 0 else None


def _set(timer: int, instant: int) -> None:
    """Have the timer fire once, at this instant."""
    wanted = _ITIMERSPEC.pack(0, 0, *divmod(max(instant, 1), 1_000_000_000))
    if _libc().timerfd_settime(timer, _TFD_TIMER_ABSTIME, wanted, None):
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))


METADATA_MS = 10_000.0


def _name(error: BaseException) -> str:
    """Return Kafka's name of an error code, or the name of the error's class."""
    if isinstance(error, BrokerError):
        try:
            return ErrorCode(error.code).name
        except ValueError:
            return f"error code {error.code}"
    return type(error).__name__.removesuffix("Error")


class OwnProducer:
    """One producer, made in the loop of its thread.

    ``is_alone``  no other thread sends or reads: see ``Pause``
    """

    def __init__(
        self,
        options: ProducerOptions,
        topic: str,
        *,
        partition: int | None = None,
        is_alone: bool = False,
    ) -> None:
        self._options, self._topic, self._partition = options, topic, partition
        self._is_alone = is_alone
        self._producer: Producer | None = None
        self._pause: Pause | None = None
        self.partitions = 0
        self._opened_ns = self._closed_ns = 0
        self._on_batch: OnBatch

    async def open(self, on_batch: OnBatch, on_wire: OnWire) -> None:
        def answered(api_key: int, written_ns: int, first_byte_ns: int) -> None:
            if api_key == ApiKey.PRODUCE:
                on_wire(written_ns, first_byte_ns)

        self._on_batch = on_batch
        self._pause = Pause(is_alone=self._is_alone)
        block = self._options.max_block_ms
        self._producer = producer = Producer(
            dataclasses.replace(
                self._options, max_block_ms=min(block, METADATA_MS), on_wire=answered
            )
        )
        producer.on_batch = self._done
        try:
            self.partitions = partitions = await producer.partitions_for(self._topic)
            if self._options.transactional_id is not None:
                await producer.init_transactions()
        except (BatchvalError, OSError) as error:
            raise ProduceError(str(error)) from None
        if self._partition is not None and self._partition >= partitions:
            raise ProduceError(
                f"topic {self._topic} has no partition {self._partition}, but {partitions} of them"
            )
        producer.options.max_block_ms = block
        self._opened_ns = now_ns()

    def _done(self, done: BatchDone) -> None:
        error = None if done.error is None else _name(done.error)
        self._on_batch(done.stamps, error, done.value_bytes, done.wire_bytes)

    def send(self, values: Any, stamps: Any) -> int:
        assert self._producer is not None
        try:
            return self._producer.send_many(self._topic, values, stamps, partition=self._partition)
        except RecordTooLargeError as error:
            if len(stamps) == 1:
                self._on_batch(stamps, _name(error), 0, 0)
                return 1
            # one of them: each by itself
            one = isinstance(values, bytes)
            for n in range(len(stamps)):
                if not self.send(values if one else values[n : n + 1], stamps[n : n + 1]):
                    return n
            return len(stamps)

    async def wait_for_space(self) -> None:
        assert self._producer is not None
        try:
            await self._producer.wait_for_space()
        except BatchvalError as error:
            raise ProduceError(str(error)) from None

    async def pause(self, seconds: float) -> None:
        assert self._pause is not None
        await self._pause.until(now_ns() + int(seconds * 1e9))

    async def flush(self) -> None:
        assert self._producer is not None
        await self._producer.flush()

    async def begin(self) -> None:
        assert self._producer is not None
        try:
            self._producer.begin_transaction()
        except BatchvalError as error:
            raise ProduceError(f"the transaction is not begun: {error}") from None

    async def commit(self) -> None:
        assert self._producer is not None
        try:
            await self._producer.commit_transaction()
        except BatchvalError as error:
            raise ProduceError(f"the transaction is not committed: {error}") from None

    async def close(self) -> None:
        if self._producer is not None:
            self._closed_ns = now_ns()
            await self._producer.close(0)
        if self._pause is not None:
            self._pause.close()

    def in_flight(self) -> tuple[Mapping[int, int], int, bool]:
        if self._producer is None or self._options.acks == 0:  # nothing is waited for
            return Counter(), 0, False
        metrics = self._producer.metrics
        return dict(metrics.highest_in_flight), metrics.highest_in_flight_total, False

    def waiting(self) -> int:
        assert self._producer is not None
        return self._producer.requests_in_flight

    def round_trips(self) -> ClientRoundTrips | None:
        return None

    def metrics(self) -> Metrics:
        """Return what the producer counted, by Kafka's names; Produce requests alone."""
        if self._producer is None:
            return {}
        found = self._producer.metrics
        client_id = str(self._options.client_id)
        seconds = (self._closed_ns or now_ns()) / 1e9 - self._opened_ns / 1e9
        records = {
            "record-error-rate": average(found.records_failed, seconds),
            "record-error-total": found.records_failed,
            "record-retry-rate": average(found.records_retried, seconds),
            "record-retry-total": found.records_retried,
            "record-send-rate": average(found.records_sent, seconds),
            "record-send-total": found.records_sent,
        }
        requests = {
            "batch-size-avg": average(found.bytes_wire, found.batches),
            "batch-split-total": found.splits,
            "produce-throttle-time-avg": average(found.throttle_time_ms, found.answers),
            "records-per-request-avg": average(found.records_sent, found.requests),
            "request-latency-avg": average(found.request_latency_ms, found.answers),
            "request-latency-max": found.request_latency_ms_max if found.answers else math.nan,
        }
        size = {
            "byte-rate": average(found.bytes_wire, seconds),
            "byte-total": found.bytes_wire,
        }
        own = {
            "batch-total": found.batches,
            "produce-request-total": found.requests,
            "record-acknowledged-total": found.records_acked,
        }
        metrics = named("producer-metrics", records | requests, client_id)
        metrics |= named("producer-topic-metrics", records | size, client_id, topic=self._topic)
        return metrics | named("batchval-producer-metrics", own, client_id)
