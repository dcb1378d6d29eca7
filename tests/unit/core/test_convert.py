"""Compare append and rebuild with Kafka's layout byte by byte, and test the checksum's patch."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from batchval import compression
from batchval.compression import packages
from batchval.compression.compressors import compress as kafkas
from batchval.core.batches.batch import batches
from batchval.core.batches.validator import LogValidator
from batchval.core.convert import convert as convert_module
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


def convert(
    data: bytes,
    to_magic: int = 2,
    target: str = "producer",
    kind: str = "CreateTime",
    **arguments: int,
) -> bytes:
    policy = TopicPolicy(compression_type=target, message_timestamp_type=kind)
    result = LogValidator(policy, mode="kafka").validate_messages_and_assign_offsets(
        data, now_ms=NOW, to_magic=to_magic, **arguments
    )
    assert result.ok, result
    return bytes(result.output)


# ---- the checksum --------------------------------------------------------------------------------


@pytest.mark.untraced
@pytest.mark.parametrize(
    "size", [0, 1, 1985, 1986, 1987, 1988, 2047, 2048, 2049, 4096, 65_537, 1_000_000]
)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_patched_checksum_is_the_one_that_is_computed(size: int, kind: str) -> None:
    """From 2 KiB of records on it is patched; each border from both sides."""
    data = batch([record(0, value=random.Random(size).randbytes(size))], max_timestamp=7)
    policy = TopicPolicy(message_timestamp_type=kind)
    validator = LogValidator(policy)
    patched = validator.validate(data, now_ms=NOW + 3, first_offset=9).output
    computed = validator.validate_messages_and_assign_offsets(
        data, now_ms=NOW + 3, first_offset=9
    ).output
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
    assert (
        convert(untouched, leader_epoch=-1) == untouched
    )  # nothing under the checksum changes, so it is not written


# ---- the builder ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_magic_1_to_2_byte_by_byte(codec: str) -> None:
    source = [
        message(1, offset=i, key=b"k", value=b"v%d" % i, timestamp=NOW + 3 * i) for i in range(3)
    ]
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
    """Magic 1 counts inner offsets from 0, magic 0 holds the real ones; the wrapper has the last
    one and no key.
    """
    data = batch([record(i, key=b"k", timestamp_delta=i) for i in range(3)])
    first = 0 if to_magic else 70
    inner = [message(to_magic, offset=first + i, key=b"k", timestamp=NOW + i) for i in range(3)]
    payload = kafkas(CODECS[codec], b"".join(inner), to_magic)
    expected = message(
        to_magic, offset=72, value=payload, attributes=CODECS[codec], timestamp=NOW + 2
    )
    assert convert(data, to_magic, target=codec, first_offset=70) == expected


def test_built_messages_with_the_logs_time() -> None:
    data = batch([record(i, key=b"k") for i in range(2)], base_timestamp=5)
    expected = [message(1, offset=i, key=b"k", timestamp=NOW, attributes=8) for i in range(2)]
    assert convert(data, 1, kind="LogAppendTime") == b"".join(expected)
    assert convert(data, 0, kind="LogAppendTime") == b"".join(
        message(0, offset=i, key=b"k") for i in range(2)
    )


def test_timestamps_of_a_rebuilt_batch() -> None:
    """The first record's is the base, deltas may be negative, -1 is kept."""
    parts = [record(i, timestamp_delta=d) for i, d in enumerate((50, 0, -NOW - 1))]
    out = convert(batch(parts, codec=LZ4), target="uncompressed")
    head = fields(out)
    assert (head["base_timestamp"], head["max_timestamp"]) == (NOW + 50, NOW + 50)
    assert out[61:] == b"".join(
        record(i, timestamp_delta=d) for i, d in enumerate((0, -50, -NOW - 51))
    )


def test_producer_state_and_transaction_go_over_and_other_bits_do_not() -> None:
    data = batch(
        records(2),
        codec=GZIP,
        attributes=16 | 64 | 0x4000,
        producer_id=9,
        producer_epoch=8,
        base_sequence=7,
    )
    head = fields(convert(data, target="lz4"))
    assert (
        head["attributes"],
        head["producer_id"],
        head["producer_epoch"],
        head["base_sequence"],
    ) == (
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
    result = LogValidator(policy).validate_messages_and_assign_offsets(
        batch([]), now_ms=NOW, origin="COORDINATOR"
    )
    assert (result.ok, bytes(result.output), result.records_count) == (True, b"", 0)


def test_conversion_statistics() -> None:
    """MemoryRecordsBuilder.uncompressedBytesWritten and the temporary bytes of what was read."""
    body = b"".join(record(i, key=b"k", value=b"v") for i in range(2))
    source = [message(1, offset=i, key=b"k", timestamp=NOW) for i in range(2)]
    result = KAFKA.validate_messages_and_assign_offsets(b"".join(source), now_ms=NOW)
    assert result.stats[:2] == (61 + len(body), 2)
    result = KAFKA.validate_messages_and_assign_offsets(wrapper(source, GZIP), now_ms=NOW)
    assert result.stats[:2] == (61 + len(b"".join(source)) + 61 + len(body), 2)


# ---- what is done once ---------------------------------------------------------------------------


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of the lz4 blocks that are decompressed, one by one."""
    of_package, sizes = packages.lz4_block, []

    def noting(source: bytes, capacity: int) -> bytes | None:
        sizes.append(len(source))
        return of_package(source, capacity)

    before = compression.provider()
    compression.use("packages")
    monkeypatch.setattr(packages, "lz4_block", noting)
    yield sizes
    compression.use(before)


def packed(magic: int, values: list[bytes]) -> bytes:
    """An lz4 wrapper as Kafka's producer of that magic writes it, in blocks of 64 KiB."""
    inner = [message(magic, offset=i, value=value) for i, value in enumerate(values)]
    return message(
        magic, offset=len(values) - 1, value=kafkas(LZ4, b"".join(inner), magic), attributes=LZ4
    )


def values_of(data: bytes) -> list[bytes]:
    return [bytes(r.value or b"") for b in batches(data) for r in b.records()]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_is_decompressed_once(magic: int, unpacked: list[int]) -> None:
    """The messages that were judged are those that are written."""
    values = [bytes([i]) * 1500 for i in range(100)]
    data = packed(magic, values)
    out = convert(data)
    assert len(unpacked) == 3  # 150 kB
    assert values_of(out) == values


def test_of_many_wrappers_the_last_one_alone_is_still_there(unpacked: list[int]) -> None:
    """A set that is labelled as uncompressed may hold more than one."""
    sets = [[b"%d" % i * 400] * 3 for i in range(3)]
    data = b"".join(packed(1, values) for values in sets)
    result = LogValidator(
        TopicPolicy(compression_type="lz4"), mode="kafka"
    ).validate_messages_and_assign_offsets(data, now_ms=NOW, source="none", to_magic=2)
    assert result.ok, result
    assert len(unpacked) == 3 + 3
    assert values_of(bytes(result.output)) == [value for values in sets for value in values]


def test_messages_of_an_earlier_call_are_never_written() -> None:
    """The batch of the next call may lie where that of the last one lay."""
    wrapped = wrapper([message(1, value=b"inside")], GZIP)
    alone = message(1, value=bytes(len(wrapped) - len(message(1, value=b""))))
    elsewhere = []
    for _ in range(100):
        data = bytes(bytearray(wrapped))
        address = id(data)
        convert(data)
        del data
        data = bytes(bytearray(alone))
        assert values_of(convert(data))[0].count(0) == len(alone) - len(message(1, value=b""))
        if id(data) == address:
            break
        elsewhere.append(data)  # so that this memory is not found again


def test_records_that_a_buffer_refers_to_are_not_written_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory of the next conversion is another one then."""
    kept = []

    def keeping(codec: int, data: object, *others: object) -> bytes:
        kept.append(memoryview(data))  # type: ignore[arg-type]
        return kafkas(codec, data, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(convert_module, "compress", keeping)
    values = [bytes([i]) * 5000 for i in range(3)]
    for value in values:
        convert(message(1, value=value), target="gzip")
    assert [view.tobytes() for view in kept] == [record(0, value=value) for value in values]


# ---- compressors ---------------------------------------------------------------------------------


@pytest.mark.untraced
@pytest.mark.parametrize("provider", compression.PROVIDERS)
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_compressed_here_is_read_here(codec: str, provider: str) -> None:
    before = compression.provider()
    compression.use(provider)
    try:
        for size in (0, 1, 100, 32_768, 32_769, 65_536, 65_537, 300_000):
            parts = [
                record(0, value=random.Random(size).randbytes(size // 2) + bytes(size - size // 2))
            ]
            data = batch(
                parts,
                payload=kafkas(CODECS[codec], b"".join(parts)),
                codec=CODECS[codec],
                records_count=1,
            )
            assert LogValidator().check(data, now_ms=NOW).ok, size
    finally:
        compression.use(before)


def test_the_helpers_compress_too() -> None:
    """The tests' own compressors are other libraries, so that the two do not share a mistake."""
    data = bytes(1000)
    for codec in CODECS.values():
        parts = [record(0, value=data)]
        assert (
            LogValidator()
            .check(batch(parts, payload=compress(codec, parts[0]), codec=codec), now_ms=NOW)
            .ok
        )
    assert struct.calcsize(">qiibIhiqqqhii") == 61
