"""Kafka requests as bytes on the wire, for clients that respect no limit.

frame            int32 length, header, body
header 1 and 2   int16 api_key, int16 api_version, int32 correlation_id, client_id [, tags]
Produce 9        transactional_id, acks:2, timeout_ms:4,
                 topics [name, partitions [index:4, records, tags], tags], tags
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

PRODUCE, FETCH, METADATA, HEARTBEAT, SASL_HANDSHAKE, API_VERSIONS = 0, 1, 3, 12, 17, 18
Partition = tuple[int, bytes | None]


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def compact(data: bytes | None) -> bytes:
    """Return compact bytes or a compact string; None is null."""
    return b"\0" if data is None else uvarint(len(data) + 1) + data


def frame(body: bytes) -> bytes:
    """Return a body with its length."""
    return struct.pack(">i", len(body)) + body


def header(
    key: int, version: int, correlation_id: int = 1, client: bytes = b"c", tags: bytes | None = None
) -> bytes:
    """Return a request header: of version 2 where there are tags, else of version 1."""
    head = struct.pack(">hhih", key, version, correlation_id, len(client)) + client
    return head if tags is None else head + tags


def many_tags(count: int, size: int = 0) -> bytes:
    """Return so many tagged fields, from tag 1,000 on."""
    fields = (uvarint(1000 + i) + uvarint(size) + bytes(size) for i in range(count))
    return uvarint(count) + b"".join(fields)


def partition_of(index: int, records: bytes | None, tags: bytes = b"\0") -> bytes:
    """Return a partition of Produce 9."""
    return struct.pack(">i", index) + compact(records) + tags


def topic_of(name: bytes, partitions: bytes, count: int) -> bytes:
    """Return a topic of Produce 9, of partitions that are encoded already."""
    return compact(name) + uvarint(count + 1) + partitions + b"\0"


def produce_of(
    topics: bytes, count: int, *, acks: int = 1, client: bytes = b"c", tags: bytes = b"\0"
) -> bytes:
    """Return a Produce request, version 9, of topics that are encoded already."""
    head = header(PRODUCE, 9, 1, client, tags) + b"\0" + struct.pack(">hi", acks, 1000)
    return frame(head + uvarint(count + 1) + topics + b"\0")


def produce(
    *topics: tuple[bytes, Iterable[Partition]], acks: int = 1, client: bytes = b"c"
) -> bytes:
    """Return a Produce request, version 9."""
    encoded = []
    for name, partitions in topics:
        listed = list(partitions)
        encoded.append(topic_of(name, b"".join(partition_of(*one) for one in listed), len(listed)))
    return produce_of(b"".join(encoded), len(encoded), acks=acks, client=client)


def many_partitions(count: int, records: bytes | None, *, client: bytes = b"c") -> bytes:
    """Return a Produce request of one topic whose partitions are all the same."""
    return produce_of(topic_of(b"t", partition_of(0, records) * count, count), 1, client=client)


def many_partitions_3(count: int, records: bytes | None) -> bytes:
    """Return the same in version 3, which has no compact fields."""
    size = -1 if records is None else len(records)
    one = struct.pack(">ii", 0, size) + (records or b"")
    head = header(PRODUCE, 3) + struct.pack(">hhi", -1, 1, 1000) + struct.pack(">ih", 1, 1) + b"t"
    return frame(head + struct.pack(">i", count) + one * count)


def metadata(names: Iterable[bytes], *, client: bytes = b"c") -> bytes:
    """Return a Metadata request, version 1."""
    listed = list(names)
    body = b"".join(struct.pack(">h", len(name)) + name for name in listed)
    return frame(header(METADATA, 1, 1, client) + struct.pack(">i", len(listed)) + body)


def fetch(client: bytes = b"c") -> bytes:
    """Return a Fetch request, version 4, of 50 MB of topic "t"."""
    most = 50_000_000
    body = struct.pack(">iiiib", -1, 500, 1, most, 0) + struct.pack(">ih", 1, 1) + b"t"
    return frame(header(FETCH, 4, 1, client) + body + struct.pack(">iiqi", 1, 0, 0, most))


def heartbeat(client: bytes = b"c") -> bytes:
    """Return the smallest request that goes to the broker."""
    return frame(header(HEARTBEAT, 0, 1, client) + struct.pack(">h1sih1s", 1, b"g", 1, 1, b"m"))


def api_versions(client: bytes = b"c") -> bytes:
    """Return ApiVersions, version 3, with a software name and version."""
    return frame(header(API_VERSIONS, 3, 1, client, b"\0") + compact(b"x") + compact(b"1") + b"\0")
