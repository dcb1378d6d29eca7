"""/metrics, /livez and /readyz on a port of their own: a small HTTP responder.

    GET /metrics   200, Prometheus' text
    GET /livez     200 as long as the loop turns
    GET /readyz    200 when clients can be served, else 503 and why not

One request a connection, at most 8 kB of it and 10 seconds, and 32 connections at a time: whoever asks for more is
hung up on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from batchval.proxy.metrics import CONTENT_TYPE

__all__ = ["HealthServer"]

MOST_CONNECTIONS: Final = 32
MOST_BYTES: Final = 8192
TIMEOUT_S: Final = 10.0

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}
_REASONS |= {431: "Request Header Fields Too Large", 503: "Service Unavailable"}
_PLAIN = "text/plain; charset=utf-8"


class HealthServer:
    """``metrics`` gives the text of /metrics; ``unready`` says why clients cannot be served, None if they can."""

    def __init__(
        self, metrics: Callable[[], bytes], unready: Callable[[], str | None], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.metrics = metrics
        self.unready = unready
        self.timeout_s = timeout_s
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listens, and says where. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host or None, port)
        found: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return found

    async def stop(self) -> None:
        """Closes the port and hangs up."""
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.hang_up()
            await self._server.wait_closed()

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """(status, content type, body)."""
        if method not in ("GET", "HEAD"):
            return 405, _PLAIN, b"only GET\n"
        match path.partition("?")[0]:
            case "/metrics":
                return 200, CONTENT_TYPE, self.metrics()
            case "/livez":
                return 200, _PLAIN, b"ok\n"
            case "/readyz":
                why = self.unready()
                return (200, _PLAIN, b"ok\n") if why is None else (503, _PLAIN, f"{why}\n".encode())
            case _:
                return 404, _PLAIN, b"/metrics, /livez, /readyz\n"


class _Connection(asyncio.Protocol):
    def __init__(self, server: HealthServer) -> None:
        self.server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        if len(self.server.connections) >= MOST_CONNECTIONS:
            self._transport.abort()
            return
        self.server.connections.add(self)
        self._timer = asyncio.get_running_loop().call_later(self.server.timeout_s, self.hang_up)

    def connection_lost(self, _error: Exception | None) -> None:
        self.server.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def hang_up(self) -> None:
        """Whatever is still to be read or written."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._received += data
        if b"\r\n\r\n" not in self._received and b"\n\n" not in self._received:
            if len(self._received) > MOST_BYTES:
                self._write("GET", 431, _PLAIN, b"")
            return
        words = bytes(self._received).split(b"\n", 1)[0].rstrip(b"\r").split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            self._write("GET", 400, _PLAIN, b"")
            return
        method, path = words[0].decode("latin-1"), words[1].decode("latin-1")
        try:
            status, kind, body = self.server.answer(method, path)
        except Exception:
            self._write(method, 500, _PLAIN, b"")
            raise
        self._write(method, status, kind, body)

    def _write(self, method: str, status: int, kind: str, body: bytes) -> None:
        assert self._transport is not None
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + (b"" if method == "HEAD" else body))
        self._transport.close()
