"""Batches of magic 3, whatever their bytes: judged as the batch of magic 2 that they carry, or
refused as by Kafka.

header of 61 bytes, claims:13, records
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from batchval.core.batches.batch import RecordBatch, batches
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import attach, compute
from batchval.errors import BatchvalError, NotABatch
from batchval.policy import TopicPolicy
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    ZSTD,
    batch,
    fields,
    record,
    records,
    with_crc,
)
from tests.support.claims import Stated, carried, carrying, damage

ACCEPTING = TopicPolicy(accept_claims_header=True)
STRICT = LogValidator(ACCEPTING)
ANSWER = (
    "ok",
    "error_code",
    "rule",
    "record_errors",
    "reports",
    "next_offset",
    "max_timestamp",
    "append_time",
    "path",
)
PARTS = [
    record(i, key=b"k%d" % i, value=b"value %d" % i, timestamp_delta=d)
    for i, d in enumerate((10, 0, 20))
]
TRUE = Stated(NOW, 3, 2)


def plain(codec: int = ZSTD, **changed: Any) -> bytes:
    return batch(**{"parts": PARTS, "codec": codec, "max_timestamp": NOW + 20, **changed})


def answers(result: Any, names: tuple[str, ...] = ANSWER) -> dict[str, Any]:
    return {name: getattr(result, name) for name in names}


# ---- who takes it --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("word", ["ignore", "verify", "trust"])
def test_off_by_default_and_then_refused_as_kafka_does(codec: str, word: str) -> None:
    data = carrying(plain(CODECS[codec]), TRUE)
    stock = LogValidator(mode="kafka").check(data, now_ms=NOW)
    assert (stock.error_code.name, str(stock.rule), stock.reason) == (
        "CORRUPT_MESSAGE",
        "4 magic-unknown",
        "magic 3 is unknown: expected 0, 1 or 2",
    )
    for policy in (TopicPolicy(), TopicPolicy(accept_claims_header=False)):
        result = LogValidator(policy).check(data, now_ms=NOW, claims=(None, word))
        assert answers(result) == answers(stock)
        assert (result.reason, result.claims, result.path) == (
            "magic 3 is unknown: expected 0, 1 or 2",
            None,
            None,
        )


@pytest.mark.parametrize("codec", CODECS)
def test_never_in_kafka_mode(codec: str) -> None:
    data = carrying(plain(CODECS[codec]), TRUE)
    on, off = LogValidator(ACCEPTING, mode="kafka"), LogValidator(mode="kafka")
    for call in ({}, {"claims": (None, "ignore")}):
        assert answers(on.check(data, now_ms=NOW, **call)) == answers(off.check(data, now_ms=NOW))
    assert not on.validate(bytearray(data), now_ms=NOW, in_place=True).ok
    assert not on.check_request(data).ok
    assert not on.analyze(data).ok
    assert not on.validate_messages_and_assign_offsets(data, now_ms=NOW).ok
    assert on.check_ranges(data, [(0, len(data))], now_ms=NOW)["error_code"].tolist() == [2]


def test_the_stages_alone_are_kafkas() -> None:
    data = carrying(plain(), TRUE)
    for result in (
        STRICT.check_request(data),
        STRICT.analyze(data),
        STRICT.validate_messages_and_assign_offsets(data, now_ms=NOW),
    ):
        assert (result.ok, str(result.rule)) == (False, "4 magic-unknown")


@pytest.mark.parametrize("magic", [4, 5, 127, 128, 255])
def test_no_other_magic_is_taken(magic: int) -> None:
    data = carrying(plain(), TRUE)
    data = data[:16] + bytes([magic]) + data[17:]
    assert str(STRICT.check(data, now_ms=NOW, claims=(None, "trust")).rule) == "4 magic-unknown"


# ---- what it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("word", [None, "ignore", "verify", "trust"])
def test_the_log_gets_the_batch_without_the_claims(codec: str, word: str | None) -> None:
    two = plain(CODECS[codec], producer_id=7, producer_epoch=2, base_sequence=5)
    three = carrying(two, TRUE)
    before = bytes(three)
    result = STRICT.validate(
        three, now_ms=NOW, first_offset=90, leader_epoch=4, claims=word and (None, word)
    )
    slow = STRICT.validate(two, now_ms=NOW, first_offset=90, leader_epoch=4)
    assert result.output == slow.output
    assert fields(result.output)["magic"] == 2
    assert RecordBatch(result.output).is_valid
    assert (result.size_maybe_changed, result.in_place, result.converted) == (True, False, 0)
    assert (result.valid_bytes, result.records_count, result.next_offset) == (len(three), 3, 93)
    expected = "claims" if word == "trust" and codec != "none" else slow.path
    assert answers(result) == answers(slow) | {"path": expected}
    assert three == before
    checked = STRICT.check(three, now_ms=NOW, claims=word and (None, word))
    assert (checked.ok, checked.output, checked.size_maybe_changed, checked.path) == (
        True,
        None,
        True,
        expected,
    )


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", CODECS)
def test_rebuilt_for_a_topic_of_another_codec(codec: str, target: str) -> None:
    policy = TopicPolicy(accept_claims_header=True, compression_type=target)
    two = plain(CODECS[codec])
    for word in ("trust", "verify"):
        result = LogValidator(policy).validate(
            carrying(two, TRUE), now_ms=NOW, first_offset=4, claims=(None, word)
        )
        slow = LogValidator(policy).validate(two, now_ms=NOW, first_offset=4)
        assert (result.output, result.converted, result.ok) == (slow.output, slow.converted, True)


def test_own_time_is_written_into_what_is_left() -> None:
    policy = TopicPolicy(accept_claims_header=True, message_timestamp_type="LogAppendTime")
    result = LogValidator(policy).validate(
        carrying(plain(), TRUE), now_ms=NOW + 99, claims=(None, "trust")
    )
    assert (result.path, fields(result.output)["max_timestamp"]) == ("claims", NOW + 99)
    assert RecordBatch(result.output).is_valid


@pytest.mark.parametrize("word", [None, "ignore", "verify", "trust"])
def test_in_place_is_a_callers_mistake(word: str | None) -> None:
    buffer = bytearray(carrying(plain(), TRUE))
    before = bytes(buffer)
    with pytest.raises(BatchvalError, match="in_place=True is not supported"):
        STRICT.validate(buffer, now_ms=NOW, in_place=True, claims=word and (None, word))
    assert buffer == before
    # where magic 3 is not taken it is refused like any other
    assert str(LogValidator().validate(buffer, now_ms=NOW, in_place=True).rule) == "4 magic-unknown"


def test_a_limit_is_asked_of_the_batch_that_is_carried() -> None:
    two = plain()
    for limit, ok in ((len(two), True), (len(two) - 1, False)):
        policy = TopicPolicy(accept_claims_header=True, max_message_bytes=limit)
        for word in ("ignore", "verify", "trust"):
            assert (
                LogValidator(policy).check(carrying(two, TRUE), now_ms=NOW, claims=(None, word)).ok
                == ok
            )


def test_a_follower_that_skips_it_appends_nothing() -> None:
    """Its epoch is ahead of the replica's: no bytes are left to strip."""
    data = carrying(plain(partition_leader_epoch=9), TRUE)
    for word in ("ignore", "verify", "trust"):
        result = STRICT.validate(
            data, now_ms=NOW, origin="REPLICATION", leader_epoch=3, claims=(None, word)
        )
        assert (result.ok, result.output, result.skipped_batches) == (True, b"", 1)


HEADERS: dict[str, dict[str, Any]] = {
    "base offset": {"base_offset": 5},
    "base offset and checksum": {"base_offset": 5, "crc": 17},
    "checksum": {"crc": 17},
    "count": {"records_count": 4, "last_offset_delta": 2},
    "no records": {"records_count": 0, "last_offset_delta": -1},
    "control": {"attributes": 0x20},
    "unknown bits": {"attributes": 0x4000},
    "sequence": {"producer_id": 4},
    "codec 6": {"codec": 6, "payload": b"x"},
    "garbage": {"payload": b"garbage"},
    "deltas": {"parts": [record(0), record(2), record(1)], "max_timestamp": NOW},
    "old": {"base_timestamp": 5, "max_timestamp": 25},
    "ahead": {"base_timestamp": 2 * NOW, "max_timestamp": 2 * NOW + 20},
    "below -1": {"base_timestamp": -NOW, "max_timestamp": -1},
}


@pytest.mark.parametrize("how", HEADERS)
@pytest.mark.parametrize("codec", [0, GZIP, ZSTD])
def test_the_verdict_is_the_carried_batchs(how: str, codec: int) -> None:
    """Same rule, same code, in the same order of questions."""
    two = plain(**{"codec": codec, **HEADERS[how]})
    patched = attach(two, TRUE)
    assert carrying(two, TRUE) == patched or "crc" in HEADERS[how]
    policy = TopicPolicy(accept_claims_header=True, message_timestamp_before_max_ms=10**9)
    validator = LogValidator(policy)
    slow = validator.check(two, now_ms=NOW)
    for word in ("ignore", "verify"):
        result = validator.check(patched, now_ms=NOW, claims=(None, word))
        assert answers(result) == answers(slow)
        assert result.position == slow.position
    if "crc" in HEADERS[how] and len(HEADERS[how]) == 1:
        computed = fields(with_crc(patched))["crc"]
        assert result.reason == (
            f"Record is corrupt (stored crc = {fields(patched)['crc']}, computed crc = {computed})"
        )


# ---- hostile bytes -------------------------------------------------------------------------------


def judged(data: bytes, word: str, validator: LogValidator = STRICT) -> Any:
    """check, validate and check_ranges agree; strict never answers -1."""
    result = validator.check(data, now_ms=NOW, claims=(None, word))
    written = validator.validate(data, now_ms=NOW, claims=(None, word))
    row = validator.check_ranges(data, [(0, len(data))], now_ms=NOW, claims=(None, word))
    again = row.result(0)
    assert answers(result) == answers(written) == answers(again)
    assert result.claims == written.claims == again.claims
    assert row["rule"][0] == (result.rule.number if result.rule else 0)
    assert row["error_code"][0] == int(result.error_code)
    assert int(result.error_code) != -1
    assert str(result)
    assert written.ok == (written.output is not None)
    return result


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("word", ["ignore", "verify", "trust"])
def test_cut_off_anywhere(codec: str, word: str) -> None:
    data = carrying(plain(CODECS[codec]), TRUE)
    for end in range(len(data)):
        assert not judged(data[:end], word).ok
    # and where the length says so
    for end in range(12, len(data)):
        shorter = data[:8] + struct.pack(">i", end - 12) + data[12:end]
        if end >= 61:
            shorter = with_crc(shorter)
        assert word == "trust" or not judged(shorter, word).ok
        judged(shorter, word)


@pytest.mark.parametrize(
    "length", [-(2**31), -1, 0, 13, 14, 48, 49, 61, 62, 2**31 - 13, 2**31 - 12, 2**31 - 1]
)
@pytest.mark.parametrize("word", ["ignore", "verify", "trust"])
def test_lengths_that_lie(length: int, word: str) -> None:
    data = carrying(plain(), TRUE)
    changed = data[:8] + struct.pack(">i", length) + data[12:]
    assert not judged(changed, word).ok
    assert not judged(changed + bytes(100), word).ok


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("word", ["ignore", "verify", "trust"])
def test_every_byte_of_the_header_flipped(codec: str, word: str) -> None:
    """With the old checksum none but the four fields before it can change; sealed anew, all are
    judged.
    """
    data = carrying(plain(CODECS[codec]), TRUE)
    for at in range(74):
        for bits in (1, 0x10, 0x80, 0xFF):
            changed = data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]
            result = judged(changed, word)
            assert result.ok == (12 <= at < 16)
            sealed = with_crc(changed)
            result = judged(sealed, word)
            if word == "verify" and result.ok:
                assert result.claims == "honest"
                assert compute(carried(sealed)) is not None
            if result.ok and word != "trust":
                assert LogValidator(mode="kafka").check(carried(sealed), now_ms=NOW).ok


@pytest.mark.parametrize("word", ["ignore", "verify", "trust"])
@pytest.mark.parametrize(
    "appended",
    [
        b"\0",
        bytes(12),
        bytes(17),
        b"x" * 60,
        plain(),
        plain(LZ4)[:40],
        carrying(plain(), TRUE),
        b"\0" * 8 + b"\xff" * 9,
    ],
    ids=["a byte", "12", "17", "junk", "magic 2", "half a batch", "magic 3", "negative size"],
)
def test_bytes_after_the_batch(word: str, appended: bytes) -> None:
    """Refuse it, and never take the claims path: the maker of the claims did not look at these
    bytes.
    """
    two, three = plain(), carrying(plain(), TRUE)
    result = judged(three + appended, word)
    assert (result.ok, result.claims) != (True, "trusted")
    slow = LogValidator(ACCEPTING).check(two + appended, now_ms=NOW)
    assert not result.ok
    assert answers(result) == answers(slow)
    assert result.position == (
        None if slow.position is None else slow.position + 13 * (slow.position > 0)
    )
    reporting = LogValidator(ACCEPTING, extras={"S2": "report"})
    written = reporting.validate(three + appended, now_ms=NOW, claims=(None, word))
    expected = reporting.validate(two + appended, now_ms=NOW)
    assert (written.ok, written.output) == (expected.ok, expected.output)
    if written.ok:
        assert written.valid_bytes == len(three)
    judged(three + appended, word, reporting)


@pytest.mark.parametrize("word", ["ignore", "verify", "trust"])
def test_magic_3_after_another(word: str) -> None:
    assert not judged(plain() + carrying(plain(), TRUE), word).ok


def test_damaged_anywhere() -> None:
    data = carrying(plain(), TRUE)
    for at in range(21, len(data)):
        result = judged(damage(data, at), "trust")
        assert (str(result.rule), result.error_code.name) == ("14 crc-mismatch", "CORRUPT_MESSAGE")


def test_random_claims_under_a_right_checksum() -> None:
    """Trust lets in what it is passed; verify says honest to the truth alone."""
    rng = random.Random(8364)
    pick = [NOW, NOW + 1, NOW - 1, NOW + 20, 0, -1, 2**63 - 1, -(2**63)]
    for _ in range(2000):
        codec = rng.choice(list(CODECS.values()))
        two = plain(codec)
        claimed = Stated(
            rng.choice(pick), rng.choice([3, 3, 3, 2, 4, -1]), rng.choice([2, 2, 0, 1, 3, -1])
        )
        result = STRICT.check(carrying(two, claimed), now_ms=NOW, claims=(None, "verify"))
        honest = claimed in (TRUE, TRUE._replace(null_keys=0))
        assert (result.claims, result.ok) == ("honest" if honest else "lying", honest)


def test_many_in_a_request() -> None:
    good, lie = carrying(plain(), TRUE), carrying(plain(LZ4), TRUE._replace(null_keys=1))
    data = good + plain() + lie + good
    columns = STRICT.check_ranges(data, now_ms=NOW, claims=(None, "verify"))
    rows = list(columns.rows())
    assert [row["claims"] for row in rows] == ["honest", None, "lying", "honest"]
    assert columns["error_code"].tolist() == [0, 0, 87, 0]
    assert columns.result(2).rule.id == "L7"
    assert [row["magic"] for row in rows] == [3, 2, 3, 3]
    assert [row["size_in_bytes"] for row in rows] == [len(good), len(plain()), len(lie), len(good)]
    assert [row["position"] for row in rows] == [
        0,
        len(good),
        len(good + plain()),
        len(good + plain() + lie),
    ]
    trusted = STRICT.check_ranges(data, now_ms=NOW, claims=(None, "trust"))
    assert [row["path"] for row in trusted.rows()] == ["claims", "shallow", "claims", "claims"]
    each = [TopicPolicy(), TopicPolicy(), ACCEPTING, ACCEPTING]
    mixed = LogValidator().check_ranges(
        data,
        [(r["position"], r["size_in_bytes"]) for r in rows],
        each,
        now_ms=NOW,
        claims=(None, "trust"),
    )
    assert mixed["error_code"].tolist() == [2, 0, 0, 0]


# ---- at rest -------------------------------------------------------------------------------------

RESTING = LogValidator(ACCEPTING, profile="log")


def stored(two: bytes, claimed: tuple[int, int, int], offset: int = 0) -> bytes:
    return carrying(struct.pack(">q", offset) + two[8:], claimed)


@pytest.mark.parametrize("codec", CODECS)
def test_true_claims_at_rest(codec: str) -> None:
    data = stored(plain(CODECS[codec]), TRUE, 7) + stored(plain(CODECS[codec]), TRUE, 10)
    columns = RESTING.check_batches(data)
    assert [row["claims"] for row in columns.rows()] == ["honest", "honest"]
    assert columns.ok().all()
    assert RESTING.check(data).ok


LIES = {
    "minimum too high": TRUE._replace(batch_min_timestamp=NOW + 1),
    "minimum too low": TRUE._replace(batch_min_timestamp=NOW - 1),
    "count too high": TRUE._replace(records_number=4),
    "count too low": TRUE._replace(records_number=2),
    "all keys null": TRUE._replace(null_keys=1),
    "a byte that means nothing": TRUE._replace(null_keys=3),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("how", LIES)
def test_lying_claims_at_rest_are_l7(codec: str, how: str) -> None:
    good = stored(plain(CODECS[codec]), TRUE)
    data = good + stored(plain(CODECS[codec]), LIES[how], 3)
    columns = RESTING.check_batches(data)
    assert [row["claims"] for row in columns.rows()] == ["honest", "lying"]
    result = RESTING.check(data)
    assert (str(result.rule), int(result.error_code), result.position) == (
        "L7 lying-claims",
        87,
        len(good),
    )
    assert str(columns.result(1).rule) == "L7 lying-claims"


def test_at_rest_a_finding_of_the_batch_comes_before_l7() -> None:
    broken = stored(plain(payload=b"garbage"), TRUE)
    result = RESTING.check(broken)
    assert (result.rule.id, result.claims) == ("S7", "lying")
    odd = stored(plain(parts=[record(0, attributes=1), *PARTS[1:]]), TRUE)
    assert (RESTING.check(odd).rule.id, RESTING.check(odd).claims) == ("S5", "lying")
    flipped = damage(stored(plain(), TRUE), 70)
    assert (str(RESTING.check(flipped).rule), RESTING.check(flipped).claims) == (
        "14 crc-mismatch",
        None,
    )


def test_at_rest_brokers_own_batches_have_nothing_to_claim() -> None:
    """Where a broker wrote the timestamps, or the batch is a marker."""
    own_time = stored(plain(attributes=8), TRUE)
    marker = batch(
        [record(0, key=b"\0\0\0\1", value=bytes(6))],
        attributes=0x30,
        producer_id=4,
        producer_epoch=0,
    )
    for data in (own_time, stored(marker, (0, 9, 9))):
        result = RESTING.check(data)
        assert (result.ok, result.claims) == (True, None)


def test_gaps_that_a_cleaner_leaves_are_against_the_claims() -> None:
    """Claims say that deltas are 0 to n - 1: a cleaner has to drop them with the records."""
    gap = batch([record(0, key=b"k"), record(5, key=b"k")], codec=ZSTD, last_offset_delta=5)
    assert RESTING.check(stored(gap, (NOW, 2, 2))).rule.id == "L7"
    assert LogValidator(profile="log").check(gap).ok


def test_not_accepted_at_rest_it_ends_the_stretch() -> None:
    data = stored(plain(), TRUE)
    for validator in (
        LogValidator(profile="log"),
        LogValidator(ACCEPTING, profile="log", mode="kafka"),
    ):
        columns = validator.check_batches(data)
        assert (len(columns), columns.tail) == (0, "magic")
        assert str(validator.check(data).rule) == "4 magic-unknown"


def test_too_small_for_its_claims_at_rest() -> None:
    for size in range(26, 75):
        data = (stored(plain(), TRUE) + bytes(80))[:size]
        data = data[:8] + struct.pack(">i", size - 12) + data[12:]
        if size >= 61:
            data = with_crc(data)
        columns = RESTING.check_batches(data)
        assert (len(columns), bool(columns.ok()[0])) == (1, False)
        assert int(columns["error_code"][0]) != -1
        assert columns.result(0).reason


def test_scanned_only_where_asked_for() -> None:
    data = stored(plain(), TRUE) + stored(plain(LZ4), TRUE, 3)
    assert (len(scan_batches(data)), scan_batches(data).tail) == (0, "magic")
    columns = scan_batches(data, accept_claims_header=True)
    assert ([r["magic"] for r in columns.rows()], columns["is_valid"].tolist()) == (
        [3, 3],
        [True, True],
    )
    assert [b.batch_min_timestamp for b in batches(data)] == [NOW, NOW]


@pytest.mark.parametrize("size", [17, 60, 61, 73])
def test_a_batch_too_small_for_claims_is_none(size: int) -> None:
    data = stored(plain(), TRUE)[:size]
    data = data[:8] + struct.pack(">i", size - 12) + data[12:]
    try:
        found = RecordBatch(data)
    except NotABatch:
        return
    assert found.size_in_bytes == size
    with pytest.raises(NotABatch):
        list(found.records())


def test_records_are_where_they_are() -> None:
    for codec in CODECS.values():
        shown = RecordBatch(carrying(batch(records(4), codec=codec), (NOW, 4, 1)))
        assert [bytes(r.value or b"") for r in shown.records()] == [
            b"value %d" % i for i in range(4)
        ]
