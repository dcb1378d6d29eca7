"""Line coverage of the core's .pyx files: a table, and a floor to stay above.

    python -m tools.coverage [--floor PERCENT] [--missing] [--page] [TESTS ...]

Copies the tree, builds the extension modules there with line tracing (``BATCHVAL_BUILD=trace``,
without a build_dir: with one, Cython's plugin ignores every .pyx and reports full coverage), and
runs the tests under coverage. A module of which no line was measured is an error, never 100 %.

Exit codes: 0, 1 below the floor or a test failed, 4 nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.pages import reports

ROOT = Path(__file__).resolve().parents[1]
CORE = "batchval/core"
TESTS = [
    "tests/unit/core",
    "tests/unit/compression",
    "tests/evidence/conformance/test_golden.py",
    "tests/unit/segment",
]
SETTINGS = f"""
[run]
plugins = Cython.Coverage
source = {CORE}
omit = *.pxd
data_file = .coverage
[report]
include = {CORE}/**/*.pyx
precision = 1
"""
#: what a copy does without: what is built, and what is large
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "*.so", "__pycache__", "*.egg-info", ".*_cache", "bench"
)


class NothingMeasured(RuntimeError):
    """Numbers that look right and are none."""


def copy_tree(to: Path) -> None:
    """Copy the tree without build outputs; of the C files only the project's own."""
    shutil.copytree(ROOT, to, ignore=LEFT_OUT)
    for pyx in to.glob("batchval/**/*.pyx"):
        pyx.with_suffix(".c").unlink(missing_ok=True)


def measure(tree: Path, tests: list[str], missing: bool) -> tuple[dict[str, Any], bool]:
    """Print coverage's table. Return (coverage's report by file, whether all tests passed)."""
    (tree / ".coveragerc").write_text(SETTINGS, "utf-8")
    python = sys.executable
    build = [python, "setup.py", "--quiet", "build_ext", "--inplace"]
    # sys.monitoring, the default of newer Pythons, does not know Cython's lines
    environment = os.environ | {
        "BATCHVAL_BUILD": "trace",
        "BATCHVAL_FORCE": "1",
        "COVERAGE_CORE": "ctrace",
    }
    built = subprocess.run(
        build, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise NothingMeasured(f"the traced build failed:\n{built.stderr[-3000:]}")
    present = [name for name in tests if (tree / name).exists()]
    coverage = [python, "-m", "coverage"]
    chosen = ["-m", "not slow and not jvm and not untraced"]
    run = [*coverage, "run", "-m", "pytest", "-q", "--durations=10", *chosen, *present]
    passed = subprocess.run(run, cwd=tree, env=environment, check=False).returncode == 0
    table = [*coverage, "report", *["--show-missing"] * missing]
    for report in (table, [*coverage, "json", "-q", "-o", "coverage.json"]):
        subprocess.run(report, cwd=tree, env=environment, check=False)
    try:
        return json.loads((tree / "coverage.json").read_text("utf-8"))["files"], passed
    except (OSError, KeyError) as error:
        raise NothingMeasured(f"coverage wrote no report: {error}") from None


def total(files: dict[str, Any], modules: list[str]) -> float:
    """Return the share of covered lines in per cent. NothingMeasured if a module has none."""
    statements = covered = 0
    for module in modules:
        found = files.get(module)
        if found is None or not found["summary"]["num_statements"] or not found["executed_lines"]:
            raise NothingMeasured(f"{module}: no line was measured")
        statements += found["summary"]["num_statements"]
        covered += found["summary"]["covered_lines"]
    return 100 * covered / statements


def measurement(files: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of docs/reports/coverage.md."""
    rows = [
        [Path(name).stem, found["summary"]["num_statements"], found["summary"]["missing_lines"]]
        for name, found in sorted(files.items())
    ]
    headings = ["module", "lines", "missed", "covered"]
    modules = {"headings": headings, "rows": rows, "total": True, "share": True}
    versions = [f"{name} {metadata.version(name)}" for name in ("Cython", "coverage")]
    return {"title": f"Modules of {CORE}", "versions": versions, "tables": [modules]}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--floor",
        type=float,
        default=0.0,
        metavar="PERCENT",
        help="Exit with 1 if the total is below this.",
    )
    parser.add_argument("--missing", action="store_true", help="List the lines that no test ran.")
    parser.add_argument(
        "--page", action="store_true", help="Save the table in docs/reports/coverage.md."
    )
    parser.add_argument(
        "tests", nargs="*", default=TESTS, help=f"Tests to run (default: {' '.join(TESTS)})."
    )
    options = parser.parse_args()
    run = reports.here() if options.page else {}
    modules = sorted(str(path.relative_to(ROOT)) for path in (ROOT / CORE).rglob("*.pyx"))
    with tempfile.TemporaryDirectory(prefix="batchval-coverage-") as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        try:
            files, passed = measure(tree, options.tests, options.missing)
            share = total(files, modules)
            if options.page and passed:
                kept = measurement({module: files[module] for module in modules})
                reports.save("coverage", run | kept)
        except NothingMeasured as error:
            print(f"coverage: {error}", file=sys.stderr)
            return 4
    if not passed:
        print("coverage: tests failed", file=sys.stderr)
        return 1
    if share < options.floor:
        print(f"coverage: {share:.1f} % is below {options.floor} %", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
