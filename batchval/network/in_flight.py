"""The requests of one connection that await an answer, and the only cap on their number.

A slot is taken before the first byte of a request is written and freed when its answer has
been read, or, where no answer is expected (acks=0), when its last byte is written. So a broker that
answers slowly never holds more than ``cap`` requests. (A cap counted after the write, as in
sarama's pull request 2094, lets cap + 1 through.) No request is written while another is not
written whole (Kafka's InFlightRequests.canSendMore).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from batchval.network.errors import CorrelationIdMismatchError
from batchval.network.option_checks import refusal
from batchval.network.request import AnyRequest

__all__ = ["DEFAULT_MAX_IN_FLIGHT", "Callback", "InFlightRequest", "InFlightRequests"]

DEFAULT_MAX_IN_FLIGHT = 5

#: (response, None) or (None, error); what it returns is awaited before the connection's next
#: callback.
Callback = Callable[[Any, BaseException | None], Awaitable[None] | None]


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request that holds a slot, and its chunks until they are written or the connection ends."""

    request: AnyRequest
    correlation_id: int
    callback: Callback
    sent_ms: float
    timeout_ms: float
    excused_ms: float  # what the connection's count of excused time stood at when this was sent
    chunks: Sequence[bytes | memoryview] = ()
    on_written: Callable[[], None] | None = None
    written_ns: int = 0  # monotonic; where the connection reports times on the wire

    def elapsed_ms(self, now_ms: float, excused_ms: float) -> float:
        """Return how long the broker has had, without the time in which no answer was expected."""
        return max(0.0, now_ms - self.sent_ms - (excused_ms - self.excused_ms))


class InFlightRequests:
    """The slots of one connection. ``cap`` None: no limit, counted all the same.

    ``writing``  the request whose bytes are not all written
    """

    __slots__ = ("_awaiting", "cap", "peak", "writing")

    def __init__(self, cap: int | None = DEFAULT_MAX_IN_FLIGHT) -> None:
        if cap is not None and cap < 1:
            raise refusal("max_in_flight", cap, "at least 1")
        self.cap = cap
        self.peak = 0
        self._awaiting: deque[InFlightRequest] = deque()
        self.writing: InFlightRequest | None = None

    def __len__(self) -> int:
        """Return the number of slots in use."""
        writing = self.writing
        return len(self._awaiting) + (writing is not None and not writing.request.expects_response)

    def __iter__(self) -> Iterator[InFlightRequest]:
        """Yield requests that await an answer, oldest first, then one with acks=0 being written."""
        yield from self._awaiting
        if self.writing is not None and not self.writing.request.expects_response:
            yield self.writing

    def can_send_more(self) -> bool:
        """Return whether a slot can be taken now."""
        return self.writing is None and (self.cap is None or len(self._awaiting) < self.cap)

    def take(self, entry: InFlightRequest) -> None:
        """Take a slot before a request is written. Raises RuntimeError if all are in use."""
        if not self.can_send_more():
            raise RuntimeError(f"no slot: {len(self)} in flight, cap {self.cap}")
        if entry.request.expects_response:
            self._awaiting.append(entry)
        self.writing = entry
        self.peak = max(self.peak, len(self))

    def written(self) -> InFlightRequest | None:
        """Note that all bytes are out and the next request may be written.

        Return the request if it expects no answer (acks=0).
        """
        entry, self.writing = self.writing, None
        if entry is None or entry.request.expects_response:
            return None
        return entry

    def answered(self, correlation_id: int) -> InFlightRequest:
        """Free the oldest request's slot and return the request.

        Raises CorrelationIdMismatchError, and frees nothing, for another correlation id.
        """
        if not self._awaiting:
            raise CorrelationIdMismatchError(
                f"an answer to {correlation_id}, and nothing was asked"
            )
        if self._awaiting[0].correlation_id != correlation_id:
            expected = self._awaiting[0].correlation_id
            raise CorrelationIdMismatchError(
                f"an answer to {correlation_id} where one to {expected} was due"
            )
        return self._awaiting.popleft()

    def clear(self) -> list[InFlightRequest]:
        """Free all slots of a dead connection; return their requests, oldest first."""
        outstanding = list(self)
        self._awaiting.clear()
        self.writing = None
        return outstanding
