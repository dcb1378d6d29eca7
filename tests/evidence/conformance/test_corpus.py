"""Kafka's answers to the sample of fixtures/corpus, and what the project promises beyond them.

    sample      fixtures/corpus/sample.jsonl.gz, written by corpus.py
    found       found.jsonl, cases in which we once differed from Kafka

Every case is asked under both codec providers, in kafka mode (the three stages are Kafka's) and in
strict mode.
"""

import copy
import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from batchval import compression
from batchval.cli.cases import compare, kafka_answers, policy_of, read_cases
from batchval.core.batches.validator import LogValidator
from batchval.errors import ErrorCode
from tests.evidence.conformance import corpus, fresh, oracle

FOUND = Path(__file__).with_name("found.jsonl")
SAMPLE = list(read_cases([corpus.FILE]))
CASES = [*SAMPLE, *read_cases([FOUND])]
#: what strict mode says of what it accepts must be what kafka mode says
RESULT = (
    *(
        "records_count",
        "max_timestamp",
        "append_time",
        "next_offset",
        "size_maybe_changed",
        "in_place",
        "converted",
    ),
    *("path", "valid_bytes", "source", "output"),
)
#: families whose bytes are broken on purpose, or arbitrary
HOSTILE = (
    *(
        "header_",
        "record_",
        "bitflip",
        "bomb",
        "garbage",
        "legacy_",
        "mixed_",
        "stream_",
        "truncat",
    ),
    "follower_damaged",
)


def ask(case, mode):
    """Return the answer of all checks, with the bytes that would be appended."""
    cfg = case["cfg"]
    return LogValidator(policy_of(cfg), mode=mode).validate(
        case["batch"],
        now_ms=cfg.get("now", 0),
        origin=cfg.get("origin", "CLIENT"),
        produce_version=cfg.get("produce_version", 9),
        leader_epoch=cfg.get("leader_epoch", 0),
        to_magic=cfg.get("to_magic", 2),
        first_offset=cfg.get("first_offset", 0),
    )


def test_sample_has_every_family_of_three_seeds_accepted_and_refused():
    families = Counter(case["family"] for case in SAMPLE)
    assert len(SAMPLE) == corpus.CASES * len(corpus.SEEDS)
    assert len(families) == 108
    assert {case["id"].split("-")[0] for case in SAMPLE} == {f"k{seed}" for seed in corpus.SEEDS}
    finals = Counter(case["expect"]["final"] for case in SAMPLE)
    assert set(finals) == {"ok", "request", "analyze", "validate", "resize", "nothing_to_append"}
    assert finals["ok"] > 500
    assert not any(fresh.out_of_memory(case) for case in CASES)


def test_sample_is_small():
    assert corpus.FILE.stat().st_size <= 1_400_000


def test_our_answers_are_kafkas(provider):
    assert [str(found) for case in CASES for found in compare(case)] == []


def test_another_answer_of_kafka_would_be_noticed():
    """Invert each stage of each accepted case: each is a disagreement."""
    accepted = [case for case in SAMPLE if case["expect"]["final"] == "ok"][::10]
    for case in accepted:
        for stage in ("request", "analyze", "validate"):
            wrong = copy.deepcopy(case)
            wrong["expect"][stage] = {"error": "X", "code": 2}
            assert compare(wrong)
        for name in ("next_offset", "max_timestamp", "converted"):
            wrong = copy.deepcopy(case)
            wrong["expect"]["validate"][name] += 1
            assert compare(wrong)


def test_both_providers_answer_the_same():
    """Compare all results of three stages; for recompressed batches, whose bytes differ, the
    records.
    """
    before = compression.provider()
    answers = []
    try:
        for name in compression.PROVIDERS:
            compression.use(name)
            answers.append([kafka_answers(case) for case in CASES])
    finally:
        compression.use(before)
    differing = []
    for case, *both in zip(CASES, *answers, strict=True):
        for answer in both:
            if answer["validate"].get("recompressed"):
                del answer["validate"]["output"]
        if both[0] != both[1]:
            differing.append(case["id"])
    assert len(answers) == 2
    assert differing == []


def test_what_strict_accepts_kafka_accepts_with_the_same_result(provider):
    accepted = 0
    for case in CASES:
        strict = ask(case, "strict")
        if not strict.ok:
            continue
        accepted += 1
        kafka = ask(case, "kafka")
        assert kafka.ok, case["id"]
        assert {n: getattr(strict, n) for n in RESULT} == {n: getattr(kafka, n) for n in RESULT}, (
            case["id"]
        )
    assert accepted > 300


def test_what_kafka_refuses_with_a_name_strict_refuses_with_the_same_code(provider):
    for case in CASES:
        kafka = ask(case, "kafka")
        if not kafka.ok and kafka.error_code != ErrorCode.UNKNOWN_SERVER_ERROR:
            strict = ask(case, "strict")
            # the limit stops a bomb before the rule that Kafka refuses it by
            assert strict.error_code == kafka.error_code or strict.rule.id == "S8", case["id"]


def test_hostile_cases_are_accepted_or_refused_by_name(provider):
    hostile = [case for case in SAMPLE if case["family"].startswith(HOSTILE)]
    kafka_fails = 0
    for case in hostile + CASES[len(SAMPLE) :]:
        answer = ask(case, "strict")
        assert answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR, case["id"]
        assert answer.ok == (answer.error_code == ErrorCode.NONE), case["id"]
        kafka_fails += ask(case, "kafka").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(hostile) > 1000
    assert kafka_fails > 50  # these would have been -1


def _java(folder: Path, version: str) -> Path:
    """Make a JDK that only prints its version."""
    (folder / "bin").mkdir(parents=True)
    for name in ("java", "javac"):
        (folder / "bin" / name).write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.fixture
def no_jdk(monkeypatch, tmp_path):
    """Hide every JDK; return a folder for installed ones."""
    monkeypatch.setattr(oracle, "INSTALLED", (f"{tmp_path.relative_to('/')}/jvm/*/bin",))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path / "jvm"


def test_without_a_jdk_fresh_says_so(no_jdk, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fresh.py", "--seed", "7", "--cases", "10"])
    assert fresh.main() == fresh.NO_JDK
    assert capsys.readouterr().err.startswith(
        "conformance: the oracle needs a JDK, 17 or newer: no java here"
    )


def test_answers_are_those_of_a_jdk_17(no_jdk, monkeypatch):
    newer = _java(no_jdk / "a-newer", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(newer))
    assert oracle.java() == str(newer / "bin" / "java")
    with pytest.raises(oracle.OracleUnavailable, match=r"needs a JDK 17, .* is 25; install one"):
        oracle.java(answers=True)
    right = _java(no_jdk / "b-right", "17.0.15")
    _java(no_jdk / "c-old", "1.8.0_422")
    assert oracle.java(answers=True) == str(right / "bin" / "java")
    assert oracle.java() == str(newer / "bin" / "java")


@pytest.mark.jvm
@pytest.mark.long
def test_the_first_seed_makes_the_same_cases(kafka):
    kept = gzip.decompress(corpus.FILE.read_bytes()).splitlines()[: corpus.CASES]
    made = corpus.of_seed(corpus.SEEDS[0]).splitlines()
    assert [a for a, b in zip(made, kept, strict=True) if a != b] == []


@pytest.mark.jvm
@pytest.mark.slow
def test_the_command_makes_the_same_sample(kafka, tmp_path):
    corpus.write(tmp_path / "sample.jsonl.gz")
    made = gzip.decompress((tmp_path / "sample.jsonl.gz").read_bytes()).splitlines()
    kept = gzip.decompress(corpus.FILE.read_bytes()).splitlines()
    assert [a for a, b in zip(made, kept, strict=True) if a != b] == []


@pytest.mark.jvm
def test_found_cases_hold_what_kafka_says(kafka):
    lines = [json.loads(line) for line in FOUND.read_text().splitlines()]
    assert kafka.answer(lines) == lines


@pytest.mark.jvm
@pytest.mark.parametrize("seed", [7, pytest.param(109, marks=pytest.mark.long)])
def test_fresh_cases_agree(kafka, tmp_path, seed):
    file = tmp_path / "cases.jsonl.gz"
    fresh.make(seed, 500, file)
    count = fresh.Count()
    assert list(fresh.disagreements(file, count)) == []
    assert count.total.total() == 500
    assert len(count.total) == 108
    assert count.agree == count.total
    assert count.appended == count.appended_agree
    assert set(count.appended) == {"CLIENT", "COORDINATOR", "REPLICATION", "RAFT_LEADER"}
    assert min(count.appended.values()) > 30


@pytest.mark.jvm
def test_fresh_counts_what_does_not_agree(kafka, tmp_path):
    right = kafka.answer([{"id": "a", "family": "f", "cfg": {}, "batch_hex": ""}])[0]
    wrong = copy.deepcopy(right)
    wrong["expect"]["request"] = {"ok": True}
    heap = copy.deepcopy(right)
    heap["expect"]["analyze"] = {"error": "OutOfMemoryError", "code": -1}
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(case) + "\n" for case in (right, wrong, heap)))
    count = fresh.Count()
    assert (
        len(list(fresh.disagreements(file, count))) == 3
    )  # one for each provider, and the one not compared
    assert (count.total["f"], count.agree["f"], count.unanswered) == (2, 1, ["a"])
