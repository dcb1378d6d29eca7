"""deploy/systemd: systemd reads the unit without a complaint, and its values fit the gate."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from batchval.proxy.settings.config import Limits
from tests.support.proxy import ScriptedBroker
from tests.system.deploy.conftest import DEPLOY, ROOT

UNIT = DEPLOY / "systemd" / "batchval-gate.service"
TEXT = UNIT.read_text("utf-8")
#: systemd's measure from 0 to 10: lower is safer.
EXPOSURE = 1.5
#: What MemoryDenyWriteExecute= does, prctl(PR_SET_MDWE), and then the command.
WITHOUT_NEW_CODE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(65, 1, 0, 0, 0):
    raise OSError(ctypes.get_errno(), "prctl(PR_SET_MDWE)")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def values(key: str) -> list[str]:
    """Return all values of a key."""
    lines = (line for line in TEXT.splitlines() if not line.startswith("#"))
    return [value for name, _, value in (line.partition("=") for line in lines) if name == key]


@pytest.fixture
def analyze(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run systemd-analyze on the unit, with a program that exists here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is needed: apt-get install systemd")
    unit = tmp_path / UNIT.name
    unit.write_text(TEXT.replace("/opt/batchval/bin/batchval", shutil.which("true") or "true"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["systemd-analyze", *words, str(unit)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    return run


def test_systemd_accepts_it(analyze: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = analyze("verify", "--man=no")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_it_is_sandboxed(analyze: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    threshold = f"--threshold={round(EXPOSURE * 10)}"
    done = analyze("security", "--offline=true", threshold, "--json=short", "--no-pager")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)
    open_ = {row["name"] for row in rows if not row["set"] and float(row["exposure"] or 0) >= 0.3}
    # it serves a network
    assert open_ <= {"PrivateNetwork=", "RestrictAddressFamilies=~AF_(INET|INET6)"}


def test_it_stops_after_the_longest_drain_and_has_files_for_all_clients() -> None:
    limits = Limits()
    (stop_s,) = values("TimeoutStopSec")
    assert int(stop_s) * 1000 >= 2 * limits.drain_timeout_ms
    (files,) = values("LimitNOFILE")
    assert int(files) >= 2 * limits.max_connections + 1000


def test_the_gate_says_when_it_is_ready(tmp_path: Path) -> None:
    assert values("Type") == ["notify"]
    path = tmp_path / "notify"
    options = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--upstream", "127.0.0.1:2"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(30)
        gate = subprocess.Popen(
            [sys.executable, "-m", "batchval", "proxy", *options],
            cwd=ROOT,
            env=os.environ | {"NOTIFY_SOCKET": str(path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert sock.recv(100) == b"READY=1"
        finally:
            gate.terminate()
            gate.wait(120)


def test_a_reload_checks_the_settings_first() -> None:
    check, reload = values("ExecReload")
    (start,) = values("ExecStart")
    assert check == f"{start} --check-config"
    assert reload == "/bin/kill -HUP $MAINPID"


def test_a_gate_runs_where_written_memory_is_never_executed(tmp_path: Path) -> None:
    assert values("MemoryDenyWriteExecute") == ["yes"]
    options = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-format", "json"]
    first = ["-c", WITHOUT_NEW_CODE] if _has_mdwe() else []
    with ScriptedBroker() as broker:
        gate = subprocess.Popen(
            [
                sys.executable,
                *first,
                "-m",
                "batchval",
                "proxy",
                *options,
                "--upstream",
                broker.address,
            ],
            cwd=ROOT,
            env=os.environ | {"STATE_DIRECTORY": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert gate.stdout is not None
        facts = json.loads(gate.stdout.readline())
        with urllib.request.urlopen(f"http://{facts['metrics']}/metrics", timeout=10) as page:
            assert b"batchval_gate_ready " in page.read()
        gate.send_signal(signal.SIGTERM)
        gate.communicate(timeout=120)
    assert gate.returncode == 0


def _has_mdwe() -> bool:
    """Return whether this kernel has PR_SET_MDWE (6.3); systemd uses seccomp on older ones."""
    release = [int(part) for part in os.uname().release.split(".")[:2]]
    return sys.platform == "linux" and release >= [6, 3]
