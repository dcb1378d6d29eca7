"""Break connections as peers and networks do: no hang, no wrong answer, none reported twice."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from batchval.network.errors import CorrelationIdMismatchError, DisconnectError
from tests.support.network import (
    Ask,
    Calls,
    Peer,
    Splitter,
    answer,
    client,
    echo,
    reset_on_close,
    until,
)

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
ANSWER = answer(1, b"a body")


def reset(writer: Writer) -> None:
    """The connection ends with RST, not FIN."""
    sock = writer.get_extra_info("socket")
    reset_on_close(sock)
    writer.transport.abort()


@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_the_answer_ends_at_every_byte(how: str) -> None:
    """Of three requests the first is answered; the second's answer is sent up to each of its
    bytes.
    """
    assert len(ANSWER) == 18
    for size in range(len(ANSWER) + 1):
        answered = asyncio.Event()

        async def script(
            peer: Peer,
            reader: Reader,
            writer: Writer,
            size: int = size,
            answered: asyncio.Event = answered,
        ) -> None:
            for _ in range(3):
                await peer.read(reader)
            writer.write(answer(0, b"first") + ANSWER[:size])
            await answered.wait()
            if how == "reset":
                reset(writer)

        async with Peer(script) as peer:
            connection, calls = await peer.connect(), Calls()
            for n in range(3):
                await connection.produce_async(Ask(), calls.of(n))
            await until(lambda: connection.metrics.bytes_in == 17 + size)  # noqa: B023
            answered.set()
            await calls.wait(3)
            await connection.wait_closed()
            assert calls.names == [0, 1, 2]
            whole = size == len(ANSWER)
            assert [error is None for error in calls.errors] == [True, whole, False]
            assert all(error is None or type(error) is DisconnectError for error in calls.errors)
            assert not whole or calls.seen[1][1].body == b"a body"


@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_the_connection_ends_at_every_byte_of_the_request(how: str) -> None:
    size_of_request = 12 + 5
    for size in range(size_of_request + 1):

        async def script(peer: Peer, reader: Reader, writer: Writer, size: int = size) -> None:
            await reader.readexactly(size)
            if how == "reset":
                reset(writer)

        async with Peer(script) as peer:
            connection, calls = await peer.connect(), Calls()
            try:
                await connection.produce_async(Ask(b"hello"), calls.of("it"))
            except DisconnectError:  # the peer was quicker than we
                await connection.wait_closed()
                assert calls.seen == []
            else:
                await calls.wait(1)
                await connection.wait_closed()
                assert [type(error) for error in calls.errors] == [DisconnectError]


async def test_one_byte_a_write() -> None:
    async def drip(peer: Peer, reader: Reader, writer: Writer) -> None:
        for _ in range(3):
            frame = await peer.read(reader)
            for byte in answer(frame.correlation_id, frame.body):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
        await reader.read()

    async with Peer(drip) as peer:
        connection = await peer.connect()
        answers = await asyncio.gather(*(connection.request(Ask(b"%d" % n)) for n in range(3)))
        assert [one.body for one in answers] == [b"0", b"1", b"2"]
        connection.close()


async def test_a_hundred_frames_in_one_write() -> None:
    async def burst(peer: Peer, reader: Reader, writer: Writer) -> None:
        frames = [await peer.read(reader) for _ in range(100)]
        writer.write(b"".join(answer(frame.correlation_id, frame.body) for frame in frames))
        await reader.read()

    async with Peer(burst) as peer:
        connection, calls = await peer.connect(max_in_flight=None), Calls()
        for n in range(100):
            await connection.produce_async(Ask(b"%d" % n), calls.of(b"%d" % n))
        await calls.wait(100)
        assert (
            [response.body for _, response, _ in calls.seen]
            == calls.names
            == [b"%d" % n for n in range(100)]
        )
        assert connection.metrics.bytes_in == sum(12 + len(name) for name in calls.names)
        connection.close()


async def test_answers_out_of_order_are_never_delivered() -> None:
    async def swap(peer: Peer, reader: Reader, writer: Writer) -> None:
        first, second = await peer.read(reader), await peer.read(reader)
        writer.write(
            answer(second.correlation_id, b"second") + answer(first.correlation_id, b"first")
        )
        await reader.read()

    async with Peer(swap) as peer:
        connection, calls = await peer.connect(), Calls()
        for n in range(2):
            await connection.produce_async(Ask(), calls.of(n))
        await calls.wait(2)
        assert calls.names == [0, 1]
        assert [type(error) for error in calls.errors] == [CorrelationIdMismatchError] * 2


async def test_an_answer_sent_twice_is_delivered_once() -> None:
    async def twice(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        writer.write(2 * answer(frame.correlation_id))
        await reader.read()

    async with Peer(twice) as peer:
        lost: list[BaseException] = []
        connection, calls = await peer.connect(on_lost=lambda _, error: lost.append(error)), Calls()
        await connection.produce_async(Ask(), calls.of(0))
        await connection.wait_closed()
        assert [(name, error) for name, _, error in calls.seen] == [(0, None)]
        assert [type(error) for error in lost] == [CorrelationIdMismatchError]


async def test_half_open() -> None:
    """The peer is gone and nobody says so: only the timeout finds out."""
    async with Peer(lambda peer, reader, writer: asyncio.sleep(3600)) as peer:
        connection, calls = await peer.connect(request_timeout_ms=80), Calls()
        for n in range(3):
            await connection.produce_async(Ask(), calls.of(n))
        await calls.wait(3)
        assert [(type(error), error.timed_out) for error in calls.errors] == [
            (DisconnectError, True),
            (DisconnectError, False),
            (DisconnectError, False),
        ]
        assert connection.metrics.request_timeouts == 1


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 4097),
        struct.pack(">ih", 2, 7),
        struct.pack(">i", 0),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
    ],
    ids=["-1", "-2^31", "2^31-1", "above the limit", "no correlation id", "empty", "HTTP", "TLS"],
)
async def test_an_invalid_frame_ends_the_connection(data: bytes) -> None:
    """After an answer that came whole in the same write, which counts."""

    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frames = [await peer.read(reader) for _ in range(2)]
        writer.write(answer(frames[0].correlation_id, b"good") + data)
        assert await reader.read() == b""  # we are left at once

    async with Peer(script) as peer:
        connection, calls = await peer.connect(splitter=lambda: Splitter(4096)), Calls()
        for n in range(2):
            await connection.produce_async(Ask(), calls.of(n))
        await calls.wait(2)
        assert calls.seen[0][1].body == b"good"
        assert [type(error) for error in calls.errors] == [type(None), DisconnectError]
        await connection.wait_closed()


async def test_a_slow_peer_holds_up_the_caller_not_memory() -> None:
    reading = asyncio.Event()

    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        await reading.wait()
        await echo(peer, reader, writer)

    async with Peer(script, limit=1 << 16) as peer:
        connection, calls = (
            await peer.connect(splitter=lambda: Splitter(8 << 20), max_in_flight=100),
            Calls(),
        )
        produced = 0

        async def produce() -> None:
            nonlocal produced
            for n in range(8):
                await connection.produce_async(Ask(bytes(6 << 20)), calls.of(n))
                produced += 1

        producing = asyncio.ensure_future(produce())
        await asyncio.sleep(0.1)
        assert produced <= 2  # one that is not written whole, perhaps one before it that is
        assert connection.transport.get_write_buffer_size() <= 6 << 20
        reading.set()
        await producing
        await calls.wait(8)
        assert calls.names == list(range(8))
        connection.close()


async def test_a_peer_that_stops_reading_and_sends_fin() -> None:
    """Closing in order would wait for ever for a peer that does not read."""

    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        writer.write_eof()
        await asyncio.sleep(3600)

    async with Peer(script) as peer:
        connection, calls = await peer.connect(), Calls()
        try:
            await connection.produce_async(Ask(bytes(8 << 20)), calls.of("big"))
        except DisconnectError:
            pass
        else:
            await calls.wait(1)
            assert [type(error) for error in calls.errors] == [DisconnectError]
        await connection.wait_closed()


@pytest.mark.parametrize("fault", ["cut", "reset", "silence", "garbage", "out of order"])
async def test_a_client_outlives_what_happens_to_its_connections(fault: str) -> None:
    """Each connection gives some answers and breaks; a caller that tries again gets everything,
    once and in order.
    """
    answered_by_peer: list[bytes] = []

    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        for n in range(7):
            frame = await peer.read(reader)
            if n == 6 and len(answered_by_peer) < 60:
                if fault == "reset":
                    reset(writer)
                elif fault == "silence":
                    await reader.read()
                elif fault == "garbage":
                    writer.write(b"\xff" * 64)
                elif fault == "out of order":
                    writer.write(answer(frame.correlation_id + 1))
                return
            answered_by_peer.append(frame.body)
            writer.write(answer(frame.correlation_id, frame.body))
        await echo(peer, reader, writer)

    async with Peer(script) as peer, client(request_timeout_ms=150) as c:
        node, answers, failures = peer.node(), [], 0
        for n in range(60):
            body = b"%d" % n
            while True:
                future = c.send(node, Ask(body))
                future.add_callbacks(
                    lambda response: answers.append(response.response.body), lambda error: None
                )
                try:
                    assert (await future).response.body == body
                    break
                except (DisconnectError, TimeoutError):
                    failures += 1
                    await until(lambda: not c.is_unavailable(node))
        assert answers == [b"%d" % n for n in range(60)]
        assert failures >= 8
        assert c.pending_request_count() == 0


async def test_a_callback_is_called_by_one_end_only() -> None:
    """Closed here, cut there and timed out, all at once."""

    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        writer.write(answer(frame.correlation_id))
        reset(writer)

    ends: list[Callable[[Any], None]] = [
        lambda c: c.close(),
        lambda c: c.transport.abort(),
        lambda c: c.eof_received(),
    ]
    async with Peer(script) as peer:
        for end in ends:
            connection, calls = await peer.connect(request_timeout_ms=1), Calls()
            for n in range(4):
                try:
                    await connection.produce_async(Ask(), calls.of(n))
                except DisconnectError:
                    calls.seen.append((n, None, None))
            await asyncio.sleep(0.001)
            end(connection)
            await connection.wait_closed()
            await asyncio.sleep(0.005)
            assert calls.names == [0, 1, 2, 3]
