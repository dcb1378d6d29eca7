"""Hold the arguments of a LogValidator."""

from __future__ import annotations

from dataclasses import dataclass

from batchval.types import AppendOrigin, CompressionType, TimestampType

__all__ = ["MAX_BODY_SIZE", "Settings"]

#: the default of max.decompressed.message.bytes, which bounds one record of a compressed batch
MAX_BODY_SIZE = 2_147_483_639


@dataclass(frozen=True, slots=True)
class Settings:
    """The topic's rules, the codecs on both sides, and the place in the log."""

    source: CompressionType
    target: CompressionType
    now: int = 0
    first_offset: int = 0
    leader_epoch: int = 0
    origin: AppendOrigin = AppendOrigin.CLIENT
    compact: bool = False
    to_magic: int = 2
    ts_type: TimestampType = TimestampType.CREATE_TIME
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 3_600_000
    max_record_body: int = MAX_BODY_SIZE
