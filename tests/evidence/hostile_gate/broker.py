"""A broker that answers cheaply, in a process of its own: ``python broker.py`` prints its port.

With ``python broker.py PORT`` its Metadata also names node 1, at that port. There a second such
process serves the innocent client, so that what it waits for is the gate and never this broker.

What it does depends on the client id of a request, which the gate passes on:

    mute-...      nothing is answered
    never-...     this process ends: no such request may come
    many-...      Metadata with 20,000 topics
    brokers-...   Metadata with 20,000 brokers
    new-...       Metadata with 5,000 brokers, others each time
    move-...      Metadata with one broker, which moves each time
    versions-...  ApiVersions with a million rows, 7 MB
    any other     Produce 9: success for topic "t", partition 0; Fetch 4: 50 MB where the client id
                  is big-..., else 1 kB; Metadata: the brokers alone; ApiVersions: `OFFERED`; other
                  APIs: the correlation id and two zero bytes

A request of an attacker is read and dropped in large pieces, so that the broker is not the bound.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import uvloop

from tests.evidence.hostile_gate.requests import compact

#: API key -> the versions that are offered, as Apache Kafka 4.4 has them where an attack uses them
OFFERED = {
    0: (0, 12),
    1: (4, 17),
    2: (1, 10),
    3: (0, 13),
    8: (2, 9),
    9: (1, 9),
    10: (0, 6),
    11: (2, 9),
}
OFFERED |= {
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    22: (0, 5),
    32: (1, 4),
    36: (0, 2),
}
FETCHED_BYTES = 50_000_000
MANY_TOPICS = 20_000
MANY_BROKERS = 20_000
API_VERSIONS, METADATA, PRODUCE, FETCH = 18, 3, 0, 1


def produce_answer() -> bytes:
    """Return what stands after the correlation id, of version 9."""
    partition = struct.pack(">ihqqq", 0, 0, 0, -1, 0) + b"\1\0\0"
    return b"\0\2" + compact(b"t") + b"\2" + partition + b"\0" + bytes(4) + b"\0"


def fetch_answer(size: int) -> bytes:
    """Return an answer of version 4: one partition, with records of this many zero bytes."""
    head = struct.pack(">iih", 0, 1, 1) + b"t" + struct.pack(">iihqqi", 1, 0, 0, 0, 0, -1)
    return head + struct.pack(">i", size) + bytes(size)


def metadata_answer(ports: Sequence[int], topics: int = 0) -> bytes:
    """Return an answer of version 1: brokers 0, 1, ... at these ports, topics of one partition."""
    host = b"127.0.0.1"
    brokers = (
        struct.pack(f">ih{len(host)}sih", i, len(host), host, port, -1)
        for i, port in enumerate(ports)
    )
    head = struct.pack(">i", len(ports)) + b"".join(brokers) + struct.pack(">ii", 0, topics)
    one = struct.pack(">b", 0) + struct.pack(">ihiiiii", 1, 0, 0, 0, 1, 0, 1) + struct.pack(">i", 0)
    names = (b"topic-%08d" % i for i in range(topics))
    return head + b"".join(struct.pack(">hh", 0, len(name)) + name + one for name in names)


def api_versions_answer(version: int) -> bytes:
    """Return what stands after the correlation id; its header is always of version 0."""
    if version >= 3:
        ranges = b"".join(struct.pack(">hhh", key, *both) + b"\0" for key, both in OFFERED.items())
        return bytes(2) + bytes([len(OFFERED) + 1]) + ranges + bytes(4) + b"\0"
    ranges = b"".join(struct.pack(">hhh", key, *both) for key, both in OFFERED.items())
    return bytes(2) + struct.pack(">i", len(OFFERED)) + ranges + (bytes(4) if version else b"")


def named_answer(first: int, count: int, port: int) -> bytes:
    """Return a Metadata answer of version 1 with so many brokers at one port, and no topics."""
    brokers = (struct.pack(">ih9sih", first + n, 9, b"127.0.0.1", port, -1) for n in range(count))
    return struct.pack(">i", count) + b"".join(brokers) + struct.pack(">ii", 0, 0)


class Answers:
    """The bytes after the correlation id, made once."""

    def __init__(self) -> None:
        self.produce, self.small = produce_answer(), fetch_answer(1000)
        self.large = fetch_answer(FETCHED_BYTES)
        self.million = (
            bytes(2) + struct.pack(">i", 1_000_000) + struct.pack(">hhh", 0, 3, 9) * 10**6
        )
        self.asked = 0  # for brokers that are others each time
        self.versions = [api_versions_answer(version) for version in range(5)]

    def listen_at(self, ports: Sequence[int]) -> None:
        """Set the ports of all brokers."""
        self.port = ports[0]
        self.brokers = named_answer(0, MANY_BROKERS, self.port)
        self.alone, self.many = metadata_answer(ports), metadata_answer(ports, MANY_TOPICS)

    def to(self, request: bytes) -> bytes | None:
        """Return the answer to a request that starts like this, or None."""
        key, version = struct.unpack_from(">hh", request)
        size = int.from_bytes(request[8:10], "big", signed=True)
        client = request[10 : 10 + max(size, 0)]
        if client.startswith(b"mute-"):
            return None
        if client.startswith(b"never-"):
            os._exit(1)
        if key == PRODUCE:
            return self.produce
        if key == FETCH:
            return self.large if client.startswith(b"big-") else self.small
        if key == METADATA and b"-" in client:
            return self._hostile_metadata(client)
        if key == API_VERSIONS and client.startswith(b"versions-"):
            return self.million
        if key == METADATA:
            return self.alone
        if key == API_VERSIONS:
            return self.versions[min(max(version, 0), 4)]
        return b"\0\0"

    def _hostile_metadata(self, client: bytes) -> bytes:
        """Return an answer of version 1."""
        self.asked += 1
        if client.startswith(b"brokers-"):
            return self.brokers
        if client.startswith(b"new-"):
            return named_answer(10_000 + self.asked * 5_000, 5_000, self.port)
        if client.startswith(b"move-"):
            return named_answer(9_999, 1, 1024 + self.asked % 2)
        return self.many if client.startswith(b"many-") else self.alone


class GateConnection(asyncio.BufferedProtocol):
    """A connection of the gate. Keeps the first 64 bytes of a request, and counts the rest."""

    HEAD = 64

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.received = bytearray(1 << 18)
        self.head = b""  # of the request that is being read, its length included
        self.left = 0  # bytes of it that are still to come and are dropped

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(self.received)

    def buffer_updated(self, count: int) -> None:
        data, at, out = self.received, 0, []
        while at < count:
            if self.left:
                step = min(self.left, count - at)
                self.left -= step
                at += step
                continue
            if not self.head and count - at >= 4:
                size = int.from_bytes(data[at : at + 4], "big")
                wanted = min(4 + size, self.HEAD)
            else:
                known = self.head + bytes(data[at : at + 4 - len(self.head)])
                wanted = (
                    4 if len(known) < 4 else min(4 + int.from_bytes(known[:4], "big"), self.HEAD)
                )
            take = min(wanted - len(self.head), count - at)
            self.head += data[at : at + take]
            at += take
            if len(self.head) < wanted or len(self.head) < 4:
                continue
            size = int.from_bytes(self.head[:4], "big")
            if len(self.head) < min(4 + size, self.HEAD):
                continue
            body = self.answers.to(bytes(self.head[4:]))
            if body is not None:
                out.append(struct.pack(">i", 4 + len(body)) + self.head[8:12])
                out.append(body)
            self.left = 4 + size - len(self.head)
            self.head = b""
        if out:
            self.transport.writelines(out)


async def serve(*others: str) -> None:
    answers = Answers()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: GateConnection(answers), "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    answers.listen_at([port, *map(int, others)])
    print(port, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:]))
