"""Test the imports of the command line: help and completion need click and options only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from batchval.cli import cli
from batchval.cli.commands import Commands

ROOT = Path(__file__).parents[3]
HEAVY = (
    "numpy",
    "rich",
    "asyncio",
    "pyarrow",
    "pyspark",
    "pydantic",
    "uvloop",
    "concurrent",
    "multiprocessing",
)
#: modules of batchval that `batchval --help` may import
LISTING = {
    "batchval",
    "batchval.__main__",
    "batchval.cli",
    "batchval.cli.commands",
    "batchval.cli.exit",
}
_PROGRAM = """
import sys
from batchval.cli import main
sys.argv = ["batchval", *sys.argv[1:]]
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def imported_by(*words: str, **variables: str) -> tuple[str, set[str]]:
    """Return (standard output, modules) of a run in a separate process."""
    command = [sys.executable, "-c", _PROGRAM, *words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | variables,
        check=False,
        timeout=60,
    )
    return done.stdout, set(done.stderr.split())


def heavy(modules: set[str]) -> set[str]:
    return {
        name
        for name in modules
        if name.partition(".")[0] in HEAVY or name.startswith("batchval.core")
    }


def test_help_imports_click_and_no_command() -> None:
    """Check that, beyond the modules of `import click`, only those that lay out a page are
    imported.
    """
    plain = subprocess.run(
        [sys.executable, "-c", "import sys, click, batchval.cli\nprint(*sys.modules)"],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    out, modules = imported_by("--help")
    assert "\n  check " in out
    assert {name for name in modules if name.startswith("batchval")} <= LISTING
    new = {
        name for name in modules - set(plain.stdout.split()) if not name.startswith(("_", "click."))
    }
    assert new <= {"shutil", "bz2", "lzma", "zlib", "fnmatch", "textwrap", "locale"}


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the words of every command and group."""
    found = []
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            found.append((*path, name))
            if isinstance(command, click.Group):
                found += commands(command, (*path, name))
    return found


def test_there_are_these_commands() -> None:
    assert {words[0] for words in commands()} == {
        "audit", "check", "claims", "conformance", "dump", "perf", "proxy", "rule",
    }  # fmt: skip
    assert {words[1] for words in commands() if words[0] == "perf" and len(words) > 1} == {
        "compare", "consume", "merge", "mock", "produce", "roundtrip",
    }  # fmt: skip


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_help_of_a_command_imports_no_engine(words: tuple[str, ...]) -> None:
    out, modules = imported_by(*words, "--help")
    assert out.startswith(f"Usage: batchval {' '.join(words)}")
    assert heavy(modules) == set()


def test_producing_at_will_needs_no_numpy() -> None:
    """Check imports: numpy takes as long as all the rest, and starts threads that spin."""
    limit = ["--command-property", "max.block.ms=1"]
    run = ["--num-records", "1", "--record-size", "1", "--throughput", "-1", *limit]
    _, modules = imported_by(
        "perf", "produce", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", *run
    )
    assert "batchval.producer.producer" in modules
    assert "numpy" not in modules


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("batchval ch", "plain,check"),
        ("batchval check --js", "plain,--json"),
        ("batchval perf com", "plain,compare"),
        ("batchval rule crc", "plain,crc-mismatch"),
        ("batchval rule L", "plain,L1"),
        ("batchval claims ver", "plain,verify"),
    ],
)
def test_completion_imports_no_engine(typed: str, expected: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    out, modules = imported_by(_BATCHVAL_COMPLETE="bash_complete", **words)
    assert out.splitlines()[0] == expected
    assert heavy(modules) == set()
    if len(typed.split()) == 2:
        assert {name for name in modules if name.startswith("batchval")} <= LISTING


def test_rule_imports_no_engine() -> None:
    out, modules = imported_by("rule", "14")
    assert out.startswith("14 crc-mismatch")
    assert heavy(modules) == set()


def test_check_of_a_file_without_findings_imports_no_table() -> None:
    out, modules = imported_by("check", "fixtures/segments/rolled-0")
    assert out.endswith("0 findings\n")
    assert {name.partition(".")[0] for name in modules} & {"rich", "asyncio", "pyarrow"} == set()
    assert "numpy" in modules


def test_every_command_of_a_table_has_a_module_and_a_help() -> None:
    for words in [(), ("perf",)]:
        group: click.Command = cli
        with click.Context(cli) as ctx:
            for word in words:
                assert isinstance(group, click.Group)
                found = group.get_command(ctx, word)
                assert found is not None
                group = found
            assert isinstance(group, Commands)
            for name, (_, short) in group.COMMANDS.items():
                command = group.get_command(ctx, name)
                assert command is not None
                assert command.name == name
                assert short.endswith(".")
                assert len(short) <= 65, "a help of 80 columns shows it in one line"


def cpu_seconds(*command: str) -> float:
    """Return the least CPU time of several runs, in seconds."""
    times = []
    for _ in range(7):
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, cwd=ROOT)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times)


@pytest.mark.alone
def test_help_and_import_are_light() -> None:
    """Check the targets of 6 and 3 times: measured 5.4 (click alone 4.5) and 1.2 on a busy
    machine.
    """
    nothing = cpu_seconds("-c", "pass")
    assert cpu_seconds("-m", "batchval", "--help") <= 9 * nothing
    assert cpu_seconds("-c", "import batchval") <= 3 * nothing
