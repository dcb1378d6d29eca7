"""Standard streams that are closed at the start: nothing else gets their numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OPENED = """
import os, sys
from batchval.cli.exit import open_closed_streams
open_closed_streams()
print("dropped")
print("dropped", file=sys.stderr)
number = os.open("/", os.O_RDONLY)
opened = [os.readlink(f"/proc/self/fd/{one}") for one in range(3)]
os.write(3, repr((opened, number, [os.get_inheritable(one) for one in range(3)])).encode())
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_closed_streams_are_opened(closed: tuple[int, ...], tmp_path: Path) -> None:
    others = "".join(
        f" {one}{'<' if one == 0 else '>'}{tmp_path}/{one}" for one in range(3) if one not in closed
    )
    ends = "".join(f" {one}>&-" for one in closed)
    for one in range(3):
        (tmp_path / str(one)).touch()
    command = f'exec "$0" -c "$1" 3>{tmp_path}/result{others}{ends}'
    subprocess.run(["sh", "-c", command, sys.executable, OPENED], check=True, timeout=60)
    files = ["/dev/null" if one in closed else str(tmp_path / str(one)) for one in range(3)]
    assert (tmp_path / "result").read_text() == repr((files, 4, [True] * 3))


def test_a_command_without_standard_output_ends_as_ever() -> None:
    command = 'exec "$0" -m batchval rule 14 <&- >&-'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], check=False, stderr=subprocess.PIPE, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_standard_input_that_is_closed_is_named() -> None:
    command = 'exec "$0" -m batchval check - <&-'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input is closed: expected a pipe or a file" in done.stderr
