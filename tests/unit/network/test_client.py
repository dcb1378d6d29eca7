"""ConsumerNetworkClient: the order of a poll, its limits, and awaiting as the other way to the same
thing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from batchval.network.client import ConsumerNetworkClient, Timer
from batchval.network.connection import Connection
from batchval.network.errors import AuthenticationError, DisconnectError, WakeupError
from batchval.network.node import Backoff
from batchval.network.options import ConnectionOptions
from batchval.network.request import Node
from tests.support.network import Ask, Peer, answer, client, client_options, echo, silent, until

STEPS = {
    "_fire_pending_completions": "fire completions",
    "_handle_pending_disconnects": "pending disconnects",
    "try_send": "try_send",
    "_io": "I/O",
    "check_disconnects": "check_disconnects",
    "maybe_trigger_wakeup": "maybe_trigger_wakeup",
    "fail_expired_requests": "fail_expired_requests",
}
ORDER = [
    "fire completions",
    "pending disconnects",
    "try_send",
    "I/O",
    "check_disconnects",
    "maybe_trigger_wakeup",
]
ORDER += ["try_send", "fail_expired_requests", "fire completions"]


def recorded(c: ConsumerNetworkClient) -> list[str]:
    """A list that fills with the steps as they are taken."""
    seen: list[str] = []
    for method, name in STEPS.items():
        real = getattr(c, method)

        def step(*args: Any, name: str = name, real: Any = real) -> Any:
            seen.append(name)
            return real(*args)

        setattr(c, method, step)
    return seen


async def test_the_order_of_a_poll() -> None:
    async with Peer() as peer, client() as c:
        await c.send(peer.node(), Ask())
        await asyncio.sleep(0.01)
        seen = recorded(c)
        await c.poll(0)
        assert seen == ORDER
        seen.clear()
        await c.poll(0, disable_wakeup=True)
        assert seen == [step for step in ORDER if step != "maybe_trigger_wakeup"]


async def test_the_order_where_nobody_polls() -> None:
    async with Peer() as peer, client() as c:
        await c.send(peer.node(), Ask())
        await asyncio.sleep(0.01)
        seen = recorded(c)
        await c.send(peer.node(), Ask())
        rounds = [step for step in ORDER if step not in ("I/O", "maybe_trigger_wakeup")]
        assert seen[: len(rounds)] == rounds
        assert len(seen) > len(rounds)
        assert seen == (rounds * (len(seen) // len(rounds) + 1))[: len(seen)]


async def test_a_condition_that_needs_no_wait_is_not_waited_for() -> None:
    class Done:
        def should_block(self) -> bool:
            return False

    async with Peer(silent) as peer, client() as c:
        c.send(peer.node(), Ask())
        await until(lambda: c.network.in_flight_count() == 1)
        waits: list[float] = []
        real = c._io

        async def io(timeout_ms: float) -> None:
            waits.append(timeout_ms)
            await real(min(timeout_ms, 5))

        c._io = io  # type: ignore[method-assign]
        await c.poll(10_000, Done())
        await c.poll(10_000)
        await c.poll(50)
        assert waits[0] == 0
        assert (
            waits[1] == c.max_poll_timeout_ms == 3_000
        )  # something is in flight: the longest poll
        assert 0 < waits[2] <= 50


async def test_send_wakes_a_blocked_poll() -> None:
    async with Peer() as peer, client() as c:
        c.max_poll_timeout_ms = 100_000
        node = peer.node()
        stuck = c.send(Node(9, "127.0.0.1", peer.port), Ask(b"first"))
        await stuck
        loop = asyncio.get_running_loop()
        before = loop.time()
        async with Peer(silent) as quiet:
            c.send(quiet.node(8), Ask())
            await until(lambda: c.network.in_flight_count() == 1)
            polling = asyncio.ensure_future(c.poll(100_000))
            await asyncio.sleep(0.01)
            assert not polling.done()
            future = c.send(node, Ask(b"x"))
            await polling
            assert await c.poll_until(future, 10_000)
            assert future.value().response.body == b"x"
        assert loop.time() - before < 30


async def test_polling_and_awaiting_come_to_the_same() -> None:
    async with Peer() as peer, client() as c:
        node = peer.node()
        futures = [c.send(node, Ask(b"%d" % n)) for n in range(50)]
        for future in futures[::2]:
            assert await c.poll_until(future, 10_000)
        bodies = [(await future).response.body for future in futures]
        assert bodies == [b"%d" % n for n in range(50)]
        several = [
            asyncio.ensure_future(c.poll_until(c.send(node, Ask()), 10_000)) for _ in range(10)
        ]
        assert await asyncio.gather(*several) == [True] * 10


async def test_poll_until_gives_up_when_the_timer_has_expired() -> None:
    async with Peer(silent) as peer, client() as c:
        timer = Timer(60)
        future = c.send(peer.node(), Ask())
        assert not await c.poll_until(future, timer)
        assert timer.expired
        c.disconnect(peer.node())
        assert await c.poll_until(future, 10_000)
        assert isinstance(future.exception(), DisconnectError)


async def test_a_response_says_how_long_it_took() -> None:
    async def slow(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await peer.read(reader)
        await asyncio.sleep(0.05)
        writer.write(answer(frame.correlation_id))
        await echo(peer, reader, writer)

    async with Peer(slow) as peer, client() as c:
        request = Ask()
        response = await c.send(peer.node(), request)
        assert response.request is request
        assert response.node == peer.node()
        assert response.request_latency_ms >= 45


async def test_after_the_backoff_a_failed_node_is_tried_again() -> None:
    async with client(network_reconnect_backoff=Backoff(10, 10, 0)) as c:
        peer = Peer()
        await peer.start()
        node = peer.node()
        await c.send(node, Ask())
        await peer.stop()
        await until(lambda: c.network.connection(node) is None)
        with pytest.raises(DisconnectError):  # too early: fails at once, and is not kept waiting
            await c.send(node, Ask())
        await peer.start(node.port)
        await until(lambda: not c.is_unavailable(node))
        assert (await c.send(node, Ask(b"x"))).response.body == b"x"
        assert c.network.state(node).failures == 0
        await peer.stop()


def test_defaults() -> None:
    options = client_options()
    assert (
        options.retry_backoff_ms,
        options.heartbeat_interval_ms,
        options.request_timeout_ms,
    ) == (100, 3_000, 30_000)
    default = {
        field.name: field.default for field in ConnectionOptions.__dataclass_fields__.values()
    }
    assert default["max_in_flight"] == 5
    assert default["request_timeout_ms"] == 30_000
    assert default["send_buffer_bytes"] is default["receive_buffer_bytes"] is None


@pytest.mark.parametrize(("heartbeat", "session"), [(45_000, 45_000), (0, 45_000), (10, 9)])
def test_a_heartbeat_must_be_below_the_session_timeout(heartbeat: float, session: float) -> None:
    with pytest.raises(ValueError, match="below session_timeout_ms"):
        client_options(heartbeat_interval_ms=heartbeat, session_timeout_ms=session)


def test_a_heartbeat_above_a_third_of_the_session_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client_options(heartbeat_interval_ms=3_000, session_timeout_ms=9_000)
    assert caplog.records == []
    client_options(heartbeat_interval_ms=3_001, session_timeout_ms=9_000)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_the_longest_poll() -> None:
    async with client(heartbeat_interval_ms=2_000) as c:
        assert c.max_poll_timeout_ms == 2_000
    async with client(heartbeat_interval_ms=20_000, session_timeout_ms=90_000) as c:
        assert c.max_poll_timeout_ms == 5_000


async def test_wakeup_and_disconnect_after_the_loop_are_harmless() -> None:
    def other_loop() -> ConsumerNetworkClient:
        async def make() -> ConsumerNetworkClient:
            return client()

        return asyncio.run(make())

    c = await asyncio.to_thread(other_loop)
    c.wakeup()
    c.disconnect(Node(1, "127.0.0.1", 1))


async def test_poll_no_wakeup_neither_waits_nor_wakes() -> None:
    async with Peer(silent) as peer, client() as c:
        future = c.send(peer.node(), Ask())
        c.wakeup()
        async with asyncio.timeout(30):
            while not peer.frames:
                await c.poll_no_wakeup()
        assert not future.is_done
        with pytest.raises(WakeupError):  # it was kept
            await c.poll(0)


async def test_await_pending_requests() -> None:
    gate = asyncio.Event()

    async def late(peer: Peer, reader: Any, writer: Any) -> None:
        while True:
            frame = await peer.read(reader)
            await gate.wait()
            writer.write(answer(frame.correlation_id, frame.body))

    async with Peer(late) as peer, Peer(silent) as other, client() as c:
        mine, theirs = peer.node(1), other.node(2)
        futures = [c.send(mine, Ask()) for _ in range(3)]
        c.send(theirs, Ask())  # of another node: not waited for
        assert not await c.await_pending_requests(mine, 30)
        gate.set()
        assert await c.await_pending_requests(mine, 10_000)
        assert all(future.succeeded for future in futures)
        assert c.has_pending_requests(theirs)
        assert await c.await_pending_requests(Node(9, "127.0.0.1", 1), 10_000)  # none, ever
        c.wakeup()
        with pytest.raises(WakeupError):
            await c.await_pending_requests(theirs, 10_000)


async def test_has_pending_requests_counts_unsent_and_in_flight() -> None:
    async with Peer() as peer, client() as c:
        node = peer.node()
        assert not c.has_pending_requests()
        future = c.send(node, Ask())
        assert (c.unsent.count(node), c.has_pending_requests(node), c.has_pending_requests()) == (
            1,
            True,
            True,
        )
        assert not c.has_pending_requests(Node(2, "127.0.0.1", 1))
        await future
        assert not c.has_pending_requests(node)


async def test_maybe_throw_auth_failure_until_the_next_attempt() -> None:
    right = False

    async def refuse(connection: Connection) -> None:
        if not right:
            raise AuthenticationError("wrong password")

    async with Peer() as peer, client(network_authenticate=refuse) as c:
        node = peer.node()
        c.maybe_throw_auth_failure(node)  # nothing is known of it yet
        with pytest.raises(AuthenticationError):
            await c.send(node, Ask())
        for _ in range(2):
            with pytest.raises(AuthenticationError, match="wrong password"):
                c.maybe_throw_auth_failure(node)
        c.maybe_throw_auth_failure(Node(2, "127.0.0.1", 1))
        right = True
        await until(lambda: not c.is_unavailable(node))
        await c.send(node, Ask())
        c.maybe_throw_auth_failure(node)


async def test_has_ready_nodes() -> None:
    async with Peer() as peer, client() as c:
        assert not c.has_ready_nodes()
        c.try_connect(peer.node())
        assert not c.has_ready_nodes()  # not yet
        await until(c.has_ready_nodes)
        peer.cut()
        await until(lambda: not c.has_ready_nodes())


async def test_fail_unsent_requests_leaves_what_is_in_flight() -> None:
    async with Peer(silent) as peer, Peer(silent) as other, client({"max_in_flight": 1}) as c:
        node = peer.node(1)
        sent, unsent = c.send(node, Ask()), [c.send(node, Ask()) for _ in range(2)]
        theirs = c.send(other.node(2), Ask())
        await until(lambda: len(peer.frames) == 1)
        error = KeyError("not wanted any more")
        c.fail_unsent_requests(node, error)
        assert not any(future.is_done for future in unsent)  # callbacks run in a round
        await until(lambda: all(future.is_done for future in unsent))
        assert all(future.exception() is error for future in unsent)
        assert (sent.is_done, theirs.is_done) == (False, False)
        assert c.pending_request_count(node) == 1


async def test_try_disconnect_fails_unsent_then_in_flight() -> None:
    async with Peer(silent) as peer, client({"max_in_flight": 1}) as c:
        node, seen = peer.node(), list[str]()
        assert not c.try_disconnect(node)  # there is nothing to end
        in_flight, unsent = c.send(node, Ask()), c.send(node, Ask())
        for name, future in (("in flight", in_flight), ("unsent", unsent)):
            future.add_callbacks(lambda _: None, lambda _, name=name: seen.append(name))
        await until(lambda: len(peer.frames) == 1)
        assert c.try_disconnect(node)
        assert not c.try_disconnect(node)
        assert seen == []  # callbacks run in a round
        await until(lambda: len(seen) == 2)
        assert seen == ["unsent", "in flight"]
        assert isinstance(in_flight.exception(), DisconnectError)
        assert unsent.is_retriable
        await until(lambda: not c.is_unavailable(node))
        again = c.send(node, Ask())  # it connects again
        await until(lambda: peer.accepted == 2 or again.is_done)
        assert not again.is_done
