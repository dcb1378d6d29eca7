"""Memory of frames: the count is exact, read blocks follow the limit, released memory goes back."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from batchval.protocol.errors import ProtocolError
from batchval.protocol.frame_memory import (
    Block,
    Charge,
    CountedBytes,
    allocated,
    kept,
    limit_memory,
)
from batchval.protocol.frames import FrameSplitter
from tests.support.calibration import slowness
from tests.support.fixtures import poisoned  # noqa: F401

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture(autouse=True)
def unlimited() -> Iterator[None]:
    yield
    limit_memory(0)


@pytest.fixture
def start() -> int:
    gc.collect()
    return allocated()


@pytest.mark.parametrize(
    ("size", "exact", "counted"),
    [
        (0, False, 256 * KIB),
        (1, False, 256 * KIB),
        (256 * KIB, False, 256 * KIB),
        (40 * MIB - 1, False, 40 * MIB),
        (1, True, 1),
        (300_001, True, 300_001),
    ],
)
def test_a_block_is_counted_while_it_is_alive(
    size: int, exact: bool, counted: int, start: int
) -> None:
    block = Block(size, exact)
    assert allocated() - start == counted == memoryview(block).nbytes
    view = memoryview(block)[-1:]
    del block
    assert allocated() - start == counted
    del view
    assert allocated() == start


@pytest.mark.parametrize("size", [256 * KIB + 1, 300 * KIB, 5 * MIB])
def test_a_kept_block_is_counted_with_the_size_that_it_has(size: int, start: int) -> None:
    memoryview(Block(9 * MIB)).release()  # kept from now on
    block = Block(size)
    assert allocated() - start == memoryview(block).nbytes > size
    del block
    assert allocated() == start


@pytest.mark.parametrize("size", [1, 4 * KIB, 100 * KIB, 257 * KIB, MIB, 3 * MIB, 20 * MIB])
def test_at_most_24_mib_are_kept(size: int, start: int) -> None:
    held: list[Block] = []
    limit_memory(200 * MIB)  # read blocks of all sizes
    while allocated() - start < 160 * MIB:
        held.append(Block(size))
        held.append(Block(1))
    held.clear()
    assert 0 < kept() <= 24 * MIB
    assert allocated() == start


def test_read_blocks_get_smaller_near_the_limit(start: int) -> None:
    limit = 16 * MIB + start
    limit_memory(limit)
    held = []
    seen = {}
    while allocated() < limit:
        before = allocated()
        held.append(Block(1))
        seen.setdefault(memoryview(held[-1]).nbytes, before)
        share = before / limit
        expected = 256 if share < 1 / 4 else 64 if share < 1 / 2 else 16 if share < 3 / 4 else 4
        assert memoryview(held[-1]).nbytes == expected * KIB
    assert list(seen) == [256 * KIB, 64 * KIB, 16 * KIB, 4 * KIB]
    assert memoryview(Block(5 * KIB)).nbytes == 5 * KIB
    assert memoryview(Block(256 * KIB)).nbytes == 256 * KIB
    assert 257 * KIB < memoryview(Block(257 * KIB)).nbytes <= 2 * 260 * KIB
    limit_memory(0)
    assert memoryview(Block(1)).nbytes == 256 * KIB


def test_a_stated_length_allocates_less_near_the_limit() -> None:
    first = (100 * MIB).to_bytes(4, "big") + bytes(2000)
    for share, most in ((0.1, MIB + 8 * KIB), (0.3, 256 * KIB), (0.6, 64 * KIB), (0.8, 16 * KIB)):
        limit_memory(0)
        weight = Block(64 * MIB)
        limit_memory(int(allocated() / share))
        splitter = FrameSplitter()
        splitter.feed(first)
        splitter.get_buffer()
        assert splitter.held_bytes <= most
        del weight


@pytest.mark.parametrize("limit", [64 * KIB, MIB, 1])
def test_frames_are_whole_whatever_the_limit(limit: int, start: int) -> None:
    limit_memory(limit)
    body = bytes(range(256)) * 4000
    stream = (len(body).to_bytes(4, "big") + body) * 3
    splitter = FrameSplitter()
    found: list[memoryview] = []
    at = 0
    while at < len(stream):
        space = splitter.get_buffer()
        size = min(len(space), len(stream) - at)
        space[:size] = stream[at : at + size]
        del space
        found += splitter.buffer_updated(size)
        at += size
    assert found == [body] * 3
    del found
    assert allocated() == start


@pytest.mark.parametrize("limit", [-1, -(1 << 40)])
def test_a_negative_limit_is_refused(limit: int) -> None:
    with pytest.raises(ProtocolError, match=r"0 \(none\) or a number of bytes"):
        limit_memory(limit)


def test_the_whole_range_of_limits() -> None:
    limit_memory((1 << 63) - 1)
    assert memoryview(Block(1)).nbytes == 256 * KIB
    with pytest.raises(OverflowError):
        limit_memory(1 << 63)


@pytest.mark.parametrize("size", [(1 << 63) - 1, (1 << 63) - 4097, 1 << 50])
@pytest.mark.parametrize("exact", [False, True])
def test_memory_that_there_is_not(size: int, exact: bool, start: int) -> None:
    with pytest.raises(MemoryError):
        Block(size, exact)
    assert allocated() == start


def test_a_frame_that_grows_is_not_held_twice_and_a_held_view_stays_right(start: int) -> None:
    body = bytes(range(256)) * (32 * MIB // 256)
    stream = len(body).to_bytes(4, "big") + body
    splitter = FrameSplitter()
    shown: list[memoryview] = []
    at = 0
    found: list[memoryview] = []
    while at < len(stream):
        space = splitter.get_buffer()
        size = min(len(space), 1 * MIB, len(stream) - at)
        space[:size] = stream[at : at + size]
        del space
        found += splitter.buffer_updated(size)
        at += size
        if len(shown) < 3 and splitter.partial is not None:
            shown.append(splitter.partial)
    assert found == [body]
    assert all(view == body[: len(view)] for view in shown)
    del found, shown, splitter
    assert allocated() == start


_PEAK = """
import resource, sys, time
from batchval.protocol.frames import FrameSplitter

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

def settled(most):
    # large blocks go back in a thread
    end = time.monotonic() + 20
    while status("VmRSS:") > most and time.monotonic() < end:
        time.sleep(0.01)
    return status("VmRSS:")

def read(size):
    splitter = FrameSplitter()
    part = memoryview(b"x" * (1 << 18))
    left = size + 4
    head = size.to_bytes(4, "big")
    while left:
        target = splitter.get_buffer()
        n = min(len(target), len(part), left)
        target[:n] = part[:n]
        if head:
            target[:4], head = head, b""
        del target
        left -= n
        frames = splitter.buffer_updated(n)
    return frames
"""


def run(code: str) -> list[int]:
    """The numbers that a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="mremap exists on Linux only")
def test_a_large_frame_takes_its_size_at_its_peak() -> None:
    before, peak, after = run(
        "before = status('VmRSS:')\nframes = read(96 << 20)\n"
        "print(before, status('VmHWM:'))\ndel frames\nprint(settled(before + (26 << 20)))"
    )
    assert peak - before <= (96 + 8) * MIB
    assert after - before <= 26 * MIB


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status exists on Linux only")
def test_who_releases_a_large_frame_does_not_wait_for_the_system() -> None:
    """The system takes 8 ms for 96 MiB, which the event loop has not."""
    *nanoseconds, before, after = run("""
before = status('VmRSS:')
for _ in range(5):
    frames = read(96 << 20)
    began = time.thread_time_ns()
    del frames
    print(time.thread_time_ns() - began)
print(before, settled(before + (26 << 20)))
""")
    assert len(nanoseconds) == 5
    assert min(nanoseconds) < 2_000_000 * slowness()
    assert after - before <= 26 * MIB


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status exists on Linux only")
def test_released_memory_goes_back_to_the_system() -> None:
    """Frames of all sizes, released in another order than they came, with small objects between."""
    before, peak, after = run("""
import random
before = status('VmRSS:')
r = random.Random(1)
held, small = [], []
for i in range(400):
    held.append(read(r.choice([100_000, 300_000, 700_000, 1_000_000, 3_000_000])))
    small.append(bytearray(r.randrange(100_000)))
    if i % 3 == 0:
        held[r.randrange(len(held))] = None
print(before, status('VmRSS:'))
r.shuffle(held)
held.clear()
print(status('VmRSS:'))
""")
    assert peak - before > 150 * MIB
    assert after - before <= 60 * MIB  # 20 of them are the small objects


def test_bytes_made_elsewhere_are_counted_until_their_last_slice_is_gone() -> None:
    before = allocated()
    made = memoryview(CountedBytes(bytes(range(256)) * 10))
    assert allocated() == before + 2560
    assert made.readonly
    part = made[1:3]
    del made
    assert allocated() == before + 2560
    assert part.tobytes() == b"\1\2"
    del part
    assert allocated() == before
    with pytest.raises(TypeError):
        CountedBytes(bytearray(3))  # type: ignore[arg-type]
    assert allocated() == before


def test_a_charge_is_counted_until_its_work_is_done() -> None:
    before = allocated()
    charge = Charge()
    for size in (5 * MIB, MIB, 0, 3 * MIB):
        charge.count(size)
        assert allocated() == before + size
    with pytest.raises(ProtocolError, match="not -1"):
        charge.count(-1)
    assert allocated() == before + 3 * MIB
    del charge
    assert allocated() == before
