"""Every damage is found, in its file, once: by check and by audits with splits of several sizes.

The healthy log is one that Kafka 4.4.0 wrote (fixtures/segments/rolled-0): three segments of 30
offsets with their indexes and snapshots.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from batchval.audit.audit_run import Engine, audit, list_work
from batchval.audit.local import run_local
from batchval.cli.options import finding_columns
from batchval.core.batches.columns import scan_batches
from batchval.core.format.crc32c import crc32c
from batchval.report.tables import findings_table
from batchval.rules import Rule
from batchval.segment.check import Summary, check_paths
from batchval.segment.findings import BROKEN, Finding, Level
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range

SEGMENTS = Path(__file__).resolve().parents[3] / "fixtures" / "segments"
FIRST, MIDDLE, LAST = (f"{base:020}" for base in (0, 30, 60))
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)


def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def flip(at: int, bit: int = 1) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ bit]) + data[at:][1:]


def put(at: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + new + data[at + len(new) :]


def batches(data: bytes) -> list[bytes]:
    columns = scan_batches(data)
    ends = (columns["position"] + columns["size_in_bytes"]).tolist()
    return [data[start:end] for start, end in zip(columns["position"].tolist(), ends, strict=True)]


def order(*numbers: int) -> Callable[[bytes], bytes]:
    """Return what writes these batches of a segment, and then the others."""

    def change(data: bytes) -> bytes:
        parts = batches(data)
        return b"".join(parts[n] for n in numbers) + b"".join(parts[max(numbers) + 1 :])

    return change


def entries(size: int, *numbers: int) -> Callable[[bytes], bytes]:
    """Return what brings the entries of an index into this order."""
    return lambda data: b"".join(data[n * size :][:size] for n in numbers)


def moved(at: int, by: int) -> Callable[[bytes], bytes]:
    return lambda data: put(at, struct.pack(">i", struct.unpack_from(">i", data, at)[0] + by))(data)


def rename(old: str, new: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for path in folder.glob(f"{old}.*"):
            path.rename(folder / (new + path.suffix))

    return damage


def swap(folder: Path) -> None:
    one, other = folder / f"{FIRST}.log", folder / f"{MIDDLE}.log"
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def remove(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def checkpoint(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder.parent / name).write_text(text) and None


def aborted(*fields: tuple[int, ...], rest: bytes = b"") -> Callable[[Path], None]:
    data = b"".join(struct.pack(">hqqqq", *one) for one in fields) + rest
    return lambda folder: (folder / TXN).write_bytes(data) and None


def snapshot(version: int = 1, count: int = 0, crc: int = 0) -> bytes:
    body = struct.pack(">i", count)
    return struct.pack(">hI", version, crc32c(body) ^ crc) + body


class Damage(NamedTuple):
    """``file``: where the finding must be; a base offset stands for its segment."""

    rule: Rule
    file: str
    act: Callable[[Path], None]


LOG, INDEX, TIMES, TXN, SNAPSHOT = (
    f"{MIDDLE}.{suffix}" for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")
)
EPOCHS, META = "leader-epoch-checkpoint", "partition.metadata"
END = f"{90:020}.snapshot"  # written when the broker stopped
RECOVERY = f"../{CHECKPOINTS[0]}"


def new(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(b"x") and None


def empty_checkpoints(folder: Path) -> None:
    for name in CHECKPOINTS:
        checkpoint(name, "")(folder)


def to(data: bytes) -> Callable[[bytes], bytes]:
    return lambda _: data


def without(pattern: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for path in folder.glob(pattern):
            path.unlink()

    return damage


def only(pattern: str) -> Callable[[Path], None]:
    def keep(folder: Path) -> None:
        for path in [*folder.iterdir(), *folder.parent.glob("*-checkpoint")]:
            if not path.match(pattern):
                path.unlink()

    return keep


def second_offset(data: bytes) -> bytes:
    return flip(len(batches(data)[0]) + 6)(data)


def with_junk(data: bytes) -> bytes:
    first = batches(data)[0]
    return first + b"\xff" * 80 + data[len(first) :]


def left_over(data: bytes) -> bytes:
    """Return a time index with entries of before a truncation."""
    return data + data[:12] + data[:12] + bytes(1200)


DAMAGES = {
    # bytes of batches
    "payload": Damage(Rule.CRC_MISMATCH, LOG, edit(LOG, flip(90))),
    "crc": Damage(Rule.CRC_MISMATCH, LOG, edit(LOG, flip(17))),
    "attributes": Damage(Rule.CRC_MISMATCH, LOG, edit(LOG, flip(22))),
    "base offset": Damage(Rule.L8, LOG, edit(LOG, flip(7, 16))),
    "base offset in the middle": Damage(Rule.L3, LOG, edit(LOG, second_offset)),
    "size": Damage(Rule.BATCH_SIZE_TOO_SMALL, LOG, edit(LOG, put(8, bytes(4)))),
    "magic": Damage(Rule.MAGIC_UNKNOWN, LOG, edit(LOG, flip(16, 64))),
    "epoch below -1": Damage(Rule.L15, LOG, edit(LOG, flip(12, 128))),
    "epoch that nobody had": Damage(Rule.L4, LOG, edit(LOG, flip(15, 8))),
    "a page of zeros": Damage(Rule.CRC_MISMATCH, LOG, edit(LOG, put(200, bytes(700)))),
    "torn write": Damage(Rule.L1, FIRST + ".log", edit(FIRST + ".log", lambda d: d[:-30])),
    "lost batch": Damage(Rule.L3, LOG, edit(LOG, order(0, 1, 3))),
    "repeated batch": Damage(Rule.L2, LOG, edit(LOG, order(0, 1, 2, 2))),
    "swapped batches": Damage(Rule.L3, LOG, edit(LOG, order(0, 2, 1))),
    "junk between": Damage(Rule.BATCH_SIZE_TOO_SMALL, LOG, edit(LOG, with_junk)),
    # whole segments
    "middle segment lost": Damage(Rule.L3, LAST + ".log", without(MIDDLE + "*")),
    "last segment lost": Damage(Rule.L13, RECOVERY, without(LAST + "*")),
    "name too high": Damage(Rule.L8, f"{37:020}.log", rename(MIDDLE, f"{37:020}")),
    "name too low": Damage(Rule.L8, f"{23:020}.log", rename(MIDDLE, f"{23:020}")),
    # the offset index
    "index swapped": Damage(Rule.L6, INDEX, edit(INDEX, entries(8, 0, 2, 1, 3, 4, 5, 6))),
    "index offset moved": Damage(Rule.L6, INDEX, edit(INDEX, moved(16, 16384))),
    "index position moved": Damage(Rule.L6, INDEX, edit(INDEX, moved(20, 5))),
    "index zeroed": Damage(Rule.L6, INDEX, edit(INDEX, put(8, bytes(24)))),
    "index cut": Damage(Rule.L6, INDEX, edit(INDEX, lambda d: d[:-3])),
    "index lost": Damage(Rule.L6, INDEX, remove(INDEX)),
    "index of another": Damage(Rule.L6, INDEX, edit(INDEX, put(0, struct.pack(">ii", 3, 7)))),
    # the time index
    "times swapped": Damage(Rule.L9, TIMES, edit(TIMES, entries(12, 0, 2, 1, 3, 4))),
    "time moved": Damage(Rule.L9, TIMES, edit(TIMES, flip(12 + 7))),
    "time of another offset": Damage(Rule.L9, TIMES, edit(TIMES, moved(8, 2))),
    "times zeroed": Damage(Rule.L9, TIMES, edit(TIMES, put(12, bytes(12)))),
    "times cut": Damage(Rule.L9, TIMES, edit(TIMES, lambda d: d[:-5])),
    "last time lost": Damage(Rule.L9, TIMES, edit(TIMES, lambda d: d[:-12])),
    "times lost": Damage(Rule.L9, TIMES, remove(TIMES)),
    # other files
    "transaction version": Damage(Rule.L10, TXN, aborted((1, 5, 31, 40, 41))),
    "transaction order": Damage(Rule.L10, TXN, aborted((0, 5, 31, 45, 46), (0, 6, 35, 40, 46))),
    "transaction ends before it begins": Damage(Rule.L10, TXN, aborted((0, 5, 41, 40, 41))),
    "transaction of another segment": Damage(Rule.L10, TXN, aborted((0, 5, 1, 9, 10))),
    "transaction cut off": Damage(Rule.L10, TXN, aborted((0, 5, 31, 40, 41), rest=b"\0\0")),
    "snapshot crc": Damage(Rule.L11, SNAPSHOT, edit(SNAPSHOT, flip(30))),
    "snapshot version": Damage(Rule.L11, SNAPSHOT, edit(SNAPSHOT, to(snapshot(version=7)))),
    "snapshot count": Damage(Rule.L11, SNAPSHOT, edit(SNAPSHOT, to(snapshot(count=3)))),
    "snapshot cut": Damage(Rule.L11, SNAPSHOT, edit(SNAPSHOT, lambda d: d[:5])),
    "snapshot of the end": Damage(Rule.L11, END, edit(END, flip(40))),
    "epochs of no structure": Damage(Rule.L12, EPOCHS, edit(EPOCHS, to(b"garbage"))),
    "epochs that decrease": Damage(Rule.L12, EPOCHS, edit(EPOCHS, to(b"0\n3\n0 0\n5 40\n4 50\n"))),
    "epoch that starts too late": Damage(Rule.L12, EPOCHS, edit(EPOCHS, to(b"0\n2\n0 0\n7 500\n"))),
    "epoch lost": Damage(Rule.L12, EPOCHS, edit(EPOCHS, to(b"0\n1\n3 0\n"))),
    "topic id": Damage(Rule.L14, META, edit(META, to(b"version: 0\ntopic_id: short\n"))),
    "metadata version": Damage(Rule.L14, META, edit(META, flip(9))),
    **{
        f"{name} {what}": Damage(Rule.L13, f"../{name}", checkpoint(name, text))
        for name in CHECKPOINTS
        for what, text in (
            ("garbage", "garbage"),
            ("beyond the end", "0\n1\nrolled 0 91\n"),
            ("cut", "0\n2\nrolled 0 50\n"),
            ("version", "1\n1\nrolled 0 50\n"),
        )
    },
}

LEFT = struct.pack(">ii", 27, 99_999)
HEALTHY: dict[str, Callable[[Path], None]] = {
    "as it is": lambda folder: None,
    "logs alone": only("*.log"),
    "one segment alone": only(LOG),
    "first segment deleted": without(FIRST + "*"),
    "log start raised within a segment": edit(EPOCHS, to(b"0\n1\n0 40\n")),
    "preallocated": edit(LAST + ".log", lambda d: d + bytes(3000)),
    "preallocated indexes": edit(LAST + ".index", lambda d: d + bytes(800)),
    "offset index after a truncation": edit(LAST + ".index", lambda d: d + LEFT + bytes(800)),
    "time index after a truncation": edit(LAST + ".timeindex", left_over),
    "empty checkpoints": empty_checkpoints,
    "files of a cleaning": new(f"{MIDDLE}.log.cleaned"),
    "files that are deleted": new(f"{FIRST}.log.deleted"),
    "epoch without a batch": edit(EPOCHS, to(b"0\n2\n0 0\n4 90\n")),
}


def transactional(top: Path) -> Path:
    folder = top / "transactional-0"
    shutil.copytree(SEGMENTS / folder.name, folder)
    return folder


def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "rolled-0"
    shutil.copytree(SEGMENTS / "rolled-0", folder)
    for name in CHECKPOINTS:
        checkpoint(name, f"0\n1\nrolled 0 {0 if 'start' in name else 90}\n")(folder)
    return folder


def by_check(folder: Path) -> list[Finding]:
    return list(check_paths([folder], Options(cleanup_policy="delete"), Summary()))


def in_processes(count: int) -> Engine:
    def engine(ranges: Sequence[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
        return run_local(ranges, options, out, count)

    return engine


def by_audit(folder: Path, split_bytes: int, engine: Engine | None = None) -> list[Finding]:
    options = Options(deep=True, cleanup_policy="delete", split_bytes=split_bytes)
    done = audit(list_work([str(folder)], options), options, engine or in_processes(1))
    assert done.unreadable == []
    return [*done.findings, *done.notes]


def all_damaged(root: Path) -> dict[str, list[tuple[Level, Rule, Path]]]:
    """Make every kind of damage in a log folder of its own; return what must be found in each."""
    expected = {}
    for kind in (DAMAGES, TRANSACTIONS):
        for what, damage in kind.items():
            top = (
                root / what.replace(" ", "-").replace("/", "-") / ("a" if kind is DAMAGES else "t")
            )
            folder = copied(top) if isinstance(damage, Damage) else transactional(top)
            place = Damage(Rule.L10, ABORTED, damage) if not isinstance(damage, Damage) else damage
            place.act(folder)
            expected[str(top)] = [(Level.FINDING, place.rule, (folder / place.file).resolve())]
    return expected


def all_found(
    root: Path, split_bytes: int, engine: Engine
) -> dict[str, list[tuple[Level, Rule, Path]]]:
    """Return what one audit of all log folders finds in each."""
    found: dict[str, list[tuple[Level, Rule, Path]]] = {}
    for one in by_audit(root, split_bytes, engine):
        top = root.joinpath(*Path(one.file).relative_to(root).parts[:2])
        found.setdefault(str(top), []).append((one.level, one.rule, Path(one.file)))
    return found


@pytest.mark.parametrize("what", DAMAGES)
def test_one_finding_in_its_file(tmp_path: Path, what: str) -> None:
    """Compare the finding of check and of audits, including the reason and the count of what
    follows.
    """
    folder = copied(tmp_path)
    damage = DAMAGES[what]
    damage.act(folder)
    found = by_check(folder)
    assert [(one.level, one.rule, Path(one.file)) for one in found] == [
        (Level.FINDING, damage.rule, Path(os.path.normpath(folder / damage.file)))
    ]
    for split_bytes in (1 << 20, 700, 100):
        assert [shown_of(one) for one in by_audit(folder, split_bytes)] == [shown_of(found[0])]


def shown_of(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.position, finding.offset, finding.reason, finding.follows


@pytest.mark.parametrize("split_bytes", [1 << 10, 4 << 10, 256 << 20])
def test_one_audit_of_all_damages_in_two_processes(tmp_path: Path, split_bytes: int) -> None:
    expected = all_damaged(tmp_path)
    assert len(expected) >= 60
    assert all_found(tmp_path, split_bytes, in_processes(2)) == expected


@pytest.mark.parametrize("split_bytes", [0, 700])
@pytest.mark.parametrize("what", HEALTHY)
def test_what_is_healthy_has_none(tmp_path: Path, what: str, split_bytes: int) -> None:
    folder = copied(tmp_path)
    HEALTHY[what](folder)
    found = by_audit(folder, split_bytes) if split_bytes else by_check(folder)
    assert [one for one in found if one.level is Level.FINDING] == []


# ---- what one fault brings with it ---------------------------------------------------------------

SPLITS = [0, 4 << 10, 100 << 10, 256 << 20]  # 0: check
#: of other partitions: offsets 0 to 12, small batches; offsets 117 to 159, large ones
SMALL = batches((SEGMENTS / "leader-epoch-0" / f"{FIRST}.log").read_bytes())[:5]
OTHER = b"".join(batches((SEGMENTS / "codec-none-0" / f"{FIRST}.log").read_bytes())[3:6])


class Fault(NamedTuple):
    """``damage`` changes the batches of one segment, the last but one where there are more."""

    rule: Rule
    damage: Callable[[list[bytes]], list[bytes]]


def torn(parts: list[bytes]) -> list[bytes]:
    return [*parts[:2], parts[2][:-7], *parts[3:]]


def overwritten(parts: list[bytes]) -> list[bytes]:
    """Write a block of another log to a place that is not the start of a batch, nor its end."""
    data = bytearray(b"".join(parts))
    at = len(parts[0]) + len(parts[1]) + 20
    block = b"".join(SMALL)[40:-50]
    data[at : at + len(block)] = block
    return [bytes(data)]


def wild(parts: list[bytes]) -> list[bytes]:
    return [*parts[:2], flip(2)(parts[2]), *parts[3:]]


FAULTS = {
    "a batch twice": Fault(Rule.L2, lambda parts: [*parts[:3], *parts[2:]]),
    "several batches twice": Fault(Rule.L2, lambda parts: [*parts[:5], *parts[1:]]),
    "the last batch twice": Fault(Rule.L2, lambda parts: [*parts, parts[-1]]),
    "a batch lost": Fault(Rule.L3, lambda parts: [*parts[:2], *parts[3:]]),
    "several batches lost": Fault(Rule.L3, lambda parts: [*parts[:2], *parts[5:]]),
    "batches swapped": Fault(Rule.L3, lambda parts: [*parts[:1], parts[2], parts[1], *parts[3:]]),
    "torn, and written on": Fault(Rule.CRC_MISMATCH, torn),
    "batches of another log put between": Fault(Rule.L3, lambda p: [*p[:2], OTHER, *p[2:]]),
    "a block of another log": Fault(Rule.CRC_MISMATCH, overwritten),
    "an offset far above": Fault(Rule.L3, wild),
}
LOGS = {"rolled-0": MIDDLE, "idempotent-0": FIRST, "transactional-0": FIRST}


def found_in(folder: Path, split_bytes: int) -> list[tuple[Rule, str, int, int]]:
    found = by_audit(folder, split_bytes) if split_bytes else by_check(folder)
    return [(one.rule, Path(one.file).name, one.position, one.follows) for one in found]


def damaged(tmp_path: Path, name: str, damage: Callable[[list[bytes]], list[bytes]]) -> Path:
    folder = tmp_path / name
    shutil.copytree(SEGMENTS / name, folder)
    file = folder / f"{LOGS[name]}.log"
    file.write_bytes(b"".join(damage(batches(file.read_bytes()))))
    return folder


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("what", FAULTS)
def test_one_fault_is_one_finding(tmp_path: Path, what: str, name: str) -> None:
    folder = damaged(tmp_path, name, FAULTS[what].damage)
    ((rule, file, position, follows),) = found_in(folder, 0)
    assert file == f"{LOGS[name]}.log"
    assert (
        rule in (FAULTS[what].rule, *BROKEN)
        if what.startswith(("torn", "a block"))
        else rule is FAULTS[what].rule
    )
    for split_bytes in SPLITS[1:]:
        assert found_in(folder, split_bytes) == [(rule, file, position, follows)]


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("what", FAULTS)
def test_two_faults_are_two_findings(tmp_path: Path, what: str, name: str) -> None:
    """Change one bit of the first batch as the other fault."""

    def both(parts: list[bytes]) -> list[bytes]:
        changed = FAULTS[what].damage(parts)
        return [flip(70)(changed[0]), *changed[1:]]

    folder = damaged(tmp_path, name, both)
    found = found_in(folder, 0)
    assert len(found) == 2
    assert (found[0][0], found[0][2]) == (Rule.CRC_MISMATCH, 0)
    for split_bytes in SPLITS[1:]:
        assert found_in(folder, split_bytes) == found


@pytest.mark.parametrize("end", ["of a batch", "within a batch"])
@pytest.mark.parametrize("base", [FIRST, MIDDLE])
def test_a_segment_that_is_cut_off_is_one_finding(tmp_path: Path, base: str, end: str) -> None:
    folder = copied(tmp_path)
    file = folder / f"{base}.log"
    kept = b"".join(batches(file.read_bytes())[:6])
    file.write_bytes(kept if end == "of a batch" else kept[:-5])
    (one,) = found_in(folder, 0)
    assert one[0] is (Rule.L3 if end == "of a batch" else Rule.L1)
    for split_bytes in SPLITS[1:]:
        assert found_in(folder, split_bytes) == [one]


@pytest.mark.parametrize("base", [FIRST, MIDDLE])
def test_an_empty_segment_is_one_finding(tmp_path: Path, base: str) -> None:
    folder = copied(tmp_path)
    (folder / f"{base}.log").write_bytes(b"")
    found = [found_in(folder, split_bytes) for split_bytes in SPLITS]
    assert [len(one) for one in found] == [1] * 4
    assert found == found[:1] * 4


def test_what_follows_is_shown(tmp_path: Path) -> None:
    folder = damaged(tmp_path, "rolled-0", FAULTS["a batch lost"].damage)
    (one,) = by_check(folder)
    assert one.follows > 1
    assert f"; {one.follows} more places with the same cause" in findings_table([one])
    assert finding_columns(one)["follows"] == one.follows


def test_two_segments_that_changed_places(tmp_path: Path) -> None:
    """Expect two findings: two files are wrong."""
    folder = copied(tmp_path)
    swap(folder)
    found = by_check(folder)
    assert [one.rule for one in found] == [Rule.L8, Rule.L8]


# ---- transactions --------------------------------------------------------------------------------

ABORTED = f"{FIRST}.txnindex"
TRANSACTIONS = {
    "lost": remove(ABORTED),
    "producer id": edit(ABORTED, flip(9)),
    "first offset": edit(ABORTED, flip(17)),
    "last offset": edit(ABORTED, flip(25, 8)),
    "last stable offset": edit(ABORTED, flip(33, 8)),
    "entry lost": edit(ABORTED, lambda d: d[34:]),
}


@pytest.mark.parametrize("split_bytes", [0, 700, 100])
@pytest.mark.parametrize("what", TRANSACTIONS)
def test_an_index_of_aborted_transactions(tmp_path: Path, what: str, split_bytes: int) -> None:
    """Expect a finding: consumers with read_committed would get records of aborted transactions."""
    folder = transactional(tmp_path)
    find = by_check if not split_bytes else partial(by_audit, split_bytes=split_bytes)
    assert find(folder) == []
    TRANSACTIONS[what](folder)
    assert [(one.level, one.rule, Path(one.file).name) for one in find(folder)] == [
        (Level.FINDING, Rule.L10, ABORTED)
    ]


@pytest.mark.parametrize("split_bytes", [0, 100])
def test_a_transaction_that_nobody_ends(tmp_path: Path, split_bytes: int) -> None:
    """Expect a note: its age depends on clocks of clients, and the broker's limit is assumed."""
    folder = tmp_path / "transactional-open-0"
    shutil.copytree(SEGMENTS / folder.name, folder)
    (one,) = by_audit(folder, split_bytes) if split_bytes else by_check(folder)
    assert (one.level, one.rule, one.offset) == (Level.NOTE, Rule.L16, 3)
