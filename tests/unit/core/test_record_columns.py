"""record_columns, held against RecordBatch.records() and against what was put in."""

from __future__ import annotations

import copy
import json
import pickle
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from batchval.core import claims
from batchval.core.batches.batch import batches
from batchval.core.batches.record_columns import RecordColumns, RecordRow, record_columns
from batchval.errors import BatchvalError, NotABatch
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    message,
    record,
    wrapper,
)
from tests.support.sources import ROOT
from tests.support.unreadable import UNREADABLE

PLAIN = [record(i, key=b"key %d" % i, value=b"value %d" % i, timestamp_delta=i) for i in range(40)]
ODD = [
    record(0, key=b"k0", value=b"v0", headers=[(b"a", b"1"), (b"a", None), (b"", b"")]),
    record(1, key=None, value=b"", timestamp_delta=-7),
    record(2, key=b"", value=None, timestamp_delta=2**40),
    record(3, key=b"k" * 300, value=b"v" * 20_000),
]
LEGACY = [
    message(1, offset=i, key=b"k%d" % i, value=None if i == 2 else b"v" * i) for i in range(4)
]


def decoded(data: bytes) -> list[RecordRow]:
    """The rows that RecordBatch gives."""
    return [
        RecordRow(i, r.offset, r.timestamp, r.key, r.value, len(r.headers))
        for i, b in enumerate(batches(data))
        for r in b
    ]


def check_all(data: bytes) -> RecordColumns:
    columns = record_columns(data)
    assert list(columns) == decoded(data)
    headers = [r.headers for b in batches(data) for r in b]
    assert [columns.headers(i) for i in range(len(columns))] == headers
    for i, pairs in enumerate(headers):
        for name in ("a", "", "absent", "\ud800", *dict(pairs)):
            assert columns.last_header(i, name) == dict(pairs).get(name)
    assert columns.arrow_keys().length == len(columns)
    assert pa.array(columns.arrow_keys()).to_pylist() == [row.key for row in columns]
    assert pa.array(columns.arrow_values()).to_pylist() == [row.value for row in columns]
    return columns


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("parts", [PLAIN, ODD, [], ODD[:1], PLAIN[:1]], ids=len)
def test_one_batch(codec: str, parts: list[bytes]) -> None:
    data = batch(parts, codec=CODECS[codec], base_offset=7)
    columns = check_all(data)
    assert len(columns) == len(parts)
    assert (columns.end, columns.tail) == (len(data), None)


@pytest.mark.parametrize("attributes", [0, 8])
def test_timestamps(attributes: int) -> None:
    data = batch(PLAIN, attributes=attributes, max_timestamp=NOW + 99)
    expected = [NOW + 99] * 40 if attributes else [NOW + i for i in range(40)]
    assert check_all(data)["timestamp"].tolist() == expected


def test_arithmetic_wraps_as_javas() -> None:
    data = batch(PLAIN, base_offset=2**63 - 3, base_timestamp=2**63 - 2)
    assert check_all(data)["offset"].tolist()[2:4] == [2**63 - 1, -(2**63)]


def test_batches_of_every_kind() -> None:
    claimed = bytes(claims.attach(batch(PLAIN, base_offset=300, max_timestamp=NOW + 39)))
    parts = [
        batch(PLAIN),
        wrapper(LEGACY, GZIP, offset=103),
        batch(ODD, codec=LZ4, base_offset=200),
        message(0, offset=299, key=None, value=b"v"),
        claimed,
        batch([], base_offset=400),
        batch(PLAIN, codec=ZSTD, base_offset=500, producer_id=5, base_sequence=3),
    ]
    data = b"".join(parts)
    columns = check_all(data)
    assert sorted(set(columns["batch"].tolist())) == [0, 1, 2, 3, 4, 6]
    whole = check_all(b"".join(parts[i] for i in (0, 3, 4, 5)))  # none is compressed
    assert len(whole) == 81


def test_positions_count_in_the_buffer_while_nothing_is_compressed() -> None:
    data = b"before" + batch(PLAIN) + LEGACY[1]
    columns = record_columns(data, 6)
    assert columns.data.obj is data
    for row in range(41):
        start, size = columns["key_position"][row], columns["key_length"][row]
        assert data[start : start + size] == columns.key(row)
    assert columns.end == len(data)


def test_positions_count_in_data() -> None:
    data = batch(PLAIN) + batch(ODD, codec=SNAPPY) + wrapper(LEGACY, LZ4, offset=3)
    columns = record_columns(data)
    shown = columns.data
    assert shown.readonly
    for row, (start, size) in enumerate(
        zip(columns["value_position"], columns["value_length"], strict=True)
    ):
        assert (None if size < 0 else bytes(shown[start : start + size])) == columns.value(row)


def test_a_buffer_that_changes_later_changes_nothing() -> None:
    data = batch(PLAIN)
    for memory in (bytearray(data), np.frombuffer(bytearray(data), "u1")):
        columns = record_columns(memory)
        memory[61:] = bytes(len(data) - 61) if isinstance(memory, bytearray) else 0
        assert list(columns) == decoded(data)


@pytest.mark.parametrize(
    ("rest", "tail"),
    [
        (batch()[:-1], "partial"),
        (bytes(99), "zeros"),
        (b"no batch, longer than its overhead", "magic"),
    ],
)
def test_where_it_stops(rest: bytes, tail: str) -> None:
    data = batch(PLAIN)
    columns = record_columns(data + rest)
    walk = batches(data + rest)
    assert len(list(walk)) == 1
    assert (columns.end, columns.tail) == (walk.position, walk.tail) == (len(data), tail)
    assert record_columns(data + rest, len(data)).tail == tail


# ---- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize("bad", UNREADABLE)
def test_a_batch_that_cannot_be_read_is_named(bad: bytes) -> None:
    good = batch(PLAIN)
    with pytest.raises(NotABatch):
        decoded(bad)
    with pytest.raises(NotABatch, match=rf"^batch 1 at position {len(good)}: .+"):
        record_columns(good + bad)


def test_checksums() -> None:
    data = batch(PLAIN) + batch(PLAIN, crc=1)
    with pytest.raises(NotABatch, match=r"batch 1 at position .*: its checksum is 0x00000001"):
        record_columns(data)
    assert len(record_columns(data, check_crcs=False)) == 80
    with pytest.raises(NotABatch, match="checksum"):
        record_columns(message(1, crc=1))


def test_the_limit_counts_all_batches() -> None:
    parts = [batch(PLAIN, codec=codec) for codec in (GZIP, SNAPPY, LZ4, ZSTD)] + [
        wrapper(LEGACY, GZIP, offset=3)
    ]
    size = 4 * sum(map(len, PLAIN)) + sum(map(len, LEGACY))
    data = b"".join(parts) + batch(PLAIN)
    assert len(record_columns(data, max_decompressed_bytes=size)) == 204
    with pytest.raises(NotABatch, match=f"batch 4 at .*max_decompressed_bytes={size - 1}"):
        record_columns(data, max_decompressed_bytes=size - 1)
    with pytest.raises(NotABatch, match="batch 1 at"):
        record_columns(data, max_decompressed_bytes=size // 4)


@pytest.mark.parametrize("wrong", [-1, 1.0, "1", None, True, 2**63])
def test_arguments(wrong: Any) -> None:
    with pytest.raises(BatchvalError, match="max_decompressed_bytes must be"):
        record_columns(batch(), max_decompressed_bytes=wrong)
    with pytest.raises(BatchvalError, match=r"^position "):
        record_columns(batch(), wrong)
    with pytest.raises(BatchvalError):
        record_columns(np.array([None], dtype=object))


def test_rows_that_are_not_there() -> None:
    columns = record_columns(batch(ODD))
    assert columns.key(-1) == b"k" * 300
    for ask in (
        columns.key,
        columns.value,
        columns.headers,
        lambda row: columns.last_header(row, "a"),
    ):
        for row in (4, -5):
            with pytest.raises(IndexError, match=f"row {row} of 4"):
                ask(row)


# ---- the same as one batch at a time -------------------------------------------------------------


def read_both(data: bytes) -> None:
    """Compare record_columns with RecordBatch, verdict and rows."""
    try:
        expected = decoded(data)
    except NotABatch:
        with pytest.raises(NotABatch):
            record_columns(data, check_crcs=False)
        return
    assert list(record_columns(data, check_crcs=False)) == expected


def test_the_golden_cases() -> None:
    found = 0
    for path in sorted((ROOT / "fixtures" / "golden").glob("*/cases.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            read_both(bytes.fromhex(json.loads(line)["batch_hex"]))
            found += 1
    assert found > 50


def test_batches_with_a_few_bytes_changed() -> None:
    rng = random.Random(13)
    kinds = [
        batch(PLAIN[:6]),
        batch(ODD),
        batch(ODD[:3], codec=GZIP),
        wrapper(LEGACY, LZ4, offset=3),
        LEGACY[1],
    ]
    for turn in range(3000):
        data = bytearray(kinds[turn % len(kinds)])
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(12, len(data))] = rng.choice(
                (0, 1, 2, 127, 128, 255, rng.randrange(256))
            )
        read_both(bytes(data))


# ---- a citizen among others ----------------------------------------------------------------------


def test_arrow_sees_columns_keys_and_values() -> None:
    data = batch(PLAIN) + batch(ODD, codec=LZ4)
    table = pa.table(record_columns(data))
    assert table.column_names[:2] == ["key", "value"]
    assert table["value"].to_pylist() == [row.value for row in decoded(data)]
    assert table["offset"].to_pylist() == [row.offset for row in decoded(data)]
    assert table["headers_count"].to_pylist()[40] == 3
    assert pa.table(record_columns(b"")).num_rows == 0


def test_keys_and_values_are_not_copied_for_arrow() -> None:
    value = b"v" * 1000
    data = batch([record(0, value=value)])
    (view,) = pa.array(record_columns(data).arrow_values()).buffers()[2:]
    start = np.frombuffer(data, "u1").ctypes.data
    assert start <= view.address <= start + len(data)


@pytest.mark.parametrize("data", [batch(PLAIN), batch(ODD, codec=GZIP), b"", bytearray(batch(ODD))])
def test_copies_compare_equal(data: bytes) -> None:
    columns = record_columns(data)
    for twin in (copy.copy(columns), copy.deepcopy(columns), pickle.loads(pickle.dumps(columns))):
        assert twin == columns
        assert list(twin) == list(columns)
        assert (twin.end, twin.tail) == (columns.end, columns.tail)
    assert columns != record_columns(batch([record(0)]))


def test_a_pickle_that_was_made_wrong_reads_no_foreign_memory() -> None:
    columns = record_columns(batch(ODD))
    restore, (kind, state) = columns.__reduce__()
    short = restore(kind, (*state[:4], (b"", 0, None)))
    for ask in (short.key, short.value, short.headers, lambda row: short.last_header(row, "a")):
        with pytest.raises(BatchvalError, match="not inside data"):
            ask(0)
    with pytest.raises(BatchvalError):
        short.arrow_values()


def test_empty_columns() -> None:
    columns = RecordColumns()
    assert (len(columns), list(columns), bytes(columns.data)) == (0, [], b"")
    assert json.dumps(columns["offset"].tolist()) == "[]"
    assert repr(record_columns(batch(ODD))) == "<RecordColumns 4 records>"
    assert "<table>" in record_columns(batch(ODD))._repr_html_()
