"""After a mixed run every number of /metrics is compared with what was really sent, and what a
broker really saw.

The account is kept by the test itself: what goes into a socket, what the scripted broker
takes and answers.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchval.core.claims import compute, to_tag
from batchval.protocol.apis import ApiKey
from batchval.protocol.messages.fetch import FetchResponse
from batchval.protocol.messages.produce import ProduceRequest, ProduceResponse
from batchval.protocol.walkers.produce import CLAIMS_TAG
from tests.support.broker_requests import framed, with_replica
from tests.support.proxy import (
    BAD,
    COMPRESSED,
    GOOD,
    ZSTD,
    ScriptedBroker,
    answered,
    batch,
    codes,
    damaged,
    eventually,
    other_frame,
    produce_frame,
    read_frame,
    success,
)
from tests.system.auth.gates import RunningSettings

IN_A_THREAD = batch(
    *(random.Random(n).randbytes(20_000).hex().encode() for n in range(5)), codec=ZSTD
)  # above 48 KiB
LARGE = batch(b"x" * 3000)
KEYLESS = batch(b"x", key=None)
TRAILING = GOOD + b"xyz"

RULES = [
    {"match": "small", "max.message.bytes": 1000},
    {"match": "keyed", "cleanup.policy": "compact"},
]
#: (topic, records) -> what becomes of them: a rule, or the path, and the extra that is reported
KINDS: list[tuple[str, bytes, str, str, str]] = [
    ("plain", GOOD, "", "full", ""),
    ("plain", COMPRESSED, "", "shallow", ""),
    ("plain", IN_A_THREAD, "", "shallow", ""),
    ("plain", TRAILING, "", "full", "bytes-behind-batch"),
    ("small", GOOD, "", "full", ""),
    ("plain", BAD, "crc-mismatch", "", ""),
    ("small", LARGE, "batch-too-large", "", ""),
    ("keyed", KEYLESS, "key-missing", "", ""),
    ("other", damaged(COMPRESSED), "crc-mismatch", "", ""),
]
CODES = {"crc-mismatch": 2, "batch-too-large": 10, "key-missing": 87}


class Account:
    """The counts of what was sent and received, by the names of the metrics."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()

    def add(self, name: str, *labels: str, by: int = 1) -> None:
        if by:
            self.counts[f"batchval_gate_{name}", *labels] += by

    def request(self, frame: bytes, api: str) -> None:
        self.add("requests_total")
        self.add("request_bytes_total", by=len(frame))
        self.add("requests_by_api_total", api)
        version = str(int.from_bytes(frame[6:8], "big"))
        self.add("requests_by_version_total", api, "default", "bootstrap", version)

    def answer(self, api: str, *, broker: bool) -> None:
        """Count an answer that the client got; ``broker``: the broker took part in it."""
        self.add("request_duration_seconds_count", api, "default", "bootstrap")
        self.add("broker_duration_seconds_count", api, "default", "bootstrap", by=broker)

    def produce(
        self, frame: bytes, kinds: list[tuple[str, bytes, str, str, str]], tags: bool = False
    ) -> None:
        """Count one request; ``tags``: every partition has one, which is removed."""
        self.request(frame, "Produce")
        self.add("produce_requests_total")
        self.add("produce_partitions_total", by=len(kinds))
        refused = [kind for kind in kinds if kind[2]]
        for topic, _, rule, path, extra in kinds:
            if rule:
                self.add("partitions_refused_total", rule)
                known = topic if topic in ("small", "keyed") else "(other)"
                self.add("broken_rules_total", "refused", rule, known)
            else:
                self.add("batches_by_path_total", path)
            if extra:
                self.add("partitions_reported_total", extra)
        compressed = sum(len(records) for _, records, *_ in kinds if records[22] & 7)
        self.add("judged_in_threads_total", by=compressed > 48 << 10)
        if len(refused) == len(kinds):
            self.add("requests_answered_here_total")
            return
        self.add("requests_rewritten_total", by=bool(refused) or tags)
        self.add("claims_tags_dropped_total", by=tags)


@pytest.fixture
def account() -> Account:
    return Account()


def shown(gate: RunningSettings) -> dict[tuple[str, ...], float]:
    """Return the values of /metrics, requested as Prometheus does, without those that are 0."""
    host, port = gate.gate.metrics_at or ("", 0)
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("batchval_gate_") and sample.value:
                found[sample.name, *(sample.labels[key] for key in sorted(sample.labels))] = (
                    sample.value
                )
    return found


@pytest.fixture
def running() -> Iterator[tuple[ScriptedBroker, RunningSettings, Counter[str]]]:
    """Return the broker's own counts: its answers, and their bytes."""
    answered_by_broker: Counter[str] = Counter()

    def answer(frame: bytes) -> bytes | None:
        answer = answered(frame)
        if answer is not None:
            answered_by_broker["answers"] += 1
            answered_by_broker["bytes"] += len(answer)
        answered_by_broker["requests"] += 1
        return answer

    with (
        ScriptedBroker(answer) as broker,
        RunningSettings(
            broker.address,
            topics={"policies": RULES},
            claims_in="verify",
            metrics={"address": "127.0.0.1:0", "topics": 3},
            limits={"max_connections": 6},
        ) as gate,
    ):
        yield broker, gate, answered_by_broker


def test_every_number_is_what_was_sent(
    running: tuple[ScriptedBroker, RunningSettings, Counter[str]],
    account: Account,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, gate, answered_by_broker = running
    rng = random.Random(49)
    socks = [socket.create_connection(gate.address, 20) for _ in range(4)]
    account.add("connections_total", by=4)
    for kind in KINDS[5:8]:  # topics that the settings name have labels, whatever the draw is
        one(socks[0], 1, account, [kind])
    for n in range(300):
        sock = rng.choice(socks)
        draw = rng.random()
        if draw < 0.2:
            frame = other_frame(n)
            account.request(frame, "InitProducerId")
            sock.sendall(frame)
            assert read_frame(sock) == struct.pack(">i", n)
            account.answer("InitProducerId", broker=True)
        else:
            one(sock, n, account, rng.choices(KINDS, k=1 if draw < 0.6 else rng.randint(2, 5)))
    # claims: true ones, and one that lies
    for n, lie in enumerate((False, False, True)):
        claims = compute(COMPRESSED)
        assert claims is not None
        if lie:
            claims = claims._replace(batch_min_timestamp=claims.batch_min_timestamp - 1)
        tag = ((CLAIMS_TAG, to_tag(claims, int.from_bytes(COMPRESSED[17:21], "big"))),)
        frame = produce_frame(n, ("plain", 0, COMPRESSED), tags=tag)
        account.produce(frame, [KINDS[1]], tags=True)
        socks[0].sendall(frame)
        assert codes(read_frame(socks[0])) == {("plain", 0): 0}
        account.answer("Produce", broker=True)
    # acks=0: what passes has no answer, what does not ends the connection
    silent = produce_frame(1, ("plain", 0, GOOD), acks=0)
    bad = produce_frame(2, ("plain", 0, GOOD), ("plain", 1, BAD), acks=0)
    socks[1].sendall(silent + bad)
    account.produce(silent, [KINDS[0]])
    account.produce(bad, [KINDS[0], KINDS[5]])
    account.add("connections_closed_total", "acks_0_refused")
    ended(socks[1])
    # what ends a connection: an API that there is not, HTTP, a frame too large
    for sent, why in (
        (other_frame(1, key=99), "request_version"),
        (b"GET / HTTP/1.1\r\n\r\n", "frame_http"),
    ):
        with socket.create_connection(gate.address, 20) as sock:
            sock.sendall(sent)
            ended(sock)
        account.add("connections_total")
        account.add("connections_closed_total", why)
        if why == "request_version":
            account.add("requests_total")
            account.add("request_bytes_total", by=len(sent))
    # one connection too many, twice
    eventually(lambda: gate.gate.counters.connections_open == 3)
    more = [socket.create_connection(gate.address, 20) for _ in range(3)]
    account.add("connections_total", by=3)
    eventually(lambda: gate.gate.counters.connections_open == 6)
    for _ in range(2):
        with socket.create_connection(gate.address, 20) as sock:
            ended(sock)
        account.add("connections_refused_total")
        account.add("connections_refused_by_total", "max_connections")
    account.add("connections_open", by=6)
    # what passed on, and came back, as the broker has it
    eventually(
        lambda: answered_by_broker["requests"] >= answered_by_broker["answers"] + 2
    )  # those of acks=0 have arrived
    account.add("answers_total", by=answered_by_broker["answers"])
    account.add("answer_bytes_total", by=answered_by_broker["bytes"])
    # the broker may have a frame before the gate's loop has let go of its memory
    eventually(lambda: ("batchval_gate_bytes_held",) not in shown(gate))
    found = shown(gate)
    lines = sum(record.getMessage() in ("refused", "reported") for record in caplog.records)
    left_out = found.pop(("batchval_gate_log_refusals_left_out_total",), 0)
    judged = ("batchval_gate_partitions_refused_total", "batchval_gate_partitions_reported_total")
    assert lines + left_out == sum(
        count for name, count in account.counts.items() if name[0] in judged
    )
    compare(found, account)
    for sock in [*socks, *more]:
        sock.close()
    eventually(lambda: gate.gate.counters.connections_open == 0)
    after = shown(gate)
    assert ("batchval_gate_connections_open",) not in after
    assert ("batchval_gate_bytes_held",) not in after
    assert ("batchval_gate_requests_in_flight",) not in after


def one(
    sock: socket.socket, n: int, account: Account, kinds: list[tuple[str, bytes, str, str, str]]
) -> None:
    """Return a request of these, and its answer."""
    partitions = [(topic, i, records) for i, (topic, records, *_) in enumerate(kinds)]
    frame = produce_frame(n, *partitions)
    # the request has its partitions by topic
    account.produce(frame, kinds)
    sock.sendall(frame)
    account.answer("Produce", broker=any(not kind[2] for kind in kinds))
    answer = codes(read_frame(sock))
    assert answer == {(kind[0], i): CODES.get(kind[2], 0) for i, kind in enumerate(kinds)}


def ended(sock: socket.socket) -> None:
    with pytest.raises(EOFError):
        read_frame(sock)


#: compared by a rule of their own, or about the process
OTHERS = {
    "batchval_gate_clients",  # collected every 5 seconds
    "batchval_gate_info",
    "batchval_gate_kafka_version",  # 1, as info is
    "batchval_gate_ready",
    "batchval_gate_reading_paused_total",
    "batchval_gate_judging_cpu_seconds_total",
}


def compare(found: dict[tuple[str, ...], float], account: Account) -> None:
    """Check that the counts are exactly these."""
    expected: dict[tuple[str, ...], float] = dict(account.counts)
    expected["batchval_gate_claims_batches_total",] = 3
    expected["batchval_gate_claims_honest_total",] = 2
    expected["batchval_gate_claims_lying_total",] = 1
    expected["batchval_gate_claims_demotions_total",] = 1
    expected["batchval_gate_claims_senders",] = 1
    expected["batchval_gate_brokers",] = 1
    assert found["batchval_gate_ready",] == 1
    durations = {
        name
        for name in found
        if name[0].endswith(("_duration_seconds_bucket", "_duration_seconds_sum"))
    }
    assert all(found[name] <= 60 for name in durations if name[0].endswith("sum"))  # in seconds
    unlike = {
        name: (found.get(name, 0), expected.get(name, 0))
        for name in found.keys() | expected.keys()
        if name[0] not in OTHERS
        and name not in durations
        and found.get(name, 0) != expected.get(name, 0)
    }
    assert unlike == {}


def test_what_waits_is_seen_while_it_waits(
    running: tuple[ScriptedBroker, RunningSettings, Counter[str]],
) -> None:
    broker, gate, _ = running
    with socket.create_connection(gate.address, 20) as sock:
        sock.sendall(other_frame(0))
        read_frame(sock)
        sock.sendall(other_frame(1))
        read_frame(sock)
        # what is held is the answer: nobody knows how far the broker's thread has come
        answer, held = broker.answer, threading.Event()
        broker.answer = lambda frame: answer(frame) if held.wait(20) else None
        for n in range(2, 7):
            sock.sendall(produce_frame(n, ("plain", 0, GOOD)))
        eventually(lambda: shown(gate).get(("batchval_gate_requests_in_flight",)) == 5)
        held.set()
        for _ in range(5):
            read_frame(sock)
        assert ("batchval_gate_requests_in_flight",) not in shown(gate)


def test_the_time_that_brokers_tell_clients_to_wait_is_counted() -> None:
    # Of every version of Produce and Fetch, on the fast path and where an answer is merged.
    def answer(frame: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if key == 22:
            return answered(frame) or b""
        wait_ms = 1000 * key + version
        if key == 0:
            response: ProduceResponse | FetchResponse = success(ProduceRequest.parse(frame)[1])
        else:
            response = FetchResponse()
        response.throttle_time_ms = wait_ms
        return b"".join(response.encode(correlation_id, version))

    with (
        ScriptedBroker(answer) as broker,
        RunningSettings(broker.address, metrics={"address": "127.0.0.1:0"}) as gate,
    ):
        with socket.create_connection(gate.address, 20) as sock:
            expected: Counter[tuple[str, ...]] = Counter()
            for version in range(3, 13):
                for bad in ((), (("t", 1, BAD),)):
                    sock.sendall(produce_frame(version, ("t", 0, GOOD), *bad, version=version))
                    assert codes(read_frame(sock), version)["t", 0] == 0
                    expected["answers_throttled_total", "Produce"] += 1
                    expected["throttle_time_ms_total", "Produce"] += version
            for version in range(4, 19):
                sock.sendall(framed(ApiKey.FETCH, version, with_replica(version, -1)))
                read_frame(sock)
                expected["answers_throttled_total", "Fetch"] += 1
                expected["throttle_time_ms_total", "Fetch"] += 1000 + version
            sock.sendall(other_frame(1))
            read_frame(sock)
        found = {
            (name[0].removeprefix("batchval_gate_"), *name[1:]): value
            for name, value in shown(gate).items()
        }
        assert {name: value for name, value in found.items() if "thrott" in name[0]} == expected
