"""Kafka's range assignor, and the bytes of subscriptions and assignments."""

from __future__ import annotations

import struct

import pytest

from batchval.fetch.assignor import (
    assign_range,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from batchval.fetch.subscription_state import TopicPartition
from batchval.protocol.errors import ProtocolError


def numbers(assigned: dict[str, list[TopicPartition]]) -> dict[str, list[tuple[str, int]]]:
    return {member: [tuple(one) for one in partitions] for member, partitions in assigned.items()}


@pytest.mark.parametrize(
    ("wanted", "partitions", "assigned"),
    [
        ({"b": ["t"], "a": ["t"]}, {"t": 3}, {"a": [("t", 0), ("t", 1)], "b": [("t", 2)]}),
        (
            {"a": ["t"], "b": ["t"], "c": ["t"]},
            {"t": 2},
            {"a": [("t", 0)], "b": [("t", 1)], "c": []},
        ),
        (
            {"a": ["t", "u"], "b": ["u"]},
            {"t": 1, "u": 2},
            {"a": [("t", 0), ("u", 0)], "b": [("u", 1)]},
        ),
        ({"a": ["t"], "b": ["gone"]}, {"t": 2, "gone": 0}, {"a": [("t", 0), ("t", 1)], "b": []}),
        ({"a": ["t", "t"]}, {"t": 1}, {"a": [("t", 0)]}),
        ({}, {}, {}),
    ],
)
def test_range(
    wanted: dict[str, list[str]],
    partitions: dict[str, int],
    assigned: dict[str, list[tuple[str, int]]],
) -> None:
    assert numbers(assign_range(wanted, partitions)) == assigned


def test_bytes() -> None:
    assert write_subscription(["b", "a"]) == struct.pack(">hih1sh1si", 0, 2, 1, b"a", 1, b"b", -1)
    later = struct.pack(">hih1sii", 1, 1, 1, b"t", -1, 0)  # version 1: owned partitions follow
    assert read_subscription(later) == ["t"]
    assert read_subscription(write_subscription(["x", "y"])) == ["x", "y"]
    partitions = [TopicPartition("t", 3), TopicPartition("t", 1), TopicPartition("u", 0)]
    data = write_assignment(partitions)
    assert data == struct.pack(">hih1siiih1siii", 0, 2, 1, b"t", 2, 3, 1, 1, b"u", 1, 0, -1)
    assert read_assignment(data) == partitions
    assert read_assignment(b"") == []
    for cut in range(1, len(data) - 4):
        with pytest.raises(ProtocolError):
            read_assignment(data[:cut])
