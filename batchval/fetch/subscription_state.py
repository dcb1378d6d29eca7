"""The positions of a consumer's partitions: returned to the caller, to fetch next, in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from batchval.fetch.receiver import Receiver

__all__ = [
    "ConsumerMetrics",
    "ConsumerRecord",
    "FetchedBatches",
    "PartitionState",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """A partition; any (topic, partition) is taken for one."""

    topic: str
    partition: int


class FetchedBatches(NamedTuple):
    """Whole batches of one partition, as the broker sent them.

    The first batch may begin below ``fetch_offset``; control batches are among them:
    ``walk_fetched(records, fetch_offset)`` leaves out what is to be left out. ``records`` is a
    slice of what came, valid as long as it is held. With ``read_committed`` batches of aborted
    transactions are not there: an answer that has some comes in several parts, and ``records`` is
    empty where nothing is left of it.
    """

    topic: str
    partition: int
    records: memoryview
    high_watermark: int
    fetch_offset: int
    next_offset: int


class ConsumerRecord(NamedTuple):
    """One decompressed record. Timestamps in ms, -1 in magic 0; key and value None for null."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class ConsumerMetrics:
    """Counts since the consumer was opened.

    ``bytes`` are those of whole batches, ``requests`` Fetch requests. ``answers`` to them have a
    latency, from ``send`` on.
    """

    rebalances: int = 0
    rebalance_time_ms: float = 0.0
    bytes: int = 0
    requests: int = 0
    answers: int = 0
    fetch_latency_ms: float = 0.0
    fetch_latency_ms_max: float = 0.0
    commits: int = 0
    heartbeats: int = 0


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition. ``token`` changes when earlier requests are not wanted any more."""

    tp: TopicPartition
    position: int | None = None  # offset of the next record to return to the caller
    fetch_position: int = 0  # offset of the next record to fetch
    reset: str | None = None  # "earliest" or "latest": to be asked for
    paused: bool = False
    in_flight: bool = False
    buffered: int = 0  # answers that the caller has not seen
    stalled: int = 0  # answers in a row whose records led no further
    retry_at: float = 0.0  # seconds of the loop's clock
    token: int = 0
    # its slot, where a native thread fetches it (batchval.fetch.streams)
    share: tuple[Receiver, int] | None = None
    plain: int = 0  # fetches before it may be

    def seek(self, offset: int | None) -> None:
        """Set the position; None: unknown, to be looked up."""
        self.position = offset
        self.fetch_position = offset or 0
        self.reset = None
        self.buffered = 0
        self.retry_at = 0.0
        self.stalled = 0
        self.token += 1
