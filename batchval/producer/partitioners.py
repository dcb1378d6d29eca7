"""Which partition a record without one goes to.

default      keys: Kafka's murmur2; no key: one partition until its batch is full, then another (KIP-480)
murmur2      keys: the same; no key: as an empty one, so all of these in one partition
round_robin  one after the other, keys or not
manual       whoever sends has to say
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
    """One producer's."""

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        """The partition of the next record of this topic, which has so many."""

    def on_new_batch(self, topic: str, partition: int) -> None:
        """A batch without keys was full: what follows begins another."""


class Default:
    """Keys hashed, the rest sticky."""

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
        """Another next time (the same where there is one only)."""
        if self._sticky.get(topic) == partition:
            self._sticky[topic] = -2 - partition  # which one is chosen when their number is known


class Murmur2(Default):
    """Keys hashed; no key is hashed as an empty one (librdkafka's murmur2)."""

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        return partition_of(b"" if key is None else key, partitions)


class RoundRobin:
    """By turns, from 0 on."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        return self.turn(topic, 1, partitions)

    def turn(self, topic: str, records: int, partitions: int) -> int:
        """The partition of the first of so many records; the turn of the one after them is next."""
        first = self._next.get(topic, 0) % partitions
        self._next[topic] = (first + records) % partitions
        return first

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Of no matter."""


class Manual:
    """None of its own."""

    def partition(self, topic: str, key: Buffer | None, partitions: int) -> int:
        raise ArgumentValueError(
            "invalid partition None: the partitioner 'manual' expects one with each record"
        )

    def on_new_batch(self, topic: str, partition: int) -> None:
        """Of no matter."""


def partitioner(name: str) -> Partitioner:
    """By the name in ProducerOptions.partitioner."""
    kinds: dict[str, Callable[[], Partitioner]]
    kinds = {"default": Default, "murmur2": Murmur2, "round_robin": RoundRobin, "manual": Manual}
    return kinds[name]()
