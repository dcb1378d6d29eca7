"""A client: its requests in, judged and sent on in their order; its answers out, in the same order.

    int32 length, int16 api_key, int16 api_version, int32 correlation_id, …

Each request takes its place among the answers as it comes. Towards the broker it has another correlation id, counted
from 1, so that an answer out of turn is found out whatever the client chose; then both connections end, since nobody
can say whose answer it was. Frames that are only passed on are sent as they were received, a slice of the buffer that
they were read into, which lives until they are written.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from batchval.protocol.addresses import may_hold_addresses, rewrite_addresses
from batchval.protocol.api_versions import intersect_api_versions
from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameError, FrameSplitter
from batchval.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from batchval.protocol.produce import ProduceRequestView
from batchval.protocol.produce_answer import ProduceResponseView, merge, refuse
from batchval.protocol.request import Chunks
from batchval.proxy.gate import Judgement
from batchval.proxy.lane import Lane
from batchval.proxy.upstream import TCP_CLOSE, TCP_CLOSE_WAIT, Upstream, keep_alive, silent_s, tcp_state
from batchval.proxy.waiting import ADDRESSES, HERE, MERGE, PASS, VERSIONS, Answer, Item, answer_of, throttle_ms

if TYPE_CHECKING:
    from batchval.proxy.cluster import Listener
    from batchval.proxy.server import Proxy

__all__ = ["Downstream"]

UNSUPPORTED_VERSION: Final = 35

# why a client is not read
UPSTREAM: Final = 1  # the broker does not take what is there
JUDGING: Final = 2  # enough waits for its verdict, or for its place
ANSWERS: Final = 4  # the client does not take its answers
BUDGET: Final = 8  # all connections together hold too much
ENDING: Final = 16

MOST_JUDGED: Final = 8 << 20

_HEADER = struct.Struct(">hhi")
_INT = struct.Struct(">i")
_unpack_header = _HEADER.unpack_from
_unpack_int = _INT.unpack_from
_pack_int = _INT.pack_into


class Downstream(asyncio.BufferedProtocol):
    """One client's connection, and the queue between it and the broker."""

    def __init__(self, proxy: Proxy, listener: Listener) -> None:
        self.proxy = proxy
        self.listener = listener
        self.limits = proxy.options.limits
        self.counters = proxy.counters
        self.gate = proxy.gate
        self.splitter = FrameSplitter(self.limits.max_frame_bytes, whole=True)
        self.get_buffer = self.splitter.get_buffer  # type: ignore[assignment,method-assign]  # a call less
        self.transport: asyncio.Transport | None = None
        self.upstream: Upstream | None = None
        self.answers: deque[Answer | int] = deque()  # an int: the answer is passed on, see lane.pyx
        self.outbox: deque[Item] = deque()
        self.unsent: list[bytes | memoryview] | None = []  # until the broker is connected
        self.lane = Lane(proxy.lane_routes, self.gate, self.counters, self.answers)
        self.waiting = 0  # bytes held here: in the outbox, unsent, or for an answer to be merged
        self.held = 0  # what this connection last told the proxy that it holds
        self.whole = 0  # of that, what is no frame in part
        self.holds = 0
        self.ending: str | None = None  # why the connection ends, once it does
        self.deadline: float | None = None
        self.client = self.sender = self.advertised = ""
        self.started = self.seen = self.asked = proxy.now
        self.spoke = False
        self.left: float | None = None  # since when the client is known to have left while it was not read
        self._connecting: asyncio.Task[None] | None = None

    # ---- the client's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if not self.proxy.admit(self):
            self.ending = "refused"
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(self.limits.write_buffer)
        # no bound on what it has not acknowledged: consumers may go minutes without reading; see check_time
        keep_alive(self.transport, self.limits.peer_timeout_s, bound_unacknowledged=False)
        peer = transport.get_extra_info("peername")
        self.client = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unknown"
        self.sender = self.proxy.sender_of(transport)
        self.lane.name(self.sender)
        own = transport.get_extra_info("sockname")
        self.advertised = self.proxy.options.advertised_host or (own[0] if isinstance(own, tuple) else "localhost")
        self._connecting = self.proxy.loop.create_task(self._connect())

    def buffer_updated(self, nbytes: int) -> None:
        bad = None
        try:
            frames = self.splitter.buffer_updated(nbytes)
        except FrameError as error:
            bad = error
            frames = error.frames
        if self.ending is not None:
            return
        if frames:
            self.spoke = True
            self.seen = self.proxy.now
            self._take(frames)
        if bad is not None:
            self.end(f"frame_{bad.peer.lower()}" if bad.peer else "frame_size")
        elif self.held or self.waiting + self.splitter.buffered > self.proxy.slack:
            self.account()

    def pause_writing(self) -> None:
        self.hold(ANSWERS)
        if self.upstream is not None:
            self.upstream.pause()

    def resume_writing(self) -> None:
        self.release(ANSWERS)
        if self.upstream is not None:
            self.upstream.resume()
        self.account()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.answers.clear()
        if self.ending is None:
            self.ending = "client"
        self._close_upstream()

    # ---- requests --------------------------------------------------------------------------------------------------

    def _take(self, frames: list[memoryview]) -> None:
        """Requests go on by the short way; each that cannot is looked at, and what comes after it goes on as before."""
        out: list[bytes | memoryview] = []
        now_ms = time.time_ns() // 1_000_000
        i, end = 0, len(frames)
        while i < end:
            decision = None
            if not self.outbox:
                i = self.lane.take(frames, i, now_ms, out)
                if i == end:
                    break
                decision = self.lane.decision
            self._take_one(frames[i], decision, out)
            if self.ending is not None:
                break
            i += 1
        if out:
            self._send(out)
        if len(self.answers) > self.limits.max_waiting:
            self.hold(JUDGING)

    def _take_one(self, frame: memoryview, decision: str | None, out: list[bytes | memoryview]) -> None:
        counters = self.counters
        counters.requests_total += 1
        counters.request_bytes_total += len(frame)
        try:
            key, version, correlation_id = _unpack_header(frame, 4)
        except struct.error:
            self.end("request_header")
            return
        route = self.proxy.routes.get(key)
        if route is None or not route[0] <= version <= route[1]:
            if key == ApiKey.API_VERSIONS and version > 0:
                self._answer_versions(correlation_id)
            else:
                self.end("request_version")
            return
        counters.requests_by_api[key] = counters.requests_by_api.get(key, 0) + 1
        if key == ApiKey.PRODUCE:
            try:
                self._produce(frame, version, correlation_id, decision, out)
            except ProtocolError:
                self.end("produce_malformed")
            return
        action = PASS
        if version >= route[2]:
            action = ADDRESSES
        elif key == ApiKey.API_VERSIONS:
            action = VERSIONS
        self.answers.append(correlation_id if action == PASS else Answer(correlation_id, key, version, action))
        if self.outbox:
            self._put(Item(frame))
        else:
            _pack_int(frame, 8, self._next_id())
            out.append(frame)

    def _next_id(self) -> int:
        wire_id = self.lane.sent = self.lane.sent + 1 & 0x7FFFFFFF
        return wire_id

    def _produce(
        self,
        frame: memoryview,
        version: int,
        correlation_id: int,
        decision: str | None,
        out: list[bytes | memoryview],
    ) -> None:
        request = ProduceRequestView(frame[4:])
        self.counters.produce_requests_total += 1
        answer = None
        if request.expects_response:
            answer = Answer(correlation_id, ApiKey.PRODUCE, version, PASS)
            self.answers.append(answer)
        judgement = self.gate.judge(request, self.sender, decision)
        if judgement.done and not self.outbox:
            self._forward(frame, answer, request, judgement, out)
            return
        item = Item(frame, answer, request, judgement)
        self._put(item)
        if not judgement.done:
            self.counters.judged_in_threads_total += 1
            future = self.proxy.loop.run_in_executor(self.proxy.pool, self.gate.finish, request, judgement)
            future.add_done_callback(self._judged)

    def _put(self, item: Item) -> None:
        self.outbox.append(item)
        self.waiting += len(item.frame)
        if self.waiting > MOST_JUDGED:
            self.hold(JUDGING)

    def _judged(self, future: asyncio.Future[None]) -> None:
        """A thread is done: what it held up goes on, up to the next that is being judged."""
        if future.cancelled() or future.exception() is not None:
            self.proxy.log_error("a request could not be judged", None if future.cancelled() else future.exception())
            self.abort("judging")
            return
        out: list[bytes | memoryview] = []
        while self.outbox:
            item = self.outbox[0]
            if item.judgement is not None and not item.judgement.done:
                break
            self.outbox.popleft()
            self.waiting -= len(item.frame)
            if item.request is not None and item.judgement is not None:
                self._forward(item.frame, item.answer, item.request, item.judgement, out)
                if self.ending == "acks_0_refused":
                    self.outbox.clear()
            else:
                _pack_int(item.frame, 8, self._next_id())
                out.append(item.frame)
        if out:
            self._send(out)
        self._answer_ready()
        if self.holds & JUDGING and self.waiting <= MOST_JUDGED and len(self.answers) <= self.limits.max_waiting:
            self.release(JUDGING)
        self.account()
        self._close_if_done()

    def _forward(
        self,
        frame: memoryview,
        answer: Answer | None,
        request: ProduceRequestView,
        judgement: Judgement,
        out: list[bytes | memoryview],
    ) -> None:
        """Sends on what passes, and remembers what is to be said of the rest."""
        self.gate.settle(request, judgement, self.sender, self.client)
        if not judgement.any_left:
            self._answer_here(answer, request, judgement)
            return
        wire_id = 0
        if answer is not None:
            wire_id = self._next_id()
            if request.api_version >= 10:
                answer.action = ADDRESSES
        if judgement.untouched:
            _pack_int(frame, 8, wire_id)
            out.append(frame)
            return
        self.counters.requests_rewritten_total += 1
        keep = judgement.keep if judgement.refusals is not None else None
        out.extend(request.rewritten(correlation_id=wire_id, keep=keep, claims=judgement.claims))
        if judgement.refusals is not None:
            if answer is None:
                self.end("acks_0_refused")
            else:
                answer.action = MERGE
                answer.request = request
                answer.refusals = judgement.refusals
                answer.held = len(frame)
                self.waiting += answer.held

    def _answer_here(self, answer: Answer | None, request: ProduceRequestView, judgement: Judgement) -> None:
        if answer is None:
            self.end("acks_0_refused")
            return
        assert judgement.refusals is not None
        refusals = [refusal for refusal in judgement.refusals if refusal is not None]
        answer.action = HERE
        answer.ready = refuse(request, refusals, correlation_id=answer.correlation_id)
        self.counters.requests_answered_here_total += 1
        self._answer_ready()

    def _answer_versions(self, correlation_id: int) -> None:
        """To a version of ApiVersions that is not known here, as a broker that does not know it (KIP-511)."""
        first, last = self.proxy.carried[ApiKey.API_VERSIONS]
        keys = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=first, max_version=last)]
        answer = Answer(correlation_id, ApiKey.API_VERSIONS, 0, HERE)
        response = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=keys)
        answer.ready = response.encode(correlation_id, 0)
        self.answers.append(answer)
        self._answer_ready()

    def _send(self, out: list[bytes | memoryview]) -> None:
        if self.unsent is not None:
            self.unsent.extend(out)
            self.waiting += sum(map(len, out))
            self.hold(UPSTREAM)
            return
        upstream = self.upstream
        if upstream is None or upstream.transport is None or upstream.transport.is_closing():
            return
        if len(out) == 1:
            upstream.transport.write(out[0])
        else:
            upstream.transport.writelines(out)

    # ---- the broker's side -----------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Opens the connection to the broker, and sends what has come meanwhile."""
        proxy = self.proxy
        upstream = Upstream(self, self.limits.max_answer_bytes, self.limits.write_buffer)
        try:
            await proxy.connect(self.listener, upstream)
        except (OSError, TimeoutError) as error:
            proxy.upstream_failed(self.listener, error)
            self.abort("upstream_unreachable")
            return
        except asyncio.CancelledError:
            if upstream.transport is not None:
                upstream.transport.abort()
            raise
        finally:
            self._connecting = None
        self.upstream = upstream
        unsent, self.unsent = self.unsent, None
        if unsent:
            self.waiting -= sum(map(len, unsent))
            self._send(unsent)
        if self.ending is not None:
            if self.transport is None:
                self._close_upstream()
            else:
                self._close_if_done()
        self.release(UPSTREAM)
        if self.transport is not None and self.transport.get_write_buffer_size() > self.limits.write_buffer:
            upstream.pause()

    def upstream_full(self) -> None:
        self.hold(UPSTREAM)
        self.account()

    def upstream_drained(self) -> None:
        self.release(UPSTREAM)
        self.account()

    def upstream_lost(self, exc: Exception | None) -> None:
        """The broker is gone: what it has answered is still delivered."""
        del exc
        self.upstream = None
        self.outbox.clear()
        self.answers.clear()
        self.waiting = 0
        self._close("upstream_lost")
        self._forget_if_gone()

    def answered(self, frames: list[memoryview]) -> None:
        """Answers of the broker, whole frames."""
        out: list[bytes | memoryview] = []
        self.seen = self.proxy.now
        if self.transport is None:
            return
        answers = self.answers
        i, end = 0, len(frames)
        while True:
            i = self.lane.give(frames, i, out)
            if answers and type(answers[0]) is not int and self._collect_ready(out):
                continue
            if i == end:
                break
            if not self._answered(frames[i], out):
                return
            i += 1
        self._write(out)
        if self.holds & JUDGING and self.waiting <= MOST_JUDGED and len(answers) <= self.limits.max_waiting:
            self.release(JUDGING)
        if self.held or self.waiting > self.proxy.slack:
            self.account()
        if self.ending is not None:
            self._close_if_done()

    def _answered(self, frame: memoryview, out: list[bytes | memoryview]) -> bool:
        """One that is not just passed on. False: the connection has ended."""
        self.counters.answers_total += 1
        self.counters.answer_bytes_total += len(frame)
        lane = self.lane
        wire_id = _unpack_int(frame, 4)[0] if len(frame) >= 8 else -1
        if not self.answers or lane.received == lane.sent or wire_id != lane.received + 1 & 0x7FFFFFFF:
            self._write(out)
            self.proxy.log_error(f"{self.listener.brokers[0]} answered out of turn: the connection ends", None)
            self.abort("answer_out_of_turn")
            return False
        lane.received = wire_id
        try:
            out.extend(self._changed(frame, answer_of(self.answers.popleft())))
        except (ProtocolError, OSError) as error:
            self._write(out)
            self.proxy.log_error(f"an answer of {self.listener.brokers[0]} could not be passed on", error)
            self.abort("answer_malformed")
            return False
        return True

    def _changed(self, frame: memoryview, answer: Answer) -> Chunks:
        """The answer as the client is to have it."""
        body = frame[4:]
        wait_ms = throttle_ms(answer.key, answer.version, body)
        if wait_ms > 0:
            self.counters.throttled(answer.key, wait_ms)
        if answer.action == PASS:
            _pack_int(frame, 4, answer.correlation_id)
            return [frame]
        if answer.action == VERSIONS:
            return self._intersected(body, answer)
        if answer.action == MERGE:
            assert answer.request is not None
            self.waiting -= answer.held
            merged = merge(
                answer.request,
                answer.refusals,  # type: ignore[arg-type]
                ProduceResponseView(body, answer.version),
                correlation_id=answer.correlation_id,
            )
            if not may_hold_addresses(ApiKey.PRODUCE, answer.version):
                return merged
            body = memoryview(b"".join(merged))[4:]
        return rewrite_addresses(body, answer.key, answer.version, self._replace, correlation_id=answer.correlation_id)

    def _intersected(self, body: memoryview, answer: Answer) -> Chunks:
        try:
            return intersect_api_versions(
                body, answer.version, self.proxy.carried, correlation_id=answer.correlation_id
            )
        except ProtocolError:
            # of an error in a form of its own (librdkafka's mock cluster has one) the code is enough: clients fall back
            error_code = int.from_bytes(body[4:6], "big", signed=True)
            if error_code <= 0:
                raise
            return ApiVersionsResponse(error_code=error_code).encode(answer.correlation_id, 0)

    def _replace(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        return self.advertised, self.proxy.cluster.listener_of(node_id, host, port).port

    def _answer_ready(self) -> None:
        """Sends what was answered here and has nothing before it."""
        out: list[bytes | memoryview] = []
        self._collect_ready(out)
        self._write(out)

    def _collect_ready(self, out: list[bytes | memoryview]) -> bool:
        """Puts what was answered here and is next into ``out``; whether there was any."""
        answers = self.answers
        found = False
        while answers:
            first = answers[0]
            if isinstance(first, int) or first.ready is None:
                break
            out.extend(first.ready)
            answers.popleft()
            found = True
        return found

    def _write(self, out: list[bytes | memoryview]) -> None:
        if not out or self.transport is None or self.transport.is_closing():
            return
        if len(out) == 1:
            self.transport.write(out[0])
        else:
            self.transport.writelines(out)

    # ---- how fast it may go ----------------------------------------------------------------------------------------

    def hold(self, why: int) -> None:
        """Stops reading the client, as long as any reason for it stands."""
        if not self.holds and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
            self.counters.reading_paused_total += 1
        self.holds |= why

    def release(self, why: int) -> None:
        """One reason less."""
        if self.holds & why:
            self.holds &= ~why
            if not self.holds and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def account(self) -> None:
        """Tells the proxy how much is held for this connection; it may answer with a pause."""
        held = self.waiting + self.splitter.buffered
        if self.upstream is not None:
            held += self.upstream.waiting()
        if self.transport is not None:
            held += self.transport.get_write_buffer_size()
        self.proxy.account(self, held)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def end(self, why: str) -> None:
        """No more requests; what is under way is delivered, then the connection closes."""
        if self.ending is not None:
            return
        self.ending = why
        self.deadline = self.proxy.loop.time() + self.limits.linger_s
        self.proxy.closed(why)
        self.hold(ENDING)
        self.proxy.loop.call_soon(self._close_if_done)

    def _close_if_done(self) -> None:
        if self.ending is not None and not self.answers and not self.outbox and not self.unsent:
            self._close(self.ending)

    def _close(self, why: str) -> None:
        """Closes both sides once what is written to them is gone."""
        if self.ending is None:
            self.ending = why
            self.proxy.closed(why)
        if self.deadline is None:
            self.deadline = self.proxy.loop.time() + self.limits.linger_s
        if self.transport is not None:
            self.transport.close()
        self._close_upstream()

    def _close_upstream(self) -> None:
        """The client is gone, or will be: the broker still gets what it was sent, and what is being judged."""
        if self.deadline is None:
            self.deadline = self.proxy.loop.time() + self.limits.linger_s
        if self.unsent or self.outbox:
            return
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self.upstream is not None and self.upstream.transport is not None:
            self.upstream.resume()  # a transport that is not read never sees its end
            self.upstream.transport.close()
        self._forget_if_gone()

    def _forget_if_gone(self) -> None:
        if self.transport is None and self.upstream is None and self._connecting is None:
            self.proxy.forget(self)

    def abort(self, why: str) -> None:
        """Both sides end at once."""
        if self.ending is None:
            self.ending = why
            self.proxy.closed(why)
        self.answers.clear()
        self.outbox.clear()
        self.unsent = None
        self.waiting = 0
        if self.transport is not None:
            self.transport.abort()
        if self.upstream is not None and self.upstream.transport is not None:
            self.upstream.transport.abort()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._forget_if_gone()

    def check_time(self, now: float) -> None:
        """Called now and then: ends what has waited too long."""
        timeout_s = self.limits.peer_timeout_s
        if now - self.asked > timeout_s / 10:
            self.asked = now
            if silent_s(self.transport) > timeout_s:
                self.abort("client_gone")
                return
        if self.deadline is not None:
            if now > self.deadline:
                self.abort("linger")
        elif self.holds:
            self.started = now  # while it is not read it cannot be blamed for saying nothing
            self._check_peer(now)
        elif not self.spoke:
            if now - self.started > self.limits.handshake_s:
                self.end("handshake")
        elif not self.answers and not self.outbox and now - self.seen > self.limits.idle_s:
            self.end("idle")

    def _check_peer(self, now: float) -> None:
        """A client that is not read is not heard when it leaves, so the kernel is asked."""
        state = tcp_state(self.transport)
        if state == TCP_CLOSE:
            self.abort("client_gone")
        elif state != TCP_CLOSE_WAIT:
            self.left = None
        elif self.left is None:  # what it sent before may still be taken
            self.left = now
        elif now - self.left > self.limits.linger_s:
            self.abort("client_gone")
