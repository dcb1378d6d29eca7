"""An innocent client in a process of its own: ordinary requests at a fixed pace, each one timed.

    python prober.py HOST PORT tls|plain

It asks the gate at PORT for Metadata, and goes to broker 1 through the gate's port for that broker.
There it sends a small Produce request each 10 ms and one of 120 kB zstd each 50 ms, on two
connections.
The latency of a request counts from the moment when it is due, so a gate that stalls for a second
has a hundred slow requests and not one. A request waits its turn while 20 others are unanswered.

Standard output: "ready"; for each line of standard input "FROM TO" (CLOCK_MONOTONIC) one JSON
object: ``small`` and ``large``, the latencies in seconds of the requests that were due meanwhile
(for one that is unanswered: so far), and ``wrong``, what was not as it should be.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import sys
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import uvloop

from tests.evidence.hostile_gate import batches
from tests.evidence.hostile_gate.broker import produce_answer
from tests.evidence.hostile_gate.requests import metadata, produce

MAX_UNANSWERED = 20
SMALL_S, LARGE_S = 0.010, 0.050


class Client:
    """One connection with its requests: when each was due, and how long its answer took."""

    def __init__(self, request: bytes, every_s: float) -> None:
        self.request, self.every_s = request, every_s
        self.unanswered: deque[float] = deque()
        self.taken: list[tuple[float, float]] = []
        self.wrong: list[str] = []
        self.answer = produce_answer()
        self.may_send = asyncio.Event()

    async def run(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        try:
            await asyncio.gather(self._send(writer), self._read(reader))
        except (OSError, asyncio.IncompleteReadError) as error:
            self.wrong.append(f"the connection ended: {type(error).__name__}")

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        due = time.monotonic()
        while True:
            due += self.every_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.unanswered.append(due)
            self.may_send.clear()
            if len(self.unanswered) > MAX_UNANSWERED:
                await self.may_send.wait()
            writer.write(self.request)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = await reader.readexactly(size)
            due = self.unanswered.popleft()
            self.taken.append((due, time.monotonic() - due))
            self.may_send.set()
            if answer[4:] != self.answer:
                self.wrong.append(f"another answer than the broker's: {answer[:60].hex()}")

    def between(self, start: float, end: float) -> list[float]:
        """Return the latencies of the requests that were due then."""
        now = time.monotonic()
        found = [taken for due, taken in self.taken if start <= due < end]
        return found + [now - due for due in self.unanswered if start <= due < end]


async def port_of_broker(number: int, host: str, port: int, tls: ssl.SSLContext | None) -> int:
    """Return the gate's port for a broker, from its answer to Metadata, version 1."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    writer.write(metadata([], client=b"innocent"))
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()
    (count,), at, ports = struct.unpack_from(">i", answer, 4), 8, {}
    for _ in range(count):
        node_id, size = struct.unpack_from(">ih", answer, at)
        (ports[node_id],) = struct.unpack_from(">i", answer, at + 6 + size)
        at += 12 + size
    return ports[number]


async def main(host: str, port: str, way: str) -> None:
    tls = None
    if way == "tls":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    small = Client(produce((b"t", [(0, batches.small().data)]), client=b"innocent"), SMALL_S)
    large = Client(produce((b"t", [(0, batches.ordinary().data)]), client=b"innocent"), LARGE_S)
    at = await port_of_broker(1, host, int(port), tls)
    running = [asyncio.ensure_future(one.run(host, at, tls)) for one in (small, large)]
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        start, end = map(float, line.split())
        found = {"small": small.between(start, end), "large": large.between(start, end)}
        print(json.dumps(found | {"wrong": (small.wrong + large.wrong)[:5]}), flush=True)
    for one in running:
        one.cancel()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
