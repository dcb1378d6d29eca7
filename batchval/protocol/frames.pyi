from typing import Final, Self, final

from typing_extensions import Buffer

from batchval.protocol.errors import ProtocolError

MAX_FRAME_BYTES: Final[int]

def poison_released(on: bool) -> bool: ...

class FrameError(ProtocolError):
    stated: int
    limit: int
    first_bytes: bytes
    peer: str | None
    frames: list[memoryview]
    def __init__(
        self, what: str, stated: int, limit: int, first_bytes: bytes, peer: str | None, frames: list[memoryview]
    ) -> None: ...

@final
class Block:
    def __new__(cls, size: int, exact: bool = False) -> Self: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class FrameSplitter:
    max_frame_bytes: int
    whole: bool
    def __new__(cls, max_frame_bytes: int = 104857600, *, whole: bool = False) -> Self: ...
    @property
    def buffered(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    def get_buffer(self, size_hint: int = -1) -> memoryview: ...
    def buffer_updated(self, count: int) -> list[memoryview]: ...
    def feed(self, data: Buffer) -> list[memoryview]: ...
