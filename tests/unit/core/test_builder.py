"""Every batch built is one that LogValidator accepts in strict mode, and holds what was put in."""

from __future__ import annotations

import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import compute, from_tag
from batchval.core.convert.builder import BATCH_OVERHEAD, BatchBuilder, RecordValues
from batchval.policy import TopicPolicy

NOW = 1_700_000_000_000
CODECS = range(5)
STRICT = LogValidator(
    TopicPolicy(max_message_bytes=2**31 - 1, message_timestamp_after_max_ms=2**63 - 1)
)

maybe_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), maybe_bytes),
    max_size=3,
)
timestamps = st.integers(0, 2**62) | st.integers(NOW - 10_000, NOW + 10_000)
records = st.lists(
    st.tuples(maybe_bytes, maybe_bytes, headers, timestamps), min_size=1, max_size=40
)


def decoded(batch: Any) -> list[tuple[Any, ...]]:
    return [
        (
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            [(name, None if value is None else bytes(value)) for name, value in r.headers],
            r.timestamp,
        )
        for r in RecordBatch(batch).records()
    ]


@pytest.mark.long
@settings(deadline=None, max_examples=200)
@given(records, st.sampled_from(CODECS), st.integers(-1, 2**40), st.booleans())
def test_what_goes_in_is_accepted_and_comes_out(
    input_records: list[Any], codec: int, producer_id: int, transactional: bool
) -> None:
    builder = BatchBuilder(1 << 20, codec)
    for key, value, heads, timestamp in input_records:
        assert builder.append(key, value, heads, timestamp)
    if producer_id < 0:
        builder.seal()
    else:
        builder.seal(producer_id, 7, 2**31 - 1, transactional)
    batch = bytes(builder.view())
    result = STRICT.validate(batch, now_ms=NOW)
    assert result.ok, result
    assert decoded(batch) == [
        (key, value, heads, timestamp) for key, value, heads, timestamp in input_records
    ]
    found = RecordBatch(batch)
    assert found.producer_id == producer_id
    assert found.partition_leader_epoch == -1
    assert found.crc == builder.crc
    assert builder.wire_size == len(batch)
    assert from_tag(builder.tag(), builder.crc) == compute(batch)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 59, 1000, 70_000])
@pytest.mark.parametrize("one", [True, False])
def test_many_at_once_with_their_stamps(codec: int, size: int, one: bool) -> None:
    count = 2000 if size < 1000 else 20
    values = [bytes([n % 251]) * size for n in range(count)]
    stamps = array.array("q", range(-5, count - 5))
    builder = BatchBuilder(1 << 30, codec)
    with_input = RecordValues(values[3] if one else values, stamps)
    assert builder.append_many(with_input, 0, count, 1, NOW) == count
    with_input.close()
    assert builder.stamps.tolist() == stamps.tolist()
    builder.seal()
    assert STRICT.validate(bytes(builder.view()), now_ms=NOW).ok
    expected = [values[3]] * count if one else values
    assert [bytes(r.value or b"") for r in RecordBatch(builder.view()).records()] == expected
    assert builder.value_bytes == count * size


@pytest.mark.parametrize("step", [1, 3, 7])
def test_a_full_batch_takes_no_more(step: int) -> None:
    stamps = array.array("q", range(1000))
    source = RecordValues(b"x" * 100, stamps)
    builder = BatchBuilder(1200)
    taken = builder.append_many(source, 2, (1000 - 3) // step + 1, step, NOW)
    assert builder.size <= 1200 < builder.size + 110
    assert builder.count == taken
    assert builder.stamps.tolist() == list(range(2, 1000, step))[:taken]
    assert not builder.append(None, b"x" * 100, (), NOW)
    assert builder.count == taken
    assert builder.append(None, b"x", (), NOW)  # that one fits


def test_a_first_record_fits_always() -> None:
    builder = BatchBuilder(100)
    assert builder.append(b"k", b"v" * 5000, (), NOW)
    assert not builder.append(None, b"", (), NOW)
    builder.seal()
    assert STRICT.validate(bytes(builder.view()), now_ms=NOW).ok


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [2, 3, 101])
def test_splitting_keeps_records_and_stamps(codec: int, count: int) -> None:
    values = [b"%d" % n * n for n in range(count)]
    stamps = array.array("q", range(count))
    builder = BatchBuilder(1 << 20, codec)
    builder.append_many(RecordValues(values, stamps), 0, count, 1, NOW)
    halves = builder.split()
    assert [half.count for half in halves] == [count // 2, count - count // 2]
    found: list[bytes] = []
    kept: list[int] = []
    for half in halves:
        half.seal(5, 0, 9)
        assert STRICT.validate(bytes(half.view()), now_ms=NOW).ok
        found += [bytes(r.value or b"") for r in RecordBatch(half.view()).records()]
        kept += half.stamps.tolist()
    assert found == values
    assert kept == stamps.tolist()


@pytest.mark.parametrize("codec", CODECS)
def test_splitting_keeps_keys_headers_and_times(codec: int) -> None:
    input_records = [
        (b"k%d" % n, None if n % 3 else b"v", [("h", None), ("ü", b"1")], NOW - n * n)
        for n in range(9)
    ]
    builder = BatchBuilder(1 << 20, codec)
    for key, value, heads, timestamp in input_records:
        builder.append(key, value, heads, timestamp)
    found = []
    for half in builder.split():
        half.seal()
        assert STRICT.validate(bytes(half.view()), now_ms=NOW).ok
        found += decoded(half.view())
    assert found == input_records
    alone = BatchBuilder(100, codec)
    alone.append(None, b"", (), NOW)
    assert alone.split() == []


def test_another_sender_another_crc() -> None:
    builder = BatchBuilder(1000)
    builder.append(None, b"value", (), NOW)
    builder.seal(1, 2, 3)
    first = bytes(builder.view())
    builder.seal(1, 2, 3)
    assert bytes(builder.view()) == first
    builder.seal(1, 3, 0)
    second = bytes(builder.view())
    assert RecordBatch(second).base_sequence == 0
    assert first != second
    assert STRICT.validate(second, now_ms=NOW).ok


def test_a_buffer_in_use_is_not_recycled() -> None:
    builder = BatchBuilder(1000)
    builder.append(None, b"value", (), NOW)
    builder.seal()
    view = builder.view()
    before = bytes(view)
    assert builder.recycle() is None
    assert bytes(view) == before
    again = BatchBuilder(1000)
    again.append(None, b"old " * 50, (), NOW)
    again.seal()
    spare = again.recycle()
    assert spare is not None
    other = BatchBuilder(1000, recycled=spare)
    other.append(None, b"new", (), NOW)
    other.seal()
    assert decoded(other.view()) == [(None, b"new", [], NOW)]
    assert STRICT.validate(bytes(other.view()), now_ms=NOW).ok


def test_mistakes_raise_and_change_nothing() -> None:
    builder = BatchBuilder(1000)
    with pytest.raises(ValueError, match="must have a record"):
        builder.seal()
    with pytest.raises(ValueError, match="not finished"):
        builder.view()
    with pytest.raises(TypeError):
        builder.append(None, "text", (), NOW)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int64"):
        RecordValues(b"x", array.array("i", [1]))
    with pytest.raises(ValueError, match="3 values and 2 stamps"):
        RecordValues([b"x"] * 3, array.array("q", [1, 2]))
    source = RecordValues([b"x"] * 3, array.array("q", [1, 2, 3]))
    for first, count, step in [(-1, 1, 1), (0, 4, 1), (0, 2, 0), (1, 2, 2), (0, -1, 1)]:
        with pytest.raises(IndexError):
            builder.append_many(source, first, count, step, NOW)
    source.close()
    with pytest.raises(IndexError):
        builder.append_many(source, 0, 1, 1, NOW)
    assert builder.count == 0
    assert builder.size == BATCH_OVERHEAD


def test_how_many_fit() -> None:
    stamps = array.array("q", range(10))
    assert RecordValues(b"x" * 64, stamps).fitting(1000) == 10
    assert RecordValues(b"x" * 64, stamps).fitting(299) == 2
    mixed = RecordValues([b"", b"x" * 1000, *[b""] * 8], stamps)
    assert mixed.fitting(100) == 1
    assert mixed.fitting(-5) == 0
    assert mixed.largest() == 1000


def test_a_level_changes_the_size() -> None:
    sizes = []
    for level in (1, 9):
        builder = BatchBuilder(1 << 20, 1, level)
        builder.append(None, bytes(range(256)) * 30 + b"abc" * 999, (), NOW)
        builder.seal()
        assert STRICT.validate(bytes(builder.view()), now_ms=NOW).ok
        sizes.append(builder.wire_size)
    assert sizes[0] > sizes[1]
