"""The states of leaders' connections that a native thread reads (``batchval.fetch.streams``)."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from typing import Final

from batchval.fetch.receive_loop import ReceiveLoop
from batchval.fetch.receiver import Counted, Receiver
from batchval.fetch.state import PartitionState
from batchval.network.request import Node

__all__ = ["NOTHING", "Line", "LineState", "abandon", "added"]

NOTHING: Final = Counted(0, 0, 0, 0, 0, 0, 0, 0, -1, 0)


class LineState(enum.Enum):
    """The state of a leader's connection."""

    CLOSED = enum.auto()
    OPENING = enum.auto()
    RUNNING = enum.auto()
    REFUSED = enum.auto()


@dataclass(slots=True, eq=False)
class Line:
    """A connection to one leader."""

    leader: Node
    node: Node
    others: list[Line]  # all to this leader
    state: LineState = LineState.CLOSED
    opens_at: float = 0.0  # seconds of the loop's clock: not before
    receiver: Receiver | None = None
    socket: int = -1  # the thread's own descriptor
    slots: dict[int, PartitionState] = field(default_factory=dict)
    #: token and pause of each slot as the receiver has them
    tokens: dict[int, tuple[int, bool]] = field(default_factory=dict)


def added(one: Counted, other: Counted) -> Counted:
    """Return the sum of two counts."""
    return Counted(
        one.records + other.records,
        one.bytes + other.bytes,
        one.batches + other.batches,
        one.wire_bytes + other.wire_bytes,
        one.requests + other.requests,
        one.answers + other.answers,
        one.latency_ns + other.latency_ns,
        max(one.latency_ns_max, other.latency_ns_max),
        max(one.lag, other.lag),
        max(one.last_ns, other.last_ns),
    )


def abandon(thread: ReceiveLoop, descriptors: set[int], process: int) -> None:
    """End the thread, also of a consumer that was never closed, and close what it has used.

    ``process``  the one that it runs in: a child has no such thread, and would wait for it
    """
    if os.getpid() != process:
        return
    thread.stop()
    while descriptors:
        os.close(descriptors.pop())
