"""batchval's own consumer as a reader of perf roundtrip: some partitions, without a group."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import groupby
from typing import Any, Final, TypeVar

from batchval.errors import BatchvalError
from batchval.fetch import Consumer, ConsumerOptions, TopicPartition
from batchval.network.errors import AuthenticationError, NetworkError
from batchval.network.loops import loop_factory
from batchval.perf.consume import ConsumeError

__all__ = ["OwnReader"]

OPEN_MS: Final = 10_000
MOST_RECORDS: Final = 500  # Kafka's max.poll.records

T = TypeVar("T")


class OwnReader:
    """A consumer with its own loop, which runs in the thread that polls."""

    def __init__(self, options: ConsumerOptions, topic: str, partitions: list[int]) -> None:
        self._options = options
        self._partitions = [(topic, number) for number in partitions]
        self._loop = loop_factory()()
        self._consumer: Consumer | None = None
        self._last_error = ""
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

    def poll(self, timeout_ms: int) -> list[tuple[int, list[bytes | None]]]:
        """Return values by partition, at most 500. ConsumeError."""
        assert self._consumer is not None
        came = self._run(self._consumer.poll(timeout_ms, MOST_RECORDS)) or []
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

    def last_error(self) -> str:
        """Return what did not work last, or nothing."""
        return self._last_error

    def close(self) -> None:
        """End all connections."""
        try:
            if self._consumer is not None:
                self._run(self._consumer.close())
        finally:
            self._loop.close()
