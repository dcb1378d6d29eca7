"""The Spark bench's figures are what they say, and it runs, tiny. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.spark import spark_run
from tests.support.benches import ROOT

BENCH = ROOT / "bench" / "spark"
TINY = ("--gib", "0.0625", "--rounds", "1", "--split", str(8 << 20), "--large-mib", "16")


def test_figures_are_differences_round_by_round() -> None:
    def runs(*pairs: tuple[float, float]) -> list[dict[str, float]]:
        return [{"wall": wall, "cpu": cpu} for wall, cpu in pairs]

    found = {
        "processes": runs((1.0, 4.0), (1.0, 4.2)),
        "spark": runs((2.0, 8.0), (1.6, 8.0)),
        "spark parquet": runs((4.0, 18.0), (4.0, 16.0)),
        "processes sums": runs((1.0, 2.0), (0.9, 2.0)),
        "spark batches": runs((1.25, 3.0), (1.0, 3.0)),
        "engine parquet": runs((2.0, 9.0), (2.0, 10.0)),
    }
    measured = spark_run.figures(found, size=10 * 10**9, rows=1_000_000)
    assert measured == {
        "throughput": [0.5, 0.625],
        "batches": [0.8, 0.9],
        "cpu": pytest.approx([0.4, 0.38]),
        "parquet": [10.0, 8.0],
        "engine": [1.0, 2.0],
    }
    by_name = {one["name"]: one for one in spark_run.verdicts(measured)}
    assert [one["verdict"] for one in by_name.values()] == ["noise", "met", "missed", "met", "met"]
    assert spark_run.verdicts({"memory": [251.0], "memory deep": []})[0]["verdict"] == "missed"


def test_partitions_are_links_to_two_segments(tmp_path: Path) -> None:
    logs = spark_run.make_logs(tmp_path, 1 / 512, batch_bytes=4096)
    files = sorted(logs.rglob("*.log"))
    assert len(files) == 2
    assert sum(file.stat().st_size for file in files) > 1.8 * (1 << 20)
    large = spark_run.make_large(tmp_path / "large", 1, 3)
    for log in large.rglob("*.log"):
        assert 2.7 * (1 << 20) < log.stat().st_size <= 3 << 20


@pytest.mark.jvm
@pytest.mark.slow
def test_a_tiny_run(tmp_path: Path) -> None:
    out = tmp_path / "spark"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", BENCH / "spark_run.py", *TINY, "--cores", "2", "--out", out],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    result = json.loads(out.with_suffix(".json").read_text())
    assert set(result["runs"]) == set(spark_run.WAYS)
    assert result["rows"] > 3000
    assert all(
        run["wall"] > 0 and run["cpu"] > 0 for runs in result["runs"].values() for run in runs
    )
    assert {one["name"] for one in result["verdicts"]} == {
        name for name, _, _ in spark_run.TARGETS.values()
    }
    for name in ("memory", "memory deep"):
        assert 50 < result["measured"][name][0] < 1000
    assert done.stdout in out.with_suffix(".md").read_text()
