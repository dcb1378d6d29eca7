"""The demo keeps its promises: every damage is found whatever the seed, and its six tables fit a
terminal.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from batchval import LogValidator
from batchval.rules import Rule
from batchval.segment.check import Options, Summary, check_paths
from demo import run
from demo.attempts import attempts
from demo.damage import LOG, Damage, damaged_copy, damages
from demo.lying_sender import ACCEPTS, claimed, lie_of, lying_sender, ways
from demo.race import peer_version, race
from tests.support.sources import ROOT

SEGMENTS = ROOT / "fixtures" / "segments"


@pytest.mark.parametrize("damage", damages(), ids=lambda damage: damage.what)
def test_a_damage_is_found_and_the_copy_was_clean_before(damage: Damage, tmp_path: Path) -> None:
    before = (SEGMENTS / damage.partition / LOG).read_bytes()
    assert list(check_paths([SEGMENTS / damage.partition], Options(), Summary())) == []
    for seed in range(10):
        copy = damaged_copy(damage, SEGMENTS, tmp_path / str(seed), seed)
        found = {finding.rule.id for finding in check_paths([copy], Options(), Summary())}
        assert found & damage.rules, (seed, found)
    assert (SEGMENTS / damage.partition / LOG).read_bytes() == before


def test_the_same_seed_makes_the_same_damage(tmp_path: Path) -> None:
    for damage in damages():
        one = damaged_copy(damage, SEGMENTS, tmp_path / "one", 3)
        two = damaged_copy(damage, SEGMENTS, tmp_path / "two", 3)
        assert (one / LOG).read_bytes() == (two / LOG).read_bytes()


def test_each_attempt_gets_its_rule_and_the_first_is_accepted() -> None:
    all_attempts, now_ms = attempts(SEGMENTS)
    rules = []
    for attempt in all_attempts:
        result = LogValidator(attempt.policy).check(attempt.records, now_ms=now_ms)
        rules.append(result.rule.id if result.rule else None)
    assert rules == [attempt.rule for attempt in all_attempts]
    assert rules[0] is None
    assert None not in rules[1:]


def test_the_whole_demo_in_a_terminal_of_100_columns() -> None:
    command = [sys.executable, "-m", "demo.run", "--seed", "2", "--rounds", "1"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert [line[:2] for line in ran.stdout.splitlines() if "──" in line] == [
        "1.",
        "2.",
        "3.",
        "4.",
        "5.",
        "6.",
    ]
    assert max(map(len, ran.stdout.splitlines())) <= 100
    assert f"{len(damages())} of {len(damages())} found" in ran.stdout


def test_a_lying_sender_is_caught_and_an_honest_one_is_not() -> None:
    these = claimed(SEGMENTS)
    assert [way.paths for way in ways(these)] == [{"shallow": 32}, {"shallow": 32}, {"claims": 32}]
    caught = lying_sender(these)
    assert 0 < caught.lies_until_caught < 200
    assert caught.answer == "INVALID_RECORD by rule L7 lying-claims"
    assert (caught.demoted_path, caught.honest_path) == ("shallow", "claims")
    for batch in these.plain:
        assert (
            LogValidator(ACCEPTS)
            .check(lie_of(batch), now_ms=these.now_ms, claims=(None, "verify"))
            .rule
            is Rule.L7
        )


def test_a_broken_promise_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = damages()[0]._replace(rules=frozenset({"L7"}))
    monkeypatch.setattr(run, "damages", lambda: (wrong,))
    assert run.main(["--rounds", "1"]) == 1
    assert "This demo is wrong" in capsys.readouterr().out


def test_the_race_counts_what_it_times() -> None:
    if peer_version() is None:
        pytest.skip("aiokafka with its C extension is not installed")
    (lap,) = race([SEGMENTS / "codec-zstd-0" / LOG], rounds=1)
    assert (lap.batches, lap.records) == (8, 699)
    assert min(lap.ns.values()) > 0
