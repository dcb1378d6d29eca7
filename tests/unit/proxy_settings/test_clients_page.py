"""/clients: who uses the gate, as JSON and as a table, whatever clients call themselves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchval.protocol.old_versions import PRODUCERS, Raised
from batchval.proxy.life.gate import Gate
from batchval.proxy.life.health import HealthServer
from batchval.proxy.settings.loading import settings_from
from batchval.proxy.settings.options import Counters
from batchval.proxy.watch.clients import (
    MAX_CLIENTS,
    SHOWN,
    WINDOW_MS,
    Asked,
    ClientKey,
    ClientTable,
    Served,
    Software,
    asked_for,
    lines_of,
    page_of,
)
from batchval.proxy.watch.metrics import GateMetrics, of_clients
from tests.support.calibration import cpu_s
from tests.support.health import started
from tests.support.proxy import ScriptedBroker, produce_frame

PRODUCE, FETCH, METADATA = 0, 1, 3
ALL, AS_TEXT = Asked(), Asked(text=True)
AT_NS = 1_764_064_800 * 10**9  # 2025-11-25 10:00:00 UTC


def pair(key: int, version: int) -> int:
    return key << 16 | version


def table_of(*rows: tuple[str | None, Software, dict[int, int]], most: int = 100) -> ClientTable:
    table = ClientTable(most, clock_ns=lambda: AT_NS)
    for client_id, software, uses in rows:
        table.add(ClientKey(client_id, software, "10.0.0.7", "User:alice", "default"), uses)
    return table


CLIENTS = (
    ("c-2", Software("franz", "1.22.2"), {pair(FETCH, 12): 7, pair(METADATA, 0): 1}),
    ("c-1", Software("franz", "1.22.2"), {pair(FETCH, 12): 7}),
    (None, Software(), {pair(FETCH, 12): 1}),
    (
        "agent",
        Software(),
        {pair(PRODUCE, 0): 1_500, pair(PRODUCE, 2): 1, pair(FETCH, 1): 1, pair(METADATA, 0): 2},
    ),
)


def documents(
    table: ClientTable, asked: Asked = ALL, raised: dict[int, Raised] | None = None
) -> dict[str, Any]:
    kind, body = page_of(table, raised or {}, asked)()
    assert kind == "application/json"
    found: dict[str, Any] = json.loads(body)
    return found


def text(
    table: ClientTable, asked: Asked = AS_TEXT, raised: dict[int, Raised] | None = None
) -> list[str]:
    kind, body = page_of(table, raised or {}, asked)()
    assert kind == "text/plain; charset=utf-8"
    return body.decode().splitlines()


# ---- the answer ----------------------------------------------------------------------------------


def test_json() -> None:
    at = AT_NS // 10**6
    found = documents(table_of(*CLIENTS), raised={int(key): one for key, one in PRODUCERS.items()})
    clients = found.pop("clients")
    assert found == {"since_ms": at, "now_ms": at, "evicted": 0, "known": 4, "old": 1}
    assert [client["client_id"] for client in clients] == ["agent", None, "c-1", "c-2"]
    assert clients[0] == {
        "client_id": "agent",
        "software_name": None,
        "software_version": None,
        "address": "10.0.0.7",
        "principal": "User:alice",
        "listener": "default",
        "first_seen_ms": at,
        "last_seen_ms": at,
        "requests": 1_504,
        "request_bytes": 0,
        "answer_bytes": 0,
        "mean_ms": None,
        "max_ms": None,
        "stalls": 0,
        "old": True,
        "uses": [
            {"api": "Produce", "version": 0, "requests": 1_500, "old": True, "bridged": True},
            {"api": "Produce", "version": 2, "requests": 1, "old": True, "bridged": True},
            {"api": "Fetch", "version": 1, "requests": 1, "old": True, "bridged": False},
            {"api": "Metadata", "version": 0, "requests": 2, "old": False, "bridged": False},
        ],
        "other_requests": 0,
    }
    assert (clients[2]["software_name"], clients[2]["software_version"]) == ("franz", "1.22.2")


def test_only_old_clients_and_a_limit() -> None:
    table = table_of(*CLIENTS)
    assert [client["client_id"] for client in documents(table, Asked(old=True))["clients"]] == [
        "agent"
    ]
    found = documents(table, Asked(limit=2))
    assert [client["client_id"] for client in found["clients"]] == ["agent", None]
    assert (found["known"], found["old"]) == (4, 1)
    assert documents(table_of()) | {"clients": []} == documents(table_of())


def test_text() -> None:
    lines = text(table_of(*CLIENTS[1:]))
    assert lines[:2] == [
        "3 clients since 2025-11-25 10:00:00 UTC, of which Kafka 4 turns away 1",
        "",
    ]
    words = ("client id", "software", "address", "principal", "listener", "last seen (UTC)")
    numbers = "requests bytes in bytes out mean ms max ms stalls"
    whose = "10.0.0.7 User:alice default 2025-11-25 10:00:00"
    assert [" ".join(line.split()) for line in lines[2:5]] == [
        f"kafka 4 {' '.join(words)} {numbers} old versions",
        f"turned away agent - {whose} 1,504 0 0 - - 0 Produce 0 2, Fetch 1",
        f"served - - {whose} 1 0 0 - - 0",
    ]
    at = [line.index("10.0.0.7") for line in lines[3:]]
    assert at == [lines[2].index("address")] * 3
    assert text(table_of()) == [
        "0 clients since 2025-11-25 10:00:00 UTC, of which Kafka 4 turns away 0"
    ]


def test_clients_whose_old_versions_are_all_bridged() -> None:
    raised = {PRODUCE: Raised(0, 3)}
    agent, both = (
        ("a", Software(), {pair(PRODUCE, 0): 1}),
        ("b", Software(), {pair(PRODUCE, 0): 1, pair(FETCH, 0): 1}),
    )
    lines = text(table_of(agent, both), raised=raised)
    assert [line.split("  ")[0] for line in lines[3:]] == ["bridged", "turned away"]


def test_the_slowest_come_first() -> None:
    now_ms = [AT_NS // 10**6]
    table = ClientTable(clock_ns=lambda: now_ms[0] * 10**6)
    for name, ms in (("quick", 2), ("slow", 900), ("silent", 0)):
        key = ClientKey(name, Software(), "10.0.0.7", "User:a", "default")
        answers = 10 if ms else 0
        served = Served(
            5_000, 70_000, answers, answers * ms * 10**6, 2 * ms * 10**6, stalls=ms // 100
        )
        table.add(key, {pair(FETCH, 12): 10}, served)
    slow, quick, silent = documents(table, Asked(order="slowest"))["clients"]
    assert [slow["client_id"], quick["client_id"], silent["client_id"]] == [
        "slow",
        "quick",
        "silent",
    ]
    names = ("request_bytes", "answer_bytes", "mean_ms", "max_ms", "stalls")
    assert [slow[name] for name in names] == [5_000, 70_000, 900.0, 1_800.0, 9]
    assert (silent["mean_ms"], silent["max_ms"]) == (None, None)
    line = text(table, Asked(text=True, order="slowest"))[3]
    assert line.split()[-6:] == ["10", "5,000", "70,000", "900.0", "1,800.0", "9"]
    # latencies are those of the last windows, the rest of all time
    now_ms[0] += WINDOW_MS
    table.add(
        ClientKey("slow", Software(), "10.0.0.7", "User:a", "default"),
        {},
        Served(0, 0, 10, 10**9, 10**9),
    )
    slow = documents(table, Asked(order="slowest"))["clients"][0]
    assert (slow["mean_ms"], slow["max_ms"], slow["request_bytes"]) == (500.0, 1_800.0, 5_000)
    now_ms[0] += WINDOW_MS
    table.add(
        ClientKey("slow", Software(), "10.0.0.7", "User:a", "default"),
        {},
        Served(0, 0, 1, 10**6, 10**6),
    )
    found = {one["client_id"]: one["max_ms"] for one in documents(table)["clients"]}
    assert found == {"slow": 1_000.0, "quick": None, "silent": None}


def test_clients_that_were_displaced_are_counted() -> None:
    table = table_of(*CLIENTS, most=3)
    assert documents(table)["evicted"] == 1
    assert text(table)[1] == "left out: 1 client, seen longest ago"


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202egnol", '"} 1\n', "\x00", "\ud800"])
def test_names_cannot_begin_a_line_or_move_the_cursor(name: str) -> None:
    table = table_of((name, Software(), {pair(PRODUCE, 0): 1}))
    lines = text(table)
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    assert documents(table)["clients"][0]["client_id"] == name
    assert page_of(table, {}, Asked())()[1].isascii()


def test_a_large_table_is_in_order_and_bounded() -> None:
    rows = [
        (f"{n * 7_919 % 10_000:05d}" + "x" * 95, Software(), {pair(PRODUCE, n % 5): 1})
        for n in range(10_000)
    ]
    table = table_of(*rows, most=MAX_CLIENTS)
    found = documents(table, Asked(limit=MAX_CLIENTS))["clients"]
    assert len(found) == MAX_CLIENTS
    assert found == sorted(found, key=lambda one: (not one["old"], one["client_id"]))
    assert len(documents(table)["clients"]) == SHOWN


@pytest.mark.alone
def test_taking_the_rows_is_quick() -> None:
    # It happens on the event loop; the text is made elsewhere.
    rows = [(f"c-{n}", Software(), {pair(PRODUCE, n % 5): 1}) for n in range(10_000)]
    table = table_of(*rows, most=MAX_CLIENTS)
    assert cpu_s(lambda: page_of(table, {}, Asked()), 10) < 0.001


@pytest.mark.parametrize(
    ("query", "accept", "asked"),
    [
        ("", "", Asked()),
        ("", "*/*", Asked()),
        ("", "text/plain", Asked(text=True)),
        ("", "application/json, text/plain", Asked()),
        ("format=json", "text/plain", Asked()),
        ("format=text&old=true&limit=5", "", Asked(True, True, 5)),
        ("old=false", "", Asked()),
        ("limit=10000", "", Asked(limit=10_000)),
    ],
)
def test_what_can_be_asked_for(query: str, accept: str, asked: Asked) -> None:
    assert asked_for(query, accept) == asked


@pytest.mark.parametrize(
    "query",
    [
        *("old=1", "old", "old=", "format=xml", "page=2", "x" * 4_000, "%0a%1b=1"),
        *(
            "limit=0",
            "limit=10001",
            "limit=-1",
            "limit=\u0665",
            "limit=1e3",
            "limit=" + "9" * 5_000,
        ),
        "&".join("old=true" for _ in range(20)),
    ],
)
def test_what_cannot_be_asked_for(query: str) -> None:
    with pytest.raises(
        ValueError, match=r"is not known: expected old=|^Max number of fields"
    ) as error:
        asked_for(query)
    assert len(str(error.value)) < 200
    assert str(error.value).isprintable()


@pytest.mark.parametrize("spoilt", ["uses", "requests", "last_seen_ms", "old"])
def test_documents_of_something_else_are_errors(spoilt: str) -> None:
    found = documents(table_of(*CLIENTS))
    clients = found.pop("clients")
    del clients[0][spoilt]
    with pytest.raises(KeyError):
        list(lines_of(found, clients))


# ---- the port ------------------------------------------------------------------------------------


async def ask(address: tuple[str, int], target: str, *headers: str) -> tuple[int, str, bytes]:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(
        "\r\n".join([f"GET {target} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()
    )
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    kind = head.partition(b"Content-Type: ")[2].partition(b"\r\n")[0]
    return int(head.split()[1]), kind.decode(), body


async def test_the_port_answers() -> None:
    table = table_of(*CLIENTS)

    async def clients(asked: Asked) -> Callable[[], tuple[str, bytes]]:
        return page_of(table, {}, asked)

    server = HealthServer(lambda: lambda: b"counts 1\n", lambda: None, clients)
    address = await started(server)
    status, kind, body = await ask(address, "/clients")
    assert (status, kind, len(json.loads(body)["clients"])) == (200, "application/json", 4)
    assert len(json.loads((await ask(address, "/clients?old=true"))[2])["clients"]) == 1
    by_header = await ask(address, "/clients", "accept: text/plain")
    assert by_header == await ask(address, "/clients?format=text")
    assert by_header[1:] == (
        "text/plain; charset=utf-8",
        "".join(f"{line}\n" for line in text(table)).encode(),
    )
    status, kind, body = await ask(address, "/clients?old=yes")
    assert (status, kind.partition(";")[0]) == (400, "text/plain")
    assert (
        body
        == b"old=yes is not known: expected old=true|false, format=json|text, order=name|slowest, limit=1..10000\n"
    )
    assert (await ask(address, "/metrics"))[2] == b"counts 1\n"
    await server.stop()


async def test_a_server_without_clients_has_no_such_page() -> None:
    server = HealthServer(lambda: lambda: b"", lambda: None)
    address = await started(server)
    assert (await ask(address, "/clients"))[0] == 404
    await server.stop()


async def test_health_is_answered_while_a_page_takes_long() -> None:
    # Those who ask for the same share a page; others wait for their turn.
    slow = threading.Event()
    taken: list[Asked] = []

    async def clients(asked: Asked) -> Callable[[], tuple[str, bytes]]:
        taken.append(asked)
        return lambda: ("text/plain", b"%d" % slow.wait(10))

    server = HealthServer(lambda: lambda: b"counts 1\n", lambda: None, clients)
    address = await started(server)
    queries = ("", "", "?old=true", "?old=true", "?format=text")
    first = asyncio.create_task(ask(address, "/clients?limit=1"))
    while not taken:
        await asyncio.sleep(0.001)
    asked = [asyncio.create_task(ask(address, f"/clients{query}")) for query in queries]
    await asyncio.sleep(0.05)
    assert (await ask(address, "/livez"))[0] == 200
    assert (await ask(address, "/metrics"))[2] == b"counts 1\n"
    assert taken == [Asked(limit=1)]
    slow.set()
    assert [body for _, _, body in await asyncio.gather(first, *asked)] == [b"1"] * 6
    assert sorted(taken[1:]) == sorted([Asked(), Asked(old=True), Asked(text=True)])
    await server.stop()


# ---- the gate ------------------------------------------------------------------------------------


async def test_a_gate_knows_its_clients_at_once() -> None:
    # Also those whose session goes on, and has not been collected.
    with ScriptedBroker() as broker:
        gate = Gate(
            settings_from(
                {
                    "listeners": [{"address": "127.0.0.1:0", "first_broker_port": 0}],
                    "upstream": {"bootstrap": broker.address},
                    "metrics": {"address": "127.0.0.1:0"},
                }
            )
        )
        await gate.start()
        assert gate.metrics_at is not None
        reader, writer = await asyncio.open_connection(*gate.addresses["default"])
        writer.write(produce_frame(1, ("t", 0, b"")))
        await reader.readexactly(4)
        found = json.loads((await ask(gate.metrics_at, "/clients"))[2])
        (client,) = found["clients"]
        assert (client["client_id"], client["address"], client["listener"]) == (
            "test",
            "127.0.0.1",
            "default",
        )
        assert client["uses"] == [
            {"api": "Produce", "version": 9, "requests": 1, "old": False, "bridged": False}
        ]
        page = (await ask(gate.metrics_at, "/metrics"))[2].decode()
        assert 'batchval_gate_requests_by_api_total{api="Produce"} 1.0' in page
        assert "batchval_gate_clients 1.0" in page
        writer.close()
        await gate.stop(0.5)


def test_metrics_of_clients_can_be_read_whatever_they_say() -> None:
    metrics = GateMetrics(Counters(), mode="enforce", version="1")
    table = table_of(*CLIENTS, ('a"} 1\n', Software("sarama", "1"), {pair(FETCH, 0): 1}))
    metrics.add(lambda: of_clients(table))
    found = {
        (sample.name.removeprefix("batchval_gate_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.page()().decode())
        for sample in family.samples
        if sample.name.startswith("batchval_gate_")
    }
    assert found["clients",] == 5
    assert found["clients_evicted_total",] == 0
    assert found["clients_old", "sarama"] == found["clients_old", "(unknown)"] == 1
