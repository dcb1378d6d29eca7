"""Test twenty lessons of Kafka's client, each in the test of its number."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import threading
from collections.abc import Callable
from typing import Any

import pytest

from batchval.network.client import ConsumerNetworkClient
from batchval.network.connection import Connection
from batchval.network.errors import (
    AuthenticationError,
    ClosedError,
    CorrelationIdMismatchError,
    DisconnectError,
    RequestTimeoutError,
    UnsupportedVersionError,
    WakeupError,
)
from batchval.network.future import RequestFuture
from batchval.network.node import Backoff, ConnectionState
from batchval.network.request import Node
from tests.support.network import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    Answer,
    Ask,
    Peer,
    Splitter,
    Versions,
    answer,
    client,
    closed_port,
    echo,
    silent,
    until,
    versions_answer,
)

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
NOWHERE = Node(99, "127.0.0.1", 1)  # nobody listens there


def ends(*futures: RequestFuture[Any]) -> list[Any]:
    """Bodies and exceptions of futures that are done."""
    return [f.exception() if f.failed else f.value().response.body for f in futures]


def ended(*futures: RequestFuture[Any]) -> Callable[[], bool]:
    return lambda: all(future.is_done for future in futures)


def order_of(futures: dict[Any, RequestFuture[Any]]) -> list[Any]:
    """A list that fills with the names of futures as they end."""
    seen: list[Any] = []
    for name, future in futures.items():
        future.add_callbacks(
            lambda _, name=name: seen.append(name), lambda _, name=name: seen.append(name)
        )
    return seen


async def connected(c: ConsumerNetworkClient, peer: Peer) -> Node:
    """The peer as a node to which there is a connection, so that a short timeout is spent on the
    answer alone.
    """
    c.try_connect(peer.node())
    await until(lambda: c.network.is_ready(peer.node()))
    return peer.node()


async def test_01_send_before_connecting_queues_and_keeps_the_order() -> None:
    async with Peer() as peer, client() as c:
        node = peer.node()
        futures = {n: c.send(node, Ask(b"%d" % n)) for n in range(12)}
        seen = order_of(futures)
        assert (c.unsent.count(node), peer.accepted, c.pending_request_count(node)) == (12, 0, 12)
        await until(ended(*futures.values()))
        assert seen == list(range(12))
        assert peer.bodies == [b"%d" % n for n in range(12)] == ends(*futures.values())
        assert peer.accepted == 1
        assert c.network.connections_opened == 1


async def test_02_a_node_that_is_not_ready_delays_no_other() -> None:
    async def mute(peer: Peer, reader: Reader, writer: Writer) -> None:
        await asyncio.sleep(3600)

    async with Peer(mute) as stuck, Peer() as peer, client({"max_in_flight": 1}) as c:
        blocked = [c.send(stuck.node(1), Ask(b"x")) for _ in range(3)] + [c.send(NOWHERE, Ask())]
        assert (await c.send(peer.node(2), Ask(b"y"))).response == Answer(0, b"y")
        assert [future.is_done for future in blocked[:3]] == [False] * 3


async def test_03_sent_only_when_connected_versions_known_unthrottled_written_and_below_the_cap() -> (
    None
):
    steps: dict[str, asyncio.Event] = {
        name: asyncio.Event() for name in ("versions", "first", "read")
    }

    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        assert frame.api_key == API_VERSIONS
        await steps["versions"].wait()
        writer.write(versions_answer(frame.correlation_id, 0, (METADATA, 0, 13), (PRODUCE, 0, 12)))
        frame = await peer.read(reader)
        await steps["first"].wait()
        writer.write(answer(frame.correlation_id, throttle_time_ms=1_000))
        await steps["read"].wait()
        await echo(peer, reader, writer)

    async with (
        Peer(script, limit=1 << 16) as peer,
        client(
            {"max_in_flight": 2, "splitter": lambda: Splitter(9 << 20)},
            network_api_versions=Versions(),
        ) as c,
    ):
        node, loop = peer.node(), asyncio.get_running_loop()
        first = c.send(node, Ask(b"first"))
        await until(lambda: peer.frames)
        await asyncio.sleep(0.02)
        assert c.network.state(node).state is ConnectionState.CHECKING_API_VERSIONS
        assert len(peer.frames) == 1  # connected, but its versions are not known
        steps["versions"].set()
        await until(lambda: len(peer.frames) == 2)
        assert c.network.is_ready(node)
        not_throttled = loop.time()
        steps["first"].set()
        await first
        big = c.send(node, Ask(bytes(8 << 20)))
        small = [c.send(node, Ask(b"%d" % n)) for n in range(3)]
        assert not c.network.is_ready(node)
        await until(lambda: c.network.in_flight_count(node) == 1)
        assert (
            loop.time() - not_throttled > 0.998
        )  # the throttle first; uvloop's clock counts in milliseconds
        await asyncio.sleep(0.02)
        connection = c.network.connection(node)
        assert connection is not None
        # the socket took a part of the big one: below the cap, but nothing may follow until it is
        # written whole
        assert (len(connection.in_flight), c.unsent.count(node)) == (1, 3)
        steps["read"].set()
        await until(ended(big, *small))
        assert connection.in_flight.peak == 2


async def test_04_a_connection_that_fails_fails_what_is_unsent_without_recursion() -> None:
    node = Node(1, "127.0.0.1", closed_port())
    async with client() as c:
        again: list[RequestFuture[Any]] = []
        depth = deepest = 0

        def resend(error: BaseException) -> None:
            nonlocal depth, deepest
            depth += 1
            deepest = max(deepest, depth)
            assert c.unsent.count(node) == len(
                again
            )  # the failed ones are gone before any listener is called
            again.append(c.send(node, Ask()))
            depth -= 1

        futures = [c.send(node, Ask()) for _ in range(5_000)]
        for future in futures:
            future.add_callbacks(lambda _: None, resend)
        await until(ended(*futures))
        assert all(isinstance(future.exception(), DisconnectError) for future in futures)
        assert (len(again), deepest) == (5_000, 1)
        await until(ended(*again))
        assert c.pending_request_count() == 0


async def test_05_a_lost_connection_fails_in_flight_then_unsent_and_forgets_the_versions() -> None:
    cut = asyncio.Event()
    ranges = iter([(METADATA, 0, 12), (METADATA, 0, 5)])

    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        writer.write(versions_answer(frame.correlation_id, 0, next(ranges)))
        for _ in range(2):
            await peer.read(reader)
        await cut.wait()
        writer.write(b"\0\0\0")  # and late bytes of an answer

    async with (
        Peer(script) as peer,
        client({"max_in_flight": 2}, network_api_versions=Versions()) as c,
    ):
        node = peer.node()
        futures = {n: c.send(node, Ask()) for n in range(6)}
        seen = order_of(futures)
        await until(lambda: len(peer.frames) == 3)
        assert c.network.state(node).api_versions == {METADATA: (0, 12)}
        cut.set()
        await until(ended(*futures.values()))
        assert seen == [0, 1, 2, 3, 4, 5]
        assert all(
            isinstance(end, DisconnectError) and not end.timed_out
            for end in ends(*futures.values())
        )
        assert c.network.state(node).api_versions is None
        await asyncio.sleep(0.05)  # the backoff
        with pytest.raises(UnsupportedVersionError):  # by the versions of the new connection
            await c.send(node, Ask(api_version=12))


async def test_06_a_request_that_times_out_takes_the_connection_with_it() -> None:
    async with Peer(silent) as peer, client() as c:
        node = await connected(c, peer)
        futures = [c.send(node, Ask(), timeout_ms=ms) for ms in (5_000, 60, 5_000)]
        await until(ended(*futures))
        assert [(type(end), end.timed_out) for end in ends(*futures)] == [
            (DisconnectError, False),
            (DisconnectError, True),
            (DisconnectError, False),
        ]
        assert c.network.connection(node) is None


async def test_06_throttle_time_is_not_counted_against_the_timeout() -> None:
    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        first, second = await peer.read(reader), await peer.read(reader)
        writer.write(answer(first.correlation_id, throttle_time_ms=5_000))
        await asyncio.sleep(1.2)  # muted; longer than the second request's timeout
        writer.write(answer(second.correlation_id))
        await reader.read()

    async with Peer(script) as peer, client() as c:
        node = await connected(c, peer)
        futures = [c.send(node, Ask(), timeout_ms=1_000) for _ in range(2)]
        await until(ended(*futures))
        assert ends(*futures) == [b"", b""]


async def test_07_unsent_requests_expire_each_in_its_own_time() -> None:
    """Kafka's scan stops at the first live one, so the second here would wait for the first."""

    async def never(host: str, port: int) -> list[str]:
        await asyncio.sleep(3600)
        return []

    now = 1_000_000.0
    async with client(network_resolve=never) as c:
        c._clock_ms = lambda: now
        long, short, exact = (
            c.send(NOWHERE, Ask(), 10_000),
            c.send(NOWHERE, Ask(), 50),
            c.send(NOWHERE, Ask(), 51),
        )
        now += 51
        await until(lambda: short.is_done)
        assert isinstance(short.exception(), RequestTimeoutError)
        assert isinstance(short.exception(), TimeoutError)
        assert str(short.exception()) == "Failed to send request after 50 ms."
        assert not exact.is_done  # elapsed must be more than the timeout
        assert not long.is_done
        now -= 100_000  # a clock that goes backwards: elapsed is never below 0
        zero = c.send(NOWHERE, Ask(), 0)
        c.fail_expired_requests(now - 1_000)
        await asyncio.sleep(0.01)
        assert not zero.is_done
        now += 1
        await until(lambda: zero.is_done)
        assert str(zero.exception()) == "Failed to send request after 0 ms."


async def test_08_backoff_and_setup_timeout_grow_with_jitter() -> None:
    reconnect, setup = Backoff(50, 1_000), Backoff(10_000, 30_000)
    for failures, exact in enumerate([50, 100, 200, 400, 800, 1_000, 1_000]):
        several = {reconnect.after(failures) for _ in range(50)}
        assert len(several) > 25
        assert exact * 0.8 <= min(several) < max(several) <= exact * 1.2
    assert [round(min(setup.after(n) for _ in range(200)) / 1000) for n in range(4)] == [
        8,
        16,
        24,
        24,
    ]

    async with client(network_reconnect_backoff=Backoff(100, 10_000, 0)) as c:
        c_node = Node(1, "127.0.0.1", closed_port())
        waits = []
        for _ in range(4):
            await until(lambda: not c.is_unavailable(c_node))
            with pytest.raises(DisconnectError):
                await c.send(c_node, Ask())
            waits.append(c.network.state(c_node).backoff_ms)
            assert c.is_unavailable(c_node)
        assert waits == [100, 200, 400, 800]


async def test_08_setting_up_is_bounded_and_versions_are_awaited_only_when_asked_for() -> None:
    hold = asyncio.Event()

    async def authenticate(connection: Connection) -> None:
        assert c.network.state(node).state is ConnectionState.CONNECTING
        await hold.wait()

    options = {"network_setup_timeout": Backoff(500, 500, 0), "network_api_versions": Versions()}
    async with Peer(silent) as peer, client(network_authenticate=authenticate, **options) as c:
        node = peer.node()
        with pytest.raises(DisconnectError):
            await c.send(node, Ask())
        assert c.network.state(node).state is ConnectionState.DISCONNECTED
        assert (
            peer.frames == []
        )  # so nobody could answer, and nobody waited for an answer (KAFKA-13388)
        hold.set()
        await until(lambda: not c.is_unavailable(node))
        c.send(node, Ask())
        await until(lambda: peer.frames)
        assert peer.frames[0].api_key == API_VERSIONS
        await until(lambda: c.network.state(node).state is ConnectionState.CHECKING_API_VERSIONS)


@pytest.mark.parametrize(
    ("offered", "asked"),
    [([(API_VERSIONS, 0, 2)], [4, 2]), ([], [4, 0]), ([(API_VERSIONS, 0, 9)], [4, 3])],
)
async def test_09_error_35_is_asked_again_in_a_version_that_the_node_knows(
    offered: list[tuple[int, int, int]], asked: list[int]
) -> None:
    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        writer.write(versions_answer(frame.correlation_id, 35, *offered))
        frame = await peer.read(reader)
        writer.write(versions_answer(frame.correlation_id, 0, (METADATA, 3, 12)))
        await echo(peer, reader, writer)

    async with Peer(script) as peer, client(network_api_versions=Versions()) as c:
        assert (await c.send(peer.node(), Ask(b"x"))).response.body == b"x"
        assert [frame.api_version for frame in peer.frames[:2]] == asked


async def test_09_any_other_error_of_api_versions_disconnects() -> None:
    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        writer.write(versions_answer(frame.correlation_id, 42))
        assert await reader.read() == b""

    async with Peer(script) as peer, client(network_api_versions=Versions()) as c:
        with pytest.raises(DisconnectError):
            await c.send(peer.node(), Ask())
        assert len(peer.frames) == 1


class Built:
    """A builder: its version is chosen when the node's are known."""

    api_key = METADATA

    def __init__(self, *versions: int) -> None:
        self.versions = versions

    def build(self, api_version: int) -> Ask:
        return Ask(b"v%d" % api_version, api_version=api_version)


async def test_09_an_unsupported_version_fails_that_future_alone_and_sends_nothing() -> None:
    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        writer.write(versions_answer(frame.correlation_id, 0, (METADATA, 3, 9)))
        await echo(peer, reader, writer)

    async with Peer(script) as peer, client(network_api_versions=Versions()) as c:
        node = peer.node()
        await c.send(node, Ask(b"connects", api_version=9))
        for request in (
            Ask(api_version=12),
            Ask(api_version=2),
            Ask(api_key=PRODUCE),
            Built(10, 12),
            Built(0, 2),
        ):
            with pytest.raises(UnsupportedVersionError) as caught:  # though nothing else happens
                await c.send(node, request)
            assert not caught.value.retriable
            is_unknown = request.api_key == PRODUCE
            assert (f"does not know API {PRODUCE}" in str(caught.value)) == is_unknown
        assert (await c.send(node, Built(0, 12))).response.body == b"v9"
        assert (await c.send(node, Built(4, 8))).response.body == b"v8"
        assert len(peer.frames) == 4
        assert peer.accepted == 1


async def test_10_callbacks_never_run_inside_send_and_one_that_fails_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Peer() as peer, client(network_api_versions=None) as c:
        node, inside, seen = peer.node(), False, []
        await c.send(node, Ask())

        def note(name: Any) -> Callable[[Any], None]:
            def listener(_: Any) -> None:
                assert not inside
                seen.append(name)
                if name == 1:
                    raise KeyError("mine")
                if name == 2:
                    send(Ask(b"nested"), "nested")

            return listener

        def send(request: Any, name: Any) -> None:
            nonlocal inside
            inside, before = True, inside
            c.send(node, request).add_callbacks(note(name), note(name))
            c.flush_nowait()
            inside = before

        class Unwritable(Ask):
            def encode(self, correlation_id: int, client_id: str | None) -> Any:
                raise ValueError

        send(
            Unwritable(), "unwritable"
        )  # fails while it is being sent: reported later all the same
        for n in range(4):
            send(Ask(b"%d" % n), n)
        assert seen == []
        await until(lambda: len(seen) == 6)
        assert seen == ["unwritable", 0, 1, 2, 3, "nested"]
        assert "a listener failed" in caplog.text


def test_11_the_rules_of_completion() -> None:
    future, seen = RequestFuture[int](), []
    with pytest.raises(RuntimeError, match="not succeeded"):
        future.value()
    with pytest.raises(RuntimeError, match="not failed"):
        future.exception()
    future.add_callbacks(lambda value: seen.append(("before", value)), seen.append)
    future.complete(1)
    with pytest.raises(RuntimeError, match="completed twice"):
        future.complete(2)
    with pytest.raises(RuntimeError, match="completed twice"):
        future.raise_error(OSError())
    with pytest.raises(RuntimeError, match="not failed"):
        future.exception()
    assert future.value() == 1
    future.add_callbacks(lambda value: seen.append(("after", value)), seen.append)
    assert seen == [("before", 1), ("after", 1)]  # each once, the late one at once
    failed = RequestFuture[int]()
    for wrong in (None, "text", OSError):
        with pytest.raises(TypeError):
            failed.raise_error(wrong)  # type: ignore[arg-type]
    assert not failed.is_done
    failed.raise_error(OSError("x"))
    with pytest.raises(RuntimeError, match="not succeeded"):
        failed.value()


async def test_12_no_busy_loop_where_no_node_is_ready() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.sleep(3600)
        return []

    async with client(network_resolve=never) as c:
        rounds = 0
        real = c.try_send

        def counted(now_ms: float) -> float:
            nonlocal rounds
            rounds += 1
            return real(now_ms)

        c.try_send = counted  # type: ignore[method-assign]
        future = c.send(NOWHERE, Ask())
        await asyncio.sleep(0.3)  # nobody polls: the loop's own rounds
        assert 0 < rounds < 25
        rounds = 0
        assert not await c.poll_until(future, 350)
        assert (
            2 <= rounds < 50
        )  # two in 100 ms, fewer on a slow machine; a loop that spins makes thousands
        # an answer that nobody gives: not faster for being in flight
        async with Peer(silent) as peer, client() as other:
            future = other.send(peer.node(), Ask())
            await until(lambda: other.network.in_flight_count() == 1)
            real, rounds = other.try_send, 0
            other.try_send = counted  # type: ignore[method-assign]
            assert not await other.poll_until(future, 200)
            assert rounds < 50  # a loop that spins makes thousands


async def test_12_no_wait_beyond_the_retry_backoff_when_nothing_is_in_flight() -> None:
    async with client(retry_backoff_ms=40) as c:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await c.poll(100_000)
        assert 0.03 < loop.time() - before < 30


async def test_12_a_busy_node_does_not_starve_another() -> None:
    """Its answers come by the thousand in one read; another node's single one does not wait for all
    of them.
    """

    async def flood(peer: Peer, reader: Reader, writer: Writer) -> None:
        frames = [await peer.read(reader) for _ in range(2_000)]
        writer.write(b"".join(answer(frame.correlation_id) for frame in frames))
        await asyncio.sleep(0)
        await reader.read()

    async with Peer(flood) as busy, Peer() as peer, client({"max_in_flight": None}) as c:
        one = await peer.connect()
        many = [c.send(busy.node(1), Ask()) for _ in range(2_000)]
        turns: list[int] = []
        connection = None

        def turn() -> None:
            turns.append(sum(future.is_done for future in many))
            if turns[-1] < 2_000:
                asyncio.get_running_loop().call_soon(turn)

        await until(lambda: c.network.in_flight_count() == 2_000 or many[0].is_done)
        turn()
        connection = c.network.connection(busy.node(1))
        assert connection is not None
        await one.request(Ask())
        await until(ended(*many))
        steps = [after - before for before, after in itertools.pairwise(turns)]
        assert max(steps) <= 32 * 2  # one wake-up's worth, and one more between two looks
        one.close()


async def test_13_wakeup_is_sticky_raises_once_and_loses_no_answer() -> None:
    async with Peer() as peer, client() as c:
        node = peer.node()
        await c.send(node, Ask())
        c.wakeup()
        c.wakeup()
        with pytest.raises(WakeupError):
            await c.poll(1_000)
        await c.poll(0)  # once for both

        future, results = c.send(node, Ask(b"x")), []
        future.add_callbacks(results.append, results.append)
        real = c._io

        async def until_answered(_: float) -> None:
            while not c._pending_completion:
                await real(10)
            c.wakeup()

        c._io = until_answered  # type: ignore[method-assign]
        with pytest.raises(WakeupError):
            await c.poll(1_000)
        assert results == []  # answered in that poll, reported in the next
        c._io = real  # type: ignore[method-assign]
        await c.poll(0)
        assert ends(future) == [b"x"]
        assert len(results) == 1


async def test_13_wakeup_interrupts_a_blocked_poll_from_another_thread_and_no_request() -> None:
    release = asyncio.Event()

    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        await release.wait()
        writer.write(answer(frame.correlation_id, b"late"))
        await reader.read()

    async with Peer(script) as peer, client() as c:
        future = c.send(peer.node(), Ask())
        await until(lambda: c.network.in_flight_count() == 1)
        threading.Timer(0.05, c.wakeup).start()
        with pytest.raises(WakeupError):
            await c.poll_until(future)
        assert not future.is_done
        release.set()
        assert (await future).response.body == b"late"


async def test_13_wakeups_can_be_disabled_and_then_stay_for_later() -> None:
    async with client(retry_backoff_ms=20) as c:
        c.wakeup()
        before = asyncio.get_running_loop().time()
        await c.poll(1_000, disable_wakeup=True)
        await c.poll(1_000, disable_wakeup=True)
        await c.poll(0, disable_wakeup=True)
        assert asyncio.get_running_loop().time() - before > 0.015  # nor does the flag make it spin
        with pytest.raises(WakeupError):
            await c.poll(1_000)
        c.wakeup()
        c.disable_wakeups()
        await c.poll(0)


async def test_13_disconnects_are_handled_before_wakeup_is_raised() -> None:
    node = Node(1, "127.0.0.1", closed_port())
    async with client() as c:
        future = c.send(node, Ask())
        real = c._io

        async def until_failed(_: float) -> None:
            while not c.network.connection_failed(node):
                await real(10)
            c.wakeup()

        c._io = until_failed  # type: ignore[method-assign]
        with pytest.raises(WakeupError):
            await c.poll(1_000)
        assert c.unsent.count(node) == 0
        assert len(c._pending_completion) == 1
        c._io = real  # type: ignore[method-assign]
        await c.poll(0)
        assert isinstance(future.exception(), DisconnectError)


async def test_14_disconnect_from_any_thread_fails_unsent_then_in_flight_once() -> None:
    async with Peer(silent) as peer, client({"max_in_flight": 2}) as c:
        node = peer.node()
        futures = {n: c.send(node, Ask()) for n in range(4)}
        seen = order_of(futures)
        await until(lambda: len(peer.frames) == 2)
        threads = [threading.Thread(target=c.disconnect, args=(node,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        await until(ended(*futures.values()))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert seen == [2, 3, 0, 1]
        assert all(isinstance(end, DisconnectError) for end in ends(*futures.values()))
        await asyncio.sleep(0.05)
        assert c.network.in_flight_count() == 0
        c.disconnect(node)  # nothing is left of it: nothing happens
        c.disconnect(NOWHERE)
        await asyncio.sleep(0.01)


async def test_14_close_fails_everything_and_later_sends_raise() -> None:
    async with Peer(silent) as peer, client({"max_in_flight": 2}) as c:
        node = peer.node()
        futures = {n: c.send(node, Ask()) for n in range(4)}
        seen = order_of(futures)
        await until(lambda: len(peer.frames) == 2)
        c.close()
        c.close()
        assert seen == [0, 1, 2, 3]
        assert all(isinstance(end, ClosedError) for end in ends(*futures.values()))
        with pytest.raises(ClosedError):
            c.send(node, Ask())
        await c.network.wait_closed()
        await until(lambda: not peer.tasks)


async def test_14_only_wakeup_and_disconnect_may_come_from_another_thread() -> None:
    async with Peer() as peer, client() as c:
        node, refused, allowed = peer.node(), [], []
        calls: list[Callable[[], Any]] = [
            lambda: c.send(node, Ask()),
            lambda: c.poll(0).send(None),
            lambda: c.poll_until(RequestFuture()).send(None),
            c.close,
            c.flush_nowait,
            lambda: c.try_connect(node),
            lambda: c.try_disconnect(node),
            lambda: c.fail_unsent_requests(node, KeyError()),
            lambda: c.await_pending_requests(node).send(None),
            lambda: c.poll_no_wakeup().send(None),
            lambda: c.check_disconnects(0),
            lambda: c.fail_expired_requests(0),
            c.disable_wakeups,
            c.maybe_trigger_wakeup,
            lambda: c.least_loaded_node([node]),
        ]

        def use() -> None:
            for number, call in enumerate(calls):
                try:
                    call()
                except RuntimeError as error:
                    refused.append((number, "another thread" in str(error)))
            c.wakeup()
            c.disconnect(node)
            allowed.append(True)

        await asyncio.to_thread(use)
        assert refused == [(number, True) for number in range(len(calls))]
        assert allowed == [True]


async def test_15_acks_0_completes_when_written_and_holds_no_slot_after() -> None:
    async with Peer(silent, limit=1 << 16) as peer, client({"max_in_flight": 1}) as c:
        node = peer.node()
        futures = [
            c.send(node, Ask(b"%d" % n, PRODUCE, 9, expects_response=False)) for n in range(10)
        ]
        futures.append(c.send(node, Ask(bytes(4 << 20), PRODUCE, 9, expects_response=False)))
        for future in futures:
            assert (await future).response is None
        assert c.network.in_flight_count() == 0
        await until(lambda: len(peer.frames) == 11)


@pytest.mark.parametrize(
    "wrong",
    [lambda ids: ids[1], lambda ids: ids[-1] + 1, lambda ids: -5],
    ids=["next", "future", "no id"],
)
async def test_16_a_wrong_correlation_id_kills_the_connection(
    wrong: Callable[[list[int]], int],
) -> None:
    async def script(peer: Peer, reader: Reader, writer: Writer) -> None:
        frames = [await peer.read(reader) for _ in range(3)]
        ids = [frame.correlation_id for frame in frames]
        writer.write(answer(wrong(ids), b"not yours") + b"".join(map(answer, ids)))
        await reader.read()

    async with Peer(script) as peer, client() as c:
        futures = [c.send(peer.node(), Ask()) for _ in range(3)]
        await until(ended(*futures))
        assert all(isinstance(end, CorrelationIdMismatchError) for end in ends(*futures))


async def test_17_an_authentication_failure_reaches_everyone_and_the_next_poll() -> None:
    async def refuse(connection: Connection) -> None:
        await connection.request(Ask(b"token"))
        raise AuthenticationError("wrong password")

    async with Peer() as peer, client(network_authenticate=refuse) as c:
        node = peer.node()
        futures = [c.send(node, Ask()) for _ in range(3)]
        await until(ended(*futures))
        assert [str(end) for end in ends(*futures)] == ["wrong password"] * 3
        assert c.network.state(node).state is ConnectionState.AUTHENTICATION_FAILED
        with pytest.raises(AuthenticationError, match="wrong password"):
            await c.poll(0)
        await c.poll(0)  # once
        assert peer.bodies == [b"token"]


async def test_17_a_refused_certificate_is_an_authentication_failure(
    server_tls: ssl.SSLContext,
) -> None:
    async with Peer(ssl=server_tls) as peer, client({"ssl": ssl.create_default_context()}) as c:
        with pytest.raises(AuthenticationError, match="TLS"):
            await c.send(peer.node(), Ask())


async def test_18_empty_queues_are_dropped_and_no_request_with_them() -> None:
    async with Peer() as peer, client() as c:
        nodes = [peer.node(n) for n in range(50)]
        lost = 0
        for _ in range(5):
            futures = [c.send(node, Ask(b"x")) for node in nodes]

            def again(_: Any) -> None:  # put while the others' queues are being cleaned
                nonlocal lost
                lost += 1
                c.send(peer.node(lost % 50), Ask(b"y")).add_callbacks(back, back)

            def back(_: Any) -> None:
                nonlocal lost
                lost -= 1

            for future in futures:
                future.add_callbacks(again, lambda error: pytest.fail(str(error)))
            await until(ended(*futures))
        await until(lambda: not lost and not c.pending_request_count())
        await until(lambda: not c.unsent._queues)
        assert c.unsent.next_deadline_ms() is None
        assert len(peer.frames) == 500


async def test_19_the_least_loaded_node() -> None:
    async def throttling(peer: Peer, reader: Reader, writer: Writer) -> None:
        frame = await peer.read(reader)
        writer.write(answer(frame.correlation_id, throttle_time_ms=60_000))
        await reader.read()

    async def stuck(host: str, port: int) -> list[str]:
        if host == "stuck.invalid":
            await asyncio.sleep(3600)
        return [host]

    backoff = Backoff(60_000, 60_000, 0)
    async with (
        Peer(silent) as peer,
        Peer(throttling) as slow,
        client(network_resolve=stuck, network_reconnect_backoff=backoff) as c,
    ):
        two, one, throttled = peer.node(1), peer.node(2), slow.node(3)
        connecting, fresh, failed = (
            Node(4, "stuck.invalid", 1),
            peer.node(5),
            Node(6, "127.0.0.1", closed_port()),
        )
        for node in (two, two, one, throttled, connecting):
            c.send(node, Ask())
        with pytest.raises(DisconnectError):
            await c.send(failed, Ask())
        await until(
            lambda: (
                c.network.in_flight_count() == 3
                and c.network.state(throttled).connection.throttled_ms
            )
        )
        everyone = [two, one, throttled, connecting, fresh, failed]
        for expected in (one, two, connecting, fresh, None):
            assert c.least_loaded_node(everyone) == expected
            if expected is not None:
                everyone.remove(expected)
        assert everyone == [throttled, failed]
        alike = [peer.node(n) for n in range(10, 15)]
        assert len({c.least_loaded_node(alike) for _ in range(200)}) == 5  # from a random start
        assert c.least_loaded_node([]) is None


async def test_20_another_address_makes_a_new_node_of_the_old_id() -> None:
    async with Peer() as peer, client(network_reconnect_backoff=Backoff(60_000, 60_000, 0)) as c:
        gone = Node(7, "127.0.0.1", closed_port())
        with pytest.raises(DisconnectError):
            await c.send(gone, Ask())
        assert c.is_unavailable(gone)
        moved = peer.node(7)
        assert not c.is_unavailable(moved)  # no backoff that another host has earned
        assert (await c.send(moved, Ask(b"x"))).response.body == b"x"


async def test_20_all_addresses_are_tried_then_resolved_again() -> None:
    asked: list[str] = []
    async with Peer() as peer:

        async def resolve(host: str, port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.7", "127.0.0.8"] if len(asked) == 1 else ["127.0.0.9", "127.0.0.1"]

        async with client(network_resolve=resolve, network_reconnect_backoff=Backoff(1, 1, 0)) as c:
            node, tries = Node(1, "broker.invalid", peer.port), 0
            while True:
                tries += 1
                try:
                    await c.send(node, Ask())
                    break
                except DisconnectError:
                    await asyncio.sleep(0.005)
            assert tries == 4
            assert asked == ["broker.invalid"] * 2
            # the connection is lost: the name may lead elsewhere by now (KAFKA-12193)
            c.disconnect(node)
            await until(lambda: c.network.connection(node) is None)
            await asyncio.sleep(0.005)
            with pytest.raises(DisconnectError):
                await c.send(node, Ask())
            assert len(asked) == 3
