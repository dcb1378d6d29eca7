"""A TCP relay that knows nothing of Kafka, for a control without a gate.

    python -m tests.system.chain.relay PORT UPSTREAM_PORT

SIGHUP ends each connection with a reset on both sides. SIGUSR1 holds back whatever the upstream
sends from then on over the connections that are open, SIGUSR2 lets it go. What is held back at a
reset is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys

LOOPBACK = "127.0.0.1"
BUFFER = 1 << 16


class RelayProcess:
    """A relay in a process of its own."""

    def __init__(self, port: int, upstream: int) -> None:
        words = [sys.executable, "-m", "tests.system.chain.relay", str(port), str(upstream)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "listening\n"

    def reset(self) -> None:
        """End all connections."""
        self.process.send_signal(signal.SIGHUP)

    def hold_answers(self) -> None:
        """Hold back answers on the connections that are open; return once it does."""
        self.process.send_signal(signal.SIGUSR1)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "holding\n"

    def let_go(self) -> None:
        """Pass on what is held back."""
        self.process.send_signal(signal.SIGUSR2)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Pair:
    """A client's connection and its connection to the upstream."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self.writers = writers
        self.answers = asyncio.Event()  # whether they may pass
        self.answers.set()

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.answers.set()  # what waits for it writes to nobody


class Relay:
    """Connections to one port of the loopback, each carried to another port."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.pairs: set[Pair] = set()

    def reset_all(self) -> None:
        """End all connections at once: what is under way is dropped."""
        for pair in self.pairs:
            pair.abort()

    def hold_answers(self) -> None:
        for pair in self.pairs:
            pair.answers.clear()
        print("holding", flush=True)

    def let_go(self) -> None:
        for pair in self.pairs:
            pair.answers.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other, onward = await asyncio.open_connection(LOOPBACK, self.upstream)
        except OSError:
            writer.transport.abort()
            return
        pair = Pair(writer, onward)
        self.pairs.add(pair)
        try:
            await asyncio.gather(_copy(reader, onward), _copy(other, writer, pair.answers))
        finally:
            self.pairs.remove(pair)
            pair.abort()


async def _copy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    may_pass: asyncio.Event | None = None,
) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(BUFFER):
            if may_pass is not None:
                await may_pass.wait()
            writer.write(data)
            await writer.drain()
    if may_pass is not None:
        await may_pass.wait()
    writer.close()


async def serve(port: int, upstream: int) -> None:
    """Serve until the process is killed."""
    relay = Relay(upstream)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, relay.reset_all)
    loop.add_signal_handler(signal.SIGUSR1, relay.hold_answers)
    loop.add_signal_handler(signal.SIGUSR2, relay.let_go)
    server = await asyncio.start_server(relay.carry, LOOPBACK, port)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
