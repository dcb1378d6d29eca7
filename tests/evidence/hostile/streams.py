"""The target ``streams``: frames read whole and streamed, through FrameSplitter and FetchTail.

What must hold: whatever the reads, the limit of memory and the frames that are streamed, the same
bytes come out in order; what was handed out keeps its bytes while it is held; the count of memory
returns to where it was; a Fetch response with a rewritten tail is the same response with other
addresses.
"""

from __future__ import annotations

import random
from typing import Any

from batchval.protocol import messages
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import (
    FrameError,
    FrameSplitter,
    allocated,
    kept,
    limit_memory,
    poison_released,
)
from batchval.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchNodeEndpoint,
    PartitionData,
)
from batchval.protocol.walkers.fetch_tail import FetchTail, rewrite_tail

__all__ = ["stream_case"]

_VERSION = 16
_READS = (1, 3, 20, 100, 511, 512, 513, 5000, 40_000, 262_144)
_MAX_KEPT_BYTES = 24 << 20


def _response(rng: random.Random) -> bytes:
    partitions = [
        PartitionData(
            n, records=rng.choice((None, b"", rng.randbytes(rng.choice((5, 700, 30_000, 400_000)))))
        )
        for n in range(rng.randrange(4))
    ]
    topics = [FetchableTopicResponse(topic_id=rng.randbytes(16), partitions=partitions)]
    nodes = [
        FetchNodeEndpoint(n, "b" * rng.randrange(1, 30), 9092) for n in range(rng.randrange(3))
    ]
    return b"".join(
        messages.FetchResponse(responses=topics, node_endpoints=nodes).encode(7, _VERSION)
    )


def _frames(rng: random.Random) -> list[bytes]:
    found = []
    for _ in range(rng.randrange(1, 8)):
        size = rng.choice((0, 1, 11, 12, 13, 500, 508, 600, 5000, 70_000, 300_000, 1_200_000))
        plain = size.to_bytes(4, "big") + rng.randbytes(size)
        found.append(_response(rng) if rng.random() < 0.4 else plain)
    return found


class _Case:
    """One stream through one splitter. ``out``: the parts of each frame, held to the end."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.splitter = FrameSplitter(1 << 24, whole=True)
        self.out: list[list[memoryview]] = []
        self.held: list[memoryview] = []
        self.streamed = False

    def read(self, stream: bytes) -> int:
        """Read some bytes by one of both ways. Returns how many."""
        size = min(self.rng.choice(_READS), len(stream))
        if self.rng.random() < 0.3:
            self.take(self.splitter.feed(stream[:size]))
            return size
        buffer = self.splitter.get_buffer()
        size = min(len(buffer), size)
        buffer[:size] = stream[:size]
        del buffer
        self.take(self.splitter.buffer_updated(size))
        return size

    def take(self, items: list[memoryview]) -> None:
        if self.streamed and items:
            self.out[-1].append(items.pop(0))
            self.streamed = self.splitter.streaming > 0
        self.out += [[item] for item in items]
        partial = self.splitter.partial
        if partial is not None and self.rng.random() < 0.4:
            if self.rng.random() < 0.5:
                self.held.append(partial)
            self.out.append([self.splitter.stream_partial()])
            self.streamed = True


def _through(rng: random.Random, frames: list[bytes]) -> list[str]:
    case = _Case(rng)
    stream, at = b"".join(frames), 0
    while at < len(stream):
        at += case.read(stream[at : at + _READS[-1]])
        if rng.random() < 0.02:
            limit_memory(rng.choice((0, 1, 1 << 20, 64 << 20)))
    if [b"".join(parts) for parts in case.out] != frames:
        return ["the frames are others"]
    if case.splitter.streaming or case.splitter.buffered:
        return ["something is left of the last frame"]
    return [
        what
        for parts, frame in zip(case.out, frames, strict=True)
        for what in _tail(rng, parts, frame)
    ]


def _tail(rng: random.Random, parts: list[Any], frame: bytes) -> list[str]:
    """Pass a Fetch response on in its parts, with another tail."""
    try:
        before = messages.FetchResponse.decode(frame[4:], _VERSION)
    except ProtocolError:
        return []
    walk = FetchTail(1, _VERSION)
    head = b""
    for part in parts:
        passed = walk.feed(part)
        if passed < 0:
            return ["the walk refuses a response that can be read"]
        head += part[:passed]
    host = "g" * rng.randrange(1, 30)
    out = head + rewrite_tail(frame[len(head) :], 1, _VERSION, lambda *_: (host, 1))
    after = messages.FetchResponse.decode(out[4:], _VERSION)
    if len(out) != len(frame) or after.responses != before.responses:
        return ["a rewritten tail changes the response"]
    return [] if all(one.host == host for one in after.node_endpoints) else ["an address is left"]


def stream_case(seed: int) -> list[str]:
    """Return what goes wrong in the stream that follows from this number."""
    rng = random.Random(seed)
    start = allocated()
    poisoned = poison_released(rng.random() < 0.5)
    try:
        found = _through(rng, _frames(rng))
        if rng.random() < 0.2:  # what is not a frame ends a stream at any place
            case = _Case(rng)
            try:
                for _ in range(20):
                    case.read(rng.randbytes(3) + b"\xff" * rng.randrange(1, 900))
            except FrameError as refused:
                case.take(list(refused.frames))
            del case
    finally:
        poison_released(poisoned)
        limit_memory(0)
    if allocated() != start:
        found.append(f"{allocated() - start} bytes are still counted")
    return found if kept() <= _MAX_KEPT_BYTES else [*found, f"{kept()} bytes are kept"]
