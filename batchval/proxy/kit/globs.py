"""Find globs that cannot match: names that a glob accepts and earlier globs do not.

A glob of ``fnmatch`` is a row of elements, each ``*`` or one character out of a set. Its states are
the positions in that row, so a breadth-first search over the positions of all globs at once finds
the shortest name of interest. A few guesses come first, because the search is slow: most globs
match one that no earlier glob does, and a glob that a single earlier one covers is found by a
search over these two.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from batchval.proxy.kit.topics import MAX_TOPIC_LENGTH, is_topic_name

__all__ = ["UNDECIDED", "is_principal", "name_for"]

#: Returned where the search would take more than MAX_STEPS: the glob may match.
UNDECIDED: Final = "?"

MAX_STEPS: Final = 50_000  # of one glob by one character, about 2 us each
#: A glob is compared with so many earlier ones.
MAX_EARLIER_GLOBS: Final = 1_000
_GUESSES: Final = ("", "zq7", "Z", "-0_", "User:zq7")
_PRINCIPAL: Final = "User:"
_DECIDED: Final = "allowed"
_TOPIC_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#: None stands for ``*``, else the pattern of one character.
_Element = re.Pattern[str] | None


def name_for(glob: str, earlier: Sequence[str], *, principals: bool = False) -> str | None:
    """Return a name that ``glob`` matches and none of ``earlier`` does; None: there is none.

    Names are topic names, or principals in Kafka's form (``User:alice``).
    """
    names = PRINCIPALS if principals else TOPICS
    earlier = earlier[:MAX_EARLIER_GLOBS]
    guesses = [
        name for name in _guesses(glob) if names.allowed(name) and fnmatch.fnmatchcase(name, glob)
    ]
    for name in guesses:
        if not any(_regex(one).match(name) for one in earlier):
            return name
    for one in earlier:
        if all(_regex(one).match(name) for name in guesses) and _found(names, glob, one) is None:
            return None
    return _found(names, glob, *earlier)


def _found(names: _Names, *globs: str) -> str | None:
    elements = [_elements(glob) for glob in globs]
    return _search(
        elements, _representatives(elements, names.characters or _alphabet(globs)), names
    )


@functools.lru_cache(maxsize=2 * MAX_EARLIER_GLOBS)
def _regex(glob: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(glob))


def _guesses(glob: str) -> Iterable[str]:
    """Yield names that the glob may match: each ``*`` stands for the same text."""
    for filling in _GUESSES:
        letters = _TOPIC_CHARACTERS[:: -1 if filling else 1] + _PRINCIPAL
        yield "".join(
            filling if one is None else next((c for c in letters if one.match(c)), "")
            for one in _elements(glob)
        )


class _Names(NamedTuple):
    """The names that may be matched: one with ``prefix`` and ``kept`` characters in all is."""

    allowed: Callable[[str], bool]
    prefix: str
    characters: str  # "": any
    longest: int
    kept: int


def is_principal(name: str) -> bool:
    """Return whether this is a principal in Kafka's form."""
    return name.startswith(_PRINCIPAL) and len(name) > len(_PRINCIPAL)


TOPICS: Final = _Names(is_topic_name, "", _TOPIC_CHARACTERS, MAX_TOPIC_LENGTH, 3)
PRINCIPALS: Final = _Names(is_principal, _PRINCIPAL, "", 2_000, len(_PRINCIPAL) + 1)


def _elements(glob: str) -> list[_Element]:
    """Split a glob as ``fnmatch`` reads it: ``[`` without its ``]`` is a character."""
    found: list[_Element] = []
    i = 0
    while i < len(glob):
        end = i + 1
        if glob[i] == "[":
            start = i + 2 if glob[i + 1 : i + 2] == "!" else i + 1
            close = glob.find("]", start + 1)  # a ] in the first place is a character of the set
            end = close + 1 if close > 0 else end
        part = glob[i:end]
        if part != "*":
            found.append(re.compile(fnmatch.translate(part)))
        elif not found or found[-1] is not None:
            found.append(None)
        i = end
    return found


def _alphabet(globs: Iterable[str]) -> str:
    """Return characters that stand for all: those of the globs, neighbours and a few more."""
    own = {
        chr(min(max(ord(c) + step, 32), 0x10FFFF))
        for glob in globs
        for c in glob
        for step in (-1, 0, 1)
    }
    return "".join(
        sorted(own | set(map(chr, range(32, 127))) | {"\u00e9", "\U0010ffff"} | set(_PRINCIPAL))
    )


def _representatives(globs: list[list[_Element]], alphabet: str) -> list[str]:
    """Return one character of each kind that globs tell apart, and those of ``.`` and ``User:``."""
    patterns = {
        element.pattern: element for glob in globs for element in glob if element is not None
    }
    kinds: dict[tuple[bool, ...], str] = {}
    for character in alphabet:
        kinds.setdefault(
            tuple(element.match(character) is not None for element in patterns.values()), character
        )
    return [*dict.fromkeys([*kinds.values(), *(c for c in "." + _PRINCIPAL if c in alphabet)])]


def _closed(glob: list[_Element], positions: Iterable[int]) -> frozenset[int]:
    """Add the positions that are reached without a character: a ``*`` may stand for nothing."""
    found = set(positions)
    for position in sorted(found):
        at = position
        while at < len(glob) and glob[at] is None:
            at += 1
            found.add(at)
    return frozenset(found)


def _after(glob: list[_Element], positions: frozenset[int], character: str) -> frozenset[int]:
    reached = set()
    for position in positions:
        if position < len(glob):
            element = glob[position]
            if element is None:
                reached.add(position)
            elif element.match(character):
                reached.add(position + 1)
    return _closed(glob, reached)


def _search(globs: list[list[_Element]], characters: list[str], names: _Names) -> str | None:
    first = tuple(_closed(glob, (0,)) for glob in globs)
    steps = 0
    seen = {("", first)}
    words = [("", first)]
    for _ in range(names.longest):
        longer = []
        for word, states in words:
            for character in characters:
                name = word + character
                if not (name.startswith(names.prefix) or names.prefix.startswith(name)):
                    continue
                steps += len(globs)
                if steps > MAX_STEPS:
                    return UNDECIDED
                after = tuple(
                    _after(glob, at, character) for glob, at in zip(globs, states, strict=True)
                )
                state = (name if len(name) < names.kept else _DECIDED, after)
                if not after[0] or state in seen:
                    continue
                matched, *others = (len(glob) in at for glob, at in zip(globs, after, strict=True))
                if matched and not any(others) and names.allowed(name):
                    return name
                seen.add(state)
                longer.append((name, after))
        if not longer:
            return None
        words = longer
    return None
