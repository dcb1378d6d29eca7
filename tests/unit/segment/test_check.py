"""Damaged segments: each damage is one finding at its place, and reading continues after it."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from batchval.rules import Rule
from batchval.segment.check import Options, Summary, check_paths, find_files
from batchval.segment.findings import Finding, Level
from tests.support.batches import GZIP, NONE, NOW, ZSTD, batch, message, record, records, with_crc

NAME = "00000000000000000000.log"


def series(
    count: int = 8, each: int = 3, codec: int = NONE, base: int = 0, **fields: object
) -> list[bytes]:
    """Return batches that follow each other without a fault."""
    return [
        batch(
            records(each),
            codec=codec,
            base_offset=base + i * each,
            partition_leader_epoch=4,
            **fields,
        )  # type: ignore[arg-type]
        for i in range(count)
    ]


def write(folder: Path, *parts: bytes, name: str = NAME) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(parts))
    return path


def check(*paths: Path, **options: object) -> tuple[list[Finding], Summary]:
    summary = Summary()
    options = {"cleanup_policy": "delete", **options}
    found = list(check_paths(list(paths), Options(**options), summary))  # type: ignore[arg-type]
    levels = [finding.level for finding in found]
    counted = (summary.findings, summary.reports, summary.notes)
    assert counted == tuple(
        levels.count(level) for level in (Level.FINDING, Level.REPORT, Level.NOTE)
    )
    return found, summary


def places(found: list[Finding]) -> list[tuple[Rule, int]]:
    return [(f.rule, f.position) for f in found]


def starts(parts: list[bytes]) -> list[int]:
    return [sum(map(len, parts[:i])) for i in range(len(parts))]


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
def test_a_sound_segment(tmp_path: Path, codec: int) -> None:
    parts = series(codec=codec)
    found, summary = check(write(tmp_path, *parts))
    assert found == []
    assert (summary.files, summary.batches, summary.records) == (1, 8, 24)
    assert summary.bytes == sum(map(len, parts))
    assert dict(summary.paths) == {"full" if codec == NONE else "shallow": 8}


@pytest.mark.parametrize("cut", [1, 5, 11, 12, 16, 17, 30, 60, 61, 70])
def test_cut_off(tmp_path: Path, cut: int) -> None:
    parts = series()
    found, summary = check(write(tmp_path, *parts[:7], parts[7][:cut]))
    assert places(found) == [(Rule.L1, starts(parts)[7])]
    assert found[0].offset is None
    # an offset's leading zeros are zeros too
    assert re.match(rf"{cut} (zero )?bytes? ", found[0].reason)
    assert summary.batches == 7


@pytest.mark.parametrize("size", [1, 11, 12, 100, 5000, 9 << 20])
def test_zeros_to_the_end(tmp_path: Path, size: int) -> None:
    parts = series()
    found, summary = check(write(tmp_path, *parts, bytes(size)))
    assert places(found) == [(Rule.L1, sum(map(len, parts)))]
    assert "zero byte" in found[0].reason
    assert summary.batches == 8
    assert summary.bytes == sum(map(len, parts)) + size


@pytest.mark.parametrize("size", [1, 12, 17, 61, 4096, 9 << 20])
def test_zeros_in_the_middle(tmp_path: Path, size: int) -> None:
    parts = series()
    found, summary = check(write(tmp_path, *parts[:4], bytes(size), *parts[4:]))
    # one stray byte shifts the next batch's magic to where its neighbour is expected
    rule = Rule.MAGIC_UNKNOWN if size == 1 else Rule.BATCH_SIZE_TOO_SMALL
    assert places(found) == [(rule, starts(parts)[4])]
    assert f"{size:,} byte" in found[0].reason
    assert summary.batches == 8


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_flipped_bit_in_a_batch_size(tmp_path: Path, bit: int, codec: int) -> None:
    """Change bytes 8 to 11, outside of the checksum. Expect one finding and one lost batch."""
    parts = series(codec=codec, each=40)
    bad = bytearray(parts[3])
    bad[8 + bit // 8] ^= 0x80 >> (bit % 8)
    found, summary = check(write(tmp_path, *parts[:3], bytes(bad), *parts[4:]))
    assert [f.position for f in found] == [starts(parts)[3]]
    assert found[0].rule in (Rule.CRC_MISMATCH, Rule.BATCH_SIZE_TOO_SMALL, Rule.L1)
    assert f"{len(bad)} bytes on" in found[0].reason
    assert summary.batches == 7


@pytest.mark.parametrize("at", [16, 17, 21, 30, 61, -1])
def test_a_flipped_bit_elsewhere(tmp_path: Path, at: int) -> None:
    parts = series()
    bad = bytearray(parts[3])
    bad[at] ^= 0x40
    found, summary = check(write(tmp_path, *parts[:3], bytes(bad), *parts[4:]))
    assert places(found) == [
        (Rule.MAGIC_UNKNOWN if at == 16 else Rule.CRC_MISMATCH, starts(parts)[3])
    ]
    assert found[0].offset == (None if at == 16 else 9)
    assert summary.batches == (7 if at == 16 else 8)


def test_damage_in_the_last_batch_leaves_its_size_believed(tmp_path: Path) -> None:
    parts = series()
    parts[7] = parts[7][:-1] + b"\xff"
    for zeros in (b"", bytes(500)):
        found, _ = check(write(tmp_path, *parts, zeros))
        expected = [(Rule.CRC_MISMATCH, starts(parts)[7])]
        assert places(found) == expected + ([(Rule.L1, sum(map(len, parts)))] if zeros else [])
        assert found[0].offset == 21


def test_several_damaged_batches_in_a_row_are_named_each(tmp_path: Path) -> None:
    parts = series()
    for i in (2, 3, 4):
        parts[i] = parts[i][:-1] + b"\xff"
    found, summary = check(write(tmp_path, *parts))
    assert places(found) == [(Rule.CRC_MISMATCH, starts(parts)[i]) for i in (2, 3, 4)]
    assert summary.batches == 8


@pytest.mark.parametrize(
    "junk", [b"\xff" * 300, bytes(range(256)) * 40, b"GET / HTTP/1.1\r\n\r\n" * 20]
)
def test_junk_between_batches(tmp_path: Path, junk: bytes) -> None:
    parts = series()
    found, summary = check(write(tmp_path, *parts[:2], junk, *parts[2:]))
    assert [f.position for f in found] == [starts(parts)[2]]
    assert summary.batches == 8


def test_damage_at_two_places(tmp_path: Path) -> None:
    parts = series()
    found, summary = check(
        write(tmp_path, parts[0], b"\xff" * 50, *parts[1:5], b"\xff" * 70, *parts[5:])
    )
    assert [f.position for f in found] == [len(parts[0]), starts(parts)[5] + 50]
    assert summary.batches == 8


# ---- between batches -----------------------------------------------------------------------------


def test_overlapping_offsets(tmp_path: Path) -> None:
    parts = [*series(3), *series(2, base=8)]
    found, _ = check(write(tmp_path, *parts))
    assert places(found) == [(Rule.L2, starts(parts)[3])]
    assert found[0].offset == 8


def test_offsets_going_back(tmp_path: Path) -> None:
    parts = [*series(3, base=100), *series(3)]
    found, _ = check(write(tmp_path, *parts, name="00000000000000000100.log"))
    assert places(found) == [(Rule.L2, starts(parts)[3])]


@pytest.mark.parametrize("policy", ["auto", "delete", "compact"])
def test_an_offset_gap(tmp_path: Path, policy: str) -> None:
    parts = [*series(3), *series(3, base=10)]
    found, _ = check(write(tmp_path, *parts), cleanup_policy=policy)
    assert places(found) == ([] if policy == "compact" else [(Rule.L3, starts(parts)[3])])


def test_gaps_are_legal_once_a_batch_was_thinned(tmp_path: Path) -> None:
    thinned = batch(
        [record(0), record(2)], base_offset=20, last_offset_delta=4, partition_leader_epoch=4
    )
    path = write(tmp_path, *series(3), *series(2, base=10), thinned)
    assert check(path, cleanup_policy="auto")[0] == []
    assert places(check(path, cleanup_policy="delete")[0]) == [
        (Rule.L3, starts([*series(3), b""])[3]),
        (Rule.L3, sum(map(len, [*series(3), *series(2, base=10)]))),
    ]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("0\n1\nt 0 15\n", []),
        ("0\n1\nt 0 55\n", [Rule.L13]),
        ("0\n1\nother 0 55\n", [Rule.L3]),
        ("0\n1\nt 1 55\n", [Rule.L3]),
        ("", [Rule.L3]),
        ("\xff", [Rule.L3, Rule.L13]),
        ("0\n", [Rule.L3, Rule.L13]),
        ("0\n1\n\n", [Rule.L3, Rule.L13]),
    ],
)
def test_gaps_are_legal_where_the_checkpoint_names_the_partition(
    tmp_path: Path, text: str, rules: list[Rule]
) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(text.encode("latin-1"))
    path = write(tmp_path / "t-0", *series(3), *series(3, base=10))
    assert [f.rule for f in check(path, cleanup_policy="auto")[0]] == rules


def test_leader_epoch_going_back(tmp_path: Path) -> None:
    parts = series(6)
    parts[4] = batch(records(3), base_offset=12, partition_leader_epoch=3)
    found, _ = check(write(tmp_path, *parts))
    assert places(found) == [(Rule.L4, starts(parts)[4])]


def producer(i: int, sequence: int, producer_id: int = 7, epoch: int = 0, **more: int) -> bytes:
    return batch(
        records(3),
        base_offset=3 * i,
        partition_leader_epoch=4,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **more,
    )


@pytest.mark.parametrize(
    ("sequences", "bad"),
    [
        ([0, 3, 6, 9], None),
        ([0, 3, 7, 10], 2),
        ([0, 3, 3, 6], 2),
        ([5, 8, 11], None),  # a producer whose start lies before the segment
        ([2**31 - 3, 0], None),  # sequences wrap
        ([2**31 - 2, 1], None),
        ([2**31 - 2, 0], 1),
    ],
)
def test_sequence_gap(tmp_path: Path, sequences: list[int], bad: int | None) -> None:
    parts = [producer(i, sequence) for i, sequence in enumerate(sequences)]
    found, _ = check(write(tmp_path, *parts))
    assert places(found) == ([] if bad is None else [(Rule.L5, starts(parts)[bad])])
    assert check(write(tmp_path, *parts), cleanup_policy="compact")[0] == []


def test_sequences_of_another_epoch_producer_or_day_start_anew(tmp_path: Path) -> None:
    parts = [
        producer(0, 0),
        producer(1, 0, producer_id=8),
        producer(2, 3),
        producer(3, 0, epoch=1),
        producer(4, 50, epoch=1, base_timestamp=NOW + 86_400_001),
        batch(records(3), base_offset=15, partition_leader_epoch=4),
    ]
    assert check(write(tmp_path, *parts))[0] == []
    parts[4] = producer(4, 50, epoch=1, base_timestamp=NOW + 86_400_000)
    assert [f.rule for f in check(write(tmp_path, *parts))[0]] == [Rule.L5]


def test_what_damage_took_is_not_reported_again_as_a_gap(tmp_path: Path) -> None:
    parts = [producer(i, 3 * i) for i in range(8)]
    lost = [*parts[:3], b"\xff" * len(parts[3]), *parts[4:]]
    assert [f.rule for f in check(write(tmp_path, *lost))[0]] == [Rule.BATCH_SIZE_TOO_SMALL]
    lost[3] = parts[3][:-1] + b"\xff"
    assert [f.rule for f in check(write(tmp_path, *lost))[0]] == [Rule.CRC_MISMATCH]


def test_findings_across_segments_of_one_partition(tmp_path: Path) -> None:
    first, second = series(3), series(3, base=10)
    write(tmp_path / "t-0", *first)
    path = write(tmp_path / "t-0", *second, name="00000000000000000010.log")
    found, summary = check(tmp_path)
    assert [(f.file, f.position, f.rule) for f in found] == [(str(path), 0, Rule.L3)]
    assert summary.files == 2
    # partitions know nothing of each other
    write(tmp_path / "t-1", *first)
    assert len(check(tmp_path)[0]) == 1


# ---- single batches at rest ----------------------------------------------------------------------

AT_REST = {
    "record": (batch([record(0)[:-1] + b"\x02"]), Rule.RECORD_MALFORMED),
    "codec 5": (batch(records(1), attributes=5), Rule.S6),
    "gzip junk": (batch(records(1), attributes=1), Rule.S7),
    "timestamp": (batch([record(0, timestamp_delta=-NOW - 5)]), Rule.S10),
    "attribute of a record": (batch([record(0, attributes=1)]), Rule.S5),
    "deltas": (batch([record(1), record(0)]), Rule.S3),
    "wrapper": (message(1, value=b"junk", attributes=1), Rule.S7),
    "crc of a message": (message(0, crc=1), Rule.CRC_MISMATCH),
}


@pytest.mark.parametrize("what", AT_REST)
def test_single_batches_at_rest(tmp_path: Path, what: str) -> None:
    data, rule = AT_REST[what]
    found, _ = check(write(tmp_path, *series(2), data), cleanup_policy="compact")
    assert (rule, sum(map(len, series(2)))) in places(found)
    assert [f.rule for f in found if f.rule is not Rule.L2] == [rule]


LEGAL = {
    "control": batch(records(1), attributes=0x20),
    "log append time": batch(records(1), attributes=8),
    "empty": batch([], last_offset_delta=0),
    "delete horizon": batch(records(2), attributes=0x40),
    "future": batch(records(1), base_timestamp=2**62),
    "large": batch([record(0, value=bytes(2 << 20))], codec=ZSTD),
}


@pytest.mark.parametrize("what", LEGAL)
def test_legal_at_rest_though_no_client_may_send_it(tmp_path: Path, what: str) -> None:
    assert check(write(tmp_path, LEGAL[what]))[0] == []
    assert check(write(tmp_path, with_crc(bytes(8) + LEGAL[what][8:])))[0] == []


def test_extras_can_be_reported(tmp_path: Path) -> None:
    path = write(tmp_path, batch([record(0, attributes=1)]))
    found, summary = check(path, extras={"S5": "report"})
    assert [(f.rule, f.reported) for f in found] == [(Rule.S5, True)]
    assert (summary.findings, summary.reports) == (0, 1)


def test_produce_profile_for_other_files(tmp_path: Path) -> None:
    good = batch(records(2))
    path = write(tmp_path, good, batch(records(2), base_offset=2), name="batches.bin")
    found, _ = check(path, now_ms=NOW)
    assert places(found) == [(Rule.BASE_OFFSET_NOT_ZERO, len(good))]
    assert check(path, now_ms=NOW, profile="log")[0] == []
    assert [f.rule for f in check(path, now_ms=0)[0]] == [
        Rule.TIMESTAMP_OUT_OF_RANGE,
        Rule.BASE_OFFSET_NOT_ZERO,
    ]


# ---- the index -----------------------------------------------------------------------------------

PARTS = series()
AT = starts(PARTS)
INDEXES = {
    "true": ([(8, AT[2]), (14, AT[4])], []),
    "true, then zeros": ([(8, AT[2]), (0, 0), (0, 0)], []),
    "between batches": ([(8, AT[2] + 1)], [AT[2] + 1]),
    "after the end": ([(8, AT[2]), (30, 10**6)], [10**6]),
    "a batch too far": ([(8, AT[3])], [AT[3]]),
    "at position 0": ([(2, 0)], []),
    "two lies": ([(8, 5), (14, AT[4]), (17, 7)], [5]),
}


@pytest.mark.parametrize("what", INDEXES)
def test_a_lying_index(tmp_path: Path, what: str) -> None:
    entries, lies = INDEXES[what]
    write(tmp_path, *PARTS)
    index = write(
        tmp_path,
        *(struct.pack(">ii", *entry) for entry in entries),
        name="00000000000000000000.index",
    )
    found, _ = check(tmp_path / NAME)
    assert [(f.rule, f.file, f.position) for f in found] == [
        (Rule.L6, str(index), position) for position in lies
    ]
    assert [f.follows for f in found] == [what == "two lies"] * len(lies)


def test_an_index_that_is_cut_off_or_of_another_base(tmp_path: Path) -> None:
    parts = series(base=1000)
    write(tmp_path, *parts, name="00000000000000001000.log")
    index = write(
        tmp_path, struct.pack(">ii", 8, AT[2]), b"\0\0\1", name="00000000000000001000.index"
    )
    found, _ = check(tmp_path)
    assert [(f.file, f.rule, f.position, f.offset) for f in found] == [
        (str(index), Rule.L6, 8, None)
    ]


def test_an_index_entry_for_a_damaged_batch_does_not_lie(tmp_path: Path) -> None:
    write(tmp_path, *PARTS[:2], b"\xff" * len(PARTS[2]), *PARTS[3:])
    write(tmp_path, struct.pack(">ii", 8, AT[2]), name="00000000000000000000.index")
    assert [f.rule for f in check(tmp_path)[0]] == [Rule.BATCH_SIZE_TOO_SMALL]


# ---- which files ---------------------------------------------------------------------------------


def test_segments_come_in_the_order_of_their_offsets_and_once(tmp_path: Path) -> None:
    a = write(tmp_path / "t-0", *series(3))
    b = write(tmp_path / "t-0", *series(3, base=9), name="00000000000000000009.log")
    for paths in ([b, a], [a, b, a], [tmp_path, b], [tmp_path / "t-0", tmp_path]):
        assert [file for file, _ in find_files(paths)] == [a, b]
        assert check(*paths)[0] == []


def test_folders(tmp_path: Path) -> None:
    for name in (
        NAME,
        "00000000000000000003.log.deleted",
        "123.log",
        "x00000000000000000000.log",
        "notes.txt",
        "a.bin",
    ):
        write(tmp_path / "t-0", name=name)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [file.name for file, _ in find_files([tmp_path])] == [NAME, "a.bin"]


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    write(tmp_path / "disk", *series())
    file = write(tmp_path / "logs", *series())
    (tmp_path / "logs" / "t-0").symlink_to(tmp_path / "disk")
    (tmp_path / "logs" / "again").symlink_to(tmp_path / "disk")
    (tmp_path / "logs" / "loop").symlink_to(tmp_path)
    assert [found for found, _ in find_files([tmp_path / "logs"])] == [
        file,
        tmp_path / "logs" / "again" / NAME,
    ]


def test_a_folder_with_a_segments_name_is_not_passed_over(tmp_path: Path) -> None:
    good = write(tmp_path / "t-0", *series())
    (tmp_path / "t-1" / NAME).mkdir(parents=True)
    found, summary = check(tmp_path)
    assert (found, summary.batches) == ([], 8)
    assert summary.unreadable == [f"{tmp_path / 't-1' / NAME}: is a folder"]
    assert check(good)[1].unreadable == []


@pytest.mark.parametrize("kind", ["a folder", "enormous"])
def test_an_index_that_cannot_be_read_hides_nothing_else(tmp_path: Path, kind: str) -> None:
    index = write(tmp_path, *series()).with_suffix(".index")
    later = write(tmp_path, *series(2, base=30), name="00000000000000000030.log")
    if kind == "a folder":
        index.mkdir()
    else:
        index.touch()
        os.truncate(index, 1 << 40)
    found, summary = check(tmp_path)
    assert [(f.file, f.rule) for f in found] == [(str(later), Rule.L3)]
    (line,) = summary.unreadable
    assert line.startswith(f"{index}: ")


def test_a_checkpoint_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = series()
    del parts[3]
    for n in range(4):
        write(tmp_path / f"t-{n}", *parts)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\nt 1 7\nt 3 9\n")
    asked: list[str] = []
    opened = os.open
    monkeypatch.setattr(
        "batchval.segment.source.os.open",
        lambda path, *a: asked.append(str(path)) or opened(path, *a),
    )
    assert [Path(f.file).parent.name for f in check(tmp_path, cleanup_policy="auto")[0]] == [
        "t-0",
        "t-2",
    ]
    assert (
        sum(path.endswith("cleaner-offset-checkpoint") for path in asked) == 3
    )  # those with findings are listed again


def test_an_unreadable_file_is_reported_and_the_rest_is_checked(tmp_path: Path) -> None:
    good = write(tmp_path / "t-0", *series())
    (tmp_path / "empty").mkdir()
    found, summary = check(tmp_path / "none.log", tmp_path / "empty", good)
    assert found == []
    assert summary.batches == 8
    assert sorted(summary.unreadable) == [
        f"{tmp_path / 'empty'}: no segments in this folder",
        f"{tmp_path / 'none.log'}: No such file or directory",
    ]


def test_an_empty_segment_is_clean(tmp_path: Path) -> None:
    found, summary = check(write(tmp_path))
    assert found == []
    assert (summary.files, summary.batches) == (1, 0)
