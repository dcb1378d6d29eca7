import asyncio
import socket
from collections.abc import Iterable
from typing import Any, Final, final

from typing_extensions import disjoint_base

PASSED_REST: Final[int]
PASSED_STOPPED: Final[int]
PASSED_SPENT: Final[int]
PASSED_LOOK: Final[int]
LIFE: Final[tuple[str, str, str]]
READING: Final[tuple[str, str, str]]

@disjoint_base
class Passage:
    is_open: bool
    to: Any
    def take_passed(self) -> int: ...

@final
class SocketTransport(asyncio.Transport):
    passage: Passage | None
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        address: Any = None,
    ) -> None: ...
    def __call__(self) -> None: ...
    def start(self) -> None: ...
    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None: ...
