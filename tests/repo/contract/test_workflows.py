"""The YAML files for GitHub and pre-commit: what they run exists, and is what `make lint` runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.sources import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
HOOKS = ROOT / ".pre-commit-config.yaml"
#: programs that a runner has; those of .venv are checked by their requirement
ON_RUNNERS = {"echo", "export", "python", "python3", "bash"}


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def steps(workflow: Any) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def lost(line: str) -> list[str]:
    """Return what a command line names and this repository does not have."""
    words = shlex.split(line, comments=True)
    if not words:
        return []
    found = [word for word in words if word.endswith(".txt") and not (ROOT / word).exists()]
    if words[0] == "make":
        found += [word for word in words[1:] if "=" not in word and word not in TARGETS]
    elif words[0].startswith((".ci/", "tools/", "./")):
        found += [words[0]] if not (ROOT / words[0]).is_file() else []
    elif "/bin/" not in words[0] and words[0] not in ON_RUNNERS:
        found.append(words[0])
    if "-m" in words and (module := words[words.index("-m") + 1]).startswith(("tools.", "bench.")):
        path = ROOT / module.replace(".", "/")
        found += [module] if not (path.is_dir() or path.with_suffix(".py").is_file()) else []
    return found + [w for w in words[1:] if w.startswith("tools/") and not (ROOT / w).exists()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_commands_of_workflows_exist(path: Path) -> None:
    lines = [line for step in steps(loaded(path)) for line in step.get("run", "").splitlines()]
    assert lines
    assert [name for line in lines for name in lost(line)] == []


def test_ci_runs_one_script() -> None:
    workflow = loaded(ROOT / ".github" / "workflows" / "ci.yml")
    assert [one["run"] for one in workflow["jobs"]["ci"]["steps"] if "run" in one] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
    pythons = [
        step["with"]["python-version"]
        for step in steps(workflow)
        if "python-version" in step.get("with", {})
    ]
    assert set(pythons) == {"3.11"}


def lint_commands() -> list[str]:
    """Return what `make lint` runs, without variables and paths of the environment."""
    text = (ROOT / "Makefile").read_text("utf-8")
    recipe = text.split("\nlint:", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [plain(line.partition("  #")[0].strip()) for line in recipe]


def plain(command: str) -> str:
    words = re.sub(
        r'PATH="?[^ ]*"? |exec |\$\(VENV\)/bin/|\.venv/bin/|bash -c ', "", command.replace("'", "")
    )
    return words.replace("$(PY)", "python").removesuffix(" .")


def test_hooks_are_the_checks_of_lint() -> None:
    (repository,) = loaded(HOOKS)["repos"]
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert repository["repo"] == "local"
    # without it, each of them runs at a push, too
    assert loaded(HOOKS)["default_stages"] == ["pre-commit"]
    assert {hook["language"] for hook in hooks.values()} == {"system"}
    entries = [plain(hook["entry"]) for name, hook in hooks.items() if name != "check"]
    # figures need the branch's commits: make check asks for them at the push
    assert sorted([*entries, "python -m bench.pages --commits"]) == sorted(lint_commands())
    assert lost(hooks["check"]["entry"]) == []
