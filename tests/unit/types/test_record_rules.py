"""RecordRules and SchemaIds: what they take, what they refuse, and that they are values."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from batchval.record_rules import (
    KEY_SCHEMA_ID_HEADER,
    MAX_HEADER_NAME_BYTES,
    MAX_HEADER_NAMES,
    MAX_SCHEMA_IDS,
    VALUE_SCHEMA_ID_HEADER,
    RecordRules,
    SchemaIds,
)

GUID = "89791762-2336-4186-9674-299b90a802e2"
FULL: dict[str, object] = {
    "schema_id": [
        {"place": "value", "ids": [1, 2]},
        {"place": "key"},
        {
            "place": "header",
            "header": "apicurio.value.globalId",
            "ids": [2**40],
            "guids": [GUID.upper()],
        },
    ],
    "max_key_bytes": 10,
    "max_value_bytes": 100,
    "max_headers": 3,
    "required_headers": ["trace", "source"],
    "forbidden_headers": ["secret"],
    "tombstones": "refuse",
    "utf8_keys": True,
}


def test_the_defaults_ask_nothing() -> None:
    assert RecordRules().asks_nothing
    assert RecordRules(schema_id=()).asks_nothing
    assert RecordRules.from_mapping({}) == RecordRules()
    assert RecordRules.from_mapping(dict.fromkeys(FULL)) == RecordRules()
    assert TopicPolicy().record_rules is None


@pytest.mark.parametrize("key", FULL)
def test_each_rule_asks_something(key: str) -> None:
    assert not RecordRules.from_mapping({key: FULL[key]}).asks_nothing


def test_a_mapping_becomes_the_class() -> None:
    rules = RecordRules.from_mapping(FULL)
    assert rules == RecordRules(
        schema_id=(
            SchemaIds(ids=frozenset({1, 2})),
            SchemaIds("key"),
            SchemaIds(
                "header", frozenset({2**40}), "apicurio.value.globalId", guids=frozenset({GUID})
            ),
        ),
        max_key_bytes=10,
        max_value_bytes=100,
        max_headers=3,
        required_headers=("trace", "source"),
        forbidden_headers=("secret",),
        tombstones="refuse",
        utf8_keys=True,
    )
    assert hash(rules) == hash(RecordRules.from_mapping(FULL))
    assert pickle.loads(pickle.dumps(rules)) == rules
    policy = TopicPolicy(record_rules=rules)
    assert policy != TopicPolicy()
    assert hash(policy) == hash(TopicPolicy(record_rules=rules))
    assert "max_key_bytes=10" in repr(policy)


def test_one_mapping_is_one_place() -> None:
    rules = RecordRules.from_mapping({"schema_id": {"ids": [7]}})
    assert rules.schema_id == SchemaIds(ids=frozenset({7}))
    assert rules.schema_ids == (SchemaIds(ids=frozenset({7})),)


def test_confluents_header_names_are_the_defaults() -> None:
    assert SchemaIds("header").header == VALUE_SCHEMA_ID_HEADER == "__value_schema_id"
    assert SchemaIds("header", of="key").header == KEY_SCHEMA_ID_HEADER == "__key_schema_id"
    assert (SchemaIds("key").of, SchemaIds("header").of) == ("key", "value")
    assert SchemaIds("header") == SchemaIds("header", header="__value_schema_id", of="value")


def test_an_empty_set_allows_no_id() -> None:
    assert not SchemaIds(ids=frozenset()).any_allowed
    assert SchemaIds().any_allowed


def test_a_long_set_is_shown_short() -> None:
    shown = repr(SchemaIds(ids=frozenset(range(100_000))))
    assert shown == "SchemaIds(place='value', ids={0, 1, 2, 3, 4 and 99995 more})"
    assert (
        repr(SchemaIds("header"))
        == "SchemaIds(place='header', header='__value_schema_id', of='value')"
    )


WRONG: list[tuple[dict[Any, Any], str]] = [
    (
        {"max_keybytes": 1},
        "unknown record rule 'max_keybytes': allowed are schema_id, max_key_bytes",
    ),
    ({1: 1}, "unknown record rule 1"),
    ({"schema_id": {"idss": [1]}}, "unknown key of schema_id 'idss': allowed are place, ids"),
    ({"schema_id": 7}, "schema_id must be a mapping or a list of mappings, not 7"),
    ({"schema_id": [7]}, "schema_id must be a mapping, not 7"),
    ({"schema_id": "any"}, "schema_id must be a mapping or a list of mappings, not 'any'"),
    (
        {"schema_id": {"place": "body"}},
        "schema_id place must be one of value, key, header, not 'body'",
    ),
    ({"schema_id": {"place": ["value"]}}, "schema_id place must be one of value, key, header"),
    (
        {"schema_id": {"ids": []}},
        "schema_id ids is empty: list at least one, or omit it for any id",
    ),
    ({"schema_id": {"ids": 7}}, "schema_id ids must be a list, not 7"),
    ({"schema_id": {"ids": [[7]]}}, "schema_id ids must be a list of single values"),
    (
        {"schema_id": {"ids": [2**31]}},
        "a schema id must be a whole number from 0 to 2147483647, not 2147483648",
    ),
    (
        {"schema_id": {"ids": [True]}},
        "a schema id must be a whole number from 0 to 2147483647, not True",
    ),
    ({"schema_id": {"ids": ["7"]}}, "a schema id must be a whole number .*, not '7'"),
    ({"schema_id": {"ids": [-1]}}, "a schema id must be a whole number .*, not -1"),
    (
        {"schema_id": {"place": "header", "ids": [2**63]}},
        "a schema id must be a whole number .*, not 9223372036854775808",
    ),
    ({"schema_id": {"header": "h"}}, "schema_id header needs place header, not value"),
    ({"schema_id": {"guids": [GUID]}}, "schema_id guids needs place header, not value"),
    ({"schema_id": {"of": "key"}}, "schema_id of must be value where place is value, not 'key'"),
    (
        {"schema_id": {"place": "header", "of": "both"}},
        "schema_id of must be one of value, key, not 'both'",
    ),
    (
        {"schema_id": {"place": "header", "header": "n" * 256}},
        "schema_id header must be 1 to 255 bytes of UTF-8",
    ),
    ({"schema_id": {"place": "header", "header": 5}}, "schema_id header must be a string, not 5"),
    (
        {"schema_id": {"place": "header", "guids": ["x"]}},
        "a schema GUID must be a GUID in lower case.*, not 'x'",
    ),
    (
        {"schema_id": {"place": "header", "guids": [5]}},
        "a schema GUID must be a GUID in lower case.*, not 5",
    ),
    ({"schema_id": [{}, {"ids": [1]}]}, "schema_id has two entries for the value"),
    (
        {"schema_id": [{"place": "header"}] * 2},
        "schema_id has two entries for the header '__value_schema_id'",
    ),
    (
        {"schema_id": [{"place": "header", "header": str(n)} for n in range(MAX_SCHEMA_IDS + 1)]},
        "schema_id has 9 entries: at most 8 are allowed",
    ),
    (
        {"schema_id": {"place": "header", "header": "h"}, "forbidden_headers": ["h"]},
        "header 'h' holds a schema_id and is forbidden",
    ),
    ({"max_key_bytes": -1}, "max_key_bytes must be a whole number from 0 to 2147483647, not -1"),
    (
        {"max_value_bytes": "5"},
        "max_value_bytes must be a whole number from 0 to 2147483647, not '5'",
    ),
    ({"max_headers": True}, "max_headers must be a whole number from 0 to 2147483647, not True"),
    (
        {"max_headers": 2**31},
        "max_headers must be a whole number from 0 to 2147483647, not 2147483648",
    ),
    ({"required_headers": "trace"}, "required_headers must be a list, not 'trace'"),
    ({"required_headers": {"trace": 1}}, "required_headers must be a list"),
    ({"forbidden_headers": [1]}, "a name in forbidden_headers must be a string, not 1"),
    (
        {"forbidden_headers": [""]},
        "a name in forbidden_headers must be 1 to 255 bytes of UTF-8, not ''",
    ),
    (
        {"forbidden_headers": ["\ud800"]},
        "a name in forbidden_headers must be text that UTF-8 can hold",
    ),
    (
        {"required_headers": ["é" * 128]},
        "a name in required_headers must be 1 to 255 bytes of UTF-8",
    ),
    ({"required_headers": ["a", "b", "a"]}, "required_headers has 'a' twice"),
    (
        {"required_headers": ["a"], "forbidden_headers": ["a"]},
        "header 'a' is both required and forbidden",
    ),
    (
        {"forbidden_headers": [str(n) for n in range(MAX_HEADER_NAMES + 1)]},
        "forbidden_headers has 65 names: at most 64 are allowed",
    ),
    ({"tombstones": "deny"}, "tombstones must be one of allow, refuse, not 'deny'"),
    ({"tombstones": True}, "tombstones must be one of allow, refuse, not True"),
    ({"utf8_keys": "yes"}, "utf8_keys must be true or false, not 'yes'"),
]


@pytest.mark.parametrize(
    ("mapping", "message"), WRONG, ids=[str(number) for number in range(len(WRONG))]
)
def test_a_wrong_mapping(mapping: dict[Any, Any], message: str) -> None:
    with pytest.raises(BatchvalError, match=message):
        RecordRules.from_mapping(mapping)


@pytest.mark.parametrize(
    "values",
    [
        {"schema_id": {"ids": [1]}},
        {"schema_id": [SchemaIds()]},
        {"schema_id": (1,)},
        {"required_headers": ["a"]},
        {"required_headers": "a"},
    ],
)
def test_the_class_takes_values_that_cannot_change(values: dict[str, Any]) -> None:
    with pytest.raises(BatchvalError):
        RecordRules(**values)
    with pytest.raises(BatchvalError):
        SchemaIds(ids={1, 2})  # type: ignore[arg-type]
    with pytest.raises(BatchvalError):
        SchemaIds("header", guids=[GUID])  # type: ignore[arg-type]


def test_names_and_numbers_at_their_limits() -> None:
    longest = "n" * MAX_HEADER_NAME_BYTES
    RecordRules(
        schema_id=SchemaIds(ids=frozenset({0, 2**31 - 1})),
        required_headers=(longest, *map(str, range(MAX_HEADER_NAMES - 1))),
        max_headers=2**31 - 1,
        max_key_bytes=0,
    )


def test_a_policy_takes_record_rules_alone_by_its_field() -> None:
    with pytest.raises(BatchvalError, match=r"record_rules must be a RecordRules or None, not {}"):
        TopicPolicy(record_rules={})  # type: ignore[arg-type]
    with pytest.raises(BatchvalError, match=r"unknown topic configuration key: 'record\.rules'"):
        TopicPolicy.from_kafka_config({"record.rules": "{}"})
    assert (
        TopicPolicy.from_kafka_config({"record.rules": "{}"}, allow_unknown=True) == TopicPolicy()
    )


@pytest.mark.parametrize(
    "mapping", [{}, FULL, {"schema_id": {"place": "header", "of": "key"}}, {"schema_id": []}]
)
def test_rules_and_mappings_are_the_same(mapping: dict[str, object]) -> None:
    rules = RecordRules.from_mapping(mapping)
    written = json.loads(json.dumps(rules.to_mapping()))
    again = RecordRules.from_mapping(written)
    assert again.schema_ids == rules.schema_ids
    assert again.to_mapping() == rules.to_mapping()
