"""LogValidator(kafka_version=...): the table of batchval.kafka_versions, one test for each column
that judges.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest

from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, ErrorCode
from batchval.kafka_versions import (
    DEFAULT_KAFKA_VERSION,
    KAFKA_VERSIONS,
    RELEASES,
    NewerKafkaWarning,
    changes_of,
    find_release,
    releases_of,
)
from batchval.policy import TopicPolicy
from tests.support.batches import CODECS, NOW, Body, batch, message, raw, record, records, varint

VERSIONS = list(KAFKA_VERSIONS)
OLDER = [name for name, row in KAFKA_VERSIONS.items() if not row.checks_record_length]
#: every release of Kafka from 3.6.0 on that Maven Central had on 30 November 2026
PUBLISHED = (
    *("3.6.0", "3.6.1", "3.6.2", "3.7.0", "3.7.1", "3.7.2", "3.8.0", "3.8.1"),
    *("3.9.0", "3.9.1", "3.9.2", "4.0.0", "4.0.1", "4.0.2", "4.1.0", "4.1.1", "4.1.2"),
    *("4.2.0", "4.2.1", "4.2.2", "4.3.0", "4.3.1", "4.4.0"),
)
MAX_ARRAY_LENGTH = 2**31 - 3
GOOD = Body()


def kafka(version: str, policy: TopicPolicy | None = None) -> LogValidator:
    return LogValidator(policy, mode="kafka", kafka_version=version)


def code(validator: LogValidator, data: bytes, **arguments: Any) -> int:
    return int(validator.check(data, now_ms=NOW, **arguments).error_code)


# ---- the name ------------------------------------------------------------------------------------


def test_every_release_has_one_row() -> None:
    """Compare the ranges with the list of releases: no gap, no overlap, nothing unpublished."""
    known = [one for one in RELEASES if one.is_published]
    rows = {release: find_release(release) for release in PUBLISHED}
    assert all(found.name == release for release, found in rows.items())
    assert not any(found.is_newer for found in rows.values())
    for one in RELEASES:
        assert one.row in KAFKA_VERSIONS
        assert (one.first in PUBLISHED) == (one.last in PUBLISHED) == one.is_published
    inside = [
        release
        for release in PUBLISHED
        for one in known
        if numbers(one.first) <= numbers(release) <= numbers(one.last)
    ]
    assert inside == list(PUBLISHED)
    assert {found.row.name for found in rows.values()} == set(VERSIONS)


def numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def test_the_default_is_the_newest() -> None:
    assert LogValidator().kafka_version == DEFAULT_KAFKA_VERSION == PUBLISHED[-1]
    assert find_release(DEFAULT_KAFKA_VERSION).row.name == VERSIONS[-1]


@pytest.mark.parametrize(
    ("asked", "name", "row"),
    [
        ("3.6", "3.6.2", "3.6.0"),
        ("3.9", "3.9.2", "3.9.1"),
        ("3.9.0", "3.9.0", "3.8.0"),
        ("4.0", "4.0.2", "4.0.1"),
        ("4.2", "4.2.2", "4.2.2"),
        ("4.2.1", "4.2.1", "4.2.0"),
        ("4.3", "4.3.1", "4.2.0"),
        ("4.3.2", "4.3.2", "4.2.2"),
        (" 4.4 ", "4.4.0", "4.2.2"),
    ],
)
def test_a_minor_is_its_newest_patch(asked: str, name: str, row: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        validator = LogValidator(kafka_version=asked)
    assert validator.kafka_version == name
    assert find_release(asked).row.name == row
    assert f"kafka_version='{name}'" in repr(validator)
    other = validator.with_policy(TopicPolicy(max_message_bytes=1))
    assert (other.kafka_version, other.policy.max_message_bytes) == (name, 1)
    assert pickle.loads(pickle.dumps(validator)) == validator


@pytest.mark.parametrize(
    ("asked", "name", "like"),
    [
        ("4.4.1", "4.4.1", "4.4.0"),
        ("4.5", "4.5.0", "4.4.0"),
        ("5.0.3", "5.0.3", "4.4.0"),
        ("4.2.9", "4.2.9", "4.2.2"),
        ("3.9.7", "3.9.7", "3.9.2"),
    ],
)
def test_a_newer_release_takes_the_newest_row_with_a_warning(
    asked: str, name: str, like: str
) -> None:
    text = f"Kafka {name} is newer than this batchval, which answers as Kafka {like} does"
    with pytest.warns(NewerKafkaWarning, match=text) as seen:
        validator = LogValidator(kafka_version=asked)
    assert validator.kafka_version == name
    assert [warning.filename for warning in seen] == [__file__]
    assert find_release(asked).row == find_release(like).row
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = validator.with_policy(TopicPolicy())
        assert copy.deepcopy(again) == pickle.loads(pickle.dumps(again)) == again
        assert LogValidator(kafka_version=find_release(asked)).kafka_version == name


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("2.7", "3.6.0"), ("3.5.2", "3.6.0"), ("3.10", "3.9.2"), ("0.11", "3.6.0")],
)
def test_an_unknown_release_names_the_nearest(name: str, nearest: str) -> None:
    for ask in (find_release, lambda name: LogValidator(kafka_version=name)):
        with pytest.raises(BatchvalError) as refused:
            ask(name)
        assert str(refused.value) == f"{EXPECTED}, not '{name}' (nearest: {nearest})"


EXPECTED = "kafka_version must be a release from 3.6.0 to 4.4.0, for example 4.4.0"


@pytest.mark.parametrize("name", ["", "latest", "4.x", " ", "4", "4.4.0.1", "4.4-rc1", "v4.4"])
def test_a_word_has_no_nearest(name: str) -> None:
    with pytest.raises(BatchvalError) as refused:
        LogValidator(kafka_version=name)
    assert str(refused.value) == f"{EXPECTED}, not {name!r}"


@pytest.mark.parametrize("name", [3.9, 4, None, b"3.9", ("3.9",)])
def test_a_version_is_a_string(name: Any) -> None:
    with pytest.raises(BatchvalError) as refused:
        LogValidator(kafka_version=name)
    assert (
        str(refused.value) == f"kafka_version must be a string, for example '4.4.0', not {name!r}"
    )


def test_people_see_ranges_and_changes() -> None:
    assert releases_of("4.2.0") == ["4.2.0 to 4.2.1", "4.3.0 to 4.3.1"]
    assert releases_of("4.0.0") == ["4.0.0"]
    assert changes_of("3.9.1") == {"drops_newer_epochs": True}
    assert changes_of(VERSIONS[0]) == {}


# ---- the length that a record states -------------------------------------------------------------

LENGTHS = {-1: 87, -(2**31): 87, 2**31 - 1: -1, MAX_ARRAY_LENGTH + 1: -1, MAX_ARRAY_LENGTH: 87}


def stated(length: int, codec: int) -> bytes:
    return batch([raw(GOOD, varint(length)), record(1)], codec=codec)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_lengths_of_a_batch_in_place(version: str, codec: str) -> None:
    """The parser that skips keys and values reads the length; only 4.2.2 and 4.4 look at it."""
    for length in LENGTHS:
        data = stated(length, CODECS[codec])
        assert code(kafka(version), data) == (0 if version in OLDER else 87)
        validator = LogValidator(kafka_version=version)
        strict = validator.check(data, now_ms=NOW)
        assert strict.error_code is ErrorCode.INVALID_RECORD
        assert strict.rule is not None
        assert strict.rule.id == ("S4" if version in OLDER else "29")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_lengths_of_a_batch_to_be_rebuilt(version: str, codec: str) -> None:
    """ByteBuffer.allocate: IllegalArgumentException below 0, OutOfMemoryError above the longest
    array.
    """
    policy = TopicPolicy(compression_type="uncompressed")
    for length, answer in LENGTHS.items():
        data = stated(length, CODECS[codec])
        assert code(kafka(version, policy), data) == (answer if version in OLDER else 87), length
        validator = LogValidator(policy, kafka_version=version)
        result = validator.check(data, now_ms=NOW)
        assert result.error_code is ErrorCode.INVALID_RECORD
        assert result.rule is not None
        assert result.rule.id == ("S9" if answer == -1 and version in OLDER else "29")


def test_no_topic_limits_a_record_before_the_check() -> None:
    policy = TopicPolicy(max_decompressed_message_bytes=10)
    data = batch([record(0, value=b"x" * 100)], codec=CODECS["gzip"])
    answers = {version: code(kafka(version, policy), data) for version in VERSIONS}
    assert answers == {name: 0 if name in OLDER else 87 for name in VERSIONS}


def test_the_reason_of_a_length_that_no_array_has() -> None:
    policy = TopicPolicy(compression_type="uncompressed")
    result = kafka("3.9", policy).check(stated(2**31 - 1, CODECS["gzip"]), now_ms=NOW)
    assert (
        result.reason
        == "record 0: length 2147483647 is above 2147483645, the longest array of a JVM"
    )


# ---- Produce v0 to v2 ----------------------------------------------------------------------------

TWO_MESSAGES = message(offset=0, key=b"k") + message(offset=1, key=b"k", value=b"w")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("produce_version", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("mode", ["strict", "kafka"])
def test_old_requests_hold_messages_before_4_0(
    version: str, produce_version: int, mode: Any
) -> None:
    validator = LogValidator(mode=mode, kafka_version=version)
    admitted = version.startswith("3.") and produce_version < 3
    result = validator.validate(
        TWO_MESSAGES, now_ms=NOW, first_offset=5, produce_version=produce_version
    )
    assert result.ok == admitted
    assert validator.check_request(TWO_MESSAGES, produce_version=produce_version).ok == admitted
    assert validator.check_request(b"", produce_version=produce_version).ok == admitted
    if not admitted:
        assert result.rule is not None
        assert result.rule.id == "6"
        return
    assert (result.records_count, result.next_offset, result.converted) == (2, 7, 2)
    (row,) = validator.check_ranges(
        TWO_MESSAGES, [(0, len(TWO_MESSAGES))], now_ms=NOW, produce_version=produce_version
    )["error_code"].tolist()
    assert row == 0


def test_extras_of_old_requests() -> None:
    """S2 is about bytes that no message is made of; S1 about a header of magic 2."""
    strict = LogValidator(kafka_version="3.9")
    cut = TWO_MESSAGES[:-1]
    for data in (cut, TWO_MESSAGES + b"x", b"x" * 11):
        result = strict.check(data, now_ms=NOW, produce_version=2)
        assert result.rule is not None
        assert result.rule.id == "S2"
        assert code(kafka("3.9"), data, produce_version=2) == 0
    assert strict.check(b"", now_ms=NOW, produce_version=2).ok
    bits = batch(records(1), attributes=1 << 8)
    result = strict.check(bits, now_ms=NOW, produce_version=2)
    assert result.rule is not None
    assert result.rule.id == "S1"


def test_two_batches_of_magic_2_are_refused_later() -> None:
    two = batch(records(1)) * 2
    (old, new) = (kafka("3.9").check(two, now_ms=NOW, produce_version=v) for v in (2, 3))
    assert (old.rule and old.rule.id, new.rule and new.rule.id) == ("19", "8")
    assert old.error_code == new.error_code == ErrorCode.INVALID_RECORD


# ---- defaults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_tomorrow(version: str) -> None:
    """KIP-1030: message.timestamp.after.max.ms is an hour from 4.0 on."""
    tomorrow = batch(records(1), base_timestamp=NOW + 86_400_000, max_timestamp=NOW + 86_400_000)
    expected = 0 if version.startswith("3.") else 32
    assert code(LogValidator(kafka_version=version), tomorrow) == expected
    policy = TopicPolicy.from_kafka_config({"max.message.bytes": "1000"}, kafka_version=version)
    assert code(kafka(version, policy), tomorrow) == expected
    hour = TopicPolicy.from_kafka_config(
        {"message.timestamp.after.max.ms": "3600000"}, kafka_version=version
    )
    assert code(kafka(version, hour), tomorrow) == 32


def test_a_policy_has_the_default_of_4_4() -> None:
    assert (
        TopicPolicy.from_kafka_config({}, kafka_version="4.4")
        == TopicPolicy.from_kafka_config({})
        == TopicPolicy()
    )
    with pytest.raises(BatchvalError, match="kafka_version must be a release from"):
        TopicPolicy.from_kafka_config({}, kafka_version="2.8")
