"""walk_fetched, held against RecordBatch's own records: what is counted, what is left out, what is
refused.
"""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path

import pytest

from batchval.core.batches.batch import batches
from batchval.core.batches.columns import scan_batches
from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError, NotABatch
from tests.evidence.hostile.buffers import Guarded
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    ZSTD,
    Body,
    batch,
    message,
    raw,
    record,
    records,
    varint,
    with_crc,
    wrapper,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "segments"
CONTROL, TRANSACTIONAL = 32, 16


def by_python(data: bytes, fetch_offset: int = 0) -> tuple[int, int, int, int, int]:
    """The same by RecordBatch: records, bytes of keys and values, next offset, batches, bytes of
    batches.
    """
    count = size = number = wire = 0
    next_offset = fetch_offset
    for one in batches(data):
        number += 1
        wire += one.size_in_bytes
        if one.last_offset < fetch_offset:
            continue
        next_offset = one.last_offset + 1
        for each in () if one.is_control_batch else one.records():
            if each.offset >= fetch_offset:
                count += 1
                size += len(each.key or b"") + len(each.value or b"")
    return count, size, next_offset, number, wire


def mixed(count: int, seed: int = 7) -> list[bytes]:
    """Null and empty, short and long, with headers."""
    rng = random.Random(seed)
    sizes = [None, 0, 1, 63, 64, 127, 128, 9000, 70_000]

    def some() -> bytes | None:
        size = rng.choice(sizes)
        return None if size is None else rng.randbytes(size)

    headers = [(), [(b"h", None), (b"long" * 40, b"v" * 200)]]
    return [
        record(i, some(), some(), rng.choice(headers), rng.randrange(-9, 10**9))
        for i in range(count)
    ]


@pytest.mark.parametrize("codec", list(CODECS.values()), ids=list(CODECS))
@pytest.mark.parametrize("fetch_offset", [0, 7, 39, 40, 55, 200])
def test_as_decoded_in_python(codec: int, fetch_offset: int) -> None:
    data = b"".join(
        [
            batch(mixed(40), codec=codec),
            batch(mixed(30, 8), codec=codec, base_offset=40, attributes=TRANSACTIONAL),
            batch(records(1), base_offset=70, attributes=TRANSACTIONAL | CONTROL),
            batch(
                [record(0), record(5)], codec=codec, base_offset=71, last_offset_delta=9
            ),  # compacted
            batch([], base_offset=81, last_offset_delta=3),  # compacted to nothing
        ]
    )
    for cut in (0, 1, 30):
        found = walk_fetched(data[: len(data) - cut], fetch_offset, check_crcs=True)
        assert found[:5] == by_python(data[: len(data) - cut], fetch_offset)
    assert walk_fetched(data, fetch_offset).end == len(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_magic_0_and_1(magic: int) -> None:
    inner = [
        message(magic, offset=i, key=b"k" * i, value=None if i == 2 else b"v") for i in range(5)
    ]
    wrapped = wrapper(inner, LZ4 if magic else GZIP, magic, offset=14 if magic else 4)
    data = message(magic, offset=0 if magic == 0 else 9, key=b"k", value=b"vv") + wrapped
    for fetch_offset in (0, 3, 9, 10, 12, 15):
        found = walk_fetched(data, fetch_offset, check_crcs=True)
        assert found[:2] == by_python(data, fetch_offset)[:2]
        assert found.next_offset == max(fetch_offset, 15 if magic else 5)
        assert walk_fetched(data, fetch_offset, "headers").records == found.records


def test_headers_count_what_headers_say() -> None:
    data = batch(records(9), codec=ZSTD, base_offset=100)
    control = batch(records(1), base_offset=109, attributes=CONTROL)
    assert walk_fetched(data + control, 100, "headers")[:4] == (9, len(data), 110, 2)
    assert walk_fetched(data, 104, "headers")[:3] == (5, len(data), 109)
    assert walk_fetched(data, 109, "headers")[:3] == (0, 0, 109)
    assert walk_fetched(data[:-1], 100, "headers") == (0, 0, 100, 0, 0, 0)
    broken = with_crc(data[:61] + b"\xff" * (len(data) - 61))
    assert walk_fetched(broken, 100, "headers").records == 9
    with pytest.raises(NotABatch):
        walk_fetched(broken, 100)


@pytest.mark.parametrize(
    ("data", "message_text"),
    [
        (batch(batch_length=5), "batch size field 5 is below 14"),
        (batch(batch_length=2**31 - 1), "batch size field 2147483647 overflows"),
        (batch(magic=5), "magic 5 is unknown"),
        (batch()[:8] + struct.pack(">i", 20) + batch()[12:], "32 bytes are fewer than"),
        (
            batch(base_offset=-1),
            "base offset -1 and last offset -1 are not valid: expected 0 <= base <= last",
        ),
        (batch(base_offset=7, last_offset_delta=-1), "base offset 7 and last offset 6 are not"),
        (batch(base_offset=2**63 - 1), "base offset 9223372036854775807 and last offset"),
        (batch(base_offset=2**63 - 5, records_count=10), "base offset 9223372036854775803"),
        (message(offset=-3), "base offset -3 and last offset -3 are not valid"),
        (batch(codec=5), "compression codec 5 is unknown: expected 0 to 4"),
        (batch(records_count=-1, last_offset_delta=0), "records_count -1 is negative"),
        (batch(records(3), records_count=4, last_offset_delta=3), "record 3 is malformed"),
        (
            batch(records(3), records_count=2, last_offset_delta=2),
            "bytes are left after the last of 2 records",
        ),
        (batch([raw(Body(key=varint(10**6)))]), "record 0"),
        (batch([raw(Body(headers=varint(-1)))]), "record 0"),
        (batch([raw(Body(headers=varint(1) + varint(-1) + varint(0)))]), "record 0"),
        (batch([raw(Body(timestamp_delta=b"\xff" * 11))]), "record 0"),
        (batch([raw(Body(), length=varint(2**31 - 1))]), "record 0"),
        (batch([raw(Body(), length=varint(-1))]), "record 0"),
        (batch([raw(Body(trailing=b"x"))]), "record 0"),
        (batch(codec=GZIP, payload=b"nothing of that kind"), "cannot be read"),
        (wrapper([message()], LZ4)[:-3] + b"\xff\xff\xff", "cannot be read"),
    ],
)
def test_an_error_names_the_place_of_bad_bytes(data: bytes, message_text: str) -> None:
    good = batch(records(3))
    with pytest.raises(NotABatch, match=f"at byte {len(good)} cannot be read: ") as raised:
        walk_fetched(good + data)
    assert message_text in str(raised.value)


def test_checksums_are_asked_when_asked_for() -> None:
    wrong = batch(records(3), crc=1)
    assert walk_fetched(wrong).records == 3
    for decode in ("records", "headers"):
        with pytest.raises(NotABatch, match=r"at byte 0 .*stored crc = 1, computed crc = \d+"):
            walk_fetched(wrong, 0, decode, True)


def test_a_bomb_is_refused() -> None:
    data = batch([record(0, value=bytes(10**6))], codec=ZSTD)
    assert walk_fetched(data).key_value_bytes == 10**6
    with pytest.raises(NotABatch, match="decompresses to more than max_decompressed_bytes, 1000"):
        walk_fetched(data, max_decompressed_bytes=1000)


def test_arguments() -> None:
    with pytest.raises(BatchvalError, match="decode must be records or headers"):
        walk_fetched(b"", 0, "all")
    with pytest.raises(BatchvalError, match="contiguous"):
        walk_fetched(memoryview(b"abcd")[::2])
    assert walk_fetched(memoryview(b""), 5) == (0, 0, 5, 0, 0, 0)


def test_segments_of_a_real_broker() -> None:
    logs = [path for path in sorted(FIXTURES.glob("*/*.log")) if path.stat().st_size]
    assert len(logs) > 5
    for path in logs:
        data = path.read_bytes()
        data = data[: scan_batches(data).end]  # some end in zeros
        assert walk_fetched(data, check_crcs=True)[:5] == by_python(data), path


def test_hostile_bytes_end_in_an_answer_or_an_error_and_never_beyond_the_buffer() -> None:
    """Each case ends at a page that may not be read."""
    guarded, rng = Guarded(), random.Random(41)
    seeds = [
        batch(records(4), codec=codec) + batch(mixed(3)[:1], codec=codec)
        for codec in CODECS.values()
    ]
    seeds.append(message(0) + wrapper([message(1), message(1, offset=1, key=b"k")], LZ4))
    answers = errors = 0
    for n in range(6000):
        data = bytearray(rng.choice(seeds)[:2000])
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(
                [0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        view = guarded.at_end(
            bytes(data[: rng.randrange(len(data) + 1)]) if n % 3 == 0 else bytes(data)
        )
        try:
            found = walk_fetched(
                view,
                rng.randrange(6),
                rng.choice(["records", "headers"]),
                max_decompressed_bytes=1 << 20,
            )
        except NotABatch:
            errors += 1
        else:
            answers += 1
            assert 0 <= found.end <= len(view)
            assert found.records >= 0
    assert answers > 500
    assert errors > 500


def test_several_threads_walk_at_once() -> None:
    data = b"".join(batch(records(200), codec=ZSTD, base_offset=200 * n) for n in range(50))
    expected, seen = walk_fetched(data), []
    threads = [
        threading.Thread(target=lambda: seen.extend(walk_fetched(data) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 80
