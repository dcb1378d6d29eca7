"""Ports of brokers that become known while a gate is taken over."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from typing import Any, cast

import pytest

from batchval.proxy.cluster.listening_sockets import ListeningSockets, Port
from batchval.proxy.cluster.state_file import StoredCluster
from batchval.proxy.life import handover
from batchval.proxy.life.gate import Gate
from batchval.proxy.life.handover import TakeOver
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import settings_from
from tests.support.network import until
from tests.support.ports import free_ports

LOOPBACK = "127.0.0.1"
NEW = 5  # the broker that becomes known


def settings(port: int) -> Settings:
    listener = {"address": f"{LOOPBACK}:{port}", "broker_ports": 8}
    return settings_from(
        {
            "listeners": [listener],
            "upstream": {"bootstrap": f"{LOOPBACK}:1"},
            "metrics": {"address": None},
        }
    )


class Offered:
    """The new gate's view of the old one, whose end a test decides."""

    def __init__(self, gate: Gate) -> None:
        offer = gate.succession.offer()
        self.sockets = {
            key: socket.socket(fileno=os.dup(one.fileno())) for key, one in offer.sockets.items()
        }
        self.state = StoredCluster.decode(offer.state.encode())
        self.pid, self.unready = 1, None
        self.over = asyncio.Event()

    async def ended(self) -> None:
        await self.over.wait()


async def pair(port: int) -> tuple[Gate, Gate, Offered]:
    """Return a gate, the one that prepares to take it over, and what that one has of it."""
    old = Gate(settings(port))
    await old.start()
    offered = Offered(old)
    new = Gate(settings(port), predecessor=cast(TakeOver, offered))
    await new.start()
    return old, new, offered


def broker(gate: Gate) -> Any:
    return gate.proxies["default"].cluster.brokers[NEW]


def learn(gate: Gate) -> None:
    gate.discovery.learn(NEW, LOOPBACK, 2)


def is_served(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), 10).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("first", ["old", "new"])
async def test_a_broker_that_is_new_meanwhile_gets_the_port_of_the_configuration(
    first: str,
) -> None:
    port = free_ports(10)
    old, new, offered = await pair(port)
    for gate in (old, new) if first == "old" else (new, old):
        learn(gate)
    assert broker(old).port == broker(new).port == port + 1 + NEW
    new.accept()
    old.succession.hand_over()
    new.succeeded()
    await old.stop(0)
    offered.over.set()
    await until(lambda: broker(new).server is not None)
    assert broker(new).port == port + 1 + NEW
    assert is_served(port + 1 + NEW)
    await new.stop(0)


async def test_the_old_gate_gets_the_port_when_the_new_one_is_lost() -> None:
    port = free_ports(10)
    old, new, _ = await pair(port)
    learn(new), learn(old)
    assert broker(old).sock is None
    old.succession.go_on()
    await new.stop(0)
    await until(lambda: broker(old).server is not None)
    assert broker(old).port == port + 1 + NEW
    await old.stop(0)


async def test_a_port_of_another_program_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "FREE_S", 0.0)
    port = free_ports(10)
    with socket.create_server((LOOPBACK, port + 1 + NEW)):
        old = Gate(settings(port))
        await old.start()
        old.succession.offer()
        learn(old)
        assert (broker(old).port, broker(old).sock) == (port + 1 + NEW, None)
        old.succession.go_on()
        await until(lambda: broker(old).server is not None)
        assert broker(old).port != port + 1 + NEW
        assert broker(old).advertised[1] == broker(old).port
        await old.stop(0)


async def test_a_gate_that_ends_binds_nothing_later() -> None:
    old, new, _ = await pair(free_ports(10))
    learn(new), learn(old)
    await new.stop(0)
    await old.stop(0)
    cluster, awaited = old.proxies["default"].cluster, broker(old)
    cluster._open_again(awaited, NEW)
    assert awaited.sock is None


async def test_a_broker_that_moves_is_named_at_its_new_port() -> None:
    # A worker opens a port that its parent awaits, and the parent may get another one.
    port = free_ports(10)
    gate = Gate(settings(port))
    await gate.start()
    learn(gate)
    cluster, before = gate.proxies["default"].cluster, broker(gate).port
    written = cluster.written_brokers(LOOPBACK, 9)
    cluster.moved(NEW, before)
    assert cluster.written_brokers(LOOPBACK, 9) is written
    cluster.moved(NEW, before + 1)
    cluster.moved(NEW + 1, before + 1)  # not known
    assert (broker(gate).port, broker(gate).advertised[1]) == (before + 1, before + 1)
    assert cluster.written_brokers(LOOPBACK, 9) is not written
    await gate.stop(0)


def test_a_port_whose_socket_was_sent_is_not_awaited() -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as foreign,
        socket.create_server((LOOPBACK, 0)) as kept,
    ):
        ports = ListeningSockets({("a", 1): kept})
        ports.shared_until = math.inf
        numbers = [foreign.getsockname()[1], kept.getsockname()[1], 0]
        assert ports.open(("a", 1), LOOPBACK, numbers) == Port(numbers[1], kept)


def test_only_a_hand_over_awaits_a_port() -> None:
    ports = ListeningSockets()
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        other = ports.open(("a", 1), LOOPBACK, [port, 0])
        assert other.number != port
        assert not other.is_awaited
        ports.close(("a", 1))
        ports.shared_until = math.inf
        assert ports.open(("a", 1), LOOPBACK, [port, 0]) == Port(port, None, is_awaited=True)
        with pytest.raises(OSError, match="in use"):  # the port that clients bootstrap from
            ports.open(("a", None), LOOPBACK, [port])
