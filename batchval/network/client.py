"""ConsumerNetworkClient: requests queued for nodes, sent when a node takes them, each with a future
for its answer.

It belongs to one loop and one thread: only ``wakeup`` and ``disconnect`` may be called from other
threads. A caller waits for an answer by awaiting its future or by polling; both take the same steps
in the same order:

    fire completions, pending disconnects, try_send, I/O, check_disconnects, maybe_trigger_wakeup,
    try_send, fail_expired_requests, fire completions

Sockets are served by the loop in any case. ``poll`` is for callers that want the order, the limits
on waiting, or the wakeups of Kafka's class; where nobody polls, the loop takes the steps when
something has happened.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from batchval.errors import shown_ms
from batchval.network.errors import (
    AuthenticationError,
    ClosedError,
    DisconnectError,
    NetworkError,
    RequestTimeoutError,
    WakeupError,
)
from batchval.network.future import RequestFuture
from batchval.network.network_client import NetworkClient, NetworkOptions
from batchval.network.option_checks import check_numbers, refusal
from batchval.network.request import AnyRequest, ClientRequest, ClientResponse, Node, RequestBuilder

__all__ = ["ClientOptions", "ConsumerNetworkClient", "PollCondition", "Timer", "UnsentRequests"]

#: Never sleep longer in one poll, whatever the heartbeat interval (Kafka's MAX_POLL_TIMEOUT_MS).
MAX_POLL_TIMEOUT_MS: Final = 5_000.0

log = logging.getLogger("batchval.network")


class PollCondition(Protocol):
    """A condition that ``poll`` asks before it waits; a RequestFuture is one."""

    def should_block(self) -> bool:
        """Return whether there is still something to wait for."""


class Timer:
    """A limit on waiting, in milliseconds from now; infinite without one."""

    __slots__ = ("_clock_ms", "_deadline_ms")

    def __init__(
        self, timeout_ms: float | None = None, clock_ms: Callable[[], float] | None = None
    ) -> None:
        self._clock_ms = clock_ms or _loop_ms
        self._deadline_ms = float("inf") if timeout_ms is None else self._clock_ms() + timeout_ms

    @property
    def remaining_ms(self) -> float:
        """Return the remaining milliseconds; 0 when expired."""
        return max(0.0, self._deadline_ms - self._clock_ms())

    @property
    def expired(self) -> bool:
        """Return whether the time is over."""
        return self.remaining_ms == 0


def _loop_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


@dataclass(slots=True, kw_only=True)
class ClientOptions:
    """The options of a client, with Kafka's defaults. Times in milliseconds."""

    network: NetworkOptions = field(default_factory=NetworkOptions)
    retry_backoff_ms: float = 100
    heartbeat_interval_ms: float = 3_000
    session_timeout_ms: float = 45_000
    request_timeout_ms: float = 30_000

    def __post_init__(self) -> None:
        times = (
            "retry_backoff_ms",
            "heartbeat_interval_ms",
            "session_timeout_ms",
            "request_timeout_ms",
        )
        check_numbers(self, times, 0, whole=False)
        check_heartbeat(self.heartbeat_interval_ms, self.session_timeout_ms)
        if self.heartbeat_interval_ms > self.session_timeout_ms / 3:
            log.warning(
                "heartbeat_interval_ms (%s) is above a third of session_timeout_ms (%s)",
                shown_ms(self.heartbeat_interval_ms),
                shown_ms(self.session_timeout_ms),
            )


def check_heartbeat(interval_ms: float, session_timeout_ms: float) -> None:
    """Check that heartbeats can keep a session alive. Raises ArgumentValueError."""
    if not 0 < interval_ms < session_timeout_ms:
        expected = f"above 0 and below session_timeout_ms, {shown_ms(session_timeout_ms)}"
        raise refusal("heartbeat_interval_ms", interval_ms, expected)


class ConsumerNetworkClient:
    """A client of one running loop and its thread. ``async with`` closes it."""

    def __init__(
        self, options: ClientOptions, *, clock_ms: Callable[[], float] | None = None
    ) -> None:
        self.options = options
        self.max_poll_timeout_ms = min(options.heartbeat_interval_ms, MAX_POLL_TIMEOUT_MS)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._clock_ms = clock_ms or (lambda: self._loop.time() * 1000)
        self.network = NetworkClient(options.network, self._clock_ms, self._completed, self._notify)
        self.unsent = UnsentRequests()
        self._pending_completion: deque[
            tuple[ClientRequest, AnyRequest | None, Any, BaseException | None]
        ] = deque()
        self._pending_disconnects: deque[Node] = deque()  # appended to by other threads
        self._authentication_error: AuthenticationError | None = None
        self._firing = False
        self._wakeup = False
        self._wakeup_disabled = False
        self._closed = False
        self._polls = 0
        self._activity = False
        self._blocked: set[asyncio.Future[None]] = set()
        self._service: asyncio.Handle | None = None
        self._service_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.network.wait_closed()

    def _guard(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                "only wakeup and disconnect may be called from another thread than the loop's"
            )

    # --- sending

    def send(
        self, node: Node, request: AnyRequest | RequestBuilder, timeout_ms: float | None = None
    ) -> RequestFuture[ClientResponse]:
        """Queue a request for a node and return at once; a blocked poll looks again. Safe inside
        callbacks.

        ``timeout_ms`` (default: the options' request_timeout_ms) limits the wait for being sent,
        and again the wait for the answer. The future fails with RequestTimeoutError,
        DisconnectError (InvalidAnswerError where the answer cannot be read), AuthenticationError,
        UnsupportedVersionError, or whatever encoding raised. ClosedError is raised after ``close``.
        """
        self._guard()
        if self._closed:
            raise ClosedError("the client is closed")
        timeout_ms = self.options.request_timeout_ms if timeout_ms is None else timeout_ms
        future: RequestFuture[ClientResponse] = RequestFuture()
        self.unsent.put(ClientRequest(node, request, self._clock_ms(), timeout_ms, future))
        self._notify()
        return future

    def try_send(self, now_ms: float) -> float:
        """Send what can be sent; return the ms until another try, if nothing happens before."""
        self._guard()
        delay = self.max_poll_timeout_ms
        for node in self.unsent.nodes():
            while (request := self.unsent.first(node)) is not None:
                if not self.network.ready(node, now_ms):
                    delay = min(delay, self.network.poll_delay_ms(node, now_ms))
                    break  # the next node may be ready
                self.unsent.pop(node)
                self.network.send(request)
        return delay

    def fail_unsent_requests(self, node: Node, error: BaseException) -> None:
        """Fail what waits to be sent to a node; callbacks run in the next round.

        A request in flight stays.
        """
        self._guard()
        self._fail_unsent(node, error)
        self._notify()

    def _fail_unsent(self, node: Node, error: BaseException) -> None:
        for request in self.unsent.remove(node):
            self._pending_completion.append((request, None, None, error))

    def flush_nowait(self) -> None:
        """Send what can be sent now, without waiting (Kafka's transmitSends)."""
        self.try_send(self._clock_ms())

    def try_connect(self, node: Node) -> None:
        """Start connecting before there is anything to send."""
        self._guard()
        self.network.try_connect(node, self._clock_ms())

    def try_disconnect(self, node: Node) -> bool:
        """End a node's connection or the attempt at one, now; return whether there was one.

        What is unsent for it fails first, then what is in flight; callbacks run in the next round.
        ``disconnect`` does the same from any thread, at the start of the next round (Kafka's
        disconnectAsync).
        """
        self._guard()
        had = self.network.is_connected_or_connecting(node)
        error = DisconnectError(f"{node} was disconnected")
        self._fail_unsent(node, error)
        self.network.disconnect(node, error)
        self._notify()
        return had

    # --- waiting

    async def poll(
        self,
        timer: Timer | float | None = None,
        condition: PollCondition | None = None,
        disable_wakeup: bool = False,
    ) -> None:
        """Run one round: wait for events, at most ``timer``, not at all if ``condition`` needs no
        wait.

        With nothing in flight it waits no longer than retry_backoff_ms, else than
        min(heartbeat_interval_ms, 5000). Raises WakeupError, once for any number of ``wakeup``
        before, unless disabled; answers that came in this round are then delivered in the next.
        Raises the AuthenticationError of a connection that was refused, once.
        """
        self._guard()
        if not isinstance(timer, Timer):
            timer = Timer(timer, self._clock_ms)
        self._polls += 1
        try:
            delay = self._before_io()
            wait = 0.0
            if not self._pending_completion and (condition is None or condition.should_block()):
                wait = min(timer.remaining_ms, delay)
                if self.network.in_flight_count() == 0:
                    wait = min(wait, self.options.retry_backoff_ms)
                if (deadline := self.unsent.next_deadline_ms()) is not None:
                    wait = min(wait, max(1.0, deadline - self._clock_ms()))
            if self._wakeup and not disable_wakeup and not self._wakeup_disabled:
                wait = 0.0
            await self._io(wait)
            self.check_disconnects(self._clock_ms())
            if not disable_wakeup:
                self.maybe_trigger_wakeup()
            self._after_io()
        finally:
            self._polls -= 1
            if not self._polls and self._service is None:
                # what this round left is the loop's
                self._service = self._loop.call_soon(self._serve)
        self.maybe_throw_authentication_error()

    def _before_io(self) -> float:
        """Take a round's first steps; return the ms to wait at most."""
        self._fire_pending_completions()
        self._handle_pending_disconnects()
        return self.try_send(self._clock_ms())

    def _after_io(self) -> float:
        """Take a round's last steps; return the ms until the next, if nothing happens before."""
        delay = self.try_send(self._clock_ms())
        self.fail_expired_requests(self._clock_ms())
        self.unsent.clean()
        self._fire_pending_completions()
        return delay

    async def poll_until(
        self,
        future: RequestFuture[Any],
        timer: Timer | float | None = None,
        disable_wakeup: bool = False,
    ) -> bool:
        """Poll until the future is done (True) or the timer expires; a failure is not raised."""
        self._guard()
        if not isinstance(timer, Timer):
            timer = Timer(timer, self._clock_ms)
        while not future.is_done:
            await self.poll(timer, future, disable_wakeup)
            if timer.expired:
                break
        return future.is_done

    async def poll_no_wakeup(self) -> None:
        """Run one round without waiting and without WakeupError; ``wakeup`` stays for a later
        poll.
        """
        await self.poll(0, None, disable_wakeup=True)

    async def await_pending_requests(self, node: Node, timer: Timer | float | None = None) -> bool:
        """Poll until nothing is unsent or in flight for a node (True) or the timer expires."""
        self._guard()
        if not isinstance(timer, Timer):
            timer = Timer(timer, self._clock_ms)
        while self.has_pending_requests(node) and not timer.expired:
            await self.poll(timer)
        return not self.has_pending_requests(node)

    async def _io(self, timeout_ms: float) -> None:
        """Let the loop serve its sockets: until something has happened, or the time is over."""
        if timeout_ms <= 0 or self._activity:
            self._activity = False
            await asyncio.sleep(0)
            return
        blocked: asyncio.Future[None] = self._loop.create_future()
        self._blocked.add(blocked)
        # A loop whose timers count whole milliseconds (uvloop) would spin through the last part of
        # one.
        handle = self._loop.call_later(max(timeout_ms, 1.0) / 1000, _release, blocked)
        try:
            await blocked
        finally:
            handle.cancel()
            self._blocked.discard(blocked)
            self._activity = False

    def _notify(self) -> None:
        """Note an event: wake a blocked poll, or schedule a round in the loop."""
        self._activity = True
        for blocked in self._blocked:
            _release(blocked)
        if not self._polls and self._service is None:
            self._service = self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Run a round without waiting or WakeupError, after the loop has done its I/O."""
        self._service = None
        if self._polls:
            return
        self._activity = False
        self._before_io()
        self.check_disconnects(self._clock_ms())
        delay = self._after_io()
        if self._service is not None:
            return  # something has happened meanwhile
        if self._service_timer is not None:
            self._service_timer.cancel()
            self._service_timer = None
        deadline = self.unsent.next_deadline_ms()
        if deadline is not None:
            wait = min(delay, max(0.0, deadline - self._clock_ms()))
            self._service_timer = self._loop.call_later(max(wait, 1.0) / 1000, self._notify)

    # --- the steps

    def check_disconnects(self, now_ms: float) -> None:
        """Fail unsent requests of nodes whose connection ended; those in flight have failed."""
        self._guard()
        for node in self.unsent.nodes():
            if self.network.connection_failed(node):
                failure: NetworkError | None = self.network.authentication_error(node)
                if failure is None:
                    reason = self.network.last_error(node)
                    shown = getattr(reason, "strerror", None) or reason
                    failure = DisconnectError(f"not connected to {node}: {shown}")
                    failure.__cause__ = reason
                self._fail_unsent(node, failure)
        self._authentication_error = self.network.failures_were_seen() or self._authentication_error

    def fail_expired_requests(self, now_ms: float) -> None:
        """Fail what was not sent in its time."""
        self._guard()
        for request in self.unsent.remove_expired(now_ms):
            error = RequestTimeoutError(
                f"Failed to send request after {shown_ms(request.request_timeout_ms)}."
            )
            self._pending_completion.append((request, None, None, error))

    def _handle_pending_disconnects(self) -> None:
        while self._pending_disconnects:
            self.try_disconnect(self._pending_disconnects.popleft())

    def _completed(
        self,
        request: ClientRequest,
        sent: AnyRequest | None,
        response: Any,
        error: BaseException | None,
    ) -> None:
        self._pending_completion.append((request, sent, response, error))
        self._notify()

    def _fire_pending_completions(self) -> None:
        """Report outcomes in their order, also those that follow, but never one inside another."""
        if self._firing:
            return
        self._firing = True
        try:
            while self._pending_completion:
                request, sent, response, error = self._pending_completion.popleft()
                if request.future.is_done:  # by somebody who was not meant to
                    log.warning(
                        "the future of a request to %s was completed by another", request.node
                    )
                elif error is not None:
                    request.future.raise_error(error)
                else:
                    assert sent is not None
                    now = self._clock_ms()
                    request.future.complete(
                        ClientResponse(request.node, sent, response, request.created_time_ms, now)
                    )
        finally:
            self._firing = False

    # --- wakeups and disconnects, from any thread

    def wakeup(self) -> None:
        """Make the poll that waits, or else the next one, raise WakeupError. From any thread."""
        self._wakeup = True
        self._notify_from_anywhere()

    def disconnect(self, node: Node) -> None:
        """Fail what is unsent for a node, then what is in flight, and end its connection, soon.

        From any thread.
        """
        self._pending_disconnects.append(node)
        self._notify_from_anywhere()

    def _notify_from_anywhere(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._notify)
        except RuntimeError:  # the loop is closed: nobody waits
            log.debug("the loop of this client is closed")

    def disable_wakeups(self) -> None:
        """Stop raising WakeupError: the client is about to be closed."""
        self._guard()
        self._wakeup_disabled = True

    def maybe_trigger_wakeup(self) -> None:
        """Raise WakeupError if ``wakeup`` was called since the last time."""
        self._guard()
        if self._wakeup and not self._wakeup_disabled:
            self._wakeup = False
            raise WakeupError("woken up by another thread")

    # --- questions

    def is_unavailable(self, node: Node) -> bool:
        """Return whether the node's connection failed and its backoff is not over.

        A request for it would fail at once."""
        return (
            self.network.connection_failed(node)
            and self.network.connection_delay_ms(node, self._clock_ms()) > 0
        )

    def maybe_throw_authentication_error(self) -> None:
        """Raise the AuthenticationError of any node, once."""
        error, self._authentication_error = self._authentication_error, None
        if error is not None:
            raise error

    def maybe_throw_auth_failure(self, node: Node) -> None:
        """Raise what TLS or SASL said at the last attempt to connect to a node, each time."""
        if (error := self.network.authentication_error(node)) is not None:
            raise error

    def has_ready_nodes(self) -> bool:
        """Return whether any node is connected, its versions are known and it is not throttled."""
        return self.network.has_ready_nodes()

    def has_pending_requests(self, node: Node | None = None) -> bool:
        """Return whether requests are unsent or in flight, of one node or of any."""
        return self.pending_request_count(node) > 0

    def pending_request_count(self, node: Node | None = None) -> int:
        """Return how many requests are unsent or in flight, of one node or of all."""
        if node is not None:
            return self.unsent.count(node) + self.network.in_flight_count(node)
        return len(self.unsent) + self.network.in_flight_count()

    def least_loaded_node(self, nodes: Iterable[Node]) -> Node | None:
        """Return the node with the fewest requests in flight; None if none can be reached now."""
        self._guard()
        return self.network.least_loaded_node(nodes)

    # --- the end

    def close(self) -> None:
        """Fail all requests with ClosedError, call their callbacks, and close all connections."""
        self._guard()
        if self._closed:
            return
        self._closed = True
        error = ClosedError("the client was closed")
        self.network.close(error)
        for node in self.unsent.nodes():
            self._fail_unsent(node, error)
        self._fire_pending_completions()
        for handle in (self._service, self._service_timer):
            if handle is not None:
                handle.cancel()
        self._service = self._loop.call_soon(self._serve)  # for what a callback may have left


def _release(blocked: asyncio.Future[None]) -> None:
    if not blocked.done():
        blocked.set_result(None)


class UnsentRequests:
    """The requests that wait for a connection or a slot, as Kafka's class of that name.

    A queue for each node, in order of arrival.

    Empty queues are dropped, and with them everything that names the node.
    """

    __slots__ = ("_counter", "_deadlines", "_entries", "_queues")

    def __init__(self) -> None:
        self._queues: dict[Node, deque[ClientRequest]] = {}
        # a heap of (deadline, tie, [request]); the request is None once it is no longer queued, so
        # that it can be freed
        self._deadlines: list[tuple[float, int, list[ClientRequest | None]]] = []
        self._entries: dict[ClientRequest, list[ClientRequest | None]] = {}
        self._counter = itertools.count()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, request: ClientRequest) -> None:
        """Append a request to its node's queue."""
        self._queues.setdefault(request.node, deque()).append(request)
        deadline = request.created_time_ms + request.request_timeout_ms
        entry = self._entries[request] = [request]
        heapq.heappush(self._deadlines, (deadline, next(self._counter), entry))

    def nodes(self) -> list[Node]:
        """Return the nodes with waiting requests: a copy, so that callers may put and remove."""
        return [node for node, queue in self._queues.items() if queue]

    def count(self, node: Node) -> int:
        """Return how many requests wait for this node."""
        return len(self._queues.get(node, ()))

    def first(self, node: Node) -> ClientRequest | None:
        """Return the next request for this node."""
        queue = self._queues.get(node)
        return queue[0] if queue else None

    def pop(self, node: Node) -> ClientRequest:
        """Remove and return the next request for this node."""
        request = self._queues[node].popleft()
        self._forget(request)
        return request

    def _forget(self, request: ClientRequest) -> None:
        self._entries.pop(request)[0] = None
        if len(self._deadlines) > 2 * len(self._entries) + 64:
            self._deadlines = [one for one in self._deadlines if one[2][0] is not None]
            heapq.heapify(self._deadlines)

    def remove(self, node: Node) -> list[ClientRequest]:
        """Remove and return a node's queue: listeners may then put new requests for the node."""
        requests = self._queues.pop(node, deque())
        for request in requests:
            self._forget(request)
        return list(requests)

    def remove_expired(self, now_ms: float) -> Iterator[ClientRequest]:
        """Remove and yield requests that waited longer than their timeout, earliest deadline first.

        Kafka stops at a queue's first live request, so that a short timeout waits for a long one
        before it; here each request has its own deadline.
        """
        while self.next_deadline_ms() is not None:
            request = self._deadlines[0][2][0]
            assert request is not None
            if max(0.0, now_ms - request.created_time_ms) <= request.request_timeout_ms:
                return
            self._queues[request.node].remove(request)
            self._forget(request)
            yield request

    def next_deadline_ms(self) -> float | None:
        """Return the earliest deadline, in milliseconds of the clock that created the requests."""
        while self._deadlines and self._deadlines[0][2][0] is None:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def clean(self) -> None:
        """Drop empty queues."""
        for node in [node for node, queue in self._queues.items() if not queue]:
            del self._queues[node]
