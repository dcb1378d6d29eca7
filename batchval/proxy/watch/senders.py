"""One account for each sender: what it has used of what all clients share.

    sender   the principal where there is one, else the address (of IPv6, its /64)
    share    its place in virtual time, with the CPU seconds that validation has taken
    uses     other amounts, each halved every HALF_LIFE_S

An account outlives connections. A sender is new until KNOWN_AFTER jobs were done for it.
New senders are served together, as one, so that a name that nobody has seen before brings nothing.
The table is bounded: the oldest new account makes way for another new one, and a known one only
after it has used nothing for FORGET_S. Where none of these can go, a sender stays new.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from batchval.proxy.settings.options import ANONYMOUS
from batchval.token_bucket import TokenBucket

__all__ = [
    "NOBODY",
    "READ_BYTES",
    "RULE_S",
    "DecayingAmount",
    "LineShares",
    "Sender",
    "SenderTable",
    "Share",
    "sender_key",
]

#: Jobs after which a sender is known, or a session among those of its sender.
KNOWN_AFTER: Final = 8
#: Accounts of known senders, and of new ones.
MAX_KNOWN: Final = 5_000
MAX_NEW: Final = 5_000
#: Seconds without any use after which a known account may be forgotten.
FORGET_S: Final = 600.0
#: Seconds in which half of what was used, and of what is owed, is forgotten.
HALF_LIFE_S: Final = 60.0
#: Seconds in which half of the longest piece of work is forgotten.
PIECE_HALF_LIFE_S: Final = 10.0
#: Virtual seconds that a share may owe.
MAX_DEBT_S: Final = 10.0
#: Seconds of a piece of work up to which it holds nobody up, and those of one that was not finished.
SHORT_S: Final = 0.02
LONG_S: Final = 1.0
#: CPU seconds that each byte of a request pays for, and the bytes that every request has besides.
#: Gzip and zstd of 64 kB take a tenth of it. What costs more counts more: twice as much, twice.
NORMAL_S_PER_BYTE: Final = 2e-7
FLOOR_BYTES: Final = 4_096
#: What accounts count by kind: bytes of records that validation has read, decompressed, and CPU
#: seconds of custom rules.
READ_BYTES: Final = "read_bytes"
RULE_S: Final = "custom_rule_seconds"
#: How much of a log line is left of it as long as its sender has had one.
LOGGED: Final = 0.5
#: Bits of an IPv6 address that name a sender: one host may have all addresses of a /64.
IPV6_PREFIX: Final = 64


def sender_key(principal: str, address: str) -> str:
    """Return the name of a sender: its principal, or its address where it has none."""
    if principal and principal != ANONYMOUS:
        return principal
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, IPV6_PREFIX), strict=False))


def virtual_cost_s(cost_s: float, size: int) -> float:
    """Return the virtual seconds of work that took ``cost_s`` of CPU for ``size`` bytes.

    They are the CPU seconds where the bytes pay for these, and more by as much as they do not: a
    small batch that decompresses to much is served after those that were sent in full.
    """
    paid_s = (size + FLOOR_BYTES) * NORMAL_S_PER_BYTE
    return cost_s * max(1.0, cost_s / paid_s)


class DecayingAmount:
    """An amount of one kind that a sender has used; half of it is forgotten after HALF_LIFE_S."""

    __slots__ = ("_amount", "_noted_s")

    def __init__(self) -> None:
        self._amount = 0.0
        self._noted_s = 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Add to the amount."""
        self._amount = self.of(now_s) + amount
        self._noted_s = now_s

    def of(self, now_s: float) -> float:
        """Return the amount that is left of it now."""
        return self._amount * _left(now_s - self._noted_s, HALF_LIFE_S)


class Share:
    """The place of a sender, or of one of its sessions, in virtual time.

    ``start_s``  virtual seconds; of those who wait, the smallest is served first
    ``clock_s``  the start that was served last among the shares inside of this one
    ``jobs``     those that were done
    ``piece_s``  seconds of the longest piece of work; half of it after PIECE_HALF_LIFE_S
    ``used``     CPU seconds
    """

    __slots__ = (
        *("_buckets", "_settled_s", "clock_s", "noted_s"),
        *("jobs", "piece_s", "start_s", "used"),
    )

    def __init__(self) -> None:
        self.start_s = 0.0
        self.clock_s = 0.0
        self.jobs = 0
        self.piece_s = 0.0
        self.used = DecayingAmount()
        self.noted_s = 0.0  # when the last piece was done
        self._settled_s = 0.0  # until when the debt has been halved
        self._buckets: dict[str, TokenBucket] = {}

    def may(self, kind: str, per_second: float, most: float, clock: Callable[[], float]) -> bool:
        """Take one token of its own bucket of a kind; return False where it has none."""
        bucket = self._buckets.get(kind)
        if bucket is None or (bucket.per_second, bucket.most) != (per_second, most):
            bucket = self._buckets[kind] = TokenBucket(per_second, most, clock)
        return bucket.take()

    @property
    def is_known(self) -> bool:
        """Return whether enough was done for it to say what its work costs."""
        return self.jobs >= KNOWN_AFTER

    def is_short(self, now_s: float) -> bool:
        """Return whether its work has held nobody up lately."""
        if not self.is_known:
            return False
        return self.piece_s * _left(now_s - self.noted_s, PIECE_HALF_LIFE_S) <= SHORT_S

    def join(self, clock_s: float, now_s: float) -> None:
        """Begin to wait where others are served at ``clock_s``.

        What it has not used while it was idle is lost. What it owes is kept, but for what time has
        halved of it.
        """
        debt_s = min(self.start_s - clock_s, MAX_DEBT_S)
        if debt_s > 0.0:
            debt_s *= _left(now_s - self._settled_s, HALF_LIFE_S)
        self._settled_s = now_s
        self.start_s = clock_s + max(0.0, debt_s)

    def note(self, cost_s: float, now_s: float, *, is_done: bool = True) -> None:
        """Note a piece of work; ``is_done``: the last one of its job."""
        idle_s = now_s - self.noted_s
        self.noted_s = self._settled_s = now_s
        self.jobs += is_done
        self.piece_s = max(cost_s, self.piece_s * _left(idle_s, PIECE_HALF_LIFE_S))
        self.used.add(cost_s, now_s)

    def note_long(self) -> None:
        """Note that the last piece of work was not finished: it takes longer than a short one."""
        self.piece_s = max(self.piece_s, LONG_S)


class Sender:
    """The account of one sender. On the loop, but for what says otherwise.

    ``key``         its principal or its address
    ``is_known``    whether the table has a place of its own for it
    ``share``       that place, among the senders
    ``newcomers``   the one place of all its sessions that are new, among its sessions
    ``uses``        other amounts by kind: READ_BYTES, RULE_S, log lines of each log
    """

    __slots__ = ("_strangers", "is_known", "key", "newcomers", "share", "uses")

    def __init__(self, key: str, strangers: Share) -> None:
        self.key = key
        self.is_known = False
        self.share = Share()
        self.newcomers = Share()
        self.uses: dict[str, DecayingAmount] = {}
        self._strangers = strangers

    @property
    def place(self) -> Share:
        """Return its place among the senders: the one of all that are new, until it is known."""
        return self.share if self.is_known else self._strangers

    def use(self, kind: str, amount: float, now_s: float) -> None:
        """Add to what it has used of one kind."""
        found = self.uses.get(kind)
        if found is None:
            found = self.uses[kind] = DecayingAmount()
        found.add(amount, now_s)

    def used(self, kind: str, now_s: float) -> float:
        """Return what it has used of one kind lately."""
        found = self.uses.get(kind)
        return 0.0 if found is None else found.of(now_s)


#: The account of work that has no sender, as in tests and benches.
NOBODY: Final = Sender("", Share())


class LineShares:
    """A bound on log lines, of which each sender gets some.

    Lines are ``per_second``, up to ``most`` at once. Where these are used up, a sender that has had
    no line lately still gets one, out of as many again: a flood of one hides nobody else.

    ``kind``  of the lines, as their senders' accounts name it
    """

    def __init__(self, kind: str, per_second: float, most: float, senders: SenderTable) -> None:
        self._kind = kind
        self._senders = senders
        self._lines = TokenBucket(per_second, most, senders.clock)
        self._reserve = TokenBucket(per_second, most, senders.clock)

    def take(self, principal: str, client: str) -> bool:
        """Return whether a line about a client (``host:port``) may be written; count it then."""
        now_s = self._senders.clock()
        sender = self._senders.of_client(principal, client)
        is_bare = sender.used(self._kind, now_s) < LOGGED
        may = self._lines.take() or (is_bare and self._reserve.take())
        if may:
            sender.use(self._kind, 1.0, now_s)
        return may


class SenderTable:
    """The accounts of all senders of a gate, in one process.

    ``newcomers``  the one place of all senders that are new, among the senders
    ``clock_s``    the start that was served last among the senders
    """

    def __init__(
        self,
        *,
        max_known: int = MAX_KNOWN,
        max_new: int = MAX_NEW,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.newcomers = Share()
        self.clock_s = 0.0
        self.clock = clock
        self._max_known = max_known
        self._max_new = max_new
        self._known: OrderedDict[str, Sender] = OrderedDict()  # the one that has used last is last
        self._new: OrderedDict[str, Sender] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known) + len(self._new)

    def __iter__(self) -> Iterator[Sender]:
        """Iterate over a copy of the accounts."""
        yield from [*self._known.values(), *self._new.values()]

    def of(self, principal: str, address: str) -> Sender:
        """Return the account of a sender; a new one where it has none."""
        return self.of_key(sender_key(principal, address))

    def of_client(self, principal: str, client: str) -> Sender:
        """Return the account of a sender by its principal and its client's ``host:port``."""
        return self.of(principal, client.rpartition(":")[0])

    def of_key(self, key: str) -> Sender:
        """Return the account by the name of its sender."""
        found = self._known.get(key)
        if found is not None:
            return found
        found = self._new.get(key)
        if found is None:
            if len(self._new) >= self._max_new:
                self._new.popitem(last=False)
            found = self._new[key] = Sender(key, self.newcomers)
        return found

    def heaviest(self, now_s: float) -> tuple[Sender | None, float]:
        """Return the sender that has used the most CPU lately, and its share of all of it."""
        found, most_s, all_s = None, 0.0, 0.0
        for one in self:
            used_s = one.share.used.of(now_s)
            all_s += used_s
            if used_s > most_s:
                found, most_s = one, used_s
        return found, most_s / all_s if all_s else 0.0

    def noted(self, sender: Sender, now_s: float) -> None:
        """Note that work was done for a sender; it becomes known by the last piece that it needs.

        Its place begins where the newcomers are by then, so it has gained nothing.
        """
        if sender.is_known:
            if sender.key in self._known:
                self._known.move_to_end(sender.key)
        elif sender.share.is_known and self._has_place(now_s):
            self._new.pop(sender.key, None)
            sender.share.start_s = max(sender.share.start_s, self.newcomers.start_s)
            sender.is_known = True
            self._known[sender.key] = sender

    def _has_place(self, now_s: float) -> bool:
        """Forget a known account that has used nothing for long, where the table is full."""
        if len(self._known) < self._max_known:
            return True
        key, oldest = next(iter(self._known.items()))
        if now_s - oldest.share.noted_s <= FORGET_S:
            return False
        del self._known[key]
        oldest.is_known = False
        return True


def _left(idle_s: float, half_life_s: float) -> float:
    """Return the part that is left after a time."""
    return 1.0 if idle_s <= 0.0 else float(0.5 ** (idle_s / half_life_s))
