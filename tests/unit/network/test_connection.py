"""One connection: pipelining, callbacks, back-pressure, what is raised and what is called back."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from typing import Any

import pytest

from batchval.network.connection import Connection
from batchval.network.errors import ClosedError, DisconnectError, InvalidAnswerError
from tests.support.network import (
    METADATA,
    PRODUCE,
    Answer,
    Ask,
    Calls,
    Peer,
    Splitter,
    answer,
    connection_options,
    echo,
    silent,
    until,
)


async def test_an_answer_comes_back() -> None:
    async with Peer() as peer:
        connection = await peer.connect()
        assert await connection.request(Ask(b"hello")) == Answer(0, b"hello")
        assert (connection.metrics.requests, connection.metrics.responses) == (1, 1)
        assert connection.metrics.bytes_out == 17
        assert connection.metrics.bytes_in == 17
        connection.close()
        await connection.wait_closed()


async def test_pipelining_is_the_default_and_five_are_under_way() -> None:
    async with Peer(silent) as peer:
        connection, calls = await peer.connect(), Calls()
        for n in range(5):
            await connection.produce_async(Ask(b"%d" % n), calls.of(n))
        sixth = asyncio.ensure_future(connection.produce_async(Ask(b"5"), calls.of(5)))
        await until(lambda: len(peer.frames) == 5)
        await asyncio.sleep(0.05)
        assert not sixth.done()
        assert (len(peer.frames), len(connection.in_flight)) == (5, 5)
        connection.close()
        with pytest.raises(ClosedError):
            await sixth
        assert calls.names == [0, 1, 2, 3, 4]


async def test_one_in_flight_is_serial() -> None:
    most = 0

    async def slow(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        waiting: asyncio.Queue[int] = asyncio.Queue()

        async def reply() -> None:
            while True:
                correlation_id = await waiting.get()
                await asyncio.sleep(0.005)
                nonlocal outstanding
                outstanding -= 1
                writer.write(answer(correlation_id))

        outstanding = 0
        replies = asyncio.ensure_future(reply())
        try:
            while True:
                frame = await peer.read(reader)
                outstanding += 1
                most = max(most, outstanding)
                waiting.put_nowait(frame.correlation_id)
        finally:
            replies.cancel()

    async with Peer(slow) as peer:
        connection, calls = await peer.connect(max_in_flight=1), Calls()
        for n in range(10):
            await connection.produce_async(Ask(b"x"), calls.of(n))
        await calls.wait(10)
        assert most == 1
        assert calls.names == list(range(10))
        connection.close()


class Unwritable(Ask):
    def encode(self, correlation_id: int, client_id: str | None) -> list[Any]:
        raise ValueError("cannot be written in this version")


class OfText(Ask):
    def encode(self, correlation_id: int, client_id: str | None) -> list[Any]:
        return [b"\0\0\0\1", "text"]


async def test_an_error_before_the_write_is_raised_and_the_callback_never_runs() -> None:
    async with Peer() as peer:
        connection, calls = await peer.connect(max_in_flight=1), Calls()
        with pytest.raises(ValueError, match="cannot be written"):
            await connection.produce_async(Unwritable(), calls.of("never"))
        with pytest.raises(TypeError):
            await connection.produce_async(OfText(), calls.of("never"))
        assert len(connection.in_flight) == 0
        # the same for one that had to wait for its turn
        first = asyncio.ensure_future(connection.produce_async(Ask(b"a"), calls.of("a")))
        second = asyncio.ensure_future(connection.produce_async(Unwritable(), calls.of("never")))
        third = asyncio.ensure_future(connection.produce_async(Ask(b"b"), calls.of("b")))
        await first
        with pytest.raises(ValueError, match="cannot be written"):
            await second
        await third
        await calls.wait(2)
        assert calls.names == ["a", "b"]
        assert peer.bodies == [b"a", b"b"]
        connection.close()
        with pytest.raises(ClosedError):
            await connection.produce_async(Ask(), calls.of("never"))
        await connection.wait_closed()
        assert calls.names == ["a", "b"]


async def test_turns_are_taken_in_order_and_a_cancelled_one_is_never_sent() -> None:
    release = asyncio.Event()

    async def held(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await peer.read(reader)
            await release.wait()
            writer.write(answer(frame.correlation_id))

    async with Peer(held) as peer:
        connection, calls = await peer.connect(max_in_flight=1), Calls()
        tasks = [
            asyncio.ensure_future(connection.produce_async(Ask(b"%d" % n), calls.of(n)))
            for n in range(6)
        ]
        await until(lambda: len(peer.frames) == 1)
        tasks[2].cancel()
        tasks[4].cancel()
        with pytest.raises(RuntimeError, match="others wait"):
            connection.send_nowait(Ask(b"in front"), calls.of("in front"))
        release.set()
        await calls.wait(4)
        assert peer.bodies == [b"0", b"1", b"3", b"5"]
        assert calls.names == [0, 1, 3, 5]
        connection.close()


@pytest.mark.parametrize("by", ["close", "pump"])
async def test_a_cancelled_caller_whose_place_is_gone_gets_the_cancellation(by: str) -> None:
    async with Peer(silent) as peer:
        connection, calls = await peer.connect(), Calls()
        connection.pause_writing()
        waiting = asyncio.ensure_future(connection.request(Ask()))
        await asyncio.sleep(0)
        waiting.cancel()
        if by == "close":
            connection.close()
        else:
            connection.resume_writing()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(connection.in_flight) == 0
        if by == "pump":
            connection.send_nowait(Ask(b"next"), calls.of("next"))
            await until(lambda: peer.bodies == [b"next"])
        connection.close()


async def test_a_slow_callback_delays_only_its_own_connection() -> None:
    """And its own answers stay in the socket, so that its peer's requests in flight are bounded."""
    async with Peer() as peer:
        slow, quick = await peer.connect(max_in_flight=2), await peer.connect()
        gate, calls, others = asyncio.Event(), Calls(), Calls()

        async def callback(response: Any, error: BaseException | None) -> None:
            await gate.wait()
            calls.of(response.body)(response, error)

        async def produce() -> None:
            for n in range(40):
                await slow.produce_async(Ask(b"%d" % n), callback)

        producing = asyncio.ensure_future(produce())
        for n in range(50):
            await quick.produce_async(Ask(b"x"), others.of(n))
        await others.wait(50)
        assert calls.seen == []
        assert not producing.done()
        sent = slow.metrics.requests
        await asyncio.sleep(0.05)
        assert (
            slow.metrics.requests == sent <= 2 + 2 + 1 + 2
        )  # called, waiting, and what the socket holds
        gate.set()
        await producing
        await calls.wait(40)
        assert calls.names == [b"%d" % n for n in range(40)]
        slow.close()
        quick.close()


async def test_a_callback_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Peer() as peer:
        connection, calls = await peer.connect(), Calls()

        def fails(response: Any, error: BaseException | None) -> None:
            raise KeyError("mine")

        async def fails_later(response: Any, error: BaseException | None) -> None:
            raise KeyError("mine, later")

        await connection.produce_async(Ask(), fails)
        await connection.produce_async(Ask(), fails_later)
        await connection.produce_async(Ask(), calls.of("other"))
        await calls.wait(1)
        assert connection.metrics.callback_errors == 2
        assert caplog.text.count("a callback failed") == 2
        connection.close()


async def test_a_callback_may_send_and_may_close() -> None:
    async with Peer() as peer:
        connection, calls = await peer.connect(), Calls()

        def again(response: Any, error: BaseException | None) -> None:
            calls.of("first")(response, error)
            connection.send_nowait(Ask(b"2"), calls.of("second"))

        await connection.produce_async(Ask(b"1"), again)
        await calls.wait(2)

        def closes(response: Any, error: BaseException | None) -> None:
            connection.close()
            calls.of("closes")(response, error)

        await connection.produce_async(Ask(b"3"), closes)
        for n in range(3):
            await connection.produce_async(Ask(), calls.of(n))
        await calls.wait(6)
        # not one inside another: those that close() fails come after the one that called it
        assert calls.names == ["first", "second", "closes", 0, 1, 2]
        assert [type(error) for error in calls.errors[3:]] == [ClosedError] * 3


async def test_losing_the_connection_fails_everything_once_in_order() -> None:
    async def two_then_cut(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        frames = [await peer.read(reader) for _ in range(5)]
        writer.write(answer(frames[0].correlation_id) + answer(frames[1].correlation_id))
        await writer.drain()

    async with Peer(two_then_cut) as peer:
        lost: list[BaseException] = []
        calls = Calls()
        connection = await peer.connect(on_lost=lambda _, error: lost.append(error))
        tasks = [
            asyncio.ensure_future(connection.produce_async(Ask(b"%d" % n), calls.of(n)))
            for n in range(20)
        ]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await connection.wait_closed()
        sent = results.count(None)
        assert 5 <= sent <= 7
        assert calls.names == list(range(sent))
        assert calls.errors[:2] == [None, None]
        assert all(
            isinstance(error, DisconnectError)
            for error in [*calls.errors[2:], *results[sent:], *lost]
        )
        assert len(lost) == 1


async def test_answers_that_came_whole_before_the_end_are_delivered() -> None:
    """Even while callbacks wait and most of them lie in the socket or in the queue."""

    async def all_then_cut(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        frames = [await peer.read(reader) for _ in range(100)]
        writer.write(b"".join(answer(frame.correlation_id, frame.body) for frame in frames))
        await writer.drain()

    async with Peer(all_then_cut) as peer:
        connection, calls = await peer.connect(max_in_flight=None), Calls()
        for n in range(100):
            await connection.produce_async(Ask(b"%d" % n), calls.of(b"%d" % n))
        await calls.wait(100)
        assert calls.errors == [None] * 100
        assert [response.body for _, response, _ in calls.seen] == calls.names


async def test_acks_0_is_done_when_written() -> None:
    big = bytes(8 << 20)
    reading = asyncio.Event()

    async def reads_late(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reading.wait()
        await echo(peer, reader, writer)

    async with Peer(reads_late, limit=1 << 16) as peer:
        connection, calls = await peer.connect(max_in_flight=1), Calls()
        await connection.produce_async(Ask(big, PRODUCE, 9, False), calls.of("acks=0"))
        assert len(connection.in_flight) == 1
        after = asyncio.ensure_future(connection.produce_async(Ask(b"next"), calls.of("next")))
        await asyncio.sleep(0.05)
        assert calls.seen == []  # the socket is full, and the peer does not read
        assert not after.done()
        reading.set()
        await calls.wait(1)
        assert calls.seen == [("acks=0", None, None)]

        async def unanswered() -> None:
            await after
            assert len(connection.in_flight) == 1  # acks=0 holds nothing any more

        await unanswered()
        connection.close()


async def test_acks_0_that_is_not_written_when_the_connection_ends_fails() -> None:
    async with Peer(lambda peer, reader, writer: asyncio.sleep(3600)) as peer:
        connection, calls = await peer.connect(), Calls()
        await connection.produce_async(Ask(bytes(8 << 20), PRODUCE, 9, False), calls.of("big"))
        await peer.stop()
        await calls.wait(1)
        assert isinstance(calls.errors[0], DisconnectError)


async def test_buffers_are_owned_until_written() -> None:
    """Once released, they are poisoned at once: nothing of that may reach the peer."""
    bodies = [bytearray(bytes([n]) * (3 << 20)) for n in range(1, 4)]
    released: list[int] = []

    def poison(n: int) -> None:
        bodies[n][:] = b"\xff" * len(bodies[n])
        released.append(n)

    async with Peer(limit=1 << 16) as peer:
        connection, calls = await peer.connect(splitter=lambda: Splitter(8 << 20)), Calls()
        for n in range(3):
            await connection.produce_async(
                Ask(bodies[n]), calls.of(n), on_written=lambda n=n: poison(n)
            )
        await calls.wait(3)
        assert released == [0, 1, 2]
        assert [body == bytes([n]) * (3 << 20) for n, body in enumerate(peer.bodies, 1)] == [
            True
        ] * 3
        connection.close()


async def test_buffers_are_released_when_the_connection_is_dead() -> None:
    async with Peer(lambda peer, reader, writer: asyncio.sleep(3600)) as peer:
        connection, calls = await peer.connect(), Calls()
        released: list[str] = []
        await connection.produce_async(
            Ask(bytes(8 << 20)), calls.of("big"), on_written=lambda: released.append("big")
        )
        assert released == []
        connection.close()
        await connection.wait_closed()
        assert released == ["big"]
        assert calls.names == ["big"]


async def test_an_absurd_throttle_time_silences_for_a_requests_timeout() -> None:
    async def absurd(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        frame = await peer.read(reader)
        writer.write(answer(frame.correlation_id, throttle_time_ms=2**31 - 1))
        await reader.read()

    async with Peer(absurd) as peer:
        connection = await peer.connect()
        assert await connection.request(Ask(api_version=12)) == Answer(2**31 - 1, b"")
        assert 0 < connection.throttled_ms <= connection.options.request_timeout_ms + 1
        assert connection.metrics.throttle_time_ms_max == 2**31 - 1
        connection.close()


async def test_throttle_time_is_honoured_and_counted() -> None:
    """Late is what a busy machine makes of everything; what must not be is early."""
    loop, throttled_at, asked = asyncio.get_running_loop(), 0.0, 0.0

    async def throttles_once(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal throttled_at, asked
        frame = await peer.read(reader)
        throttled_at = loop.time()
        writer.write(answer(frame.correlation_id, throttle_time_ms=1000))
        frame = await peer.read(reader)
        asked = loop.time()
        writer.write(answer(frame.correlation_id, frame.body))
        await reader.read()

    async with Peer(throttles_once) as peer:
        connection = await peer.connect()
        assert await connection.request(Ask(api_version=12)) == Answer(1000, b"")
        assert not connection.can_send_more()
        # a sum of floats: a clock that stood still gives back 1000 and a rounding
        assert 0 < connection.throttled_ms < 1000.001
        await connection.request(Ask())
        assert asked - throttled_at > 0.998  # uvloop's clock counts in milliseconds
        assert connection.throttled_ms == 0
        assert (
            connection.metrics.throttle_time_ms == connection.metrics.throttle_time_ms_max == 1000
        )
        assert connection.metrics.throttled_responses == 1
        connection.close()


@pytest.mark.parametrize(
    ("api_key", "version", "waits"), [(PRODUCE, 5, False), (PRODUCE, 6, True), (METADATA, 5, False)]
)
async def test_versions_whose_answers_come_late_are_not_waited_for_twice(
    api_key: int, version: int, waits: bool
) -> None:
    async def throttles(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        frame = await peer.read(reader)
        writer.write(answer(frame.correlation_id, throttle_time_ms=10_000))
        await reader.read()

    async with Peer(throttles) as peer:
        connection = await peer.connect()
        await connection.request(Ask(api_key=api_key, api_version=version))
        assert connection.can_send_more() is not waits
        assert connection.metrics.throttle_time_ms == 10_000
        connection.close()


async def test_socket_buffers_are_left_alone_unless_asked() -> None:
    def size(connection: Connection, option: int) -> int:
        return int(
            connection.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, option)
        )

    async with Peer() as peer:
        plain = await peer.connect()
        asked = await peer.connect(send_buffer_bytes=40_000, receive_buffer_bytes=30_000)
        probe = socket.create_connection(("127.0.0.1", peer.port))
        defaults = [
            probe.getsockopt(socket.SOL_SOCKET, option)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
        ]
        probe.close()
        assert [size(plain, socket.SO_SNDBUF), size(plain, socket.SO_RCVBUF)] == defaults
        assert [size(asked, socket.SO_SNDBUF), size(asked, socket.SO_RCVBUF)] == [
            80_000,
            60_000,
        ]  # Linux doubles
        assert await asked.request(Ask(b"x")) == Answer(0, b"x")
        plain.close()
        asked.close()


async def test_correlation_ids_count_up_and_wrap() -> None:
    async with Peer() as peer:
        connection = await peer.connect()
        await connection.request(Ask())
        connection._correlation_id = 0x7FFFFFFF
        await connection.request(Ask())
        await connection.request(Ask())
        assert [frame.correlation_id for frame in peer.frames] == [0, 0x7FFFFFFF, 0]
        connection.close()


async def test_another_thread_is_turned_away() -> None:
    async with Peer() as peer:
        connection, seen = await peer.connect(), []

        def use() -> None:
            try:
                connection.send_nowait(Ask(), lambda response, error: None)
            except RuntimeError as error:
                seen.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert seen == ["a connection is used on its loop's thread alone"]
        assert len(connection.in_flight) == 0
        connection.close()


async def test_an_answer_that_cannot_be_decoded_ends_the_connection() -> None:
    class Confused(Ask):
        def decode(self, frame: memoryview) -> Answer:
            raise struct.error("not what was promised")

    async def late(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = [await peer.read(reader) for _ in range(3)]
        writer.write(b"".join(answer(frame.correlation_id) for frame in frames))
        await reader.read()

    async with Peer(late) as peer:
        connection, calls = await peer.connect(), Calls()
        await connection.produce_async(Ask(), calls.of(0))
        await connection.produce_async(Confused(), calls.of(1))
        await connection.produce_async(Ask(), calls.of(2))
        await calls.wait(3)
        assert calls.names == [0, 1, 2]
        assert [type(error) for error in calls.errors] == [
            type(None),
            InvalidAnswerError,
            DisconnectError,
        ]
        assert isinstance(calls.errors[1].__cause__, struct.error)
        assert not connection.is_open


async def test_tls(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    body = bytes(range(256)) * (3 << 12)

    async def when_five_have_come(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for frame in [await peer.read(reader) for _ in range(5)]:
            writer.write(answer(frame.correlation_id, frame.body))
        await echo(peer, reader, writer)

    async with Peer(when_five_have_come, ssl=server_tls, limit=1 << 16) as peer:
        options = {
            "ssl": client_tls,
            "splitter": lambda: Splitter(8 << 20),
            "request_timeout_ms": 20_000,
        }
        connection, calls = await peer.connect(**options), Calls()
        for n in range(12):
            await connection.produce_async(Ask(body[n:]), calls.of(n))
        await calls.wait(12)
        assert calls.names == list(range(12))
        assert [response.body == body[n:] for n, response, _ in calls.seen] == [True] * 12
        assert connection.in_flight.peak == 5
        await connection.produce_async(Ask(body, PRODUCE, 9, False), calls.of("acks=0"))
        await calls.wait(13)
        assert calls.seen[-1] == ("acks=0", None, None)
        connection.close()
        await connection.wait_closed()
        wrong = connection_options(ssl=client_tls, server_hostname="elsewhere.invalid")
        with pytest.raises(ssl.SSLCertVerificationError):
            await Connection.open("127.0.0.1", peer.port, wrong)
