"""Test ``check --salvage``: it writes every sound batch and nothing else, and the lost offsets."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from batchval.core.batches.columns import scan_batches
from batchval.errors import BatchvalError
from batchval.segment.check import Options, Summary, check_paths
from batchval.segment.salvage import Lost, Salvage
from tests.support.batches import batch, records
from tests.system.at_rest.test_damage import (
    DAMAGES,
    FIRST,
    LAST,
    LOG,
    MIDDLE,
    SEGMENTS,
    batches,
    copied,
    edit,
    flip,
    order,
    put,
    swap,
    without,
)

DELETE = Options(cleanup_policy="delete")


def salvaged(folder: Path, out: Path, options: Options = DELETE) -> tuple[Salvage, Summary]:
    summary = Summary()
    salvage = Salvage(out, options)
    salvage.prepare([folder])
    list(check_paths([folder], options, summary, salvage=salvage))
    salvage.finish()
    lines = (out / "lost.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [one.row() for one in salvage.done.lost]
    return salvage, summary


def logs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def all_batches(folder: Path) -> list[bytes]:
    return [one for data in logs(folder).values() for one in batches(data)]


def ranges(lost: list[Lost]) -> list[tuple[int, int, str, int]]:
    return [(one.first_offset, one.last_offset, Path(one.file).name, one.position) for one in lost]


def is_in_order(folder: Path) -> bool:
    """Check that names are at most the first offset and above all before; offsets ascend; all is
    valid.
    """
    end = -1
    for name, data in logs(folder).items():
        columns = scan_batches(data)
        first, last = columns["base_offset"].tolist(), columns["last_offset"].tolist()
        if columns.end != len(data) or not columns["is_valid"].all() or int(name[:20]) <= end:
            return False
        for one, other in zip(first, last, strict=True):
            if one <= end or one < int(name[:20]):
                return False
            end = other
    return True


@pytest.mark.parametrize("name", sorted(path.name for path in SEGMENTS.glob("*-[0-9]")))
def test_a_healthy_folder_stays_as_it_is(tmp_path: Path, name: str) -> None:
    """Compare the bytes without the zeros of preallocation."""
    salvage, summary = salvaged(SEGMENTS / name, tmp_path / "out", Options())
    expected = {file: b"".join(batches(data)) for file, data in logs(SEGMENTS / name).items()}
    assert logs(tmp_path / "out" / name) == expected
    if name != "live-preallocated-0":
        assert expected == logs(SEGMENTS / name)
    assert salvage.done.lost == []
    assert (salvage.done.batches, salvage.done.segments) == (summary.batches, summary.files)


def test_small_files(tmp_path: Path) -> None:
    salvaged(SEGMENTS / "leader-epoch-0", tmp_path / "out")
    found = sorted((tmp_path / "out" / "leader-epoch-0").iterdir())
    names = [f"{FIRST}.log", "leader-epoch-checkpoint", "partition.metadata"]
    assert [path.name for path in found] == names
    for name in names:
        source = SEGMENTS / "leader-epoch-0" / name
        assert (tmp_path / "out" / "leader-epoch-0" / name).read_bytes() == source.read_bytes()


def test_a_broken_topic_id_is_not_copied(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: short\n")
    salvaged(folder, tmp_path / "out")
    assert not (tmp_path / "out" / "rolled-0" / "partition.metadata").exists()


# ---- damages -------------------------------------------------------------------------------------

#: damages that leave every batch of the log whole, with its offset
_ALL_KEPT = {
    *(f"name too {word}" for word in ("high", "low")),
    *("repeated batch", "junk between", "epoch that nobody had"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_all_that_is_sound_and_nothing_else(tmp_path: Path, what: str) -> None:
    folder = copied(tmp_path)
    before = all_batches(folder)
    DAMAGES[what].act(folder)
    damaged = logs(folder)
    salvage, summary = salvaged(folder, tmp_path / "out")
    out = tmp_path / "out" / "rolled-0"
    assert summary.findings == 1
    assert logs(folder) == damaged
    assert is_in_order(out)
    kept = all_batches(out)
    offsets = [one[:8] for one in before]
    assert [one for one in kept if one[:8] not in offsets] == []
    assert salvage.done.batches == len(kept)
    lost = {
        one for part in salvage.done.lost for one in range(part.first_offset, part.last_offset + 1)
    }
    held = set()
    for one in kept:
        columns = scan_batches(one)
        held |= set(range(int(columns["base_offset"][0]), int(columns["last_offset"][0]) + 1))
    assert lost | held >= set(range(90))
    assert not lost & held
    if DAMAGES[what].rule.id in ("L6", "L9", "L10", "L11", "L12", "L14") or what in _ALL_KEPT:
        assert len(kept) == len(before)
        assert salvage.done.lost == []


CASES: dict[str, tuple[Callable[[Path], None], list[tuple[int, int, str, int]], int]] = {
    "payload": (DAMAGES["payload"].act, [(30, 30, LOG, 0)], 35),
    "lost batch": (DAMAGES["lost batch"].act, [(33, 35, LOG, 369)], 35),
    "middle segment lost": (without(MIDDLE + "*"), [(30, 59, f"{LAST}.log", 0)], 24),
    "last segment lost": (without(LAST + "*"), [(60, 89, LOG, 2970)], 24),
    "first segment lost": (without(FIRST + "*"), [], 24),
    "middle segment of zeros": (edit(LOG, lambda d: bytes(len(d))), [(30, 59, LOG, 0)], 24),
    "middle segment empty": (edit(LOG, lambda d: b""), [(30, 59, LOG, 0)], 24),
    "last segment of junk": (
        edit(f"{LAST}.log", lambda d: b"\xff" * len(d)),
        [(60, 89, f"{LAST}.log", 0)],
        24,
    ),
    "swapped batches": (edit(LOG, order(0, 2, 1)), [(31, 32, LOG, 142)], 35),
    "swapped segments": (swap, [], 36),
    "wild offset": (edit(LOG, flip(2)), [(30, 30, LOG, 0)], 35),
}


@pytest.mark.parametrize("what", CASES)
def test_lost_ranges(tmp_path: Path, what: str) -> None:
    folder = copied(tmp_path)
    act, expected, count = CASES[what]
    act(folder)
    salvage, _ = salvaged(folder, tmp_path / "out")
    out = tmp_path / "out" / "rolled-0"
    assert ranges(salvage.done.lost) == expected
    assert len(all_batches(out)) == salvage.done.batches == count
    assert is_in_order(out)


# ---- offsets that overlap ------------------------------------------------------------------------


def made(*spans: tuple[int, int], epoch: int = 0) -> list[bytes]:
    """Return batches of these first and last offsets."""
    return [
        batch(records(last - first + 1), base_offset=first, partition_leader_epoch=epoch)
        for first, last in spans
    ]


A, B, C, D, E = made((0, 2), (3, 5), (6, 8), (9, 11), (12, 14))
#: a base offset is not under the checksum
WILD, LOW = (put(0, struct.pack(">q", at))(C) for at in (1 << 40, 1))
(STRAY,) = made((5000, 5100))


@pytest.mark.parametrize(
    ("parts", "kept", "lost"),
    [
        ([A, B, B, C], [A, B, C], []),
        ([A, B, C, A, B, C, D], [A, B, C, D], []),
        ([A, B, STRAY, C, D], [A, B, C, D], []),
        ([A, B, STRAY, D, E], [A, B, D, E], [(6, 8)]),
        ([A, B, WILD, D, E], [A, B, D, E], [(6, 8)]),
        ([A, B, LOW, D, E], [A, B, D, E], [(6, 8)]),
        ([A, C, B, D], [A, C, D], [(3, 5)]),
        ([A, B, D, C, E], [A, B, D, E], [(6, 8)]),
        ([A, B, C[:-9], D], [A, B, D], [(6, 8)]),
        ([A, B, bytes(5000), D], [A, B, D], [(6, 8)]),
        ([A, B, C, D[:40]], [A, B, C], []),
    ],
)
def test_what_stays_of_batches_that_contradict(
    tmp_path: Path, parts: list[bytes], kept: list[bytes], lost: list[tuple[int, int]]
) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{FIRST}.log").write_bytes(b"".join(parts))
    salvage, _ = salvaged(folder, tmp_path / "out")
    assert all_batches(tmp_path / "out" / "orders-0") == kept
    assert [(one.first_offset, one.last_offset) for one in salvage.done.lost] == lost


def test_a_batch_of_which_both_neighbours_disagree(tmp_path: Path) -> None:
    """Give the last batch of a segment an offset far above the segments that follow."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{FIRST}.log").write_bytes(A + B + WILD)
    (folder / f"{9:020}.log").write_bytes(D + E)
    salvage, _ = salvaged(folder, tmp_path / "out")
    assert all_batches(tmp_path / "out" / "orders-0") == [A, B, D, E]
    assert ranges(salvage.done.lost) == [(6, 8, f"{FIRST}.log", len(A + B))]


def test_gaps_of_a_compacted_topic_are_not_lost(tmp_path: Path) -> None:
    """Put damage between gaps, where some of the offsets may have been."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{FIRST}.log").write_bytes(A + C + D[:-1] + b"?" + E)
    salvage, _ = salvaged(folder, tmp_path / "out", Options(cleanup_policy="compact"))
    assert all_batches(tmp_path / "out" / "orders-0") == [A, C, E]
    assert ranges(salvage.done.lost) == [(9, 11, f"{FIRST}.log", len(A + C))]


def test_a_log_that_is_empty_goes_on_at_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{1234:020}.log").touch()
    salvage, _ = salvaged(folder, tmp_path / "out")
    assert logs(tmp_path / "out" / "orders-0") == {f"{1234:020}.log": b""}
    assert salvage.done.lost == []


def test_leader_epochs_are_those_of_the_batches(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    parts = [*made((0, 2), epoch=1), *made((3, 5), epoch=4), *made((6, 8), epoch=2)]
    (folder / f"{FIRST}.log").write_bytes(b"".join(parts))
    salvaged(folder, tmp_path / "out")
    found = (tmp_path / "out" / "orders-0" / "leader-epoch-checkpoint").read_text()
    assert found == "0\n2\n1 0\n2 6\n"


# ---- where to ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["rolled-0", "rolled-0/out", "."])
def test_the_source_is_not_written_to(tmp_path: Path, where: str) -> None:
    folder = copied(tmp_path)
    with pytest.raises(BatchvalError, match="overlaps"):
        Salvage(tmp_path / where, DELETE).prepare([folder])
    with pytest.raises(BatchvalError, match="overlaps"):
        Salvage(tmp_path / where, DELETE).prepare([folder / LOG])
    assert not (folder / "out").exists()


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    folder = copied(tmp_path / "log")
    out = tmp_path / "out"
    out.mkdir()
    Salvage(out, DELETE).prepare([folder])
    (out / "kept").write_text("something")
    with pytest.raises(BatchvalError, match="is not empty"):
        Salvage(out, DELETE).prepare([folder])


def test_two_replicas_have_one_name(tmp_path: Path) -> None:
    paths = [copied(tmp_path / name).parent for name in ("one", "two")]
    salvage = Salvage(tmp_path / "out", DELETE)
    salvage.prepare(paths)
    with pytest.raises(BatchvalError, match="have the same name"):
        list(check_paths(paths, DELETE, Summary(), salvage=salvage))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_that_changes_meanwhile_is_not_taken(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    salvage = Salvage(tmp_path / "out", DELETE)
    salvage.prepare([folder])
    summary = Summary()

    def touch(_: int) -> None:
        data = (folder / LOG).read_bytes()
        (folder / LOG).unlink()
        (folder / LOG).write_bytes(data)

    list(check_paths([folder], DELETE, summary, touch, salvage))
    assert len(summary.unreadable) == 1
    assert "stop the broker" in summary.unreadable[0]
