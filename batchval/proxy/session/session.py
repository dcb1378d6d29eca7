"""One client's session: its requests and their answers, in the same order.

    int32 length, int16 api_key, int16 api_version, int32 correlation_id, …

Each request takes its place among the answers as it comes. Towards the broker it has another
correlation id, counted from 1, so that an answer out of turn is found whatever the client chose;
then both connections end, since nobody can tell whose answer it was. Frames that are only passed on
are sent as they were received: a slice of the buffer that they were read into, which lives until
they are written.

    requests        requests that cannot go on yet, and the queue of answers
    identity        who the client is, and what follows from that
    connections     both connections: why each is not read, and what it holds
    lifetime        the states, the reason to end, and the deadlines
    handlers        what is done with the requests and answers of an API: they get the requests
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from batchval.protocol.errors import TooManyBrokersError
from batchval.protocol.frames import FrameError, allocated
from batchval.proxy.cluster.listeners import ListeningPort, UnknownBrokerError
from batchval.proxy.kit.end_reasons import CLIENT
from batchval.proxy.kit.sockets import address_of, unacknowledged
from batchval.proxy.produce.validation_queue import Job
from batchval.proxy.session import handlers
from batchval.proxy.session.budget import TURN_S
from batchval.proxy.session.connection_log import (
    ApiKeyAndVersion,
    Connection,
    why_broker_left,
)
from batchval.proxy.session.connections import (
    ANSWERS,
    BROKER,
    BUDGET,
    CONVERTING,
    ENDING,
    IN_WORDS,
    SASL,
    TURN,
    UNKNOWN,
    VALIDATING,
    BrokerConnection,
    ClientConnection,
    Connections,
)
from batchval.proxy.session.fast_path import AnswerPassage, FastPath, RequestPassage
from batchval.proxy.session.identity import Authenticated, Identity
from batchval.proxy.session.lifetime import End, How, Lifetime
from batchval.proxy.session.owner import Owner
from batchval.proxy.session.requests import (
    STREAMED_FROM,
    Answer,
    AnswerFault,
    Item,
    Lowering,
    MetadataQuestion,
    Pause,
    RequestJob,
    Requests,
)
from batchval.proxy.session.session_states import SessionEvent, SessionState
from batchval.proxy.session.socket_transport import (
    PASSED_LOOK,
    PASSED_REST,
    PASSED_SPENT,
    PASSED_STOPPED,
)
from batchval.proxy.settings.options import Denied
from batchval.proxy.tls.handshakes import HandshakeError, NoHandshakeError
from batchval.proxy.watch.clients import SeenClient
from batchval.proxy.watch.request_latency import clock_ns

__all__ = ["Session"]

#: Bytes of requests and answers that one session may hold before its client is not read.
MAX_HELD_BYTES: Final = 8 << 20
#: Seconds that the requests of one session may take at a time on the loop.
SLICE_S: Final = 0.001


class Session:
    """The queue between a client's connection and a broker's, and the state that both are in.

    ``lifetime``, ``connections``, ``requests`` and ``identity`` know no session: it alone carries
    out what they return. Its attributes are assigned in this file only.
    """

    def __init__(self, proxy: Owner[Session], listener: ListeningPort) -> None:
        self.proxy = proxy
        self.listener = listener
        self.limits = proxy.options.limits
        # an attribute of its own, since each read asks: one of a model takes seven times as long
        self._max_waiting = self.limits.max_requests_waiting
        self.counters = proxy.counters
        self.budget = proxy.budget
        self.log = proxy.connection_log
        self.opened = 0.0
        self.lifetime = Lifetime(self.limits, proxy.now)
        # while the client may end by itself: of the next look at it
        self._parting: asyncio.TimerHandle | None = None
        requires = proxy.discovery.requires_authentication
        self.identity = Identity(proxy.senders, proxy.options.listener.name, requires=requires)
        most = self.identity.max_frame_bytes(self.limits)
        self.client = ClientConnection(self, most, self.budget.spare)
        self.connections = Connections(self.client)
        self._is_connecting = False  # to its broker, which it does once
        traffic = proxy.traffic_of(listener)
        names = proxy.topics.by_id
        answers: deque[Answer | int] = deque()
        self.fast_path = FastPath(
            proxy.fast_routes, proxy.gate, self.counters, answers, names, traffic
        )
        self.requests = Requests(answers, self.fast_path, self.identity, proxy, listener.node_id)
        self._put_off_ns = 0  # when the first of ``requests.untaken`` came
        self._is_put_off = False  # the rest of the outbox, to a later turn
        self._follow_deny_list()
        named = partial(self.log.named, self.identity)
        self.seen_client = SeenClient(
            self.identity, self.fast_path, proxy.clients, proxy.now, named
        )
        self.is_large = False  # its unfinished request

    def renew(self) -> None:
        """Take the listener's options of now. What is being validated stays with its own gate."""
        before, limits = self.limits, self.proxy.options.limits
        self.requests.follow(self.proxy.gate, limits)
        self._follow_deny_list()
        if before == limits:
            return
        # a request that has begun may become as long as it states
        self.limits = limits
        self._max_waiting = limits.max_requests_waiting
        self.connections.bound_waiting(limits.max_requests_waiting)
        self.client.splitter.max_frame_bytes = self.identity.max_frame_bytes(limits)
        self.connections.bound(limits, before)
        self._bound_writes()
        self.read_if_bounded()

    def _follow_deny_list(self) -> None:
        """Choose the routes of the fast path by the client's principal."""
        guarded, routes = self.proxy.routes_of(self.identity.principal, self.requests.raised)
        if guarded or self.requests.guarded:
            self.requests.guarded = guarded
            self.fast_path.route(routes)

    # ---- the client's identity -------------------------------------------------------------------

    def _look_at_identity(self) -> None:
        """Decide on a client that came before it was known whether brokers authenticate."""
        requires = self.proxy.discovery.requires_authentication
        size, most = self.client.splitter.partial_size, self.limits.max_unauthenticated_frame_bytes
        self.identity.look(requires=requires)
        if requires is None:
            if size > most:
                self.hold(UNKNOWN)
        elif requires:
            self._lift_limits()
            if size > most:
                self.end_when_taken("frame_unauthenticated", f"length {size}, allowed 0 to {most}")
        else:
            self._authenticated(self.identity.authenticate())

    def _lift_limits(self) -> None:
        self.release(UNKNOWN)
        self.client.splitter.max_frame_bytes = self.identity.max_frame_bytes(self.limits)

    def _authenticated(self, effect: Authenticated) -> None:
        """Lift the limits of a client that the broker has accepted, or of which nobody asks it."""
        if effect.principal is not None and self.log.is_debug:
            self.log.authenticated(self.identity, effect.principal)
        self._lift_limits()
        self._follow_deny_list()
        self.lifetime.move(SessionEvent.AUTHENTICATED)

    # ---- the client ------------------------------------------------------------------------------

    def client_accepted(self) -> None:
        """Admit the client, or close its connection."""
        transport = self.client.transport
        assert transport is not None
        self.identity.connected(*address_of(transport))
        self.opened = self.now()
        if not self.proxy.admit(self, self.identity):
            self.lifetime.refused(self.opened)
            transport.abort()
            return
        try:
            if (secured := self.proxy.secure(self.client, self._serve_as)) is None:
                self._client_ready()
            else:
                self.connections.task = self.proxy.loop.create_task(self._secure(secured))
        except Exception as error:  # uvloop would close it and never say so
            self._fail("a connection could not be served", error)

    def _fail(self, what: str, error: Exception) -> None:
        """End the session because of a defect, where nobody else would: its slot is free again."""
        self.proxy.log_error(what, error)
        self.abort("fault")

    async def _secure(self, secured: Awaitable[asyncio.Transport]) -> None:
        """Wait for the TLS handshake with the client."""
        try:
            await self.connections.secure(secured)
            self._client_ready()
        except NoHandshakeError:
            self.client_lost()
        except (HandshakeError, asyncio.CancelledError) as error:
            self._note_end(f"handshake_{getattr(error, 'reason', 'ended')}", str(error))
            self._close_broker()
        except Exception as error:
            self._fail("a connection could not be served", error)

    def _serve_as(self, listener: ListeningPort) -> None:
        """Serve the broker of this listener: the client's ClientHello has named it."""
        self.listener = listener
        self.requests.node_id = listener.node_id

    def _client_ready(self) -> None:
        transport = self.client.transport
        assert transport is not None
        if self.log.is_debug:
            self.log.accepted(self.identity, transport)
        self._bound_writes()
        self.connections.accepted(self.limits)
        sender, principal = self.proxy.names_of(transport)
        self.fast_path.name(sender)
        self.fast_path.measure(self.proxy.traffic_of(self.listener))
        own = transport.get_extra_info("sockname")
        own_host = own[0] if isinstance(own, tuple) else "localhost"
        self.identity.ready(sender, own_host, self.proxy.options.listener.name)
        if principal is not None:
            self._authenticated(self.identity.authenticated_as(principal))

    def _described(self) -> Connection:
        """Return what a line of the log says of this session."""
        connections, requests = self.connections, self.requests
        return Connection(
            self.identity, self.seen_client, connections, requests, self.opened, self.now()
        )

    def client_frames(
        self,
        frames: list[memoryview],
        error: FrameError | None = None,
        outcome: int = PASSED_REST,
    ) -> None:
        """Take the requests that have come, or the fault of what comes after them.

        ``outcome``  what became of those before them, which went past the session
        """
        lifetime = self.lifetime
        if lifetime.reason is not None:  # from DRAINING on; an enum costs more to compare
            if error is not None:
                self._client_frame_error(error)
            elif lifetime.may_part:
                lifetime.came_late()
                self._take_late(frames)
            return
        if self.identity.is_unknown:
            self._look_at_identity()
        if outcome == PASSED_LOOK:
            if len(self.requests.answers) > self._max_waiting:
                self.hold(VALIDATING)
        elif outcome == PASSED_SPENT:
            self.budget.note_work(SLICE_S)
            self._put_off(frames)
        elif not frames:
            if error is not None:
                self._client_frame_error(error)
                return
            size = self.client.splitter.partial_size
            if size > self.budget.large:
                self.is_large = True
                self.budget.begin_large(self, size)
            if self.budget.is_turn_long() and not self.client.holds & TURN:
                self.hold(TURN)
                self.budget.take_turn(self._read_on, self.identity.account.key)
        else:
            if self.is_large:
                self.is_large = False
                self.budget.end_large(self)
            lifetime.spoke = True
            lifetime.frame_s = 0.0
            lifetime.seen = self.proxy.now
            if self.requests.untaken or self.client.holds & SASL:
                self.requests.untaken += frames
                self._put_off_ns = self._put_off_ns or clock_ns()
            elif self.budget.spent_s > TURN_S:
                self._put_off(frames)
            else:
                self._take(frames, stopped=outcome == PASSED_STOPPED)
            if lifetime.is_aged and self.is_between_requests():
                self.end_when_taken("max_age")
        if allocated() > self.budget.blocks_limit:
            self.count_held()
        self._look_passages()

    def _look_passages(self) -> None:
        """Let frames pass by this session where it need not see them, or have them all again."""
        requests, lifetime = self.requests, self.lifetime
        is_open = (
            lifetime.reason is None
            and not lifetime.is_aged
            and self.identity.authenticated
            and not self.identity.is_unknown
            and not self.identity.sasl.is_open
        )
        self.connections.let_pass(
            requests=is_open and not requests.is_busy and not self.is_large,
            answers=is_open
            and requests.stream is None
            and requests.converting is None
            and not self.client.holds & VALIDATING,
        )

    def is_between_requests(self) -> bool:
        """Return whether the client is neither in a request nor in a SASL exchange."""
        return not self.client.splitter.buffered and not self.identity.sasl.is_open

    def _client_frame_error(self, error: FrameError) -> None:
        """End the session: nobody can find the next frame."""
        if self.lifetime.may_part:
            self.lifetime.move(SessionEvent.QUIET)
            self.close_if_done()
            return
        self.end_when_taken(*self.identity.why_not_read(error))

    def client_full(self, is_full: bool) -> None:
        """Read neither side while the client does not take its answers."""
        self.budget.note_full(self, is_full)
        if is_full:
            self.seen_client.stalls += 1
            self._hold_both(ANSWERS)
        else:
            self._release_both(ANSWERS)
        self.count_held()

    def client_lost(self) -> None:
        """End the session. The broker still gets the requests that were taken."""
        self.client.transport = None
        self._count_passed()
        self.connections.let_pass(requests=False, answers=False)
        if self.identity.sasl.failure:
            self._note_end("authentication_failed", self.identity.sasl.failure)
        elif self.lifetime.end(CLIENT, self.now(), self.limits):
            self.log.closed_by_client(self._described())
        self.requests.drop_unvalidated()
        self.drop_jobs()
        if not self.requests.is_busy:
            self._clear_places()
        else:  # the broker's answers may decide on what waits
            self._release_broker(ANSWERS)
        self._close_broker()

    # ---- requests --------------------------------------------------------------------------------

    def _take(self, frames: list[memoryview], *, stopped: bool = False) -> None:
        """Send requests on by the fast path; a handler takes each that cannot go by it.

        ``stopped``  the fast path has looked at the first, and cannot take it
        """
        out: list[bytes | memoryview] = []
        now_ms = time.time_ns() // 1_000_000
        began = 0.0
        fast_path, requests, lifetime = self.fast_path, self.requests, self.lifetime
        i, end = 0, len(frames)
        while i < end:
            decision = None
            inline = True
            is_clients = False
            if not requests.outbox and requests.identity.authenticated:
                if not stopped:
                    i = fast_path.take(frames, i, now_ms, out)
                    if i == end:
                        break
                    if fast_path.spent:
                        self.budget.note_work(SLICE_S)
                        self._put_off(frames[i:])
                        break
                stopped = False
                decision = fast_path.decision
                inline = not fast_path.tried
                is_clients = fast_path.is_clients
            if not began:
                began = time.perf_counter()
                fast_path.begin()
            made = requests.made
            handlers.take(requests, frames[i], decision, inline, is_clients, out)
            i += 1
            if requests.made != made:
                self._write_ready()
                if requests.made:
                    self.count_held()
                    self._bound_waiting()
            if requests.effects:
                self._carry_out()
            if requests.outbox:
                self._bound_waiting()
            if lifetime.state >= SessionState.DRAINING and not lifetime.is_taking:
                break
            if i < end and (self.client.holds & SASL or time.perf_counter() - began > SLICE_S):
                self._put_off(frames[i:])
                break
        if began:
            self.budget.note_work(time.perf_counter() - began)
        if out:
            self.send(out)
        if len(requests.answers) > self._max_waiting:
            self.hold(VALIDATING)

    def _take_late(self, frames: list[memoryview]) -> None:
        """Take what comes after the last answer is written: requests without an answer."""
        most = self.limits.max_partitions_per_request
        late = [frame for frame in frames if handlers.wants_no_answer(frame, most)]
        if self.requests.untaken:
            self.requests.untaken += late
        elif late:
            self._take(late)
        if allocated() > self.budget.blocks_limit:
            self.count_held()

    def _put_off(self, frames: list[memoryview]) -> None:
        """Take the rest in a later turn of the loop, after others had theirs."""
        self.requests.untaken = frames
        self._look_passages()
        self._put_off_ns = self.fast_path.since_ns or clock_ns()
        self.hold(TURN)
        if not self.client.holds & SASL:
            self.budget.take_turn(self._take_rest, self.identity.account.key)

    def _read_on(self) -> None:
        """Read the rest of a request that is not whole."""
        if not self.requests.untaken:
            self.release(TURN)

    def _take_rest(self) -> None:
        frames, self.requests.untaken = self.requests.untaken, []
        since_ns, self._put_off_ns = self._put_off_ns, 0
        if not frames or (
            self.lifetime.state is SessionState.CLOSED and self.connections.broker is None
        ):
            return
        self.fast_path.since_ns = since_ns
        if not self._in_turn(partial(self._take, frames), "a request could not be taken"):
            return
        self.fast_path.since_ns = 0
        self._look_passages()
        if not self.requests.untaken:
            self.release(TURN)
            if (end := self.lifetime.all_taken()) is not None:
                self.end(end.why, end.detail)
            self.close_if_done()

    # ---- what its requests ask for ---------------------------------------------------------------

    def _carry_out(self) -> None:
        """Carry out the effects of the last call of ``requests``, in their order."""
        effects, self.requests.effects = self.requests.effects, []
        for effect in effects:
            if isinstance(effect, End):
                self._end_as(effect)
            elif isinstance(effect, Authenticated):
                self._authenticated(effect)
            elif isinstance(effect, Pause):
                self._pause_for(effect)
            elif isinstance(effect, Denied):
                client_id = self.seen_client.client_id
                self.proxy.options.on_denied(effect._replace(client_id=client_id))
            elif isinstance(effect, MetadataQuestion):
                then = partial(self._validate_asked, effect.item)
                self.proxy.learn_topics_then(effect.body, effect.version, then)
            else:
                self._put(effect)

    def _pause_for(self, effect: Pause) -> None:
        if effect is Pause.HELD:
            self._bound_waiting()
            self.count_held()
        elif effect is Pause.SASL_BEGINS:
            self._follow_deny_list()
        elif effect is Pause.SASL:
            self.hold(SASL)
        else:
            self.release(SASL)
            if self.requests.untaken:
                self.budget.take_turn(self._take_rest, self.identity.account.key)

    def _put(self, job: Job | Lowering | RequestJob) -> None:
        """Let a job be done in a thread; while an answer is converted, the broker is not read."""
        job.owner = self
        is_answer, broker = isinstance(job, Lowering), self.connections.broker
        if is_answer and broker is not None:
            broker.hold(CONVERTING)
        self.proxy.validation.put(job)
        if is_answer:
            self.count_held()

    def job_paused(self) -> None:
        """Note that a conversion holds more now."""
        self.count_held()

    def job_done(self, job: Job | Lowering | RequestJob, error: BaseException | None) -> None:
        """Take what came of a job, or why nothing did; send on what waited for it."""
        if isinstance(job, Lowering):
            self._converted(job, error)
        elif isinstance(job, RequestJob):
            may_go_on = job.finish(error)
            if error is not None:
                self.drop_jobs()
            self._carry_out()
            if may_go_on:
                self.send_ready()
        elif error is not None:
            if self.lifetime.state is not SessionState.CLOSED:
                self.proxy.log_error("a request could not be validated", error)
                self.abort("judging")
        elif isinstance(job.item, Item) and self.requests.validated(job.item):
            self.send_ready()

    def _validate_asked(self, item: Item) -> None:
        """Validate a request, now that the broker has answered what was asked for it."""
        may_go_on = handlers.validate_asked(self.requests, item)
        self._carry_out()
        if may_go_on:
            self.send_ready()

    def send_ready(self) -> None:
        """Send on the requests that wait for nothing, in one turn of the loop or more."""
        out: list[bytes | memoryview] = []
        is_more = self.requests.send_ready(out, is_ending=self.lifetime.reason is not None)
        if self.requests.effects:
            self._carry_out()
        if is_more and not self._is_put_off:
            self._is_put_off = True
            # the turn keeps the session, which may be gone by then
            self.budget.take_turn(self._send_rest, self.identity.account.key)
        if self.lifetime.state >= SessionState.DRAINING:
            self.drop_jobs()
        if out:
            self.send(out)
        self._write_ready()
        self._look_passages()
        if self.requests.made:
            self._bound_waiting()
        self.read_if_bounded()
        self.count_held()
        self.close_if_done()

    def _write_ready(self) -> None:
        """Write what was answered here and has nothing before it."""
        ready: list[bytes | memoryview] = []
        if self.requests.collect_ready(ready):
            self.client.write(ready)

    def _send_rest(self) -> None:
        self._is_put_off = False
        self._in_turn(self.send_ready, "a request could not be sent")

    def _in_turn(self, work: Callable[[], None], fault: str) -> bool:
        """Work outside of a transport's callback, where nobody would end the session for an error.

        Returns whether there was none.
        """
        try:
            work()
        except Exception as error:
            self._fail(fault, error)
            return False
        return True

    def read_if_bounded(self) -> None:
        """Read the client again where it was not because too much of it waited."""
        if (
            self.client.holds & VALIDATING
            and self.requests.held() <= MAX_HELD_BYTES
            and len(self.requests.answers) <= self._max_waiting
        ):
            self.release(VALIDATING)

    def send(self, out: list[bytes | memoryview]) -> None:
        """Send requests to the broker; connect to it for the first."""
        if self.connections.broker is not None:
            self.connections.broker.write(out)
        elif self.lifetime.state is not SessionState.CLOSED:
            self.requests.hold_unsent(out)
            self.hold(BROKER)
            self._connect_later()

    # ---- the broker ------------------------------------------------------------------------------

    def _connect_later(self) -> None:
        """Connect in a later turn of the loop: one session in each turn does."""
        if not self._is_connecting and self.connections.broker is None:
            self._is_connecting = True
            # the turn keeps the session, which may be gone by then
            self.budget.take_turn(self._start_connecting, self.identity.account.key)

    def _start_connecting(self) -> None:
        if self.lifetime.state is SessionState.CLOSED:
            self._is_connecting = False
            self.forget_if_gone()
        else:
            self.connections.task = self.proxy.loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Open the connection, and send what has come meanwhile."""
        broker = BrokerConnection(self, self.limits, self.budget.spare)
        try:
            await self.connections.open_broker(broker, self.proxy.connect(self.listener, broker))
        except UnknownBrokerError as error:
            self.abort("broker_unknown", str(error))
        except (OSError, TimeoutError) as error:
            self.proxy.upstream_failed()
            self.abort("upstream_unreachable", str(error))
        else:
            self._broker_opened(broker)

    def _broker_opened(self, broker: BrokerConnection) -> None:
        # its broker may be known only now
        self.fast_path.measure(self.proxy.traffic_of(self.listener))
        if self.log.is_debug:
            node_id, address = self.listener.node_id, broker.address
            self.log.debug(
                self.identity, "broker connected", broker=node_id, broker_address=address
            )
        if broker.limits is not self.limits:
            broker.bound(self.limits)
        fast_path, budget = self.fast_path, self.budget
        self.connections.link(
            RequestPassage(fast_path, budget, TURN_S, self._max_waiting),
            AnswerPassage(fast_path, budget, STREAMED_FROM),
        )
        self.lifetime.move(SessionEvent.CONNECTED)
        if self.identity.authenticated:
            self.lifetime.move(SessionEvent.AUTHENTICATED)
        self.release(BROKER)  # the broker may be full again at once
        broker.write(self.requests.take_unsent())
        self.read_if_bounded()
        if self.lifetime.state >= SessionState.DRAINING:
            self.close_if_done()
        self.connections.hold_opened(broker)
        self._look_passages()

    def broker_full(self, is_full: bool) -> None:
        """Do not read the client while the broker does not take its requests."""
        if is_full:
            self.hold(BROKER)
        else:
            self.release(BROKER)
        self.count_held()

    def _read_broker_later(self) -> None:
        """Read the rest of a large answer in a later turn of the loop."""
        if self.connections.broker is not None and not self.connections.broker.holds & TURN:
            self.connections.broker.hold(TURN)
            self.budget.take_turn(partial(self._release_broker, TURN), self.identity.account.key)

    def broker_lost(self) -> None:
        """Close the session; the client still gets what the broker has answered."""
        if self.connections.broker is not None:
            self.connections.broker.splitter.clear()
        if self.lifetime.reason is None:
            self._note_end(*why_broker_left(self._described()), SessionEvent.CLOSE)
        self.connections.broker = None
        self._drop_requests()
        self._close("upstream_lost")
        self.forget_if_gone()

    def broker_frames(
        self,
        frames: list[memoryview],
        error: FrameError | None = None,
        outcome: int = PASSED_REST,
    ) -> None:
        """Pass on the broker's answers; the first may be pieces, see ``Requests.take``.

        ``outcome``  what became of those before them, which went past the session
        """
        if error is not None:
            self.broker_frames(frames)
            # nobody can find the next frame; the client still gets what came
            if self._note_end("upstream_frame"):
                self.hold(ENDING)
            self.connections.abort_broker()
            return
        lifetime = self.lifetime
        lifetime.seen = self.proxy.now
        requests = self.requests
        if self.client.transport is None and not requests.is_busy:
            return
        out: list[bytes | memoryview] = []
        fault = None
        if frames or requests.stream is not None or outcome == PASSED_LOOK:
            fault = requests.take(frames, out)
        elif (broker := self.connections.broker) is not None:  # of a frame, one read brings a part
            fault = requests.start_stream(broker.splitter, out)
        if requests.effects:
            self._carry_out()
        if out:
            self.client.write(out)
        if fault is not None:
            self._broker_fault(fault)
        if requests.stream is not None and self.budget.is_turn_long():
            self._read_broker_later()
        if self.client.holds & VALIDATING:
            self.read_if_bounded()
        if allocated() > self.budget.blocks_limit:
            self.count_held()
        self._look_passages()
        if lifetime.reason is not None:
            self.close_if_done()

    def _broker_fault(self, fault: AnswerFault) -> None:
        """End the session, whose client has got the answers before this one."""
        if isinstance(fault.error, TooManyBrokersError):
            self.proxy.discovery.refused(fault.error)
        self.requests.log_fault(fault.what, fault.error)
        self.abort(fault.why, "" if fault.error is None else str(fault.error))

    def _converted(self, lowering: Lowering, error: BaseException | None) -> None:
        """Pass a converted answer on, and what the broker has answered after it."""
        requests = self.requests
        if requests.converting is not lowering:
            return  # the session has ended meanwhile
        out: list[bytes | memoryview] = []
        fault = requests.converted(lowering, error, out)
        if requests.effects:
            self._carry_out()
        self.client.write(out)
        if fault is not None:
            self._broker_fault(fault)
        if requests.converting is None:
            self._release_broker(CONVERTING)
        self._look_passages()
        self.read_if_bounded()
        self.count_held()
        if self.lifetime.state >= SessionState.DRAINING:
            self.close_if_done()

    # ---- how fast it may go ----------------------------------------------------------------------

    def hold(self, why: int) -> None:
        """Do not read the client, as long as any reason stands."""
        if why in (VALIDATING, SASL):  # answers decide when it is read again
            self.connections.let_pass(requests=False, answers=False)
        if self.client.hold(why):
            self.counters.reading_paused_total += 1
            if self.log.is_debug:
                self.log.debug(self.identity, "reading paused", why=IN_WORDS[why])

    def release(self, why: int) -> None:
        """Take a reason away, and read the client where none is left."""
        if self.client.release(why) and self.log.is_debug:
            self.log.debug(self.identity, "reading resumed", why=IN_WORDS[why])
        if why == VALIDATING:
            self._look_passages()

    def _hold_both(self, why: int) -> None:
        self.hold(why)
        if self.connections.broker is not None:
            self.connections.broker.hold(why)

    def _release_both(self, why: int) -> None:
        self.release(why)
        self._release_broker(why)

    def _release_broker(self, why: int) -> None:
        if self.connections.broker is not None:
            self._measure_again(self.connections.broker.release(why))

    def _measure_again(self, stood: int) -> None:
        """Measure no answer that may have waited because the broker was not read."""
        if stood & ANSWERS:
            self.fast_path.forget(True)
        elif stood & (BUDGET | CONVERTING):
            self.fast_path.forget(False)

    # ---- what the budget asks, and what it asks for ----------------------------------------------

    def pause(self) -> None:
        """Read neither side: all sessions together hold too much."""
        self._hold_both(BUDGET)

    def go_on(self) -> None:
        """Read both sides again."""
        self._release_both(BUDGET)

    def count_held(self) -> None:
        """Let the budget count what the session holds, and pause it where that is too much."""
        self.budget.count(self, self.requests.made)
        if self.lifetime.state is not SessionState.CLOSED:
            self.budget.look(self, spoke=self.lifetime.spoke)

    def _bound_writes(self) -> None:
        opened = self.counters.connections_open
        self.connections.bound_writes(self.limits, self.budget.limit, opened)

    def _bound_waiting(self) -> None:
        """Do not read the client while too much of it waits."""
        if self.requests.held() > MAX_HELD_BYTES:
            self.hold(VALIDATING)

    # ---- the end ---------------------------------------------------------------------------------

    def _note_end(
        self,
        why: str,
        detail: str = "",
        request: ApiKeyAndVersion | None = None,
        event: SessionEvent = SessionEvent.END,
    ) -> bool:
        """Move the session towards its end; count and log why, and return True, the first time."""
        if not self.lifetime.end(why, self.now(), self.limits, event):
            return False
        self.connections.let_pass(requests=False, answers=False)
        self.proxy.closed(why)
        self.log.ended(self._described(), why, detail, request)
        return True

    def end(self, why: str, detail: str = "", request: ApiKeyAndVersion | None = None) -> None:
        """Take no more requests; close once what is under way is delivered.

        ``request`` is the cause, if one is.
        """
        if self._note_end(why, detail, request):
            self.hold(ENDING)
            # in a later turn of the loop, which keeps the session until then
            self.proxy.loop.call_soon(self.close_if_done)

    def end_when_taken(self, why: str, detail: str = "") -> None:
        """Take the requests that have been read, and then no more."""
        if self.requests.untaken:
            self.lifetime.end_after(End(why, How.WHEN_TAKEN, detail))
        else:
            self.end(why, detail)

    def _end_as(self, end: End) -> None:
        """End as the lifetime has decided."""
        if end.how is How.NOW:
            self.abort(end.why, end.detail)
        elif end.how is How.WHEN_TAKEN:
            self.end_when_taken(end.why, end.detail)
        else:
            self.end(end.why, end.detail, end.request)

    def close_if_done(self) -> None:
        """Close both sides of a session that ends, unless anything is under way."""
        lifetime = self.lifetime
        if lifetime.reason is None or self.requests.is_busy:
            return
        if self.client.transport is not None:
            if self.requests.are_awaited:
                return
            wait_s = lifetime.part(self.now())
            if wait_s is not None:
                self.client.end_writing()
                self._parting = self.proxy.loop.call_later(wait_s, self._look_parting)
                self.release(ENDING)
            if lifetime.state is SessionState.PARTING:
                return
        self._close(lifetime.reason)

    def _look_parting(self) -> None:
        """Look whether a client with an end of file has ended by itself, or has had its time."""
        transport, lifetime = self.client.transport, self.lifetime
        if (
            lifetime.state is not SessionState.PARTING
            or transport is None
            or transport.is_closing()
        ):
            return
        wait_s = lifetime.look_parting(self.now(), unacknowledged(transport))
        if wait_s is None:
            self.close_if_done()
        else:
            self._parting = self.proxy.loop.call_later(wait_s, self._look_parting)

    def _close(self, why: str) -> None:
        """Close both sides once what is written to them is gone."""
        self._note_end(why, event=SessionEvent.CLOSE)
        if self.client.transport is not None:
            self.client.transport.close()
        self._close_broker()

    def _close_broker(self) -> None:
        """Close the broker's side. The broker still gets the requests that were taken."""
        if self.requests.is_busy:
            return
        self.lifetime.move(SessionEvent.CLOSE)
        self._measure_again(self.connections.close_broker())
        self.forget_if_gone()

    def abort(self, why: str, detail: str = "") -> None:
        """End both sides at once."""
        self._note_end(why, detail, event=SessionEvent.CLOSE)
        self._drop_requests()
        self.requests.unsent = []
        self.connections.abort()
        self.forget_if_gone()

    def forget_if_gone(self) -> None:
        """Forget and free the session once both of its connections are gone."""
        if self.connections.are_gone:
            self.lifetime.move(SessionEvent.CLOSE)
            self.client.splitter.clear()
            self.seen_client.collect()
            if self._parting is not None:
                self._parting.cancel()  # it keeps the session
                self._parting = None
            self.dissolve()

    def dissolve(self) -> None:
        """Leave the tables of the listener, and cut the cycles that this session is in.

        Both connections are gone: reference counts free it as soon as nobody calls it any more. Its
        client's connection knows it weakly from now on. What calls it later (a job in a thread, a
        turn of the loop, a broker that was connected too late) holds it until then and finds it
        whole. A second call changes nothing.
        """
        self.proxy.forget(self, self.identity)
        self.requests.clear()
        self.drop_jobs()
        self.fast_path.watch(None)
        self.client.session = weakref.proxy(self)

    def _drop_requests(self) -> None:
        """Drop what waits to be sent, and the places of all answers."""
        self.requests.drop()
        self._clear_places()

    def _clear_places(self) -> None:
        self.requests.clear()
        self.drop_jobs()

    def drop_jobs(self) -> None:
        """Forget the cancelled jobs that wait for a thread."""
        self.proxy.validation.drop(self.identity)

    def now(self) -> float:
        """Return the time of the loop's clock, in seconds."""
        return self.proxy.loop.time()

    def check_time(self, now: float) -> None:
        """End what has waited too long. Called now and then."""
        if self.client.holds & UNKNOWN:
            self._look_at_identity()
        if (
            self.client.holds & UNKNOWN
            and now - self.lifetime.seen > self.limits.frame_timeout_ms / 1000
        ):
            self.end("upstream_unreachable", IN_WORDS[UNKNOWN])
        self._count_passed()
        self.seen_client.check(now)
        end = self.lifetime.check(
            now,
            self.client,
            self.limits,
            self.proxy.ages,
            is_idle=not self.requests.answers and not self.requests.outbox,
            is_between_requests=self.is_between_requests(),
        )
        if end is not None:
            self._end_as(end)
        if self.lifetime.is_aged:
            self._look_passages()
        if self.client.unwritten():
            self._bound_writes()

    def _count_passed(self) -> None:
        """Take notice of what went past this session since the last look."""
        requests, answers = self.connections.take_passed()
        if requests:
            self.lifetime.spoke = True
            self.lifetime.frame_s = 0.0
        if requests or answers:
            self.lifetime.seen = self.proxy.now
