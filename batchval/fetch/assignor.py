"""Kafka's range assignor, and the bytes of subscriptions and assignments.

subscription  int16 version, array of string topics, nullable bytes user data, and the fields of
              later versions
assignment    int16 version, array of (string topic, array of int32 partitions),
              nullable bytes user data
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from batchval.fetch.subscription_state import TopicPartition
from batchval.protocol.primitives import Reader, Writer

__all__ = [
    "assign_range",
    "read_assignment",
    "read_subscription",
    "write_assignment",
    "write_subscription",
]


def write_subscription(topics: Iterable[str]) -> bytes:
    """Write a subscription in version 0, which members of any release read."""
    w = Writer()
    w.int16(0)
    names = sorted(topics)
    w.count(len(names))
    for name in names:
        w.string(name)
    w.nullable_data(None)
    return w.getvalue()


def read_subscription(data: bytes) -> list[str]:
    """Return the topics, without the fields of later versions. Raises ProtocolError."""
    r = Reader(data)
    r.int16()
    return [r.string() for _ in range(r.count())]


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Write an assignment in version 0."""
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
    """Read an assignment: [] from no bytes, for a member that the leader did not know.

    Raises ProtocolError.
    """
    if not data:
        return []
    r = Reader(data)
    r.int16()
    assigned: list[TopicPartition] = []
    for _ in range(r.count()):
        topic = r.string()
        assigned += [TopicPartition(topic, number) for number in r.int32_array()]
    return assigned


def assign_range(
    wanted: Mapping[str, Iterable[str]], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Return member → partitions, from member → topics and topic → partition count.

    Kafka's RangeAssignor, without racks and static members: for each topic, members in order of
    name get a range each, the first ones one partition more if the count does not divide.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
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
            assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assigned
