"""Coroutine tests are run on both loops, each within 20 seconds, and must leave no task or file."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support import coroutines
from tests.support.coroutines import loop_kind, on_both_loops  # noqa: F401

pytest_generate_tests = on_both_loops


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return coroutines.run(pyfuncitem, 20)


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    log = logging.getLogger("batchval")
    before = (log.handlers[:], log.level, log.propagate)
    yield
    log.handlers[:], level, log.propagate = before
    log.setLevel(level)
