"""Record rules in the gate: refusals by record, and schema ids that a registry knows."""

from __future__ import annotations

import contextlib
import itertools
import struct
import time
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from batchval.core.batches.record_columns import record_columns
from batchval.policy import TopicPolicy
from batchval.protocol.messages.produce import ProduceResponse
from batchval.proxy.produce import record_stage
from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.settings.glob_policies import RegistryIds, TopicRules
from batchval.proxy.settings.options import TopicPolicies
from batchval.record_rules import RecordRules, SchemaIds
from batchval.schema_registry import RegistryClient, SubjectIds
from tests.support.proxy import (
    ZSTD,
    RunningProxy,
    ScriptedBroker,
    batch,
    codes,
    connected,
    connected_gate,
    eventually,
    limits_with,
    produce_frame,
    read_frame,
)
from tests.unit.schema_registry.scripted import ScriptedRegistry, answer

INVALID_RECORD, TIMED_OUT = 87, 7
TOPIC = "orders"


def value_of(schema_id: int, text: bytes = b"payload" * 20) -> bytes:
    """Return a value in Confluent's wire format."""
    return b"\0" + struct.pack(">i", schema_id) + text


def with_ids(*schema_ids: int, codec: int = 0) -> bytes:
    return batch(*map(value_of, schema_ids), codec=codec)


def with_headers(*headers: tuple[str, bytes]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, int(time.time() * 1000), b"k", b"v", list(headers))
    return bytes(builder.build())


class Registered:
    """A gate whose topics have the ids of a registry that a test scripts."""

    def __init__(
        self, registry: ScriptedRegistry, schema: SchemaIds | None = None, **more: Any
    ) -> None:
        self.registry = registry
        client = RegistryClient(registry.url, timeout_s=more.pop("timeout_s", 5.0))
        self.subjects = SubjectIds(client, absent_s=more.pop("absent_s", 0.2), retry_s=0.2)
        by_registry = RegistryIds(
            0, self.subjects, "{topic}-value", more.pop("pass_on_error", False)
        )
        rules = RecordRules(schema or SchemaIds(ids=frozenset()), **more.pop("rules", {}))
        self.policies = TopicPolicies(rules={f"{TOPIC}*": TopicRules(rules, [by_registry])})
        self.more = more
        self.next = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[ScriptedBroker, RunningProxy]]:
        with (
            ScriptedBroker() as broker,
            RunningProxy(broker.address, policies=self.policies, **self.more) as proxy,
        ):
            try:
                yield broker, proxy
            finally:
                self.subjects.close()


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as running:
        running.subjects = {f"{TOPIC}-value": {1: 7}}
        yield running


def produced(sock: Any, records: bytes, topic: str = TOPIC) -> int:
    sock.sendall(produce_frame(1, (topic, 0, records)))
    return codes(read_frame(sock))[topic, 0]


# ---- without a registry --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_records_at_fault_are_named(codec: int) -> None:
    policy = TopicPolicy(
        record_rules=RecordRules(SchemaIds(ids=frozenset({7, 8})), max_value_bytes=1000)
    )
    policies = TopicPolicies(TopicPolicy(), {"orders": policy})
    bad = with_ids(7, 9, 8, 10, codec=codec)
    with connected_gate(policies=policies) as (_, proxy, sock):
        sock.sendall(
            produce_frame(
                1, (TOPIC, 0, with_ids(7, 8, codec=codec)), (TOPIC, 1, bad), ("other", 0, bad)
            )
        )
        frame = read_frame(sock)
        assert codes(frame) == {(TOPIC, 0): 0, (TOPIC, 1): INVALID_RECORD, ("other", 0): 0}
        part = next(
            part
            for topic in ProduceResponse.decode(frame, 9).responses
            for part in topic.partition_responses
            if part.error_code
        )
        assert [error.batch_index for error in part.record_errors] == [1, 3]
        assert produced(sock, with_ids(9, codec=codec)) == INVALID_RECORD  # alone, by the fast path
        assert produced(sock, with_ids(7, codec=codec)) == 0
    assert proxy.counters.partitions_refused == {"record-schema-id": 2}


# ---- ids of a registry ---------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_a_schema_that_was_registered_a_moment_ago_is_found(
    registry: ScriptedRegistry, codec: int
) -> None:
    gate = Registered(registry, absent_s=0.0)
    with gate.running() as (broker, proxy), connected(proxy) as sock:
        assert produced(sock, with_ids(7, codec=codec)) == 0
        assert produced(sock, with_ids(7, 8, codec=codec)) == INVALID_RECORD
        registry.subjects[f"{TOPIC}-value"][2] = 8
        assert produced(sock, with_ids(7, 8, codec=codec)) == 0
        registry.raw = answer(500, b"")
        assert produced(sock, with_ids(7, 8, 8, 7, codec=codec)) == 0  # nothing is asked
        assert len(broker.frames) == 3
    assert registry.asked == {"/schemas/ids/7/versions": 1, "/schemas/ids/8/versions": 2}


def test_each_topic_has_its_own_subject(registry: ScriptedRegistry) -> None:
    registry.subjects["orders-2-value"] = {1: 8}
    gate = Registered(registry)
    with gate.running() as (_, proxy), connected(proxy) as sock:
        assert produced(sock, with_ids(8), "orders-2") == 0
        assert produced(sock, with_ids(8)) == INVALID_RECORD
        assert produced(sock, with_ids(7), "orders-2") == INVALID_RECORD
        assert produced(sock, with_ids(7)) == 0


def test_an_id_that_is_not_registered_is_not_asked_for_each_time(
    registry: ScriptedRegistry,
) -> None:
    gate = Registered(registry, absent_s=60.0)
    with gate.running() as (_, proxy), connected(proxy) as sock:
        for _ in range(5):
            assert produced(sock, with_ids(8)) == INVALID_RECORD
        assert produced(sock, with_ids(-1)) == INVALID_RECORD
        assert produced(sock, batch(b"no id at all")) == INVALID_RECORD
        assert produced(sock, with_ids(*range(100, 200))) == INVALID_RECORD  # too many to ask for
    assert registry.asked == {"/schemas/ids/8/versions": 1}


@pytest.mark.parametrize("size", [4, 5, 8])
def test_ids_in_headers(registry: ScriptedRegistry, size: int) -> None:
    gate = Registered(registry, SchemaIds("header", frozenset(), header="id"))
    with gate.running() as (_, proxy), connected(proxy) as sock:
        for schema_id, code in ((7, 0), (8, INVALID_RECORD)):
            header = schema_id.to_bytes(size, "big")
            assert produced(sock, with_headers(("other", b"1"), ("id", header))) == code
    assert sum(registry.asked.values()) == 2


def test_the_ids_of_many_partitions_are_read_in_slices(
    registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []
    work = ProduceValidator.work

    def counted(self: ProduceValidator, *arguments: Any, **options: Any) -> Any:
        words.append(work(self, *arguments, **options))
        return words[-1]

    monkeypatch.setattr(ProduceValidator, "work", counted)
    ticks = itertools.cycle((float("-inf"), float("inf")))  # time is up after each partition
    times = SimpleNamespace(thread_time=lambda: next(ticks), monotonic=time.monotonic)
    monkeypatch.setattr(record_stage, "time", times)
    with Registered(registry).running() as (_, proxy), connected(proxy) as sock:
        sock.sendall(produce_frame(1, *((TOPIC, n, with_ids(7 if n else 8)) for n in range(20))))
        assert codes(read_frame(sock)) == {
            (TOPIC, n): 0 if n else INVALID_RECORD for n in range(20)
        }
    assert words[:20] == ["more"] * 19 + ["waiting"]


def test_the_ids_of_many_records_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # Numpy keeps the interpreter while it reads: for 0.6 s of a million records.
    sizes: list[int] = []
    unique = np.unique

    def counted(numbers: Any) -> Any:
        sizes.append(len(numbers))
        return unique(numbers)

    monkeypatch.setattr(record_stage.np, "unique", counted)
    monkeypatch.setattr(record_stage, "ROWS_AT_ONCE", 3)
    values = [value_of(n) for n in range(7)] + [
        b"",
        b"\0\0\0\0",
        b"\1\0\0\0\1",
        value_of(-1),
        value_of(2**31 - 1),
    ]
    columns = record_columns(batch(*values))
    schema = SchemaIds(ids=frozenset())
    assert record_stage._unknown_ids(columns, schema, frozenset({0, 2, 6})) == {
        1,
        3,
        4,
        5,
        -1,
        2**31 - 1,
    }
    assert sizes == [3, 3, 1, 2]
    assert record_stage._unknown_ids(record_columns(batch(b"")), schema, frozenset()) == set()
    found = record_stage._unknown_ids(
        record_columns(batch(*map(value_of, range(90)))), schema, frozenset()
    )
    assert found == set(range(18))  # it ends once it has more than may be asked for


def test_a_record_with_many_headers_takes_no_more_memory_than_its_bytes() -> None:
    header = ("id", b"\0\0\0\7")
    columns = record_columns(
        with_headers(*[("other", None)] * 50_000, header, *[("id2", b"\0\0\0\1")] * 50_000)
    )
    tracemalloc.start()
    try:
        found = record_stage._unknown_ids(
            columns, SchemaIds("header", frozenset(), header="id"), frozenset()
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == {7}
    assert peak < 100_000


def test_the_other_rules_hold_for_a_batch_that_waited(registry: ScriptedRegistry) -> None:
    gate = Registered(registry, rules={"max_key_bytes": 0})
    with gate.running() as (_, proxy), connected(proxy) as sock:
        assert produced(sock, with_ids(7)) == INVALID_RECORD
        assert proxy.refusals[-1].rule != "record-schema-id"


def test_nobody_waits_for_a_batch_that_waits(registry: ScriptedRegistry) -> None:
    # More sessions wait for the registry than there are threads; others and other topics go on.
    gate = Registered(registry, limits=limits_with(threads=1))
    registry.go_on.clear()
    with gate.running() as (broker, proxy), contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(connected(proxy)) for _ in range(5)]
        for sock in waiting:
            sock.sendall(produce_frame(1, (TOPIC, 0, with_ids(7)), ("other", 0, batch(b"x"))))
        eventually(lambda: registry.asked["/schemas/ids/7/versions"])
        with connected(proxy) as sock:
            assert produced(sock, batch(b"x" * 200_000, codec=ZSTD), "other") == 0
            large = batch(*[b"y" * 1000] * 2000, codec=ZSTD)
            assert produced(sock, large, "other") == 0
        assert len(broker.frames) == 2
        gone = waiting.pop()
        gone.close()
        registry.go_on.set()
        for sock in waiting:
            assert set(codes(read_frame(sock)).values()) == {0}
    assert registry.asked == {"/schemas/ids/7/versions": 1}


@pytest.mark.parametrize(("passes", "code"), [(False, TIMED_OUT), (True, 0)])
def test_while_the_registry_does_not_answer(
    registry: ScriptedRegistry, passes: bool, code: int
) -> None:
    gate = Registered(registry, pass_on_error=passes, rules={"max_key_bytes": 1})
    with gate.running() as (_, proxy), connected(proxy) as sock:
        assert produced(sock, with_ids(7)) == 0
        registry.raw = answer(503, b"")
        assert produced(sock, with_ids(7)) == 0
        for _ in range(3):
            assert produced(sock, with_ids(7, 9)) == code
        assert produced(sock, batch(value_of(9), key=b"too long")) == (
            INVALID_RECORD if passes else code
        )
    assert proxy.counters.partitions_refused == (
        {"record-key-too-large": 1} if passes else {"schema-registry-unavailable": 4}
    )
    assert (gate.subjects.passed_total, gate.subjects.unanswered_total) == (
        (4, 0) if passes else (0, 4)
    )


def test_an_answer_that_does_not_come_is_awaited_for_so_long(registry: ScriptedRegistry) -> None:
    gate = Registered(registry, timeout_s=0.2)
    registry.go_on.clear()
    with gate.running() as (_, proxy), connected(proxy) as sock:
        assert produced(sock, with_ids(7)) == TIMED_OUT
        registry.go_on.set()
        time.sleep(0.3)
        assert produced(sock, with_ids(7)) == 0


def test_clients_that_leave_while_they_wait_leave_nothing(registry: ScriptedRegistry) -> None:
    gate = Registered(registry)
    registry.go_on.clear()
    with gate.running() as (_, proxy):
        for _ in range(3):
            with connected(proxy) as sock:
                sock.sendall(produce_frame(1, (TOPIC, 0, with_ids(7))))
                eventually(lambda: registry.asked["/schemas/ids/7/versions"])
        eventually(lambda: proxy.counters.connections_open == 0)
        registry.go_on.set()
        with connected(proxy) as sock:
            assert produced(sock, with_ids(7)) == 0
        eventually(lambda: proxy.counters.connections_open == 0)
        assert proxy.counters.requests_queued == 0
