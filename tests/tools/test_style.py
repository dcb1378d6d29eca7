"""Test tools/style.py: the findings in files and commit subjects, and the legal uses."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from tools import style as tool

STYLE = tool.Style.read()


def found(name: str, source: str) -> list[str]:
    return [finding.what for finding in tool.check_lines(STYLE, name, source)]


def words(name: str, source: str) -> list[str]:
    return [what.split("'")[1] for what in found(name, source)]


# ---- words in text ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The door opens.", "door"),
        ("Houses of records", "house"),
        ("rooms share a floor", "room"),
        ("the short way to a validator", "short way"),
        ("Each lane has a queue", "lane"),
        ("the books of a sender", "books"),
        ("it has no credits left", "credit"),
        ("a liar lies", "liar"),
        ("it knocks once", "knock"),
        ("as it was told", "told"),
        ("What the header said", "said"),
        ("the given batch", "given"),
        ("Behind that follows a CRC", "behind"),
        ("beside the header", "beside"),
        ("whoever calls", "whoever"),
        ("until that is mended", "mend"),
        ("a count is no index", "is no"),
        ("what is not a record is a message", "what is not"),
    ],
)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.py", '"""{}"""\n'),
        ("a.py", "x = 1  # {}\n"),
        ("a.py", 'raise ValueError("{}")\n'),
        ("a.pyx", "cdef int x  # {}\n"),
        ("a.pxd", "# {}\n"),
        ("a.pyi", "'''{}'''\n"),
        ("a.md", "{}\n"),
        ("A.java", "/** {} */\n"),
        ("a.c", "int x; // {}\n"),
        ("a.h", 'char *x = "{}";\n'),
    ],
)
def test_each_word_is_found(name: str, form: str, text: str, word: str) -> None:
    assert words(name, form.format(text)) == [word]


@pytest.mark.parametrize(
    "text",
    [
        "It is no longer there",
        "given that the count is 3",
        "a client behind a proxy",
        "clients behind the load balancer",
        "the consumer falls behind",
        "there is room for one more record",
        "recommended, amended, a laneway, creditable, doorstep, unknown",
        "ClickHouse and a warehouse",
        "see `core/behind.pyx` and ``behind``",
        "batchval.core.behind says so",
    ],
)
@pytest.mark.parametrize(
    ("name", "form"), [("a.py", '"""{}"""\n'), ("a.md", "{}\n"), ("a.c", "// {}\n")]
)
def test_legal_uses_pass(name: str, form: str, text: str) -> None:
    assert found(name, form.format(text)) == []


def test_a_line_can_allow_a_word() -> None:
    assert found("a.md", "The room <!-- style: allow(room) -->\n") == []
    assert words("a.py", "# The room behind it  style: allow(room)\n") == ["behind"]
    assert found("a.py", "# The room behind it  style: allow(room, behind)\n") == []


def test_code_in_markdown_is_not_prose() -> None:
    assert found("a.md", "text\n```\nprint(behind)\n```\n") == []
    assert words("a.md", "text\n```\nx\n```\nthe door\n") == ["door"]


def test_a_placeholder_of_a_message_is_a_name() -> None:
    assert found("a.py", 'x = f"size {behind} bytes"\n') == []
    assert words("a.py", 'x = f"a room of {size} bytes"\n') == ["room"]


# ---- words in names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("said_before = 1", "said"),
        ("class CreditBook:", "credit"),
        ("def test_it_is_no_index():", "is no"),
        ("toldOnce(x)", "told"),
        ('kind = "whoever_asks"', "whoever"),
    ],
)
def test_new_names_with_a_word_are_found(code: str, word: str) -> None:
    (what,) = found("a.py", code + "\n")
    assert what.startswith(f"the word {word!r} in the name ")


def test_names_that_the_project_has_may_be_used() -> None:
    source = "from a.behind import given\nx = sender.behind\n"
    assert found("a.py", source) == []


# ---- columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a.pyx", "a.pxd", "a.md", "A.java", "a.c", "a.h", "a.py", "a.pyi"]
)
def test_a_hundred_columns(name: str) -> None:
    start = {"py": "# ", "pyx": "# ", "pyi": "# ", "pxd": "# ", "md": ""}.get(
        name.rpartition(".")[2], "// "
    )
    line = (start + "word " * 40)[:100].rstrip("w ").ljust(100, "x")
    assert found(name, line + "\n") == []
    assert found(name, line + "x\n") == ["101 columns: at most 100"]


def test_a_docstring_that_starts_with_a_name_is_text() -> None:
    assert found("a.py", '"""\n``now_ms`` ' + "is a time " * 10 + '\n"""\n') == [
        "111 columns: at most 100"
    ]


def test_lines_that_cannot_be_broken_pass() -> None:
    assert found("a.md", "| a | " + "b " * 80 + "|\n") == []
    assert found("a.py", "# https://kafka.apache.org/" + "x" * 100 + "\n") == []
    assert found("a.md", "- https://kafka.apache.org/" + "x" * 100 + "\n") == []
    assert found("a.py", "# " + "x " * 60 + " style: allow(columns)\n") == []


# ---- files and commits -----------------------------------------------------------------------------


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
        return [str(finding) for finding in tool.check(style, root or self.root)]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")


def test_every_file_is_checked_committed_or_not(repository: Repository) -> None:
    assert repository.findings() == []
    repository.write("old.py", "x = 1\n# a new door\n")
    expected = "old.py:2: the word 'door': see the style rules in tools/style.toml"
    assert repository.findings() == [expected]  # before it is committed
    repository.commit("old: a new line")
    repository.write("new.py", "# a house\n")  # and a file that git does not know
    repository.write(".gitignore", "ignored.py\n")
    repository.write("ignored.py", "# a house\n")
    assert repository.findings() == [
        "new.py:1: the word 'house': see the style rules in tools/style.toml",
        expected,
    ]


def test_deleted_and_binary_files_are_passed_over(repository: Repository) -> None:
    (repository.root / "old.py").unlink()
    (repository.root / "binary.py").write_bytes(b"\xff\xfe\0door")
    assert repository.findings() == []


def test_a_folder_may_have_as_many_long_lines_as_are_recorded(repository: Repository) -> None:
    repository.write("part/a.py", f"x = {'1 + ' * 30}1\n" * 2)
    assert repository.findings(long_lines={"part": 2}) == []
    assert repository.findings(long_lines={"part": 1}) == [
        "part/a.py:1: 125 columns: at most 100",
        "part/a.py:2: 125 columns: at most 100",
        "part: 2 long lines: at most 1 in tools/style.toml",
    ]


def test_files_that_still_have_words_are_checked_for_columns_only(repository: Repository) -> None:
    repository.write("part/a.py", f"door = {'1 + ' * 30}1\n")
    found_there = repository.findings(unwritten=("part/*",))
    assert [finding.partition(": ")[0] for finding in found_there] == ["part/a.py:1", "part"]


def test_long_subjects_are_found(repository: Repository) -> None:
    repository.write("a.txt", "1")
    repository.commit("proxy: " + "x" * 65)
    assert repository.findings() == []
    repository.write("a.txt", "2")
    repository.commit("proxy: " + "x" * 66)
    (what,) = repository.findings()
    assert "a subject of 73 characters: at most 72" in what


def test_a_shallow_clone_has_its_last_subject_checked(
    repository: Repository, tmp_path: Path
) -> None:
    for n in range(2):
        repository.write("a.txt", str(n))
        repository.commit(f"commit {n} " + "x" * 70)
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", repository.root.as_uri(), str(clone)], check=True
    )
    (what,) = repository.findings(clone)
    assert "commit 1" in what


def test_outside_a_repository_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert list(tool.check(STYLE, tmp_path)) == []


def test_every_name_of_the_list_is_used() -> None:
    used: set[str] = set()
    for _, source in tool.files(STYLE, tool.ROOT):
        used.update(STYLE.identifiers & set(re.findall(r"\w+", source)))
    assert used == STYLE.identifiers


# ---- wrapping --------------------------------------------------------------------------------------


def wrapped(name: str, source: str) -> str:
    result = tool.wrap(STYLE, name, source)
    assert "".join(result.split()).replace("#", "") == "".join(source.split()).replace("#", "")
    assert max(map(len, result.split("\n"))) <= 100 or "x " * 60 in result
    return result


WORDS = "word " * 30


def test_comments_and_docstrings_are_wrapped() -> None:
    assert (
        wrapped("a.py", f"    # {WORDS.strip()}\n")
        == f"    # {('word ' * 19).strip()}\n    # {('word ' * 11).strip()}\n"
    )
    result = wrapped("a.py", f'def f():\n    """{WORDS.strip()}."""\n')
    assert result.split("\n")[2:] == [f"    {('word ' * 12).strip()}.", '    """', ""]


def test_the_rest_goes_to_the_next_line_of_the_paragraph() -> None:
    result = wrapped("a.md", f"{WORDS.strip()} end\ngoes on\n\n- {WORDS.strip()}\n- next\n")
    assert result.split("\n")[1:3] == ["word " * 10 + "end goes on", ""]
    assert result.split("\n")[4:6] == ["  " + ("word " * 11).strip(), "- next"]


def test_the_mark_of_an_item_is_not_repeated() -> None:
    for mark in ("*", "-"):
        result = wrapped("a.md", f"{mark} {WORDS.strip()} end\n  goes on\n{mark} next\n")
        assert [line[:2] for line in result.splitlines()] == [f"{mark} ", "  ", f"{mark} "]


def test_code_strings_and_tables_are_not_wrapped() -> None:
    long = "x " * 60
    for name, source in (
        ("a.py", f'x = """\n{long}\n"""\n'),
        ("a.py", f'f(\n    """{long}"""\n)\n'),
        ("a.py", f'x = "{long}"\n'),
        ("a.md", f"| {long} |\n"),
        ("a.md", f"```\n{long}\n```\n"),
    ):
        assert wrapped(name, source) == source


def test_a_ruler_is_cut() -> None:
    source = "# ---- a part " + "-" * 100
    assert tool.wrap(STYLE, "a.py", source) == source[:100]
