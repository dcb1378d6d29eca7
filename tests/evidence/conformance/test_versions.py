"""The versions before 4.4: each against the classes of its own release, and all against the table.

samples     fixtures/corpus/kafka-VERSION.jsonl.gz, written by corpus.py --kafka-version VERSION
"""

import gzip
import json
from collections import Counter
from typing import get_args

import pytest

from batchval.cli.cases import STAGES, compare, policy_of, read_cases
from batchval.core.batches.validator import LogValidator
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS, KafkaVersionName
from batchval.policy import TopicPolicy
from tests.evidence.conformance import corpus, fresh, oracle

OLDER = list(corpus.VERSION_FILES)
SAMPLES = {version: list(read_cases([file])) for version, file in corpus.VERSION_FILES.items()}


def append(case, mode):
    """Return the answer of the whole append for the version of the case."""
    cfg = case["cfg"]
    return LogValidator(policy_of(cfg), mode=mode, kafka_version=case["kafka_version"]).validate(
        case["batch"],
        now_ms=cfg.get("now", 0),
        produce_version=cfg.get("produce_version", 9),
        leader_epoch=cfg.get("leader_epoch", 0),
        to_magic=cfg.get("to_magic", 2),
        first_offset=cfg.get("first_offset", 0),
    )


def by_clients(cases):
    """Return the cases in which a client appends and the codec is the batch's own."""
    return [
        c
        for c in cases
        if c["cfg"].get("origin", "CLIENT") == "CLIENT" and c["cfg"].get("source", "auto") == "auto"
    ]


def test_every_version_has_an_oracle_and_a_sample():
    assert list(oracle.KAFKA_VERSIONS) == list(KAFKA_VERSIONS)
    assert list(get_args(KafkaVersionName)) == list(KAFKA_VERSIONS)
    assert oracle.DEFAULT_KAFKA_VERSION == DEFAULT_KAFKA_VERSION
    assert [*OLDER, DEFAULT_KAFKA_VERSION] == list(KAFKA_VERSIONS)


@pytest.mark.parametrize("version", OLDER)
def test_the_sample_is_of_this_version(version):
    families = Counter(case["family"] for case in SAMPLES[version])
    assert {case["kafka_version"] for case in SAMPLES[version]} == {version}
    assert len(families) == (104 if version == "3.9" else 103)
    assert families["stated_length"] > 40
    assert (families["produce_v0_v2"] > 40) == (
        KAFKA_VERSIONS[version].first_checked_produce_version > 0
    )
    assert corpus.VERSION_FILES[version].stat().st_size < 200_000


@pytest.mark.parametrize("version", OLDER)
def test_our_answers_are_those_of_this_version(version, provider):
    assert [str(found) for case in SAMPLES[version] for found in compare(case)] == []


@pytest.mark.parametrize(("version", "other"), [("3.9", "4.1"), ("3.9", "4.4"), ("4.1", "4.4")])
def test_another_version_answers_otherwise(version, other):
    """Find cases of the sample for each table column that distinguishes two versions."""
    differing = Counter(
        found.stage
        for case in SAMPLES[version]
        for found in compare(case | {"kafka_version": other})[:1]
    )
    rows = KAFKA_VERSIONS[version], KAFKA_VERSIONS[other]
    versions_differ = rows[0].first_checked_produce_version != rows[1].first_checked_produce_version
    lengths_differ = rows[0].checks_record_length != rows[1].checks_record_length
    assert (differing["request"] > 10) == versions_differ
    assert (differing["validate"] > 10) == lengths_differ


@pytest.mark.parametrize("version", OLDER)
def test_a_whole_append_ends_as_in_kafka(version, provider):
    cases = by_clients(SAMPLES[version])
    answers = [(case["id"], int(append(case, "kafka").error_code)) for case in cases]
    assert answers == [(case["id"], case["expect"]["final_code"]) for case in cases]


@pytest.mark.parametrize("version", OLDER)
def test_what_strict_accepts_this_version_accepts(version, provider):
    accepted = Counter()
    for case in by_clients(SAMPLES[version]):
        strict = append(case, "strict")
        assert strict.error_code != -1
        if not strict.ok:
            continue
        assert case["expect"]["final_code"] == 0, case["id"]
        assert strict.output == append(case, "kafka").output, case["id"]
        accepted[case["family"]] += 1
    assert accepted.total() > 30
    assert (accepted["produce_v0_v2"] > 10) == (version == "3.9")


@pytest.mark.parametrize("version", OLDER)
def test_a_length_that_no_array_has_is_compared(version):
    answers = [case["expect"][stage] for case in SAMPLES[version] for stage in STAGES]
    assert sum(answer.get("cause") == "array_too_long" for answer in answers) > 3
    assert not any(fresh.out_of_memory(case) for case in SAMPLES[version])


def test_without_a_version_a_case_is_of_the_default():
    case = next(read_cases([corpus.FILE]))
    assert case["kafka_version"] == DEFAULT_KAFKA_VERSION


def test_an_unknown_version_has_no_oracle():
    with pytest.raises(oracle.OracleFailed, match=r"3\.9, 4\.1, 4\.4, not of 2\.8"):
        oracle.jar("2.8")


@pytest.mark.jvm
@pytest.mark.long
@pytest.mark.parametrize("version", OLDER)
def test_fresh_cases_agree(kafka, tmp_path, version):
    file = tmp_path / "cases.jsonl.gz"
    fresh.make(19, 400, file, version)
    count = fresh.Count()
    assert list(fresh.disagreements(file, count)) == []
    assert count.total.total() + len(count.unanswered) == 400
    assert count.agree == count.total


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("version", OLDER)
def test_the_command_makes_the_same_sample(kafka, version):
    kept = gzip.decompress(corpus.VERSION_FILES[version].read_bytes()).splitlines()
    made = corpus.of_version(version).splitlines()
    assert [a for a, b in zip(made, kept, strict=True) if a != b] == []


@pytest.mark.jvm
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_the_table_has_the_defaults_of_kafka(kafka, version):
    lines = oracle.run("topic-keys", kafka_version=version).splitlines()
    defaults = {key["name"]: key["default"] for key in map(json.loads, lines)}
    row = KAFKA_VERSIONS[version]
    policy = TopicPolicy.from_kafka_config({}, kafka_version=version)
    assert int(defaults["message.timestamp.after.max.ms"]) == row.message_timestamp_after_max_ms
    assert int(defaults["message.timestamp.after.max.ms"]) == policy.message_timestamp_after_max_ms
    assert (
        int(defaults["message.timestamp.before.max.ms"]) == policy.message_timestamp_before_max_ms
    )
    assert int(defaults["max.message.bytes"]) == policy.max_message_bytes
    assert ("max.decompressed.message.bytes" in defaults) == row.checks_record_length
    if row.checks_record_length:
        assert int(defaults["max.decompressed.message.bytes"]) == row.largest_record
    assert (row.timestamp_bounds == "before and after") == (
        "message.timestamp.before.max.ms" in defaults
    )
    assert row.compression_levels == ("compression.zstd.level" in defaults)


@pytest.mark.jvm
def test_the_oracle_refuses_a_case_of_another_version(kafka):
    case = {"id": "a", "family": "f", "cfg": {}, "batch_hex": "", "kafka_version": "4.1"}
    (answered,) = kafka.answer([case])
    assert answered["kafka_version"] == "4.1"
    with pytest.raises(oracle.OracleFailed, match=r"case a asks Kafka 4\.1, this oracle is 4\.4"):
        oracle.run("answer", "-", "-", stdin=json.dumps(case).encode() + b"\n")
