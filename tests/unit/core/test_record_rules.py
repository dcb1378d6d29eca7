"""Record rules in the walk: each rule, codec and magic, at rest, and against a slow reference."""

from __future__ import annotations

import copy
import pickle
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from batchval.core.batches.native_validator import settled_by_claims
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import attach, compute
from batchval.core.records.record_errors import broken_rule
from batchval.errors import ErrorCode
from batchval.policy import TopicPolicy
from batchval.record_rules import RecordRules, SchemaIds
from batchval.rules import Rule
from tests.evidence.reference.record_rules import Parts, broken_rules
from tests.support.batches import CODECS, GZIP, NOW, SNAPPY, ZSTD, batch, message, record, wrapper
from tests.support.seeds import seeds

EVERY_CODEC = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
KEY16 = bytes(range(16))
GUID = UUID(int=0x89791762_2336_4186_9674_299B90A802E2)


def wire(number: int, tail: bytes = b"value") -> bytes:
    return struct.pack(">bi", 0, number) + tail


def rules_of(**mapping: object) -> RecordRules:
    return RecordRules.from_mapping(mapping)


def validator(rules: RecordRules | None, **options: Any) -> LogValidator:
    policy = options.pop("policy", TopicPolicy())
    return LogValidator(
        TopicPolicy(**{**{n: getattr(policy, n) for n in policy.__slots__}, "record_rules": rules}),
        **options,
    )


def of_parts(parts: Sequence[Parts], codec: int = 0, **header: Any) -> bytes:
    return batch(
        [record(i, key, value, headers) for i, (key, value, headers) in enumerate(parts)],
        codec=codec,
        **header,
    )


def header_schema(**more: object) -> dict[str, object]:
    return {"place": "header", "header": "id", **more}


#: rules, a record in order, a record at fault, its rule, the sentence
ROWS: list[tuple[dict[str, object], Parts, Parts, str, str]] = [
    (
        {"schema_id": {}},
        (None, wire(-1), ()),
        (None, b"\0\0\0\0", ()),
        "R1",
        "value has 4 bytes, a magic byte and a schema id take 5",
    ),
    (
        {"schema_id": {}},
        (None, wire(0, b""), ()),
        (None, b"\x01\0\0\0\x07", ()),
        "R1",
        "value starts with byte 1, the magic byte of a schema id is 0",
    ),
    (
        {"schema_id": {}},
        (None, None, ()),
        (None, b"", ()),
        "R1",
        "value has 0 bytes, a magic byte and a schema id take 5",
    ),
    (
        {"schema_id": {"ids": [7]}},
        (None, wire(7), ()),
        (None, wire(8), ()),
        "R1",
        "value has schema id 8, allowed is 7",
    ),
    (
        {"schema_id": {"ids": [7, 9]}},
        (None, wire(9), ()),
        (None, wire(-1), ()),
        "R1",
        "value has schema id -1, allowed are 7 and 9",
    ),
    (
        {"schema_id": {"ids": [1, 2, 3, 4, 5, 6, 8]}},
        (None, wire(8), ()),
        (None, wire(7), ()),
        "R1",
        "value has schema id 7, allowed are 1, 2 and 5 more",
    ),
    (
        {"schema_id": {"place": "key", "ids": [7]}},
        (wire(7), None, ()),
        (wire(6), b"v", ()),
        "R1",
        "key has schema id 6, allowed is 7",
    ),
    (
        {"schema_id": {"place": "key"}},
        (None, b"v", ()),
        (b"key", b"v", ()),
        "R1",
        "key has 3 bytes, a magic byte and a schema id take 5",
    ),
    (
        {"schema_id": header_schema(ids=[7])},
        (None, b"v", [(b"id", struct.pack(">i", 7))]),
        (None, b"v", ()),
        "R1",
        "header 'id' is missing, it holds the schema id of the value",
    ),
    (
        {"schema_id": header_schema(ids=[7])},
        (None, None, ()),
        (None, b"v", [(b"id", None)]),
        "R1",
        "header 'id' is null, it holds the schema id of the value",
    ),
    (
        {"schema_id": header_schema(ids=[2**40])},
        (None, b"v", [(b"id", struct.pack(">q", 2**40))]),
        (None, b"v", [(b"id", struct.pack(">q", 2**40 + 1))]),
        "R1",
        f"header 'id' has schema id {2**40 + 1}, allowed is {2**40}",
    ),
    (
        {"schema_id": header_schema(ids=[7])},
        (None, b"v", [(b"id", wire(7, b""))]),
        (None, b"v", [(b"id", b"\x02" + wire(7)[1:5])]),
        "R1",
        "header 'id' of 5 bytes starts with byte 2, expected version 0",
    ),
    (
        {"schema_id": header_schema()},
        (None, b"v", [(b"id", b"\x01" + GUID.bytes)]),
        (None, b"v", [(b"id", b"123")]),
        "R1",
        "header 'id' has 3 bytes, a schema id takes 4, 5, 8 or 17",
    ),
    (
        {"schema_id": header_schema(guids=[str(GUID)])},
        (None, b"v", [(b"id", b"\x01" + GUID.bytes)]),
        (None, b"v", [(b"id", b"\x01" + KEY16)]),
        "R1",
        f"header 'id' has schema GUID {UUID(bytes=KEY16)}, allowed is {GUID}",
    ),
    (
        {"schema_id": header_schema(guids=[str(GUID)])},
        (None, b"v", [(b"id", b"x"), (b"id", b"\x01" + GUID.bytes)]),
        (None, b"v", [(b"id", b"\0" + GUID.bytes)]),
        "R1",
        "header 'id' of 17 bytes starts with byte 0, expected version 1",
    ),
    (
        {"schema_id": header_schema(of="key")},
        (None, b"v", ()),
        (b"k", None, ()),
        "R1",
        "header 'id' is missing, it holds the schema id of the key",
    ),
    (
        {"max_key_bytes": 3},
        (b"key", b"v", ()),
        (b"keys", b"v", ()),
        "R2",
        "key has 4 bytes, max_key_bytes is 3",
    ),
    (
        {"max_key_bytes": 0},
        (None, b"v", ()),
        (b"k", b"v", ()),
        "R2",
        "key has 1 bytes, max_key_bytes is 0",
    ),
    (
        {"max_value_bytes": 3},
        (None, None, ()),
        (None, b"long", ()),
        "R3",
        "value has 4 bytes, max_value_bytes is 3",
    ),
    (
        {"max_headers": 1},
        (None, b"v", [(b"a", b"")]),
        (None, b"v", [(b"a", b""), (b"a", None)]),
        "R4",
        "2 headers, max_headers is 1",
    ),
    (
        {"required_headers": ["a", "b"]},
        (None, b"v", [(b"b", None), (b"c", b""), (b"a", b"x")]),
        (None, b"v", [(b"a", b"x"), (b"bb", b"")]),
        "R5",
        "header 'b' is missing, which is required",
    ),
    (
        {"required_headers": ["schlüssel"]},
        (None, b"v", [("schlüssel".encode(), b"")]),
        (None, b"v", ()),
        "R5",
        "header 'schlüssel' is missing, which is required",
    ),
    (
        {"forbidden_headers": ["a", "b"]},
        (None, b"v", [(b"", b""), (b"ab", b"")]),
        (None, b"v", [(b"b", None)]),
        "R6",
        "header 'b' is forbidden",
    ),
    (
        {"tombstones": "refuse"},
        (None, b"", ()),
        (None, None, ()),
        "R7",
        "value is null, tombstones are refused",
    ),
    (
        {"utf8_keys": True},
        ("schlüssel".encode(), b"v", ()),
        (b"\xc3", b"v", ()),
        "R8",
        "key of 1 bytes is not UTF-8, utf8_keys requires it",
    ),
    (
        {"utf8_keys": True},
        (None, b"v", ()),
        (b"ok\xff", b"v", ()),
        "R8",
        "key of 3 bytes is not UTF-8, utf8_keys requires it",
    ),
]


@EVERY_CODEC
@pytest.mark.parametrize("row", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_each_rule(row: tuple[dict[str, object], Parts, Parts, str, str], codec: int) -> None:
    mapping, good, bad, rule, sentence = row
    rules = rules_of(**mapping)
    assert broken_rules(rules, [good, bad]) == [(1, rule)]
    data = of_parts([good, bad, good, bad], codec)
    for mode in ("strict", "kafka"):
        asks = validator(rules, mode=mode)
        assert asks.check(of_parts([good, good], codec), now_ms=NOW).ok
        result = asks.check(data, now_ms=NOW)
        assert (result.error_code, result.rule) == (ErrorCode.INVALID_RECORD, Rule[rule])
        assert result.record_errors == [(1, sentence), (3, sentence)]
        assert result.record_error_rules == [(1, Rule[rule]), (3, Rule[rule])]
        assert (result.record_errors_count, result.position) == (2, 0)
        assert result.reason == f"record 1: {sentence}; 2 records break record rules"
    assert (
        validator(rules).check(of_parts([bad], codec), now_ms=NOW).reason == f"record 0: {sentence}"
    )
    result = validator(rules, profile="log").check(data)
    assert (result.rule, result.reason) == (
        Rule[rule],
        f"record 1: {sentence}; 2 records break record rules",
    )
    # nothing else has changed for who does not ask
    assert validator(None).check(data, now_ms=NOW).ok


# ---- against the reference ---------------------------------------------------------------------

NAMES = [b"a", b"b", b"id", b"key-id", "é".encode(), b"a-long-name-of-a-header", b"\xff"]


def random_field(noise: random.Random) -> bytes | None:
    kind = noise.randrange(9)
    if kind == 0:
        return None
    if kind <= 4:
        return wire(
            noise.choice([0, 1, 2, 3, 100, 2**31 - 1, -1, -(2**31)]),
            noise.randbytes(noise.choice([0, 0, 3, 300])),
        )
    if kind == 5:
        return noise.randbytes(noise.randrange(8))
    if kind == 6:
        return noise.choice(["schlüssel", "key", "schlüssel" * 40_000, "x" * 70_000]).encode()
    return wire(1, bytes(noise.choice([20, 70_000, 200_000])))


def random_header(noise: random.Random) -> tuple[bytes, bytes | None]:
    number = noise.choice([1, 2, 3, 2**40])
    content = noise.choice(
        [
            *(None, b"", noise.randbytes(noise.choice([1, 17, 70_000]))),
            *(
                struct.pack(">i", number % 2**31),
                struct.pack(">q", number),
                b"\0" + struct.pack(">i", number % 100),
            ),
            *(b"\x01" + GUID.bytes, b"\x01" + KEY16, b"\x02" + GUID.bytes),
        ]
    )
    return noise.choice(NAMES), content


def random_parts(noise: random.Random) -> Parts:
    headers = [random_header(noise) for _ in range(noise.choice([0, 0, 0, 1, 2, 5]))]
    return random_field(noise), random_field(noise), headers


def random_rules(noise: random.Random) -> RecordRules:
    def some(count: int = 3) -> bool:
        return noise.randrange(count) == 0

    ids = [None, frozenset({1}), frozenset({1, 2, 3}), frozenset(range(100_000)), frozenset()]
    schemas: list[SchemaIds] = []
    if some(2):
        schemas.append(SchemaIds("value", noise.choice(ids)))
    if some():
        schemas.append(SchemaIds("key", noise.choice(ids)))
    if some():
        guids = noise.choice([None, frozenset({str(GUID)})])
        schemas.append(
            SchemaIds("header", noise.choice([*ids, frozenset({2**40})]), "id", guids=guids)
        )
    if some(4):
        schemas.append(SchemaIds("header", noise.choice(ids), "key-id", "key"))
    noise.shuffle(schemas)
    names = ["a", "b", "id", "é", "a-long-name-of-a-header"]
    noise.shuffle(names)
    held = {schema.header for schema in schemas}
    required = tuple(names[: noise.choice([0, 0, 1, 2])])
    forbidden = tuple(name for name in names[3:] if name not in held)[: noise.choice([0, 0, 1, 2])]
    return RecordRules(
        schema_id=tuple(schemas),
        max_key_bytes=noise.choice([None, None, 0, 5, 100, 80_000]),
        max_value_bytes=noise.choice([None, None, 0, 5, 100_000]),
        max_headers=noise.choice([None, None, 0, 1, 2]),
        required_headers=required,
        forbidden_headers=forbidden,
        tombstones=noise.choice(["allow", "allow", "refuse"]),
        utf8_keys=some(),
    )


@pytest.mark.parametrize("seed", seeds(20))
def test_the_walk_and_the_reference_agree(seed: int) -> None:
    """Over random batches and rules, for each codec: fields lie in one block and across blocks."""
    noise = random.Random(seed)
    for codec in CODECS.values():
        rules = random_rules(noise)
        parts = [random_parts(noise) for _ in range(noise.choice([1, 3, 30]))]
        # header names that are not UTF-8 are Kafka's to accept
        policy = TopicPolicy(max_message_bytes=2**31 - 1)
        asks = validator(rules, policy=policy, mode="kafka")
        rest = validator(rules, mode="kafka", profile="log")
        for some in (parts, [part for part in parts if not broken_rules(rules, [part])]):
            if not some:
                continue
            wanted = broken_rules(rules, some)
            data = of_parts(some, codec)
            found = asks.check(data, now_ms=NOW)
            assert [(index, rule.id) for index, rule in found.record_error_rules] == wanted
            assert found.ok == (not wanted)
            assert (found.record_errors_count, len(found.record_errors)) == (
                len(wanted),
                len(wanted),
            )
            (row,) = rest.check_batches(data)
            assert row.rule == (wanted[0][1] if wanted else None)
            changeable = asks.check(bytearray(data), now_ms=NOW)
            assert changeable == found


@pytest.mark.parametrize("seed", seeds(10))
def test_messages_and_the_reference_agree(seed: int) -> None:
    """Of magic 0 and 1, alone and in wrappers: they have no headers."""
    noise = random.Random(seed)
    for magic in (0, 1):
        rules = random_rules(noise)
        parts: list[Parts] = [(random_field(noise), random_field(noise), ()) for _ in range(5)]
        wanted = broken_rules(rules, parts)
        messages = [message(magic, offset=i, key=k, value=v) for i, (k, v, _) in enumerate(parts)]
        whole = {
            "none": b"".join(messages),
            "gzip": wrapper(messages, GZIP, magic),
            "snappy": wrapper(messages, SNAPPY, magic),
        }
        for source, data in whole.items():
            asks = validator(rules, mode="kafka")
            for to_magic in (magic, 2):
                found = asks.validate_messages_and_assign_offsets(
                    data, now_ms=NOW, source=source, to_magic=to_magic
                )
                assert [(index, rule.id) for index, rule in found.record_error_rules] == wanted
                assert found.ok == (not wanted)
                assert (found.output is None) == bool(wanted)
            rows = validator(rules, mode="kafka", profile="log").check_batches(data)
            if source == "none":
                assert [row.rule for row in rows] == [dict(wanted).get(i) for i in range(5)]
            else:
                assert [row.rule for row in rows] == [wanted[0][1] if wanted else None]


def test_the_position_of_the_message_at_fault() -> None:
    first = message(1, key=b"k", value=b"v")
    data = first + message(1, offset=1, key=b"k" * 9, value=b"v") + message(1, offset=2, value=b"v")
    result = validator(rules_of(max_key_bytes=5)).validate_messages_and_assign_offsets(
        data, now_ms=NOW, to_magic=1
    )
    assert (result.position, result.record_error_rules) == (len(first), [(1, Rule.R2)])


UNREADABLE = [
    ({"schema_id": {"place": "key"}}, struct.pack(">i", 100), Rule.R1, "key"),
    ({"max_key_bytes": 5}, struct.pack(">i", 100), Rule.R2, "key"),
    ({"utf8_keys": True}, struct.pack(">i", 100), Rule.R8, "key"),
    ({"schema_id": {}}, struct.pack(">ii", -1, 100), Rule.R1, "value"),
    ({"max_value_bytes": 500}, struct.pack(">ii", -1, 100), Rule.R3, "value"),
    ({"tombstones": "refuse"}, b"", Rule.R7, "value"),
]


@pytest.mark.parametrize(("mapping", "tail", "rule", "field"), UNREADABLE)
def test_a_field_of_a_message_that_cannot_be_read(
    mapping: dict[str, object], tail: bytes, rule: Rule, field: str
) -> None:
    """Kafka takes such a message where it asks for neither key nor value."""
    data = message(1, tail=tail)
    assert validator(None).validate_messages_and_assign_offsets(data, now_ms=NOW, to_magic=1).ok
    result = validator(rules_of(**mapping)).validate_messages_and_assign_offsets(
        data, now_ms=NOW, to_magic=1
    )
    assert result.rule is rule
    assert result.reason == f"record 0: {field} cannot be read: it runs past the end of the message"
    assert (
        validator(rules_of(max_headers=0))
        .validate_messages_and_assign_offsets(data, now_ms=NOW, to_magic=1)
        .ok
    )


# ---- when they are asked -----------------------------------------------------------------------

BAD: Parts = (b"k", b"without an id", ())
ASK_ID = rules_of(schema_id={"ids": [7]})


@EVERY_CODEC
def test_kafkas_rules_come_first(codec: int) -> None:
    policy = TopicPolicy(cleanup_policy="compact")
    parts: list[Parts] = [BAD, (None, wire(7), ())]
    result = validator(ASK_ID, policy=policy).check(of_parts(parts, codec), now_ms=NOW)
    assert (result.rule, result.record_error_rules) == (Rule.KEY_MISSING, [(1, Rule.KEY_MISSING)])
    result = validator(ASK_ID).check(of_parts(parts, codec, attributes=64), now_ms=NOW)
    assert result.rule is Rule.S1
    result = validator(ASK_ID, extras={"S1": "report"}).check(
        of_parts(parts, codec, attributes=64), now_ms=NOW
    )
    assert (result.rule, result.reports) == (Rule.R1, [])
    data = of_parts(parts, codec)
    assert validator(ASK_ID).check(data, now_ms=NOW, leader_epoch=-1).rule is Rule.S9
    assert (
        validator(ASK_ID).check(data[:-1] + bytes([data[-1] ^ 1]), now_ms=NOW).rule
        is Rule.CRC_MISMATCH
    )


@EVERY_CODEC
def test_the_first_record_at_fault_names_the_rule(codec: int) -> None:
    rules = rules_of(schema_id={}, max_value_bytes=20, tombstones="refuse", max_headers=0)
    parts: list[Parts] = [
        (None, None, ()),
        (None, b"v" * 30, [(b"h", b"")]),
        (None, wire(1, b"v" * 30), ()),
    ]
    result = validator(rules).check(of_parts(parts, codec), now_ms=NOW)
    assert result.rule is Rule.R7
    assert result.record_error_rules == [(0, Rule.R7), (1, Rule.R1), (2, Rule.R3)]


@EVERY_CODEC
def test_a_batch_that_is_rebuilt_is_asked(codec: int) -> None:
    target = "lz4" if codec != CODECS["lz4"] else "zstd"
    asks = validator(ASK_ID, policy=TopicPolicy(compression_type=target))
    result = asks.validate(of_parts([BAD], codec), now_ms=NOW)
    assert (result.rule, result.path, result.output) == (Rule.R1, "rebuilt", None)
    result = asks.validate(of_parts([(b"k", wire(7), ())], codec), now_ms=NOW)
    assert (result.path, result.ok) == ("rebuilt", True)
    in_place = bytearray(of_parts([BAD], codec))
    before = bytes(in_place)
    result = validator(ASK_ID).validate(in_place, now_ms=NOW, first_offset=500, in_place=True)
    assert (result.rule, result.output, bytes(in_place)) == (Rule.R1, None, before)


@EVERY_CODEC
def test_control_batches_and_followers_are_not_asked(codec: int) -> None:
    rules = rules_of(max_key_bytes=1, schema_id={}, required_headers=["trace"])
    marker = batch(
        [record(0, b"\0\0\0\1", b"\0\0\0\0\0\0")],
        codec=codec,
        attributes=32 | 16,
        producer_id=1,
        producer_epoch=0,
    )
    assert validator(rules).check(marker, now_ms=NOW, origin="COORDINATOR").ok
    assert validator(rules, profile="log").check(marker).ok
    data = of_parts([(b"key", b"v", ())], codec, partition_leader_epoch=0)
    assert validator(rules).check(data, now_ms=NOW).rule is Rule.R1
    assert validator(rules).check(data, now_ms=NOW, origin="COORDINATOR").rule is Rule.R1
    for origin in ("REPLICATION", "RAFT_LEADER"):
        assert validator(rules).check(data, now_ms=NOW, origin=origin).ok


def test_a_closed_batch_at_rest_is_not_asked() -> None:
    rest = validator(ASK_ID, profile="log")
    data = of_parts([BAD], ZSTD) + of_parts([BAD], base_offset=1)
    assert [row.rule for row in rest.check_batches(data)] == ["R1", "R1"]
    assert [row.rule for row in rest.check_batches(data, deep=False)] == [None, "R1"]


# ---- claims ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
@pytest.mark.parametrize("parts", [BAD, (b"k", wire(7), ())], ids=["bad", "good"])
def test_claims_do_not_stand_for_record_rules(codec: int, parts: Parts) -> None:
    data = of_parts([parts, parts], codec)
    claims = compute(data)
    assert claims is not None
    carried = bytes(attach(data, claims, carrier="payload"))
    plain, asks = validator(None), validator(ASK_ID)
    wanted = None if parts is not BAD else Rule.R1
    assert settled_by_claims(plain, carried, None, NOW, 9)
    assert not settled_by_claims(asks, carried, None, NOW, 9)
    assert plain.check(carried, now_ms=NOW, claims=(None, "trust")).path == "claims"
    for word in ("trust", "verify", "ignore"):
        result = asks.check(carried, now_ms=NOW, claims=(None, word))
        assert (result.rule, result.path) == (wanted, "shallow")
        assert result.claims == (None if word == "ignore" else "honest")
        (row,) = asks.check_ranges(carried, now_ms=NOW, claims=(None, word))
        assert row.rule == (wanted and wanted.id)
    # rules that ask nothing leave the claims their use
    assert settled_by_claims(validator(RecordRules()), carried, None, NOW, 9)
    trust = {"trust_claims": (1e-15, KEY16)}
    (row,) = validator(None, profile="log").check_batches(carried, **trust)
    assert row.path == "claims"
    (row,) = validator(ASK_ID, profile="log").check_batches(carried, **trust)
    assert (row.path, row.rule) == ("shallow", wanted and wanted.id)


def test_claims_in_a_header() -> None:
    policy = TopicPolicy(accept_claims_header=True)
    data = of_parts([BAD], ZSTD)
    claims = compute(data)
    assert claims is not None
    carried = bytes(attach(data, claims, carrier="header"))
    for word in ("trust", "verify", "ignore"):
        assert (
            validator(ASK_ID, policy=policy).check(carried, now_ms=NOW, claims=(None, word)).rule
            is Rule.R1
        )
    rest = validator(ASK_ID, policy=policy, profile="log")
    assert [row.rule for row in rest.check_batches(carried)] == ["R1"]


#: a record at fault, and what columns say of it
COLUMN_REASONS = [
    ({"schema_id": {"ids": [1]}}, (None, wire(9), ()), "schema id 9 is not allowed"),
    ({"schema_id": {"ids": [1]}}, (None, b"", ()), "no allowed schema id at its place"),
    ({"max_key_bytes": 1}, (b"key", b"v", ()), "key of 3 bytes is longer than max_key_bytes"),
    (
        {"max_value_bytes": 1},
        (None, b"value", ()),
        "value of 5 bytes is longer than max_value_bytes",
    ),
    (
        {"max_headers": 0},
        (None, b"v", [(b"a", None)]),
        "the number of headers, 1, is above max_headers",
    ),
    ({"required_headers": ["a"]}, (None, b"v", ()), "a required header is missing"),
    ({"forbidden_headers": ["a"]}, (None, b"v", [(b"a", b"")]), "a header is forbidden"),
    ({"tombstones": "refuse"}, (None, None, ()), "value is null, tombstones are refused"),
    ({"utf8_keys": True}, (b"\xff", b"v", ()), "key of 1 bytes is not UTF-8"),
]


@pytest.mark.parametrize(("mapping", "parts", "sentence"), COLUMN_REASONS)
def test_columns_say_it_in_numbers(mapping: dict[str, object], parts: Parts, sentence: str) -> None:
    data = of_parts([parts, parts], GZIP)
    (row,) = validator(rules_of(**mapping)).check_ranges(data, now_ms=NOW)
    assert row.reason == f"record 0: {sentence}; 2 records break record rules"
    (stored,) = validator(rules_of(**mapping), profile="log").check_batches(data)
    assert (stored.rule, stored.reason) == (row.rule, row.reason)


# ---- many batches, many records ----------------------------------------------------------------


@EVERY_CODEC
def test_each_range_by_its_own_rules(codec: int) -> None:
    """A refusal leaves nothing for the next range."""
    bad, good = of_parts([BAD], codec), of_parts([(b"k", wire(7), ())], codec)
    policies = [
        TopicPolicy(record_rules=ASK_ID),
        TopicPolicy(),
        TopicPolicy(record_rules=rules_of(max_key_bytes=1)),
    ]
    data = bad * 3 + good * 3
    starts = [i * len(bad) for i in range(3)] + [3 * len(bad) + i * len(good) for i in range(3)]
    ranges = list(zip(starts, [len(bad)] * 3 + [len(good)] * 3, strict=True))
    columns = LogValidator().check_ranges(data, ranges, policies * 2, now_ms=NOW)
    assert [row.rule for row in columns] == ["R1", None, None, None, None, None]
    assert columns.result(0).record_errors == [
        (0, "value starts with byte 119, the magic byte of a schema id is 0")
    ]
    # columns hold numbers alone
    assert columns[0].reason == "record 0: no allowed schema id at its place"
    assert columns.result(0).reason.startswith("record 0: value starts with byte 119")
    columns = LogValidator().check_ranges(data, ranges, policies[0], now_ms=NOW)
    assert [row.rule for row in columns] == ["R1", "R1", "R1", None, None, None]
    results = LogValidator().check_produce_request([bad, bad, good], policies, now_ms=NOW)
    assert [result.rule for result in results] == [Rule.R1, None, None]


@EVERY_CODEC
def test_1000_records_are_kept_and_all_are_counted(codec: int) -> None:
    result = validator(ASK_ID).check(of_parts([BAD] * 1500, codec), now_ms=NOW)
    assert (len(result.record_errors), result.record_errors_count) == (1000, 1500)
    assert result.reason.endswith("; 1500 records break record rules")


def test_results_can_be_pickled_and_compared() -> None:
    result = validator(ASK_ID).check(
        of_parts([BAD, (None, wire(7), ()), (None, wire(6), ())]), now_ms=NOW
    )
    again = pickle.loads(pickle.dumps(result))
    assert again == result == copy.deepcopy(result)
    assert again.record_errors == result.record_errors != []
    asks = validator(ASK_ID)
    assert pickle.loads(pickle.dumps(asks)) == asks
    assert asks != validator(None)
    assert asks != validator(rules_of(schema_id={"ids": [8]}))


def test_sets_of_many_ids() -> None:
    ids = frozenset(range(0, 400_000, 4))
    asks = validator(RecordRules(schema_id=SchemaIds(ids=ids)))
    parts: list[Parts] = [(None, wire(number), ()) for number in (0, 4, 399_996, 1, 400_000, -4)]
    result = asks.check(of_parts(parts), now_ms=NOW)
    assert [index for index, _ in result.record_errors] == [3, 4, 5]
    assert result.record_errors[0][1] == "value has schema id 1, allowed are 0, 4 and 99998 more"
    guids = frozenset(str(UUID(int=number)) for number in range(1000))
    asks = validator(RecordRules(schema_id=SchemaIds("header", guids=guids)))
    header = b"__value_schema_id"
    parts = [
        (None, b"v", [(header, b"\x01" + UUID(int=n).bytes)])
        for n in (0, 999, 500, 1000, 2**128 - 1)
    ]
    assert [index for index, _ in asks.check(of_parts(parts), now_ms=NOW).record_errors] == [3, 4]


def test_names_of_one_size_are_told_apart() -> None:
    names = [f"name-{number:03}" for number in range(64)]
    others = [f"other-{number:02}" for number in range(64)]
    asks = validator(rules_of(required_headers=names, forbidden_headers=others))
    headers = [(name.encode(), b"") for name in names]
    assert asks.check(of_parts([(None, b"v", headers)]), now_ms=NOW).ok
    for i in (0, 31, 63):
        result = asks.check(of_parts([(None, b"v", headers[:i] + headers[i + 1 :])]), now_ms=NOW)
        assert result.reason == f"record 0: header 'name-{i:03}' is missing, which is required"
        result = asks.check(
            of_parts([(None, b"v", [*headers, (others[i].encode(), b"")])]), now_ms=NOW
        )
        assert result.reason == f"record 0: header 'other-{i:02}' is forbidden"


def test_a_name_across_blocks() -> None:
    """Blocks of lz4 and snappy end inside names and values."""
    asks = validator(
        rules_of(
            required_headers=["n" * 255],
            schema_id=header_schema(ids=[7]),
            forbidden_headers=["x" * 200],
        )
    )
    for before in range(65_000, 65_700, 41):
        for last, rule in ((b"n" * 255, None), (b"n" * 254 + b"m", Rule.R5), (b"x" * 200, Rule.R5)):
            headers = [(b"p", bytes(before)), (last, b"y" * 300), (b"id", struct.pack(">q", 7))]
            for codec in (CODECS["lz4"], SNAPPY):
                assert asks.check(of_parts([(None, b"v", headers)], codec), now_ms=NOW).rule is rule


# ---- sentences ---------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [(90, 0, 0), (99, 0, 0), (91, 5, 1), (95, 3, 0), (91, 0, 99)])
def test_numbers_without_a_meaning(numbers: tuple[int, int, int]) -> None:
    with pytest.raises((ValueError, IndexError)):
        broken_rule(ASK_ID, *numbers, 0, 0)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer(buffer: Callable[[bytes], Any]) -> None:
    assert validator(ASK_ID).check(buffer(of_parts([BAD])), now_ms=NOW).rule is Rule.R1
