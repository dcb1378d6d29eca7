"""The sockets between a parent and one worker: messages with their length, and descriptors.

uint32 length, pickled message     on the stream ``control``
pickled header + one descriptor    a packet of ``passing`` (SCM_RIGHTS)
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from batchval.proxy.workers.control_messages import PassedHeader

__all__ = ["Channel", "Pairs", "connection_of", "encoded", "pass_connection", "read_message"]

_LENGTH: Final = struct.Struct("=I")
_DESCRIPTOR: Final = struct.Struct("i")
#: Of a packet: a header is some 200 bytes, an answer with the ports of one broker a few kB.
MAX_PACKET_BYTES: Final = 64 << 10
#: Seconds for the other process to read what was sent last.
FINISH_S: Final = 5.0
#: Seconds after which no further message is taken in one turn of the event loop; one takes 0.4 ms
#: at most.
TURN_S: Final = 0.0003


class Pairs(NamedTuple):
    """One end of each pair of sockets."""

    control: socket.socket
    passing: socket.socket
    asking: socket.socket

    @classmethod
    def made(cls) -> tuple[Pairs, Pairs]:
        """Return both ends. Raises OSError."""
        kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_SEQPACKET)
        made: list[tuple[socket.socket, socket.socket]] = []
        try:
            for kind in kinds:
                made.append(socket.socketpair(socket.AF_UNIX, kind))
        except OSError:
            for pair in made:
                for one in pair:
                    one.close()
            raise
        return cls(*(pair[0] for pair in made)), cls(*(pair[1] for pair in made))

    @classmethod
    def inherited(cls, numbers: list[int]) -> Pairs:
        """Return this process' ends, by their descriptors."""
        ends = [socket.socket(fileno=number) for number in numbers]
        for end in ends:
            end.set_inheritable(False)
        return cls(*ends)

    def close(self) -> None:
        """Close all three."""
        for one in self:
            one.close()


def encoded(message: object) -> bytes:
    """Return a message as it goes over a stream."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


def read_message(sock: socket.socket) -> Any:
    """Read one message of a stream that blocks. Raises EOFError."""
    (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size))
    return pickle.loads(_read(sock, length))


def _read(sock: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        more = sock.recv(count - len(found))
        if not more:
            raise EOFError("the other process has closed its socket")
        found += more
    return bytes(found)


class Channel(asyncio.Protocol):
    """Messages in both directions on the event loop, in their order.

    One read may bring hundreds: those that take longer than TURN_S wait for the next turn of the
    event loop, and nothing is read meanwhile.

    ``received``  is called with each;  ``ended`` once when the other process has closed its end,
                  after the last message
    """

    def __init__(self, received: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self._received = received
        self._ended = ended
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._is_finishing = False
        self._is_closed = asyncio.Event()
        self._next_turn: asyncio.Handle | None = None  # while messages wait for it
        self._is_held = self._has_ended = False

    async def open(self, sock: socket.socket) -> None:
        """Take over the socket."""
        sock.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self, sock)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._next_turn is None:
            self._take()

    def _take(self) -> None:
        """Take what has come, for TURN_S; leave the others to the next turn."""
        self._next_turn = None
        buffer, at, until = self._buffer, 0, time.perf_counter() + TURN_S
        try:
            while (end := _end_of_message(buffer, at)) is not None:
                if at and time.perf_counter() >= until:
                    self._next_turn = asyncio.get_running_loop().call_soon(self._take)
                    break
                message = pickle.loads(buffer[at + _LENGTH.size : end])
                at = end
                self._received(message)
        except BaseException:
            if self._transport is not None:
                self._transport.abort()
            raise
        finally:
            del buffer[:at]
        self._hold(self._next_turn is not None)
        if self._has_ended and self._next_turn is None:
            self._ended()

    def _hold(self, is_held: bool) -> None:
        """Read nothing while messages wait."""
        if is_held is self._is_held or self._transport is None or self._transport.is_closing():
            return
        self._is_held = is_held
        if is_held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_closed.set()
        self._has_ended = True
        if self._next_turn is None:
            self._ended()

    def send(self, message: object) -> None:
        """Send a message; nothing once the other process is gone, or after ``finish``."""
        if (
            self._transport is not None
            and not self._is_finishing
            and not self._transport.is_closing()
        ):
            self._transport.write(encoded(message))

    async def finish(self) -> None:
        """End what is sent, and wait for at most `FINISH_S` until the other process has read it.

        What comes meanwhile is still read. A socket that was closed instead would fail the other
        process' next write, and what it had not read by then would be lost.
        """
        if self._transport is not None and not self._transport.is_closing():
            self._is_finishing = True
            self._transport.write_eof()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_closed.wait(), FINISH_S)
        self.close()

    def close(self) -> None:
        """Close the socket, after what was sent. Messages that wait here are not taken any more."""
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        self._buffer.clear()
        if self._transport is not None:
            self._transport.close()


def _end_of_message(buffer: bytearray, at: int) -> int | None:
    """Return where the message ends that begins at a position; None where its end is not here."""
    if len(buffer) - at < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer, at)
    end: int = at + _LENGTH.size + length
    return end if end <= len(buffer) else None


def pass_connection(
    passing: socket.socket, header: PassedHeader, connection: socket.socket
) -> None:
    """Pass a connection. Raises BlockingIOError while the worker is full, or OSError."""
    packet = pickle.dumps(header, pickle.HIGHEST_PROTOCOL)
    descriptors = _DESCRIPTOR.pack(connection.fileno())
    # not socket.send_fds and recv_fds, which ignore their flags in Python 3.11
    passing.sendmsg(
        [packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)], socket.MSG_DONTWAIT
    )


def connection_of(passing: socket.socket) -> tuple[PassedHeader, socket.socket | None] | None:
    """Return the next connection; None after the last.

    The socket is None where this process has no descriptor for it: the kernel has closed it.
    Raises BlockingIOError.
    """
    flags = socket.MSG_DONTWAIT | getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    packet, ancillary, _, _ = passing.recvmsg(
        MAX_PACKET_BYTES, socket.CMSG_LEN(_DESCRIPTOR.size), flags
    )
    if not packet:
        return None
    header: PassedHeader = pickle.loads(packet)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(
            data
        ) >= _DESCRIPTOR.size:
            return header, socket.socket(fileno=_DESCRIPTOR.unpack_from(data)[0])
    return header, None
