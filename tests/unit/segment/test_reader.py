"""The reader alone: files that change under it, sizes that lie, and what memory it takes."""

from __future__ import annotations

import itertools
import os
import resource
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from batchval.segment.reader import BELIEVED, BLOCK, Damage, SegmentFile, Stretch, index_entries
from tests.support.batches import ZSTD, batch, record, records

PARTS = [batch(records(2), base_offset=2 * i) for i in range(50)]
WHOLE = b"".join(PARTS)


def write(folder: Path, *parts: bytes) -> Path:
    path = folder / "segment.log"
    path.write_bytes(b"".join(parts))
    return path


def joined(parts: list[Stretch | Damage]) -> bytes:
    return b"".join(bytes(part.data) for part in parts if isinstance(part, Stretch))


def test_everything_once_and_in_order(tmp_path: Path) -> None:
    with SegmentFile(write(tmp_path, WHOLE)) as segment:
        parts = list(segment.stretches())
    assert joined(parts) == WHOLE
    assert [part.position for part in parts] == [0]


@pytest.mark.parametrize("block", [100, 137, 200, 1000, 1 << 20])
def test_any_block_size_gives_the_same(tmp_path: Path, block: int) -> None:
    damaged = [*PARTS[:20], b"\xff" * 33, *PARTS[20:40], bytes(50), *PARTS[40:], PARTS[0][:40]]
    with SegmentFile(write(tmp_path, *damaged)) as segment:
        parts = list(segment.stretches(block=block))
    assert joined(parts) == WHOLE
    first = sum(map(len, PARTS[:20]))
    second = first + 33 + sum(map(len, PARTS[20:40]))
    end = second + 50 + sum(map(len, PARTS[40:]))
    assert [part for part in parts if isinstance(part, Damage)] == [
        Damage(first, 33, "size", -1),
        Damage(second, 50, "size", 0),
        Damage(end, 40, "partial"),
    ]
    position = 0
    for part in parts:
        assert part.position == position
        position += len(part.data) if isinstance(part, Stretch) else part.size
    assert position == end + 40


def test_ranges_cover_a_file_without_overlap(tmp_path: Path) -> None:
    with SegmentFile(write(tmp_path, WHOLE)) as segment:
        starts = [sum(map(len, PARTS[:i])) for i in (0, 10, 33, 50)]
        got = [joined(list(segment.stretches(a, b))) for a, b in itertools.pairwise(starts)]
        assert b"".join(got) == WHOLE
        assert got[0] == b"".join(PARTS[:10])
        # a batch belongs to the range in which it starts
        assert joined(list(segment.stretches(0, starts[1] + 1))) == b"".join(PARTS[:11])
        assert joined(list(segment.stretches(0, 1))) == PARTS[0]
        assert joined(list(segment.stretches(len(WHOLE), None))) == b""


def test_a_batch_larger_than_a_block(tmp_path: Path) -> None:
    large = batch([record(0, value=os.urandom(1000))])
    with SegmentFile(write(tmp_path, PARTS[0], large, PARTS[1])) as segment:
        assert joined(list(segment.stretches(block=200))) == PARTS[0] + large + PARTS[1]


@pytest.mark.parametrize("kept", [0, 1, 100, len(PARTS[0]), 1500, len(WHOLE) - 1])
def test_a_file_that_shrinks_under_the_reader(tmp_path: Path, kept: int) -> None:
    """Truncate the active segment, as a broker does after an unclean leader change. Missing bytes
    are not damage; an incomplete batch is.
    """
    path = write(tmp_path, WHOLE)
    with SegmentFile(path) as segment:
        reading = segment.stretches(block=300)
        first = next(reading)
        assert isinstance(first, Stretch)
        os.truncate(path, kept)
        parts = [first, *reading]
        assert segment.size <= max(kept, len(first.data) + 300)
    got = joined(parts)
    assert WHOLE.startswith(got)
    damages = [part for part in parts if isinstance(part, Damage)]
    whole = sum(len(p) for i, p in enumerate(PARTS) if sum(map(len, PARTS[: i + 1])) <= kept)
    if kept > len(first.data):
        assert len(got) == whole
        assert damages == ([Damage(whole, kept - whole, "partial")] if kept > whole else [])
    else:
        assert damages == []


def test_a_file_that_shrinks_inside_damage(tmp_path: Path) -> None:
    path = write(tmp_path, PARTS[0], b"\xff" * (3 * BLOCK), PARTS[1])
    with SegmentFile(path) as segment:
        reading = segment.stretches()
        next(reading)
        os.truncate(path, len(PARTS[0]) + 10)
        assert list(reading) == [Damage(len(PARTS[0]), 10, "partial")]


def test_a_file_that_grows_under_the_reader(tmp_path: Path) -> None:
    path = write(tmp_path, *PARTS[:10], PARTS[10][:30])
    with SegmentFile(path) as segment:
        reading = segment.stretches(block=300)
        first = next(reading)
        with path.open("ab") as more:
            more.write(PARTS[10][30:] + b"".join(PARTS[11:]))
        parts = [first, *reading]
    # the batch that was half written has become whole; what started later is another reader's
    assert joined(parts) == b"".join(PARTS[:11])
    assert not any(isinstance(part, Damage) for part in parts)


@pytest.mark.parametrize("kind", ["folder", "pipe", "null"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = {"folder": tmp_path, "pipe": tmp_path / "pipe", "null": Path("/dev/null")}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"not a regular file|is a folder"):
        SegmentFile(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_after_damage_a_batch_across_the_search_window_is_found(
    tmp_path: Path, offset: int
) -> None:
    junk = b"\xff" * ((16 << 20) - 40 + offset)
    with SegmentFile(write(tmp_path, PARTS[0], junk, PARTS[1])) as segment:
        parts = list(segment.stretches())
    assert parts[1] == Damage(len(PARTS[0]), len(junk), "size", -1)
    assert joined(parts) == PARTS[0] + PARTS[1]


def test_index_entries() -> None:
    path = Path(__file__).parents[3] / "fixtures/segments/rolled-0/00000000000000000030.index"
    raw = path.read_bytes()
    offsets, positions = index_entries(raw, 30)
    expected = [struct.unpack_from(">ii", raw, i) for i in range(0, len(raw), 8)]
    assert [*zip(offsets - 30, positions, strict=True)] == expected
    assert len(offsets) > 2


# ---- memory --------------------------------------------------------------------------------------

MEASURE = """
import resource, sys
from pathlib import Path
from batchval.segment.check import Options, Summary, check_paths
list(check_paths([Path(sys.argv[1])], Options(), Summary()))  # a small file: everything is loaded
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
summary = Summary()
found = list(check_paths([Path(sys.argv[2])], Options(), summary))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, summary.batches, len(found))
"""


def growth(small: Path, path: Path) -> tuple[int, int, int]:
    """Return (more memory in KiB, batches, findings) of a check of a file in a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), str(small), str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    more, batches, found = map(int, done.stdout.split())
    return more, batches, found


@pytest.mark.alone
def test_a_claimed_size_buys_no_memory(tmp_path: Path) -> None:
    small = write(tmp_path, WHOLE)
    claim = tmp_path / "claim.log"
    claim.write_bytes(struct.pack(">qi", 0, 2**31 - 13) + WHOLE[12:])
    more, batches, found = growth(small, claim)
    assert found == 1
    assert batches == 49
    assert more < 4 << 10


@pytest.mark.alone
def test_a_claimed_size_inside_a_large_file_buys_no_memory(tmp_path: Path) -> None:
    """Read a sparse file: 300 MB of which almost none is on the disk."""
    small = write(tmp_path, WHOLE)
    claim = tmp_path / "claim.log"
    with claim.open("wb") as out:
        out.write(struct.pack(">qi", 0, 250 << 20) + WHOLE[12:])
        out.truncate(300 << 20)
    more, batches, found = growth(small, claim)
    assert batches == 49
    assert found == 2  # the lie, and zeros to the end
    assert more < 4 * BLOCK >> 10
    assert BELIEVED > BLOCK


@pytest.mark.alone
def test_a_large_segment_is_judged_in_bounded_memory(tmp_path: Path) -> None:
    small = write(tmp_path, WHOLE)
    large = tmp_path / "large.log"
    body = batch([record(i, value=os.urandom(1000)) for i in range(1000)], partition_leader_epoch=1)
    packed = batch(
        [record(i, value=b"text %d " % i * 100) for i in range(1000)],
        codec=ZSTD,
        partition_leader_epoch=1,
    )
    count = 0
    with large.open("wb") as out:
        while out.tell() < 300 << 20:
            for part in (body, packed):
                out.write(struct.pack(">q", 1000 * count) + part[8:])
                count += 1
    more, batches, found = growth(small, large)
    large.unlink()
    assert (batches, found) == (count, 0)
    assert more < 5 * BLOCK >> 10


@pytest.mark.alone
def test_rss_is_measured_at_all() -> None:
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 10 << 10
