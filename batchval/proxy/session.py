"""One client's session: its requests and their answers, in the same order.

    int32 length, int16 api_key, int16 api_version, int32 correlation_id, …

Each request takes its place among the answers as it comes. Towards the broker it has another
correlation id, counted from 1, so that an answer out of turn is found whatever the client chose;
then both connections end, since nobody can tell whose answer it was. Frames that are only passed on
are sent as they were received: a slice of the buffer that they were read into, which lives until
they are written. ``handlers`` has what is done with the requests and answers of an API;
``session_states`` has the states.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameError, allocated
from batchval.protocol.old_versions import Raised
from batchval.protocol.produce import ProduceRequestView
from batchval.protocol.request import Chunks
from batchval.proxy import handlers
from batchval.proxy.answering import Answering
from batchval.proxy.awaited_brokers import UnknownBrokerError
from batchval.proxy.broker_connection import BrokerConnection
from batchval.proxy.budget import TURN_S, Budget
from batchval.proxy.client_connection import ClientConnection
from batchval.proxy.clients import ClientTable, SeenClient, is_turned_away, software_of
from batchval.proxy.connection_log import ConnectionLog, Request, upgrade_advice
from batchval.proxy.denying import DenyList, refuse_denied
from batchval.proxy.durations import Traffic, clock_ns
from batchval.proxy.fast_path import FastPath, Routes
from batchval.proxy.gate import Gate, Judgement
from batchval.proxy.handshakes import HandshakeError
from batchval.proxy.judging import JudgingQueue
from batchval.proxy.listeners import Listener, Listeners
from batchval.proxy.old_fetches import OldFetches
from batchval.proxy.options import ANONYMOUS, Counters, Denied, Limits, ProxyOptions
from batchval.proxy.parting import GRACEFUL, Parting
from batchval.proxy.pending import Answer, Facts, Item, Lowering, facts_of
from batchval.proxy.reasons import CLIENT
from batchval.proxy.sasl import SaslExchange
from batchval.proxy.session_clock import AgeLimit, SessionClock
from batchval.proxy.session_states import TRANSITIONS, Event, State
from batchval.proxy.sockets import address_of, keep_alive, unread
from batchval.proxy.state_machine import StateMachine
from batchval.proxy.topics import KnownTopics

__all__ = ["Owner", "Session"]

# Why a client is not read. BUDGET holds the broker as well.
BROKER: Final = 1  # the broker does not take what is there
JUDGING: Final = 2  # enough waits for its verdict, or for its place
ANSWERS: Final = 4  # the client does not take its answers; the broker is not read either
BUDGET: Final = 8  # all sessions together hold too much
ENDING: Final = 16
TURN: Final = 32  # requests that have been read wait for their turn on the loop
SASL: Final = 64  # the broker's answer decides how the next bytes are read
UNKNOWN: Final = 128  # nobody knows yet whether brokers authenticate, and the request is large
CONVERTING: Final = 256  # the broker alone is not read: an answer of it is converted

#: The reasons in words, for the log.
_HELD: Final = {
    BROKER: "the broker takes no requests",
    JUDGING: "requests wait for their verdict",
    ANSWERS: "the client takes no answers",
    BUDGET: "limits.max_bytes_held",
    ENDING: "the connection ends",
    TURN: "other clients have their turn",
    SASL: "the broker's answer to SaslHandshake is awaited",
    UNKNOWN: "no broker has shown whether clients have to authenticate",
}

#: Bytes of requests and answers that one session may hold before its client is not read.
MOST_HELD: Final = 8 << 20
#: Bytes that may wait for a client however many clients there are.
LEAST_WRITE_BUFFER: Final = 16 << 10
#: Seconds that the requests of one session may take at a time on the loop.
SLICE_S: Final = 0.001

_HEADER = struct.Struct(">hhi")
_unpack_header = _HEADER.unpack_from
_pack_int = struct.Struct(">i").pack_into


class Owner(Protocol):
    """What a session needs of the listener that it came in by, and of what all listeners share."""

    options: ProxyOptions
    counters: Counters
    budget: Budget
    judging: JudgingQueue
    gate: Gate
    topics: KnownTopics
    clients: ClientTable

    def traffic_of(self, listener: Listener) -> Traffic: ...
    def routes_for(self, denied: frozenset[int], raised: Mapping[int, Raised]) -> Routes: ...

    ages: AgeLimit
    connection_log: ConnectionLog
    cluster: Listeners
    loop: asyncio.AbstractEventLoop
    now: float
    carried: Mapping[int, tuple[int, int]]
    routes: Mapping[int, tuple[int, int, int]]
    fast_routes: Routes
    raised: Mapping[int, Raised]
    deny_list: DenyList | None

    @property
    def requires_authentication(self) -> bool | None: ...
    def admit(self, session: Session) -> bool: ...
    def forget(self, session: Session) -> None: ...
    def closed(self, why: str) -> None: ...
    def log_error(self, text: str, error: BaseException | None) -> None: ...
    def names_of(self, transport: asyncio.BaseTransport) -> tuple[str, str | None]: ...
    def secure(self, session: Session) -> Awaitable[asyncio.Transport] | None: ...
    async def connect(self, listener: Listener, broker: BrokerConnection) -> None: ...
    def upstream_failed(self) -> None: ...
    def is_own_request(self, client_id: str) -> bool: ...
    def learn_topics(self, body: memoryview, version: int) -> None: ...
    def answered_without_authentication(self) -> None: ...
    def listener_of(self, node_id: int, host: str, port: int) -> Listener: ...
    def intersected(
        self, body: memoryview, version: int, correlation_id: int, raised: Mapping[int, Raised]
    ) -> Chunks: ...


class Session(StateMachine[State, Event]):
    """The queue between a client's connection and a broker's, and the state that both are in."""

    transitions = TRANSITIONS

    def __init__(self, proxy: Owner, listener: Listener) -> None:
        self.proxy = proxy
        self.listener = listener
        self.limits = proxy.options.limits
        self.counters = proxy.counters
        self.budget = proxy.budget
        self.gate = proxy.gate
        self.log = proxy.connection_log
        self.opened = 0.0
        # clients ask for versions once a connection
        self.raised = proxy.raised
        self.state = State.CONNECTING
        requires = proxy.requires_authentication
        self.authenticated = not requires
        self.is_unknown = requires is None  # then large requests wait until that is known
        self.client = ClientConnection(self, self._most_of_frame(), self.budget.spare)
        self.broker: BrokerConnection | None = None
        # an int: the answer is passed on, see fast_path.pyx
        self.answers: deque[Answer | int] = deque()
        self.outbox: deque[Item] = deque()
        self.unsent: list[bytes | memoryview] | None = []  # until the broker is connected
        self.untaken: list[memoryview] = []  # requests that wait for their turn
        self.sasl = SaslExchange()
        self.old_fetches = OldFetches(self.limits.max_partitions)
        traffic = proxy.traffic_of(listener)
        names = proxy.topics.by_id
        self.fast_path = FastPath(proxy.fast_routes, self.gate, self.counters, self.answers, names, traffic)
        self.answering = Answering(self, self.answers)
        self._answer = self.answering.take
        self._put_off_ns = 0  # when the first of ``untaken`` came
        # bytes of requests in the outbox and unsent, and of requests whose answers are merged
        self.waiting = 0
        self.counted = 0  # what the budget has noted for this session
        self.judging_s = 0.0  # CPU seconds that judging has taken in threads
        self.holds = 0
        self.ending: str | None = None  # why the session ends, once it does
        self.ends_after: tuple[str, str] | None = None  # why it ends once ``untaken`` is done
        self.parting: Parting | None = None
        self.is_aged = False  # and ends after the request that is being read
        self.ages = proxy.ages
        self.deadline: float | None = None
        self.address, self.name = "unknown", "unknown:0"
        self.sender = ""
        self.own_host = ""  # of the gate, that the client has connected to
        self.facts = Facts("", self.name, ANONYMOUS, proxy.options.listener_name)
        self.is_named = True  # its principal is that of ``facts``, and not about to change
        self.guarded: frozenset[int] = frozenset()  # APIs that some clients may not use
        self.follow_deny_list()
        self.seen = proxy.now
        self.seen_client = SeenClient(self, self.fast_path, proxy.clients, proxy.now, self._named)
        self.spoke = False
        self.clock = SessionClock(self, proxy.now)
        # the TLS handshake, or the connection to the broker
        self._task: asyncio.Task[None] | None = None
        self.is_large = False  # its unfinished request
        self._connects = False  # or has connected to the broker
        self._write_buffer = 0

    def renew(self) -> None:
        """Take the listener's options of now. What is being judged stays with its own gate."""
        if self.gate is not self.proxy.gate:
            self.gate = self.proxy.gate
            self.fast_path.follow(self.gate)
        self.follow_deny_list()
        if self.limits != self.proxy.options.limits:
            self._bound(self.proxy.options.limits)

    def _bound(self, limits: Limits) -> None:
        """Hold the session to other limits. A request that has begun may become as long as it
        states.
        """
        before, self.limits = self.limits, limits
        self.client.splitter.max_frame_bytes = self._most_of_frame()
        self.old_fetches.bound(limits.max_partitions)
        transport = self.client.transport
        if transport is not None and limits.peer_timeout_s != before.peer_timeout_s:
            keep_alive(transport, limits.peer_timeout_s, bound_unacknowledged=False)
        self.bound_writes()
        if self.broker is not None:
            self.broker.bound(limits)
        self._release_judging()

    def _most_of_frame(self) -> int:
        """Return the bytes that a request may have now."""
        limits = self.limits
        most = limits.max_frame_bytes
        return most if self.authenticated else min(most, limits.max_unauthenticated_frame_bytes)

    # ---- the client ------------------------------------------------------------------------------

    def client_accepted(self) -> None:
        """Admit the client, or close its connection."""
        transport = self.client.transport
        assert transport is not None
        self.address, port = address_of(transport)
        self.name = f"{self.address}:{port}"
        self.opened = self.now()
        if not self.proxy.admit(self):
            self.ending = "refused"
            self.state = State.CLOSED
            transport.abort()
        elif (secured := self.proxy.secure(self)) is None:
            self._client_ready()
        else:
            self._task = self.proxy.loop.create_task(self._secure(secured))

    async def _secure(self, secured: Awaitable[asyncio.Transport]) -> None:
        """Wait for the TLS handshake with the client."""
        try:
            transport = await secured
        except (HandshakeError, asyncio.CancelledError) as error:
            self._task = None
            self.client.transport = None
            self._note_ending(f"handshake_{getattr(error, 'reason', 'ended')}", str(error))
            self._close_broker()
            return
        self._task = None
        self.client.transport = transport
        self._client_ready()

    def _client_ready(self) -> None:
        transport = self.client.transport
        assert transport is not None
        if self.log.is_debug:
            self._log_accepted(transport)
        self.bound_writes()
        # no bound on what it has not acknowledged: consumers may go minutes without reading; see
        # check_time
        keep_alive(transport, self.limits.peer_timeout_s, bound_unacknowledged=False)
        self.sender, principal = self.proxy.names_of(transport)
        self.fast_path.name(self.sender)
        self.fast_path.measure(self.proxy.traffic_of(self.listener))
        self.facts = Facts(self.sender, self.name, ANONYMOUS, self.proxy.options.listener_name)
        if principal is not None:
            self.authenticated_as(principal)
        own = transport.get_extra_info("sockname")
        self.own_host = own[0] if isinstance(own, tuple) else "localhost"

    def _log_accepted(self, transport: asyncio.Transport) -> None:
        tls = transport.get_extra_info("ssl_object")
        cipher = None if tls is None else tls.cipher()
        facts = {} if tls is None else {"tls": tls.version(), "cipher": cipher and cipher[0]}
        self.log.debug(self, "connection accepted", **facts)

    def _named(self, client_id: str | None) -> None:
        if self.log.is_debug:
            self.log.debug(self, "first request of a client id", client_id=client_id)

    def client_frames(self, frames: list[memoryview]) -> None:
        """Take the requests that have come."""
        if self.ending is not None:
            if self.parting is not None:
                self.parting.take(frames)
                if allocated() > self.budget.blocks_limit:
                    self._look()
            return
        if self.is_unknown:
            self._look_for_authentication()
        if not frames:
            size = self.client.splitter.partial_size
            if size > self.budget.large:
                self.is_large = True
                self.budget.begin_large(self, size)
            if self.budget.is_turn_long() and not self.holds & TURN:
                self.hold(TURN)
                self.budget.take_turn(self._read_on)
        else:
            if self.is_large:
                self.is_large = False
                self.budget.end_large(self)
            self.spoke = True
            self.clock.frame_s = 0.0
            self.seen = self.proxy.now
            if self.untaken or self.holds & SASL:
                self.untaken += frames
                self._put_off_ns = self._put_off_ns or clock_ns()
            elif self.budget.spent_s > TURN_S:
                self._put_off(frames)
            else:
                self._take(frames)
            if self.is_aged and self.is_between_requests():
                self.end_when_taken("max_age")
        if allocated() > self.budget.blocks_limit:
            self._look()

    def is_between_requests(self) -> bool:
        """Return whether the client is neither in a request nor in a SASL exchange."""
        return not self.client.splitter.buffered and not self.sasl.is_open

    def client_frame_error(self, error: FrameError) -> None:
        """End the session: nobody can find the next frame."""
        if self.parting is not None:
            self.client_may_end()
            return
        if error.peer:
            why = f"frame_{error.peer.lower()}"
        elif error.stated > error.limit and not self.authenticated:
            why = "frame_unauthenticated"
        else:
            why = "frame_size"
        self.end_when_taken(why, "" if error.peer else f"length {error.stated}, allowed 0 to {error.limit}")

    def client_full(self) -> None:
        """Read neither side: the client does not take its answers."""
        self.seen_client.stalls += 1
        self.budget.note_full(self, True)
        self.hold(ANSWERS)
        if self.broker is not None:
            self.broker.hold(ANSWERS)
        self._look()

    def client_drained(self) -> None:
        """Read both sides again."""
        self.budget.note_full(self, False)
        self.release(ANSWERS)
        if self.broker is not None:
            self.broker.release(ANSWERS)
        self._look()

    def client_lost(self) -> None:
        """End the session. The broker still gets what was taken, as if the client had sent it
        directly.
        """
        self.client.transport = None
        if self.ending is None and self.sasl.failure:
            self._note_ending("authentication_failed", self.sasl.failure)
        elif self.ending is None:
            self.ending = CLIENT
            self.log.closed_by_client(self)
        self.move(Event.END)
        self._drop_unjudged()
        if not self._is_busy():
            self.answering.clear()
            self.waiting = 0
        elif self.broker is not None:  # its answers may decide on what waits
            self.broker.release(ANSWERS)
        self._close_broker()

    def _drop_unjudged(self) -> None:
        """Drop what is being judged for a client that is gone, unless nobody waits for the answer
        anyway (acks=0).
        """
        for n, item in enumerate(self.outbox):
            if item.waits and item.answer is not None:
                self._drop_outbox(n)
                return

    # ---- requests --------------------------------------------------------------------------------

    def _take(self, frames: list[memoryview]) -> None:
        """Send requests on by the fast path; a handler takes each that cannot go by it."""
        out: list[bytes | memoryview] = []
        now_ms = time.time_ns() // 1_000_000
        began = 0.0
        fast_path = self.fast_path
        i, end = 0, len(frames)
        while i < end:
            decision = None
            inline = True
            if not self.outbox and self.authenticated:
                i = fast_path.take(frames, i, now_ms, out)
                if i == end:
                    break
                if fast_path.spent:
                    self.budget.note_work(SLICE_S)
                    self._put_off(frames[i:])
                    break
                decision = fast_path.decision
                inline = not fast_path.tried
            if not began:
                began = time.perf_counter()
                fast_path.begin()
            self._take_one(frames[i], decision, inline, out)
            i += 1
            if self.ending is not None and self.ending != CLIENT and self.parting is None:
                break
            if i < end and (self.holds & SASL or time.perf_counter() - began > SLICE_S):
                self._put_off(frames[i:])
                break
        if began:
            self.budget.note_work(time.perf_counter() - began)
        if out:
            self._send(out)
        if len(self.answers) > self.limits.max_waiting:
            self.hold(JUDGING)

    def take_late(self, frames: list[memoryview]) -> None:
        """Take requests without an answer that come after the last answer is written."""
        if self.untaken:
            self.untaken += frames
        else:
            self._take(frames)

    def _put_off(self, frames: list[memoryview]) -> None:
        """Take the rest in a later turn of the loop, after others had theirs."""
        self.untaken = frames
        self._put_off_ns = self.fast_path.since_ns or clock_ns()
        self.hold(TURN)
        if not self.holds & SASL:
            self.budget.take_turn(self._take_rest)

    def _read_on(self) -> None:
        """Read the rest of a request that is not whole."""
        if not self.untaken:
            self.release(TURN)

    def _take_rest(self) -> None:
        frames, self.untaken = self.untaken, []
        since_ns, self._put_off_ns = self._put_off_ns, 0
        if not frames or (self.state is State.CLOSED and self.broker is None):
            return
        self.fast_path.since_ns = since_ns
        try:
            self._take(frames)
        except Exception as error:  # outside of a transport's callback nobody would end the session
            self.proxy.log_error("a request could not be taken", error)
            self.abort("fault")
            return
        self.fast_path.since_ns = 0
        if not self.untaken:
            self.release(TURN)
            if self.ends_after is not None:
                self.end(*self.ends_after)
            self._close_if_done()

    def _take_one(self, frame: memoryview, decision: str | None, inline: bool, out: list[bytes | memoryview]) -> None:
        counters = self.counters
        counters.requests_total += 1
        counters.request_bytes_total += len(frame)
        if self.sasl.tokens_left:
            handlers.token(self, frame, out)
            return
        try:
            key, version, correlation_id = _unpack_header(frame, 4)
        except struct.error:
            self.end("request_header")
            return
        route = self.proxy.routes.get(key)
        if route is None or not route[0] <= version <= route[1]:
            if key == ApiKey.API_VERSIONS and version > 0:
                handlers.answer_versions(self, correlation_id)
            else:
                carried = "the gate does not carry this API" if route is None else "carried are {} to {}".format(*route)
                self.end("request_version", carried, (key, version))
            return
        self.fast_path.note(frame, key, version)
        if key == ApiKey.PRODUCE and is_turned_away(key, version) and key not in self.raised:
            self.end("version_too_old", upgrade_advice(key), (key, version))  # nobody can judge it
            return
        try:
            if self.guarded and key in self.guarded and refuse_denied(self, frame, key, version, correlation_id):
                return
            if key == ApiKey.PRODUCE:
                handlers.produce(self, frame, version, correlation_id, decision, inline, out)
            else:
                handler = handlers.of(key, version, route[2], self.raised.get(key))
                handler(self, frame, key, version, correlation_id, out)
        except ProtocolError as error:
            why = "produce_malformed" if key == ApiKey.PRODUCE else "request_malformed"
            self.end(why, str(error), (key, version))

    def introduce(self, frame: memoryview, version: int) -> None:
        """Note what an ApiVersions request says of the client's software."""
        self.seen_client.software = software_of(frame, version) or self.seen_client.software
        self.facts = self.facts._replace(software=" ".join(self.seen_client.software).strip())

    @property
    def deny_list(self) -> DenyList | None:
        """Return what is denied on this listener; None: nothing."""
        return self.proxy.deny_list

    def follow_deny_list(self) -> None:
        """Choose the routes of the fast path by the client's principal: without the APIs that are
        denied to it; while its principal may change, without all that are denied to anybody.
        """
        deny_list = self.proxy.deny_list
        if deny_list is None:
            if self.guarded:
                self.guarded = frozenset()
                self.fast_path.route(self.proxy.routes_for(self.guarded, self.raised))
            return
        self.guarded = deny_list.guarded
        denied = deny_list.denied_to(self.facts.principal) if self.is_named else self.guarded
        self.fast_path.route(self.proxy.routes_for(denied, self.raised))

    def note_denied(self, key: int, version: int) -> None:
        """Count and report a denied request."""
        denied = self.counters.requests_denied
        denied[key] = denied.get(key, 0) + 1
        client_id, facts = self.seen_client.client_id, self.facts
        self.proxy.options.on_denied(Denied(facts.listener, facts.client, client_id, facts.principal, key, version))

    def next_id(self, answer: Answer) -> int:
        """Return the correlation id of the next request to the broker."""
        return self.fast_path.send(answer.key, answer.taken_ns)

    def place(self, answer: Answer) -> None:
        """Give the answer to a client's request its place in the queue."""
        answer.taken_ns = self.fast_path.taken_ns
        self.answers.append(answer)

    def forward(
        self, frame: memoryview, answer: Answer, out: list[bytes | memoryview], *, is_own: bool = False
    ) -> None:
        """Send a request on in its order; ``answer`` is its place. ``is_own``: the gate's own."""
        if is_own:
            self.answers.append(answer)
        else:
            self.place(answer)
        if self.outbox:
            self.put(Item(frame, answer))
        else:
            _pack_int(frame, 8, self.next_id(answer))
            out.append(frame)

    def put(self, item: Item) -> None:
        """Let a request wait for its turn to be sent."""
        self.outbox.append(item)
        self.waiting += len(item.frame)
        if self.waiting + self.answering.made > MOST_HELD:
            self.hold(JUDGING)

    def keep(self, answer: Answer, held: int) -> None:
        """Count what is kept for a place in the queue until the broker's answer comes."""
        answer.held = held
        self.waiting += held
        if self.waiting + self.answering.made > MOST_HELD:
            self.hold(JUDGING)
        self._look()

    def let_go(self, answer: Answer) -> None:
        """Count it no more: the answer has come."""
        self.waiting -= answer.held
        answer.held = 0

    def judge(self, item: Item, request: ProduceRequestView, judgement: Judgement) -> None:
        """Judge a request that waits, in a thread."""
        self.proxy.judging.submit(self, item, request, judgement)

    def judged(self, item: object, error: BaseException | None) -> None:
        """Send on what the item held up, up to the next that waits."""
        if error is not None:
            if self.state is not State.CLOSED:
                self.proxy.log_error("a request could not be judged", error)
                self.abort("judging")
            return
        if isinstance(item, Item) and item.judgement is not None and item.judgement.done:
            item.waits = False
            if not item.judgement.cancelled:
                item.copied = item.judgement.copied_bytes
                self.waiting += item.copied
            self.send_waiting()

    def send_waiting(self) -> None:
        """Send the requests on that wait for nothing any more."""
        out: list[bytes | memoryview] = []
        while self.outbox and not self.outbox[0].waits:
            item = self.outbox.popleft()
            self.waiting -= item.size
            if item.request is not None and item.judgement is not None:
                handlers.forward_judged(self, item.frame, item.answer, item.request, item.judgement, out)
                if self.ending == "acks_0_refused":
                    self._drop_outbox()
            elif item.answer is not None and item.answer.ready is not None:
                continue  # it was answered here
            elif item.answer is not None:
                if item.answer.has_id:
                    _pack_int(item.frame, 8, self.next_id(item.answer))
                out.append(item.frame)
        if out:
            self._send(out)
        self.answering.write_ready()
        self._release_judging()
        self._look()
        self._close_if_done()

    def drop_from(self, item: Item) -> None:
        """Drop a request that cannot be sent on, and all after it."""
        self._drop_outbox(self.outbox.index(item))

    def _drop_outbox(self, n: int = 0) -> None:
        """Drop the outbox from its n-th request on, their places, and all that came after."""
        first = None
        while len(self.outbox) > n:
            item = self.outbox.pop()
            self.waiting -= item.size
            if item.judgement is not None:
                item.judgement.cancelled = True
            if item.work is not None:
                item.work.cancelled = True
            first = item.answer or first
        if first is not None:
            self.answering.drop_from(first)
        self.untaken.clear()
        self.proxy.judging.drop(self)

    def _release_judging(self) -> None:
        if (
            self.holds & JUDGING
            and self.waiting + self.answering.made <= MOST_HELD
            and len(self.answers) <= self.limits.max_waiting
        ):
            self.release(JUDGING)

    def _send(self, out: list[bytes | memoryview]) -> None:
        if self.unsent is not None:
            self.unsent.extend(out)
            self.waiting += sum(map(len, out))
            self.hold(BROKER)
            if not self._connects and self.broker is None:
                self._connects = True
                self.budget.take_turn(self._start_connecting)
        elif self.broker is not None:
            self.broker.write(out)

    def _start_connecting(self) -> None:
        """Connect to the broker; one session in each turn of the loop does."""
        if self.state is State.CLOSED and not self.unsent:
            self._connects = False
            self._forget_if_gone()
        else:
            self._task = self.proxy.loop.create_task(self._connect())

    # ---- the broker ------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Open the connection to the broker, and send what has come meanwhile."""
        proxy = self.proxy
        broker = BrokerConnection(self, self.limits, self.budget.spare)
        try:
            await proxy.connect(self.listener, broker)
        except UnknownBrokerError as error:
            self._task = None
            self.abort("broker_unknown", str(error))
            return
        except (OSError, TimeoutError) as error:
            proxy.upstream_failed()
            self._task = None
            self.abort("upstream_unreachable", str(error))
            return
        except asyncio.CancelledError:
            if broker.transport is not None:
                broker.transport.abort()
            raise
        finally:
            self._task = None
        self.broker = broker
        self.fast_path.measure(proxy.traffic_of(self.listener))  # its broker may be known only now
        if self.log.is_debug:
            self.log.debug(self, "broker connected", broker=self.listener.node_id, broker_address=broker.address)
        if broker.limits is not self.limits:
            broker.bound(self.limits)
        self.move(Event.CONNECTED)
        if self.authenticated:
            self.move(Event.AUTHENTICATED)
        unsent, self.unsent = self.unsent, None
        self.release(BROKER)  # the broker may be full again at once
        if unsent:
            self.waiting -= sum(map(len, unsent))
            broker.write(unsent)
        self._release_judging()
        if self.ending is not None:
            if self.client.transport is None:
                self._close_broker()
            else:
                self._close_if_done()
        if self.holds & ANSWERS:
            broker.hold(ANSWERS)
        if self.holds & BUDGET:
            broker.hold(BUDGET)

    def _look_for_authentication(self) -> None:
        """Decide about a client that came before the gate knew whether brokers authenticate: its
        requests are limited from now on, or not, or a large one waits.
        """
        requires = self.proxy.requires_authentication
        most = self.limits.max_unauthenticated_frame_bytes
        is_large = self.client.splitter.partial_size > most
        if requires is False:
            self.authenticate()
        elif requires is None:
            if is_large:
                self.hold(UNKNOWN)
        else:
            self.authenticated = self.is_unknown = False
            self.client.splitter.max_frame_bytes = self._most_of_frame()
            self.release(UNKNOWN)
            if is_large:
                size = self.client.splitter.partial_size
                self.end_when_taken("frame_unauthenticated", f"length {size}, allowed 0 to {most}")

    def authenticate(self) -> None:
        """Lift the limits of a client that nobody knows: it has shown who it is, or nobody asks it
        to.
        """
        self.authenticated = True
        self.is_unknown = self.sasl.is_open = False
        self.release(UNKNOWN)
        self.client.splitter.max_frame_bytes = self._most_of_frame()
        if self.guarded:
            self.follow_deny_list()
        self.move(Event.AUTHENTICATED)

    def authenticated_as(self, principal: str) -> None:
        """Note whom the broker has authenticated; "" where only the broker knows."""
        self.facts = self.facts._replace(principal=principal or ANONYMOUS)
        self.is_named = True
        if self.log.is_debug:
            mechanism = self.sasl.mechanism or "client certificate"
            self.log.debug(self, "client authenticated", mechanism=mechanism, principal=principal or None)
        self.authenticate()

    def authentication_begins(self) -> None:
        """Note that the client's principal may change."""
        self.is_named = False
        if self.guarded:
            self.follow_deny_list()

    def wait_for_handshake(self) -> None:
        """Take no more requests until the broker has answered SaslHandshake 0: tokens may come
        next.
        """
        self.hold(SASL)

    def handshake_answered(self) -> None:
        """Take what has come meanwhile."""
        self.release(SASL)
        if self.untaken:
            self.budget.take_turn(self._take_rest)

    def broker_read_again(self, why: int) -> None:
        """Measure no answer that may have waited because the broker was not read."""
        if why & ANSWERS:
            self.fast_path.forget(True)
        elif why & (BUDGET | CONVERTING):
            self.fast_path.forget(False)

    def broker_full(self) -> None:
        """Do not read the client: the broker does not take its requests."""
        self.hold(BROKER)
        self._look()

    def broker_drained(self) -> None:
        """Read the client again."""
        self.release(BROKER)
        self._look()

    def _read_broker_later(self) -> None:
        """Read the rest of a large answer in a later turn of the loop."""
        if self.broker is not None and not self.broker.holds & TURN:
            self.broker.hold(TURN)
            self.budget.take_turn(self._read_broker_on)

    def _read_broker_on(self) -> None:
        if self.broker is not None:
            self.broker.release(TURN)

    def broker_frame_error(self) -> None:
        """Leave the broker, whose next frame nobody can find; the client still gets what came."""
        if self.ending is None:
            self._note_ending("upstream_frame")
            self.hold(ENDING)
        if self.broker is not None and self.broker.transport is not None:
            self.broker.transport.abort()

    def broker_lost(self) -> None:
        """Close the session; the client still gets what the broker has answered."""
        if self.broker is not None:
            self.broker.splitter.clear()
        if self.ending is None:
            self._note_ending(*self._why_broker_lost())
        self.broker = None
        self._drop_outbox()
        self.answering.clear()
        self.waiting = 0
        self._close("upstream_lost")
        self._forget_if_gone()

    def _why_broker_lost(self) -> tuple[str, str, Request | None]:
        """Return why the broker has ended the connection, with a detail, and the request that is
        the cause.
        """
        problem = "" if self.broker is None else self.broker.problem
        self.sasl.broker_left()
        if self.sasl.failure:
            return "authentication_failed", self.sasl.failure, None
        if not self.answering and not self._is_busy():
            return "upstream_closed", problem, None
        if self.answers:
            _, key, version = facts_of(self.answers[0])
            rejected = self.seen_client.rejected((key, version), len(self.answers), self.raised)
            if rejected is not None:
                return "version_too_old", upgrade_advice(rejected[0]), rejected
        return "upstream_lost", problem, None

    def broker_frames(self, frames: list[memoryview]) -> None:
        """Pass on the broker's answers; the first may be pieces, see ``Answering.take``."""
        self.seen = self.proxy.now
        if self.client.transport is None and not self._is_busy():
            return
        self._answer(frames)
        if self.answering.stream is not None and self.budget.is_turn_long():
            self._read_broker_later()
        if self.holds & JUDGING:
            self._release_judging()
        if allocated() > self.budget.blocks_limit:
            self._look()
        if self.ending is not None:
            self._close_if_done()

    def convert(self, lowering: Lowering) -> None:
        """Convert an answer in a thread; the broker is not read meanwhile."""
        self.waiting += lowering.held
        self.answering.convert(lowering)
        if self.broker is not None:
            self.broker.hold(CONVERTING)
        self.proxy.judging.put(lowering)
        self._look()

    def conversion_grew(self, lowering: Lowering, held: int) -> None:
        """Note what a conversion holds now."""
        if self.answering.converting is lowering:
            self.waiting += held - lowering.held
            lowering.held = held
            self._look()

    def converted(self, lowering: Lowering, error: BaseException | None) -> None:
        """Pass a converted answer on, and what the broker has answered after it."""
        if self.answering.converting is not lowering:
            return  # the session has ended meanwhile
        self.waiting -= lowering.held
        if error is not None:
            self.fault("an answer of {} could not be converted", error)
            self.abort("answer_malformed", str(error))
            return
        self.answering.converted(lowering.finish())
        if self.broker is not None and self.answering.converting is None:
            self.broker.release(CONVERTING)
        self._release_judging()
        self._look()
        if self.ending is not None:
            self._close_if_done()

    def answer_here(self, answer: Answer, ready: list[bytes | memoryview]) -> None:
        """Answer a request that no broker sees, in its place."""
        self.answering.answer_here(answer, ready)
        if self.answering.made:
            self._look()
            if self.waiting + self.answering.made > MOST_HELD:
                self.hold(JUDGING)

    def fault(self, what: str, error: BaseException | None) -> None:
        """Log what is wrong with the broker's answers; ``what`` names the broker as {}."""
        node_id = self.listener.node_id
        broker = "a broker" if node_id is None else f"broker {node_id}"
        self.proxy.log_error(what.format(broker), error)

    def replace(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """Return where clients find a broker: at its listener."""
        host, port = self.proxy.listener_of(node_id, host, port).advertised
        return host or self.own_host, port

    def written_brokers(self, version: int) -> dict[bytes, bytes]:
        """Return what was written for the brokers of Metadata answers of this version."""
        return self.proxy.cluster.written_brokers(self.own_host, version)

    # ---- how fast it may go ----------------------------------------------------------------------

    def hold(self, why: int) -> None:
        """Stop reading the client, as long as any reason for it stands."""
        if not self.holds:
            self.client.pause()
            self.counters.reading_paused_total += 1
            if self.log.is_debug:
                self.log.debug(self, "reading paused", why=_HELD[why])
        self.holds |= why

    def release(self, why: int) -> None:
        """Take one reason away."""
        if self.holds & why:
            self.holds &= ~why
            if not self.holds:
                self.client.resume()
                if self.log.is_debug:
                    self.log.debug(self, "reading resumed", why=_HELD[why])

    def pause(self) -> None:
        """Read neither side: all sessions together hold too much."""
        self.hold(BUDGET)
        if self.broker is not None:
            self.broker.hold(BUDGET)

    def go_on(self) -> None:
        """Read both sides again."""
        self.release(BUDGET)
        if self.broker is not None:
            self.broker.release(BUDGET)

    def _look(self) -> None:
        self.budget.count(self, self.answering.made)
        if self.ending is None or self.state is State.DRAINING:
            self.budget.look(self)

    def held(self) -> int:
        """Return the bytes that this session holds, about: the memory of frames in part, and what
        waits.
        """
        held = self.client.splitter.held_bytes + self.client.unwritten() + self.waiting + self.answering.made
        if self.broker is not None:
            held += self.broker.splitter.held_bytes + self.broker.unwritten()
        return held

    def is_read(self) -> bool:
        """Return whether only the budget or the client keeps its request from growing."""
        return not self.holds & ~(BUDGET | ANSWERS)

    def partial_bytes(self) -> int:
        """Return what has come of the client's unfinished request."""
        return self.client.splitter.buffered

    def answer_bytes(self) -> int:
        """Return what has come of an answer that is not passed on before it is whole, where only
        the budget keeps it from growing.
        """
        broker = self.broker
        return 0 if broker is None or broker.holds & ~BUDGET else broker.splitter.buffered

    def unwritten(self) -> int:
        """Return the bytes of answers that the client has not taken."""
        return self.client.unwritten()

    def unread(self) -> int:
        """Return what the client has sent and nobody has read; -1 where that is not known."""
        return unread(self.client.transport)

    def partial_held(self) -> int:
        """Return the memory that an unfinished request takes, or an answer that is not passed on
        before it is whole.
        """
        held = self.client.splitter.held_bytes
        return held if self.broker is None else held + self.broker.splitter.held_bytes

    def partial_size(self) -> int:
        """Return the size that the client's unfinished request states, or the broker's unfinished
        answer, whichever is larger; 0: not known yet.
        """
        size = self.client.splitter.partial_size
        return max(size, self.broker.splitter.partial_size) if self.answer_bytes() and self.broker else size

    def bound_writes(self) -> None:
        """Bound what waits for the client: less, the more clients there are."""
        limit = max(LEAST_WRITE_BUFFER, self.budget.limit // 16 // max(1, self.counters.connections_open))
        limit = min(self.limits.write_buffer, limit)
        if limit != self._write_buffer and self.client.transport is not None:
            self._write_buffer = limit
            self.client.transport.set_write_buffer_limits(limit)

    # ---- the end ---------------------------------------------------------------------------------

    def _note_ending(self, why: str, detail: str = "", request: Request | None = None) -> None:
        """Note, count and log why the session ends; the first reason counts."""
        if self.ending is None:
            self.ending = why
            self.proxy.closed(why)
            self.log.ended(self, why, detail, request)

    def end(self, why: str, detail: str = "", request: Request | None = None) -> None:
        """Take no more requests; close once what is under way is delivered.

        ``request``  the one that is the cause, if one is
        """
        if self.ending is not None:
            return
        self._note_ending(why, detail, request)
        self.move(Event.END)
        self.deadline = self.proxy.loop.time() + self.limits.linger_s
        self.hold(ENDING)
        self.proxy.loop.call_soon(self._close_if_done)

    def end_when_taken(self, why: str, detail: str = "") -> None:
        """Take the requests that have been read, and then no more."""
        if self.untaken:
            self.ends_after = self.ends_after or (why, detail)
        else:
            self.end(why, detail)

    def _is_busy(self) -> bool:
        return bool(self.outbox or self.unsent or self.untaken)

    def _close_if_done(self) -> None:
        if self.ending is None or self._is_busy():
            return
        if (not self.answering or self.client.transport is None) and not self._parts():
            self._close(self.ending)

    def _parts(self) -> bool:
        """Return whether the client may still send: it has every answer, and an end of file."""
        if self.client.transport is None or not self.spoke or self.state is State.CLOSED:
            return False
        if self.parting is None and self.ending in GRACEFUL:
            self.parting = Parting(self, self.proxy.loop)
            self.release(ENDING)
        return self.parting is not None and not self.parting.is_over

    def client_may_end(self) -> None:
        """Close once what was taken is delivered: the client has had the time to end by itself."""
        if self.parting is not None:
            self.parting.finish()
        self._close_if_done()

    def _close(self, why: str) -> None:
        """Close both sides once what is written to them is gone."""
        self._note_ending(why)
        self.move(Event.CLOSE)
        if self.deadline is None:
            self.deadline = self.proxy.loop.time() + self.limits.linger_s
        if self.client.transport is not None:
            self.client.transport.close()
        self._close_broker()

    def _close_broker(self) -> None:
        """Close the broker's side: the client is gone, or will be. The broker still gets what was
        taken.
        """
        if self.deadline is None:
            self.deadline = self.proxy.loop.time() + self.limits.linger_s
        if self._is_busy():
            return
        self.move(Event.CLOSE)
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self.broker is not None and self.broker.transport is not None:
            # a transport that is not read never sees its end
            self.broker.release(ANSWERS | BUDGET | TURN | CONVERTING)
            self.broker.close()
        self._forget_if_gone()

    def _forget_if_gone(self) -> None:
        if self.client.transport is None and self.broker is None and self._task is None:
            self.state = State.CLOSED
            self.client.splitter.clear()  # the cycle collector may come much later
            self.seen_client.collect()
            self.proxy.forget(self)

    def abort(self, why: str, detail: str = "") -> None:
        """End both sides at once."""
        self._note_ending(why, detail)
        self.move(Event.CLOSE)
        self._drop_outbox()
        self.answering.clear()
        self.unsent = None
        self.waiting = 0
        if self.client.transport is not None:
            self.client.transport.abort()
        if self.broker is not None and self.broker.transport is not None:
            self.broker.transport.abort()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._forget_if_gone()

    def now(self) -> float:
        """Return the time of the loop's clock, in seconds."""
        return self.proxy.loop.time()

    def check_time(self, now: float) -> None:
        """End what has waited too long. Called now and then."""
        if self.holds & UNKNOWN:
            self._look_for_authentication()
        if self.holds & UNKNOWN and now - self.seen > self.limits.frame_s:
            self.end("upstream_unreachable", _HELD[UNKNOWN])
        self.seen_client.check(now)
        self.clock.check(now)
