"""Field 1 of claims: the schema ids of a batch's values, made, compared and used for rules."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchval import LogValidator, RecordRules, SchemaIds, TopicPolicy
from batchval.core.batches.native_validator import settled_by_claims
from batchval.core.claims import BatchClaims, are_honest, attach, compute, read, to_tag
from batchval.core.convert.builder import BatchBuilder
from batchval.rules import Rule
from tests.support.batches import CODECS, GZIP, NOW, ZSTD, batch, fields, record

VECTORS = Path(__file__).resolve().parents[3] / "fixtures" / "claims" / "schema_ids.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text("ascii").splitlines()]
SEVEN_OR_NINE = RecordRules(schema_id=SchemaIds(ids=frozenset({7, 9})))
KEY16 = bytes(16)


def wire(number: int, rest: bytes = b"avro") -> bytes:
    return b"\0" + struct.pack(">i", number) + rest


def of_values(
    *values: bytes | None, codec: int = ZSTD, key: bytes | None = b"k", **more: int
) -> bytes:
    return batch([record(i, key, value) for i, value in enumerate(values)], codec=codec, **more)


def content(*ids: int, no_null: bool = True) -> bytes:
    return struct.pack(f">B{len(ids)}i", no_null, *ids)


def stating(data: bytes, *ids: int, no_null: bool = True) -> BatchClaims:
    true = compute(data)
    assert true is not None
    return true._replace(fields=((1, content(*ids, no_null=no_null)),))


def validator(rules: RecordRules | None, **more: object) -> LogValidator:
    return LogValidator(TopicPolicy(record_rules=rules), **more)  # type: ignore[arg-type]


def settles(rules: RecordRules | None, data: bytes, claims: BatchClaims) -> bool:
    return settled_by_claims(validator(rules), data, to_tag(claims, fields(data)["crc"]), NOW, 9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_shared_vectors(case: dict[str, object]) -> None:
    claims = BatchClaims(NOW, 1, 2, 70, 9, ((1, bytes.fromhex(str(case["content"]))),))
    again = BatchClaims.from_block(claims.to_block())
    assert again == claims
    found = None if again.schema_ids is None else list(again.schema_ids)
    assert (found, again.no_value_null) == (case["schema_ids"], case["no_value_null"])


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_compute_states_the_ids_of_the_values(codec: int) -> None:
    data = of_values(wire(9), wire(7), wire(9), codec=codec)
    claims = compute(data, schema_ids=True)
    assert claims is not None
    assert claims.fields == ((1, content(7, 9)),)
    assert compute(data) == claims._replace(fields=())
    with_null = compute(of_values(wire(9), None, codec=codec), schema_ids=True)
    assert with_null is not None
    assert (with_null.schema_ids, with_null.no_value_null) == ((9,), False)
    alone = compute(of_values(None, codec=codec), schema_ids=True)
    assert alone is not None
    assert (alone.schema_ids, alone.no_value_null) == ((), False)


@pytest.mark.parametrize(
    "values",
    [
        (wire(7), b""),
        (wire(7), b"\0\0\0\1"),
        (b"\1\0\0\0\7", wire(7)),
        tuple(wire(n) for n in range(17)),
    ],
    ids=["empty", "4 bytes", "another magic", "17 ids"],
)
def test_no_field_where_it_would_not_be_true(values: tuple[bytes, ...]) -> None:
    claims = compute(of_values(*values), schema_ids=True)
    assert claims is not None
    assert (claims.fields, claims.schema_ids) == ((), None)


def test_sixteen_ids_in_any_order() -> None:
    ids = random.Random(1).sample(range(-5, 1000), 16)
    claims = compute(of_values(*map(wire, ids * 3)), schema_ids=True)
    assert claims is not None
    assert claims.schema_ids == tuple(sorted(ids))


def test_more_ids_than_there_are_is_less_and_honest() -> None:
    data = of_values(wire(7), wire(9))
    true = compute(data, schema_ids=True)
    for ids, no_null, honest in [
        ((7, 9), True, True),
        ((7, 9), False, True),
        ((1, 7, 8, 9), True, True),
        ((7,), True, False),
        ((7, 8), True, False),
        ((), True, False),
    ]:
        assert are_honest(stating(data, *ids, no_null=no_null), true) == honest
    assert not are_honest(stating(data, 7, 9), compute(data))
    null = of_values(wire(7), None)
    assert not are_honest(stating(null, 7), compute(null, schema_ids=True))
    assert are_honest(stating(null, 7, no_null=False), compute(null, schema_ids=True))


CODEC = st.sampled_from([0, GZIP, ZSTD])
VALUES = st.lists(
    st.one_of(
        st.none(), st.integers(0, 3).map(wire), st.sampled_from([b"", b"\0\0\0\0", b"x" * 9])
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sets(st.integers(0, 3)), st.booleans(), CODEC)
def test_each_lie_is_found(
    values: list[bytes | None], ids: set[int], no_null: bool, codec: int
) -> None:
    data = of_values(*values, codec=codec)
    claims = stating(data, *sorted(ids), no_null=no_null)
    true = all(
        not no_null if value is None else value[:1] == b"\0" and len(value) >= 5 and value[4] in ids
        for value in values
    )
    assert are_honest(claims, compute(data, schema_ids=True)) == true
    tag = to_tag(claims, fields(data)["crc"])
    for rules in (None, SEVEN_OR_NINE, RecordRules(schema_id=SchemaIds())):
        result = validator(rules).check(data, now_ms=NOW, claims=(tag, "verify"))
        assert result.claims == ("honest" if true else "lying")
        ignoring = validator(rules).check(data, now_ms=NOW)
        assert (result.rule, result.record_errors) == (ignoring.rule, ignoring.record_errors)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.booleans(), st.booleans(), st.sampled_from([GZIP, ZSTD]))
def test_honest_claims_never_let_in_what_a_rule_refuses(
    values: list[bytes | None], refuse: bool, any_id: bool, codec: int
) -> None:
    rules = RecordRules(
        schema_id=SchemaIds(ids=None if any_id else frozenset({1, 2})),
        tombstones="refuse" if refuse else "allow",
        max_value_bytes=12,
    )
    data = of_values(*values, codec=codec)
    carried = attach(data, carrier="payload", schema_ids=True)
    walked = validator(rules).check(data, now_ms=NOW)
    trusted = validator(rules).check(carried, now_ms=NOW, claims=(None, "trust"))
    assert (trusted.rule, trusted.record_errors) == (walked.rule, walked.record_errors)
    assert trusted.claims == "trusted" or trusted.path != "claims"


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_trusted_claims_settle_a_topic_with_schema_ids(codec: int) -> None:
    data = attach(of_values(wire(7), wire(9), codec=codec), carrier="payload", schema_ids=True)
    assert read(data) == compute(data, schema_ids=True)
    result = validator(SEVEN_OR_NINE).check(data, now_ms=NOW, claims=(None, "trust"))
    assert (result.ok, result.path, result.claims) == (True, "claims", "trusted")
    other = attach(of_values(wire(7), wire(8), codec=codec), carrier="payload", schema_ids=True)
    result = validator(SEVEN_OR_NINE).check(other, now_ms=NOW, claims=(None, "trust"))
    assert (result.rule, result.path, result.claims) == (Rule.R1, "shallow", "honest")
    assert [index for index, _ in result.record_errors] == [1]


def test_which_rules_claims_prove() -> None:
    data = of_values(wire(7), wire(9))
    claims = stating(data, 7, 9)
    longest = claims.max_record_bytes
    assert longest is not None
    for change, settled in [
        ({}, True),
        ({"tombstones": "refuse"}, True),
        ({"max_value_bytes": longest, "max_key_bytes": longest}, True),
        ({"max_value_bytes": longest - 1}, False),
        ({"max_key_bytes": longest - 1}, False),
        ({"max_headers": 3}, False),
        ({"required_headers": ("a",)}, False),
        ({"forbidden_headers": ("a",)}, False),
        ({"utf8_keys": True}, False),
        ({"schema_id": SchemaIds(place="key")}, False),
        ({"schema_id": SchemaIds(place="header")}, False),
        ({"schema_id": SchemaIds()}, True),
        ({"schema_id": SchemaIds(ids=frozenset({7}))}, False),
        ({"schema_id": None}, True),
    ]:
        rules = replace(SEVEN_OR_NINE, **change)  # type: ignore[arg-type]
        assert settles(rules, data, claims) == settled, change
    assert not settles(SEVEN_OR_NINE, data, claims._replace(fields=()))
    tombstones = replace(SEVEN_OR_NINE, tombstones="refuse")
    assert not settles(tombstones, data, stating(data, 7, 9, no_null=False))
    assert not settles(tombstones, data, claims._replace(fields=((1, b"\2" + content(7, 9)[1:]),)))
    # keys that are all null break no rule for keys
    null_keys = of_values(wire(7), key=None)
    keys = replace(SEVEN_OR_NINE, utf8_keys=True, max_key_bytes=0, tombstones="refuse")
    assert settles(keys, null_keys, stating(null_keys, 7))


def test_at_rest_claims_settle_and_lies_are_named() -> None:
    rest = validator(SEVEN_OR_NINE, profile="log")
    trust = {"trust_claims": (1e-15, KEY16)}
    honest = attach(of_values(wire(7)), carrier="payload", schema_ids=True)
    (row,) = rest.check_batches(honest, **trust)
    assert (row.rule, row.path) == (None, "claims")
    bare = of_values(wire(7), wire(8))
    lie = attach(bare, stating(bare, 7, 9), carrier="payload")
    (row,) = rest.check_batches(lie, **trust)
    assert (row.rule, row.path) == (None, "claims")
    (row,) = validator(None, profile="log").check_batches(lie, trust_claims=(1.0, KEY16))
    assert (row.rule, row.claims) == ("L7", "lying")
    assert row.reason == "the values have other schema ids than claimed"


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_the_builder_states_what_compute_finds(codec: int) -> None:
    for values in ([wire(9), wire(7)], [wire(9), None], [b"v", wire(7)], [None]):
        builder = BatchBuilder(1 << 20, codec, schema_ids=True)
        for value in values:
            assert builder.append(b"k", value, (), NOW)
        builder.finish(None, 1 << 20)
        made = builder.claims
        data = of_values(*values)
        true = compute(data, schema_ids=True)
        assert true is not None
        assert made.fields == true.fields
