"""The target ``fetch_answers``: answers to Fetch, whole and broken, read in pieces and read whole.

What must hold: an answer in pieces has the partitions of the same answer read whole, however its
bytes come; what the whole reader refuses, the pieces refuse; nothing but ProtocolError is raised;
and the frame after an answer is still read.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

from batchval.core.fetched import walk_fetched
from batchval.errors import NotABatch
from batchval.fetch.partition_chunks import FetchPieces, FetchSplitter
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tests.evidence.hostile.wire import broken

__all__ = ["fetch_case"]

_ID = 7
_AFTER = (4).to_bytes(4, "big") + b"next"
_LARGE = 64 << 10  # an answer of no more is not cut up


def _partition(rng: random.Random, version: int) -> PartitionData:
    data = PartitionData(rng.randrange(1 << 31), rng.choice((0, 0, 6)), rng.randrange(1 << 60), -1)
    size = rng.choice((0, 10, 1000, _LARGE // 2, _LARGE, 100_000))
    data.records = rng.choice((None, b"", bytes(size), rng.randbytes(size)))
    if rng.random() < 0.3:
        data.aborted_transactions = [AbortedTransaction(i, i + 1) for i in range(rng.randrange(4))]
    if version >= 12 and rng.random() < 0.3:
        data.unknown_tagged_fields = ((77, rng.randbytes(40)),)
    return data


def _answer(rng: random.Random, version: int) -> bytes:
    topics = [
        FetchableTopicResponse(
            rng.choice(("t", "größer", "x" * 249)),
            partitions=[_partition(rng, version) for _ in range(rng.randrange(4))],
        )
        for _ in range(rng.randrange(4))
    ]
    return b"".join(FetchResponse(rng.randrange(1 << 20), responses=topics).encode(_ID, version))[
        4:
    ]


def _whole(body: bytes, version: int) -> list[tuple[str, Any]] | None:
    try:
        answer = FetchResponse.decode(body, version)
    except ProtocolError:
        return None
    return [(topic.topic, data) for topic in answer.responses for data in topic.partitions]


def _in_pieces(
    body: bytes, version: int, rng: random.Random
) -> tuple[list[tuple[str, Any]] | None, bool]:
    """Return the partitions (None: refused), and whether the frame after the answer has come."""
    found: list[tuple[str, Any]] = []
    kept = rng.random() < 0.7

    def on_partition(topic: str, data: Any, ended: bool) -> None:
        if data.records is not None and rng.random() < 0.5:
            with contextlib.suppress(NotABatch):
                walk_fetched(
                    data.records, rng.choice((0, 5, 10**12)), check_crcs=rng.random() < 0.5
                )
        data.records = (
            None if data.records is None else data.records if kept else bytes(data.records)
        )
        found.append((topic, data))

    splitter = FetchSplitter(1 << 24)
    splitter.expect(_ID, FetchPieces(version, on_partition))
    stream, at, frames = len(body).to_bytes(4, "big") + body + _AFTER, 0, []
    step = rng.choice((9, 700, 5000, 1 << 20))
    try:
        while at < len(stream):
            target = splitter.get_buffer()
            size = min(
                len(target),
                len(stream) - at,
                rng.randrange(1, step) if at > 100 else rng.randrange(1, 9),
            )
            target[:size] = stream[at : at + size]
            at += size
            for frame in splitter.buffer_updated(size):
                frames.append(bytes(frame))
                if len(frame) == len(body) and len(frames) == 1:
                    FetchPieces(version, on_partition).read(frame)
    except ProtocolError:
        return None, False
    return found, frames[-1:] == [b"next"]


def fetch_case(seed: int) -> list[str]:
    """Return what is wrong with the reading of the answer that follows from this number."""
    rng = random.Random(seed)
    version = rng.randrange(4, 13)
    body = _answer(rng, version)
    if rng.random() < 0.6:
        # most of what can be wrong is at its start
        at = min(len(body), rng.choice((60, 300, len(body))))
        body = body[:4] + broken(rng, body[4:at]) + body[at:]
    expected = _whole(body, version)
    found, goes_on = _in_pieces(body, version, rng)
    if (found is None) != (expected is None):
        return [
            f"read whole: {'refused' if expected is None else 'taken'}; in pieces: otherwise (version {version})"
        ]
    if found is None or expected is None:
        return []
    if not goes_on:
        return ["the frame after the answer has not come"]
    return [] if found == expected else ["read in pieces, the answer has other partitions"]
