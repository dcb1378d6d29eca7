from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer, TypeVar

from batchval.core.batches.block import ColumnBlock
from batchval.core.batches.result import ValidationResult

# on Python 3.11 numpy's own types do not say that an array is a buffer
_Buffer: TypeAlias = Buffer | NDArray[Any]
_Tail: TypeAlias = Literal["partial", "zeros", "size", "magic"]

SCHEMA_VERSION: Final[int]
BASE_COLUMNS: Final[tuple[str, ...]]
CHECK_COLUMNS: Final[tuple[str, ...]]
NO_DELETE_HORIZON: Final[int]

class BatchRow(NamedTuple):
    position: int
    size_in_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    records_count: int
    partition_leader_epoch: int
    compression_type: str | int
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control_batch: bool
    delete_horizon_ms: int | None
    attributes: int
    last_offset_delta: int
    crc: int
    is_valid: bool

class CheckedRow(NamedTuple):
    position: int
    size_in_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    records_count: int
    partition_leader_epoch: int
    compression_type: str | int
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control_batch: bool
    delete_horizon_ms: int | None
    attributes: int
    last_offset_delta: int
    crc: int
    is_valid: bool
    rule: str | None
    error_code: int
    path: str | None
    reports: list[str]
    claims: str | None
    reason: str

_Row_co = TypeVar("_Row_co", default=Any, covariant=True)

@final
class BatchColumns(ColumnBlock[_Row_co]):
    end: int
    tail: _Tail | None
    def __new__(cls, checked: bool = False) -> Self: ...
    @property
    def checked(self) -> bool: ...
    @property
    def all_ok(self) -> bool: ...
    def ok(self) -> NDArray[Any]: ...
    def count_claims(self) -> tuple[int, int, int, int, int, int]: ...
    def reason_of(self, i: int) -> str: ...
    def result(self, i: int) -> ValidationResult: ...
    def first_doubtful(self, start: int = 0) -> int: ...
    def keep(self, count: int) -> None: ...
    def extend(self, other: BatchColumns, shift: int) -> None: ...
    def rows(self) -> Iterator[dict[str, Any]]: ...

def scan_batches(
    buffer: _Buffer, position: int = 0, *, accept_claims_header: bool = False
) -> BatchColumns[BatchRow]: ...
