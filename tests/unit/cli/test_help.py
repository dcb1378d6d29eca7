"""Help, examples, and what is printed for a word that is not known."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import click
import pytest

from batchval.cli import cli
from batchval.cli.commands import Command, Group

Run = Callable[..., tuple[int, str, str]]


def explained(
    command: click.Command = cli, path: str = "batchval"
) -> Iterator[tuple[str, click.Command]]:
    """Yield every command and group, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for name in command.list_commands(ctx):
                found = command.get_command(ctx, name)
                assert found is not None
                yield from explained(found, f"{path} {name}")


ALL = dict(explained())


@pytest.mark.parametrize("path", ALL)
def test_every_help_ends_with_examples_that_fit(run: Run, path: str) -> None:
    code, out, err = run(*path.split()[1:], "--help")
    assert (code, err) == (0, "")
    assert all(len(line) <= 100 for line in out.splitlines())
    examples = out.partition("\nExamples:\n")[2].splitlines()
    assert 2 <= len(examples) <= 4
    for example in examples:
        assert f"{path} " in f"{example} "


@pytest.mark.parametrize("path", ALL)
def test_the_examples_are_right_usage(path: str) -> None:
    command = ALL[path]
    assert isinstance(command, Command | Group)
    for example in command.examples:
        words = shlex.split(
            example.rpartition(" | batchval ")[2].removeprefix("batchval ").partition(" | ")[0]
        )
        found: click.Command = cli
        while isinstance(found, click.Group):
            with click.Context(found) as ctx:
                found = found.get_command(ctx, words.pop(0)) or pytest.fail(example)
        found.make_context(example, words)  # raises UsageError


@pytest.mark.parametrize("path", ALL)
def test_a_file_without_permission_is_not_wrong_usage(path: str) -> None:
    """Check that click does not ask os.access first: its error has exit code 2, and the files that
    can be read are not.
    """
    paths = [one.type for one in ALL[path].params if isinstance(one.type, click.Path)]
    assert not any(one.readable for one in paths)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("chek",),
            "batchval: unknown command 'chek', did you mean check? Commands: audit, check, ",
        ),
        (
            ("version",),
            "batchval: unknown command 'version', did you mean --version? Commands: audit, check, ",
        ),
        (("frobnicate",), "batchval: unknown command 'frobnicate'. Commands: audit, check, "),
        (
            ("perf", "prodcue"),
            "batchval perf: unknown command 'prodcue', did you mean produce? Commands: compare, ",
        ),
        (
            ("claims", "verfy"),
            "batchval claims: unknown command 'verfy', did you mean verify? Commands: attach, ",
        ),
        (
            ("check", "--jsn", "x"),
            "batchval check: unknown option '--jsn', did you mean --json? (see batchval check ",
        ),
        (
            ("--verison",),
            "batchval: unknown option '--verison', did you mean --version? (see batchval --help)",
        ),
        (
            ("check", "--now"),
            "batchval check: Option '--now' requires an argument. (see batchval check --help)",
        ),
        (
            ("perf", "produce", "--seed"),
            "batchval perf produce: Option '--seed' requires an argument. (see batchval perf ",
        ),
        (("dump",), "batchval dump: Missing argument 'PATH…'. (see batchval dump --help)"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(
    run: Run, words: tuple[str, ...], complaint: str
) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(complaint)
    assert err.endswith(" --help)\n")
    assert len(err.splitlines()) == 1


def test_the_short_option_of_the_version(run: Run) -> None:
    assert run("-V") == run("--version")
