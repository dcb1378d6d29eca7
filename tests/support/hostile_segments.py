"""Segments that are made to cost as much as possible for each of their bytes.

PATTERNS   name -> bytes of a segment of about ``size`` bytes
plain      a segment of small sound batches
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from tests.support.batches import batch, message, record

_OVERHEAD, _HEADER = 12, 61
_SMALL = batch([record(0, value=b"v")])


def good(offset: int) -> bytes:
    """Return a sound batch of 69 bytes."""
    return struct.pack(">q", offset) + _SMALL[8:]


def lie(offset: int, size: int, magic: int = 2) -> bytes:
    """Return a header that states ``size`` bytes, with a wrong checksum."""
    return struct.pack(">qiibIh", offset, size - _OVERHEAD, 0, magic, 0xDEADBEEF, 0) + bytes(
        _HEADER - 23
    )


def plain(size: int) -> bytes:
    return b"".join(good(i) for i in range(size // len(_SMALL)))


def _alternating(unit: Callable[[int], bytes], size: int, rest: bytes = b"") -> bytes:
    """Return units, each followed by a sound batch, and the rest."""
    length = len(unit(0)) + len(_SMALL)
    return b"".join(unit(i) + good(i) for i in range((size - len(rest)) // length)) + rest


def _one_target(size: int) -> bytes:
    """Let all sizes lead to one place, which states half of the file."""
    tail = lie(5, size // 2) + bytes(size // 2 - _HEADER) + b"\1"
    end = size - len(tail)
    return _leading(end, lambda at: end - at) + tail


def _leading(end: int, stated: Callable[[int], int]) -> bytes:
    out = bytearray()
    while len(out) + _HEADER + len(_SMALL) <= end:
        out += lie(1 << 40, stated(len(out))) + good(len(out))
    return bytes(out.ljust(end, b"\xff"))


def _own_targets(size: int) -> bytes:
    """Let each size lead to a place of its own, whose batch of megabytes is almost right."""
    half = size // 2
    targets = bytearray()
    while len(targets) + _HEADER <= half:
        targets += lie(7, half - len(targets))
    return (
        _leading(half, lambda at: half - at + at // 130 % (half // _HEADER) * _HEADER)
        + bytes(targets)
        + b"\1"
    )


def _nested(size: int) -> bytes:
    """Nest batches: each wrong one holds a valid one and leads to the next, the last to nothing."""
    out = bytearray()
    while len(out) < size:
        for i in range(1000):
            inner = lie((1 << 40) - i, _HEADER + len(_SMALL))
            out += inner + good(len(out))
        out += b"\xff" * 30
    return bytes(out)


def _chains(size: int) -> bytes:
    """Let sizes lead into chains that begin at every place of a field of headers."""
    field = bytearray()
    while len(field) < size // 4:
        field += lie((1 << 50) - len(field), _HEADER * random.Random(len(field)).randint(1, 3))
    field += b"\xff" * 100
    end = size - len(field)
    return _leading(end, lambda at: end - at + at // 130 * _HEADER % (len(field) // 2)) + bytes(
        field
    )


def _noise(alphabet: bytes) -> Callable[[int], bytes]:
    return lambda size: bytes(random.Random(1).choices(alphabet, k=size))


def _repeated(unit: bytes) -> Callable[[int], bytes]:
    return lambda size: unit * (size // len(unit))


def _legacy(size: int) -> bytes:
    """Write messages of magic 1 whose lengths fit, with wrong checksums, of up to the whole
    file.
    """
    out = bytearray()
    while len(out) < size:
        value = min(size - len(out), 1 << 20)
        out += struct.pack(">qiIbbqii", 1, value + 22, 7, 1, 0, 5, -1, value)
    return bytes(out)


def _long_chains(size: int) -> bytes:
    """Make _chains by sizes of 700 bytes: a checksum of each link takes two beginnings."""
    links = b"".join(lie((1 << 50) - n, 700).ljust(700, b"\7") for n in range(size // 4 // 700))
    end = size - len(links) - 100
    step = 700 * 256
    return (
        _leading(end, lambda at: end - at + at // 130 * 700 % max(len(links) - step, 700))
        + links
        + b"\xff" * 100
    )


def _half(size: int) -> bytes:
    """Let each size state half of the file."""
    return _alternating(lambda i: lie(i, size // 2), size, bytes(size // 2) + b"\1")


def _to_zeros(size: int) -> bytes:
    """Let sizes lead into zeros that end before the file."""
    half = size // 2
    return _leading(half, lambda at: half + 50 - at % 40) + bytes(half) + b"\1"


def _wrong(number: int) -> bytes:
    return batch([record(0)], base_offset=9, crc=1)


PATTERNS: dict[str, Callable[[int], bytes]] = {
    "one target": _one_target,
    "a target for each": _own_targets,
    "one byte of junk": lambda size: _alternating(lambda i: b"\xff", size),
    "junk of a header": lambda size: _alternating(lambda i: b"\xff" * _HEADER, size),
    "zeros": lambda size: _alternating(lambda i: bytes(12), size),
    "long zeros": lambda size: _alternating(lambda i: bytes(5000), size),
    "huge sizes": lambda size: _alternating(lambda i: lie(i, 1 << 30), size),
    "sizes of half of the file": _half,
    "sizes of 40 MiB": lambda size: _alternating(lambda i: lie(i, 40 << 20), size),
    "sizes of 500 kB": lambda size: _alternating(lambda i: lie(i, 500_000), size),
    "sizes to zeros": _to_zeros,
    "nested": _nested,
    "chains": _chains,
    "long chains": _long_chains,
    "wrong checksums": lambda size: _alternating(_wrong, size),
    "unknown magic": lambda size: _alternating(lambda i: lie(i, 61, 9)[:17], size),
    "small messages": lambda size: _alternating(lambda i: message(0, offset=i)[:-1], size),
    "messages that fit": _legacy,
    "zeros and ones": _noise(b"\0\1"),
    "mostly zeros": _noise(b"\0\0\0\1"),
    "twos and zeros": _repeated(b"\2\0"),
    "size 512": _repeated(b"\0\0\2\0"),
    "size 500": _repeated(b"\0\0\0\0\0\0\1\xf4\0\0\0\0"),
    "large sizes": _repeated(b"\2\0\0\0\2\0\x0f\x7f"),
}
