"""Read how long the oldest request of each session has waited, from outside the session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["Ages"]

#: Connections that are looked at in one turn of the event loop: some 0.1 ms.
LOOKED_A_TURN: Final = 500


class Ages:
    """The time for which the oldest request has waited, measured outside of the sessions."""

    def __init__(self) -> None:
        self.oldest_s = 0.0
        self._first: dict[object, tuple[object, float]] = {}

    async def look(self, connections: Sequence[Any]) -> None:
        """Look at all connections, some in each turn of the loop. Calls must not overlap."""
        now = oldest = asyncio.get_running_loop().time()
        before, self._first = self._first, {}
        for begin in range(0, len(connections), LOOKED_A_TURN):
            for connection in connections[begin : begin + LOOKED_A_TURN]:
                known = before.pop(connection, None)
                if connection.answers:
                    first = connection.answers[0]
                    if known is None or known[0] is not first:
                        known = first, now
                    self._first[connection] = known
                    oldest = min(oldest, known[1])
            await asyncio.sleep(0)
        self.oldest_s = now - oldest
