"""Share promtool and the metrics of a gate among the tests of deploy/."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.promtool import PromtoolMissing, find_promtool
from tests.system.deploy.gate_metrics import metrics_of_a_gate

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="session")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[str]]:
    return metrics_of_a_gate(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def promtool() -> Callable[..., str]:
    """Run promtool in deploy/prometheus; fails with what it prints."""
    try:
        program = find_promtool()
    except PromtoolMissing as missing:
        pytest.skip(str(missing))

    def run(*words: str | Path) -> str:
        done = subprocess.run(
            [program, *words],
            cwd=DEPLOY / "prometheus",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
