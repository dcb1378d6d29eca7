"""Measure the memory of a proxy: idle connections, a stopped broker, a client that reads nothing.

Each in a process of its own. Memory is the resident set, which only grows where pages are touched.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.proxy import ends, load

Start = Callable[[int], ends.Process]
LIMIT = 512 << 20  # the gate's max_bytes_held


@contextlib.contextmanager
def both(start: Start, answers: Path) -> Iterator[tuple[ends.Process, ends.Process]]:
    """Provide a broker and the proxy before it."""
    broker = ends.broker(answers, ends.Place())
    proxy = start(broker.port)
    try:
        yield broker, proxy
    finally:
        proxy.stop()
        broker.stop()


def connected(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.settimeout(30)
    return sock


def whole(sock: socket.socket, size: int) -> None:
    left = size
    while left:
        data = sock.recv(min(left, 1 << 20))
        if not data:
            raise RuntimeError("the connection ended")
        left -= len(data)


def warn_once(port: int, count: int, frame: bytes) -> list[socket.socket]:
    """Open connections and wait for an answer on each, so that the broker's side is open, too."""
    size = 8 + len(load.produce_answer())
    socks = []
    for _ in range(count):
        sock = connected(port)
        sock.sendall(frame)
        whole(sock, size)
        socks.append(sock)
    return socks


def idle(start: Start, answers: Path, frame: bytes, count: int) -> dict[str, Any]:
    """Measure bytes a connection: ``count`` more than 50 existing ones, after an idle second."""
    with both(start, answers) as (_, proxy):
        socks = warn_once(proxy.port, 50, frame)
        time.sleep(1)
        before = proxy.rss_bytes()
        socks += warn_once(proxy.port, count, frame)
        time.sleep(1)
        after = proxy.rss_bytes()
        for sock in socks:
            sock.close()
        return {
            "connections": count,
            "bytes_a_connection": (after - before) / count,
            "rss_before": before,
        }


def stalled_broker(
    start: Start, answers: Path, frame: bytes, clients: int, seconds: float
) -> dict[str, Any]:
    """Send all that is accepted to a stopped broker, resume it, and wait until all is answered."""
    with both(start, answers) as (broker, proxy):
        socks = warn_once(proxy.port, clients, frame)
        before = peak = proxy.rss_bytes()
        os.kill(broker.process.pid, signal.SIGSTOP)
        sent = dict.fromkeys(socks, 0)
        selector = selectors.DefaultSelector()
        for sock in socks:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_WRITE)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in selector.select(0.2):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                at = sent[sock] % len(frame)
                sent[sock] += sock.send(memoryview(frame)[at:])
            peak = max(peak, proxy.rss_bytes())
        os.kill(broker.process.pid, signal.SIGCONT)
        size = 8 + len(load.produce_answer())
        for sock in socks:
            sock.settimeout(60)
            whole(sock, size * (sent[sock] // len(frame)))
        return {
            "clients": clients,
            "bytes_taken": sum(sent.values()),
            "rss_before": before,
            "growth_bytes": peak - before,
            "limit_bytes": LIMIT,
        }


def stalled_client(start: Start, answers: Path, fetches: int) -> dict[str, Any]:
    """Request answers of 1 MiB from one client that reads none for a while, and then all."""
    with both(start, answers) as (_, proxy):
        sock = connected(proxy.port)
        sock.sendall(load.fetch())
        whole(sock, 8 + load.FETCH_ANSWER)
        before = peak = proxy.rss_bytes()
        sock.sendall(load.fetch() * fetches)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            time.sleep(0.05)
            peak = max(peak, proxy.rss_bytes())
        left = fetches
        while left:
            whole(sock, 8 + load.FETCH_ANSWER)
            left -= 1
            if left % 16 == 0:
                peak = max(peak, proxy.rss_bytes())
        sock.close()
        return {
            "bytes_queued": fetches * (8 + load.FETCH_ANSWER),
            "rss_before": before,
            "growth_bytes": peak - before,
            "limit_bytes": LIMIT,
        }
