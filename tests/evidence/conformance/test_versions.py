"""The releases other than 4.4.0: each against its own classes, and all against the table.

samples     fixtures/corpus/kafka-RELEASE.jsonl.gz, written by corpus.py --kafka-version RELEASE
found       found-releases.jsonl, cases in which we once differed from the release they name
"""

import gzip
import json
from collections import Counter
from itertools import pairwise

import pytest

from batchval.cli.cases import STAGES, compare, policy_of, read_cases
from batchval.core.batches.validator import LogValidator
from batchval.kafka_versions import (
    DEFAULT_KAFKA_VERSION,
    KAFKA_VERSIONS,
    RELEASES,
    changes_of,
    find_release,
)
from batchval.policy import TopicPolicy
from tests.evidence.conformance import corpus, fresh, oracle, releases

OTHERS = list(corpus.RELEASE_FILES)
SAMPLES = {release: list(read_cases([file])) for release, file in corpus.RELEASE_FILES.items()}
FOUND = list(read_cases([releases.FOUND_OF_RELEASES]))
#: CI builds these oracles and that of the newest; all others are for the nightly job
IN_CI = ("2.8.2", "3.9.2", "4.1.2")
ASKED = [
    pytest.param(release, marks=pytest.mark.long if release in IN_CI else pytest.mark.slow)
    for release in OTHERS
]
#: one release of each row
OF_ROWS = {find_release(release).row.name: release for release in OTHERS}
#: the stage whose answer a column changes; the others change defaults, or nothing in this table
IN_STAGE = {
    "first_checked_produce_version": "request",
    "checks_order_at_once": "analyze",
    "checks_record_length": "validate",
    "sums_record_fields": "validate",
    "refuses_cut_records": "validate",
    "bounds_header_counts": "validate",
    "keeps_delete_horizon": "validate",
    "refuses_append_time": "validate",
    "rebuilds_empty_batches": "validate",
    "knows_magic_0_has_no_time": "validate",
    "drops_newer_epochs": "append",
    "asks_marker_versions": "append",
    "measures_markers": "append",
}


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


def test_each_end_of_each_range_has_an_oracle():
    """Find an oracle in the first and in the last minor version of each row."""
    for row in KAFKA_VERSIONS:
        of_row = [a for a in oracle.RELEASES if find_release(a).row.name == row]
        ranges = [one for one in RELEASES if one.row == row and one.is_published]
        for one in (ranges[0], ranges[-1]):
            assert one.last in of_row or [a for a in of_row if a[:4] == one.first[:4]]
    assert set(OF_ROWS) == set(KAFKA_VERSIONS)
    assert oracle.DEFAULT_RELEASE == DEFAULT_KAFKA_VERSION == oracle.RELEASES[-1]
    assert [*OTHERS, DEFAULT_KAFKA_VERSION] == list(oracle.RELEASES)


@pytest.mark.parametrize("release", OTHERS)
def test_the_sample_is_of_this_release(release):
    row = find_release(release).row
    families = Counter(case["family"] for case in SAMPLES[release])
    assert {case["kafka_version"] for case in SAMPLES[release]} == {release}
    has_old_requests = row.first_checked_produce_version > 0
    assert len(families) == 108 + (not row.checks_record_length) + has_old_requests
    assert (families["stated_length"] > 40) != row.checks_record_length
    assert (families["produce_v0_v2"] > 40) == has_old_requests
    assert families["append_producers"] > 40
    assert corpus.RELEASE_FILES[release].stat().st_size < 200_000


@pytest.mark.parametrize("release", OTHERS)
def test_our_answers_are_those_of_this_release(release, provider):
    assert [str(found) for case in SAMPLES[release] for found in compare(case)] == []


@pytest.mark.parametrize(("row", "other"), list(pairwise(KAFKA_VERSIONS)))
def test_the_row_before_answers_otherwise(row, other):
    """Find cases of either for the columns in which two successive rows differ."""
    asked = [case | {"kafka_version": row} for case in SAMPLES[OF_ROWS[other]]]
    asked += [case | {"kafka_version": other} for case in SAMPLES[OF_ROWS[row]]]
    asked += [
        case | {"kafka_version": other}
        for case in FOUND
        if find_release(case["kafka_version"]).row.name == row
    ]
    differing = Counter(stage for case in asked for stage in {one.stage for one in compare(case)})
    changed = {IN_STAGE[column] for column in changes_of(other) if column in IN_STAGE}
    assert changed
    assert changed <= set(differing)
    assert ("request" in differing) == ("request" in changed)


def test_what_was_found_stays_repaired(provider):
    assert [str(found) for case in FOUND for found in compare(case)] == []


@pytest.mark.parametrize("release", OTHERS)
def test_a_whole_append_ends_as_in_kafka(release, provider):
    cases = by_clients(SAMPLES[release])
    answers = [(case["id"], int(append(case, "kafka").error_code)) for case in cases]
    assert answers == [(case["id"], answered(case["expect"])) for case in cases]


def answered(expect):
    """Return the code of the stages, or of the log, which asks of producers after all of them."""
    return expect["final_code"] or expect["append"].get("code", 0)


@pytest.mark.parametrize("release", OTHERS)
def test_what_strict_accepts_this_release_accepts(release, provider):
    accepted = Counter()
    for case in by_clients(SAMPLES[release]):
        strict = append(case, "strict")
        assert strict.error_code != -1
        if not strict.ok:
            continue
        assert case["expect"]["final_code"] == 0, case["id"]
        assert strict.output == append(case, "kafka").output, case["id"]
        accepted[case["family"]] += 1
    assert accepted.total() > 30
    assert (accepted["produce_v0_v2"] > 10) == release.startswith(("2.", "3."))


@pytest.mark.parametrize("release", OTHERS)
def test_a_length_that_no_array_has_is_compared(release):
    answers = [case["expect"][stage] for case in SAMPLES[release] for stage in STAGES]
    limited = find_release(release).row.checks_record_length
    assert limited != (sum(answer.get("cause") == "array_too_long" for answer in answers) > 3)
    assert not any(fresh.out_of_memory(case) for case in SAMPLES[release])


def test_without_a_version_a_case_is_of_the_default():
    case = next(read_cases([corpus.FILE]))
    assert case["kafka_version"] == DEFAULT_KAFKA_VERSION


@pytest.mark.parametrize("release", ["2.8", "2.7.2", "4.4", "newest"])
def test_a_release_without_an_oracle_is_refused(release):
    with pytest.raises(oracle.OracleFailed, match=r"needs a full release of 2\.8\.0 or newer"):
        oracle.jar(release)


def test_no_id_stands_for_two_cases():
    """Compare the ids of all cases that lie in the repository."""
    files = [corpus.FILE, *corpus.RELEASE_FILES.values()]
    ids = Counter(
        case["id"] for case in read_cases([*files, releases.FOUND, releases.FOUND_OF_RELEASES])
    )
    assert [one for one, count in ids.items() if count > 1] == []
    assert len(ids) > 7000


@pytest.mark.jvm
@pytest.mark.parametrize("release", ASKED)
def test_fresh_cases_agree(kafka, tmp_path, release):
    file = tmp_path / "cases.jsonl.gz"
    fresh.make(19, 400, file, release)
    count = fresh.Count()
    assert list(fresh.disagreements(file, count)) == []
    assert count.total.total() + len(count.unanswered) == 400
    assert count.agree == count.total


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("release", oracle.RELEASES)
def test_every_case_of_the_repository_agrees(kafka, release):
    """Ask each release what all others were asked, and the golden cases."""
    asked = list(releases.kept(release))
    assert len(asked) > 8000
    assert [str(found) for case in asked for found in compare(case)] == []


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("release", OTHERS)
def test_the_command_makes_the_same_sample(kafka, release):
    kept = gzip.decompress(corpus.RELEASE_FILES[release].read_bytes()).splitlines()
    made = corpus.of_release(release).splitlines()
    assert [a for a, b in zip(made, kept, strict=True) if a != b] == []


@pytest.mark.jvm
@pytest.mark.parametrize("release", [*ASKED, DEFAULT_KAFKA_VERSION])
def test_the_table_has_the_defaults_of_kafka(kafka, release):
    lines = oracle.run("topic-keys", release=release, jvm=oracle.QUICK).splitlines()
    defaults = {key["name"]: key["default"] for key in map(json.loads, lines)}
    row = find_release(release).row
    policy = TopicPolicy.from_kafka_config({}, kafka_version=release)
    has_one_bound = "message.timestamp.before.max.ms" not in defaults
    assert has_one_bound == (row.timestamp_bounds == "difference")
    before, after = (
        int(defaults[f"message.timestamp.{'difference' if has_one_bound else side}.max.ms"])
        for side in ("before", "after")
    )
    assert after == row.message_timestamp_after_max_ms == policy.message_timestamp_after_max_ms
    assert before == policy.message_timestamp_before_max_ms
    assert int(defaults["max.message.bytes"]) == policy.max_message_bytes
    assert ("max.decompressed.message.bytes" in defaults) == row.checks_record_length
    if row.checks_record_length:
        assert int(defaults["max.decompressed.message.bytes"]) == row.largest_record
    assert row.compression_levels == ("compression.zstd.level" in defaults)


@pytest.mark.jvm
def test_the_oracle_refuses_a_case_of_another_release(kafka):
    case = {"id": "a", "family": "f", "cfg": {}, "batch_hex": "", "kafka_version": "4.1.2"}
    (answered,) = kafka.answer([case])
    assert answered["kafka_version"] == "4.1.2"
    refused = r"case a asks Kafka 4\.1\.2, this oracle is 4\.4\.0"
    with pytest.raises(oracle.OracleFailed, match=refused):
        oracle.run("answer", "-", "-", stdin=json.dumps(case).encode() + b"\n")


@pytest.mark.jvm
@pytest.mark.slow
def test_the_command_of_a_release_names_its_row(kafka, capsys):
    """Ask of two releases that the table has: the last patch of a range, and one before it."""
    for release, row in (("4.2.1", "4.2.0"), ("4.2.2", "4.2.2")):
        assert releases.main([release, "--cases", "600"]) == 0
        assert f"Kafka {release} belongs to the row {row}" in capsys.readouterr().out
