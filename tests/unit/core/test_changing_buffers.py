"""Buffers that change while they are read: a wrong verdict perhaps, never a wrong address, and
whole output.

Change comes where it can be placed exactly: from the clock of a validator, from the
Python code that decompresses under the provider ``packages``, from a conversion of one of the
caller's own objects, or between two calls. What has to be met by chance is left to another process
that writes to a shared mapping, and to a child that may crash alone.
"""

from __future__ import annotations

import gc
import mmap
import random
import struct
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchval import compression
from batchval.compression import packages
from batchval.core import claims
from batchval.core.batches.batch import DecodedRecord, RecordBatch, batches
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.core.convert.builder import BatchBuilder, RecordValues
from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError, ErrorCode, NotABatch
from batchval.policy import TopicPolicy
from batchval.rules import EXTRAS, Rule
from batchval.segment.search_window import follow, resynchronise
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    ZSTD,
    batch,
    decoded,
    fields,
    message,
    record,
    records,
    wrapper,
)

SUPPORT = Path(__file__).resolve().parents[2] / "support"
HEADED = [
    record(
        i,
        key=b"key %d" % i,
        value=b"value %d" % i * 9,
        headers=[(b"name", b"x" * 20), (b"null", None)],
        timestamp_delta=i,
    )
    for i in range(40)
]


def changeable(data: bytes) -> mmap.mmap:
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


def copied(found: Iterable[DecodedRecord]) -> list[Any]:
    """Every field of every record."""
    return [
        (
            r.offset,
            r.timestamp,
            r.key and bytes(r.key),
            r.value and bytes(r.value),
            r.headers,
            r.attributes,
        )
        for r in found
    ]


def all_of(data: Any) -> list[Any]:
    return [record for b in batches(data) for record in copied(b.records())]


@pytest.fixture
def while_unpacking(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[], object]], None]]:
    """``while_unpacking(change)``: ``change`` is called once, in the middle of a walk that
    decompresses lz4 or zstd.
    """
    pending: list[Callable[[], object]] = []

    def hooked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            found = function(*args)
            if pending:
                pending.pop()()
            return found

        return call

    before = compression.provider()
    monkeypatch.setattr(packages, "lz4_block", hooked(packages.lz4_block))
    monkeypatch.setattr(packages.ZstdFrame, "readinto", hooked(packages.ZstdFrame.readinto))
    compression.use("packages")
    try:
        yield pending.append
        assert not pending, "nothing was decompressed"
    finally:
        compression.use(before)


# ---- what is rebuilt -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["gzip", "lz4", "uncompressed"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_rebuilt_batch_holds_the_records_that_were_judged(codec: str, target: str) -> None:
    """Whatever the buffer becomes between the verdict and the rebuild: the clock is asked there."""
    if target in (codec, {"none": "uncompressed"}.get(codec)):
        target = "snappy"
    data = batch(HEADED, codec=CODECS[codec], max_timestamp=NOW + 39)
    policy = TopicPolicy(compression_type=target)
    expected = LogValidator(policy).validate(data, now_ms=NOW, first_offset=7)
    for junk in (b"\xff", b"\0", b"\x7e", bytes.fromhex("feffffff0f000000feffffff07")):
        memory = changeable(data)

        def clock(memory: mmap.mmap = memory, junk: bytes = junk) -> int:
            memory[61:] = (junk * len(data))[: len(data) - 61]
            memory[57:61] = b"\x7f\xff\xff\xff"
            return 0

        found = LogValidator(policy, clock_ns=clock).validate(memory, now_ms=NOW, first_offset=7)
        assert found.path == "rebuilt"
        assert found.output == expected.output
        assert all_of(found.output) == all_of(expected.output)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("to_magic", [0, 1, 2])
def test_messages_are_rebuilt_from_what_was_judged(magic: int, codec: str, to_magic: int) -> None:
    set_of = [message(magic, offset=i, key=b"k", value=b"v%d" % i) for i in range(5)]
    data = b"".join(set_of) if codec == "none" else wrapper(set_of, CODECS[codec], magic)
    policy = TopicPolicy(compression_type="snappy" if codec == "none" else "uncompressed")
    expected = LogValidator(policy).validate_messages_and_assign_offsets(
        data, now_ms=NOW, to_magic=to_magic
    )
    assert expected.path == "rebuilt", expected
    memory = changeable(data)

    def clock() -> int:
        memory[8:] = b"\x7f\xff\xff\x00" * 4 + memory[24:]
        return 0

    found = LogValidator(policy, clock_ns=clock).validate_messages_and_assign_offsets(
        memory, now_ms=NOW, to_magic=to_magic
    )
    assert found.output == expected.output


def test_no_memory_of_the_process_gets_into_a_batch() -> None:
    """A length of two bytes that grows: what follows the buffer in the heap was once sent on under
    a right checksum.
    """
    data = batch([record(0, value=b"v" * 200)])
    buffer = bytearray(data)
    at = data.index(b"v" * 200) - 2

    def clock() -> int:
        buffer[at : at + 2] = b"\xe0\x5d"  # 6,000, zigzag
        return 0

    validator = LogValidator(TopicPolicy(compression_type="uncompressed"), clock_ns=clock)
    gzipped = LogValidator(TopicPolicy(compression_type="gzip"), clock_ns=clock).validate(
        buffer, now_ms=NOW
    )
    plain = validator.validate(gzipped.output, now_ms=NOW)
    assert [value for *_, value, _ in decoded(plain.output)] == [b"v" * 200]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("topic", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_what_an_append_assigns_is_of_what_was_judged(
    codec: str, topic: str, in_place: bool, while_unpacking: Callable[[Callable[[], object]], None]
) -> None:
    data = batch(HEADED, codec=CODECS[codec], max_timestamp=NOW + 39)
    validator = LogValidator(TopicPolicy(message_timestamp_type=topic))
    expected = bytes(validator.validate(data, now_ms=NOW, first_offset=100, leader_epoch=7).output)
    assert fields(expected)["base_offset"] == 100
    memory = bytearray(data)
    changed = bytearray(data)
    changed[21:61] = b"\x7f" * 40  # attributes, deltas, timestamps, counts
    changed[8:12] = b"\x7f" * 4

    def change() -> None:
        memory[:] = changed

    while_unpacking(change)
    found = validator.validate(
        memory, now_ms=NOW, first_offset=100, leader_epoch=7, in_place=in_place
    )
    assert found.ok
    if not in_place:
        assert found.output == expected
        assert memory == changed
        return
    written = {*range(12), *range(12, 16)} - {*range(8, 12)}
    if topic == "LogAppendTime":
        written |= {*range(17, 23), *range(35, 43)}
    for i, byte in enumerate(memory):
        assert byte == (expected if i in written else changed)[i], i


# ---- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [bytearray, changeable])
def test_records_of_a_buffer_that_changes_between_them(
    codec: str, kind: Callable[[bytes], Any]
) -> None:
    data = batch(HEADED, codec=CODECS[codec], base_offset=5)
    buffer = kind(data)
    one = RecordBatch(buffer)
    found, other = one.records(), batches(buffer)
    first, from_batches = next(found), next(other).records()
    buffer[:] = (bytes.fromhex("feffffff0f000000feffffff07") * len(data))[: len(data)]
    rest = [first, *found]
    gc.collect()
    expected = all_of(data)
    for these in (rest, from_batches):
        assert copied(these) == expected
    assert (one.base_offset, one.records_count, one.compression_type, one.is_valid) == (
        5,
        40,
        CODECS[codec],
        False,
    )
    assert next(other, None) is None


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_those_of_the_call(codec: str) -> None:
    data = batch(HEADED, codec=CODECS[codec])
    buffer = bytearray(data)
    found = RecordBatch(buffer).records()
    buffer[57:] = b"\xff" * (len(data) - 57)
    assert [bytes(r.value) for r in found] == [bytes(r.value) for r in RecordBatch(data).records()]
    changed = RecordBatch(bytearray(data[:61]) + bytearray(len(data) - 61))
    with pytest.raises(NotABatch):
        next(changed.records())


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_messages_of_a_buffer_that_changes_between_them(codec: str) -> None:
    set_of = [message(1, offset=i, key=b"key", value=b"value %d" % i) for i in range(3)]
    data = set_of[0] if codec == "none" else wrapper(set_of, CODECS[codec])
    buffer = bytearray(data)
    found = RecordBatch(buffer).records()
    buffer[8:] = b"\x7f" * (len(data) - 8)
    assert [bytes(r.value) for r in found] == [
        b"value %d" % i for i in range(1 if codec == "none" else 3)
    ]


def test_a_batch_holds_its_buffer_and_its_records_do_not() -> None:
    data = bytearray(batch(HEADED))
    held = RecordBatch(data)
    with pytest.raises(BufferError):
        data.clear()
    found = held.records()
    del held
    data.clear()
    assert len(list(found)) == 40


VIEWS: list[Callable[[Any], Any]] = [
    lambda memory: memory,
    memoryview,
    lambda memory: memoryview(memory).toreadonly(),
    lambda memory: np.frombuffer(memory, "u1"),
    lambda memory: memoryview(np.frombuffer(memory, "u1")),
]


@pytest.mark.parametrize("memory_of", [bytearray, changeable])
@pytest.mark.parametrize("view", VIEWS)
def test_records_of_memory_that_others_can_write_are_of_a_copy(
    memory_of: Callable[[bytes], Any], view: Callable[[Any], Any]
) -> None:
    data = batch(HEADED)
    memory = memory_of(data)
    found = RecordBatch(view(memory)).records()
    memory[61 : len(data)] = bytes(len(data) - 61)
    assert [r.value for r in found] == [r.value for r in RecordBatch(data)]


# ---- checks in the middle of which the buffer changes --------------------------------------------

STRICT = LogValidator(extras={rule.id: "report" for rule in EXTRAS if rule is not Rule.S8})
KAFKA = LogValidator(TopicPolicy(compression_type="gzip"), mode="kafka")
BROKER = LogValidator(TopicPolicy(accept_claims_header=True))
REST = LogValidator(profile="log")
READERS: dict[str, Callable[[Any], object]] = {
    "check": lambda data: STRICT.check(data, now_ms=NOW),
    "check in kafka mode": lambda data: KAFKA.check(data, now_ms=NOW),
    "check with claims": lambda data: BROKER.check(data, now_ms=NOW, claims=(None, "verify")),
    "validate": lambda data: KAFKA.validate(data, now_ms=NOW),
    "validate in place": lambda data: STRICT.validate(data, now_ms=NOW, in_place=True),
    "stage": lambda data: KAFKA.validate_messages_and_assign_offsets(data, now_ms=NOW),
    "stage in place": lambda data: [
        LogValidator().validate_messages_and_assign_offsets(
            data, now_ms=NOW, to_magic=magic, in_place=True
        )
        for magic in (1, 2)
    ],
    "stage to 1": lambda data: STRICT.validate_messages_and_assign_offsets(
        data,
        now_ms=NOW,
        to_magic=1,
    ),
    "analyze": lambda data: (STRICT.analyze(data, origin="REPLICATION"), walk_fetched(data)),
    "ranges": lambda data: STRICT.check_ranges(data, now_ms=NOW),
    "results of ranges": lambda data: [
        c.result(i) for c in [STRICT.check_ranges(data, now_ms=NOW)] for i in range(len(c))
    ],
    "rest": REST.check_batches,
    "log": REST.check,
    "fetched": lambda data: walk_fetched(data, check_crcs=True),
    "records": all_of,
    "claims": lambda data: (claims.compute(data), walk_fetched(data)),
    "attach": lambda data: (walk_fetched(data), claims.attach(data)),
}
WRAPPED = wrapper([message(1, offset=i, value=b"v" * 50) for i in range(20)], LZ4)
SUBJECTS = {
    "zstd": batch(HEADED, codec=ZSTD),
    "lz4": batch(HEADED, codec=LZ4),
    "lz4 cut off": batch(records(30), codec=LZ4, records_count=31),
    "zstd cut off": batch(records(30), codec=ZSTD, records_count=31),
    "zstd, a record malformed": batch([*records(3), b"\x02\xff"], codec=ZSTD, records_count=5),
    "wrapper": WRAPPED,
    "two wrappers": WRAPPED + WRAPPED,
    "wrapper of junk": wrapper([message(1, value=b"v" * 50), b"\xff" * 40], LZ4),
    "claimed": claims.attach(batch(HEADED, codec=ZSTD, max_timestamp=NOW + 39)),
}


def scribbles(data: bytes) -> Iterator[bytes]:
    """What the buffer may have become: junk, another codec, other sizes, at the worst places."""
    r = random.Random(len(data))
    size = len(data)
    yield b"\xff" * size
    yield bytes(size)
    for attributes in range(8):
        other = bytearray(data)
        other[22] = other[17] = attributes
        yield bytes(other)
    for length in (0, 14, 15, 40, size - 13, size - 11, 2**31 - 1, -1):
        other = bytearray(data)
        other[8:12] = struct.pack(">i", length)
        yield bytes(other)
        other[16] = 2 if data[16] < 2 else 1
        yield bytes(other)
    for length in (-1, 2**31 - 1):  # of a wrapper's value, and the count of a batch
        other = bytearray(data)
        other[30:34] = other[57:61] = struct.pack(">i", length)
        other[17] = other[22] = GZIP
        yield bytes(other)
    for _ in range(20):
        other = bytearray(data)
        for _ in range(r.choice((1, 4, 40))):
            other[r.randrange(size)] = r.choice((0, 1, 0x7F, 0x80, 0xFF))
        yield bytes(other)


@pytest.mark.parametrize("reader", READERS)
def test_a_buffer_that_changes_in_the_middle_of_a_walk(
    reader: str, while_unpacking: Callable[[Callable[[], object]], None]
) -> None:
    changed = 0
    pairs = ((data, other) for data in SUBJECTS.values() for other in scribbles(data))
    for data, other in pairs:
        memory = changeable(data)
        changes: list[None] = []

        def change(
            memory: mmap.mmap = memory, other: bytes = other, changes: list[None] = changes
        ) -> None:
            changes.append(None)
            memory[:] = other

        while_unpacking(change)
        with suppress(BatchvalError):
            READERS[reader](memory)
        changed += len(changes)
        if not changes:  # refused before anything was decompressed
            walk_fetched(SUBJECTS["zstd"])
    assert changed > 0


# ---- what callers pass besides -------------------------------------------------------------------


def test_ranges_are_copied_before_they_are_checked() -> None:
    data = batch(records(3))
    buffer = data * 50
    pairs = np.array([(i * len(data), len(data)) for i in range(50)], "<i8")

    def policies() -> Iterator[TopicPolicy]:
        """Asked for after the ranges were found inside the buffer."""
        for _ in range(50):
            pairs[:, 0] = 1 << 40
            yield TopicPolicy()

    columns = LogValidator().check_ranges(
        buffer,
        pairs,
        policies(),  # type: ignore[arg-type]
        now_ms=NOW,
    )
    assert columns.all_ok
    assert columns["position"].tolist() == [i * len(data) for i in range(50)]
    with pytest.raises(BatchvalError, match="not inside the buffer"):
        LogValidator().check_ranges(buffer, pairs, now_ms=NOW)


def test_a_list_of_ranges_that_empties_itself() -> None:
    class At:
        def __init__(self, number: int) -> None:
            self.number = number

        def __int__(self) -> int:
            ranges.clear()
            return self.number

        __index__ = __int__

    data = batch(records(3))
    ranges: list[Any] = [(At(0), len(data)), (At(len(data)), len(data))]
    columns = LogValidator().check_ranges(data * 2, ranges, now_ms=NOW)
    assert (len(columns), columns.all_ok, ranges) == (2, True, [])


def test_a_list_of_claims_that_empties_itself() -> None:
    class Pair:
        def __iter__(self) -> Iterator[Any]:
            asked.clear()
            return iter((None, "verify"))

    data = batch(records(3))
    asked: list[Any] = [Pair(), Pair()]
    columns = LogValidator().check_ranges(
        data * 2, [(0, len(data)), (len(data), len(data))], now_ms=NOW, claims=asked
    )
    assert (len(columns), columns.all_ok) == (2, True)
    assert columns.result(1).ok  # which asks for the claims again


def test_the_list_of_values_is_copied() -> None:
    values = [b"x" * 100 for _ in range(10_000)]
    stored = RecordValues(values, array("q", [0] * 10_000))
    values.clear()
    gc.collect()
    builder = BatchBuilder(1 << 21)
    assert builder.append_many(stored, 0, 10_000, 1, NOW) == 10_000
    builder.seal()
    assert {bytes(r.value) for r in RecordBatch(bytes(builder.view())).records()} == {b"x" * 100}


def test_headers_are_counted_as_they_were_written() -> None:
    class Name(str):
        def encode(self, *_: Any) -> bytes:
            headers.append(("late", b"v"))
            return b"other"

    headers: list[Any] = [(Name("name"), b"1"), ("second", None)]
    builder = BatchBuilder(1 << 20)
    for n in range(2):
        assert builder.append(None, b"%d" % n, headers, NOW)
    for half in builder.split():  # which reads the records again
        half.seal()
        (only,) = RecordBatch(bytes(half.view())).records()
        assert only.headers == (("name", b"1"), ("second", None))


def test_latencies_that_change_while_they_are_counted() -> None:
    from batchval.perf.histogram import Histogram

    code = "import sys; sys.path[:0] = [sys.argv[1]]; from shared_mapping import latencies; latencies()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(SUPPORT)], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    histogram = Histogram()
    histogram.record_many(array("q", [5, 7]))
    assert histogram.counts() == [(5, 1), (7, 1)]


# ---- columns that judge again --------------------------------------------------------------------


def test_results_of_a_buffer_that_has_changed() -> None:
    data = batch(records(3))
    for kind in (bytearray, changeable):
        buffer: Any = kind(data * 2)
        columns = STRICT.check_ranges(buffer, now_ms=NOW)
        at_rest = REST.check_batches(buffer)
        assert columns.result(1).ok
        assert at_rest.result(1).ok
        buffer[len(data) :] = b"\xff" * len(data)
        assert columns.result(1).error_code is ErrorCode.CORRUPT_MESSAGE
        with pytest.raises(BatchvalError, match="has the buffer changed"):
            at_rest.result(1)
        assert columns.result(0).ok
        assert at_rest.result(0).ok


def test_results_of_a_buffer_that_is_gone() -> None:
    data = batch(records(3))
    shorter = bytearray(data * 2)
    columns, at_rest = STRICT.check_ranges(shorter, now_ms=NOW), REST.check_batches(shorter)
    del shorter[len(data) + 5 :]
    with pytest.raises(BatchvalError, match=f"row 1 is {len(data)} bytes from {len(data)}"):
        columns.result(1)
    with pytest.raises(BatchvalError, match="has the buffer changed"):
        at_rest.result(1)
    assert columns.result(0).ok

    closed = changeable(data)
    columns, at_rest = STRICT.check_ranges(closed, now_ms=NOW), REST.check_batches(closed)
    closed.close()
    released = memoryview(data)
    others, others_at_rest = STRICT.check_ranges(released, now_ms=NOW), REST.check_batches(released)
    released.release()
    for gone in (columns, at_rest, others, others_at_rest):
        with pytest.raises(BatchvalError):
            gone.result(0)


# ---- another process -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reader",
    [
        "check",
        "validate",
        "stage",
        "ranges",
        "rest",
        "scan",
        "fetched",
        "records",
        "in_place",
        "stage_in_place",
        "claims",
        "codecs",
        "sizes",
    ],
)
def test_a_mapping_that_another_process_writes_to(reader: str) -> None:
    """By chance, and so in a process of its own, with a child that writes: it may find nothing, but
    must neither crash nor decompress what was not judged.
    """
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "shared_mapping.py"), reader, "0.3"],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    calls, mebibytes = map(int, done.stdout.split())
    assert calls > 0
    assert mebibytes < 100


def test_scans_of_a_mapping() -> None:
    """What they hand out is numbers: positions that slices of any buffer bear."""
    data = batch(records(3))
    memory = changeable(data * 3)
    found = scan_batches(memory)
    memory[:] = b"\xff" * len(memory)
    assert found["position"].tolist() == [0, len(data), 2 * len(data)]
    assert (resynchronise(memory), follow(memory, 1 << 20)) == (-1, (0, 0))
