"""A scripted peer over real sockets, and minimal requests: for tests of
batchval.network.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from batchval.network.client import ClientOptions, ConsumerNetworkClient
from batchval.network.connection import Connection
from batchval.network.network_client import NetworkOptions
from batchval.network.node import Backoff
from batchval.network.options import ConnectionOptions
from batchval.network.request import Node
from batchval.protocol.frames import FrameSplitter

HEADER = struct.Struct(">ihhi")  # length, api key, version, correlation id
PRODUCE, METADATA, API_VERSIONS = 0, 3, 18


def Splitter(limit: int = 1 << 20) -> FrameSplitter:
    return FrameSplitter(limit)


class Answer(NamedTuple):
    """What ``Ask`` decodes."""

    throttle_time_ms: int
    body: bytes


@dataclass
class Ask:
    """A request with a body; its answer is a throttle time and a body."""

    body: bytes | bytearray = b""
    api_key: int = METADATA
    api_version: int = 12
    expects_response: bool = True
    encoded: list[int] = field(default_factory=list)  # correlation ids

    def encode(self, correlation_id: int, client_id: str | None) -> list[bytes | memoryview]:
        self.encoded.append(correlation_id)
        head = HEADER.pack(8 + len(self.body), self.api_key, self.api_version, correlation_id)
        return [head, memoryview(self.body)] if self.body else [head]

    def decode(self, frame: memoryview) -> Answer:
        return Answer(struct.unpack_from(">i", frame, 4)[0], bytes(frame[8:]))


class Frame(NamedTuple):
    """A request as the peer sees it."""

    api_key: int
    api_version: int
    correlation_id: int
    body: bytes


def answer(correlation_id: int, body: bytes = b"", throttle_time_ms: int = 0) -> bytes:
    return struct.pack(">iii", 8 + len(body), correlation_id, throttle_time_ms) + body


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    length, key, version, correlation_id = HEADER.unpack(await reader.readexactly(HEADER.size))
    return Frame(key, version, correlation_id, await reader.readexactly(length - 8))


Script = Callable[["Peer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every frame with its own body."""
    while True:
        frame = await peer.read(reader)
        writer.write(answer(frame.correlation_id, frame.body))


async def silent(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read everything and answer nothing."""
    while True:
        await peer.read(reader)


class Peer:
    """A broker played by a script, run once for each connection; cut when the script ends."""

    def __init__(self, script: Script = echo, **options: Any) -> None:
        self.script = script
        self.options = options
        self.frames: list[Frame] = []
        self.accepted = 0
        self.errors: list[BaseException] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self, port: int = 0) -> None:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", port, **self.options)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self.errors:
            raise self.errors[0]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.writers.add(writer)
        self.accepted += 1
        try:
            await self.script(self, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.tasks.discard(task)
            self.writers.discard(writer)
            writer.close()

    def cut(self) -> None:
        """End all connections, and drop what is not sent yet."""
        for writer in list(self.writers):
            writer.transport.abort()

    async def read(self, reader: asyncio.StreamReader) -> Frame:
        frame = await read_frame(reader)
        self.frames.append(frame)
        return frame

    @property
    def bodies(self) -> list[bytes]:
        return [frame.body for frame in self.frames]

    def node(self, number: int = 1) -> Node:
        return Node(number, "127.0.0.1", self.port)

    async def connect(self, **options: Any) -> Connection:
        on_lost = options.pop("on_lost", None)
        return await Connection.open(
            "127.0.0.1", self.port, connection_options(**options), on_lost=on_lost
        )


def connection_options(**options: Any) -> ConnectionOptions:
    return ConnectionOptions(**{"splitter": Splitter, "request_timeout_ms": 5_000, **options})


def client_options(connection: dict[str, Any] | None = None, **options: Any) -> ClientOptions:
    """Make options; ``network_…`` options are those of NetworkOptions."""
    network = {
        key.removeprefix("network_"): options.pop(key)
        for key in list(options)
        if key.startswith("network_")
    }
    network.setdefault("reconnect_backoff", Backoff(20, 100))
    network.setdefault("api_versions", None)
    return ClientOptions(
        network=NetworkOptions(connection=connection_options(**connection or {}), **network),
        **options,
    )


def client(connection: dict[str, Any] | None = None, **options: Any) -> ConsumerNetworkClient:
    return ConsumerNetworkClient(client_options(connection, **options))


class Calls:
    """A callback that remembers, in order, what it was called with; one for each request by its
    name.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any, BaseException | None]] = []
        self.event = asyncio.Event()

    def of(self, name: Any) -> Callable[[Any, BaseException | None], None]:
        def callback(response: Any, error: BaseException | None) -> None:
            self.seen.append((name, response, error))
            self.event.set()

        return callback

    @property
    def names(self) -> list[Any]:
        return [name for name, _, _ in self.seen]

    @property
    def errors(self) -> list[BaseException | None]:
        return [error for _, _, error in self.seen]

    async def wait(self, count: int) -> None:
        while len(self.seen) < count:
            self.event.clear()
            await self.event.wait()


def reset_on_close(sock: socket.socket) -> None:
    """Let ``close`` send RST, not FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


_CLOSED: list[socket.socket] = []


def closed_port() -> int:
    """Return a port that refuses connections; it is held, so that no process begins to listen
    there.
    """
    _CLOSED.append(held := socket.socket())
    held.bind(("127.0.0.1", 0))
    return int(held.getsockname()[1])


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Run the loop until the condition holds; fail the test if it never does."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


class ApiVersionsAnswer(NamedTuple):
    error_code: int
    api_keys: list[Any]
    throttle_time_ms: int = 0


class ApiRange(NamedTuple):
    api_key: int
    min_version: int
    max_version: int


@dataclass
class AskVersions:
    """ApiVersions with version 0 bodies throughout."""

    api_version: int
    api_key: int = API_VERSIONS
    expects_response: bool = True

    def encode(self, correlation_id: int, client_id: str | None) -> list[bytes | memoryview]:
        return [HEADER.pack(8, API_VERSIONS, self.api_version, correlation_id)]

    def decode(self, frame: memoryview) -> ApiVersionsAnswer:
        error, count = struct.unpack_from(">hi", frame, 4)
        return ApiVersionsAnswer(
            error, [ApiRange(*struct.unpack_from(">hhh", frame, 10 + 6 * i)) for i in range(count)]
        )


class Versions:
    """Makes AskVersions."""

    latest = 4

    def __call__(self, version: int) -> AskVersions:
        return AskVersions(version)


def versions_answer(correlation_id: int, error: int, *ranges: tuple[int, int, int]) -> bytes:
    body = struct.pack(">hi", error, len(ranges)) + b"".join(
        struct.pack(">hhh", *one) for one in ranges
    )
    return struct.pack(">ii", 4 + len(body), correlation_id) + body
