"""``perf mock``, and the command of docs/reference/cli/perf.md that needs no broker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli" / "perf.md"
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
}
MOCK = [sys.executable, "-m", "batchval", "perf", "mock"]


def documented() -> str:
    section = PAGE.read_text("utf-8").split("\n## Without a broker\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return str(block)


@pytest.mark.long
@pytest.mark.parametrize("client", ["batchval", "librdkafka"])
def test_the_command_of_the_page_sends_and_reads(client: str) -> None:
    block = documented()
    if client != "batchval":
        block = re.sub(r"(perf (?:produce|consume))", rf"\1 --client {client}", block)
    done = subprocess.run(
        ["sh", "-c", block],
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("40000 records sent, ") for line in lines)
    row = lines[-1].split(", ")
    assert [row[2], row[4]] == ["3.8147", "40000"]
    assert int(row[6]) >= 2_900  # a group was joined, for which the mock cluster waits 3 s


def test_the_command_has_the_addresses_and_its_exit_code_is_kept() -> None:
    done = subprocess.run(
        [*MOCK, "--brokers", "2", "sh", "-c", "echo $BOOTSTRAP; exit 7"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert re.fullmatch(r"127\.0\.0\.1:\d+,127\.0\.0\.1:\d+\n", done.stdout)


def test_a_command_that_ends_by_a_signal_or_cannot_be_run() -> None:
    killed = subprocess.run(
        [*MOCK, "sh", "-c", "kill -USR1 $$"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert killed.returncode == 128 + signal.SIGUSR1
    missing = subprocess.run(
        [*MOCK, "no-such-command"], check=False, capture_output=True, text=True, timeout=60
    )
    assert missing.returncode == 2
    assert "cannot run 'no-such-command': No such file or directory" in missing.stderr


@pytest.mark.parametrize("command", [[], ["sh", "-c", "echo $BOOTSTRAP; exec sleep 100"]])
def test_sigterm_ends_it_and_its_command(command: list[str]) -> None:
    with subprocess.Popen(
        [*MOCK, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert re.fullmatch(r"127\.0\.0\.1:\d+\n", running.stdout.readline())
        running.terminate()
        running.communicate(timeout=60)  # the pipes end with the command
    assert running.returncode != 0
