from collections.abc import Callable
from typing import Self, final

from typing_extensions import Buffer

from batchval.protocol.messages.fetch import PartitionData

@final
class FetchPieces:
    api_version: int
    throttle_time_ms: int
    error_code: int
    def __init__(
        self, api_version: int, on_partition: Callable[[str, PartitionData, bool], object]
    ) -> None: ...
    def read(self, frame: Buffer) -> Self: ...

@final
class FetchSplitter:
    has_piece: bool
    def __new__(cls, max_frame_bytes: int) -> Self: ...
    def expect(self, correlation_id: int, pieces: FetchPieces) -> None: ...
    def get_buffer(self, size_hint: int = -1) -> memoryview: ...
    def buffer_updated(self, count: int) -> list[memoryview]: ...
