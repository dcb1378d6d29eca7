"""The durations of requests: on both paths, with many under way, and where the gate, the broker or
the client is slow.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import Any

import pytest

from batchval.proxy.watch.request_latency import Traffic, histograms_of
from tests.support.proxy import (
    ScriptedBroker,
    answered,
    batch,
    damaged,
    eventually,
    limits_with,
    other_frame,
    produce_frame,
    read_frame,
)
from tests.unit.proxy.test_fast_path import Side

pytestmark = pytest.mark.usefixtures("unhurried")

GOOD = batch(b"one", b"two")
BAD = damaged(GOOD)
PRODUCE, FETCH, INIT_PRODUCER_ID = 0, 1, 22
MAX_MEASURED_REQUESTS = 2048
MS = 10**6

#: API key -> (requests, their seconds, of these measured at the broker, seconds there)
Found = dict[int, tuple[int, float, int, float]]


def found(traffic: Traffic) -> Found:
    shown: Found = {}
    for key, taken in traffic.taken().items():
        (requests, total), (brokers, there) = histograms_of(taken)
        shown[key] = sum(requests), total, sum(brokers), there
    return shown


def counts(side: Side) -> dict[int, tuple[int, int]]:
    """Return API key -> (requests, those measured at the broker)."""
    return {key: (one[0], one[2]) for key, one in found(traffic_of(side)).items()}


def send(side: Side, data: bytes) -> None:
    """Read requests, also those that wait for another turn of the loop."""
    side.read(side.session.client, data)
    while side.session.requests.untaken:
        side.session._take_rest()


def traffic_of(side: Side) -> Traffic:
    return side.proxy.traffic_of(side.session.listener)


@pytest.mark.parametrize("uses_fast_path", [True, False])
async def test_the_time_at_the_broker_is_not_the_gates(uses_fast_path: bool) -> None:
    side = Side(uses_fast_path=uses_fast_path)
    send(side, produce_frame(1, ("t", 0, GOOD)) + other_frame(2))
    await asyncio.sleep(0.03)
    side.answer(0)
    for key in (PRODUCE, INIT_PRODUCER_ID):
        requests, total, brokers, there = found(traffic_of(side))[key]
        assert (requests, brokers) == (1, 1)
        assert 0.029 < there <= total
    (*_, answers, total_ns, most_ns) = side.session.fast_path.take_served()
    assert answers == 2
    assert 29 * MS < most_ns <= total_ns <= 2 * most_ns
    assert side.session.fast_path.take_served() == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("uses_fast_path", [True, False])
async def test_waiting_for_a_turn_is_the_gates_time(uses_fast_path: bool) -> None:
    side = Side(uses_fast_path=uses_fast_path)
    side.proxy.budget.spent_s = 100.0  # others have taken this turn of the loop
    side.read(side.session.client, produce_frame(1, ("t", 0, GOOD)))
    assert side.broker.data == b""
    side.proxy.budget.spent_s = 0.0
    side.session._put_off_ns -= 60_000 * MS
    side.session._take_rest()
    side.answer(0)
    _, total, _, there = found(traffic_of(side))[PRODUCE]
    assert total >= 60
    assert there < total - 59
    send(side, produce_frame(2, ("t", 0, GOOD)))  # not that of later requests
    side.answer(0)
    requests, later, *_ = found(traffic_of(side))[PRODUCE]
    assert requests == 2
    assert later - total < 59


@pytest.mark.parametrize("uses_fast_path", [True, False])
async def test_acks_0_has_no_duration(uses_fast_path: bool) -> None:
    side = Side(uses_fast_path=uses_fast_path)
    send(side, produce_frame(1, ("t", 0, GOOD), acks=0) + produce_frame(2, ("t", 0, GOOD)))
    side.answer(0)
    assert counts(side) == {PRODUCE: (1, 1)}


async def test_a_refused_request_never_was_at_the_broker() -> None:
    side = Side(uses_fast_path=True)
    send(side, produce_frame(1, ("t", 0, BAD)) + produce_frame(2, ("t", 0, GOOD), ("t", 1, BAD)))
    side.answer(0)
    assert counts(side) == {PRODUCE: (2, 1)}


@pytest.mark.parametrize("uses_fast_path", [True, False])
@pytest.mark.parametrize("before", [0, 0x7FFFFFFF - 700])
async def test_many_requests_under_way(uses_fast_path: bool, before: int) -> None:
    # Each gets its own duration, also where correlation ids start anew; too many are counted.
    side = Side(uses_fast_path=uses_fast_path, limits=limits_with(max_requests_waiting=10_000))
    path = side.session.fast_path
    path.sent = path.received = before
    for n in range(3_000):
        send(side, other_frame(n) if n % 3 else produce_frame(n, ("t", 0, GOOD)))
    side.answer(5_000)
    produced, others = (
        len(range(0, MAX_MEASURED_REQUESTS, 3)),
        MAX_MEASURED_REQUESTS - len(range(0, MAX_MEASURED_REQUESTS, 3)),
    )
    assert counts(side) == {PRODUCE: (produced, produced), INIT_PRODUCER_ID: (others, others)}
    assert traffic_of(side).unmeasured_waiting == 3_000 - MAX_MEASURED_REQUESTS
    send(side, other_frame(1))  # there are places again
    side.answer(0)
    assert counts(side)[INIT_PRODUCER_ID] == (others + 1, others + 1)


async def test_an_answer_out_of_turn_is_not_measured() -> None:
    side = Side(uses_fast_path=True)
    send(side, other_frame(1) + other_frame(2))
    side.read(side.up, struct.pack(">ii", 4, 2))
    assert side.session.lifetime.reason == "answer_out_of_turn"
    assert counts(side) == {}


async def test_a_client_that_takes_no_answers_makes_nobody_slow() -> None:
    side = Side(uses_fast_path=True)
    send(side, other_frame(1) + other_frame(2))
    side.session.client_full(True)
    side.session.client_full(False)
    side.answer(0)
    assert counts(side) == {}
    assert traffic_of(side).unmeasured_client == 2
    assert side.session.seen_client.stalls == 1
    send(side, other_frame(3))
    side.answer(0)
    assert counts(side) == {INIT_PRODUCER_ID: (1, 1)}


async def test_what_the_budget_holds_up_is_the_gates_time() -> None:
    side = Side(uses_fast_path=True)
    send(side, other_frame(1))
    side.session.pause()
    side.session.go_on()
    side.answer(0)
    assert counts(side) == {INIT_PRODUCER_ID: (1, 0)}


def test_durations_through_sockets() -> None:
    # A broker that takes 50 ms, a large answer that is streamed, and /clients' latencies.
    from tests.system.auth.gates import RunningSettings

    large = 300_000

    def answer(frame: bytes) -> bytes | None:
        key, _, correlation_id = struct.unpack_from(">hhi", frame)
        if key == FETCH:
            return struct.pack(">ii", large + 4, correlation_id) + bytes(large)
        time.sleep(0.05)
        return answered(frame)

    with ScriptedBroker(answer) as broker, RunningSettings(broker.address) as gate:
        with socket.create_connection(gate.address, 20) as sock:
            sock.sendall(produce_frame(1, ("t", 0, GOOD)))
            read_frame(sock)
            consumer = struct.pack(">i", -1)  # a replica's request is denied
            sock.sendall(other_frame(2, key=FETCH, version=11, body=consumer))
            assert len(read_frame(sock)) == large + 4
            sock.sendall(other_frame(3))
            read_frame(sock)
        eventually(lambda: gate.gate.counters.connections_open == 0)
        shown = found(gate.gate.shared.traffic.of("default", None))
        assert {key: (one[0], one[2]) for key, one in shown.items()} == dict.fromkeys(
            (PRODUCE, FETCH, INIT_PRODUCER_ID), (1, 1)
        )
        assert shown[PRODUCE][3] > 0.049
        rows: list[Any] = [row for _, row in gate.gate.shared.clients.rows()]
        latency = rows[0].latency(gate.gate.shared.clients.now_ms())
        assert latency.answers == 3
        assert latency.most_ns > 49 * MS
        assert rows[0].answer_bytes > large
        assert rows[0].request_bytes > len(GOOD)
