"""A TLS server on the running loop that secures its clients as the gate does, and says who each of
them is.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Self, cast

from batchval.proxy.settings.config import ListenerTls
from batchval.proxy.tls.handshakes import ClientHelloCallback, HandshakeError, Handshakes
from batchval.proxy.tls.tls import identity_of, listener_context


class Context:
    """The context of a listener with these settings. ConfigError."""

    def __init__(self, settings: ListenerTls) -> None:
        self.settings = settings
        self.context = listener_context(settings)


def read_again(context: Context) -> None:
    """Let new connections use what the files hold now, as a reload of the settings does."""
    context.context = listener_context(context.settings)


class SecuredServer:
    """``async with SecuredServer(context) as server: … server.port``

    ``failures`` are the reasons of handshakes that failed, ``texts`` what they say, ``received``
    what all clients have sent, in its order.
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        answer: Callable[[ssl.SSLObject], str | None] = identity_of,
        timeout_s: float = 10.0,
        look: ClientHelloCallback = None,
    ) -> None:
        self.context = context
        self.answer = answer
        self.timeout_s = timeout_s
        self.look = look
        self.handshakes = Handshakes()
        self.failures: list[str] = []
        self.texts: list[str] = []
        self.secured: list[str] = []  # addresses
        self.received = bytearray()
        self.clients: list[_Client] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Client(self), "127.0.0.1", 0
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for client in self.clients:
            client.task.cancel()
            client.transport.abort()
        await asyncio.gather(*(client.task for client in self.clients), return_exceptions=True)
        self.handshakes.close()
        await asyncio.sleep(0.01)

    async def ask(self, client: ssl.SSLContext) -> str:
        """Connect and return the server's answer. Raises ssl.SSLError or ConnectionError."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=client, server_hostname="localhost"
        )
        try:
            line = await reader.readline()
            if not line:
                raise ConnectionResetError
            return line.decode().strip()
        finally:
            writer.close()


class _Client(asyncio.BufferedProtocol):
    def __init__(self, server: SecuredServer) -> None:
        self.server = server
        self.secured = False
        self.lost = 0
        self._buffer = memoryview(bytearray(1000))
        server.clients.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = self.plain = cast(asyncio.Transport, transport)
        server = self.server
        secured = server.handshakes.secure(
            self.transport, self, server.context(), server.timeout_s, server.look
        )

        async def secure() -> None:
            try:
                self.transport = await secured
            except HandshakeError as error:
                server.failures.append(error.reason)
                server.texts.append(str(error))
                return
            self.secured = True
            server.secured.append(transport.get_extra_info("peername")[0])
            self.transport.write(
                f"{server.answer(self.transport.get_extra_info('ssl_object'))}\n".encode()
            )

        self.task = asyncio.get_running_loop().create_task(secure())

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self.secured
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.secured
        self.server.received += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.secured
        self.lost += 1
