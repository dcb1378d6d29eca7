"""xerial's SnappyInputStream, and a decoder of snappy blocks.

Without xerial's magic the whole payload is one raw block, decoded when the stream is opened. With
it: chunks after int lengths, each decoded when it is reached; the magic again in place of a length
starts another stream.
"""

from __future__ import annotations

from batchval.rules import Rule

from .java import JavaError, JavaIOError, i32
from .streams import Notes

__all__ = ["SnappySource", "decode_block", "encode"]

_MAGIC = b"\x82SNAPPY\0"
_HEADER_SIZE = 16
_MAX_CHUNK = 512 << 20


class SnappySource:
    """Chunks, decoded one at a time."""

    def __init__(self, payload: bytes, notes: Notes | None) -> None:
        self._in = payload
        self._notes = notes
        self._pos = 0
        self._chunk = b""
        self._cursor = 0
        self._finished = False
        self._ended_cleanly = False
        if not payload:
            raise JavaIOError("snappy: empty stream")
        if len(payload) < _HEADER_SIZE or not payload.startswith(_MAGIC):
            self._pos = len(payload)
            self._finished = self._ended_cleanly = True
            self._take(payload)
        else:
            self._pos = _HEADER_SIZE

    def _take(self, block: bytes) -> None:
        self._chunk = decode_block(block)
        self._cursor = 0
        if self._notes:
            self._notes.produced(len(self._chunk))

    def _next_chunk(self) -> bool:
        """Decode the next chunk; False where xerial sees no more, which need not be the end of the
        input.
        """
        while True:
            if self._finished:
                return False
            self._chunk, self._cursor = b"", 0
            field = self._in[self._pos : self._pos + 4]
            self._pos += len(field)
            if len(field) < 4:
                self._finished = True
                self._ended_cleanly = not field
                return False
            if field != _MAGIC[:4]:
                break
            header = field + self._in[self._pos : self._pos + _HEADER_SIZE - 4]
            self._pos += len(header) - 4
            if len(header) < _HEADER_SIZE:
                self._finished = True
                raise JavaIOError("snappy: end of input within a header")
            if not header.startswith(_MAGIC):
                if self._notes:
                    self._notes.found.add(Rule.S7)
                return False
            if i32(int.from_bytes(header[8:12], "big")) < 1:
                raise JavaIOError("snappy: version below 1")
        size = i32(int.from_bytes(field, "big"))
        if size < 0 or size > _MAX_CHUNK:
            raise JavaIOError(f"snappy: chunk of {size} bytes")
        block = self._in[self._pos : self._pos + size]
        self._pos += len(block)
        if len(block) < size:
            raise JavaIOError("snappy: end of input within a chunk")
        self._take(block)
        return True

    def read(self, size: int) -> bytes | None:
        pieces: list[bytes] = []
        left = size
        while left > 0:
            if self._cursor >= len(self._chunk):
                if self._next_chunk():
                    continue
                return b"".join(pieces) if pieces else None
            piece = self._chunk[self._cursor : self._cursor + left]
            self._cursor += len(piece)
            left -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def skip(self, size: int) -> bytes:
        raise AssertionError("never delegated")

    def available(self) -> int:
        if self._cursor >= len(self._chunk) and not self._next_chunk():
            return 0
        return len(self._chunk) - self._cursor

    def unread(self) -> bool:
        return not self._ended_cleanly


def decode_block(block: bytes) -> bytes:
    """Decode a raw snappy block: its length as varint, then literals and copies of exactly that
    size.
    """
    expected, pos = _block_length(block)
    if expected > 0x7FFF_FFFF:
        raise JavaError("snappy: block length above 2^31 - 1", JavaIOError("").extra)
    out = bytearray()
    end = len(block)
    while pos < end:
        tag = block[pos]
        pos += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                if pos + extra > end:
                    raise JavaIOError("snappy: end of block within a tag")
                length = int.from_bytes(block[pos : pos + extra], "little") + 1
                pos += extra
            if pos + length > end:
                raise JavaIOError("snappy: literal past the end of its block")
            out += block[pos : pos + length]
            pos += length
        else:
            extra = (0, 1, 2, 4)[kind]
            if pos + extra > end:
                raise JavaIOError("snappy: end of block within a tag")
            offset = int.from_bytes(block[pos : pos + extra], "little")
            pos += extra
            if kind == 1:
                length = (tag >> 2 & 7) + 4
                offset |= (tag & 0xE0) << 3
            else:
                length = (tag >> 2) + 1
            if not 0 < offset <= len(out):
                raise JavaIOError("snappy: copy from before the start")
            if offset >= length:
                start = len(out) - offset
                out += out[start : start + length]
            else:
                pattern = bytes(out[-offset:])
                out += (pattern * (length // offset + 1))[:length]
        if len(out) > expected:
            raise JavaIOError("snappy: block longer than it states")
    if len(out) != expected:
        raise JavaIOError("snappy: block shorter than it states")
    return bytes(out)


def _block_length(block: bytes) -> tuple[int, int]:
    value = 0
    for pos in range(5):
        if pos >= len(block):
            break
        byte = block[pos]
        if pos == 4 and byte > 15:
            break
        value |= (byte & 0x7F) << 7 * pos
        if byte < 0x80:
            return value, pos + 1
    raise JavaIOError("snappy: no block length")


def encode(data: bytes) -> bytes:
    """Encode validly without compression: xerial's framing around blocks of one literal each."""
    out = bytearray(_MAGIC + (1).to_bytes(4, "big") * 2)
    for start in range(0, len(data), 32768):
        literal = data[start : start + 32768]
        size = bytearray()
        rest = len(literal)
        while rest > 0x7F:
            size.append(rest & 0x7F | 0x80)
            rest >>= 7
        size.append(rest)
        block = bytes(size) + b"\xf4" + (len(literal) - 1).to_bytes(2, "little") + literal
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)
