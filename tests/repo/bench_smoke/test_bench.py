"""Each bench runs once, tiny. No time is asserted: what is tested is that they measure what they
say.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import __main__ as runner
from bench import pages
from bench.pages import claims as page
from bench.validation import batches, cells, compare, instructions, jmh, native, report
from bench.validation import run as run_bench
from tests.support.benches import ROOT, folders_to_save_in, run

BENCH = ROOT / "bench" / "validation"


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


def test_claims_are_compared_with_header_and_crc(claims: dict[str, Any]) -> None:
    groups = [row["group"] for row in claims["rows"] if "value" in row and "ours_ns" in row]
    assert [groups.count(group) for group in (page.MANY, page.ONE, page.OF_WALK)] == [3, 3, 3]


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


def measured(out: Path, wanted: str, *options: object) -> dict[str, Any]:
    """Measure the rows of these names. Return them by name."""
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-only", "-k", wanted)
    done = run(*words, *options, f"--benchmark-json={out}", "bench")
    assert done.returncode == 0, done.stdout[-3000:]
    return {row["name"]: row for row in json.loads(out.read_text())["benchmarks"]}


def test_pytest_rows_are_of_one_batch(tmp_path: Path) -> None:
    wanted = (
        "v2-zstd-1-100] and (check or records) and not readers or crc32c and 16 or v0-gzip-1-1000"
    )
    rows = measured(tmp_path / "out.json", wanted)
    group = [row for row in rows.values() if row["group"] == "CRC and all records, zstd, 1 × 100 B"]
    by_name = {(row["extra_info"]["peer"], row["extra_info"]["operation"]): row for row in group}
    clients = {(name, "records") for name in ("aiokafka", "kafka-python")}
    assert clients | {("batchval", "check"), ("batchval", "check_ranges")} <= set(by_name)
    ranges, one = (by_name["batchval", name] for name in ("check_ranges", "check"))
    assert ranges["extra_info"]["batches_a_call"] == 100
    assert ranges["options"]["timer"] == "thread_time"
    # a hundred batches take about thirty times as long as one
    assert ranges["stats"]["median"] < 10 * one["stats"]["median"]
    assert ranges["extra_info"]["allocator_calls"] < 1
    assert ranges["extra_info"]["allocator_bytes"] > 32  # the columns of a row
    checksums = [row for row in rows.values() if row["group"] == "CRC-32C, 16 kB"]
    assert {row["extra_info"]["peer"] for row in checksums} == {
        "batchval",
        "crc32c",
        "google-crc32c",
    }
    assert "CRC and all records, magic 0, gzip, 1 × 1000 B" in {
        row["group"] for row in rows.values()
    }


def test_pytest_groups_hold_the_four_ways_together(tmp_path: Path) -> None:
    rows = measured(tmp_path / "out.json", "test_path and lz4-1-1000").values()
    assert {row["group"] for row in rows} == {"paths, lz4, 1 × 1000 B"}
    ways = {row["extra_info"]["way"] for row in rows}
    claims = {"claims in a tag", "claims in a header"}
    assert ways == claims | {"shallow", "full uncompressed", "full of magic 1"}
    assert all(row["options"]["timer"] == "thread_time" for row in rows)
    assert all(row["extra_info"]["allocator_bytes"] >= 0 for row in rows)


def test_pytest_histograms_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("pygal", reason="pygal is not installed")  # in requirements/dev.txt
    rows = measured(tmp_path / "out.json", "crc32c", f"--benchmark-histogram={tmp_path / 'chart'}")
    charts = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    assert sorted(charts) == ["chart-CRC-32C,_16_kB.svg", "chart-CRC-32C,_1_MiB.svg"]
    for name in rows:
        assert any(name in chart for chart in charts.values())


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


def test_a_result_is_saved_and_its_page_written(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, docs = folders_to_save_in(tmp_path, monkeypatch)
    machine = result["machine"] | {"commit": "0123abc"}
    pages.save("validation", result | {"machine": machine})
    saved = json.loads((results / "validation.json").read_text())
    assert saved["rows"] == result["rows"]
    text = (docs / "validation.md").read_text()
    assert f"Measured on {machine['date'][:10]} at commit `0123abc`, on " in " ".join(text.split())
    assert "at most 0 (4 cells)" in text
    assert "| lz4 100 × 1000 B |" in (docs / "libraries.md").read_text()
    assert "`0123abc`" in (docs / "README.md").read_text()
    for commit in ("0123abc with changes", "?"):
        with pytest.raises(SystemExit, match="cannot save a result of commit"):
            pages.save("validation", result | {"machine": machine | {"commit": commit}})


def test_a_result_without_a_peer_is_not_saved() -> None:
    run_module = run_bench
    missing = {"kafka": "no JDK found", "franz-go": "no go"}
    bench = SimpleNamespace(options=SimpleNamespace(write=True), missing=missing)
    with pytest.raises(SystemExit, match="every peer; not here: kafka, franz-go"):
        run_module.check_whole(bench)
    bench.options.write = False
    run_module.check_whole(bench)
    bench.options.write, bench.missing = True, {}
    run_module.check_whole(bench)


ANNOTATED = """
4,000 (100.0%)  PROGRAM TOTALS
 4,000 (100.0%)  ceval.c:_PyEval_EvalFrameDefault [/usr/bin/python]
 3,680 (32.2%)  ???:__pyx_f_8batchval_4core_7records_walk_plain_buffer [/x/records.so]
   320 ( 2.8%)  crc_kernels.c:by_sse42'2 [/x/crc32c.so]
"""


def test_instructions_are_read_from_callgrinds_table() -> None:
    counts = instructions.functions(ANNOTATED, 4000)
    assert counts == {"records_walk_plain_buffer": 3680, "by_sse42": 320}


def test_instructions_name_what_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="must be a source tree with built extensions"):
        instructions.entry(tmp_path, "check")
    assert {
        instructions.entry(instructions.runs.ROOT, name)[:9] for name in instructions.ENTRIES
    } == {"__pyx_pw_"}


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
