"""A client's connection: bytes become frames for its session, and the session's bytes go out.

The session decides what a frame means, and when the connection ends.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from batchval.protocol.frames import FrameError, FrameSplitter, SpareBlock

__all__ = ["ClientConnection", "ClientSide"]


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
