"""requirements/*.txt: they fit pyproject.toml, and everything in them has its hashes."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock

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
