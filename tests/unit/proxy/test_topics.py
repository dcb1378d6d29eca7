"""Names that cannot be topics: never kept, never asked for, validated under the default policy."""

from __future__ import annotations

import time
from typing import Any

import pytest

from batchval.policy import TopicPolicy
from batchval.proxy.kit.topics import is_topic_name
from batchval.proxy.produce.policies import ClusterTopics, TopicLookup
from batchval.proxy.settings.config import TopicRule
from batchval.proxy.settings.options import TopicPolicies

GOOD = ["a", "Orders.v1_2-x", "x" * 249, "...", "__consumer_offsets"]
BAD = ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "x" * 32767, "a\n", "a\0", "\ufffd"]


@pytest.mark.parametrize("name", GOOD)
def test_what_may_be_a_topic(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_a_topic(name: str) -> None:
    assert not is_topic_name(name)


def test_policies_keep_no_name_that_cannot_be_a_topic() -> None:
    default, other = TopicPolicy(), TopicPolicy(cleanup_policy="compact")
    policies = TopicPolicies(default, {"*": other})
    assert [policies.of(name) for name in BAD] == [default] * len(BAD)
    assert policies.of(None) is default
    assert policies._known == {}
    assert policies.of("orders") is other
    assert list(policies._known) == ["orders"]


def test_the_lookup_keeps_none_either() -> None:
    rule: Any = TopicRule.model_validate({"match": "*", "max.message.bytes": 10})
    lookup = TopicLookup([rule])
    assert [lookup(name) for name in BAD] == [None] * len(BAD)
    assert lookup._by_glob == {}
    assert lookup("orders") is not None
    assert list(lookup._by_glob) == ["orders"]


def test_the_cluster_is_not_asked_for_them() -> None:
    async def read(_: Any) -> dict[str, TopicPolicy]:
        return {}

    topics = ClusterTopics(read, 60)
    topics.read_at = time.monotonic()
    for name in (*BAD, "orders"):
        assert topics(name) is None
    assert topics._wanted == {"orders"}
