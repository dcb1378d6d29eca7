"""TopicPolicy: Kafka's topic configuration, its defaults, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from batchval.errors import BatchvalError
from batchval.policy import (
    COMPRESSION_TYPES,
    KAFKA_TOPIC_KEYS,
    OLDER_TIMESTAMP_KEY,
    OLDER_TOPIC_KEYS,
    TopicPolicy,
)

LONG_MAX, INT_MAX = 2**63 - 1, 2**31 - 1
NUMBERS = {
    "message_timestamp_before_max_ms": LONG_MAX,
    "message_timestamp_after_max_ms": LONG_MAX,
    "max_message_bytes": INT_MAX,
    "max_decompressed_message_bytes": INT_MAX,
}


def test_kafkas_defaults() -> None:
    policy = TopicPolicy()
    assert policy.message_timestamp_before_max_ms == LONG_MAX
    assert policy.message_timestamp_after_max_ms == 3_600_000
    assert (policy.message_timestamp_type, policy.compression_type, policy.cleanup_policy) == (
        "CreateTime",
        "producer",
        "delete",
    )
    assert (policy.max_message_bytes, policy.max_decompressed_message_bytes) == (
        1_048_588,
        2_147_483_639,
    )
    assert policy.accept_claims_header is False


@pytest.mark.parametrize("name", NUMBERS)
def test_bounds_of_numbers(name: str) -> None:
    top = NUMBERS[name]
    for good in (0, 1, top):
        assert getattr(TopicPolicy(**{name: good}), name) == good  # type: ignore[arg-type]
    for bad in (-1, top + 1, 1.0, "5", None, True):
        with pytest.raises(BatchvalError, match=name):
            TopicPolicy(**{name: bad})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "words", "no_words"),
    [
        (
            "message_timestamp_type",
            ["CreateTime", "LogAppendTime"],
            ["createtime", "", "NoTimestampType", None],
        ),
        (
            "compression_type",
            ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"],
            ["none", "GZIP", "", 3],
        ),
        (
            "cleanup_policy",
            ["delete", "compact", "compact,delete", ""],
            ["compacted", "delete;compact", None, "a,b"],
        ),
    ],
)
def test_words(name: str, words: list[str], no_words: list[Any]) -> None:
    for word in words:
        assert getattr(TopicPolicy(**{name: word}), name) == word  # type: ignore[arg-type]
    for word in no_words:
        with pytest.raises(BatchvalError, match=name):
            TopicPolicy(**{name: word})


def test_cleanup_policies_in_any_order() -> None:
    for both in ("delete,compact", "compact,delete", " compact , delete "):
        policy = TopicPolicy(cleanup_policy=both)
        assert (policy.cleanup_policy, policy.is_compacted) == ("compact,delete", True)
    assert [
        TopicPolicy(cleanup_policy=word).is_compacted for word in ("delete", "compact", "")
    ] == [False, True, False]


def test_a_policy_is_a_value() -> None:
    first, second = TopicPolicy(max_message_bytes=5), TopicPolicy(max_message_bytes=5)
    assert first == second
    assert hash(first) == hash(second)
    assert first != TopicPolicy()
    with pytest.raises(AttributeError):
        first.max_message_bytes = 6  # type: ignore[misc]
    with pytest.raises(BatchvalError):
        TopicPolicy(accept_claims_header="yes")  # type: ignore[arg-type]


def test_from_a_topics_configuration() -> None:
    """Strings, as DescribeConfigs answers; other keys are other people's."""
    policy = TopicPolicy.from_kafka_config(
        {
            "message.timestamp.before.max.ms": "86400000",
            "message.timestamp.after.max.ms": 5,
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": " 2000000 ",
            "max.decompressed.message.bytes": "1000",
            "compression.type": "zstd",
            "cleanup.policy": "delete,compact",
            "accept.claims.header": "true",
            "retention.ms": "-1",
            "segment.bytes": None,
        }
    )
    assert policy == TopicPolicy(
        86_400_000, 5, "LogAppendTime", 2_000_000, 1000, "zstd", "compact,delete", True
    )
    assert TopicPolicy.from_kafka_config({}) == TopicPolicy()
    assert TopicPolicy.from_kafka_config({"max.message.bytes": None}) == TopicPolicy()
    for word, value in (
        ("true", True),
        ("TRUE", True),
        ("False", False),
        (True, True),
        (False, False),
    ):
        assert (
            TopicPolicy.from_kafka_config({"accept.claims.header": word}).accept_claims_header
            is value
        )


@pytest.mark.parametrize(
    "config",
    [
        {"max.message.bytes": "many"},
        {"max.message.bytes": "1_000"},
        {"max.message.bytes": "1.5"},
        {"max.message.bytes": ""},
        {"max.message.bytes": True},
        {"max.message.bytes": "9" * 5000},
        {"max.message.bytes": "-1"},
        {"max.message.bytes": str(2**31)},
        {"message.timestamp.after.max.ms": "1e3"},
        {"compression.type": "none"},
        {"cleanup.policy": "compacted"},
        {"accept.claims.header": "yes"},
        {"accept.claims.header": "1"},
    ],
    ids=str,
)
def test_a_configuration_of_the_wrong_kind(config: dict[str, object]) -> None:
    with pytest.raises(BatchvalError):
        TopicPolicy.from_kafka_config(config)


# ---- levels --------------------------------------------------------------------------------------

LEVELS = {
    "gzip": (-1, 1, 9, (0, 10, -2)),
    "lz4": (1, 9, 17, (0, 18, -1)),
    "zstd": (-131_072, 3, 22, (-131_073, 23)),
}


@pytest.mark.parametrize("codec", LEVELS)
def test_levels(codec: str) -> None:
    *good, bad = LEVELS[codec]
    name, key = f"compression_{codec}_level", f"compression.{codec}.level"
    for level in good:
        assert getattr(TopicPolicy(**{name: level}), name) == level  # type: ignore[arg-type]
        for value in (level, str(level), f" {level} "):
            assert getattr(TopicPolicy.from_kafka_config({key: value}), name) == level
    for level in bad:  # type: ignore[union-attr]
        with pytest.raises(BatchvalError, match=name):
            TopicPolicy(**{name: level})
        with pytest.raises(BatchvalError, match=f"{key} must be a whole number .*not {level}"):
            TopicPolicy.from_kafka_config({key: level})
    for wrong in ("fast", "1.0", 1.0, True, "", b"1", [1]):
        with pytest.raises(BatchvalError, match=key):
            TopicPolicy.from_kafka_config({key: wrong})
    for wrong in ("3", 3.0, True, None):
        with pytest.raises(BatchvalError, match=name):
            TopicPolicy(**{name: wrong})  # type: ignore[arg-type]


def test_the_level_of_the_codec_that_the_topic_names() -> None:
    levels = {
        "compression_gzip_level": 9,
        "compression_lz4_level": 12,
        "compression_zstd_level": -7,
    }
    found = {
        word: TopicPolicy(compression_type=word, **levels).compression_level
        for word in COMPRESSION_TYPES
    }
    assert found == {
        "producer": None,
        "uncompressed": None,
        "gzip": 9,
        "snappy": None,
        "lz4": 12,
        "zstd": -7,
    }


# ---- the older timestamp key ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "bounds"),
    [
        (None, None, (1000, 1000)),
        ("50", None, (50, 1000)),
        (None, "60", (1000, 60)),
        ("50", "60", (50, 60)),
        (str(LONG_MAX), LONG_MAX, (1000, 1000)),
        (LONG_MAX, "60", (1000, 60)),
    ],
)
def test_one_bound_for_past_and_future(
    before: object, after: object, bounds: tuple[int, int]
) -> None:
    """LogConfig of Kafka 3.9.1 answers so in a run: a newer key with its default value is not
    set.
    """
    policy = TopicPolicy.from_kafka_config(
        {
            "message.timestamp.difference.max.ms": "1000",
            "message.timestamp.before.max.ms": before,
            "message.timestamp.after.max.ms": after,
        }
    )
    assert (policy.message_timestamp_before_max_ms, policy.message_timestamp_after_max_ms) == bounds


def test_the_older_keys_default_means_no_bound() -> None:
    """DescribeConfigs of a broker before 4.0 answers all three keys."""
    policy = TopicPolicy.from_kafka_config({"message.timestamp.difference.max.ms": str(LONG_MAX)})
    assert (policy.message_timestamp_before_max_ms, policy.message_timestamp_after_max_ms) == (
        LONG_MAX,
        LONG_MAX,
    )


@pytest.mark.parametrize("value", ["-1", str(LONG_MAX + 1), "1h", True, 1.5])
def test_an_older_key_of_the_wrong_kind(value: object) -> None:
    with pytest.raises(BatchvalError, match=r"difference\.max\.ms must be a whole number"):
        TopicPolicy.from_kafka_config({"message.timestamp.difference.max.ms": value})


# ---- keys ----------------------------------------------------------------------------------------


def test_every_key_of_kafka_is_accepted() -> None:
    others = dict.fromkeys(KAFKA_TOPIC_KEYS | OLDER_TOPIC_KEYS, "x")
    read = {field.name.replace("_", ".") for field in dataclasses.fields(TopicPolicy)} | {
        OLDER_TIMESTAMP_KEY
    }
    for key in read:
        others.pop(key, None)
    assert len(others) == len(KAFKA_TOPIC_KEYS) + 3 - len(
        read - {"accept.claims.header", "record.rules"}
    )
    assert TopicPolicy.from_kafka_config(others) == TopicPolicy()


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("max.mesage.bytes", "max.message.bytes"),
        ("max_message_bytes", "max.message.bytes"),
        ("Compression.Type", "compression.type"),
        ("compression.gzip.levels", "compression.gzip.level"),
        ("message.timestamp.difference.ms", "message.timestamp.difference.max.ms"),
        ("retention.mss", "retention.ms"),
        ("accept.claim.header", "accept.claims.header"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(BatchvalError) as caught:
        TopicPolicy.from_kafka_config({key: "1"})
    assert (
        str(caught.value)
        == f"unknown topic configuration key: {key!r} (nearest known key: {nearest})"
    )
    assert TopicPolicy.from_kafka_config({key: "1"}, allow_unknown=True) == TopicPolicy()


def test_all_unknown_keys_are_in_one_message() -> None:
    config: dict[Any, object] = {"max.mesage.bytes": "1", "retention.ms": "1", "": None, 5: "x"}
    config |= {"k" * 100_000: "x", 10**5000: "x"}
    with pytest.raises(BatchvalError, match="unknown topic configuration keys: ") as caught:
        TopicPolicy.from_kafka_config(config)
    assert str(caught.value).count("nearest known key") == 5
    assert len(str(caught.value)) < 500
    assert TopicPolicy.from_kafka_config(config, allow_unknown=True) == TopicPolicy()


def test_unknown_keys_hide_no_wrong_value() -> None:
    with pytest.raises(BatchvalError, match=r"max\.message\.bytes"):
        TopicPolicy.from_kafka_config(
            {"vendor.key": "x", "max.message.bytes": "many"}, allow_unknown=True
        )


@pytest.mark.parametrize("config", [None, [("max.message.bytes", "1")], "max.message.bytes=1"])
def test_a_configuration_that_is_not_a_mapping(config: Any) -> None:
    with pytest.raises(BatchvalError, match="config must be a mapping"):
        TopicPolicy.from_kafka_config(config)


def test_numbers_of_more_digits_than_python_writes() -> None:
    for value in (10**5000, -(10**5000)):
        with pytest.raises(BatchvalError, match=r"max\.message\.bytes must be a whole number"):
            TopicPolicy.from_kafka_config({"max.message.bytes": value})
        with pytest.raises(BatchvalError, match="max_message_bytes must be a whole number"):
            TopicPolicy(max_message_bytes=value)
