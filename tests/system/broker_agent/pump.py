"""Many small batches with claims for one broker, many in a Produce request.

A request has one batch for each partition of a topic. Its frame is joined from parts that are made
once, so Python costs a fraction of what the broker does with it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from batchval.core.claims import TAG
from tests.support.batches import uvarint
from tests.support.proxy import read_frame
from tests.system.broker_agent.raw import Connection

__all__ = ["Pump"]

_VERSION = 9
#: Unknown topic or partition, not the leader.
_NOT_YET = (3, 6)
PATIENCE = 60  # seconds
#: Of an answer without errors: index, error code, base offset, append time, start offset, and
#: three empty fields.
_ANSWER = np.dtype([("index", ">i4"), ("error", ">i2"), ("offsets", "V24"), ("empty", "V3")])


class Pump:
    """Produce requests on a connection to partitions 0 to ``partitions`` - 1 of a topic.

    ``send()`` sends the batch of ``body`` (see `part`) to each; ``send({3: lie})`` has another in
    partition 3. Requests may be pipelined. ``receive()`` raises AssertionError unless every batch
    was accepted.
    """

    def __init__(self, connection: Connection, topic: str, partitions: int, body: bytes) -> None:
        self.connection, self.partitions = connection, partitions
        name = topic.encode()
        head = struct.pack(">hhih4s", 0, _VERSION, 7, 4, b"test") + b"\0"
        # no transactional id, acks 1, timeout, one topic, its name, its partitions
        self._head = (
            head + b"\0" + struct.pack(">hi", 1, 30_000) + b"\2" + uvarint(len(name) + 1) + name
        )
        self._tail = b"\0\0"
        self._parts = [struct.pack(">i", index) + body for index in range(partitions)]
        self._frame = self._joined(self._parts)
        # correlation id, tags, one topic, its name, its partitions
        self._skip = 5 + 1 + len(uvarint(len(name) + 1)) + len(name) + len(uvarint(partitions + 1))
        self._size = self._skip + partitions * _ANSWER.itemsize + 1 + 4 + 1

    @staticmethod
    def part(records: bytes, tag: bytes | None) -> bytes:
        """Return what a request has of one batch, after the partition's index."""
        tags = b"\0" if tag is None else b"\1" + uvarint(TAG) + uvarint(len(tag)) + tag
        return uvarint(len(records) + 1) + records + tags

    def _joined(self, parts: Sequence[bytes]) -> bytes:
        frame = self._head + uvarint(len(parts) + 1) + b"".join(parts) + self._tail
        return struct.pack(">i", len(frame)) + frame

    def send(self, others: Mapping[int, bytes] | None = None) -> None:
        """Send one request; ``others`` has parts for some of the partitions."""
        if not others:
            self.connection.socket.sendall(self._frame)
            return
        parts = list(self._parts)
        for index, body in others.items():
            parts[index] = struct.pack(">i", index) + body
        self.connection.socket.sendall(self._joined(parts))

    def receive(self) -> None:
        errors = self._errors()
        assert not errors.any(), errors

    def prepare(self) -> None:
        """Send requests until the broker leads every partition of a topic that was just made."""
        until = time.monotonic() + PATIENCE
        self.send()
        while (errors := self._errors()).any():
            assert set(errors) <= {0, *_NOT_YET}, errors
            assert time.monotonic() < until, errors
            time.sleep(0.05)
            self.send()

    def _errors(self) -> np.ndarray[Any, Any]:
        answer = read_frame(self.connection.socket)
        assert len(answer) == self._size, answer[:200]
        return np.frombuffer(answer, _ANSWER, self.partitions, self._skip)["error"]
