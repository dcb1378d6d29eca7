"""The benches of audits run once, tiny. No time is asserted: what is tested is that they measure
what they say.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchval.segment.check import Options, Summary, check_paths
from bench.spark import dump_log, segments, spark_run
from tests.support.benches import ROOT, run
from tests.system.interop.kafka_broker import ToolMissing, classpath

BENCH = ROOT / "bench" / "spark"
TINY = ("--gib", "0.0625", "--rounds", "1", "--split", str(8 << 20), "--large-mib", "16")


def test_segments_are_sound_and_as_large_as_asked(tmp_path: Path) -> None:
    count = segments.write(
        tmp_path, "bench", 2, 1 << 20, 4_096, ("none", "gzip", "snappy", "lz4", "zstd")
    )
    summary = Summary()
    assert list(check_paths([tmp_path], Options(), summary)) == []  # its index does not lie, either
    assert summary.batches == count > 400
    assert 0.98 < summary.bytes / (2 << 20) <= 1
    assert (tmp_path / "bench-1" / f"{0:020}.index").stat().st_size >= 8 * 100


@pytest.mark.jvm
@pytest.mark.long
def test_dump_log_and_an_audit() -> None:
    try:
        classpath("tools")
    except ToolMissing as missing:
        pytest.skip(str(missing))
    rows = dump_log.bench(1, [(0.002, 16_384), (0.002, 1_024)])
    assert len(rows) == 2
    for row in rows:
        assert set(row["seconds"]) == set(row["cpu_s"]) == {"dump-log", "rows none", "rows all"}
        assert all(seconds > 0 for seconds in row["seconds"].values())
    assert rows[0]["batch_bytes"] > 8 * rows[1]["batch_bytes"]


@pytest.mark.jvm
@pytest.mark.slow
def test_a_tiny_run(tmp_path: Path) -> None:
    out = tmp_path / "spark"
    done = run("-W", "ignore", BENCH / "spark_run.py", *TINY, "--cores", "2", "--out", out)
    assert done.returncode == 0, done.stderr[-5000:]
    result = json.loads(out.with_suffix(".json").read_text())
    assert set(result["runs"]) == set(spark_run.WAYS)
    assert result["rows"] > 3000
    assert all(
        run["wall"] > 0 and run["cpu"] > 0 for runs in result["runs"].values() for run in runs
    )
    for name in ("memory", "memory deep"):
        assert 50 < result["measured"][name][0] < 1000
    assert done.stdout == out.with_suffix(".md").read_text() + "\n"
