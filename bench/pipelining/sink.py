"""A broker that reads Produce 7 requests of idempotent batches, checks their order, and answers at
once.

Prints "listening HOST PORT". Error 45 (OUT_OF_ORDER_SEQUENCE_NUMBER) for a batch that is not the
one that follows.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct

from tests.support.produce_requests import produce_response


class Sink(asyncio.BufferedProtocol):
    """One connection, one partition."""

    congestion: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.congestion:
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.congestion.encode())
        self.transport = transport
        self.buffer = bytearray(4)
        self.filled = 0
        self.next_sequence: dict[int, int] = {}

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.filled += nbytes
        if self.filled < len(self.buffer):
            return
        if len(self.buffer) == 4:
            (size,) = struct.unpack(">i", self.buffer)
            self.buffer = self.buffer + bytes(size)  # a new one: the reader still holds the first
            return
        frame, self.buffer, self.filled = self.buffer, bytearray(4), 0
        self.answer(frame)

    def answer(self, frame: bytearray) -> None:
        correlation_id, client = struct.unpack_from(">ih", frame, 8)
        at = 14 + client + 12
        (name,) = struct.unpack_from(">h", frame, at)
        topic = bytes(frame[at + 2 : at + 2 + name])
        batch = at + 2 + name + 12
        producer_id, sequence, count = struct.unpack_from(">q2xii", frame, batch + 43)
        good = self.next_sequence.get(producer_id, 0) == sequence
        if good:
            self.next_sequence[producer_id] = sequence + count
        self.transport.write(produce_response(correlation_id, topic, 0 if good else 45, sequence))  # type: ignore[attr-defined]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--congestion")
    options = parser.parse_args()
    Sink.congestion = options.congestion
    server = await asyncio.get_running_loop().create_server(Sink, options.host, 0)
    print(f"listening {options.host} {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
