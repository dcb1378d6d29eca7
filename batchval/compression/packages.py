"""The block decompressors through the Python packages, for machines on which no C symbol can be had.

Slower than ``native``; the answers are the same. gzip and snappy need no library: core inflates and
unpacks itself under both providers. Both packages release the GIL while they decompress. zstd comes
in chunks of 16 kB; a block of lz4 comes whole, and the package copies its content, 4 MiB at most,
with the GIL held.
"""

from __future__ import annotations

import lz4.block
import zstandard

__all__ = ["ZstdFrame", "lz4_block"]

_READ_SIZE = 131075  # zstd's recommended input size, which Kafka's stream class reads too
_CHUNK = 16384  # what Kafka reads at a time


def lz4_block(source: bytes, capacity: int) -> bytes | None:
    """One lz4 block of at most ``capacity`` bytes; None where it is damaged or larger."""
    try:
        return bytes(lz4.block.decompress(source, uncompressed_size=capacity))
    except (lz4.block.LZ4BlockError, ValueError):
        return None


class ZstdFrame:
    """The content of one frame, chunk by chunk."""

    __slots__ = ("_reader", "damaged")

    def __init__(self, frame: bytes) -> None:
        self._reader = zstandard.ZstdDecompressor().stream_reader(frame, read_size=_READ_SIZE)
        self.damaged = False  # the chunks so far are all that can be had

    def read(self) -> bytes:
        """Return the next chunk, b"" after the last."""
        try:
            return self._reader.read(_CHUNK)
        except zstandard.ZstdError:
            self.damaged = True
            return b""
