"""The requests of one session, and the places of their answers: frames in, chunks out.

    untaken   requests that have been read and wait for their turn
    outbox    requests that cannot go on yet: their verdict is awaited, or that of one before them
    unsent    requests for a broker that is not connected yet
    answers   a place for each request whose answer the client does not have

The first request of the outbox goes on as soon as nothing is awaited for it any more, and so do
those after it, up to the next that waits: the broker gets requests in the client's order.

Each place in the queue of answers is an int (passed on by the fast path) or an ``Answer``: the
broker's, or one that the gate makes. A large answer in which nothing but its end changes is passed
on while it comes. One that is converted in a thread keeps its place; what the broker answers after
it waits.

``AnswerStream`` is a large answer that is passed on while it comes.

    length:4 correlation_id:4 … records … tail

Nothing changes in it but the correlation id and, in a Fetch or ShareFetch answer that may name
brokers, the tail: what comes after the last topic. Only the tail is held. Written again it has the
same length, since the answer's length has been written long before.
"""

from __future__ import annotations

import enum
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.message import Chunks
from batchval.protocol.old_versions import Raised
from batchval.protocol.walkers.addresses import may_hold_addresses, rewrite_addresses
from batchval.protocol.walkers.fetch_tail import FetchTail, rewrite_tail
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView, merge
from batchval.proxy.cluster.discovery import Discovery
from batchval.proxy.cluster.listeners import Listeners
from batchval.proxy.produce.produce_validator import ProduceValidator, RequestVerdict
from batchval.proxy.produce.validation_queue import Job, OneSlice
from batchval.proxy.session.deny_list import DenyList
from batchval.proxy.session.fast_path import FastPath
from batchval.proxy.session.identity import Authenticated, Identity
from batchval.proxy.session.lifetime import End, How
from batchval.proxy.session.old_fetches import OldFetches
from batchval.proxy.settings.config import Limits
from batchval.proxy.settings.options import Counters, Denied, ProxyOptions

__all__ = [
    "SEND_S",
    "STREAMED_FROM",
    "Answer",
    "AnswerFault",
    "AnswerStream",
    "Item",
    "Lowering",
    "MetadataQuestion",
    "Pause",
    "RequestJob",
    "Requests",
    "Respond",
    "SessionEffect",
    "Surroundings",
    "check_size",
    "facts_of",
    "pass_on",
    "rewrite",
    "stream_of",
]

_FETCH_BIT: Final = 48
#: Answers of these do not show that the broker has authenticated the client.
_BEFORE_AUTHENTICATION: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)

#: Bytes besides the batches of a request of which a part goes on: the answer repeats them, on the
#: loop. As many as 10,000 partitions need whose topics have the longest names, each with claims.
MAX_MERGED_BYTES: Final = 4 << 20

_CORRELATION_ID: Final = 8  # where it stands in a request's frame, after the length


#: Makes of a broker's frame (with its length) what goes to the client; None: nothing does.
Respond = Callable[["Requests", "Answer", memoryview], "Chunks | None"]


class Surroundings(Protocol):
    """The part of a listener that handlers use: what all its sessions share."""

    carried: Mapping[int, tuple[int, int]]
    cluster: Listeners
    counters: Counters
    deny_list: DenyList | None
    discovery: Discovery
    gate: ProduceValidator
    options: ProxyOptions
    raised: Mapping[int, Raised]
    routes: Mapping[int, tuple[int, int, int]]

    def log_error(self, text: str, error: BaseException | None) -> None: ...
    def learn_topics(self, body: memoryview, version: int) -> None: ...
    def intersected(
        self, body: memoryview, version: int, correlation_id: int, raised: Mapping[int, Raised]
    ) -> Chunks: ...


@dataclass(slots=True, eq=False)
class Answer:
    """A place in the queue of answers.

    ``respond``  what is done with the broker's answer; None for an answer that is made here
    ``ready``    an answer that is made here, once it is known
    ``held``     bytes that the session holds until this place is left
    ``taken_ns`` when the client's request was taken; 0 for one of the gate's own
    """

    correlation_id: int
    key: int
    version: int
    respond: Respond | None
    ready: Chunks | None = None
    held: int = 0
    taken_ns: int = 0
    facts: Any = None  # what respond needs besides

    @property
    def has_id(self) -> bool:
        """Return whether the broker's frame starts with a correlation id; a SASL token has none."""
        return self.key >= 0


def facts_of(first: Answer | int) -> tuple[int, int, int]:
    """Return (correlation id, API key, version) of a place in the queue; key -1: not known."""
    if isinstance(first, Answer):
        return first.correlation_id, first.key, first.version
    correlation_id = (first + 0x80000000 & 0xFFFFFFFF) - 0x80000000
    if first <= 0x7FFFFFFF:
        return correlation_id, -1, 0
    return (
        correlation_id,
        ApiKey.FETCH if first >> _FETCH_BIT else ApiKey.PRODUCE,
        first >> 32 & 0xFFFF,
    )


def throttle_ms(key: int, version: int, body: memoryview) -> int:
    """Return the throttle time in ms of a Produce or Fetch answer without its length; else 0."""
    if key == ApiKey.FETCH:
        at = 4 if version < 12 else 5
    elif key == ApiKey.PRODUCE and version >= 10:
        return ProduceResponseView(body, version).throttle_time_ms
    elif key == ApiKey.PRODUCE:
        at = len(body) - (4 if version < 9 else 5)
    else:
        return 0
    return int.from_bytes(body[at : at + 4], "big", signed=True)


class RequestJob(OneSlice):
    """A job that a request of the outbox waits for."""

    def __init__(self, requests: Requests, frame: memoryview) -> None:
        super().__init__(frame, requests.identity)
        self.requests = requests

    def finish(self, error: BaseException | None) -> bool:
        """Take what came of it, on the loop; return whether its request may go on."""
        raise NotImplementedError


class Lowering(OneSlice):
    """A job that makes the client's answer of the broker's.

    ``answer``  its place in the queue
    ``held``    bytes that the session holds for it
    """

    def __init__(self, requests: Requests, answer: Answer, frame: memoryview) -> None:
        super().__init__(frame, requests.identity)
        self.requests = requests
        self.answer = answer
        self.held = len(frame)
        self._ready: Chunks = []

    def finish(self) -> Chunks:
        """Return the client's answer, on the loop."""
        return self._ready


@dataclass(slots=True, eq=False)
class Item:
    """A request that cannot go on yet: its own verdict is awaited, or that of a request before it.

    ``frame``      as it came
    ``answer``     its place, None where no answer comes (acks=0)
    ``request``, ``verdict``  of a Produce request
    ``waits``      True until its verdict is known
    ``copied``     bytes of batches that go on with other claims, once they are made
    ``work``       of a request of an old version that is raised in a thread
    """

    frame: memoryview
    answer: Answer | None = None
    request: ProduceRequestView | None = None
    verdict: RequestVerdict | None = None
    waits: bool = False
    copied: int = 0
    work: OneSlice | None = None

    @property
    def size(self) -> int:
        """Return the bytes that the session holds for this request."""
        return len(self.frame) + self.copied


# ---- what is done with answers -------------------------------------------------------------------


def _respond_of(key: int, version: int) -> Respond:
    """Return what is done with an answer that the fast path takes where it names nobody."""
    return rewrite if key == ApiKey.PRODUCE and may_hold_addresses(key, version) else pass_on


def pass_on(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    frame[4:8] = answer.correlation_id.to_bytes(4, "big", signed=True)
    return [frame]


def is_passed_on(answer: Answer) -> bool:
    """Return whether nothing but the correlation id of the broker's answer changes."""
    return answer.respond is pass_on


def is_rewritten(answer: Answer) -> bool:
    """Return whether the broker's answer may name brokers."""
    return answer.respond is rewrite


def rewrite(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    """Return an answer with the gate's listeners where it names brokers."""
    return rewrite_addresses(
        frame[4:],
        answer.key,
        answer.version,
        requests.replace,
        correlation_id=answer.correlation_id,
    )


def _merge(requests: Requests, answer: Answer, frame: memoryview) -> Chunks:
    """Return the broker's answer with what was refused here."""
    request, refusals = answer.facts
    requests.let_go(answer)
    response = ProduceResponseView(frame[4:], request.written_version)
    merged = merge(request, refusals, response, correlation_id=answer.correlation_id)
    if not may_hold_addresses(ApiKey.PRODUCE, answer.version):
        return merged
    body = memoryview(b"".join(merged))[4:]
    return rewrite_addresses(
        body, answer.key, answer.version, requests.replace, correlation_id=answer.correlation_id
    )


# ---- large answers -------------------------------------------------------------------------------

#: Bytes of a tail: brokers are few.
MAX_TAIL_BYTES: Final = 1 << 20

#: Bytes of an answer that is read here as a whole, by API: several times what the largest clusters
#: need. A Metadata answer has 42 bytes for a partition of three replicas, so this is for 1.5 million.
MAX_ANSWER: Final[Mapping[int, int]] = {
    ApiKey.METADATA: 64 << 20,
    ApiKey.API_VERSIONS: 16 << 10,
    ApiKey.FIND_COORDINATOR: 16 << 20,
    ApiKey.DESCRIBE_CLUSTER: 1 << 20,
    ApiKey.PRODUCE: 16 << 20,
    ApiKey.SHARE_ACKNOWLEDGE: 16 << 20,
    ApiKey.SASL_HANDSHAKE: 64 << 10,
    ApiKey.SASL_AUTHENTICATE: 1 << 20,
}

MAX_TOKEN: Final = 1 << 20  # bytes of a SASL token without a header

Replace = Callable[[int, str, int], tuple[str, int]]


@dataclass(slots=True, eq=False)
class AnswerStream:
    """One answer on its way. ``left``: bytes of it that have not come yet."""

    correlation_id: int
    key: int
    version: int
    left: int
    tail: FetchTail | None
    held: bytearray = field(default_factory=bytearray)

    def feed(self, piece: memoryview, replace: Replace) -> list[bytes | memoryview]:
        """Return what goes to the client now. Raises ProtocolError for any other answer."""
        self.left -= len(piece)
        if self.tail is None:
            return [piece]
        out: list[bytes | memoryview] = []
        count = self.tail.feed(piece)
        if count < 0:
            raise ProtocolError("its fields do not fit its length")
        if count:
            out.append(piece[:count])
        self.held += piece[count:]
        if len(self.held) > MAX_TAIL_BYTES:
            raise ProtocolError(
                f"its fields after the last topic take more than {MAX_TAIL_BYTES} bytes"
            )
        if not self.left:
            out.append(rewrite_tail(bytes(self.held), self.key, self.version, replace))
        return out


def check_size(first: Answer | int, size: int) -> None:
    """Check the size of an answer that is read as a whole, before it is. Raises ProtocolError."""
    has_id = isinstance(first, int) or first.has_id
    most = MAX_ANSWER.get(facts_of(first)[1]) if has_id else MAX_TOKEN
    if most is not None and size > most:
        raise ProtocolError(f"it has {size} bytes, at most {most} are allowed")


def stream_of(first: Answer | int, size: int) -> AnswerStream | None:
    """Return the stream for the answer at the head of the queue; None where it is handled whole."""
    correlation_id, key, version = facts_of(first)
    if key == ApiKey.PRODUCE:
        # it may hold addresses, and says at its end how long to wait; such answers are small
        return None
    if isinstance(first, int) or is_passed_on(first):
        return AnswerStream(correlation_id, key, version, size, None)
    if key in (ApiKey.FETCH, ApiKey.SHARE_FETCH) and is_rewritten(first):
        return AnswerStream(correlation_id, key, version, size, FetchTail(key, version))
    return None


#: Bytes of an answer above which it is passed on while it comes, if only its end changes.
STREAMED_FROM: Final = 64 << 10

_INT = struct.Struct(">i")

_unpack_int = _INT.unpack_from

_pack_int = _INT.pack_into


#: Seconds after which the rest of the requests that may go on waits for a later turn of the loop:
#: one with thousands of refused partitions takes a millisecond.
SEND_S: Final = 0.001


class AnswerFault(NamedTuple):
    """A fault of the broker's answers, which ends the session. ``what`` names the broker as {}."""

    why: str
    what: str
    error: BaseException | None = None


class Pause(enum.Enum):
    """Effects on what is read of the client."""

    SASL_BEGINS = "sasl begins"  # its principal may change: fewer requests take the fast path
    SASL = "sasl"  # tokens may come next, once the broker has answered
    SASL_ANSWERED = "sasl answered"
    HELD = "held"  # more is held for it


class MetadataQuestion(NamedTuple):
    """An effect: the topics of the broker's answer are learnt, then the request is validated."""

    body: memoryview
    version: int
    item: Item


#: What the session carries out after a call of its requests. A job is put among those that wait.
SessionEffect: TypeAlias = (
    End | Authenticated | Pause | MetadataQuestion | Denied | Job | Lowering | RequestJob
)

#: An answer that cannot be read, or not be written again.
_MALFORMED: Final = "an answer of {} could not be passed on"


def _malformed(error: Exception) -> AnswerFault:
    """Return the fault of an answer that cannot be passed on, without the frames of its error.

    They hold the fault in turn: reference counts would not free the session.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return AnswerFault("answer_malformed", _MALFORMED, error)


class Requests:
    """The requests of one session and the places of their answers, without its connections.

    It knows no session. What the client gets is appended to ``out``; ``effects`` are what the
    session carries out after each call.

    ``gate``     the validator of requests that come now
    ``guarded``  APIs that some clients may not use
    ``raised``   old versions that are raised: clients ask for versions once a connection
    """

    __slots__ = (
        "_give",
        "_later",
        "answers",
        "converting",
        "counters",
        "effects",
        "fast_path",
        "gate",
        "guarded",
        "identity",
        "limits",
        "made",
        "node_id",
        "old_fetches",
        "outbox",
        "proxy",
        "raised",
        "stream",
        "unsent",
        "untaken",
        "waiting",
    )

    def __init__(
        self,
        answers: deque[Answer | int],
        fast_path: FastPath,
        identity: Identity,
        proxy: Surroundings,
        node_id: int | None,
    ) -> None:
        self.identity = identity
        self.proxy = proxy
        self.node_id = node_id  # of the broker; None: any. The session writes it
        self.counters = proxy.counters
        self.gate = proxy.gate
        self.limits = proxy.options.limits
        self.raised = proxy.raised
        self.guarded: frozenset[int] = frozenset()
        self.old_fetches = OldFetches(self.limits.max_partitions_per_request)
        self.effects: list[SessionEffect] = []
        # an int: the answer is passed on; the fast path appends and takes, too
        self.answers = answers
        self.fast_path = fast_path
        self._give = fast_path.give
        self.outbox: deque[Item] = deque()
        self.unsent: list[bytes | memoryview] = []
        # the session writes this
        self.untaken: list[memoryview] = []
        self.stream: AnswerStream | None = None  # the answer that is passed on while it comes
        # the answer that is converted in a thread; its place is the first
        self.converting: Lowering | None = None
        self._later: list[memoryview] = []  # that came while an answer was converted
        # bytes of answers made here that wait for their place
        self.made = 0
        # bytes of requests in the outbox and unsent, and of requests whose answers are merged
        self.waiting = 0

    def held(self) -> int:
        """Return the bytes of requests that wait, and of answers that were made here."""
        return self.waiting + self.made

    @property
    def is_busy(self) -> bool:
        """Return whether requests wait to be sent."""
        return bool(self.outbox or self.unsent or self.untaken)

    @property
    def are_awaited(self) -> bool:
        """Return whether any answer is under way."""
        return bool(self.answers) or self.stream is not None

    def follow(self, gate: ProduceValidator, limits: Limits) -> None:
        """Take other settings. What is being validated stays with its own validator."""
        if self.gate is not gate:
            self.gate = gate
            self.fast_path.follow(gate)
        self.limits = limits
        self.old_fetches.bound(limits.max_partitions_per_request)

    def end(self, why: str, detail: str = "", request: tuple[int, int] | None = None) -> None:
        """Let the session end once what is under way is delivered."""
        self.effects.append(End(why, detail=detail, request=request))

    def abort(self, why: str) -> None:
        """Let the session end at once."""
        self.effects.append(End(why, How.NOW))

    # ---- requests that come ----------------------------------------------------------------------

    def next_id(self, answer: Answer) -> int:
        """Return the correlation id of the next request to the broker."""
        return self.fast_path.send(answer.key, answer.taken_ns)

    def place(self, answer: Answer) -> None:
        """Give the answer to a client's request its place in the queue."""
        answer.taken_ns = self.fast_path.taken_ns
        self.answers.append(answer)

    def forward(
        self, frame: memoryview, answer: Answer, to_broker: Chunks, *, is_own: bool = False
    ) -> None:
        """Send a request on in its order; ``answer`` is its place. ``is_own``: the gate's own."""
        if is_own:
            self.answers.append(answer)
        else:
            self.place(answer)
        if self.outbox:
            self.put(Item(frame, answer))
        else:
            _pack_int(frame, _CORRELATION_ID, self.next_id(answer))
            to_broker.append(frame)

    def put(self, item: Item) -> None:
        """Let a request wait for its turn to be sent."""
        self.outbox.append(item)
        self.waiting += len(item.frame)

    def keep(self, answer: Answer, held: int) -> None:
        """Count what is kept for a place until the broker's answer comes."""
        answer.held = held
        self.waiting += held

    def let_go(self, answer: Answer) -> None:
        """Stop counting it: the answer has come."""
        self.waiting -= answer.held
        answer.held = 0

    def keep_now(self, answer: Answer, held: int) -> None:
        """Count it, and let the session ask whether it holds too much."""
        self.keep(answer, held)
        self.effects.append(Pause.HELD)

    # ---- requests that go on ---------------------------------------------------------------------

    def take_raised(
        self, item: Item, frame: memoryview, questions: list[tuple[memoryview, Answer]]
    ) -> None:
        """Let a request go on in a newer version, after questions of the gate's own."""
        assert item.answer is not None
        at, place = self.outbox.index(item), self.answers.index(item.answer)
        for question, asked in reversed(questions):
            self.outbox.insert(at, Item(question, asked))
            self.answers.insert(place, asked)
            self.waiting += len(question)
        self.waiting += len(frame) - len(item.frame)
        item.frame = frame
        item.waits = False

    def validated(self, item: Item) -> bool:
        """Take the verdict on a request; return whether it may go on."""
        verdict = item.verdict
        if verdict is None or not verdict.done:
            return False
        item.waits = False
        if not verdict.cancelled:
            item.copied = verdict.copied_bytes
            self.waiting += item.copied
        return True

    def send_ready(self, to_broker: Chunks, *, is_ending: bool) -> bool:
        """Send on the requests that wait for nothing; return whether others may go on later.

        That is so after SEND_S. ``is_ending``: the session has a reason to end already.
        """
        outbox = self.outbox
        until = time.perf_counter() + SEND_S
        while outbox and not outbox[0].waits:
            item = outbox.popleft()
            self.waiting -= item.size
            if item.request is not None and item.verdict is not None:
                end = self.forward_validated(
                    item.frame, item.answer, item.request, item.verdict, to_broker
                )
                if end is not None and (end.how is How.NOW or not is_ending):
                    self.effects.append(end)
                    self.drop()
            elif item.answer is not None and item.answer.ready is None:  # else it was answered here
                if item.answer.has_id:
                    _pack_int(item.frame, _CORRELATION_ID, self.next_id(item.answer))
                to_broker.append(item.frame)
            if time.perf_counter() > until:
                return bool(outbox)
        return False

    def forward_validated(
        self,
        frame: memoryview,
        answer: Answer | None,
        request: ProduceRequestView,
        verdict: RequestVerdict,
        out: Chunks,
    ) -> End | None:
        """Send on what passes, and remember what the answer must say of the rest.

        Returns the end of the session, if it ends: as a broker's does where a request without an
        answer was refused.
        """
        ready = verdict.gate.settle(request, verdict, self.identity.facts)
        if not verdict.any_left:
            if answer is None or ready is None:
                return End("acks_0_refused") if verdict.refuses else None
            self.counters.requests_answered_here_total += 1
            # straight into its place: the session writes it after this request
            answer.respond, answer.ready, answer.held = None, ready, sum(map(len, ready))
            self.made += answer.held
            return None
        if (
            verdict.refusals is not None
            and request.size > MAX_MERGED_BYTES
            and request.size_without_records > MAX_MERGED_BYTES
        ):
            return End("request_names", How.NOW)  # no topic has names that long
        wire_id = 0 if answer is None else self.next_id(answer)
        if verdict.untouched:
            _pack_int(frame, _CORRELATION_ID, wire_id)
            out.append(frame)
            return None
        self.counters.requests_rewritten_total += 1
        out.extend(verdict.forwarded(request, wire_id))
        if verdict.refusals is None:
            return None
        if answer is None:
            return End("acks_0_refused") if verdict.refuses else None
        answer.respond = _merge
        answer.facts = request, verdict.refusals
        self.keep(answer, len(frame))
        return None

    def hold_unsent(self, out: Chunks) -> None:
        """Keep requests for a broker that is not connected yet."""
        self.unsent.extend(out)
        self.waiting += sum(map(len, out))

    def take_unsent(self) -> Chunks:
        """Return what was kept for the broker."""
        unsent, self.unsent = self.unsent, []
        self.waiting -= sum(map(len, unsent))
        return unsent

    # ---- requests that nobody sends --------------------------------------------------------------

    def drop(self, n: int = 0) -> None:
        """Drop the requests from the n-th on, their places, and all that came after."""
        first = None
        while len(self.outbox) > n:
            item = self.outbox.pop()
            self.waiting -= item.size
            if item.verdict is not None:
                item.verdict.cancelled = True
            if item.work is not None:
                item.work.cancel()
                item.work = None  # which knows its item
            first = item.answer or first
        if first is not None:
            self._drop_places(first)
        self.untaken.clear()

    def drop_unvalidated(self) -> None:
        """Drop what a client that is gone waits for; requests without an answer go on (acks=0)."""
        for n, item in enumerate(self.outbox):
            if item.waits and item.answer is not None:
                self.drop(n)
                return

    def _drop_places(self, first: Answer) -> None:
        """Forget the place ``first`` and all after it: the broker never gets these requests."""
        while self.answers:
            last = self.answers.pop()
            if isinstance(last, Answer):
                if last.ready is not None:
                    self.made -= last.held
                elif last.held:
                    self.let_go(last)
            if last is first:
                return

    def clear(self) -> None:
        """Forget all places: nobody will get these answers."""
        self.answers.clear()
        self.stream = None
        self.made = self.waiting = 0
        self._later = []
        self.effects = []
        if self.converting is not None:
            self.converting.cancel()
            self.converting = None

    # ---- the broker's answers --------------------------------------------------------------------

    def take(self, frames: list[memoryview], out: Chunks) -> AnswerFault | None:
        """Pass the broker's answers on; while ``stream`` is set, the first items are its pieces."""
        answers, give = self.answers, self._give
        i, end = 0, len(frames)
        if self.converting is not None:
            self._later += frames
            return None
        while self.stream is not None and i < end:
            fault = self._pass_piece(frames[i], out)
            if fault is not None:
                return fault
            i += 1
        while True:
            i = give(frames, i, out)
            if answers and type(answers[0]) is not int and self.collect_ready(out):
                continue
            if i == end:
                return None
            fault = self._answered(frames[i], out)
            if fault is not None:
                return fault
            i += 1
            if self.converting is not None:
                self._later = frames[i:]
                return None

    def _answered(self, frame: memoryview, out: Chunks) -> AnswerFault | None:
        """Handle an answer that may change."""
        counters = self.counters
        counters.answers_total += 1
        counters.answer_bytes_total += len(frame)
        fault = self._check_turn(frame, len(frame))
        if fault is not None:
            return fault
        try:
            first = self.answers.popleft()
            check_size(first, len(frame))
            ready = self._respond(first, frame)
        except (ProtocolError, OSError) as error:
            return _malformed(error)
        if ready is not None:
            out.extend(ready)
        self.fast_path.finish(ready is not None)
        return None

    def _respond(self, first: Answer | int, frame: memoryview) -> Chunks | None:
        """Return what the client gets of an answer, or None. Raises ProtocolError and OSError."""
        correlation_id, key, version = facts_of(first)
        answer = (
            first
            if isinstance(first, Answer)
            else Answer(correlation_id, key, version, _respond_of(key, version))
        )
        if answer.respond is None:
            raise ProtocolError("an answer came for a request that no broker has seen")
        if key >= 0:
            self._count_throttle(key, version, frame[4:])
            identity = self.identity
            if not identity.authenticated and key not in _BEFORE_AUTHENTICATION:
                # of some mechanisms only this answer shows that the broker knows the client
                if not identity.sasl.mechanism:
                    self.proxy.discovery.answered_without_authentication()
                self.effects.append(identity.authenticate())
        return answer.respond(self, answer, frame)

    def _count_throttle(self, key: int, version: int, body: memoryview) -> None:
        """Count an answer that asks the client to wait."""
        wait_ms = throttle_ms(key, version, body)
        if wait_ms > 0:
            self.counters.throttled(key, wait_ms)

    def _check_turn(self, frame: memoryview, size: int) -> AnswerFault | None:
        """Check that a frame answers the oldest request."""
        path = self.fast_path
        first = self.answers[0] if self.answers else None
        if isinstance(first, Answer) and not first.has_id:
            return None
        wire_id = _unpack_int(frame, 4)[0] if len(frame) >= 8 else -1
        if first is None or path.received == path.sent or wire_id != path.received + 1 & 0x7FFFFFFF:
            return AnswerFault("answer_out_of_turn", "{} answered out of turn: the connection ends")
        path.receive(wire_id, size)
        return None

    # ---- those that are converted ----------------------------------------------------------------

    def convert(self, lowering: Lowering) -> None:
        """Keep the place of an answer until it is converted, in a thread."""
        answer = lowering.answer
        answer.respond = None
        self.waiting += lowering.held
        self.answers.appendleft(answer)
        self.converting = lowering
        self.effects.append(lowering)

    def conversion_grew(self, lowering: Lowering, held: int) -> None:
        """Count what a conversion holds now, unless it has been dropped."""
        if self.converting is not lowering:
            return
        self.waiting += held - lowering.held
        lowering.held = held

    def converted(
        self, lowering: Lowering, error: BaseException | None, out: Chunks
    ) -> AnswerFault | None:
        """Pass the answer that was converted on, and what came after it."""
        self.waiting -= lowering.held
        if error is not None:
            what = "an answer of {} could not be converted"
            return AnswerFault("answer_malformed", what, error)
        self.converting = None
        self.answer_here(lowering.answer, lowering.finish())
        self.collect_ready(out)
        frames, self._later = self._later, []
        return self.take(frames, out) if frames else None

    # ---- large ones ------------------------------------------------------------------------------

    def start_stream(self, splitter: FrameSplitter, out: Chunks) -> AnswerFault | None:
        """Pass a large answer on while it comes, if nothing changes but its end."""
        if splitter.partial_size <= STREAMED_FROM or self.converting is not None:
            return None
        head = splitter.partial
        if head is None or not self.answers:
            return None
        stream = stream_of(self.answers[0], splitter.partial_size)
        if stream is None:
            try:
                check_size(self.answers[0], splitter.partial_size)
            except ProtocolError as error:
                return _malformed(error)
            return None
        fault = self._check_turn(head, splitter.partial_size)
        if fault is not None:
            return fault
        self.fast_path.finish(True)  # what comes later waits for the client
        self.stream = stream
        self.answers.popleft()
        self.counters.answers_total += 1
        self.counters.answers_streamed_total += 1
        self._count_throttle(stream.key, stream.version, head[4:])
        piece = splitter.stream_partial()
        _pack_int(piece, 4, stream.correlation_id)
        return self._pass_piece(piece, out)

    def _pass_piece(self, piece: memoryview, out: Chunks) -> AnswerFault | None:
        stream = self.stream
        assert stream is not None
        self.counters.answer_bytes_total += len(piece)
        try:
            out += stream.feed(piece, self.replace)
        except (ProtocolError, OSError) as error:
            return _malformed(error)
        if not stream.left:
            self.stream = None
        return None

    # ---- those made here -------------------------------------------------------------------------

    def answer_here(self, answer: Answer, ready: Chunks) -> None:
        """Answer a request that no broker sees, in its place."""
        answer.respond = None
        answer.ready = ready
        answer.held = sum(map(len, ready))
        self.made += answer.held

    def collect_ready(self, out: Chunks) -> bool:
        """Take what was answered here and has nothing before it; return whether there was any."""
        answers = self.answers
        found = False
        while answers and self.stream is None:
            first = answers[0]
            if isinstance(first, int) or first.ready is None:
                break
            out.extend(first.ready)
            self.made -= first.held
            answers.popleft()
            self.fast_path.answered(first.key, first.taken_ns)
            found = True
        return found

    # ---- the names of brokers --------------------------------------------------------------------

    def replace(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """Return where clients find a broker: at its listener."""
        host, port = self.proxy.cluster.listener_of(node_id, host, port).advertised
        return host or self.identity.own_host, port

    def written_brokers(self, version: int) -> dict[bytes, bytes]:
        """Return what was written for the brokers of Metadata answers of this version."""
        return self.proxy.cluster.written_brokers(self.identity.own_host, version)

    def log_fault(self, what: str, error: BaseException | None = None) -> None:
        """Log what is wrong with the broker's answers; ``what`` names the broker as {}."""
        broker = "a broker" if self.node_id is None else f"broker {self.node_id}"
        self.proxy.log_error(what.format(broker), error)
