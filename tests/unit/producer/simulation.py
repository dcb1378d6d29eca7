"""An event loop whose time is simulated, and connections that end in the same process.

Time stands still while anything is ready and then goes to the next timer, so a second of backoff
costs nothing, and a run with the same seeds does the same. A loop in which nothing can happen any
more raises, instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
import selectors
import struct
from collections.abc import Callable
from typing import Any


class _Clock(selectors.SelectSelector):
    """Selects nothing; where asyncio would wait, time passes."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing is left to happen")
        self.now_s += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """``connect`` makes the connections: it takes the port and the client's end."""

    def __init__(self, connect: Callable[[int, ClientEnd], None]) -> None:
        self._clock = _Clock()
        self._connect = connect
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:  # type: ignore[override]
        return [(2, 1, 6, "", (host, port))]

    async def create_connection(
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        end = ClientEnd(self, factory())
        self._connect(port, end)  # raises ConnectionRefusedError
        end.protocol.connection_made(end)
        return end, end.protocol


class ClientEnd(asyncio.Transport):
    """A client's transport. ``receive`` of the server's end takes each frame without its length."""

    def __init__(self, loop: SimulatedLoop, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.loop = loop
        self.protocol = protocol
        self.receive: Callable[[bytes], None] = lambda frame: None
        self.on_end: Callable[[], None] = lambda: None
        self.ended = False
        self._bytes = bytearray()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.ended

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, chunks: Any) -> None:
        for chunk in chunks:
            self._bytes += chunk
        while not self.ended and len(self._bytes) >= 4:
            (length,) = struct.unpack_from(">i", self._bytes)
            if len(self._bytes) < 4 + length:
                return
            frame = bytes(self._bytes[4 : 4 + length])
            del self._bytes[: 4 + length]
            self.receive(frame)

    def deliver(self, data: bytes) -> None:
        """Hand bytes to the client, which reads at once."""
        at = 0
        while at < len(data) and not self.ended:
            buffer = self.protocol.get_buffer(len(data) - at)
            size = min(len(buffer), len(data) - at)
            buffer[:size] = data[at : at + size]
            at += size
            self.protocol.buffer_updated(size)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        """End the connection, by whichever side."""
        if not self.ended:
            self.ended = True
            self.on_end()
            self.loop.call_soon(self.protocol.connection_lost, None)
