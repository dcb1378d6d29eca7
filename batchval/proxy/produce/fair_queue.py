"""Jobs in the order of virtual time (start-time fair queueing), by sender and by session in it.

    put    the sender and its session begin to wait, not ahead of the one that is served
    take   the sender with the smallest start, its session with the smallest, its oldest job
    charge what the job has cost moves both on

Senders that are new share one place, and so do the new sessions of a sender: a new connection or a
new name comes after those that are known, also where both have used nothing.
https://doi.org/10.1109/90.649569 (P. Goyal, H. M. Vin, H. Cheng)
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

from batchval.proxy.watch.senders import Sender, SenderTable, Share, virtual_cost_s

__all__ = ["FairJob", "FairQueue", "QueuedClient", "charge", "shares_of"]

#: Virtual seconds that a job counts until its cost is known, so that those of one session do not
#: take all threads at once.
EXPECTED_S: Final = 0.001


class QueuedClient(Protocol):
    """A client for which work is done: its sender's account, and its share of what that gets."""

    account: Sender
    share: Share


class FairJob(Protocol):
    """A job that waits.

    ``cost_s``  CPU seconds until now
    ``shares``  of the sender and of the session, in which it has waited last
    ``size``    bytes that it came with
    """

    cost_s: float
    shares: tuple[Share, Share] | None

    @property
    def client(self) -> QueuedClient: ...
    @property
    def size(self) -> int: ...
    @property
    def cancelled(self) -> bool: ...


J = TypeVar("J", bound=FairJob)

#: A share in a heap: where it waits, whether it is that of newcomers, a number for its turn.
_Entry = tuple[float, bool, int, Share]


class _Inner(Generic[J]):
    """The sessions of one sender that wait, by their shares; new ones are in one of them."""

    __slots__ = ("order", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Share, deque[deque[J]]] = {}
        self.order: list[_Entry] = []


class FairQueue(Generic[J]):
    """Jobs that wait.

    Two queues may have jobs of the same senders: what these have used is the senders' own.

    ``count``  those that wait, with the cancelled ones that were not dropped
    """

    def __init__(self, senders: SenderTable) -> None:
        self.count = 0
        self._senders = senders
        self._jobs: dict[QueuedClient, deque[J]] = {}
        self._waiting: dict[Share, _Inner[J]] = {}
        self._order: list[_Entry] = []
        self._number = itertools.count()

    def put(self, job: J, *, first: bool = False) -> None:
        """Let a job wait; ``first``: before other jobs of its session."""
        self.count += 1
        jobs = self._jobs.get(job.client)
        if jobs is None:
            jobs = self._jobs[job.client] = deque()
            self._place(job.client, jobs)
        if first:
            jobs.appendleft(job)
        else:
            jobs.append(job)

    def _place(self, client: QueuedClient, jobs: deque[J]) -> None:
        """Let a session wait in its share, and that in its sender's."""
        now_s = self._senders.clock()
        outer, inner = shares_of(client)
        found = self._waiting.get(outer)
        if found is None:
            found = self._waiting[outer] = _Inner()
            outer.join(self._senders.clock_s, now_s)
            is_new = outer is self._senders.newcomers
            heapq.heappush(self._order, (outer.start_s, is_new, next(self._number), outer))
        sessions = found.waiting.get(inner)
        if sessions is None:
            sessions = found.waiting[inner] = deque()
            inner.join(outer.clock_s, now_s)
            is_new = inner is client.account.newcomers
            heapq.heappush(found.order, (inner.start_s, is_new, next(self._number), inner))
        sessions.append(jobs)

    def peek(self) -> J | None:
        """Return the job that is next; None where none waits. Cancelled ones before it are dropped."""
        while _move_on(self._order):
            outer = self._order[0][3]
            found = self._peek_inner(self._waiting[outer])
            if found is not None:
                return found
            heapq.heappop(self._order)
            del self._waiting[outer]
        return None

    def _peek_inner(self, found: _Inner[J]) -> J | None:
        """Return the next job of one sender; None where all that wait are cancelled."""
        while _move_on(found.order):
            share = found.order[0][3]
            sessions = found.waiting[share]
            while sessions:
                jobs = sessions[0]
                while jobs and jobs[0].cancelled:
                    self._remove_first(jobs)
                if jobs:
                    return jobs[0]
                sessions.popleft()
            heapq.heappop(found.order)
            del found.waiting[share]
        return None

    def _remove_first(self, jobs: deque[J]) -> J:
        """Take the first job of a session out; a session without jobs is forgotten."""
        job = jobs.popleft()
        self.count -= 1
        if not jobs:
            self._jobs.pop(job.client, None)
        return job

    @property
    def next_start_s(self) -> float:
        """Return where the sender waits that is served next, in virtual seconds.

        Call ``peek`` before; without a job that waits it is infinite.
        """
        return self._order[0][0] if self._order else float("inf")

    def take(self) -> J | None:
        """Return the job that is next, which waits no more; None where none does."""
        if self.peek() is None:
            return None
        _, outer_new, _, outer = self._order[0]
        found = self._waiting[outer]
        _, inner_new, _, inner = found.order[0]
        sessions = found.waiting[inner]
        jobs = sessions.popleft()
        job = self._remove_first(jobs)
        job.shares = outer, inner
        if jobs:
            sessions.append(jobs)
        self._senders.clock_s = max(self._senders.clock_s, outer.start_s)
        outer.clock_s = max(outer.clock_s, inner.start_s)
        outer.start_s += EXPECTED_S
        inner.start_s += EXPECTED_S
        if sessions:
            entry = inner.start_s, inner_new, next(self._number), inner
            heapq.heapreplace(found.order, entry)
        else:
            heapq.heappop(found.order)
            del found.waiting[inner]
        if found.waiting:
            entry = outer.start_s, outer_new, next(self._number), outer
            heapq.heapreplace(self._order, entry)
        else:
            heapq.heappop(self._order)
            del self._waiting[outer]
        return job

    def drop(self, client: QueuedClient) -> None:
        """Forget a session's cancelled jobs. Its place is found empty later."""
        jobs = self._jobs.get(client)
        if jobs is None:
            return
        kept = [job for job in jobs if not job.cancelled]
        self.count -= len(jobs) - len(kept)
        jobs.clear()
        jobs.extend(kept)
        if not jobs:
            del self._jobs[client]


def _move_on(order: list[_Entry]) -> bool:
    """Let the first entries that were charged meanwhile move on; return whether any entry waits."""
    while order:
        start_s, is_new, number, share = order[0]
        if share.start_s <= start_s:
            return True
        heapq.heapreplace(order, (share.start_s, is_new, number, share))
    return False


def shares_of(client: QueuedClient) -> tuple[Share, Share]:
    """Return where a session waits: its sender's share, and its own inside of that."""
    account = client.account
    is_known = account.is_known and client.share.is_known
    return account.place, client.share if is_known else account.newcomers


def charge(job: FairJob, used_s: float, senders: SenderTable, *, is_done: bool = True) -> None:
    """Charge what a piece of work has cost to the shares in which its job has waited.

    ``used_s`` is CPU time in seconds; ``is_done``: the job has ended with it. A session or a sender
    that becomes known by it goes on from where the newcomers are.
    """
    now_s = senders.clock()
    assert job.shares is not None  # take has set them
    outer, inner = job.shares
    before_s = virtual_cost_s(job.cost_s, job.size)
    job.cost_s += used_s
    cost_s = virtual_cost_s(job.cost_s, job.size) - before_s - EXPECTED_S
    outer.start_s += cost_s
    inner.start_s += cost_s
    client = job.client
    account = client.account
    for share in {outer, inner, account.share, client.share}:
        share.note(used_s, now_s, is_done=is_done)
    if inner is account.newcomers and client.share.is_known:
        client.share.start_s = max(client.share.start_s, inner.start_s)
    senders.noted(account, now_s)
