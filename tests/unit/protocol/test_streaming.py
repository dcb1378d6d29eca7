"""A frame that is streamed has the bytes of the same frame read whole, however its bytes come."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import socket
from collections.abc import Callable, Iterator

import pytest

from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import (
    FrameError,
    FrameSplitter,
    allocated,
    limit_memory,
    poison_released,
)

Decide = Callable[[], bool]
SIZES = (500, 508, 509, 520, 4096, 20_000, 70_000, 300_000, 1_200_000)
READS = (1, 2, 3, 7, 16, 40, 511, 512, 513, 5000, 33_000, 100_000, 262_144, 1 << 21)


@pytest.fixture(autouse=True)
def unlimited() -> Iterator[None]:
    before = poison_released(True)
    yield
    poison_released(before)
    limit_memory(0)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def some_size(rng: random.Random) -> int:
    return rng.randrange(40) if rng.random() < 0.4 else rng.choice(SIZES)


def by_buffer(splitter: FrameSplitter, piece: bytes) -> Iterator[list[memoryview]]:
    """Read as asyncio does; yields what each read hands out."""
    left = memoryview(piece)
    while left:
        space = splitter.get_buffer()
        size = min(len(space), len(left))
        assert size > 0
        space[:size] = left[:size]
        del space
        yield splitter.buffer_updated(size)
        left = left[size:]


def by_feed(splitter: FrameSplitter, piece: bytes) -> Iterator[list[memoryview]]:
    yield splitter.feed(piece)


WAYS = {"buffer": by_buffer, "feed": by_feed}


def through(
    splitter: FrameSplitter, stream: bytes, reads: Iterator[int], way: str, decide: Decide
) -> list[bytes]:
    """The frames (streamed ones put together), looked at when all were read."""
    parts: list[list[memoryview]] = []
    streamed = False
    at = 0
    while at < len(stream):
        piece = stream[at : at + next(reads)]
        at += len(piece)
        for items in WAYS[way](splitter, piece):
            if streamed and items:
                parts[-1].append(items.pop(0))
                streamed = splitter.streaming > 0
                assert splitter.streaming == 0 or not items
            parts += [[item] for item in items]
            partial = splitter.partial
            if partial is not None and decide():
                shown = bytes(partial)
                assert partial.readonly
                size = splitter.partial_size
                first = splitter.stream_partial()
                assert not first.readonly
                assert first == shown
                assert (splitter.partial, splitter.partial_size, splitter.buffered) == (None, 0, 0)
                assert splitter.streaming == size - len(first) - (0 if splitter.whole else 4)
                parts.append([first])
                streamed = True
    assert splitter.streaming == splitter.buffered == 0
    assert splitter.partial is None
    return [b"".join(one) for one in parts]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("limit", [0, 1, 1 << 20, 8 << 20])
def test_any_reads_streamed_or_not_give_the_same_frames(way: str, limit: int) -> None:
    gc.collect()
    start = allocated()
    for seed in range(50):
        rng = random.Random(seed)
        limit_memory(limit and limit + start)
        whole = rng.random() < 0.5
        bodies = [rng.randbytes(some_size(rng)) for _ in range(rng.randint(1, 12))]
        reads = [rng.choice(READS) for _ in range(rng.randint(1, 8))]
        if sum(map(len, bodies)) // max(reads) > 5000:
            reads.append(5000)
        often = rng.choice([0.1, 0.5, 1])
        found = through(
            FrameSplitter(whole=whole),
            b"".join(map(framed, bodies)),
            itertools.cycle(reads),
            way,
            lambda r=rng, share=often: r.random() < share,  # type: ignore[misc]
        )
        assert found == [framed(body) if whole else body for body in bodies], seed
        assert allocated() == start


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("whole", [False, True])
def test_every_split_of_short_frames(way: str, whole: bool) -> None:
    bodies = [b"", b"a" * 11, b"b" * 12, b"c" * 13, b"d" * 700, b"e"]
    stream = b"".join(map(framed, bodies))
    for first in range(1, len(stream)):
        reads = itertools.chain([first], itertools.repeat(97))
        found = through(FrameSplitter(whole=whole), stream, reads, way, lambda: True)
        assert found == [framed(body) if whole else body for body in bodies]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_shown_of_a_partial_frame(way: str, whole: bool) -> None:
    stream = framed(bytes(range(256)) * 8)
    splitter = FrameSplitter(whole=whole)
    for at in range(1, len(stream)):
        assert list(WAYS[way](splitter, stream[at - 1 : at])) == [[]]
        assert splitter.partial_size == (0 if at < 4 else len(stream))
        assert splitter.partial == (None if at < 16 else stream[0 if whole else 4 : at])
        if at < 16:
            with pytest.raises(ProtocolError, match=f"16 bytes of it have come, not {at}"):
                splitter.stream_partial()
    assert list(WAYS[way](splitter, stream[-1:])) == [[stream if whole else stream[4:]]]
    assert (splitter.partial, splitter.partial_size) == (None, 0)


def test_a_partial_view_keeps_its_bytes() -> None:
    splitter = FrameSplitter()
    stream = framed(bytes(range(256)) * 20_000)
    shown = []
    for at in range(0, len(stream), 300_000):
        list(by_buffer(splitter, stream[at : at + 300_000]))
        shown.append(splitter.partial)
    assert shown.pop() is None
    assert all(view == stream[4 : 4 + len(view)] for view in shown if view is not None)


def test_a_stream_cannot_be_streamed_again() -> None:
    splitter = FrameSplitter()
    list(by_buffer(splitter, framed(bytes(10_000))[:5000]))
    splitter.stream_partial()
    with pytest.raises(ProtocolError, match="16 bytes"):
        splitter.stream_partial()
    assert splitter.streaming == 5004


@pytest.mark.parametrize("read", [100, 3000, 70_000, 1 << 20])
@pytest.mark.parametrize("limit", [0, 1])
def test_a_stream_takes_memory_as_its_pieces_do(read: int, limit: int) -> None:
    """Pieces that are released at once: at most two read blocks at a time."""
    limit_memory(limit)
    body = bytes(8 << 20)
    splitter = FrameSplitter(whole=True)
    stream = memoryview(framed(body))
    list(by_buffer(splitter, bytes(stream[:100])))
    size = len(splitter.stream_partial())
    gc.collect()
    start = allocated()
    block = 4 << 10 if limit else 256 << 10
    for at in range(100, min(len(stream), 100 + 2000 * read), read):
        for items in by_buffer(splitter, bytes(stream[at : at + read])):
            size += sum(map(len, items))
            del items
            assert allocated() - start <= 2 * block
    assert size == len(stream) - splitter.streaming


def test_small_pieces_do_not_hold_whole_blocks() -> None:
    splitter = FrameSplitter(whole=True)
    list(by_buffer(splitter, framed(bytes(1 << 20))[:100]))
    held = [splitter.stream_partial()]
    start = allocated()
    for _ in range(300):
        for items in by_buffer(splitter, bytes(1400)):
            held += items
    assert allocated() - start <= 300 * 1400
    assert splitter.held_bytes == 0  # a connection that waits holds no block


def test_pieces_share_blocks() -> None:
    """Pieces of 40 kB that are all held: less than a tenth of the memory is not theirs."""
    splitter = FrameSplitter(whole=True)
    list(by_buffer(splitter, framed(bytes(16 << 20))[:100]))
    held = [splitter.stream_partial()]
    start = allocated()
    for _ in range(300):
        for items in by_buffer(splitter, bytes(40_000)):
            held += items
    assert allocated() - start <= 300 * 40_000 * 1.1


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_length_after_a_stream_comes_with_its_last_piece(way: str) -> None:
    splitter = FrameSplitter(100_000, whole=True)
    stream = framed(b"a" * 50_000)
    list(WAYS[way](splitter, stream[:20_000]))
    splitter.stream_partial()
    with pytest.raises(FrameError, match="frame length -1 is negative") as refused:
        list(WAYS[way](splitter, stream[20_000:] + framed(b"next") + b"\xff" * 4))
    assert refused.value.frames == [stream[20_000:], framed(b"next")]
    assert splitter.streaming == splitter.buffered == splitter.held_bytes == 0
    assert splitter.partial is None
    with pytest.raises(FrameError):
        splitter.stream_partial()


# ---- the limit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_the_limit_may_change_between_frames(way: str) -> None:
    splitter = FrameSplitter(100)
    assert list(WAYS[way](splitter, framed(b"a" * 100))) == [[b"a" * 100]]
    splitter.max_frame_bytes = 1000
    assert splitter.max_frame_bytes == 1000
    assert list(WAYS[way](splitter, framed(b"b" * 1000))) == [[b"b" * 1000]]
    splitter.max_frame_bytes = 10
    with pytest.raises(FrameError, match="above the limit of 10"):
        list(WAYS[way](splitter, framed(b"c" * 11)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("begun", [4, 20, 700, 2000])
def test_a_frame_that_has_begun_may_go_on_below_a_lower_limit(way: str, begun: int) -> None:
    splitter = FrameSplitter(5000)
    stream = framed(b"a" * 5000)
    list(WAYS[way](splitter, stream[:begun]))
    splitter.max_frame_bytes = 100
    items = [
        *WAYS[way](splitter, stream[begun:3000]),
        *WAYS[way](splitter, stream[3000:] + framed(b"b" * 100)),
    ]
    assert list(itertools.chain(*items)) == [b"a" * 5000, b"b" * 100]
    with pytest.raises(FrameError, match="above the limit of 100"):
        list(WAYS[way](splitter, framed(b"c" * 101)))


@pytest.mark.parametrize("way", WAYS)
def test_a_length_that_is_not_whole_is_not_judged_yet(way: str) -> None:
    splitter = FrameSplitter(5000)
    stream = framed(b"a" * 5000)
    list(WAYS[way](splitter, stream[:3]))
    splitter.max_frame_bytes = 4999
    with pytest.raises(FrameError, match="above the limit of 4999"):
        list(WAYS[way](splitter, stream[3:]))


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_a_limit_that_is_not_possible_changes_nothing(limit: int) -> None:
    splitter = FrameSplitter(100)
    with pytest.raises(ProtocolError, match="max_frame_bytes must be"):
        splitter.max_frame_bytes = limit
    assert splitter.max_frame_bytes == 100


# ---- a real loop ---------------------------------------------------------------------------------


class _Reader(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.splitter = FrameSplitter(whole=True)
        self.items: list[memoryview] = []
        self.lost = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.splitter.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.items += self.splitter.buffer_updated(nbytes)
        if self.splitter.partial is not None:
            self.items.append(self.splitter.stream_partial())

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


def test_streams_from_a_socket() -> None:
    rng = random.Random(5)
    stream = b"".join(
        framed(rng.randbytes(rng.choice([0, 100, 5000, 3_000_000]))) for _ in range(20)
    )

    async def read() -> bytes:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        here.setblocking(False)
        there.setblocking(False)
        _, protocol = await loop.create_connection(_Reader, sock=here)
        await loop.sock_sendall(there, stream)
        there.close()
        await protocol.lost
        return b"".join(protocol.items)

    assert asyncio.run(read()) == stream
