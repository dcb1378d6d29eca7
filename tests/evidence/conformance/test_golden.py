"""fixtures/golden: every rule obeyed and broken, and our answer to each line."""

import copy
import json
from pathlib import Path

import pytest

from batchval.cli.cases import compare, read_cases
from batchval.rules import Rule

GOLDEN = Path(__file__).resolve().parents[3] / "fixtures" / "golden"
#: no input reaches 17, 20 is gone in Kafka 4, L7 is about claims, and the findings after it need
#: more than the one segment and its .index of a case (L15 is a finding that Kafka does not have);
#: record rules are not Kafka's
RULES = [rule for rule in Rule if rule.id not in ("17", "20") and rule.number < Rule.L7.number]
CASES = list(read_cases([GOLDEN]))


def of(rule):
    return [case for case in CASES if case["rule"]["id"] == rule.id]


def test_a_folder_for_every_rule_and_no_other():
    assert sorted(p.name for p in GOLDEN.iterdir() if p.is_dir()) == sorted(
        rule.slug for rule in RULES
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_obeyed_once_and_broken_once_at_least(rule):
    lines = [
        json.loads(line) for line in (GOLDEN / rule.slug / "cases.jsonl").read_text().splitlines()
    ]
    assert {line["rule"]["id"] for line in lines} == {rule.id}
    assert {line["rule"]["broken"] for line in lines} == {True, False}
    assert {line["kafka"] for line in lines} == {"4.4.0"}
    assert {line["profile"] for line in lines} <= rule.profiles


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_our_answer(rule, provider):
    assert [found for case in of(rule) for found in compare(case)] == []


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.id[0] == "S"], ids=lambda rule: rule.slug
)
def test_an_extra_refuses_with_its_code(rule):
    broken = [case["expect_strict"] for case in of(rule) if "/breaks" in case["id"]]
    assert {(answer["rule"], answer["code"]) for answer in broken} == {
        (rule.id, int(rule.error_code))
    }


@pytest.mark.untraced
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_another_expectation_would_be_noticed(case):
    wrong = copy.deepcopy(case)
    if "expect_log" in case:
        wrong["expect_log"] = [*case["expect_log"], {"rule": "L1", "position": 0, "offset": None}]
        assert compare(wrong)
        return
    wrong["expect_strict"]["code"] = 99
    assert compare(wrong)
    wrong = copy.deepcopy(case)
    wrong["expect"]["request"] = {"error": "X", "code": 99}
    assert compare(wrong)


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c["rule"]["id"] in ("1", "11", "14", "29", "40")],
    ids=lambda case: case["id"],
)
def test_another_rule_or_effect_would_be_noticed(case):
    wrong = copy.deepcopy(case)
    if "shows" in case:
        wrong["shows"]["valid_bytes"] += 1
    else:
        wrong["rule"]["broken"] = not case["rule"]["broken"]
    assert compare(wrong)


@pytest.mark.jvm
def test_the_command_makes_the_same_bytes(kafka, tmp_path):
    kafka.run("golden", str(tmp_path))
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    assert made == {p.relative_to(GOLDEN): p.read_bytes() for p in GOLDEN.rglob("*.jsonl")}
