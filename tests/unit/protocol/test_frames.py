"""The splitter: frames whole, in order and owned, however the bytes come; lengths judged before a
byte is stored.
"""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from batchval import BatchvalError
from batchval.protocol.frames import (
    MAX_FRAME_BYTES,
    FrameError,
    FrameSplitter,
    SpareBlock,
    allocated,
)
from batchval.protocol.message import Chunks
from tests.support.fixtures import poisoned  # noqa: F401


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def bodies(seed: int, count: int = 60) -> list[bytes]:
    rng = random.Random(seed)
    sizes = [0, 1, 3, 100, 511, 512, 513, 1000, 40_000, 300_000]
    return [rng.randbytes(rng.choice(sizes)) for _ in range(count)]


def pieces(data: bytes, seed: int, sizes: list[int]) -> Iterator[bytes]:
    rng = random.Random(seed)
    at = 0
    while at < len(data):
        size = rng.choice(sizes)
        yield data[at : at + size]
        at += size


def through_feed(splitter: FrameSplitter, pieces: Iterator[bytes]) -> list[memoryview]:
    return [frame for piece in pieces for frame in splitter.feed(piece)]


def through_buffer(splitter: FrameSplitter, pieces: Iterator[bytes]) -> list[memoryview]:
    """As asyncio.BufferedProtocol does it."""
    found = []
    for piece in pieces:
        left = memoryview(piece)
        while left:
            space = splitter.get_buffer(65536)
            assert len(space) > 0
            size = min(len(space), len(left))
            space[:size] = left[:size]
            del space
            found += splitter.buffer_updated(size)
            left = left[size:]
    return found


WAYS = {"feed": through_feed, "buffer": through_buffer}
SIZES = {
    "small": [1, 2, 3, 7, 100, 5000],
    "large": [70_000, 300_000, 1_000_000],
    "mixed": [1, 4, 1 << 16, 1 << 20],
}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_frames_come_out_as_they_went_in(way: str, sizes: str, whole: bool) -> None:
    for seed in range(4):
        expected = bodies(seed, 20 if sizes == "small" else 60)
        data = b"".join(map(framed, expected))
        splitter = FrameSplitter(whole=whole)
        found = WAYS[way](splitter, pieces(data, seed, SIZES[sizes]))
        # looked at when all were read: nothing was overwritten meanwhile
        assert [bytes(frame)[4 if whole else 0 :] for frame in found] == expected
        assert splitter.buffered == splitter.held_bytes == 0
        if whole:
            assert b"".join(found) == data


@pytest.mark.parametrize("way", WAYS)
def test_a_byte_at_a_time_and_a_hundred_frames_at_once(way: str) -> None:
    expected = [bytes([n]) * n for n in range(100)]
    data = b"".join(map(framed, expected))
    assert WAYS[way](FrameSplitter(), iter([data])) == expected
    assert WAYS[way](FrameSplitter(), (data[n : n + 1] for n in range(len(data)))) == expected


@pytest.mark.parametrize("way", WAYS)
def test_a_slice_outlives_the_splitter(way: str) -> None:
    splitter = FrameSplitter()
    (kept,) = WAYS[way](splitter, iter([framed(b"k" * 60_000)[:100], framed(b"k" * 60_000)[100:]]))
    del splitter
    gc.collect()
    for _ in range(100):  # the next reader gets memory that was released
        WAYS[way](FrameSplitter(), iter([framed(b"z" * 60_000)]))
    assert kept == b"k" * 60_000


def test_what_comes_by_buffer_can_be_written_in_place() -> None:
    (frame,) = through_buffer(FrameSplitter(whole=True), iter([framed(b"1234abcd")]))
    frame[8:12] = b"DCBA"
    assert bytes(frame[4:]) == b"1234DCBA"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("first", "stated", "peer", "says"),
    [
        (b"\xff\xff\xff\xff", -1, None, "^frame length -1 is negative$"),
        (b"\x80\x00\x00\x00", -(2**31), None, "^frame length -2147483648 is negative$"),
        (b"\x00\x00\x04\x01", 1025, None, "^frame length 1025 is above the limit of 1024 bytes$"),
        (b"GET / HTTP/1.1\r\n", 0x47455420, "HTTP", r"starts with b'GET .* \(HTTP\)$"),
        (b"POST /topics HTTP/1.1\r\n", 0x504F5354, "HTTP", r" \(HTTP\)$"),
        (b"\x16\x03\x01\x02\x00\x01", 0x16030102, "TLS", "^expected Kafka's protocol, but .*(TLS)"),
    ],
)
def test_a_length_is_refused_before_a_byte_is_stored(
    way: str, first: bytes, stated: int, peer: str | None, says: str
) -> None:
    splitter = FrameSplitter(1024)
    with pytest.raises(FrameError, match=says) as refused:
        WAYS[way](splitter, iter([framed(b"good") + first + b"x" * 100]))
    error = refused.value
    assert (error.stated, error.limit, error.peer) == (stated, 1024, peer)
    assert error.first_bytes == (first + b"x" * 100)[:16]
    assert error.frames == [b"good"]
    assert isinstance(error, BatchvalError)
    assert splitter.held_bytes == splitter.buffered == 0
    with pytest.raises(FrameError, match=says) as again:  # nothing can be read any more
        splitter.feed(framed(b"good"))
    assert again.value.frames == []
    with pytest.raises(FrameError, match=says):
        splitter.buffer_updated(min(4, len(splitter.get_buffer())))


def test_the_limit_itself_is_allowed() -> None:
    assert FrameSplitter(5).feed(framed(b"12345")) == [b"12345"]
    with pytest.raises(FrameError):
        FrameSplitter(5).feed(b"\0\0\0\6")
    assert FrameSplitter().max_frame_bytes == MAX_FRAME_BYTES == 104_857_600


@pytest.mark.parametrize("way", WAYS)
def test_a_length_buys_at_most_a_mebibyte(way: str) -> None:
    splitter = FrameSplitter(2**31 - 1)
    WAYS[way](splitter, iter([(2**31 - 1).to_bytes(4, "big") + b"x" * 2000]))
    splitter.get_buffer()
    assert splitter.held_bytes <= (1 << 20) + 8192


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_that_waits_holds_no_block(way: str) -> None:
    splitter = FrameSplitter()
    WAYS[way](splitter, iter([framed(b"a" * 5000) + framed(b"b" * 5000)[:512]]))
    assert (splitter.held_bytes, splitter.buffered) == (0, 512)
    assert WAYS[way](splitter, iter([framed(b"b" * 5000)[512:]])) == [b"b" * 5000]


@pytest.mark.parametrize("sizes", SIZES)
def test_splitters_share_a_spare_block(sizes: str) -> None:
    """Reads in turn, and reads that bring nothing: each stream's frames come whole."""
    spare = SpareBlock()
    rng = random.Random(sizes)
    expected = [bodies(seed, 20) for seed in range(5)]
    splitters = [FrameSplitter(spare=spare) for _ in expected]
    found: list[list[memoryview]] = [[] for _ in expected]
    left = {
        n: pieces(b"".join(map(framed, one)), n, SIZES[sizes]) for n, one in enumerate(expected)
    }
    while left:
        n = rng.choice(list(left))
        if rng.random() < 0.1:
            spare.shorten(rng.random() < 0.5)
        buffer = rng.choice(splitters).get_buffer()  # a read that brings nothing
        assert 0 < len(buffer) <= (4096 if spare.is_short else sys.maxsize)
        piece = next(left[n], None)
        if piece is None:
            del left[n]
        elif rng.random() < 0.2:
            found[n] += splitters[n].feed(piece)
        else:
            found[n] += through_buffer(splitters[n], iter([piece]))
    assert [[bytes(frame) for frame in one] for one in found] == expected


def test_a_read_that_brings_nothing_takes_no_memory() -> None:
    spare = SpareBlock()
    splitters = [FrameSplitter(spare=spare) for _ in range(100)]
    for stashed in (0, 300):
        gc.collect()
        before = allocated()
        for splitter in splitters:
            through_buffer(splitter, iter([framed(b"a" * 400)[:stashed]] if stashed else []))
            splitter.get_buffer()
        assert allocated() == before
        assert {(splitter.held_bytes, splitter.buffered) for splitter in splitters} == {
            (0, stashed)
        }
    assert through_buffer(splitters[0], iter([framed(b"a" * 400)[300:]])) == [b"a" * 400]
    assert allocated() == before


def test_a_read_of_small_frames_is_short() -> None:
    """The cycle collector looks at each frame of a read that is not taken at once."""
    splitter = FrameSplitter(spare=SpareBlock())
    assert len(splitter.get_buffer()) <= 16 << 10
    assert through_buffer(splitter, iter([framed(b"a" * 100)])) == [b"a" * 100]
    assert len(splitter.get_buffer()) <= 16 << 10
    through_buffer(splitter, iter([framed(b"a" * 1000)]))
    assert len(splitter.get_buffer()) <= 128 * 1004
    through_buffer(splitter, iter([framed(b"a" * 100), framed(bytes(200_000))[:30]]))
    assert len(splitter.get_buffer()) >= 200_004 - 30
    through_buffer(splitter, iter([bytes(200_004 - 30)]))
    assert len(splitter.get_buffer()) >= 200_004


def test_a_count_without_a_spare_block_is_refused() -> None:
    first, second = FrameSplitter(spare=(spare := SpareBlock())), FrameSplitter(spare=spare)
    first.get_buffer()
    through_buffer(second, iter([framed(bytes(1000))[:900]]))  # takes the block
    with pytest.raises(BatchvalError, match="1 bytes do not fit what get_buffer gave"):
        first.buffer_updated(1)


def test_a_large_frame_is_copied_a_bounded_number_of_times() -> None:
    """64 MiB in reads of 64 kB: memory at most 2.5 times the frame, whatever the doubling."""
    body = bytes(64 << 20)
    splitter = FrameSplitter()
    tracemalloc.start()
    found = through_feed(splitter, pieces(framed(body), 1, [1 << 16]))
    tracemalloc.stop()
    assert [len(frame) for frame in found] == [len(body)]
    splitter.feed(framed(body)[: 33 << 20])
    assert splitter.held_bytes <= 2 * (33 << 20) + (1 << 21)


def read_large(splitter: FrameSplitter, frame: bytes) -> tuple[int, memoryview]:
    """How many reads it took, and the frame."""
    at = reads = 0
    while True:
        space = splitter.get_buffer()
        size = min(len(space), len(frame) - at)
        space[:size] = frame[at : at + size]
        del space
        frames = splitter.buffer_updated(size)
        at += size
        reads += 1
        if frames:
            return reads, frames[0]


def test_memory_of_large_frames_is_used_again() -> None:
    """What is at hand is not bought, so a length may have it at once; nothing of it is taken while
    it is in use.
    """
    body = random.Random(3).randbytes(5 << 20)
    splitter = FrameSplitter()
    read_large(splitter, framed(body))  # grown in steps, let go
    reads, first = read_large(splitter, framed(body))
    assert reads <= 3
    other = body[::-1]
    _, second = read_large(FrameSplitter(), framed(other))
    assert first == body
    assert second == other
    del first, second
    gc.collect()
    stated = FrameSplitter()
    stated.feed((100 << 20).to_bytes(4, "big") + bytes(2000))
    assert stated.held_bytes <= (1 << 20) + 8192  # more than is ever at hand


@pytest.mark.parametrize("wrong", ["text", None, memoryview(b"abcd")[::2]])
def test_an_object_without_a_buffer_is_refused(wrong: Any) -> None:
    with pytest.raises(BatchvalError, match="contiguous"):
        FrameSplitter().feed(wrong)


@pytest.mark.parametrize("count", [-1, 1 << 30])
def test_a_count_that_was_not_offered_is_refused(count: int) -> None:
    splitter = FrameSplitter()
    splitter.get_buffer()
    with pytest.raises(BatchvalError, match="do not fit"):
        splitter.buffer_updated(count)
    with pytest.raises(BatchvalError, match="do not fit"):
        FrameSplitter().buffer_updated(1)


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_a_limit_that_makes_no_sense_is_refused(limit: int) -> None:
    with pytest.raises(BatchvalError, match="max_frame_bytes"):
        FrameSplitter(limit)


def test_chunks_are_frames() -> None:
    from batchval.protocol.messages import MetadataRequest

    chunks: Chunks = MetadataRequest(api_version=12).encode(9, "c")
    (frame,) = FrameSplitter().feed(b"".join(chunks))
    assert MetadataRequest.parse(frame)[0].correlation_id == 9
