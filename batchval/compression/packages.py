"""The block decompressors through the Python packages, for machines on which no C symbol can be had.

Slower than ``native`` and holding the GIL; the answers are the same. gzip and snappy need no library: core inflates and
unpacks itself under both providers.
"""

from __future__ import annotations

from typing import NamedTuple

import lz4.block
import zstandard

__all__ = ["Decoded", "lz4_block", "zstd_frame"]

_READ_SIZE = 131075  # zstd's recommended input size, which Kafka's stream class reads too
_CHUNK = 16384  # what Kafka reads at a time


class Decoded(NamedTuple):
    """What came out, and whether the input was whole and well-formed to its end."""

    data: bytes
    ok: bool


def lz4_block(source: bytes, capacity: int) -> bytes | None:
    """One lz4 block of at most ``capacity`` bytes; None where it is damaged or larger."""
    try:
        return bytes(lz4.block.decompress(source, uncompressed_size=capacity))
    except (lz4.block.LZ4BlockError, ValueError):
        return None


def zstd_frame(frame: bytes, limit: int) -> Decoded:
    """The content of one frame, at most a chunk more than ``limit`` bytes of it."""
    chunks: list[bytes] = []
    produced = 0
    reader = zstandard.ZstdDecompressor().stream_reader(frame, read_size=_READ_SIZE)
    try:
        while produced <= limit:
            chunk = reader.read(_CHUNK)
            if not chunk:
                break
            chunks.append(chunk)
            produced += len(chunk)
    except zstandard.ZstdError:
        return Decoded(b"".join(chunks), False)
    return Decoded(b"".join(chunks), True)
