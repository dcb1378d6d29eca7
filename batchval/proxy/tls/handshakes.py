"""TLS handshakes of clients: admitted one after another, and computed in a thread.

The states of one handshake:

    HELLO     the first record is awaited. It has neither a TLS object nor a slot
    WAITING   the whole ClientHello is here. Addresses take turns, one handshake a turn
    SHAKING   OpenSSL has the ClientHello; the client's answer is awaited
    SECURED   the transport is TLS, and the client's protocol has it

Why a thread: ``do_handshake`` releases the GIL, and its cost is what the client and the key choose.
Measured for one ClientHello on the server's side: 0.2 ms (ECDSA P-256), 0.4 ms (RSA 2048), 5.4 ms
(RSA 4096), 120 ms (a client that chooses the group ffdhe8192, which ``tls`` does not offer). On the
event loop every client would wait for that.

How: ``SSLContext.sslobject_class`` is public, so asyncio and uvloop make the TLS object of
``start_tls`` from a class of this module. Its ``do_handshake`` only notes that it was called. The
connection's plain transport is not read while the thread works, and its protocol is a guard that
keeps the loss of the connection back until the thread has ended: nothing else touches the two
memory BIOs meanwhile. After the handshake the guard is gone, and data goes the event loop's own
way, but that one read is at most ``MAX_TLS_READ_BYTES``.

Why a pause: what remains on the event loop costs about 0.4 ms a handshake. Starts are
``START_INTERVAL_S`` apart, so that handshakes leave the other clients more than half of the loop's
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Final, Literal, cast

from batchval.errors import BatchvalError
from batchval.proxy.settings.options import Counters
from batchval.proxy.tls.tls import refusal_of

__all__ = [
    "ClientHelloCallback",
    "HandshakeError",
    "Handshakes",
    "NoHandshakeError",
]

#: Bytes that are read from the socket at once.
MAX_TLS_READ_BYTES: Final = 64 << 10

START_INTERVAL_S: Final = 0.001

#: Handshakes that have a TLS object. Where all are taken, the oldest is closed once it is
#: ``SLOT_S`` old.
MAX_SHAKING: Final = 256
SLOT_S: Final = 1.0

HandshakeFailure = Literal[
    "plaintext",
    "malformed",
    "timeout",
    "client",
    "certificate",
    "protocol",
    "crowded",
    "sni_missing",
    "sni_unknown",
]

ClientHelloCallback = Callable[[bytes], object] | None

# RFC 8446, 5.1 and 4
_HANDSHAKE = 22
_CLIENT_HELLO = 1
_MAX_RECORD = 1 << 14
_RECORD_HEADER = 5
_MESSAGE_HEADER = 4
_SCRATCH = 64 << 10
_ALERT = bytes([21, 3, 3, 0, 2, 2])  # the description comes after it: RFC 8446, 6


class HandshakeError(BatchvalError):
    """A handshake that failed. ``reason`` is a word for counters; the connection is closed
    already.

    ``alert``  the TLS alert that the client gets where OpenSSL has sent none
    """

    def __init__(self, reason: HandshakeFailure, text: str, *, alert: int | None = None) -> None:
        super().__init__(text)
        self.reason: HandshakeFailure = reason
        self.alert = alert


class NoHandshakeError(HandshakeError):
    """The client closed the connection before it sent a byte: a probe, which failed nothing."""


class Handshakes:
    """The handshakes of all listeners of one event loop: a fair queue, and one thread."""

    def __init__(self, counters: Counters | None = None) -> None:
        self.counters = Counters() if counters is None else counters
        self.scratch = memoryview(bytearray(_SCRATCH))
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: dict[str, deque[_Guard]] = {}  # by network, the next one first
        self._shaking: dict[_Guard, float] = {}  # since when, the oldest first
        self._starting: _Guard | None = None
        self._start_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def secure(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        timeout_s: float,
        look: ClientHelloCallback = None,
    ) -> Awaitable[asyncio.Transport]:
        """Return what is to be awaited for the TLS transport of a client; ``transport`` is plain
        TCP.

        Call this in ``connection_made`` itself, where nothing has been read yet, and await it in a
        task. ``timeout_s`` covers the wait for the ClientHello, the wait for a turn, and the
        handshake. ``look`` is called with the record of the ClientHello when it is whole, and may
        raise HandshakeError. ``protocol`` gets no call meanwhile, and then first what has come by
        then. To end it earlier, cancel it or abort ``transport``. Awaiting it raises
        HandshakeError; then the connection is closed, and ``protocol`` never gets a call.
        """
        guard = _Guard(self, transport, look)
        transport.set_protocol(guard)
        return _Awaitable(lambda: self._secure(guard, protocol, context, timeout_s))

    async def _secure(
        self,
        guard: _Guard,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        timeout_s: float,
    ) -> asyncio.Transport:
        try:
            async with asyncio.timeout(timeout_s):
                secured = await guard.run(protocol, context)
        except TimeoutError:
            raise self._failed(
                HandshakeError("timeout", f"no TLS handshake within {timeout_s:g} s")
            ) from None
        except NoHandshakeError:
            raise
        except HandshakeError as error:
            raise self._failed(error) from None
        except (OSError, ValueError) as error:
            # asyncio raises it in a frame that knows it
            raise self._failed(_classified(error.with_traceback(None))) from None
        finally:
            self._over(guard)
            if guard.state != "SECURED":
                guard.hang_up()
            guard.dissolve()
        self.counters.handshakes_total += 1
        return secured

    def close(self) -> None:
        """End the thread. What is under way has to be cancelled before."""
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    # ---- turns -----------------------------------------------------------------------------------

    def queue(self, guard: _Guard) -> None:
        """Let a handshake wait for its turn."""
        self._waiting.setdefault(guard.network, deque()).append(guard)
        self._grant()

    def started(self, guard: _Guard) -> None:
        """Note that the answer to a ClientHello is computed: the next handshake may start."""
        if guard is self._starting:
            self._starting = None
            self._grant()

    def _over(self, guard: _Guard) -> None:
        self._shaking.pop(guard, None)
        self.started(guard)
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        if self._starting is not None or self._timer is not None:
            return
        guard = self._next()
        if guard is None:
            return
        now = guard.loop.time()
        start_at = self._start_at
        if len(self._shaking) >= MAX_SHAKING:
            oldest, since = next(iter(self._shaking.items()))
            start_at = max(start_at, since + SLOT_S)
            if start_at <= now:
                del self._shaking[oldest]
                oldest.fail(
                    HandshakeError(
                        "crowded", "a slot was needed, and this handshake was the oldest"
                    )
                )
        if start_at > now:
            self._timer = guard.loop.call_at(start_at, self._wake)
            return
        queue = self._waiting.pop(guard.network)
        queue.popleft()
        if queue:
            self._waiting[guard.network] = queue  # after the others
        self._start_at = now + START_INTERVAL_S
        self._starting = guard
        self._shaking[guard] = now
        guard.turn.set_result(None)

    def _next(self) -> _Guard | None:
        """Return the first that still waits; those that have left are dropped."""
        while self._waiting:
            network, queue = next(iter(self._waiting.items()))
            while queue:
                if not queue[0].turn.done():
                    return queue[0]
                queue.popleft()
            del self._waiting[network]
        return None

    def _wake(self) -> None:
        self._timer = None
        self._grant()

    # ---- the thread ------------------------------------------------------------------------------

    def compute(self, guard: _Guard, tls: ssl.SSLObject) -> asyncio.Future[list[Exception]]:
        """Go on with a handshake in the thread."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="batchval-tls")
        return guard.loop.run_in_executor(self._thread, _do_handshake, tls)

    # ---- what failed -----------------------------------------------------------------------------

    def _failed(self, error: HandshakeError) -> HandshakeError:
        """Count a failed handshake."""
        failed = self.counters.handshakes_failed
        failed[error.reason] = failed.get(error.reason, 0) + 1
        return error


class _Awaitable:
    """A coroutine that is created when it is awaited: a cancelled task may never await it."""

    def __init__(self, coroutine: Callable[[], Coroutine[Any, Any, asyncio.Transport]]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, asyncio.Transport]:
        return self._coroutine().__await__()


class _Guard(asyncio.BufferedProtocol):
    """The protocol of the plain transport until the connection is secured."""

    def __init__(
        self, handshakes: Handshakes, transport: asyncio.Transport, look: ClientHelloCallback
    ) -> None:
        self.handshakes = handshakes
        self.transport = transport
        self.look = look
        self.loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) else "unknown"
        self.network = _network(host)
        self.state: Literal["HELLO", "WAITING", "SHAKING", "SECURED"] = "HELLO"
        self.hello = bytearray()
        self.turn: asyncio.Future[None] = self.loop.create_future()
        self._inner: asyncio.BufferedProtocol | None = None  # the event loop's SSLProtocol
        self._task: asyncio.Task[asyncio.Transport | None] | None = None
        self._failure: HandshakeError | None = None
        self._asked: ssl.SSLObject | None = None  # that the event loop wants to go on with
        self._computing = False
        self._outcome: tuple[Exception | None] | None = None
        self._lost: tuple[Exception | None] | None = None

    async def run(
        self, protocol: asyncio.BufferedProtocol, context: ssl.SSLContext
    ) -> asyncio.Transport:
        """Return the TLS transport."""
        context.sslobject_class = _ComputedObject
        try:
            await self.turn
            return await self._shake(protocol, context)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._failure is None or (current is not None and current.cancelling()):
                raise
            raise self._failure from None
        finally:
            self.turn.cancel()

    async def _shake(
        self, protocol: asyncio.BufferedProtocol, context: ssl.SSLContext
    ) -> asyncio.Transport:
        if self.transport.is_closing():
            raise _left()
        self.state = "SHAKING"
        early = _Early(self.handshakes.scratch)
        start = self.loop.start_tls(self.transport, early, context, server_side=True)
        self._task = self.loop.create_task(start)
        try:
            await asyncio.sleep(0)  # start_tls has set its protocol, and reads nothing yet
            self._inner = cast(asyncio.BufferedProtocol, self.transport.get_protocol())
            self.transport.set_protocol(self)
            await asyncio.sleep(0)  # the TLS object is made
            self._feed_hello()
            secured = await self._task
        finally:
            self._task.cancel()
        if secured is None or self._lost is not None or early.is_lost or self._outcome != (None,):
            raise self._failure or _left()
        self.state = "SECURED"
        self.loop.call_soon(early.hand_over, secured, protocol)  # until then early takes what comes
        return secured

    def fail(self, error: HandshakeError) -> None:
        """End the handshake, unless it has ended."""
        if self._failure is None:
            self._failure = error
        if self._task is not None:
            self._task.cancel()
        else:
            self.turn.cancel()

    def hang_up(self) -> None:
        """End the connection, after the alert of what has failed."""
        alert = None if self._failure is None else self._failure.alert
        if alert is not None and not self.transport.is_closing():
            # the first bytes of the connection, and not by the transport, which would wait for a
            # client that takes nothing
            with contextlib.suppress(OSError):
                os.write(self.transport.get_extra_info("socket").fileno(), _ALERT + bytes([alert]))
        self.transport.abort()

    def dissolve(self) -> None:
        """Cut the cycles of a handshake that is over; reference counts free it.

        What fails holds the frames that it was raised in, and a TLS transport its context.
        """
        self.look = self._failure = self._task = None
        if self.state == "SECURED":
            self._inner = None  # else it has to know that the connection is lost

    # ---- the transport's calls -------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return (
            self.handshakes.scratch
            if self._inner is None
            else memoryview(self._inner.get_buffer(sizehint))
        )

    def buffer_updated(self, nbytes: int) -> None:
        if self._inner is not None:
            self._drive(nbytes)
            return
        self.hello += self.handshakes.scratch[:nbytes]
        problem = _problem(self.hello)
        if problem is not None:
            self.fail(problem)
        elif len(self.hello) > _SCRATCH:
            self.transport.pause_reading()
        elif self.state == "HELLO" and len(self.hello) >= _record_length(self.hello):
            self._queue()

    def _queue(self) -> None:
        try:
            if self.look is not None:
                self.look(bytes(self.hello[: _record_length(self.hello)]))
        except HandshakeError as error:
            self.fail(error)
            return
        self.state = "WAITING"
        self.handshakes.queue(self)

    def eof_received(self) -> bool | None:
        return None if self._inner is None or self._computing else self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = (exc,)
        if self._inner is None:
            self.fail(
                _left() if self.hello else NoHandshakeError("client", "the client sent nothing")
            )
        if not self._computing:
            self._tell_lost()

    def _tell_lost(self) -> None:
        """Tell the event loop's SSLProtocol why the connection is lost, and keep neither of both.

        The exception is raised in frames that know this object.
        """
        assert self._lost is not None
        (exc,), self._lost = self._lost, (None,)
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(exc)

    # ---- the handshake ---------------------------------------------------------------------------

    def _feed_hello(self) -> None:
        if self._inner is None or self.transport.is_closing():
            raise _left()
        while self.hello and not self._computing:
            buffer = memoryview(self._inner.get_buffer(len(self.hello)))
            count = min(len(buffer), len(self.hello))
            buffer[:count] = self.hello[:count]
            del self.hello[:count]
            self._drive(count)

    def _drive(self, nbytes: int) -> None:
        """Hand what has come to the event loop's SSLProtocol, and compute what it asks for."""
        assert self._inner is not None
        token = _DRIVING.set(self)
        try:
            self._inner.buffer_updated(nbytes)
        finally:
            _DRIVING.reset(token)
        tls, self._asked = self._asked, None
        if tls is not None and not self.transport.is_closing():
            self._computing = True
            self.transport.pause_reading()
            self.handshakes.compute(self, tls).add_done_callback(self._computed)

    def ask(self, tls: ssl.SSLObject) -> None:
        """Answer do_handshake: the outcome where it is here, else "more data is needed"."""
        if self._outcome is None:
            self._asked = tls
            raise ssl.SSLWantReadError(
                ssl.SSL_ERROR_WANT_READ, "the handshake is computed in a thread"
            )
        outcome = self._outcome[0]
        if outcome is not None:
            self._outcome = None
            try:
                raise outcome
            finally:
                del outcome  # its traceback holds this frame

    def _computed(self, future: asyncio.Future[list[Exception]]) -> None:
        self._computing = False
        self.handshakes.started(self)
        if self._lost is not None:
            self._tell_lost()
            return
        assert self._inner is not None
        if future.cancelled() or self.transport.is_closing():
            return
        # taken out: raised, it knows this frame, and this frame knows the future
        errors = future.result()
        self._outcome = (errors.pop() if errors else None,)
        self._drive(0)
        if self._outcome == (None,):
            self.transport.set_protocol(_Reads(self._inner))
        if not self.transport.is_closing():
            if self.hello:
                self._feed_hello()
            if not self._computing:
                self.transport.resume_reading()


class _Reads(asyncio.BufferedProtocol):
    """The protocol of the plain transport after the handshake: the SSLProtocol, with reads of
    bounded size.

    A read that OpenSSL gets at once is decrypted in one callback: 13 ms of CPU where 256 KiB are
    records of one byte each. The connection also keeps the memory of its largest read.
    """

    def __init__(self, inner: asyncio.BufferedProtocol) -> None:
        # the SSLProtocol has one buffer for as long as it lives
        buffer = memoryview(inner.get_buffer(MAX_TLS_READ_BYTES))[:MAX_TLS_READ_BYTES]
        self.get_buffer = lambda sizehint: buffer  # type: ignore[method-assign]
        self.buffer_updated = inner.buffer_updated  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.connection_lost = inner.connection_lost  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]


class _ComputedObject(ssl.SSLObject):
    """A TLS object whose handshake goes on when its guard says so."""

    def do_handshake(self) -> None:
        guard = _DRIVING.get()
        if guard is None:
            super().do_handshake()
        else:
            guard.ask(self)


class _Early(asyncio.BufferedProtocol):
    """A buffer for what comes before the client's protocol has its transport."""

    def __init__(self, scratch: memoryview) -> None:
        self.is_lost = False
        self._data = bytearray()
        self._buffer = scratch
        self._successor: asyncio.BufferedProtocol | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._data += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True  # and not why: the exception may know the frame that knows this
        if self._successor is not None:  # this call was scheduled when the protocol changed
            self._successor.connection_lost(exc)

    def hand_over(self, transport: asyncio.Transport, protocol: asyncio.BufferedProtocol) -> None:
        """Make ``protocol`` that of the transport, whose owner knows the transport by now."""
        transport.set_protocol(protocol)
        self._successor = protocol
        while self._data:
            buffer = memoryview(protocol.get_buffer(len(self._data)))
            count = min(len(buffer), len(self._data))
            buffer[:count] = self._data[:count]
            del self._data[:count]
            protocol.buffer_updated(count)
        if self.is_lost:
            protocol.connection_lost(None)


_DRIVING: ContextVar[_Guard | None] = ContextVar("_DRIVING", default=None)


def _do_handshake(tls: ssl.SSLObject) -> list[Exception]:
    """Run in the thread, and return what was raised. OpenSSL works without the GIL."""
    try:
        ssl.SSLObject.do_handshake(tls)
    except Exception as error:
        return [error.with_traceback(None)]
    return []


def _record_length(data: bytearray) -> int:
    """Return the bytes of the first record; of its header, while that is incomplete."""
    return (
        _RECORD_HEADER + int.from_bytes(data[3:5], "big")
        if len(data) >= _RECORD_HEADER
        else _RECORD_HEADER
    )


def _problem(data: bytearray) -> HandshakeError | None:
    """Return why this cannot become a ClientHello in one record; None if it can."""
    if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != 3):
        return HandshakeError("plaintext", "the client does not speak TLS")
    if len(data) < _RECORD_HEADER:
        return None
    length = int.from_bytes(data[3:5], "big")
    if not _MESSAGE_HEADER <= length <= _MAX_RECORD:
        return HandshakeError(
            "malformed", f"a TLS record of {length} bytes, expected a ClientHello"
        )
    message = data[_RECORD_HEADER : _RECORD_HEADER + _MESSAGE_HEADER]
    if message[:1] not in (b"", bytes([_CLIENT_HELLO])):
        return HandshakeError("malformed", "a TLS handshake message that is not a ClientHello")
    if (
        len(message) == _MESSAGE_HEADER
        and int.from_bytes(message[1:], "big") + _MESSAGE_HEADER > length
    ):
        return HandshakeError("malformed", "a ClientHello in more than one TLS record")
    return None


def _network(host: str) -> str:
    """Return by what clients take turns: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or address.packed[:8].hex())
    return str(address)


def _left() -> HandshakeError:
    return HandshakeError("client", "the client closed the connection")


def _classified(error: Exception) -> HandshakeError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeError(
            "certificate", f"the client's certificate was refused: {refusal_of(error)}"
        )
    if isinstance(error, ssl.SSLError):
        text = (error.reason or str(error)).lower().replace("_", " ")
        if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return HandshakeError("certificate", "the client has shown no certificate")
        return HandshakeError("protocol", text)
    return _left()
