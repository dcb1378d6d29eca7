"""``deny``: which APIs, for whom, on which listeners; and the line of the log."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.error_answers import SENTENCES
from batchval.protocol.field_schema import shape_of
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.walkers.broker_requests import BROKER_APIS, SHARED_WITH_BROKERS
from batchval.proxy.session.deny_list import DenyList
from batchval.proxy.settings.config import (
    DENIABLE,
    NEVER_DENIED,
    DenyRule,
    Log,
    Settings,
    inter_broker_rules,
)
from batchval.proxy.settings.loading import ConfigError, settings_from
from batchval.proxy.settings.options import Denied
from batchval.proxy.settings.setting_checks import faults_of
from batchval.proxy.watch.audit_log import RefusalLog, install

LISTENERS = [{"name": "edge", "address": ":9092"}, {"name": "inside", "address": ":19092"}]


def settings_with(*rules: dict[str, Any]) -> Settings:
    return settings_from(
        {"listeners": LISTENERS, "upstream": {"bootstrap": "kafka:9092"}, "deny": list(rules)}
    )


def refused(*rules: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings_with(*rules)
    return caught.value.problems


def test_names_are_taken_in_any_case() -> None:
    (rule,) = settings_with({"apis": ["deletetopics", "ALTERCONFIGS"]}).deny
    assert rule.apis == ["DeleteTopics", "AlterConfigs"]
    assert rule.rule == DenyRule(frozenset({ApiKey.DELETE_TOPICS, ApiKey.ALTER_CONFIGS}))


def test_every_api_that_is_carried_may_be_denied_but_four() -> None:
    assert set(DENIABLE.values()) | set(NEVER_DENIED) == set(carried_versions())
    for name, key in DENIABLE.items():
        if key != ApiKey.PRODUCE:
            assert shape_of(f"{name}Response", APIS[key].max_version)
    assert {code.name for code in SENTENCES} == {
        f"{what}_AUTHORIZATION_FAILED" for what in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
    }


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("DeleteTopic", "must be the name of an API of Kafka: do you mean DeleteTopics?"),
        ("xyz", "must be the name of an API of Kafka, for example DeleteTopics"),
        (20, "must be the name of an API, for example DeleteTopics"),
        ("metadata", "Metadata cannot be denied: clients find brokers by it"),
        ("ApiVersions", "ApiVersions cannot be denied: clients begin with it"),
        ("SaslAuthenticate", "SaslAuthenticate cannot be denied: clients authenticate by it"),
        ("Vote", "Vote is an API between controllers, which the gate does not carry"),
    ],
)
def test_names_that_cannot_be_denied(name: object, why: str) -> None:
    (line,) = refused({"apis": ["CreateTopics", name]})
    assert line == f"deny[0].apis[1]: {why}"


def test_a_rule_needs_an_api() -> None:
    assert len(refused({"apis": []})) == len(refused({"principals": "User:bob"})) == 1


@pytest.mark.parametrize(
    ("rule", "key", "why"),
    [
        ({"listeners": "edges"}, "listeners", "'edges' matches no listener: they are edge, inside"),
        ({"principals": "bob"}, "principals", "'bob' matches no principal: they look like"),
        ({"except_principals": ["bob"]}, "except_principals", "'bob' matches no principal"),
        (
            {"principals": "User:b*", "except_principals": "User:*"},
            "except_principals",
            "leaves no principal of 'User:b*': the rule denies nothing",
        ),
    ],
)
def test_rules_that_deny_nothing(rule: dict[str, Any], key: str, why: str) -> None:
    (line,) = refused({"apis": ["DeleteTopics"]}, {"apis": ["DeleteTopics"], **rule})
    assert line.startswith(f"deny[1].{key}: {why}")


def test_sound_rules_have_no_fault() -> None:
    rules = settings_with(
        {"apis": ["DeleteTopics"], "except_principals": "User:admin", "listeners": "e*"},
        {
            "apis": ["Produce"],
            "principals": "User:CN=*",
            "except_principals": ["User:CN=a*", "User:CN=b"],
        },
    )
    assert list(faults_of(rules)) == []


def test_the_preset_is_a_name_of_apis() -> None:
    (rule,) = settings_with({"apis": ["DeleteTopics", "Inter-Broker"], "listeners": "edge"}).deny
    assert rule.apis == ["DeleteTopics", "inter-broker"]
    assert rule.rule == DenyRule(
        BROKER_APIS | {ApiKey.DELETE_TOPICS}, listeners="edge", shared=SHARED_WITH_BROKERS
    )
    assert set(DENIABLE.values()) >= BROKER_APIS | SHARED_WITH_BROKERS


def defaults(*rules: dict[str, Any], listener: str = "edge") -> DenyList:
    """Return what a listener denies by default in addition to these rules."""
    return DenyList(inter_broker_rules(settings_with(*rules).deny, listener), listener)


def test_the_default_denies_the_preset_to_all() -> None:
    for found in (defaults(), defaults({"apis": ["DeleteTopics"], "except_principals": "User:a"})):
        assert found.denied_to("User:a") == BROKER_APIS
        assert found.shared_of("User:a") == SHARED_WITH_BROKERS


def test_whom_a_rule_excepts_the_default_excepts() -> None:
    rules: list[dict[str, Any]] = [
        {"apis": ["inter-broker"], "except_principals": "User:CN=broker-*", "listeners": "in*"},
        {"apis": ["AlterReplicaLogDirs", "Fetch"], "except_principals": ["User:cruise"]},
        {"apis": ["inter-broker"], "principals": "User:bob"},
    ]
    inside, edge = defaults(*rules, listener="inside"), defaults(*rules)
    assert inside.denied_to("User:CN=broker-1") == inside.shared_of("User:CN=broker-1") == set()
    assert edge.denied_to("User:CN=broker-1") == BROKER_APIS
    # one API alone; a rule about Fetch by all clients says nothing about replicas
    assert edge.denied_to("User:cruise") == BROKER_APIS - {ApiKey.ALTER_REPLICA_LOG_DIRS}
    assert edge.shared_of("User:cruise") == SHARED_WITH_BROKERS
    # a rule about one principal leaves the default for the others
    assert edge.denied_to("User:alice") == inside.denied_to("User:bob") == BROKER_APIS


def test_a_listener_allows_by_a_word() -> None:
    def listener(**values: Any) -> Settings:
        return settings_from(
            {"listeners": [{"address": ":9092", **values}], "upstream": {"bootstrap": "k:9092"}}
        )

    assert listener().listeners[0].inter_broker == "deny"
    assert listener(inter_broker="allow").listeners[0].inter_broker == "allow"
    with pytest.raises(ConfigError, match="inter_broker"):
        listener(inter_broker=True)


def listed(*rules: DenyRule, listener: str = "edge") -> DenyList:
    return DenyList(rules, listener)


def test_each_principal_has_its_own_list() -> None:
    topics, groups = frozenset({ApiKey.DELETE_TOPICS}), frozenset({ApiKey.DELETE_GROUPS})
    rules = listed(
        DenyRule(topics, "*", ("User:admin", "User:CN=ops,*")),
        DenyRule(groups, "User:b*"),
        DenyRule(frozenset({ApiKey.PRODUCE}), listeners="inside"),
    )
    assert rules.guarded == topics | groups
    assert rules.denied_to("User:admin") == rules.denied_to("User:CN=ops,O=x") == frozenset()
    assert rules.denied_to("User:bob") == topics | groups
    assert rules.denied_to("User:" + "b" * 100_000) == rules.guarded  # too long to compare
    for i in range(3000):
        rules.denied_to(f"User:{i}")
    assert len(rules._known) <= rules.MAX_KNOWN_PRINCIPALS


def test_the_log_says_who_was_denied_what(log_as_it_was: None) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    install(Log(format="json"), handler)
    try:
        refusals = RefusalLog(1, clock=lambda: 0.0)
        event = Denied("edge", "10.0.0.7:1", "c\n" * 500, "User:bob", ApiKey.DELETE_TOPICS, 6)
        refusals.denied(event)
        refusals.denied(event)
    finally:
        logging.getLogger("batchval").removeHandler(handler)
    (line,) = stream.getvalue().splitlines()
    row = json.loads(line)
    assert (row["event"], row["api"], row["version"], row["principal"]) == (
        "denied",
        "DeleteTopics",
        6,
        "User:bob",
    )
    assert row["client"] == "10.0.0.7:1"
    assert len(row["client_id"]) == 250
    assert "preset" not in row
    assert refusals.suppressed_total == 1


def test_the_log_says_that_the_preset_denied_it(log_as_it_was: None) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    install(Log(), handler)
    try:
        event = Denied("edge", "c:1", None, "User:x", ApiKey.FETCH, 17, inter_broker=True)
        RefusalLog(1, clock=lambda: 0.0).denied(event)
    finally:
        logging.getLogger("batchval").removeHandler(handler)
    assert "api=Fetch version=17 preset=inter-broker" in stream.getvalue()
