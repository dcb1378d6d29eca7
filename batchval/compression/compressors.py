"""Kafka's compressed payloads, written as Kafka's producer writes them: its levels, its framing.

By default gzip level 6; snappy in xerial's framing with 32 KiB blocks; lz4 frames of independent 64
KiB blocks; zstd level 3 without a stated content size.

Sources: GzipCompression, SnappyOutputStream, Lz4BlockOutputStream, ZstdCompression.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import lz4.block
import snappy
import zstandard

from batchval.types import CompressionType

__all__ = ["ALIGNED", "compress", "compress_in_one_piece", "compressing"]

_Data = bytes | memoryview

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"  # version 1, independent blocks, no checksums; blocks of 64 KiB
_LZ4_BLOCK = 64 * 1024
#: Bytes of the largest block of a codec. The size of each piece is a multiple of it.
ALIGNED: Final = 64 * 1024
#: Bytes that one call compresses: zlib holds the GIL while it copies its output.
_PIECE = 1024 * 1024
_LZ4_STORED = 0x80000000
_ZSTD_STREAM_UP_TO = 19
_LZ4_DEFAULT_LEVEL = 9  # CompressionType.LZ4.defaultLevel()


class _Gzip:
    head = _GZIP_HEADER

    def __init__(self, magic: int, level: int | None) -> None:
        self._deflate = zlib.compressobj(6 if level is None else level, zlib.DEFLATED, -15)
        self._crc = self._size = 0

    def write(self, data: _Data) -> bytes:
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        return self._deflate.compress(data)

    def finish(self) -> bytes:
        return self._deflate.flush() + struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)


def _blocks(data: _Data, size: int) -> Iterator[_Data]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


class _Snappy:
    head = _XERIAL_HEADER

    def __init__(self, magic: int, level: int | None) -> None:
        """Create a stream; snappy has no levels."""

    def write(self, data: _Data) -> bytes:
        parts: list[bytes] = []
        for block in _blocks(data, _XERIAL_BLOCK):
            packed = bytes(snappy.compress(block))
            parts += (struct.pack(">i", len(packed)), packed)
        return b"".join(parts)

    def finish(self) -> bytes:
        return b""


def _xxh32(data: bytes) -> int:
    """Return the xxHash32 of fewer than 16 bytes: enough for a frame descriptor."""
    mask = 0xFFFFFFFF

    def rotate(value: int, by: int) -> int:
        return ((value << by) | (value >> (32 - by))) & mask

    h = (0x165667B1 + len(data)) & mask
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        h = rotate((h + word * 0xC2B2AE3D) & mask, 17) * 0x27D4EB2F & mask
    for byte in data[whole:]:
        h = rotate((h + byte * 0x165667B1) & mask, 11) * 0x9E3779B1 & mask
    h = (h ^ (h >> 15)) * 0x85EBCA77 & mask
    h = (h ^ (h >> 13)) * 0xC2B2AE3D & mask
    return h ^ (h >> 16)


@cache
def _lz4_header(magic: int) -> bytes:
    # Clients of magic 0 took the frame's magic number into the checksum too, and Kafka keeps
    # writing it so for them.
    covered = _LZ4_MAGIC + _LZ4_DESCRIPTOR if magic == 0 else _LZ4_DESCRIPTOR
    return _LZ4_MAGIC + _LZ4_DESCRIPTOR + bytes([_xxh32(covered) >> 8 & 0xFF])


class _Lz4:
    def __init__(self, magic: int, level: int | None) -> None:
        self.head = _lz4_header(magic)
        # Lz4BlockOutputStream takes the fast compressor for Kafka's default level, the high one for
        # others
        is_fast = level is None or level == _LZ4_DEFAULT_LEVEL
        self._how = {} if is_fast else {"mode": "high_compression", "compression": level}

    def write(self, data: _Data) -> bytes:
        parts: list[bytes] = []
        for block in _blocks(data, _LZ4_BLOCK):
            packed = lz4.block.compress(block, store_size=False, **self._how)
            if len(packed) < len(block):
                parts += (struct.pack("<I", len(packed)), packed)
            else:
                parts += (struct.pack("<I", len(block) | _LZ4_STORED), bytes(block))
        return b"".join(parts)

    def finish(self) -> bytes:
        return b"\0\0\0\0"


def _zstd_stream(data: _Data, level: int | None) -> bytes:
    """Compress as ZstdOutputStream does, which does not know the size in advance and flushes before
    it ends.

    libzstd chooses its parameters by the size, so the bytes are Kafka's only if it is not known
    here either.
    """
    stream = _zstd_compressor(level).compressobj()
    return b"".join(
        (stream.compress(data), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), stream.flush())
    )


def _zstd_compressor(level: int | None) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(
        level=3 if level is None else level, write_content_size=False, write_checksum=False
    )


_STREAMS: dict[int, type[_Gzip | _Snappy | _Lz4]] = {
    CompressionType.GZIP: _Gzip,
    CompressionType.SNAPPY: _Snappy,
    CompressionType.LZ4: _Lz4,
}


def compressing(codec: int, magic: int = 2, level: int | None = None) -> _Gzip | _Snappy | _Lz4:
    """Return a payload that is made piece by piece, as ``compress`` makes it: ``head``, what
    ``write`` returns for each piece, and what ``finish`` returns.

    Each piece but the last has a multiple of ``ALIGNED`` bytes. Raises KeyError for zstd.
    """
    return _STREAMS[codec](magic, level)


def compress(codec: int, data: Any, magic: int = 2, level: int | None = None) -> bytes:
    """Return the payload of a batch (or the value of a wrapper of magic 0 or 1) that holds
    ``data``.

    ``data`` is any contiguous buffer of bytes. Every codec's library releases the GIL, and so does
    the join of parts above 1 MiB: it is held for no more than what 1 MiB becomes.

    ``level``: gzip -1 to 9, lz4 1 to 17, zstd -131072 to 22; None: Kafka's default. snappy has
    none.

    zstd writes the bytes that Kafka writes, except above level 19, where that would take 700 MB for
    a batch of any size.
    """
    if codec == CompressionType.ZSTD and (level is None or level <= _ZSTD_STREAM_UP_TO):
        return _zstd_stream(memoryview(data), level)
    return compress_in_one_piece(codec, data, magic, level)


def compress_in_one_piece(codec: int, data: Any, magic: int = 2, level: int | None = None) -> bytes:
    """Compress as ``compress`` does, but zstd uses the size of the data: quicker for small batches,
    and not Kafka's bytes.
    """
    if codec == CompressionType.NONE:
        return bytes(data)
    content = data if isinstance(data, bytes) else memoryview(data).cast("B")
    if codec == CompressionType.ZSTD:
        return _zstd_compressor(level).compress(content)
    stream = compressing(codec, magic, level)
    return b"".join((stream.head, *map(stream.write, _blocks(content, _PIECE)), stream.finish()))
