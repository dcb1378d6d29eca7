"""Check the lines and commits that were added since a base commit for style: words and columns.

    python tools/style.py                  since the base commit in tools/style.toml
    python tools/style.py --base 52ad6c8   since another commit, for example before a merge
    python tools/style.py --wrap           wrap the comments, docstrings and Markdown among them
    python tools/style.py --prune          drop identifiers from tools/style.toml that nothing uses

The words, the limits and the exceptions are data: tools/style.toml. Only added lines are checked,
in the working tree and in untracked files. A line that was moved or indented is not an added line.
A line may hold a word if its end names that word: ``# style: allow(room)``, in Markdown in a
comment. ``columns`` is the name of the limit on columns.

Exit codes: 0, 1 with findings, 2 without a usable base commit that was named on the command line.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(__file__).with_name("style.toml")

_PYTHON = re.compile(
    r"""\#[^\n]*
    |[a-zA-Z]{0,2}(?:\"{3}(?s:\\.|.)*?\"{3}|'{3}(?s:\\.|.)*?'{3})
    |[a-zA-Z]{0,2}(?:\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')""",
    re.VERBOSE,
)
_C = re.compile(r"""//[^\n]*|/\*(?s:.)*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")
_FENCE = re.compile(r"^(`{3,}|~{3,})(?s:.)*?^\1", re.MULTILINE)
_PYTHON_FILES = (".py", ".pyx", ".pxd", ".pyi")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_LITERAL = re.compile(r"[a-zA-Z]{0,2}([\"'])[\w.:/-]+\1")
#: parts of a text that are code: in backticks, in braces, with an underscore, a dot or camel case
_CODE_IN_TEXT = re.compile(
    r"""`[^`\n]+`|\{[^{}\n]*\}
    |\b\w+(?:(?:[./]|::)\w+)+|\b\w*_\w*\b|\b\w*[a-z][A-Z]\w*\b""",
    re.VERBOSE,
)
_ALLOWED_HERE = re.compile(r"style: allow\(([^)]*)\)")
_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


class Finding(NamedTuple):
    """What is wrong, and where: a file with its line, or a commit."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True)
class Style:
    """The data of tools/style.toml."""

    base: str
    columns: int
    subject: int
    suffixes: tuple[str, ...]
    skipped: tuple[str, ...]
    words: dict[str, re.Pattern[str]]
    phrases: re.Pattern[str]
    identifiers: frozenset[str]
    commits: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def read(cls, path: Path = DATA) -> Style:
        """Return the rules of a file. Raises KeyError where one is missing."""
        data = tomllib.loads(path.read_text("utf-8"))
        words = {
            word: re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
            for word, pattern in data["words"].items()
        }
        return cls(
            base=data["base"],
            columns=data["columns"],
            subject=data["subject"],
            suffixes=tuple(data["suffixes"]),
            skipped=tuple(data["skipped"]),
            words=words,
            phrases=re.compile("|".join(data["phrases"]), re.IGNORECASE),
            identifiers=frozenset(data["identifiers"]),
            commits=frozenset(data["commits"]),
        )

    def covers(self, name: str) -> bool:
        """Return whether a file is checked."""
        is_skipped = any(fnmatch.fnmatch(name, glob) for glob in self.skipped)
        return name.endswith(self.suffixes) and not is_skipped

    def banned(self, text: str) -> Iterator[str]:
        """Yield the name of each banned word in a text without code."""
        plain = self.phrases.sub(" ", text)
        return (word for word, pattern in self.words.items() if pattern.search(plain))

    def banned_identifiers(
        self, code: str, known: frozenset[str] = frozenset()
    ) -> Iterator[tuple[str, str]]:
        """Yield (identifier, word) for each new identifier in code that has a banned word."""
        for name in dict.fromkeys(_IDENTIFIER.findall(code)):
            if name not in self.identifiers and name not in known:
                plain = self.phrases.sub(" ", name)
                spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_+", " ", plain)
                yield from ((name, word) for word in self.banned(spaced))


class Line(NamedTuple):
    """One line of a file: its code, and its text (comments, strings, prose), each as long as it.

    Names inside a text count as code. ``is_prose`` says that the line starts or ends in a text that
    its writer lays out: a comment, a docstring, Markdown.
    """

    code: str
    text: str
    is_prose: bool


def split(source: str, name: str) -> Iterator[Line]:
    """Yield the lines of a file."""
    is_text = bytearray(len(source))
    if name.endswith(".md"):
        is_text = bytearray(b"\1" * len(source))
        for found in _FENCE.finditer(source):
            is_text[found.start() : found.end()] = bytes(found.end() - found.start())
    else:
        for found in (_PYTHON if name.endswith(_PYTHON_FILES) else _C).finditer(source):
            if not _LITERAL.fullmatch(found.group()):  # a string of one name is a name
                is_text[found.start() : found.end()] = b"\1" * (found.end() - found.start())
    prose = bytes(is_text)
    for found in _CODE_IN_TEXT.finditer(source):
        is_text[found.start() : found.end()] = bytes(found.end() - found.start())
    start = 0
    for line in source.split("\n"):
        marks, place = is_text[start : start + len(line)], start + len(line) - len(line.lstrip())
        code = "".join(" " if mark else c for c, mark in zip(line, marks, strict=True))
        text = "".join(c if mark else " " for c, mark in zip(line, marks, strict=True))
        starts = bool(line.strip()) and prose[place] == 1
        yield Line(code, text, starts or re.search(r"\s#", text) is not None)
        start += len(line) + 1


def _cannot_break(name: str, line: str, columns: int) -> bool:
    """Return whether a line has to be long: a row of a table, a URL or path without a space."""
    if name.endswith(".md") and line.lstrip().startswith("|"):
        return True
    return " " not in re.sub(r"^\s*(?:#|//|[-*])?\s*", "", line[:columns])


def check_lines(
    style: Style,
    name: str,
    source: str,
    added: set[int],
    moved: frozenset[str] = frozenset(),
    before: str = "",
) -> Iterator[Finding]:
    """Yield the findings of the added lines of one file.

    ``added`` are line numbers from 1, ``moved`` the lines that the same change removed elsewhere,
    without indentation, ``before`` the file at the base commit: its identifiers may be used.
    """
    known = frozenset(_IDENTIFIER.findall(before))
    lines = source.split("\n")
    for number, (code, text, _) in enumerate(split(source, name), 1):
        line = lines[number - 1]
        if number not in added or line.strip() in moved:
            continue
        here = _ALLOWED_HERE.search(line)
        allowed = {word.strip() for word in here[1].split(",")} if here else set()
        place = f"{name}:{number}"
        limit = style.columns
        if len(line) > limit and "columns" not in allowed and not _cannot_break(name, line, limit):
            yield Finding(place, f"{len(line)} columns: at most {limit}")
        for word in style.banned(_ALLOWED_HERE.sub("", text)):
            if word not in allowed:
                yield Finding(place, f"the word {word!r}: see the style rules in tools/style.toml")
        for identifier, word in style.banned_identifiers(_ALLOWED_HERE.sub("", code), known):
            if word not in allowed:
                yield Finding(place, f"the word {word!r} in the name {identifier}")


#: what starts a line of prose, before its text: a comment's sign, a star, a Markdown list's
_PREFIX = re.compile(r"\s*(?:#:? |// |\* (?!\*)|(?=\S))")
#: a line that does not go on with the paragraph above it
_NEW_PARAGRAPH = re.compile(r"\s*(?:[-*+] |\d+\. |\||`|>|#|@|\[|\"{3}|'{3}|\*/|$)")


def _wrappable(source: str, name: str) -> set[int]:
    """Return the numbers of the lines that hold nothing but prose: comments, docstrings,
    Markdown.
    """
    lines = source.split("\n")
    if name.endswith(".md"):
        fenced = {
            number
            for found in _FENCE.finditer(source)
            for number in range(
                source.count("\n", 0, found.start()) + 1, source.count("\n", 0, found.end()) + 2
            )
        }
        return {n for n, line in enumerate(lines, 1) if n not in fenced and line[:4].strip()}
    found_lines: set[int] = set()
    for found in (_PYTHON if name.endswith(_PYTHON_FILES) else _C).finditer(source):
        first = source.count("\n", 0, found.start()) + 1
        last = source.count("\n", 0, found.end()) + 1
        text, before = found.group(), source[: found.start()].rstrip(" ")
        starts_line = not before or before.endswith("\n")
        is_docstring = text.startswith('"""') and (
            not before.strip() or before.rstrip().endswith(":")
        )
        is_comment = text.startswith(("#", "//", "/*")) and not text.startswith(("#!", "# style:"))
        ends_line = not lines[last - 1][
            found.end() - source.rfind("\n", 0, found.end()) - 1 :
        ].strip()
        if starts_line and ends_line and (is_docstring or is_comment):
            found_lines.update(range(first, last + 1))
    return found_lines


def wrap(style: Style, name: str, source: str, added: set[int]) -> str:
    """Return the source with its added lines of prose wrapped; only white space differs.

    The rest of a long line goes to the start of the next one where that goes on with the sentence.
    """
    prose, limit = _wrappable(source, name), style.columns
    lines = [(line, n in added, n in prose) for n, line in enumerate(source.split("\n"), 1)]
    is_c, i = not name.endswith((*_PYTHON_FILES, ".md")), 0
    while i < len(lines):
        line, is_added, is_prose = lines[i]
        i += 1
        prefix_found = _PREFIX.match(line)
        if not (is_added and is_prose and len(line) > limit and prefix_found):
            continue
        prefix, body = prefix_found[0], line[prefix_found.end() :]
        if (ruler := line.rstrip("-")) != line and len(ruler) < limit:
            lines[i - 1] = (line[:limit], True, True)
            continue
        is_table = body.startswith("|") or "   " in body or _ALLOWED_HERE.search(line) is not None
        cut = line.rfind(" ", len(prefix) + 1, limit + 1)
        if is_table or cut <= len(prefix) or (is_c and not prefix.strip()):
            continue
        head, rest = line[:cut].rstrip(), line[cut:].lstrip()
        if body.startswith(("- ", "* ", "+ ")):
            prefix += "  "
        elif name.endswith(".md"):
            prefix = prefix.replace("*", " ")  # an item's mark, where C repeats its own
        one_line = body.startswith('"""') and rest.endswith('"""')
        if one_line:
            rest = rest.removesuffix('"""').rstrip()
            lines.insert(i, (prefix + '"""', True, True))
        if rest.endswith("*/") and is_c and head.lstrip().startswith("/*"):
            continue
        follows = (
            i < len(lines) and not one_line and lines[i][2] and "   " not in lines[i][0].strip()
        )
        text = lines[i][0] if follows else ""
        next_prefix = _PREFIX.match(text)
        if (
            follows
            and next_prefix
            and next_prefix[0] == prefix
            and not _NEW_PARAGRAPH.match(text[len(prefix) :])
        ):
            lines[i] = (f"{prefix}{rest} {text[len(prefix) :]}", True, True)
        elif rest:
            lines.insert(i, (prefix + rest, True, True))
        lines[i - 1] = (head, True, True)
    return "\n".join(line for line, _, _ in lines)


class Git:
    """A repository, and what was added to it since a commit."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *arguments: str) -> str | None:
        """Return what git prints, or None if it fails or is not installed."""
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=self.root, capture_output=True, check=False
            )
        except FileNotFoundError:
            return None
        return None if done.returncode else done.stdout.decode("utf-8", "replace")

    def commit(self, name: str) -> str | None:
        """Return the full hash of a commit that is present, or None."""
        found = self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return found.strip() if found else None

    def fork(self, base: str) -> str:
        """Return the commit at which HEAD left ``base``, or ``base`` in a shallow clone."""
        return (self.run("merge-base", base, "HEAD") or base).strip()

    def added(self, base: str) -> tuple[dict[str, set[int]], Counter[str], dict[str, str]]:
        """Return the added lines of each file, all removed lines, and each file's old name."""
        lines: dict[str, set[int]] = {}
        removed: Counter[str] = Counter()
        old_names: dict[str, str] = {}
        name = old = ""
        options = ("-U0", "--no-color", "--no-ext-diff", "-M")
        diff = self.run("-c", "core.quotePath=false", "diff", *options, base) or ""
        in_hunk = 0
        for line in diff.split("\n"):
            if found := _HUNK.match(line):
                first, count = int(found[1]), int(found[2] or 1)
                lines.setdefault(name, set()).update(range(first, first + count))
                in_hunk = 1
            elif line.startswith("diff --git "):
                in_hunk = 0
            elif not in_hunk and line.startswith("--- "):
                old = line[4:].rstrip("\t").removeprefix("a/")
            elif not in_hunk and line.startswith("+++ "):
                name = line[4:].rstrip("\t").removeprefix("b/")
                old_names[name] = old
            elif in_hunk and line.startswith("-"):
                removed[line[1:].strip()] += 1
        lines.pop("/dev/null", None)
        for untracked in (self.run("ls-files", "--others", "--exclude-standard", "-z") or "").split(
            "\0"
        ):
            if untracked:
                lines[untracked] = set(range(1, 1 << 20))
        return lines, removed, old_names

    def subjects(self, base: str) -> list[tuple[str, str]]:
        """Return (hash, subject) of each commit since ``base``, merges left out."""
        log = self.run("log", "--no-merges", "--format=%h %s", f"{base}..HEAD") or ""
        return [(line.partition(" ")[0], line.partition(" ")[2]) for line in log.splitlines()]


def check(style: Style, root: Path, base: str) -> Iterator[Finding]:
    """Yield the findings of everything that was added since ``base``."""
    git = Git(root)
    added, removed, old_names = git.added(base)
    moved = frozenset(line for line in removed if len(line) > 3)
    for name in sorted(filter(style.covers, added)):
        try:
            source = (root / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # deleted, a submodule, a broken link
        before = git.run("show", f"{base}:{old_names.get(name, name)}") or ""
        yield from check_lines(style, name, source, added[name], moved, before)
    for commit, subject in git.subjects(base):
        if len(subject) > style.subject and commit not in style.commits:
            what = f"a subject of {len(subject)} characters: at most {style.subject}: {subject}"
            yield Finding(commit, what)


def wrap_all(style: Style, root: Path, base: str) -> list[str]:
    """Wrap the prose that was added since ``base``; return the names of the changed files."""
    changed = []
    added = Git(root).added(base)[0]
    for name in sorted(filter(style.covers, added)):
        try:
            source = (root / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if (wrapped := wrap(style, name, source, added[name])) != source:
            (root / name).write_text(wrapped, "utf-8")
            changed.append(name)
    return changed


def choose_base(git: Git, named: str | None, recorded: str) -> tuple[str | None, str]:
    """Return the base commit, or None, and a note if it is not the expected one."""
    if git.run("rev-parse", "--git-dir") is None:
        return None, "this is not a git repository: nothing to compare with"
    wanted = named or recorded
    if found := git.commit(wanted):
        return git.fork(found), ""
    if named:
        return None, f"{named} is not a commit of this repository"
    if found := git.commit("HEAD~1"):
        return found, f"{recorded[:12]} is not in this clone: only the last commit is checked"
    return None, f"{recorded[:12]} and a parent of HEAD are not in this clone: nothing is checked"


def prune(style: Style, root: Path, path: Path = DATA) -> list[str]:
    """Remove the identifiers from the data file that no checked file uses any more; return them."""
    used: set[str] = set()
    for name in (Git(root).run("ls-files", "-z") or "").split("\0"):
        if name and style.covers(name) and (root / name).is_file():
            used.update(_IDENTIFIER.findall((root / name).read_text("utf-8", "replace")))
            used.update(_IDENTIFIER.findall(name))
    gone = sorted(style.identifiers - used)
    text = path.read_text("utf-8")
    for name in gone:
        text = re.sub(rf'^ *"{name}",\n', "", text, flags=re.MULTILINE)
    path.write_text(text, "utf-8")
    return gone


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--base", help="the commit to compare with (default: base of tools/style.toml)"
    )
    parser.add_argument(
        "--prune", action="store_true", help="drop unused identifiers from tools/style.toml"
    )
    parser.add_argument("--wrap", action="store_true", help="wrap the prose among the added lines")
    options = parser.parse_args(arguments)
    style = Style.read()
    if options.prune:
        print("removed:", *prune(style, ROOT))
        return 0
    base, note = choose_base(Git(ROOT), options.base, style.base)
    if note:
        print(f"tools/style.py: {note}", file=sys.stderr)
    if base is None:
        return 2 if options.base else 0
    if options.wrap:
        print("wrapped:", *wrap_all(style, ROOT, base))
    found = list(check(style, ROOT, base))
    for finding in found:
        print(finding)
    print(f"style: {len(found)} findings since {base[:12]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
