"""Record batches and messages made by hand, with struct and zlib alone: what tests hold the core
against.

records = [record(0, value=b"v"), record(1, key=b"k")]
batch(records)                       one batch of magic 2, whole and right
batch(records, max_timestamp=7)      one header field wrong, the checksum right
batch(records, codec=GZIP)           compressed by another library than batchval's
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
HEADER = 61
NOW = 1_700_000_000_000

_FIELDS = (
    *(
        "base_offset",
        "batch_length",
        "partition_leader_epoch",
        "magic",
        "crc",
        "attributes",
        "last_offset_delta",
    ),
    *(
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "records_count",
    ),
)
_TABLE = []
for _byte in range(256):
    _c = _byte
    for _ in range(8):
        _c = (_c >> 1) ^ (0x82F63B78 if _c & 1 else 0)
    _TABLE.append(_c)


def crc32c(data: bytes, crc: int = 0) -> int:
    """Compute CRC-32C, a byte at a time."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def varint(value: int) -> bytes:
    """Encode a zigzag number as Kafka's varints and varlongs."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def blob(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


class Body(NamedTuple):
    """A record's fields, each as its bytes; so that a test can break one."""

    attributes: bytes = b"\0"
    timestamp_delta: bytes = varint(0)
    offset_delta: bytes = varint(0)
    key: bytes = varint(-1)
    value: bytes = blob(b"v")
    headers: bytes = varint(0)
    trailing: bytes = b""


def record(
    delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    timestamp_delta: int = 0,
    attributes: int = 0,
) -> bytes:
    """Build a whole record of magic 2 with its length."""
    body = bytes([attributes]) + varint(timestamp_delta) + varint(delta) + blob(key) + blob(value)
    body += varint(len(headers)) + b"".join(blob(k) + blob(v) for k, v in headers)
    return varint(len(body)) + body


def raw(body: Body, length: bytes | None = None) -> bytes:
    """Build a record from its fields; ``length`` overrides the right one."""
    joined = b"".join(body)
    return (varint(len(joined)) if length is None else length) + joined


def records(count: int, **fields: object) -> list[bytes]:
    return [record(i, **{"value": b"value %d" % i, **fields}) for i in range(count)]  # type: ignore[arg-type]


def compress(codec: int, data: bytes) -> bytes:
    """Compress with libraries that batchval's own readers do not use."""
    if codec == GZIP:
        deflate = zlib.compressobj(6, zlib.DEFLATED, 31)
        return deflate.compress(data) + deflate.flush()
    if codec == SNAPPY:
        import snappy

        chunks = [
            bytes(snappy.compress(data[i : i + 32768])) for i in range(0, len(data), 32768)
        ] or [b"\0"]
        return (
            b"\x82SNAPPY\0"
            + struct.pack(">ii", 1, 1)
            + b"".join(struct.pack(">i", len(c)) + c for c in chunks)
        )
    if codec == LZ4:
        import lz4.frame

        return bytes(
            lz4.frame.compress(
                data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB, store_size=False
            )
        )
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(write_content_size=False).compress(data)
    return data


def batch(
    parts: Iterable[bytes] = (record(),),
    *,
    codec: int = NONE,
    payload: bytes | None = None,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = NOW,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    records_count: int | None = None,
    batch_length: int | None = None,
    magic: int = 2,
    crc: int | None = None,
) -> bytes:
    """Build a batch of magic 2. Defaults fit the records; ``payload`` replaces the compressed
    ones.
    """
    parts = list(parts)
    count = len(parts) if records_count is None else records_count
    if payload is None:
        payload = compress(codec, b"".join(parts))
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        base_timestamp if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    after_crc += payload
    length = len(after_crc) + 9 if batch_length is None else batch_length
    if crc is None:
        crc = crc32c(after_crc)
    return (
        struct.pack(">qiibI", base_offset, length, partition_leader_epoch, magic, crc) + after_crc
    )


def of_wrong_length(codec: int) -> bytes:
    """Return a batch whose one record states a length of -5: rule 29 of Kafka 4.4, S4 before it."""
    return batch([raw(Body(), varint(-5))], codec=codec)


def fields(data: bytes | bytearray | memoryview) -> dict[str, int]:
    """Return the header fields of a batch of magic 2, by struct."""
    return dict(zip(_FIELDS, struct.unpack_from(">qiibIhiqqqhii", data), strict=True))


def with_crc(data: bytes | bytearray) -> bytes:
    """Return the batch of magic 2 with its checksum computed anew, after a test changed bytes."""
    return bytes(data[:17]) + struct.pack(">I", crc32c(bytes(data[21:]))) + bytes(data[21:])


def message(
    magic: int = 1,
    *,
    offset: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    timestamp: int = NOW,
    attributes: int = 0,
    size: int | None = None,
    crc: int | None = None,
    tail: bytes | None = None,
) -> bytes:
    """Build a message of magic 0 or 1 with its log overhead; ``tail`` overrides key and value."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    if tail is None:
        tail = b"".join(
            struct.pack(">i", -1) if b is None else struct.pack(">i", len(b)) + b
            for b in (key, value)
        )
    body += tail
    body = struct.pack(">I", zlib.crc32(body) if crc is None else crc) + body
    return struct.pack(">qi", offset, len(body) if size is None else size) + body


def wrapper(
    inner: Iterable[bytes],
    codec: int,
    magic: int = 1,
    *,
    offset: int | None = None,
    **fields: object,
) -> bytes:
    """Compress messages into the value of another, whose offset is the last one's."""
    inner = list(inner)
    data = b"".join(inner)
    payload = compress(codec, data)
    return message(
        magic,
        offset=len(inner) - 1 if offset is None else offset,
        value=payload,
        attributes=int(fields.pop("attributes", 0)) | codec,  # type: ignore[call-overload]
        **fields,  # type: ignore[arg-type]
    )


def decoded(
    data: bytes,
) -> list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]]:
    """Return (offset, timestamp, key, value, headers) of each record of an uncompressed magic 2
    batch.
    """
    head = fields(data)
    at = HEADER
    out = []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def content() -> bytes | None:
        nonlocal at
        size = number()
        if size < 0:
            return None
        at += size
        return bytes(data[at - size : at])

    for _ in range(head["records_count"]):
        number()
        at += 1
        timestamp, offset = head["base_timestamp"] + number(), head["base_offset"] + number()
        if head["attributes"] & 8:
            timestamp = head["max_timestamp"]
        key, value = content(), content()
        headers = tuple((content() or b"", content()) for _ in range(number()))
        out.append((offset, timestamp, key, value, headers))
    return out
