"""Counts by hour, where timestamps are whatever somebody wrote."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchval.audit.hours import COUNTERS, HOUR_MS, HOURS_OF_A_SEGMENT, Hours
from batchval.audit.local import run_local
from batchval.audit.reduce import Audit
from batchval.audit.run import audit, list_work
from batchval.core.crc32c import crc32c
from batchval.segment.options import Options, validator_of
from batchval.segment.store import SegmentInfo
from tests.support.batches import batch, record

SEGMENT = SegmentInfo("", "t", 0, base_offset=0, size=0, mtime_ns=0)
NOW = 495_000  # an hour of 2026
_BATCH = batch([record()], base_offset=0, partition_leader_epoch=1)


def stamped(offset: int, timestamp: int, *, sound: bool = True) -> bytes:
    data = bytearray(_BATCH)
    struct.pack_into(">q", data, 0, offset)
    struct.pack_into(">qq", data, 27, timestamp, timestamp)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]) ^ (not sound))
    return bytes(data)


def counted(hours: Hours) -> dict[int, tuple[int, list[int]]]:
    batches = hours.counts[:, COUNTERS.index("batches")]
    return {h: (n, e) for h, n, e in zip(hours.hours.tolist(), batches.tolist(), hours.extremes.tolist(), strict=True)}


@given(st.lists(st.integers(-2, 30), min_size=1, max_size=40), st.data())
def test_the_nearest_are_kept_however_counts_come(found: list[int], data: st.DataObject) -> None:
    batches = [stamped(n, hour * HOUR_MS + n, sound=hour >= -1) for n, hour in enumerate(found)]
    together = Hours(near=12, most=5)
    judged = validator_of(Options()).check_batches
    together.add(judged(b"".join(batches)), SEGMENT)
    parts = [Hours(12, 5), Hours(12, 5), Hours(12, 5)]
    for one in batches:
        data.draw(st.sampled_from(parts)).add(judged(one), SEGMENT)
    joined = Hours(12, 5)
    for part in parts:
        joined.merge(part)
    assert counted(joined) == counted(together)
    assert joined.total("batches") == len(found)
    kept = sorted({hour for hour in found if hour >= 0}, key=lambda hour: (abs(hour - 12), hour))[:5]
    assert [hour for hour in joined.hours.tolist() if hour >= 0] == sorted(kept)
    for hour, (count, extremes) in counted(joined).items():
        rows = [n for n, one in enumerate(found) if (one if one in kept else -1) == hour]
        assert count == len(rows)
        believed = [n for n in rows if found[n] >= -1]
        if believed:
            stamps = [found[n] * HOUR_MS + n for n in believed]
            assert extremes == [min(stamps), max(stamps), believed[0], believed[-1]]
        else:
            assert extremes[0] > extremes[1]


def run(folder: Path, split_bytes: int) -> Audit:
    options = Options(rows="none", split_bytes=split_bytes, cleanup_policy="delete")
    return audit(list_work([str(folder)], options), options, lambda todo, told, out: run_local(todo, told, out, 1))


def test_random_timestamps_make_no_millions_of_rows(tmp_path: Path) -> None:
    chance = random.Random(7)
    stamps = [chance.randrange(NOW * 2 * HOUR_MS) for _ in range(HOURS_OF_A_SEGMENT + 4_000)]
    data = b"".join(stamped(n - (n % 500 == 9), stamp, sound=n % 1000 != 3) for n, stamp in enumerate(stamps))
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(data)
    os.utime(log, ns=(0, NOW * HOUR_MS * 1_000_000))
    found = run(tmp_path, 1 << 30)
    summary = found.tables["summary"]
    assert summary.num_rows == HOURS_OF_A_SEGMENT + 1
    assert run(tmp_path, 400_000).tables["summary"].equals(summary)
    assert pc.sum(summary["batches"]).as_py() == len(stamps)
    hours = summary["hour"].cast(pa.int64()).to_pylist()
    assert hours[-1] is None
    assert hours[:-1] == sorted(hours[:-1])
    sound = {stamp // HOUR_MS for n, stamp in enumerate(stamps) if n % 1000 != 3}
    nearest = sorted(sound, key=lambda hour: (abs(hour - NOW), hour))[:HOURS_OF_A_SEGMENT]
    assert hours[:-1] == [hour * HOUR_MS for hour in sorted(nearest)]
    rules = [dict(row) for row in summary["rules"].to_pylist()]
    assert found.rules() == sum(map(Counter, rules), Counter())
    assert set(found.rules()) == {"14", "L2"}  # the gap that follows has the same cause
    assert pc.sum(summary["offset_anomalies"]).as_py() == found.rules()["L2"]
    assert [n for n, row in enumerate(rules) if "14" in row] == [len(rules) - 1]


@pytest.mark.parametrize("deep", [False, True])
def test_the_summary_of_nothing(tmp_path: Path, deep: bool) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").touch()
    options = Options(deep=deep)
    found = audit(list_work([str(tmp_path)], options), options, lambda todo, told, out: run_local(todo, told, out, 1))
    assert found.tables["summary"].num_rows == 0
