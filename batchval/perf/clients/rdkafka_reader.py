"""librdkafka as a reader of perf roundtrip: some partitions, without a group being joined."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from batchval.perf.clients.rdkafka import METADATA_S, LastError, error_text, reason
from batchval.perf.clients.rdkafka_package import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from batchval.perf.consume import ConsumeError
from batchval.perf.properties import PropertyError

__all__ = ["RdkafkaReader"]

MOST_RECORDS: Final = 500  # Kafka's max.poll.records
_QUIET: Final = {
    "log_level": 0,
    "fetch.queue.backoff.ms": 2,
    "enable.auto.commit": False,
    "group.id": "perf-roundtrip",
}
_PASSING: Final = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT}


class RdkafkaReader:
    """One consumer, for one thread. ``config``: librdkafka's names."""

    def __init__(self, config: Mapping[str, Any], topic: str, partitions: list[int]) -> None:
        self._partitions = [TopicPartition(topic, number) for number in partitions]
        self._complaint = LastError()
        self._final: dict[int, int] | None = None  # ends, once all was produced
        try:
            self._consumer = Consumer({**_QUIET, **config, "error_cb": self._complaint})
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
        return error.code() in _PASSING or error.retriable()

    def poll(self, timeout_ms: int) -> list[tuple[int, list[bytes | None]]]:
        """Return values by partition, at most 500. ConsumeError."""
        try:
            # consume() alone would wait for as many until the time is over
            first = self._consumer.poll(timeout_ms / 1000)
            came = [] if first is None else [first, *self._consumer.consume(MOST_RECORDS - 1, 0)]
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
