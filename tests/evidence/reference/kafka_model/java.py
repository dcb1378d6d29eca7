"""Model what Java does differently: numbers that wrap, buffers that end, and their exceptions."""

from __future__ import annotations

import struct
from collections.abc import Callable

from batchval.errors import ErrorCode
from batchval.rules import Rule

__all__ = [
    "BufferUnderflow",
    "ByteBuffer",
    "IllegalArgument",
    "IndexOutOfBounds",
    "JavaError",
    "JavaIOError",
    "RecordErrors",
    "Refused",
    "TooMuchOutput",
    "UnsupportedOperation",
    "crc32c",
    "i32",
    "i64",
    "java_utf8",
    "read_varint",
    "read_varlong",
    "size_of_varint",
    "size_of_varlong",
    "write_varint",
    "write_varlong",
]


# -- exceptions ------------------------------------------------------------------------------------


class Refused(Exception):
    """An exception of Kafka's API: the client gets this code."""

    def __init__(self, rule: Rule, code: ErrorCode | None = None) -> None:
        super().__init__(str(rule))
        self.rule = rule
        self.code = rule.error_code if code is None else code


class RecordErrors(Refused):
    """The refusal at the end of a batch in which single records were at fault."""

    def __init__(self, errors: list[tuple[int, Rule]]) -> None:
        rules = {rule for _, rule in errors}
        of_time = any(rule.error_code == ErrorCode.INVALID_TIMESTAMP for rule in rules)
        rule = rules.pop() if len(rules) == 1 else Rule.RECORD_ERRORS
        super().__init__(rule, ErrorCode.INVALID_TIMESTAMP if of_time else ErrorCode.INVALID_RECORD)
        self.errors = errors


class JavaError(Exception):
    """Any other exception: the client gets UNKNOWN_SERVER_ERROR, -1.

    ``extra`` is the rule of strict mode that names the cause, ``rule`` the numbered one where the
    table has one.
    """

    def __init__(self, what: str, extra: Rule = Rule.S9, rule: Rule | None = None) -> None:
        super().__init__(what)
        self.extra = extra
        self.rule = rule


class JavaIOError(JavaError):
    """IOException: here only decompressors throw it."""

    def __init__(self, what: str) -> None:
        super().__init__(what, Rule.S7)


class IllegalArgument(JavaError):
    """IllegalArgumentException."""


class BufferUnderflow(JavaError):
    """BufferUnderflowException: a relative read past a buffer's limit."""


class IndexOutOfBounds(JavaError):
    """IndexOutOfBoundsException: an absolute read past a buffer's limit."""

    def __init__(self, what: str) -> None:
        super().__init__(what, rule=Rule.FIELDS_OUT_OF_BOUNDS)


class UnsupportedOperation(JavaError):
    """UnsupportedOperationException."""


class TooMuchOutput(Exception):
    """Not Kafka's: strict mode's limit on the decompressed bytes of a batch (S8) is passed."""


# -- numbers ---------------------------------------------------------------------------------------


def i32(value: int) -> int:
    """Convert ``value`` to a Java int."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def i64(value: int) -> int:
    """Convert ``value`` to a Java long."""
    return ((value + (1 << 63)) & 0xFFFF_FFFF_FFFF_FFFF) - (1 << 63)


def _read_unsigned(next_byte: Callable[[], int], most_shift: int, too_long: str) -> int:
    raw = shift = 0
    while True:
        byte = next_byte() & 0xFF
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw
        shift += 7
        if shift > most_shift:
            raise IllegalArgument(too_long)


def read_varint(next_byte: Callable[[], int]) -> int:
    """Read a zigzag int of at most five bytes; Java casts the -1 of a stream's end to 0xFF."""
    raw = _read_unsigned(next_byte, 28, "varint longer than five bytes") & 0xFFFF_FFFF
    return (raw >> 1) ^ -(raw & 1)


def read_varlong(next_byte: Callable[[], int]) -> int:
    """Read a zigzag long of at most ten bytes."""
    raw = _read_unsigned(next_byte, 63, "varlong longer than ten bytes") & 0xFFFF_FFFF_FFFF_FFFF
    return (raw >> 1) ^ -(raw & 1)


def _write_unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_varint(value: int) -> bytes:
    """Encode a Java int as zigzag varint."""
    return _write_unsigned((value << 1 ^ value >> 31) & 0xFFFF_FFFF)


def write_varlong(value: int) -> bytes:
    """Encode a Java long as zigzag varint."""
    return _write_unsigned((value << 1 ^ value >> 63) & 0xFFFF_FFFF_FFFF_FFFF)


def size_of_varint(value: int) -> int:
    """Return the number of bytes that ``write_varint`` needs."""
    return max(1, -(-((value << 1 ^ value >> 31) & 0xFFFF_FFFF).bit_length() // 7))


def size_of_varlong(value: int) -> int:
    """Return the number of bytes that ``write_varlong`` needs."""
    return max(1, -(-((value << 1 ^ value >> 63) & 0xFFFF_FFFF_FFFF_FFFF).bit_length() // 7))


# -- buffers ---------------------------------------------------------------------------------------


class ByteBuffer:
    """A window of bytes with a position: relative reads underflow, absolute ones are out of
    bounds.
    """

    __slots__ = ("data", "limit", "pos", "start")

    def __init__(self, data: bytes | bytearray, start: int = 0, limit: int | None = None) -> None:
        self.data = data
        self.start = start
        self.limit = len(data) - start if limit is None else limit
        self.pos = 0

    @property
    def remaining(self) -> int:
        return self.limit - self.pos

    def get(self) -> int:
        """Return the next byte, 0 to 255."""
        pos = self.pos
        if pos >= self.limit:
            raise BufferUnderflow("past the buffer's end")
        self.pos = pos + 1
        return self.data[self.start + pos]

    def read_bytes(self, size: int) -> bytes | None:
        """Return the next ``size`` bytes, or None for a negative size."""
        if size < 0:
            return None
        if size > self.remaining:
            raise IllegalArgument("a length past the buffer's end")
        at = self.start + self.pos
        self.pos += size
        return bytes(self.data[at : at + size])

    def _at(self, layout: struct.Struct, pos: int) -> int:
        if pos < 0 or pos + layout.size > self.limit:
            raise IndexOutOfBounds(f"field at {pos} of {self.limit} bytes")
        value: int = layout.unpack_from(self.data, self.start + pos)[0]
        return value

    def i8(self, pos: int) -> int:
        return self._at(_I8, pos)

    def i16(self, pos: int) -> int:
        return self._at(_I16, pos)

    def i32(self, pos: int) -> int:
        return self._at(_I32, pos)

    def u32(self, pos: int) -> int:
        return self._at(_U32, pos)

    def i64(self, pos: int) -> int:
        return self._at(_I64, pos)

    def put(self, layout: str, pos: int, value: int) -> None:
        """Write in place; the caller knows that the field is there."""
        assert isinstance(self.data, bytearray)
        struct.pack_into(layout, self.data, self.start + pos, value)

    def size_delimited(self, pos: int) -> bytes | None:
        """Return the bytes after an int with their number, or None for a negative one."""
        size = self.i32(pos)
        if size < 0:
            return None
        if pos + 4 + size > self.limit:
            raise IllegalArgument("a length past the message's end", rule=Rule.FIELDS_OUT_OF_BOUNDS)
        at = self.start + pos + 4
        return bytes(self.data[at : at + size])

    def slice(self, pos: int) -> bytes:
        """Return everything from ``pos`` to the limit."""
        return bytes(self.data[self.start + pos : self.start + self.limit])


_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")


# -- checksums and text ----------------------------------------------------------------------------


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F6_3B78 if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return tuple(table)


_CRC32C = _crc32c_table()


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Compute CRC-32C (Castagnoli), a byte at a time."""
    crc = 0xFFFF_FFFF
    table = _CRC32C
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


def java_utf8(data: bytes) -> bytes:
    """Replace malformed input as ``new String(data, UTF_8).getBytes(UTF_8)``, unlike Python's
    codec.

    Java gives one U+FFFD for a whole encoded surrogate, where Python gives three.
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        pass
    else:
        return data
    out = bytearray()
    pos = 0
    while pos < len(data):
        size = _utf8_sequence(data, pos)
        if size > 0:
            out += data[pos : pos + size]
        else:
            out += b"\xef\xbf\xbd"
        pos += abs(size)
    return bytes(out)


def _utf8_sequence(data: bytes, pos: int) -> int:
    """Return the length of the sequence at ``pos``, negated if it becomes one replacement
    character.
    """
    first = data[pos]
    if first < 0x80:
        return 1
    if 0xC2 <= first <= 0xDF:
        length, low, high = 2, 0x80, 0xBF
    elif 0xE0 <= first <= 0xEF:
        length, low, high = 3, 0xA0 if first == 0xE0 else 0x80, 0xBF
    elif 0xF0 <= first <= 0xF4:
        length, low, high = 4, 0x90 if first == 0xF0 else 0x80, 0x8F if first == 0xF4 else 0xBF
    else:
        return -1
    for at in range(1, length):
        if pos + at >= len(data) or not low <= data[pos + at] <= high:
            return -at
        low, high = 0x80, 0xBF
    if first == 0xED and data[pos + 1] >= 0xA0:
        return -3
    return length
