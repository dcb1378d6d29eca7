"""Tasks of ranges, and the files of batches/ that they write."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchval.audit import batch_files
from batchval.audit.audit_run import audit, list_work
from batchval.audit.local import run_local
from batchval.audit.outputs import ParquetFile
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import MIN_RANGE_BYTES, OPENING, Range, pack
from batchval.segment.store import SegmentInfo
from tests.support.batches import batch, records

HOUR_MS = 3_600_000
NOON = 1_795_348_800_000  # 2026-11-22 12:00 UTC


def ranges(size: int, count: int, topics: int = 1) -> list[Range]:
    segments = (SegmentInfo(f"/l/{n}.log", f"t{n % topics}", 0, n, size, 0) for n in range(count))
    return [Range(one, 0, size) for one in segments]


def test_small_ranges_share_tasks() -> None:
    whole = 256 << 20
    assert [len(task) for task in pack(ranges(whole, 40), whole)] == [1] * 40
    assert len(pack(ranges(1 << 10, 152), whole)) == -(-152 // (MIN_RANGE_BYTES // OPENING))
    assert len(pack(ranges(1 << 20, 64), whole)) == 2
    assert len(pack(ranges(100 << 20, 200), whole)) == 100
    assert len(pack(ranges(100, 5), 300)) == 5
    assert pack([], whole) == []


def test_tasks_depend_on_the_ranges_alone_and_keep_topics_together() -> None:
    found = ranges(3 << 20, 60, topics=3) + ranges(40 << 20, 7)
    tasks = pack(found, 64 << 20)
    random.Random(3).shuffle(found)
    assert pack(found, 64 << 20) == tasks
    assert sorted(one for task in tasks for one in task) == sorted(found)
    sizes = [sum(one.end - one.start for one in task) for task in tasks]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(len({one.segment.topic for one in task}) for task in tasks) <= len(tasks) + 3


# ---- files ---------------------------------------------------------------------------------------


def write(path: Path, hours: Sequence[int]) -> Path:
    """Write a segment with a batch in each of these hours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    base = int(path.stem)
    stamps = [NOON + hour * HOUR_MS for hour in hours]
    parts = (
        batch(records(3), base_offset=base + 3 * n, base_timestamp=stamp, max_timestamp=stamp)
        for n, stamp in enumerate(stamps)
    )
    path.write_bytes(b"".join(parts))
    return path


def log(folder: Path, name: str, base: int = 0) -> Path:
    return folder / name / f"{base:020}.log"


def plain(ranges: Sequence[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
    return run_local(ranges, options, out, processes=1)


def files(out: Path) -> dict[str, int]:
    """Return the rows of each file, by its name below batches/."""
    found = sorted((out / "batches").rglob("*.parquet"))
    return {
        str(file.relative_to(out / "batches")): pq.ParquetFile(file).metadata.num_rows
        for file in found
    }


def hours_of(out: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, rows in files(out).items():
        counts[name.split("/")[1]] += rows
    return counts


def test_many_segments_make_few_files(tmp_path: Path) -> None:
    """Audit 152 segments of two topics, two hours each."""
    for partition in range(4):
        for n in range(19):
            for topic in ("a", "b"):
                write(
                    log(tmp_path / "in", f"{topic}-{partition}", 30 * n),
                    [n // 10, n // 10, n // 10 + 1],
                )
    options = Options()
    for engine, out in (
        (plain, tmp_path / "one"),
        (lambda *what: run_local(*what, processes=2), tmp_path / "two"),
    ):
        found = audit(list_work([str(tmp_path / "in")], options), options, engine, str(out))
        assert (found.segments, found.batches) == (152, 456)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert sum(files(tmp_path / "one").values()) == 456
    assert len(files(tmp_path / "one")) <= 2 * 3 * (152 // (MIN_RANGE_BYTES // OPENING) + 1)
    one, two = (sorted((tmp_path / name / "batches").rglob("*.parquet")) for name in ("one", "two"))
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


def test_hours_beyond_those_of_a_range_and_files_beyond_those_that_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the packing of tasks does not change the hour of a row."""
    monkeypatch.setattr(batch_files, "HOURS", 3)
    monkeypatch.setattr(batch_files, "_MAX_OPEN_FILES", 2)
    write(log(tmp_path / "in", "a-0"), [0, 1, 2, 3, 4, 0])
    write(log(tmp_path / "in", "a-1"), [4, 5, 6, 6, 7])
    found = []
    for split_bytes in (1 << 20, 10 << 20):
        out, options = tmp_path / str(split_bytes), Options(split_bytes=split_bytes)
        audit(list_work([str(tmp_path / "in")], options), options, plain, str(out))
        found.append(hours_of(out))
    assert found[0] == found[1]
    assert found[0] == {
        f"hour=2026-11-22-{12 + n}": 2 if n in (0, 6) else 1 for n in (0, 1, 2, 4, 5, 6)
    } | {"hour=none": 3}


@pytest.mark.parametrize("what", ["deleted", "replaced", "all deleted"])
def test_rows_of_a_segment_that_a_broker_took_away_are_not_kept(tmp_path: Path, what: str) -> None:
    """Delete a segment whose rows shared files with rows that count."""
    folder = tmp_path / "in"
    gone = write(log(folder, "a-0"), [0, 0, 1])
    write(log(folder, "a-0", 9), [1, 1])
    write(log(folder, "b-0"), [0])
    options = Options(cleanup_policy="compact")

    def reads(ranges: Sequence[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
        (task,) = pack(ranges, options.split_bytes)
        first, *others = run_local(ranges, options, out, processes=1)
        assert (first.range.segment.uri, len(others) + 1) == (str(gone), len(task))
        if what == "replaced":
            write(tmp_path / "swap" / gone.name, [0, 1]).rename(gone)
            first.changed = "another file was put in its place"
        else:
            gone.unlink()
            first.gone = True
        if what == "all deleted":
            log(folder, "a-0", 9).unlink()
            others[0].gone = True
        yield from [first, *others]

    audit(list_work([str(folder)], options), options, reads, str(tmp_path / "out"))
    b, late = {"hour=2026-11-22-12": 1}, {"hour=2026-11-22-13": 2}
    assert (
        hours_of(tmp_path / "out")
        == {
            "deleted": b | late,
            "replaced": {"hour=2026-11-22-12": 2, "hour=2026-11-22-13": 3},
            "all deleted": b,
        }[what]
    )


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(log(tmp_path / "in", "a-0"), [0, 1])
    whole = ParquetFile.close
    closed: list[str] = []

    def full(file: ParquetFile) -> None:
        if closed:
            raise OSError(28, "No space left on device")
        closed.append(file.path)
        whole(file)

    monkeypatch.setattr(ParquetFile, "close", full)
    options = Options()
    with pytest.raises(OSError, match="cannot be written"):
        audit(list_work([str(tmp_path / "in")], options), options, plain, str(tmp_path / "out"))
    assert [
        str(file) for file in (tmp_path / "out" / "batches").rglob("*") if file.is_file()
    ] == closed
