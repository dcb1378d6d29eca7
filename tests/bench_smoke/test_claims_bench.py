"""The bench of claims runs once, tiny. No time is asserted: what is tested is that it measures what
it says.
"""

from __future__ import annotations

import importlib
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import pages
from bench.claims import figures, report_claims, side_by_side, streams
from bench.pages import claims
from bench.validation import jmh, peers
from tests.support.benches import ROOT, folders_to_save_in, run

BENCH = ROOT / "bench" / "claims"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run both kinds once, tiny, without Kafka, which needs a JDK."""
    out = tmp_path_factory.mktemp("claims") / "result"
    done = run(
        str(BENCH / "side_by_side.py"),
        *(
            "--quick",
            "--samples",
            "1",
            "--codecs",
            "lz4",
            "--peers",
            "",
            "--seconds",
            "0.05",
            "--warm-up",
            "0.05",
        ),
        *("--batches-fed", "48", "--out", str(out)),
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert out.with_suffix(".md").read_text() == done.stdout.removesuffix("\n")
    read: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    read["svg"] = out.with_suffix(".svg").read_text()
    return read


def test_every_way_is_timed(result: dict[str, Any]) -> None:
    times = result["times"]
    ways = {
        "claims",
        "claims_header",
        "claims_ranges",
        "claims_ranges_header",
        "check",
        "scan_batches",
    }
    assert ways <= set(times["v2-lz4-100-1000"])
    assert "validate_messages" in times["v1-lz4-100-1000"]
    assert {"attach", "strip", "crc_patched", "crc_whole", "memcpy"} <= set(times["carrier 1 MiB"])
    assert {"decide_and_note", "ledger"} <= set(times["ledger"])
    for cell, each in times.items():
        for what, time in each.items():
            assert time["us"] > 0, (cell, what)


def test_every_figure_has_its_row(result: dict[str, Any]) -> None:
    targets = {(row["group"], row["target"]) for row in result["rows"] if row["target"] is not None}
    assert targets == {
        ("claims path over header + CRC alone, many a call", 1.3),
        ("claims path over header + CRC alone, many a call", 1.05),
        ("the new CRC of attach and strip, against a full pass", 3.0),
        ("the new CRC of attach and strip, against a full pass", 50.0),
        ("attach and strip, whole, over memcpy of the batch", 1.2),
        ("check and claims of it, over check alone", 1.05),
        ("claims path: allocator calls a batch beyond the result", 0.0),
        ("the ledger", 0.2),
    }


def test_no_allocator_call_beyond_the_result_and_lies_found_in_time(
    result: dict[str, Any],
) -> None:
    counted = [row for row in result["rows"] if row["unit"] == "calls"]
    assert len(counted) == 6  # three sizes, two carriers
    assert [row["value"] for row in counted] == [0] * 6
    found = [row for row in result["rows"] if row["name"].startswith("detection")]
    assert [row["verdict"] for row in found] == ["met"] * 3  # no time: fixed seeds


def test_paced_points_and_their_chart(result: dict[str, Any]) -> None:
    points = {(row["way"], row["mb_per_second"], row["partitions"]) for row in result["paced"]}
    assert points == {
        (way, mb, n)
        for way in (*figures.OUR_WAYS, "none")
        for mb in figures.RATES_MB
        for n in figures.PARTITIONS
    }
    assert all(row["cores"] > 0 for row in result["paced"])
    drawn = ET.fromstring(result["svg"])
    bars = [element for element in drawn.iter() if element.tag.endswith("}rect")]
    assert len(bars) == 1 + len(claims.PROPOSAL) + 2 * 3 * len(figures.OUR_WAYS)


def test_a_stream_is_whole_batches_of_its_producers_in_turn(tmp_path: Path) -> None:
    claims = importlib.import_module("batchval.core.claims")
    path = streams.make(tmp_path, "zstd", 3, 96)
    requests = list(streams.read(path))
    assert len(requests) == 32
    seen = set()
    for buffer, lengths, size in requests:
        assert len(lengths) == 3
        assert 3 * 16_000 < size < 3 * 17_000
        start = 0
        for length in lengths:
            batch = buffer[start : start + length]
            made = claims.compute(batch)
            assert made is not None
            assert made.records_number == streams.RECORDS
            seen.add(batch)
            start += length
        assert start == len(buffer)
    assert len(seen) == 96


def test_what_falls_behind_is_scaled_to_the_pace() -> None:
    report = report_claims
    answer = {
        "content": 300_000_000,
        "batches": 1,
        "wall_ns": 1_000_000_000,
        "cpu_ns": 1_000_000_000,
    }
    (row,) = report.paced({"paced lz4": {"full 600 12": [answer, {"error": "no"}]}})
    assert (row["cores"], row["fed"]) == (2.0, 0.5)
    assert claims.share(row) == "200 % (50% fed)"
    answer |= {"content": 600_000_000, "cpu_ns": 50_000_000}
    (row,) = report.paced({"paced lz4": {"full 600 12": [answer]}})
    assert claims.share(row) == "5.0 %"


def test_result_page_and_chart_are_written(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, docs = folders_to_save_in(tmp_path, monkeypatch)
    measured = {key: value for key, value in result.items() if key != "svg"}
    pages.save("claims", measured | {"machine": result["machine"] | {"commit": "0123abc"}})
    text = (docs / "claims.md").read_text()
    assert "`0123abc`" in text
    assert "| Kafka, full iterator |" not in text  # it did not run
    assert "| batchval, claims path |" in text
    assert "target" not in text
    assert (docs / "claims.svg").read_text().count("<rect") == result["svg"].count("<rect")
    saved = json.loads((results / "claims.json").read_text())
    assert len(saved["paced"]) == len(result["paced"])


def test_pytest_groups_hold_the_four_ways_together(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "test_path and lz4-1-1000",
        f"--benchmark-json={out}",
        str(ROOT / "bench" / "validation"),
    )
    assert done.returncode == 0, done.stdout[-3000:]
    benches = json.loads(out.read_text())["benchmarks"]
    assert {bench["group"] for bench in benches} == {"paths, lz4, 1 × 1000 B"}
    ways = {bench["extra_info"]["way"]: bench for bench in benches}
    assert set(ways) == {
        "claims in a tag",
        "claims in a header",
        "shallow",
        "full uncompressed",
        "full of magic 1",
    }
    for bench in benches:
        assert bench["options"]["timer"] == "thread_time"
        assert bench["extra_info"]["allocator_bytes"] >= 0


@pytest.mark.jvm
def test_kafka_is_fed_the_same_stream(tmp_path: Path) -> None:
    try:
        jar = jmh.build_jar()
    except RuntimeError as error:
        if (
            type(error).__name__ != "OracleUnavailable"
        ):  # the module is loaded anew each time, and its classes with it
            raise
        pytest.skip(str(error))

    place = peers.Place(os.sched_getaffinity(0))
    kafka = jmh.Kafka(jmh.newest_java(), jar, tmp_path, place.prefix(), quick=True)
    path = streams.make(tmp_path, "lz4", 3, 48)
    size = sum(size for _, _, size in streams.read(path))
    for way in figures.KAFKA_WAYS:
        process = side_by_side.JavaPaced(kafka, way, place)
        answer = process.line(f"{path} 1e7 0.5")
        process.stop()
        assert answer.get("content", 0) > 0, answer
        assert answer["content"] * 48 == pytest.approx(answer["batches"] * size, rel=0.01)
        assert answer["seen"] != 0
