"""The target ``connections``: a socket that is read and written when it is ready, and the frames
that it brings.

What must hold: whatever the pieces, the pauses and the streamed frames, the same bytes come out in
order, on both ways; a length that no frame has ends the stream after the frames before it; nothing
stays with the loop, in memory or open.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import select
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

from batchval.protocol.frames import FrameError, FrameSplitter, SpareBlock, allocated
from batchval.proxy.session.socket_transport import SocketTransport

__all__ = ["connected_case"]

_SIZES = (0, 1, 11, 12, 500, 600, 5000, 5000, 70_000, 300_000)
_PIECES = (1, 3, 20, 511, 4096, 40_000, 262_144)
_MAX_FRAME_BYTES = 1 << 20


class _Loop:
    """What a transport asks of a loop, done when the case says so."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], Any]] = {}
        self.writers: dict[int, Callable[[], Any]] = {}
        self.soon: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def add_reader(self, fd: int, callback: Callable[[], Any]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> bool:
        return self.readers.pop(fd, None) is not None

    def add_writer(self, fd: int, callback: Callable[[], Any]) -> None:
        self.writers[fd] = callback

    def remove_writer(self, fd: int) -> bool:
        return self.writers.pop(fd, None) is not None

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.soon.append((callback, args))

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback, args in soon:
            callback(*args)
        readable, writable, _ = select.select(list(self.readers), list(self.writers), [], 0)
        for fd in readable:
            if fd in self.readers:
                self.readers[fd]()
        for fd in writable:
            if fd in self.writers:
                self.writers[fd]()


class _Protocol:
    """Holds the parts of each frame to the end."""

    def __init__(self, rng: random.Random, spare: SpareBlock) -> None:
        self.rng = rng
        self.splitter = FrameSplitter(_MAX_FRAME_BYTES, whole=True, spare=spare)
        self.out: list[list[memoryview]] = []
        self.error: FrameError | None = None
        self.is_lost = self.streamed = False
        self.pauses = 0

    def parts(self) -> Iterator[memoryview]:
        return itertools.chain.from_iterable(self.out)

    def connection_made(self, transport: SocketTransport) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(self.rng.choice((None, 0, 1000, 1 << 20)))

    def frames_came(self, frames: list[memoryview], outcome: int, error: FrameError | None) -> None:
        assert outcome == 1
        if self.streamed and frames:
            self.out[-1].append(frames.pop(0))
            self.streamed = self.splitter.streaming > 0
        self.out += [[frame] for frame in frames]
        self.error = error
        if error is not None:
            self.transport.abort()
        elif self.splitter.partial is not None and self.rng.random() < 0.4:
            self.out.append([self.splitter.stream_partial()])
            self.streamed = True
        if self.rng.random() < 0.1:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        self.pauses -= 1

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


def _frame(rng: random.Random) -> bytes:
    size = rng.choice(_SIZES)
    return size.to_bytes(4, "big") + rng.randbytes(size)


class _Case:
    """One connection: a protocol with its transport, and the peer's socket."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.loop = _Loop()
        self.protocol = _Protocol(rng, SpareBlock())
        ours, self.peer = socket.socketpair()
        for one in (ours, self.peer):
            if rng.random() < 0.5:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.peer.setblocking(False)
        self.transport = SocketTransport(
            cast(asyncio.AbstractEventLoop, self.loop),
            ours,
            cast(asyncio.BaseProtocol, self.protocol),
        )
        self.transport.start()
        self.wrote = self.got = b""

    def write(self) -> None:
        if self.transport.is_closing():
            return
        sizes = [self.rng.choice((0, 1, 300, 9000)) for _ in range(self.rng.randrange(1, 80))]
        pieces = [self.rng.randbytes(size) for size in sizes]
        self.transport.writelines(pieces)
        self.wrote += b"".join(pieces)

    def send(self, stream: bytes) -> int:
        try:
            return self.peer.send(stream[: self.rng.choice(_PIECES)])
        except OSError:  # its buffer is full, or its peer has gone
            return 0

    def receive(self) -> None:
        with contextlib.suppress(OSError):
            self.got += self.peer.recv(1 << 20)

    def step(self) -> None:
        what = self.rng.random()
        if what < 0.2:
            self.write()
        elif what < 0.5:
            self.receive()
        elif what < 0.7:
            self.transport.resume_reading()
        self.loop.turn()

    def until(self, came: Callable[[], bool]) -> bool:
        """Let what is under way arrive; return whether it came."""
        for _ in range(20_000):
            if came():
                return True
            self.transport.resume_reading()
            self.receive()
            self.loop.turn()
        return False


def _found(case: _Case, frames: list[bytes], *, is_broken: bool) -> list[str]:
    """Send frames, and what no frame is after them."""
    stream, at = b"".join(frames) + b"\xff" * (64 if is_broken else 0), 0
    protocol = case.protocol
    while at < len(stream) and not protocol.is_lost:
        at += case.send(stream[at:])
        case.step()
    if is_broken:
        if not case.until(lambda: protocol.is_lost):
            return ["a length that no frame has does not end the stream"]
        if protocol.error is None or protocol.error.stated != -1:
            return [f"another error: {protocol.error!r}"]
    elif not case.until(lambda: sum(map(len, protocol.parts())) == len(stream)):
        return ["not all frames came"]
    elif not case.until(lambda: len(case.got) == len(case.wrote)):
        return ["not all that was written came"]
    if [b"".join(parts) for parts in protocol.out] != frames:
        return ["the frames are others"]
    if not case.wrote.startswith(case.got):
        return ["other bytes were written"]
    if protocol.pauses not in (0, 1):
        return ["writing was paused twice, or not at all before it went on"]
    case.peer.close()
    if not case.until(lambda: protocol.is_lost):
        return ["the end does not come"]
    if (
        case.loop.readers
        or case.loop.writers
        or case.transport.get_extra_info("socket").fileno() >= 0
    ):
        return ["a connection that has ended is still watched, or open"]
    return []


def connected_case(seed: int) -> list[str]:
    """Return what goes wrong on the connection that follows from this number."""
    rng = random.Random(seed)
    start = allocated()
    case = _Case(rng)
    try:
        frames = [_frame(rng) for _ in range(rng.randrange(1, 8))] * rng.choice((1, 1, 4))
        found = _found(case, frames, is_broken=rng.random() < 0.2)
    finally:
        case.peer.close()
        case.transport.abort()
        case.loop.turn()
    del case
    if not found and allocated() != start:
        found = [f"{allocated() - start} bytes are still counted"]
    return found
