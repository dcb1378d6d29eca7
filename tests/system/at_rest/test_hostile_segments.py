"""Measure the cost of a hostile byte in a segment over an ordinary one; splits change nothing."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from batchval.audit.task import work
from batchval.segment.index import covers
from batchval.segment.options import Options
from batchval.segment.range_check import blocks, check_range
from batchval.segment.ranges import Range, cut
from batchval.segment.reader import Damage, SegmentFile
from batchval.segment.store import SegmentInfo, Store
from tests.support.calibration import slowness
from tests.support.hostile_segments import PATTERNS, plain

SIZE = 2_000_000
CEILING = 100  # times the CPU of an ordinary byte
DENSE = ("one byte of junk", "zeros", "unknown magic", "small messages", "nested", "huge sizes")


def listed(folder: Path, data: bytes) -> SegmentInfo:
    path = folder / "t-0" / "00000000000000000000.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    (found,) = Store.of(str(path))[0].list_segments(str(path))
    assert isinstance(found, SegmentInfo)
    return found


def ordinary(folder: Path) -> float:
    """Return the CPU seconds per byte of a check of small valid batches; the best of three."""
    segment = listed(folder, plain(SIZE))
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        assert check_range(Range(segment, 0, segment.size), Options()).batches > 20_000
        best = min(best, time.process_time() - started)
    return best / segment.size


def walked(path: str) -> int:
    with SegmentFile(Path(path)) as file:
        return sum(
            isinstance(part, Damage) for part in file.stretches(0, None, 512 << 10, reuse=True)
        )


@pytest.mark.alone
@pytest.mark.parametrize("name", PATTERNS)
def test_a_hostile_byte_costs_at_most_a_hundred_ordinary_ones(tmp_path: Path, name: str) -> None:
    """Measure the walk, with the search for the next batch after each damage."""
    usual = ordinary(tmp_path)
    segment = listed(tmp_path, PATTERNS[name](SIZE))
    costs = []
    for _ in range(3):  # others who use the machine only make a try slower
        started = time.process_time()
        walked(segment.uri)
        costs.append((time.process_time() - started) / segment.size)
        if costs[-1] <= CEILING * usual:
            break
    assert min(costs) <= CEILING * usual


def judged(segment: SegmentInfo, how: str, out: Path) -> float:
    """Return the CPU seconds per byte of ``check`` or an audit with its rows; the best of five."""
    part = Range(segment, 0, segment.size)
    costs = []
    for _ in range(5):
        started = time.process_time()
        if how == "check":
            check_range(part, Options())
        else:
            options = Options(rows="all" if how == "rows=all" else "none")
            work((part,), options, tempfile.mkdtemp(dir=out))
        costs.append((time.process_time() - started) / segment.size)
    return min(costs)


def dense_ratios(folder: Path, how: str) -> dict[str, float]:
    """Return for each dense file what a byte costs, in ordinary bytes; the best of three tries."""
    ordinary_segment = listed(folder / "plain", plain(SIZE))
    found = {}
    for name in DENSE:
        segment = listed(folder / name, PATTERNS[name](SIZE // 16))
        ratios = []
        for _ in range(3):  # a virtual core has two speeds: both are timed in each try
            usual = judged(ordinary_segment, how, folder)
            ratios.append(judged(segment, how, folder) / usual)
            if ratios[-1] <= CEILING:
                break
        found[name] = min(ratios)
    return found


@pytest.mark.alone
@pytest.mark.parametrize("how", ["check", "rows=none", "rows=all"])
def test_dense_damage_costs_at_most_a_hundred_ordinary_bytes(tmp_path: Path, how: str) -> None:
    """Measure a check of files with damage before each small batch.

    What the host takes from a virtual processor counts as CPU of the process. Both runs last tens
    of milliseconds, so that the best of five escapes it. They have a process of their own, as a
    command has: with memory that earlier tests have left to malloc, an ordinary byte costs half.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        ratios = process.submit(dense_ratios, tmp_path, how).result()
    assert list(ratios) == list(DENSE)
    assert {name: ratio for name, ratio in ratios.items() if ratio > CEILING} == {}


def test_places_in_damage() -> None:
    spans = [(0, 1), (1, 2), (7, 3), (20, 1)]
    for position in range(-1, 23):
        expected = any(start <= position < start + size for start, size in spans)
        assert covers(spans, position) == expected
    assert not covers([], 0)


@pytest.mark.parametrize("name", PATTERNS)
def test_hostile_segments_are_the_same_in_any_split(tmp_path: Path, name: str) -> None:
    segment = listed(tmp_path, PATTERNS[name](200_000))
    options = Options()

    def places(split_bytes: int, *, backwards: bool = False) -> list[tuple[int, int, bool]]:
        found = []
        ranges = cut(segment, split_bytes, Store.of(segment.uri)[0])
        for part in reversed(ranges) if backwards else ranges:
            for block in blocks(part, options):
                found += [(one.position, one.size, True) for one in block.damages]
                starts = (block.columns["position"] + block.position).tolist()
                sizes = block.columns["size_in_bytes"].tolist()
                found += [(start, size, False) for start, size in zip(starts, sizes, strict=True)]
        return sorted(found)

    whole = places(1 << 30)
    assert sum(size for _, size, _ in whole) == segment.size
    assert places(4096) == whole
    assert places(30_000, backwards=True) == whole


@pytest.mark.alone
def test_small_splits_do_not_multiply_the_cost(tmp_path: Path) -> None:
    """Check that ranges that one process reads in order share their state of the walk."""
    segment = listed(tmp_path, PATTERNS["nested"](SIZE))
    options = Options()

    def cost(split_bytes: int) -> float:
        started = time.process_time()
        for part in cut(segment, split_bytes, Store.of(segment.uri)[0]):
            check_range(part, options)
        return time.process_time() - started

    assert cost(4096) < 5 * cost(1 << 30) + slowness()
