"""The page of each command has all its options, and the shells' completion is documented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from batchval.cli import cli

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli"
#: {command: its pages}
PAGES = {
    "audit": ("audit",),
    "check": ("check",),
    "claims": ("dump",),
    "conformance": ("conformance",),
    "dump": ("dump",),
    "perf": ("perf", "perf-roundtrip"),
    "proxy": ("proxy",),
    "rule": ("README",),
}


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command that is not a group, with the words that call it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


OPTIONS = [
    (path, max(option.opts, key=len))
    for path, command in commands(cli)
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
]


@pytest.mark.parametrize(
    ("path", "option"), OPTIONS, ids=lambda value: value if isinstance(value, str) else value[-1]
)
def test_an_option_is_on_the_page_of_its_command(path: tuple[str, ...], option: str) -> None:
    text = "\n".join((FOLDER / f"{name}.md").read_text("utf-8") for name in PAGES[path[0]])
    assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), f"{' '.join(path)} {option}"


def test_each_command_has_a_page() -> None:
    assert {path[0] for path, _ in OPTIONS} == set(PAGES)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_documented(shell: str) -> None:
    assert f"_BATCHVAL_COMPLETE={shell}_source" in (FOLDER / "README.md").read_text("utf-8")
