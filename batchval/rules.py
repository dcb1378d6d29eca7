"""Every reason to refuse or to report a batch, by one name.

Golden folders, command line, logs, metrics and Spark rows all use these members.

Four families:

* ``1`` to ``47``: what an Apache Kafka 4.4.0 broker refuses, in the order in which the broker asks
  (ProduceRequest, UnifiedLog.analyzeAndValidateRecords, LogValidator, UnifiedLog.append).
* ``S1`` and up: the extras of ``strict`` mode, for batches that Kafka itself would accept, or
  would answer with UNKNOWN_SERVER_ERROR.
* ``L1`` and up: findings in a log at rest, in its segments and in Kafka's other files.
* ``R1`` and up: record rules, which a topic's owner sets (batchval.record_rules).

The members are written by ``python tools/generate_rules.py`` from batchval/rule_texts.py; do not
edit them by hand.
"""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import NamedTuple

from batchval.errors import ErrorCode

__all__ = [
    "EXTRAS",
    "EXTRA_IDS",
    "FAMILY_STARTS",
    "FINDING_IDS",
    "RECORD_RULE_IDS",
    "Rule",
    "by_number",
    "extras_of",
    "number_of",
]


#: The number before the first rule of a family, by its letter. Kafka's rules start at 1.
FAMILY_STARTS = {"S": 50, "L": 70, "R": 90}


def number_of(rule_id: str) -> int:
    """Return the number of a rule's id."""
    start = FAMILY_STARTS.get(rule_id[0])
    return int(rule_id) if start is None else start + int(rule_id[1:])


class _Fact(NamedTuple):
    id: str
    slug: str
    error_code: ErrorCode | None
    profiles: str  # "p", "l" or "pl"
    summary: str


_E = ErrorCode


class Rule(Enum):
    """One rule. ``number`` is what columns hold: 1-47 as they are, S1 and up from 51, L1 and
    up from 71, R1 and up from 91.
    """

    # fmt: off
    # Written by ``python tools/generate_rules.py`` from rule_texts.py: do not edit it by hand.
    BATCH_INCOMPLETE = _Fact(
        "1", "batch-incomplete", None, "p",
        "fewer bytes left than the batch states: the iteration ends here, the tail is trimmed",
    )
    BATCH_SIZE_TOO_SMALL = _Fact(
        "2", "batch-size-too-small", _E.CORRUPT_MESSAGE, "pl",
        "size field below 14",
    )
    BATCH_SIZE_OVERFLOW = _Fact(
        "3", "batch-size-overflow", _E.UNKNOWN_SERVER_ERROR, "p",
        "size field of 2^31 - 12 or more: adding 12 overflows in Kafka",
    )
    MAGIC_UNKNOWN = _Fact("4", "magic-unknown", _E.CORRUPT_MESSAGE, "pl", "magic is not 0, 1 or 2")
    REQUEST_WITHOUT_BATCH = _Fact(
        "5", "request-without-batch", _E.INVALID_RECORD, "p",
        "a partition of a produce request holds no batch",
    )
    REQUEST_MAGIC_NOT_2 = _Fact(
        "6", "request-magic-not-2", _E.INVALID_RECORD, "p",
        "the first batch of a produce request is not of magic 2",
    )
    REQUEST_ZSTD_TOO_OLD = _Fact(
        "7", "request-zstd-too-old", _E.UNSUPPORTED_COMPRESSION_TYPE, "p",
        "zstd in a produce request before version 7",
    )
    REQUEST_MORE_THAN_ONE_BATCH = _Fact(
        "8", "request-more-than-one-batch", _E.INVALID_RECORD, "p",
        "a partition of a produce request holds more than one batch",
    )
    RAFT_LEADER_EPOCH_DIFFERS = _Fact(
        "9", "raft-leader-epoch-differs", _E.INVALID_RECORD, "p",
        "append by a raft leader: the batch has another partition leader epoch",
    )
    BASE_OFFSET_NOT_ZERO = _Fact(
        "10", "base-offset-not-zero", _E.INVALID_RECORD, "p",
        "a client's batch does not start at base offset 0",
    )
    REPLICA_EPOCH_AHEAD = _Fact(
        "11", "replica-epoch-ahead", None, "p",
        "replication: the batch's leader epoch is above the replica's; it and all later batches "
        "are skipped",
    )
    FIELDS_OUT_OF_BOUNDS = _Fact(
        "12", "fields-out-of-bounds", _E.UNKNOWN_SERVER_ERROR, "p",
        "the batch is too small for the fields that Kafka reads",
    )
    BATCH_TOO_LARGE = _Fact(
        "13", "batch-too-large", _E.MESSAGE_TOO_LARGE, "p",
        "the batch is larger than max.message.bytes",
    )
    CRC_MISMATCH = _Fact(
        "14", "crc-mismatch", _E.CORRUPT_MESSAGE, "pl",
        "the checksum is wrong, or the batch is smaller than its own header",
    )
    CODEC_ID_UNKNOWN = _Fact(
        "15", "codec-id-unknown", _E.UNKNOWN_SERVER_ERROR, "pl",
        "compression codec 5, 6 or 7",
    )
    OFFSETS_OUT_OF_ORDER = _Fact(
        "16", "offsets-out-of-order", _E.UNKNOWN_SERVER_ERROR, "p",
        "append by a follower: last offsets do not increase",
    )
    VALID_BYTES_NEGATIVE = _Fact(
        "17", "valid-bytes-negative", _E.CORRUPT_MESSAGE, "p",
        "the valid bytes of the records are below 0 (no input reaches this)",
    )
    VALIDATOR_WITHOUT_BATCH = _Fact(
        "18", "validator-without-batch", _E.INVALID_RECORD, "p",
        "LogValidator received no batch",
    )
    VALIDATOR_MORE_THAN_ONE_BATCH = _Fact(
        "19", "validator-more-than-one-batch", _E.INVALID_RECORD, "p",
        "LogValidator received more than one batch of magic 2, or of compressed records",
    )
    ZSTD_BEFORE_IBP_2_1 = _Fact(
        "20", "zstd-before-ibp-2-1", _E.UNSUPPORTED_COMPRESSION_TYPE, "p",
        "zstd under an inter-broker protocol before 2.1 (gone in Kafka 4)",
    )
    BATCH_MAGIC_DIFFERS = _Fact(
        "21", "batch-magic-differs", _E.INVALID_RECORD, "p",
        "the batch's magic is not that of the first batch",
    )
    OFFSET_RANGE_EMPTY = _Fact(
        "22", "offset-range-empty", _E.INVALID_RECORD, "p",
        "last offset minus base offset plus 1 is not positive",
    )
    RECORDS_COUNT_NOT_POSITIVE = _Fact(
        "23", "records-count-not-positive", _E.INVALID_RECORD, "p",
        "the records count of a client's batch is 0 or negative",
    )
    RECORDS_COUNT_UNLIKE_OFFSETS = _Fact(
        "24", "records-count-unlike-offsets", _E.INVALID_RECORD, "p",
        "last offset delta plus 1 is not the records count",
    )
    CONTROL_BATCH_BY_CLIENT = _Fact(
        "25", "control-batch-by-client", _E.INVALID_RECORD, "p",
        "a client set the control bit",
    )
    BASE_SEQUENCE_NEGATIVE = _Fact(
        "26", "base-sequence-negative", _E.INVALID_RECORD, "p",
        "a producer id without a base sequence",
    )
    TRANSACTION_BEFORE_MAGIC_2 = _Fact(
        "27", "transaction-before-magic-2", _E.UNSUPPORTED_FOR_MESSAGE_FORMAT, "p",
        "the transactional bit, and a target magic below 2",
    )
    PRODUCER_ID_BEFORE_MAGIC_2 = _Fact(
        "28", "producer-id-before-magic-2", _E.UNSUPPORTED_FOR_MESSAGE_FORMAT, "p",
        "a producer id, and a target magic below 2",
    )
    RECORD_MALFORMED = _Fact(
        "29", "record-malformed", _E.INVALID_RECORD, "pl",
        "a record does not parse, or the batch holds more or fewer than it states",
    )
    WRAPPER_MALFORMED = _Fact(
        "30", "wrapper-malformed", _E.INVALID_RECORD, "pl",
        "a compressed message of magic 0 or 1 that holds no readable message set",
    )
    INNER_SIZE_TOO_SMALL = _Fact(
        "31", "inner-size-too-small", _E.CORRUPT_MESSAGE, "pl",
        "an inner message of magic 0 or 1 states a size below 14",
    )
    INNER_CODEC_SET = _Fact(
        "32", "inner-codec-set", _E.INVALID_RECORD, "pl",
        "an inner message of magic 0 or 1 has a codec set",
    )
    RECORD_MAGIC_DIFFERS = _Fact(
        "33", "record-magic-differs", _E.INVALID_RECORD, "pl",
        "an inner message's magic is not its wrapper's",
    )
    INNER_CRC_MISMATCH = _Fact(
        "34", "inner-crc-mismatch", _E.CORRUPT_MESSAGE, "pl",
        "the checksum of an inner message of magic 0 or 1 is wrong",
    )
    KEY_MISSING = _Fact(
        "35", "key-missing", _E.INVALID_RECORD, "p",
        "a record without a key for a compacted topic",
    )
    TIMESTAMP_OUT_OF_RANGE = _Fact(
        "36", "timestamp-out-of-range", _E.INVALID_TIMESTAMP, "p",
        "a record's timestamp is outside what the topic allows around now",
    )
    TIMESTAMP_TYPE_BY_PRODUCER = _Fact(
        "37", "timestamp-type-by-producer", _E.INVALID_TIMESTAMP, "p",
        "the producer set the LogAppendTime bit",
    )
    RECORD_ERRORS = _Fact(
        "38", "record-errors", _E.INVALID_RECORD, "p",
        "records were refused for more than one reason",
    )
    REBUILD_IMPOSSIBLE = _Fact(
        "39", "rebuild-impossible", _E.UNKNOWN_SERVER_ERROR, "p",
        "the batch would have to be rebuilt, and Kafka's builder refuses its content",
    )
    REBUILT_BATCH_TOO_LARGE = _Fact(
        "40", "rebuilt-batch-too-large", _E.MESSAGE_TOO_LARGE, "p",
        "the rebuilt batch is larger than max.message.bytes",
    )
    OFFSET_BELOW_LOG_END = _Fact(
        "41", "offset-below-log-end", _E.UNKNOWN_SERVER_ERROR, "p",
        "append by a follower or a raft leader: the first offset is below the end of the log",
    )
    LEADER_EPOCH_INVALID = _Fact(
        "42", "leader-epoch-invalid", _E.UNKNOWN_SERVER_ERROR, "p",
        "the partition leader epoch or the base offset to be stored is below 0",
    )
    PRODUCER_EPOCH_TOO_LOW = _Fact(
        "43", "producer-epoch-too-low", _E.INVALID_PRODUCER_EPOCH, "p",
        "a producer id with an epoch below -1, or below that of the batch before",
    )
    TRANSACTION_MARKER_MALFORMED = _Fact(
        "44", "transaction-marker-malformed", _E.INVALID_RECORD, "p",
        "a control batch with a producer id does not start with a transaction marker, or comes "
        "from a raft leader",
    )
    COORDINATOR_EPOCH_TOO_LOW = _Fact(
        "45", "coordinator-epoch-too-low", _E.TRANSACTION_COORDINATOR_FENCED, "p",
        "a transaction marker with a coordinator epoch below -1",
    )
    TRANSACTION_NOT_ENDED = _Fact(
        "46", "transaction-not-ended", _E.INVALID_TXN_STATE, "p",
        "a batch outside a transaction follows one inside it, of the same producer in one append",
    )
    OFFSETS_OUTSIDE_SEGMENT = _Fact(
        "47", "offsets-outside-segment", _E.UNKNOWN_SERVER_ERROR, "p",
        "the last offset is below the base offset of the segment, more than 2^31 - 1 above it, or"
        " 2^63 - 1",
    )

    S1 = _Fact(
        "S1", "unused-attribute-bits", _E.INVALID_RECORD, "p",
        "a client set one of the attribute bits 6-15",
    )
    S2 = _Fact(
        "S2", "bytes-behind-batch", _E.INVALID_RECORD, "p",
        "bytes after the last batch, which Kafka trims without an error",
    )
    S3 = _Fact(
        "S3", "offset-deltas-not-sequential", _E.INVALID_RECORD, "pl",
        "offset deltas are not 0 to n - 1 (at rest: not ascending within last_offset_delta)",
    )
    S4 = _Fact(
        "S4", "record-length-unlike-record", _E.INVALID_RECORD, "pl",
        "a record's stated length is not its length",
    )
    S5 = _Fact(
        "S5", "record-fields-outside-format", _E.INVALID_RECORD, "pl",
        "a length below -1, record attribute bits, or a header key that is not UTF-8",
    )
    S6 = _Fact(
        "S6", "codec-not-defined", _E.UNSUPPORTED_COMPRESSION_TYPE, "pl",
        "compression codec 5, 6 or 7",
    )
    S7 = _Fact(
        "S7", "compressed-stream-damaged", _E.INVALID_RECORD, "pl",
        "the compressed stream is damaged, mislabelled or overlong, halts before its end, or asks"
        " for a zstd window above 2^27",
    )
    S8 = _Fact(
        "S8", "decompressed-too-large", _E.INVALID_RECORD, "pl",
        "the batch decompresses to more than max_decompressed_bytes",
    )
    S9 = _Fact(
        "S9", "broker-would-fail", _E.INVALID_RECORD, "p",
        "other batches that Kafka answers with UNKNOWN_SERVER_ERROR",
    )
    S10 = _Fact(
        "S10", "timestamp-below-minus-one", _E.INVALID_TIMESTAMP, "pl",
        "a record's timestamp is below -1",
    )

    L1 = _Fact(
        "L1", "partial-batch", _E.CORRUPT_MESSAGE, "l",
        "a batch that the segment does not hold whole, or zeros to the end",
    )
    L2 = _Fact(
        "L2", "offsets-going-back", _E.KAFKA_STORAGE_ERROR, "l",
        "a batch's offsets overlap the batch before, or go back",
    )
    L3 = _Fact(
        "L3", "offset-gap", _E.KAFKA_STORAGE_ERROR, "l",
        "offsets are missing between two batches of a topic that is not compacted",
    )
    L4 = _Fact(
        "L4", "leader-epoch-going-back", _E.KAFKA_STORAGE_ERROR, "l",
        "the partition leader epoch is below that of the batch before",
    )
    L5 = _Fact(
        "L5", "sequence-gap", _E.KAFKA_STORAGE_ERROR, "l",
        "a producer's base sequence does not follow its last one",
    )
    L6 = _Fact(
        "L6", "lying-index", _E.KAFKA_STORAGE_ERROR, "l",
        "an entry of .index does not point at the batch that it names, or entries are out of "
        "order or missing",
    )
    L7 = _Fact(
        "L7", "lying-claims", _E.INVALID_RECORD, "pl",
        "the records contradict a batch-level claim",
    )
    L8 = _Fact(
        "L8", "segment-name-differs", _E.KAFKA_STORAGE_ERROR, "l",
        "the name of a segment is not the base offset that its batches and its neighbours imply",
    )
    L9 = _Fact(
        "L9", "time-index-differs", _E.KAFKA_STORAGE_ERROR, "l",
        "an entry of .timeindex is out of order or not true of a batch, or entries are missing",
    )
    L10 = _Fact(
        "L10", "transaction-index-differs", _E.KAFKA_STORAGE_ERROR, "l",
        ".txnindex does not hold the aborted transactions that the markers of the segment end",
    )
    L11 = _Fact(
        "L11", "producer-snapshot-damaged", _E.KAFKA_STORAGE_ERROR, "l",
        "a producer snapshot has a wrong checksum, version, structure or name",
    )
    L12 = _Fact(
        "L12", "epoch-checkpoint-differs", _E.KAFKA_STORAGE_ERROR, "l",
        "leader-epoch-checkpoint is malformed, out of order, or not true of the batches",
    )
    L13 = _Fact(
        "L13", "log-checkpoint-differs", _E.KAFKA_STORAGE_ERROR, "l",
        "an offset checkpoint is malformed, or names an offset that the log does not have",
    )
    L14 = _Fact(
        "L14", "partition-metadata-damaged", _E.KAFKA_STORAGE_ERROR, "l",
        "partition.metadata does not hold a version and a topic id",
    )
    L15 = _Fact(
        "L15", "stored-leader-epoch-invalid", _E.KAFKA_STORAGE_ERROR, "l",
        "the partition leader epoch of a stored batch is below -1",
    )
    L16 = _Fact(
        "L16", "transaction-hanging", _E.KAFKA_STORAGE_ERROR, "l",
        "a transaction is open for longer than a transaction coordinator allows",
    )
    L17 = _Fact(
        "L17", "replicas-differ", _E.KAFKA_STORAGE_ERROR, "l",
        "replicas hold different batches between their log starts and the high watermark",
    )

    R1 = _Fact(
        "R1", "record-schema-id", _E.INVALID_RECORD, "pl",
        "a key, value or header holds no allowed schema id",
    )
    R2 = _Fact(
        "R2", "record-key-too-large", _E.INVALID_RECORD, "pl",
        "a key has more than max_key_bytes",
    )
    R3 = _Fact(
        "R3", "record-value-too-large", _E.INVALID_RECORD, "pl",
        "a value has more than max_value_bytes",
    )
    R4 = _Fact(
        "R4", "record-headers-too-many", _E.INVALID_RECORD, "pl",
        "a record has more than max_headers headers",
    )
    R5 = _Fact(
        "R5", "record-header-missing", _E.INVALID_RECORD, "pl",
        "a record lacks a header of required_headers",
    )
    R6 = _Fact(
        "R6", "record-header-forbidden", _E.INVALID_RECORD, "pl",
        "a record has a header of forbidden_headers",
    )
    R7 = _Fact(
        "R7", "record-tombstone", _E.INVALID_RECORD, "pl",
        "a value is null, and tombstones are refused",
    )
    R8 = _Fact(
        "R8", "record-key-not-utf8", _E.INVALID_RECORD, "pl",
        "a key is not UTF-8, and utf8_keys is set",
    )
    # fmt: on

    @cached_property
    def id(self) -> str:
        """Return the rule's name in the tables of the documentation: ``14``, ``S3``, ``L2``."""
        return self.value.id

    @property
    def slug(self) -> str:
        """Return the rule's name in file names and metrics: ``crc-mismatch``."""
        return self.value.slug

    @property
    def error_code(self) -> ErrorCode | None:
        """Return Kafka's error for it, None where Kafka refuses nothing (rules 1 and 11).

        Rules 29, 30, 33, 38 and 44 have a second code for some inputs; a result holds the one that
        applies.
        """
        return self.value.error_code

    @property
    def profiles(self) -> frozenset[str]:
        """Return where it is checked: ``produce`` (a broker's append), ``log`` (a segment at rest),
        or both.
        """
        return frozenset({"p": "produce", "l": "log"}[letter] for letter in self.value.profiles)

    @property
    def summary(self) -> str:
        """Return one line for people."""
        return self.value.summary

    @cached_property
    def number(self) -> int:
        """Return the rule as a small integer, as columns and the core hold it."""
        return number_of(self.id)

    @property
    def is_extra(self) -> bool:
        """Return True for the extras of strict mode: S1 and up."""
        return self.id[0] == "S"

    def __repr__(self) -> str:
        return f"<Rule {self.id} {self.slug}>"

    def __str__(self) -> str:
        return f"{self.id} {self.slug}"


EXTRAS: tuple[Rule, ...] = tuple(rule for rule in Rule if rule.is_extra)
#: the ids of three families, for messages: ``S1 to S10``
EXTRA_IDS, FINDING_IDS, RECORD_RULE_IDS = (
    f"{letter}1 to {[rule.id for rule in Rule if rule.id[0] == letter][-1]}" for letter in "SLR"
)

_BY_NUMBER = {rule.number: rule for rule in Rule}


def by_number(number: int) -> Rule | None:
    """Return the rule of a column's number; None for 0, which means accepted."""
    return _BY_NUMBER.get(number)


def extras_of(bits: int) -> list[Rule]:
    """Return the extras of a column ``reports``: bit n stands for Sn."""
    return [rule for n, rule in enumerate(EXTRAS, 1) if bits & (1 << n)] if bits else []
