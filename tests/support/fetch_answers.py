"""Random answers to Fetch, as a broker's log would give them, and what Kafka 3.9 makes of them.

answer(rng)              batches of one partition, in the order of their offsets
bytes_of(batches)        as they are sent
aborted_in(batches)      (producer id, first offset) of the transactions that were aborted
expected(batches, ...)   the messages of RecordsUtil.downConvert, by rules in plain Python
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tests.support.batches import GZIP, NONE, NOW, ZSTD, batch, message, record, wrapper

__all__ = [
    "CONTROL",
    "LOG_APPEND_TIME",
    "TRANSACTIONAL",
    "Converted",
    "Row",
    "Sent",
    "aborted_in",
    "answer",
]
__all__ += ["bytes_of", "expected", "marker"]

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
ABORT, COMMIT = 0, 1
_SIZES = (None, 0, 1, 5, 40, 63, 64, 200)


class Row(NamedTuple):
    """A record before it is converted."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Converted(NamedTuple):
    """A message of an old format; ``codec`` is that of its wrapper."""

    magic: int
    codec: int
    offset: int
    timestamp: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None


@dataclass
class Sent:
    """One batch, or one message of magic 0 or 1."""

    magic: int
    codec: int
    base_offset: int
    last_offset: int
    data: bytes
    as_gzip: bytes  # the same where it is not zstd
    rows: list[Row] = field(default_factory=list)
    log_append_time: int | None = None
    producer_id: int = -1
    is_transactional: bool = False
    marker: int | None = None


def marker(kind: int) -> bytes:
    """Return the record of an end-transaction marker."""
    return record(0, b"\0\0" + kind.to_bytes(2, "big"), bytes(6))


def bytes_of(batches: Iterable[Sent]) -> bytes:
    """Return the batches as they lie in an answer."""
    return b"".join(one.data for one in batches)


def _some(rng: random.Random) -> bytes | None:
    size = rng.choice(_SIZES)
    return None if size is None else rng.choice((rng.randbytes(size), b"a" * size))


def _rows(rng: random.Random, base: int, timestamps: Sequence[int]) -> list[Row]:
    offset, found = base + rng.choice((0, 0, 0, 3)), []
    for _ in range(rng.choice((0, 1, 1, 2, 5, 30))):
        found.append(
            Row(offset, rng.choice(timestamps) + rng.randrange(1000), _some(rng), _some(rng))
        )
        offset += rng.choice((1, 1, 1, 1, 2, 700))
    return found


def _default(rng: random.Random, base: int, producer_id: int, sequence: int) -> Sent:
    rows = _rows(rng, base, (NOW, 0, NOW + 10**9))
    last = (rows[-1].offset if rows else base) + rng.choice((0, 0, 0, 1, 5))
    # what the cleaner leaves of a batch without records says no codec
    codec, appended = rng.randrange(5) if rows else NONE, rng.choice((None, None, NOW + 77))
    transactional = producer_id >= 0 and rng.random() < 0.8
    base_timestamp = rows[0].timestamp if rows else NOW
    headers = [(), (), [(b"h", b"x"), (b"h", None)]]
    compressed = partial(
        batch,
        [
            record(
                row.offset - base,
                row.key,
                row.value,
                rng.choice(headers),
                row.timestamp - base_timestamp,
            )
            for row in rows
        ],
        base_offset=base,
        partition_leader_epoch=rng.choice((-1, 0, 9)),
        attributes=(TRANSACTIONAL if transactional else 0)
        | (0 if appended is None else LOG_APPEND_TIME),
        last_offset_delta=last - base,
        base_timestamp=base_timestamp,
        max_timestamp=max((row.timestamp for row in rows), default=-1)
        if appended is None
        else appended,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
        records_count=len(rows),
    )
    data = compressed(codec=codec)
    as_gzip = compressed(codec=GZIP) if codec == ZSTD else data
    return Sent(2, codec, base, last, data, as_gzip, rows, appended, producer_id, transactional)


def _marker(rng: random.Random, base: int, producer_id: int) -> Sent:
    kind = rng.choice((ABORT, COMMIT))
    data = batch(
        [marker(kind)],
        base_offset=base,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=0,
    )
    return Sent(
        2, NONE, base, base, data, data, producer_id=producer_id, is_transactional=True, marker=kind
    )


def _legacy(rng: random.Random, base: int) -> Sent:
    magic, codec, appended = rng.randrange(2), rng.choice((NONE, NONE, GZIP, 2, 3)), None
    rows = _rows(rng, base, (NOW,)) or [Row(base, NOW, b"k", None)]
    attributes = 0
    if magic and rng.random() < 0.3:
        appended, attributes = NOW + 88, LOG_APPEND_TIME
    if codec == NONE:
        row = rows[0]
        time = row.timestamp if appended is None else appended
        data = message(
            magic,
            offset=row.offset,
            key=row.key,
            value=row.value,
            timestamp=time,
            attributes=attributes,
        )
        return Sent(magic, codec, row.offset, row.offset, data, data, [row], appended)
    first = rows[0].offset if magic else 0
    inner = [
        message(
            magic, offset=row.offset - first, key=row.key, value=row.value, timestamp=row.timestamp
        )
        for row in rows
    ]
    time = max(row.timestamp for row in rows) if appended is None else appended
    data = wrapper(
        inner, codec, magic, offset=rows[-1].offset, timestamp=time, attributes=attributes
    )
    return Sent(magic, codec, rows[0].offset, rows[-1].offset, data, data, rows, appended)


def answer(rng: random.Random, most: int = 5) -> list[Sent]:
    """Return up to ``most`` batches of every kind; their offsets increase, with gaps.

    In every third answer two producers write one transaction after another.
    """
    offset = rng.choice((0, 0, 1, 1000, 2**31 - 3, 2**40))
    has_transactions = rng.random() < 0.33
    found: list[Sent] = []
    for _ in range(rng.randrange(most) + 1 + 3 * has_transactions):
        kind = rng.random()
        # a wrapper of offset 0 has a meaning of its own
        if kind < 0.2 and offset and not has_transactions:
            one = _legacy(rng, offset)
        elif kind < 0.35:
            one = _marker(rng, offset, rng.choice((5, 6)))
        else:
            one = _default(
                rng,
                offset,
                rng.choice((5, 6) if has_transactions else (-1, -1, 5, 6)),
                offset % 2**31,
            )
        found.append(one)
        offset = one.last_offset + rng.choice((1, 1, 1, 2, 100))
    return found


def aborted_in(batches: Iterable[Sent]) -> list[tuple[int, int]]:
    """Return the aborted transactions as Fetch 4 lists them: in the order of their markers."""
    begun: dict[int, int] = {}
    found = []
    for one in batches:
        if one.marker is not None:
            first = begun.pop(one.producer_id, None)
            if one.marker == ABORT and first is not None:
                found.append((one.producer_id, first))
        elif one.is_transactional:
            begun.setdefault(one.producer_id, one.base_offset)
    return found


def _is_aborted(one: Sent, waiting: list[tuple[int, int]], active: set[int]) -> bool:
    """Return whether one batch is aborted, as CompletedFetch.nextFetchedRecord does."""
    if one.producer_id < 0:
        return False
    while waiting and waiting[0][1] <= one.last_offset:
        active.add(waiting.pop(0)[0])
    if one.marker == ABORT:
        active.discard(one.producer_id)
        return False
    return one.is_transactional and one.producer_id in active


def expected(
    batches: Iterable[Sent],
    to_magic: int,
    first_offset: int = 0,
    aborted: Iterable[tuple[int, int]] = (),
) -> list[Converted]:
    """Return the messages that an old consumer reads."""
    waiting, active = sorted(aborted, key=lambda pair: pair[1]), set[int]()
    found = []
    for one in batches:
        if _is_aborted(one, waiting, active) or one.marker is not None:
            continue
        magic = min(one.magic, to_magic)
        is_appended = magic > 0 and one.log_append_time is not None
        for row in one.rows:
            if one.magic > to_magic and one.codec == NONE and row.offset < first_offset:
                continue
            time = one.log_append_time if is_appended else row.timestamp
            assert time is not None
            codec = GZIP if one.codec == ZSTD else one.codec
            found.append(
                Converted(
                    magic, codec, row.offset, time if magic else -1, is_appended, row.key, row.value
                )
            )
    return found
