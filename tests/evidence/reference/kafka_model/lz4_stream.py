"""Kafka's Lz4BlockInputStream: one LZ4 frame of independent blocks.

Unlike the frame format it reads a single frame, passes over content size and content checksum, and
throws a BufferUnderflowException (no IOException) where a checksum field is cut off. An empty block
makes ``read`` and ``skip`` give nothing, which the callers of both take for something else.
"""

from __future__ import annotations

import struct

import lz4.block

from batchval.rules import Rule

from .java import BufferUnderflow, JavaIOError
from .streams import Notes

__all__ = ["Lz4Source", "encode", "xxh32"]

_MAGIC = 0x184D2204


class Lz4Source:
    """The blocks of a frame, decoded one at a time."""

    def __init__(self, payload: bytes, ignore_header_checksum: bool, notes: Notes | None) -> None:
        self._in = payload
        self._notes = notes
        self._pos = 0
        self._block = b""
        self._cursor = 0
        self._finished = False
        self._blocks: list[bytes] | None = None
        self._size = 0
        self._stated_size: int | None = None
        self._stated_checksum: int | None = None
        self._read_header(ignore_header_checksum)

    def _int(self) -> int:
        if self._pos + 4 > len(self._in):
            raise BufferUnderflow("lz4: end of input within an int", JavaIOError("").extra)
        value: int = struct.unpack_from("<I", self._in, self._pos)[0]
        self._pos += 4
        return value

    def _read_header(self, ignore_checksum: bool) -> None:
        data = self._in
        if len(data) < 6:
            raise JavaIOError("lz4: end of input within the header")
        if self._int() != _MAGIC:
            raise JavaIOError("lz4: no frame")
        flags, descriptor = data[4], data[5]
        if flags & 0b11 or not flags & 0b10_0000 or flags >> 6 != 1:
            raise JavaIOError(f"lz4: frame flags {flags:#x}")
        if descriptor & 0x8F or descriptor >> 4 < 4:
            raise JavaIOError(f"lz4: block descriptor {descriptor:#x}")
        self._max_block = 1 << 2 * (descriptor >> 4) + 8
        self._block_checksums = bool(flags & 0b1_0000)
        self._content_checksum = bool(flags & 0b100)
        self._pos = 6
        if flags & 0b1000:
            if len(data) < 14:
                raise JavaIOError("lz4: end of input within the header")
            self._stated_size = int.from_bytes(data[6:14], "little")
            self._pos = 14
        if self._pos >= len(data):
            raise JavaIOError("lz4: end of input within the header")
        if not ignore_checksum and data[self._pos] != xxh32(data[4 : self._pos]) >> 8 & 0xFF:
            raise JavaIOError("lz4: wrong header checksum")
        self._pos += 1
        if self._notes and self._content_checksum:
            self._blocks = []

    def _read_block(self) -> None:
        data = self._in
        if len(data) - self._pos < 4:
            raise JavaIOError("lz4: end of input before a block")
        field = self._int()
        size = field & 0x7FFF_FFFF
        if size == 0:
            self._finished = True
            if self._content_checksum:
                self._stated_checksum = self._int()
            return
        if size > self._max_block:
            raise JavaIOError(f"lz4: block of {size} bytes")
        if len(data) - self._pos < size:
            raise JavaIOError("lz4: end of input within a block")
        block = data[self._pos : self._pos + size]
        self._pos += size
        if field >> 31:
            self._block = block
        else:
            try:
                self._block = lz4.block.decompress(block, uncompressed_size=self._max_block)
            except lz4.block.LZ4BlockError as error:
                raise JavaIOError("lz4: damaged block") from error
        self._cursor = 0
        if self._block_checksums and xxh32(block) != self._int():
            raise JavaIOError("lz4: wrong block checksum")
        self._size += len(self._block)
        if self._blocks is not None:
            self._blocks.append(self._block)
        if self._notes:
            self._notes.produced(len(self._block))
            if not self._block:
                self._notes.found.add(Rule.S7)

    def _piece(self, size: int) -> bytes | None:
        """Return bytes of the current block, or of the next one; None at the end mark.

        No bytes at all from an empty block.
        """
        if not self._finished and self.available() == 0:
            self._read_block()
        if self._finished:
            return None
        piece = self._block[self._cursor : self._cursor + size]
        self._cursor += len(piece)
        return piece

    def read(self, size: int) -> bytes | None:
        return self._piece(size)

    def skip(self, size: int) -> bytes:
        return self._piece(size) or b""

    def available(self) -> int:
        return len(self._block) - self._cursor

    def unread(self) -> bool:
        if not self._finished or self._pos < len(self._in):
            return True
        if self._stated_size is not None and self._stated_size != self._size:
            return True
        return self._blocks is not None and xxh32(b"".join(self._blocks)) != self._stated_checksum


def encode(data: bytes, broken_header_checksum: bool) -> bytes:
    """Encode a frame of 64 kB blocks; for magic 0 the header checksum covers the magic, too."""
    header = struct.pack("<IBB", _MAGIC, 0x60, 0x40)
    out = bytearray(header)
    out.append(xxh32(header if broken_header_checksum else header[4:]) >> 8 & 0xFF)
    for start in range(0, len(data), 65536):
        plain = data[start : start + 65536]
        block = lz4.block.compress(plain, store_size=False)
        if len(block) < len(plain):
            out += struct.pack("<I", len(block)) + block
        else:
            out += struct.pack("<I", len(plain) | 1 << 31) + plain
    return bytes(out + bytes(4))


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFF_FFFF


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def xxh32(data: bytes) -> int:
    """Compute xxHash, 32 bits, seed 0."""
    whole = len(data) // 16 * 16
    if whole:
        accumulators = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        for words in struct.iter_unpack("<4I", data[:whole]):
            for i, word in enumerate(words):
                accumulators[i] = _rotate((accumulators[i] + word * _P2) & _MASK, 13) * _P1 & _MASK
        value = (
            sum(
                _rotate(accumulator, bits)
                for accumulator, bits in zip(accumulators, (1, 7, 12, 18), strict=True)
            )
            & _MASK
        )
    else:
        value = _P5
    value = (value + len(data)) & _MASK
    tail = data[whole:]
    for (word,) in struct.iter_unpack("<I", tail[: len(tail) // 4 * 4]):
        value = _rotate((value + word * _P3) & _MASK, 17) * _P4 & _MASK
    for byte in tail[len(tail) // 4 * 4 :]:
        value = _rotate((value + byte * _P5) & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 15) * _P2 & _MASK
    value = (value ^ value >> 13) * _P3 & _MASK
    return value ^ value >> 16
