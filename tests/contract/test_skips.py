"""Where nothing may be skipped, a skip fails the run, and says why it would have been one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "no weather": 'import pytest\ndef test_it():\n    pytest.skip("no weather")\n',
    "no sun": 'import pytest\n@pytest.mark.skipif(True, reason="no sun")\ndef test_it():\n    pass\n',
    "no_such_module": 'import pytest\npytest.importorskip("no_such_module")\ndef test_it():\n    pass\n',
}


def run(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    ours = {"CI", "BATCHVAL_NO_SKIPS", "PYTEST_ADDOPTS"}
    clean = {key: value for key, value in os.environ.items() if key not in ours}
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, env=clean | env, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("reason", SKIPS)
@pytest.mark.parametrize("env", [{"CI": "true"}, {"BATCHVAL_NO_SKIPS": "1"}], ids=["CI", "BATCHVAL_NO_SKIPS"])
def test_a_skip_is_an_error(reason: str, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_skips.py").write_text(SKIPS[reason])
    ran = run(tmp_path, **env)
    assert ran.returncode != 0
    assert "nothing may be skipped here" in ran.stdout
    assert reason in ran.stdout


@pytest.mark.parametrize("reason", SKIPS)
def test_elsewhere_it_is_listed_with_its_reason(reason: str, tmp_path: Path) -> None:
    (tmp_path / "test_skips.py").write_text(SKIPS[reason])
    (tmp_path / "test_passes.py").write_text("def test_it():\n    pass\n")
    ran = run(tmp_path)
    assert ran.returncode == 0
    assert "SKIPPED" in ran.stdout
    assert reason in ran.stdout


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    (tmp_path / "test_xfail.py").write_text("import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n")
    ran = run(tmp_path, CI="true")
    assert ran.returncode == 0
    assert "1 xfailed" in ran.stdout
