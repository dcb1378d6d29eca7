"""From one batch to the next, byte by byte: ByteBufferLogInputStream.nextBatch, as every caller
meets it.
"""

from __future__ import annotations

import random
import struct

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.errors import NotABatch
from tests.support.batches import GZIP, NOW, batch, fields, message, records, wrapper

KAFKA = LogValidator(mode="kafka")
PLAIN = batch(records(2))
INT_MAX = 2**31 - 1


def next_batch(data: bytes) -> int | str | None:
    """The rule in plain Python: a batch's size, the refusing rule's id, or None where the iteration
    ends.
    """
    if len(data) < 12:
        return None
    (size,) = struct.unpack_from(">i", data, 8)
    if size < 14:
        return "2"
    if len(data) < 17:
        return None
    if data[16] > 2:
        return "4"
    if size > INT_MAX - 12:
        return "3"
    return size + 12 if size + 12 <= len(data) else None


def agrees(data: bytes) -> None:
    expected = next_batch(data)
    result = KAFKA.check_request(data)
    columns = scan_batches(data)
    if isinstance(expected, int):
        assert columns["size_in_bytes"][0] == expected
        assert columns["magic"][0] == data[16]
        assert result.rule is None or result.rule.id in ("2", "3", "4", "6", "8")
    else:
        assert len(columns) == 0
        assert result.rule.id == (expected or "5")
        if expected != "4" or data[16] != 3:  # RecordBatch alone reads the claims of magic 3
            with pytest.raises(NotABatch):
                RecordBatch(data)


@pytest.mark.parametrize(
    "size", [-(2**31), -1, 0, 13, 14, 15, 48, 49, 50, INT_MAX - 12, INT_MAX - 11, INT_MAX]
)
@pytest.mark.parametrize("magic", [0, 1, 2, 3, 127, 128, 255])
@pytest.mark.parametrize("length", [12, 16, 17, 18, 26, 27, 61, 62])
def test_size_magic_and_length(size: int, magic: int, length: int) -> None:
    data = struct.pack(">qiiB", 0, size, 0, magic) + bytes(60)
    agrees(data[:length])


@pytest.mark.parametrize("cut", range(len(PLAIN) + 1))
def test_every_beginning_of_a_batch(cut: int) -> None:
    agrees(PLAIN[:cut])
    assert KAFKA.check_request(PLAIN[:cut]).ok == (cut == len(PLAIN))


@pytest.mark.untraced
def test_random_headers() -> None:
    noise = random.Random(7)
    for _ in range(3000):
        data = bytearray(noise.randbytes(noise.randrange(80)))
        if len(data) > 16 and noise.random() < 0.9:
            data[8:12] = struct.pack(
                ">i", noise.choice([noise.randrange(80), len(data) - 12, noise.randrange(2**31)])
            )
            data[16] = noise.randrange(4)
        agrees(bytes(data))


def test_every_field_stands_where_kafka_writes_it() -> None:
    """One bit of one field at a time, for every bit of the header."""
    for bit in range(61 * 8):
        data = bytearray(PLAIN)
        data[bit // 8] ^= 0x80 >> bit % 8
        expected = fields(data)
        columns = scan_batches(bytes(data) + bytes(8))
        if not len(columns):
            assert 8 <= bit // 8 < 12 or bit // 8 == 16
            continue
        if columns["magic"][0] != 2 or columns["size_in_bytes"][0] < 61:
            continue
        found = {name: columns[name][0] for name in expected if name not in ("batch_length",)}
        assert found == {name: value for name, value in expected.items() if name != "batch_length"}
        assert columns["is_valid"][0] == (bit // 8 < 17 and not 8 <= bit // 8 < 12)


def test_the_checksum_covers_what_kafkas_does() -> None:
    for data, start in (
        (PLAIN, 21),
        (message(0, key=b"k"), 16),
        (message(1, key=b"k"), 16),
        (wrapper([message(1)], GZIP), 16),
    ):
        for at in range(len(data)):
            changed = bytearray(data)
            changed[at] ^= 1
            columns = scan_batches(bytes(changed))
            if not len(columns) or columns["magic"][0] != data[16]:
                continue
            crc = range(17, 21) if data[16] == 2 else range(12, 16)
            covered = at >= start or at in crc or 8 <= at < 12
            assert columns["is_valid"][0] == (not covered), at


def test_messages_and_batches_in_one_buffer() -> None:
    parts = [
        PLAIN,
        message(0, offset=5),
        wrapper([message(1)], GZIP),
        batch(base_timestamp=NOW + 1),
        message(1),
    ]
    columns = scan_batches(b"".join(parts))
    assert columns["magic"].tolist() == [2, 0, 1, 2, 1]
    assert columns["size_in_bytes"].tolist() == [len(part) for part in parts]
