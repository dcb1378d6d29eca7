"""Arrow's C data interface: what consumers read, without a copy, and when memory is released."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from batchval.core.batches.arrow import ArrowColumn, binary_views
from batchval.core.batches.columns import BatchColumns, scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from tests.support.arrow import c_array, moved
from tests.support.batches import CODECS, GZIP, batch, message, records
from tests.support.sources import ROOT

LOG = LogValidator(profile="log")
DATA = b"".join(
    [
        batch(records(3)),
        batch(records(2), codec=GZIP, base_offset=3),
        batch(attributes=64, base_timestamp=5, base_offset=5),
        batch(crc=1, base_offset=6),
        message(0, offset=7),
        *(batch(attributes=codec, base_offset=8 + codec) for codec in (5, 6, 7)),
        *(batch(codec=codec, base_offset=20 + codec) for codec in CODECS.values()),
    ]
)


def looked_at(data: bytes, checked: bool) -> BatchColumns:
    return LOG.check_batches(data) if checked else scan_batches(data)


def as_rows(columns: BatchColumns) -> list[dict[str, Any]]:
    """Return what consumers must see: the rows, with unknown codecs as text, reports as bits."""
    rows = []
    for row in columns.rows():
        row.pop("reason", None)
        row["compression_type"] = str(row["compression_type"])
        rows.append(row)
    if columns.checked:
        for row, bits in zip(rows, columns["reports"].tolist(), strict=True):
            row["reports"] = bits
    return rows


CONSUMERS: dict[str, Any] = {
    "pyarrow.table": lambda c: pa.table(c).to_pylist(),
    "pyarrow.record_batch": lambda c: pa.record_batch(c).to_pylist(),
    "pyarrow stream": lambda c: pa.RecordBatchReader.from_stream(c).read_all().to_pylist(),
    "to_arrow": lambda c: c.to_arrow().to_pylist(),
}


@pytest.mark.parametrize("checked", [False, True], ids=["scanned", "checked"])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_consumers_read_the_rows(consumer: str, checked: bool) -> None:
    columns = looked_at(DATA, checked)
    assert CONSUMERS[consumer](columns) == as_rows(columns)
    assert CONSUMERS[consumer](looked_at(b"", checked)) == []


def test_types() -> None:
    schema = pa.schema(LOG.check_batches(DATA))
    assert schema == LOG.check_batches(b"").to_arrow().schema
    assert schema.metadata == {b"schema_version": b"1"}
    names = pa.dictionary(pa.int8(), pa.string())
    assert schema.field("compression_type") == pa.field("compression_type", names, nullable=False)
    assert schema.field("timestamp_type") == pa.field("timestamp_type", names, nullable=False)
    assert schema.field("crc") == pa.field("crc", pa.uint32(), nullable=False)
    assert schema.field("is_valid") == pa.field("is_valid", pa.bool_(), nullable=False)
    nullable = {"delete_horizon_ms", "rule", "path", "claims"}
    assert {field.name for field in schema if field.nullable} == nullable


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 200])
def test_booleans_and_nulls_are_bits(count: int) -> None:
    parts = [
        batch(crc=1 if i % 3 else None, attributes=64 * (i % 5 == 0), base_timestamp=i)
        for i in range(count)
    ]
    columns = scan_batches(b"".join(parts))
    table = columns.to_arrow()
    table.validate(full=True)
    assert table["is_valid"].to_pylist() == [i % 3 == 0 for i in range(count)]
    assert table["delete_horizon_ms"].to_pylist() == [None if i % 5 else i for i in range(count)]
    assert table["delete_horizon_ms"].null_count == sum(1 for i in range(count) if i % 5)


def test_stored_columns_are_shared() -> None:
    columns = scan_batches(DATA)
    table = columns.to_arrow()
    for name in ("position", "crc", "attributes", "magic"):
        assert np.shares_memory(np.asarray(table[name]), columns[name]), name


def test_a_requested_schema_may_be_ignored() -> None:
    columns = scan_batches(DATA)
    wish = pa.schema([("position", pa.string())]).__arrow_c_schema__()
    schema, array = columns.__arrow_c_array__(wish)
    assert pa.RecordBatch._import_from_c_capsule(schema, array).schema == pa.schema(columns)
    stream = columns.__arrow_c_stream__(requested_schema=wish)
    assert pa.RecordBatchReader._import_from_c_capsule(stream).schema == pa.schema(columns)


def test_pyarrow_is_not_needed() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from batchval import scan_batches\n"
        "columns = scan_batches(b'')\n"
        "columns.__arrow_c_schema__(), columns.__arrow_c_array__(), columns.__arrow_c_stream__()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# ---- lifetimes -----------------------------------------------------------------------------------


def growing() -> BatchColumns:
    columns = BatchColumns(False)
    columns.extend(scan_batches(DATA), 0)
    return columns


def is_held(columns: BatchColumns) -> bool:
    """Tell whether arrays over the columns exist: then rows cannot be added."""
    gc.collect()
    try:
        columns.extend(scan_batches(b""), 0)
    except BufferError:
        return True
    return False


def test_arrays_hold_the_columns_until_they_are_released() -> None:
    columns = growing()
    assert not is_held(columns)
    table = pa.table(columns)
    one = table.column("position")
    assert is_held(columns)
    del table
    assert is_held(columns)
    del one
    assert not is_held(columns)
    expected = as_rows(columns)
    table = pa.table(columns)
    del columns
    gc.collect()
    assert table.to_pylist() == expected


def test_capsules_that_nobody_reads_are_released() -> None:
    columns = growing()
    capsules = [
        columns.__arrow_c_array__(),
        columns.__arrow_c_stream__(),
        columns.__arrow_c_schema__(),
    ]
    assert is_held(columns)
    capsules.reverse()
    capsules.clear()
    assert not is_held(columns)
    reader = pa.RecordBatchReader.from_stream(columns)
    assert reader.schema == pa.schema(columns)
    assert is_held(columns)  # by a stream that is not read
    batches = list(reader)
    assert [part.num_rows for part in batches] == [len(columns)]
    with pytest.raises(StopIteration):
        reader.read_next_batch()
    del reader
    assert is_held(columns)
    batches.clear()
    assert not is_held(columns)


def test_released_by_other_threads_in_any_order() -> None:
    columns = growing()
    tables = [pa.table(columns) for _ in range(40)]
    arrays = [tables[i].column(i % len(columns.names)) for i in range(40)]
    threads = [
        threading.Thread(target=lambda part=part: part.clear())  # type: ignore[misc]
        for part in ([arrays[:20], tables[:20], tables[20:], arrays[20:]])
    ]
    tables.clear()
    arrays.clear()
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    del threads
    assert not is_held(columns)


def test_children_outlive_their_parent() -> None:
    """ctypes calls ``release`` without the GIL, as threads of other libraries do."""
    columns = growing()
    capsule = columns.__arrow_c_array__()[1]
    parent = moved(c_array(capsule))
    del capsule
    names = columns.names
    children = {
        name: moved(parent.children[names.index(name)].contents)
        for name in ("crc", "compression_type")
    }
    parent.release(ctypes.byref(parent))
    assert not parent.release
    assert is_held(columns)
    crc = children["crc"]
    stored = ctypes.cast(crc.buffers[1], ctypes.POINTER(ctypes.c_uint32))
    assert stored[: crc.length] == columns["crc"].tolist()
    dictionary = moved(children["compression_type"].dictionary.contents)
    assert (dictionary.length, crc.buffers[0]) == (8, None)
    for left in (*children.values(), dictionary):
        left.release(ctypes.byref(left))
        assert not left.release
    assert not is_held(columns)


# lines are not traced after the interpreter has ended
@pytest.mark.untraced
def test_released_after_the_interpreter() -> None:
    """The C library calls ``release`` when the interpreter has ended and its objects are gone."""
    code = """
import ctypes
from batchval import scan_batches
from tests.support.arrow import c_array, moved
from tests.support.batches import batch
columns = scan_batches(batch() * 3)
capsule = columns.__arrow_c_array__()[1]
array = moved(c_array(capsule))
kept = ctypes.CDLL(None).malloc
kept.restype, kept.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
place = kept(ctypes.sizeof(array))
ctypes.memmove(place, ctypes.byref(array), ctypes.sizeof(array))
at_exit = ctypes.CDLL(None).__cxa_atexit
at_exit.argtypes = [ctypes.c_void_p] * 3
assert at_exit(ctypes.cast(array.release, ctypes.c_void_p), place, None) == 0
import pyarrow
unread, table = columns.__arrow_c_stream__(), pyarrow.table(columns)
print("made", flush=True)
"""
    command = [sys.executable, "-X", "dev", "-c", code]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "made\n", "")


# ---- bytes by reference --------------------------------------------------------------------------

VALUES = [
    b"",
    b"a",
    b"eleven byte",
    b"twelve bytes",
    b"thirteen byte",
    b"v" * 1000,
    None,
    b"again",
    b"\0" * 20,
]


def laid_out(values: list[bytes | None]) -> tuple[bytes, list[int], list[int]]:
    data, position, length = b"", [], []
    for value in values:
        data += b"."
        position.append(len(data))
        length.append(-1 if value is None else len(value))
        data += value or b""
    return data, position, length


def test_values_of_every_length() -> None:
    data, position, length = laid_out(VALUES)
    column = binary_views(data, position, length)
    assert (len(column), column.null_count, column.format) == (len(VALUES), 1, b"vz")
    array = pa.array(column)
    array.validate(full=True)
    assert array.type == pa.binary_view()
    assert array.to_pylist() == VALUES
    assert pa.chunked_array(column).to_pylist() == VALUES
    assert repr(column) == f"<ArrowColumn {len(VALUES)} of format 'vz', 1 null>"


def test_long_values_are_not_copied() -> None:
    data, position, length = laid_out(VALUES)
    array = pa.array(binary_views(data, position, length))
    assert array.buffers()[2].address == np.frombuffer(data, "u1").ctypes.data
    assert array.buffers()[2].size == len(data)


@pytest.mark.parametrize("values", [[], [None], [b""], [None, None], [b"", None, b""]])
def test_without_a_byte(values: list[bytes | None]) -> None:
    _, position, length = laid_out(values)
    for data in (b"", b"1234567890"):
        array = pa.array(binary_views(data, position, length))
        array.validate(full=True)
        assert array.to_pylist() == values
    assert pa.array(ArrowColumn()).to_pylist() == []


def test_the_buffer_is_held() -> None:
    data, position, length = laid_out(VALUES)
    buffer = bytearray(data)
    column = binary_views(buffer, position, length)
    with pytest.raises(BufferError):
        buffer.clear()
    array = pa.array(column)
    del column
    with pytest.raises(BufferError):
        buffer.clear()
    del array
    buffer.clear()


def test_a_buffer_of_more_than_2_gib() -> None:
    """Offsets in views have 31 bits: the buffer shows as several, and values cross their starts."""
    gib = 1 << 30
    buffer = np.zeros(3 * gib + 100, "u1")
    marks = [0, gib - 10, gib, 2 * gib - 7, 2 * gib - 1, 2 * gib + 5, 3 * gib - 20, 3 * gib + 80]
    for n, at in enumerate(marks):
        buffer[at : at + 20] = n + 1
    lengths = [20, 20, 5, 20, 20, 12, 40, 20]
    expected = [buffer[at : at + size].tobytes() for at, size in zip(marks, lengths, strict=True)]
    array = pa.array(binary_views(buffer, marks, lengths))
    array.validate(full=True)
    assert array.to_pylist() == expected
    assert len(array.buffers()) == 2 + 4
    with pytest.raises(BatchvalError, match=r"value 1 \(20 bytes at 3221225553\)"):
        binary_views(buffer, [0, 3 * gib + 81], [20, 20])


@pytest.mark.parametrize(
    ("position", "length", "complaint"),
    [
        ([5], [6], "does not lie"),
        ([11], [1], "does not lie"),
        ([-1], [1], "does not lie"),
        ([2**63 - 1], [1], "does not lie"),
        ([0], [-2], "does not lie"),
        ([0], [-(2**40)], "does not lie"),
        ([0], [2**31], "at most 2147483647"),
        ([0, 1], [1], "2 positions and 1 lengths"),
        ([0.5], [1], "integers"),
        ([0], ["x"], "integers"),
        ([[0]], [1], "integers"),
    ],
)
def test_values_that_are_not_there(position: list[Any], length: list[Any], complaint: str) -> None:
    with pytest.raises(BatchvalError, match=complaint):
        binary_views(b"1234567890", position, length)


def test_only_bytes_hold_values() -> None:
    for wrong in ("text", None, np.zeros(4, "<i4")):
        with pytest.raises(BatchvalError, match="contiguous"):
            binary_views(wrong, [0], [1])  # type: ignore[arg-type]
