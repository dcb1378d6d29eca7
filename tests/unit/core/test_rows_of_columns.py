"""Columns as rows: iteration, indices, slices, tables for notebooks, equality, copies, pickles."""

from __future__ import annotations

import copy
import pickle
import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from batchval.core.batches.block import ColumnBlock, _restored  # type: ignore[attr-defined]
from batchval.core.batches.columns import (
    BASE_COLUMNS,
    CHECK_COLUMNS,
    BatchColumns,
    BatchRow,
    CheckedRow,
    scan_batches,
)
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from tests.support.batches import GZIP, NOW, ZSTD, batch, message, records

LOG = LogValidator(profile="log")
DATA = b"".join(
    [
        *(batch(records(2), base_offset=2 * i) for i in range(20)),
        batch(codec=ZSTD, base_offset=50),
        batch(attributes=64, base_timestamp=5, base_offset=51),
        batch(crc=1, base_offset=52),
        message(0, offset=53),
        batch(attributes=6, base_offset=54),
        batch(payload=b"<junk>", codec=GZIP, base_offset=55),
    ]
)
KINDS: dict[str, Any] = {
    "scanned": scan_batches,
    "checked": LOG.check_batches,
    "ranges": lambda data: LogValidator().check_ranges(data, now_ms=NOW),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


# ---- rows ----------------------------------------------------------------------------------------


def test_fields() -> None:
    assert BatchRow._fields == BASE_COLUMNS
    assert CheckedRow._fields == (*BASE_COLUMNS, *CHECK_COLUMNS, "reason")
    row = LOG.check_batches(DATA)[22]
    assert type(row) is CheckedRow
    assert (row.base_offset, row.is_valid, row.rule, row.error_code) == (52, False, "14", 2)
    assert row.reason.startswith("Record is corrupt (stored crc = 1, computed crc = ")
    row = scan_batches(DATA)[24]
    assert type(row) is BatchRow
    assert (row.compression_type, row.timestamp_type, row.delete_horizon_ms) == (
        6,
        "CreateTime",
        None,
    )
    assert {type(value) for value in scan_batches(DATA)[0]} == {int, str, bool, type(None)}


def test_rows_are_the_columns(kind: Any) -> None:
    columns = kind(DATA)
    rows = list(columns)
    assert len(rows) == len(columns) > 0
    assert [row._asdict() for row in rows] == list(columns.rows())
    for name in ("position", "last_offset", "crc", "is_transactional", "last_sequence"):
        assert [getattr(row, name) for row in rows] == columns[name].tolist()
    assert list(kind(b"")) == list(kind(b"").rows()) == []


def test_indices_and_slices(kind: Any) -> None:
    columns = kind(DATA)
    rows = list(columns)
    count = len(rows)
    for i in range(-count, count):
        assert columns[i] == rows[i]
    assert columns[np.int64(count - 1)] == rows[-1]
    for wrong in (count, -count - 1, 1 << 70, -(1 << 70)):
        with pytest.raises(IndexError):
            columns[wrong]
    chance = random.Random(5)
    ends = [None, *range(-count - 2, count + 3)]
    for _ in range(300):
        part = slice(
            chance.choice(ends),
            chance.choice(ends),
            chance.choice([None, 1, 2, 7, -1, -3, 100, -100]),
        )
        assert columns[part] == rows[part], part
    for mistake in (1.0, None, (1, 2), b"crc"):
        with pytest.raises(TypeError, match="expected the name of a column, the number of a row"):
            columns[mistake]
    with pytest.raises(ValueError, match="zero"):
        columns[::0]


def test_names_and_rows_are_contained() -> None:
    columns = LOG.check_batches(DATA)
    assert "rule" in columns
    assert "last_offset" in columns
    assert "uncompressed_size" in columns  # stored, though names leaves it out
    assert "nothing" not in columns
    assert "rule" not in scan_batches(DATA)
    assert columns[3] in columns
    assert columns[3]._replace(position=1) not in columns
    assert None not in columns
    assert columns.keys() == columns.names
    assert list(dict(columns)) == list(columns.names)
    assert dict(columns)["crc"].tolist() == columns["crc"].tolist()


def test_more_rows_than_are_converted_at_a_time() -> None:
    data = b"".join(batch(base_offset=i) for i in range(2100))
    columns = scan_batches(data)
    assert [row.base_offset for row in columns] == list(range(2100))
    walk = iter(columns)
    assert next(walk).base_offset == 0
    columns.keep(5)
    assert [row.base_offset for row in walk] == list(range(1, 1024))  # what was converted already
    reasons = [row.reason for row in LOG.check_batches(data + batch(crc=1) + data)]
    assert [i for i, reason in enumerate(reasons) if reason] == [2100]


def test_codecs_and_answers_by_name() -> None:
    rows = LOG.check_batches(DATA)[-7:]
    assert [row.compression_type for row in rows] == [
        "none",
        "zstd",
        "none",
        "none",
        "none",
        6,
        "gzip",
    ]
    assert [row.timestamp_type for row in rows] == [
        *["CreateTime"] * 4,
        "NoTimestampType",
        *["CreateTime"] * 2,
    ]
    assert [row.delete_horizon_ms for row in rows] == [None, None, 5, None, None, None, None]
    assert [row.rule for row in rows] == [None, None, None, "14", None, "S6", "S7"]


# ---- showing -------------------------------------------------------------------------------------


def test_html_is_bounded_and_escaped() -> None:
    columns = LOG.check_batches(DATA)
    html = columns._repr_html_()
    assert html.count("<tr>") == 1 + 5 + 1 + 5
    assert html.count("<th>") == len(CheckedRow._fields)
    assert "&lt;BatchColumns 26 batches, checked&gt;" in html
    assert "<td>52</td>" in html
    assert "color" not in html
    assert len(LOG.check_batches(DATA * 50)._repr_html_()) < 2 * len(html)
    for count in (0, 1, 10, 11):
        shown = scan_batches(batch(records(1)) * count)._repr_html_()
        assert shown.count("<tr>") == 1 + min(count, 11)
    rows = scan_batches(DATA)._repr_html_()
    assert rows.count("<") == rows.count(">")


def test_one_line() -> None:
    assert repr(scan_batches(DATA)) == "<BatchColumns 26 batches, scanned>"
    assert repr(ColumnBlock()) == "<ColumnBlock 0 rows, 0 columns>"


# ---- equality and copies -------------------------------------------------------------------------


def test_equality(kind: Any) -> None:
    columns = kind(DATA)
    assert columns == kind(DATA)
    assert columns == kind(bytearray(DATA))
    assert columns != kind(DATA[: len(DATA) // 2])
    assert columns != columns.names
    assert columns != None  # noqa: E711
    changed = bytearray(DATA)
    changed[3] = 1  # the first base offset
    assert columns != kind(changed)
    with pytest.raises(TypeError, match="unhashable"):
        hash(columns)


def test_what_equality_asks() -> None:
    assert scan_batches(DATA) != LOG.check_batches(DATA)
    assert scan_batches(DATA) != scan_batches(DATA + b"\1")  # another tail
    assert scan_batches(b"") == BatchColumns(False)
    assert scan_batches(b"") != scan_batches(b"\0")
    accepted, refused = batch(records(2)), batch(records(2), crc=1)
    assert LOG.check_batches(accepted) != LOG.check_batches(refused)
    first = LOG.check_batches(DATA)
    first.keep(3)
    second = LOG.check_batches(DATA)
    second.keep(3)
    assert first == second


def test_copies_of_the_same_process(kind: Any) -> None:
    columns = kind(DATA)
    for other in (copy.copy(columns), copy.deepcopy(columns)):
        assert other == columns
        assert other is not columns
        assert not np.shares_memory(other["position"], columns["position"])
        assert list(other) == list(columns)
        if columns.checked:
            assert other.result(0).error_code == columns.result(0).error_code
            assert other.ok().tolist() == columns.ok().tolist()
        other.keep(0)
        assert len(columns) > 0
    assert copy.copy(kind(b"")) == kind(b"")


def test_pickles(kind: Any) -> None:
    for data in (DATA, DATA[:100], b""):
        columns = kind(data)
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            other = pickle.loads(pickle.dumps(columns, protocol))
            assert other == columns
            assert (other.end, other.tail, other.checked) == (
                columns.end,
                columns.tail,
                columns.checked,
            )
            assert list(other) == list(columns)
            assert repr(other) == repr(columns)
            assert pickle.dumps(other) == pickle.dumps(columns)


def test_columns_of_a_check_at_rest_are_pickled_too() -> None:
    columns = LOG.check_batches(DATA)
    other = pickle.loads(pickle.dumps(columns))
    for name in (
        "uncompressed_size",
        "batch_min_timestamp",
        "records_number",
        "null_keys",
        "length",
    ):
        assert other[name].tolist() == columns[name].tolist()
    assert [other.reason_of(i) for i in range(len(other))] == [row.reason for row in columns]
    assert other.count_claims() == columns.count_claims()
    other.extend(columns, 1000)
    assert other["position"].tolist() == [
        *columns["position"].tolist(),
        *(columns["position"] + 1000).tolist(),
    ]


def test_results_stay_where_the_buffer_is() -> None:
    other = pickle.loads(pickle.dumps(LOG.check_batches(DATA)))
    for columns in (other, copy.copy(other)):
        with pytest.raises(BatchvalError, match="columns of another process have no results"):
            columns.result(0)


def test_a_pickle_holds_rows_not_capacity() -> None:
    row = len(pickle.dumps(scan_batches(batch() * 1000))) - len(
        pickle.dumps(scan_batches(batch() * 999))
    )
    assert 0 < row < 100
    columns = scan_batches(batch() * 1000)
    columns.keep(1)
    assert len(pickle.dumps(columns)) < 1000


def test_pickles_that_do_not_fit() -> None:
    _, (_, state) = LOG.check_batches(DATA).__reduce__()  # type: ignore[misc]
    version, names, count, data, extra = state
    wrong = [
        (version + 1, names, count, data, extra),
        (version, names[::-1], count, data, extra),
        (version, (*names, "more"), count, data, extra),
        (version, names[:20], count, data[: count * 88], extra),
        (version, names, count + 1, data, extra),
        (version, names, count, data[:-1], extra),
        (version, (), count, b"", extra),
        (version, (), 0, b"", extra),
        (version, names, 1 << 60, data, extra),
        (version, names, count, b"\xff" * len(data), extra),
    ]
    for one in wrong:
        with pytest.raises(BatchvalError, match="cannot restore BatchColumns"):
            _restored(BatchColumns, one)
    assert _restored(BatchColumns, state) == LOG.check_batches(DATA)


def judged(data: bytes) -> BatchColumns:
    return LogValidator(profile="log").check_batches(data)


def test_a_worker_returns_columns() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(judged, DATA).result()
    assert found == judged(DATA)
    assert [row.rule for row in found] == [row.rule for row in judged(DATA)]


def test_rows_are_pickled() -> None:
    for row in (scan_batches(DATA)[0], LOG.check_batches(DATA)[-1]):
        again = pickle.loads(pickle.dumps(row))
        assert again == row
        assert type(again) is type(row)
