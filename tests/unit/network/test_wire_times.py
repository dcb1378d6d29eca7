"""Times on the wire: from the last byte of a request written to the first byte of its answer."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from collections.abc import Callable

import pytest

from batchval.network import wire_times
from batchval.network.connection import Connection
from batchval.network.loops import loop_factory
from batchval.network.options import ConnectionOptions
from tests.support.network import Ask, Splitter, answer

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": loop_factory()}
DELAY_S = 0.03


async def measured(reply: Callable[[asyncio.StreamWriter], object]) -> list[tuple[int, int, int]]:
    """Return what is reported of three requests to a peer that lets ``reply`` answer the last."""
    found: list[tuple[int, int, int]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(length)
        await asyncio.sleep(DELAY_S)
        reply(writer)
        await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = ConnectionOptions(splitter=Splitter, on_wire=lambda *times: found.append(times))
    connection = await Connection.open("127.0.0.1", port, options)
    begin = time.monotonic_ns()
    answers = [asyncio.ensure_future(connection.request(Ask(b"%d" % n))) for n in range(3)]
    await asyncio.gather(*answers)
    assert all(begin <= written <= first <= time.monotonic_ns() for _, written, first in found)
    connection.close()
    await connection.wait_closed()
    server.close()
    return found


@pytest.mark.parametrize("loop", LOOPS)
def test_each_answer_is_reported_once_and_not_before_its_first_byte(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        found = runner.run(measured(lambda writer: writer.write(b"".join(map(answer, range(3))))))
    assert len(found) == 3
    assert min(first - written for _, written, first in found) >= DELAY_S * 0.9e9


@pytest.mark.parametrize("loop", LOOPS)
def test_the_first_byte_counts_where_an_answer_comes_in_parts(loop: str) -> None:
    """The rest of the last answer comes 100 ms after its first bytes."""

    def in_parts(writer: asyncio.StreamWriter) -> None:
        whole = b"".join(map(answer, range(3)))
        writer.write(whole[:-3])
        asyncio.get_running_loop().call_later(0.1, writer.write, whole[-3:])

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        begin = time.monotonic_ns()
        found = runner.run(measured(in_parts))
        ended = time.monotonic_ns()
    assert ended - begin >= 100_000_000
    assert found[-1][2] <= ended - 90_000_000


@pytest.mark.parametrize("loop", LOOPS)
def test_the_kernel_stamps_what_a_busy_loop_reads_late(loop: str) -> None:
    """The kernel begins to stamp a moment after it was asked for the first time."""

    async def late() -> list[int]:
        found: list[int] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            options = ConnectionOptions(
                splitter=Splitter, on_wire=lambda *times: found.append(times[2])
            )
            opening = asyncio.ensure_future(Connection.open(*listener.getsockname(), options))
            peer, _ = await asyncio.to_thread(listener.accept)
            connection = await opening
            for n in range(100):
                asked = asyncio.ensure_future(connection.request(Ask(b"?")))
                await asyncio.sleep(0)
                peer.sendall(answer(n))
                sent = time.monotonic_ns()
                time.sleep(0.01)  # the loop is busy; the answer waits in the kernel
                await asked
                found[-1] -= sent
                if found[-1] < 5_000_000:
                    break
            connection.close()
            await connection.wait_closed()
            peer.close()
        return found

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        found = runner.run(late())
    assert found[-1] < 5_000_000, found


def test_a_stamp_of_a_clock_that_was_set_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()

    def stamped(ns: int) -> int:
        data = struct.pack("@ll", *divmod(ns, 1_000_000_000))
        return wire_times.arrived_ns([(socket.SOL_SOCKET, 35, data)])

    assert abs(stamped(now) - time.monotonic_ns()) < 1_000_000_000
    assert stamped(now + 3_600_000_000_000) == 0
    assert stamped(now - 3_600_000_000_000) == 0
    assert wire_times.arrived_ns([]) == wire_times.arrived_ns([(1, 2, b"")]) == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    with socket.socket() as sock:
        assert not wire_times.ask_for_stamps(sock)
