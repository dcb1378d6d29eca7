"""What append and rebuild write: against Kafka's builder's layout, byte by byte, and the checksum's patch."""

from __future__ import annotations

import random
import struct

import pytest

from batchval import compression
from batchval.compression.compressors import compress as kafkas
from batchval.core.validator import LogValidator
from batchval.policy import TopicPolicy
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    batch,
    compress,
    crc32c,
    fields,
    message,
    record,
    records,
    wrapper,
)

KAFKA = LogValidator(mode="kafka")


def convert(data: bytes, to_magic: int = 2, target: str = "producer", kind: str = "CreateTime", **told: int) -> bytes:
    policy = TopicPolicy(compression_type=target, message_timestamp_type=kind)
    result = LogValidator(policy, mode="kafka").validate_messages_and_assign_offsets(
        data, now_ms=NOW, to_magic=to_magic, **told
    )
    assert result.ok, result
    return bytes(result.output)


# ---- the checksum --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1985, 1986, 1987, 1988, 2047, 2048, 2049, 4096, 65_537, 1_000_000])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_patched_checksum_is_the_one_that_is_computed(size: int, kind: str) -> None:
    """From 2 KiB of records on it is patched; each border from both sides."""
    data = batch([record(0, value=random.Random(size).randbytes(size))], max_timestamp=7)
    policy = TopicPolicy(message_timestamp_type=kind)
    validator = LogValidator(policy)
    patched = validator.validate(data, now_ms=NOW + 3, first_offset=9).output
    computed = validator.validate_messages_and_assign_offsets(data, now_ms=NOW + 3, first_offset=9).output
    assert patched == computed
    assert fields(patched)["max_timestamp"] == (NOW + 3 if kind == "LogAppendTime" else NOW)
    if size < 100_000:
        assert fields(patched)["crc"] == crc32c(bytes(patched[21:]))


def test_a_wrong_checksum_is_never_patched_into_another_wrong_one() -> None:
    """LogValidator alone does not ask for it, and then computes it."""
    data = batch([record(0, value=bytes(5000))], crc=1, max_timestamp=7)
    out = convert(data)
    assert fields(out)["crc"] == crc32c(out[21:])
    untouched = batch([record(0, value=bytes(5000))], crc=1)
    assert convert(untouched, leader_epoch=-1) == untouched  # nothing under the checksum changes, so it is not written


# ---- the builder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_magic_1_to_2_byte_by_byte(codec: str) -> None:
    source = [message(1, offset=i, key=b"k", value=b"v%d" % i, timestamp=NOW + 3 * i) for i in range(3)]
    target = "uncompressed" if codec == "none" else codec
    out = convert(b"".join(source), target=target, first_offset=10, leader_epoch=4)
    body = b"".join(record(i, key=b"k", value=b"v%d" % i, timestamp_delta=3 * i) for i in range(3))
    expected = batch(
        records_count=3,
        payload=kafkas(CODECS[codec], body),
        codec=CODECS[codec],
        base_offset=10,
        partition_leader_epoch=4,
        max_timestamp=NOW + 6,
    )
    assert out == expected


def test_magic_0_to_2() -> None:
    out = convert(message(0, key=None, value=b"v"))
    expected = batch([record(0)], base_timestamp=-1, partition_leader_epoch=0)
    assert out == expected


@pytest.mark.parametrize("to_magic", [0, 1])
def test_magic_2_down_byte_by_byte(to_magic: int) -> None:
    data = batch([record(i, key=b"k", timestamp_delta=i) for i in range(3)])
    expected = [message(to_magic, offset=70 + i, key=b"k", timestamp=NOW + i) for i in range(3)]
    assert convert(data, to_magic, first_offset=70) == b"".join(expected)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
@pytest.mark.parametrize("to_magic", [0, 1])
def test_a_built_wrapper_byte_by_byte(to_magic: int, codec: str) -> None:
    """Magic 1 counts inner offsets from 0, magic 0 holds the real ones; the wrapper has the last one and no key."""
    data = batch([record(i, key=b"k", timestamp_delta=i) for i in range(3)])
    first = 0 if to_magic else 70
    inner = [message(to_magic, offset=first + i, key=b"k", timestamp=NOW + i) for i in range(3)]
    payload = kafkas(CODECS[codec], b"".join(inner), to_magic)
    expected = message(to_magic, offset=72, value=payload, attributes=CODECS[codec], timestamp=NOW + 2)
    assert convert(data, to_magic, target=codec, first_offset=70) == expected


def test_built_messages_with_the_logs_time() -> None:
    data = batch([record(i, key=b"k") for i in range(2)], base_timestamp=5)
    expected = [message(1, offset=i, key=b"k", timestamp=NOW, attributes=8) for i in range(2)]
    assert convert(data, 1, kind="LogAppendTime") == b"".join(expected)
    assert convert(data, 0, kind="LogAppendTime") == b"".join(message(0, offset=i, key=b"k") for i in range(2))


def test_timestamps_of_a_rebuilt_batch() -> None:
    """The first record's is the base, deltas may be negative, -1 is kept."""
    parts = [record(i, timestamp_delta=d) for i, d in enumerate((50, 0, -NOW - 1))]
    out = convert(batch(parts, codec=LZ4), target="uncompressed")
    head = fields(out)
    assert (head["base_timestamp"], head["max_timestamp"]) == (NOW + 50, NOW + 50)
    assert out[61:] == b"".join(record(i, timestamp_delta=d) for i, d in enumerate((0, -50, -NOW - 51)))


def test_producer_state_and_transaction_go_over_and_other_bits_do_not() -> None:
    data = batch(records(2), codec=GZIP, attributes=16 | 64 | 0x4000, producer_id=9, producer_epoch=8, base_sequence=7)
    head = fields(convert(data, target="lz4"))
    assert (head["attributes"], head["producer_id"], head["producer_epoch"], head["base_sequence"]) == (
        16 | LZ4,
        9,
        8,
        7,
    )


def test_header_keys_are_written_again_as_java_writes_them() -> None:
    keys = [b"\xff", b"\xed\xa0\x80", "ü".encode(), b""]
    data = batch([record(0, headers=[(key, b"v") for key in keys])], codec=GZIP)
    out = convert(data, target="uncompressed")
    written = [b"\xef\xbf\xbd", b"\xef\xbf\xbd", "ü".encode(), b""]
    assert out[61:] == record(0, headers=[(key, b"v") for key in written])


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4000, 4096, 5000, 100_000])
def test_bytes_that_grow(size: int) -> None:
    parts = [record(i, value=bytes(size)) for i in range(5)]
    out = convert(batch(parts, codec=GZIP), target="uncompressed")
    assert out[61:] == b"".join(parts)


def test_an_empty_batch_becomes_nothing() -> None:
    policy = TopicPolicy(compression_type="lz4")
    result = LogValidator(policy).validate_messages_and_assign_offsets(batch([]), now_ms=NOW, origin="COORDINATOR")
    assert (result.ok, bytes(result.output), result.records_count) == (True, b"", 0)


def test_conversion_statistics() -> None:
    """MemoryRecordsBuilder.uncompressedBytesWritten and the temporary bytes of what was read."""
    body = b"".join(record(i, key=b"k", value=b"v") for i in range(2))
    source = [message(1, offset=i, key=b"k", timestamp=NOW) for i in range(2)]
    result = KAFKA.validate_messages_and_assign_offsets(b"".join(source), now_ms=NOW)
    assert result.stats[:2] == (61 + len(body), 2)
    result = KAFKA.validate_messages_and_assign_offsets(wrapper(source, GZIP), now_ms=NOW)
    assert result.stats[:2] == (61 + len(b"".join(source)) + 61 + len(body), 2)


# ---- compressors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", compression.PROVIDERS)
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_compressed_here_is_read_here(codec: str, provider: str) -> None:
    before = compression.provider()
    compression.use(provider)
    try:
        for size in (0, 1, 100, 32_768, 32_769, 65_536, 65_537, 300_000):
            parts = [record(0, value=random.Random(size).randbytes(size // 2) + bytes(size - size // 2))]
            data = batch(parts, payload=kafkas(CODECS[codec], b"".join(parts)), codec=CODECS[codec], records_count=1)
            assert LogValidator().check(data, now_ms=NOW).ok, size
    finally:
        compression.use(before)


def test_the_helpers_compress_too() -> None:
    """The tests' own compressors are other libraries, so that the two do not share a mistake."""
    data = bytes(1000)
    for codec in CODECS.values():
        parts = [record(0, value=data)]
        assert LogValidator().check(batch(parts, payload=compress(codec, parts[0]), codec=codec), now_ms=NOW).ok
    assert struct.calcsize(">qiibIhiqqqhii") == 61
