"""What is counted is what is shown; labels are bounded; the port for it is hard to wear out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy
from batchval.proxy.health import MOST_CONNECTIONS, HealthServer
from batchval.proxy.metrics import OTHER, GateMetrics
from batchval.rules import Rule
from tests.proxy_settings.refused import Refused


@dataclass(slots=True)
class Counts:
    requests_total: int = 0
    bytes_held: int = 0
    partitions_refused: dict[str, int] = field(default_factory=dict)


def values(metrics: GateMetrics) -> dict[tuple[str, ...], float]:
    """(name, labels… by their names) of the gate's own."""
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            if sample.name.startswith("batchval_gate"):
                found[sample.name, *(sample.labels[key] for key in sorted(sample.labels))] = sample.value
    return found


def test_what_is_counted_is_what_is_shown() -> None:
    counts = Counts()
    metrics = GateMetrics(counts, mode="observe", version="1")
    age = 0.5
    metrics.watch("oldest_request_age_seconds", "How long.", lambda: age)
    metrics.count("log_suppressed", "Left out.", lambda: 7)
    assert values(metrics)["batchval_gate_requests_total",] == 0
    counts.requests_total += 3
    counts.bytes_held = 5
    counts.partitions_refused["crc-mismatch"] = 2
    for _ in range(2):
        metrics.topics(Refused())
    metrics.topics(Refused(rule=""))  # a report is no refusal
    shown = values(metrics)
    assert shown["batchval_gate_requests_total",] == 3
    assert shown["batchval_gate_bytes_held",] == 5
    assert shown["batchval_gate_partitions_refused_total", "crc-mismatch"] == 2
    assert shown["batchval_gate_refusals_total", "crc-mismatch", "orders"] == 2
    assert shown["batchval_gate_oldest_request_age_seconds",] == 0.5
    assert shown["batchval_gate_log_suppressed_total",] == 7
    assert any(name[0] == "batchval_gate_info" and "observe" in name for name in shown)


def test_claims_are_counted_from_the_ledger() -> None:
    metrics = GateMetrics(Counts(), mode="enforce", version="1")
    first, second = ClaimsLedger(ClaimsPolicy("verify")), ClaimsLedger(ClaimsPolicy("verify"))
    for ledger in (first, second, first, None):
        metrics.add_ledger(ledger)
    first.decide("a", 1, 0)
    first.note("a", "lying", 0)
    second.decide("b", 1, 0)
    second.note("b", "honest", 0)
    shown = values(metrics)
    assert shown["batchval_gate_claims_batches_total",] == 2
    assert shown["batchval_gate_claims_lying_total",] == shown["batchval_gate_claims_honest_total",] == 1
    assert shown["batchval_gate_claims_demotions_total",] == 1
    assert shown["batchval_gate_claims_senders",] == 2


def test_labels_are_bounded_whatever_topics_are_called() -> None:
    counts = Counts()
    metrics = GateMetrics(counts, mode="enforce", version="1", topics=10)
    rules = list(Rule)
    for n in range(5_000):
        metrics.topics(Refused(topic=f"topic-{n}", rule=rules[n % 10].slug))
        counts.partitions_refused[f"made-up-{n}"] = 1
    shown = values(metrics)
    by_topic = {name[2]: 0.0 for name in shown if name[0] == "batchval_gate_refusals_total"}
    assert len(by_topic) == 11
    assert OTHER in by_topic
    refused = [value for name, value in shown.items() if name[0] == "batchval_gate_refusals_total"]
    assert sum(refused) == 5_000
    assert len(refused) <= 20
    labels = [value for name, value in shown.items() if name[0] == "batchval_gate_partitions_refused_total"]
    assert len(labels) == 201
    assert sum(labels) == 5_000


def test_a_topic_cannot_break_the_page() -> None:
    metrics = GateMetrics(Counts(), mode="enforce", version="1")
    name = 'a"} 1\nevil 1\n\\'
    metrics.topics(Refused(topic=name))
    assert values(metrics)["batchval_gate_refusals_total", "crc-mismatch", name] == 1


# ---- the port ------------------------------------------------------------------------------------------------------


async def ask(address: tuple[str, int], request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


async def test_metrics_livez_readyz() -> None:
    why: list[str | None] = ["draining"]
    server = HealthServer(lambda: b"counts 1\n", lambda: why[0])
    address = await server.start("127.0.0.1", 0)
    assert await ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") == (200, b"counts 1\n")
    assert await ask(address, b"GET /metrics?a=b HTTP/1.0\r\n\r\n") == (200, b"counts 1\n")
    assert await ask(address, b"GET /livez HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    assert await ask(address, b"HEAD /livez HTTP/1.1\r\n\r\n") == (200, b"")
    assert await ask(address, b"GET /readyz HTTP/1.1\r\n\r\n") == (503, b"draining\n")
    why[0] = None
    assert await ask(address, b"GET /readyz HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    assert (await ask(address, b"GET / HTTP/1.1\r\n\r\n"))[0] == 404
    assert (await ask(address, b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == 405
    assert (await ask(address, b"\x16\x03\x01\r\n\r\n"))[0] == 400
    assert (await ask(address, b"GET /" + b"a" * 10_000))[0] in (431, 0)
    await server.stop()


async def test_whoever_is_slow_or_many_is_hung_up_on() -> None:
    server = HealthServer(lambda: b"", lambda: None, timeout_s=0.3)
    address = await server.start("127.0.0.1", 0)
    idle = [await asyncio.open_connection(*address) for _ in range(MOST_CONNECTIONS)]
    await asyncio.sleep(0.05)
    reader, writer = await asyncio.open_connection(*address)
    assert await _read(reader) == b""  # one too many
    writer.close()
    for reader, writer in idle:
        assert await _read(reader) == b""  # too slow
        writer.close()
    assert (await ask(address, b"GET /livez HTTP/1.1\r\n\r\n"))[0] == 200
    assert not server.connections
    await server.stop()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
