"""The messages of a hand-over, which two gates exchange on the control socket.

    4 bytes   "BVGH"
    uint32    length of the JSON object
    JSON      {"kind": "hello", "version": 1, "pid": 4711}

    new gate                        running gate
    hello    version, pid     ──▶
                              ◀──   sockets  keys, left, unready, state; descriptors come with it
                              ◀──   refused  why; in place of any other, and then it goes on alone
    ready                     ──▶            it has all that it needs
    failed   why              ──▶            in place of ready
                              ◀──   go
    took                      ──▶            it accepts connections; the running gate drains
                              ◀──   ended    the running gate has written its files and ends

A connection that the new gate closes stands for ``failed`` up to ``took``. One that the running
gate closes without ``refused`` stands for its end: it was killed, and the new one goes on alone.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

__all__ = [
    "MAX_NEW_GATE_BYTES",
    "MAX_RUNNING_GATE_BYTES",
    "VERSION",
    "GoneError",
    "HandOverError",
    "Incoming",
    "encoded",
]

VERSION: Final = 1

#: Bytes of a message: of the new gate, and of the running one, whose first holds all brokers.
MAX_NEW_GATE_BYTES: Final = 4 << 10
MAX_RUNNING_GATE_BYTES: Final = 8 << 20

_MAGIC: Final = b"BVGH"
_HEADER: Final = struct.Struct(">4sI")


class HandOverError(OSError):
    """An error: the hand-over cannot go on; the text says why."""


def encoded(kind: str, **values: object) -> bytes:
    """Return a message."""
    data = json.dumps({"kind": kind, **values}).encode()
    return _HEADER.pack(_MAGIC, len(data)) + data


class GoneError(HandOverError):
    """An error: the running gate has ended without a message."""


class Incoming:
    """Messages of a byte stream, at most ``most`` bytes each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that are complete by now. Raises HandOverError."""
        self._data += data
        found = []
        while (size := self._size()) <= len(self._data):
            found.append(_message(bytes(self._data[_HEADER.size : size])))
            del self._data[:size]
        return found

    def _size(self) -> int:
        """Return the size of the first message with its header."""
        start = bytes(self._data[: len(_MAGIC)])
        if start != _MAGIC[: len(start)]:
            raise HandOverError(f"it sent {start!r}, which begins no message of a hand-over")
        if len(self._data) < _HEADER.size:
            return _HEADER.size
        size: int = _HEADER.unpack_from(self._data)[1]
        if not 0 < size <= self._most:
            raise HandOverError(f"its message has {size} bytes, expected 1 to {self._most}")
        return _HEADER.size + size


def _message(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise HandOverError("its message is not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise HandOverError("its message is not a JSON object with a kind")
    return message
