"""Check that a log has the records that it acknowledged: nothing lost, doubled, moved,
reordered or invented.

    value = uint16 producer, uint32 CRC-32 of "topic-partition", uint64 sequence,
            8 bytes of SHA-256 of these, padding

Every acknowledged record has to be in the log exactly once, at the offset that was acknowledged.
One that was sent and not acknowledged may be there once, where it was sent to. Within a partition a
producer's sequences rise.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

__all__ = [
    "Acked",
    "Findings",
    "Stored",
    "Transaction",
    "check",
    "check_transactions",
    "payload",
    "slot_of",
    "unpacked",
]

_HEAD = struct.Struct(">HIQ")
_DIGEST = 8
MAX_NAMED = 5  # of a kind


class Acked(NamedTuple):
    """An acknowledgement. ``offset`` -1: the broker confirmed the record, but not its offset."""

    producer: int
    sequence: int
    topic: str
    partition: int
    offset: int


class Stored(NamedTuple):
    """A record as a consumer reads it."""

    topic: str
    partition: int
    offset: int
    value: bytes


class Transaction(NamedTuple):
    """A producer's records ``first`` to ``end`` - 1, and how their transaction ended.

    ``outcome``  committed, aborted, or unknown: the producer was at its end before the answer
    """

    producer: int
    first: int
    end: int
    outcome: str


class Findings:
    """What is wrong, by kind: how often, and the first few in words. Empty (false) where nothing
    is.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.named: dict[str, list[str]] = {}

    def add(self, kind: str, what: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        named = self.named.setdefault(kind, [])
        if len(named) < MAX_NAMED:
            named.append(what)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        return "; ".join(
            f"{kind} {count}: {', '.join(self.named[kind])}" for kind, count in self.counts.items()
        )


@functools.cache
def slot_of(topic: str, partition: int) -> int:
    """Return where a value states that it was sent."""
    return zlib.crc32(f"{topic}-{partition}".encode())


def payload(producer: int, sequence: int, topic: str, partition: int, size: int = 40) -> bytes:
    """Build the value of a record."""
    head = _HEAD.pack(producer, slot_of(topic, partition), sequence)
    return (head + hashlib.sha256(head).digest()[:_DIGEST]).ljust(size, b".")


def unpacked(value: bytes) -> tuple[int, int, int] | None:
    """Return (producer, sequence, slot), or None if the value is not as it was sent."""
    if len(value) < _HEAD.size + _DIGEST:
        return None
    head, digest, padding = (
        value[: _HEAD.size],
        value[_HEAD.size : _HEAD.size + _DIGEST],
        value[_HEAD.size + _DIGEST :],
    )
    if hashlib.sha256(head).digest()[:_DIGEST] != digest or padding.strip(b"."):
        return None
    producer, slot, sequence = _HEAD.unpack(head)
    return producer, sequence, slot


def check(acked: Iterable[Acked], stored: Iterable[Stored], sent: Mapping[int, int]) -> Findings:
    """Compare. ``stored`` is in offset order in each partition; ``sent``: the number by
    producer.
    """
    found = Findings()
    acks = {(ack.producer, ack.sequence): ack for ack in acked}
    places: set[tuple[int, int]] = set()
    last: dict[tuple[str, int, int], int] = {}
    for record in stored:
        where = f"{record.topic}-{record.partition}@{record.offset}"
        read = unpacked(record.value)
        if read is None:
            found.add("damaged", where)
            continue
        producer, sequence, own_slot = read
        who = producer, sequence
        name = f"{producer}/{sequence}"
        if sequence >= sent.get(producer, 0):
            found.add("unknown", f"{name} at {where}")
            continue
        if who in places:
            found.add("doubled", f"{name} at {where}")
            continue
        places.add(who)
        ack = acks.get(who)
        here = (record.topic, record.partition)
        if ack is not None and (
            here != (ack.topic, ack.partition) or ack.offset not in (-1, record.offset)
        ):
            found.add("moved", f"{name} to {where} from {ack.topic}-{ack.partition}@{ack.offset}")
        elif own_slot != slot_of(*here):
            found.add("moved", f"{name} to {where}, which it was not sent to")
        slot = (record.topic, record.partition, producer)
        before = last.get(slot, -1)
        if sequence < before:
            found.add("reordered", f"{name} at {where} after {before}")
        else:
            last[slot] = sequence
    for producer, sequence in acks.keys() - places:
        found.add("lost", f"{producer}/{sequence}")
    return found


def check_transactions(transactions: Iterable[Transaction], seen: Set[tuple[int, int]]) -> Findings:
    """Compare outcomes with what a reader of committed records has seen: (producer, sequence).

    All of a committed transaction has to be there, nothing of an aborted one, and of one whose
    outcome is unknown all or nothing.
    """
    found = Findings()
    for one in transactions:
        here = sum((one.producer, sequence) in seen for sequence in range(one.first, one.end))
        name = f"{one.producer}/{one.first} to {one.end - 1}: {here} of {one.end - one.first}"
        if one.outcome == "committed" and here < one.end - one.first:
            found.add("lost", name)
        elif one.outcome == "aborted" and here:
            found.add("aborted and there", name)
        elif 0 < here < one.end - one.first:
            found.add("torn", name)
    return found
