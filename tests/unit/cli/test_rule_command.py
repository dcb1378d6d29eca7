"""``batchval rule``: the explanation of every rule."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from batchval.errors import RETRIABLE
from batchval.kafka_versions import KAFKA_VERSIONS
from batchval.rule_texts import RULE_TEXTS
from batchval.rules import Rule

Run = Callable[..., tuple[int, str, str]]
#: the last id of each family
LAST = {rule.id[0]: rule.id for rule in Rule}


def words_of(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.id)
def test_a_page_holds_all_that_is_known(run: Run, rule: Rule) -> None:
    code, out, err = run("rule", rule.id)
    assert (code, err) == (0, "")
    assert out.startswith(f"{rule}\n\n")
    assert all(len(line) <= 80 for line in out.splitlines())
    text = RULE_TEXTS[rule.id]
    for part in (rule.summary, text.kafka, text.why, text.advice, text.broker or ""):
        assert words_of(part) in words_of(out)
    if rule.error_code is not None:
        assert f"{rule.error_code.name} ({int(rule.error_code)})" in out
        assert ("), which producers retry\n" in out) == (
            rule.error_code in RETRIABLE and "produce" in rule.profiles
        )


@pytest.mark.parametrize("name", ["14", "crc-mismatch", "CRC-MISMATCH", "14 crc-mismatch", " 14 "])
def test_names_of_one_rule(run: Run, name: str) -> None:
    assert run("rule", name) == run("rule", "14")


def test_case_of_letters_does_not_matter(run: Run) -> None:
    assert run("rule", "l1") == run("rule", "L1") == run("rule", "partial-batch")


def test_the_list(run: Run) -> None:
    code, out, err = run("rule")
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()] == [
        [rule.id, rule.slug] for rule in Rule
    ]
    assert all(len(line) <= 80 for line in out.splitlines())


def test_json(run: Run) -> None:
    code, out, _ = run("rule", "--json", "request-zstd-too-old")
    assert (code, json.loads(out)) == (
        0,
        {
            "schema_version": 1,
            "type": "rule",
            "rule": "7",
            "slug": "request-zstd-too-old",
            "number": 7,
            "summary": Rule.REQUEST_ZSTD_TOO_OLD.summary,
            "profiles": ["produce"],
            "error_code": "UNSUPPORTED_COMPRESSION_TYPE",
            "error_number": 76,
            "retriable": False,
            "kafka": (text := RULE_TEXTS["7"]).kafka,
            "why": text.why,
            "advice": text.advice,
            "broker": text.broker,
        },
    )
    code, out, _ = run("rule", "--json")
    assert [json.loads(line)["rule"] for line in out.splitlines()] == [rule.id for rule in Rule]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("crc-mismach", "unknown rule 'crc-mismach', did you mean crc-mismatch? Expected an id"),
        (
            "99",
            "unknown rule '99'. Expected an id "
            f"(1 to 47, S1 to {LAST['S']}, L1 to {LAST['L']}, R1 to {LAST['R']}) or a slug",
        ),
        ("", "unknown rule ''. Expected an id"),
    ],
)
def test_an_unknown_rule(run: Run, name: str, complaint: str) -> None:
    code, out, err = run("rule", name)
    assert (code, out) == (2, "")
    assert err.startswith(f"batchval rule: {complaint}")
    assert err.endswith("(see batchval rule --help)\n")
    assert len(err.splitlines()) == 1


def test_versions_of_kafka(run: Run) -> None:
    code, out, err = run("rule", "--versions")
    assert (code, err) == (0, "")
    assert "4.2.0  4.2.0 to 4.2.1, 4.3.0 to 4.3.1\n       asks_marker_versions: yes\n" in out
    rows = [json.loads(line) for line in run("rule", "--versions", "--json")[1].splitlines()]
    assert [row["row"] for row in rows] == list(KAFKA_VERSIONS)
    assert rows[-1]["releases"] == ["4.2.2", "4.4.0"]
    code, _, err = run("rule", "14", "--versions")
    assert (code, "--versions cannot be combined with a rule" in err) == (2, True)
