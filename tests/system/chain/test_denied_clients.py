"""The behaviour of Java's clients where a gate denies APIs."""

from __future__ import annotations

import subprocess

import pytest

from batchval.protocol.apis import ApiKey
from batchval.proxy.settings.config import DenyRule
from tests.support.proxy import RunningProxy
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker, java_command

pytestmark = pytest.mark.jvm

ADMINS = DenyRule(
    frozenset(
        {
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.CREATE_ACLS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
        }
    )
)
RECORDS = DenyRule(frozenset({ApiKey.PRODUCE, ApiKey.FETCH}))


def test_java_clients_see_authorization_errors(broker: KafkaBroker) -> None:
    make_topic(broker.bootstrap, "denied-java")
    upstream = broker.bootstrap
    with (
        RunningProxy(upstream, deny=(ADMINS,)) as proxy,
        RunningProxy(upstream, deny=(RECORDS,)) as other,
    ):
        command = java_command(
            "tests/system/chain/java/Denied.java", proxy.bootstrap, other.bootstrap, "denied-java"
        )
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    came = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
    cluster = "ClusterAuthorizationException Cluster authorization failed."
    for name, api in (
        ("createTopics", "CreateTopics"),
        ("incrementalAlterConfigs", "IncrementalAlterConfigs"),
        ("createAcls", "CreateAcls"),
        ("deleteTopics", "DeleteTopics"),
    ):
        assert came[name] == f"{cluster} The gate denies {api}."
    assert came["listConsumerGroups"].startswith("ClusterAuthorizationException")
    assert came["deleteConsumerGroups"].startswith("GroupAuthorizationException")
    assert came["describeTopics"] == came["describeConfigs"] == "done"
    assert came["send true"].startswith("TopicAuthorizationException")
    assert came["send false"].startswith("TopicAuthorizationException")
    assert came["poll"].startswith("TopicAuthorizationException")
    assert set(proxy.counters.requests_denied) == ADMINS.keys
    assert set(other.counters.requests_denied) == RECORDS.keys
