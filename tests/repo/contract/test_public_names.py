"""Test the names that ``import batchval`` offers, and the modules that it does not load."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import batchval
from tests.support.sources import PACKAGE, ROOT

#: packages that a program must not load if it only validates
NEVER = tuple(
    f"batchval.{name}" for name in ["cli", "proxy", "perf", "audit", "spark", "network", "report"]
)
NEVER += ("click", "rich", "pyarrow", "pyspark", "yaml", "pydantic", "prometheus_client", "uvloop")
NEVER += ("asyncio",)

PROMISED = set(
    re.findall(
        r"\w+",
        """
        AppendOrigin BatchClaims BatchColumns BatchRow BatchvalError CheckedRow ClaimsLedger
        ClaimsPolicy CompressionType DecodedRecord DownConverted ErrorCode LogValidator NotABatch
        NotConverted RecordBatch RecordBatchBuilder RecordColumns RecordRules RecordValidationStats
        RejectedBatch Rule SchemaIds TimestampType TopicPolicy ValidationResult __version__ batches
        down_convert record_columns scan_batches
        """,
    )
)


def loaded_after(statement: str) -> set[str]:
    """Return all modules that a fresh interpreter has loaded after a statement."""
    command = [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"]
    return set(
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )


def test_the_public_names() -> None:
    assert sorted(PROMISED) == sorted(batchval.__all__)
    assert set(dir(batchval)) >= PROMISED
    for name in PROMISED:
        assert getattr(batchval, name) is not None


def test_type_checkers_see_the_same_names_in_the_same_homes() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        statement.module: tuple(alias.name for alias in statement.names)
        for statement in guarded.body
        if isinstance(statement, ast.ImportFrom)
    }
    assert seen == batchval._HOMES


def test_each_name_is_the_one_of_its_home() -> None:
    for home, names in batchval._HOMES.items():
        for name in names:
            assert getattr(batchval, name) is getattr(import_module(home), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LogValidater'"):
        batchval.LogValidater  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        from batchval import nothing  # type: ignore[attr-defined]  # noqa: F401


def test_a_tree_that_is_not_built_says_so(tmp_path: Path) -> None:
    """A clone's folder hides an installed batchval where Python starts in it."""
    names = ("batchval/*.py", "batchval/core/**/*.py")
    for file in (path for name in names for path in ROOT.glob(name)):
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    command = [sys.executable, "-c", "from batchval import LogValidator"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: the module batchval.core.batches.validator is not built in "
        f"{tmp_path / 'batchval'}: run make build there, or start Python in another folder, "
        "if batchval is installed"
    )


def test_import_batchval_loads_next_to_nothing() -> None:
    modules = loaded_after("import batchval")
    assert {name for name in modules if name.startswith("batchval")} == {"batchval"}
    assert "numpy" not in modules


def test_an_error_code_costs_no_numpy() -> None:
    assert "numpy" not in loaded_after(
        "import batchval; batchval.ErrorCode, batchval.TopicPolicy, batchval.Rule"
    )


def test_a_verdict_loads_nothing_of_the_upper_floors() -> None:
    modules = loaded_after(
        "import batchval; batchval.LogValidator().check(b'', now_ms=0); batchval.scan_batches(b'')"
    )
    assert "batchval.core.batches.validator" in modules
    unwanted = {name for name in modules if name.startswith(NEVER)}
    assert unwanted == set()


def test_the_example_in_the_docstring() -> None:
    assert doctest.testmod(batchval) == doctest.TestResults(failed=0, attempted=3)
