"""Rules, error codes and the small enumerations, against Kafka's own names and numbers."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from batchval.errors import RETRIABLE, BatchvalError, ErrorCode
from batchval.rules import EXTRAS, Rule, by_number
from batchval.types import AppendOrigin, CompressionType, TimestampType
from tools import generate_errors


def test_four_families_without_a_gap() -> None:
    ids = [rule.id for rule in Rule]
    sizes = {"": 47} | Counter(name[0] for name in ids if not name.isdigit())
    assert list(sizes) == ["", "S", "L", "R"]
    assert ids == [f"{letter}{n}" for letter, size in sizes.items() for n in range(1, size + 1)]


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.slug)
def test_every_rule(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.slug)
    assert rule.summary
    assert rule.summary[-1] != "."
    assert rule.profiles
    assert rule.profiles <= {"produce", "log"}
    assert by_number(rule.number) is rule
    assert (str(rule), repr(rule)) == (f"{rule.id} {rule.slug}", f"<Rule {rule.id} {rule.slug}>")
    assert rule.is_extra == (rule in EXTRAS) == rule.id.startswith("S")
    if rule.id[0] == "L":  # claims are held against the records wherever a batch carries them
        assert rule.profiles == ({"produce", "log"} if rule is Rule.L7 else {"log"})


def test_codes_of_rules() -> None:
    """By the rule table: the codes that are not INVALID_RECORD."""
    findings = [rule.id for rule in Rule if rule.id[0] == "L" and rule is not Rule.L7]
    others = {
        **dict.fromkeys(("2", "4", "14", "17", "31", "34"), "CORRUPT_MESSAGE"),
        **dict.fromkeys(("3", "12", "15", "16", "39", "41", "42", "47"), "UNKNOWN_SERVER_ERROR"),
        **dict.fromkeys(("7", "20", "S6"), "UNSUPPORTED_COMPRESSION_TYPE"),
        **dict.fromkeys(("13", "40"), "MESSAGE_TOO_LARGE"),
        **dict.fromkeys(("27", "28"), "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        **dict.fromkeys(("36", "37", "S10"), "INVALID_TIMESTAMP"),
        **dict.fromkeys(findings, "KAFKA_STORAGE_ERROR"),
        "43": "INVALID_PRODUCER_EPOCH",
        "45": "TRANSACTION_COORDINATOR_FENCED",
        "46": "INVALID_TXN_STATE",
        "1": None,
        "11": None,
        "L1": "CORRUPT_MESSAGE",
    }
    for rule in Rule:
        expected = others.get(rule.id, "INVALID_RECORD")
        assert (rule.error_code and rule.error_code.name) == expected, rule


def test_the_log_profiles_rules() -> None:
    """Rules 2, 4, 14, 15, 29 to 34, extras of the records, the findings, and record rules."""
    at_rest = {rule.id for rule in Rule if "log" in rule.profiles}
    assert at_rest - {rule.id for rule in EXTRAS} == {
        *("2", "4", "14", "15", "29", "30", "31", "32", "33", "34"),
        *(rule.id for rule in Rule if rule.id[0] in "LR"),
    }
    assert {"S3", "S4", "S5", "S6", "S7", "S8", "S10"} <= at_rest
    assert {"S1", "S2", "S9"}.isdisjoint(at_rest)


def test_numbers_without_a_rule() -> None:
    after = [max(r.number for r in Rule if r.id[0] == letter) + 1 for letter in "SLR"]
    for number in (0, -1, 48, 50, 70, 90, 1000, *after):
        assert by_number(number) is None


def test_error_codes() -> None:
    """Kafka's numbers, of which a few are known by heart; a client sends corrupt batches again,
    wrong ones not.
    """
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
    known = {"UNKNOWN_SERVER_ERROR": -1, "NONE": 0, "CORRUPT_MESSAGE": 2, "MESSAGE_TOO_LARGE": 10}
    known |= {
        "INVALID_TIMESTAMP": 32,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT": 43,
        "KAFKA_STORAGE_ERROR": 56,
    }
    known |= {"UNSUPPORTED_COMPRESSION_TYPE": 76, "INVALID_RECORD": 87}
    assert {name: int(ErrorCode[name]) for name in known} == known
    assert ErrorCode.CORRUPT_MESSAGE in RETRIABLE
    assert RETRIABLE.isdisjoint(
        {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE}
    )
    assert not issubclass(BatchvalError, ValueError)


def test_what_may_be_sent_again() -> None:
    assert {code for code in ErrorCode if code.retriable} == RETRIABLE
    assert ErrorCode.NOT_ENOUGH_REPLICAS.retriable is True
    assert [code.retriable for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)] == [
        False,
        False,
    ]


def test_the_property_is_generated() -> None:
    """The generator's own file is held to Kafka by the oracle's tests; this needs no Java."""
    table = [
        {"name": code.name, "code": int(code), "retriable": code in RETRIABLE, "message": ""}
        for code in ErrorCode
    ]
    text = generate_errors.TARGET.read_text("utf-8")
    assert generate_errors.renewed(text, table) == text
    turned = [{**row, "retriable": not row["retriable"]} for row in table]
    assert generate_errors.renewed(text, turned) != text


def test_kafkas_words() -> None:
    assert [codec.kafka_name for codec in CompressionType] == [
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
    ]
    assert [int(codec) for codec in CompressionType] == [0, 1, 2, 3, 4]
    assert {kind.kafka_name: int(kind) for kind in TimestampType} == {
        "NoTimestampType": -1,
        "CreateTime": 0,
        "LogAppendTime": 1,
    }
    assert [(origin.name, int(origin)) for origin in AppendOrigin] == [
        ("REPLICATION", 0),
        ("COORDINATOR", 1),
        ("CLIENT", 2),
        ("RAFT_LEADER", 3),
    ]
