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


def test_a_run_takes_the_place_of_the_one_of_its_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.pages, "REPORTS", tmp_path)
    path = tmp_path / "runs.md"
    path.write_text("# Runs\n\n<!-- figures:start -->\n<!-- figures:end -->\n\nAfter.\n", "utf-8")
    tables = [{"headings": ["target", "findings"], "rows": [["a", 0]]}]
    for title, day in (("Seed 1", 1), ("Seed 2", 2), ("Seed 1", 3)):
        run = {"date": f"2026-01-0{day}", "machine": {"commit": "0123abcd"}}
        reports.save("runs", run | {"title": title, "tables": tables})
    text = path.read_text("utf-8")
    assert text.startswith("# Runs\n\n<!-- figures:start -->\n\n### Seed 1\n\n2026-01-03, commit")
    assert text.endswith("<!-- figures:end -->\n\nAfter.\n")
    assert list(reports.sections(text)) == ["Seed 1", "Seed 2"]
    assert "2026-01-01" not in text
    assert reports.rows("runs")[0] == ["target", "findings"]
    assert reports.commits() == [("runs.md", "0123abcd")] * 2


def test_measured_reports_name_commits() -> None:
    assert {name for name, _ in reports.commits()} == {
        *("conformance-scores.md", "coverage.md", "hostile-runs.md", "mutants.md"),
    }
