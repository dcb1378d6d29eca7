"""Requests and durations by API, version, listener and node: labels that no client can fill."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from batchval.proxy.settings.options import Counters
from batchval.proxy.watch.metrics import GateMetrics
from batchval.proxy.watch.request_latency import BOUNDS_S, Traffic, clock_ns, histograms_of
from batchval.proxy.watch.traffic import TrafficTable
from tests.support.proxy import requests_of

PRODUCE, FETCH = 0, 1
MS = 10**6

Shown = dict[tuple[str, ...], float]


def shown(table: TrafficTable) -> Shown:
    """Return (name, labels by their names' order) of what the table adds to /metrics."""
    metrics = GateMetrics(Counters(), mode="enforce", version="1")
    metrics.add(table.families)
    return {
        (
            sample.name.removeprefix("batchval_gate_"),
            *(sample.labels[key] for key in sorted(sample.labels)),
        ): value
        for family in text_string_to_metric_families(metrics.page()().decode())
        for sample in family.samples
        if (value := sample.value)
    }


def test_durations_by_api_listener_and_node() -> None:
    table = TrafficTable()
    inner, outer, first = table.of("inner", 3), table.of("outer", 3), table.of("inner", None)
    inner.note(PRODUCE, 3 * MS, 2 * MS)
    inner.note(PRODUCE, 700 * MS, 600 * MS)
    inner.note(FETCH, 40_000 * MS, -1)  # the broker's part was not measured
    outer.note(PRODUCE, 3 * MS, 3 * MS)
    first.note(FETCH, 0, 0)
    found = shown(table)
    of = "request_duration_seconds_bucket", "Produce"
    assert [
        found.get((*of, le, "inner", "3"), 0) for le in ("0.0025", "0.005", "0.5", "1.0", "+Inf")
    ] == [
        0,
        1,
        1,
        2,
        2,
    ]
    assert found["request_duration_seconds_sum", "Produce", "inner", "3"] == pytest.approx(0.703)
    assert found["broker_duration_seconds_sum", "Produce", "inner", "3"] == pytest.approx(0.602)
    assert found["broker_duration_seconds_count", "Produce", "outer", "3"] == 1
    assert ("request_duration_seconds_bucket", "Fetch", "30.0", "inner", "3") not in found
    assert found["request_duration_seconds_bucket", "Fetch", "+Inf", "inner", "3"] == 1
    assert not any(
        name[0].startswith("broker") and name[1:] == ("Fetch", "inner", "3") for name in found
    )
    assert found["request_duration_seconds_bucket", "Fetch", "0.0005", "inner", "bootstrap"] == 1


def test_requests_by_api_version_listener_and_node() -> None:
    table = TrafficTable()
    table.of("inner", 1).requests.update({PRODUCE << 16 | 9: 4, FETCH << 16 | 12: 1})
    table.of("inner", 2).requests.update({PRODUCE << 16 | 9: 2, PRODUCE << 16 | 3: 1})
    found = shown(table)
    assert found["requests_by_version_total", "Produce", "inner", "1", "9"] == 4
    assert found["requests_by_version_total", "Produce", "inner", "2", "3"] == 1
    assert found["requests_by_api_total", "Produce"] == 7
    assert requests_of(table) == {PRODUCE << 16 | 9: 6, PRODUCE << 16 | 3: 1, FETCH << 16 | 12: 1}


def test_nodes_without_a_label_share_one() -> None:
    table = TrafficTable(nodes=2)
    for node_id in range(10):
        table.of("inner", node_id).note(FETCH, MS, MS)
        table.of("outer", node_id).note(FETCH, MS, MS)
    assert table.of("inner", 0) is table.of("inner", 0)
    found = shown(table)
    counts = {
        name[2:]: count
        for name, count in found.items()
        if name[0] == "request_duration_seconds_count"
    }
    nodes = {"0": 1, "1": 1, "(other)": 8}
    assert counts == {
        (listener, node): n for listener in ("inner", "outer") for node, n in nodes.items()
    }


def test_brokers_that_nobody_has_named_take_no_label() -> None:
    # TLS clients may ask for any node id by its name.
    table = TrafficTable(2)
    assert (
        len({id(table.of("edge", node, is_known=False)) for node in range(100_000, 100_050)}) == 1
    )
    assert table.of("edge", 1) is not table.of("edge", 2)
    assert table.of("edge", 3) is table.of("edge", 100_000, is_known=False)


def test_samples_are_those_of_the_moment() -> None:
    table = TrafficTable()
    traffic = table.of("inner", 1)
    traffic.note(FETCH, MS, MS)
    taken = list(table.families())
    traffic.note(FETCH, MS, MS)
    traffic.requests[FETCH << 16] = 1
    samples = {one.name: list(one.samples) for one in taken}
    ((labels, (counts, seconds)),) = samples["request_duration_seconds"]
    assert (labels, sum(counts), seconds) == (("Fetch", "inner", "1"), 1, 0.001)
    assert samples["requests_by_version"] == samples["requests_by_api"] == []


def test_a_duration_goes_into_the_bucket_of_its_bound() -> None:
    for i, bound in enumerate(BOUNDS_S):
        traffic = Traffic()
        ns = round(bound * 1e9)
        for one in (ns, ns + 1):
            traffic.note(PRODUCE, one, -1)
        (counts, _), (none, _) = histograms_of(traffic.taken()[PRODUCE])
        assert counts == tuple(int(n in (i, i + 1)) for n in range(len(BOUNDS_S) + 1))
        assert not any(none)


def test_bad_arguments() -> None:
    for key in (-1, 128, 1 << 20):
        with pytest.raises(ValueError, match=f"API key {key}: expected 0 to 127"):
            Traffic().note(key, 1, 1)
    with pytest.raises(ValueError, match="3 bytes: expected"):
        histograms_of(b"abc")
    assert Traffic().taken() == {}
    assert 0 < clock_ns() <= clock_ns()
