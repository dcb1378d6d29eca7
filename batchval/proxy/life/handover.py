"""The hand-over as the new gate sees it: sockets and brokers come from the gate that runs.

``Succession``: take over one gate, and be taken over by another.

``begin`` runs before there is an event loop. The steps are those of ``handover_messages``; the
states of the running gate are those of ``control``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, Protocol

from batchval.proxy.cluster.discovery import Discovery
from batchval.proxy.cluster.listening_sockets import ListeningSockets, SocketKey
from batchval.proxy.cluster.state_file import StoredCluster
from batchval.proxy.kit.open_files import raise_limit
from batchval.proxy.life.control import CONTROL, SOCKETS_AT_ONCE, Offer, connectable, credentials
from batchval.proxy.life.handover_messages import (
    MAX_RUNNING_GATE_BYTES,
    VERSION,
    GoneError,
    HandOverError,
    Incoming,
    encoded,
)
from batchval.proxy.life.health import HealthServer
from batchval.proxy.watch.observed_batches import ObservedFile

__all__ = ["Succession", "TakeOver", "taken_over"]

#: Seconds for each message of the running gate.
ANSWER_S: Final = 15.0
#: Seconds for the new gate to become ready, and between two looks.
PREPARE_S: Final = 60.0
LOOK_S: Final = 0.02
#: Seconds at the end of a gate, for the end of the one that it has taken over.
FOLLOW_S: Final = 10.0
#: Seconds for a new gate that was lost, to close what it has bound.
FREE_S: Final = 5.0
_READ: Final = 64 << 10
_SILENT: Final = f"the running gate did not answer within {ANSWER_S:g} s"
_CLOSED: Final = "the running gate closed the control connection"

log = logging.getLogger("batchval.proxy")


class TakeOver:
    """A gate that is taken over.

    ``pid``      its process id; 0 where the kernel cannot tell
    ``sockets``  its listening sockets, without the control socket
    ``control``  its control socket
    ``state``    the brokers that it knows
    ``unready``  why it could not serve clients; None if it could
    """

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.pid = pid
        self.sockets: dict[SocketKey, socket.socket] = {}
        self.state = StoredCluster()
        self.unready: str | None = None
        self._sock = sock
        self._incoming = Incoming(MAX_RUNNING_GATE_BYTES)
        self._messages: list[dict[str, Any]] = []
        try:
            self._receive_sockets()
        except BaseException:
            self.close()
            for one in self.sockets.values():
                one.close()
            raise
        self._sock.setblocking(False)
        self.control = self.sockets.pop(CONTROL)

    @classmethod
    def begin(cls, path: Path) -> TakeOver | None:
        """Get the sockets of the gate whose control socket is at ``path``; None: none runs, or it
        was killed before it had sent them.

        Raises HandOverError where the gate refuses, and OSError.
        """
        raise_limit()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(ANSWER_S)
            with connectable(path) as address:
                sock.connect(address)
            pid, user = credentials(sock)
            if user not in (os.geteuid(), 0):  # 0 is root
                raise OSError(errno.EPERM, f"user {user} runs it, and this is user {os.geteuid()}")
            sock.sendall(encoded("hello", version=VERSION, pid=os.getpid()))
        except (FileNotFoundError, ConnectionError):
            sock.close()
            return None
        except OSError as error:
            sock.close()
            raise HandOverError(
                f"the gate at {path} cannot be taken over: {error.strerror or error}"
            ) from None
        try:
            return cls(sock, pid)
        except GoneError:
            return None

    def _receive_sockets(self) -> None:
        keys: list[SocketKey] = []
        descriptors: list[int] = []
        left = 1
        try:
            while left:
                message = self._next_message(descriptors)
                keys += [_key(name, node_id) for name, node_id in message["keys"]]
                left = message["left"]
                if "state" in message:
                    self.unready = _text(message["unready"])
                    self.state = StoredCluster.decode((_text(message["state"]) or "").encode())
        except (KeyError, TypeError, ValueError) as error:
            raise HandOverError(f"the running gate sent something unexpected: {error}") from None
        finally:
            socks = [socket.socket(fileno=one) for one in descriptors]
            self.sockets = dict(zip(keys, socks, strict=False))
        if not len(keys) == len(socks) == len(self.sockets) or CONTROL not in self.sockets:
            raise HandOverError(f"the running gate sent {len(socks)} sockets, expected {len(keys)}")

    def _next_message(self, descriptors: list[int]) -> dict[str, Any]:
        while not self._messages:
            try:
                data, came, _, _ = socket.recv_fds(self._sock, _READ, SOCKETS_AT_ONCE)
            except ConnectionError:
                raise GoneError(_CLOSED) from None
            except TimeoutError:
                raise HandOverError(_SILENT) from None
            descriptors += came
            for one in came:
                os.set_inheritable(one, False)
            self._take(data)
        return _expected(self._messages.pop(0), "sockets")

    def _take(self, data: bytes) -> None:
        if not data:
            raise GoneError(_CLOSED)
        self._messages += self._incoming.feed(data)

    # ---- on the event loop -----------------------------------------------------------------------

    async def ready(self) -> None:
        """Report that this gate can serve; return when it may accept. Raises HandOverError."""
        async with _answering():
            await self._send("ready")
            _expected(await self._received(), "go")

    async def took(self) -> None:
        """Report that this gate accepts, so that the other one drains. Raises HandOverError."""
        async with _answering():
            await self._send("took")

    def is_gone(self) -> bool:
        """Return whether the other gate has ended without a message."""
        try:
            return not self._messages and not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def ended(self) -> None:
        """Wait until the other gate has written its files for the last time, or is gone."""
        with contextlib.suppress(OSError):
            _expected(await self._received(), "ended")
        self.close()

    def fail(self, why: str) -> None:
        """Report that this gate does not take over, and close everything."""
        with contextlib.suppress(OSError):
            self._sock.send(encoded("failed", why=why[:1_000]))
        self.close()

    def close(self) -> None:
        """Close the connection to the other gate. The listening sockets stay open."""
        self._sock.close()

    async def _send(self, kind: str) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._sock, encoded(kind))
        except ConnectionError:
            # it may have sent why, before it closed the connection
            _expected(await self._received(), "refused")

    async def _received(self) -> dict[str, Any]:
        while not self._messages:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._sock, _READ)
            except ConnectionError:
                data = b""
            self._take(data)
        return self._messages.pop(0)


@contextlib.asynccontextmanager
async def _answering() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except TimeoutError:
        raise HandOverError(_SILENT) from None


class Successor(Protocol):
    """The part of the new gate that a hand-over uses."""

    async def start(self) -> None: ...
    async def stop(self, drain_s: float | None = None) -> None: ...
    def preparing(self) -> str | None: ...
    def accept(self) -> None: ...
    def succeeded(self) -> None: ...


async def taken_over(predecessor: TakeOver, gate: Successor) -> None:
    """Start a gate in place of another. Raises OSError, after which the other one goes on.

    Where the other one is killed meanwhile, nobody else has its sockets: the new gate serves.
    """
    await gate.start()
    try:
        is_gone = not await _asked(gate, predecessor)
        gate.accept()
        try:
            if not is_gone:
                await predecessor.took()
        except GoneError:
            is_gone = True
        gate.succeeded()  # it reads the messages from then on
    except BaseException:
        await gate.stop(0)
        raise
    if is_gone:
        log.warning(
            "process %d was killed while it was taken over: this gate goes on alone",
            predecessor.pid,
        )


async def _asked(gate: Successor, predecessor: TakeOver) -> bool:
    """Wait until a gate may accept; return whether the other one lives. Raises HandOverError."""
    try:
        await _prepared(gate, predecessor)
        await predecessor.ready()
    except GoneError:
        return False
    return True


async def _prepared(gate: Successor, predecessor: TakeOver) -> None:
    """Wait until a gate can serve clients, unless the other one cannot. Raises GoneError."""
    until = asyncio.get_running_loop().time() + PREPARE_S
    while predecessor.unready is None and (why := gate.preparing()) is not None:
        if asyncio.get_running_loop().time() > until:
            raise HandOverError(f"the new gate was not ready within {PREPARE_S:g} s: {why}")
        if predecessor.is_gone():
            raise GoneError(_CLOSED)
        await asyncio.sleep(LOOK_S)


def _key(name: object, node_id: object) -> SocketKey:
    """Return the key of a socket in a message. Raises TypeError."""
    if not isinstance(name, str) or not (node_id is None or isinstance(node_id, int)):
        raise TypeError(f"{[name, node_id]!r:.100} is not a listener and a node id")
    return name, node_id


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is not a text")
    return value


def _expected(message: dict[str, Any], kind: str) -> dict[str, Any]:
    if message["kind"] == "refused":
        raise HandOverError(f"the running gate cannot be taken over: {message.get('why')}")
    if message["kind"] != kind:
        raise HandOverError(f"the running gate sent {message['kind']!r:.40}, expected {kind}")
    return message


class Succession:
    """One gate's place between two others.

    ``predecessor``  the gate that it takes over, until that one has ended
    ``is_ending``    returns whether the gate drains, or is about to
    ``unready``      returns why the gate cannot serve clients; None if it can
    """

    def __init__(
        self,
        predecessor: TakeOver | None,
        ports: ListeningSockets,
        discovery: Discovery,
        observed_file: ObservedFile | None,
        health: HealthServer,
        *,
        is_ending: Callable[[], bool],
        unready: Callable[[], str | None],
    ) -> None:
        self.predecessor = predecessor
        self._ports = ports
        self._discovery = discovery
        self._observed_file = observed_file
        self._health = health
        self._is_ending = is_ending
        self._unready = unready
        self._following: asyncio.Task[None] | None = None

    def succeeded(self) -> None:
        """Note that the gate alone accepts connections, and wait for the end of the other one."""
        if self.predecessor is not None:
            self._following = asyncio.create_task(self._follow(self.predecessor))

    async def _follow(self, predecessor: TakeOver) -> None:
        """Wait for the end of the other gate; the files are this one's then."""
        await predecessor.ended()
        self.predecessor = None
        self._ports.shared_until = 0.0
        if self._observed_file is not None:
            await self._observed_file.follow()

    def offer(self) -> Offer:
        """Return what a new gate gets. Raises HandOverError."""
        if self.predecessor is not None:
            raise HandOverError(
                f"the gate that it has taken over (process {self.predecessor.pid}) still drains"
            )
        if self._is_ending():
            raise HandOverError("it ends")
        self._ports.shared_until = math.inf
        state = self._discovery.state().encode().decode()
        return Offer(dict(self._ports.sockets), state, self._unready())

    def go_on(self) -> None:
        """Keep all that was offered: the new gate is lost."""
        self._ports.shared_until = time.monotonic() + FREE_S

    def hand_over(self) -> None:
        """Leave /metrics and the file of the brokers to the gate that has taken over."""
        self._health.close_port()
        self._discovery.hand_over()

    async def stop(self) -> None:
        """Wait for the end of the other gate, so that the files can be written."""
        if self._following is not None:
            await asyncio.wait((self._following,), timeout=FOLLOW_S)
            if self._following.cancel():
                log.warning(
                    "the newest counts of refusals are not written: the gate before this one still drains"
                )
