"""Log lines about senders whose claims were found false.

    WARNING false claims sender="listener edge" checked_for_s=3600

Batches are validated by native code, which counts in the ledger. So the ledger is looked at now and
then, and its senders only where one of them has lost the gate's trust since the last look.
"""

from __future__ import annotations

import logging
from typing import Final

from batchval.ledger import ClaimsLedger
from batchval.proxy.kit.background import in_background
from batchval.proxy.watch.audit_log import short

__all__ = ["MOST_LINES", "FalseClaims"]

#: Lines of one look; one more counts the other senders.
MOST_LINES: Final = 20

log = logging.getLogger("batchval.proxy")


class FalseClaims:
    """A logger that names each sender once for each time that it loses the gate's trust."""

    def __init__(self) -> None:
        self._ledger: ClaimsLedger | None = None
        self._total = 0
        self._known: dict[str, int] = {}

    async def look(self, ledger: ClaimsLedger | None) -> None:
        """Write a line for each sender that has lost the trust since the last look."""
        if ledger is not self._ledger:  # since a reload
            self._ledger, self._total, self._known = ledger, 0, {}
        if ledger is None or (total := ledger.counts().demotions) == self._total:
            return
        try:
            counts = await in_background(lambda: _demotions(ledger))
        except RuntimeError:  # no thread can be started: the next look tries again
            return
        found = [name for name, number in counts.items() if number > self._known.get(name, 0)]
        self._total, self._known = total, counts
        for name in found[:MOST_LINES]:
            _write(sender=short(name), checked_for_s=ledger.demotion_ms // 1000)
        if len(found) > MOST_LINES:
            _write(more_senders=len(found) - MOST_LINES)


def _demotions(ledger: ClaimsLedger) -> dict[str, int]:
    """Return how often each sender has lost the trust, of those that ever did."""
    return {name: number for name in ledger.senders() if (number := ledger.counts(name).demotions)}


def _write(**facts: object) -> None:
    log.warning("false claims", extra={"facts": facts})
