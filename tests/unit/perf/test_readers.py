"""Readers of other projects over the lines of Kafka's tools and of ``batchval perf``."""

from __future__ import annotations

import asyncio
import re
import sys
from array import array
from pathlib import Path

import pytest

from batchval.perf.consumer_lines import SUMMARY_HEADER, Summary, summary_row
from batchval.perf.histogram import Histogram
from batchval.perf.producer_lines import Window, interval_line, total_line
from tests.unit.perf.kafka_parser import parse_consumer
from tests.unit.perf.producer_parser import DETAILS, parse
from tests.unit.perf.readers import CONSUMERS, PRODUCERS, Figures, Reader
from tests.unit.producer.partition_leader import PartitionLeader

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
PAGE = HERE.parents[2] / "docs/reference/cli/perf-roundtrip.md"

producers = pytest.mark.parametrize("reader", PRODUCERS, ids=lambda reader: reader.project)
consumers = pytest.mark.parametrize("reader", CONSUMERS, ids=lambda reader: reader.project)


def figures(text: str, unit: str) -> list[Figures]:
    """Return the figures of each line with percentiles, by the project's own strict parser."""
    found = [line for line in parse(text, unit) if line.percentiles]
    names = {"50th": "p50", "95th": "p95", "99th": "p99", "99.9th": "p999"}
    return [
        {
            "records": line.records,
            "rate": line.rate,
            "mb": line.mb,
            "avg": line.avg,
            "max": line.max,
        }
        | {names[name]: value for name, value in line.percentiles.items()}
        for line in found
    ]


def ours(unit: str, *, steady: bool = False) -> str:
    """Return the output of a run: interval lines, the total, the steady state's total."""
    latencies = Histogram()
    latencies.record_many(array("q", range(1_200, 90_000, 7)))
    window = Window(5_000, 5_000_000, 1_000_000_000, 400_000_000, 89_000)
    lines = [interval_line(window, unit)] * 2
    lines.append(total_line(latencies, latencies.count * 1000, 3_000_000_000, unit))
    if steady:
        later = Histogram()
        later.record_many(array("q", range(2_200, 70_000, 9)))
        lines.append(total_line(later, later.count * 1000, 2_000_000_000, unit, steady_state=True))
    return "".join(f"{line}\n" for line in lines)


def test_there_are_fifteen_at_least() -> None:
    assert len({reader.project for reader in PRODUCERS}) == len(PRODUCERS) >= 15


@producers
def test_all_read_kafkas_tool(reader: Reader) -> None:
    text = (GOLDEN / "producer_4.3.1.txt").read_text()
    (expected,) = figures(text, "ms")
    found = reader.read(text)
    assert found
    assert found == {name: expected[name] for name in found}


@producers
def test_all_read_whole_milliseconds(reader: Reader) -> None:
    text = ours("ms")
    (expected,) = figures(text, "ms")
    found = reader.read(text)
    assert found
    assert found == {name: expected[name] for name in found}


@producers
def test_the_default_is_read_where_decimals_are(reader: Reader) -> None:
    text = ours("us")
    (expected,) = figures(text, "us")
    found = reader.read(text)
    if reader.decimals == "nothing":
        assert found is None
    else:
        assert found
        is_right = found == {name: expected[name] for name in found}
        assert is_right == (reader.decimals == "right")


def taken(reader: Reader, text: str, unit: str = "ms") -> list[bool] | None:
    """Return which of the totals a reader took; None where it found nothing, or stumbled."""
    try:
        found = reader.read(text)
    except ValueError:
        return None
    if found is None:
        return None
    return [found == {name: one[name] for name in found} for one in figures(text, unit)]


@producers
def test_a_warm_up_is_read_as_with_kafkas_tool(reader: Reader) -> None:
    """Each takes the same one of the two totals from both tools, or none: "steady state" is new."""
    kafkas = taken(reader, (GOLDEN / "producer_warmup_4.3.1.txt").read_text())
    assert kafkas in (None, [True, False], [False, True])
    assert taken(reader, ours("ms", steady=True)) == kafkas


@pytest.mark.long
def test_the_last_line_of_all_output_is_the_steady_state() -> None:
    """``2>&1`` included; nothing else on stdout has the words of Kafka's lines."""

    async def run(*options: str, merged: bool) -> tuple[str, str]:
        stderr = asyncio.subprocess.STDOUT if merged else asyncio.subprocess.PIPE
        async with PartitionLeader() as broker:
            words = ["--bootstrap-server", broker.bootstrap, "--topic", "t", "--record-size", "9"]
            words += ["--num-records", "600", "--warmup-records", "200", "--throughput", "2000"]
            done = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "batchval", "perf", "produce", *words, *options,
                stdout=asyncio.subprocess.PIPE, stderr=stderr,
            )  # fmt: skip
            out, err = await asyncio.wait_for(done.communicate(), 60)
        assert done.returncode == 0, out
        return out.decode(), (err or b"").decode()

    out, _ = asyncio.run(run(merged=True))
    assert [line.kind for line in parse(out)] == ["total", "steady"]
    assert [line.partition(":")[0] for line in out.splitlines()[:-2]] == list(DETAILS)
    assert PRODUCERS[0].read(out) == figures(out, "us")[-1]
    for reader in PRODUCERS:
        if reader.decimals == "right":
            assert taken(reader, out, "us") == taken(reader, ours("us", steady=True), "us")
    out, err = asyncio.run(run("--latency-unit", "ms", merged=False))
    assert [line.kind for line in parse(out, "ms", strict=True)] == ["total", "steady"]
    assert err == ""


def consumer_row() -> str:
    start = 1_795_177_423_430
    run = Summary(start, start + 2791, 2791, 200_000_000, 200_000, 762, 2029)
    return f"{SUMMARY_HEADER}\n{summary_row(run)}\n"


@consumers
@pytest.mark.parametrize("whose", ["Kafka's", "ours"])
def test_all_read_the_consumers_row(reader: Reader, whose: str) -> None:
    text = (GOLDEN / "consumer_4.3.1.txt").read_text() if whose == "Kafka's" else consumer_row()
    (row,) = parse_consumer(text)
    columns = {"mb": "data.consumed.in.MB", "records": "data.consumed.in.nMsg", "rate": "nMsg.sec"}
    columns |= {"mb_rate": "MB.sec", "rebalance": "rebalance.time.ms", "fetch": "fetch.time.ms"}
    columns |= {"fetch_mb_rate": "fetch.MB.sec", "fetch_rate": "fetch.nMsg.sec"}
    found = reader.read(text)
    assert found
    assert found == {name: row[columns[name]] for name in found}


def test_the_page_lists_them() -> None:
    section = PAGE.read_text().partition("## What reads these lines")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (.+?) \| .+ \| (right|nothing|wrong) \|$", section, re.MULTILINE)
    assert listed == [(reader.project, reader.decimals) for reader in PRODUCERS]
    right = sum(reader.decimals == "right" for reader in PRODUCERS)
    assert f"{len(PRODUCERS)} of {len(PRODUCERS)}" in section
    assert f"{right} of {len(PRODUCERS)}" in section
    for reader in CONSUMERS:
        assert reader.project in section
