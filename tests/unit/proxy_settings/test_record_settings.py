"""Settings of record rules, registries and custom rules: what is accepted, and what is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from batchval.policy import TopicPolicy
from batchval.proxy.life.file_checks import file_faults
from batchval.proxy.life.gate import Gate
from batchval.proxy.produce.policies import UNBOUNDED
from batchval.proxy.produce.record_parts import RecordParts
from batchval.proxy.settings.loading import ConfigError, drafted, drafted_file, settings_from, shown
from batchval.proxy.settings.record_settings import RecordRulesRule
from batchval.record_rules import RecordRules, SchemaIds

MINIMAL_SETTINGS: dict[str, Any] = {
    "listeners": [{"address": "127.0.0.1:0"}],
    "upstream": {"bootstrap": "127.0.0.1:2"},
}
REGISTRY = {"url": "http://127.0.0.1:1"}
ONE_EACH: dict[str, Any] = {
    "schema_id": [{"ids": [7]}],
    "max_headers": 3,
    "required_headers": ["a"],
    "tombstones": "refuse",
    "utf8_keys": True,
}
BY_REGISTRY = {"schema_id": {"registry": "default"}}


def policies(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return MINIMAL_SETTINGS | {"topics": {"policies": list(rules)}} | more


def ruled(record_rules: Any, **more: Any) -> dict[str, Any]:
    return policies({"match": "a", "record_rules": record_rules}, **more)


def test_rules_become_policies() -> None:
    values = policies(
        {"match": "both", "max.message.bytes": 10, "record_rules": {"max_key_bytes": 1}},
        {
            "match": "only",
            "record_rules": {"schema_id": {"place": "key", "ids": [7]}, "tombstones": "refuse"},
        },
        {"match": "none", "max.message.bytes": 20},
        {
            "match": "many",
            "record_rules": {"schema_id": [{"registry": "default"}, {"place": "key"}]},
        },
        schema_registries=[REGISTRY],
    )
    topics = Gate(settings_from(values)).parts.topics
    assert topics.of("both") == TopicPolicy(
        max_message_bytes=10, record_rules=RecordRules(max_key_bytes=1)
    )
    only = topics.of("only")
    assert only.max_message_bytes == UNBOUNDED.max_message_bytes
    assert only.record_rules == RecordRules(
        (SchemaIds("key", frozenset({7})),), tombstones="refuse"
    )
    assert topics.of("none") == TopicPolicy(max_message_bytes=20)
    assert topics.of("other") == UNBOUNDED
    many = topics.of("many").record_rules
    assert many is not None
    assert many.schema_ids == (SchemaIds("value", frozenset()), SchemaIds("key"))
    rules = topics.rules_of("many")
    assert rules is not None
    assert [one.subject_of("many") for one in rules.registries] == ["many-value"]
    assert topics.of("many") is topics.of("many")


def test_the_clusters_configuration_is_combined_with_record_rules() -> None:
    values = policies(
        {"match": "ruled", "record_rules": {"max_key_bytes": 1}},
        {"match": "own", "max.message.bytes": 10, "record_rules": {"max_key_bytes": 2}},
    )
    values = values | {"upstream": {"bootstrap": "127.0.0.1:2", "admin": {"mechanism": "NONE"}}}
    gate = Gate(settings_from(values))
    topics = gate.parts.topics
    assert topics.of("ruled").max_message_bytes == UNBOUNDED.max_message_bytes
    assert gate.cluster_topics is not None
    gate.cluster_topics._known = {
        name: TopicPolicy(max_message_bytes=5) for name in ("ruled", "own", "free")
    }
    assert topics.of("ruled") == TopicPolicy(
        max_message_bytes=5, record_rules=RecordRules(max_key_bytes=1)
    )
    assert topics.of("own") == TopicPolicy(
        max_message_bytes=10, record_rules=RecordRules(max_key_bytes=2)
    )
    assert topics.of("free") == TopicPolicy(max_message_bytes=5)


def test_each_record_rule_is_a_key() -> None:
    assert list(RecordRulesRule.model_fields) == [field.name for field in fields(RecordRules)]
    for key, value in ONE_EACH.items():
        rules = RecordRulesRule.model_validate({key: value}).record_rules()
        assert rules == RecordRules.from_mapping({key: value}) != RecordRules()


AT = "topics.policies[0].record_rules"
WRONG: list[tuple[dict[str, Any], str]] = [
    (
        ruled({"max_key_byte": 1}),
        f"{AT}.max_key_byte: unknown key (nearest known key: max_key_bytes)",
    ),
    (
        ruled({"max_key_bytes": -1}),
        f"{AT}.max_key_bytes: must be a whole number from 0 to 2147483647, not -1",
    ),
    (ruled({"max_key_bytes": "1"}), f"{AT}.max_key_bytes: must be a whole number"),
    (ruled({"required_headers": ["a", "a"]}), f"{AT}.required_headers: has 'a' twice"),
    (ruled({"tombstones": "maybe"}), f"{AT}.tombstones: must be allow or refuse"),
    (ruled({}), f"{AT}: has no effect: it requires nothing"),
    (
        ruled({"required_headers": ["a"], "forbidden_headers": ["a"]}),
        f"{AT}: header 'a' is both required and forbidden",
    ),
    (
        ruled({"schema_id": {"place": "body"}}),
        f"{AT}.schema_id.place: must be value, key or header",
    ),
    (
        ruled({"schema_id": [{"plac": "key"}]}),
        f"{AT}.schema_id[0].plac: unknown key (nearest known key: place)",
    ),
    (
        ruled({"schema_id": {"ids": []}}),
        f"{AT}.schema_id: schema_id ids is empty: list at least one, or omit it",
    ),
    (
        ruled({"schema_id": {"header": "x"}}),
        f"{AT}.schema_id: schema_id header needs place header, not value",
    ),
    (ruled({"schema_id": [{}, {}]}), f"{AT}: schema_id has two entries for the value"),
    (
        ruled({"schema_id": {"subject": "x"}}),
        f"{AT}.schema_id.subject: has no effect without registry",
    ),
    (
        ruled(BY_REGISTRY),
        f"{AT}.schema_id.registry: 'default' is not in schema_registries (which is empty)",
    ),
    (
        ruled({"schema_id": {"registry": "default", "ids": [1]}}, schema_registries=[REGISTRY]),
        f"{AT}.schema_id.ids: cannot be combined with registry, which knows the ids",
    ),
    (
        ruled(
            {"schema_id": {"registry": "default", "subject": "{topics}"}},
            schema_registries=[REGISTRY],
        ),
        f"{AT}.schema_id.subject: must be a subject of at most 500 characters",
    ),
    (
        MINIMAL_SETTINGS | {"schema_registries": [REGISTRY]},
        "schema_registries[0]: has no effect: no record rule names the registry",
    ),
    (MINIMAL_SETTINGS | {"schema_registries": [{}]}, "schema_registries[0].url: is missing"),
    (
        MINIMAL_SETTINGS | {"schema_registries": [{"url": "ftp://a"}]},
        "schema_registries[0].url: expected http://HOST:PORT or",
    ),
    (
        MINIMAL_SETTINGS | {"schema_registries": [{"url": "https://user:pl4nted@a"}]},
        "schema_registries[0].url: it holds credentials: set username and password instead",
    ),
    (
        ruled(BY_REGISTRY, schema_registries=[REGISTRY | {"password": "pl4nted"}]),
        "schema_registries[0].password: needs username",
    ),
    (
        ruled(
            BY_REGISTRY,
            schema_registries=[{"url": "http://a.example", "username": "u", "password": "pl4nted"}],
        ),
        "schema_registries[0].url: the password would be sent to a.example without TLS: use https",
    ),
    (
        ruled(BY_REGISTRY, schema_registries=[REGISTRY | {"ca": "ca.pem"}]),
        "schema_registries[0].ca: has no effect: the URL is not https",
    ),
    (
        ruled(BY_REGISTRY, schema_registries=[REGISTRY, REGISTRY]),
        "schema_registries[1].name: schema_registries 0 and 1 have the same name, default: give",
    ),
    (
        MINIMAL_SETTINGS | {"custom_rules": {"budget_ms": 1}},
        "custom_rules.budget_ms: has no effect: no topic has custom rules",
    ),
    (
        policies({"match": "a", "custom_rules": ["a:b", "a:b"]}),
        "topics.policies[0].custom_rules[1]: 'a:b' is listed twice",
    ),
]


@pytest.mark.parametrize(("values", "line"), WRONG)
def test_what_is_refused(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_from(values)
    (found,) = refused.value.problems
    assert found.startswith(line)
    assert "pl4nted" not in found


def test_all_faults_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(
        "listeners: [{address: 127.0.0.1:0}]\nupstream: {bootstrap: 127.0.0.1:2}\n"
        "topics:\n  policies:\n    - match: a\n      record_rules:\n        schema_id:\n"
        "          place: body\n        max_headers: -1\n      custom_rules:\n"
        "        - no_such_module_at_all:x\nschema_registries:\n  - url: mailto:x\n"
    )
    draft = drafted_file(path)
    assert draft.settings is not None
    draft.add(file_faults(draft.settings, path))
    with pytest.raises(ConfigError) as refused:
        draft.finished()
    lines = [line.removeprefix(str(path)) for line in refused.value.problems]
    assert [line.partition(": ")[0] for line in lines] == [":8", ":9", ":11", ":13"]
    assert "custom_rules[0]: custom rule 'no_such_module_at_all:x': cannot be imported" in lines[2]


def test_no_secret_of_a_registry_is_shown() -> None:
    registry = REGISTRY | {"username": "gate", "password": "pl4nted"}
    draft = drafted(ruled(BY_REGISTRY, schema_registries=[registry]))
    assert "pl4nted" not in shown(draft.finished())


def test_what_cannot_be_loaded_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be imported"):
        RecordParts(
            settings_from(policies({"match": "a", "custom_rules": ["no_such_module_at_all:x"]}))
        )
    (tmp_path / "ca.pem").write_text("nothing")
    registry = {"url": "https://127.0.0.1:1", "ca": str(tmp_path / "ca.pem")}
    settings = settings_from(ruled(BY_REGISTRY, schema_registries=[registry]))
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        RecordParts(settings)
    assert [fault.loc for fault in file_faults(settings, None)] == [("schema_registries", 0, "ca")]
