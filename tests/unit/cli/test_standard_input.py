"""``-`` and /dev/stdin: pipes and files on standard input, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.batches import batch, records

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "batchval"]
GOOD = batch(records(3), base_offset=7)


def piped(data: bytes, *words: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command with data in a pipe."""
    return subprocess.run(
        [*COMMAND, *words],
        input=data,
        capture_output=True,
        cwd=ROOT,
        timeout=60,
        check=False,
        **more,
    )  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_segment_in_a_pipe_is_judged_as_one(name: str) -> None:
    done = piped(GOOD, "check", name)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (
        done.stdout.decode() == f"1 file, 1 batch, 3 records, {len(GOOD)} B (1 full): 0 findings\n"
    )


def test_the_profile_can_be_chosen() -> None:
    done = piped(GOOD, "check", "--as", "produce", "--json", "-")
    finding = json.loads(done.stdout.splitlines()[0])
    assert (done.returncode, finding["rule"], finding["file"]) == (1, "10", "-")


def test_more_than_a_pipe_holds() -> None:
    done = piped(
        GOOD * 5_000, "check", "--json", "--as", "produce", "--config", "max.message.bytes=10", "-"
    )
    assert json.loads(done.stdout.splitlines()[-1])["batches"] == 5_000


def test_a_file_on_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(GOOD)
    with path.open("rb") as file:
        done = subprocess.run(
            [*COMMAND, "check", "-"], stdin=file, capture_output=True, cwd=ROOT, check=False
        )
    assert (done.returncode, done.stdout.split()[0]) == (0, b"1")


def test_dump() -> None:
    done = piped(GOOD + GOOD[:20], "dump", "--json", "-")
    first, second = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (1, b"")
    assert (first["file"], first["base_offset"], first["records_count"]) == ("-", 7, 3)
    assert (second["type"], second["damage"]) == ("damage", "partial")


def test_among_files(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(GOOD)
    done = piped(GOOD, "dump", "-", str(path), "-")
    assert [line.split()[0] for line in done.stdout.decode().splitlines()] == [
        "file=-",
        f'file="{path}"',
    ]


def test_the_copy_is_removed(tmp_path: Path) -> None:
    env = os.environ | {"TMPDIR": str(tmp_path)}
    assert piped(GOOD[:30], "check", "-", env=env).returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_empty_input_is_clean() -> None:
    done = piped(b"", "check", "-")
    assert (done.returncode, done.stdout) == (0, b"1 file, 0 batches, 0 records, 0 B: 0 findings\n")


@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_terminal_is_wrong_usage(command: str) -> None:
    main, second = os.openpty()
    done = subprocess.run(
        [*COMMAND, command, "-"],
        stdin=second,
        capture_output=True,
        cwd=ROOT,
        text=True,
        check=False,
    )
    os.close(main)
    os.close(second)
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input is a terminal: expected a pipe or a file" in done.stderr
    assert len(done.stderr.splitlines()) == 1
