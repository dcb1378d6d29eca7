"""Test tests/conftest.py: a skip fails the run where skips are errors, with its reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Held

SKIPS = {
    "no weather": 'import pytest\ndef test_it():\n    pytest.skip("no weather")\n',
    "no sun": 'import pytest\n@pytest.mark.skipif(True, reason="no sun")\ndef test_it():\n    pass\n',
    "no_such_module": 'import pytest\npytest.importorskip("no_such_module")\ndef test_it():\n    pass\n',
}


def run(folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    ours = {"CI", "BATCHVAL_NO_SKIPS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"}
    clean = {key: value for key, value in os.environ.items() if key not in ours}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-ra",
        "-p",
        "no:cacheprovider",
        *options,
        str(folder),
    ]
    return subprocess.run(
        command, env=clean | env, cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def skips(tmp_path: Path) -> Path:
    """Make a folder of tests, each skipped for another reason and in another way, but for one."""
    for n, text in enumerate(SKIPS.values()):
        (tmp_path / f"test_skips_{n}.py").write_text(text)
    (tmp_path / "test_passes.py").write_text("def test_it():\n    pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("env", "options"),
    [({"CI": "true"}, []), ({"BATCHVAL_NO_SKIPS": "1"}, []), ({"BATCHVAL_NO_SKIPS": "1"}, ["-n2"])],
    ids=["CI", "BATCHVAL_NO_SKIPS", "in two processes"],
)
def test_a_skip_is_an_error(skips: Path, env: dict[str, str], options: list[str]) -> None:
    ran = run(skips, "--continue-on-collection-errors", *options, **env)
    assert ran.returncode != 0
    assert "1 failed, 1 passed, 2 errors in" in ran.stdout
    assert ran.stdout.partition("short test summary")[0].count(
        "nothing may be skipped here: "
    ) == len(SKIPS)
    for reason in SKIPS:
        assert reason in ran.stdout


@pytest.mark.parametrize(
    "options",
    [[], pytest.param(["-n2"], marks=pytest.mark.slow)],  # three start-ups of pytest
    ids=["in one process", "in two processes"],
)
def test_elsewhere_it_is_listed_with_its_reason(skips: Path, options: list[str]) -> None:
    ran = run(skips, *options)
    assert ran.returncode == 0
    listed = [line for line in ran.stdout.splitlines() if line.startswith("SKIPPED")]
    assert len(listed) == len(SKIPS)
    for reason in SKIPS:
        assert [line for line in listed if reason in line]


def test_an_expected_failure_is_not_a_skip(tmp_path: Path) -> None:
    (tmp_path / "test_xfail.py").write_text(
        "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"
    )
    ran = run(tmp_path, CI="true")
    assert ran.returncode == 0
    assert "1 xfailed" in ran.stdout


def test_what_a_collection_does_not_free_causes_no_second_one() -> None:
    allocated, collections, held = 100, 0, Held()

    def collect() -> None:
        nonlocal allocated, collections
        collections += 1
        allocated = 60  # of a gate that runs

    for now, expected in ((0, 0), (100, 1), (60, 1), (60, 1), (61, 2), (10, 2), (60, 3)):
        allocated = now
        held.free(lambda: allocated, collect)  # noqa: B023
        assert collections == expected, now
