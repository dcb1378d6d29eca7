"""The aborted transactions of a Fetch response."""

from collections.abc import Iterable
from typing import Self, final

@final
class AbortedTransactions:
    def __new__(cls, aborted: Iterable[tuple[int, int]] = ()) -> Self: ...
