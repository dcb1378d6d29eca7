"""The runners of conformance/ reach the verdicts of wrong checksums and of batches without
records.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from batchval.cli.runner import RuleScore, Runner, Score, run
from conformance import scores
from conformance.scores import IMPLEMENTATIONS, REPORT, main
from fixtures import batchval_fixtures

ROOT = Path(__file__).resolve().parents[3]
RUNNER = ROOT / "conformance" / "runners" / "python_reader.py"


def without_records() -> list[batchval_fixtures.Case]:
    """Return the cases of whole batches that hold no record."""
    found = [case for case in batchval_fixtures.cases("reader") if case.records == 0]
    assert len(found) == 3
    return found


@pytest.mark.parametrize("library", ["kafka-python", "aiokafka"])
def test_python_readers(library: str) -> None:
    cases = [*batchval_fixtures.cases("reader", rules=["14", "15"]), *without_records()]
    text = "".join(f"{json.dumps(case.question)}\n" for case in cases)
    ran = subprocess.run(
        [sys.executable, RUNNER, library], input=text, capture_output=True, text=True, check=True
    )
    verdicts = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(one["id"], one["accept"], one.get("records")) for one in verdicts] == [
        (case.id, case.accept, case.records) for case in cases
    ]


@pytest.mark.slow  # builds with Maven and Go: a minute of CPU on a bare machine
@pytest.mark.parametrize("name", ["kafka-clients", "franz-go", "sarama", "librdkafka"])
def test_other_readers(name: str) -> None:
    """Checksums of magic 2. Kafka's consumer does not check that of a wrapper of magic 0 or 1."""
    cases = [case for case in batchval_fixtures.cases("reader", rules=["14"]) if case.magic == 2]
    score = scored(name, [*cases, *without_records()])
    # librdkafka aborts at one of them; after a batch without records that ends at offset 0 it stays
    few = int(name == "librdkafka")
    assert (score.wrong, score.failed, score.skipped) == (few, few, 0)


@pytest.mark.slow
def test_the_log_validator_of_a_broker() -> None:
    """Checksums. Appends of followers do not reach LogValidator."""
    cases = list(batchval_fixtures.cases("broker", rules="14"))
    skipped = sum(case.append["origin"] in ("REPLICATION", "RAFT_LEADER") for case in cases)
    score = scored("LogValidator", cases)
    assert (score.wrong, score.failed, score.skipped) == (0, 0, skipped)


def scored(name: str, cases: list[batchval_fixtures.Case]) -> RuleScore:
    """Build the runner of an implementation and return its score of these cases."""
    (one,) = [one for one in IMPLEMENTATIONS if one.name == name]
    score = Score(one.profile)
    list(run(Runner(one.command(), 20.0), [case.document for case in cases], score))
    return score.total


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "sarama", "--write"), "--write cannot be combined with --only"),
        (("--only", "samara"), "invalid --only 'samara': expected one of kafka-clients, "),
    ],
)
def test_what_cannot_be_scored(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["scores", *words])
    with pytest.raises(SystemExit):
        main()
    assert message in capsys.readouterr().err


def test_a_codec_that_is_missing_scores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "find_spec", lambda name: None if name == "xxhash" else name)
    (one,) = [one for one in IMPLEMENTATIONS if one.name == "kafka-python"]
    with pytest.raises(SystemExit, match="xxhash is missing"):
        one.command()


def test_the_page_has_the_score_of_each_implementation() -> None:
    rows = [line for line in REPORT.read_text("utf-8").splitlines() if line.startswith("| ")]
    for one in IMPLEMENTATIONS:
        row = f"| {one.name} {one.version} | {one.language} | {one.profile} | "
        assert sum(line.startswith(row) for line in rows) == 1, row
