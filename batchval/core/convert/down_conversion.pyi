from collections.abc import Callable, Iterable
from typing import NamedTuple

from typing_extensions import Buffer

from batchval.core.convert.aborted import AbortedTransactions
from batchval.errors import NotABatch

class DownConverted(NamedTuple):
    output: bytes
    records: int
    first_offset: int
    next_offset: int
    position: int
    is_partial: bool
    aborted: tuple[tuple[int, int], ...] | AbortedTransactions

class NotConverted(NotABatch):
    converted: DownConverted
    is_heavy: bool

def down_convert(
    buffer: Buffer,
    to_magic: int,
    *,
    first_offset: int = 0,
    max_decompressed_bytes: int = 67108864,
    aborted: Iterable[tuple[int, int]] | AbortedTransactions = (),
    position: int = 0,
    max_bytes: int | None = None,
    check_crcs: bool = False,
    max_work: int | None = None,
    max_batch_work: int | None = None,
    on_held: Callable[[int], object] | None = None,
) -> DownConverted: ...
