from collections.abc import Sequence
from typing import Any, Final, Self, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer

from batchval.core.stages.claims import BatchClaims

# on Python 3.11 numpy's own types do not say that an array is a buffer
_Buffer: TypeAlias = Buffer | NDArray[Any]

MAX_RECORD_OVERHEAD: Final[int]
BATCH_OVERHEAD: Final[int]

@final
class RecordValues:
    count: int
    def __new__(cls, values: _Buffer | Sequence[_Buffer | None], stamps: _Buffer) -> Self: ...
    def close(self) -> None: ...
    def largest(self) -> int: ...
    def fitting(self, free_bytes: int) -> int: ...

@final
class BatchBuilder:
    count: int
    limit: int
    base_timestamp: int
    max_timestamp: int
    min_timestamp: int
    value_bytes: int
    codec: int
    carries_claims: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    def __new__(
        cls,
        limit: int,
        codec: int = 0,
        level: int | None = None,
        recycled: bytearray | None = None,
        schema_ids: bool = False,
    ) -> Self: ...
    def append(
        self,
        key: _Buffer | None,
        value: _Buffer | None,
        headers: Sequence[tuple[str, _Buffer | None]],
        timestamp: int,
    ) -> bool: ...
    def append_many(
        self, source: RecordValues, first: int, count: int, step: int, timestamp: int
    ) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_finished(self) -> bool: ...
    @property
    def wire_size(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def stamps(self) -> memoryview[int]: ...
    @property
    def claims(self) -> BatchClaims: ...
    def tag(self) -> bytes: ...
    def payload(self) -> memoryview: ...
    def finish(self, payload: bytes | None = None, claims_limit: int = 0) -> None: ...
    def drop_claims(self) -> None: ...
    def seal(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        log_append_time: int | None = None,
    ) -> None: ...
    def place(self, base_offset: int, partition_leader_epoch: int) -> None: ...
    def view(self) -> memoryview: ...
    def split(self) -> list[BatchBuilder]: ...
    def recycle(self) -> bytearray | None: ...
