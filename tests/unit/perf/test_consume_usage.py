"""Wrong use of ``batchval perf consume``: one line, exit code 2, and nothing is asked of any
broker.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchval.cli.perf_consume import command

NEEDED = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--num-records", "1"]


def consume(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "batchval", "perf", "consume", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"TZ": "UTC"},
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "Missing option '--bootstrap-server'."),
        (NEEDED[:2], "Missing option '--topic' or '--include'."),
        (NEEDED[:4], "Missing option '--num-records'."),
        (
            [*NEEDED, "--include", "x.*"],
            "--topic cannot be combined with --include: use one of them",
        ),
        ([*NEEDED[:2], *NEEDED[4:], "--include", "x("], "--include 'x(': "),
        ([*NEEDED, "--reporting-interval", "0"], "Reporting interval must be greater than 0."),
        ([*NEEDED, "--reporting-interval", "-5"], "Reporting interval must be greater than 0."),
        ([*NEEDED, "--threads", "0"], "Invalid value for '--threads'"),
        ([*NEEDED, "--threads", "many"], "Invalid value for '--threads'"),
        ([*NEEDED, "--num-records", "-1"], "Invalid value for '--num-records'"),
        ([*NEEDED, "--num-records", "9" * 30], "Invalid value for '--num-records'"),
        ([*NEEDED, "--timeout", "-1"], "unknown option '-1'"),
        ([*NEEDED, "--timeout", "soon"], "Invalid value for '--timeout'"),
        ([*NEEDED, "--timeout", "9" * 19], "Invalid value for '--timeout'"),
        ([*NEEDED, "--fetch-size", "0"], "Invalid value for '--fetch-size'"),
        ([*NEEDED, "--fetch-size", str(2**31)], "Invalid value for '--fetch-size'"),
        ([*NEEDED, "--socket-buffer-size", str(2**31)], "Invalid value for '--socket-buffer-size'"),
        ([*NEEDED, "--date-format", "yyyy bb"], "'yyyy bb': letter b is not known"),
        (
            [*NEEDED, "--decode", "headers", "--client", "librdkafka"],
            "--decode headers needs --client batchval",
        ),
        ([*NEEDED, "--client", "sarama"], "Invalid value for '--client'"),
        ([*NEEDED, "--command-property", "no-equals-sign"], "'no-equals-sign' is not NAME=VALUE"),
        (
            [*NEEDED, "--bootstrap-server", "localhost"],
            "invalid server 'localhost': expected host:port",
        ),
        (
            [*NEEDED, "--bootstrap-server", "a:99999"],
            "invalid server 'a:99999': expected host:port",
        ),
        (
            [*NEEDED, "--num-record", "1"],
            "unknown option '--num-record', did you mean --num-records?",
        ),
    ],
)
def test_one_line_and_exit_code_2(options: list[str], complaint: str) -> None:
    done = consume(*options)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert complaint in line


def test_timeout_without_a_value_is_kafkas_default() -> None:
    """As in the proposal, whose option has an optional argument."""
    arguments = [*NEEDED, "--timeout", "--hide-header"]
    context = command.make_context("consume", arguments)
    assert (context.params["timeout"], context.params["hide_header"]) == (10_000, True)
    context = command.make_context("consume", [*NEEDED, "--timeout", "7"])
    assert context.params["timeout"] == 7


def test_a_file_of_properties_that_is_not_there(tmp_path: Path) -> None:
    done = consume(*NEEDED, "--command-config", str(tmp_path / "none.properties"))
    assert done.returncode == 3
    place = tmp_path / "none.properties"
    assert done.stderr == f"batchval perf consume: {place}: No such file or directory\n"


@pytest.mark.parametrize("option", ["--output", "--report"])
def test_a_place_where_nothing_can_be_written(tmp_path: Path, option: str) -> None:
    done = consume(*NEEDED, option, str(tmp_path / "none" / "r"))
    assert done.returncode == 3
    place = tmp_path / "none" / "r"
    assert done.stderr == f"batchval perf consume: {place}: No such file or directory\n"
    assert done.stdout == ""


def test_librdkafka_judges_names_of_its_own() -> None:
    done = consume(*NEEDED, "--client", "librdkafka", "--command-property", "no.such.thing=1")
    assert done.returncode == 2
    assert (
        done.stderr
        == 'batchval perf consume: librdkafka: No such configuration property: "no.such.thing"\n'
    )


def test_the_help_names_every_option() -> None:
    done = consume("--help")
    assert done.returncode == 0
    for name in (
        *(
            "bootstrap-server",
            "topic",
            "include",
            "num-records",
            "threads",
            "client",
            "decode",
            "group",
            "from-latest",
        ),
        *(
            "fetch-size",
            "socket-buffer-size",
            "check-crcs",
            "timeout",
            "show-detailed-stats",
            "reporting-interval",
        ),
        *(
            "hide-header",
            "date-format",
            "print-metrics",
            "command-property",
            "command-config",
            "json",
            "output",
            "report",
        ),
        *("messages", "broker-list", "num-fetch-threads", "consumer.config"),
    ):
        assert f"--{name} " in done.stdout, name
