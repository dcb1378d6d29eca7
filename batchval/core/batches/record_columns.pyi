from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer

from batchval.core.batches.arrow import ArrowColumn
from batchval.core.batches.block import ColumnBlock

# on Python 3.11 numpy's own types do not say that an array is a buffer
_Buffer: TypeAlias = Buffer | NDArray[Any]

SCHEMA_VERSION: Final[int]

class RecordRow(NamedTuple):
    batch: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers_count: int

@final
class Content:
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class RecordColumns(ColumnBlock[RecordRow]):
    def __new__(cls) -> Self: ...
    @property
    def data(self) -> memoryview: ...
    @property
    def end(self) -> int: ...
    @property
    def tail(self) -> Literal["partial", "zeros", "size", "magic"] | None: ...
    def key(self, row: int) -> bytes | None: ...
    def value(self, row: int) -> bytes | None: ...
    def headers(self, row: int) -> tuple[tuple[str, bytes | None], ...]: ...
    def last_header(self, row: int, name: str) -> bytes | None: ...
    def arrow_keys(self) -> ArrowColumn: ...
    def arrow_values(self) -> ArrowColumn: ...

def record_columns(
    buffer: _Buffer,
    position: int = 0,
    *,
    check_crcs: bool = True,
    max_decompressed_bytes: int = 67108864,
) -> RecordColumns: ...
