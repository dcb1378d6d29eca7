"""The tests hold on any machine: signals that the caller ignores, and CPU time in one unit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import calibration
from tests.support.caller import restore_signals, settle_environment

ROOT = Path(__file__).parents[2]

#: Ignores and blocks all that can be, then becomes another program.
IGNORANT = """
import os, signal, sys
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
#: Restores, and prints what it ignores and blocks, and then what a program has that it starts.
RESTORED = """
import signal, subprocess, sys
from tests.support.caller import restore_signals

if len(sys.argv) == 1:
    restore_signals()
ignored = {n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN}
print(*sorted(map(int, ignored)), *signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, *sys.orig_argv[1:3], "again"], check=True)
    signal.raise_signal(signal.SIGHUP)
    print("goes on")
"""


def ignorant(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with every signal ignored and blocked."""
    return subprocess.run(
        [sys.executable, "-c", IGNORANT, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_what_the_caller_ignores_or_blocks_is_restored() -> None:
    done = ignorant("-c", RESTORED)
    own, passed_on, end = done.stdout.splitlines()
    terminal = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    pythons = {signal.SIGPIPE, signal.SIGXFSZ}
    assert set(map(int, own.split())) == set(map(int, passed_on.split())) == terminal | pythons
    assert (end, done.stderr) == ("goes on", "")


def test_an_ordinary_start_is_left_alone() -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    restore_signals()
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_pytest_restores_them_before_any_test() -> None:
    test = "tests/cli/test_termination.py::test_a_signal_takes_effect_at_the_end_of_the_block"
    done = ignorant("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", test)
    assert done.returncode == 0, done.stdout


def test_the_environment_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    inherited = {"COLUMNS": "37", "FORCE_COLOR": "1", "LC_NUMERIC": "tr_TR", "LANG": "C"}
    inherited |= {
        "no_proxy": "example.org",
        "http_proxy": "http://127.0.0.1:9",
        "TZ": "Asia/Kolkata",
    }
    monkeypatch.setattr(os, "environ", dict(inherited))
    settle_environment()
    settle_environment()  # the processes of pytest-xdist, too
    assert os.environ == {
        "http_proxy": "http://127.0.0.1:9",
        "TZ": "Asia/Kolkata",
        "LC_ALL": "C.UTF-8",
        "LANG": "C.UTF-8",
        "no_proxy": "example.org,localhost,127.0.0.1,::1",
        "NO_PROXY": "localhost,127.0.0.1,::1",
    }


def test_a_slower_machine_takes_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow down clock and calibration alike: the figure stays. The clock here is none of CPU."""
    now = [0.0]
    machine = [1.0]

    def spend(seconds: float) -> None:
        now[0] += seconds * machine[0]

    monkeypatch.setattr(calibration, "fixed_work", lambda: spend(calibration.REFERENCE_S))
    monkeypatch.setattr(calibration, "time", SimpleNamespace(thread_time=lambda: now[0]))
    for machine[0] in (0.5, 1.0, 3.0):
        assert calibration.slowness() == pytest.approx(machine[0])
        found = calibration.cpu_s(lambda: spend(0.25), clock=lambda: now[0])
        assert found == pytest.approx(0.25)
        with calibration.Watch() as watch:
            pass
        assert watch.slowness() == pytest.approx(machine[0])
