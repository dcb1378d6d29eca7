"""The two connections of a session: its client's and its broker's.

    ClientConnection  bytes become frames for its session, and the session's bytes go out
    BrokerConnection  requests out as they come, answers in, in their order
    Connections       both of one session: why each is not read, and what each holds

The session decides everything: what a frame means, and when a connection ends. Only the parts of
large pieces are queued here: the client's window bounds what is under way. A broker that does not
read fills the transport's buffer, and then the session stops reading the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Final, Protocol, cast

from batchval.protocol.frames import FrameError, FrameSplitter, SpareBlock
from batchval.proxy.cluster.endpoints import address_text, problem_of
from batchval.proxy.kit.sockets import address_of, keep_alive, unread
from batchval.proxy.session.fast_path import AnswerPassage, RequestPassage
from batchval.proxy.session.socket_transport import PASSED_REST, SocketTransport
from batchval.proxy.settings.config import Limits

__all__ = [
    "ANSWERS",
    "BROKER",
    "BUDGET",
    "CONVERTING",
    "ENDING",
    "IN_WORDS",
    "SASL",
    "TURN",
    "UNKNOWN",
    "VALIDATING",
    "BrokerConnection",
    "ClientConnection",
    "Connections",
]

# ---- why a connection is not read, a bit for each reason -----------------------------------------

BROKER: Final = 1  # the broker does not take what is there

VALIDATING: Final = 2  # enough waits for its verdict, or for its place

ANSWERS: Final = 4  # the client does not take its answers; the broker is not read either

BUDGET: Final = 8  # all sessions together hold too much; the broker is not read either

ENDING: Final = 16

TURN: Final = 32  # requests that have been read wait for their turn on the loop

SASL: Final = 64  # the broker's answer decides how the next bytes are read

UNKNOWN: Final = 128  # nobody knows yet whether brokers authenticate, and the request is large

CONVERTING: Final = 256  # the broker alone is not read: an answer of it is converted

#: Bytes of a broker's answer.
MAX_ANSWER_BYTES: Final = 0x7FFFFFFF

#: The reasons for a client, for the log.
IN_WORDS: Final = {
    BROKER: "the broker takes no requests",
    VALIDATING: "requests wait for their verdict",
    ANSWERS: "the client takes no answers",
    BUDGET: "limits.max_bytes_held",
    ENDING: "the connection ends",
    TURN: "other clients have their turn",
    SASL: "the broker's answer to SaslHandshake is awaited",
    UNKNOWN: "no broker has shown whether clients have to authenticate",
}

#: Bytes that may wait for a client however many clients there are.
MIN_WRITE_BUFFER: Final = 16 << 10

#: Bytes that are written in one turn of the loop.
MAX_WRITE_BYTES: Final = 4 << 20


class BrokerSide(Protocol):
    """The part of a session that its connection to a broker calls."""

    def broker_frames(
        self, frames: list[memoryview], error: FrameError | None = None, outcome: int = ...
    ) -> None: ...
    def broker_full(self, is_full: bool) -> None: ...
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
        self.splitter = FrameSplitter(MAX_ANSWER_BYTES, whole=True, spare=spare)
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
            self.transport.set_write_buffer_limits(limits.write_buffer_bytes)
            keep_alive(self.transport, limits.peer_timeout_ms / 1000, bound_unacknowledged=True)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self.splitter.buffer_updated(nbytes)
        except FrameError as error:
            self.session.broker_frames(error.frames, error)
            return
        self.session.broker_frames(frames)

    def frames_came(self, frames: list[memoryview], outcome: int, error: FrameError | None) -> None:
        """Take what a SocketTransport has received; ``outcome``: of the frames before."""
        self.session.broker_frames(frames, error, outcome)

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def pause_writing(self) -> None:
        self.is_full = True
        self.session.broker_full(True)

    def resume_writing(self) -> None:
        self.is_full = False
        if self.parts:
            self._go_on()
        else:
            self.session.broker_full(False)

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
            if len(pieces[0]) <= MAX_WRITE_BYTES:
                transport.write(pieces[0])
            else:
                self._write_parts(pieces)
        elif sum(map(len, pieces)) <= MAX_WRITE_BYTES:
            transport.writelines(pieces)
        else:
            self._write_parts(pieces)

    def _write_parts(self, pieces: list[bytes | memoryview]) -> None:
        self.parts.extend(pieces)
        self.session.broker_full(True)
        self._go_on()

    def _go_on(self) -> None:
        """Write one part, and the next in the next turn, as long as the broker takes them."""
        transport = self.transport
        if transport is None or transport.is_closing():
            self.parts.clear()
            return
        free = MAX_WRITE_BYTES
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
                self.session.broker_full(False)
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

    def release(self, why: int) -> int:
        """Take reasons away; return those that stood until now."""
        stood = self.holds & why
        if stood:
            self.holds &= ~why
            if not self.holds and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()
        return stood

    def unwritten(self) -> int:
        """Return the bytes that the broker has not taken."""
        written = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return written + sum(map(len, self.parts))


class ClientSide(Protocol):
    """The part of a session that its client's connection calls."""

    def client_accepted(self) -> None: ...
    def client_frames(
        self, frames: list[memoryview], error: FrameError | None = None, outcome: int = ...
    ) -> None: ...
    def client_full(self, is_full: bool) -> None: ...
    def client_lost(self) -> None: ...


class ClientConnection(asyncio.BufferedProtocol):
    """Frames in and out on the client's side of one session.

    ``holds``  why it is not read: a bit for each reason
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
            self.frames_came(error.frames, PASSED_REST, error)
            return
        self.session.client_frames(frames)

    def frames_came(self, frames: list[memoryview], outcome: int, error: FrameError | None) -> None:
        """Take what a SocketTransport has received; ``outcome``: of the frames before."""
        self.session.client_frames(frames, None, outcome)
        if error is not None:
            self.session.client_frames([], error)

    def pause_writing(self) -> None:
        self.session.client_full(True)

    def resume_writing(self) -> None:
        self.session.client_full(False)

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

    def hold(self, why: int) -> bool:
        """Stop reading, as long as any reason stands; return whether it was read until now."""
        was_read = not self.holds
        self.holds |= why
        if was_read and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        return was_read

    def release(self, why: int) -> bool:
        """Take one reason away; return whether it is read again."""
        if not self.holds & why:
            return False
        self.holds &= ~why
        if self.holds:
            return False
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
        return True

    def unwritten(self) -> int:
        """Return the bytes that the client has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()


class Connections:
    """Both connections of one session, for what concerns the two of them."""

    __slots__ = (
        "_answers",
        "_requests",
        "_write_buffer",
        "broker",
        "client",
        "counted",
        "task",
    )

    def __init__(self, client: ClientConnection) -> None:
        self.client = client
        self.broker: BrokerConnection | None = None  # while it is open
        # the TLS handshake, or the connection to the broker, while it is under way
        self.task: asyncio.Task[None] | None = None
        self.counted = 0  # what the budget has noted outside of blocks; the budget writes it
        self._write_buffer = 0  # the bound on what waits for the client
        # the ways past the session; ``let_pass`` says when they are open
        self._requests: RequestPassage | None = None
        self._answers: AnswerPassage | None = None

    # ---- their lives -----------------------------------------------------------------------------

    @property
    def are_gone(self) -> bool:
        """Return whether both have ended, and none is being opened."""
        return self.client.transport is None and self.broker is None and self.task is None

    async def open_broker(self, broker: BrokerConnection, connecting: Awaitable[None]) -> None:
        """Open the broker's. Raises what ``connecting`` raises."""
        try:
            await connecting
            self.broker = broker
        except asyncio.CancelledError:
            if broker.transport is not None:
                broker.transport.abort()
            raise
        finally:
            self.task = None
            if self.broker is not broker:
                # uvloop may have closed it when this was cancelled, without a call of the protocol
                broker.transport = None

    async def secure(self, secured: Awaitable[asyncio.Transport]) -> None:
        """Wait for the TLS handshake with the client. Raises what ``secured`` raises."""
        try:
            self.client.transport = await secured
        except BaseException:
            self.client.transport = None
            raise
        finally:
            self.task = None

    def accepted(self, limits: Limits) -> None:
        """Ask the kernel to find out whether the client is still there."""
        # no bound on what it has not acknowledged: consumers may go minutes without reading; see
        # ``Session.check_time``
        assert self.client.transport is not None
        keep_alive(self.client.transport, limits.peer_timeout_ms / 1000, bound_unacknowledged=False)

    def hold_opened(self, broker: BrokerConnection) -> None:
        """Do not read a broker's that is new as long as its answers would wait."""
        if why := self.client.holds & (ANSWERS | BUDGET):
            broker.hold(why)

    def close_broker(self) -> int:
        """Close the broker's once all is written; return why it was not read until now."""
        self.cancel_task()
        if self.broker is None or self.broker.transport is None:
            return 0
        # a transport that is not read never sees its end
        stood = self.broker.release(ANSWERS | BUDGET | TURN | CONVERTING)
        self.broker.close()
        return stood

    def abort(self) -> None:
        """Close both at once."""
        if self.client.transport is not None:
            self.client.transport.abort()
        self.abort_broker()
        self.cancel_task()

    def abort_broker(self) -> None:
        """Close the broker's at once."""
        if self.broker is not None and self.broker.transport is not None:
            self.broker.transport.abort()

    def cancel_task(self) -> None:
        """End the TLS handshake, or do not connect to the broker."""
        task, self.task = self.task, None
        if task is not None:
            task.cancel()

    # ---- past the session ------------------------------------------------------------------------

    def link(self, requests: RequestPassage, answers: AnswerPassage) -> None:
        """Give each side that is plain TCP its way to the other, which ``let_pass`` opens."""
        client, broker = self.client.transport, self.broker and self.broker.transport
        if isinstance(client, SocketTransport) and broker is not None:
            requests.to = broker
            client.passage = self._requests = requests
        if isinstance(broker, SocketTransport) and client is not None:
            answers.to = client
            broker.passage = self._answers = answers

    def let_pass(self, *, requests: bool, answers: bool) -> None:
        """Let frames that need nothing more go from socket to socket, or the session have all."""
        if self._requests is not None:
            self._requests.is_open = requests
        if self._answers is not None:
            self._answers.is_open = answers

    def bound_waiting(self, most: int) -> None:
        """Bound the answers that may wait while requests pass."""
        if self._requests is not None:
            self._requests.most_waiting = most

    def take_passed(self) -> tuple[int, int]:
        """Return how many requests and answers have passed since the last call."""
        requests, answers = self._requests, self._answers
        return (
            0 if requests is None else requests.take_passed(),
            0 if answers is None else answers.take_passed(),
        )

    # ---- bounds ----------------------------------------------------------------------------------

    def bound(self, limits: Limits, before: Limits) -> None:
        """Hold both to these limits."""
        transport = self.client.transport
        if transport is not None and limits.peer_timeout_ms != before.peer_timeout_ms:
            keep_alive(transport, limits.peer_timeout_ms / 1000, bound_unacknowledged=False)
        if self.broker is not None:
            self.broker.bound(limits)

    def bound_writes(self, limits: Limits, held_limit: int, connections: int) -> None:
        """Bound what waits for the client: less, the more clients there are.

        ``held_limit``  bytes that all sessions may hold
        """
        limit = max(MIN_WRITE_BUFFER, held_limit // 16 // max(1, connections))
        limit = min(limits.write_buffer_bytes, limit)
        if limit != self._write_buffer and self.client.transport is not None:
            self._write_buffer = limit
            self.client.transport.set_write_buffer_limits(limit)

    # ---- what they hold --------------------------------------------------------------------------

    def is_read(self) -> bool:
        """Return whether only the budget or the client keeps its request from growing."""
        return not self.client.holds & ~(BUDGET | ANSWERS)

    def partial_bytes(self) -> int:
        """Return what has come of the client's unfinished request."""
        return self.client.splitter.buffered

    def answer_bytes(self) -> int:
        """Return what has come of an answer that must be whole, if only the budget holds it up."""
        broker = self.broker
        return 0 if broker is None or broker.holds & ~BUDGET else broker.splitter.buffered

    def unwritten(self) -> int:
        """Return the bytes of answers that the client has not taken."""
        return self.client.unwritten()

    def unread(self) -> int:
        """Return what the client has sent and nobody has read; -1 where that is not known."""
        return unread(self.client.transport)

    def partial_held(self) -> int:
        """Return the memory of an unfinished request, and of an answer that must be whole."""
        held, broker = self.client.splitter.held_bytes, self.broker
        return held if broker is None else held + broker.splitter.held_bytes

    def partial_size(self) -> int:
        """Return the larger size that an unfinished request or answer states; 0: not known yet."""
        size, broker = self.client.splitter.partial_size, self.broker
        return max(size, broker.splitter.partial_size) if self.answer_bytes() and broker else size

    def held(self) -> int:
        """Return the memory of frames in part, and of what waits to be written."""
        held = self.partial_held() + self.client.unwritten()
        return held if self.broker is None else held + self.broker.unwritten()
