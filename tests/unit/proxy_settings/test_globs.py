"""Globs that cannot match, compared with ``fnmatch`` on every short name."""

from __future__ import annotations

import itertools
import random
from fnmatch import fnmatchcase

import pytest

from batchval.proxy.kit.globs import is_principal, name_for
from batchval.proxy.kit.topics import is_topic_name
from tests.support.calibration import cpu_s

NAMES = ["".join(letters) for n in range(1, 6) for letters in itertools.product("ab.", repeat=n)]
TOPICS = [name for name in NAMES if is_topic_name(name)]

NEVER = [
    ("orders.*", ["*"]),
    ("orders.*", ["o*"]),
    ("orders.eu", ["orders.??"]),
    ("[a-c]x", ["?x"]),
    ("*", ["[a-m]*", "[!a-m]*"]),  # no single one of them covers it
    ("?", ["[!.]"]),  # "." is not a topic name
    ("a*b*", ["a*", "x"]),
]
NO_TOPIC = ["a b", "a/b*", ".", "..", "[.]", "[z-a]", "[", "orders:*", "\u00e9*", "a" * 250]
MAY = [
    ("o*", ["orders.*"]),
    ("*", ["[a-z]*"]),
    ("...", []),
    ("?" * 249, ["a*"]),
    ("[]-]", []),
    ("Orders", ["orders"]),
]


@pytest.mark.parametrize(("glob", "earlier"), NEVER)
def test_a_glob_that_earlier_ones_cover(glob: str, earlier: list[str]) -> None:
    assert name_for(glob, earlier) is None
    assert name_for(glob, ()) is not None


@pytest.mark.parametrize("glob", NO_TOPIC)
def test_a_glob_that_matches_no_topic(glob: str) -> None:
    assert name_for(glob, ()) is None


@pytest.mark.parametrize(("glob", "earlier"), MAY)
def test_a_glob_that_may_match(glob: str, earlier: list[str]) -> None:
    found = name_for(glob, earlier)
    assert found is not None
    assert is_topic_name(found)
    assert fnmatchcase(found, glob)
    assert not any(fnmatchcase(found, one) for one in earlier)


def test_random_globs_as_fnmatch_reads_them() -> None:
    chosen = random.Random(14)
    parts = ["a", "b", "*", "?", "[ab]", "[!a]", ".", "[!ab.]", "[", "]"]

    def glob() -> str:
        return "".join(chosen.choice(parts) for _ in range(chosen.randint(1, 3)))

    covered = 0
    for _ in range(1_500):
        own, earlier = glob(), [glob() for _ in range(chosen.randint(0, 3))]
        found = name_for(own, earlier)
        if found is None:
            covered += 1
            left = [name for name in TOPICS if fnmatchcase(name, own)]
            assert all(any(fnmatchcase(name, one) for one in earlier) for name in left), (
                own,
                earlier,
            )
        else:
            assert fnmatchcase(found, own)
            assert not any(fnmatchcase(found, one) for one in earlier), (own, earlier, found)
    assert covered > 100


@pytest.mark.alone
def test_the_search_is_bounded() -> None:
    # Sets of positions may double with each character; many globs are compared with all before.
    def search() -> None:
        long = "*a" + "?" * 60 + "b*"
        assert name_for(long, ["*b" + "?" * 62 + "*"] + [f"*{c}*" for c in "Zq_z9-"]) is not None
        globs = [f"*.{n}.eu" for n in range(300)]
        assert all(name_for(glob, globs[:n]) for n, glob in enumerate(globs))

    assert cpu_s(search, 1) < 5


def test_principals() -> None:
    for glob in ("alice", "user:*", "[!U]*", "User:"):
        assert name_for(glob, (), principals=True) is None, glob
    for glob in ("*", "*alice", "User:CN=*", "User:?", "[!v]*"):
        found = name_for(glob, (), principals=True)
        assert found is not None
        assert is_principal(found)
        assert fnmatchcase(found, glob)
    assert name_for("User:CN=*", ["User:*"], principals=True) is None
    assert name_for("User:*", ["User:[!\u00e9]*"], principals=True) == "User:\u00e9"
