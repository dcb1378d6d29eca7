"""The control socket of a gate: a new process takes over its listening sockets.

    SERVING    nobody takes over
    OFFERED    a new gate has the sockets, and prepares. It accepts nothing yet
    STARTING   the new gate is ready and may accept. So does this one
    HANDED     the new gate accepts; this one accepts nothing any more, and drains
    STOPPED    this gate ends by itself, and cannot be taken over

    SERVING ──HELLO──► OFFERED ──READY──► STARTING ──TOOK──► HANDED
       ▲                  │                  │
       └──────LOST────────┴──────────────────┘          STOP leads from each of these to STOPPED

LOST stands for all that can go wrong with the new gate: it closes the connection, reports a fault,
sends something unexpected, or takes too long. Then this gate goes on as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from batchval.proxy.cluster.listening_sockets import Acceptor, OpeningConnections, SocketKey
from batchval.proxy.kit.state_machine import StateMachine
from batchval.proxy.life.handover_messages import (
    MAX_NEW_GATE_BYTES,
    VERSION,
    HandOverError,
    Incoming,
    encoded,
)

__all__ = [
    "CONTROL",
    "NOT_A_SOCKET",
    "TRANSITIONS",
    "Control",
    "HandoverEvent",
    "HandoverState",
    "Offer",
    "connectable",
    "credentials",
]

CONTROL: Final[SocketKey] = (":control", None)

#: Seconds until a new gate has sent its first message, has prepared, and accepts.
HELLO_S: Final = 5.0
PREPARE_S: Final = 120.0
TAKE_S: Final = 10.0

MAX_PEERS: Final = 8
#: What to do about a file at the path of the control socket.
NOT_A_SOCKET: Final = "remove it, or set control to another path"
#: Sockets that go with one message; Linux takes up to 253 (SCM_MAX_FD).
SOCKETS_AT_ONCE: Final = 100
WRITE_AGAIN_S: Final = 0.005

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid

log = logging.getLogger("batchval.proxy")


class HandoverState(enum.Enum):
    """The states of a hand-over in the running gate."""

    SERVING = "serving"
    OFFERED = "offered"
    STARTING = "starting"
    HANDED = "handed"
    STOPPED = "stopped"


class HandoverEvent(enum.Enum):
    """The events of a hand-over."""

    HELLO = "hello"
    READY = "ready"
    TOOK = "took"
    LOST = "lost"
    STOP = "stop"


#: (state, event) -> the next state.
TRANSITIONS: Final[dict[tuple[HandoverState, HandoverEvent], HandoverState]] = {
    (HandoverState.SERVING, HandoverEvent.HELLO): HandoverState.OFFERED,
    (HandoverState.SERVING, HandoverEvent.STOP): HandoverState.STOPPED,
    (HandoverState.OFFERED, HandoverEvent.READY): HandoverState.STARTING,
    (HandoverState.OFFERED, HandoverEvent.LOST): HandoverState.SERVING,
    (HandoverState.OFFERED, HandoverEvent.STOP): HandoverState.STOPPED,
    (HandoverState.STARTING, HandoverEvent.TOOK): HandoverState.HANDED,
    (HandoverState.STARTING, HandoverEvent.LOST): HandoverState.SERVING,
    (HandoverState.STARTING, HandoverEvent.STOP): HandoverState.STOPPED,
}


class Offer(NamedTuple):
    """The sockets and facts that a new gate gets.

    ``state``    the brokers as in brokers.json: ``StoredCluster.encode``
    ``unready``  why this gate cannot serve clients; None if it can
    """

    sockets: Mapping[SocketKey, socket.socket]
    state: str
    unready: str | None


class Control(StateMachine[HandoverState, HandoverEvent]):
    """The control socket at ``path``, of mode 0600.

    ``offer``      returns what a new gate gets. Raises HandOverError where there is none to be had
    ``handed``     called once with the new gate's process id, when it accepts connections
    ``kept``       called when a new gate that had the offer is lost
    """

    transitions = TRANSITIONS

    def __init__(
        self,
        path: Path,
        offer: Callable[[], Offer],
        handed: Callable[[int], None],
        kept: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.state = HandoverState.SERVING
        self.peers: set[_Peer] = set()
        self._offer = offer
        self._handed = handed
        self._kept = kept
        self._sock: socket.socket | None = None
        self._file: tuple[int, int] | None = None
        self._acceptor: Acceptor | None = None
        self._opening = OpeningConnections()
        self._taker: _Peer | None = None
        self._taker_pid = 0

    def open(self, inherited: socket.socket | None = None) -> None:
        """Listen, or use the control socket of the gate that is taken over. Raises OSError."""
        self._sock = _listening(self.path) if inherited is None else inherited
        self._file = _identity(self.path)

    def start(self) -> None:
        """Accept from now on. Needs a running loop."""
        assert self._sock is not None
        self._acceptor = Acceptor(self._sock, self._open, free=self._free)

    def _open(self, connection: socket.socket) -> None:
        self._opening.open(connection, _Peer(self))

    def stop(self) -> None:
        """Accept nothing any more; remove the socket's file unless a new gate has the socket."""
        self.move(HandoverEvent.STOP)
        if (
            self.state is HandoverState.STOPPED
            and self._file is not None
            and _identity(self.path) == self._file
        ):
            with contextlib.suppress(OSError):
                self.path.unlink()
        if self._acceptor is not None:
            self._acceptor.close()
        if self._sock is not None:
            self._sock.close()
        for peer in list(self.peers):
            if self.state is HandoverState.STOPPED or peer is not self._taker:
                peer.refuse("the gate ends")

    def ended(self) -> None:
        """Report to the new gate that the files of this one are written for the last time."""
        if self._taker is not None:
            self._taker.send("ended")
            self._taker.close()

    def _free(self) -> int:
        return MAX_PEERS - len(self.peers)

    # ---- what peers report -----------------------------------------------------------------------

    def accepted(self, peer: _Peer) -> None:
        """Count a connection."""
        self._opening.opened(peer)
        self.peers.add(peer)

    def received(self, peer: _Peer, message: Mapping[str, Any]) -> None:
        """Take the next message of a new gate. Raises HandOverError for one that is out of turn."""
        kind = message["kind"]
        if kind == "hello":
            self._greeted(peer, message)
        elif peer is not self._taker:
            raise HandOverError(f"it sent {kind!r:.40}, expected hello")
        elif kind == "failed":
            raise HandOverError(str(message.get("why"))[:1_000])
        elif kind == "ready" and self.move(HandoverEvent.READY):
            peer.allow(TAKE_S)
            peer.send("go")
        elif kind == "took" and self.move(HandoverEvent.TOOK):
            peer.allow(None)
            log.info("process %d has taken over", self._taker_pid)
            self._handed(self._taker_pid)
        else:
            raise HandOverError(
                f"it sent {kind!r:.40}, which is out of turn: the hand-over is {self.state.value}"
            )

    def _greeted(self, peer: _Peer, message: Mapping[str, Any]) -> None:
        version, pid = message.get("version"), peer.pid or message.get("pid")
        if peer.refusal:
            peer.refuse(peer.refusal)
        elif version != VERSION:
            peer.refuse(
                f"the running gate speaks version {VERSION} of the hand-over, the new one {version!r:.40}"
            )
        elif self.state is not HandoverState.SERVING:
            peer.refuse(f"process {self._taker_pid} takes over already")
        else:
            try:
                offer = self._offer()
            except HandOverError as error:
                peer.refuse(str(error))
                return
            self.move(HandoverEvent.HELLO)
            self._taker, self._taker_pid = peer, pid if isinstance(pid, int) else 0
            peer.allow(PREPARE_S)
            assert self._sock is not None
            peer.offer(offer, {**offer.sockets, CONTROL: self._sock})
            log.info(
                "process %d takes over: it gets %d sockets", self._taker_pid, len(offer.sockets) + 1
            )

    def is_taker(self, peer: _Peer) -> bool:
        """Return whether this is the new gate that has the sockets."""
        return peer is self._taker

    def lost(self, peer: _Peer, why: str) -> None:
        """Go on as before where the new gate is lost."""
        self.peers.discard(peer)
        if peer is self._taker:
            self._taker = None
            if self.move(HandoverEvent.LOST):
                self._kept()
                why = why or "it closed the connection"
                log.error(
                    "process %d does not take over: %s; this gate goes on", self._taker_pid, why
                )
        elif why:
            log.warning("the control socket: a connection was closed: %s", why)


class _Peer(asyncio.Protocol):
    """One connection to the control socket.

    ``pid``      0 where the kernel cannot tell
    ``refusal``  why it cannot take over, whatever it sends
    """

    def __init__(self, control: Control) -> None:
        self.pid = 0
        self.refusal = ""
        self._control = control
        self._incoming = Incoming(MAX_NEW_GATE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._offering: asyncio.Task[None] | None = None
        self._why = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._control.accepted(self)
        self.pid, user = credentials(transport.get_extra_info("socket"))
        if user not in (os.geteuid(), 0):  # 0 is root
            self.refusal = f"user {user} may not take over a gate of user {os.geteuid()}"
        self.allow(HELLO_S)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._incoming.feed(data):
                if self._transport is not None and not self._transport.is_closing():
                    self._control.received(self, message)
        except HandOverError as error:
            self.drop(str(error))

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self.allow(None)
        if self._offering is not None:
            self._offering.cancel()
        self._control.lost(self, self._why)

    def allow(self, seconds: float | None) -> None:
        """Close the connection unless its next message comes in time; None: it may be silent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            why = f"it sent nothing for {seconds:g} s"
            self._timer = asyncio.get_running_loop().call_later(seconds, self.drop, why)

    def send(self, kind: str, **values: object) -> None:
        """Send a message without sockets."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encoded(kind, **values))

    def refuse(self, why: str) -> None:
        """Send why the gate cannot be taken over, and close the connection."""
        self.send("refused", why=why)
        self.close(why)

    def drop(self, why: str) -> None:
        """Close the connection; a new gate that has the sockets gets the reason first."""
        if self._control.is_taker(self):
            self.refuse(why)
        else:
            self.close(why)

    def close(self, why: str = "") -> None:
        """Close the connection."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.close()

    def offer(self, offer: Offer, sockets: Mapping[SocketKey, socket.socket]) -> None:
        """Send the sockets, in a task: the peer may read slowly."""
        self._offering = asyncio.get_running_loop().create_task(
            self._send_offer(offer, list(sockets.items()))
        )

    async def _send_offer(
        self, offer: Offer, sockets: Sequence[tuple[SocketKey, socket.socket]]
    ) -> None:
        assert self._transport is not None
        try:
            with socket.socket(
                fileno=os.dup(self._transport.get_extra_info("socket").fileno())
            ) as sock:
                for start in range(0, len(sockets), SOCKETS_AT_ONCE):
                    some = sockets[start : start + SOCKETS_AT_ONCE]
                    left = len(sockets) - start - len(some)
                    values = {} if start else {"unready": offer.unready, "state": offer.state}
                    data = encoded("sockets", keys=[key for key, _ in some], left=left, **values)
                    await _send(sock, data, [one.fileno() for _, one in some])
        except OSError as error:
            self.drop(f"the sockets cannot be sent: {error.strerror or error}")


async def _send(sock: socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    """Send all; the descriptors go with the first byte."""
    while data:
        try:
            sent = socket.send_fds(sock, [data], descriptors)
        except BlockingIOError:
            await asyncio.sleep(WRITE_AGAIN_S)
        else:
            data, descriptors = data[sent:], ()


def credentials(sock: Any) -> tuple[int, int]:
    """Return the other end's process and user; (0, this user) where the kernel reports neither.

    There the mode of the socket and of its folder keeps other users out.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.geteuid()
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(found)
    return pid, user


def _listening(path: Path) -> socket.socket:
    """Return a socket that listens at ``path``. Raises OSError, also where another gate has it."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _named(path), connectable(path) as address:
            if _is_used(address):
                raise OSError(
                    errno.EADDRINUSE,
                    "a running gate has it: stop that one first, or use --take-over",
                )
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)  # of a process that was killed
            sock.bind(address)
            os.chmod(address, 0o600)
            sock.listen(MAX_PEERS)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_used(address: str) -> bool:
    """Return whether a process listens there. Raises OSError where it is not a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.settimeout(HELLO_S)
            sock.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            if os.path.lexists(address) and not Path(address).is_socket():
                raise OSError(errno.EEXIST, f"it is not a socket: {NOT_A_SOCKET}") from None
            return False
        return True


@contextlib.contextmanager
def connectable(path: Path) -> Iterator[str]:
    """Yield an address of the socket at ``path``: the kernel takes 107 bytes at most."""
    if len(os.fsencode(path)) <= 100 or not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(error.errno, f"the control socket {path} cannot be opened: {why}") from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
