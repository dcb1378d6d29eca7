"""The bench of the gate runs once, tiny, without peers. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchval import LogValidator
from batchval.protocol.walkers.produce import ProduceRequestView
from bench import pages
from bench.proxy import load, proxies, workers
from tests.support.benches import ROOT, folders_to_save_in, run

pytestmark = pytest.mark.long
BENCH = ROOT / "bench" / "proxy"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("proxy") / "result"
    done = run(BENCH / "proxies.py", "--quick", "--codecs", "lz4", "--out", out)
    assert done.returncode == 0, done.stderr
    assert out.with_suffix(".md").read_text() == done.stdout.removesuffix("\n")
    answer: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    return answer


def test_the_gate_is_measured_with_and_without_a_proxy(result: dict[str, Any]) -> None:
    samples = result["whole"]
    for size in load.SIZES:
        for way in ("validating", "off"):
            (sample,) = samples[f"{size} none"][way]
            assert sample["requests"] > 0
            assert 0.9 < sample["bytes"] / sample["requests"] / load.SIZES[size] <= 1
            assert sample["cpu_s_a_gb"] > 0
    for size in ("64 kB", "1 MB"):
        assert set(samples[f"{size} lz4"]) == {"validating", "off", "trust", "audit"}
    assert set(samples["latency 64 kB"]) == {"direct", "pump", "validating"}
    assert all(sample["waited"] >= 0 for (sample,) in samples["latency 64 kB"].values())
    if "TLS" not in result["settings"]["missing"]:
        for size in proxies.TLS_SIZES:
            assert set(samples[f"{size} TLS"]) == {"validating", "off"}
            assert all(one["requests"] > 0 for (one,) in samples[f"{size} TLS"].values())
    assert result["memory"]["stalled_client"]["bytes_queued"] == 20 * (8 + load.FETCH_ANSWER)
    assert result["memory"]["stalled_broker"]["bytes_taken"] > 0


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


def test_a_result_is_saved_and_its_page_written(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, docs = folders_to_save_in(tmp_path, monkeypatch)
    saved = {key: value for key, value in result.items() if key != "whole"}
    committed = saved | {"machine": result["machine"] | {"commit": "0123abc"}}
    pages.save("proxy", committed)
    assert json.loads((results / "proxy.json").read_text()) == committed
    text = (docs / "proxy.md").read_text()
    assert "`0123abc`" in text
    assert "| gate, validating |" in text
    assert "| 64 kB lz4 |" in text


def test_peers_are_saved_with_their_versions(tmp_path: Path) -> None:
    program = tmp_path / "kafka-proxy"
    program.write_text("#!/bin/sh\necho kafka-proxy version 1.2.3\n")
    program.chmod(0o755)
    options = proxies.arguments(["--kafka-proxy", str(program), "--kroxylicious", "jars"])
    assert proxies.peer_versions(options) == {"Kroxylicious": "0.12.0", "kafka-proxy": "1.2.3"}
    assert proxies.peer_versions(proxies.arguments([])) == {}


def test_an_answer_that_is_not_the_brokers_stops_a_run(tmp_path: Path) -> None:
    """Damage a batch's last record: the proxy refuses it, and the client reports that."""
    script = """
import sys
from pathlib import Path
from bench.proxy import ends, load
folder = Path(sys.argv[1])
ends.BUILD.mkdir(parents=True, exist_ok=True)
of = load.make(folder, "1 kB", quick=True)
data = bytearray(of.path.read_bytes())
data[load.frame_size(data) - 9] ^= 1
of.path.write_bytes(data)
answers = load.answers(folder / "answers")
broker = ends.broker(answers, ends.Place())
gate = ends.gate("validating", broker.port, ends.Place())
try:
    ends.client(gate.port, of.path, answers, ends.Place(), connections=1, window=1, seconds=0.1)
except RuntimeError as error:
    print(error)
finally:
    gate.stop()
    broker.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert "refused" in done.stdout, done.stdout + done.stderr


def test_the_connections_of_a_gate_without_workers_are_shown() -> None:
    split = {'worker_connections{worker="0"}': 9.0, 'worker_connections{worker="1"}': 7.0}
    assert workers.connections({"connections_open": 16.0} | split) == [9.0, 7.0]
    assert workers.connections({"connections_open": 16.0}) == [16.0]
