"""The releases of Apache Kafka whose answers batchval gives, and their differences.

``RELEASES`` maps every release to a row of ``KAFKA_VERSIONS``, whose columns are the differences.
Kafka changes validation in patch releases, so a row is named by the first release that has it and
serves ranges of releases. LogValidator compiles a row into the core, TopicPolicy takes its
defaults, and docs/reference/rules.md is generated from both tables. Each range is held to the
classes of a release at each of its ends (tests/evidence/conformance/oracle).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

from batchval.errors import BatchvalError

__all__ = [
    "ADVERTISED",
    "DEFAULT_KAFKA_VERSION",
    "KAFKA_VERSIONS",
    "REFUSES_LESS",
    "RELEASES",
    "Advertised",
    "KafkaVersion",
    "NewerKafkaWarning",
    "Release",
    "ReleaseRange",
    "changes_of",
    "find_release",
    "least_refusing",
    "release_of",
    "releases_from",
    "releases_of",
]

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KafkaVersion:
    """One row of the table. Times are milliseconds, sizes are bytes.

    docs/reference/rules.md shows the ``meaning`` of each column.
    """

    name: str
    drops_newer_epochs: bool = field(
        metadata={
            "meaning": "A follower drops a batch of a leader epoch above its own, and all that "
            "follow it (rule 11, KAFKA-18723)."
        }
    )
    checks_order_at_once: bool = field(
        metadata={
            "meaning": "The batch loop ends at the first offset that is not above the one before "
            "(rule 9). Without it the order is checked after all other checks of all batches."
        }
    )
    asks_marker_versions: bool = field(
        metadata={
            "meaning": "A transaction marker needs the version of its transaction (KIP-1228), "
            "which the origin RAFT_LEADER cannot state: -1 (rule 46)."
        }
    )
    measures_markers: bool = field(
        metadata={
            "meaning": "The value of a transaction marker must have at least 6 bytes before its "
            "version is read (rule 46): INVALID_RECORD. Without the check a shorter value gives "
            "-1, or INVALID_RECORD where its version is below 0."
        }
    )
    rebuilds_empty_batches: bool = field(
        metadata={
            "meaning": "A batch without records can be rebuilt in a topic with CreateTime. Without "
            "it the broker fails (`NullPointerException`): -1."
        }
    )
    sums_record_fields: bool = field(
        metadata={
            "meaning": "Every parser reads as many bytes of a compressed record as its length "
            "states, and its fields must fill them exactly: INVALID_RECORD. A negative length "
            "fails the parser of batches that are rebuilt (`IllegalArgumentException`): -1. "
            "Without it the parser of batches that stay as they are reads the fields and never "
            "uses the length. Streams of codecs are read without a `ChunkedBytesStream`, too: a "
            "gzip stream that is cut off within a record is INVALID_RECORD instead of -1."
        }
    )
    bounds_header_counts: bool = field(
        metadata={
            "meaning": "The number of headers that a record states is compared with the bytes "
            "that follow (CVE-2022-34917): INVALID_RECORD. Without it the parsers of uncompressed "
            "batches and of batches that are rebuilt answer -1 (`OutOfMemoryError`) where a JVM "
            "has no array of that length."
        }
    )
    refuses_cut_records: bool = field(
        metadata={
            "meaning": "An uncompressed record whose length runs past the batch is INVALID_RECORD. "
            "Without it the broker fails (`NullPointerException`): -1."
        }
    )
    keeps_delete_horizon: bool = field(
        metadata={
            "meaning": "A batch whose header is written anew keeps bit 6 of its attributes, the "
            "delete horizon (KAFKA-8522)."
        }
    )
    refuses_append_time: bool = field(
        metadata={
            "meaning": "A record with LogAppendTime is refused in topics with CreateTime, too "
            "(rule 37). Without it only where the topic has LogAppendTime or the timestamp is -1."
        }
    )
    knows_magic_0_has_no_time: bool = field(
        metadata={
            "meaning": "With LogAppendTime, the maximum timestamp of uncompressed messages of "
            "magic 0 is -1. Without it the answer names the time of the append, which magic 0 "
            "cannot hold."
        }
    )
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

_SINCE_3_8: dict[str, Any] = {
    "drops_newer_epochs": False,
    "checks_order_at_once": False,
    "asks_marker_versions": False,
    "measures_markers": True,
    "rebuilds_empty_batches": True,
    "sums_record_fields": False,
    "bounds_header_counts": True,
    "refuses_cut_records": True,
    "keeps_delete_horizon": True,
    "refuses_append_time": False,
    "knows_magic_0_has_no_time": True,
    "first_checked_produce_version": 3,
    "checks_record_length": False,
    "largest_record": _MAX_ARRAY_LENGTH,
    "zstd_inter_broker_protocol": "2.1",
    "message_timestamp_after_max_ms": _LONG_MAX,
    "timestamp_bounds": "before and after",
    "compression_levels": True,
}
_SINCE_4_0 = _SINCE_3_8 | {
    "first_checked_produce_version": 0,
    "zstd_inter_broker_protocol": None,
    "message_timestamp_after_max_ms": 3_600_000,
}
_SINCE_4_1 = _SINCE_4_0 | {
    "drops_newer_epochs": True,
    "checks_order_at_once": True,
    "measures_markers": False,
}
_SINCE_4_2 = _SINCE_4_1 | {"asks_marker_versions": True}

_SINCE_3_6 = _SINCE_3_8 | {
    "rebuilds_empty_batches": False,
    "knows_magic_0_has_no_time": False,
    "compression_levels": False,
}
_SINCE_3_1 = _SINCE_3_6 | {
    "sums_record_fields": True,
    "refuses_append_time": True,
    "timestamp_bounds": "difference",
}
_IN_3_0 = _SINCE_3_1 | {"keeps_delete_horizon": False}
_IN_2_8 = _IN_3_0 | {"refuses_cut_records": False}
_BEFORE_CVE_2022_34917 = {"bounds_header_counts": False}

#: By the first release that has the row, oldest first.
KAFKA_VERSIONS: dict[str, KafkaVersion] = {
    name: KafkaVersion(name=name, **columns)
    for name, columns in {
        "2.8.0": _IN_2_8 | _BEFORE_CVE_2022_34917,
        "2.8.2": _IN_2_8,
        "3.0.1": _IN_3_0 | _BEFORE_CVE_2022_34917,
        "3.0.2": _IN_3_0,
        "3.1.0": _SINCE_3_1 | _BEFORE_CVE_2022_34917,
        "3.1.2": _SINCE_3_1,
        "3.6.0": _SINCE_3_6,
        "3.8.0": _SINCE_3_8,
        "3.9.1": _SINCE_3_8 | {"drops_newer_epochs": True},
        "4.0.0": _SINCE_4_0,
        "4.0.1": _SINCE_4_0 | {"drops_newer_epochs": True},
        "4.1.0": _SINCE_4_1,
        "4.2.0": _SINCE_4_2,
        "4.2.2": _SINCE_4_2 | {"checks_record_length": True, "largest_record": _INT_MAX - 8},
    }.items()
}


@dataclass(frozen=True, slots=True)
class ReleaseRange:
    """Successive releases of one minor version that have the same row."""

    first: str
    last: str
    row: str
    is_published: bool = True


#: Every release from the first row on, oldest first.
RELEASES: Final = (
    ReleaseRange("2.8.0", "2.8.1", "2.8.0"),
    ReleaseRange("2.8.2", "2.8.2", "2.8.2"),
    ReleaseRange("3.0.0", "3.0.0", "2.8.0"),
    ReleaseRange("3.0.1", "3.0.1", "3.0.1"),
    ReleaseRange("3.0.2", "3.0.2", "3.0.2"),
    ReleaseRange("3.1.0", "3.1.1", "3.1.0"),
    ReleaseRange("3.1.2", "3.1.2", "3.1.2"),
    ReleaseRange("3.2.0", "3.2.1", "3.1.0"),
    ReleaseRange("3.2.2", "3.2.3", "3.1.2"),
    ReleaseRange("3.3.0", "3.3.2", "3.1.2"),
    ReleaseRange("3.4.0", "3.4.1", "3.1.2"),
    ReleaseRange("3.5.0", "3.5.2", "3.1.2"),
    ReleaseRange("3.6.0", "3.6.2", "3.6.0"),
    ReleaseRange("3.7.0", "3.7.2", "3.6.0"),
    ReleaseRange("3.8.0", "3.8.1", "3.8.0"),
    ReleaseRange("3.9.0", "3.9.0", "3.8.0"),
    ReleaseRange("3.9.1", "3.9.2", "3.9.1"),
    ReleaseRange("4.0.0", "4.0.0", "4.0.0"),
    ReleaseRange("4.0.1", "4.0.2", "4.0.1"),
    ReleaseRange("4.1.0", "4.1.2", "4.1.0"),
    ReleaseRange("4.2.0", "4.2.1", "4.2.0"),
    ReleaseRange("4.2.2", "4.2.2", "4.2.2"),
    ReleaseRange("4.3.0", "4.3.1", "4.2.0"),
    # its branch has the check of lengths, https://github.com/apache/kafka/pull/23449
    ReleaseRange("4.3.2", "4.3.2", "4.2.2", is_published=False),
    ReleaseRange("4.4.0", "4.4.0", "4.2.2"),
)
DEFAULT_KAFKA_VERSION: Final = "4.4.0"

#: By column: which of several values refuses least of what clients produce. None: no value refuses
#: more, it only changes an error code, a stored field, the names of configurations, or concerns
#: another origin (drops_newer_epochs: followers; asks_marker_versions: the Raft leader).
REFUSES_LESS: Final[dict[str, Callable[[Iterable[Any]], Any] | None]] = {
    "drops_newer_epochs": None,
    "checks_order_at_once": None,
    "asks_marker_versions": None,
    "measures_markers": None,
    "rebuilds_empty_batches": max,
    "sums_record_fields": min,
    "bounds_header_counts": None,
    "refuses_cut_records": None,
    "keeps_delete_horizon": None,
    "refuses_append_time": min,
    "knows_magic_0_has_no_time": None,
    "first_checked_produce_version": max,
    "checks_record_length": min,
    "largest_record": max,
    "zstd_inter_broker_protocol": None,
    "message_timestamp_after_max_ms": max,
    "timestamp_bounds": None,
    "compression_levels": None,
}


@dataclass(frozen=True, slots=True)
class Advertised:
    """What ApiVersions of a broker says, by minor version.

    ``metadata_version``  highest level of the feature ``metadata.version`` in production
                          (``MetadataVersion.latestProduction``); None: no release in KRaft has it
    The others are the highest versions of requests (``ApiKeys.latestVersion``). They name brokers
    with ZooKeeper, which have no features.
    """

    metadata_version: int | None
    produce: int
    fetch: int
    add_partitions_to_txn: int


#: Read from the classes of the last release of each minor version.
ADVERTISED: Final[dict[str, Advertised]] = {
    "2.8": Advertised(None, 9, 12, 3),
    "3.0": Advertised(None, 9, 12, 3),
    "3.1": Advertised(None, 9, 13, 3),
    "3.2": Advertised(None, 9, 13, 3),
    "3.3": Advertised(7, 9, 13, 3),
    "3.4": Advertised(8, 9, 13, 3),
    "3.5": Advertised(11, 9, 15, 3),
    "3.6": Advertised(14, 9, 15, 4),
    "3.7": Advertised(19, 10, 16, 4),
    "3.8": Advertised(20, 11, 16, 5),
    "3.9": Advertised(21, 11, 17, 5),
    "4.0": Advertised(25, 12, 17, 5),
    "4.1": Advertised(27, 13, 18, 5),
    "4.2": Advertised(29, 13, 18, 5),
    "4.3": Advertised(30, 13, 18, 5),
    "4.4": Advertised(33, 13, 18, 5),
}

_NUMBERS = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?")


class NewerKafkaWarning(UserWarning):
    """A release of Kafka is newer than the table: the newest row that fits answers for it."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Kafka and the row whose answers it has.

    ``name`` is the full number. ``is_newer``: the table does not have it.
    """

    name: str
    row: KafkaVersion
    is_newer: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def warning(self) -> str | None:
        """The sentence for people about a release that is newer than the table."""
        if not self.is_newer:
            return None
        return (
            f"Kafka {self.name} is newer than this batchval, "
            f"which answers as Kafka {_last_of(self.row.name, self.name)} does"
        )


def find_release(kafka_version: str | Release) -> Release:
    """Return the release of a number such as ``"4.2.2"``, or ``"4.2"`` for its newest patch.

    A release that is newer than all of ``RELEASES``, or than those of its minor version, takes the
    newest row of the table or of its minor version.

    Raises:
        BatchvalError: not a release from 2.8.0 on; the message names the nearest.
    """
    if isinstance(kafka_version, Release):
        return kafka_version
    if not isinstance(kafka_version, str):
        raise BatchvalError(
            f"kafka_version must be a string, for example '{DEFAULT_KAFKA_VERSION}', "
            f"not {kafka_version!r}"
        )
    match = _NUMBERS.fullmatch(kafka_version.strip())
    if match is None:
        raise _unknown(kafka_version, None)
    minor = int(match[1]), int(match[2])
    ranges = [a for a in RELEASES if _numbers(a.first)[:2] == minor]
    if not ranges and minor <= _numbers(RELEASES[-1].last)[:2]:
        raise _unknown(kafka_version, _nearest(minor))
    if not ranges:
        patch = match[3] or "0"
        newest = KAFKA_VERSIONS[RELEASES[-1].row]
        return Release(f"{minor[0]}.{minor[1]}.{int(patch)}", newest, is_newer=True)
    if match[3] is None:
        newest_range = [a for a in ranges if a.is_published][-1]
        return Release(newest_range.last, KAFKA_VERSIONS[newest_range.row])
    asked = (*minor, int(match[3]))
    within = [a for a in ranges if _numbers(a.first) <= asked][-1]
    name = ".".join(str(part) for part in asked)
    return Release(name, KAFKA_VERSIONS[within.row], is_newer=asked > _numbers(within.last))


def release_of(kafka_version: str | Release) -> Release:
    """Return find_release's answer, with a NewerKafkaWarning where the table is older. Whoever has
    a Release already has seen its ``warning``.
    """
    release = find_release(kafka_version)
    if release.warning and release is not kafka_version:
        warnings.warn(release.warning, NewerKafkaWarning, stacklevel=2)
    return release


def releases_from(first: str | None = None, last: str | None = None) -> list[Release]:
    """Return the newest release of each range, oldest first, of these minor versions and those
    between them; None: the first or the last of the table.
    """
    low = (0,) if first is None else _numbers(first)
    high = _numbers(RELEASES[-1].last)[:2] if last is None else _numbers(last)
    ranges = [a for a in RELEASES if low <= _numbers(a.first)[:2] <= high]
    return [Release(a.last, KAFKA_VERSIONS[a.row]) for a in ranges]


def least_refusing(releases: Sequence[Release]) -> Release:
    """Return a release that refuses no batch of a client which one of these releases takes.

    It is the first of them that refuses least in each column (``REFUSES_LESS``). Where none does,
    the columns of several are combined, and the name has all of them: "3.7.2 or 4.0.2". Columns
    that refuse nothing are those of the first.
    """
    least = {
        column: choose([getattr(release.row, column) for release in releases])
        for column, choose in REFUSES_LESS.items()
        if choose is not None
    }
    for release in releases:
        if all(getattr(release.row, column) == value for column, value in least.items()):
            return release
    name = " or ".join(dict.fromkeys(release.name for release in releases))
    return Release(name, replace(releases[0].row, name=name, **least))


def releases_of(row: str) -> list[str]:
    """Return the published releases of a row for people: ``["4.2.0 to 4.2.1", "4.3.0"]``."""
    ranges = [a for a in RELEASES if a.row == row and a.is_published]
    return [a.first if a.first == a.last else f"{a.first} to {a.last}" for a in ranges]


def changes_of(row: str) -> dict[str, Any]:
    """Return the columns in which a row differs from the one before it, and their values."""
    names = list(KAFKA_VERSIONS)
    here, before = KAFKA_VERSIONS[row], KAFKA_VERSIONS[names[max(names.index(row) - 1, 0)]]
    columns = [column.name for column in fields(KafkaVersion) if column.name != "name"]
    return {
        column: getattr(here, column)
        for column in columns
        if getattr(here, column) != getattr(before, column)
    }


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _last_of(row: str, release: str) -> str:
    """Return the newest release of the row that is older than this one."""
    older = [a.last for a in RELEASES if a.row == row and _numbers(a.last) < _numbers(release)]
    return older[-1]


def _nearest(minor: tuple[int, int]) -> str:
    """Return the last release of the same major version before this one, else the first after."""
    same = [a for a in RELEASES if _numbers(a.first)[0] == minor[0] and a.is_published]
    before = [a.last for a in same if _numbers(a.first)[:2] <= minor]
    if before:
        return before[-1]
    return same[0].first if same else RELEASES[0].first


def _unknown(kafka_version: str, nearest: str | None) -> BatchvalError:
    hint = f" (nearest: {nearest})" if nearest else ""
    return BatchvalError(
        f"kafka_version must be a release from {RELEASES[0].first} to {RELEASES[-1].last}, "
        f"for example {DEFAULT_KAFKA_VERSION}, not {kafka_version!r}{hint}"
    )
