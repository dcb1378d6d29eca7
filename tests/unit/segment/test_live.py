"""Folders that a broker writes to while they are read: no alarm, and nothing that is wrong is
lost."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from batchval.rules import Rule
from batchval.segment.findings import Finding, Level
from batchval.segment.options import Options
from batchval.segment.partition import Joined
from batchval.segment.range_check import RangeResult, check_range
from batchval.segment.ranges import Range
from batchval.segment.segment_run import ROUNDS, Work, list_work, moved_meanwhile, settled
from tests.unit.segment.test_check import series, starts, write

OPTIONS = Options(deep=True)
DELETE = Options(deep=True, cleanup_policy="delete")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.segment.segment_run.PAUSE_S", 0)


class Meanwhile:
    """An engine that lets a broker act each time before it reads."""

    def __init__(self, *acts: Callable[[], object], options: Options = OPTIONS) -> None:
        self.acts = list(acts)
        self.options = options
        self.read: list[list[str]] = []

    def __call__(self, ranges: Sequence[Range]) -> Iterator[RangeResult]:
        if self.acts:
            self.acts.pop(0)()
        self.read.append([Path(part.segment.uri).name for part in ranges])
        return iter([check_range(part, self.options) for part in ranges])

    def run(self, folder: Path) -> tuple[Work, list[Joined]]:
        work = list_work([str(folder)], self.options)
        return work, settled(work, self(work.ranges), self.options, self)


def findings(joined: list[Joined], level: Level = Level.FINDING) -> list[Finding]:
    return [one for partition in joined for one in partition.findings if one.level is level]


def rolled(folder: Path, count: int = 3) -> list[Path]:
    """Write segments of four batches of three records."""
    return [write(folder, *series(4, base=12 * i), name=f"{12 * i:020}.log") for i in range(count)]


def index(log: Path, *entries: tuple[int, int]) -> Path:
    return write(
        log.parent, *(struct.pack(">ii", *one) for one in entries), name=f"{log.stem}.index"
    )


def test_retention_deletes_what_was_listed(tmp_path: Path) -> None:
    first, second, _ = rolled(tmp_path / "t-0")
    index(first, (8, starts(series(4))[2]))

    def retention() -> None:
        for path in (first, second):
            path.rename(path.with_suffix(".log.deleted"))
        first.with_suffix(".index").rename(first.with_suffix(".index.deleted"))

    engine = Meanwhile(retention)
    work, joined = engine.run(tmp_path)
    assert (findings(joined), [one.unreadable for one in joined]) == ([], [[]])
    assert [part.segment.base_offset for one in joined for part in one.parts] == [24]
    assert moved_meanwhile(work, joined) == 2


def test_the_topic_is_deleted(tmp_path: Path) -> None:
    rolled(tmp_path / "t-0")
    rolled(tmp_path / "u-0", 1)
    gone = "t-0." + "0123456789abcdef" * 2 + "-delete"
    work, joined = Meanwhile(lambda: (tmp_path / "t-0").rename(tmp_path / gone)).run(tmp_path)
    assert (findings(joined), [one.unreadable for one in joined]) == ([], [[], []])
    assert moved_meanwhile(work, joined) == 3


def test_the_cleaner_puts_another_file_in_its_place(tmp_path: Path) -> None:
    """Remove the merged segments: the new one has the first one's name."""
    first, second, _ = rolled(tmp_path / "t-0")
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 24\n")

    def clean() -> None:
        swap = write(tmp_path / "t-0", series(4)[1], series(8)[6], name=f"{0:020}.log.swap")
        swap.rename(first)
        second.rename(second.with_suffix(".log.deleted"))

    engine = Meanwhile(clean)
    _, joined = engine.run(tmp_path)
    assert (findings(joined), [one.unreadable for one in joined]) == ([], [[]])
    assert [part.entry.batches for one in joined for part in one.parts] == [2, 4]
    assert len(engine.read) == 2


def test_a_segment_rolls_between_two_listings(tmp_path: Path) -> None:
    """Expect no gap: what was appended before the roll was not listed."""
    *_, last = rolled(tmp_path / "t-0")
    bad = bytearray(last.read_bytes())
    bad[70] ^= 1  # so that the folder is listed again
    last.write_bytes(bad)

    def roll() -> None:
        with last.open("ab") as file:
            file.write(series(13)[12])
        write(tmp_path / "t-0", *series(2, base=39), name=f"{39:020}.log")

    _, joined = Meanwhile(lambda: None, roll, options=DELETE).run(tmp_path)
    assert [(one.rule, one.position) for one in findings(joined)] == [(Rule.CRC_MISMATCH, 0)]
    _, joined = Meanwhile(roll, options=DELETE).run(tmp_path)
    assert [(one.rule, one.position) for one in findings(joined)] == [(Rule.CRC_MISMATCH, 0)]


def test_index_entries_of_batches_that_came_after_the_listing(tmp_path: Path) -> None:
    log = write(tmp_path / "t-0", *series(4))
    at = [*starts(series(8))]

    def append() -> None:
        with log.open("ab") as file:
            file.write(b"".join(series(8)[4:]))
        index(log, (8, at[2]), (14, at[4]), (20, at[6]))

    engine = Meanwhile(append)
    _, joined = engine.run(tmp_path)
    assert findings(joined) == []
    assert len(engine.read) == 1


def test_an_index_that_points_beyond_the_end_of_the_newest_segment(tmp_path: Path) -> None:
    """Cut off its log between two batches."""
    log = write(tmp_path / "t-0", *series(4))
    index(log, (8, starts(series(4))[2]), (20, starts(series(8))[6]))
    _, joined = Meanwhile().run(tmp_path)
    assert [one.rule for one in findings(joined)] == [Rule.L6]


def test_a_batch_that_is_half_written(tmp_path: Path) -> None:
    """Preallocate: the file's size does not show how much is written."""
    parts = series(5)
    whole = b"".join(parts)
    log = write(tmp_path / "t-0", whole[:-20], bytes(4096))

    def write_rest() -> None:
        log.write_bytes(whole + bytes(4076))

    engine = Meanwhile(lambda: None, write_rest)
    work = list_work([str(tmp_path)], OPTIONS)
    results = list(engine(work.ranges))
    write_rest()
    joined = settled(work, results, OPTIONS, engine)
    assert findings(joined) == []
    assert [(one.rule, one.position) for one in findings(joined, Level.NOTE)] == [
        (Rule.L1, len(whole))
    ]


def test_what_was_seen_once_while_the_folder_changed_is_a_note(tmp_path: Path) -> None:
    *_, last = rolled(tmp_path / "t-0")
    good = last.read_bytes()

    def spoil(at: int) -> Callable[[], None]:
        def act() -> None:
            bad = bytearray(good)
            bad[at] ^= 1
            last.write_bytes(bad)
            os.utime(last, ns=(at, at))

        return act

    places = [place + 70 for place in starts(series(4))]
    engine = Meanwhile(*(spoil(places[i % 4]) for i in range(ROUNDS + 1)))
    work = list_work([str(tmp_path)], OPTIONS)
    joined = settled(work, engine(work.ranges), OPTIONS, engine)
    assert findings(joined) == []
    assert ["seen once" in one.reason for one in findings(joined, Level.NOTE)] == [True]
    assert len(engine.read) == ROUNDS + 1


def test_zeros_are_a_finding_in_all_but_the_newest_segment(tmp_path: Path) -> None:
    first, second = rolled(tmp_path / "t-0", 2)
    for path in (first, second):
        path.write_bytes(path.read_bytes() + bytes(500))
    _, joined = Meanwhile().run(tmp_path)
    assert [one.file for one in findings(joined)] == [str(first)]
    assert [one.file for one in findings(joined, Level.NOTE)] == [str(second)]


@pytest.mark.parametrize("topic", ["t", "__consumer_offsets"])
@pytest.mark.parametrize("checkpoint", [None, "0\n0\n", "0\n1\nt 0 9\n"])
@pytest.mark.parametrize("stray", [None, f"{0:020}.log.cleaned", f"{0:020}.log.deleted"])
def test_gaps_under_a_policy_that_is_not_known(
    tmp_path: Path, topic: str, checkpoint: str | None, stray: str | None
) -> None:
    parts = series(4)
    del parts[2]
    write(tmp_path / f"{topic}-0", *parts)
    if checkpoint is not None:
        (tmp_path / "cleaner-offset-checkpoint").write_text(checkpoint)
    if stray is not None:
        write(tmp_path / f"{topic}-0", name=stray)
    _, joined = Meanwhile().run(tmp_path)
    legal = topic != "t" or checkpoint == "0\n1\nt 0 9\n"
    uncertain = checkpoint is None or stray is not None
    assert [one.rule for one in findings(joined)] == [Rule.L3] * (not legal and not uncertain)
    assert [one.rule for one in findings(joined, Level.NOTE)] == [Rule.L3] * (
        not legal and uncertain
    )
