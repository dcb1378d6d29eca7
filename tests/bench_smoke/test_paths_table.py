"""The table of all paths, tiny. No time is asserted: each row is there, or why it is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import oracle
from tests.support.benches import ROOT, run

PATHS = ROOT / "bench" / "claims" / "paths.py"
KAFKA_NAMES = ["shallow", "full", "rebuilt", "magic 0", "magic 1"]
NAMES = ["claims", *KAFKA_NAMES, "schema ids by claims", "schema ids by records"]


def measured(*options: str, **environment: str) -> dict[str, Any]:
    done = run(PATHS, "--json", *options, **environment)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_each_path_has_its_time_and_its_allocator_calls() -> None:
    result = measured("--no-kafka", "--codec", "zstd", "--records", "10", "--value-size", "100")
    rows = result["rows"]
    assert [row["path"] for row in rows] == NAMES
    assert {row["validator"] for row in rows} == {"batchval"}
    assert [row["batch"] for row in rows][2:5] == [
        "v2-none-10-100",
        "v2-zstd-10-100",
        "v0-lz4-10-100",
    ]
    assert all(row["ns"] > 0 for row in rows)
    calls = {row["path"]: row["allocator_calls"] for row in rows}
    assert [calls[path] for path in ("claims", "shallow", "full")] == [0, 0, 0]
    assert calls["rebuilt"] > 0
    assert all((row["allocated_bytes"] > 0) == (row["allocator_calls"] > 0) for row in rows)
    assert result["notes"] == ["magic 0 and 1 do not have zstd: their rows are of lz4"]


def test_the_table_without_kafkas_classes_says_why(tmp_path: Path) -> None:
    done = run(PATHS, "--records", "1", "--value-size", "100", BATCHVAL_ORACLE_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1 records of 100 B, lz4; ")
    assert lines[2].split() == [
        "path",
        "batch",
        "bytes",
        "ns",
        "allocator",
        "calls",
        "bytes",
        "allocated",
    ]
    assert [line.split("  ")[1].strip() for line in lines[3:11]] == NAMES
    assert [line for line in lines if line.startswith("Kafka's rows are missing: ")] != []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--codec", "none"], "invalid choice: 'none'"),
        (["--codecs", "lz4,zstd"], "unrecognized arguments: --codecs"),
        (["--records", "7"], "invalid choice: 7"),
        (["--seconds", "0"], "invalid --seconds 0: expected more than 0, at most 60"),
        (["--build", "--no-kafka"], "--build cannot be combined with --no-kafka"),
        (["lz4"], "unrecognized arguments: lz4"),
    ],
)
def test_wrong_options_are_named(options: list[str], complaint: str) -> None:
    done = run(PATHS, *options)
    assert done.returncode == 2
    assert complaint in done.stderr


@pytest.mark.jvm
@pytest.mark.alone  # the bench stops a JVM that takes longer than its limit
def test_kafkas_rows_are_of_the_same_batches() -> None:
    try:
        oracle.jar()
    except oracle.OracleUnavailable as error:
        pytest.skip(str(error))
    result = measured("--records", "1", "--value-size", "100", "--seconds", "0.5")
    assert result["notes"] == []
    own, kafka = (
        [row for row in result["rows"] if row["validator"] == name]
        for name in ("batchval", "Kafka")
    )
    assert [row["path"] for row in kafka] == KAFKA_NAMES
    assert [(row["batch"], row["batch_bytes"]) for row in kafka] == [
        (row["batch"], row["batch_bytes"]) for row in own[1:6]
    ]
    assert all(row["ns"] > 0 and row["allocated_bytes"] > 0 for row in kafka)
    assert {row["allocator_calls"] for row in kafka} == {None}
    assert result["machine"]["kafka"].startswith("4.4")
