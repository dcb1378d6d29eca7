"""Who gets what: Kafka's range assignor, and the bytes in which members say what they want and
leaders what they get.

subscription  int16 version, array of string topics, nullable bytes user data, later versions'
fields
assignment    int16 version, array of (string topic, array of int32 partitions), nullable bytes user data
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from batchval.fetch.state import TopicPartition
from batchval.protocol.primitives import Reader, Writer

__all__ = [
    "assign_range",
    "read_assignment",
    "read_subscription",
    "write_assignment",
    "write_subscription",
]


def write_subscription(topics: Iterable[str]) -> bytes:
    """Version 0, which every member of any release reads."""
    w = Writer()
    w.int16(0)
    names = sorted(topics)
    w.count(len(names))
    for name in names:
        w.string(name)
    w.nullable_data(None)
    return w.getvalue()


def read_subscription(data: bytes) -> list[str]:
    """The topics; whatever later versions add is for other assignors. Raises ProtocolError."""
    r = Reader(data)
    r.int16()
    return [r.string() for _ in range(r.count())]


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Version 0."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    w = Writer()
    w.int16(0)
    w.count(len(by_topic))
    for topic, numbers in by_topic.items():
        w.string(topic)
        w.int32_array(numbers)
    w.nullable_data(None)
    return w.getvalue()


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Nothing for no bytes: a member that the leader did not know. Raises ProtocolError."""
    if not data:
        return []
    r = Reader(data)
    r.int16()
    given: list[TopicPartition] = []
    for _ in range(r.count()):
        topic = r.string()
        given += [TopicPartition(topic, number) for number in r.int32_array()]
    return given


def assign_range(
    wanted: Mapping[str, Iterable[str]], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """member → what it gets, of member → topics and topic → partitions: for each topic, members by
    name get a stretch.

    The first get one more where it does not divide (Kafka's RangeAssignor, without racks and static
    members).
    """
    given: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
    members_of: dict[str, list[str]] = {}
    for member in sorted(wanted):
        for topic in set(wanted[member]):
            members_of.setdefault(topic, []).append(member)
    for topic in sorted(members_of):
        members = members_of[topic]
        each, more = divmod(partitions.get(topic, 0), len(members))
        start = 0
        for n, member in enumerate(members):
            end = start + each + (n < more)
            given[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return given
