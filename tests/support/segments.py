"""Segment files with everything in them that a reader may trip over, made from a seed.

segment(rng)      bytes: sound batches of every kind, forged ones inside values, damage of every kind, odd ends
"""

from __future__ import annotations

import random
import struct

from tests.support.batches import (
    CODECS,
    GZIP,
    NOW,
    batch,
    message,
    record,
    records,
    with_crc,
    wrapper,
)
from tests.support.claims import Stated, carrying

SIZE_AT = 8
LOG_OVERHEAD = 12


def sound(rng: random.Random, offset: int, largest: int = 600) -> tuple[bytes, int]:
    """Return a valid batch of any kind at a base offset, and the offset after it."""
    kind = rng.randrange(10)
    count = rng.randint(1, 4)
    if kind == 0:
        return message(
            rng.randrange(2), offset=offset, value=rng.randbytes(rng.randrange(50))
        ), offset + 1
    if kind == 1:
        inner = [message(1, offset=i) for i in range(count)]
        return wrapper(inner, GZIP, offset=offset + count - 1), offset + count
    parts = records(count, value=rng.randbytes(rng.randrange(largest)))
    data = batch(
        parts, codec=rng.choice(list(CODECS.values())), base_offset=offset, partition_leader_epoch=3
    )
    if kind == 2:
        data = carrying(data, Stated(NOW, rng.choice((count, 9)), 1))
    return data, offset + count


def forged(rng: random.Random, offset: int, largest: int = 600) -> tuple[bytes, int]:
    """Return a valid batch whose value holds whole batches that seem to follow it, or an index."""
    value = bytearray(rng.randbytes(rng.choice((0, 1, 40))))
    inside = offset + rng.choice((-1, 0, 1, 1000))
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.3:
            inner, inside = forged(rng, inside, 10) if len(value) < 100 else sound(rng, inside, 10)
        else:
            inner, inside = sound(rng, inside, largest // 8)
        value += inner
        if rng.random() < 0.2:
            value += rng.randbytes(7)
    if rng.random() < 0.3:  # a header at the end that reaches into what follows
        header = bytearray(batch(base_offset=inside)[:61])
        header[SIZE_AT:LOG_OVERHEAD] = struct.pack(">i", rng.choice((100, 300, 5000)))
        value += header
    return batch(
        [record(0, value=bytes(value))], base_offset=offset, partition_leader_epoch=3
    ), offset + 1


def damaged(rng: random.Random, offset: int) -> tuple[bytes, int]:
    """Return a batch, or a part of one."""
    data, after = (sound if rng.random() < 0.6 else forged)(rng, offset)
    broken = bytearray(data)
    kind = rng.randrange(7)
    if kind == 0:
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        broken[-1] ^= 1
    elif kind == 2:
        size = rng.choice(
            (0, 13, 14, 49, len(broken) - 13, len(broken), 5000, 1 << 20, 1 << 26, -1, 2**31 - 1)
        )
        broken[SIZE_AT:LOG_OVERHEAD] = struct.pack(">i", size)
    elif kind == 3:
        broken = broken[: rng.randrange(len(broken))]
    elif kind == 4:
        broken = bytearray(rng.choice((1, 11, 12, 17, 61, 300)))
    elif kind == 5:
        broken = bytearray(rng.randbytes(rng.randrange(200)))
    else:  # an offset that goes nowhere, with a wrong checksum
        broken[:SIZE_AT] = rng.randbytes(SIZE_AT)
        broken[-1] ^= 1
    return bytes(broken), after


def segment(rng: random.Random, pieces: int, damage: float = 0.2, largest: int = 600) -> bytes:
    """Return a whole file."""
    parts: list[bytes] = []
    offset = rng.choice((0, 1, 1 << 40))
    for _ in range(pieces):
        if rng.random() < damage:
            part, offset = damaged(rng, offset)
        elif rng.random() < 0.3:
            part, offset = forged(rng, offset, largest)
        else:
            part, offset = sound(rng, offset, largest)
        parts.append(part)
    end = rng.randrange(4)
    if end == 0:
        parts.append(bytes(rng.choice((1, 20, 3000))))
    elif end == 1:
        parts.append(sound(rng, offset)[0][: rng.choice((1, 16, 30, 60, 70))])
    return b"".join(parts)


def crossing(rng: random.Random) -> bytes:
    """Return two valid batches, and a header in the first whose checksummed batch reaches the
    second.
    """
    second = batch([record(0, value=bytes(100))], base_offset=1)
    inner = bytearray(batch(records(1), base_offset=0)[:61])
    first = bytearray(batch([record(0, value=b"x" * 20 + bytes(inner))], base_offset=0))
    at = bytes(first).index(b"x" * 20) + 20
    whole = bytearray(bytes(first) + second)
    size = len(first) - at + rng.randrange(62, len(second))
    whole[at + SIZE_AT : at + LOG_OVERHEAD] = struct.pack(">i", size - LOG_OVERHEAD)
    whole[at : at + size] = with_crc(whole[at : at + size])
    return with_crc(whole[: len(first)]) + bytes(whole[len(first) :])
