"""How long the oldest request of each session has waited, seen from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["Ages"]


class Ages:
    """How long the first in each queue has been first: seen from outside, so that no request pays
    for it.
    """

    def __init__(self) -> None:
        self.oldest_s = 0.0
        self._first: dict[object, tuple[object, float]] = {}

    def look(self, connections: Iterable[Any]) -> None:
        """To be called now and then; ages are known as exactly as that."""
        now = asyncio.get_running_loop().time()
        seen: dict[object, tuple[object, float]] = {}
        for connection in connections:
            if connection.answers:
                first = connection.answers[0]
                known = self._first.get(connection)
                seen[connection] = known if known is not None and known[0] is first else (first, now)
        self._first = seen
        self.oldest_s = max((now - since for _, since in seen.values()), default=0.0)
