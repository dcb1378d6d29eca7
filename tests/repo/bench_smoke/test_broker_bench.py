"""The bench of claims in a broker: its load, its counts and its ratios. No time is asserted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchval import LogValidator, scan_batches
from batchval.core import claims
from batchval.protocol.walkers.produce import ProduceRequestView
from bench.claims import broker_cpu, broker_rig, produce_load
from bench.proxy import ends, load
from tests.support.benches import ROOT, run

BENCH = ROOT / "bench" / "claims" / "broker_cpu.py"
AT_REST = ROOT / "bench" / "claims" / "at_rest.py"
SEGMENTS = ROOT / "fixtures" / "segments"
LOG = "00000000000000000000.log"


@pytest.fixture(scope="module")
def requests() -> produce_load.Requests:
    """Return requests of three partitions."""
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    return produce_load.Requests.make("smoke", "lz4", 16, 3, "tag")


@pytest.fixture
def port(
    requests: produce_load.Requests, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[int]:
    """Start a broker that answers with the parameter's error code and base offset."""
    error_code, base_offset = request.param
    body = bytearray(requests.answers.read_bytes())
    at = 8 + produce_load.answer("smoke", 3)[0].index(bytes(6)) + 4  # of the first partition
    body[at : at + 2] = error_code.to_bytes(2, "big")
    body[at + 2 : at + 10] = base_offset.to_bytes(8, "big")
    answers = tmp_path / "answers"
    answers.write_bytes(body)
    broker = ends.broker(answers, ends.Place())
    yield broker.port
    broker.stop()


@pytest.mark.parametrize("port", [(0, 77)], indirect=True)
def test_the_load_is_as_long_as_it_was_asked_for(
    requests: produce_load.Requests, port: int
) -> None:
    sent = requests.send(port, 100e6, 0.1)
    number = requests.count(100e6, 0.1)
    assert sent["requests"] == number > 100
    assert sent["batches"] == 3 * number
    assert sent["bytes"] == pytest.approx(number * requests.frame_bytes, rel=0.01)
    assert sent["seconds"] > 0.09  # it is paced


@pytest.mark.parametrize("port", [(87, 0)], indirect=True)
def test_a_response_with_an_error_ends_the_load(requests: produce_load.Requests, port: int) -> None:
    with pytest.raises(RuntimeError, match="not the broker's answer"):
        requests.send(port, 100e6, 0.1)


@pytest.mark.parametrize("carrier", ["none", "tag", "payload"])
@pytest.mark.parametrize("kilobytes", [16, 64])
def test_the_requests_are_valid_and_their_claims_honest(
    kilobytes: int, carrier: produce_load.Carrier
) -> None:
    made = produce_load.Requests.make("smoke", "zstd", kilobytes, 2, carrier)
    data = made.frames.read_bytes()
    frame = data[: load.frame_size(data)]
    assert kilobytes * 900 < len(frame) / 2 <= kilobytes * 1020
    request = ProduceRequestView(memoryview(frame)[4:])
    assert len(request) == 2
    assert request.has_claims == (carrier == "tag")
    for number in range(2):
        records = request.records(number)
        assert records is not None
        result = LogValidator().check(records, now_ms=1_800_000_000_000, produce_version=9)
        assert result.ok
        assert result.records_count == made.records
        expected = claims.compute(records) if carrier == "payload" else None
        assert claims.read(records) == expected


def test_batches_are_counted_as_a_log_grows(tmp_path: Path) -> None:
    data = (SEGMENTS / "codec-lz4-0" / LOG).read_bytes()
    positions = [*scan_batches(data)["position"].tolist(), len(data)]
    number = len(positions) - 1
    for name in ("topic-0", "topic-1", "topic-more-0"):
        (tmp_path / name).mkdir(parents=True)
    log = tmp_path / "topic-0" / LOG
    log.write_bytes(data[: positions[2]])
    (tmp_path / "topic-more-0" / LOG).write_bytes(data)
    stored = broker_rig.StoredBatches(tmp_path, "topic")
    assert stored.since_last() == 0
    log.write_bytes(data[: positions[3] + 40])  # the fourth is not whole yet
    assert stored.since_last() == 1
    log.write_bytes(data)
    (tmp_path / "topic-1" / LOG).write_bytes(data)
    assert stored.since_last() == number - 3 + number
    shutil.rmtree(log.parent)
    assert stored.since_last() == 0


def samples(*broker: float, **more: float) -> list[dict[str, Any]]:
    """Return one sample for each broker time, with other processes."""
    found = []
    for us in broker:
        times = {"broker": us, **more}
        cores = {name: time / 4000 for name, time in times.items()}
        found.append(
            {"batches": 100, "bytes": 1, "seconds": 1.0, "fed": 0.99, "us": times, "cores": cores}
        )
    return found


def row(part: str, way: str, made: list[dict[str, Any]], codec: str = "gzip") -> dict[str, Any]:
    return {
        "part": part,
        "way": way,
        "codec": codec,
        "kilobytes": 64,
        "partitions": 1,
        "mb": 20.0,
        "samples": made,
    }


def test_a_ratio_is_that_of_one_round() -> None:
    rows = [
        row("whole", "stock", samples(1000, 2000, 1500)),
        row("whole", "agents", samples(300, 600, 450)),
    ]
    stock, agents = broker_cpu.summary(rows)
    assert stock["us"] == {"broker": 1500}
    assert "ratios" not in stock
    assert agents["ratios"]["servers"] == pytest.approx({"median": 0.3, "low": 0.3, "high": 0.3})


def test_gate_and_broker_are_added_up_and_the_producer_is_not() -> None:
    stock = samples(1000, producer=500)
    gate = samples(400, producer=500, gate=300)
    _, found = broker_cpu.summary([row("grid", "stock", stock), row("grid", "gate", gate)])
    medians = {name: ratio["median"] for name, ratio in found["ratios"].items()}
    assert medians == pytest.approx({"servers": 0.7, "all": 0.8, "producer": 1.0})


def test_fewer_trusted_batches_than_were_sent_are_an_error() -> None:
    rows = [row("whole", "stock", samples(1, 1)), row("whole", "agents", samples(1, 1))]
    before = {"Trusted": 5, "Lying": 0}
    broker_cpu.check(rows, before, {"Trusted": 205, "Lying": 0})
    with pytest.raises(RuntimeError, match="150 of 200 batches were trusted"):
        broker_cpu.check(rows, before, {"Trusted": 155, "Lying": 0})
    with pytest.raises(RuntimeError, match="found to be lies"):
        broker_cpu.check(rows, before, {"Trusted": 205, "Lying": 1})


def test_each_part_has_all_its_loads() -> None:
    codecs = ("gzip", "snappy", "lz4", "zstd")
    grid = broker_cpu.loads("grid", codecs)
    assert len(set(grid)) == 4 * 2 * 2 * 2
    assert list(broker_cpu.ways("grid", "lz4")) == ["stock", "agents", "gate"]
    assert [len(broker_cpu.ways("gate", codec)) for codec in codecs] == [4, 3, 3, 4]
    assert [one.codec for one in broker_cpu.loads("whole", codecs)] == list(codecs)


def test_parts_that_are_not_measured_again_stay() -> None:
    saved = {"parts": {name: {"date": "2026-01-02"} for name in ("gate", "whole", "policies")}}
    grid = {"date": "2026-01-03", "machine": {"commit": "0123abc"}}
    result = broker_cpu.merged({"grid": grid}, saved)
    assert list(result["parts"]) == ["whole", "policies", "gate", "grid"]
    assert (result["date"], result["machine"]) == ("2026-01-03", {"commit": "0123abc"})


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--write", "--quick"], "--write needs a whole run"),
        (["--write", "--codecs", "lz4"], "--write needs whole parts"),
        (["--codecs", "lzma"], "invalid codec 'lzma': expected gzip, snappy, lz4, zstd"),
        (["--only", ","], "no part: expected whole, policies, gate, grid"),
    ],
)
def test_options_that_cannot_be_are_refused(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        broker_cpu.arguments(words)
    assert error in capsys.readouterr().err


def test_each_way_to_read_a_segment_has_a_row(tmp_path: Path) -> None:
    out = tmp_path / "at-rest"
    done = run(AT_REST, "--out", out, "--mb", "1", "--rounds", "1", "--rate", "0.5")
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    assert [(row["codec"], row["figures"]) for row in rows] == [
        (c, f)
        for c in ("zstd", "gzip")
        for f in ("headers", "claims, 0.5 verified", "claims, none of them drawn", "every record")
    ]
    assert all(row["us_a_batch"] > 0 and row["gb_a_cpu_second"] > 0 for row in rows)
    assert [row["of_headers"] for row in rows][::4] == [1, 1]


@pytest.mark.jvm
@pytest.mark.slow
def test_everything_is_measured_once_with_real_brokers(tmp_path: Path) -> None:
    out = tmp_path / "result"
    done = run(BENCH, "--quick", "--codecs", "zstd", "--out", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.with_suffix(".json").read_text())
    assert list(found["parts"]) == list(broker_cpu.PARTS)
    for name, part in found["samples"].items():
        assert len(part["samples"]) == len(broker_cpu.loads(name, ["zstd"])) * len(
            broker_cpu.ways(name, "zstd")
        )
        assert part["counters"]["Trusted"] > 0
        assert all(one["batches"] > 0 for found in part["samples"] for one in found["samples"])
