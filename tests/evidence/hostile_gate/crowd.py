"""Connections of an attacker, driven by one thread: what they send, and what they read."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

PIECE = 256 << 10


@dataclass
class Plan:
    """The work of one connection.

    ``data``      bytes to send
    ``requests``  whole requests among them
    ``answers``   frames to wait for; 0: it waits for none
    ``reads``     whether it reads at all
    ``drip``      bytes at a time, each 50 ms; 0: as fast as the gate takes them
    ``stays``     whether it stays open when it has sent and read all
    """

    data: bytes
    requests: int = 0
    answers: int = 0
    reads: bool = True
    drip: int = 0
    stays: bool = False


@dataclass
class Sent:
    """The counts of what an attack has sent and got."""

    connections: int = 0
    sent: int = 0  # bytes that the kernel has taken
    requests: int = 0  # whole ones among them
    plain: int = 0  # bytes that the gate may have decompressed of it
    answered: int = 0  # bytes
    answers: int = 0  # frames
    largest_answer: int = 0
    closed: int = 0  # connections that the gate has closed
    facts: dict[str, float] = field(default_factory=dict)  # of this attack alone


class Connection:
    """One connection and how far it is."""

    def __init__(self, sock: socket.socket, plan: Plan) -> None:
        self.sock, self.plan = sock, plan
        self.view = memoryview(plan.data)
        self.at = self.answered = self.answers = self.largest = 0
        self.head = b""
        self.left = 0  # bytes of an answer that are still to come
        self.is_closed = False
        self.next_drip = 0.0

    @property
    def done(self) -> bool:
        sent = self.at >= len(self.view)
        return self.is_closed or (
            sent and self.answers >= self.plan.answers and not self.plan.stays
        )

    def send(self, now: float) -> None:
        step = PIECE
        if self.plan.drip:
            if now < self.next_drip:
                return
            step, self.next_drip = self.plan.drip, now + 0.05
        with contextlib.suppress(BlockingIOError):
            self.at += self.sock.send(self.view[self.at : self.at + step])

    def receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = self.sock.recv(1 << 20)
            if not data:
                raise ConnectionResetError
            self.answered += len(data)
            self._count(data)

    def _count(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self.left:
                step = min(self.left, len(data) - at)
                self.left -= step
                at += step
                self.answers += not self.left
                continue
            take = min(4 - len(self.head), len(data) - at)
            self.head += data[at : at + take]
            at += take
            if len(self.head) == 4:
                self.left = int.from_bytes(self.head, "big")
                self.largest = max(self.largest, self.left)
                self.head = b""
                self.answers += not self.left


def connect(address: tuple[str, int]) -> socket.socket:
    """Return a connection that does not block, and may still be on its way."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(BlockingIOError):
        sock.connect(address)
    return sock


class Crowd:
    """Drives connections until each is done."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.connections: list[Connection] = []

    def open(self, plans: Iterable[Plan]) -> None:
        """Connect. A connection that the gate refuses counts as closed by it."""
        for plan in plans:
            try:
                one = Connection(connect(self.address), plan)
            except OSError:
                one = Connection(socket.socket(), plan)
                one.is_closed = True
            self.connections.append(one)

    def drive(self, seconds: float) -> None:
        """Send and read until all are done, or for so long."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            events: dict[Connection, int] = {}
            while time.monotonic() < until:
                waiting = self._watch(selector, events)
                if not waiting:
                    return
                ready = selector.select(0.02)
                now = time.monotonic()
                for key, mask in ready:
                    self._step(selector, events, key.data, mask, now)
                if any(one.plan.drip for one in waiting):
                    time.sleep(0.005)

    def _watch(
        self, selector: selectors.BaseSelector, events: dict[Connection, int]
    ) -> list[Connection]:
        waiting = []
        for one in self.connections:
            if one.done:
                if one in events:
                    selector.unregister(one.sock)
                    del events[one]
                continue
            waiting.append(one)
            wanted = selectors.EVENT_WRITE if one.at < len(one.view) else 0
            wanted |= selectors.EVENT_READ if one.plan.reads else 0
            if wanted == events.get(one, 0):
                continue
            if one not in events:
                selector.register(one.sock, wanted, one)
            elif wanted:
                selector.modify(one.sock, wanted, one)
            else:
                selector.unregister(one.sock)
            events[one] = wanted
            if not wanted:
                del events[one]
        return waiting

    def _step(
        self,
        selector: selectors.BaseSelector,
        events: dict[Connection, int],
        one: Connection,
        mask: int,
        now: float,
    ) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                one.send(now)
            if mask & selectors.EVENT_READ:
                one.receive()
        except OSError:
            one.is_closed = True
            selector.unregister(one.sock)
            del events[one]

    def close(self) -> None:
        for one in self.connections:
            one.sock.close()

    def sent(self, plain: int = 0) -> Sent:
        """Return what came of it; ``plain`` bytes come out of all requests together."""
        total = sum(len(one.view) for one in self.connections)
        taken = sum(one.at for one in self.connections)
        share = taken / total if total else 0.0
        return Sent(
            len(self.connections),
            taken,
            int(sum(one.plan.requests for one in self.connections) * share),
            int(plain * share),
            sum(one.answered for one in self.connections),
            sum(one.answers for one in self.connections),
            max((one.largest for one in self.connections), default=0),
            sum(one.is_closed for one in self.connections),
        )
