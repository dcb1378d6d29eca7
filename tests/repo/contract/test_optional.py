"""Test that each import of the package is declared, by the distribution or by an extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from batchval.optional import EXTRAS
from tests.support.sources import PACKAGE, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
#: the distribution that brings a module, where their names differ
DISTRIBUTIONS = {
    "py4j": "pyspark",
    "snappy": "python-snappy",
    "yaml": "pyyaml",
    **dict.fromkeys(("opentelemetry", "opentelemetry.sdk"), "opentelemetry-sdk"),
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
}


def imports(node: ast.AST) -> Iterator[str]:
    """Yield the first name of each module that is imported at run time, wherever it stands."""
    if isinstance(node, ast.Import):
        yield from (name.name.partition(".")[0] for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield str(node.module).partition(".")[0]
    else:
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in node.orelse if is_for_types else ast.iter_child_nodes(node):
            yield from imports(child)


def normal(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def undeclared(package: Path, allowed: set[str]) -> Iterator[str]:
    """Yield each import of a distribution that is not among the allowed ones."""
    for path in sorted(package.rglob("*.py")):
        for name in sorted(set(imports(ast.parse(path.read_text("utf-8"))))):
            if name in sys.stdlib_module_names or name == "batchval":
                continue
            if DISTRIBUTIONS.get(name, name.replace("_", "-")) not in allowed:
                yield f"{path.relative_to(package)}: {name}"


def test_every_import_is_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    served = ("arrow", "audit", "spark", "demo", "proxy", "otel", "perf")
    wanted = [*PROJECT["dependencies"], *(one for name in served for one in extras[name])]
    assert list(undeclared(PACKAGE, {normal(one) for one in wanted})) == []


def test_the_table_names_extras_and_modules_that_exist() -> None:
    assert EXTRAS
    for start, (extra, names) in EXTRAS.items():
        brought = {normal(one) for one in PROJECT["optional-dependencies"][extra]}
        assert {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in names} <= brought
        place = ROOT / start.replace(".", "/")
        assert place.is_dir() or list(place.parent.glob(f"{place.name}*.py"))


def test_the_core_tests_need_no_other_extra_and_no_source() -> None:
    """Run tests/unit/core against an installed wheel with the extra test alone."""
    brought = {normal(one) for one in PROJECT["optional-dependencies"]["test"]}
    blocked = {name for _, names in EXTRAS.values() for name in names} - {
        name.replace("-", "_") for name in brought
    }
    assert "pydantic" in blocked
    files = sorted((ROOT / "tests" / "unit" / "core").glob("test_*.py"))
    script = "import importlib, sys\n"
    script += f"sys.modules.update(dict.fromkeys({sorted(blocked)}))\n"
    script += "".join(f"importlib.import_module('tests.unit.core.{path.stem}')\n" for path in files)
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert [path.name for path in files if re.search(r"\bPACKAGE\b", path.read_text("utf-8"))] == []
