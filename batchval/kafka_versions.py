"""The versions of Apache Kafka whose answers batchval gives, and their differences.

``KAFKA_VERSIONS`` is the one table: LogValidator compiles a row into the core, TopicPolicy takes
its defaults, and docs/reference/rules.md is generated from it. Each version is held to the classes
of its own release on Maven Central (tests/evidence/conformance/oracle). Kafka 2.8 or 3.6 would be
one more row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from batchval.errors import BatchvalError

__all__ = [
    "DEFAULT_KAFKA_VERSION",
    "KAFKA_VERSIONS",
    "KafkaVersion",
    "KafkaVersionName",
    "kafka_version",
]

#: The names of the table's rows, for type checkers.
KafkaVersionName: TypeAlias = Literal["3.9", "4.1", "4.4"]

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KafkaVersion:
    """One row of the table. Times are milliseconds, sizes are bytes.

    docs/reference/rules.md shows the ``meaning`` of each column.
    """

    name: str
    release: str = field(metadata={"meaning": "Release whose classes are the oracle."})
    first_checked_produce_version: int = field(
        metadata={
            "meaning": "Produce requests of this version and above must hold exactly one batch of magic 2 "
            "(rules 5 to 8). Older requests may hold several messages of magic 0 and 1 "
            "(KIP-896 removed them)."
        }
    )
    checks_record_length: bool = field(
        metadata={
            "meaning": "The length that a compressed record states is checked before its bytes are read "
            "(rule 29): negative, or above `max.decompressed.message.bytes`. Without the check the "
            "parser of batches that stay as they are accepts any length, and the parser of batches "
            "that are rebuilt answers -1 (`OutOfMemoryError`) where a JVM has no array of that "
            "length."
        }
    )
    largest_record: int = field(
        metadata={
            "meaning": "Longest record that a compressed batch may state where the topic sets no limit. "
            "Without the check of lengths: the longest array of a JVM."
        }
    )
    zstd_inter_broker_protocol: str | None = field(
        metadata={
            "meaning": "Inter-broker protocol below which zstd is refused (rule 20). batchval and the oracle "
            "assume the protocol of the release, so the rule refuses nothing in the versions of "
            "this table."
        }
    )
    message_timestamp_after_max_ms: int = field(
        metadata={"meaning": "Default of `message.timestamp.after.max.ms` (KIP-1030)."}
    )
    timestamp_bounds: Literal["before and after", "difference"] = field(
        metadata={
            "meaning": "Configuration of the timestamp bounds: two keys (KIP-937), or the one symmetric "
            "`message.timestamp.difference.max.ms` of brokers before 3.6."
        }
    )
    compression_levels: bool = field(
        metadata={
            "meaning": "Topics have `compression.gzip.level`, `.lz4.level`, `.zstd.level` (KIP-390)."
        }
    )


#: HotSpot's longest byte array; ByteBuffer.allocate fails above it, whatever the heap.
_MAX_ARRAY_LENGTH = _INT_MAX - 2

_ROWS = (
    KafkaVersion(
        name="3.9",
        release="3.9.2",
        first_checked_produce_version=3,
        checks_record_length=False,
        largest_record=_MAX_ARRAY_LENGTH,
        zstd_inter_broker_protocol="2.1",
        message_timestamp_after_max_ms=_LONG_MAX,
        timestamp_bounds="before and after",
        compression_levels=True,
    ),
    KafkaVersion(
        name="4.1",
        release="4.1.2",
        first_checked_produce_version=0,
        checks_record_length=False,
        largest_record=_MAX_ARRAY_LENGTH,
        zstd_inter_broker_protocol=None,
        message_timestamp_after_max_ms=3_600_000,
        timestamp_bounds="before and after",
        compression_levels=True,
    ),
    KafkaVersion(
        name="4.4",
        release="4.4.0",
        first_checked_produce_version=0,
        checks_record_length=True,
        largest_record=_INT_MAX - 8,
        zstd_inter_broker_protocol=None,
        message_timestamp_after_max_ms=3_600_000,
        timestamp_bounds="before and after",
        compression_levels=True,
    ),
)

#: By name, oldest first.
KAFKA_VERSIONS: dict[str, KafkaVersion] = {row.name: row for row in _ROWS}
DEFAULT_KAFKA_VERSION: Final[KafkaVersionName] = "4.4"

_NUMBERS = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})*")


def kafka_version(name: str) -> KafkaVersion:
    """Return the row of a version such as ``"3.9"``. BatchvalError names the known ones."""
    if not isinstance(name, str):
        raise BatchvalError(
            f"kafka_version must be a string, for example '{DEFAULT_KAFKA_VERSION}', not {name!r}"
        )
    row = KAFKA_VERSIONS.get(name)
    if row is None:
        nearest = _nearest(name)
        hint = f" (nearest: {nearest})" if nearest else ""
        known = ", ".join(KAFKA_VERSIONS)
        raise BatchvalError(f"kafka_version must be one of {known}, not {name!r}{hint}")
    return row


def _nearest(name: str) -> str | None:
    """Return the known version to name in the message about an unknown one.

    Of the same major version the last one before it, else the first one after it; without one, the
    nearest end of the table.
    """
    match = _NUMBERS.fullmatch(name.strip())
    if match is None:
        return None
    asked = int(match[1]), int(match[2])
    known = {tuple(int(part) for part in name.split(".")): name for name in KAFKA_VERSIONS}
    same_major = [version for version in known if version[0] == asked[0]]
    before = [version for version in same_major if version <= asked]
    if same_major:
        return known[max(before) if before else min(same_major)]
    return known[min(known) if asked < min(known) else max(known)]
