"""The fuzzer's claims target, for a few thousand cases, and that it would see what it looks for."""

from __future__ import annotations

import pytest

from tests.evidence.hostile import claims
from tests.evidence.hostile.targets import TARGETS, Run, replay


def run(executions: int) -> Run:
    found = Run(120, 8364, executions=executions)
    TARGETS["claims"](found)
    return found


def test_nothing_is_found() -> None:
    done = run(6000)
    assert done.executions >= 6000
    assert done.findings == []


def test_a_lie_called_honest_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_is_true", lambda stated, true: False)
    findings = run(4000).findings
    assert any("a lie is called honest" in what for finding in findings for what in finding["what"])
    assert replay(findings[0])
    monkeypatch.undo()
    assert replay(findings[0]) == []


def test_another_answer_on_trust_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_is_true", lambda stated, true: True)
    found = [what for finding in run(1500).findings for what in finding["what"]]
    assert any("the truth is called a lie" in what for what in found)
    assert any("without claims" in what and "trusted" in what for what in found)


def test_other_figures_at_rest_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "FIGURES", ("header", "records", "sample", "sample"))
    found = [what for finding in run(1500).findings for what in finding["what"]]
    assert any("at rest" in what for what in found)
