"""Model Kafka's ChunkedBytesStream, and the notes of strict mode on the way to the parser.

A decompressor ("source") has Java's ``InputStream`` manners: ``read(size)`` gives at least one and
at most ``size`` bytes, None at the end, and, from LZ4 alone, sometimes no bytes at all, which its
callers take for different things. How many bytes a source hands out at a time decides whether a
parser meets its own error (87) before the stream's (-1).
"""

from __future__ import annotations

from typing import Protocol

from batchval.rules import Rule
from batchval.types import CompressionType

from .java import JavaIOError, TooMuchOutput

__all__ = ["ChunkedBytesStream", "Notes", "Source", "open_stream", "read_fully"]


class Notes:
    """Strict mode's notebook for one batch: extras seen while Kafka's own parser went on, and bytes
    produced.
    """

    def __init__(self, max_output: int) -> None:
        self.found: set[Rule] = set()
        self.max_output = max_output
        self.output = 0

    def produced(self, size: int) -> None:
        """Count decompressed bytes; the limit is on a whole batch."""
        self.output += size
        if self.output > self.max_output:
            raise TooMuchOutput


class Source(Protocol):
    """A decompressor."""

    def read(self, size: int) -> bytes | None: ...

    def skip(self, size: int) -> bytes: ...

    def available(self) -> int: ...

    def unread(self) -> bool:
        """Return whether an accepted batch has bytes that Kafka did not read or check."""
        ...


class ChunkedBytesStream:
    """A buffer of fixed size in front of a source."""

    __slots__ = ("_before", "_buffer", "_count", "_delegate_skip", "_pos", "_size", "source")

    def __init__(self, source: Source, size: int, delegate_skip: bool) -> None:
        self.source = source
        self._size = size
        self._delegate_skip = delegate_skip
        self._buffer = b""
        self._pos = self._count = 0
        self._before = 0

    @property
    def consumed(self) -> int:
        """Return the number of bytes that the parser has received."""
        return self._before + self._pos

    def read(self) -> int:
        """Return the next byte, or -1."""
        if self._pos >= self._count:
            self._fill()
            if self._pos >= self._count:
                return -1
        byte = self._buffer[self._pos]
        self._pos += 1
        return byte

    def _fill(self) -> None:
        self._before += self._count
        self._pos = self._count = 0
        data = self.source.read(self._size)
        if data:
            self._buffer = data
            self._count = len(data)

    def read_many(self, size: int) -> bytes | None:
        """Read as ``read(byte[], off, len)``: go on while the source has more available."""
        if size == 0:
            return b""
        pieces: list[bytes] = []
        left = size
        while True:
            piece = self._read_once(left)
            if not piece:
                return b"".join(pieces) if pieces else piece
            pieces.append(piece)
            left -= len(piece)
            if left <= 0 or self.source.available() <= 0:
                return b"".join(pieces)

    def _read_once(self, size: int) -> bytes | None:
        if self._pos >= self._count:
            if size >= self._size:
                data = self.source.read(size)
                self._before += len(data or b"")
                return data
            self._fill()
            if self._pos >= self._count:
                return None
        data = self._buffer[self._pos : min(self._count, self._pos + size)]
        self._pos += len(data)
        return data

    def skip(self, size: int, seen: bytearray | None = None) -> int:
        """Skip up to ``size`` bytes and say how many; ``seen`` gets them (strict mode looks at
        header keys).
        """
        left = size - self._skip_buffered(size, seen)
        while left > 0:
            if self._delegate_skip:
                skipped = self.source.skip(left)
                if skipped:
                    self._before += len(skipped)
                    if seen is not None:
                        seen += skipped
                    left -= len(skipped)
                    continue
                byte = self.read()
                if byte == -1:
                    break
                if seen is not None:
                    seen.append(byte)
                left -= 1
            else:
                if self._pos >= self._count:
                    self._fill()
                    if self._pos >= self._count:
                        break
                left -= self._skip_buffered(left, seen)
        return size - left

    def _skip_buffered(self, size: int, seen: bytearray | None) -> int:
        step = min(self._count - self._pos, size)
        if seen is not None:
            seen += self._buffer[self._pos : self._pos + step]
        self._pos += step
        return step


def read_fully(stream: ChunkedBytesStream, size: int) -> bytes:
    """Read as ``Utils.readFully``: until ``size`` bytes are there or the stream returns -1."""
    pieces: list[bytes] = []
    left = size
    while True:
        piece = stream.read_many(left)
        if piece is None:
            break
        pieces.append(piece)
        left -= len(piece)
        if left <= 0:
            break
    return b"".join(pieces)


def open_stream(
    codec: CompressionType, payload: bytes, magic: int, notes: Notes | None
) -> ChunkedBytesStream:
    """Open a stream as ``Compression.wrapForInput``; any exception of a decompressor answers -1."""
    from .gzip_stream import GzipSource
    from .lz4_stream import Lz4Source
    from .snappy_stream import SnappySource
    from .zstd_stream import ZstdSource

    if codec is CompressionType.GZIP:
        return ChunkedBytesStream(GzipSource(payload, notes), 16384, False)
    if codec is CompressionType.SNAPPY:
        return ChunkedBytesStream(SnappySource(payload, notes), 2048, False)
    if codec is CompressionType.LZ4:
        return ChunkedBytesStream(Lz4Source(payload, magic == 0, notes), 2048, True)
    if codec is CompressionType.ZSTD:
        return ChunkedBytesStream(ZstdSource(payload, notes), 16384, False)
    raise JavaIOError(f"no decompressor for {codec}")
