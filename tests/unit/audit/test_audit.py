"""Whole audits: what they find is what ``batchval check`` finds, however segments were cut and
the worker that read them.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchval.audit.audit_run import audit, list_work
from batchval.audit.local import run_local
from batchval.audit.manifest import Manifest
from batchval.audit.reduce import Audit
from batchval.errors import BatchvalError
from batchval.rules import Rule
from batchval.segment import check
from batchval.segment.findings import MAX_FINDINGS_PER_RULE, Finding, Level
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range
from batchval.segment.segment_run import ROUNDS
from tests.support.batches import NONE, NOW, ZSTD, batch, of_wrong_length, record, records

ROOT = Path(__file__).parents[3]
SEGMENTS = ROOT / "fixtures" / "segments"
NAME = "00000000000000000000.log"
WHOLE = 256 << 20


def plain(ranges: list[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
    return run_local(ranges, options, out, processes=1)


def run(
    *paths: Path, out: Path | None = None, since: Path | None = None, **settings: object
) -> Audit:
    asked = {"deep": True, "cleanup_policy": "delete", "now_ms": NOW, **settings}
    options = Options(**asked)  # type: ignore[arg-type]
    manifest = Manifest.read(str(since), options) if since else None
    todo = list_work(map(str, paths), options, manifest)
    return audit(todo, options, plain, str(out) if out else None)  # type: ignore[arg-type]


def by_check(*paths: Path, policy: str = "delete") -> list[tuple[str, int, int | None, str, str]]:
    found = check.check_paths(list(paths), check.Options(cleanup_policy=policy), check.Summary())
    return places([one for one in found if one.level is Level.FINDING])


def places(found: list[Finding]) -> list[tuple[str, int, int | None, str, str]]:
    return sorted((f.file, f.position, f.offset, f.rule.id, f.reason) for f in found)  # type: ignore[type-var]


def segment(
    folder: Path, *parts: bytes, base: int = 0, index: list[tuple[int, int]] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020}.log"
    path.write_bytes(b"".join(parts))
    if index is not None:
        path.with_suffix(".index").write_bytes(
            b"".join(struct.pack(">ii", *entry) for entry in index)
        )
    return path


def series(
    count: int = 8, base: int = 0, codec: int = NONE, sequence: int | None = None, epoch: int = 4
) -> list[bytes]:
    """Return batches of three records in a row, of two producers in turn where there is a
    sequence.
    """
    parts = []
    for i in range(count):
        settings = (
            {}
            if sequence is None
            else {"producer_id": i % 2, "producer_epoch": 0, "base_sequence": sequence + i // 2 * 3}
        )
        parts.append(
            batch(
                records(3),
                codec=codec,
                base_offset=base + 3 * i,
                partition_leader_epoch=epoch,
                **settings,
            )
        )  # type: ignore[arg-type]
    return parts


def at(parts: list[bytes], i: int) -> int:
    return sum(map(len, parts[:i]))


# ---- the version of Kafka ----


def test_the_version_of_kafka_changes_the_rule_that_names_a_length(tmp_path: Path) -> None:
    segment(tmp_path / "t-0", of_wrong_length(ZSTD))
    for version, mode, rules in (
        ("3.9", "strict", ["S4"]),
        ("3.9", "kafka", []),
        ("4.1", "kafka", []),
        ("4.4", "strict", ["29"]),
        ("4.4", "kafka", ["29"]),
    ):
        found = run(tmp_path, kafka_version=version, mode=mode)
        assert [finding.rule.id for finding in found.findings] == rules


# ---- the same as batchval check ------------------------------------------------------------------


@pytest.mark.parametrize("split_bytes", [WHOLE, 20_000, 3000])
def test_real_partitions_are_clean(split_bytes: int) -> None:
    found = run(SEGMENTS, split_bytes=split_bytes, cleanup_policy="auto")
    assert found.findings == []
    assert {note.rule for note in found.notes} <= {Rule.L1, Rule.L3, Rule.L16}
    assert by_check(SEGMENTS, policy="auto") == []
    assert found.unreadable == []
    summary = check.Summary()
    list(check.check_paths([SEGMENTS], check.Options(), summary))
    assert (found.segments, found.batches, found.records, found.bytes) == (
        *(summary.files, summary.batches, summary.records, summary.bytes),
    )


def _faulty(folder: Path, what: str) -> None:
    parts = series(sequence=0)
    index: list[tuple[int, int]] | None = [(8, at(parts, 2)), (14, at(parts, 4))]
    later = series(4, base=24, sequence=12)
    if what == "bit flip":
        parts[3] = parts[3][:-1] + b"\xff"
    elif what == "bit flip in a size":
        parts[3] = parts[3][:9] + b"\x55" + parts[3][10:]
    elif what == "truncation":
        parts[7] = parts[7][:30]
    elif what == "zero tail":
        later.append(bytes(1000))
    elif what == "lying index":
        index = [(8, at(parts, 2)), (14, at(parts, 4) + 1)]
    elif what == "missing batch":
        del parts[5]
        index = None
    elif what == "repeated batch":
        parts.insert(5, parts[4])
    elif what == "leader epoch":
        parts[4] = series(1, base=12, sequence=6, epoch=3)[0]
    elif what == "sequence":
        later[0] = series(1, base=24, sequence=13)[0]
    elif what == "junk between":
        parts.insert(3, b"\xff" * 200)
        index = None
    segment(folder / "orders-0", *parts, index=index)
    others = None if index is None else []  # empty files
    segment(
        folder / "orders-0", *([] if what == "missing segment" else later), base=24, index=others
    )
    segment(folder / "orders-0", *series(4, base=36, sequence=18), base=36, index=others)
    if what == "missing segment":
        (folder / "orders-0" / f"{24:020}.log").unlink()


FAULTS = {
    "none": None,
    "bit flip": Rule.CRC_MISMATCH,
    "bit flip in a size": Rule.L1,
    "truncation": Rule.L1,
    "zero tail": Rule.L1,
    "lying index": Rule.L6,
    "missing segment": Rule.L3,
    "missing batch": Rule.L3,
    "repeated batch": Rule.L2,
    "leader epoch": Rule.L4,
    "sequence": Rule.L5,
    "junk between": Rule.BATCH_SIZE_TOO_SMALL,
}


@pytest.mark.parametrize("split_bytes", [WHOLE, 600, 250, 64])
@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_one_finding_at_its_place(
    tmp_path: Path, what: str, split_bytes: int
) -> None:
    _faulty(tmp_path, what)
    found = run(tmp_path, split_bytes=split_bytes)
    if what not in ("repeated batch", "sequence"):
        assert [f.rule for f in found.findings] == ([FAULTS[what]] if FAULTS[what] else [])
    assert FAULTS[what] in {*(f.rule for f in found.findings), None}
    assert places(found.findings) == by_check(tmp_path)


@pytest.mark.parametrize("split_bytes", [WHOLE, 200])
@pytest.mark.parametrize("policy", ["auto", "delete", "compact"])
def test_compaction_makes_gaps_legal(tmp_path: Path, policy: str, split_bytes: int) -> None:
    thinned = batch(
        [record(0), record(2)], base_offset=40, last_offset_delta=4, partition_leader_epoch=4
    )
    segment(tmp_path / "t-0", *series(3), *series(3, base=12))
    segment(tmp_path / "t-0", *series(2, base=30), thinned, base=30)
    segment(tmp_path / "u-0", *series(3), *series(3, base=12))
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nu 0 20\n")
    found = run(tmp_path, split_bytes=split_bytes, cleanup_policy=policy)
    assert len(found.findings) == (4 if policy == "delete" else 0)
    assert places(found.findings) == by_check(tmp_path, policy=policy)


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_an_index_entry_for_what_is_damaged_does_not_lie(tmp_path: Path, codec: int) -> None:
    parts = series(codec=codec)
    index = [(8, at(parts, 2)), (11, at(parts, 3)), (14, at(parts, 4))]
    segment(tmp_path / "t-0", *parts[:2], b"\xff" * at(parts[2:4], 2), *parts[4:], index=index)
    for split_bytes in (WHOLE, 200, 90):
        found = run(tmp_path, split_bytes=split_bytes)
        assert [f.rule for f in found.findings] == [Rule.BATCH_SIZE_TOO_SMALL]
        assert places(found.findings) == by_check(tmp_path)


# ---- outputs -------------------------------------------------------------------------------------


def _bytes_of(out: Path) -> dict[str, bytes]:
    """Return the bytes of all files but those of runs/, where each run has its own id."""
    found = {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }
    assert found.pop("runs/part-0.parquet")
    return found


def test_a_second_run_writes_the_same_bytes(tmp_path: Path) -> None:
    _faulty(tmp_path / "in", "bit flip")
    first, second = tmp_path / "a", tmp_path / "b"
    run(tmp_path / "in", out=first, split_bytes=300)
    run(tmp_path / "in", out=second, split_bytes=300)
    assert _bytes_of(first) == _bytes_of(second)
    assert len(_bytes_of(first)) > 8
    run(tmp_path / "in", out=first, split_bytes=300)
    assert _bytes_of(first) == _bytes_of(second)
    run(tmp_path / "in", out=second, split_bytes=WHOLE)
    assert (
        pq.read_table(second / "batches").num_rows
        == pq.read_table(first / "batches").num_rows
        == 16
    )
    for name in ("errors", "summary", "segments"):
        assert pq.read_table(second / name).equals(pq.read_table(first / name))


def test_rows_that_are_wanted(tmp_path: Path) -> None:
    _faulty(tmp_path / "in", "bit flip")
    run(tmp_path / "in", out=tmp_path / "bad", rows="bad")
    assert pq.read_table(tmp_path / "bad" / "batches")["rule"].to_pylist() == ["14"]
    run(tmp_path / "in", out=tmp_path / "none", rows="none")
    assert not (tmp_path / "none" / "batches").exists()
    assert pq.read_table(tmp_path / "none" / "errors").num_rows == 1


def test_what_an_interrupted_run_has_left_is_not_counted(tmp_path: Path) -> None:
    _faulty(tmp_path / "in", "none")
    out = tmp_path / "out"
    options = Options(split_bytes=300)

    def breaks(ranges: list[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
        for n, result in enumerate(plain(ranges, options, out)):
            if n == 4:
                raise KeyboardInterrupt
            yield result

    with pytest.raises(KeyboardInterrupt):
        audit(list_work([str(tmp_path / "in")], options), options, breaks, str(out))  # type: ignore[arg-type]
    assert list((out / "batches").rglob("*.parquet"))
    assert not (out / "_SUCCESS").exists()
    run(tmp_path / "in", out=out, split_bytes=500)
    assert (out / "_SUCCESS").exists()
    table = pq.read_table(out / "batches")
    assert table.num_rows == 16
    assert (
        len(set(zip(table["segment"].to_pylist(), table["position"].to_pylist(), strict=True)))
        == 16
    )


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    _faulty(tmp_path / "in", "none")
    mine = tmp_path / "out" / "summary"
    mine.mkdir(parents=True)
    (mine / "diary.txt").write_text("dear diary")
    with pytest.raises(BatchvalError, match="which no audit wrote"):
        run(tmp_path / "in", out=tmp_path / "out")
    assert (mine / "diary.txt").exists()


def test_the_tables(tmp_path: Path) -> None:
    _faulty(tmp_path / "in", "missing segment")
    (tmp_path / "in" / "gone-1").mkdir()
    (tmp_path / "in" / "gone-1" / NAME).symlink_to(tmp_path / "nowhere")
    run(tmp_path / "in", out=tmp_path / "out")
    bad = pq.read_table(tmp_path / "out" / "errors").to_pylist()
    assert [
        (row["topic"], row["rule"], row["segment"], row["position"], row["offset"]) for row in bad
    ] == [
        ("orders", "L3", 36, 0, 36),
        (None, "UNREADABLE", 0, None, None),
    ]
    (hour,) = pq.read_table(tmp_path / "out" / "summary").to_pylist()
    assert (hour["batches"], hour["records"], hour["codec"]) == (12, 36, "none")
    assert hour["hour"].isoformat() == "2023-11-14T22:00:00+00:00"
    assert (hour["broker"], hour["min_offset"], hour["max_offset"]) == (None, 0, 47)
    assert hour["bytes"] == hour["uncompressed_bytes"]
    assert hour["max_timestamp"].isoformat().startswith("2023-11-14T22:")
    assert (bad[0]["max_timestamp"], bad[0]["error_code"]) == (hour["max_timestamp"], 56)
    listed = pq.read_table(tmp_path / "out" / "segments").to_pylist()
    assert [
        (row["base_offset"], row["batches"], row["last_offset"])
        for row in listed
        if not row["unreadable"]
    ] == [
        (0, 8, 23),
        (36, 4, 47),
    ]
    assert sum(row["unreadable"] is not None for row in listed) == 1
    assert [one["sequence"] for one in listed[-1]["producers"]] == [24, 24]


# ---- incremental ---------------------------------------------------------------------------------


def test_since_reads_what_is_new(tmp_path: Path) -> None:
    log = tmp_path / "in" / "t-0"
    parts = [*series(6, sequence=0)]
    segment(log, *parts, base=0)
    active = segment(log, *series(2, base=18, sequence=9), base=18)
    first = run(tmp_path / "in", out=tmp_path / "a")
    assert (first.batches, first.skipped) == (8, 0)
    again = run(tmp_path / "in", out=tmp_path / "b", since=tmp_path / "a")
    assert (again.batches, again.segments, again.skipped, again.findings) == (0, 2, 2, [])
    assert pq.read_table(tmp_path / "b" / "segments").equals(
        pq.read_table(tmp_path / "a" / "segments")
    )
    with active.open("ab") as file:
        file.write(b"".join(series(4, base=24, sequence=12)))
    segment(log, *series(2, base=36, sequence=19), base=36)
    grown = run(tmp_path / "in", out=tmp_path / "c", since=tmp_path / "b")
    assert (grown.batches, grown.skipped) == (6, 1)
    assert [(f.segment, f.position, f.rule) for f in grown.findings] == [
        (36, 0, Rule.L5),
        (36, len(parts[0]), Rule.L5),
    ]
    assert places(grown.findings) == by_check(tmp_path / "in")
    whole = run(tmp_path / "in", out=tmp_path / "d")
    assert whole.batches == first.batches + grown.batches
    assert pq.read_table(tmp_path / "d" / "segments").equals(
        pq.read_table(tmp_path / "c" / "segments")
    )


def test_since_reads_a_segment_again_that_is_another(tmp_path: Path) -> None:
    log = tmp_path / "in" / "t-0"
    segment(log, *series(4))
    run(tmp_path / "in", out=tmp_path / "a")
    segment(log, *series(6, codec=ZSTD))
    found = run(tmp_path / "in", out=tmp_path / "b", since=tmp_path / "a")
    assert (found.batches, found.skipped) == (6, 0)


def test_since_of_other_options_is_refused(tmp_path: Path) -> None:
    segment(tmp_path / "in" / "t-0", *series(4))
    run(tmp_path / "in", out=tmp_path / "a")
    with pytest.raises(BatchvalError, match=r"cannot resume: .* other options \(deep=true\)"):
        run(tmp_path / "in", out=tmp_path / "b", since=tmp_path / "a", deep=False)
    with pytest.raises(BatchvalError, match=r'other options \(kafka_version="4.4.0"\)'):
        run(tmp_path / "in", out=tmp_path / "b", since=tmp_path / "a", kafka_version="3.9")
    with pytest.raises(BatchvalError, match="no segments/ of an audit"):
        run(tmp_path / "in", out=tmp_path / "b", since=tmp_path / "nothing")
    # a release with the same row finds the same
    assert run(tmp_path / "in", since=tmp_path / "a", kafka_version="4.2.2").skipped == 1


def test_since_of_an_earlier_release_is_refused(tmp_path: Path) -> None:
    segment(tmp_path / "in" / "t-0", *series(4))
    run(tmp_path / "in", out=tmp_path / "a")
    [manifest] = (tmp_path / "a" / "segments").glob("*.parquet")
    pq.write_table(pq.read_table(manifest).drop_columns(["state", "read_at"]), manifest)
    with pytest.raises(BatchvalError, match="written by an earlier release"):
        run(tmp_path / "in", since=tmp_path / "a")


def test_since_of_an_audit_before_an_option_was_there_has_its_default(tmp_path: Path) -> None:
    segment(tmp_path / "in" / "t-0", *series(4))
    run(tmp_path / "in", out=tmp_path / "a")
    [manifest] = (tmp_path / "a" / "segments").glob("*.parquet")
    table = pq.read_table(manifest)
    metadata = table.schema.metadata
    options = json.loads(metadata[b"batchval.options"])
    del options["kafka_version"]
    metadata[b"batchval.options"] = json.dumps(options).encode()
    pq.write_table(table.replace_schema_metadata(metadata), manifest)
    assert run(tmp_path / "in", since=tmp_path / "a").skipped == 1
    with pytest.raises(BatchvalError, match="kafka_version"):
        run(tmp_path / "in", since=tmp_path / "a", kafka_version="3.9")


# ---- the end of the process ----


#: Prints by how many an audit raises the threads of its process, those of an allocator aside.
_THREADS = """
import os, sys
from pathlib import Path
import batchval.audit.outputs
from tests.unit.audit.test_audit import run
def threads():
    tasks = Path("/proc/self/task").iterdir()
    return sum("jemalloc" not in (task / "comm").read_text() for task in tasks)
before = threads()
found = run(Path(sys.argv[1]), out=Path(sys.argv[2]))
print(len(found.findings), threads() - before)
"""


def test_an_audit_starts_no_thread_of_arrow(tmp_path: Path) -> None:
    """Check threads: one that still holds memory of Python's aborts the process where the
    interpreter ends.
    """
    _faulty(tmp_path / "in", "bit flip")
    command = [sys.executable, "-c", _THREADS, str(tmp_path / "in"), str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    findings, more = map(int, done.stdout.split())
    assert findings > 0
    assert more == 0


# ---- bad input -----------------------------------------------------------------------------------


def test_what_cannot_be_read_is_one_row_and_the_rest_is_audited(tmp_path: Path) -> None:
    _faulty(tmp_path / "in", "none")
    (tmp_path / "in" / "empty").mkdir()
    segment(tmp_path / "in" / "t-0", *series())
    (tmp_path / "in" / "t-0" / f"{24:020}.log").symlink_to(tmp_path / "nowhere")
    segment(tmp_path / "in" / "t-0", *series(4, base=30), base=30)
    found = run(
        tmp_path / "in", tmp_path / "nowhere", tmp_path / "in" / "empty", out=tmp_path / "out"
    )
    assert found.batches == 28
    assert found.findings == []  # nobody knows which offsets the file that cannot be read has
    assert len(found.unreadable) == 3
    assert all("\n" not in lost.reason for lost in found.unreadable)
    errors = pq.read_table(tmp_path / "out" / "errors").to_pylist()
    assert [row["rule"] for row in errors] == ["UNREADABLE"] * 3


@pytest.mark.parametrize(
    "name", ["a b-0", "ü-1", "no partition", "t=1-3", "50%-0", "x" * 240 + "-0", "-0", "..-2"]
)
def test_odd_topic_names(tmp_path: Path, name: str) -> None:
    segment(tmp_path / "in" / name, *series())
    found = run(tmp_path / "in", out=tmp_path / "out")
    assert (found.batches, found.findings, found.unreadable) == (8, [], [])
    assert (
        pq.ParquetFile(next((tmp_path / "out" / "batches").rglob("*.parquet"))).read().num_rows == 8
    )


def test_a_topic_whose_name_is_not_text(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/in/\xff\xfe-0"
    os.makedirs(folder)
    shutil.copy(segment(tmp_path / "other-0", *series()), os.fsdecode(folder))
    found = run(tmp_path / "in", out=tmp_path / "out")
    assert (found.batches, found.findings, found.unreadable) == (8, [], [])


@pytest.mark.parametrize(
    "name", ["y" * 253, "\u00e9" * 126, "%" * 200, "=", ".", "a b\n<b>'\"", "hour=1", "-", "a-"]
)
def test_odd_topics_have_folders_of_their_own(tmp_path: Path, name: str) -> None:
    """Use a topic as long as a file system allows with its prefix."""
    segment(tmp_path / "in" / f"{name}-0", *series(2))
    found = run(tmp_path / "in", out=tmp_path / "out")
    assert (found.unreadable, found.batches, len(found.files)) == ([], 2, 1)
    assert pq.read_table(tmp_path / "out" / "summary")["topic"].to_pylist() == [name]
    assert pq.ParquetFile(tmp_path / "out" / found.files[0][0]).metadata.num_rows == 2


def test_a_flood_of_findings(tmp_path: Path) -> None:
    """Check that the last listed finding counts the others, for each way to cut the segment."""
    one = batch(records(1), partition_leader_epoch=4, crc=7)
    parts = [struct.pack(">q", i) + one[8:] for i in range(500)]
    path = segment(tmp_path / "in" / "a-0", *parts, base=0, index=[(7, 3)])
    segment(tmp_path / "in" / "a-0", parts[0], b"x" * 100, base=500)
    found = run(tmp_path / "in", out=tmp_path / "out", split_bytes=9000)
    assert places(list(found.findings)) == by_check(tmp_path / "in")
    first = [f for f in found.findings if f.segment == 0]
    assert [f.position for f in first] == [i * len(one) for i in range(MAX_FINDINGS_PER_RULE)]
    assert [f.follows for f in first] == [
        1,
        *[0] * (MAX_FINDINGS_PER_RULE - 2),
        500 - MAX_FINDINGS_PER_RULE,
    ]
    assert found.rules() == {"14": MAX_FINDINGS_PER_RULE + 1}
    assert pq.read_table(tmp_path / "out" / "errors").num_rows == MAX_FINDINGS_PER_RULE + 1
    (result,) = run_local(
        [Range(list_work([str(path)], Options()).ranges[0].segment, 0, 1 << 20)], Options(), None, 1
    )
    assert len(pickle.dumps(result.findings)) < 500 * 60


# ---- files that others write to ------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 3, 5])
@pytest.mark.parametrize("before", [0, 2])
def test_a_segment_that_is_cut_off_while_it_is_read(tmp_path: Path, kept: int, before: int) -> None:
    """Check that it is listed and read again: a follower has truncated its log."""
    parts = series(8)
    path = segment(tmp_path / "in" / "a-0", *parts)
    segment(tmp_path / "in" / "b-0", *parts)
    options = Options(split_bytes=2 * len(parts[0]))

    def cut_off(ranges: list[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
        if path.stat().st_size < at(parts, 8):
            yield from plain(ranges, options, out)
            return
        of_a = sorted(
            (one for one in ranges if one.segment.topic == "a"), key=lambda one: one.start
        )
        yield from plain([one for one in ranges if one.segment.topic != "a"], options, out)
        yield from plain(of_a[:before], options, out)
        os.truncate(path, at(parts, kept))
        yield from plain(of_a[before:], options, out)

    todo = list_work([str(tmp_path / "in")], options)
    found = audit(todo, options, cut_off, str(tmp_path / "out"))  # type: ignore[arg-type]
    assert (found.findings, found.unreadable, found.batches) == ([], [], 8 + kept)
    assert pq.read_table(tmp_path / "out" / "segments")["size"].to_pylist() == [
        at(parts, kept),
        at(parts, 8),
    ]


def test_a_segment_that_is_written_anew_each_time_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchval.segment.segment_run.PAUSE_S", 0)
    parts, calls = series(8), list[int]()
    path = segment(tmp_path / "a-0", *parts)
    options = Options(split_bytes=2 * len(parts[0]))

    def rewritten(ranges: list[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
        calls.append(len(ranges))
        first, *others = sorted(ranges, key=lambda one: one.start)
        yield from plain([first], options, out)
        segment(
            tmp_path / "a-0",
            batch(records(4 + len(calls)), partition_leader_epoch=4),
            *parts[2:],
            parts[0],
        )
        yield from plain(others, options, out)

    monkeypatch.setattr("batchval.audit.local.run_local", rewritten)
    found = audit(list_work([str(path)], options), options, rewritten)  # type: ignore[arg-type]
    assert found.unreadable == []
    ((_, reason),) = found.unsettled
    assert reason.startswith("changed while it was read: the parts before and after position")
    assert len(calls) == ROUNDS + 1


def test_the_same_records_sent_again_to_a_new_leader(tmp_path: Path) -> None:
    """Check that the whole segment is read again: the checksum covers neither the epoch nor the
    offset.
    """
    old, new = series(8), series(9, epoch=5)
    segment(tmp_path / "in" / "a-0", *old)
    assert run(tmp_path / "in", out=tmp_path / "out").batches == 8
    segment(tmp_path / "in" / "a-0", *old[:5], *new[5:])
    assert run(tmp_path / "in", since=tmp_path / "out").batches == 9
    segment(tmp_path / "in" / "a-0", *series(9, base=3))
    assert run(tmp_path / "in", since=tmp_path / "out").batches == 9
    segment(tmp_path / "in" / "a-0", *series(9))
    assert run(tmp_path / "in", since=tmp_path / "out").batches == 1


def test_a_preallocated_tail_costs_no_reading(tmp_path: Path) -> None:
    path = segment(tmp_path / "a-0", *series(2))
    os.truncate(path, 1 << 40)
    found = run(tmp_path, split_bytes=1 << 36)
    assert [(f.rule, f.position) for f in found.notes] == [(Rule.L1, at(series(2), 2))]
    assert (found.findings, found.batches, found.unreadable) == ([], 2, [])
