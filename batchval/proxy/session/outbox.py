"""The requests of one session that cannot go on yet: their verdict is awaited, or that of a request
before them.

The first request goes on as soon as nothing is awaited for it any more, and so do those after it,
up to the next that waits: the broker gets requests in the client's order.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from functools import partial
from typing import Final, Protocol

from batchval.proxy.session import handlers
from batchval.proxy.session.answering import Answering
from batchval.proxy.session.budget import Budget
from batchval.proxy.session.lifetime import Lifetime
from batchval.proxy.session.pending import Item, Queue
from batchval.proxy.session.session_states import State

__all__ = ["SEND_S", "Outbox"]

#: Seconds after which the rest of the requests that may go on waits for a later turn of the loop:
#: one with thousands of refused partitions takes a millisecond.
SEND_S: Final = 0.001

_pack_int = struct.Struct(">i").pack_into


class Sending(Queue, Protocol):
    """The part of a session that its outbox uses."""

    lifetime: Lifetime
    budget: Budget
    answering: Answering
    untaken: list[memoryview]

    def bound_waiting(self) -> None: ...
    def read_if_bounded(self) -> None: ...
    def send(self, out: list[bytes | memoryview]) -> None: ...
    def drop_jobs(self) -> None: ...
    def close_if_done(self) -> None: ...
    def count_held(self) -> None: ...


class Outbox(deque[Item]):
    """The queue of requests that are still to be sent."""

    __slots__ = ("_is_put_off", "_session")

    def __init__(self, session: Sending) -> None:
        super().__init__()
        self._session = session
        self._is_put_off = False

    def put(self, item: Item) -> None:
        """Let a request wait for its turn to be sent."""
        self.append(item)
        self._session.waiting += len(item.frame)
        self._session.bound_waiting()

    def validated(self, item: object, error: BaseException | None) -> None:
        """Send on what the item held up, up to the next that waits."""
        session = self._session
        if error is not None:
            if session.lifetime.state is not State.CLOSED:
                session.proxy.log_error("a request could not be validated", error)
                session.abort("judging")
            return
        if isinstance(item, Item) and item.verdict is not None and item.verdict.done:
            item.waits = False
            if not item.verdict.cancelled:
                item.copied = item.verdict.copied_bytes
                session.waiting += item.copied
            self.send_ready()

    def send_ready(self) -> None:
        """Send on the requests that wait for nothing, for SEND_S in one turn of the loop."""
        session = self._session
        out: list[bytes | memoryview] = []
        end = time.perf_counter() + SEND_S
        while self and not self[0].waits:
            self._send_first(out)
            if time.perf_counter() > end:
                self._put_off()
                break
        if out:
            session.send(out)
        session.answering.write_ready()
        session.read_if_bounded()
        session.count_held()
        session.close_if_done()

    def _send_first(self, out: list[bytes | memoryview]) -> None:
        """Take the first request out; add to ``out`` what the broker gets of it."""
        session = self._session
        item = self.popleft()
        session.waiting -= item.size
        if item.request is not None and item.verdict is not None:
            handlers.forward_validated(
                session, item.frame, item.answer, item.request, item.verdict, out
            )
            if session.lifetime.reason == "acks_0_refused":
                self.drop()
        elif item.answer is not None and item.answer.ready is None:  # else it was answered here
            if item.answer.has_id:
                _pack_int(item.frame, 8, session.next_id(item.answer))
            out.append(item.frame)

    def _put_off(self) -> None:
        """Send the rest in a later turn, after others had theirs."""
        if self and not self._is_put_off:
            self._is_put_off = True
            # the turn keeps the session, which may be gone by then
            session = self._session
            session.budget.take_turn(partial(self._send_rest, session), session.account.key)

    def _send_rest(self, session: Sending) -> None:
        self._is_put_off = False
        try:
            self.send_ready()
        except Exception as error:  # outside of a transport's callback nobody would end the session
            session.proxy.log_error("a request could not be sent", error)
            session.abort("fault")

    def drop(self, n: int = 0) -> None:
        """Drop the requests from the n-th on, their places, and all that came after."""
        session = self._session
        first = None
        while len(self) > n:
            item = self.pop()
            session.waiting -= item.size
            if item.verdict is not None:
                item.verdict.cancelled = True
            if item.work is not None:
                item.work.cancel()
                item.work = None  # which knows its item
            first = item.answer or first
        if first is not None:
            session.answering.drop_from(first)
        session.untaken.clear()
        session.drop_jobs()

    def drop_from(self, item: Item) -> None:
        """Drop a request that cannot be sent on, and all after it."""
        self.drop(self.index(item))

    def drop_unvalidated(self) -> None:
        """Drop what a client that is gone waits for; requests without an answer go on (acks=0)."""
        for n, item in enumerate(self):
            if item.waits and item.answer is not None:
                self.drop(n)
                return
