"""A connection that is read and written when its socket is ready: every byte, in order, and no more
than its protocol allows.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.protocol.frames import FrameError, FrameSplitter, SpareBlock
from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.session.fast_path import FastPath, RequestPassage, Routes, TurnLimits
from batchval.proxy.session.socket_transport import PASSED_REST, SocketTransport
from batchval.proxy.settings.options import Counters
from tests.support.network import reset_on_close
from tests.support.proxy import proxy_options

MIB = 1 << 20


class Protocol:
    """What a transport tells its protocol."""

    def __init__(self, max_frame_bytes: int = 8 * MIB) -> None:
        self.splitter = FrameSplitter(max_frame_bytes, whole=True)
        self.frames: list[bytes] = []
        self.calls: list[str] = []
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.errors: list[FrameError] = []
        self.transport: Any = None
        self.holds_open = False
        self.pauses_at_frames = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.calls.append("made")

    def frames_came(self, frames: list[memoryview], outcome: int, error: FrameError | None) -> None:
        assert outcome == PASSED_REST
        self.frames += map(bytes, frames)
        if error is not None:
            self.errors.append(error)
        if self.pauses_at_frames:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.holds_open

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def pair(small: bool = False) -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a TCP connection; ``small``: with small buffers in the kernel."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        if small:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ours = socket.socket()
        if small:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.connect(server.getsockname())
        theirs = server.accept()[0]
    theirs.setblocking(False)
    return ours, theirs


Case = Callable[[], Awaitable[None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Case], None]:
    """Run a case on each kind of loop."""

    def runs(case: Case) -> None:
        if request.param == "uvloop":
            import uvloop

            uvloop.run(asyncio.wait_for(case(), 30))
        else:
            asyncio.run(asyncio.wait_for(case(), 30))

    return runs


def made(sock: socket.socket, protocol: Any) -> SocketTransport:
    return SocketTransport(asyncio.get_running_loop(), sock, protocol)


def opened(small: bool = False) -> tuple[Protocol, SocketTransport, socket.socket]:
    ours, theirs = pair(small)
    protocol = Protocol()
    transport = made(ours, protocol)
    transport.start()
    return protocol, transport, theirs


async def received(sock: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    got = b""
    while len(got) < size and (piece := await loop.sock_recv(sock, 1 << 16)):
        got += piece
    return got


def test_frames_come_whole_and_in_order(run: Callable[[Case], None]) -> None:
    noise = random.Random(48)
    sizes = [noise.choice((0, 5, 900, 70_000, 300_000)) for _ in range(60)]
    sent = [frame(noise.randbytes(size)) for size in sizes]

    async def case() -> None:
        protocol, transport, theirs = opened()
        await asyncio.get_running_loop().sock_sendall(theirs, b"".join(sent))
        while len(protocol.frames) < len(sent):
            await asyncio.sleep(0.001)
        assert protocol.frames == sent
        theirs.close()
        assert await protocol.lost is None
        assert protocol.calls == ["made", "eof"]
        assert transport.is_closing()

    run(case)


def test_what_the_kernel_does_not_take_waits_and_follows(run: Callable[[Case], None]) -> None:
    noise = random.Random(49)
    pieces = [noise.randbytes(noise.choice((0, 1, 300, 40_000))) for _ in range(200)]
    whole = b"".join(pieces)

    async def case() -> None:
        protocol, transport, theirs = opened(small=True)
        transport.set_write_buffer_limits(64 << 10)
        for at in range(0, len(pieces), 8):
            if at % 3:
                transport.writelines(pieces[at : at + 8])
            else:
                for piece in pieces[at : at + 8]:
                    transport.write(memoryview(piece))
        assert transport.get_write_buffer_size() > MIB
        assert protocol.calls == ["made", "pause"]
        transport.close()  # after all that waits
        transport.write(b"not any more")
        assert await received(theirs, len(whole) + 1) == whole
        assert await protocol.lost is None
        assert protocol.calls == ["made", "pause", "resume"]
        theirs.close()

    run(case)


def test_a_protocol_pauses_above_its_limit_and_goes_on_at_a_quarter(
    run: Callable[[Case], None],
) -> None:
    async def case() -> None:
        protocol, transport, theirs = opened(small=True)
        transport.write(bytes(MIB))
        waiting = transport.get_write_buffer_size()
        transport.set_write_buffer_limits(waiting + 1)
        assert protocol.calls == ["made", "pause"]  # above the limit of before
        while transport.get_write_buffer_size() > (waiting + 1) >> 2:
            assert "resume" not in protocol.calls
            await received(theirs, 1)
            await asyncio.sleep(0)
        assert protocol.calls == ["made", "pause", "resume"]
        transport.abort()
        theirs.close()
        await protocol.lost

    run(case)


def test_one_that_is_not_read_gets_nothing(run: Callable[[Case], None]) -> None:
    async def case() -> None:
        protocol, transport, theirs = opened()
        transport.pause_reading()
        transport.pause_reading()
        theirs.send(frame(b"later"))
        await asyncio.sleep(0.02)
        assert protocol.frames == []
        transport.resume_reading()
        while not protocol.frames:
            await asyncio.sleep(0.001)
        assert protocol.frames == [frame(b"later")]
        transport.abort()
        theirs.close()
        assert await protocol.lost is None

    run(case)


class Watched:
    """A loop that counts how often it was told not to watch a socket."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.removed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def remove_reader(self, fd: int) -> None:
        self.removed += 1
        self.loop.remove_reader(fd)


@pytest.mark.parametrize("turns", [3, 30])
def test_the_loop_is_told_of_a_long_pause_only(run: Callable[[Case], None], turns: int) -> None:
    """To tell it takes eight system calls, and each turn of a long pause would call in vain."""

    async def case() -> None:
        ours, theirs = pair()
        protocol, loop = Protocol(), Watched()
        transport = SocketTransport(loop, ours, protocol)
        transport.start()
        for pauses in (1, 2, 3):
            transport.pause_reading()
            await loop.sock_sendall(theirs, frame(b"late"))
            for _ in range(turns):
                await asyncio.sleep(0)
            assert loop.removed == (0 if turns == 3 else pauses)
            assert len(protocol.frames) == pauses - 1
            transport.resume_reading()
            while len(protocol.frames) < pauses:
                await asyncio.sleep(0.001)
        transport.abort()
        theirs.close()
        await protocol.lost

    run(case)


#: what is done, and the states that follow; ``waits``: with bytes that the kernel does not take
STATES = [
    ("", "open", "read"),
    ("resume", "open", "read"),
    ("pause", "open", "paused"),
    ("pause pause", "open", "paused"),
    ("pause resume", "open", "read"),
    ("pause long", "open", "off"),
    ("pause long pause", "open", "off"),
    ("pause long resume", "open", "read"),
    ("eof", "open", "off"),
    ("eof pause", "open", "off"),
    ("waits", "open", "read"),
    ("waits eof", "open", "off"),
    ("waits close", "closing", "off"),
    ("waits close resume", "closing", "off"),
    ("waits close taken", "lost", "off"),
    ("waits close abort", "lost", "off"),
    ("waits pause abort", "lost", "off"),
    ("close", "lost", "off"),
    ("close resume", "lost", "off"),
    ("pause close", "lost", "off"),
    ("abort", "lost", "off"),
    ("abort close", "lost", "off"),
    ("reset", "lost", "off"),
]


@pytest.mark.parametrize(("events", "life", "reading"), STATES)
def test_states(run: Callable[[Case], None], events: str, life: str, reading: str) -> None:
    async def case() -> None:
        protocol, transport, theirs = opened(small=True)
        protocol.holds_open = True

        def reset() -> None:
            reset_on_close(theirs)
            theirs.close()

        act = {
            "pause": transport.pause_reading,
            "long": lambda: theirs.send(frame(b"held")),
            "resume": transport.resume_reading,
            "eof": lambda: theirs.shutdown(socket.SHUT_WR),
            "waits": lambda: transport.write(bytes(MIB)),
            "close": transport.close,
            "abort": transport.abort,
            "reset": reset,
        }
        for event in events.split():
            if event == "taken":
                await received(theirs, MIB)
                continue
            act[event]()
            if event in ("long", "eof", "reset"):
                while "reading off" not in repr(transport):
                    await asyncio.sleep(0.001)
        waits = "waits" in events and life != "lost"
        assert f": {life}, reading {reading}, " in repr(transport)
        assert transport.is_closing() is (life != "open")
        assert (transport.get_write_buffer_size() > 0) is waits
        transport.abort()
        theirs.close()
        await protocol.lost

    run(case)


def test_an_end_of_file_follows_what_waits(run: Callable[[Case], None]) -> None:
    async def case() -> None:
        protocol, transport, theirs = opened(small=True)
        protocol.holds_open = True
        transport.write(bytes(MIB))
        transport.write_eof()
        assert await received(theirs, MIB + 1) == bytes(MIB)
        theirs.send(frame(b"still read"))
        while not protocol.frames:
            await asyncio.sleep(0.001)
        transport.close()
        assert await protocol.lost is None
        theirs.close()

    run(case)


def test_an_error_of_the_kernel_ends_it_once(run: Callable[[Case], None]) -> None:
    async def case() -> None:
        protocol, transport, theirs = opened()
        reset_on_close(theirs)
        theirs.close()
        error = await protocol.lost
        assert isinstance(error, ConnectionResetError)
        transport.write(b"x")
        transport.close()
        transport.abort()
        assert transport.get_extra_info("socket").fileno() == -1

    run(case)


def test_a_bad_length_comes_with_the_frames_before_it(run: Callable[[Case], None]) -> None:
    async def case() -> None:
        protocol, transport, theirs = opened()
        theirs.send(frame(b"good") + struct.pack(">i", -7))
        while not protocol.errors:
            await asyncio.sleep(0.001)
        assert (protocol.frames, protocol.errors[0].stated) == ([frame(b"good")], -7)
        transport.abort()
        theirs.close()
        await protocol.lost

    run(case)


def test_one_that_sends_all_the_time_leaves_turns_to_others(run: Callable[[Case], None]) -> None:
    """One turn of the loop reads no more than 512 KiB and what the last read brings."""

    async def case() -> None:
        protocol, transport, theirs = opened()
        transport.pause_reading()
        content = frame(bytes(1000)) * 4000
        loop = asyncio.get_running_loop()
        sending = loop.create_task(loop.sock_sendall(theirs, content))
        await asyncio.sleep(0.05)
        transport.resume_reading()
        most = before = 0
        while len(protocol.frames) < 4000:
            await asyncio.sleep(0)
            most, before = max(most, len(protocol.frames) - before), len(protocol.frames)
        await sending
        assert 0 < most * 1004 <= 3 * (256 << 10)
        transport.abort()
        theirs.close()
        await protocol.lost

    run(case)


def test_work_of_a_passage_counts_as_bytes_that_were_read(run: Callable[[Case], None]) -> None:
    """Another client id costs as much as 4 KiB: a turn of the loop takes fewer requests with it."""
    ids = [b"%04d" % i for i in range(1000)]
    requests = [frame(struct.pack(">hhih", 12, 0, 1, 4) + name + bytes(400)) * 4 for name in ids]

    async def case() -> None:
        ours, theirs = pair()
        protocol = Protocol()
        protocol.splitter = FrameSplitter(8 * MIB, whole=True, spare=SpareBlock())
        transport = made(ours, protocol)
        gate = ProduceValidator(proxy_options(), Counters())
        path = FastPath(Routes({12: (0, 4, 1 << 30)}), gate, gate.counters, deque(), {})
        clients: list[bytes | None] = []
        path.watch(clients.append)
        limits = TurnLimits()
        limits.blocks_limit = limits.large = 1 << 40
        transport.passage = RequestPassage(path, limits, 1.0, 1 << 30)
        broker = SimpleNamespace(writelines=lambda pieces: None)
        transport.passage.to, transport.passage.is_open = broker, True
        transport.start()
        transport.pause_reading()
        loop = asyncio.get_running_loop()
        sending = loop.create_task(loop.sock_sendall(theirs, b"".join(requests)))
        await asyncio.sleep(0.05)
        transport.resume_reading()
        most = before = 0
        while len(clients) < len(ids):
            await asyncio.sleep(0)
            most, before = max(most, len(clients) - before), len(clients)
        await sending
        assert clients == ids
        assert 0 < most <= (512 << 10) // (4 << 10) + 128 // 4
        transport.abort()
        theirs.close()
        await protocol.lost

    run(case)


@pytest.mark.parametrize("size", [10, 2 * MIB])
@pytest.mark.parametrize("pauses", [False, True])
def test_a_peer_that_sends_and_resets(
    run: Callable[[Case], None], size: int, *, pauses: bool
) -> None:
    """uvloop calls a reader once for a socket with an error: its bytes and the error are read."""

    async def case() -> None:
        protocol, transport, theirs = opened()
        loop = asyncio.get_running_loop()
        transport.pause_reading()
        await asyncio.sleep(0.01)  # the loop no longer watches the socket
        transport.resume_reading()
        if pauses:
            protocol.pauses_at_frames = True
        sending = loop.create_task(
            loop.sock_sendall(theirs, frame(bytes(1000)) + frame(bytes(size)))
        )
        while not protocol.frames:
            await asyncio.sleep(0)
        reset_on_close(theirs)
        sending.cancel()
        await asyncio.sleep(0)
        theirs.close()
        while pauses and not protocol.lost.done():
            await asyncio.sleep(0.001)
            transport.resume_reading()
        assert isinstance(await protocol.lost, ConnectionResetError)

    run(case)


@pytest.mark.parametrize("is_paused", [False, True])
def test_an_error_of_the_protocol_ends_the_connection(
    run: Callable[[Case], None], is_paused: bool
) -> None:
    async def case() -> None:
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        ours, theirs = pair()
        with ours:
            protocol = Protocol()
            error = LookupError("a fault of the session")

            def frames_came(*_: object) -> None:
                raise error

            protocol.frames_came = frames_came  # type: ignore[method-assign]
            transport = SocketTransport(loop, theirs, protocol)
            transport.start()
            if is_paused:  # so that it reads in a turn that the loop has not told it of
                transport.pause_reading()
            ours.sendall(frame(b"x"))
            await asyncio.sleep(0.01)
            transport.resume_reading()
            assert await protocol.lost is error
            assert [context["exception"] for context in told] == [error]
            assert transport.is_closing()
            ours.settimeout(5)
            assert ours.recv(1) == b""

    run(case)


def test_a_peer_that_has_left_before_the_start(run: Callable[[Case], None]) -> None:
    async def case() -> None:
        ours, theirs = pair()
        reset_on_close(ours)
        reset_on_close(theirs)
        theirs.close()
        await asyncio.sleep(0.01)
        protocol = Protocol()
        transport = made(ours, protocol)
        with pytest.raises(OSError, match="not connected"):
            transport.start()
        assert (protocol.calls, ours.fileno()) == ([], -1)
        transport.abort()
        await asyncio.sleep(0)
        assert not protocol.lost.done()

    run(case)
