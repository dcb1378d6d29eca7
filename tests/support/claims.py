"""Claims of KAFKA-8364 made by hand, with struct alone: what tests hold the core's against.

batch_min_timestamp:8 records_number:4 null_keys:1, behind the header of a batch of magic 3 or in a tag
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tests.support.batches import HEADER, crc32c, fields, with_crc

CLAIMED_HEADER = HEADER + 13


class Said(NamedTuple):
    """The three claims, as struct packs them."""

    batch_min_timestamp: int
    records_number: int
    null_keys: int

    def packed(self) -> bytes:
        return struct.pack(">qib", *self)


def carrying(data: bytes, said: tuple[int, int, int]) -> bytes:
    """The batch of magic 2 as one of magic 3, its checksum computed anew."""
    longer = data[:8] + struct.pack(">i", fields(data)["batch_length"] + 13) + data[12:16] + b"\3" + data[17:HEADER]
    return with_crc(longer + Said(*said).packed() + data[HEADER:])


def carried(data: bytes) -> bytes:
    """The batch of magic 2 in one of magic 3, its checksum computed anew."""
    shorter = data[:8] + struct.pack(">i", fields(data)["batch_length"] - 13) + data[12:16] + b"\2" + data[17:HEADER]
    return with_crc(shorter + data[CLAIMED_HEADER:])


def tag(said: tuple[int, int, int], data: bytes, version: int = 1) -> bytes:
    """The bytes of the tagged field, bound to the checksum that stands in the batch."""
    return bytes([version]) + Said(*said).packed() + data[17:21]


def damage(data: bytes, at: int) -> bytes:
    """One byte other than it was."""
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


__all__ = ["CLAIMED_HEADER", "Said", "carried", "carrying", "crc32c", "damage", "tag"]
