"""The benches of claims in a broker and of the gate: their loads and counts. No time is asserted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchval import LogValidator
from batchval.core import claims
from batchval.protocol.walkers.produce import ProduceRequestView
from bench.claims import broker_cpu, broker_rig, produce_load, saturation
from bench.proxy import ends, load, proxies
from tests.support.benches import ROOT, run

CLAIMS = ROOT / "bench" / "claims"


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


def test_each_way_to_read_a_segment_has_a_row(tmp_path: Path) -> None:
    out = tmp_path / "at-rest"
    done = run(CLAIMS / "at_rest.py", "--out", out, "--mb", "1", "--rounds", "1", "--rate", "0.5")
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
    done = run(CLAIMS / "broker_cpu.py", "--quick", "--codecs", "zstd", "--out", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.with_suffix(".json").read_text())
    assert list(found["parts"]) == list(broker_cpu.PARTS)
    for name, part in found["samples"].items():
        assert len(part["samples"]) == len(broker_cpu.loads(name, ["zstd"])) * len(
            broker_cpu.ways(name, "zstd")
        )
        assert part["counters"]["Trusted"] > 0
        assert all(one["batches"] > 0 for found in part["samples"] for one in found["samples"])


def test_fewer_trusted_batches_than_were_sent_are_an_error() -> None:
    samples = [{"batches": 100}, {"batches": 100}]
    rows = [{"way": way, "samples": samples} for way in ("stock", "agents")]
    before = {"Trusted": 5, "Lying": 0}
    broker_cpu.check(rows, before, {"Trusted": 205, "Lying": 0})
    with pytest.raises(RuntimeError, match="150 of 200 batches were trusted"):
        broker_cpu.check(rows, before, {"Trusted": 155, "Lying": 0})
    with pytest.raises(RuntimeError, match="found to be lies"):
        broker_cpu.check(rows, before, {"Trusted": 205, "Lying": 1})


@pytest.mark.jvm
@pytest.mark.slow
def test_a_broker_is_saturated_by_every_way(tmp_path: Path) -> None:
    out = tmp_path / "result"
    words = ("--quick", "--only", "small", "--codecs", "zstd", "--out", out)
    done = run(CLAIMS / "saturation.py", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.with_suffix(".json").read_text())
    assert list(found["parts"]) == ["small"]
    stock, trust = found["parts"]["small"]["rows"]
    assert (stock["way"], trust["way"]) == ("stock", "trust")
    assert stock["mb_s_over_stock"] == [1, 1, 1]
    assert trust["mb_s"] > 0
    assert len(found["samples"][1]["samples"]) == 2


def test_each_topic_has_the_policy_of_its_way() -> None:
    rules = saturation.rules()
    assert "rule.1=trust,topic=load-trust-*,listener=PLAINTEXT;" in rules
    assert "=audit:0.01,topic=load-audit-*,listener=SSL;" in rules
    assert rules.startswith("policy=ignore;")
    assert rules.endswith("measure.header=load-header-*")
    assert "stock" not in rules


def test_a_part_that_is_measured_again_takes_the_place_of_the_saved_one() -> None:
    def part(date: str) -> dict[str, Any]:
        return {"date": date, "machine": {"commit": date}, "rows": []}

    saved = {"parts": {"full": part("1"), "tls": part("1"), "jdk": part("1")}}
    found = broker_rig.merged({"jdk": part("2"), "small": part("3")}, saved, saturation.PARTS)
    assert {name: one["date"] for name, one in found["parts"].items()} == {
        "full": "1",
        "small": "3",
        "tls": "1",
        "jdk": "2",
    }
    assert (found["date"], found["machine"]["commit"]) == ("3", "3")


def test_a_saturated_broker_is_compared_by_rounds() -> None:
    def row(way: str, *rates: float) -> dict[str, Any]:
        samples = [{"batches": 10, "mb_s": rate, "cpu": 1.0, "us": 1e3 / rate} for rate in rates]
        return {"part": "full", "way": way, "codec": "gzip", "samples": samples}

    rows = [row("stock", 10, 20, 40), row("trust", 20, 60, 80), row("header", 10, 20, 40)]
    trust = saturation.summary(rows)[1]
    assert (trust["mb_s"], trust["mb_s_over_stock"]) == (60, [2, 2, 3])
    assert trust["us_over_stock"][0] == 0.5
    before = {"Trusted": 5, "Lying": 0}
    saturation.check(rows, before, {"Trusted": 65, "Lying": 0})
    with pytest.raises(RuntimeError, match="59 of 60 batches were trusted"):
        saturation.check(rows, before, {"Trusted": 64, "Lying": 0})
    with pytest.raises(RuntimeError):
        saturation.check(rows, before, {"Trusted": 65, "Lying": 1})


@pytest.fixture(scope="module")
def gate_result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("proxy") / "gate_result"
    done = run(ROOT / "bench" / "proxy" / "proxies.py", "--quick", "--codecs", "lz4", "--out", out)
    assert done.returncode == 0, done.stderr
    assert out.with_suffix(".md").read_text() == done.stdout.removesuffix("\n")
    answer: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    return answer


@pytest.mark.long
def test_the_gate_is_measured_with_and_without_a_proxy(gate_result: dict[str, Any]) -> None:
    samples = gate_result["whole"]
    for size in load.SIZES:
        for way in ("validating", "off"):
            (sample,) = samples[f"{size} none"][way]
            assert sample["requests"] > 0
            assert 0.9 < sample["bytes"] / sample["requests"] / load.SIZES[size] <= 1
            assert sample["cpu_s_a_gb"] > 0
    for size in ("64 kB", "1 MB"):
        ways = {"validating", "off", "trust", "audit", "pump", "library"}
        assert set(samples[f"{size} lz4"]) == ways
    loops = (f"open {share} %" for share in proxies.page.SHARES)
    for cell in ("latency 1 kB", "latency 64 kB", *loops, "crowd", "crowd and greedy"):
        assert set(samples[cell]) == {"direct", "pump", "validating"}
        assert all(one["requests"] > 0 for (one,) in samples[cell].values())
    assert all(sample["waited"] >= 0 for (sample,) in samples["latency 64 kB"].values())
    if "TLS" not in gate_result["settings"]["missing"]:
        for size in proxies.TLS_SIZES:
            assert set(samples[f"{size} TLS"]) == {"validating", "off"}
            assert all(one["requests"] > 0 for (one,) in samples[f"{size} TLS"].values())
    assert gate_result["memory"]["stalled_client"]["bytes_queued"] == 20 * (8 + load.FETCH_ANSWER)
    assert gate_result["memory"]["stalled_broker"]["bytes_taken"] > 0


def test_the_version_of_a_peer_is_that_of_its_jar(tmp_path: Path) -> None:
    def found() -> str:
        return proxies.version_of_jar(str(tmp_path), "kroxylicious-runtime")

    with pytest.raises(LookupError, match="0 jars of kroxylicious-runtime: allowed is one"):
        found()
    (tmp_path / "kroxylicious-runtime-api-1.0.jar").touch()
    (tmp_path / "kroxylicious-runtime-0.23.0.jar").touch()
    assert found() == "0.23.0"
    (tmp_path / "kroxylicious-runtime-0.24.0.jar").touch()
    with pytest.raises(LookupError, match="2 jars"):
        found()


@pytest.mark.long
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("size", list(load.SIZES))
def test_the_requests_are_of_the_size_they_say_and_valid(
    tmp_path: Path, size: str, codec: str
) -> None:
    made = load.make(tmp_path, size, codec, claims=codec != "none", quick=True)
    data = made.path.read_bytes()
    count = 0
    while data:
        frame, data = data[: load.frame_size(data)], data[load.frame_size(data) :]
        assert len(frame) <= load.SIZES[size]
        assert codec != "none" or len(frame) > 0.9 * load.SIZES[size]
        request = ProduceRequestView(memoryview(frame)[4:])
        assert request.has_claims == (codec != "none")
        records = request.records(0)
        assert records is not None
        assert LogValidator().check(records, now_ms=1_800_000_000_000, produce_version=9).ok
        count += 1
    assert count == 4
