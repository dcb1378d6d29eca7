"""The benches in front of a real broker run once, tiny: two gates in a row, and CPU at a fixed
ingress.

No time is asserted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import pages
from bench.proxy import chain, ingress, load
from tests.support.benches import ROOT, folders_to_save_in, run
from tests.support.fixtures import needs_kafka

BENCH = ROOT / "bench" / "proxy"


pytestmark = pytest.mark.jvm


def output(script: str, *words: str) -> str:
    needs_kafka()
    done = run(BENCH / script, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_two_gates_in_a_row_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "chain"
    printed = output("chain.py", "--quick", "--codecs", "zstd", "--out", str(out))
    ways = json.loads(out.with_suffix(".json").read_text())["samples"]["zstd"]
    assert list(ways) == list(chain.WAYS)
    for way, (sample,) in ways.items():
        assert sample["wire GB"] > 0
        assert ("edge s/GB" in sample) == (way != "core")
        assert sample["claims path"] > 0.5 if way == "claims" else sample["claims path"] == 0
        assert f"zstd   {way:6}  " in printed


@pytest.mark.slow  # half a minute: five ways, each with a broker's warm-up
def test_cpu_at_a_fixed_ingress_is_measured_and_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "ingress"
    printed = output("ingress.py", "--quick", "--codecs", "lz4", "--out", str(out))
    result = json.loads(out.with_suffix(".json").read_text())
    assert out.with_suffix(".md").read_text() == printed.removesuffix("\n")
    ways = result["samples"]["lz4"]
    assert list(ways) == list(ingress.WAYS)
    for way, (sample,) in ways.items():
        gates = {"straight": set(), "two gates": {"gate", "first gate"}}.get(way, {"gate"})
        assert set(sample["cpu"]) == {*gates, "broker"}
        assert sample["cpu"]["broker"] > 0
        assert sample["mb_a_second"] > 0
    for way in ("audited", "two gates"):
        paths = ways[way][0]["paths"]
        assert paths["claims"] > sum(paths.values()) / 2
    assert ways["validating"][0]["paths"].get("claims", 0) == 0
    results, docs = folders_to_save_in(tmp_path, monkeypatch)
    pages.save("ingress", result | {"machine": result["machine"] | {"commit": "0123abc"}})
    assert json.loads((results / "ingress.json").read_text())["samples"] == result["samples"]
    assert "`0123abc`" in (docs / "proxy.md").read_text()


def test_an_answer_with_an_error_is_seen() -> None:
    """Read the error code from a broker's own place for it."""
    answer = bytearray(4) + load.produce_answer()
    request = ingress.Prebuilt(b"")
    assert request.decode(memoryview(answer)) == 0
    at = answer.index(load.TOPIC) + len(load.TOPIC) + 1 + 4
    answer[at : at + 2] = (87).to_bytes(2, "big")
    assert request.decode(memoryview(answer)) == 87
    sent = ingress.Sent()
    sent.answered(10, 0, None)
    sent.answered(10, 87, None)
    assert sent.wrong == ["87"]
