"""What holds for all tests: where nothing may be skipped, a skip is an error.

That is so in CI (``CI=true``) and where ``BATCHVAL_NO_SKIPS=1``; elsewhere pytest's ``-ra`` lists skips with reasons.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

NO_SKIPS = os.environ.get("BATCHVAL_NO_SKIPS", "0") == "1" or os.environ.get("CI", "").lower() in {"1", "true"}


def _refuse(report: Any) -> None:
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _refuse(report)
    return report
