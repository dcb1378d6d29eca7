"""Each bench runs once, tiny. No time is asserted: what is tested is that they measure what they
say.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as runner
from bench import runs
from bench.validation import batches, cells, compare, jmh, native, report
from tests.support.benches import ROOT, run


def measured_by(bench: str, out: Path, *words: str) -> dict[str, Any]:
    """Run a bench of peers in turns once, tiny, without Kafka, which needs a JDK."""
    tiny = ("--quick", "--samples", "1", "--only", "codec=lz4", "--out", str(out))
    done = run("-m", "bench", bench, *tiny, *words)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert out.with_suffix(".md").read_text() == done.stdout.removesuffix("\n")
    read: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    return read


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    peers = ("--peers", "native,packages,aiokafka,kafka-python")
    return measured_by("validation", tmp_path_factory.mktemp("bench") / "result", *peers)


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured_by("claims", tmp_path_factory.mktemp("claims") / "result", "--peers", "claims")


def test_a_run_times_every_peer(result: dict[str, Any], claims: dict[str, Any]) -> None:
    shapes = {f"v{m}-lz4-{shape}" for m in (1, 2) for shape in ("1-100", "100-100", "100-1000")}
    assert set(result["times"]) == set(claims["times"]) == shapes
    peers = {"native check", "native check_ranges", "packages check_ranges"}
    assert peers <= set(result["times"]["v2-lz4-100-1000"])
    assert {"aiokafka records", "kafka-python records"} <= set(result["times"]["v2-lz4-100-100"])
    assert "native validate_messages" in result["times"]["v1-lz4-100-100"]
    ways = {"claims", "claims_header", "claims_ranges", "claims_ranges_header", "check"}
    assert ways <= set(claims["times"]["v2-lz4-100-1000"])
    assert set(claims["times"]["v1-lz4-100-1000"]) == {"validate_messages"}
    for found in (result, claims):
        assert all(time["us"] > 0 for times in found["times"].values() for time in times.values())
        assert set(found["machine"]["missing"]) == set()


def test_no_allocator_call_beyond_the_result(
    result: dict[str, Any], claims: dict[str, Any]
) -> None:
    rows = [
        row
        for found in (result, claims)
        for row in found["rows"]
        if row["group"].endswith("allocator calls a batch beyond the result")
    ]
    assert len(rows) == 4 + 6  # check and check_ranges, two cells; three cells, two carriers
    assert [row["name"] for row in rows if row["value"] != 0] == []


def test_compare_finds_what_got_worse(tmp_path: Path) -> None:
    row = {"group": report.OTHERS, "name": "lz4 10 × 100 B", "value": 3.0, "spread": 0.02}
    machine = {"commit": "0123abc", "date": "2026-01-02"}
    baseline, new = tmp_path / "baseline.json", tmp_path / "new.json"
    baseline.write_text(json.dumps({"machine": machine, "rows": [row]}))

    def compared(**changed: Any) -> tuple[int, str]:
        new.write_text(json.dumps({"machine": machine, "rows": [row | changed]}))
        done = run("-m", "bench", "compare", "--baseline", str(baseline), "--new", str(new))
        return done.returncode, done.stdout + done.stderr

    assert compared()[0] == 0
    code, text = compared(value=2.0)
    assert code == 1
    assert f"WORSE  {report.OTHERS}: lz4 10 × 100 B: 3.000 -> 2.000 (+50%" in text
    assert compared(value=2.0, spread=0.6)[0] == 0  # as noisy as that: no regression
    assert compared(group="another")[0] == 2
    calls = {"group": report.CALLS, "name": "check", "value": 0}
    assert compare.loss(calls, calls | {"value": 1.0}) == 1.0
    assert compare.loss(calls | {"group": report.SMALL}, calls) is None


@pytest.mark.slow  # 654 statements; make test has those of the next tests
def test_pytest_groups_run_once(tmp_path: Path) -> None:
    done = run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "--benchmark-disable",
        "bench",
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "654 passed" in done.stdout


COUNTED = """
import json
from bench.validation import native, worker
jobs = ["bytearray(5000)", "[].append(1)", "mmap.mmap(-1, 8192).close()", "None"]
import mmap
count = native.allocation_counter()
print(json.dumps([count(worker.Job(job, {"mmap": mmap}), 20)["per_call"] for job in jobs]))
"""


def test_counting_sees_python_objects_and_c_calls() -> None:
    environment = native.counting_environment()
    done = run("-c", COUNTED, LD_PRELOAD=environment["LD_PRELOAD"], PYTHONMALLOC="malloc")
    assert done.returncode == 0, done.stderr
    array, appended, mapped, nothing = json.loads(done.stdout)
    assert array["bytes"] >= 5000
    assert array["free"] == 2  # the object, and its bytes
    assert array["malloc"] + array["calloc"] + array["realloc"] == 2
    assert appended["malloc"] + appended["realloc"] >= 1  # the list's room for one element
    assert mapped["mmap"] == mapped["munmap"] == 1
    assert sum(nothing.values()) == 0


def test_batches_are_the_same_each_time_and_valid() -> None:
    from batchval.core.batches.validator import LogValidator

    for cell in [*cells.legacy_cells(), *cells.cells(2)]:
        if cell.records > 100:
            continue
        data = batches.build(cell)
        assert data == batches.build(cell)
        validator = LogValidator()
        validate = (
            validator.check if cell.magic == 2 else validator.validate_messages_and_assign_offsets
        )
        options = {} if cell.magic == 2 else {"to_magic": cell.magic}
        answer = validate(data, now_ms=batches.FIRST_TIMESTAMP, **options)
        assert answer.ok, (cell.name, answer.rule)


@pytest.mark.jvm
def test_batches_are_those_of_kafkas_builder(tmp_path: Path) -> None:
    try:
        jar = jmh.build_jar()
    except RuntimeError as error:
        if (
            type(error).__name__ != "OracleUnavailable"
        ):  # the module is loaded anew each time, and its classes with it
            raise
        pytest.skip(str(error))
    folder = jmh.write_batches(jmh.newest_java(), jar, tmp_path)
    for cell in [*cells.cells(1), *cells.cells(2)]:
        theirs = cell.path(folder).read_bytes()
        ours = batches.build(cell)
        if cell.codec == "none":
            assert ours == theirs, cell.name
        else:  # other versions of the libraries choose other matches
            assert len(ours) == pytest.approx(len(theirs), rel=0.06), cell.name


def test_every_bench_is_run_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    for folder, module, _ in runner.BENCHES.values():
        source = (ROOT / "bench" / folder / f"{module}.py").read_text()
        assert "\ndef main(" in source
    assert runner.main([]) == 0
    assert set(runner.BENCHES) <= set(capsys.readouterr().out.split())
    assert runner.main(["valdation"]) == 2
    assert "unknown bench 'valdation': expected one of" in capsys.readouterr().err
    done = run("-m", "bench", "compare", "--baseline", "none.json")
    assert (done.returncode, "no baseline at none.json" in done.stderr) == (2, True)


PARTIAL = [
    "validation --quick",
    "validation --peers native",
    "claims --rounds 1",
    "proxy --kroxylicious a",
    "pipelining --link relay",
    "spark --large-mib 1",
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore what the runner and the modules of benches set."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


@pytest.mark.parametrize("words", PARTIAL)
def test_a_part_of_a_run_is_not_saved(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        runner.main([*words.split(), "--write"])
    assert ended.value.code == 2
    assert "--write needs " in capsys.readouterr().err


def answers(*rounds: list[float], probe: float = 100.0) -> list[dict[str, Any]]:
    return [{"ns": list(values), "probe": [probe] * len(values)} for values in rounds]


def test_slow_samples_do_not_count() -> None:
    rounds = answers([10, 11, 12], [10, 12, 11])
    rounds.append({"ns": [30.0, 31.0, 29.0], "probe": [150.0, 160.0, 121.0]})
    time = report.of_samples(rounds, 100.0)
    assert time is not None
    assert (time.fast, time.by_round, time.all_slow) == (11, (11, 11, None), False)
    assert time.median == 12  # of all nine
    slow = report.of_samples(answers([30, 30, 30], probe=150.0), 100.0)
    assert slow is not None
    assert slow.all_slow
    assert slow.fast == pytest.approx(20)
    assert report.of_samples([{"error": "no"}], 100.0) is None


def test_kafkas_best_iteration_is_compared_with_our_median() -> None:
    raw = {
        "v2-none-100-1000": {
            "kafka": [{"ns": [30, 25, 28], "bytes": 9000}, {"ns": [40, 26, 22]}],
            "native check_ranges": answers([10, 10, 10], [11, 11, 11]),
        },
    }
    reader = report.Reader(raw, 100.0, {})
    (row,) = report.validation_rows(reader)
    assert (row["group"], row["name"]) == (report.SLOW_PATH.format(100, 1000), "none 100 × 1000 B")
    assert row["value"] == pytest.approx(22 / 10.5)
    assert row["median_value"] == pytest.approx(27 / 10.5)
    assert row["spread"] > 0
    kafka = reader.times()["v2-none-100-1000"]["kafka"]
    assert kafka == {"us": 0.027, "best_us": 0.022, "bytes": None}


def test_ways_take_turns_and_the_order_alternates() -> None:
    order: list[str] = []

    def way(name: str) -> Callable[[], int]:
        return lambda: order.append(name) or len(order)

    found = runs.in_turns({name: way(name) for name in "ab"}, 2, warm_ups=1)
    assert "".join(order) == "ba" + "ab" + "ba"
    assert found == {"a": [3, 6], "b": [4, 5]}


def test_the_interval_is_that_of_a_median() -> None:
    # of 30 values the 10th and the 21st, of 20 the 6th and the 15th: P(X <= 9) is 0.021 of 30
    assert runs.interval([float(n) for n in range(30, 0, -1)]) == (10, 21)
    assert runs.interval([float(n) for n in range(1, 21)]) == (6, 15)
    assert runs.interval([2.0, 1.0, 3.0]) == (1, 3)
