"""scan_batches and BatchColumns: the base row, held against struct, RecordBatch and a walk of its
own.
"""

from __future__ import annotations

import random
import struct
import threading
from typing import Any

import numpy as np
import pyarrow
import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.columns import BASE_COLUMNS, CHECK_COLUMNS, SCHEMA_VERSION, scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from batchval.segment.search_window import resynchronise
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    ZSTD,
    batch,
    fields,
    message,
    record,
    records,
    with_crc,
    wrapper,
)

PLAIN = batch(records(3))
RANDOM = random.Random(61)


def odd_header() -> bytes:
    """Any header at all, with records that nobody looks at and a right checksum."""

    def number(bits: int) -> int:
        top = 1 << (bits - 1)
        return RANDOM.choice(
            [0, 1, -1, top - 1, -top, RANDOM.randrange(-top, top), RANDOM.randrange(100)]
        )

    body = struct.pack(
        ">hiqqqhii",
        number(16),
        number(32),
        number(64),
        number(64),
        number(64),
        number(16),
        number(32),
        number(32),
    ) + RANDOM.randbytes(RANDOM.randrange(30))
    head = struct.pack(">qiibI", number(64), len(body) + 9, number(32), 2, 0)
    return with_crc(head + body)


SEGMENT = [
    PLAIN,
    batch(codec=GZIP, base_offset=3, partition_leader_epoch=5),
    batch(
        records(9),
        codec=ZSTD,
        base_offset=100,
        producer_id=7,
        producer_epoch=3,
        base_sequence=2**31 - 5,
    ),
    batch(attributes=8 | 16 | 32, producer_id=7, producer_epoch=3),
    batch(attributes=64, base_timestamp=12345),
    batch([], last_offset_delta=6, base_offset=2**62),
    batch(crc=1),
    message(0, offset=8),
    message(1, offset=9, attributes=8),
    wrapper([message(1), message(1, offset=1)], LZ4, offset=40),
    message(0, crc=2),
    *(odd_header() for _ in range(300)),
]
DATA = b"".join(SEGMENT)
#: the columns that RecordBatch has by the same name, and what stands for its None
SAME = {
    "size_in_bytes": None,
    "magic": None,
    "last_offset": None,
    "records_count": -1,
    "partition_leader_epoch": None,
    "timestamp_type": None,
    "max_timestamp": None,
    "producer_id": None,
    "producer_epoch": None,
    "base_sequence": None,
    "last_sequence": None,
    "is_transactional": None,
    "is_control_batch": None,
    "delete_horizon_ms": -1,
    "attributes": None,
    "crc": None,
    "is_valid": None,
    "compression_type": None,
}


@pytest.mark.parametrize("name", SAME)
def test_each_column_is_recordbatchs_field(name: str) -> None:
    columns = scan_batches(DATA)
    expected = []
    for position in columns["position"].tolist():
        value = getattr(RecordBatch(DATA, position), name)
        expected.append(SAME[name] if value is None else int(value))
    assert columns[name].tolist() == expected


@pytest.mark.parametrize("name", ["base_offset", "base_timestamp", "last_offset_delta"])
def test_columns_of_magic_2_alone(name: str) -> None:
    column = scan_batches(DATA)[name].tolist()
    for found, data in zip(column, SEGMENT, strict=True):
        if data[16] == 2:
            assert found == fields(data)[name]
    at = next(i for i, data in enumerate(SEGMENT) if data[16] == 1)
    assert column[at] == {"base_offset": 9, "base_timestamp": NOW, "last_offset_delta": 0}[name]


def test_positions_and_end() -> None:
    columns = scan_batches(DATA)
    sizes = [len(data) for data in SEGMENT]
    assert columns["position"].tolist() == [sum(sizes[:i]) for i in range(len(sizes))]
    assert (len(columns), columns.end, columns.tail) == (len(SEGMENT), len(DATA), None)
    assert columns["is_valid"].tolist() == [
        data not in (batch(crc=1), message(0, crc=2)) for data in SEGMENT
    ]


def test_from_a_position_on() -> None:
    start = len(SEGMENT[0])
    columns = scan_batches(DATA, start)
    assert columns["position"][0] == start
    assert columns.end == len(DATA)
    assert columns["base_offset"].tolist() == scan_batches(DATA)["base_offset"].tolist()[1:]
    assert len(scan_batches(DATA, len(DATA))) == 0
    for bad in (-1, len(DATA) + 1):
        with pytest.raises(BatchvalError, match="outside"):
            scan_batches(DATA, bad)


@pytest.mark.parametrize(
    ("rest", "tail"),
    [
        (b"", None),
        (b"\1", "partial"),
        (PLAIN[:12], "partial"),
        (b"\1" + bytes(10), "partial"),
        (PLAIN[:60], "partial"),
        (PLAIN[:-1], "partial"),
        (b"\0", "zeros"),
        (bytes(11), "zeros"),
        (bytes(12), "zeros"),
        (bytes(4096), "zeros"),
        (bytes(4096) + b"\1", "size"),
        (struct.pack(">qi", 0, 13), "size"),
        (struct.pack(">qi", 0, -1), "size"),
        (PLAIN[:8] + b"\x7f\xff\xff\xff" + PLAIN[12:], "size"),
        (batch(magic=3), "magic"),
        (batch(magic=-1)[:17], "magic"),
    ],
)
def test_why_the_walk_stopped(rest: bytes, tail: str | None) -> None:
    for before in (b"", PLAIN, PLAIN * 70):
        columns = scan_batches(before + rest)
        assert (columns.end, columns.tail) == (len(before), tail)
        checked = LogValidator(profile="log").check_batches(before + rest)
        assert (checked.end, checked.tail, len(checked)) == (len(before), tail, len(columns))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 128, 129, 1000])
def test_columns_grow(count: int) -> None:
    data = b"".join(batch(base_offset=i, base_timestamp=NOW + i) for i in range(count))
    columns = scan_batches(data)
    assert columns["base_offset"].tolist() == list(range(count))
    assert columns["max_timestamp"].tolist() == [NOW + i for i in range(count)]
    assert columns["is_valid"].all()
    for name in columns.names:
        assert len(columns[name]) == count


@pytest.mark.untraced
def test_long_scans_let_go_of_the_gil() -> None:
    data = batch(records(100)) * 3000
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(len(scan_batches(data)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [3000] * 4


def test_stored_columns_share_memory_and_outlive_the_object() -> None:
    columns = scan_batches(DATA)
    first, second = columns["base_offset"], columns["base_offset"]
    assert np.shares_memory(first, second)
    assert not first.flags.writeable
    expected = first.tolist()
    del columns, second
    assert first.tolist() == expected
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_names() -> None:
    scanned, checked = scan_batches(PLAIN), LogValidator(profile="log").check_batches(PLAIN)
    assert scanned.names == BASE_COLUMNS
    assert checked.names == BASE_COLUMNS + CHECK_COLUMNS
    assert (scanned.schema_version, SCHEMA_VERSION) == (1, 1)
    for name in ("rule", "path", "nothing", ""):
        with pytest.raises(KeyError):
            scanned[name]
    with pytest.raises(BatchvalError, match="no record"):
        scanned.result(0)
    assert (repr(scanned), repr(checked)) == (
        "<BatchColumns 1 batches, scanned>",
        "<BatchColumns 1 batches, checked>",
    )


def test_rows_have_names() -> None:
    extras = {"S10": "report"}
    data = (
        batch(codec=ZSTD, base_timestamp=-9)
        + batch(attributes=64, base_timestamp=5)
        + batch(crc=1)
        + message(0)
    )
    rows = list(LogValidator(profile="log", extras=extras).check_batches(data).rows())
    assert [row["compression_type"] for row in rows] == ["zstd", "none", "none", "none"]
    assert [row["timestamp_type"] for row in rows] == ["CreateTime"] * 3 + ["NoTimestampType"]
    assert [row["delete_horizon_ms"] for row in rows] == [None, 5, None, None]
    assert [row["rule"] for row in rows] == [None, None, "14", None]
    assert [row["reports"] for row in rows] == [["S10"], [], [], []]
    assert [row["path"] for row in rows] == ["shallow", "full", "full", "full"]
    assert [bool(row["reason"]) for row in rows] == [False, False, True, False]
    assert list(rows[0]) == [*BASE_COLUMNS, *CHECK_COLUMNS, "reason"]
    unknown = next(scan_batches(batch(attributes=6)).rows())
    assert unknown["compression_type"] == 6
    assert "rule" not in unknown


def test_reason_and_result_of_a_row() -> None:
    data = PLAIN + batch(crc=1) + batch(attributes=5)
    columns = LogValidator(profile="log").check_batches(data)
    assert [columns.reason_of(i) for i in range(3)] == [columns.result(i).reason for i in range(3)]
    assert columns.ok().tolist() == [True, False, False]
    assert columns.all_ok is False
    assert columns.result(1).position == len(PLAIN)
    for bad in (-1, 3, 99):
        with pytest.raises(IndexError):
            columns.result(bad)
    for bad in (3, 99):
        with pytest.raises(IndexError):
            columns.reason_of(bad)


def test_a_buffer_that_changed_since() -> None:
    data = bytearray(PLAIN)
    columns = LogValidator(profile="log").check_batches(data)
    del data[20:]
    with pytest.raises(BatchvalError, match="changed"):
        columns.result(0)


def test_arrow() -> None:
    columns = LogValidator(profile="log").check_batches(DATA)
    table = columns.to_arrow()
    table.validate(full=True)
    assert table.schema.names == list(columns.names)
    assert table.schema.metadata == {b"schema_version": b"1"}
    rows = list(columns)
    for name in columns.names:
        expected = [getattr(row, name) for row in rows]
        if name == "compression_type":
            expected = [str(codec) for codec in expected]
        elif name == "reports":
            expected = columns[name].tolist()
        assert table.column(name).to_pylist() == expected, name
    assert table.schema.field("crc").type == pyarrow.uint32()
    assert table.schema.field("is_valid").type == pyarrow.bool_()
    stored = np.asarray(table.column("base_offset"))
    assert np.shares_memory(stored, columns["base_offset"])
    empty = scan_batches(b"").to_arrow()
    assert (empty.num_rows, empty.schema.names) == (0, list(BASE_COLUMNS))


def test_a_scan_looks_at_no_record() -> None:
    data = batch(payload=b"not zstd at all", codec=ZSTD, records_count=77) + batch(
        [b"\xff"], records_count=3
    )
    columns = scan_batches(data)
    assert columns["is_valid"].all()
    assert columns["records_count"].tolist() == [77, 3]


@pytest.mark.parametrize("size", range(26, 62))
def test_batches_smaller_than_their_header(size: int) -> None:
    """Bytes that the next batch owns are not taken for this one's fields."""
    small = PLAIN[:8] + struct.pack(">i", size - 12) + b"\xff" * 4 + b"\2" + PLAIN[17:size]
    columns = scan_batches(small + b"\xee" * 11)
    assert columns["is_valid"].tolist() == [False]
    assert columns["size_in_bytes"].tolist() == [size]
    assert columns["records_count"][0] == (3 if size == 61 else -1)


@pytest.mark.parametrize(
    "what", ["text", None, 5, np.zeros((8, 8), "u1")[:, ::2], memoryview(PLAIN)[::2]]
)
def test_other_buffers_are_refused(what: Any) -> None:
    for ask in (scan_batches, resynchronise, RecordBatch):
        with pytest.raises(BatchvalError, match="contiguous"):
            ask(what)


# ---- resynchronise -------------------------------------------------------------------------------


def proven_by_crc(data: bytes, start: int = 0) -> int:
    """The plain way: the first place where a whole batch with a right checksum stands."""
    for at in range(start, len(data)):
        columns = scan_batches(data, at)
        if len(columns) and columns["position"][0] == at and columns["is_valid"][0]:
            return at
    return -1


@pytest.mark.parametrize(
    "found",
    [
        PLAIN,
        message(0),
        message(1),
        wrapper([message(1)], GZIP),
        batch(codec=LZ4),
        batch([], last_offset_delta=2),
    ],
)
def test_the_next_batch_after_damage(found: bytes) -> None:
    for noise in (
        b"",
        b"x",
        bytes(5),
        bytes(100),
        RANDOM.randbytes(300),
        PLAIN[:-2],
        b"\xff" * 64,
        batch(crc=1),
    ):
        data = noise + found + PLAIN
        assert resynchronise(data) == proven_by_crc(data) == len(noise)
        assert resynchronise(data, 1) == (len(noise) or len(found))
        assert resynchronise(data, len(noise) + 1) == len(noise + found)
        assert resynchronise(data, len(noise + found) + 1) == -1
        assert resynchronise(data, -5) == len(noise)
    assert resynchronise(b"") == resynchronise(b"", 9) == resynchronise(found[:-1]) == -1


def test_long_batches_are_proven_by_prefixes() -> None:
    """Every byte of the noise looks like the start of a batch of megabytes: each checksum must
    still be right.
    """
    head = batch()[:61]
    noise = head[:8] + struct.pack(">i", 300_000) + head[12:]
    target = batch([record(0, value=RANDOM.randbytes(200_000))])
    old = message(1, value=RANDOM.randbytes(100_000))
    data = noise * 600 + target + bytes(300_000) + old
    start = len(noise) * 600
    assert resynchronise(data) == start
    assert resynchronise(data, start + 1) == data.index(old)
    assert resynchronise(noise * 600 + old + bytes(300_000)) == start


@pytest.mark.parametrize("codec", CODECS)
def test_a_check_of_the_log_goes_on_to_the_next_row(codec: str) -> None:
    data = (
        batch(records(2), codec=CODECS[codec]) + batch(crc=9, base_offset=2) + batch(base_offset=3)
    )
    columns = LogValidator(TopicPolicy(), profile="log").check_batches(data)
    assert columns["rule"].tolist() == [0, 14, 0]
