"""A module whose extra is not installed says which, and how to install it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from batchval.optional import EXTRAS, MissingExtraError, require
from tests.support.sources import ROOT


def test_what_is_installed_is_not_missing() -> None:
    assert EXTRAS
    for part in EXTRAS:
        require(part)


@pytest.mark.parametrize(
    ("module", "blocked", "part"),
    [
        ("batchval.audit.arrow_rows", "pyarrow", "batchval.audit"),
        ("batchval.proxy.tls.tls", "pydantic", "batchval.proxy"),
        ("batchval.spark.udf", "pyspark", "batchval.spark"),
        ("batchval.perf.clients.rdkafka", "confluent_kafka", "batchval.perf.clients.rdkafka"),
    ],
)
def test_a_missing_extra_is_named(module: str, blocked: str, part: str) -> None:
    script = f"""
import sys
sys.modules[{blocked!r}] = None
from batchval.errors import BatchvalError
try:
    import {module}
except BatchvalError as error:
    print(type(error).__name__, error.name, error.extra, error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    extra = next(name for start, (name, _) in EXTRAS.items() if module.startswith(start))
    message = f"{part} needs {blocked}, which is not installed: pip install 'batchval[{extra}]'"
    assert ran.stdout == f"MissingExtraError {blocked} {extra} {message}\n", ran.stderr


def test_the_error_is_an_import_error_too() -> None:
    """Catch it as ImportError, and read the missing module's name from it."""
    error = MissingExtraError("batchval.audit", "pyarrow", "audit")
    assert isinstance(error, ModuleNotFoundError)
    assert error.name == "pyarrow"
