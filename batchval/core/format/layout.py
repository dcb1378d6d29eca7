"""Positions of the fields of a record batch, for Python modules.

    base_offset:8 batch_length:4 partition_leader_epoch:4 magic:1 crc:4 | attributes:2
    last_offset_delta:4 base_timestamp:8 max_timestamp:8 producer_id:8 producer_epoch:2
    base_sequence:4 records_count:4 records...

Written by ``python tools/generate_rules.py`` from layout.pxd and core/stages/claims_block.pxd:
do not edit it by hand.
No other module declares these positions (tests/repo/contract/test_layout.py).
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATTRIBUTES",
    "BASE_OFFSET",
    "BASE_SEQUENCE",
    "BASE_TIMESTAMP",
    "BATCH_LENGTH",
    "CLAIMED_RECORDS",
    "CLAIMS_MAGIC",
    "CODEC_MASK",
    "CRC",
    "LAST_OFFSET_DELTA",
    "LEGACY_CRC",
    "LEGACY_MAGIC",
    "LEGACY_MIN_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAX_TIMESTAMP",
    "PARTITION_LEADER_EPOCH",
    "PRODUCER_EPOCH",
    "PRODUCER_ID",
    "RECORDS",
    "RECORDS_COUNT",
]

BASE_OFFSET: Final = 0
BATCH_LENGTH: Final = 8
PARTITION_LEADER_EPOCH: Final = 12
MAGIC: Final = 16
CRC: Final = 17
ATTRIBUTES: Final = 21
LAST_OFFSET_DELTA: Final = 23
BASE_TIMESTAMP: Final = 27
MAX_TIMESTAMP: Final = 35
PRODUCER_ID: Final = 43
PRODUCER_EPOCH: Final = 51
BASE_SEQUENCE: Final = 53
RECORDS_COUNT: Final = 57
RECORDS: Final = 61

#: base_offset and batch_length, which batch_length does not count
LOG_OVERHEAD: Final = 12

#: Of a message of magic 0 or 1, whose checksum covers what starts at its magic.
LEGACY_CRC: Final = 12
LEGACY_MAGIC: Final = 16

#: The least size field of a message (LegacyRecord.RECORD_OVERHEAD_V0).
LEGACY_MIN_SIZE: Final = 14

#: In the low byte of the attributes, which stands at ATTRIBUTES + 1.
CODEC_MASK: Final = 7

#: A batch with claims in its header, and where its records start.
CLAIMS_MAGIC: Final = 3
CLAIMED_RECORDS: Final = 74
