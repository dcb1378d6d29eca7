"""Each public name is on an API page of the site, with its signature and its docstring, and the page
of each command has all its options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import griffe
import pytest

import batchval
from batchval.cli import cli
from tests.support.sources import ROOT
from tools.site_docstrings import SiteDocstrings

API = ROOT / "docs" / "reference" / "api"
INDEX = (API / "README.md").read_text("utf-8")
#: what mkdocstrings shows, by its pages
LISTED = [
    name
    for path in sorted(API.glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", path.read_text("utf-8"), re.MULTILINE)
]
PUBLIC = [f"batchval.{name}" for name in batchval.__all__ if name != "__version__"]
PACKAGES = ("custom_rules", "spark", "producer", "fetch")
SHOWN = griffe.load(
    "batchval",
    search_paths=[ROOT],
    extensions=griffe.load_extensions(SiteDocstrings),
    allow_inspection=False,
    resolve_aliases=True,
)


def exported(package: str) -> list[str]:
    """Return the names that a package exports, as a user imports them."""
    return [f"batchval.{package}.{name}" for name in SHOWN[package].exports]


def shown(name: str) -> griffe.Object | griffe.Alias:
    """Return what the site shows of a name."""
    return SHOWN[name.removeprefix("batchval.")]


@pytest.mark.parametrize(
    "name", [*PUBLIC, *(one for package in PACKAGES for one in exported(package))]
)
def test_each_public_name_is_on_one_page(name: str) -> None:
    assert LISTED.count(name) == 1


@pytest.mark.parametrize(
    "name", [*batchval.__all__, *(f"batchval.{package}" for package in PACKAGES)]
)
def test_the_index_names_it(name: str) -> None:
    assert f"`{name}`" in INDEX or f"`batchval.{name}`" in INDEX


def test_a_method_of_a_compiled_class_has_signature_and_docstring() -> None:
    method = shown("batchval.LogValidator.check")
    assert "now_ms: int | None = None, " in method.signature()
    assert str(method.returns) == "ValidationResult"
    assert method.docstring is not None
    assert "Nothing is written." in method.docstring.value


def test_the_import_of_a_name_works() -> None:
    assert "batchval.LogValidator" in LISTED
    assert "batchval.custom_rules.CustomRule" in LISTED
    assert not any(name.startswith("batchval.core") for name in LISTED)


@pytest.mark.parametrize("name", LISTED)
def test_what_is_listed_is_described(name: str) -> None:
    found = shown(name)
    is_named = str(getattr(found, "annotation", "")) in {"Final", "TypeAlias"}
    assert found.has_docstring or found.attributes or is_named


def test_signatures_have_no_private_aliases() -> None:
    methods = [method for name in LISTED for method in shown(name).functions.values()]
    types = [str(one.annotation) for method in methods for one in method.parameters]
    assert len(types) > 200
    assert [one for one in types if re.search(r"\b_[A-Z]", one)] == []


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
