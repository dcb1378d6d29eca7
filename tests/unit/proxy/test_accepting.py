"""Connections that are accepted, each counted once at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import uvloop

from batchval.proxy.cluster.listening_sockets import Acceptor, OpeningConnections
from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.loading import settings_from

MAX_CONNECTIONS = 3


class Owner:
    """A listener that takes at most MAX_CONNECTIONS connections, by the count that the gate and its health
    port make.
    """

    def __init__(self, sock: socket.socket, clients: int) -> None:
        self.address = sock.getsockname()
        self.to_come = clients
        self.clients: list[socket.socket] = []
        self.made: list[asyncio.BaseTransport] = []
        self.refused = 0
        self.opening = OpeningConnections()
        self.acceptor = Acceptor(sock, self.take, free=self.free, refused=self.refuse)

    def connect_next(self) -> None:
        """Connect one more client, which waits to be accepted."""
        if self.to_come:
            self.to_come -= 1
            self.clients.append(socket.create_connection(self.address))

    def take(self, connection: socket.socket) -> None:
        self.opening.open(connection, Client(self))

    def free(self) -> int:
        return MAX_CONNECTIONS - len(self.made) - len(self.opening)

    def refuse(self, client: tuple[str, int]) -> None:
        assert client in [sock.getsockname() for sock in self.clients]
        self.refused += 1


class Client(asyncio.Protocol):
    """A connection that counts itself; the next client is accepted before the task of this
    connection has ended.
    """

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.owner.opening.opened(self)
        self.owner.made.append(transport)
        self.owner.connect_next()
        self.owner.acceptor._accept()  # what the loop calls for a connection that waits


@pytest.mark.parametrize("clients", [MAX_CONNECTIONS, MAX_CONNECTIONS + 2])
def test_a_connection_counts_once_while_its_task_ends(clients: int) -> None:
    async def main() -> tuple[int, int]:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            owner = Owner(sock, clients)
            owner.connect_next()
            while owner.to_come or len(owner.made) + owner.refused < len(owner.clients):
                if not owner.opening:
                    owner.connect_next()
                await asyncio.sleep(0.001)
            for transport in owner.made:
                transport.abort()  # type: ignore[attr-defined]
            owner.acceptor.close()
            for one in owner.clients:
                one.close()
            return len(owner.made), owner.refused

    assert asyncio.run(asyncio.wait_for(main(), 20)) == (MAX_CONNECTIONS, clients - MAX_CONNECTIONS)


def test_a_failed_connection_counts_no_longer() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as sock:
            owner = Owner(sock, 1)

            async def fails(*_: Any, **__: Any) -> None:
                raise ConnectionResetError

            loop.connect_accepted_socket = fails  # type: ignore[method-assign, assignment]
            with socket.create_connection(sock.getsockname()) as client:
                assert await loop.run_in_executor(None, client.recv, 1) == b""
            assert owner.free() == MAX_CONNECTIONS
            owner.acceptor.close()

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("part", ["secure", "names_of"])
async def test_a_session_that_a_defect_keeps_from_its_beginning_frees_its_slot(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = {"address": "127.0.0.1:0"}
    settings = {
        "mode": "enforce",
        "listeners": [listener],
        "upstream": {"bootstrap": "127.0.0.1:1"},
        "metrics": {"address": None},
    }
    gate = Gate(settings_from(settings))
    await gate.start()
    proxy = gate.proxies["default"]
    monkeypatch.setattr(proxy, part, Mock(side_effect=ZeroDivisionError))
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.addresses["default"].port)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    async with asyncio.timeout(10):
        while proxy.connections:
            await asyncio.sleep(0.001)
    assert proxy.counters.connections_open == 0
    assert proxy.counters.connections_closed == {"fault": 1}
    assert "a connection could not be served: ZeroDivisionError" in caplog.text
    writer.close()
    await gate.stop(0)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_end_of_a_listener_leaves_a_new_connection_open(run: Callable[..., Any]) -> None:
    """Close the listener before the task of a connection has ended: its owner hears of its end."""

    class Newest(asyncio.Protocol):
        def __init__(self) -> None:
            self.lost = asyncio.Event()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            acceptor.close()

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)  # type: ignore[attr-defined]

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set()

    made: list[Newest] = []

    opening = OpeningConnections()

    def take(connection: socket.socket) -> None:
        made.append(Newest())
        opening.open(connection, made[-1])

    async def main() -> bytes:
        nonlocal acceptor
        with socket.create_server(("127.0.0.1", 0)) as sock:
            acceptor = Acceptor(sock, take)
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            writer.write(b"echo")
            found = await reader.read(4)
            writer.close()
            await made[0].lost.wait()
            return found

    acceptor: Acceptor
    assert run(asyncio.wait_for(main(), 60)) == b"echo"
