"""Batches whose claims are false, malformed or another batch's, for each codec and carrier.

The cases of `tests/unit/core/test_lies.py`, and those of version 2: sizes, schema ids, blocks that
cannot be read, tags with another crc, a tag and a payload that differ. A case is bytes to send;
what a broker answers without claims and what a ledger makes of them is for `batchval` and a stock
broker to say.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from batchval.core.claims import BatchClaims, attach, carrier_of, compute, to_tag
from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from tests.support.batches import (
    GZIP,
    HEADER,
    LZ4,
    NONE,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    compress,
    crc32c,
    fields,
    message,
    record,
    records,
    uvarint,
    with_crc,
)
from tests.support.claims import block, carry, sizes_of, tag
from tests.unit.core.test_lies import BROKEN, DELTAS, KEYED, STREAMS, TRUE, keyed

__all__ = ["CODECS", "HOUR", "TOPICS", "Case", "cases", "crc_of", "honest"]

HOUR = 3_600_000
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
CARRIERS = ("tag", "block", "payload")
#: What `docs/concepts/claims.md` bounds a batch with that is read to verify its claims.
LIMIT = 64 << 20
MAX_RECORD_BYTES = 1000

#: The configuration of topics by their kind; keys as Kafka has them.
TOPICS: dict[str, dict[str, str]] = {
    "plain": {"max.message.bytes": str(8 << 20)},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"},
    "bounded": {"max.decompressed.message.bytes": str(MAX_RECORD_BYTES)},
    "fresh": {
        "message.timestamp.before.max.ms": str(HOUR),
        "message.timestamp.after.max.ms": str(HOUR),
    },
}


#: Cases that a broker refuses, or cuts to the whole batches, before LogValidator sees them.
_EARLIER = (
    "transactional, no producer",
    "base offset 5",
    "no crc",
    "two batches",
    "bytes after the batch",
)
#: Attributes that nobody knows are refused by the library's extra S1; Kafka accepts them, and the
#: agent lets Kafka read such a batch.
_NOT_SETTLED = ("an unknown attribute",)


class Case(NamedTuple):
    """One batch for a topic of one kind."""

    name: str
    kind: str
    records: bytes
    tag: bytes | None

    @property
    def reaches_the_validator(self) -> bool:
        return not self.name.startswith(_EARLIER)

    @property
    def is_compressed(self) -> bool:
        """Return whether the records are one whole compressed batch of magic 2."""
        return len(self.records) >= HEADER and self.records[16] == 2 and self.records[22] & 7 != 0

    @property
    def may_settle(self) -> bool:
        return not self.name.startswith(_NOT_SETTLED)

    @property
    def policy(self) -> TopicPolicy:
        """Return the topic's configuration for the library."""
        return TopicPolicy.from_kafka_config(TOPICS[self.kind])


def crc_of(data: bytes) -> int:
    return int(struct.unpack_from(">I", data, 17)[0])


def honest(data: bytes, carrier: str) -> tuple[bytes, bytes | None]:
    """Return the batch to send with the claims that are true of it, and its tag.

    Where the payload of its codec carries no claims, ``payload`` stands for a tag.
    """
    true = compute(data)
    assert true is not None
    if carrier == "payload":
        try:
            return attach(data, true, carrier="payload"), None
        except BatchvalError:
            pass
    if carrier == "tag":
        return data, tag(true[:3], data)
    return data, to_tag(true, crc_of(data))


def _carried(name: str, kind: str, stated: tuple[int, ...], data: bytes) -> Iterator[Case]:
    """Yield the case in each carrier that the batch can have."""
    for carrier in CARRIERS:
        sent, its_tag = carry(carrier, stated, data)
        if carrier == "payload" and carrier_of(sent) != "payload":
            continue
        yield Case(f"{name}, {carrier}", kind, sent, its_tag)


def _three_claims(codec: int) -> Iterator[Case]:
    """Yield lies about the claims of version 1 and about the header's max timestamp."""
    good = keyed(codec)
    yield from _carried("the truth", "plain", TRUE, good)
    yield from _carried("the truth", "compacted", TRUE, good)
    yield from _carried("the truth", "bounded", TRUE, good)
    for by in (1, 20, -1, -NOW):
        stated = TRUE._replace(batch_min_timestamp=NOW + by)
        yield from _carried(f"minimum {by:+}", "plain", stated, good)
    for by in (1, -1, -3, -4, 2**31 - 4):
        yield from _carried(f"count {by:+}", "plain", TRUE._replace(records_number=3 + by), good)
    for count in (2, 4, 1000):
        data = keyed(codec, records_count=count)
        yield from _carried(
            f"count {count} in both", "plain", TRUE._replace(records_number=count), data
        )
        data = keyed(codec, records_count=count, last_offset_delta=2)
        yield from _carried(
            f"count {count}, delta 2", "plain", TRUE._replace(records_number=count), data
        )
    for by in (1, -1, HOUR + 1, -21, -NOW - 21):
        yield from _carried(
            f"max timestamp {by:+}", "plain", TRUE, keyed(codec, max_timestamp=NOW + 20 + by)
        )
    for name, keys, lies in (
        ("no keys", [None] * 3, (0, 2, 3, -1)),
        ("keys", [b"k"] * 3, (1, 3, -1)),
        ("some keys", [b"k", None, b""], (1, 2, 3, -1)),
    ):
        data = batch([record(i, key=key) for i, key in enumerate(keys)], codec=codec)
        for lie in lies:
            for kind in ("plain", "compacted"):
                yield from _carried(f"{name}, null_keys {lie}", kind, (NOW, 3, lie), data)


def _times(codec: int) -> Iterator[Case]:
    """Yield records outside the topic's limits, under min and max timestamps within them."""
    now = int(time.time() * 1000)
    for name, delta in (("too old", -2 * HOUR), ("too new", 2 * HOUR)):
        parts = [record(0, key=b"k"), record(1, key=b"k", timestamp_delta=delta)]
        hidden = batch(parts, codec=codec, base_timestamp=now, max_timestamp=now)
        yield from _carried(f"{name}, hidden", "fresh", (now, 2, 2), hidden)
        open_ = batch(parts, codec=codec, base_timestamp=now, max_timestamp=now + max(delta, 0))
        yield from _carried(f"{name}, not hidden", "fresh", (now + min(delta, 0), 2, 2), open_)
    parts = [record(0, timestamp_delta=-NOW - 5), record(1)]
    yield from _carried("timestamp below -1", "plain", (NOW, 2, 1), batch(parts, codec=codec))
    parts = [record(0, timestamp_delta=-NOW - 1), record(1)]
    yield from _carried("no timestamp", "plain", (-1, 2, 1), batch(parts, codec=codec))
    yield from _carried("no timestamp, hidden", "plain", (NOW, 2, 1), batch(parts, codec=codec))


def _records(codec: int) -> Iterator[Case]:
    """Yield broken records, offset deltas and streams under claims that are otherwise true."""
    for name, parts in BROKEN.items():
        yield from _carried(name, "plain", TRUE, keyed(codec, parts=parts))
    for name, deltas in DELTAS.items():
        parts = [
            record(d, key=b"k", timestamp_delta=t) for d, t in zip(deltas, (10, 0, 20), strict=True)
        ]
        yield from _carried(f"deltas {name}", "plain", TRUE, keyed(codec, parts=parts))
    good = compress(codec, b"".join(KEYED))
    for name, damage in STREAMS.items():
        yield from _carried(f"stream: {name}", "plain", TRUE, keyed(codec, payload=damage(good)))
    other = ZSTD if codec == LZ4 else LZ4
    yield from _carried(
        "another codec", "plain", TRUE, keyed(codec, payload=compress(other, b"".join(KEYED)))
    )


def _headers(codec: int) -> Iterator[Case]:
    """Yield attributes and headers that claims do not settle or that are always rejected."""
    headers: dict[str, dict[str, Any]] = {
        "control batch": {"attributes": 0x20},
        "transactional, no producer": {"attributes": 0x10},
        "LogAppendTime": {"attributes": 8},
        "an unknown attribute": {"attributes": 0x100},
        "base offset 5": {"base_offset": 5},
        "no crc": {"crc": 1},
        "count 0": {"records_count": 0, "last_offset_delta": 0},
        "count -1": {"records_count": -1},
        "sequence without a producer": {"base_sequence": 3},
    }
    for name, fields_ in headers.items():
        yield from _carried(name, "plain", TRUE, keyed(codec, **fields_))
    yield Case("two batches, tag", "plain", keyed(codec) * 2, tag(TRUE, keyed(codec)))
    yield Case(
        "bytes after the batch, tag", "plain", keyed(codec) + b"xyz", tag(TRUE, keyed(codec))
    )


def _sizes(codec: int) -> Iterator[Case]:
    """Yield claims of version 2 with sizes that are wrong, too small, too large or
    contradictory.
    """
    good = keyed(codec)
    whole, longest = sizes_of(good)
    lies = {
        "uncompressed_bytes +1": (whole + 1, longest),
        "uncompressed_bytes -1": (whole - 1, longest),
        "uncompressed_bytes 60": (60, longest),
        "uncompressed_bytes at the limit": (LIMIT, longest),
        "uncompressed_bytes too large": (2**31 - 1, longest),
        "uncompressed_bytes negative": (-1, longest),
        "max_record_bytes +1": (whole, longest + 1),
        "max_record_bytes -1": (whole, longest - 1),
        "max_record_bytes 0": (whole, 0),
        "max_record_bytes negative": (whole, -1),
        "max_record_bytes above the records": (whole, whole),
    }
    for name, sizes in lies.items():
        claims = BatchClaims(*TRUE, *sizes)
        yield Case(f"{name}, block", "plain", good, to_tag(claims, crc_of(good)))
        if codec in (GZIP, ZSTD):
            yield Case(f"{name}, payload", "plain", attach(good, claims, carrier="payload"), None)
    large = batch(
        [record(0, key=b"k", value=b"x" * (2 * MAX_RECORD_BYTES)), record(1, key=b"k")], codec=codec
    )
    true = compute(large)
    assert true is not None
    small = BatchClaims(*true[:4], MAX_RECORD_BYTES)
    for name, claims in (("honest", true), ("hidden", small)):
        yield Case(
            f"a record too large, {name}, block", "bounded", large, to_tag(claims, crc_of(large))
        )
        if codec in (GZIP, ZSTD):
            sent = attach(large, claims, carrier="payload")
            yield Case(f"a record too large, {name}, payload", "bounded", sent, None)
    yield Case("a record too large, honest, tag", "bounded", large, tag(true[:3], large))


def _wire(number: int) -> bytes:
    return b"\0" + struct.pack(">i", number) + b"avro"


def _field_1(*ids: int, flags: int = 1) -> bytes:
    return struct.pack(f">B{len(ids)}i", flags, *ids)


#: Values, and contents of field 1 that are true of them, that are not, or that say nothing.
SCHEMA_IDS: dict[str, tuple[list[bytes | None], dict[str, bytes]]] = {
    "ids": (
        [_wire(9), _wire(7), _wire(9)],
        {
            "the truth": _field_1(7, 9),
            "one more": _field_1(7, 8, 9),
            "nothing of nulls": _field_1(7, 9, flags=0),
            "one less": _field_1(7),
            "another": _field_1(7, 8),
            "none": _field_1(),
            "17 ids": _field_1(*range(17)),
            "16 ids": _field_1(*range(16)),
            "an unknown flag": _field_1(3, flags=3),
            "ids that fall": _field_1(9, 7),
            "an id twice": _field_1(3, 3),
            "a byte more": _field_1(3) + b"\0",
            "no byte": b"",
        },
    ),
    "a null value": (
        [_wire(7), None],
        {"the truth": _field_1(7, flags=0), "no value is null": _field_1(7)},
    ),
    "all null": ([None, None], {"the truth": _field_1(flags=0), "no value is null": _field_1()}),
    "an empty value": ([_wire(7), b""], {"ids": _field_1(7, flags=0)}),
    "4 bytes": ([b"\0\0\0\7"], {"ids": _field_1(7)}),
    "5 bytes": ([b"\0\0\0\0\7"], {"the truth": _field_1(7)}),
    "another first byte": ([_wire(7), b"\1" + _wire(7)[1:]], {"ids": _field_1(7)}),
    "17 ids": ([_wire(n) for n in range(17)], {"16 of them": _field_1(*range(16))}),
}


def _schema_ids(codec: int) -> Iterator[Case]:
    """Yield field 1: lists of schema ids that are true, incomplete, false or malformed."""
    for name, (values, contents) in SCHEMA_IDS.items():
        data = batch(
            [record(i, key=b"k", value=value) for i, value in enumerate(values)], codec=codec
        )
        true = compute(data)
        assert true is not None
        for stated, content in contents.items():
            case = f"{name}: {stated}"
            claims = true._replace(fields=((1, content),))
            yield Case(f"{case}, block", "plain", data, to_tag(claims, crc_of(data)))
            if codec in (GZIP, ZSTD):
                sent = attach(data, claims, carrier="payload")
                yield Case(f"{case}, payload", "plain", sent, None)


def _tags(codec: int) -> Iterator[Case]:
    """Yield unreadable tags and blocks, and tags of another batch."""
    good = keyed(codec)
    crc = good[17:21]
    other = batch(records(5, key=b"k"), codec=codec, base_timestamp=NOW - 5000)
    blocks = {
        "version 0": b"\0" + block(TRUE, good)[1:],
        "version 3": b"\3" + block(TRUE, good)[1:],
        "version -1": b"\xff" + block(TRUE, good)[1:],
        "version 1 with the bytes of 2": b"\1" + block(TRUE, good)[1:],
        "one byte short": block(TRUE, good)[:-1],
        "one byte long": block(TRUE, good) + b"\0",
        "a count of fields without fields": block(TRUE, good)[:-1] + b"\1",
        "a padded count": block(TRUE, good)[:-1] + b"\x80\0",
        "a field past the end": block(TRUE, good)[:-1] + b"\1\5\7ab",
        "fields that fall": block(TRUE, good)[:-1] + b"\2\7\0\6\0",
        "a field twice": block(TRUE, good)[:-1] + b"\2\7\0\7\0",
        "a number of 6 bytes": block(TRUE, good)[:-1] + b"\1\x80\x80\x80\x80\x80\1\0",
        "257 bytes": block(TRUE, good)[:-1] + b"\1\5" + uvarint(231) + bytes(231),
    }
    assert len(blocks["257 bytes"]) == 257
    for name, bytes_ in blocks.items():
        yield Case(f"block: {name}", "plain", good, bytes_ + crc)
        if codec == ZSTD:
            yield Case(f"block: {name}, payload", "plain", _framed(good, bytes_), None)
    known = block(TRUE, good)[:-1] + b"\2\5\2ab\x96\1\0"
    yield Case("block: fields that nobody knows", "plain", good, known + crc)
    yield Case("crc +1", "plain", good, tag(TRUE, good)[:-4] + struct.pack(">I", crc_of(good) ^ 1))
    yield Case("crc of another batch", "plain", good, block(TRUE, good) + other[17:21])
    yield Case("another batch's tag", "plain", good, tag((NOW - 5000, 5, 2), other))
    yield Case("another batch's claims", "plain", good, tag((NOW - 5000, 5, 2), good))
    yield Case("no bytes", "plain", good, b"")
    yield Case("70 kB", "plain", good, bytes(70_000))
    if codec in (GZIP, ZSTD):
        sent = attach(good, BatchClaims(*TRUE, *sizes_of(good)), carrier="payload")
        lie = TRUE._replace(null_keys=1)
        yield Case("tag and payload, equal", "plain", sent, block(TRUE, good) + sent[17:21])
        yield Case("tag 1 and payload, equal", "plain", sent, tag(TRUE, sent))
        yield Case(
            "tag and payload, a lie and the truth", "plain", sent, block(lie, good) + sent[17:21]
        )
        yield Case("tag of the batch before it carried", "plain", sent, block(TRUE, good) + crc)
        lying = attach(good, BatchClaims(*lie, *sizes_of(good)), carrier="payload")
        yield Case(
            "tag and payload, the truth and a lie", "plain", lying, block(TRUE, good) + lying[17:21]
        )
        yield Case("tag and payload, one lie", "plain", lying, block(lie, good) + lying[17:21])


def _framed(data: bytes, bytes_: bytes) -> bytes:
    """Put a skippable frame with this block before the payload of a zstd batch."""
    frame = struct.pack("<II", 0x184D2A5B, 2 + len(bytes_)) + b"BV" + bytes_
    head = data[:8] + struct.pack(">i", fields(data)["batch_length"] + len(frame)) + data[12:61]
    return with_crc(head + frame + data[61:])


@cache
def _bomb(codec: int, count: int) -> bytes:
    """Return a batch of ``count`` records of 1 MiB of zero bytes."""
    return batch([record(i, value=bytes(1 << 20)) for i in range(count)], codec=codec)


def _bombs(codec: int) -> Iterator[Case]:
    """Yield a batch that decompresses to more than `LIMIT`, under claims that hide or state it."""
    data = _bomb(codec, 66)
    yield Case("a bomb, hidden, tag", "plain", data, tag((NOW, 66, 1), data))
    hidden = BatchClaims(NOW, 66, 1, 10_000, 9000)
    yield Case("a bomb, hidden, block", "plain", data, to_tag(hidden, crc_of(data)))
    open_ = BatchClaims(NOW, 66, 1, 61 + 66 * ((1 << 20) + 13), (1 << 20) + 9)
    yield Case("a bomb, not hidden, block", "plain", data, to_tag(open_, crc_of(data)))


def _others() -> Iterator[Case]:
    """Yield batches without claims to compare: uncompressed, of old magics, empty."""
    yield from _carried("the truth, uncompressed", "plain", TRUE, keyed(NONE))
    yield from _carried("a lie, uncompressed", "plain", TRUE._replace(null_keys=1), keyed(NONE))
    for magic in (0, 1):
        old = message(magic)
        yield Case(f"magic {magic}", "plain", old, b"\1" + bytes(13) + old[17:21])
    three = keyed(ZSTD, magic=3)
    yield Case("magic 3", "plain", three, tag(TRUE, three))
    yield Case("nothing", "plain", b"", tag(TRUE, keyed(ZSTD)))
    yield Case("a piece", "plain", keyed(ZSTD)[:30], tag(TRUE, keyed(ZSTD)))
    assert crc32c(keyed(ZSTD)[21:]) == crc_of(keyed(ZSTD))


def cases(codec: str) -> list[Case]:
    """Return the cases of a codec, or those of batches without one (``none``)."""
    if codec == "none":
        return list(_others())
    number = CODECS[codec]
    makers = (_three_claims, _times, _records, _headers, _sizes, _schema_ids, _tags, _bombs)
    return [case for make in makers for case in make(number)]
