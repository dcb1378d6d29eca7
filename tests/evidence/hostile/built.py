"""The target ``builder``: what the producer's builder makes, compared with the records that went
in.

Every batch passes strict's check, holds the same records, and claims what
batchval.core.stages.claims.compute finds. Its halves hold the same records again. Keys are hashed as a
plain murmur2 hashes them.
"""

from __future__ import annotations

import random
from array import array
from typing import Any

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import compute, from_tag
from batchval.core.convert.builder import MAX_RECORD_OVERHEAD, BatchBuilder
from batchval.policy import TopicPolicy
from batchval.producer.murmur2 import murmur2, partition_of
from tests.evidence.hostile.operations import Values

__all__ = ["builder_case"]

_NOW = 1_700_000_000_000
_UNBOUNDED = TopicPolicy(max_message_bytes=2**31 - 1, message_timestamp_after_max_ms=2**63 - 1)
_VALIDATOR = LogValidator(_UNBOUNDED)
_Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def _plain_murmur2(data: bytes) -> int:
    """Hash as org.apache.kafka.common.utils.Utils.murmur2 does, in whole numbers."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def _bytes(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < 0.1:
        return None
    size = (
        rng.randrange(8)
        if kind < 0.5
        else rng.choice((0, 63, 64, 127, 128, 200, 8191, 8192, rng.randrange(3000)))
    )
    return rng.randbytes(size) if rng.random() < 0.3 else b"ab" * (size // 2) + b"c" * (size % 2)


def _record(rng: random.Random) -> _Record:
    headers = [
        (rng.choice(("", "h", "größe", "x" * 70)), _bytes(rng))
        for _ in range(rng.choice((0, 0, 0, 1, 3)))
    ]
    stamp = rng.choice((_NOW, _NOW, _NOW + rng.randrange(-(10**6), 10**6), 0, 2**62))
    return _bytes(rng), _bytes(rng), tuple(headers), stamp


def _as_buffer(rng: random.Random, data: bytes | None) -> Any:
    return data if data is None else rng.choice((bytes, bytearray, memoryview))(data)


def _fill(
    made: BatchBuilder, rng: random.Random, stamps: list[int]
) -> tuple[list[_Record], list[str]]:
    records: list[_Record] = []
    for _ in range(rng.randrange(1, 12)):
        size = made.size
        if rng.random() < 0.6:
            key, value, headers, stamp = one = _record(rng)
            pairs = [(name, _as_buffer(rng, content)) for name, content in headers]
            if made.append(_as_buffer(rng, key), _as_buffer(rng, value), pairs, stamp):
                records.append(one)
            elif not records or made.size != size:
                return records, [
                    "a record that does not fit has changed the batch, or was the first"
                ]
            continue
        values = [_bytes(rng) or b"" for _ in range(rng.randrange(1, 9))]
        if rng.random() < 0.3:
            values = values[:1] * len(values)
            taken = Values(values[0], array("q", range(len(values))))
        else:
            taken = Values(
                [_as_buffer(rng, value) for value in values], array("q", range(len(values)))
            )
        space = rng.randrange(10000)
        fitting = taken.fitting(space)
        sizes = [len(value) + MAX_RECORD_OVERHEAD for value in values]
        if taken.largest() != max(map(len, values)) or sum(sizes[:fitting]) > space:
            return records, [f"{fitting} of {sizes} are counted as fitting into {space}"]
        first, step = rng.randrange(len(values)), rng.randrange(1, 3)
        most = len(range(first, len(values), step))
        count = made.append_many(taken, first, rng.randrange(most + 1), step, _NOW)
        stamps += range(first, first + count * step, step)
        records += [(None, value, (), _NOW) for value in values[first::step][:count]]
    return records, []


def _different(data: bytes, records: list[_Record]) -> list[str]:
    found = []
    for record in RecordBatch(data).records():
        key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
        found.append((key, value, record.headers, record.timestamp))
    return (
        []
        if found == records
        else [f"the batch holds {len(found)} records, not the {len(records)} that went in"]
    )


def builder_case(seed: int) -> list[str]:
    """Return what is wrong with the batch that follows from this number."""
    rng = random.Random(seed)
    key = rng.randbytes(rng.randrange(40))
    if (
        murmur2(key) != _plain_murmur2(key)
        or partition_of(key, 7) != (_plain_murmur2(key) & 0x7FFFFFFF) % 7
    ):
        return [f"murmur2 of {key.hex()} is {murmur2(key)}"]
    codec, stamps = rng.choice((0, 0, 1, 2, 3, 4)), []  # type: ignore[var-annotated]
    recycled = bytearray(rng.randbytes(rng.randrange(61, 300))) if rng.random() < 0.3 else None
    made = BatchBuilder(rng.choice((100, 1000, 20_000)), codec, None, recycled)
    records, found = _fill(made, rng, stamps)
    if found or not records:
        return found
    producer = (
        (rng.randrange(1 << 40), rng.randrange(1 << 15), rng.randrange(1 << 31))
        if rng.random() < 0.5
        else ()
    )
    made.seal(*producer)
    data = bytes(made.view())
    if list(made.stamps) != stamps or made.count != len(records):
        return ["stamps or count differ from what went in"]
    result = _VALIDATOR.check(data, now_ms=_NOW)
    if not result.ok:
        return [f"strict refuses the batch: {result}"]
    claimed = compute(data)
    if (
        claimed is None
        or tuple(claimed) != made.claims
        or from_tag(made.tag(), made.crc) != claimed
    ):
        return [f"the builder claims {made.claims}, true is {claimed}"]
    found = _different(data, records)
    halves = made.split()
    first = len(records) // 2
    for half, part in zip(halves, (records[:first], records[first:]), strict=False):
        half.seal(*producer)
        found += _different(bytes(half.view()), part)
    if [stamp for half in halves for stamp in half.stamps] != (
        stamps if halves and len(stamps) == len(records) else []
    ):
        found += [] if len(stamps) < len(records) else ["the halves have other stamps"]
    del halves
    return found[:1]
