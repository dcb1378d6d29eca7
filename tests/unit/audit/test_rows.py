"""Rows of ranges: the same for any split, whatever the file holds."""

from __future__ import annotations

import itertools
import os
import random
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from batchval.audit.arrow_rows import (
    DEFAULT_COLUMNS,
    END_OF_TIME_MS,
    ROW_SCHEMA,
    TABLES_VERSION,
    TIME,
    UNREADABLE,
    column_names,
    read_range,
    rows_of,
    to_rows,
)
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, ErrorCode
from batchval.policy import TopicPolicy
from batchval.segment import range_check
from batchval.segment.options import Options
from batchval.segment.ranges import Range, cut
from batchval.segment.reader import LocalFile
from batchval.segment.store import SegmentInfo, Store
from tests.support.batches import (
    GZIP,
    NOW,
    ZSTD,
    batch,
    message,
    record,
    records,
    with_crc,
    wrapper,
)
from tests.support.claims import Stated, carrying
from tests.support.seeds import seeds
from tests.support.segments import segment

SEGMENTS = Path(__file__).parents[3] / "fixtures" / "segments"
ALL = ("all",)
DEFAULT = Options(columns=ALL)


def moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def rows_below(folder: Path, options: Options = DEFAULT) -> pa.Table:
    store, path = Store.of(str(folder))
    found = []
    for info in store.list_segments(path, options.topics):
        assert isinstance(info, SegmentInfo), info
        for part in cut(info, options.split_bytes, store):
            found += list(read_range(part, options))
    return pa.Table.from_batches(found, ROW_SCHEMA)


def write(folder: Path, data: bytes, index: list[tuple[int, int]] | None = None) -> SegmentInfo:
    partition = folder / "orders-3"
    partition.mkdir(exist_ok=True)
    path = partition / f"{7:020}.log"
    path.write_bytes(data)
    if index is not None:
        path.with_suffix(".index").write_bytes(
            b"".join(struct.pack(">ii", *entry) for entry in index)
        )
    (info,) = Store.of("")[0].list_segments(str(partition))
    assert isinstance(info, SegmentInfo)
    return info


def rows_in(info: SegmentInfo, places: list[int], options: Options = DEFAULT) -> pa.Table:
    """Return the rows of a segment that is cut at these places."""
    found = []
    for start, end in itertools.pairwise([0, *places, info.size]):
        found += list(read_range(Range(info, start, end), options))
    table = pa.Table.from_batches(found, ROW_SCHEMA)
    table.validate(full=True)
    return table


@pytest.mark.parametrize("split_bytes", [1000, 5000, 20_000])
def test_real_segments_give_the_same_rows_for_any_split(split_bytes: int) -> None:
    whole = rows_below(SEGMENTS)
    assert whole.num_rows > 200
    assert rows_below(SEGMENTS, Options(columns=ALL, split_bytes=split_bytes)).equals(whole)


@pytest.mark.parametrize("seed", seeds(30))
@pytest.mark.parametrize("deep", [False, True])
def test_any_file_gives_the_same_rows_for_any_cuts(seed: int, deep: bool, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = segment(
        rng, rng.randint(1, 25), rng.choice((0.0, 0.05, 0.3)), rng.choice((10, 600, 3000))
    )
    info = write(tmp_path, data)
    options = Options(columns=ALL, deep=deep, accept_claims_header=rng.random() < 0.7)
    whole = rows_in(info, [], options)
    assert sum(whole["size_in_bytes"].to_pylist()) == len(data)
    for count in (1, 3, 10, 60):
        places = sorted(rng.randrange(len(data) + 1) for _ in range(count))
        assert rows_in(info, places, options).equals(whole), places
    bad = rows_in(info, [len(data) // 2], Options(**{**vars(options), "rows": "bad"}))
    assert bad.equals(whole.filter(pa.compute.is_valid(whole["rule"])))
    assert (
        rows_in(info, [len(data) // 2], Options(**{**vars(options), "rows": "none"})).num_rows == 0
    )


def test_a_batch_larger_than_a_split_belongs_to_the_range_it_starts_in(tmp_path: Path) -> None:
    parts = [
        batch(records(2)),
        batch([record(0, value=bytes(50_000))], base_offset=2),
        batch(base_offset=3),
    ]
    info = write(tmp_path, b"".join(parts))
    start = len(parts[0])
    for place, counts in (
        (start, (1, 2)),
        (start + 1, (2, 1)),
        (start + 50_000, (2, 1)),
        (info.size - 1, (3, 0)),
    ):
        found = [
            sum(block.num_rows for block in read_range(Range(info, a, b), DEFAULT))
            for a, b in ((0, place), (place, info.size))
        ]
        assert tuple(found) == counts, place
    assert len(cut(info, 1000, Store.of("")[0])) == -(-info.size // 1000)
    assert rows_below(tmp_path, Options(columns=ALL, split_bytes=1000)).equals(rows_below(tmp_path))


def test_an_index_that_lies_changes_no_row(tmp_path: Path) -> None:
    inner = batch(records(3), base_offset=1)
    parts = [batch([record(0, value=b"x" * 50 + inner + inner)], base_offset=i) for i in range(20)]
    data = b"".join(parts)
    inside = data.index(inner)
    size = len(parts[0])
    truth = [(i, size * i) for i in range(1, 20)]
    lies = [
        [(1, inside + i * size) for i in range(20)],
        [(1, 5), (1, 1 << 30), (3, size), (2, 3)],
        [(0, 0)] * 9,
    ]
    for index in (truth, *lies):
        info = write(tmp_path, data, index)
        assert info.index_uri is not None
        cuts = cut(info, 300, Store.of("")[0])
        assert [part.start for part in cuts][1:] == [part.end for part in cuts][:-1]
        assert (cuts[0].start, cuts[-1].end) == (0, info.size)
        assert all(part.start < part.end for part in cuts)
        rows = rows_below(tmp_path, Options(columns=ALL, split_bytes=300))
        assert rows["position"].to_pylist() == [size * i for i in range(20)]
        assert rows["rule"].null_count == 20
    assert [part.start for part in cut(write(tmp_path, data, truth), 300, Store.of("")[0])][1] in {
        p for _, p in truth
    }


def test_columns_are_those_of_the_library(tmp_path: Path) -> None:
    """Compare every column with BatchColumns' own rows."""
    parts = [
        batch(records(3), base_offset=7, codec=ZSTD, partition_leader_epoch=4),
        batch(
            records(1),
            base_offset=10,
            attributes=16 | 32,
            producer_id=9,
            producer_epoch=2,
            base_sequence=5,
        ),
        batch(records(1), base_offset=11, attributes=8 | 64),
        batch(records(1), base_offset=12, crc=7),
        batch(records(1), base_offset=13, attributes=6),
        message(0, offset=14),
        wrapper([message(1, offset=0)], GZIP, offset=15),
    ]
    data = b"".join(parts)
    info = write(tmp_path, data)
    got = rows_in(info, []).to_pylist()
    wanted = list(LogValidator(profile="log").check_batches(data, deep=False).rows())
    times = {"base_timestamp", "max_timestamp", "delete_horizon_ms"}
    same = (
        set(wanted[0])
        - {"reports", "claims", "reason", "compression_type", "crc", "path", "error_code"}
        - times
    )
    assert len(got) == len(wanted) == len(parts)
    for row, want in zip(got, wanted, strict=True):
        assert {name: row[name] for name in same} == {name: want[name] for name in same}
        assert row["reason"] == (want["reason"] or None)
        assert row["compression_type"] == str(want["compression_type"])
        assert (row["topic"], row["partition"], row["segment"]) == ("orders", 3, 7)
        assert row["validation_path"] == want["path"]
        assert (row["error_code"] or 0) == want["error_code"]
        assert row["error_name"] == (
            ErrorCode(want["error_code"]).name if want["error_code"] else None
        )
        for name in times:
            assert row[name] == (None if want[name] in (None, -1) else moment(want[name]))
        assert (row["schema_version"], row["file"]) == (TABLES_VERSION, info.uri)
        assert (row["broker"], row["cluster"]) == (None, None)
    assert [row["crc"] == want["crc"] for row, want in zip(got, wanted, strict=True)] == [True] * 7
    assert [row["validation_path"] for row in got] == [
        None,
        "full",
        "full",
        "full",
        None,
        "full",
        None,
    ]
    assert [row["rule"] for row in got] == [None, None, None, "14", "S6", None, None]
    assert [row["compression_type"] for row in got][4] == "6"
    assert [row["delete_horizon_ms"] for row in got][2] == moment(NOW)
    sizes = [None, len(parts[1]), len(parts[2]), None, None, len(parts[5]), None]
    assert [row["uncompressed_size"] for row in got] == sizes
    deep = rows_in(write(tmp_path, data), [], Options(columns=ALL, deep=True)).to_pylist()
    plain = len(batch(records(3)))
    assert deep[0]["uncompressed_size"] == plain
    assert [row["validation_path"] for row in deep] == [
        "shallow",
        "full",
        "full",
        "full",
        "full",
        "full",
        "full",
    ]
    assert deep[6]["uncompressed_size"] == len(message(1, offset=0))
    assert all(
        row[name] is None
        for row in deep
        for name in ("records_number", "null_keys", "claims_honest")
    )


def test_claims_in_a_header_are_held_against_the_records_where_those_are_looked_at(
    tmp_path: Path,
) -> None:
    parts = records(3)
    honest, lying = Stated(NOW, 3, 1), Stated(NOW, 4, 1)
    data = b"".join(
        carrying(batch(parts, base_offset=3 * i, codec=codec), carried)
        for i, (codec, carried) in enumerate(
            [(0, honest), (0, lying), (ZSTD, honest), (ZSTD, lying)]
        )
    )
    data += batch(parts, base_offset=12)
    info = write(tmp_path, data)
    shallow = rows_in(info, [], Options(columns=ALL, accept_claims_header=True)).to_pylist()
    deep = rows_in(info, [], Options(columns=ALL, accept_claims_header=True, deep=True)).to_pylist()
    for found in (shallow, deep):
        assert [row["magic"] for row in found] == [3, 3, 3, 3, 2]
        assert [row["records_number"] for row in found] == [3, 4, 3, 4, None]
        assert [row["batch_min_timestamp"] for row in found] == [moment(NOW)] * 4 + [None]
        assert [row["null_keys"] for row in found] == [1] * 4 + [None]
    assert [row["claims_honest"] for row in shallow] == [True, False, None, None, None]
    assert [row["claims_honest"] for row in deep] == [True, False, True, False, None]
    assert [row["rule"] for row in deep] == [None, "L7", None, "L7", None]
    sizes = {row["uncompressed_size"] for row in deep[:4]}
    assert sizes == {len(batch(parts)) + 13}
    refused = rows_in(
        info, [], DEFAULT
    ).to_pylist()  # without the policy nothing of magic 3 is a batch
    assert [(row["magic"], row["rule"]) for row in refused] == [(None, "4"), (2, None)]


def test_what_only_a_deep_look_finds(tmp_path: Path) -> None:
    parts = batch(records(3), codec=GZIP), batch(payload=b"no stream", codec=ZSTD, base_offset=3)
    info = write(tmp_path, b"".join(parts))
    assert rows_in(info, [])["rule"].to_pylist() == [None, None]
    assert rows_in(info, [], Options(columns=ALL, deep=True))["rule"].to_pylist() == [None, "S7"]
    assert (
        rows_in(info, [], Options(columns=ALL, deep=True, max_decompressed_bytes=20))[
            "rule"
        ].to_pylist()[0]
        == "S8"
    )
    negative = write(tmp_path, batch(records(3), codec=GZIP, records_count=-1))
    assert (
        rows_in(negative, [])["rule"].to_pylist()
        == rows_in(negative, [], Options(columns=ALL, deep=True))["rule"].to_pylist()
    )
    assert rows_in(negative, [], Options(columns=ALL, mode="kafka"))["rule"].to_pylist() == ["29"]


def test_each_damage_is_one_row(tmp_path: Path) -> None:
    sound = [batch(records(2), base_offset=2 * i) for i in range(30)]
    size, last = len(sound[0]), len(sound) - 1
    flipped = bytearray(b"".join(sound))
    flipped[5 * size + 70] ^= 4
    for data, wanted in (
        (b"".join(sound), []),
        (bytes(flipped), [(5 * size, "14")]),
        (b"".join(sound)[:-10], [(last * size, "L1")]),
        (b"".join(sound) + bytes(4000), [(30 * size, "L1")]),
        (b"".join(sound[:9]) + b"\xff" * 100 + b"".join(sound[9:]), [(9 * size, "2")]),
        (b"", []),
    ):
        info = write(tmp_path, data)
        for places in ([], list(range(100, len(data), 100))):
            rows = rows_in(info, places, Options(columns=ALL, rows="bad")).to_pylist()
            assert [(row["position"], row["rule"]) for row in rows] == wanted
            assert all(
                row["reason"] and row["error_code"] and row["is_valid"] is False for row in rows
            )


def test_forty_small_segments_and_an_empty_one(tmp_path: Path) -> None:
    for i in range(40):
        folder = tmp_path / f"t.{i % 4}-{i % 8}"
        folder.mkdir(exist_ok=True)
        (folder / f"{i:020}.log").write_bytes(batch(records(1), base_offset=i))
    (tmp_path / "t.0-0" / f"{99:020}.log").write_bytes(b"")
    rows = rows_below(tmp_path)
    assert sorted(rows["base_offset"].to_pylist()) == list(range(40))
    assert set(rows["topic"].to_pylist()) == {"t.0", "t.1", "t.2", "t.3"}
    assert rows_below(tmp_path, Options(columns=ALL, topics=("t.1", "x*")))[
        "segment"
    ].to_pylist() == list(range(1, 40, 4))[::2] + list(range(5, 40, 8))
    assert rows_below(tmp_path, Options(columns=ALL, topics=("t.?",))).num_rows == 40


def test_a_file_that_cannot_be_read_is_one_row(tmp_path: Path) -> None:
    info = write(tmp_path, batch() * 100)
    path = Path(info.uri)
    path.unlink()
    path.mkdir()  # even root cannot read a folder
    parts = cut(info, 200, Store.of("")[0])
    assert len(parts) == 1
    (block,) = read_range(parts[0], DEFAULT)
    (row,) = block.to_pylist()
    assert (row["rule"], row["error_code"], row["reason"]) == (UNREADABLE, 56, "is a folder")
    assert row["error_name"] == "KAFKA_STORAGE_ERROR"
    assert (row["topic"], row["segment"], row["position"], row["is_valid"]) == (
        "orders",
        7,
        None,
        False,
    )
    assert [
        block.num_rows for block in read_range(parts[0], Options(columns=ALL, rows="none"))
    ] == [0]


def test_a_file_that_fails_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_check, "GATHERED", 1)
    info = write(tmp_path, batch([record(0, value=bytes(1 << 20))]) * 4)
    real = os.preadv

    def failing(fd: int, buffers: list[memoryview], position: int) -> int:
        if position > 2 << 20:
            raise OSError(5, "Input/output error")
        return real(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", failing)
    found = list(read_range(Range(info, 0, info.size), DEFAULT))
    assert [block["rule"].to_pylist() for block in found][-1] == [UNREADABLE]
    assert found[-1]["reason"].to_pylist() == ["Input/output error"]
    assert sum(block.num_rows for block in found) in (2, 3)


def test_what_was_read_before_an_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_check, "CACHED", 200)
    monkeypatch.setattr(LocalFile, "chunk", 100)
    data = b"".join(batch(base_offset=i) + b"\xff" for i in range(20))
    info = write(tmp_path, data)
    real = os.preadv

    def failing(fd: int, buffers: list[memoryview], position: int) -> int:
        if position > len(data) // 2:
            raise OSError(5, "Input/output error")
        return real(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", failing)
    found = list(read_range(Range(info, 0, info.size), DEFAULT))
    assert [block["rule"].to_pylist() for block in found][-1] == [UNREADABLE]
    assert sum(block.num_rows for block in found) > 4


def test_blocks_hold_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_check, "MAX_ROWS", 3)
    monkeypatch.setattr(range_check, "CACHED", 200)
    monkeypatch.setattr(LocalFile, "chunk", 100)
    data = (
        b"".join(batch(records(1), base_offset=i) for i in range(20))
        + b"junk" * 30
        + batch(base_offset=20)
    )
    part = Range(write(tmp_path, data), 0, len(data))
    found = list(range_check.blocks(part, DEFAULT))
    assert len(found) > 5
    at = 0
    for block in found:
        assert block.position == at
        places = [
            *(block.columns["position"] + at).tolist(),
            *(one.position for one in block.damages),
        ]
        rows = rows_of(block, part.segment, DEFAULT)
        assert sorted(places) == rows["position"].to_pylist()
        assert places[0] == at or block.damages[0].position == at
        at += block.size
    assert at == len(data)
    assert sum(len(block.damages) for block in found) == 1


def test_rows_of_some_columns_alone() -> None:
    columns = LogValidator(TopicPolicy(), profile="log").check_batches(
        batch(base_offset=1) + batch(crc=1)
    )
    info = SegmentInfo("x", "t", 0, 0, 0, 0)
    rows = to_rows(columns, info, 1000, DEFAULT, np.array([1]))
    assert rows["position"].to_pylist() == [1000 + len(batch())]
    assert rows["reason"].to_pylist() == [columns.reason_of(1)]
    assert to_rows(columns, info, 0, DEFAULT, np.array([], "<i8")).schema.equals(
        ROW_SCHEMA, check_metadata=True
    )


def test_with_a_right_checksum_and_too_small() -> None:
    stump = with_crc(batch()[:50])
    columns = LogValidator(profile="log").check_batches(
        stump[:8] + struct.pack(">i", 38) + stump[12:], deep=False
    )
    assert columns["rule"].tolist() == [14]


def test_only_the_columns_that_are_wanted_are_built(tmp_path: Path) -> None:
    info = write(tmp_path, batch(records(2)) + batch(crc=1, base_offset=2) + b"junk")
    whole = rows_in(info, [])
    for words in (
        ("default",),
        ("rule", "position"),
        ("reason", "default", "rule"),
        ("file", "max_timestamp"),
    ):
        names = column_names(words)
        found = pa.Table.from_batches(
            list(read_range(Range(info, 0, info.size), Options(columns=words)))
        )
        assert found.equals(whole.select(names)), words
        assert found.schema.metadata == ROW_SCHEMA.metadata
    assert column_names(("rule", "default"))[:2] == ("rule", "topic")
    assert column_names(("all",)) == tuple(ROW_SCHEMA.names)
    strings = [name for name in DEFAULT_COLUMNS if ROW_SCHEMA.field(name).type == pa.string()]
    assert (len(DEFAULT_COLUMNS), len(strings)) == (19, 5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("offset",), "unknown column 'offset': expected default, all or schema_version"),
        ((), "no column is named"),
    ],
)
def test_unknown_columns_are_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(BatchvalError, match=message):
        column_names(words)


@pytest.mark.parametrize(
    "stamp",
    [-1, 0, NOW, END_OF_TIME_MS - 1, END_OF_TIME_MS, -2, -62_135_596_800_001, 2**63 - 1, -(2**63)],
)
def test_a_timestamp_that_no_reader_can_hold_is_null(stamp: int, tmp_path: Path) -> None:
    """Use timestamps outside of the limits: Python's datetime ends with the year 9999; Spark and
    DuckDB count microseconds.
    """
    data = bytearray(batch(records(1)))
    struct.pack_into(">qq", data, 27, stamp, stamp)
    info = write(tmp_path, with_crc(bytes(data)))
    rows = rows_in(info, [])
    (row,) = rows.to_pylist()
    wanted = moment(stamp) if 0 <= stamp < END_OF_TIME_MS else None
    assert row["is_valid"] is True
    assert (row["base_timestamp"], row["max_timestamp"]) == (wanted, wanted)
    assert rows["max_timestamp"].cast(pa.timestamp("us", "UTC")).null_count == (wanted is None)
    assert rows.schema.field("max_timestamp").type == TIME
