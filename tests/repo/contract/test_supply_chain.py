"""What builds a release is pinned: actions by commit, packages by hash, images by digest. What the
workflows name exists, CI runs one script, and the hooks of pre-commit are the checks of `make lint`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.sources import ROOT
from tools import lock

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
PINNED = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
#: Permissions that a job may have, besides reading the repository.
WRITES = {
    ("wheels.yml", "provenance"): {"attestations", "id-token"},
    ("wheels.yml", "publish"): {"id-token"},
}


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def unpinned(text: str) -> list[str]:
    """Return the actions of a workflow that are not named by a commit and the version of it."""
    used = re.findall(r"^ *(?:- )?uses: *(.+?) *$", text, re.MULTILINE)
    return [one for one in used if not one.startswith("./") and not PINNED.fullmatch(one)]


def installs(text: str) -> list[str]:
    """Return the commands that install packages, one a line."""
    commands = re.split(r"\n|&&|;|\|\|", text.replace("\\\n", " "))
    pip = re.compile(r"\$\(PIP\)|\b(?:pip3?|pipx|uv pip)\b.*\b(?:install|download|wheel)\b")
    return [one.strip() for one in commands if pip.search(one) and not one.startswith("PIP :=")]


def is_pinned(command: str) -> bool:
    """Return whether a command installs by hash, or only what is here already."""
    if "--require-hashes" in command or "--no-index" in command:
        return True
    is_alone = "--no-deps" in command and "--no-build-isolation" in command
    return is_alone and (" wheel " in command or "--editable ." in command)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "uses:" in text
    assert unpinned(text) == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_may_read_and_no_more(path: Path) -> None:
    workflow = loaded(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        allowed = {"contents": "read"} | dict.fromkeys(WRITES.get((path.name, name), ()), "write")
        assert job.get("permissions", {}).items() <= allowed.items(), name
    text = path.read_text("utf-8")
    assert "secrets." not in text
    assert "pull_request_target" not in text
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_files_have_provenance_before_they_are_published() -> None:
    jobs = loaded(ROOT / ".github" / "workflows" / "wheels.yml")["jobs"]
    assert set(jobs["provenance"]["needs"]) == {"sdist", "wheels"}
    assert jobs["publish"]["needs"] == ["provenance"]
    assert "github.ref_type == 'tag'" in jobs["provenance"]["if"]
    assert jobs["publish"]["environment"]
    downloads = [jobs[name]["steps"][0] for name in ("provenance", "publish")]
    assert downloads[0] == downloads[1]
    attest = jobs["provenance"]["steps"][1]
    assert attest["uses"].startswith("actions/attest-build-provenance@")
    assert attest["with"] == {"subject-path": "dist/*"}


def shell_texts() -> Iterator[tuple[str, str]]:
    """Yield (file, commands) of what installs packages."""
    for path in WORKFLOWS:
        for job in loaded(path)["jobs"].values():
            for step in job["steps"]:
                yield path.name, step.get("run", "")
    for name in ("Makefile", ".ci/run", "deploy/Containerfile"):
        yield name, (ROOT / name).read_text("utf-8")
    wheels = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["cibuildwheel"]
    assert "--no-isolation" in wheels["build-frontend"]["args"]
    for key in ("before-build", "before-test"):
        yield f"pyproject.toml, {key}", wheels[key]
    for path in sorted((ROOT / "deploy").rglob("*.sh")):
        yield path.name, path.read_text("utf-8")


def test_packages_are_installed_by_hash() -> None:
    found = [(name, command) for name, text in shell_texts() for command in installs(text)]
    assert len(found) > 10
    assert {name for name, _ in found} >= {"wheels.yml", "Makefile", "deploy/Containerfile"}
    assert [one for one in found if not is_pinned(one[1])] == []


def test_the_base_image_is_pinned_by_digest() -> None:
    for path in [
        *(ROOT / "deploy").rglob("*ontainerfile*"),
        *(ROOT / "deploy").rglob("Dockerfile*"),
    ]:
        text = path.read_text("utf-8")
        arguments = dict(re.findall(r"^ARG (\w+)=(.+)$", text, re.MULTILINE))
        bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
        assert bases
        for base in bases:
            image = arguments.get(base.strip("${}"), base)
            assert re.search(r"@sha256:[0-9a-f]{64}$", image), (path, image)


def test_newer_versions_of_all_that_is_pinned_are_asked_for() -> None:
    updates = loaded(ROOT / ".github" / "dependabot.yml")["updates"]
    kinds = {one["package-ecosystem"]: one["directory"] for one in updates}
    assert kinds == {"github-actions": "/", "pip": "/requirements", "docker": "/deploy"}
    for one in updates:
        for glob in one.get("exclude-paths", []):
            assert list(ROOT.glob(glob)), glob


HOOKS = ROOT / ".pre-commit-config.yaml"


def steps(workflow: Any) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_files_and_targets_that_workflows_name_exist(path: Path) -> None:
    text = "\n".join(step.get("run", "") for step in steps(loaded(path)))
    assert text.strip()
    named = re.findall(r"(?:^|[\s(])((?:\.ci|tools|requirements)/[\w./-]+)", text)
    assert [name for name in named if not (ROOT / name).exists()] == []
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", text)) <= set(targets)
    modules = re.findall(r"-m ((?:tools|bench)[\w.]*)", text)
    assert [name for name in modules if not list(ROOT.glob(f"{name.replace('.', '/')}*"))] == []


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


_PIN = re.compile(
    r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(.*?)((?: *\\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE
)


def pins(name: str) -> dict[str, set[str]]:
    """Return {distribution: its versions} of a lock file; several where markers choose one."""
    found: dict[str, set[str]] = {}
    for distribution, version, _, _ in _PIN.findall(
        (lock.FOLDER / f"{name}.txt").read_text("utf-8")
    ):
        found.setdefault(canonicalize_name(distribution), set()).add(version)
    return found


@pytest.mark.parametrize("name", lock.FILES)
def test_a_lock_has_what_pyproject_asks_for(name: str) -> None:
    """Compare a lock with pyproject.toml. If this fails: make lock."""
    locked = pins(name)
    for one in map(Requirement, lock.requirements(name)):
        versions = locked.get(canonicalize_name(one.name), set())
        assert versions, one
        assert all(one.specifier.contains(version) for version in versions), one


@pytest.mark.parametrize("name", lock.FILES)
def test_every_line_is_a_pin_with_hashes(name: str) -> None:
    text = (lock.FOLDER / f"{name}.txt").read_text("utf-8")
    assert re.sub(_PIN, "", text).strip() == text.splitlines()[0]
    assert "://" not in text


def test_the_locks_agree() -> None:
    versions = pins("dev")
    for name in set(lock.FILES) - {"dev"}:
        for distribution, found in pins(name).items():
            assert found <= versions.get(distribution, found), (name, distribution)
