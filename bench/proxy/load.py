"""Produce requests (version 9, acks=1) as files, and the answers to them.

    request   header 2: api_key, api_version, correlation_id, client_id, tags; then transactional_id, acks, timeout_ms,
              topics [name, partitions [index, records, tags], tags], tags
    answer    header 1: tags; then responses [name, partitions [index, error_code, base_offset, log_append_time,
              log_start_offset, record_errors, error_message, tags], tags], throttle_time_ms, tags

One batch a request, records of 1 kB (values of 1,000 bytes of word-like text that gzip shortens to
about a third), or one record in a frame of 1 kB. Sizes are those of the frame on the wire, so a
compressed frame holds more records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from batchval.core.claims import TAG, compute, to_tag
from batchval.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
)
from bench.validation import batches

TOPIC = b"bench"
CLIENT = b"load"
SIZES = {"1 kB": 1 << 10, "64 kB": 64 << 10, "1 MB": 1 << 20}
VALUE_SIZE = 1000
COUNTS = {"1 kB": 64, "64 kB": 32, "1 MB": 4}  # distinct requests, gone round and round
FETCH_ANSWER = 1 << 20


class Load(NamedTuple):
    """A file of requests. ``records`` is how many a request holds, ``plain`` their bytes before
    compression.
    """

    path: Path
    records: int
    frame_bytes: int
    plain_bytes: int


def compact(data: bytes) -> bytes:
    return batches.uvarint(len(data) + 1) + data


def tagged(batch: bytes) -> bytes:
    """Return the tagged fields of a partition: the claims of its batch."""
    found = compute(batch)
    if found is None:
        raise ValueError("no claims for an uncompressed batch")
    tag = to_tag(found, int.from_bytes(batch[17:21], "big"))
    return b"\1" + batches.uvarint(TAG) + batches.uvarint(len(tag)) + tag


def partition_data(partition: int, batch: bytes, tags: bytes = b"\0") -> bytes:
    """Return PartitionProduceData of version 9."""
    return struct.pack(">i", partition) + compact(batch) + tags


def request(topic: bytes, parts: Sequence[bytes]) -> bytes:
    """Return a whole ProduceRequest frame: the partitions of one topic."""
    frame = struct.pack(">hhih", 0, 9, 0, len(CLIENT)) + CLIENT + b"\0"
    frame += b"\0" + struct.pack(">hi", 1, 30_000) + b"\2" + compact(topic)
    frame += batches.uvarint(len(parts) + 1) + b"".join(parts) + b"\0" + b"\0"
    return struct.pack(">i", len(frame)) + frame


def produce(batch: bytes, *, claims: bool, partition: int = 0) -> bytes:
    """Return a whole frame of one batch."""
    tags = tagged(batch) if claims else b"\0"
    return request(TOPIC, [partition_data(partition, batch, tags)])


def frame_size(frame: bytes) -> int:
    """Return the size of the first frame, its length field included."""
    return 4 + int.from_bytes(frame[:4], "big")


def produce_answer() -> bytes:
    """Return a ProduceResponse without its correlation id."""
    partition = struct.pack(">ihqqq", 0, 0, 0, -1, 0) + b"\1" + b"\0" + b"\0"
    return b"\0" + b"\2" + compact(TOPIC) + b"\2" + partition + b"\0" + bytes(4) + b"\0"


def fetch() -> bytes:
    """Return a Fetch request (version 4) without a particular topic: only the answer is
    measured.
    """
    frame = (
        struct.pack(">hhih", 1, 4, 0, len(CLIENT))
        + CLIENT
        + struct.pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 0)
    )
    return struct.pack(">i", len(frame)) + frame


def answers(path: Path) -> Path:
    """Write the answers to Produce 9, to the proxy's Metadata 1, and a large one to Fetch 4."""
    broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)
    metadata = b"".join(MetadataResponse(brokers=[broker]).encode(0, 1))[8:]
    known = {(0, 9): produce_answer(), (3, 1): metadata, (1, 4): bytes(FETCH_ANSWER)}
    path.write_bytes(
        b"".join(struct.pack(">hhi", *key, len(body)) + body for key, body in known.items())
    )
    return path


@cache
def text() -> bytes:
    return batches.text(batches.JavaRandom(8364), 2 << 20)


@cache
def values(number: int, count: int) -> list[tuple[int, bytes, bytes]]:
    words = text()
    starts = [(number * 9973 + i * VALUE_SIZE) % (len(words) - VALUE_SIZE) for i in range(count)]
    return [
        (batches.FIRST_TIMESTAMP + i, b"", words[at : at + VALUE_SIZE])
        for i, at in enumerate(starts)
    ]


def batch_of(codec: str, size: str, number: int, count: int) -> bytes:
    if size == "1 kB":
        return batches.batch_of(
            codec, [(at, key, value[:880]) for at, key, value in values(number, 1)]
        )
    return batches.batch_of(codec, values(number, count))


@cache
def records_in(codec: str, size: str) -> int:
    """Return the largest number of records whose frame is at most this size."""
    if size == "1 kB":
        return 1
    count = 64 if size == "64 kB" else 512
    for _ in range(3):  # what is compressed does not grow in proportion
        count = max(
            1, int(count * SIZES[size] * 0.995 / (len(batch_of(codec, size, 0, count)) + 100))
        )
    return count


def make(
    folder: Path, size: str, codec: str = "none", *, claims: bool = False, quick: bool = False
) -> Load:
    count = records_in(codec, size)
    number = 4 if quick else COUNTS[size]
    frames = [produce(batch_of(codec, size, n, count), claims=claims) for n in range(number)]
    path = folder / f"{size}-{codec}{'-claims' if claims else ''}.frames".replace(" ", "")
    path.write_bytes(b"".join(frames))
    plain = (
        len(batch_of("none", size, 0, count))
        if codec != "none"
        else sum(map(len, frames)) // number
    )
    return Load(path, count, sum(map(len, frames)) // number, plain)


def first(path: Path) -> bytes:
    """Return the first request of a file."""
    data = path.read_bytes()
    return data[: frame_size(data)]
