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

import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.message import Chunks
from batchval.protocol.walkers.fetch_tail import FetchTail, rewrite_tail
from batchval.proxy.session import handlers
from batchval.proxy.session.fast_path import FastPath
from batchval.proxy.session.handlers import is_passed_on, is_rewritten
from batchval.proxy.session.pending_requests import Answer, Item, Lowering, Queue, facts_of
from batchval.proxy.settings.options import Counters

__all__ = ["SEND_S", "AnswerFault", "AnswerStream", "Requests", "check_size", "stream_of"]

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
    error: Exception | None = None


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

    It knows no session: a handler gets the one that a call names. What the client gets is appended
    to ``out``.
    """

    __slots__ = (
        "_counters",
        "_give",
        "_later",
        "answers",
        "converting",
        "fast_path",
        "made",
        "outbox",
        "stream",
        "unsent",
        "untaken",
        "waiting",
    )

    def __init__(
        self, answers: deque[Answer | int], fast_path: FastPath, counters: Counters
    ) -> None:
        # an int: the answer is passed on; the fast path appends and takes, too
        self.answers = answers
        self.fast_path = fast_path
        self._give = fast_path.give
        self._counters = counters
        self.outbox: deque[Item] = deque()
        # the session writes these two
        self.unsent: list[bytes | memoryview] = []
        self.untaken: list[memoryview] = []
        self.stream: AnswerStream | None = None  # the answer that is passed on while it comes
        # the answer that is converted in a thread; its place is the first
        self.converting: Lowering | None = None
        self._later: list[memoryview] = []  # that came while an answer was converted
        # bytes of answers made here that wait for their place; forward_validated adds its own
        self.made = 0
        # bytes of requests in the outbox and unsent, and of requests whose answers are merged
        self.waiting = 0

    @property
    def is_busy(self) -> bool:
        """Return whether requests wait to be sent."""
        return bool(self.outbox or self.unsent or self.untaken)

    @property
    def are_awaited(self) -> bool:
        """Return whether any answer is under way."""
        return bool(self.answers) or self.stream is not None

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
            _pack_int(frame, 8, self.next_id(answer))
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

    def send_ready(self, session: Queue, to_broker: Chunks) -> bool:
        """Send on the requests that wait for nothing; return whether others may go on later.

        That is so after SEND_S.
        """
        outbox = self.outbox
        end = time.perf_counter() + SEND_S
        while outbox and not outbox[0].waits:
            item = outbox.popleft()
            self.waiting -= item.size
            if item.request is not None and item.verdict is not None:
                if handlers.forward_validated(
                    session, item.frame, item.answer, item.request, item.verdict, to_broker
                ):
                    self.drop()
            elif item.answer is not None and item.answer.ready is None:  # else it was answered here
                if item.answer.has_id:
                    _pack_int(item.frame, 8, self.next_id(item.answer))
                to_broker.append(item.frame)
            if time.perf_counter() > end:
                return bool(outbox)
        return False

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
        self.made = 0
        self._later = []
        if self.converting is not None:
            self.converting.cancel()
            self.converting = None

    # ---- the broker's answers --------------------------------------------------------------------

    def take(self, session: Queue, frames: list[memoryview], out: Chunks) -> AnswerFault | None:
        """Pass the broker's answers on; while ``stream`` is set, the first items are its pieces."""
        answers, give = self.answers, self._give
        i, end = 0, len(frames)
        if self.converting is not None:
            self._later += frames
            return None
        while self.stream is not None and i < end:
            fault = self._pass_piece(session, frames[i], out)
            if fault is not None:
                return fault
            i += 1
        while True:
            i = give(frames, i, out)
            if answers and type(answers[0]) is not int and self.collect_ready(out):
                continue
            if i == end:
                return None
            fault = self._answered(session, frames[i], out)
            if fault is not None:
                return fault
            i += 1
            if self.converting is not None:
                self._later = frames[i:]
                return None

    def _answered(self, session: Queue, frame: memoryview, out: Chunks) -> AnswerFault | None:
        """Handle an answer that may change."""
        counters = self._counters
        counters.answers_total += 1
        counters.answer_bytes_total += len(frame)
        fault = self._check_turn(frame, len(frame))
        if fault is not None:
            return fault
        try:
            first = self.answers.popleft()
            check_size(first, len(frame))
            ready = handlers.respond(session, first, frame)
        except (ProtocolError, OSError) as error:
            return _malformed(error)
        if ready is not None:
            out.extend(ready)
        self.fast_path.finish(ready is not None)
        return None

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
        """Keep the place of an answer until it is converted."""
        answer = lowering.answer
        answer.respond = None
        self.waiting += lowering.held
        self.answers.appendleft(answer)
        self.converting = lowering

    def conversion_grew(self, lowering: Lowering, held: int) -> None:
        """Count what a conversion holds now."""
        self.waiting += held - lowering.held
        lowering.held = held

    def converted(self, session: Queue, lowering: Lowering, out: Chunks) -> AnswerFault | None:
        """Pass the answer that was converted on, and what came after it."""
        self.converting = None
        self.answer_here(lowering.answer, lowering.finish(), out)
        frames, self._later = self._later, []
        return self.take(session, frames, out) if frames else None

    # ---- large ones ------------------------------------------------------------------------------

    def start_stream(
        self, session: Queue, splitter: FrameSplitter, out: Chunks
    ) -> AnswerFault | None:
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
        self._counters.answers_total += 1
        self._counters.answers_streamed_total += 1
        handlers.count_throttle(session, stream.key, stream.version, head[4:])
        piece = splitter.stream_partial()
        _pack_int(piece, 4, stream.correlation_id)
        return self._pass_piece(session, piece, out)

    def _pass_piece(self, session: Queue, piece: memoryview, out: Chunks) -> AnswerFault | None:
        stream = self.stream
        assert stream is not None
        self._counters.answer_bytes_total += len(piece)
        try:
            out += stream.feed(piece, session.replace)
        except (ProtocolError, OSError) as error:
            return _malformed(error)
        if not stream.left:
            self.stream = None
        return None

    # ---- those made here -------------------------------------------------------------------------

    def answer_here(self, answer: Answer, ready: Chunks, out: Chunks) -> None:
        """Answer a request that no broker sees, in its place."""
        answer.respond = None
        answer.ready = ready
        answer.held = sum(map(len, ready))
        self.made += answer.held
        self.collect_ready(out)

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
