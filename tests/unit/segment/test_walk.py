"""The walk over a file is one, however it is read and wherever it is entered."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from batchval.rules import Rule
from batchval.segment import reader
from batchval.segment.findings import damage_reason
from batchval.segment.reader import CHAIN, Damage, LocalFile, SegmentFile, Stretch
from tests.support.batches import batch, record, records
from tests.support.seeds import seeds
from tests.support.segments import crossing, segment


def walk(
    path: Path, start: int = 0, end: int | None = None, block: int = 1 << 20, reuse: bool = False
) -> list[object]:
    """Return (position, size, checksum right?) of each batch of the walk, and damages."""
    met: list[object] = []
    with SegmentFile(path, accept_claims_header=True) as file:
        for part in file.stretches(start, end, block, reuse=reuse):
            if isinstance(part, Damage):
                met.append(part)
                continue
            sizes, valid = part.columns["size_in_bytes"].tolist(), part.columns["is_valid"].tolist()
            positions = [part.position + at for at in part.columns["position"].tolist()]
            met += list(zip(positions, sizes, valid, strict=True))
            assert sum(sizes) == len(part.data)
    return met


def places(met: list[object]) -> list[int]:
    return [part[0] for part in met]  # type: ignore[index]


def write(folder: Path, data: bytes) -> Path:
    path = folder / "00000000000000000000.log"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("seed", seeds(25))
def test_any_block_gives_the_same_walk(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = segment(rng, rng.randint(1, 30), rng.choice((0.05, 0.3)))
    path = write(tmp_path, data)
    met = walk(path)
    ends = [at[0] + at[1] for at in met]  # type: ignore[index]
    assert [0, *ends] == [*places(met), len(data)]  # every byte once
    for block in (61, 100, 333, 1000, 5000):
        assert walk(path, block=block) == met
        assert walk(path, block=block, reuse=True) == met


@pytest.mark.parametrize("seed", seeds(25))
def test_the_walk_can_be_entered_anywhere(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(LocalFile, "chunk", rng.choice((100, 1000, LocalFile.chunk)))
    data = segment(rng, rng.randint(1, 20), rng.choice((0.0, 0.05, 0.3)))
    path = write(tmp_path, data)
    whole = walk(path)
    all_places = [*places(whole), len(data)]
    with SegmentFile(path, accept_claims_header=True) as file:
        for position in range(0, len(data), 1 if len(data) < 3000 else 7):
            assert file.first_at(position) == next(p for p in all_places if p >= position), position
    start = rng.choice(all_places)
    assert walk(path, start) == [part for part in whole if part[0] >= start]  # type: ignore[index]


@pytest.mark.parametrize("seed", seeds(20))
def test_far_into_a_file_the_walk_is_entered_without_its_beginning(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enter the walk as in a file of gigabytes, with constants as small as this one."""
    monkeypatch.setattr(reader, "LOOKBACK", 6000)
    monkeypatch.setattr(reader, "CLEAR", 4000)
    rng = random.Random(seed)
    monkeypatch.setattr(LocalFile, "chunk", rng.choice((100, 1000, LocalFile.chunk)))
    data = segment(rng, 60, rng.choice((0.0, 0.0, 0.02)))
    path = write(tmp_path, data)
    all_places = [*places(walk(path)), len(data)]
    near = 0
    with SegmentFile(path, accept_claims_header=True) as file:
        hop = file._hop

        def counted(at: int, until: int, through_damage: bool) -> int:
            nonlocal near
            found = hop(at, until, through_damage)
            near += not through_damage and found >= 0
            return found

        monkeypatch.setattr(file, "_hop", counted)
        for position in range(0, len(data), 61):
            assert file.first_at(position) == next(p for p in all_places if p >= position), position
    assert near > 20 or len(data) < 12_000 or any(isinstance(part, Damage) for part in walk(path))


def test_a_file_that_shrinks_while_the_walk_goes_over_large_batches(tmp_path: Path) -> None:
    parts = [batch([record(0, value=bytes(20_000))], base_offset=n) for n in range(20)]
    path = write(tmp_path, b"".join(parts))
    with SegmentFile(path) as file:
        read_into = file.source.read_into

        def then_shrinks(position: int, memory: memoryview) -> int:
            count = read_into(position, memory)
            os.truncate(path, 10)
            return count

        file.source.read_into = then_shrinks  # type: ignore[method-assign]
        assert file.first_at(15 * len(parts[0])) <= len(parts[0])


@pytest.mark.parametrize("seed", seeds(5))
def test_a_forged_batch_that_reaches_into_the_next(seed: int, tmp_path: Path) -> None:
    data = crossing(random.Random(seed))
    path = write(tmp_path, data)
    met = walk(path)
    assert len(met) == 2
    assert all(valid for _, _, valid in met)  # type: ignore[misc]
    border = places(met)[1]
    with SegmentFile(path) as file:
        for position in range(1, len(data)):
            assert file.first_at(position) == (border if position <= border else len(data))


@pytest.mark.parametrize("wrong", [1, 3, 255, 256, 257])
def test_wrong_checksums_in_a_row_are_batches_all_the_same(wrong: int, tmp_path: Path) -> None:
    """Check that their offsets go on; where they do not, a chain of a few is still believed."""
    parts = [batch(records(2), base_offset=2 * i, crc=1) for i in range(wrong)]
    met = walk(write(tmp_path, b"".join(parts) + batch(base_offset=2 * wrong)))
    assert [len(part) for part in met] == [3] * (wrong + 1)
    assert not any(isinstance(part, Damage) for part in met)
    back = [batch(records(2), base_offset=10_000 - i, crc=1) for i in range(wrong)]
    met = walk(write(tmp_path, b"".join(back) + batch(base_offset=0)))
    assert isinstance(met[0], Damage) is (wrong >= CHAIN + 1)
    assert walk(write(tmp_path, b"".join(back) + batch(base_offset=0)), block=100) == met


def test_a_wrong_checksum_before_zeros_that_do_not_reach_the_end(tmp_path: Path) -> None:
    lost = batch([record(0, value=bytes(50))], crc=1)
    met = walk(write(tmp_path, lost + bytes(500) + batch(base_offset=5)))
    assert met[0] == Damage(0, len(lost) + 500, "crc")
    met = walk(write(tmp_path, lost + bytes(500)))
    assert met == [(0, len(lost), False), Damage(len(lost), 500, "zeros")]


@pytest.mark.parametrize("after", [0, 1, 2 << 20])
def test_zeros_end_at_the_first_byte_that_is_none(tmp_path: Path, after: int) -> None:
    """Read written zeros in pieces of a MiB."""
    for zeros in (11, 12, (1 << 20) - 17, (3 << 20) + 5):
        following = batch(base_offset=5)
        met = walk(write(tmp_path, batch() + bytes(zeros) + following + bytes(after)))
        kinds = [part.kind if isinstance(part, Damage) else "batch" for part in met]
        assert kinds == ["batch", "size", "batch", *["zeros"] * bool(after)]
        assert met[1] == Damage(len(batch()), zeros, "size", 0)


@pytest.mark.untraced
def test_a_long_tail_of_zeros_is_looked_through_once(tmp_path: Path) -> None:
    path = write(tmp_path, batch())
    with path.open("ab") as file:
        file.truncate(200 << 20)
    with SegmentFile(path) as file:
        parts = list(file.stretches())
        assert isinstance(parts[0], Stretch)
        assert parts[1:] == [Damage(len(batch()), (200 << 20) - len(batch()), "zeros")]
        assert file.first_at(150 << 20) == 200 << 20


def test_a_damage_has_the_magic_that_is_wrong(tmp_path: Path) -> None:
    _, damage, _ = walk(write(tmp_path, batch() + batch(magic=9) + batch(base_offset=1)))
    assert isinstance(damage, Damage)
    assert damage == Damage(len(batch()), len(batch()), "magic", 9)
    rule, reason = damage_reason(damage, 3 * len(batch()))
    assert rule is Rule.MAGIC_UNKNOWN
    assert reason.startswith("magic is 9: expected 0, 1 or 2; the next batch")
