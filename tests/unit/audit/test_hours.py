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

from batchval.audit import hours
from batchval.audit.audit_run import audit, list_work
from batchval.audit.hours import EXTREMES, HOUR_MS, HOURS_OF_A_SEGMENT, NONE, Counts, joined, within
from batchval.audit.local import run_local
from batchval.audit.reduce import Audit
from batchval.audit.totals import of_tables
from batchval.core.format.crc32c import crc32c
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


def counted(tables: list[pa.Table]) -> dict[int, tuple[int, list[int | None]]]:
    """Return the batches and extremes of each hour, of at most five hours near 12."""
    found: dict[int, tuple[int, list[int | None]]] = {}
    for row in within(joined(tables), 12, 5).to_pylist():
        extremes = [row[name] for name in EXTREMES]
        before, others = found.get(row["hour"], (0, extremes))
        pairs = zip(EXTREMES.values(), extremes, others, strict=True)
        both = [
            (min if how == "min" else max)(
                [value for value in pair if value is not None], default=None
            )
            for how, *pair in pairs
        ]
        found[row["hour"]] = before + row["batches"], both
    return found


def of(data: bytes) -> pa.Table:
    counts = Counts(SEGMENT, Options())
    counts.add(validator_of(Options()).check_batches(data))
    table = counts.table()
    assert table is not None
    return table


@pytest.mark.long
@given(st.lists(st.integers(-2, 30), min_size=1, max_size=40), st.data())
def test_the_nearest_are_kept_however_counts_come(found: list[int], data: st.DataObject) -> None:
    batches = [stamped(n, hour * HOUR_MS + n, sound=hour >= -1) for n, hour in enumerate(found)]
    parts: list[list[pa.Table]] = [[], [], []]
    for one in batches:
        data.draw(st.sampled_from(parts)).append(of(one))
    got = counted([within(joined(part), 12, 5) for part in parts if part])
    assert got == counted([of(b"".join(batches))])
    assert sum(count for count, _ in got.values()) == len(found)
    kept = sorted({hour for hour in found if hour >= 0}, key=lambda hour: (abs(hour - 12), hour))[
        :5
    ]
    assert {hour for hour in got if hour != NONE} == set(kept)
    for hour, (count, extremes) in got.items():
        rows = [n for n, one in enumerate(found) if (one if one in kept else NONE) == hour]
        assert count == len(rows)
        believed = [n for n in rows if found[n] >= -1]
        stamps = [stamp for n in believed if (stamp := found[n] * HOUR_MS + n) >= 0]
        assert extremes[:2] == [min(stamps, default=None), max(stamps, default=None)]
        assert extremes[2:] == [min(believed, default=None), max(believed, default=None)]


def test_a_range_holds_few_rows_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hours, "_HELD", 10)
    monkeypatch.setattr(hours, "HOURS_OF_A_SEGMENT", 20)
    counts = Counts(SEGMENT, Options())
    for n in range(200):
        counts.add(validator_of(Options()).check_batches(stamped(n, n * HOUR_MS)))
        assert sum(map(len, counts._held)) <= 20 + 2
    table = counts.table()
    assert table is not None
    assert sorted(zip(table["hour"].to_pylist(), table["batches"].to_pylist(), strict=True)) == [
        (NONE, 180),
        *((hour, 1) for hour in range(20)),
    ]


def run(folder: Path, split_bytes: int) -> Audit:
    options = Options(rows="none", split_bytes=split_bytes, cleanup_policy="delete")
    return audit(
        list_work([str(folder)], options),
        options,
        lambda todo, options, out: run_local(todo, options, out, 1),
    )


@pytest.mark.long
def test_random_timestamps_make_no_millions_of_rows(tmp_path: Path) -> None:
    chance = random.Random(7)
    stamps = [chance.randrange(NOW * 2 * HOUR_MS) for _ in range(HOURS_OF_A_SEGMENT + 4_000)]
    data = b"".join(
        stamped(n - (n % 500 == 9), stamp, sound=n % 1000 != 3) for n, stamp in enumerate(stamps)
    )
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(data)
    os.utime(log, ns=(0, NOW * HOUR_MS * 1_000_000))
    found = run(tmp_path, 1 << 30)
    summary = found.tables["summary"]
    assert summary.num_rows == HOURS_OF_A_SEGMENT + 2  # without an hour: with a codec, and without
    assert run(tmp_path, 400_000).tables["summary"].equals(summary)
    assert pc.sum(summary["batches"]).as_py() == len(stamps)
    known = summary["hour"].cast(pa.int64()).to_pylist()
    assert known[-2:] == [None, None]
    assert known[:-2] == sorted(known[:-2])
    sound = {stamp // HOUR_MS for n, stamp in enumerate(stamps) if n % 1000 != 3}
    nearest = sorted(sound, key=lambda hour: (abs(hour - NOW), hour))[:HOURS_OF_A_SEGMENT]
    assert known[:-2] == [hour * HOUR_MS for hour in sorted(nearest)]
    assert summary["codec"].to_pylist()[-2:] == ["none", None]
    assert pc.sum(summary["refused"]).as_py() == len(stamps) // 1000 + 1
    assert set(found.rules()) == {"14", "L2"}  # the gap that follows has the same cause
    facts = of_tables(found.tables)
    assert facts.whole.rules == found.rules()
    assert sum((totals.rules for totals in facts.hours.values()), Counter()) == found.rules()
    assert facts.hours[None].rules["14"] == found.rules()["14"]
    assert set(facts.hours) - {None} == {hour * HOUR_MS // 1000 for hour in nearest}


@pytest.mark.parametrize("deep", [False, True])
def test_the_summary_of_nothing(tmp_path: Path, deep: bool) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").touch()
    options = Options(deep=deep)
    found = audit(
        list_work([str(tmp_path)], options),
        options,
        lambda todo, options, out: run_local(todo, options, out, 1),
    )
    assert found.tables["summary"].num_rows == 0
