"""Check the files of the project and the subjects of its commits for style: words and columns.

    python tools/style.py               check every file that git knows or would add
    python tools/style.py --wrap FILE   wrap the long lines of a file's comments, docstrings, Markdown

The words, the limits and the exceptions are data: tools/style.toml. A line may hold a word if its
end names that word: ``# style: allow(room)``, in Markdown in a comment. ``columns`` is the name of
the limit on columns. Long lines are findings where a folder has more of them than
``[long_lines]`` in tools/style.toml allows.

Exit codes: 0, or 1 with findings.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
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


class Finding(NamedTuple):
    """What is wrong, and where: a file with its line, or a commit."""

    place: str
    what: str
    is_long: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, glob) for glob in globs)


@dataclass(frozen=True)
class Style:
    """The data of tools/style.toml."""

    subjects_since: str
    columns: int
    subject: int
    suffixes: tuple[str, ...]
    skipped: tuple[str, ...]
    long_lines: dict[str, int]
    unwritten: tuple[str, ...]
    words: dict[str, re.Pattern[str]]
    phrases: re.Pattern[str]
    identifiers: frozenset[str]

    @classmethod
    def read(cls, path: Path = DATA) -> Style:
        """Return the rules of a file. Raises KeyError where one is missing."""
        data = tomllib.loads(path.read_text("utf-8"))
        words = {
            word: re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
            for word, pattern in data["words"].items()
        }
        return cls(
            subjects_since=data["subjects_since"],
            columns=data["columns"],
            subject=data["subject"],
            suffixes=tuple(data["suffixes"]),
            skipped=tuple(data["skipped"]),
            long_lines=data["long_lines"],
            unwritten=tuple(data["unwritten"]),
            words=words,
            phrases=re.compile("|".join(data["phrases"]), re.IGNORECASE),
            identifiers=frozenset(data["identifiers"]),
        )

    def covers(self, name: str) -> bool:
        """Return whether a file is checked."""
        return name.endswith(self.suffixes) and not _matches(name, self.skipped)

    def banned(self, text: str) -> Iterator[str]:
        """Yield the name of each banned word in a text without code."""
        plain = self.phrases.sub(" ", text)
        return (word for word, pattern in self.words.items() if pattern.search(plain))

    def banned_identifiers(self, code: str) -> Iterator[tuple[str, str]]:
        """Yield (identifier, word) for each identifier in code that has a banned word."""
        for name in dict.fromkeys(_IDENTIFIER.findall(code)):
            if name not in self.identifiers:
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


def _is_long(name: str, line: str, columns: int) -> bool:
    """Return whether a line is too long and can be broken.

    A row of a table cannot, nor can a URL, path or string without a space.
    """
    if len(line) <= columns or (name.endswith(".md") and line.lstrip().startswith("|")):
        return False
    return " " in re.sub(r"^\s*(?:#|//|[-*])?\s*", "", line[:columns])


def check_lines(style: Style, name: str, source: str) -> Iterator[Finding]:
    """Yield the findings of one file."""
    lines = source.split("\n")
    with_words = not _matches(name, style.unwritten)
    for number, (code, text, _) in enumerate(split(source, name), 1):
        line = lines[number - 1]
        here = _ALLOWED_HERE.search(line)
        allowed = {word.strip() for word in here[1].split(",")} if here else set()
        place = f"{name}:{number}"
        if "columns" not in allowed and _is_long(name, line, style.columns):
            yield Finding(place, f"{len(line)} columns: at most {style.columns}", is_long=True)
        if not with_words:
            continue
        for word in style.banned(_ALLOWED_HERE.sub("", text)):
            if word not in allowed:
                yield Finding(place, f"the word {word!r}: see the style rules in tools/style.toml")
        for identifier, word in style.banned_identifiers(_ALLOWED_HERE.sub("", code)):
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


def wrap(style: Style, name: str, source: str) -> str:
    """Return the source with its lines of prose wrapped; only white space differs.

    The rest of a long line goes to the start of the next one where that goes on with the sentence.
    """
    prose, limit = _wrappable(source, name), style.columns
    lines = [(line, n in prose) for n, line in enumerate(source.split("\n"), 1)]
    is_c, i = not name.endswith((*_PYTHON_FILES, ".md")), 0
    while i < len(lines):
        line, is_prose = lines[i]
        i += 1
        prefix_found = _PREFIX.match(line)
        if not (is_prose and len(line) > limit and prefix_found):
            continue
        prefix, body = prefix_found[0], line[prefix_found.end() :]
        if (ruler := line.rstrip("-")) != line and len(ruler) < limit:
            lines[i - 1] = (line[:limit], True)
            continue
        is_table = body.startswith("|") or "   " in body or _ALLOWED_HERE.search(line) is not None
        cut = line.rfind(" ", len(prefix) + 1, limit + 1)
        if is_table or cut <= len(prefix) or (is_c and not prefix.strip()):
            continue
        head, rest = line[:cut].rstrip(), line[cut:].lstrip()
        if body.startswith(("- ", "* ", "+ ")):
            prefix += "  "
        elif not is_c:
            prefix = prefix.replace("*", " ")  # an item's mark, where C repeats its own
        one_line = body.startswith('"""') and rest.endswith('"""')
        if one_line:
            rest = rest.removesuffix('"""').rstrip()
            lines.insert(i, (prefix + '"""', True))
        if rest.endswith("*/") and is_c and head.lstrip().startswith("/*"):
            continue
        follows = (
            i < len(lines) and not one_line and lines[i][1] and "   " not in lines[i][0].strip()
        )
        text = lines[i][0] if follows else ""
        next_prefix = _PREFIX.match(text)
        if (
            follows
            and next_prefix
            and next_prefix[0] == prefix
            and not _NEW_PARAGRAPH.match(text[len(prefix) :])
        ):
            lines[i] = (f"{prefix}{rest} {text[len(prefix) :]}", True)
        elif rest:
            lines.insert(i, (prefix + rest, True))
        lines[i - 1] = (head, True)
    return "\n".join(line for line, _ in lines)


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints: nothing if it fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout.decode("utf-8", "replace")


def files(style: Style, root: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, source) of each checked file that git knows or would add."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in sorted(filter(style.covers, set(listed.split("\0")))):
        try:
            yield name, (root / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # deleted, a submodule, a broken link


def check_subjects(style: Style, root: Path) -> Iterator[Finding]:
    """Yield the findings of the commits since ``subjects_since``.

    A shallow clone, where that commit is missing, has only its last commit checked.
    """
    log = ("log", "--no-merges", "--format=%h %s")
    since = _git(root, *log, f"{style.subjects_since}..HEAD")
    known = _git(root, "cat-file", "-t", style.subjects_since)
    for line in (since if known else _git(root, *log, "-1")).splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) > style.subject:
            what = f"a subject of {len(subject)} characters: at most {style.subject}: {subject}"
            yield Finding(commit, what)


def check(style: Style, root: Path) -> Iterator[Finding]:
    """Yield the findings of all files and commits."""
    long: defaultdict[str, list[Finding]] = defaultdict(list)
    for name, source in files(style, root):
        for finding in check_lines(style, name, source):
            if finding.is_long:
                long[name.partition("/")[0]].append(finding)
            else:
                yield finding
    for folder, found in long.items():
        if len(found) > (most := style.long_lines.get(folder, 0)):
            yield from found
            yield Finding(folder, f"{len(found)} long lines: at most {most} in tools/style.toml")
    yield from check_subjects(style, root)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--wrap", nargs="+", metavar="FILE", help="Wrap the long lines of prose of these files."
    )
    options = parser.parse_args(arguments)
    style = Style.read()
    for name in options.wrap or ():
        source = Path(name).read_text("utf-8")
        Path(name).write_text(wrap(style, name, source), "utf-8")
    if options.wrap:
        return 0
    found = list(check(style, ROOT))
    for finding in found:
        print(finding)
    print(f"style: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
