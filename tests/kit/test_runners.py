"""The runners of conformance/ reach the verdicts of sound batches and of wrong checksums."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from batchval.cli.runner import Runner
from batchval.cli.scores import Score, run
from conformance.scores import DATA, IMPLEMENTATIONS, REPORT, page
from fixtures import batchval_fixtures

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "conformance" / "runners" / "python_reader.py"


@pytest.mark.parametrize("library", ["kafka-python", "aiokafka"])
def test_python_readers(library: str) -> None:
    cases = list(batchval_fixtures.cases("reader", rules=["14", "15"]))
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
    (one,) = [one for one in IMPLEMENTATIONS if one.name == name]
    cases = [case for case in batchval_fixtures.cases("reader", rules=["14"]) if case.magic == 2]
    score = Score("reader")
    list(run(Runner(one.command(), 20.0), [case.document for case in cases], score))
    # librdkafka aborts at one of them, which fails
    assert (score.total.wrong, score.total.failed) == (0, int(name == "librdkafka"))


def test_the_page_of_scores_is_that_of_the_report() -> None:
    report = json.loads(DATA.read_text("utf-8"))
    assert REPORT.read_text("utf-8") == page(report)
    assert [(one["name"], one["version"]) for one in report["scores"]] == [
        (one.name, one.version) for one in IMPLEMENTATIONS
    ]
