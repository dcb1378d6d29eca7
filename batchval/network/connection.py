"""One connection to a broker: frames (int32 length, correlation id, …), answered in the order sent.

Requests are pipelined up to ``max_in_flight``; 1 makes it serial. All of it happens on the loop it
was opened on: asyncio's, or uvloop's where the caller runs one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, cast

from batchval.errors import shown_ms
from batchval.network.errors import ClosedError, DisconnectError, InvalidAnswerError
from batchval.network.in_flight import Callback, InFlightRequest, InFlightRequests
from batchval.network.options import ConnectionMetrics, ConnectionOptions, connected
from batchval.network.request import AnyRequest
from batchval.network.wire_times import FirstBytes
from batchval.protocol.errors import ProtocolError

__all__ = ["Connection", "settle"]

#: How many answers one wake-up hands on before other connections have their turn.
FRAMES_PER_WAKEUP: Final = 32
_CORRELATION_ID = struct.Struct(">i")

log = logging.getLogger("batchval.network")
#: Since KIP-219 a broker answers at once and mutes the connection for ``throttle_time_ms``; a
#: client keeps still as long, lest its requests lie unread. Older versions answer late instead, and
#: waiting again would count the time twice. The first version of each API that the client must heed
#: is ``shouldClientThrottle`` in Kafka's response classes; APIs not named here were born later and
#: are always heeded.
_HEEDED_FROM: Final[dict[int, int]] = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 1,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    42: 1,  # DeleteGroups
}


@dataclass(slots=True, eq=False)
class _Waiting:
    """A caller of ``produce_async`` whose turn has not come."""

    request: AnyRequest
    callback: Callback
    timeout_ms: float | None
    on_written: Callable[[], None] | None
    sent: asyncio.Future[None]


class Connection(asyncio.BufferedProtocol):
    """An open connection, made by ``open``. Not for other threads than its loop's.

    ``error``  why the connection is closed; None while it is open
    """

    def __init__(
        self,
        options: ConnectionOptions,
        on_lost: Callable[[Connection, BaseException], None] | None,
    ) -> None:
        self.options = options
        self.metrics = ConnectionMetrics()
        self.in_flight = InFlightRequests(options.max_in_flight)
        self.on_sendable: Callable[[], None] | None = None  # when a slot or the socket is free
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._splitter = options.splitter()
        self.get_buffer = self._splitter.get_buffer  # type: ignore[method-assign]  # a call less
        self._on_wire = options.on_wire
        self._first_bytes: FirstBytes | None = None
        self._arrivals: deque[int] = deque()  # of the first byte of each of _frames, for on_wire
        self._partial_ns = 0  # of the first byte of a frame that is not whole yet
        if self._on_wire is not None:
            self.get_buffer = self._stamped_buffer  # type: ignore[method-assign]
        self._expect = getattr(self._splitter, "expect", None)
        self._transport: asyncio.Transport | None = None
        self.error: BaseException | None = None
        # done when the transport has let go of all buffers
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._owned: InFlightRequest | None = None  # being written when the connection died
        self._correlation_id = 0
        self._write_paused = False
        self._waiting: deque[_Waiting] = deque()
        self._frames: deque[memoryview] = deque()
        # entries of callbacks to call; the request is None for on_lost
        self._finished: deque[tuple[InFlightRequest | None, Any, BaseException | None]] = deque()
        self._delivering = False
        self._delivery: asyncio.Task[None] | None = None
        self._backlog = options.max_in_flight or FRAMES_PER_WAKEUP
        self._more: asyncio.Handle | None = None
        self._read_paused_ms: float | None = None
        self._breathing = False
        self._excused_ms = 0.0
        self._throttled_until_ms = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0
        self._unthrottle: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        options: ConnectionOptions,
        *,
        on_lost: Callable[[Connection, BaseException], None] | None = None,
    ) -> Self:
        """Connect, with TLS if the options have a context. Raises OSError (of which ssl.SSLError is
        one) if that fails.

        ``on_lost`` is called once, with the reason, after the callbacks of everything outstanding.
        """
        return await connected(host, port, options, lambda: cls(options, on_lost))

    # --- what callers do

    @property
    def is_open(self) -> bool:
        """Return whether requests may be sent."""
        return (
            self.error is None and self._transport is not None and not self._transport.is_closing()
        )

    @property
    def transport(self) -> asyncio.Transport:
        """Return the transport, for the peer's name and certificate and the socket."""
        assert self._transport is not None
        return self._transport

    @property
    def throttled_ms(self) -> float:
        """Return how long the broker has asked for silence, from now."""
        return max(0.0, self._throttled_until_ms - self._now_ms())

    def can_send_more(self) -> bool:
        """Return whether ``send_nowait`` would write now: open, not throttled, a slot free."""
        return not self._waiting and self._can_write()

    def _can_write(self) -> bool:
        return (
            self.is_open
            and not self._write_paused
            and self.in_flight.can_send_more()
            and (not self._throttled_until_ms or self._throttled_until_ms <= self._now_ms())
        )

    async def produce_async(
        self,
        request: AnyRequest,
        callback: Callback,
        *,
        timeout_ms: float | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> None:
        """Wait for the request's turn, first come, first served, and hand it to the socket.

        What goes wrong before the first byte is raised, and ``callback`` is never called. From then
        on it is called exactly once, in the order of the answers, with (response, None) or (None,
        error); with (None, None) when written, where no answer is expected (acks=0). It may return
        an awaitable: the connection's next callback waits for it, after ``max_in_flight`` of them
        nothing more is read, and other connections never notice.
        ``timeout_ms`` (default: the options') runs from the write to the answer. ``on_written`` is
        called once, when the chunks are no longer needed: written, or the connection is dead.
        Cancelled while it waits, nothing is sent.
        """
        if not self._waiting and self._can_write():
            self.send_nowait(request, callback, timeout_ms=timeout_ms, on_written=on_written)
            return
        self._must_be_open()
        waiting = _Waiting(request, callback, timeout_ms, on_written, self._loop.create_future())
        self._waiting.append(waiting)
        try:
            await waiting.sent
        finally:
            if not waiting.sent.done() or waiting.sent.cancelled():
                with contextlib.suppress(ValueError):  # _pump or _die has removed it already
                    self._waiting.remove(waiting)
                self._pump()

    def send_nowait(
        self,
        request: AnyRequest,
        callback: Callback,
        *,
        timeout_ms: float | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> None:
        """Send a request; the callback gets the outcome. Raises RuntimeError if it would wait."""
        if self._waiting:
            raise RuntimeError("others wait for their turn")
        self._write(request, callback, timeout_ms, on_written)

    async def request(self, request: AnyRequest, *, timeout_ms: float | None = None) -> Any:
        """Send a request and return the answer; with acks=0, None once it is written."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        await self.produce_async(request, partial(settle, answer), timeout_ms=timeout_ms)
        return await answer

    def close(self, error: BaseException | None = None) -> None:
        """End it now. All outstanding requests fail with ``error`` (default: ClosedError)."""
        self._die(error or ClosedError("the connection was closed"))

    async def wait_closed(self) -> None:
        """Wait until the transport is closed, callbacks have returned and buffers are free."""
        await asyncio.shield(self._gone)
        while self._delivery is not None:
            await asyncio.wait([self._delivery])

    def detach(self) -> int | None:
        """Stop reading, and return the descriptor of the socket for another reader and writer.

        None where the connection is dead. RuntimeError where requests are in flight, or TLS is
        between. ``close`` ends the connection still; before it, nobody else may use the descriptor.
        """
        if self.options.ssl is not None or len(self.in_flight) or self._waiting:
            raise RuntimeError("a connection is detached when it is idle, and without TLS")
        if not self.is_open:
            return None
        self.transport.pause_reading()
        descriptor: int = self.transport.get_extra_info("socket").fileno()
        return descriptor

    # --- writing

    def _must_be_open(self) -> None:
        if self.error is not None:
            raise self.error

    def _write(
        self,
        request: AnyRequest,
        callback: Callback,
        timeout_ms: float | None,
        on_written: Callable[[], None] | None,
    ) -> None:
        self._must_be_open()
        assert self._transport is not None
        if threading.get_ident() != self._thread:
            raise RuntimeError("a connection is used on its loop's thread alone")
        correlation_id = self._correlation_id
        chunks = list(request.encode(correlation_id, self.options.client_id))
        # TypeError here, not in the middle of a write
        size = sum(memoryview(chunk).nbytes for chunk in chunks)
        timeout_ms = self.options.request_timeout_ms if timeout_ms is None else timeout_ms
        now = self._now_ms()
        entry = InFlightRequest(
            request, correlation_id, callback, now, timeout_ms, self._excused_ms, chunks, on_written
        )
        if not self._can_write():
            raise RuntimeError("nothing can be sent now: ask can_send_more")
        self.in_flight.take(entry)
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self.metrics.requests += 1
        self.metrics.bytes_out += size
        if request.expects_response:
            self._arm(now + timeout_ms)
        if self._expect is not None and (pieces := getattr(request, "pieces", None)) is not None:
            self._expect(correlation_id, pieces)
        if self._on_wire is not None:
            # before the call: a peer on the same machine may answer before it returns
            entry.written_ns = time.monotonic_ns()
        self._transport.writelines(chunks)
        # a transport that closes has met the end in this write
        if not self._write_paused and not self._transport.is_closing():
            self._written()

    def pause_writing(self) -> None:
        """Note that the last request is not written whole (the limits are set so)."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Note that the last request is written whole."""
        self._write_paused = False
        if self._on_wire is not None and self.in_flight.writing is not None:
            self.in_flight.writing.written_ns = time.monotonic_ns()
        if self.error is None:
            self._written()
            self._pump()

    def _written(self) -> None:
        writing = self.in_flight.writing
        if writing is None:
            return
        finished = self.in_flight.written()
        self._release(writing)
        if finished is not None:
            self._finish(finished, None, None)

    def _release(self, entry: InFlightRequest) -> None:
        entry.chunks = ()
        if entry.on_written is not None:
            on_written, entry.on_written = entry.on_written, None
            try:
                on_written()
            except Exception:
                self.metrics.callback_errors += 1
                log.exception("on_written failed")

    def _pump(self) -> None:
        """Write waiting requests while the socket takes them."""
        while self._waiting and self._can_write():
            waiting = self._waiting.popleft()
            if waiting.sent.done():  # cancelled, and not yet run
                continue
            try:
                self._write(
                    waiting.request, waiting.callback, waiting.timeout_ms, waiting.on_written
                )
            except Exception as error:
                waiting.sent.set_exception(error)
            else:
                waiting.sent.set_result(None)
        if self.on_sendable is not None and self.can_send_more():
            self.on_sendable()

    # --- reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport (asyncio)."""
        # uvloop's transport is not a subclass of asyncio's
        self._transport = transport = cast(asyncio.Transport, transport)
        # any unwritten byte pauses, none resumes; not high=0, with which asyncio's TLS would pause
        # on nothing (its >=)
        transport.set_write_buffer_limits(high=1, low=0)
        if self._on_wire is not None:
            self._first_bytes = FirstBytes(transport)

    def _stamped_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into (asyncio); the transport reads just after this call."""
        if self._first_bytes is not None:
            self._first_bytes.peek()
        return self._splitter.get_buffer(sizehint)

    def _stamp(self, first_ns: int, frames: int) -> None:
        """Note when each frame of a read began to come; the read began at ``first_ns``."""
        for n in range(frames):
            self._arrivals.append(self._partial_ns or (time.monotonic_ns() if n else first_ns))
            self._partial_ns = 0
        if not self._partial_ns and getattr(self._splitter, "buffered", False):
            self._partial_ns = time.monotonic_ns() if frames else first_ns

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that were read (asyncio); uvloop calls it after ``pause_reading`` too."""
        if self.error is not None:
            return  # late bytes of a dead connection
        self.metrics.bytes_in += nbytes
        first_ns = self._first_bytes.read() if self._first_bytes is not None else 0
        try:
            frames = self._splitter.buffer_updated(nbytes)
        except Exception as error:
            self._frames.extend(getattr(error, "frames", ()))  # those that were whole before it
            self._lost(DisconnectError(f"the node sent an invalid frame: {error}"), error)
            return
        if first_ns:
            self._stamp(first_ns, len(frames))
        if not frames:  # nearly always, where frames are large
            if self._expect is not None and self._splitter.has_piece:  # type: ignore[attr-defined]
                self._breathe()
            return
        self._frames.extend(frames)
        if self._more is None:
            self._read_frames()

    def _breathe(self) -> None:
        """Pause reading for one iteration: uvloop would read on before a piece is handled."""
        assert self._transport is not None
        if not self._breathing:
            self._breathing = True
            self._transport.pause_reading()
            self._loop.call_soon(self._breathed)

    def _breathed(self) -> None:
        self._breathing = False
        if self.error is None and self._read_paused_ms is None and self._transport is not None:
            self._transport.resume_reading()

    def _read_frames(self, limit: int = FRAMES_PER_WAKEUP) -> None:
        """Deliver at most ``limit`` answers, and none while too many callbacks wait."""
        self._more = None
        while self._frames and self.error is None and limit and len(self._finished) < self._backlog:
            limit -= 1
            self._read_frame(self._frames.popleft())
        is_full = len(self._finished) >= self._backlog
        if self.error is None:
            self._pause_reading(is_full or bool(self._frames))
            if self._frames and not is_full:
                self._more = self._loop.call_soon(self._read_frames)
            self._pump()

    def _read_frame(self, frame: memoryview) -> None:
        if frame.nbytes < _CORRELATION_ID.size:
            text = f"a frame of {frame.nbytes} bytes has no correlation id"
            self._die(DisconnectError(text), ProtocolError(text))
            return
        try:
            entry = self.in_flight.answered(_CORRELATION_ID.unpack_from(frame)[0])
        except DisconnectError as error:
            self._die(error)
            return
        self.metrics.responses += 1
        if self._on_wire is not None and self._arrivals:
            self._on_wire(
                entry.request.api_key,
                entry.written_ns,
                max(self._arrivals.popleft(), entry.written_ns),
            )
        try:
            response = entry.request.decode(frame)
        except Exception as error:
            # framing may be whole, but a broker that answers so cannot be understood
            text = f"an answer that cannot be read: {error}"
            failure = InvalidAnswerError(text)
            failure.__cause__ = error
            self._finish(entry, None, failure)
            self._die(DisconnectError(text), error)
            return
        self._throttle(entry.request, response)
        self._finish(entry, response, None)

    def _throttle(self, request: AnyRequest, response: Any) -> None:
        throttle_ms, wait = throttle_time_ms(request.api_key, request.api_version, response)
        if not throttle_ms:
            return
        self.metrics.throttled_responses += 1
        self.metrics.throttle_time_ms += throttle_ms
        self.metrics.throttle_time_ms_max = max(self.metrics.throttle_time_ms_max, throttle_ms)
        if wait:
            # after a longer silence the broker may as well be gone (Kafka's client obeys any)
            wait = min(wait, int(self.options.request_timeout_ms))
            # the broker reads nothing in this time, so it counts for no request's timeout
            self._excused_ms += wait
            self._throttled_until_ms = max(self._throttled_until_ms, self._now_ms() + wait)
            if self._unthrottle is not None:
                self._unthrottle.cancel()
            self._unthrottle = self._loop.call_at(
                self._throttled_until_ms / 1000, self._throttle_over
            )

    def _throttle_over(self) -> None:
        if self._throttled_until_ms > self._now_ms():  # a loop's timer may fire a clock tick early
            self._unthrottle = self._loop.call_later(0.001, self._throttle_over)
            return
        self._unthrottle = None
        self._throttled_until_ms = 0.0
        self._pump()

    def _pause_reading(self, pause: bool) -> None:
        assert self._transport is not None
        if pause == (self._read_paused_ms is not None):
            return
        now = self._now_ms()
        if pause:
            self._read_paused_ms = now
            self._transport.pause_reading()
        else:
            assert self._read_paused_ms is not None
            # answers may have lain unread, which is not the broker's fault
            self._excused_ms += now - self._read_paused_ms
            self._read_paused_ms = None
            self._transport.resume_reading()

    # --- callbacks, one after the other

    def _finish(self, entry: InFlightRequest, response: Any, error: BaseException | None) -> None:
        self._finished.append((entry, response, error))
        self._deliver()

    def _deliver(self) -> None:
        """Call the callbacks of finished requests, in order, up to one that still awaits its
        answer.

        Does nothing inside a callback.
        """
        if self._delivering:
            return
        self._delivering = True
        while self._finished:
            entry, response, error = self._finished.popleft()
            try:
                result = self._call_back(entry, response, error)
                if result is not None and inspect.isawaitable(result):
                    self._delivery = self._loop.create_task(self._await_callback(result))
                    return
            except Exception:
                self._callback_failed()
        self._delivering = False

    def _call_back(
        self, entry: InFlightRequest | None, response: Any, error: BaseException | None
    ) -> object:
        if entry is not None:
            return entry.callback(response, error)
        if self._on_lost is not None and self.error is not None:
            self._on_lost(self, self.error)
        return None

    def _callback_failed(self) -> None:
        self.metrics.callback_errors += 1
        log.exception("a callback failed; the others are called all the same")

    async def _await_callback(self, result: Awaitable[None]) -> None:
        try:
            await result
        except Exception:
            self._callback_failed()
        finally:
            self._delivery = None
            self._delivering = False
            self._deliver()
            if self.error is None and self._more is None:
                self._read_frames()

    # --- the end

    def _arm(self, deadline_ms: float) -> None:
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000, self._expire)

    def _expire(self) -> None:
        """Close the connection if the oldest request timed out: its answer may come later."""
        self._timer = None
        now, left = self._now_ms(), None
        excused = self._excused_ms + (
            now - self._read_paused_ms if self._read_paused_ms is not None else 0.0
        )
        for entry in self.in_flight:
            rest = entry.timeout_ms - entry.elapsed_ms(now, excused)
            if rest < 0:
                self.metrics.request_timeouts += 1
                self._die(
                    DisconnectError(
                        f"another request had no answer in {shown_ms(entry.timeout_ms)}"
                    ),
                    expired=entry,
                )
                return
            left = rest if left is None else min(left, rest)
        if left is not None:
            self._arm(now + max(left, 1.0))  # uvloop counts whole milliseconds

    def _die(
        self,
        error: BaseException,
        cause: BaseException | None = None,
        *,
        expired: InFlightRequest | None = None,
    ) -> None:
        """Stop sending and reading; fail outstanding requests, oldest first, then waiters."""
        if self.error is not None:
            return
        error.__cause__ = error.__cause__ or cause
        self.error = error
        self._owned = self.in_flight.writing
        self._frames.clear()
        for handle in (self._timer, self._unthrottle, self._more):
            if handle is not None:
                handle.cancel()
        if self._transport is not None:
            self._transport.abort()
        outstanding = self.in_flight.clear()
        for entry in outstanding:
            own = error
            if entry is expired:
                own = DisconnectError(f"no answer in {shown_ms(entry.timeout_ms)}", timed_out=True)
            self._finished.append((entry, None, own))
        self._finished.append((None, None, None))
        self._deliver()
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if not one.sent.done():
                one.sent.set_exception(error)

    def eof_received(self) -> bool:
        """Close at once (asyncio): a graceful close would wait until the broker has read all."""
        self._lost(DisconnectError("the connection was closed by the broker"))
        return False

    def _lost(self, error: DisconnectError, cause: Exception | None = None) -> None:
        """Deliver the complete answers, then fail what is outstanding."""
        while self._frames and self.error is None:
            self._read_frame(self._frames.popleft())
        self._die(error, cause)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is outstanding (asyncio). The transport uses no buffer any more."""
        self._lost(
            DisconnectError(
                f"the connection was lost: {exc}" if exc else "the connection was closed"
            ),
            exc,
        )
        if self._owned is not None:
            self._release(self._owned)
            self._owned = None
        if self._first_bytes is not None:
            self._first_bytes.close()
        if not self._gone.done():
            self._gone.set_result(None)

    def _now_ms(self) -> float:
        return self._loop.time() * 1000


def settle(answer: asyncio.Future[Any], response: Any, error: BaseException | None) -> None:
    """Complete a future by the outcome of a request: a callback, with ``functools.partial``."""
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(response)


def throttle_time_ms(api_key: int, api_version: int, response: Any) -> tuple[int, int]:
    """Return (the response's throttle time, how much of it the client has to wait itself).

    Both are in milliseconds and never below 0.
    """
    stated = getattr(response, "throttle_time_ms", 0)
    if not isinstance(stated, int) or stated <= 0:
        return 0, 0
    return stated, stated if api_version >= _HEEDED_FROM.get(api_key, 0) else 0
