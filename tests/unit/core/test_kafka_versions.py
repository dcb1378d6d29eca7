"""LogValidator(kafka_version=...): the table of batchval.kafka_versions, one test for each column
that judges.
"""

from __future__ import annotations

from typing import Any

import pytest

from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, ErrorCode
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS, kafka_version
from batchval.policy import TopicPolicy
from tests.support.batches import CODECS, NOW, Body, batch, message, raw, record, records, varint

VERSIONS = list(KAFKA_VERSIONS)
OLDER = [name for name, row in KAFKA_VERSIONS.items() if not row.checks_record_length]
MAX_ARRAY_LENGTH = 2**31 - 3
GOOD = Body()


def kafka(version: str, policy: TopicPolicy | None = None) -> LogValidator:
    return LogValidator(policy, mode="kafka", kafka_version=version)


def code(validator: LogValidator, data: bytes, **arguments: Any) -> int:
    return int(validator.check(data, now_ms=NOW, **arguments).error_code)


# ---- the name ------------------------------------------------------------------------------------


def test_the_default_is_the_newest() -> None:
    assert VERSIONS == ["3.9", "4.1", "4.4"]
    assert LogValidator().kafka_version == DEFAULT_KAFKA_VERSION == VERSIONS[-1]
    assert all(row.release.startswith(f"{name}.") for name, row in KAFKA_VERSIONS.items())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_validator_knows_its_version(version: str) -> None:
    validator = LogValidator(kafka_version=version)  # type: ignore[arg-type]
    assert validator.kafka_version == version
    assert f"kafka_version='{version}'" in repr(validator)
    other = validator.with_policy(TopicPolicy(max_message_bytes=1))
    assert (other.kafka_version, other.policy.max_message_bytes) == (version, 1)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("2.8", "3.9"),
        ("3.6", "3.9"),
        ("3.9.2", "3.9"),
        ("3.10", "3.9"),
        ("4.0", "4.1"),
        ("4.3", "4.1"),
        ("5.0", "4.4"),
    ],
)
def test_an_unknown_version_names_the_known_ones(name: str, nearest: str) -> None:
    for ask in (kafka_version, lambda name: LogValidator(kafka_version=name)):
        with pytest.raises(BatchvalError) as refused:
            ask(name)
        assert (
            str(refused.value)
            == f"kafka_version must be one of 3.9, 4.1, 4.4, not '{name}' (nearest: {nearest})"
        )


@pytest.mark.parametrize("name", ["", "latest", "4.x", " "])
def test_a_word_has_no_nearest(name: str) -> None:
    with pytest.raises(BatchvalError) as refused:
        LogValidator(kafka_version=name)  # type: ignore[arg-type]
    assert str(refused.value) == f"kafka_version must be one of 3.9, 4.1, 4.4, not {name!r}"


@pytest.mark.parametrize("name", [3.9, 4, None, b"3.9", ("3.9",)])
def test_a_version_is_a_string(name: Any) -> None:
    with pytest.raises(BatchvalError) as refused:
        LogValidator(kafka_version=name)
    assert str(refused.value) == f"kafka_version must be a string, for example '4.4', not {name!r}"


# ---- the length that a record states -------------------------------------------------------------

LENGTHS = {-1: 87, -(2**31): 87, 2**31 - 1: -1, MAX_ARRAY_LENGTH + 1: -1, MAX_ARRAY_LENGTH: 87}


def stated(length: int, codec: int) -> bytes:
    return batch([raw(GOOD, varint(length)), record(1)], codec=codec)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_lengths_of_a_batch_in_place(version: str, codec: str) -> None:
    """The parser that skips keys and values reads the length; only 4.4 looks at it."""
    for length in LENGTHS:
        data = stated(length, CODECS[codec])
        assert code(kafka(version), data) == (0 if version in OLDER else 87)
        validator = LogValidator(kafka_version=version)  # type: ignore[arg-type]
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
        validator = LogValidator(policy, kafka_version=version)  # type: ignore[arg-type]
        result = validator.check(data, now_ms=NOW)
        assert result.error_code is ErrorCode.INVALID_RECORD
        assert result.rule is not None
        assert result.rule.id == ("S9" if answer == -1 and version in OLDER else "29")


def test_no_topic_limits_a_record_before_4_4() -> None:
    policy = TopicPolicy(max_decompressed_message_bytes=10)
    data = batch([record(0, value=b"x" * 100)], codec=CODECS["gzip"])
    answers = {version: code(kafka(version, policy), data) for version in VERSIONS}
    assert answers == {"3.9": 0, "4.1": 0, "4.4": 87}


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
    validator = LogValidator(mode=mode, kafka_version=version)  # type: ignore[arg-type]
    admitted = version == "3.9" and produce_version < 3
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
    expected = 0 if version == "3.9" else 32
    assert code(LogValidator(kafka_version=version), tomorrow) == expected  # type: ignore[arg-type]
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
    with pytest.raises(BatchvalError, match="kafka_version must be one of"):
        TopicPolicy.from_kafka_config({}, kafka_version="2.8")
