"""No acknowledged record lost, doubled, moved or reordered: a checker of sets, for what was sent through the gate.

Each record says who it is: producer, number, topic and partition, and a digest of all of that. Acknowledgements are
noted with the offset they gave. At the end everything is read: each acknowledged record must be there exactly once, at
its offset; an unacknowledged one at most once; a producer's records in each partition in their order; nothing unknown.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


def value_of(producer: int, number: int, topic: str, partition: int, size: int = 100) -> bytes:
    """A record's value, padded to a size."""
    head = b"%d %d %s %d " % (producer, number, topic.encode(), partition)
    return head + hashlib.sha256(head).hexdigest()[:16].encode() + b" " + b"." * max(0, size - len(head) - 17)


def told_by(value: bytes) -> tuple[int, int, str, int] | None:
    """(producer, number, topic, partition) that a value names; None where its digest is another's."""
    parts = value.split(b" ")
    if len(parts) < 5:
        return None
    head = b" ".join(parts[:4]) + b" "
    if hashlib.sha256(head).hexdigest()[:16].encode() != parts[4]:
        return None
    return int(parts[0]), int(parts[1]), parts[2].decode(), int(parts[3])


@dataclass
class Checker:
    """``acknowledged``: (producer, number) -> (topic, partition, offset). ``sent``: all there are."""

    acknowledged: dict[tuple[int, int], tuple[str, int, int]] = field(default_factory=dict)
    sent: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)

    def findings(self, records: list[tuple[str, int, int, bytes]]) -> list[str]:
        """What is wrong with what was read: (topic, partition, offset, value), in offset order in each partition."""
        found: list[str] = []
        places: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
        last: dict[tuple[int, str, int], int] = {}
        for topic, partition, offset, value in records:
            told = told_by(value)
            if told is None:
                found.append(f"damaged: {topic}-{partition} at {offset}")
                continue
            producer, number, own_topic, own_partition = told
            if (producer, number) not in self.sent:
                found.append(f"unknown: {producer}/{number}")
            if (own_topic, own_partition) != (topic, partition):
                found.append(f"moved: {producer}/{number} is in {topic}-{partition}")
            places.setdefault((producer, number), []).append((topic, partition, offset))
            before = last.get((producer, topic, partition), -1)
            if number < before:
                found.append(f"reordered: {producer}/{number} after {before} in {topic}-{partition}")
            last[producer, topic, partition] = max(before, number)
        for who, there in places.items():
            if len(there) > 1:
                found.append(f"doubled: {who[0]}/{who[1]} at {there}")
        for who, place in self.acknowledged.items():
            if who not in places:
                found.append(f"lost: {who[0]}/{who[1]}, acknowledged at {place}")
            elif place not in places[who]:
                found.append(f"elsewhere: {who[0]}/{who[1]} was acknowledged at {place}, is at {places[who]}")
        return found
