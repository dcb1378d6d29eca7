"""Replicas of one partition: what differs is one finding, what may differ is none.

The log is one that Kafka 4.4.0 wrote (fixtures/segments/rolled-0): 36 batches of 90 offsets. Each
replica gets its batches in segments of its own.
"""

from __future__ import annotations

import json
import random
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from batchval.audit.audit_run import audit, list_work
from batchval.audit.local import run_local
from batchval.cli.options import replicas_from
from batchval.core.batches.columns import scan_batches
from batchval.rules import Rule
from batchval.segment import replica_walk, replicas
from batchval.segment.check import Summary, check_paths
from batchval.segment.findings import Finding, Level
from batchval.segment.options import Options, Replica
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range
from batchval.segment.replica_walk import Side, Walk
from tests.support.batches import ZSTD, batch, record, with_crc
from tests.support.segments import segment

SEGMENTS = Path(__file__).resolve().parents[3] / "fixtures" / "segments"
END = 90
#: first offsets of the segments of each replica
CUTS = ((0, 30, 60), (0, 46), (0, 13, 16, 76))
HIGH_WATERMARK, LOG_START, CLEANER = (
    f"{name}-checkpoint" for name in ("replication-offset", "log-start-offset", "cleaner-offset")
)

Batches = list[bytes]
Find = Callable[..., list[Finding]]


def split(data: bytes) -> Batches:
    columns = scan_batches(data)
    places = zip(columns["position"].tolist(), columns["size_in_bytes"].tolist(), strict=True)
    return [data[position : position + size] for position, size in places]


LOG = [
    one
    for path in sorted((SEGMENTS / "rolled-0").glob("*.log"))
    for one in split(path.read_bytes())
]


def base(data: bytes) -> int:
    return int.from_bytes(data[:8], "big")


def last(data: bytes) -> int:
    return base(data) + int.from_bytes(data[23:27], "big")


class Copy(NamedTuple):
    """One replica. Checkpoints are left out where an offset is None."""

    batches: Sequence[bytes] = LOG
    cuts: Sequence[int] = ()
    high_watermark: int | None = END
    log_start: int | None = None
    cleaned: bool | None = False
    tail: bytes = b""


def written(root: Path, copies: Sequence[Copy], topic: str = "rolled") -> list[Path]:
    """Write each copy as a broker's log folder, with segments that begin elsewhere on each."""
    folders = []
    for n, copy in enumerate(copies):
        folder = root / f"data{n}" / f"{topic}-0"
        folder.mkdir(parents=True)
        for name, data in segments(copy, CUTS[n % len(CUTS)]).items():
            (folder / f"{name:020}.log").write_bytes(data)
        for name, offset in ((HIGH_WATERMARK, copy.high_watermark), (LOG_START, copy.log_start)):
            if offset is not None:
                (folder.parent / name).write_text(f"0\n1\n{topic} 0 {offset}\n")
        if copy.cleaned is not None:
            (folder.parent / CLEANER).write_text(
                f"0\n1\n{topic} 0 {END}\n" if copy.cleaned else "0\n0\n"
            )
        folders.append(folder.parent)
    return folders


def segments(copy: Copy, cuts: Sequence[int]) -> dict[int, bytes]:
    """Return the bytes of each segment, by its base offset."""
    at = base(copy.batches[0])
    found: dict[int, bytes] = {}
    for one in copy.batches:
        if base(one) > at and base(one) in (copy.cuts or cuts):
            at = base(one)
        found[at] = found.get(at, b"") + one
    found[at] += copy.tail
    return found


def by_check(folders: Sequence[Path], options: Options) -> list[Finding]:
    return list(check_paths(list(folders), options, Summary()))


def by_audit(folders: Sequence[Path], options: Options) -> list[Finding]:
    def engine(ranges: Sequence[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
        return run_local(ranges, options, out, 1)

    done = audit(list_work(map(str, folders), options), options, engine)
    assert done.unreadable == done.unsettled == []
    rules = [one.rule.id for one in (*done.findings, *done.notes)]
    assert sorted(done.tables["errors"]["rule"].to_pylist()) == sorted(rules)
    return [*done.findings, *done.notes]


@pytest.fixture(params=["check", "audit"])
def find(request: pytest.FixtureRequest, tmp_path: Path) -> Find:
    """Return a function that compares copies and returns all findings."""

    def found(*copies: Copy, topic: str = "rolled", **more: object) -> list[Finding]:
        folders = written(tmp_path, copies, topic)
        replicas = tuple(Replica(f"b{n}", str(folder)) for n, folder in enumerate(folders, 1))
        options = Options(replicas=replicas, **more)  # type: ignore[arg-type]
        return {"check": by_check, "audit": by_audit}[request.param](folders, options)

    return found


def changed(batches: Sequence[bytes], n: int) -> Batches:
    """Return the batches with the timestamps of batch n one millisecond later: a valid batch."""
    return [*batches[:n], later(batches[n]), *batches[n + 1 :]]


def later(one: bytes) -> bytes:
    first, highest = struct.unpack_from(">qq", one, 27)
    return with_crc(one[:27] + struct.pack(">qq", first + 1, highest + 1) + one[43:])


def with_another_value(batches: Sequence[bytes], n: int) -> Batches:
    """Return the batches with one byte of the last record of batch n another: a valid batch."""
    assert not batches[n][22] & 7
    data = batches[n]
    return [
        *batches[:n],
        with_crc(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]),
        *batches[n + 1 :],
    ]


def without(batches: Sequence[bytes], *numbers: int) -> Batches:
    return [one for n, one in enumerate(batches) if n not in numbers]


def of_epoch(data: bytes, epoch: int) -> bytes:
    return data[:12] + struct.pack(">i", epoch) + data[16:]


def differ(found: Sequence[Finding]) -> list[tuple[Level, str | None, int | None, int]]:
    assert {one.rule for one in found} <= {Rule.L17}
    return [(one.level, one.broker, one.offset, one.follows) for one in found]


# ---- what is healthy -----------------------------------------------------------------------------

HALF = [one for one in LOG if last(one) < 45]
LATE = [one for one in LOG if base(one) >= 45]
HEALTHY = {
    "two": (Copy(), Copy()),
    "three": (Copy(), Copy(), Copy()),
    "no checkpoints": (Copy(high_watermark=None), Copy(high_watermark=None)),
    "a follower that lags": (Copy(high_watermark=43), Copy(HALF, high_watermark=43)),
    "a follower that lags, high watermark unknown": (
        Copy(high_watermark=None),
        Copy(HALF, high_watermark=None),
    ),
    "an end that is not committed": (
        Copy(changed(LOG, 35), high_watermark=base(LOG[35])),
        Copy(high_watermark=base(LOG[35])),
        Copy(LOG[:33], high_watermark=base(LOG[30])),
    ),
    "log starts that differ": (Copy(), Copy(LATE), Copy(log_start=7)),
    "a raised log start hides what is below": (Copy(changed(LOG, 0)), Copy(log_start=base(LOG[2]))),
    "preallocated": (Copy(tail=bytes(4000)), Copy()),
    "one replica that lags after all others": (
        *(Copy(), Copy(changed(LOG, 30), high_watermark=base(LOG[30]))),
        Copy(LOG[:10], high_watermark=base(LOG[9])),
    ),
}


@pytest.mark.parametrize("what", HEALTHY)
def test_what_is_healthy_has_no_finding(find: Find, what: str) -> None:
    assert [one for one in find(*HEALTHY[what]) if one.rule is not Rule.L1] == []  # zeros: a note


def test_progress_counts_each_replica_once_more_while_it_is_compared(tmp_path: Path) -> None:
    folders = written(tmp_path, (Copy(), Copy(), Copy()))
    named = tuple(Replica(f"b{n}", str(folder)) for n, folder in enumerate(folders))
    seen: list[int] = []
    assert list(check_paths(folders, Options(replicas=named), Summary(), seen.append)) == []
    assert sum(seen) == 2 * 3 * sum(map(len, LOG))


# ---- what differs --------------------------------------------------------------------------------


def test_a_valid_batch_that_differs(find: Find) -> None:
    """Expect one finding that names both replicas: with two nothing shows which is right."""
    (one,) = find(Copy(), Copy(changed(LOG, 14)))
    assert differ([one]) == [(Level.FINDING, "b1", base(LOG[14]), 0)]
    for word in ("b1", "b2", f"offset {base(LOG[14])}", "no majority", "leader epoch 0"):
        assert word in one.reason
    assert Path(one.file).name == f"{CUTS[0][1]:020}.log"


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_the_majority_says_which_is_wrong(find: Find, wrong: int) -> None:
    copies = [Copy(changed(LOG, 14) if n == wrong else LOG) for n in range(3)]
    (one,) = find(*copies)
    assert differ([one]) == [(Level.FINDING, f"b{wrong + 1}", base(LOG[14]), 0)]
    assert "majority" not in one.reason
    data = Path(one.file).read_bytes()
    assert base(data[one.position :]) == one.offset


def test_what_follows_is_counted(find: Find) -> None:
    (one,) = find(Copy(), Copy(changed(changed(changed(LOG, 4), 5), 30)), Copy())
    assert differ([one]) == [(Level.FINDING, "b2", base(LOG[4]), 2)]
    assert f"offsets {base(LOG[4])} to {last(LOG[30])} differ" in one.reason


def test_two_replicas_that_the_third_contradicts_each(find: Find) -> None:
    """Check each alone against a majority, at another offset."""
    found = find(Copy(changed(LOG, 4)), Copy(changed(LOG, 20)), Copy())
    assert sorted(differ(found)) == [
        (Level.FINDING, "b1", base(LOG[4]), 0),
        (Level.FINDING, "b2", base(LOG[20]), 0),
    ]


def test_another_leader_epoch(find: Find) -> None:
    """Change an epoch: its checksum does not cover it, and all later ones are at least as high."""
    theirs = [*LOG[:20], *(of_epoch(one, 3) for one in LOG[20:])]
    (one,) = find(Copy(), Copy(theirs), Copy())
    assert differ([one]) == [(Level.FINDING, "b2", base(LOG[20]), len(LOG) - 21)]
    assert "leader epoch 3 on b2, 0 on b1 and b3" in one.reason


def test_logs_that_parted_at_a_leader_epoch(find: Find) -> None:
    """Compare logs after an unclean election: two leaders wrote batches of other sizes."""
    ours = [
        batch([record(0, None, b"one %d" % n)], base_offset=n, partition_leader_epoch=1)
        for n in range(60, 90)
    ]
    theirs = [
        batch(
            [record(i, None, b"x" * i) for i in range(3)], base_offset=n, partition_leader_epoch=2
        )
        for n in range(60, 90, 3)
    ]
    early = [one for one in LOG if base(one) < 60]
    (one,) = find(Copy([*early, *ours], cuts=(0,)), Copy([*early, *theirs], cuts=(0,)))
    assert differ([one])[0][:3] == (Level.FINDING, "b1", 60)
    assert "leader epoch 1 on b1, 2 on b2" in one.reason


AHEAD = struct.pack(">q", 1 << 40) + LOG[14][8:]
FAULTS: dict[str, tuple[Rule, Batches]] = {
    "lost batch": (Rule.L3, without(LOG, 14)),
    "lost segment": (Rule.L3, [one for one in LOG if not 12 <= base(one) < 45]),
    "extra batch": (Rule.L2, [*LOG[:15], LOG[14], *LOG[15:]]),
    "batches that changed places": (Rule.L3, [*LOG[:14], LOG[15], LOG[14], *LOG[16:]]),
    "offset that jumps ahead": (Rule.L3, [*LOG[:14], AHEAD, *LOG[15:]]),
    "wrong checksum": (Rule.CRC_MISMATCH, [*LOG[:14], LOG[14][:-2] + b"??", *LOG[15:]]),
    "bytes of another kind": (Rule.BATCH_SIZE_TOO_SMALL, [*LOG[:14], b"\xff" * 90, *LOG[15:]]),
    "one epoch that nobody had": (Rule.L4, [*LOG[:14], of_epoch(LOG[14], 9), *LOG[15:]]),
}


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_that_shows_by_itself_is_one_finding(find: Find, what: str, others: int) -> None:
    """Check that the finding names what the other replicas have."""
    rule, batches = FAULTS[what]
    (one,) = find(*[Copy()] * others, Copy(batches, cuts=(0,)))
    assert (one.level, one.rule, one.broker) == (Level.FINDING, rule, f"b{others + 1}")
    assert ("b1 and b2 have " if others == 2 else "b1 has ") in one.reason


def test_a_middle_segment_that_is_lost(find: Find) -> None:
    (one,) = find(
        Copy(), Copy([one for one in LOG if not 46 <= base(one) < 60], cuts=(60,)), Copy()
    )
    assert (one.level, one.rule, one.broker) == (Level.FINDING, Rule.L3, "b2")


def test_another_fault_after_one_that_shows_by_itself(find: Find) -> None:
    """Expect a second finding for a valid batch that differs, in the same segment too."""
    found = find(Copy(), Copy(changed(without(LOG, 14), 30), cuts=(0,)), Copy())
    assert sorted((one.rule.id, one.broker, one.offset) for one in found) == [
        ("L17", "b2", base(LOG[31])),
        ("L3", "b2", base(LOG[15])),
    ]


# ---- high watermarks -----------------------------------------------------------------------------


def test_a_tail_that_is_lost_below_the_high_watermark(find: Find) -> None:
    """Expect a finding: the replica's own checkpoint shows the loss."""
    (one,) = find(Copy(), Copy(LOG[:30]), Copy())
    assert (one.level, one.rule, one.broker) == (Level.FINDING, Rule.L13, "b2")


def test_a_tail_that_is_lost_above_the_high_watermark(find: Find) -> None:
    assert find(Copy(high_watermark=60), Copy(LOG[:30], high_watermark=60)) == []


def test_a_difference_at_the_end_without_a_high_watermark_is_uncertain(find: Find) -> None:
    (one,) = find(Copy(), Copy(changed(LOG, 35), high_watermark=None), Copy())
    assert differ([one]) == [(Level.NOTE, "b2", base(LOG[35]), 0)]
    assert "the high watermark of b2 is unknown" in one.reason


def test_one_that_equal_batches_follow_is_certain(find: Find) -> None:
    copies = [Copy(log, high_watermark=None) for log in (LOG, changed(LOG, 34), LOG)]
    assert differ(find(*copies)) == [(Level.FINDING, "b2", base(LOG[34]), 0)]


def test_the_lowest_high_watermark_counts(find: Find) -> None:
    """Compare the other two replicas beyond the lowest high watermark."""
    theirs = changed(changed(LOG, 20), 34)
    found = find(Copy(), Copy(theirs), Copy(high_watermark=base(LOG[30])))
    assert sorted(differ(found)) == [
        (Level.FINDING, "b1", base(LOG[34]), 0),
        (Level.FINDING, "b2", base(LOG[20]), 0),
    ]


# ---- compacted topics ----------------------------------------------------------------------------

KEYED = [
    [
        record(i, b"key %d" % (i % 3), b"value %d" % (10 * n + i), timestamp_delta=i)
        for i in range(10)
    ]
    for n in range(12)
]


def keyed(
    *, kept: Sequence[int] = range(10), codec: int = 0, value: bytes | None = None, where: int = 5
) -> Batches:
    """Return a log of which the cleaner has kept some records of each batch."""
    batches = []
    for n, records in enumerate(KEYED):
        some = [records[i] for i in kept]
        if n == where and value is not None:
            some[-1] = record(kept[-1], b"key %d" % (kept[-1] % 3), value, timestamp_delta=kept[-1])
        batches.append(
            batch(
                some, base_offset=10 * n, last_offset_delta=9, codec=codec, partition_leader_epoch=0
            )
        )
    return batches


CLEANED = {"high_watermark": 120, "cuts": (0, 50), "cleaned": True}


def cleaned(log: Sequence[bytes], **more: object) -> Copy:
    return Copy(log, **{**CLEANED, **more})  # type: ignore[arg-type]


EMPTY = batch([], base_offset=40, last_offset_delta=9, partition_leader_epoch=0)
LEGAL = {
    "survivors on one": (cleaned(keyed()), cleaned(keyed(kept=(7, 8, 9)))),
    "no record survives on both": (cleaned(keyed(kept=(1, 3))), cleaned(keyed(kept=(7, 8, 9)))),
    "batches on one": (cleaned(keyed()), cleaned(without(keyed(kept=(7, 8, 9)), 2, 3))),
    "an empty batch": (cleaned(keyed()), cleaned([*keyed()[:4], EMPTY, *keyed()[5:]])),
    "another codec": (cleaned(keyed()), cleaned(keyed(codec=ZSTD))),
    "the cleaner was at one alone": (cleaned(keyed(), cleaned=False), cleaned(keyed(kept=(7, 9)))),
    "no checkpoint, but batches are thinned": (
        cleaned(keyed(), cleaned=None),
        cleaned(keyed(kept=(7, 8, 9)), cleaned=None),
    ),
    "a deleted segment": (cleaned(keyed()), cleaned(keyed(kept=(7, 8, 9))[6:])),
    "three": (cleaned(keyed()), cleaned(keyed(kept=(7, 8, 9))), cleaned(keyed(kept=(2, 9)))),
}


@pytest.mark.parametrize("what", LEGAL)
def test_what_the_cleaner_does_is_legal(find: Find, what: str) -> None:
    assert find(*LEGAL[what]) == []


@pytest.mark.parametrize("topic", ["compacted", "compacted-transactional"])
def test_what_a_cleaner_wrote_is_equal_to_itself(find: Find, topic: str) -> None:
    """Compare control batches, batches without records and tombstones."""
    log = [
        one
        for path in sorted((SEGMENTS / f"{topic}-0").glob("*.log"))
        for one in split(path.read_bytes())
    ]
    fewer = [one for n, one in enumerate(log) if n % 3]
    found = find(
        *(cleaned(some, cuts=(0, base(log[5])), high_watermark=None) for some in (log, fewer)),
        topic=topic,
    )
    assert [one for one in found if one.rule is Rule.L17] == []


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_a_value_that_differs(find: Find, codec: int) -> None:
    found = find(cleaned(keyed()), cleaned(keyed(kept=(7, 8, 9), codec=codec, value=b"another")))
    assert differ(found) == [(Level.FINDING, "b1", 50, 0)]
    assert "the record at offset 59 has another key or value on b1 than on b2" in found[0].reason


def test_a_tombstone_is_not_a_value(find: Find) -> None:
    """Expect a finding: a record is removed or kept, never changed."""
    tombstone = record(9, b"key 0", None, timestamp_delta=9)
    log = keyed(kept=(8, 9))
    log[5] = batch([tombstone], base_offset=50, last_offset_delta=9, partition_leader_epoch=0)
    assert differ(find(cleaned(keyed()), cleaned(log))) == [(Level.FINDING, "b1", 50, 0)]


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_the_majority_of_those_that_have_the_record(find: Find, wrong: int) -> None:
    kept = [(8, 9), (1, 9), tuple(range(10))]
    logs = [keyed(kept=kept[n], value=b"another" if n == wrong else None) for n in range(3)]
    assert differ(find(*map(cleaned, logs))) == [(Level.FINDING, f"b{wrong + 1}", 50, 0)]


def test_a_damaged_batch_of_a_compacted_topic_is_one_finding(find: Find) -> None:
    log = keyed(kept=(7, 8, 9))
    log[5] = log[5][:-3] + b"???"
    (one,) = find(cleaned(keyed()), cleaned(log))
    assert (one.rule, one.broker) == (Rule.CRC_MISMATCH, "b2")


def test_a_lost_batch_is_uncertain_where_nothing_says_the_policy(find: Find) -> None:
    """Expect notes for the gap and for the batch of the other replica."""
    copies = [Copy(log, cleaned=None, cuts=(0,)) for log in (LOG, without(LOG, 14))]
    (one,) = find(*copies)
    assert (one.level, one.rule, one.broker) == (Level.NOTE, Rule.L3, "b2")
    assert "b1 has another batch" in one.reason or "b1 has a batch" in one.reason


def test_a_value_that_differs_is_certain_without_a_policy(find: Find) -> None:
    plain = next(n for n, one in enumerate(LOG) if n > 10 and not one[22] & 7)
    copies = [Copy(log, cleaned=None) for log in (LOG, with_another_value(LOG, plain))]
    assert differ(find(*copies)) == [(Level.FINDING, "b1", base(LOG[plain]), 0)]


def test_bytes_that_differ_are_uncertain_without_a_policy(find: Find) -> None:
    copies = [Copy(log, cleaned=None) for log in (LOG, changed(LOG, 14))]
    assert differ(find(*copies)) == [(Level.NOTE, "b1", base(LOG[14]), 0)]


# ---- bounds, and folders that change -------------------------------------------------------------


def test_logs_of_which_nothing_is_equal_end_the_comparison(
    find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_walk, "MAX_DIFFERENCES", 20)
    theirs = [later(one) for one in LOG]
    (one,) = find(Copy(), Copy(theirs))
    assert differ([one]) == [(Level.FINDING, "b1", 0, 19)]
    assert f"at least offsets 0 to {last(LOG[19])} differ" in one.reason


class Meanwhile:
    """Acts on the folders before each walk, as brokers may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
        self.walks = 0
        original = replica_walk.Walk.run

        def run(walk: Walk, sides: Sequence[Side], *, compacted: bool) -> None:
            self.walks += 1
            acts[min(self.walks, len(acts)) - 1]()
            original(walk, sides, compacted=compacted)

        monkeypatch.setattr(replica_walk.Walk, "run", run)
        monkeypatch.setattr(replicas, "PAUSE_S", 0)


def compared(folders: Sequence[Path]) -> tuple[list[Finding], Summary]:
    summary = Summary()
    named = tuple(Replica(f"b{n}", str(folder)) for n, folder in enumerate(folders, 1))
    return list(check_paths(list(folders), Options(replicas=named), summary)), summary


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.log"))


def test_segments_that_retention_deletes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Continue the comparison in a new listing, at the same offset."""
    folders = written(tmp_path, [Copy(), Copy(changed(LOG, 34)), Copy()])

    def delete() -> None:
        for path in (logs(folders[1])[0], *logs(folders[2])[:2]):
            path.rename(path.with_suffix(".log.deleted"))

    meanwhile = Meanwhile(monkeypatch, delete, lambda: None)
    found, summary = compared(folders)
    assert differ(found) == [(Level.FINDING, "b2", base(LOG[34]), 0)]
    assert meanwhile.walks >= 2
    assert (summary.unsettled, summary.unreadable) == ([], [])


def test_a_difference_that_is_gone_when_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expect no finding, as for a log that the cleaner was replacing."""
    folders = written(tmp_path, [Copy(), Copy(), Copy()])
    path = logs(folders[1])[0]
    sound = path.read_bytes()
    meanwhile = Meanwhile(
        monkeypatch,
        lambda: path.write_bytes(b"".join(changed(split(sound), 3))),
        lambda: path.write_bytes(sound),
    )
    assert compared(folders)[0] == []
    assert meanwhile.walks == 2


def test_a_difference_that_is_seen_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect a finding while a broker writes to another part of the folder."""
    folders = written(tmp_path, [Copy(), Copy(changed(LOG, 4)), Copy()])
    last_one = logs(folders[0])[-1]
    meanwhile = Meanwhile(
        monkeypatch, lambda: last_one.write_bytes(last_one.read_bytes() + LOG[0][:20])
    )
    assert differ(compared(folders)[0]) == [(Level.FINDING, "b2", base(LOG[4]), 0)]
    assert meanwhile.walks == 2


def test_a_partition_that_cannot_be_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expect one line about it, without an exception or a finding."""
    folders = written(tmp_path, [Copy(), Copy()])

    def fail() -> None:
        raise FileNotFoundError(2, "No such file or directory")

    Meanwhile(monkeypatch, fail)
    found, summary = compared(folders)
    assert found == []
    (line,) = summary.unsettled
    assert line.endswith("b1 and b2 were not compared to the end: No such file or directory")


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_bytes_are(tmp_path: Path, seed: int) -> None:
    """Check that every such log ends the comparison without an exception."""
    chance = random.Random(seed)
    data, other = segment(chance, 30), segment(chance, 30)
    same = bytearray(data)
    for _ in range(chance.randrange(4)):
        same[chance.randrange(len(same))] = chance.randrange(256)
    for n, one in enumerate((data, same, other if seed % 3 else data)):
        folder = tmp_path / f"data{n}" / "any-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(one)
        (folder.parent / CLEANER).write_text("0\n1\nany 0 5\n" if seed % 2 else "0\n0\n")
    found, _ = compared([tmp_path / f"data{n}" for n in range(3)])
    assert sum(one.rule is Rule.L17 for one in found) <= 3


@pytest.mark.parametrize("offset", [-1, 1 << 62, (1 << 63) - 1, 10**19 - 1])
def test_checkpoints_that_name_impossible_offsets(tmp_path: Path, offset: int) -> None:
    folders = written(
        tmp_path, [Copy(log_start=offset), Copy(high_watermark=offset), Copy(changed(LOG, 4))]
    )
    (folders[2] / "rolled-0" / f"{10**20 - 1}.log").write_bytes(LOG[-1])
    found, summary = compared(folders)
    assert {one.rule for one in found if one.rule is not Rule.L17} <= {Rule.L8, Rule.L13, Rule.L2}
    assert summary.unsettled == []


# ---- the command ---------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "batchval", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["audit", "--engine", "local"], ["check"]])
def test_exit_codes(tmp_path: Path, words: Sequence[str]) -> None:
    folders = written(tmp_path, [Copy(), Copy(changed(LOG, 4)), Copy()])
    named = [f"b{n}={folder}" for n, folder in enumerate(folders, 1)]
    code, out, _ = run(*words, "--replicas", "--json", *named)
    assert code == 1
    finding = json.loads(out.splitlines()[0])
    assert (finding["type"], finding["rule"], finding["broker"]) == ("finding", "L17", "b2")
    assert run(*words, "--replicas", named[0], named[2])[0] == 0


def test_a_partition_folder_by_its_own_path(tmp_path: Path) -> None:
    folders = written(tmp_path, [Copy(), Copy(changed(LOG, 4)), Copy()])
    named = [f"b{n}={folder / 'rolled-0'}" for n, folder in enumerate(folders, 1)]
    code, out, _ = run("check", "--replicas", *named)
    assert (code, out.count("L17 replicas-differ")) == (1, 1)


def test_a_replica_that_shares_nothing(tmp_path: Path) -> None:
    """Compare two folders of other topics, which are not equal."""
    (one,) = written(tmp_path, [Copy()])
    (two,) = written(tmp_path / "else", [Copy()], topic="other")
    code, _, err = run("check", "--replicas", f"b1={one}", f"b2={two}")
    assert code == 3
    for name in ("b1", "b2"):
        assert f"no other replica has a partition of {name}: nothing was compared" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["b1=x"], "needs two NAME=PATH or more"),
        (["x", "y"], "invalid PATH 'x' with --replicas: expected NAME=PATH"),
        (["b1=x", "=y"], "invalid PATH '=y'"),
        (["b1=x", "b1=y"], "the name 'b1' is there twice"),
        (["b1=x", "b2=x"], "the path 'x' is there twice"),
    ],
)
def test_wrong_usage(words: Sequence[str], why: str) -> None:
    with pytest.raises(click.UsageError, match=re.escape(why)):
        replicas_from(words)


@pytest.mark.parametrize("command", ["audit", "check"])
def test_wrong_usage_of_the_commands(command: str) -> None:
    code, _, err = run(command, "--replicas", "b1=x", "y")
    assert (code, "expected NAME=PATH" in err) == (2, True)


def test_salvage_of_replicas_is_refused(tmp_path: Path) -> None:
    code, _, err = run("check", "--replicas", "--salvage", str(tmp_path / "out"), "b1=x", "b2=y")
    assert (code, "--salvage cannot be combined with --replicas" in err) == (2, True)
