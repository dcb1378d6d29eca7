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
from bench import pages, runs
from bench.validation import (
    batches,
    cells,
    conversion,
    instructions,
    jmh,
    native,
    peer_rules,
    report,
    rule_costs,
    samples,
)
from bench.validation import run as run_bench
from tests.support.benches import ROOT, folders_to_save_in, run

BENCH = ROOT / "bench" / "validation"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the side-by-side bench once, tiny, without Kafka (JDK)."""
    out = tmp_path_factory.mktemp("bench") / "result"
    done = run(
        str(BENCH / "run.py"),
        *("--quick", "--samples", "1", "--only", "codec=lz4", "--out", str(out)),
        *("--peers", "native,packages,decompressors,aiokafka,kafka-python"),
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert out.with_suffix(".md").read_text() == done.stdout.removesuffix("\n")
    read: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    return read


def test_side_by_side_run_times_every_peer(result: dict[str, Any]) -> None:
    assert set(result["times"]) == {
        f"v{m}-lz4-{shape}" for m in (1, 2) for shape in ("1-100", "100-100", "100-1000")
    }
    peers = set(result["times"]["v2-lz4-100-1000"])
    assert {
        "native check",
        "native check_ranges",
        "packages check_ranges",
        "aiokafka records",
        "kafka-python records",
    } <= peers
    assert "native validate_messages" in result["times"]["v1-lz4-100-100"]
    for times in result["times"].values():
        for what, time in times.items():
            assert time["us"] > 0, what
    assert {row["group"] for row in result["rows"]} >= {
        "over the decompressor alone",
        "allocator calls a batch beyond the result",
    }


def test_no_allocator_call_beyond_the_result(result: dict[str, Any]) -> None:
    rows = [
        row for row in result["rows"] if row["group"] == "allocator calls a batch beyond the result"
    ]
    assert len(rows) == 4  # check and check_ranges, two cells
    for row in rows:
        assert row["value"] == 0, row["name"]


def test_compare_finds_what_got_worse(result: dict[str, Any], tmp_path: Path) -> None:
    baseline, new = tmp_path / "baseline.json", tmp_path / "new.json"
    baseline.write_text(json.dumps(result))
    new.write_text(json.dumps(result))
    same = run(str(BENCH / "compare.py"), "--baseline", str(baseline), "--new", str(new))
    assert same.returncode == 0, same.stdout + same.stderr
    (row,) = (row for row in result["rows"] if row["group"] == "over the decompressor alone")
    row["value"] *= 1.5
    new.write_text(json.dumps(result))
    worse = run(str(BENCH / "compare.py"), "--baseline", str(baseline), "--new", str(new))
    assert worse.returncode == 1
    assert "WORSE  over the decompressor alone: lz4 100 × 1000 B" in worse.stdout
    row["spread"] = 0.6  # as noisy as that: no regression
    new.write_text(json.dumps(result))
    assert (
        run(str(BENCH / "compare.py"), "--baseline", str(baseline), "--new", str(new)).returncode
        == 0
    )
    assert (
        run(
            str(BENCH / "compare.py"), "--baseline", str(tmp_path / "none"), "--new", str(new)
        ).returncode
        == 2
    )


@pytest.mark.slow  # 714 statements; make test has those of the next tests
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
    assert "714 passed" in done.stdout


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
    time = samples.of_samples(rounds, 100.0)
    assert (time.fast, time.by_round, time.all_slow) == (11, (11, 11, None), False)
    assert time.median == 12  # of all nine
    slow = samples.of_samples(answers([30, 30, 30], probe=150.0), 100.0)
    assert slow.all_slow
    assert slow.fast == pytest.approx(20)


def test_kafkas_best_iteration_is_held_against_our_median() -> None:
    measured = {
        "machine": {"best_probe_ns": 100.0},
        "allocations": {},
        "raw": {
            "v2-none-100-1000": {
                "kafka": [{"ns": [30, 25, 28], "bytes": 9000}, {"ns": [40, 26, 22]}],
                "native check_ranges": answers([10, 10, 10], [11, 11, 11]),
            },
            "v2-lz4-100-1000": {
                "native check_ranges": answers([10, 10, 10], [11, 11, 11]),
                "decompressors decompress": answers([8, 8, 8], [8, 8, 8]),
            },
            "v2-none-10-100": {
                "kafka": [{"ns": [9.5]}, {"ns": [11.5]}],
                "native check_ranges": answers([10, 10, 10], [10, 10, 10]),
            },
            "v2-none-10-1000": {
                "kafka": [{"ns": [7, 8]}],
                "native check_ranges": answers([10, 10, 10], [10, 10, 10]),
            },
        },
    }
    rows = {(row["group"], row["name"]): row for row in report.assess(measured)["rows"]}
    slow = rows["slow path vs Kafka, 100 × 1000 B", "none 100 × 1000 B"]
    assert slow["value"] == pytest.approx(22 / 10.5)
    assert (slow["target"], slow["verdict"]) == (2.0, "met")
    assert slow["spread"] > 0
    assert rows["over the decompressor alone", "lz4 100 × 1000 B"]["verdict"] == "missed"  # 1.3
    others = "vs Kafka, every other cell"
    assert rows[others, "none 10 × 100 B"]["verdict"] == "noise"
    assert rows[others, "none 10 × 1000 B"]["verdict"] == "missed"


def test_verdicts_follow_from_value_target_and_spread() -> None:
    verdict = runs.verdict
    assert verdict(2.0, 2.0, "higher", 0.0) == "met"
    assert verdict(1.9, 2.0, "higher", 0.0) == "missed"
    assert verdict(1.9, 2.0, "higher", 0.06) == "noise"
    assert verdict(1.9, 2.0, "higher", 0.05) == "missed"  # 5.3 % are lacking
    assert verdict(1.26, 1.25, "lower", 0.0) == "missed"
    assert verdict(1.26, 1.25, "lower", 0.01) == "noise"
    assert verdict(0.5, 0.0, "lower", 0.9) == "missed"  # allocator calls: nothing is near to none
    assert verdict(3.0, None, "lower", 0.0) == ""


def test_a_result_is_saved_and_its_page_written(
    result: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, docs = folders_to_save_in(tmp_path, monkeypatch)
    machine = result["machine"] | {"commit": "0123abc"}
    pages.save("validation", result | {"machine": machine})
    saved = json.loads((results / "validation.json").read_text())
    assert [row["name"] for row in saved["rows"]] == [row["name"] for row in result["rows"]]
    text = (docs / "validation.md").read_text()
    assert f"Measured on {machine['date'][:10]} at commit `0123abc`, on " in " ".join(text.split())
    assert "| lz4 100 × 1000 B |" in text
    assert "goal" not in text
    assert "`0123abc`" in (docs / "README.md").read_text()
    for commit in ("0123abc with changes", "?"):
        with pytest.raises(SystemExit, match="cannot save a result of commit"):
            pages.save("validation", result | {"machine": machine | {"commit": commit}})


def test_the_terminal_shows_goals_that_the_page_does_not(result: dict[str, Any]) -> None:
    text = report.markdown(result)
    assert text.startswith(report.page.body(result))
    rated = [row for row in result["rows"] if row["verdict"]]
    assert f" of {len(rated)} targets met." in text
    assert all(f"| {row['name']} | " in text for row in rated)


@pytest.mark.parametrize("words", [["--quick"], ["--only", "codec=lz4"]])
def test_only_a_whole_run_is_saved(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_bench.arguments(["--write", *words])
    assert "--write needs a whole run" in capsys.readouterr().err


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


def test_the_table_of_conversion_has_a_row_for_each_message_set() -> None:
    done = run(BENCH / "conversion.py", "--codecs", "lz4", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["batch"] for row in rows] == [
        f"v{m}-lz4-{shape}" for shape in ("100-1000", "3-100") for m in (0, 1)
    ]
    assert all(row["whole_us"] > 0 and row["codec_us"] > 0 for row in rows)
    assert all(
        row["ratio"] == pytest.approx(row["whole_us"] / row["codec_us"], rel=0.01) for row in rows
    )
    assert [row["target"] for row in rows] == ["1.6 x", "1.6 x", "", ""]
    assert [row["is_met"] is None for row in rows] == [False, False, True, True]


def test_conversion_without_a_codec_has_no_codec_alone() -> None:
    cell = cells.Cell(1, "none", 100, 1000)
    assert list(conversion.jobs(cell)) == ["whole"]
    slow, fast = (conversion.row_of(cell, {"whole": us}) for us in (100.1, 99.9))
    assert (slow.ratio, slow.target, slow.is_met, fast.is_met) == (None, "100 us", False, True)
    line = conversion.table([fast]).splitlines()[1]
    assert line.split()[2:] == ["99.90", "-", "-", "100", "us", "yes"]


def test_record_rules_allocate_nothing() -> None:
    done = run(str(BENCH / "rule_costs.py"), "--no-instructions", "--codecs", "none", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rules = ["schema id and sizes", "headers", "headers, schema id"]
    assert [(row["codec"], row["rules"]) for row in result["rows"]] == [
        ("none", name) for name in rules
    ]
    assert [row["allocator_calls"] for row in result["rows"]] == [0, 0, 0]
    assert {row["instructions"] for row in result["rows"]} == {None}
    claims = result["claims"]
    assert claims["claims_us"] > 0
    assert claims["is_met"] == (claims["records_us"] / claims["claims_us"] >= claims["least"])


def test_record_rules_are_held_against_check_without_them() -> None:
    costs = rule_costs
    rows = [costs.Row(codec, "headers", allocator_calls=0.0) for codec in ("none", "lz4", "zstd")]
    for row, executed in zip(rows, (1120, 1030, 1031), strict=True):
        costs.assess(row, 1000, executed)
    assert [(row.ratio, row.is_met) for row in rows] == [(1.12, True), (1.03, True), (1.031, False)]
    text = costs.tables(rows, costs.ClaimsRow(20_000, 50.0, 1.0, 50.0, is_met=True))
    *table, empty, claims = text.splitlines()
    assert table[3].split() == ["zstd", "headers", "1,000", "1,031", "1.031", "1.03", "no", "0.00"]
    assert empty == ""
    assert claims.endswith("ratio 50.0 (at least 30: yes)")


def test_rules_of_the_bench_refuse_other_records() -> None:
    rules = peer_rules
    for name, has_headers in (("check_headers", False), ("check_ids", True)):
        data = rules.batch("none", 3, 100, has_headers)
        if name == "check_ids":
            assert rules.ruled(name, data).facts == {"records": 3}
            data = batches.build(cells.Cell(2, "none", 10, 100))
        with pytest.raises(AssertionError, match="refused by"):
            rules.ruled(name, data)


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
    from batchval.core.validator import LogValidator

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
