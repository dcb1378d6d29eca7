"""Each public name is on an API page of the site, with its signature and its docstring, and the page
of each command has all its options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import batchval
from batchval.cli import cli
from tools import site_api

PAGES = site_api.pages()
ALL = "\n".join(PAGES.values())
PUBLIC = [name for name in batchval.__all__ if name != "__version__"]
PACKAGES = ("custom_rules", "spark", "producer", "fetch")
INDEX = (site_api.ROOT / "docs" / "reference" / "api" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    "name", [*PUBLIC, *(one for package in PACKAGES for one in site_api.exported(package))]
)
def test_each_public_name_is_on_one_page(name: str) -> None:
    assert ALL.count(f"\n## {name}\n") == 1


@pytest.mark.parametrize(
    "name", [*batchval.__all__, *(f"batchval.{package}" for package in PACKAGES)]
)
def test_the_index_names_it(name: str) -> None:
    assert f"`{name}`" in INDEX or f"`batchval.{name}`" in INDEX


def test_a_method_of_a_compiled_class_has_signature_and_docstring() -> None:
    section = (
        PAGES["reference/api/validator.md"].split("### LogValidator.check\n")[1].split("\n###")[0]
    )
    assert "    now_ms: int | None=None,\n" in section
    assert ") -> ValidationResult\n" in section
    assert "Nothing is written." in section


def test_the_import_of_a_name_works() -> None:
    imports = {line for line in ALL.splitlines() if line.startswith("from batchval")}
    assert "from batchval import LogValidator" in imports
    assert "from batchval.custom_rules import CustomRule" in imports
    assert not any(line.startswith("from batchval.core") for line in imports)


def test_most_of_what_is_listed_is_described() -> None:
    heads = [
        part for part in ALL.split("\n## ")[1:] if "TypeAlias" not in part and "Final" not in part
    ]
    bare = [
        part.split("\n")[0]
        for part in heads
        if not part.replace("```python", "").split("```\n")[2:]
    ]
    assert bare == []


FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli"
#: {command: its pages}
PAGES_OF_COMMANDS = {
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
    text = "\n".join(
        (FOLDER / f"{name}.md").read_text("utf-8") for name in PAGES_OF_COMMANDS[path[0]]
    )
    assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), f"{' '.join(path)} {option}"


def test_each_command_has_a_page() -> None:
    assert {path[0] for path, _ in OPTIONS} == set(PAGES_OF_COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_documented(shell: str) -> None:
    assert f"_BATCHVAL_COMPLETE={shell}_source" in (FOLDER / "README.md").read_text("utf-8")
