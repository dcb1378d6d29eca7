"""Fixtures of all tests of the gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from batchval.proxy.workers.channel import Pairs
from tests.support import coroutines
from tests.support.coroutines import loop_kind, on_both_loops  # noqa: F401
from tests.support.fixtures import poisoned  # noqa: F401

pytest_generate_tests = on_both_loops


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return coroutines.run(pyfuncitem, 20)


@pytest.fixture
def pairs() -> Iterator[tuple[Pairs, Pairs]]:
    """Return the socket pairs of a worker: those of its parent, and its own."""
    ours, theirs = Pairs.made()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request wait for its turn only because the machine is busy."""
    monkeypatch.setattr("batchval.proxy.session.session.SLICE_S", 60.0)
    monkeypatch.setattr("batchval.proxy.session.session.TURN_S", 60.0)
    monkeypatch.setattr("batchval.proxy.session.requests.SEND_S", 60.0)
