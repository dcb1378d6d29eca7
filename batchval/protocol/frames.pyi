from typing import Final, Self, final

from typing_extensions import Buffer

from batchval.protocol.errors import ProtocolError
from batchval.protocol.frame_memory import allocated as allocated
from batchval.protocol.frame_memory import kept as kept
from batchval.protocol.frame_memory import limit_memory as limit_memory
from batchval.protocol.frame_memory import poison_released as poison_released

MAX_FRAME_BYTES: Final[int]

class FrameError(ProtocolError):
    stated: int
    limit: int
    first_bytes: bytes
    peer: str | None
    frames: list[memoryview]
    def __init__(
        self,
        what: str,
        stated: int,
        limit: int,
        first_bytes: bytes,
        peer: str | None,
        frames: list[memoryview],
    ) -> None: ...

@final
class SpareBlock:
    is_short: bool
    def __new__(cls) -> Self: ...
    def shorten(self, on: bool) -> None: ...

@final
class FrameSplitter:
    max_frame_bytes: int
    whole: bool
    def __new__(
        cls,
        max_frame_bytes: int = 104857600,
        *,
        whole: bool = False,
        spare: SpareBlock | None = None,
    ) -> Self: ...
    @property
    def buffered(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def partial(self) -> memoryview | None: ...
    @property
    def partial_size(self) -> int: ...
    @property
    def streaming(self) -> int: ...
    def stream_partial(self) -> memoryview: ...
    def clear(self) -> None: ...
    def get_buffer(self, size_hint: int = -1) -> memoryview: ...
    def buffer_updated(self, count: int) -> list[memoryview]: ...
    def feed(self, data: Buffer) -> list[memoryview]: ...
