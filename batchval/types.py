"""The small enumerations of Kafka's record format, by Kafka's names and numbers.

Sources: CompressionType, TimestampType (kafka-clients) and AppendOrigin (kafka-storage).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, TypeAlias, cast

__all__ = [
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "MAX_SEED",
    "NEWEST_PRODUCE_VERSION",
    "AppendOrigin",
    "AppendOriginName",
    "CompressionName",
    "CompressionType",
    "TimestampType",
    "TimestampTypeName",
]

#: The default limit of the decompressed bytes of one batch.
DEFAULT_MAX_DECOMPRESSED_BYTES = 64 << 20
#: The size of the seed that draws the sample of claims to verify.
MAX_SEED = (1 << 63) - 1
#: The newest version of Produce requests of Kafka 4.4; the oldest is 0.
NEWEST_PRODUCE_VERSION = 13


#: Words of arguments and configurations, for type checkers.
CompressionName: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
TimestampTypeName: TypeAlias = Literal["CreateTime", "LogAppendTime"]
AppendOriginName: TypeAlias = Literal["REPLICATION", "COORDINATOR", "CLIENT", "RAFT_LEADER"]


class CompressionType(IntEnum):
    """The codec of a batch: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def kafka_name(self) -> CompressionName:
        """Return Kafka's configuration word: none, gzip, snappy, lz4, zstd."""
        return cast(CompressionName, self.name.lower())


class TimestampType(IntEnum):
    """The source of the timestamps: bit 3 of the attributes; magic 0 has none at all."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def kafka_name(self) -> str:
        """Return Kafka's configuration word: NoTimestampType, CreateTime, LogAppendTime."""
        return {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}[self.value]


class AppendOrigin(IntEnum):
    """The origin of an append. Some rules hold for clients alone, one for a raft leader, two for
    followers.
    """

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2
    RAFT_LEADER = 3
