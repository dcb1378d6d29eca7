"""The three stages, each alone and then together: every rule obeyed to the last number and broken
by one.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pytest

from batchval.core.batches.validator import LogValidator
from batchval.errors import ErrorCode
from batchval.policy import TopicPolicy
from batchval.rules import Rule
from batchval.types import AppendOrigin, CompressionType
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    compress,
    fields,
    message,
    record,
    records,
    with_crc,
    wrapper,
)

INT_MAX, INT_MIN, LONG_MAX = 2**31 - 1, -(2**31), 2**63 - 1
KAFKA = LogValidator(mode="kafka")
STRICT = LogValidator()
PLAIN = batch(records(3))


class Row(NamedTuple):
    """A buffer, the arguments of the stage, and Kafka's answer: the rule that refuses and its
    code.
    """

    data: bytes
    rule: str | None = None
    code: int = 0
    arguments: dict[str, Any] = {}  # noqa: RUF012
    policy: dict[str, Any] = {}  # noqa: RUF012
    extra: str | None = None  # strict: what stands in the place of a -1


def stump(size: int, magic: int = 2) -> bytes:
    """A batch of `size` bytes in all, which is less than its header."""
    return PLAIN[:8] + struct.pack(">i", size - 12) + PLAIN[12:16] + bytes([magic]) + PLAIN[17:size]


def sized(field: int, size: int = 61) -> bytes:
    """A batch whose size field says something else."""
    return PLAIN[:8] + struct.pack(">i", field) + PLAIN[12:size]


# ---- ProduceRequest.validateRecords --------------------------------------------------------------

REQUEST = {
    "one batch": Row(PLAIN),
    "nothing": Row(b"", "5", 87),
    "eleven bytes": Row(PLAIN[:11], "5", 87),
    "sixteen bytes": Row(PLAIN[:16], "5", 87),
    "a batch that is cut off": Row(PLAIN[:-1], "5", 87),
    "size 13": Row(sized(13), "2", 2),
    "size 13 and no magic": Row(sized(13, 16), "2", 2),
    "size 0": Row(bytes(61), "2", 2),
    "size negative": Row(sized(-1), "2", 2),
    "size the greatest that does not overflow": Row(sized(INT_MAX - 12), "5", 87),
    "size that overflows": Row(sized(INT_MAX - 11), "3", -1, extra="S9"),
    "size the greatest": Row(sized(INT_MAX), "3", -1, extra="S9"),
    "magic 3": Row(batch(magic=3), "4", 2),
    "magic 127": Row(batch(magic=127), "4", 2),
    "magic -1": Row(batch(magic=-1), "4", 2),
    "magic is asked before the size's overflow": Row(
        sized(INT_MAX)[:16] + b"\x09" + PLAIN[17:61], "4", 2
    ),
    "magic is asked of a batch that is cut off": Row(batch(magic=3)[:17], "4", 2),
    "magic 0": Row(message(0), "6", 87),
    "magic 1": Row(message(1), "6", 87),
    "magic 1 in a wrapper": Row(wrapper([message(1)], GZIP), "6", 87),
    "two batches": Row(PLAIN + PLAIN, "8", 87),
    "a message after it": Row(PLAIN + message(1), "8", 87),
    "part of a batch after it": Row(PLAIN + PLAIN[:-1]),
    "one byte after it": Row(PLAIN + b"\0"),
    "eleven zeros after it": Row(PLAIN + bytes(11)),
    "twelve zeros after it": Row(PLAIN + bytes(12), "2", 2),
    "magic 3 after it": Row(PLAIN + batch(magic=3), "4", 2),
    "zstd in version 7": Row(batch(codec=ZSTD), arguments={"produce_version": 7}),
    "zstd in version 6": Row(batch(codec=ZSTD), "7", 76, {"produce_version": 6}),
    "zstd in version 3": Row(batch(codec=ZSTD), "7", 76, {"produce_version": 3}),
    "lz4 in version 3": Row(batch(codec=LZ4), arguments={"produce_version": 3}),
    "codec 5 in version 6": Row(batch(attributes=5), "15", -1, {"produce_version": 6}, extra="S6"),
    "codec 5 in version 9": Row(batch(attributes=5)),
    "a wrong checksum": Row(batch(crc=1)),
}


@pytest.mark.parametrize("what", REQUEST)
def test_the_request(what: str) -> None:
    row = REQUEST[what]
    result = KAFKA.check_request(row.data, **row.arguments)
    assert (result.rule and result.rule.id, int(result.error_code)) == (row.rule, row.code), result
    assert (result.path, result.stats, result.output, result.next_offset) == (
        None,
        None,
        None,
        None,
    )
    same_in_strict(row, STRICT.check_request(row.data, **row.arguments))


def same_in_strict(row: Row, result: Any) -> None:
    if row.code == -1:
        assert (result.rule.id, result.error_code) == (row.extra, Rule[str(row.extra)].error_code)
    else:
        assert (result.rule and result.rule.id, int(result.error_code)) == (row.rule, row.code)
    assert bool(result) == result.ok == (row.rule is None)
    assert bool(result.reason) == (row.rule is not None)


# ---- UnifiedLog.analyzeAndValidateRecords --------------------------------------------------------

RAFT, REPLICA, COORDINATOR = (
    {"origin": "RAFT_LEADER"},
    {"origin": "REPLICATION"},
    {"origin": "COORDINATOR"},
)
AT_5 = batch(base_offset=5, partition_leader_epoch=7)
AT_6 = batch(base_offset=6, partition_leader_epoch=7)
EPOCH_7 = {"leader_epoch": 7}

ANALYZE = {
    "nothing": Row(b""),
    "one batch": Row(PLAIN),
    "many": Row(PLAIN + batch(codec=GZIP) + message(1)),
    "part of a batch": Row(PLAIN[:-1]),
    "size 13": Row(sized(13), "2", 2),
    "size 13 after a batch": Row(PLAIN + sized(13), "2", 2),
    "size that overflows": Row(sized(INT_MAX - 11), "3", -1, extra="S9"),
    "magic 3": Row(batch(magic=3), "4", 2),
    "epoch as the raft leader's": Row(AT_5, arguments=RAFT | EPOCH_7),
    "epoch below the raft leader's": Row(AT_5, "9", 87, RAFT | {"leader_epoch": 8}),
    "epoch above the raft leader's": Row(AT_5, "9", 87, RAFT | {"leader_epoch": 6}),
    "a message for a raft leader": Row(message(1), "9", 87, RAFT),
    "a message for a raft leader of epoch -1": Row(
        message(1), arguments=RAFT | {"leader_epoch": -1}
    ),
    "base offset 1 by a client": Row(batch(base_offset=1), "10", 87),
    "base offset -1 by a client": Row(batch(base_offset=-1), "10", 87),
    "base offset 1 by a coordinator": Row(batch(base_offset=1), arguments=COORDINATOR),
    "a message's offset by a client": Row(message(1, offset=9)),
    "epoch as the replica's": Row(AT_5, arguments=REPLICA | EPOCH_7),
    "epoch ahead of the replica's": Row(AT_5, arguments=REPLICA | {"leader_epoch": 6}),
    "a wrong checksum ahead of the replica": Row(
        batch(base_offset=5, partition_leader_epoch=7, crc=1),
        arguments=REPLICA | {"leader_epoch": 6},
    ),
    "26 bytes": Row(stump(26), "12", -1, extra="S9"),
    "27 bytes": Row(stump(27), "14", 2),
    "60 bytes": Row(stump(60), "14", 2),
    "61 bytes": Row(batch([])),
    "as large as allowed": Row(PLAIN, policy={"max_message_bytes": len(PLAIN)}),
    "one byte too large": Row(PLAIN, "13", 10, policy={"max_message_bytes": len(PLAIN) - 1}),
    "too large for a coordinator": Row(
        PLAIN, "13", 10, COORDINATOR, {"max_message_bytes": len(PLAIN) - 1}
    ),
    "too large for the leader of a replica": Row(
        AT_5, arguments=REPLICA | EPOCH_7, policy={"max_message_bytes": 1}
    ),
    "a message one byte too large": Row(
        message(1), "13", 10, policy={"max_message_bytes": len(message(1)) - 1}
    ),
    "size before checksum": Row(batch(crc=1), "13", 10, policy={"max_message_bytes": 1}),
    "checksum wrong": Row(batch(crc=1), "14", 2),
    "checksum wrong in the second": Row(PLAIN + batch(crc=1), "14", 2),
    "checksum of a message wrong": Row(message(1, crc=1), "14", 2),
    "checksum before codec": Row(batch(attributes=5, crc=1), "14", 2),
    "codec 4": Row(batch(codec=ZSTD)),
    "codec 5": Row(batch(attributes=5), "15", -1, extra="S6"),
    "codec 7": Row(batch(attributes=7), "15", -1, extra="S6"),
    "codec 7 of a message": Row(message(0, attributes=7), "15", -1, extra="S6"),
    "offsets of a follower": Row(AT_5 + AT_6, arguments=REPLICA | EPOCH_7),
    "offsets of a follower twice": Row(AT_5 + AT_5, "16", -1, REPLICA | EPOCH_7, extra="S9"),
    "offsets of a follower back": Row(AT_6 + AT_5, "16", -1, REPLICA | EPOCH_7, extra="S9"),
    "offsets of a raft leader back": Row(AT_6 + AT_5, "16", -1, RAFT | EPOCH_7, extra="S9"),
    "offsets of a coordinator back": Row(AT_6 + AT_5, arguments=COORDINATOR),
    "the first last offset below 0": Row(
        batch(base_offset=-3, last_offset_delta=1, partition_leader_epoch=7),
        "16",
        -1,
        REPLICA | EPOCH_7,
        extra="S9",
    ),
    "offsets back, and a record that does not parse": Row(
        AT_6 + batch([b"\x02"], records_count=1, base_offset=5), "29", 87, REPLICA | EPOCH_7
    ),
    "offsets back, and after them a size of 13": Row(
        AT_6 + AT_5 + sized(13), "2", 2, REPLICA | EPOCH_7
    ),
    "offsets back in what is skipped": Row(AT_6 + AT_5, arguments=REPLICA | {"leader_epoch": 3}),
}


@pytest.mark.parametrize("what", ANALYZE)
def test_the_batch_loop(what: str) -> None:
    row = ANALYZE[what]
    policy = TopicPolicy(**row.policy)
    result = LogValidator(policy, mode="kafka").analyze(row.data, **row.arguments)
    assert (result.rule and result.rule.id, int(result.error_code)) == (row.rule, row.code), result
    assert (result.path, result.stats, result.output, result.next_offset) == (
        None,
        None,
        None,
        None,
    )
    same_in_strict(row, LogValidator(policy).analyze(row.data, **row.arguments))


def test_what_the_batch_loop_finds() -> None:
    first, second = batch(codec=GZIP), batch(codec=LZ4)
    result = KAFKA.analyze(first + second + PLAIN + b"beyond")
    assert result.valid_bytes == len(first + second + PLAIN)
    assert result.source is CompressionType.LZ4  # the last codec that is not none
    assert (result.skipped_batches, result.position) == (0, None)
    assert KAFKA.analyze(b"").source is CompressionType.NONE


def test_a_follower_skips_from_the_first_epoch_ahead_on() -> None:
    appended = batch(base_offset=7, partition_leader_epoch=1)
    result = KAFKA.analyze(
        AT_5 + batch(base_offset=6, partition_leader_epoch=9) + appended,
        origin=AppendOrigin.REPLICATION,
        leader_epoch=7,
    )
    assert result.ok
    assert (result.valid_bytes, result.skipped_batches) == (len(AT_5), 2)
    # a batch that tells no epoch (-1) is never ahead
    result = KAFKA.analyze(batch(base_offset=3), origin=AppendOrigin.REPLICATION, leader_epoch=-5)
    assert result.skipped_batches == 0


@pytest.mark.parametrize("position", [0, 1, 2])
def test_where_the_refused_batch_starts(position: int) -> None:
    parts = [PLAIN, PLAIN, PLAIN]
    parts[position] = batch(crc=1)
    result = KAFKA.analyze(b"".join(parts))
    assert result.position == position * len(PLAIN)
    assert result.valid_bytes == position * len(PLAIN)
    assert "stored crc = 1," in result.reason


# ---- LogValidator.validateMessagesAndAssignOffsets -----------------------------------------------

DOWN, TO_0 = {"to_magic": 1}, {"to_magic": 0}
TRANSACTION = {"attributes": 16, "producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
LZ4_TOPIC = {"compression_type": "lz4"}
COMPACT = {"cleanup_policy": "compact"}
KEYED = batch(records(2, key=b"k"))
ONE = [record()]
TYPE_BY_TOPIC = {"message_timestamp_type": "LogAppendTime"}

VALIDATE = {
    "one batch": Row(PLAIN),
    "nothing": Row(b"", "18", 87),
    "part of a batch": Row(PLAIN[:-1], "18", 87),
    "size 13": Row(sized(13), "2", 2),
    "two batches": Row(PLAIN + PLAIN, "19", 87),
    "two compressed batches": Row(batch(codec=GZIP) + batch(codec=GZIP), "19", 87),
    "a size of 13 after it": Row(PLAIN + sized(13), "2", 2),
    "two messages": Row(message(1) + message(1), arguments=DOWN),
    "two wrappers": Row(wrapper([message(1)], GZIP) * 2, "19", 87, DOWN),
    "two messages, converted": Row(message(1) + message(1)),
    "messages of two magics": Row(message(1) + message(0), "21", 87, DOWN),
    "a batch, then a message": Row(PLAIN + message(1), "19", 87),
    "a message, then a batch": Row(message(1) + PLAIN, "21", 87),
    # rules 22 to 26: what a client's header says
    "last offset delta -1": Row(batch(last_offset_delta=-1), "22", 87),
    "last offset delta the least": Row(batch(last_offset_delta=INT_MIN), "22", 87),
    "last offset delta the greatest": Row(batch(last_offset_delta=INT_MAX), "24", 87),
    "records count 0": Row(batch([], last_offset_delta=0), "23", 87),
    "records count -1": Row(batch(ONE, records_count=-1, last_offset_delta=0), "23", 87),
    "records count the least": Row(
        batch(ONE, records_count=INT_MIN, last_offset_delta=0), "23", 87
    ),
    "records count above the offsets": Row(batch(records(2), last_offset_delta=0), "24", 87),
    "records count below the offsets": Row(batch(records(2), last_offset_delta=2), "24", 87),
    "control batch": Row(batch(attributes=32), "25", 87),
    "control and transactional": Row(batch(**TRANSACTION | {"attributes": 48}), "25", 87),
    "control batch by a coordinator": Row(batch(attributes=32), arguments=COORDINATOR),
    "counts by a coordinator": Row(batch(records(2), last_offset_delta=7), arguments=COORDINATOR),
    "no record by a coordinator": Row(batch([]), arguments=COORDINATOR),
    "sequence -1 with a producer": Row(batch(producer_id=0, producer_epoch=0), "26", 87),
    "sequence the least with a producer": Row(
        batch(producer_id=LONG_MAX, base_sequence=INT_MIN), "26", 87
    ),
    "sequence 0 with a producer": Row(batch(producer_id=0, producer_epoch=0, base_sequence=0)),
    "sequence -1 with a producer, by a coordinator": Row(
        batch(producer_id=9, producer_epoch=0), arguments=COORDINATOR
    ),
    "producer -2 without a sequence": Row(batch(producer_id=-2)),
    "22 before 23": Row(batch([], last_offset_delta=-1), "22", 87),
    "24 before 25": Row(batch(records(2), attributes=32, last_offset_delta=9), "24", 87),
    "25 before 26": Row(batch(attributes=32, producer_id=9), "25", 87),
    # rules 27 and 28: down, uncompressed records are measured and the builder made before the batch
    # is asked
    "transaction": Row(batch(**TRANSACTION)),
    "transaction to magic 1": Row(batch(**TRANSACTION), "39", -1, DOWN, extra="S9"),
    "transaction to magic 1, compressed": Row(batch(**TRANSACTION, codec=LZ4), "27", 43, DOWN),
    "transaction to magic 0, compressed": Row(batch(**TRANSACTION, codec=LZ4), "27", 43, TO_0),
    "producer to magic 1": Row(batch(producer_id=9, base_sequence=0), "28", 43, DOWN),
    "producer to magic 1, compressed": Row(
        batch(producer_id=9, base_sequence=0, codec=LZ4), "28", 43, DOWN
    ),
    # smaller than what is read
    "26 bytes": Row(stump(26), "12", -1, extra="S9"),
    "27 bytes": Row(stump(27), "12", -1, extra="S9"),
    "60 bytes": Row(stump(60), "12", -1, extra="S9"),
    # records
    "a record too few": Row(batch(ONE, records_count=2), "29", 87),
    "a record too many": Row(batch(records(2), records_count=1), "29", 87),
    "a damaged stream": Row(
        batch(payload=b"\x1f\x8b\x08\x00no gzip", codec=GZIP), "29", -1, extra="S7"
    ),
    "no stream": Row(batch(payload=b"", codec=LZ4), "29", -1, extra="S7"),
    "codec 5": Row(batch(attributes=5), "15", -1, extra="S6"),
    "odd deltas in place": Row(batch([record(1), record(0)], codec=LZ4), "29", -1, extra="S3"),
    "odd deltas, rebuilt": Row(batch([record(1), record(0)], codec=GZIP), policy=LZ4_TOPIC),
    "odd deltas, uncompressed": Row(batch([record(1), record(0)])),
    # keys
    "a key": Row(KEYED, policy=COMPACT),
    "no key": Row(PLAIN, "35", 87, policy=COMPACT),
    "no key, compressed": Row(batch(records(2), codec=SNAPPY), "35", 87, policy=COMPACT),
    "no key, compacted and deleted": Row(
        PLAIN, "35", 87, policy={"cleanup_policy": "delete,compact"}
    ),
    "no key in a message": Row(message(1), "35", 87, DOWN, COMPACT),
    "no key in a converted message": Row(message(1), "35", 87, policy=COMPACT),
    # time
    "an hour ahead": Row(batch(base_timestamp=NOW + 3_600_000)),
    "more than an hour ahead": Row(batch(base_timestamp=NOW + 3_600_001), "36", 32),
    "as old as allowed": Row(
        batch(base_timestamp=NOW - 5, max_timestamp=NOW),
        policy={"message_timestamp_before_max_ms": 5},
    ),
    "older than allowed": Row(
        batch(base_timestamp=NOW - 6), "36", 32, policy={"message_timestamp_before_max_ms": 5}
    ),
    "no timestamp": Row(batch(base_timestamp=-1), policy={"message_timestamp_before_max_ms": 5}),
    "any time where the log gives it": Row(
        batch(base_timestamp=NOW + 10**10), policy=TYPE_BY_TOPIC
    ),
    "the log's bit, where the producer gives it": Row(batch(attributes=8)),
    "the log's bit, where the log gives it": Row(
        batch(attributes=8), "37", 32, policy=TYPE_BY_TOPIC
    ),
    "the log's bit without a timestamp": Row(batch(attributes=8, base_timestamp=-1), "37", 32),
    "the log's bit on a message": Row(message(1, attributes=8), "37", 32, DOWN, TYPE_BY_TOPIC),
    "no key and a bad time, two records": Row(
        batch([record(0), record(1, key=b"k", timestamp_delta=10**9)]), "38", 32, policy=COMPACT
    ),
    # legacy
    "a zstd wrapper": Row(wrapper([message(1)], ZSTD), "30", 87, DOWN | {"source": "zstd"}),
    "a wrapper in a wrapper": Row(wrapper([wrapper([message(1)], GZIP)], GZIP), "32", 87, DOWN),
    "another magic in a wrapper": Row(wrapper([message(0)], GZIP), "33", 87, DOWN),
    "a wrong checksum in a wrapper": Row(wrapper([message(1, crc=5)], GZIP), "34", 2, DOWN),
    "size 13 in a wrapper": Row(wrapper([message(1, size=13)], GZIP), "31", 2, DOWN),
    # rule 39: what the builder refuses
    "a negative time, rebuilt": Row(
        batch(base_timestamp=-2), "39", -1, policy=LZ4_TOPIC, extra="S10"
    ),
    "headers down": Row(batch([record(headers=[(b"h", b"")])]), "39", -1, DOWN, extra="S9"),
    "no epoch, rebuilt": Row(
        batch(producer_id=9, base_sequence=0), "39", -1, policy=LZ4_TOPIC, extra="S9"
    ),
    "a transaction without a producer, rebuilt": Row(
        batch(attributes=16), "39", -1, policy=LZ4_TOPIC, extra="S9"
    ),
    "no sequence, rebuilt, by a coordinator": Row(
        batch(producer_id=9, producer_epoch=0), "39", -1, COORDINATOR, LZ4_TOPIC, extra="S9"
    ),
    "zstd to magic 1": Row(batch(), "39", -1, DOWN, {"compression_type": "zstd"}, extra="S9"),
    "no record to append by the log's time": Row(
        batch([]), "39", -1, COORDINATOR, LZ4_TOPIC | TYPE_BY_TOPIC, extra="S9"
    ),
    # the same questions on the way of another codec, or of another magic
    "size 13, rebuilt": Row(sized(13), "2", 2, policy=LZ4_TOPIC),
    "a size of 13 after it, rebuilt": Row(PLAIN + sized(13), "2", 2, policy=LZ4_TOPIC),
    "a size of 13 after a message, rebuilt": Row(message(1) + sized(13), "2", 2, DOWN, LZ4_TOPIC),
    "a size of 13 after a message, converted": Row(message(1) + sized(13), "2", 2),
    "codec 5, rebuilt": Row(batch(attributes=5), "15", -1, policy=LZ4_TOPIC, extra="S6"),
    "60 bytes by a coordinator": Row(stump(60), "12", -1, COORDINATOR, extra="S9"),
    "60 bytes to magic 1": Row(stump(60), "12", -1, DOWN, extra="S9"),
    "a wrapper that nobody called one, of size 13": Row(
        wrapper([message(1, size=13)], GZIP), "31", 2, {"source": "none"}
    ),
    "a bad time before a negative one, down": Row(
        batch([record(0, timestamp_delta=10**9), record(1, timestamp_delta=-NOW - 5)]),
        "36",
        32,
        DOWN,
    ),
    "a bad time before headers, down": Row(
        batch([record(0, timestamp_delta=10**9), record(1, headers=[(b"h", b"")])]), "36", 32, DOWN
    ),
    "headers before a bad time, down": Row(
        batch([record(0, headers=[(b"h", b"")]), record(1, timestamp_delta=10**9)]),
        "39",
        -1,
        DOWN,
        extra="S9",
    ),
    "the log's bit on a message without fields": Row(
        message(1, attributes=8, tail=b""), "30", -1, DOWN, TYPE_BY_TOPIC, extra="S9"
    ),
    "no record to append": Row(batch([]), None, 0, COORDINATOR, LZ4_TOPIC),
}


@pytest.mark.parametrize("what", VALIDATE)
def test_the_messages(what: str) -> None:
    row = VALIDATE[what]
    policy = TopicPolicy(**row.policy)
    arguments = {"now_ms": NOW} | row.arguments
    result = LogValidator(policy, mode="kafka").validate_messages_and_assign_offsets(
        row.data, **arguments
    )
    assert (result.rule and result.rule.id, int(result.error_code)) == (row.rule, row.code), result
    assert (result.output is None) == (not result.ok)
    strict = LogValidator(
        policy, extras={r.id: "report" for r in Rule if r.is_extra and r is not Rule.S8}
    )
    same_in_strict(row, strict.validate_messages_and_assign_offsets(row.data, **arguments))


def test_rules_21_to_26_mark_kafkas_meters() -> None:
    def meters(data: bytes, **arguments: Any) -> dict[str, int]:
        return KAFKA.validate_messages_and_assign_offsets(data, now_ms=NOW, **arguments).meters

    assert meters(message(1) + message(0), to_magic=1) == {"magic": 1}
    assert meters(batch(last_offset_delta=-1)) == {"offset": 1}
    assert meters(batch([], last_offset_delta=0)) == {"offset": 1}
    assert meters(batch(records(2), last_offset_delta=2)) == {"offset": 1}
    assert meters(batch(attributes=32)) == {"offset": 1}
    assert meters(batch(producer_id=0)) == {"sequence": 1}
    assert meters(wrapper([message(1, crc=5)], GZIP), to_magic=1) == {"checksum": 1}
    assert meters(wrapper([message(0), message(0)], GZIP, offset=1), to_magic=1) == {"magic": 2}
    assert meters(PLAIN) == {}


# ---- all stages --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (batch(crc=1, base_offset=1, last_offset_delta=-1), "10"),
        (batch(crc=1, last_offset_delta=-1), "14"),
        (batch(last_offset_delta=-1, attributes=32), "22"),
        (message(1, crc=1), "6"),
        (PLAIN + batch(crc=1), "8"),
    ],
)
def test_the_first_refusal_wins(data: bytes, rule: str) -> None:
    for validator in (KAFKA, STRICT):
        for ask in (validator.check, validator.validate):
            assert ask(data, now_ms=NOW).rule.id == rule


@pytest.mark.parametrize("codec", CODECS)
def test_check_answers_as_its_stages(codec: str) -> None:
    data = batch(records(5), codec=CODECS[codec])
    whole = STRICT.validate(data, now_ms=NOW, first_offset=70, leader_epoch=3)
    assert STRICT.check_request(data).ok
    analyzed = STRICT.analyze(data)
    assert (analyzed.ok, analyzed.source.kafka_name) == (True, codec)
    last = STRICT.validate_messages_and_assign_offsets(
        data, now_ms=NOW, first_offset=70, leader_epoch=3, source=analyzed.source.kafka_name
    )
    for name in (
        "ok",
        "path",
        "records_count",
        "max_timestamp",
        "append_time",
        "next_offset",
        "in_place",
        "stats",
    ):
        assert getattr(whole, name) == getattr(last, name), name
    assert bytes(whole.output) == bytes(last.output)
    assert (whole.next_offset, whole.append_time, whole.max_timestamp, whole.records_count) == (
        75,
        NOW,
        NOW,
        5,
    )


def test_later_bytes_are_trimmed() -> None:
    for appended in (b"x", bytes(11), PLAIN[:40]):
        result = KAFKA.validate(PLAIN + appended, now_ms=NOW)
        assert result.ok
        assert (result.valid_bytes, len(result.output)) == (len(PLAIN), len(PLAIN))


def test_a_follower_that_takes_nothing() -> None:
    result = KAFKA.validate(AT_5, now_ms=NOW, origin="REPLICATION", leader_epoch=6)
    assert (result.ok, result.skipped_batches, result.valid_bytes) == (True, 1, 0)
    assert (bytes(result.output), result.records_count, result.path) == (b"", 0, None)


# ---- extras --------------------------------------------------------------------------------------

#: a batch that Kafka accepts and one extra does not: every one through each way by which batches
#: come
EXTRAS = {
    "S1-bit-6": ("S1", batch(attributes=64)),
    "S1-bit-7": ("S1", batch(attributes=128)),
    "S1-bit-8": ("S1", batch(attributes=256)),
    "S1-bit-15": ("S1", batch(attributes=-32768)),
    "S1-compressed": ("S1", batch(attributes=64, codec=ZSTD)),
    "S2": ("S2", PLAIN + b"\0"),
    "S2-compressed": ("S2", batch(codec=LZ4) + PLAIN[:20]),
    "S3": ("S3", batch([record(1), record(0)])),
    "S4": ("S4", batch([b"\0" + record()[1:]], codec=GZIP)),
    "S5-attributes": ("S5", batch([record(attributes=1)])),
    "S5-header-key": ("S5", batch([record(headers=[(b"\xff", b"")])], codec=SNAPPY)),
    "S7-gzip-overlong": ("S7", batch(payload=compress(GZIP, record()) + b"beyond", codec=GZIP)),
    "S7-lz4-overlong": ("S7", batch(payload=compress(LZ4, record()) + b"beyond", codec=LZ4)),
    "S10": ("S10", batch(base_timestamp=-2)),
    "S10-compressed": ("S10", batch(base_timestamp=-2, codec=ZSTD)),
}


@pytest.mark.parametrize("what", EXTRAS)
def test_an_extra_refuses_or_reports(what: str) -> None:
    extra, data = EXTRAS[what]
    kafka = KAFKA.validate(data, now_ms=NOW, first_offset=5)
    assert kafka.ok, kafka
    assert kafka.reports == []
    for ask in (STRICT.check, STRICT.validate):
        result = ask(data, now_ms=NOW)
        assert (result.rule, result.error_code) == (Rule[extra], Rule[extra].error_code)
        assert result.reason
        assert (result.reports, result.output, result.stats, result.records_count) == (
            [],
            None,
            None,
            0,
        )
    reporting = LogValidator(extras={extra: "report"})
    assert reporting.check(data, now_ms=NOW).reports == [Rule[extra]]
    result = reporting.validate(data, now_ms=NOW, first_offset=5)
    assert (result.ok, result.reports) == (True, [Rule[extra]])
    assert bytes(result.output) == bytes(kafka.output)
    assert (result.max_timestamp, result.next_offset, result.stats) == (
        kafka.max_timestamp,
        kafka.next_offset,
        kafka.stats,
    )


#: Kafka answers these with -1; the extra that names the cause gives the code, whatever its setting
CAUSES = {
    "S3": batch([record(1), record(0)], codec=ZSTD),
    "S6": batch(attributes=6),
    "S7": batch(payload=b"no zstd", codec=ZSTD),
    "S9": sized(INT_MAX),
}


@pytest.mark.parametrize("extra", CAUSES)
def test_a_failing_broker_is_named_whatever_the_setting(extra: str) -> None:
    kafka = KAFKA.check(CAUSES[extra], now_ms=NOW)
    assert kafka.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    for extras in (None, {extra: "report"}, {extra: "refuse"}, {Rule[extra]: "report"}):
        result = LogValidator(extras=extras).check(CAUSES[extra], now_ms=NOW)
        assert (result.rule, result.error_code) == (Rule[extra], Rule[extra].error_code)
        assert result.reason == kafka.reason


def test_several_extras_at_once() -> None:
    data = batch([record(1, attributes=1), record(0)], base_timestamp=-2, attributes=64) + b"beyond"
    reported = LogValidator(extras=dict.fromkeys(("S1", "S2", "S3", "S5", "S10"), "report")).check(
        data, now_ms=NOW
    )
    assert [rule.id for rule in reported.reports] == ["S1", "S2", "S3", "S5", "S10"]
    assert STRICT.check(data, now_ms=NOW).rule is Rule.S1  # the first that refuses
    mixed = LogValidator(extras={"S1": "report", "S2": "report"}).check(data, now_ms=NOW)
    assert (mixed.rule, mixed.reports) == (Rule.S3, [Rule.S1, Rule.S2])


def test_s8_bounds_the_whole_batch() -> None:
    data = batch(records(50, value=bytes(1000)), codec=ZSTD)
    size = len(b"".join(records(50, value=bytes(1000))))
    assert LogValidator(max_decompressed_bytes=size).check(data, now_ms=NOW).ok
    result = LogValidator(max_decompressed_bytes=size - 1).check(data, now_ms=NOW)
    assert (result.rule, result.error_code) == (Rule.S8, ErrorCode.INVALID_RECORD)
    assert str(size - 1) in result.reason
    assert LogValidator(mode="kafka").check(data, now_ms=NOW).ok
    assert (
        LogValidator(mode="kafka", max_decompressed_bytes=1).check(data, now_ms=NOW).rule is Rule.S8
    )
    plain = batch(records(50, value=bytes(1000)))
    assert (
        LogValidator(max_decompressed_bytes=1).check(plain, now_ms=NOW).ok
    )  # uncompressed records have no bound


def test_unused_bits_are_a_clients_alone() -> None:
    data = batch(attributes=64, partition_leader_epoch=0)
    for origin in ("COORDINATOR", "REPLICATION", "RAFT_LEADER"):
        assert STRICT.check(data, now_ms=NOW, origin=origin).ok


# ---- at rest -------------------------------------------------------------------------------------

LOG = LogValidator(profile="log")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (PLAIN, None),
        (batch(attributes=32), None),  # control
        (batch(attributes=8), None),  # log append time
        (batch(attributes=64, base_timestamp=5), None),  # delete horizon
        (batch([], last_offset_delta=3), None),  # the cleaner keeps empty batches
        (batch([record(1), record(4)], last_offset_delta=5), None),  # and leaves gaps
        (batch([record(1), record(4)], last_offset_delta=5, codec=ZSTD), None),
        (batch(base_timestamp=NOW + 10**12), None),  # no clock
        (batch(base_offset=10**12), None),
        (batch(producer_id=4), None),
        (message(0), None),
        (message(1), None),
        (wrapper([message(1), message(1, offset=1)], SNAPPY), None),
        (batch([record(4), record(1)], last_offset_delta=5), "S3"),
        (batch([record(1), record(1)], last_offset_delta=5), "S3"),
        (batch([record(1), record(6)], last_offset_delta=5), "S3"),
        (batch([record(-1), record(1)], last_offset_delta=5), "S3"),
        (batch(crc=1), "14"),
        (message(1, crc=1), "14"),
        (batch(attributes=5), "S6"),
        (message(0, attributes=6), "S6"),
        (batch(payload=b"no zstd", codec=ZSTD), "S7"),
        (batch(ONE, records_count=2), "29"),
        (batch([b"\0" + record()[1:]], codec=GZIP), "S4"),
        (batch([record(attributes=9)]), "S5"),
        (batch(base_timestamp=-9), "S10"),
        (wrapper([message(1, crc=2)], LZ4), "34"),
        (wrapper([message(0)], LZ4), "33"),
        (wrapper([message(1, size=3)], LZ4), "31"),
        (wrapper([wrapper([message(1)], LZ4)], LZ4), "32"),
        (message(1, attributes=GZIP, value=None), "30"),
        (with_crc(stump(60)), "14"),
    ],
)
def test_at_rest(data: bytes, rule: str | None) -> None:
    result = LOG.check(data)
    assert (result.rule and result.rule.id) == rule, result
    assert (
        result.error_code == (Rule.__members__.get(str(rule)) or by_id(rule)).error_code
        if rule
        else result.ok
    )
    if rule:
        assert (result.position, result.reason != "") == (0, True)


def by_id(wanted: str | None) -> Rule:
    return next(rule for rule in Rule if rule.id == wanted)


def test_an_extra_at_rest_can_be_reported() -> None:
    data = batch([record(4), record(1)], last_offset_delta=5) + batch(
        base_offset=6, base_timestamp=-9
    )
    result = LogValidator(profile="log", extras={"S3": "report", "S10": "report"}).check(data)
    assert (result.ok, result.reports) == (True, [Rule.S3, Rule.S10])


def test_refused_records_are_not_asked_for_time_or_key_at_rest() -> None:
    policy = TopicPolicy(cleanup_policy="compact", message_timestamp_before_max_ms=0)
    assert LogValidator(policy, profile="log").check(batch(records(3), base_timestamp=1)).ok


def test_the_fields_helper_reads_what_the_batch_helper_writes() -> None:
    assert fields(AT_5)["base_offset"] == 5
    assert fields(AT_5)["partition_leader_epoch"] == 7


@pytest.mark.parametrize("count", [2**31 - 2, INT_MAX])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_count_for_which_no_jvm_has_an_array(codec: int, count: int) -> None:
    """A follower whose leader sends what its log has: Kafka reads all records for the text."""
    data = batch(codec=codec, records_count=count, last_offset_delta=count - 1)
    arguments: dict[str, Any] = {"now_ms": NOW, "origin": "REPLICATION", "first_offset": 5}
    kafka, strict = KAFKA.check(data, **arguments), STRICT.check(data, **arguments)
    assert (kafka.error_code, kafka.rule) == (ErrorCode.UNKNOWN_SERVER_ERROR, Rule.RECORD_MALFORMED)
    assert (strict.error_code, strict.rule) == (ErrorCode.INVALID_RECORD, Rule.S9)
    assert kafka.reason == f"records_count {count} is above 2147483645, the longest array of a JVM"
    # one less is a matter of Java's heap, and is read
    less = batch(codec=codec, records_count=2**31 - 3, last_offset_delta=2**31 - 4)
    assert KAFKA.check(less, **arguments).error_code is ErrorCode.INVALID_RECORD


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "below": {"timestamp_delta": -NOW - 2},
    "headed": {"headers": [(b"h", b"v")]},
}


@pytest.mark.parametrize(
    ("kinds", "arguments", "cause", "reason"),
    [
        (("below", "plain"), {}, Rule.S10, "record 0: timestamp -2"),
        (("plain", "below"), {"first_offset": LONG_MAX}, Rule.S9, "record 1: the offset"),
        (("below", "plain"), {"first_offset": LONG_MAX}, Rule.S10, "record 0: timestamp -2"),
        (("headed", "below"), {"to_magic": 1}, Rule.S9, "record 0: headers"),
        (("below", "headed"), {"to_magic": 1}, Rule.S10, "record 0: timestamp -2"),
        (
            ("headed", "plain"),
            {"to_magic": 1, "first_offset": LONG_MAX},
            Rule.S9,
            "record 0: headers",
        ),
        (("plain", "headed"), {"to_magic": 1, "now_ms": -2}, Rule.S10, "now_ms -2"),
        (("headed", "plain"), {"to_magic": 1, "now_ms": -2}, Rule.S9, "record 0: headers"),
    ],
)
@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_builder_throws_at_the_first_record(
    codec: int, kinds: tuple[str, ...], arguments: dict[str, Any], cause: Rule, reason: str
) -> None:
    """MemoryRecordsBuilder.appendWithOffset asks a record for its offset, timestamp and headers."""
    policy = TopicPolicy(compression_type="lz4", message_timestamp_type="LogAppendTime")
    data = batch([record(i, **KINDS[kind]) for i, kind in enumerate(kinds)], codec=codec)
    result = LogValidator(policy).check(data, **{"now_ms": NOW, **arguments})
    assert (result.rule, result.reason[: len(reason)]) == (cause, reason)
