"""The answers of one session, in the order of its requests: the broker's, and the gate's own.

Each place in the queue is an int (passed on by the fast path) or an ``Answer``. A large answer in
which nothing but its end changes is passed on while it comes. One that is converted in a thread
keeps its place; what the broker answers after it waits.

``AnswerStream`` is a large answer that is passed on while it comes.

    length:4 correlation_id:4 … records … tail

Nothing changes in it but the correlation id and, in a Fetch or ShareFetch answer that may name
brokers, the tail: what comes after the last topic. Only the tail is held. Written again it has the
same length, since the answer's length has been written long before.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError, TooManyBrokersError
from batchval.protocol.walkers.fetch_tail import FetchTail, rewrite_tail
from batchval.proxy.session import handlers
from batchval.proxy.session.connections import ClientConnection, Connections
from batchval.proxy.session.fast_path import FastPath
from batchval.proxy.session.handlers import is_passed_on, is_rewritten
from batchval.proxy.session.pending import Answer, Lowering, Queue, facts_of

__all__ = ["AnswerStream", "Answering", "Asking", "check_size", "stream_of"]

#: Bytes of a tail: brokers are few.
LONGEST_TAIL: Final = 1 << 20

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
        if len(self.held) > LONGEST_TAIL:
            raise ProtocolError(
                f"its fields after the last topic take more than {LONGEST_TAIL} bytes"
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

Out = list[bytes | memoryview]


class Asking(Queue, Protocol):
    """The part of a session that its answers use."""

    client: ClientConnection
    connections: Connections
    fast_path: FastPath


class Answering:
    """The queue of one session's answers.

    ``made``    bytes of answers made here that wait for their place
    ``stream``  the answer that is passed on while it comes
    ``converting``  the answer that is converted in a thread; its place is the first
    """

    def __init__(self, session: Asking, answers: deque[Answer | int]) -> None:
        self.session = session
        self.answers = answers
        self._give = session.fast_path.give
        self.stream: AnswerStream | None = None
        self.converting: Lowering | None = None
        self._later: list[memoryview] = []  # that came while an answer was converted
        self.made = 0

    def __bool__(self) -> bool:
        """Return whether any answer is under way."""
        return bool(self.answers) or self.stream is not None

    def clear(self) -> None:
        """Forget all places: nobody will get these answers."""
        self.answers.clear()
        self.stream = None
        self.made = 0
        self._later = []
        if self.converting is not None:
            self.converting.cancel()
            self.session.proxy.validation.drop(self.converting.session)
            self.converting = None

    def drop_from(self, first: Answer) -> None:
        """Forget the place ``first`` and all after it: the broker never gets these requests."""
        while self.answers:
            last = self.answers.pop()
            if isinstance(last, Answer):
                if last.ready is not None:
                    self.made -= last.held
                elif last.held:
                    self.session.let_go(last)
            if last is first:
                return

    # ---- the broker's ----------------------------------------------------------------------------

    def take(self, frames: list[memoryview]) -> None:
        """Pass the broker's answers on; while ``stream`` is set, the first items are its pieces."""
        answers, give = self.answers, self._give
        out: Out = []
        i, end = 0, len(frames)
        if self.converting is not None:
            self._later += frames
            return
        if self.stream is not None:
            i = self._stream(frames, out)
            if i < 0:
                return
        elif not end:  # a frame that one read does not bring
            self._start_stream()
            return
        while True:
            i = give(frames, i, out)
            if answers and type(answers[0]) is not int and self._collect_ready(out):
                continue
            if i == end:
                break
            if not self._answered(frames[i], out):
                return
            i += 1
            if self.converting is not None:
                self._later = frames[i:]
                break
        if out:
            self.session.client.write(out)

    def _answered(self, frame: memoryview, out: Out) -> bool:
        """Handle an answer that may change; return False if the session has ended."""
        counters = self.session.counters
        counters.answers_total += 1
        counters.answer_bytes_total += len(frame)
        if not self._is_next(frame, out, len(frame)):
            return False
        try:
            first = self.answers.popleft()
            check_size(first, len(frame))
            ready = handlers.respond(self.session, first, frame)
        except (ProtocolError, OSError) as error:
            if isinstance(error, TooManyBrokersError):
                self.session.proxy.discovery.refused(error)
            self._end(out, "answer_malformed", "an answer of {} could not be passed on", error)
            return False
        if ready is not None:
            out.extend(ready)
        self.session.fast_path.finish(ready is not None)
        return True

    def _end(self, out: Out, why: str, what: str, error: BaseException | None = None) -> None:
        """End the session; the client gets the answers before this one."""
        self.session.client.write(out)
        self.session.fault(what, error)
        self.session.abort(why, "" if error is None else str(error))

    def _is_next(self, frame: memoryview, out: Out, size: int) -> bool:
        """Check that a frame answers the oldest request; return False if the session has ended."""
        path = self.session.fast_path
        first = self.answers[0] if self.answers else None
        if isinstance(first, Answer) and not first.has_id:
            return True
        wire_id = _unpack_int(frame, 4)[0] if len(frame) >= 8 else -1
        if first is None or path.received == path.sent or wire_id != path.received + 1 & 0x7FFFFFFF:
            self._end(out, "answer_out_of_turn", "{} answered out of turn: the connection ends")
            return False
        path.receive(wire_id, size)
        return True

    # ---- those that are converted ----------------------------------------------------------------

    def convert(self, lowering: Lowering) -> None:
        """Keep the place of an answer until it is converted."""
        answer = lowering.answer
        answer.respond = None
        self.answers.appendleft(answer)
        self.converting = lowering

    def converted(self, ready: Out) -> None:
        """Write the answer that was converted, and take what came after it."""
        assert self.converting is not None
        answer, self.converting = self.converting.answer, None
        self.answer_here(answer, ready)
        frames, self._later = self._later, []
        if frames:
            self.take(frames)

    # ---- large ones ------------------------------------------------------------------------------

    def _start_stream(self) -> None:
        """Pass a large answer on while it comes, if nothing changes but its end."""
        broker = self.session.connections.broker
        if broker is None or broker.splitter.partial_size <= STREAMED_FROM:
            return
        head = broker.splitter.partial
        if head is None or not self.answers:
            return
        stream = stream_of(self.answers[0], broker.splitter.partial_size)
        out: Out = []
        if stream is None:
            try:
                check_size(self.answers[0], broker.splitter.partial_size)
            except ProtocolError as error:
                self._end(out, "answer_malformed", "an answer of {} could not be passed on", error)
            return
        if not self._is_next(head, out, broker.splitter.partial_size):
            return
        self.session.fast_path.finish(True)  # what comes later waits for the client
        self.stream = stream
        self.answers.popleft()
        self.session.counters.answers_total += 1
        self.session.counters.answers_streamed_total += 1
        handlers.count_throttle(self.session, stream.key, stream.version, head[4:])
        piece = broker.splitter.stream_partial()
        _pack_int(piece, 4, stream.correlation_id)
        if self._pass_piece(piece, out):
            self.session.client.write(out)

    def _stream(self, frames: list[memoryview], out: Out) -> int:
        """Pass pieces on; return the index of the first whole frame, -1 if the session ended."""
        i = 0
        while self.stream is not None and i < len(frames):
            if not self._pass_piece(frames[i], out):
                return -1
            i += 1
        return i

    def _pass_piece(self, piece: memoryview, out: Out) -> bool:
        stream = self.stream
        assert stream is not None
        self.session.counters.answer_bytes_total += len(piece)
        try:
            out += stream.feed(piece, self.session.replace)
        except (ProtocolError, OSError) as error:
            self._end(out, "answer_malformed", "an answer of {} could not be passed on", error)
            return False
        if not stream.left:
            self.stream = None
        return True

    # ---- those made here -------------------------------------------------------------------------

    def answer_here(self, answer: Answer, ready: Out) -> None:
        """Answer a request that no broker sees, in its place."""
        answer.respond = None
        answer.ready = ready
        answer.held = sum(map(len, ready))
        self.made += answer.held
        self.write_ready()

    def write_ready(self) -> None:
        """Write what was answered here and has nothing before it."""
        out: Out = []
        if self._collect_ready(out):
            self.session.client.write(out)

    def _collect_ready(self, out: Out) -> bool:
        """Put what was answered here and is next into ``out``; return whether there was any."""
        answers = self.answers
        found = False
        while answers and self.stream is None:
            first = answers[0]
            if isinstance(first, int) or first.ready is None:
                break
            out.extend(first.ready)
            self.made -= first.held
            answers.popleft()
            self.session.fast_path.answered(first.key, first.taken_ns)
            found = True
        return found
