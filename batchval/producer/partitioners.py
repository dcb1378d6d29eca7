"""Partitioners: each chooses the partition of a record that was sent without one.

default      keys: Kafka's murmur2; no key: one partition until its batch is full, then another (KIP-480)
murmur2      keys: the same; no key: as an empty one, so all of these in one partition
round_robin  one after the other, keys or not
manual       the caller has to name it
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from batchval.errors import ArgumentValueError
from batchval.producer.murmur2 import partition_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Default", "Manual", "Murmur2", "Partitioner", "RoundRobin", "partitioner"]


class Partitioner(Protocol):
    """The partitioner of one producer."""

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        """Return the partition of the topic's next record: 0 to ``partitions`` - 1."""

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Note that a batch of records without keys is full: the next record begins another."""


class Default:
    """A partitioner that hashes keys and keeps to one partition for records without keys."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._sticky: dict[str, int] = {}

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        if key is not None:
            return partition_of(key, partitions)
        chosen = self._sticky.get(topic, -1)
        if not 0 <= chosen < partitions:
            before = -2 - chosen  # the one that was left, or -1
            others = partitions - 1 if 0 <= before < partitions and partitions > 1 else partitions
            chosen = self._random.randrange(others)
            if others < partitions and chosen >= before:
                chosen += 1
            self._sticky[topic] = chosen
        return chosen

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Choose another partition for the next record (the same one where there is one only)."""
        if self._sticky.get(topic) == partition:
            self._sticky[topic] = -2 - partition  # which one is chosen when their number is known


class Murmur2:
    """A partitioner that hashes keys, and a missing key as an empty one (librdkafka's murmur2)."""

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        return partition_of(b"" if key is None else key, partitions)

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Ignore it: the partition depends on the key alone."""


class RoundRobin:
    """A partitioner that takes partitions in turn, starting at 0."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        return self.turn(topic, 1, partitions)

    def turn(self, topic: str, records: int, partitions: int) -> int:
        """Return the partition of the first of ``records`` records, and advance past them all."""
        first = self._next.get(topic, 0) % partitions
        self._next[topic] = (first + records) % partitions
        return first

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Ignore it: the partition does not depend on batches."""


class Manual:
    """A partitioner that requires a partition with each record."""

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        raise ArgumentValueError(
            "invalid partition None: the partitioner 'manual' expects one with each record"
        )

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Ignore it: the partition does not depend on batches."""


def partitioner(name: str) -> Partitioner:
    """Return a new partitioner by its name in ProducerOptions.partitioner."""
    kinds: dict[str, Callable[[], Partitioner]]
    kinds = {"default": Default, "murmur2": Murmur2, "round_robin": RoundRobin, "manual": Manual}
    return kinds[name]()
