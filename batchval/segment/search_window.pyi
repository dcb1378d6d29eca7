from typing import Any, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer

# on Python 3.11 numpy's own types do not say that an array is a buffer
_Buffer: TypeAlias = Buffer | NDArray[Any]

NOT_A_BATCH: int
ZEROS_FOLLOW: int
NEEDS_MORE: int

@final
class SearchWindow:
    def __new__(
        cls,
        buffer: _Buffer,
        largest: int,
        *,
        is_end: bool = True,
        accept_claims_header: bool = False,
    ) -> SearchWindow: ...
    def next(self, position: int) -> tuple[int, int]: ...
    def leads_on(self, position: int, links: int) -> tuple[int, int]: ...
    def is_proven(self, position: int) -> bool | None: ...

def resynchronise(
    buffer: _Buffer, position: int = 0, *, accept_claims_header: bool = False
) -> int: ...
def follow(
    buffer: _Buffer, largest: int, *, accept_claims_header: bool = False
) -> tuple[int, int]: ...
