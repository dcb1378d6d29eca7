"""How many brokers a gate knows at most, and which of them it forgets.

    learned ── named for less than ESTABLISHED_S ──▶ may be forgotten a minute later, for others
       └────── named for longer ────────────────────▶ established: stays GONE_S, whatever comes

Each broker has a port of its own on each listener, so answers that name others each time must not
buy ports without end, nor take those of brokers that are away for some hours.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from batchval.protocol.errors import TooManyBrokersError
from batchval.protocol.walkers.addresses import MAX_BROKERS
from batchval.token_bucket import TokenBucket

__all__ = [
    "ESTABLISHED_S",
    "GONE_S",
    "MAX_BROKERS",
    "MAX_LINES",
    "RECENT_S",
    "BoundedLog",
    "BrokerAges",
]

#: Seconds after which a broker is forgotten that answers do not name any more.
GONE_S: Final = 24 * 3600.0
#: Seconds between the first and the last answer that named a broker: it is established then.
ESTABLISHED_S: Final = 600.0
#: Seconds after which one that is not established may be forgotten for another.
RECENT_S: Final = 60.0
#: Log lines about brokers at once, and seconds for each later one.
MAX_LINES: Final = 100
SECONDS_A_LINE: Final = 6.0

log = logging.getLogger("batchval.proxy")
Clock = Callable[[], float]


@dataclass(slots=True)
class _Named:
    """When answers named a broker."""

    first_s: float
    last_s: float


class BrokerAges:
    """When brokers were named, first and last. Seconds are those of ``clock``."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._named: dict[int, _Named] = {}

    def now(self) -> float:
        """Return the time."""
        return self._clock()

    def named(self, node_id: int, at_s: float | None = None) -> None:
        """Note that an answer has named a broker, now or at that time."""
        now = self._clock() if at_s is None else at_s
        known = self._named.get(node_id)
        if known is None:
            self._named[node_id] = _Named(now, now)
        else:
            known.last_s = max(known.last_s, now)

    def establish(self, node_id: int) -> None:
        """Note a broker of an earlier run."""
        now = self._clock()
        self._named[node_id] = _Named(now - ESTABLISHED_S, now)

    def forget(self, node_id: int) -> None:
        """Forget a broker."""
        self._named.pop(node_id, None)

    def clear(self) -> None:
        """Forget all brokers."""
        self._named.clear()

    def gone(self) -> list[int]:
        """Return the brokers that no answer has named for ``GONE_S``."""
        now = self._clock()
        return [node_id for node_id, one in self._named.items() if now - one.last_s > GONE_S]

    def displaced(self, known: Collection[int]) -> list[int]:
        """Return the brokers to forget for one more; [] where none has to be.

        Raises TooManyBrokersError: all are established, or were named a moment ago.
        """
        if len(known) < MAX_BROKERS:
            return []
        now = self._clock()
        found = [
            node_id
            for node_id, one in self._named.items()
            if now - one.last_s
            > (GONE_S if one.last_s - one.first_s >= ESTABLISHED_S else RECENT_S)
        ]
        if not found:
            raise TooManyBrokersError(
                f"it names another broker, and {len(known)} are known: at most {MAX_BROKERS} are "
                "allowed"
            )
        return found


class BoundedLog:
    """Log lines about brokers: ``MAX_LINES`` at once, then one each ``SECONDS_A_LINE``.

    The next line that is written is preceded by how many were left out.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._tokens = TokenBucket(1 / SECONDS_A_LINE, MAX_LINES, clock)
        self._left_out = 0
        self.left_out_total = 0

    def write(self, level: int, text: str, *arguments: object) -> None:
        """Write a line, or count it."""
        if self._tokens.take():
            self._report()
            log.log(level, text, *arguments)
        else:
            self._left_out += 1
            self.left_out_total += 1

    def flush(self) -> None:
        """Write how many lines were left out, where a line may be written."""
        if self._left_out and self._tokens.take():
            self._report()

    def _report(self) -> None:
        if self._left_out:
            log.info("%d more log lines about brokers were left out", self._left_out)
            self._left_out = 0
