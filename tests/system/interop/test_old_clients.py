"""Clients that Kafka 4 turns away work through the gate: some of the table in
docs/guide/old-clients.md.

All clients and operations: ``python -m tests.system.interop.old_clients``, here marked ``slow``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fixtures import needs_kafka
from tests.system.interop.old_clients.__main__ import differences, main, merged
from tests.system.interop.old_clients.cells import OPERATIONS, run
from tests.system.interop.old_clients.clients import CLIENTS, named
from tests.system.interop.old_clients.page import GROUPS, render
from tests.system.interop.old_clients.records import Digest
from tests.system.interop.old_clients.rig import Rig, running

#: client -> operations; "own" reads what those before it have produced
SUBSET = {
    "Java 0.8.2.2": ("none", "snappy", "lz4", "own", "transactions", "commit"),
    "Java 0.9.0.1": ("gzip", "lz4", "own", "zstd", "group"),
    "Java 0.10.2.2": ("snappy", "lz4", "own", "headers", "group", "SCRAM-SHA-256"),
    "kafka-python 2.0.2 as (0, 9)": ("gzip", "own", "headers", "commit"),
    "raw frames, Produce 0": ("none", "gzip", "acks=0"),
}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    needs_kafka()
    with running() as started:
        yield started


@pytest.mark.jvm
@pytest.mark.long
@pytest.mark.parametrize("name", SUBSET)
def test_an_old_client_works_through_the_gate(rig: Rig, name: str) -> None:
    (client,) = named(name)
    outcomes = {operation: run(client, operation, "gate", rig) for operation in SUBSET[name]}
    assert {operation: text for operation, (is_ok, text) in outcomes.items() if not is_ok} == {}


@pytest.mark.jvm
@pytest.mark.long
def test_kafka_turns_an_old_client_away(rig: Rig) -> None:
    (client,) = named("raw frames")
    outcome = run(client, "none", "direct", rig)
    assert (outcome.is_ok, outcome.text.partition(":")[0]) == (False, "0 of 2,000 acknowledged")


@pytest.mark.jvm
@pytest.mark.slow
def test_all_clients_work_through_the_gate() -> None:
    assert main(["--route", "gate"]) == 0


def test_the_table_has_each_operation() -> None:
    assert sorted(OPERATIONS) == sorted(
        operation for group in GROUPS.values() for operation in group
    )
    assert {operation for client in CLIENTS for operation in client.operations} == set(OPERATIONS)
    assert {operation for operations in SUBSET.values() for operation in operations} <= set(
        OPERATIONS
    )


def test_later_outcomes_take_the_place_of_saved_ones() -> None:
    """Keep the outcomes that were not run again; a failure is noted once."""
    raw, java = "raw frames, Produce 0", "Java 0.8.2.2"
    before = {raw: {"none": {"direct": [False, "closed"], "gate": [False, "closed"]}}}
    found = {
        raw: {"none": {"gate": [True, "2,000"]}, "gzip": {"direct": [False, "closed"]}},
        java: {"commit": {}},
    }
    clients = merged(found, before)
    assert list(clients) == [java, raw]
    assert clients[raw]["none"] == {"direct": [False, "closed"], "gate": [True, "2,000"]}
    result = {
        "date": "2026-01-01",
        "machine": {"commit": "abc"},
        "versions": "one",
        "clients": clients,
    }
    text = render(result)
    assert "| raw frames, Produce 0 | ? / no (1) / ok | ? / no (1) / ? |" in text
    assert text.endswith("| 1 | closed |\n")


def test_a_failure_of_the_gate_alone_is_named() -> None:
    before = {"a": {"zstd": {"3.9": [False, "no"]}, "gzip": {"3.9": [True, "2,000"]}}}
    found = {"a": {name: {"gate": [False, "0"]} for name in ("zstd", "gzip", "none")}}
    found["b"] = {"none": {"gate": [True, "2,000"]}}
    assert [line.split(": ")[1] for line in differences(found, before)] == ["a, gzip", "a, none"]


def test_a_digest_depends_on_null_and_order() -> None:
    seen = set()
    for records in (
        [(b"k", b"v")],
        [(None, b"v")],
        [(b"", b"v")],
        [(b"k", None)],
        [(b"v", b"k")],
        [(b"kv", b"")],
    ):
        digest = Digest()
        for offset, (key, value) in enumerate(records):
            digest.add(offset, key, value)
        seen.add(digest.text())
    assert len(seen) == 6
    digest.add(0, None, None)
    assert digest.disordered == 1
