"""Raise requests of versions that Kafka 4 no longer serves, and lower their answers (``bridge``).

    client  old version  ->  gate  raised version  ->  broker
    client  old version  <-  gate  raised version  <-  broker

Small requests and answers are translated on the loop, others in a thread: the requests after one
that is translated wait for it, and so do the answers (``lowering``). Produce 0 to 2 belong to
``handlers.produce``: their batches are validated, too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from typing import Final

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Chunks
from batchval.protocol.old_fetch import OldFetch
from batchval.protocol.old_list_offsets import OldListOffsets
from batchval.protocol.old_versions import CONSUMERS, PRODUCERS, Raised, lower_answer, raise_request
from batchval.proxy.session.fetch_down_conversion import FetchConversion, FetchFacts, is_empty
from batchval.proxy.session.requests import Answer, Item, Lowering, RequestJob, Requests

__all__ = ["raised_by", "take"]

_RAISED: Final[Mapping[str, Mapping[ApiKey, Raised]]] = {
    "producers": PRODUCERS,
    "consumers": CONSUMERS,
}

#: Bytes of a request or an answer that is translated on the loop: about 0.5 ms.
INLINE: Final = 4 << 10
#: Bytes of a Fetch answer: what a consumer holds here at most, but for a batch that is larger.
MAX_FETCHED_BYTES: Final = 8 << 20
#: A session's Fetch answer takes at most 1/SHARE of max_bytes_held, or MIN_FETCHED_BYTES.
SHARE: Final = 16
MIN_FETCHED_BYTES: Final = 64 << 10

_HEADER: Final = struct.Struct(">ihhih")  # length, key, version, correlation id, client id's size
_ANSWER_HEADER: Final = 8
_READ_COMMITTED: Final = 1


def raised_by(bridge: tuple[str, ...]) -> dict[int, Raised]:
    """Return the APIs whose old versions are raised, by API key."""
    return {int(key): raised for word in sorted(bridge) for key, raised in _RAISED[word].items()}


def take(
    requests: Requests, frame: memoryview, key: int, version: int, correlation_id: int, out: Chunks
) -> None:
    """Raise a request of an old version, and send it on. Raises ProtocolError."""
    requests.counters.requests_raised_total += 1
    answer = Answer(correlation_id, key, version, _lower_fetch if key == ApiKey.FETCH else _lower)
    work = _Raising(requests, frame, answer)
    if len(frame) <= INLINE:
        raised = work.raised()
        for question, asked in work.questions:
            requests.forward(question, asked, out, is_own=True)
        requests.forward(raised, answer, out)
        work.keep()
        return
    requests.place(answer)
    work.item = Item(frame, answer, waits=True)
    work.item.work = work
    requests.put(work.item)
    requests.effects.append(work)


class _Raising(RequestJob):
    """A job that raises one request, for ``ValidationQueue``.

    ``questions``  requests of the gate's own that go to the broker first, and their places
    """

    def __init__(self, requests: Requests, frame: memoryview, answer: Answer) -> None:
        super().__init__(requests, frame)
        self.answer = answer
        self.raising = requests.raised[answer.key]
        self.item: Item | None = None
        self.questions: list[tuple[memoryview, Answer]] = []
        # here, on the loop: in a thread the requests are read only
        self._turn = requests.old_fetches.next_turn() if answer.key == ApiKey.FETCH else 0
        self._raised = frame
        self._held = 0  # for what the answer needs

    def make(self) -> None:
        """Raise the request, in a thread."""
        self._raised = self.raised()

    def finish(self, error: BaseException | None) -> bool:
        """Let the request go on, unless there is an error."""
        requests, item = self.requests, self.item
        assert item is not None
        item.work = None
        if self.cancelled:
            return False
        if error is not None:
            requests.drop(requests.outbox.index(item))
            if isinstance(error, ProtocolError):
                requests.end("request_malformed", str(error))
            else:
                requests.proxy.log_error("a request could not be raised to a newer version", error)
                requests.abort("fault")
            return False
        requests.take_raised(item, self._raised, self.questions)
        self.keep()
        return True

    def keep(self) -> None:
        """Count what the session keeps until the answer comes."""
        if self._held:
            self.requests.keep_now(self.answer, self._held)

    def raised(self) -> memoryview:
        """Return the raised request's frame, without its correlation id. Raises ProtocolError."""
        frame, answer = self._frame, self.answer
        if len(frame) < _HEADER.size:
            raise ProtocolError("the bytes end before the field does", len(frame))
        *_, size = _HEADER.unpack_from(frame)
        at = _HEADER.size + max(0, size)
        if size < -1 or at > len(frame):
            raise ProtocolError("the bytes end before the field does", _HEADER.size - 2)
        head, most = frame[:at], self.requests.limits.max_partitions_per_request
        if answer.key == ApiKey.FETCH:
            return self._framed(head, self._raised_fetch(frame[at:]))
        if answer.key == ApiKey.LIST_OFFSETS:
            request = answer.facts = OldListOffsets(frame[at:], max_partitions=most)
            self._held = request.held
            for timestamp in request.questions():
                asked = Answer(
                    0, answer.key, self.raising.to, partial(_note_offsets, request, timestamp)
                )
                self.questions.append((self._framed(head, request.raised(timestamp)), asked))
            raised = self._framed(head, request.raised())
            request.shrink()
            return raised
        return self._framed(
            head, raise_request(self.raising, answer.version, frame[at:], max_elements=most)
        )

    def _framed(self, head: memoryview, body: bytes) -> memoryview:
        """Return a frame of the raised version with this header's client id."""
        made = bytearray(head) + body
        size = _HEADER.unpack_from(head)[-1]
        _HEADER.pack_into(made, 0, len(made) - 4, self.answer.key, self.raising.to, 0, size)
        return memoryview(made)

    def _raised_fetch(self, body: memoryview) -> bytes:
        requests, limits = self.requests, self.requests.limits
        options = requests.proxy.options
        request = OldFetch(
            body, self.answer.version, max_partitions=limits.max_partitions_per_request
        )
        offsets = [requests.old_fetches.offset_for(wanted) for wanted in request.partitions]
        pairs = zip(request.partitions, offsets, strict=True)
        others = {i: offset for i, (wanted, offset) in enumerate(pairs) if offset != wanted.offset}
        self.answer.facts = FetchFacts(
            body, self.answer.version, limits.max_partitions_per_request, others
        )
        self._held = self.answer.facts.held
        most = max(MIN_FETCHED_BYTES, min(MAX_FETCHED_BYTES, limits.max_bytes_held // SHARE))
        isolation_level = (
            _READ_COMMITTED if options.settings.bridge_isolation_level == "read_committed" else 0
        )
        # below version 3 (KIP-74) answers had no limit: clients do not rotate their partitions
        turn = self._turn if request.is_cut else 0
        return request.raised(offsets, most, isolation_level, turn)


# ---- answers -------------------------------------------------------------------------------------


def _note_offsets(
    request: OldListOffsets, timestamp: int, requests: Requests, answer: Answer, frame: memoryview
) -> None:
    """Keep the broker's answer to a question of the gate's own; the client gets nothing of it."""
    request.note(timestamp, frame[_ANSWER_HEADER:])


def _lower(requests: Requests, answer: Answer, frame: memoryview) -> Chunks | None:
    is_small = max(len(frame), answer.held) <= INLINE
    requests.let_go(answer)
    lowering = _Lowering(requests, answer, frame)
    if is_small:
        return lowering.lowered()
    requests.convert(lowering)
    return None


def _lower_fetch(requests: Requests, answer: Answer, frame: memoryview) -> Chunks | None:
    requests.let_go(answer)
    conversion = FetchConversion(requests, answer, frame)
    if len(frame) <= INLINE and answer.facts.held <= INLINE and is_empty(frame[_ANSWER_HEADER:]):
        conversion.work()
        return conversion.finish()
    requests.convert(conversion)
    return None


class _Lowering(Lowering):
    """A job that lowers a large answer other than Fetch's, for ``ValidationQueue``."""

    def make(self) -> None:
        """Lower the answer, in a thread."""
        self._ready = self.lowered()

    def lowered(self) -> Chunks:
        """Return the answer in the client's version. Raises ProtocolError."""
        answer = self.answer
        body: memoryview | bytes = self._frame[_ANSWER_HEADER:]
        if answer.key == ApiKey.LIST_OFFSETS:
            body = answer.facts.lowered(body)
        else:
            body = lower_answer(self.requests.raised[answer.key], answer.version, body)
        return [struct.pack(">ii", len(body) + 4, answer.correlation_id), body]
