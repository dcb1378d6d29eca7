"""``--print-metrics``: Kafka's names, Kafka's format, and figures that are counted."""

from __future__ import annotations

import asyncio
import math
import sys

import pytest

from batchval.cli.perf_options import print_metrics
from batchval.errors import ErrorCode
from batchval.perf.clients.kafka_metrics import Rebalances, Windows, average, named
from tests.unit.perf.metric_names import KAFKAS, generic, parse_metrics
from tests.unit.producer.partition_leader import PartitionLeader

GROUP = "producer-metrics"


async def produced(broker: PartitionLeader, *options: str) -> dict[str, float]:
    words = ["--bootstrap-server", broker.bootstrap, "--topic", "t", "--record-size", "100"]
    words += ["--num-records", "500", "--print-metrics", "--command-property", "client.id=me"]
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "batchval", "perf", "produce", *words, *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(done.communicate(), 60)
    assert b"Traceback" not in err, err
    (found,) = parse_metrics(out.decode())
    return found


def test_the_producers_names_are_kafkas_and_its_figures_are_counted() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            found = await produced(broker, "batch.size=4000")
            batches = sum(map(len, broker.logs.values()))
            requests = len(broker.requests)
        kafkas = {name for name in found if not name.startswith("batchval-")}
        assert {generic(name) for name in kafkas} <= KAFKAS
        assert all("client-id=me" in name for name in kafkas)
        value = {name.split(":")[1]: found[name] for name in kafkas if name.startswith(f"{GROUP}:")}
        assert (value["record-send-total"], value["record-error-total"]) == (500, 0)
        assert value["records-per-request-avg"] == round(500 / requests, 3)
        assert 100 < value["batch-size-avg"] <= 4000
        assert 0 < value["request-latency-avg"] <= value["request-latency-max"]
        assert value["record-send-rate"] > 0
        assert found["batchval-producer-metrics:batch-total:{client-id=me}"] == batches

    asyncio.run(work())


def test_what_is_refused_and_what_is_sent_again() -> None:
    async def work() -> None:
        async with PartitionLeader(partitions=1) as broker:
            broker.faults.append(lambda *_: ErrorCode.NOT_LEADER_OR_FOLLOWER)
            broker.faults.append(lambda *_: ErrorCode.MESSAGE_TOO_LARGE)
            found = await produced(broker, "retry.backoff.ms=1")
        count = {
            name: found[f"{GROUP}:record-{name}-total:{{client-id=me}}"]
            for name in ("send", "retry")
        }
        assert count["retry"] > 0
        assert count["send"] == 500 + count["retry"]

    asyncio.run(work())


def test_the_format_is_that_of_kafkas_tools(capsys: pytest.CaptureFixture[str]) -> None:
    values = named("g", {"a": 1, "long-name": 2.0625, "none": math.nan}, "c", topic="t")
    print_metrics(3, values | {"g:text:{}": "x"}, err=False)
    assert capsys.readouterr().out == (
        "Metrics for thread 3\n\n"
        "Metric Name                          Value\n"
        "g:a:{client-id=c, topic=t}         : 1.000\n"
        "g:long-name:{client-id=c, topic=t} : 2.063\n"
        "g:none:{client-id=c, topic=t}      : NaN\n"
        "g:text:{}                          : x\n"
    )


def test_rebalances_are_from_asking_to_being_assigned() -> None:
    rebalances = Rebalances()
    before = rebalances.metrics("c", 0)
    assert before["consumer-coordinator-metrics:last-rebalance-seconds-ago:{client-id=c}"] == -1
    assert before["consumer-coordinator-metrics:rebalance-total:{client-id=c}"] == 0
    rebalances.end()  # nobody asked
    rebalances.begin()
    rebalances.begin()
    under_way = rebalances.ms()
    assert under_way > 0
    rebalances.end()
    total = rebalances.ms()
    assert total >= under_way
    assert rebalances.ms() == total
    after = rebalances.metrics("c", 4)
    assert {generic(name) for name in after} <= KAFKAS
    value = {name.split(":")[1]: after[name] for name in after}
    assert value["rebalance-total"] == 1
    assert value["rebalance-latency-avg"] == value["rebalance-latency-max"] == total
    assert value["assigned-partitions"] == 4
    assert value["last-rebalance-seconds-ago"] >= 0  # type: ignore[operator]


def test_windows_of_statistics_are_added() -> None:
    windows = Windows()
    assert math.isnan(windows.mean)
    assert math.isnan(windows.max)
    windows.add({"cnt": 3, "sum": 60, "max": 40})
    windows.add({"cnt": 1, "sum": 20, "max": 20})
    assert (windows.mean, windows.max) == (20, 40)
    assert math.isnan(average(1, 0))
