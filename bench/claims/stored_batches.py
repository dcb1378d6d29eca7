"""Count the batches that a broker has stored, from the segment files of its log.

batch   int64 base_offset, int32 length (of what follows), ...
"""

from __future__ import annotations

import struct
from pathlib import Path

_HEAD = struct.Struct(">qi")


class StoredBatches:
    """The batches of one topic. ``since_last`` counts those that came since the call before."""

    def __init__(self, data: Path, topic: str) -> None:
        self._data, self._topic = data, topic
        self._read: dict[Path, int] = {}  # segment -> the position up to which it was counted
        self.since_last()

    def since_last(self) -> int:
        """Return the number of new batches, whatever their partition."""
        count = 0
        segments = sorted(self._data.glob(f"{self._topic}-[0-9]*/*.log"))
        for path in segments:
            try:
                new, self._read[path] = _walk(path, self._read.get(path, 0))
            except FileNotFoundError:  # retention was faster
                continue
            count += new
        return count


def _walk(path: Path, position: int) -> tuple[int, int]:
    """Return the number of whole batches after a position, and where they end."""
    count = 0
    with path.open("rb", buffering=0) as segment:
        size = segment.seek(0, 2)
        while position + _HEAD.size <= size:
            segment.seek(position)
            _, length = _HEAD.unpack(segment.read(_HEAD.size))
            if length <= 0 or position + _HEAD.size + length > size:
                break
            position += _HEAD.size + length
            count += 1
    return count, position
