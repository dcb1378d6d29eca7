"""The benches of audits run once, tiny. No time is asserted: what is tested is that they measure
what they say.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchval.segment.check import Options, Summary, check_paths
from bench.spark import dump_log, process_tree, segments
from tests.interop.kafka_broker import ToolMissing, classpath


def test_segments_are_sound_and_as_large_as_asked(tmp_path: Path) -> None:
    count = segments.write(
        tmp_path, "bench", 2, 1 << 20, 4_096, ("none", "gzip", "snappy", "lz4", "zstd")
    )
    summary = Summary()
    assert list(check_paths([tmp_path], Options(), summary)) == []  # its index does not lie, either
    assert summary.batches == count > 400
    assert 0.98 < summary.bytes / (2 << 20) <= 1
    assert (tmp_path / "bench-1" / f"{0:020}.index").stat().st_size >= 8 * 100


@pytest.mark.alone
def test_cpu_of_the_tree_counts_children() -> None:
    before, began = process_tree.cpu(), time.process_time()
    busy = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert process_tree.cpu() - before >= 0.45 + time.process_time() - began - 0.05


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
        assert {name: len(samples) for name, samples in row["samples"].items()} == {
            "dump-log": 1,
            "rows none": 1,
            "rows all": 1,
        }
        assert row["faster"]["rows none"] > 0
    assert rows[0]["batch_bytes"] > 8 * rows[1]["batch_bytes"]
