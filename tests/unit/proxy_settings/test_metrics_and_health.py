"""/metrics shows the counts; labels are bounded; the port withstands many clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.proxy.life.gate import Gate
from batchval.proxy.life.health import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, HealthServer
from batchval.proxy.settings.loading import settings_from
from batchval.proxy.settings.options import Counters, Refusal
from batchval.proxy.watch.metrics import BOUNDS_S, OTHER, Family, GateMetrics, TopicCounts, single
from batchval.rules import Rule
from tests.support.calibration import cpu_s
from tests.support.health import started
from tests.unit.proxy_settings.refused import Refused


@dataclass(slots=True)
class Counts:
    requests_total: int = 0
    bytes_held: int = 0
    partitions_refused: dict[str, int] = field(default_factory=dict, metadata={"label": "rule"})


def values(metrics: GateMetrics) -> dict[tuple[str, ...], float]:
    """Return (name, labels… by their names) of the gate's own metrics."""
    found = {}
    for family in text_string_to_metric_families(metrics.page()().decode()):
        for sample in family.samples:
            if sample.name.startswith("batchval_gate"):
                found[sample.name, *(sample.labels[key] for key in sorted(sample.labels))] = (
                    sample.value
                )
    return found


def test_what_is_counted_is_what_is_shown() -> None:
    counts = Counts()
    metrics = GateMetrics(counts, mode="observe", version="1")
    age = 0.5
    metrics.add(lambda: [single("gauge", "oldest_request_age_seconds", "How long.", age)])
    metrics.add(lambda: [single("counter", "log_suppressed", "Left out.", 7)])
    assert values(metrics)["batchval_gate_requests_total",] == 0
    counts.requests_total += 3
    counts.bytes_held = 5
    counts.partitions_refused["crc-mismatch"] = 2
    for _ in range(2):
        metrics.topics(Refused())
    metrics.topics(Refused(enforced=False))
    metrics.topics(Refused(rule=""))  # a report is not a refusal
    shown = values(metrics)
    assert shown["batchval_gate_requests_total",] == 3
    assert shown["batchval_gate_bytes_held",] == 5
    assert shown["batchval_gate_partitions_refused_total", "crc-mismatch"] == 2
    assert shown["batchval_gate_broken_rules_total", "refused", "crc-mismatch", "orders"] == 2
    assert shown["batchval_gate_broken_rules_total", "observed", "crc-mismatch", "orders"] == 1
    assert shown["batchval_gate_oldest_request_age_seconds",] == 0.5
    assert shown["batchval_gate_log_suppressed_total",] == 7
    assert any(name[0] == "batchval_gate_info" and "observe" in name for name in shown)


def test_a_histogram_is_shown_with_cumulative_buckets() -> None:
    metrics = GateMetrics(Counts(), mode="enforce", version="1")
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[0], counts[3], counts[-1] = 2, 1, 4
    samples = [(("Fetch",), (counts, 130.5))]
    metrics.add(lambda: [Family("histogram", "duration_seconds", "How long.", ("api",), samples)])
    shown = values(metrics)
    of = "batchval_gate_duration_seconds_bucket", "Fetch"
    words = ["0.0005", "0.001", "0.0025", "0.005", "30.0", "+Inf"]
    assert [shown[*of, word] for word in words] == [2, 2, 2, 3, 3, 7]
    assert shown["batchval_gate_duration_seconds_count", "Fetch"] == 7
    assert shown["batchval_gate_duration_seconds_sum", "Fetch"] == 130.5


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
    assert (
        shown["batchval_gate_claims_lying_total",]
        == shown["batchval_gate_claims_honest_total",]
        == 1
    )
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
    by_topic = {name[3]: 0.0 for name in shown if name[0] == "batchval_gate_broken_rules_total"}
    assert len(by_topic) == 11
    assert OTHER in by_topic
    refused = [
        value for name, value in shown.items() if name[0] == "batchval_gate_broken_rules_total"
    ]
    assert sum(refused) == 5_000
    assert len(refused) <= 20
    labels = [
        value
        for name, value in shown.items()
        if name[0] == "batchval_gate_partitions_refused_total"
    ]
    assert len(labels) == 201
    assert sum(labels) == 5_000


@pytest.mark.parametrize(
    "topic", ['a"} 1\nevil 1\n\\', "", "..", "x" * 250, "x" * 32_767, "\x1b[2J", None]
)
def test_what_is_not_a_topic_name_has_no_label(topic: str | None) -> None:
    metrics = GateMetrics(Counts(), mode="enforce", version="1")
    metrics.topics(Refused(topic=topic))
    metrics.topics(Refused(topic="orders"))
    labels = {name[3] for name in values(metrics) if name[0] == "batchval_gate_broken_rules_total"}
    assert labels == {OTHER, "orders"}
    assert len(metrics.page()()) < 40_000


def test_only_topics_that_exist_have_a_label() -> None:
    # Names that clients invent take none of the labels, however many come first.
    known = {f"real-{n}" for n in range(5)}
    topics = TopicCounts(5, known.__contains__)
    for n in range(1_000):
        topics(Refused(topic=f"invented-{n}"))
    for topic in sorted(known):
        topics(Refused(topic=topic, batches=3))
    assert dict(topics.items()) == {(OTHER, "crc-mismatch", "refused"): 1_000} | {
        (topic, "crc-mismatch", "refused"): 3 for topic in known
    }
    known.add("new")
    topics(Refused(topic="new"))  # all labels are taken
    assert dict(topics.items())[OTHER, "crc-mismatch", "refused"] == 1_001


def test_a_topic_that_becomes_known_gets_its_label() -> None:
    known: set[str] = set()
    topics = TopicCounts(5, known.__contains__)
    topics(Refused())
    known.add("orders")
    topics(Refused())
    assert dict(topics.items()) == {
        (topic, "crc-mismatch", "refused"): 1 for topic in (OTHER, "orders")
    }


def test_pairs_of_topic_and_rule_are_bounded() -> None:
    topics = TopicCounts(10_000, lambda _: True)
    for n in range(60_000):
        topics(Refused(topic=f"t-{n % 10_000}", rule=f"rule-{n // 10_000}"))
    found = topics.items()
    assert len(found) <= TopicCounts.MAX_KEYS + 6
    assert sum(count for _, count in found) == 60_000


def test_the_cluster_and_the_settings_know_topics() -> None:
    # A glob names no topic: clients could invent names that it matches.
    policies = [{"match": match, "max.message.bytes": 1_000} for match in ("small", "keyed-*")]
    gate = Gate(
        settings_from(
            {
                "listeners": [{"address": "127.0.0.1:0"}],
                "upstream": {"bootstrap": "127.0.0.1:2", "admin": {"mechanism": "NONE"}},
                "topics": {"policies": policies},
            }
        )
    )
    assert gate.cluster_topics is not None
    gate.cluster_topics._known = {"configured": TopicPolicy()}
    for topic in ("small", "keyed-1", "configured", "invented"):
        gate._refused(Refusal("", "", None, topic, 0, "crc-mismatch", "", "", True))
    labels = {
        name[3] for name in values(gate.metrics) if name[0] == "batchval_gate_broken_rules_total"
    }
    assert labels == {"small", "configured", OTHER}


@pytest.mark.alone
def test_taking_the_values_is_quick() -> None:
    # It happens on the event loop; the text is made elsewhere.
    metrics = GateMetrics(Counters(), mode="enforce", version="1", topics=10_000)
    for n in range(40_000):
        metrics.topics(Refused(topic=f"topic-{n % 10_000}", rule=f"rule-{n // 10_000}"))
    assert cpu_s(metrics.page) < 0.005
    assert len(metrics.page()()) > 1_000_000


def test_the_text_has_the_values_of_the_moment_when_they_were_taken() -> None:
    counts = Counts(requests_total=1, partitions_refused={"crc-mismatch": 1})
    metrics = GateMetrics(counts, mode="enforce", version="1")
    page = metrics.page()
    counts.requests_total = 2
    counts.partitions_refused["crc-mismatch"] = 2
    metrics.topics(Refused())
    text = page().decode()
    assert "batchval_gate_requests_total 1.0" in text
    assert 'batchval_gate_partitions_refused_total{rule="crc-mismatch"} 1.0' in text
    assert "topic=" not in text


# ---- the port ------------------------------------------------------------------------------------


async def asked(address: tuple[str, int], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await _read(reader)
    writer.close()
    return answer


async def ask(address: tuple[str, int], request: bytes) -> tuple[int, bytes]:
    answer = await asked(address, request)
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


async def test_metrics_livez_readyz() -> None:
    why: list[str | None] = ["draining"]
    server = HealthServer(lambda: lambda: b"counts 1\n", lambda: why[0])
    address = await started(server)
    assert await ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") == (200, b"counts 1\n")
    assert await ask(address, b"GET /metrics?a=b HTTP/1.0\r\n\r\n") == (200, b"counts 1\n")
    assert await ask(address, b"GET /livez HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    assert await ask(address, b"HEAD /livez HTTP/1.1\r\n\r\n") == (200, b"")
    assert await ask(address, b"GET /readyz HTTP/1.1\r\n\r\n") == (503, b"draining\n")
    why[0] = None
    assert await ask(address, b"GET /readyz HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    assert (await ask(address, b"GET / HTTP/1.1\r\n\r\n"))[0] == 404
    refused = await asked(address, b"POST /metrics HTTP/1.1\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n")
    assert refused.endswith(b"\r\n\r\nmethod must be GET or HEAD\n")
    assert (await ask(address, b"\x16\x03\x01\r\n\r\n"))[0] == 400
    assert (await ask(address, b"GET /" + b"a" * 10_000))[0] in (431, 0)
    await server.stop()


async def test_a_slow_connection_is_closed() -> None:
    server = HealthServer(lambda: lambda: b"", lambda: None, timeout_s=0.3)
    address = await started(server)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET /livez HTTP/1.1\r\n")
    assert await _read(reader) == b""
    writer.close()
    assert not server.connections
    await server.stop()


async def test_many_connections_of_one_address_shut_nobody_out() -> None:
    # The oldest makes way: a probe that asks at once is answered, from the same address too.
    server = HealthServer(lambda: lambda: b"counts 1\n", lambda: None)
    address = await started(server)
    idle = [await asyncio.open_connection(*address) for _ in range(3 * MAX_CONNECTIONS)]
    for path, body in ((b"/livez", b"ok\n"), (b"/readyz", b"ok\n"), (b"/metrics", b"counts 1\n")):
        assert await ask(address, b"GET " + path + b" HTTP/1.1\r\n\r\n") == (200, body)
    assert len(server.connections) <= MAX_CONNECTIONS_PER_ADDRESS
    for reader, writer in idle[:-MAX_CONNECTIONS_PER_ADDRESS]:
        assert await _read(reader) == b""
        writer.close()
    await server.stop()
    for _, writer in idle:
        writer.close()


async def test_many_addresses_shut_nobody_out() -> None:
    server = HealthServer(lambda: lambda: b"counts 1\n", lambda: None)
    address = await started(server)
    idle = []
    for n in range(3 * MAX_CONNECTIONS):
        idle.append(
            await asyncio.open_connection(*address, local_addr=(f"127.0.0.{2 + n % 50}", 0))
        )
        await asyncio.sleep(0)
    assert await ask(address, b"GET /readyz HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    assert len(server.connections) <= MAX_CONNECTIONS
    await server.stop()
    for _, writer in idle:
        writer.close()


async def test_one_scraper_does_not_close_the_connection_of_another() -> None:
    # A text takes long, and another address opens more than all connections meanwhile.
    slow = threading.Event()
    server = HealthServer(lambda: lambda: b"%d\n" % slow.wait(10), lambda: None)
    address = await started(server)
    reader, writer = await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    idle = [await asyncio.open_connection(*address) for _ in range(2 * MAX_CONNECTIONS)]
    assert await ask(address, b"GET /livez HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    slow.set()
    assert (await _read(reader)).endswith(b"\r\n\r\n1\n")
    await server.stop()
    for _, one in [(reader, writer), *idle]:
        one.close()


async def test_health_is_answered_while_metrics_take_long() -> None:
    slow = threading.Event()
    server = HealthServer(lambda: lambda: b"%d\n" % slow.wait(10), lambda: None)
    address = await started(server)
    asked = [asyncio.create_task(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert await ask(address, b"GET /livez HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    assert await ask(address, b"GET /readyz HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    assert not any(task.done() for task in asked)
    slow.set()
    assert await asyncio.gather(*asked) == [(200, b"1\n")] * 3
    await server.stop()


async def test_those_who_ask_at_once_share_a_text_that_is_not_old() -> None:
    taken: list[int] = []
    slow = threading.Event()

    def metrics() -> Callable[[], bytes]:
        taken.append(len(taken))
        number = taken[-1]
        return lambda: b"%d" % (number if slow.wait(10) else -1)

    server = HealthServer(metrics, lambda: None)
    address = await started(server)
    first = asyncio.create_task(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n"))
    while not taken:
        await asyncio.sleep(0.001)
    later = [asyncio.create_task(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")) for _ in range(5)]
    await asyncio.sleep(0.1)
    slow.set()
    assert await first == (200, b"0")
    # their values were taken after they had asked, once for all of them
    assert await asyncio.gather(*later) == [(200, b"1")] * 5
    await server.stop()


async def test_errors_are_answered_and_health_stays_right() -> None:
    broken = True

    def metrics() -> Callable[[], bytes]:
        if broken:
            raise RuntimeError("dictionary changed size")
        return lambda: b"counts 1\n" if not late else b"%d" % (1 // 0)

    late = False
    server = HealthServer(metrics, lambda: None)
    address = await started(server)
    assert await ask(address, b"GET /metrics HTTP/1.1\r\n\r\n") == (500, b"")
    assert await ask(address, b"GET /livez HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    broken, late = False, True
    assert await ask(address, b"GET /metrics HTTP/1.1\r\n\r\n") == (500, b"")
    late = False
    assert await ask(address, b"GET /metrics HTTP/1.1\r\n\r\n") == (200, b"counts 1\n")
    server.unready = lambda: str(1 // 0)
    assert await ask(address, b"GET /readyz HTTP/1.1\r\n\r\n") == (500, b"")
    await server.stop()


async def test_one_request_is_answered_once() -> None:
    server = HealthServer(lambda: lambda: b"counts 1\n", lambda: None)
    address = await started(server)
    reader, writer = await asyncio.open_connection(*address)
    for _ in range(3):
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.001)
    answer = await _read(reader)
    assert answer.count(b"HTTP/1.1 200") <= 1
    writer.close()
    # a client that leaves while the text is made
    for _ in range(20):
        _, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        writer.transport.abort()
    assert await ask(address, b"GET /livez HTTP/1.1\r\n\r\n") == (200, b"ok\n")
    await server.stop()
    assert not server.connections


async def test_a_stop_while_a_text_is_made_leaves_nothing() -> None:
    slow = threading.Event()
    server = HealthServer(lambda: lambda: b"%d" % slow.wait(10), lambda: None)
    address = await started(server)
    asked = [asyncio.create_task(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")) for _ in range(2)]
    await asyncio.sleep(0.05)
    await server.stop()
    slow.set()
    assert [status for status, _ in await asyncio.gather(*asked, return_exceptions=False)] == [0, 0]


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
