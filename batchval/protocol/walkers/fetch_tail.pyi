from collections.abc import Callable
from typing import Final, Self, final

from typing_extensions import Buffer

WITH_TAIL: Final[frozenset[int]]

def rewrite_tail(
    tail: Buffer,
    api_key: int,
    api_version: int,
    replace: Callable[[int, str, int], tuple[str, int]],
) -> bytes: ...

@final
class FetchTail:
    def __new__(cls, api_key: int, api_version: int) -> Self: ...
    @property
    def tail_size(self) -> int: ...
    def feed(self, piece: Buffer) -> int: ...
