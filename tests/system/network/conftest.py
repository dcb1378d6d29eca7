"""Coroutine tests are run on both loops, as those of the client without a broker."""

from __future__ import annotations

from tests.unit.network.conftest import (
    loop_kind,
    poisoned,
    pytest_generate_tests,
    pytest_pyfunc_call,
)

__all__ = ["loop_kind", "poisoned", "pytest_generate_tests", "pytest_pyfunc_call"]
