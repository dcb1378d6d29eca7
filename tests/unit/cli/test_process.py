"""The command as a process: pipes that close, Ctrl-C, terminals, and what --version and --help
say.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import batchval
from batchval import compression
from batchval.core.format import crc32c
from tests.support.batches import batch, record

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "batchval"]
SEGMENTS = ROOT / "fixtures" / "segments"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write half a million findings: more than any pipe holds, and some seconds of work."""
    path = tmp_path_factory.mktemp("large") / "large.bin"
    bad = batch([record(0, attributes=1)])
    path.write_bytes(bad * 500_000)
    return path


@pytest.mark.parametrize(
    "words",
    [["check", "--json"], ["dump"], ["dump", "--json", "--records"]],
    ids=["check", "dump", "dump-json"],
)
def test_a_reader_that_goes_away(large: Path, words: list[str]) -> None:
    with subprocess.Popen(
        [*COMMAND, *words, str(large)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.readline()) > 50
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == -signal.SIGPIPE


def test_a_reader_that_is_gone_before_the_first_line() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "check", str(SEGMENTS)],
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        check=False,
        timeout=120,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def await_open(pid: int, path: Path) -> None:
    """Wait until a process has a file open: it has started, and reads."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if fd.readlink() == path:
                    return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} did not open {path}")


@pytest.mark.parametrize("words", [["check", "--json"], ["check"], ["dump"]], ids=" ".join)
def test_ctrl_c(large: Path, words: list[str]) -> None:
    with subprocess.Popen(
        [*COMMAND, *words, str(large)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        if words == ["check"]:
            await_open(process.pid, large)  # prints nothing before its end
        else:
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.strip() == f"batchval {words[0]}: interrupted".encode()


def on_terminal(words: list[str], columns: int, stdout: int | None = None) -> tuple[int, str]:
    """Return (exit code, text of the terminal) with stderr, and by default stdout, on a
    terminal.
    """
    main, second = pty.openpty()
    fcntl.ioctl(second, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")} | {
        "TERM": "xterm-256color"
    }
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdout=second if stdout is None else stdout,
        stderr=second,
        stdin=second,
        cwd=ROOT,
        env=env,
    )
    os.close(second)
    shown = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(main)
    return process.wait(120), shown.decode()


ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.parametrize("columns", [40, 80, 100, 160, 250])
def test_the_table_fits_the_terminal(columns: int) -> None:
    code, shown = on_terminal(["check", "fixtures/segments/live-preallocated-0"], columns)
    assert code == 0
    assert "\x1b[" in shown  # colour or at least bold heads
    table = ESCAPE.sub("", shown).replace("\r", "\n").splitlines()
    lines = [line.rstrip() for line in table if line.strip() and "━" not in line]
    assert lines[-1].startswith("1 file, 8 batches, 15 records")
    assert all(len(line) <= columns for line in lines[:-2] if not line.startswith("fixtures"))
    assert lines[-2] == "batchval rule L1 explains the first finding"
    text = "".join("".join(line.split()) for line in lines)
    assert "L1partial-batch" in text
    assert "6,539zerobytestotheend" in text
    if columns != 160:  # there the path is folded between its digits
        assert "00000000000000000000.log" in text


@pytest.mark.long
def test_a_progress_bar_on_a_terminal_only(tmp_path: Path) -> None:
    path = str(SEGMENTS / "codec-gzip-0")
    with (tmp_path / "out").open("wb") as out:
        code, shown = on_terminal(["check", path], 100, out.fileno())
    assert code == 0
    assert "━" in shown
    assert (tmp_path / "out").read_text().startswith("1 file, 8 batches")
    done = subprocess.run([*COMMAND, "check", path], capture_output=True, cwd=ROOT, check=True)
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout
    # JSON lines on the same terminal are not run through
    code, shown = on_terminal(["check", "--json", path], 100)
    assert "━" not in shown
    assert shown.startswith("{")


def test_version(run: Run) -> None:
    code, out, err = run("--version")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == f"batchval {batchval.__version__}"
    assert f"CRC-32C kernel: {crc32c.kernel()}" in lines[2]
    assert lines[3] == f"codec provider: {compression.provider()}"
    assert [line.split()[0] for line in lines[4:]] == list(compression.describe())


def test_version_names_the_provider_that_was_forced(run_apart: Run) -> None:
    code, out, _ = run_apart("--version", env=os.environ | {"BATCHVAL_CODECS": "packages"})
    assert code == 0
    assert "codec provider: packages" in out


def test_a_wrong_provider_is_one_line(run_apart: Run, tmp_path: Path) -> None:
    code, _, err = run_apart("check", SEGMENTS, env=os.environ | {"BATCHVAL_CODECS": "fast"})
    assert (code, err) == (
        2,
        "batchval check: BATCHVAL_CODECS must be one of native, packages, not 'fast'\n",
    )


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["check", "-h"], ["dump", "--help"], ["conformance", "-h"]]
)
def test_help(run: Run, words: list[str]) -> None:
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: batchval")
    assert all(len(line) <= 100 for line in out.splitlines())


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    code, out, err = run()
    assert code == 2
    assert "check" in out + err
    assert "conformance" in out + err


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_output_encoding(run_apart: Run, tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "日本.log"
    path.write_bytes(b"\xff" * 100)
    env = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    assert run_apart("check", path, env=env, errors="replace")[0] == 1
    assert run_apart("dump", path, env=env, errors="replace")[0] == 1


def test_a_full_disk_is_exit_3(run_apart: Run) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "check", str(SEGMENTS)],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            check=False,
            text=True,
        )
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1


def test_no_command_at_all() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: batchval")
    assert "\n  check " in done.stderr
