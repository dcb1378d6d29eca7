"""Each report of a run names its command, its date and its commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bench.pages
from bench.pages import reports

REPORTS = sorted((Path(__file__).resolve().parents[2] / "docs" / "reports").glob("*.md"))
COMMAND = re.compile(r"`(?:make|python|batchval) [^`]+`")
DATE = re.compile(r"\b\d{1,2} [A-Z][a-z]+ 20\d\d\b|\b20\d\d-\d\d-\d\d\b")
COMMIT = re.compile(r"commit `?[0-9a-f]{7,40}`?")


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_report_names_command_date_and_commit(report: Path) -> None:
    text = report.read_text("utf-8")
    assert COMMAND.search(text)
    assert DATE.search(text)
    assert COMMIT.search(text)


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_the_paragraph_of_each_date_names_a_commit(report: Path) -> None:
    paragraphs = report.read_text("utf-8").split("\n\n")
    dated = [one for one in paragraphs if DATE.search(one)]
    assert [one for one in dated if not COMMIT.search(one)] == []


def test_a_run_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    monkeypatch.setattr(bench.pages, "check_commit", checked.append)
    found = reports.here()
    assert DATE.fullmatch(found["date"])
    assert set(found["machine"]) == {"processor", "system", "python", "commit"}
    assert [one["commit"] for one in checked] == [found["machine"]["commit"]]
