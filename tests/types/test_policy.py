"""TopicPolicy: Kafka's topic configuration, its defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy

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
    assert (policy.max_message_bytes, policy.max_decompressed_message_bytes) == (1_048_588, 2_147_483_639)
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
        ("message_timestamp_type", ["CreateTime", "LogAppendTime"], ["createtime", "", "NoTimestampType", None]),
        ("compression_type", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"], ["none", "GZIP", "", 3]),
        ("cleanup_policy", ["delete", "compact", "compact,delete", ""], ["compacted", "delete;compact", None, "a,b"]),
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
    assert [TopicPolicy(cleanup_policy=word).is_compacted for word in ("delete", "compact", "")] == [False, True, False]


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
    assert policy == TopicPolicy(86_400_000, 5, "LogAppendTime", 2_000_000, 1000, "zstd", "compact,delete", True)
    assert TopicPolicy.from_kafka_config({}) == TopicPolicy()
    assert TopicPolicy.from_kafka_config({"max.message.bytes": None}) == TopicPolicy()
    for word, value in (("true", True), ("TRUE", True), ("False", False), (True, True), (False, False)):
        assert TopicPolicy.from_kafka_config({"accept.claims.header": word}).accept_claims_header is value


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
