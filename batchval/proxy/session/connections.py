"""The two connections of a session: its client's and its broker's.

    ClientConnection  bytes become frames for its session, and the session's bytes go out
    BrokerConnection  requests out as they come, answers in, in their order

The session decides everything: what a frame means, and when a connection ends. Only the parts of
large pieces are queued here: the client's window bounds what is under way. A broker that does not
read fills the transport's buffer, and then the session stops reading the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol, cast

from batchval.protocol.frames import FrameError, FrameSplitter, SpareBlock
from batchval.proxy.cluster.endpoints import address_text, problem_of
from batchval.proxy.kit.sockets import address_of, keep_alive
from batchval.proxy.settings.options import Limits

__all__ = ["BrokerConnection", "BrokerSide", "ClientConnection", "ClientSide"]


#: Bytes that are written in one turn of the loop.
LARGEST_WRITE: Final = 4 << 20


class BrokerSide(Protocol):
    """The part of a session that its connection to a broker calls."""

    def broker_frames(self, frames: list[memoryview]) -> None: ...
    def broker_full(self) -> None: ...
    def broker_drained(self) -> None: ...
    def broker_read_again(self, why: int) -> None: ...
    def broker_frame_error(self) -> None: ...
    def broker_lost(self) -> None: ...
    def abort(self, why: str) -> None: ...


class BrokerConnection(asyncio.BufferedProtocol):
    """Frames in and out on the broker's side of one session.

    ``address``  the broker's
    ``problem``  why the connection was lost; "" where the broker has closed it
    """

    __slots__ = (
        "address",
        "ends",
        "get_buffer",
        "holds",
        "is_full",
        "limits",
        "parts",
        "problem",
        "session",
        "splitter",
        "transport",
    )

    def __init__(self, session: BrokerSide, limits: Limits, spare: SpareBlock) -> None:
        self.session = session
        self.limits = limits
        self.splitter = FrameSplitter(limits.max_answer_bytes, whole=True, spare=spare)
        self.get_buffer = self.splitter.get_buffer  # type: ignore[assignment,method-assign]  # a call less
        self.transport: asyncio.Transport | None = None
        self.address = self.problem = ""
        self.is_full = self.ends = False
        # the parts of large pieces that are still to be written
        self.parts: deque[bytes | memoryview] = deque()
        self.holds = 0  # why it is not read, a bit for each reason

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.address = address_text(address_of(transport))
        self.bound(self.limits)

    def bound(self, limits: Limits) -> None:
        """Hold the connection to these limits."""
        self.limits = limits
        if self.transport is not None:
            self.transport.set_write_buffer_limits(limits.write_buffer)
            keep_alive(self.transport, limits.peer_timeout_s, bound_unacknowledged=True)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self.splitter.buffer_updated(nbytes)
        except FrameError as error:
            self.session.broker_frames(error.frames)
            self.session.broker_frame_error()
            return
        self.session.broker_frames(frames)

    def pause_writing(self) -> None:
        self.is_full = True
        self.session.broker_full()

    def resume_writing(self) -> None:
        self.is_full = False
        if self.parts:
            self._go_on()
        else:
            self.session.broker_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.parts.clear()
        self.problem = "" if exc is None else problem_of(exc)
        self.session.broker_lost()

    def write(self, pieces: list[bytes | memoryview]) -> None:
        """Write pieces in their order; nothing once the connection closes.

        A large piece goes out in parts, one in each turn of the loop: the kernel may take all of it
        at once, and copying 60 MB takes 20 ms.
        """
        transport = self.transport
        if not pieces or transport is None or transport.is_closing():
            return
        if self.parts:
            self.parts += pieces
        elif len(pieces) == 1:
            if len(pieces[0]) <= LARGEST_WRITE:
                transport.write(pieces[0])
            else:
                self._write_parts(pieces)
        elif sum(map(len, pieces)) <= LARGEST_WRITE:
            transport.writelines(pieces)
        else:
            self._write_parts(pieces)

    def _write_parts(self, pieces: list[bytes | memoryview]) -> None:
        self.parts.extend(pieces)
        self.session.broker_full()
        self._go_on()

    def _go_on(self) -> None:
        """Write one part, and the next in the next turn, as long as the broker takes them."""
        transport = self.transport
        if transport is None or transport.is_closing():
            self.parts.clear()
            return
        free = LARGEST_WRITE
        while self.parts and free > 0:
            first = memoryview(self.parts[0])
            transport.write(first[:free])
            if len(first) <= free:
                self.parts.popleft()
            else:
                self.parts[0] = first[free:]
            free -= len(first)
        if not self.parts:
            if self.ends:
                transport.close()
            elif not self.is_full:
                self.session.broker_drained()
        elif not self.is_full:
            asyncio.get_running_loop().call_soon(self._go_on)

    def close(self) -> None:
        """Close once all is written."""
        self.ends = True
        if not self.parts and self.transport is not None:
            self.transport.close()

    def hold(self, why: int) -> None:
        """Stop reading, as long as any reason stands."""
        if not self.holds and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self.holds |= why

    def release(self, why: int) -> None:
        """Take one reason away."""
        if self.holds & why:
            self.session.broker_read_again(self.holds & why)
            self.holds &= ~why
            if not self.holds and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def unwritten(self) -> int:
        """Return the bytes that the broker has not taken."""
        written = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return written + sum(map(len, self.parts))


class ClientSide(Protocol):
    """The part of a session that its client's connection calls."""

    def client_accepted(self) -> None: ...
    def client_frames(self, frames: list[memoryview]) -> None: ...
    def client_frame_error(self, error: FrameError) -> None: ...
    def client_full(self) -> None: ...
    def client_drained(self) -> None: ...
    def client_lost(self) -> None: ...
    def client_held(self, why: int) -> None: ...
    def client_released(self, why: int) -> None: ...


class ClientConnection(asyncio.BufferedProtocol):
    """Frames in and out on the client's side of one session.

    ``holds``  why it is not read: a bit for each reason of the module ``holds``
    """

    __slots__ = ("get_buffer", "holds", "session", "splitter", "transport")

    def __init__(self, session: ClientSide, max_frame_bytes: int, spare: SpareBlock) -> None:
        self.session = session
        self.splitter = FrameSplitter(max_frame_bytes, whole=True, spare=spare)
        self.get_buffer = self.splitter.get_buffer  # type: ignore[assignment,method-assign]  # a call less
        self.transport: asyncio.Transport | None = None
        self.holds = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.session.client_accepted()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self.splitter.buffer_updated(nbytes)
        except FrameError as error:
            self.session.client_frames(error.frames)
            self.session.client_frame_error(error)
            return
        self.session.client_frames(frames)

    def pause_writing(self) -> None:
        self.session.client_full()

    def resume_writing(self) -> None:
        self.session.client_drained()

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.session.client_lost()

    def write(self, pieces: list[bytes | memoryview]) -> None:
        """Write pieces in their order; nothing once the connection closes."""
        transport = self.transport
        if not pieces or transport is None or transport.is_closing():
            return
        if len(pieces) == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)

    def end_writing(self) -> None:
        """Send an end of file once all is written, and still read. TLS cannot send one."""
        transport = self.transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()

    def hold(self, why: int) -> None:
        """Stop reading, as long as any reason stands."""
        if not self.holds:
            if self.transport is not None and not self.transport.is_closing():
                self.transport.pause_reading()
            self.session.client_held(why)
        self.holds |= why

    def release(self, why: int) -> None:
        """Take one reason away."""
        if self.holds & why:
            self.holds &= ~why
            if not self.holds:
                if self.transport is not None and not self.transport.is_closing():
                    self.transport.resume_reading()
                self.session.client_released(why)

    def unwritten(self) -> int:
        """Return the bytes that the client has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()
