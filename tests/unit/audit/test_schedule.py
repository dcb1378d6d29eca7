"""The script of docs/guide/audit-runs.md that runs audits on a schedule."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.repo.contract.test_docs import blocks
from tests.support.sources import ROOT

SEGMENT = ROOT / "fixtures" / "segments" / "codec-none-0"


class Schedule:
    """A broker's log folder, the folder of its audits, and the script."""

    def __init__(self, place: Path) -> None:
        self.logs, self.audits, self.mails = place / "logs", place / "audits", place / "mails"
        self.audits.mkdir()
        shutil.copytree(SEGMENT, self.logs / SEGMENT.name)
        self.log = next((self.logs / SEGMENT.name).glob("*.log"))
        program = place / "bin" / "batchval"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m batchval "$@"\n')
        program.chmod(0o755)
        [text] = blocks(ROOT / "docs" / "guide" / "audit-runs.md", "sh")
        self.script = place / "audit-logs"
        self.script.write_text(text)
        self.env = os.environ | {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "LOGS": str(self.logs),
            "AUDITS": str(self.audits),
            "KEEP": "2",
            "MAILER": f"cat >> {self.mails}",
        }

    def run(self, *words: str, **env: str) -> int:
        """Run the script in a second of its own, which names the folder."""
        second = int(time.time())
        while int(time.time()) == second:
            time.sleep(0.02)
        command = ["sh", str(self.script), *words]
        environment = self.env | env
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr) == ("", "")
        return ran.returncode

    def kept(self) -> list[str]:
        """Return the audits that are kept."""
        return sorted(path.name for path in self.audits.iterdir() if path.is_dir())

    def printed(self) -> str:
        """Return the output of the last run."""
        return (self.audits / f"{self.kept()[-1]}.txt").read_text()


@pytest.fixture
def schedule(tmp_path: Path) -> Schedule:
    return Schedule(tmp_path)


@pytest.mark.long
def test_a_week(schedule: Schedule) -> None:
    """Run a healthy, a damaged, a still damaged and a repaired audit: mails come while there is
    damage.
    """
    healthy = schedule.log.read_bytes()
    assert schedule.run() == 0
    assert schedule.run() == 0
    assert "findings: 0 new, 0 open, 0 gone" in schedule.printed()
    assert not schedule.mails.exists()
    schedule.log.write_bytes(healthy[:20_000] + b"\x55" + healthy[20_001:])
    assert schedule.run() == 1
    assert "findings: 1 new, 0 open, 0 gone" in schedule.printed()
    assert schedule.run() == 1
    assert "findings: 0 new, 1 open, 0 gone" in schedule.printed()
    assert schedule.mails.read_text().count("batchval rule 14 explains the first finding") == 2
    assert len(schedule.kept()) == len(list(schedule.audits.glob("*.txt"))) == 2
    schedule.log.write_bytes(healthy)
    assert schedule.run() == 0
    assert "findings: 0 new, 0 open, 1 gone" in schedule.printed()


@pytest.mark.long
def test_runs_that_do_not_end_and_runs_that_overlap(schedule: Schedule) -> None:
    assert schedule.run() == 0
    first = schedule.kept()
    with (schedule.audits / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert schedule.run() == 0
    assert schedule.kept() == first
    assert schedule.run("--fail-on", "nonsense") == 2
    assert schedule.kept() == first
    assert "invalid --fail-on" in schedule.mails.read_text()
    cut_short = schedule.audits / "29990101T000000Z"  # a run that was killed
    cut_short.mkdir()
    (cut_short / "_batchval_audit").touch()
    assert schedule.run() == 0
    assert first[0] not in schedule.kept()
