"""Claims of KAFKA-8364 made by hand, with struct: what tests hold the core's against.

batch_min_timestamp:8 records_number:4 null_keys:1, after the header of a batch of magic 3 or in a
tag
"""

from __future__ import annotations

import contextlib
import struct
from typing import NamedTuple

from batchval.core.claims import BatchClaims, attach, compute
from batchval.errors import BatchvalError
from tests.support.batches import HEADER, crc32c, fields, with_crc

CLAIMED_HEADER = HEADER + 13


class Stated(NamedTuple):
    """The three claims of version 1, as struct packs them."""

    batch_min_timestamp: int
    records_number: int
    null_keys: int

    def packed(self) -> bytes:
        return struct.pack(">qib", *self)


def three(claims: tuple[object, ...] | None) -> tuple[object, ...] | None:
    """Return the first three claims, which both versions have; None for none."""
    return None if claims is None else claims[:3]


def carrying(data: bytes, stated: tuple[int, int, int]) -> bytes:
    """Return the batch of magic 2 as one of magic 3 with these claims, its checksum computed
    anew.
    """
    longer = (
        data[:8]
        + struct.pack(">i", fields(data)["batch_length"] + 13)
        + data[12:16]
        + b"\3"
        + data[17:HEADER]
    )
    return with_crc(longer + Stated(*stated).packed() + data[HEADER:])


def carried(data: bytes) -> bytes:
    """Return the batch of magic 2 as one of magic 3, its checksum computed anew."""
    shorter = (
        data[:8]
        + struct.pack(">i", fields(data)["batch_length"] - 13)
        + data[12:16]
        + b"\2"
        + data[17:HEADER]
    )
    return with_crc(shorter + data[CLAIMED_HEADER:])


def tag(stated: tuple[int, int, int], data: bytes, version: int = 1) -> bytes:
    """Return the bytes of the tagged field, bound to the checksum in the batch."""
    return bytes([version]) + Stated(*stated).packed() + data[17:21]


def tag_with_sizes(stated: tuple[int, ...], data: bytes) -> bytes:
    """Return a tag of version 2: these three claims, and the batch's true sizes if it has any."""
    return block(stated, data) + data[17:21]


def block(stated: tuple[int, ...], data: bytes) -> bytes:
    """Return a block of version 2 without fields."""
    return b"\2" + Stated(*stated[:3]).packed() + struct.pack(">iib", *sizes_of(data), 0)


def sizes_of(data: bytes) -> tuple[int, int]:
    """Return the two true sizes of a batch; of an unreadable one, two that settle."""
    true = compute(data)
    if true is None or true.uncompressed_bytes is None or true.max_record_bytes is None:
        return 61 + 30, 9
    return true.uncompressed_bytes, true.max_record_bytes


def carry(carrier: str, stated: tuple[int, ...], data: bytes) -> tuple[bytes, bytes | None]:
    """Return the batch to send with these claims, and its tag.

    ``carrier``: ``header``; ``tag``, of version 1; ``block``, a tag of version 2; ``payload``, of
    version 2 too, or ``block`` where the payload cannot carry any.
    """
    if carrier == "header":
        return carrying(data, stated[:3]), None
    if carrier == "tag":
        return data, tag(stated[:3], data)
    if carrier == "payload":
        with contextlib.suppress(BatchvalError):
            return attach(
                data, BatchClaims.from_block(block(stated, data)), carrier="payload"
            ), None
    return data, tag_with_sizes(stated, data)


def damage(data: bytes, at: int) -> bytes:
    """Return the bytes with one of them changed."""
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


__all__ = [
    "CLAIMED_HEADER",
    "Stated",
    "block",
    "carried",
    "carry",
    "carrying",
    "crc32c",
    "damage",
    "tag",
    "tag_with_sizes",
    "three",
]
