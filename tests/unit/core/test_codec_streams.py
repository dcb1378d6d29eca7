"""lz4 and zstd frames as Kafka's stream classes read them, and limits of every codec; under both
providers.
"""

from __future__ import annotations

import random
import struct

import lz4.block
import lz4.frame
import pytest
import zstandard

from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.rules import Rule
from tests.support.batches import (
    CODECS,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    compress,
    message,
    record,
    wrapper,
)

RANDOM = random.Random(4)
RECORDS = b"".join(record(i, value=b"value %d " % i * 5) for i in range(20))
HALF = len(RECORDS) // 2


# ---- lz4 -----------------------------------------------------------------------------------------


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0, as its specification says."""
    p1, p2, p3, p4, p5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF

    def rotated(value: int, by: int) -> int:
        value &= mask
        return (value << by | value >> (32 - by)) & mask

    sums = [(p1 + p2) & mask, p2, 0, -p1 & mask]
    at = 0
    while at + 16 <= len(data):
        for i, word in enumerate(struct.unpack_from("<4I", data, at)):
            sums[i] = rotated(sums[i] + word * p2, 13) * p1 & mask
        at += 16
    h = sum(rotated(v, by) for v, by in zip(sums, (1, 7, 12, 18), strict=True)) if at else p5
    h = (h + len(data)) & mask
    while at + 4 <= len(data):
        h = rotated(h + struct.unpack_from("<I", data, at)[0] * p3, 17) * p4 & mask
        at += 4
    for byte in data[at:]:
        h = rotated(h + byte * p5, 11) * p1 & mask
    for shift, factor in ((15, p2), (13, p3), (16, 1)):
        h = (h ^ h >> shift) * factor & mask
    return h


def test_this_xxh32() -> None:
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


def lz4_frame(
    *blocks: bytes,
    flags: int = 0x60,
    descriptor: int = 0x40,
    size: int | None = None,
    dictionary: int | None = None,
    checksum: int | None = None,
    end: bytes = b"\0\0\0\0",
    content_checksum: int | None = None,
) -> bytes:
    flags |= (size is not None) * 8 | (dictionary is not None) | (content_checksum is not None) * 4
    head = bytes([flags, descriptor]) + (b"" if size is None else struct.pack("<Q", size))
    head += b"" if dictionary is None else struct.pack("<I", dictionary)
    hc = xxh32(head) >> 8 & 255 if checksum is None else checksum
    tail = b"" if content_checksum is None else struct.pack("<I", content_checksum)
    return b"\x04\x22\x4d\x18" + head + bytes([hc]) + b"".join(blocks) + end + tail


def stored(data: bytes, checksum: int | None = None) -> bytes:
    tail = b"" if checksum is None else struct.pack("<I", checksum)
    return struct.pack("<I", len(data) | 1 << 31) + data + tail


def packed(data: bytes, checksum: bool = False, wrong: int = 0) -> bytes:
    block = lz4.block.compress(data, store_size=False)
    return (
        struct.pack("<I", len(block))
        + block
        + (struct.pack("<I", xxh32(block) ^ wrong) if checksum else b"")
    )


R = RECORDS
LZ4_FRAMES = {  # what Kafka says (None: it accepts), what strict mode says
    "one block": (lz4_frame(packed(R)), None, None),
    "two blocks": (lz4_frame(packed(R[:HALF]), packed(R[HALF:])), None, None),
    "stored": (lz4_frame(stored(R)), None, None),
    "stored and packed": (lz4_frame(stored(R[:HALF]), packed(R[HALF:])), None, None),
    "a byte a block": (lz4_frame(*(stored(R[i : i + 1]) for i in range(len(R)))), None, None),
    "an empty stored block": (lz4_frame(stored(R[:HALF]), stored(b"")), 87, Rule.RECORD_MALFORMED),
    "block checksums": (lz4_frame(packed(R, True), flags=0x70), None, None),
    "a stored block's checksum": (lz4_frame(stored(R, xxh32(R)), flags=0x70), None, None),
    "wrong block checksum": (lz4_frame(packed(R, True, 1), flags=0x70), -1, Rule.S7),
    "content checksum": (lz4_frame(packed(R), content_checksum=xxh32(R)), None, None),
    "content checksum of blocks": (
        lz4_frame(*(stored(R[i : i + 7]) for i in range(0, len(R), 7)), content_checksum=xxh32(R)),
        None,
        None,
    ),
    "wrong content checksum": (lz4_frame(packed(R), content_checksum=1), None, Rule.S7),
    "content size": (lz4_frame(packed(R), size=len(R)), None, None),
    "wrong content size": (lz4_frame(packed(R), size=len(R) + 1), None, Rule.S7),
    "content size and checksum": (
        lz4_frame(packed(R), size=len(R), content_checksum=xxh32(R)),
        None,
        None,
    ),
    "blocks of 4 MiB": (lz4_frame(packed(R), descriptor=0x70), None, None),
    "wrong descriptor checksum": (lz4_frame(packed(R), checksum=1), -1, Rule.S7),
    "linked blocks": (lz4_frame(packed(R), flags=0x40), -1, Rule.S7),
    "version 0": (lz4_frame(packed(R), flags=0x20), -1, Rule.S7),
    "version 2": (lz4_frame(packed(R), flags=0xA0), -1, Rule.S7),
    "dictionary id": (lz4_frame(packed(R), dictionary=5), -1, Rule.S7),
    "reserved flag": (lz4_frame(packed(R), flags=0x62), -1, Rule.S7),
    "reserved descriptor bit": (lz4_frame(packed(R), descriptor=0xC0), -1, Rule.S7),
    "reserved low bits": (lz4_frame(packed(R), descriptor=0x41), -1, Rule.S7),
    "block size 3": (lz4_frame(packed(R), descriptor=0x30), -1, Rule.S7),
    "wrong magic": (b"\x05" + lz4_frame(packed(R))[1:], -1, Rule.S7),
    "a second frame": (lz4_frame(packed(R)) + lz4_frame(packed(R)), None, Rule.S7),
    "split over two frames": (
        lz4_frame(packed(R[:HALF])) + lz4_frame(packed(R[HALF:])),
        87,
        Rule.RECORD_MALFORMED,
    ),
    "junk after it": (lz4_frame(packed(R)) + b"junk", None, Rule.S7),
    "skippable frame first": (b"\x50\x2a\x4d\x18\1\0\0\0x" + lz4_frame(packed(R)), -1, Rule.S7),
    "block larger than stated": (lz4_frame(stored(bytes(65537))), -1, Rule.S7),
    "block that makes too much": (lz4_frame(packed(bytes(65537))), -1, Rule.S7),
    "damaged block": (lz4_frame(struct.pack("<I", 3) + b"\xf0\xff\xff"), -1, Rule.S7),
    "no end mark": (lz4_frame(packed(R), end=b""), -1, Rule.S7),
    "half an end mark": (lz4_frame(packed(R), end=b"\0\0"), -1, Rule.S7),
    "block cut off": (lz4_frame(packed(R), end=b"")[:-1], -1, Rule.S7),
    "nothing": (b"", -1, Rule.S7),
    "five bytes": (lz4_frame()[:5], -1, Rule.S7),
    "six bytes": (lz4_frame()[:6], -1, Rule.S7),
    "size cut off": (lz4_frame(size=5)[:10], -1, Rule.S7),
    "no block": (lz4_frame(), 87, Rule.RECORD_MALFORMED),
    "written by the package": (lz4.frame.compress(R, block_linked=False), None, None),
    "linked by the package": (
        lz4.frame.compress(R * 200, block_linked=True, block_size=4),
        -1,
        Rule.S7,
    ),
}


@pytest.mark.parametrize("what", LZ4_FRAMES)
def test_lz4(what: str, provider: str) -> None:
    payload, kafka, strict = LZ4_FRAMES[what]
    data = batch(codec=LZ4, payload=payload, records_count=20)
    result = LogValidator(mode="kafka").check(data, now_ms=NOW)
    assert (None if result.ok else int(result.error_code)) == kafka, result
    assert LogValidator().check(data, now_ms=NOW).rule is strict


def test_clients_of_magic_0_hash_the_descriptor_wrongly(provider: str) -> None:
    inner = message(0, offset=0)
    kafka = LogValidator(mode="kafka")
    for magic, ok in ((0, True), (1, False)):
        payload = lz4_frame(packed(message(magic)), checksum=0x55)
        data = message(magic, value=payload, attributes=LZ4)
        assert kafka.validate_messages_and_assign_offsets(data, now_ms=NOW, to_magic=magic).ok == ok
    assert kafka.validate_messages_and_assign_offsets(
        wrapper([inner], LZ4, 0), now_ms=NOW, to_magic=0
    ).ok


@pytest.mark.parametrize("size", [0, 1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 1000])
def test_xxh32_of_blocks_and_content(size: int, provider: str) -> None:
    """Right checksums pass and wrong ones do not, at every length around the stripes of 16
    bytes.
    """
    part = record(0, value=RANDOM.randbytes(size))
    for wrong in (0, 1):
        payload = lz4_frame(stored(part, xxh32(part) ^ wrong), flags=0x70)
        assert LogValidator().check(batch([part], codec=LZ4, payload=payload), now_ms=NOW).ok == (
            not wrong
        )
        payload = lz4_frame(stored(part), content_checksum=xxh32(part) ^ wrong)
        assert LogValidator().check(batch([part], codec=LZ4, payload=payload), now_ms=NOW).ok == (
            not wrong
        )


# ---- zstd ----------------------------------------------------------------------------------------


def zstd(data: bytes, **options: object) -> bytes:
    return zstandard.ZstdCompressor(**({"write_content_size": False} | options)).compress(data)  # type: ignore[arg-type]


def zstd_frame(
    *blocks: bytes,
    descriptor: int = 0,
    window: int | None = 0x58,
    middle: bytes = b"",
    magic: bytes = b"\x28\xb5\x2f\xfd",
) -> bytes:
    return (
        magic
        + bytes([descriptor])
        + (b"" if window is None else bytes([window]))
        + middle
        + b"".join(blocks)
    )


def block(data: bytes, kind: int = 0, last: bool = True, size: int | None = None) -> bytes:
    """A raw block, or one of run-length (kind 1)."""
    size = len(data) if size is None else size
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + data


SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"
ZSTD_FRAMES = {
    "one frame": (zstd(R), None, None),
    "with content size": (zstd(R, write_content_size=True), None, None),
    "with checksum": (zstd(R, write_checksum=True), None, None),
    "size and checksum": (zstd(R, write_content_size=True, write_checksum=True), None, None),
    "wrong checksum": (zstd(R, write_checksum=True)[:-1] + b"\0", -1, Rule.S7),
    "two frames": (zstd(R[:HALF]) + zstd(R[HALF:]), None, None),
    "an empty frame between": (zstd(R[:HALF]) + zstd(b"") + zstd(R[HALF:]), None, None),
    "skippable frames": (
        SKIPPABLE + zstd(R[:HALF]) + SKIPPABLE + zstd(R[HALF:]) + SKIPPABLE,
        None,
        None,
    ),
    # Kafka's stream class has seen a whole frame in the same fetch, and takes the cut for the end
    "a skippable frame cut off": (zstd(R) + SKIPPABLE[:-1], None, Rule.S7),
    "a skippable head cut off": (zstd(R) + SKIPPABLE[:7], None, Rule.S7),
    "a raw block": (zstd_frame(block(R)), None, None),
    "two raw blocks": (zstd_frame(block(R[:HALF], last=False), block(R[HALF:])), None, None),
    "a byte a block": (
        zstd_frame(*(block(R[i : i + 1], last=i == len(R) - 1) for i in range(len(R)))),
        None,
        None,
    ),
    "a reserved block": (zstd_frame(block(R, kind=3)), -1, Rule.S7),
    "a block too large": (zstd_frame(block(bytes(131073))), -1, Rule.S7),
    "reserved bit": (zstd_frame(block(R), descriptor=8), -1, Rule.S7),
    "dictionary id 0": (zstd_frame(block(R), descriptor=1, middle=b"\0"), None, None),
    "dictionary id 5": (zstd_frame(block(R), descriptor=1, middle=b"\5"), -1, Rule.S7),
    "single segment": (
        zstd_frame(block(R), descriptor=0x60, window=None, middle=struct.pack("<H", len(R) - 256)),
        None,
        None,
    ),
    "wrong content size": (
        zstd_frame(block(R), descriptor=0x60, window=None, middle=struct.pack("<H", 0)),
        -1,
        Rule.S7,
    ),
    "window 2^27": (zstd_frame(block(R), window=17 << 3), None, None),
    "window above 2^27": (zstd_frame(block(R), window=17 << 3 | 1), -1, Rule.S7),
    "window 2^41": (zstd_frame(block(R), window=31 << 3), -1, Rule.S7),
    "wrong magic": (zstd_frame(block(R), magic=b"\x29\xb5\x2f\xfd"), -1, Rule.S7),
    "junk after it": (zstd(R) + b"junk!", -1, Rule.S7),
    "a byte after it": (zstd(R) + b"\0", -1, Rule.S7),
    "cut off": (zstd(R)[:-1], -1, Rule.S7),
    "last block missing": (zstd_frame(block(R, last=False)), -1, Rule.S7),
    "a header alone": (zstd_frame(), -1, Rule.S7),
    "half a header": (zstd_frame()[:4], -1, Rule.S7),
    "a dictionary id cut off": (zstd_frame(descriptor=3, middle=b"\0"), -1, Rule.S7),
    "nothing": (b"", 87, Rule.RECORD_MALFORMED),
    "an empty frame": (zstd(b""), 87, Rule.RECORD_MALFORMED),
}


@pytest.mark.parametrize("what", ZSTD_FRAMES)
def test_zstd(what: str, provider: str) -> None:
    payload, kafka, strict = ZSTD_FRAMES[what]
    data = batch(codec=ZSTD, payload=payload, records_count=20)
    result = LogValidator(mode="kafka").check(data, now_ms=NOW)
    assert (None if result.ok else int(result.error_code)) == kafka, result
    assert LogValidator().check(data, now_ms=NOW).rule is strict


@pytest.mark.untraced
@pytest.mark.parametrize("level", [1, 3, 9, 19])
@pytest.mark.parametrize("size", [100, 20_000, 131_072, 131_073, 400_000, 3_000_000])
def test_zstd_windows_and_matches_far_back(level: int, size: int, provider: str) -> None:
    noise = RANDOM.randbytes(min(size, 90_000))
    part = record(0, value=(noise * (size // len(noise) + 1))[:size])
    for content_size in (False, True):
        payload = zstd(part, level=level, write_content_size=content_size)
        result = LogValidator().check(batch([part], codec=ZSTD, payload=payload), now_ms=NOW)
        assert result.ok, result


# ---- limits --------------------------------------------------------------------------------------


@pytest.mark.untraced
@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
@pytest.mark.parametrize("size", [1000, 16_384, 70_000, 5_000_000])
def test_a_whole_batch_is_bounded_to_the_byte(codec: str, size: int, provider: str) -> None:
    part = record(0, value=bytes(size))
    data = batch([part], codec=CODECS[codec])
    for limit, ok in ((len(part), True), (len(part) - 1, False), (0, False), (10**9, True)):
        result = LogValidator(max_decompressed_bytes=limit).check(data, now_ms=NOW)
        assert result.ok == ok
        if not ok:
            assert (result.rule, result.reason) == (
                Rule.S8,
                f"the batch decompresses to more than max_decompressed_bytes, {limit}",
            )
        # and so where it would be rebuilt, and in kafka mode, which has no limit of its own
        policy = TopicPolicy(compression_type="uncompressed", max_message_bytes=2**30)
        assert LogValidator(policy, max_decompressed_bytes=limit).check(data, now_ms=NOW).ok == ok
        kafka = LogValidator(policy, mode="kafka", max_decompressed_bytes=limit).check(
            data, now_ms=NOW
        )
        assert (kafka.ok, kafka.error_code) == (result.ok, result.error_code)
        assert LogValidator(policy, mode="kafka").check(data, now_ms=NOW).ok


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_damage_never_raises(codec: str, provider: str) -> None:
    """Flipped bits and cuts anywhere in the payload: a result each time, and kafka mode's is a
    Kafka code.
    """
    payload = compress(CODECS[codec], RECORDS * 3)
    codes = set()
    for i in range(400):
        damaged = bytearray(payload)
        damaged[RANDOM.randrange(len(damaged))] ^= 1 << RANDOM.randrange(8)
        if i % 3 == 0:
            del damaged[RANDOM.randrange(len(damaged)) :]
        data = batch(codec=CODECS[codec], payload=bytes(damaged), records_count=60)
        codes.add(int(LogValidator(mode="kafka").check(data, now_ms=NOW).error_code))
        assert int(LogValidator().check(data, now_ms=NOW).error_code) in (0, 32, 87)
    assert codes <= {0, -1, 87, 32}
    assert len(codes) > 1


def test_a_payload_labelled_as_another_codecs() -> None:
    for stated in (1, SNAPPY, LZ4, ZSTD):
        for real in CODECS.values():
            data = batch(codec=stated, payload=compress(real, RECORDS), records_count=20)
            assert LogValidator().check(data, now_ms=NOW).ok == (stated == real)
