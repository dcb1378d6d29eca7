"""The sums of a workers' parent: metrics, rows of refusals, clients."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
from typing import Any

import pytest

from batchval.proxy.settings.config import Metrics
from batchval.proxy.settings.options import Refusal
from batchval.proxy.watch.clients import ClientKey, ClientTable, Served, Software
from batchval.proxy.watch.metrics import BOUNDS_S, Family
from batchval.proxy.watch.observed_batches import OTHER, ObservedCounts, ObservedRow, RowKey
from batchval.proxy.workers.metric_totals import SAMPLES_A_PIECE, Totals, packed, unpacked
from batchval.proxy.workers.processes import Processes


def counter(value: float, *labels: str) -> Family:
    return Family("counter", "requests", "Requests.", ("api",) if labels else (), [(labels, value)])


def gauge(value: float, across: Any, name: str = "age") -> Family:
    return Family("gauge", name, "Age.", (), [((), value)], across)


def histogram(counts: list[int], total: float) -> Family:
    return Family("histogram", "latency", "Latency.", (), [((), (counts, total))])


def sample(families: list[Family], name: str, *labels: str) -> Any:
    (family,) = [one for one in families if one.name == name]
    return dict(family.samples)[labels]


def test_counters_never_go_down_and_gauges_are_those_of_running_workers() -> None:
    totals = Totals()
    first, second, third = (0, 1), (1, 1), (0, 2)
    buckets = [1] * (len(BOUNDS_S) + 1)
    answers = {
        first: packed(
            [counter(5), gauge(3, "max"), gauge(3, "sum", "held"), histogram(buckets, 1.5)]
        ),
        second: packed(
            [counter(7), gauge(4, "max"), gauge(4, "sum", "held"), histogram(buckets, 2.0)]
        ),
    }
    found = totals.merged([gauge(1, "sum", "workers")], answers, {}, 1)
    assert [sample(found, name) for name in ("requests", "age", "held", "workers")] == [12, 4, 7, 1]
    assert sample(found, "latency") == ([2] * len(buckets), 3.5)
    found = totals.merged([], {}, {}, 2)  # no worker has answered
    assert [sample(found, name) for name in ("requests", "age", "held")] == [12, 4, 7]
    found = totals.merged(
        [], {third: packed([counter(1), gauge(0, "max"), gauge(1, "sum", "held")])}, {1: 1}, 3
    )
    assert [sample(found, name) for name in ("requests", "age", "held")] == [13, 3, 4]
    assert sample(found, "latency") == ([2] * len(buckets), 3.5)
    assert sample(totals.merged([], {}, {0: 2, 1: 1}, 4), "requests") == 13
    assert sample(totals.merged([], {}, {0: 2, 1: 1}, 5), "requests") == 13


def test_what_was_asked_before_an_end_and_comes_after_it_is_not_counted_again() -> None:
    totals = Totals()
    first, second = (0, 1), (0, 2)
    found = totals.merged([], {first: packed([counter(5)])}, {0: 1}, 1)  # ended after it
    assert sample(found, "requests") == 5
    assert sample(totals.merged([], {second: packed([counter(2)])}, {0: 1}, 2), "requests") == 7
    late = {first: packed([counter(5), gauge(3, "sum")])}
    found = totals.merged([], late, {0: 0}, 3)
    assert sample(found, "requests") == 7
    assert not [one for one in found if one.kind == "gauge"]
    assert sample(totals.merged([], {second: packed([counter(3)])}, {0: 1}, 4), "requests") == 8


def test_an_answer_that_comes_late_replaces_no_newer_one() -> None:
    totals = Totals()
    worker = (0, 1)
    assert sample(totals.merged([], {worker: packed([counter(7)])}, {}, 2), "requests") == 7
    assert sample(totals.merged([], {worker: packed([counter(5)])}, {}, 1), "requests") == 7
    assert sample(totals.merged([], {}, {}, 3), "requests") == 7
    assert sample(totals.merged([], {}, {0: 1}, 4), "requests") == 7  # what it counted to its end
    assert sample(totals.merged([], {(0, 2): packed([counter(1)])}, {0: 1}, 5), "requests") == 8


def test_labels_are_summed_one_by_one_and_long_families_come_in_pieces() -> None:
    many = Family(
        "counter", "many", "Many.", ("n",), [((str(n),), n) for n in range(3 * SAMPLES_A_PIECE + 1)]
    )
    content = packed([many, counter(1, "Produce")])
    assert len(pickle.loads(content)) == 5
    assert (
        sum(len(list(one.samples)) for one in unpacked(content) if one.name == "many")
        == 3 * SAMPLES_A_PIECE + 1
    )
    found = Totals().merged([counter(2, "Fetch")], {(0, 1): content, (1, 1): content}, {}, 1)
    assert sample(found, "many", "7") == 14
    assert (sample(found, "requests", "Produce"), sample(found, "requests", "Fetch")) == (2, 2)


def test_topics_and_nodes_are_bounded_over_all_workers() -> None:
    def refusals(*topics: str) -> bytes:
        samples = [((topic, "crc-mismatch"), 1) for topic in topics]
        requests = Family(
            "counter", "requests", "R.", ("api", "node"), [(("Produce", f"{t}"), 1) for t in topics]
        )
        return packed(
            [Family("counter", "refusals", "Refusals.", ("topic", "rule"), samples), requests]
        )

    bound = [Metrics(topics=2, nodes=1)]
    totals = Totals(lambda: bound[0])
    answers = {(0, 1): refusals("a", "b"), (1, 1): refusals("c", "bootstrap", "b", OTHER)}
    (topics, nodes) = totals.merged([], answers, {}, 1)
    rule = "crc-mismatch"
    assert dict(topics.samples) == {("a", rule): 1, ("b", rule): 2, (OTHER, rule): 3}
    assert dict(nodes.samples) == {
        ("Produce", "a"): 1,
        ("Produce", "bootstrap"): 1,
        ("Produce", OTHER): 4,
    }
    bound[0] = Metrics(topics=3, nodes=1)
    (topics, _) = totals.merged([], answers, {}, 2)
    assert dict(topics.samples)["c", rule] == 1
    (topics, _) = totals.merged([], {}, {0: 1, 1: 1}, 3)
    assert sum(dict(topics.samples).values()) == 6


def test_what_the_parent_counts_is_not_counted_twice() -> None:
    own = Family("counter", "connections", "Connections.", (), [((), 3)])
    found = Totals().merged([own], {(0, 1): packed([own])}, {}, 1)
    assert sample(found, "connections") == 3


def test_rows_of_refusals_move_to_the_parent() -> None:
    clock = iter(range(10**9, 10**12, 10**9))
    worker = ObservedCounts(
        "enforce", is_known=lambda topic: topic == "known", clock_ns=lambda: next(clock)
    )
    parent = ObservedCounts("enforce", is_known=lambda _: False, most=20)
    for topic in ("known", "known", "new", None):
        worker(
            Refusal(
                "edge", "10.0.0.1:5", "c", topic, 0, "crc-mismatch", "CORRUPT_MESSAGE", "why", True
            )
        )
    taken = []
    while rows := worker.take(1):
        taken += rows
    assert {(key.topic, row.batches, is_known) for key, row, is_known in taken} == {
        ("known", 2, True),
        ("new", 1, False),
        (OTHER, 1, False),
    }
    assert worker.snapshot().rows == []
    for key, row, _ in (*taken, *taken):
        parent.merge(key, row)
    rows = {key.topic: row.batches for key, row in parent.snapshot().rows}
    assert rows == {"known": 4, "new": 2, OTHER: 2}
    newest = ObservedRow(1, 5, 10**12, "10.0.0.9:1", None, 4, "CORRUPT_MESSAGE", "newest")
    parent.merge(RowKey("known", "User:ANONYMOUS", "crc-mismatch", True), newest)
    merged = dict(parent.snapshot().rows)[RowKey("known", "User:ANONYMOUS", "crc-mismatch", True)]
    assert (merged.batches, merged.first_ms, merged.reason) == (5, 5, "newest")


def test_clients_of_all_workers_are_one_table() -> None:
    from batchval.proxy.workers.worker import ROWS_A_TURN, ReportedClients

    keys = [
        ClientKey(f"c{i}", Software("librdkafka", "2"), "10.0.0.1", "User:ANONYMOUS", "edge")
        for i in range(ROWS_A_TURN + 1)
    ]
    parent, worker = ClientTable(), ReportedClients()
    for _ in range(2):  # who changes its client id all the time has one row for each
        for key in keys:
            worker.add(key, {3 << 16: 1}, Served(10, 20, 1, 5, 5, 1))
    worker.add(keys[0], {18 << 16: 1}, Served(1, 1, 1, 7, 7))
    sizes = []
    while taken := worker.take():
        sizes.append(len(taken))
        for client in taken:
            parent.add(*client)
    assert sizes == [ROWS_A_TURN, 1]
    rows = dict(parent.rows())
    assert {key: row.requests for key, row in rows.items()} == {
        key: 2 + (key is keys[0]) for key in keys
    }
    assert (rows[keys[0]].request_bytes, rows[keys[0]].answer_bytes, rows[keys[0]].stalls) == (
        21,
        41,
        2,
    )
    assert Served(most_ns=5, total_ns=5).plus(Served(most_ns=7, total_ns=7)) == Served(
        most_ns=7, total_ns=12
    )


def test_the_clients_that_wait_to_be_reported_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from batchval.proxy.workers import worker as module

    monkeypatch.setattr(module, "MAX_CLIENTS", 10)
    worker = module.ReportedClients()
    for i in range(25):
        worker.add(
            ClientKey(str(i), Software(), "10.0.0.1", "User:ANONYMOUS", "edge"), {3 << 16: 1}
        )
    assert [key.client_id for key, _, _ in worker.take()] == [str(i) for i in range(15, 25)]
    assert worker.evicted_total == 15


def test_open_files_are_those_of_the_process_that_has_the_fewest_left() -> None:
    with contextlib.ExitStack() as stack:
        pids = []
        for limit in (20, 40):
            command = f"ulimit -n {limit}; exec 3<&0 4<&0 5<&0 6<&0 7<&0 8<&0 9<&0; exec cat"
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            worker = stack.enter_context(subprocess.Popen(["sh", "-c", command], **pipes))
            assert worker.stdin is not None
            assert worker.stdout is not None
            # what comes back comes from cat, which has opened all by then
            worker.stdin.write(b"\n")
            worker.stdin.flush()
            worker.stdout.readline()
            pids.append(worker.pid)
        found = {metric.name: metric.samples[0].value for metric in Processes().collect(pids)}
    assert (found["process_open_fds"], found["process_max_fds"]) == (10, 20)
