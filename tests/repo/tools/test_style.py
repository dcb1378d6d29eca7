"""tools/style.py: long lines of files, and subjects of commits."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from tools import style as tool

STYLE = tool.Style.read()


def found(name: str, source: str) -> list[str]:
    return list(tool.check_lines(STYLE, name, source))


@pytest.mark.parametrize("name", ["a.pyx", "a.md", "A.java", "a.h"])
def test_a_hundred_columns(name: str) -> None:
    line = ("word " * 40)[:99] + "x"
    assert found(name, line + "\n") == []
    assert found(name, f"\n{line}x\n") == [f"{name}:2: 101 columns: at most 100"]


def test_lines_that_cannot_be_broken_pass() -> None:
    assert found("a.md", "| a | " + "b " * 80 + "|\n") == []
    assert found("a.py", "# https://kafka.apache.org/" + "x" * 100 + "\n") == []
    assert found("a.md", "- https://kafka.apache.org/" + "x" * 100 + "\n") == []
    assert found("a.py", "# " + "x " * 60 + " style: allow(columns)\n") == []


class Repository:
    """A git repository with one commit, ``base``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "a")
        self.git("config", "user.email", "a@example.com")
        self.write("old.py", "x = 1\n")
        self.commit("first: a base that is older than the rules " + "x" * 40)
        self.base = self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True
        ).stdout

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def commit(self, subject: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)

    def findings(self, root: Path | None = None, **changes: object) -> list[str]:
        style = dataclasses.replace(STYLE, **{"subjects_since": self.base, **changes})  # type: ignore[arg-type]
        return list(tool.check(style, root or self.root))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")


def test_a_folder_may_have_as_many_long_lines_as_are_recorded(repository: Repository) -> None:
    repository.write(".gitignore", "ignored.py\n")
    repository.write("ignored.py", f"x = {'1 + ' * 30}1\n")
    repository.write("part/a.py", f"x = {'1 + ' * 30}1\n" * 2)  # git does not know it yet
    assert repository.findings(long_lines={"part": 2}) == []
    assert repository.findings(long_lines={"part": 1}) == [
        "part/a.py:1: 125 columns: at most 100",
        "part/a.py:2: 125 columns: at most 100",
        "part: 2 long lines: at most 1 in tools/style.toml",
    ]


def test_long_subjects_are_found(repository: Repository, tmp_path: Path) -> None:
    repository.write("a.txt", "1")
    repository.commit("proxy: " + "x" * 65)
    assert repository.findings() == []
    for text in "23":
        repository.write("a.txt", text)
        repository.commit("proxy: " + text * 66)
    later, earlier = repository.findings()
    assert "a subject of 73 characters: at most 72: proxy: 33" in later
    assert "proxy: 22" in earlier
    # a shallow clone does not have the base: its last subject is checked
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", repository.root.as_uri(), str(clone)], check=True
    )
    (what,) = repository.findings(clone)
    assert "proxy: 33" in what
