"""The memory and time that all connections of a gate may use together: one object for all
listeners.

    bytes         requests and answers that wait here, counted as the memory that they take
    connections   of all clients, and of one client address
    turns         work on the event loop that has to go on later, one slice in each turn of the
                  loop, senders in turn

Above the limit on bytes, a session that holds something is paused: neither its client nor its
broker is read. Paused sessions go on in turn, a few at a time, so that incomplete requests and
answers never wait for each other: one that grows goes on until it is whole, others for GRANT_S. One
whose incomplete request does not grow in that time is closed. Large requests come one after the
other, as far as all of each fits. Sessions that hold much stop earlier than others, so that small
requests pass. Above the limit, a client that has taken nothing of its answers for UNTAKEN_S is
closed.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from batchval.protocol.frames import SpareBlock, allocated, limit_memory
from batchval.proxy.session.connections import Connections
from batchval.proxy.session.fast_path import TurnLimits
from batchval.proxy.session.requests import Requests
from batchval.proxy.settings.config import Limits
from batchval.proxy.settings.options import Counters

__all__ = ["Budget", "Holder", "held_by"]

#: Connections that one address may have at least, where no setting bounds them.
MIN_ADDRESS_CONNECTIONS: Final = 100
#: Bytes that a session may hold and still use the share that is reserved for small ones.
SMALL: Final = 2 << 20
#: The share of the limit that sessions which hold more leave free; at most MAX_RESERVED_BYTES.
RESERVED: Final = 8
MAX_RESERVED_BYTES: Final = 64 << 20
#: A request is large above this share of the limit.
LARGE: Final = 16
#: How far sessions that hold little may go beyond the limit, once they have sent a whole request:
#: the share of the limit is RESERVED again, at most this many bytes.
MAX_BYTES_BEYOND: Final = 32 << 20
#: Sessions that go on at a time although the limit is reached, and for how long each, in seconds.
GRANTS: Final = 4
GRANT_S: Final = 0.25
#: Between looks at the paused sessions, in seconds.
LOOK_S: Final = 0.05
#: Seconds without a change of what is held, after which one more session goes on.
STILL_S: Final = 1.0
#: Seconds of one turn of the loop that sessions may use together, besides the fast path.
TURN_S: Final = 0.002
#: Seconds after which those whose requests are not whole wait for later turns.
LONG_TURN_S: Final = 0.005
#: Paused sessions that are looked at in one turn of the loop.
MAX_EXAMINED_SESSIONS: Final = 1000
#: Paused sessions of which one turn asks the kernel what they have sent: 3 microseconds each.
MAX_ASKED_SESSIONS: Final = 200
#: Seconds for which one turn closes sessions, or lets them go on.
LOOKED_S: Final = 0.001
#: Seconds in which a client takes nothing of its answers, after which it may be closed.
UNTAKEN_S: Final = 10.0
#: A frame in part that holds less is not worth closing its connection.
MIN_CLOSED_BYTES: Final = 32 << 10


class Holder(Protocol):
    """The part of a session that the budget uses."""

    @property
    def connections(self) -> Connections: ...
    @property
    def requests(self) -> Requests: ...
    def pause(self) -> None: ...
    def go_on(self) -> None: ...
    def abort(self, why: str) -> None: ...


def held_by(session: Holder) -> int:
    """Return about how many bytes a session holds: frames in part, and what waits."""
    return session.connections.held() + session.requests.held()


def _came(session: Holder) -> int:
    """Return what has come of a session's unfinished request, and of its unfinished answer."""
    return session.connections.partial_bytes() + session.connections.answer_bytes()


@dataclass(slots=True)
class _Large:
    """A large request on its way."""

    size: int
    since: float
    came: int = 0


class Budget(TurnLimits):
    """The bounds that connections share. ``start`` it on the running loop."""

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self.counters = counters
        self._bound_bytes(limits.max_bytes_held)
        self._address_connections = limits.max_connections_per_address
        self.bound_connections(limits.max_connections)
        #: above so many bytes in blocks, a session that has read something is looked at
        self.blocks_limit = self.threshold
        self.spare = SpareBlock()  # of all connections
        self.other = 0  # bytes that sessions hold outside of the blocks that frames are read into
        self._by_address: dict[str, int] = {}
        self._paused: dict[Holder, float] = {}  # since when, in that order
        self._resumed = 0  # bytes that sessions may read that go on since this turn of the loop
        self._unlooked: Iterator[Holder] = iter(())  # paused ones, for _close_silent
        # until when, and what had come of its request and its answer
        self._granted: dict[Holder, tuple[float, int]] = {}
        #: requests above ``large`` bytes that may come, with the bytes they state, what has come,
        #: and since when
        self._large: dict[Holder, _Large] = {}
        self._waiting: dict[Holder, int] = {}  # those that wait for these to be whole
        # clients that do not take their answers: what waited for each, and since when
        self._full: dict[Holder, tuple[int, float]] = {}
        self._turns: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()  # by sender
        self._is_turn_due = False  # the loop will call _next_turn
        # what sessions have used of this turn of the loop, besides the fast path
        self.spent_s = 0.0
        self._turn_began = 0.0  # when the first request in part was read
        self._still = (0, 0.0)  # what was held when that changed last, and when
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind to the loop. Blocks for frames become smaller as the limit comes near."""
        self._loop = loop
        limit_memory(self.limit)

    def use(self, limits: Limits, max_connections: int) -> None:
        """Bound by other limits from now on; what is above them is paused at its next look."""
        self._bound_bytes(limits.max_bytes_held)
        self._set_blocks_limit()
        self._address_connections = limits.max_connections_per_address
        self.bound_connections(max_connections)
        if self._loop is not None:
            limit_memory(self.limit)
        if self._paused or self._waiting:
            self._start_timer()

    def _bound_bytes(self, limit: int) -> None:
        self.limit = limit
        self.threshold = limit - min(limit // RESERVED, MAX_RESERVED_BYTES)
        self.beyond = min(limit // RESERVED, MAX_BYTES_BEYOND)
        self.large = max(SMALL, limit // LARGE)

    # ---- connections -----------------------------------------------------------------------------

    def bound_connections(self, most: int) -> None:
        """Bound the connections of all clients; of one address without a setting, half of them."""
        self.max_connections = most
        half = max(MIN_ADDRESS_CONNECTIONS, most // 2)
        self.max_address_connections = self._address_connections or half

    def free_connections(self) -> int:
        """Return how many more clients there may be."""
        return self.max_connections - self.counters.connections_open

    def refuse(self, why: str) -> None:
        """Count a client that may not connect."""
        counters = self.counters
        counters.connections_refused_total += 1
        counters.connections_refused_by[why] = counters.connections_refused_by.get(why, 0) + 1

    def admit(self, address: str, open_here: int, most_here: int) -> str | None:
        """Count one more connection from ``address``; return why it is refused, or None.

        ``open_here`` and ``most_here``: connections of its listener, and how many that may have.
        """
        counters = self.counters
        why = None
        if counters.connections_open >= self.max_connections:
            why = "max_connections"
        elif open_here >= most_here:
            why = "max_listener_connections"
        elif self._by_address.get(address, 0) >= self.max_address_connections:
            why = "max_connections_per_address"
        if why is not None:
            self.refuse(why)
            return why
        self._by_address[address] = self._by_address.get(address, 0) + 1
        counters.connections_total += 1
        counters.connections_open += 1
        return None

    def release(self, session: Holder, address: str) -> None:
        """Forget a session of this address both of whose connections are gone."""
        self._paused.pop(session, None)
        self._granted.pop(session, None)
        self._full.pop(session, None)
        if not self._paused:
            self._unlooked = iter(())  # it may hold this one
        self.end_large(session)
        self.count(session, 0)
        self._set_blocks_limit()
        self.measure()
        self.release_connection(address)  # last: at 0 nothing is held any more

    def release_connection(self, address: str) -> None:
        """Forget a connection that ``admit`` has counted."""
        count = self._by_address.get(address, 0) - 1
        if count > 0:
            self._by_address[address] = count
        else:
            self._by_address.pop(address, None)
        self.counters.connections_open -= 1

    # ---- bytes -----------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Return the bytes of requests and answers that wait in the proxy."""
        return int(allocated()) + self.other

    def measure(self) -> int:
        """Return ``held``, which the metrics show from then on."""
        held = self.counters.bytes_held = self.held
        return held

    def count(self, session: Holder, other: int) -> None:
        """Note what a session holds outside of blocks."""
        if other != session.connections.counted:
            self.other += other - session.connections.counted
            session.connections.counted = other
            self._set_blocks_limit()

    def _set_blocks_limit(self) -> None:
        self.blocks_limit = -1 if self._paused else self.threshold - self.other

    def look(self, session: Holder, *, spoke: bool) -> None:
        """Pause a session that may not hold more for now. Called after it has read or written.

        ``spoke``  whether its client has sent a whole request
        """
        held = self.measure()
        if held <= self.threshold:
            if self._paused:
                self._resume(held)
            return
        if session in self._granted:
            if not _came(session):  # its request or its answer is whole: others may go on
                self._pause(session)
            return
        if session in self._paused or session in self._waiting:
            return
        own = held_by(session)
        # a client that has sent a whole request before may hold more than one that has not
        limit = self.limit + self.beyond if spoke else self.threshold
        if own and (held > limit or own > SMALL):
            self._pause(session)
            self._start_timer()

    def _pause(self, session: Holder) -> None:
        self._granted.pop(session, None)
        self._paused[session] = 0.0 if self._loop is None else self._loop.time()
        self._set_blocks_limit()
        session.pause()

    def _unpause(self, session: Holder) -> None:
        del self._paused[session]
        self._set_blocks_limit()

    def _evict(self, session: Holder) -> None:
        """Close a session whose request grows slowest."""
        self.counters.frames_evicted_total += 1
        session.abort("frame_slow")

    def note_full(self, session: Holder, is_full: bool) -> None:
        """Note whether a session's client does not take its answers."""
        if is_full:
            self._full[session] = (-1, 0.0)
        else:
            self._full.pop(session, None)

    def _close_untaken(self) -> None:
        """Close the client that holds most of those that have taken nothing for UNTAKEN_S."""
        assert self._loop is not None
        now = self._loop.time()
        worst, most = None, MIN_CLOSED_BYTES
        for session in list(itertools.islice(self._full, MAX_EXAMINED_SESSIONS)):
            left, since = self._full.pop(session)  # others come first the next time
            own = session.connections.unwritten()
            if own != left:
                since = now
            elif now - since > UNTAKEN_S and own > most:
                worst, most = session, own
            self._full[session] = (own, since)
        if worst is not None:
            self.counters.answers_evicted_total += 1
            worst.abort("answers_untaken")

    # ---- large requests --------------------------------------------------------------------------

    def begin_large(self, session: Holder, size: int) -> None:
        """Let a large request come, or pause its client until all of it fits."""
        if session in self._large or session in self._waiting or self._loop is None:
            return
        if self._fits(size):
            self._large[session] = _Large(size, self._loop.time())
        else:
            self._waiting[session] = size
            session.pause()
            self._start_timer()

    def end_large(self, session: Holder) -> None:
        """Note that a large request is whole, or that its client has left: others may fit now."""
        self._waiting.pop(session, None)
        if self._large.pop(session, None) is None or self._loop is None:
            return
        for other, size in list(self._waiting.items()):
            if not self._fits(size):
                return
            del self._waiting[other]
            self._large[other] = _Large(size, self._loop.time())
            if other not in self._paused:
                other.go_on()

    def _fits(self, size: int) -> bool:
        coming = sum(one.size for one in self._large.values())
        return not self._large or coming + size <= self.threshold

    def _close_silent_large(self) -> None:
        """Close large requests that do not grow while others wait."""
        assert self._loop is not None
        now = self._loop.time()
        for session, one in list(self._large.items()):
            came = session.connections.partial_bytes()
            if came != one.came:
                one.came, one.since = came, now
            elif session in self._paused:
                one.since = now  # it cannot grow
            elif (
                now - one.since > GRANT_S
                and session.connections.is_read()
                and session.connections.unread() == 0
            ):
                self._evict(session)

    def _start_timer(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(LOOK_S, self._turn)

    def _turn(self) -> None:
        """Let paused sessions go on: those that fit again, and a few of the others in turn."""
        self._timer = None
        held = self.measure()
        if self._waiting:
            self._close_silent_large()
        if held > self.limit:
            self._close_untaken()
        if held <= self.threshold:
            self._resume(held)
        if held > self.threshold:
            held = self._close_silent(held)
        if self._paused or self._granted:
            self._grant()
        if self._paused or self._granted or self._waiting:
            self._start_timer()

    def _resume(self, held: int) -> None:
        """Resume as many as the budget allows, those that hold little first in their order."""
        free = self.threshold - held - self._resumed
        end = time.perf_counter() + LOOKED_S
        for session in list(itertools.islice(self._paused, MAX_EXAMINED_SESSIONS)):
            if free <= 0 or time.perf_counter() > end:
                return
            size = max(held_by(session), SMALL // 8)
            free -= size
            self._note_resumed(size)
            self._unpause(session)
            if session not in self._waiting:
                session.go_on()

    def _note_resumed(self, size: int) -> None:
        """Keep what a session may read in the next turn of the loop from others until then."""
        if not self._resumed and self._loop is not None:
            self._loop.call_soon(self._have_read)
        self._resumed += size

    def _have_read(self) -> None:
        self._resumed = 0

    def _grant(self) -> None:
        """Let a few sessions with frames in part go on; close one that does not use its time."""
        assert self._loop is not None
        now = self._loop.time()
        self._end_grants(now)
        sessions = itertools.islice(self._paused, MAX_EXAMINED_SESSIONS)
        partial = sum(session.connections.partial_held() for session in sessions)
        most = GRANTS
        if self.held - partial > self.limit:
            if not self._stands_still() or self.held > self.limit + self.beyond:
                return  # peers have to take whole requests and answers first
            most = 1
        examined = list(itertools.islice(self._paused, MAX_EXAMINED_SESSIONS))
        # those that have begun come first: to let others begin would hold more
        for session in sorted(examined, key=lambda one: not _came(one)):
            if len(self._granted) >= most:
                return
            size = session.connections.partial_size()
            if size > SMALL and any(
                other.connections.partial_size() > SMALL for other in self._granted
            ):
                continue  # one large request or answer at a time
            self._unpause(session)
            self._granted[session] = (now + GRANT_S, _came(session))
            session.go_on()

    def _close_silent(self, held: int) -> int:
        """Close paused sessions whose requests do not grow: nothing of them waits to be read.

        Returns what is held then.
        """
        assert self._loop is not None
        before = self._loop.time() - GRANT_S
        end = time.perf_counter() + LOOKED_S
        for session in (
            list(itertools.islice(self._unlooked, MAX_ASKED_SESSIONS)) or self._look_again()
        ):
            if self._paused.get(session, before) >= before:
                continue
            own = session.connections.partial_bytes()
            if own <= MIN_CLOSED_BYTES:
                continue
            if session.connections.is_read() and session.connections.unread() == 0:
                self._evict(session)
                held -= own
                if held <= self.threshold or time.perf_counter() > end:
                    break
        return held

    def _look_again(self) -> list[Holder]:
        """Begin another round through the paused sessions: return the first of them."""
        self._unlooked = iter(list(self._paused))
        return list(itertools.islice(self._unlooked, MAX_ASKED_SESSIONS))

    def _stands_still(self) -> bool:
        """Return whether what is held has not changed for a while: then one session may go on.

        Peers may be slow. But an error in what is counted as incomplete must not stop all sessions.
        """
        assert self._loop is not None
        now, held = self._loop.time(), self.held
        if held != self._still[0]:
            self._still = (held, now)
        return now - self._still[1] > STILL_S

    def _end_grants(self, now: float) -> None:
        for session, (until, before) in list(self._granted.items()):
            came = _came(session)
            if came > before:  # it makes progress
                self._granted[session] = (now + GRANT_S, came)
                continue
            if came and now < until:
                continue
            self._pause(session)
            stands_still = (
                came == before
                and session.connections.partial_bytes() > MIN_CLOSED_BYTES
                and session.connections.is_read()
            )
            if stands_still and self.held > self.threshold:
                self._evict(session)

    # ---- turns -----------------------------------------------------------------------------------

    def note_work(self, seconds: float) -> None:
        """Note time that a session used on the loop; above TURN_S others wait for the next turn."""
        if not self.spent_s and self._loop is not None:
            self._loop.call_soon(self._new_turn)
        self.spent_s += seconds

    def is_turn_long(self) -> bool:
        """Return whether this turn of the loop has lasted for LONG_TURN_S since the first call.

        The reads that are still to come in such a turn bring little.
        """
        if self._loop is None:
            return False
        now = time.perf_counter()
        if not self._turn_began:
            self._turn_began = now
            self._loop.call_soon(self._new_turn)
        is_long = now - self._turn_began > LONG_TURN_S
        if is_long:
            self.spare.shorten(True)
        return is_long

    def _new_turn(self) -> None:
        self.spent_s = self._turn_began = 0.0
        self.spare.shorten(False)

    def take_turn(self, work: Callable[[], None], sender: str = "") -> None:
        """Call ``work`` in a later turn of the loop. Senders follow each other."""
        self._turns.setdefault(sender, deque()).append(work)
        self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        assert self._loop is not None
        if self._turns and not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Call what waited before this turn of the loop, for TURN_S at most.

        One call a turn would let few sessions that fill each turn delay a crowd of small ones.
        """
        self._is_turn_due = False
        waiting = sum(map(len, self._turns.values()))
        end = time.perf_counter() + TURN_S
        try:
            while waiting and time.perf_counter() < end:
                waiting -= 1
                sender, works = self._turns.popitem(last=False)
                work = works.popleft()
                if works:
                    self._turns[sender] = works
                work()
        finally:
            self._ask_for_turn()
