"""/metrics, /clients, /livez and /readyz on a port of their own: a small HTTP responder.

    GET /metrics   200, Prometheus' text, made in a thread
    GET /clients   200, who uses the gate (``page_of``), made in a thread
    GET /livez     200 as long as the loop turns
    GET /readyz    200 when clients can be served, else 503 and why not

One request a connection, at most 8 kB of it and 10 seconds. At most 32 connections at a time, 8
from one address: above that the oldest of the address that has the most is closed, so that a probe
which asks at once is answered however many others wait. /clients is not shown to pages of other
sites (``refusal_of``); the others answer any Host, since probes and scrapers send many names.

``HttpRequest`` is one request: its target, and the hosts that it names.

    GET /clients?old=true HTTP/1.1
    Host: gate-1.example.com:9464
    Origin: http://gate-1.example.com:9464

A page of another site can make a browser ask a gate, where the name of that site leads to the
gate's address (DNS rebinding). The request then names that site in Host. So pages that show clients
are answered only where Host is localhost, an address, or a name of ``metrics.allowed_hosts``: no
site can take an address for its name. A request without Host is answered, too: every browser sends
it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from batchval.proxy.cluster.listening_sockets import Acceptor, OpeningConnections
from batchval.proxy.kit.open_files import SpareFiles
from batchval.proxy.settings.setting_types import Address
from batchval.proxy.watch.clients import Asked, asked_for
from batchval.proxy.watch.metrics import CONTENT_TYPE
from batchval.report.units import printable

__all__ = ["LOCALHOST", "HealthServer", "HttpRequest", "host_of", "is_allowed", "refusal_of"]

LOCALHOST: Final = "localhost"

_AUTHORITY = re.compile(r"(?:\[([^\[\]]+)\]|([A-Za-z0-9._-]{1,254}))(?::([0-9]{0,5}))?")

_ABSOLUTE = re.compile(r"https?://([^/?#]*)([^#]*)", re.IGNORECASE)

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")

_HEADERS: Final = ("accept", "host", "origin")

_MAX_PORT: Final = 65_535

#: Characters of a host that an answer shows.
_SHOWN: Final = 100


class HttpRequest(NamedTuple):
    """A request. ``hosts`` and ``origins`` are as they came, in any form.

    ``authority``  host and port of a target in the absolute form, which proxies get; else None
    """

    method: str
    path: str
    query: str
    version: str
    accept: str = ""
    authority: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    @classmethod
    def parse(cls, head: bytes) -> HttpRequest:
        """Read the lines of a request, up to its empty line. Raises ValueError."""
        first, *lines = (line.decode("latin-1") for line in head.splitlines())
        method, target, version = first.split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"{version} is not HTTP/1.0 or HTTP/1.1")
        authority = None
        if (absolute := _ABSOLUTE.fullmatch(target)) is not None:
            authority, target = absolute[1], absolute[2]
        path, _, query = target.partition("?")
        accept, hosts, origins = (tuple(_values(lines, name)) for name in _HEADERS)
        return cls(method, path or "/", query, version, ",".join(accept), authority, hosts, origins)


def _values(lines: list[str], name: str) -> Iterator[str]:
    for line in lines:
        key, _, value = line.partition(":")
        if key.lower() == name:
            yield value.strip(" \t")


def host_of(authority: str) -> str | None:
    """Return the host of ``HOST:PORT`` in lower case, without brackets and the final dot of DNS.

    None where it is not a host and a port (RFC 3986, section 3.2).
    """
    found = _AUTHORITY.fullmatch(authority)
    if found is None or int(found[3] or 0) > _MAX_PORT:
        return None
    if found[1] is None:
        return found[2].lower().removesuffix(".") or None
    try:
        return str(ipaddress.IPv6Address(found[1].replace("%25", "%", 1)))
    except ValueError:
        return None


def is_allowed(host: str, allowed: Collection[str]) -> bool:
    """Return whether a host may be asked for: as ``host_of`` returns it.

    ``allowed``  names in lower case; ``*.example.com`` stands for all names that end like that, and
                 ``*`` for any
    """
    if host == LOCALHOST or host in allowed or "*" in allowed:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return any(one.startswith("*.") and host.endswith(one[1:]) for one in allowed)
    return True


def refusal_of(request: HttpRequest, allowed: Collection[str], at: str) -> tuple[int, str] | None:
    """Return the status and the text for a request of another site; None where it is served.

    ``at``  the address of the gate that the connection is for, as HOST:PORT
    """
    path = _shown(request.path)
    named = [*request.hosts, *([] if request.authority is None else [request.authority])]
    if len(request.hosts) > 1:
        return HTTPStatus.BAD_REQUEST, "the request has several Host headers, expected one"
    hosts = set()
    for one in named:
        if (host := host_of(one)) is None:
            return HTTPStatus.BAD_REQUEST, f"Host '{_shown(one)}' is not HOST or HOST:PORT"
        if not is_allowed(host, allowed):
            text = (
                f"Host '{_shown(one)}' is not allowed for {path}, which shows clients. Add "
                f"{_shown(host)} to metrics.allowed_hosts, or ask http://{at}{path}"
            )
            return HTTPStatus.FORBIDDEN, text
        hosts.add(host)
    for origin in request.origins:
        found = _ORIGIN.fullmatch(origin)
        if found is None or host_of(found[1]) not in hosts:
            text = f"Origin '{_shown(origin)}' is another site: {path} shows clients"
            return HTTPStatus.FORBIDDEN, text
    return None


def _shown(text: str) -> str:
    return printable(text[:_SHOWN])


MAX_CONNECTIONS: Final = 32

MAX_CONNECTIONS_PER_ADDRESS: Final = 8

MAX_REQUEST_BYTES: Final = 8192

TIMEOUT_S: Final = 10.0

#: The methods of HTTP that are answered.
METHODS: Final = ("GET", "HEAD")

#: Connections that may be here for a moment until the oldest are closed.
MAX_CONNECTIONS_BEYOND: Final = 4

BACKLOG: Final = 128

#: After the text of /metrics was made, the next one waits this many times as long: whatever is
#: asked, making it takes a fifth of the time at most.
PAUSE: Final = 4

_PLAIN = "text/plain; charset=utf-8"

HttpAnswer = tuple[int, str, bytes]

"""(status, content type, body)"""

Text = tuple[str, bytes]

"""(content type, body)"""

log = logging.getLogger("batchval.proxy")


class HealthServer:
    """The HTTP responder of /metrics, /clients, /livez and /readyz.

    ``metrics``  takes the values, on the event loop or by awaiting them; what it returns makes the
                 text, in a thread
    ``unready``  says why clients cannot be served, None if they can
    ``clients``  takes the rows of /clients, likewise; None: the page is not there
    ``allowed_hosts``  names in lower case by which /clients may be asked for
    ``warnings`` says what is wrong while clients can be served, a line each
    """

    def __init__(
        self,
        metrics: Callable[[], Callable[[], bytes] | Awaitable[Callable[[], bytes]]],
        unready: Callable[[], str | None],
        clients: Callable[[Asked], Awaitable[Callable[[], Text]]] | None = None,
        *,
        allowed_hosts: Callable[[], Collection[str]] = tuple,
        warnings: Callable[[], Iterable[str]] = tuple,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.unready = unready
        self.allowed_hosts = allowed_hosts
        self.warnings = warnings
        self.timeout_s = timeout_s
        self.clients = clients

        async def values(_: Asked) -> Callable[[], Text]:
            taken = metrics()
            make = await taken if isinstance(taken, Awaitable) else taken
            return lambda: (CONTENT_TYPE, make())

        self.texts = _Texts(values, "batchval-metrics")
        self.pages = None if clients is None else _Texts(clients, "batchval-clients")
        self.connections: dict[_Connection, str] = {}  # to the client's address, the oldest first
        self._open: set[_Connection] = set()  # these, and those whose descriptor is not closed yet
        self._spare = SpareFiles(0)
        self._acceptors: list[Acceptor] = []
        self._opening = OpeningConnections()

    async def bound(self, host: str, port: int) -> list[socket.socket]:
        """Return sockets that listen at the addresses of a host. Raises OSError."""
        # the server binds one socket for each address of the host; connections are accepted here,
        # with descriptors that nothing else can take
        server = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, host or None, port, start_serving=False
        )
        socks = [socket.fromfd(one.fileno(), one.family, one.type) for one in server.sockets]
        server.close()
        for sock in socks:
            sock.listen(BACKLOG)
        return socks

    def accept(self, socks: Sequence[socket.socket]) -> None:
        """Accept connections at these sockets, and own them from now on."""
        self._spare = SpareFiles(MAX_CONNECTIONS + MAX_CONNECTIONS_BEYOND)
        for sock in socks:
            self._acceptors.append(Acceptor(sock, self._serve, free=self._free, spare=self._spare))

    def _serve(self, connection: socket.socket) -> None:
        self._opening.open(connection, _Connection(self))

    def _free(self) -> int:
        most = MAX_CONNECTIONS + MAX_CONNECTIONS_BEYOND
        return most - len(self._open) - len(self._opening)

    def close_port(self) -> None:
        """Accept nothing any more. Connections are not touched."""
        for acceptor in self._acceptors:
            acceptor.close()

    async def stop(self) -> None:
        """Close the port and all connections."""
        self.close_port()
        for connection in list(self._open):
            connection.hang_up()
        while self._open:
            await asyncio.sleep(0)
        self._spare.close()
        self.texts.close()
        if self.pages is not None:
            self.pages.close()

    def forget(self, connection: _Connection) -> None:
        """Take a connection off the list, and its descriptor back."""
        self.connections.pop(connection, None)
        self._open.discard(connection)
        if self._acceptors and self._acceptors[0].sock.fileno() >= 0:
            # the descriptor is closed after this call
            asyncio.get_running_loop().call_soon(self._spare.fill)

    def admit(self, connection: _Connection, address: str) -> None:
        """Add a connection, and close the oldest one where these are too many."""
        self._opening.opened(connection)
        self.connections[connection] = address
        self._open.add(connection)
        (most, count), *_ = Counter(self.connections.values()).most_common(1)
        if count > MAX_CONNECTIONS_PER_ADDRESS or len(self.connections) > MAX_CONNECTIONS:
            oldest = next(one for one, whose in self.connections.items() if whose == most)
            del self.connections[oldest]
            oldest.hang_up()

    async def answer(self, request: HttpRequest, at: str) -> HttpAnswer:
        """Return the answer to a request that came to this address of the gate."""
        if request.method not in METHODS:
            return 405, _PLAIN, b"method must be GET or HEAD\n"
        match request.path:
            case "/metrics":
                return 200, *await self.texts.text(Asked())
            case "/clients" if self.pages is not None:
                refusal = refusal_of(request, self.allowed_hosts(), at)
                if refusal is not None:
                    return refusal[0], _PLAIN, f"{refusal[1]}\n".encode()
                try:
                    asked = asked_for(request.query, request.accept)
                except ValueError as error:
                    return 400, _PLAIN, f"{error}\n".encode()
                return 200, *await self.pages.text(asked)
            case "/livez":
                return 200, _PLAIN, b"ok\n"
            case "/readyz":
                if (why := self.unready()) is not None:
                    return 503, _PLAIN, f"{why}\n".encode()
                lines = ["ok", *(f"warning: {line}" for line in self.warnings())]
                return 200, _PLAIN, "".join(f"{line}\n" for line in lines).encode()
            case _:
                return 404, _PLAIN, b"/metrics, /clients, /livez, /readyz\n"


class _Texts:
    """The texts of one page: each is made in a thread, for all requests that came before."""

    def __init__(self, take: Callable[[Asked], Awaitable[Callable[[], Text]]], name: str) -> None:
        self._take = take
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Text]] = set()
        self._next: dict[Asked, asyncio.Task[Text]] = {}
        self._not_before = 0.0  # time of the loop

    async def text(self, asked: Asked) -> Text:
        """Return a text whose values are taken from now on."""
        task = self._next.get(asked)
        if task is None:
            task = self._next[asked] = asyncio.create_task(self._make(asked))
            self._tasks.add(task)
            task.add_done_callback(self._made)
        return await asyncio.shield(task)

    async def _make(self, asked: Asked) -> Text:
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(max(0.0, self._not_before - loop.time()))
            del self._next[asked]
            text, cpu_s = await loop.run_in_executor(self._pool, _timed, await self._take(asked))
            self._not_before = loop.time() + PAUSE * cpu_s
            return text

    def _made(self, task: asyncio.Task[Text]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits any more

    def close(self) -> None:
        """Make no more."""
        for task in self._tasks:
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _timed(make: Callable[[], Text]) -> tuple[Text, float]:
    """Return a text, and the seconds of CPU that it took."""
    begun = time.thread_time()
    return make(), time.thread_time() - begun


class _Connection(asyncio.Protocol):
    def __init__(self, server: HealthServer) -> None:
        self.server = server
        self._received = bytearray()
        self._asked = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        peer = transport.get_extra_info("peername")
        self._timer = asyncio.get_running_loop().call_later(self.server.timeout_s, self.hang_up)
        self.server.admit(self, str(peer[0]) if peer else "")

    def connection_lost(self, _error: Exception | None) -> None:
        self.server.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def hang_up(self) -> None:
        """Close the connection, whatever is still to be read or written."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._asked:
            return
        self._received += data[: MAX_REQUEST_BYTES + 1]
        if b"\r\n\r\n" not in self._received and b"\n\n" not in self._received:
            if len(self._received) > MAX_REQUEST_BYTES:
                self._write("GET", (431, _PLAIN, b""))
            return
        try:
            request = HttpRequest.parse(bytes(self._received))
        except ValueError:
            self._write("GET", (400, _PLAIN, b""))
            return
        self._asked = True
        self._answering = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: HttpRequest) -> None:
        try:
            answer = await self.server.answer(request, self._address())
        except Exception:
            log.exception("an answer of the port for metrics failed")
            answer = 500, _PLAIN, b""
        self._write(request.method, answer)

    def _address(self) -> str:
        """Return where the client has connected to."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(Address(*name[:2])) if name else ""

    def _write(self, method: str, answer: HttpAnswer) -> None:
        self._asked = True
        if self._transport is None or self._transport.is_closing():
            return
        status, kind, body = answer
        allow = (
            f"Allow: {', '.join(METHODS)}\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
        )
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{allow}"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + (b"" if method == "HEAD" else body))
        self._transport.close()
