"""Coroutine tests run on uvloop and have a minute and a half each."""

from __future__ import annotations

from tests.system.fetch.conftest import kafka, pytest_pyfunc_call

__all__ = ["kafka", "pytest_pyfunc_call"]
