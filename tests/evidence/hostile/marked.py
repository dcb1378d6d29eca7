"""Good inputs for the targets that change a buffer in use, made of bytes that can be recognised.

    POISON    two byte values that no case's contents hold: around the cases, in released and in
              fresh memory
    Case      one input: its bytes, the fields worth a change, another valid version of the same
              size

Where a case is ``marked``, every byte of its records is copied verbatim from its bytes (no
compression, or streams of stored blocks). So a key, value or header with a poison byte holds memory
that is not the case's.
"""

from __future__ import annotations

import gzip
import random
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from batchval.core.claims import attach, compute, to_tag
from batchval.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchNodeEndpoint,
    FetchResponse,
    PartitionData,
)
from batchval.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.evidence.hostile.mutator import xxh32
from tests.evidence.hostile.seeds import NOW, batch, compress, legacy, record, wrapper
from tests.support.proxy import answered, produce_frame

__all__ = ["BYTES", "NUMBERS", "POISON", "POISON_FREE", "Case", "cases", "has_poison", "stored"]

POISON_FREE, POISON_NEW = 0x7E, 0x81
POISON = bytes((POISON_FREE, POISON_NEW))
BYTES, NUMBERS = 0, 1
_POISONED = re.compile(b"[" + re.escape(POISON) + b"]")
_ALPHABET = b"abcdefghijklmnop"
_RECORDS = 61
_ATTEMPTS = 2000
# offset, length, magic, crc, attributes, last delta, timestamps, producer, sequence, count
_HEADER = ((0, 8), (8, 4), (10, 2), (16, 1), (17, 4), (21, 2), (22, 1), (22, 1), (23, 4), (26, 1))
_HEADER_MORE = ((27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4), (60, 1), (60, 1))


def has_poison(*parts: bytes | bytearray | memoryview | None) -> bool:
    """Return whether a poison byte is in any of the parts."""
    return any(part is not None and _POISONED.search(part) is not None for part in parts)


@dataclass(frozen=True)
class Case:
    """One input. ``places`` are the (position, size) of fields worth a change."""

    name: str
    kind: str
    data: bytes
    places: tuple[tuple[int, int], ...] = ()
    twin: bytes | None = None
    marked: bool = True
    numbers: bool = False
    tag: bytes | None = None
    version: int = 0


# ---- streams of stored blocks --------------------------------------------------------------------


def stored(codec: int, data: bytes) -> bytes:
    """Return a compressed payload that holds ``data`` in stored blocks."""
    if codec == 1:
        return gzip.compress(data, 0, mtime=0)
    if codec == 2:
        out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        for at in range(0, len(data), 32768):
            part = data[at : at + 32768]
            literal = bytes((61 << 2,)) + (len(part) - 1).to_bytes(2, "little") + part
            block = _unsigned(len(part)) + literal
            out += struct.pack(">i", len(block)) + block
        return out
    if codec == 3:
        descriptor = b"\x60\x60"  # version 1, blocks alone; at most 1 MiB each
        out = b"\x04\x22\x4d\x18" + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,))
        return out + (len(data) | 1 << 31).to_bytes(4, "little") + data + bytes(4)
    if codec == 4:
        out = b"\x28\xb5\x2f\xfd\xa0" + len(data).to_bytes(4, "little")
        parts = [data[at : at + (1 << 16)] for at in range(0, len(data), 1 << 16)]
        for i, part in enumerate(parts):
            out += (len(part) << 3 | (i + 1 == len(parts))).to_bytes(3, "little") + part
        return out
    return data


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


# ---- batches -------------------------------------------------------------------------------------


def _text(rng: random.Random, size: int) -> bytes:
    return bytes(rng.choices(_ALPHABET, k=size))


def _records(rng: random.Random, count: int, size: int, headers: bool) -> bytes:
    """Return records. No length is 63: as a varint that would be a poison byte."""
    return b"".join(
        record(
            i,
            _text(rng, 5) if i % 3 else None,
            _text(rng, size),
            i,
            [(_text(rng, 3), _text(rng, 4)), (b"h", None)] if headers else (),
        )
        for i in range(count)
    )


_SHAPES = {
    "one": (1, 20, False),
    "some": (8, 30, True),
    "many": (50, 12, False),
    "long": (6, 2300, True),
}
_LARGE = (58, 2400, False)


def _until_clean(make: Callable[[random.Random], tuple[bytes, bytes]], seed: int) -> bytes:
    """Return the first version whose second part holds no poison byte."""
    for attempt in range(_ATTEMPTS):
        data, contents = make(random.Random(seed * _ATTEMPTS + attempt))
        if not has_poison(contents):
            return data
    raise AssertionError("no version without poison bytes")


def _batch(shape: tuple[int, int, bool], codec: int, seed: int, *, real: bool = False) -> bytes:
    def make(rng: random.Random) -> tuple[bytes, bytes]:
        records = _records(rng, *shape)
        payload = compress(codec, records, seed) if real else stored(codec, records)
        data = batch(b"", shape[0], codec, payload=payload, max_timestamp=NOW + shape[0] - 1)
        return data, b"" if real else data[_RECORDS:]

    return _until_clean(make, seed)


def _fields_of(data: bytes, start: int = _RECORDS) -> tuple[tuple[int, int], ...]:
    """Return the header's fields, the first bytes after it, and the varints of uncompressed
    records.
    """
    places = [
        *_HEADER,
        *_HEADER_MORE,
        *((start + i, 1) for i in range(24) if start + i < len(data)),
    ]
    if data[22] & 7 == 0:
        places += _varints(data, start)
    else:
        places += [(start + i, 4) for i in range(0, min(40, len(data) - start - 4), 3)]
    return tuple((at, size) for at, size in places if at + size <= len(data))


def _varints(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    def read() -> int:
        nonlocal at, value
        start, shift, raw = at, 0, 0
        while data[at] >= 0x80:
            raw |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
        raw |= data[at] << shift
        at += 1
        value = raw >> 1 ^ -(raw & 1)
        return at - start

    value = 0
    for _ in range(int.from_bytes(data[57:61], "big")):
        for field in ("length", "attributes", "timestamp", "offset", "key", "value", "count"):
            if field == "attributes":
                at += 1
                continue
            size = read()
            yield at - size, size
            if field in ("key", "value"):
                at += max(value, 0)
        for _ in range(2 * value):
            size = read()
            yield at - size, size
            at += max(value, 0)


def _twin(data: bytes, seed: int) -> bytes | None:
    """Return another valid batch of the same size and codec, with records of other lengths."""
    codec, inner = data[22] & 7, len(data) - _RECORDS
    overhead = inner - len(stored(codec, b"")) if codec else inner
    for size in range(max(overhead - 40, 1), overhead + 1):
        for count in (1, 2):
            rng = random.Random(seed)
            records = b"".join(record(i, None, _text(rng, size // count), i) for i in range(count))
            payload = stored(codec, records)
            if len(payload) == inner and not has_poison(payload):
                return batch(b"", count, codec, payload=payload, max_timestamp=NOW + count - 1)
    return None


@cache
def _batches() -> tuple[Case, ...]:
    return tuple(_made_batches())


def _made_batches() -> Iterator[Case]:
    for codec in range(5):
        for seed, (name, shape) in enumerate(_SHAPES.items()):
            data = _batch(shape, codec, seed)
            yield Case(
                f"{name}-{codec}",
                "batch",
                data,
                _fields_of(data),
                _twin(data, seed),
                tag=_tag(data),
            )
        if codec:
            data = _batch(_SHAPES["many"], codec, 7, real=True)
            yield Case(
                f"packed-{codec}", "batch", data, _fields_of(data), marked=False, tag=_tag(data)
            )
    for codec in (0, 3):
        data = _batch(_LARGE, codec, 9)
        yield Case(f"large-{codec}", "batch", data, _fields_of(data), tag=_tag(data))


def _tag(data: bytes) -> bytes:
    claims = compute(data)
    assert claims is not None
    return to_tag(claims, int.from_bytes(data[17:21], "big"))


def _claimed() -> Iterator[Case]:
    for codec in (0, 2, 3):
        data = attach(_batch(_SHAPES["some"], codec, 11))
        places = (*_fields_of(data, 74), *((61 + i, 1) for i in range(13)))
        yield Case(f"claimed-{codec}", "claimed", data, places)
    for codec in (1, 4):
        data = attach(_batch(_SHAPES["some"], codec, 11), carrier="payload")
        places = (*_fields_of(data), *((61 + i, 1) for i in range(42)))
        yield Case(f"carried-{codec}", "batch", data, places, marked=False, tag=_tag(data))


def _messages(rng: random.Random, magic: int, count: int) -> bytes:
    return b"".join(legacy(magic, _text(rng, 4), _text(rng, 20), i, NOW + i) for i in range(count))


def _legacy() -> Iterator[Case]:
    for magic in (0, 1):
        for codec in (0, 1, 2, 3):
            if codec == 3 and magic == 0:
                continue

            def make(
                rng: random.Random, magic: int = magic, codec: int = codec
            ) -> tuple[bytes, bytes]:
                inner = _messages(rng, magic, 4)
                if not codec:
                    return inner, b""
                value = stored(codec, inner)
                whole = legacy(magic, None, value, 3, NOW + 3, codec)
                return whole, value

            data = _until_clean(make, 20 + codec)
            places = ((0, 8), (8, 4), (12, 4), (16, 1), (17, 1), (18, 4), (22, 4), (26, 4), (30, 4))
            more = tuple((at, 4) for at in range(34, len(data) - 4, 5))
            yield Case(f"legacy-{magic}-{codec}", "legacy", data, places + more)
        data = wrapper(magic, _messages(random.Random(3), magic, 4), 2, 3, NOW + 3)
        yield Case(
            f"legacy-{magic}-packed", "legacy", data, ((26, 4), (30, 4), (34, 4)), marked=False
        )


def _sets() -> Iterator[Case]:
    """Yield several batches one after the other, as a segment or a Fetch answer has them."""
    for name, shapes in (
        ("set", ("one", "some", "many")),
        ("set-long", ("some", "long", "one", "long")),
    ):
        data, places = b"", []
        for i, shape in enumerate(shapes):
            part = bytearray(_batch(_SHAPES[shape], (0, 3, 2, 4)[i], 30 + i))
            part[0:8] = struct.pack(">q", i * 100)
            places += [(len(data) + at, size) for at, size in _fields_of(bytes(part))]
            data += part
        yield Case(name, "set", data, tuple(places))


# ---- numbers -------------------------------------------------------------------------------------


def _numbers() -> Iterator[Case]:
    stamps = np.arange(1_000_000, 1_000_000 + 16_000, 1000, "<i8")
    yield Case("stamps", "stamps", stamps.tobytes(), numbers=True)
    pairs = np.array([(0, 80), (0, 61), (80, 0), (7, 73)] * 16, "<i8")
    yield Case("pairs", "pairs", pairs.tobytes(), numbers=True)


# ---- frames --------------------------------------------------------------------------------------


def _frames() -> Iterator[Case]:
    for version in (7, 9, 11):
        for name in ("one-0", "some-3"):
            one = next(case for case in _batches() if case.name == name)
            tags = ((25206, one.tag),) if version >= 9 and one.tag else ()
            for parts in (1, 3):
                partitions = [("topic", i, one.data) for i in range(parts)]
                data = produce_frame(77, *partitions, version=version, tags=tags)
                kind = f"produce-{version}-{name}-{parts}"
                places = _ends(data, one.data)
                yield Case(kind, "produce", data, places, version=version)
                yield Case(f"{kind}-twice", "frames", data * 2, places, version=version)
    for version in (7, 9, 11):
        request = produce_frame(1, ("topic", 0, b""), version=version)
        answer = answered(request[4:])
        assert answer is not None
        yield Case(f"answer-{version}", "answer", answer, _ends(answer, b""), version=version)
    brokers = [MetadataResponseBroker(node_id=i, host=f"broker-{i}", port=9092) for i in range(3)]
    for version in (5, 12):
        data = b"".join(MetadataResponse(brokers=brokers).encode(1, version))[4:]
        yield Case(f"metadata-{version}", "metadata", data, _ends(data, b""), version=version)
    for version in (4, 11, 12):
        one = _batch(_SHAPES["some"], 0, 50)
        parts = [PartitionData(i, 0, 10, 10, records=one * (i + 1)) for i in range(3)]
        response = FetchResponse(0, responses=[FetchableTopicResponse("topic", partitions=parts)])
        data = b"".join(response.encode(1, version))[4:]
        yield Case(f"fetch-{version}", "fetch", data, _ends(data, one), version=version)
    for version in (16, 18):
        one = _batch(_SHAPES["some"], 0, 50)
        parts = [PartitionData(i, 0, 10, 10, records=one * (i + 1)) for i in range(3)]
        response = FetchResponse(
            responses=[FetchableTopicResponse(partitions=parts)],
            node_endpoints=[FetchNodeEndpoint(i, f"broker-{i}", 9092) for i in range(3)],
        )
        data = b"".join(response.encode(1, version))
        yield Case(f"tail-{version}", "tail", data, _ends(data, one), version=version)


def _ends(data: bytes, contents: bytes) -> tuple[tuple[int, int], ...]:
    """Return each byte outside ``contents``, and some lengths there."""
    inside: set[int] = set()
    at = data.find(contents) if contents else -1
    while at >= 0:
        inside.update(range(at + 17, at + len(contents)))
        at = data.find(contents, at + 1)
    outside = [at for at in range(len(data)) if at not in inside]
    sizes = [(at, 4) for at in outside[::3] if at + 4 <= len(data)]
    return (*((at, 1) for at in outside), *sizes)


@cache
def cases() -> tuple[Case, ...]:
    """Return all of them."""
    return (*_batches(), *_claimed(), *_legacy(), *_sets(), *_numbers(), *_frames())
