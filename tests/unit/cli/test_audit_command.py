"""``batchval audit`` as a person or a script meets it; with local processes, or in this one."""

from __future__ import annotations

import errno
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.batches import ZSTD, batch, of_wrong_length, record, records

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]
NAME = "00000000000000000000.log"
GOOD = batch(records(3), partition_leader_epoch=1)
LOCAL = ("audit", "--engine", "local", "--processes", 1)


def write(folder: Path, *parts: bytes, name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(parts))
    return path


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """Write a good batch, one with a wrong checksum, an incomplete one, and a partition with
    missing offsets.
    """
    stump = batch(records(3), base_offset=6, partition_leader_epoch=1)[:40]
    write(tmp_path / "in" / "a-0", GOOD, batch(records(3), base_offset=3, crc=1), stump)
    (tmp_path / "in").joinpath("cleaner-offset-checkpoint").write_text("0\n0\n")
    write(tmp_path / "in" / "b-0", GOOD, batch(records(3), base_offset=7, partition_leader_epoch=1))
    return tmp_path / "in"


def test_a_clean_folder(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a-0", GOOD)
    code, out, err = run(*LOCAL, tmp_path)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("1 segment, 1 batch, 3 records")


def test_findings(run: Run, faulty: Path) -> None:
    code, out, err = run(*LOCAL, faulty)
    assert (code, err) == (1, "")
    head, *rows = out.splitlines()
    assert head.split() == ["file", "position", "offset", "rule", "reason"]
    assert [row.split()[1:5] for row in rows[:3]] == [
        [str(len(GOOD)), "3", "14", "crc-mismatch"],
        [str(2 * len(GOOD)), "L1", "partial-batch", "40"],
        [str(len(GOOD)), "7", "L3", "offset-gap"],
    ]
    assert ": 3 findings" in out.splitlines()[-1]


@pytest.mark.parametrize(("version", "rule"), [("3.9", "S4"), ("4.4", "29")])
def test_the_version_of_kafka(run: Run, tmp_path: Path, version: str, rule: str) -> None:
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(of_wrong_length(ZSTD))
    options = (
        "--engine",
        "local",
        "--processes",
        "1",
        "--deep",
        "--json",
        "--kafka-version",
        version,
    )
    code, out, _ = run("audit", *options, tmp_path)
    assert (code, json.loads(out.splitlines()[0])["rule"]) == (1, rule)


def test_json_is_what_check_says(run: Run, faulty: Path) -> None:
    code, out, _ = run(*LOCAL, "--json", faulty)
    *findings, summary = map(json.loads, out.splitlines())
    assert code == 1
    _, checked, _ = run("check", "--json", faulty)
    expected = [line for line in map(json.loads, checked.splitlines()) if line["type"] == "finding"]
    whose = ("topic", "partition", "segment", "state", "first_seen")
    assert [{k: v for k, v in line.items() if k not in whose} for line in findings] == expected
    assert [[line[name] for name in whose[:3]] for line in findings] == [
        ["a", 0, 0],
        ["a", 0, 0],
        ["b", 0, 0],
    ]
    assert summary["rules"] == {"14": 1, "L1": 1, "L3": 1}
    assert (summary["batches"], summary["findings"], summary["engine"]) == (4, 3, "local")


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        (("any",), 1),
        (("none",), 0),
        (("L3",), 1),
        (("l2", "offset-gap"), 1),
        (("L2,S1",), 0),
        (("crc-mismatch",), 1),
        (("nonsense",), 2),
        (("none", "L3"), 2),
    ],
)
def test_fail_on(run: Run, faulty: Path, rules: tuple[str, ...], code: int) -> None:
    words = [word for rule in rules for word in ("--fail-on", rule)]
    assert run(*LOCAL, *words, faulty)[0] == code


def test_outputs_and_what_is_made_of_them(run: Run, faulty: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "report.html"
    assert run(*LOCAL, "--out", out, "--report", page, "--split-bytes", 100, faulty)[0] == 1
    assert sorted(path.name for path in out.iterdir()) == [
        *("_SUCCESS", "_batchval_audit", "batches", "errors", "runs", "segments", "summary"),
        "transactions",
    ]
    assert pq.read_table(out / "errors").num_rows == 3
    assert "offset-gap" in page.read_text("utf-8")
    code, printed, _ = run("audit", "--compare", out, out)
    assert (code, "no difference" in printed) == (0, True)
    write(faulty / "b-0", GOOD)
    other = tmp_path / "other"
    assert run(*LOCAL, "--out", other, "--since", out, faulty)[0] == 1
    assert run(*LOCAL, "--out", other, faulty)[0] == 1
    assert run("audit", "--compare", out, other)[0] == 1
    assert run("audit", "--compare", out, other, "--fail-on", "none")[0] == 0
    code, printed, _ = run("audit", "--compare", out, other, "--json")
    assert json.loads(printed.splitlines()[-1])["differs"] is True


def test_since_says_what_was_left_out(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a-0", GOOD)
    assert run(*LOCAL, "--out", tmp_path / "a", tmp_path / "in")[0] == 0
    code, out, err = run(*LOCAL, "--since", tmp_path / "a", tmp_path / "in")
    assert (code, err) == (0, "")
    assert (
        out.splitlines()[-1] == "1 of 1 segments were not read: nothing was written to them since"
    )
    assert run(*LOCAL, "--since", tmp_path / "a", "--out", tmp_path / "b", tmp_path / "in")[0] == 0
    code, _, err = run("audit", "--compare", tmp_path / "a", tmp_path / "b")
    assert (code, err.splitlines()) == (1, [err.rstrip("\n")])
    assert err.startswith(
        f"batchval audit: {tmp_path / 'b'}: this audit was made with --since: it counts only"
    )


def test_wrong_usage(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a-0", GOOD)
    file = write(tmp_path, b"x", name="file")
    run(*LOCAL, "--out", tmp_path / "a", tmp_path / "in")
    cut_short = tmp_path / "b"
    run(*LOCAL, "--out", cut_short, tmp_path / "in")
    (cut_short / "_SUCCESS").unlink()
    for words, why in (
        ((), "expected one of PATH…"),
        ((tmp_path, "--compare", "a", "b"), "expected one of PATH…"),
        ((tmp_path / "in", "--out", file), "cannot be written"),
        (
            (tmp_path / "in", "--out", tmp_path / "a", "--since", tmp_path / "a"),
            "--since is in --out",
        ),
        (
            (tmp_path / "in", "--out", tmp_path / "a", "--since", tmp_path / "a" / "segments"),
            "--since is in --out",
        ),
        ((tmp_path / "in", "--since", tmp_path / "in"), "no segments/ of an audit"),
        ((tmp_path / "in", "--reread", "30d"), "--reread needs --since"),
        (
            (tmp_path / "in", "--since", tmp_path / "a", "--reread", "30"),
            "invalid duration '30': expected",
        ),
        (
            (tmp_path / "in", "--since", tmp_path / "a", "--reread", "0d"),
            "invalid duration '0d': expected",
        ),
        ((tmp_path / "in", "--split-bytes", "0"), "invalid size"),
        ((tmp_path / "in", "--split-bytes", "many"), "invalid size"),
        ((tmp_path / "in", "--split-bytes", "9" * 5000), "invalid size"),
        ((tmp_path / "in", "--conf", "x"), "KEY=VALUE"),
        (("gopher://host/x",), "gopher"),
        (
            ("--compare", tmp_path / "a", tmp_path / "a", "--report", tmp_path / "x.html"),
            "need PATH",
        ),
        ((tmp_path / "in", "--assume", "cores=32"), "--assume needs --plan"),
        (
            ("--compare", tmp_path / "a", tmp_path / "a", "--assume", "cores=32"),
            "--assume needs --plan",
        ),
        (("",), "a PATH is empty"),
        ((tmp_path / "in", "--out", ""), "a PATH is empty"),
        ((tmp_path / "in", "--since", ""), "a PATH is empty"),
        ((tmp_path / "in", "--topics", ","), "invalid --topics"),
        ((tmp_path / "in", "--master", "local[2]"), "--engine spark"),
        ((tmp_path / "in", "--engine", "spark", "--processes", "2"), "--engine local"),
        ((tmp_path / "in", "--since", cut_short), "is incomplete"),
        (("--compare", tmp_path / "a", cut_short), "is incomplete"),
        (("--compare", tmp_path / "in", tmp_path / "in"), "summary/"),
    ):
        code, out, err = run("audit", *(() if not words else ("--engine", "local")), *words)
        assert (code, out) == (2, ""), words
        assert why in err
        assert len(err.splitlines()) == 1


def test_what_cannot_be_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shut = write(tmp_path / "in" / "a-0", GOOD)
    write(tmp_path / "in" / "b-0", GOOD)
    (tmp_path / "empty").mkdir()
    opened = os.open

    def refused(name: object, *more: int) -> int:  # root would be let in
        if str(name) == str(shut):
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return opened(name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("batchval.segment.source.os.open", refused)
    code, out, err = run(
        *(*LOCAL, "--out", tmp_path / "out", "--split-bytes", 50),
        *(tmp_path / "in", tmp_path / "empty", tmp_path / "nowhere", tmp_path / "in" / "a-0"),
    )
    assert code == 3
    assert sorted(err.splitlines()) == [
        f"batchval audit: {tmp_path / 'empty'}: no segments in this folder",
        f"batchval audit: {shut}: Permission denied",
        f"batchval audit: {tmp_path / 'nowhere'}: No such file or directory",
    ]
    assert ": 0 findings, 3 not read" in out
    errors = pq.read_table(tmp_path / "out" / "errors").to_pylist()
    assert [row["rule"] for row in errors] == ["UNREADABLE"] * 3


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"#!/bin/sh\necho hello\n" * 9, bytes(range(256))]
)
def test_files_that_are_not_segments(run: Run, tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "a-0", content)
    code, _, err = run(*LOCAL, tmp_path)
    assert (code, err) == (1 if content.strip(b"\0") else 0, "")  # zeros: preallocated


def test_names_that_would_move_the_cursor(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a\x1b[31m\nb-0", GOOD[:-1])
    (tmp_path / "in" / "c\x1b-1" / NAME).mkdir(parents=True)
    code, out, err = run(*LOCAL, "--out", tmp_path / "out", tmp_path / "in")
    assert code in (1, 3)
    assert "\x1b" not in out + err


def test_a_topic_that_is_nowhere(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a-0", GOOD)
    write(tmp_path / "other" / "b-0", GOOD)
    assert run(*LOCAL, "--topics", "a,b*", tmp_path / "in", tmp_path / "other")[0] == 0
    code, out, err = run(*LOCAL, "--topics", "a,bb,c*", tmp_path / "in")
    assert (code, err) == (3, f"batchval audit: {tmp_path / 'in'}: topic not found: bb, c*\n")
    assert "1 batch, 3 records" in out


def test_a_report_that_cannot_be_written_takes_no_answer_away(run: Run, faulty: Path) -> None:
    code, out, err = run(*LOCAL, "--report", "/dev/full", faulty)
    assert (code, err) == (3, "batchval audit: --report /dev/full: No space left on device\n")
    assert "crc-mismatch" in out


@pytest.mark.parametrize("where", ["batch_files.BatchFiles.add", "outputs._finish"])
def test_a_full_disk_is_named(
    run: Run, faulty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"batchval.audit.{where}", full)
    code, _, err = run(*LOCAL, "--out", tmp_path / "out", faulty)
    line = f"batchval audit: {tmp_path / 'out'}: cannot be written: No space left on device\n"
    assert (code, err) == (3, line)
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_a_folder_that_cannot_be_made(run: Run, faulty: Path, tmp_path: Path) -> None:
    out = write(tmp_path, b"", name="file") / "out"
    code, _, err = run(*LOCAL, "--out", out, faulty)
    assert (code, err) == (3, f"batchval audit: {out}: cannot be written: Not a directory\n")


def test_more_that_cannot_be_read_than_a_screen_holds(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchval.cli.audit._SHOWN", 2)
    for n in range(5):
        (tmp_path / f"a-{n}" / NAME).mkdir(parents=True)
    code, _, err = run(*LOCAL, tmp_path)
    assert (code, len(err.splitlines())) == (3, 3)
    assert err.endswith("and 3 more could not be read (--json and errors/ have all)\n")
    assert len(json.loads(run(*LOCAL, "--json", tmp_path)[1].splitlines()[-1])["unreadable"]) == 5


def test_somebody_elses_files_stay(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a-0", GOOD)
    assert run(*LOCAL, "--out", tmp_path, tmp_path / "in")[0] == 0
    theirs = write(tmp_path / "segments" / "a-0", GOOD)
    code, _, err = run(*LOCAL, "--out", tmp_path, tmp_path / "in")
    assert (code, theirs.read_bytes()) == (2, GOOD)
    assert f"{theirs} would be removed" in err


def test_workers_that_end_again_and_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill whatever starts: the third time is the last, and the exit code does not blame the
    data.
    """
    for n in range(4):
        write(tmp_path / f"a-{n}", GOOD)

    def killed(*arguments: Any, **options: Any) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            *arguments, **options | {"initializer": os._exit, "initargs": (9,)}
        )

    monkeypatch.setattr("batchval.audit.local.ProcessPoolExecutor", killed)
    words = ("audit", "--engine", "local", "--processes", 2, "--split-bytes", 2 * len(GOOD))
    code, out, err = run(*words, tmp_path, tmp_path / "nowhere")
    lost = "batchval audit: a worker process was killed; what it was reading is read again"
    assert (code, out) == (4, "")
    first, second, last = err.splitlines()
    assert first == second == lost
    assert "were killed 3 times in a row while 4 tasks were left" in last


def test_a_plan(run: Run) -> None:
    code, out, err = run("audit", "--plan", "10GB/s", "--assume", "cores=32")
    assert (code, err) == (0, "")
    assert "32 cores" in out
    assert run("audit", "--plan", "fast")[0] == 2
    assert run("audit", "--plan", "1GB/s", "--assume", "colour=3")[0] == 2


def test_where_spark_cannot_be_had_processes_do_it(
    run: Run, faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = run("audit", faulty)
    assert code == 1
    assert out == run(*LOCAL, faulty)[1]
    assert len(err.splitlines()) == 1
    assert err.endswith("using --engine local\n")
    code, _, err = run("audit", "--master", "spark://host:7077", faulty)
    assert (code, len(err.splitlines())) == (2, 1)


# ---- processes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write data for some seconds of work of two processes."""
    folder = tmp_path_factory.mktemp("large")
    one = batch([record(i % 7, value=bytes(20)) for i in range(7)], base_offset=0)
    for n in range(4):
        write(folder / f"t-{n}", *(struct.pack(">q", 7 * i) + one[8:] for i in range(150_000)))
    return folder


def _below(process: int) -> list[int]:
    """Return every process below this one: workers are forked by their server."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_text()
            except OSError:
                continue
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _started(large: Path, *words: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a run with two workers, and return when both are at work."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "batchval",
            "audit",
            "--engine",
            "local",
            "--processes",
            "2",
            *words,
            str(large),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        workers = [one for one in _below(process.pid) if _has_open(one, ".log")]
        if len(workers) == 2:
            return process, workers
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"no workers: {process.communicate()}")


def _has_open(process: int, ending: str) -> bool:
    try:
        return any(
            os.readlink(f"/proc/{process}/fd/{fd}").endswith(ending)
            for fd in os.listdir(f"/proc/{process}/fd")
        )
    except OSError:
        return False


@pytest.mark.long
def test_processes_find_what_one_does(run_apart: Run, faulty: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    words = ("audit", "--engine", "local", "--split-bytes", 100, "--now", 1_795_212_000_000, faulty)
    a = run_apart(*words, "--processes", 1, "--out", one)
    b = run_apart(*words, "--processes", 2, "--out", two)
    assert a == b
    files = [
        sorted(str(f.relative_to(out)) for f in out.rglob("*") if f.is_file()) for out in (one, two)
    ]
    assert files[0] == files[1]
    same = [name for name in files[0] if not name.startswith("runs/")]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in same)


@pytest.mark.long
def test_a_killed_worker_is_one_line(large: Path) -> None:
    process, workers = _started(large, "--split-bytes", "4m", "--fail-on", "none")
    os.kill(workers[0], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert err == "batchval audit: a worker process was killed; what it was reading is read again\n"
    assert process.returncode == 0
    assert "4 segments, 600,000 batches, 4,200,000 records" in out


@pytest.mark.long
def test_an_interrupt_leaves_nothing_running(large: Path, tmp_path: Path) -> None:
    process, workers = _started(large, "--out", str(tmp_path / "out"))
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.strip()) == (130, "", "batchval audit: interrupted")
    until = time.monotonic() + 20
    while time.monotonic() < until and any(_has_open(one, "") for one in workers):
        time.sleep(0.05)
    assert not any(_has_open(one, "") for one in workers)
    assert [file.name for file in (tmp_path / "out").rglob(".*")] == []
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_findings_have_a_state(run: Run, faulty: Path, tmp_path: Path) -> None:
    """Check that the exit code is 1 while a finding is left, and that the runs state what became of
    them.
    """
    codes = []
    for name, since in (
        ("a", ()),
        ("b", ("--since", tmp_path / "a")),
        ("c", ("--since", tmp_path / "b")),
    ):
        if name == "c":
            write(faulty / "b-0", GOOD)
        code, out, _ = run(*LOCAL, *since, "--out", tmp_path / name, faulty, "--json")
        *findings, summary = map(json.loads, out.splitlines())
        codes.append((code, summary["new"], summary["open"], summary["gone"], summary["skipped"]))
        assert sum(one["state"] == "gone" for one in findings) == summary["gone"]
    assert codes == [(1, 3, 0, 0, 0), (1, 0, 3, 0, 2), (1, 0, 2, 1, 1)]
    rows = pq.read_table(tmp_path / "c" / "runs").to_pylist()
    assert [(row["findings"], row["gone"], row["exit_code"], row["engine"]) for row in rows] == [
        *((3, 0, 1, "local"), (3, 0, 1, "local"), (2, 1, 1, "local")),
    ]
    assert [row["since"] for row in rows] == [None, str(tmp_path / "a"), str(tmp_path / "b")]
    assert len({row["run_id"] for row in rows}) == 3
    _, out, _ = run(*LOCAL, "--since", tmp_path / "b", faulty)
    assert "offset-gap (gone)" in out
    assert "crc-mismatch (open)" in out
    assert "findings: 0 new, 2 open, 1 gone" in out.splitlines()


def test_record_rules_of_an_audit(run: Run, tmp_path: Path) -> None:
    """Check that rules need --deep, and that an audit with other rules does not continue this
    one.
    """
    stored = batch(records(3), codec=ZSTD, partition_leader_epoch=1)
    write(tmp_path / "in" / "orders-0", stored)
    write(tmp_path / "in" / "other-0", stored)
    rules = ("--record-rules", '{"orders": {"required_headers": ["trace"]}}')
    code, out, _ = run(
        *LOCAL, "--deep", *rules, "--out", tmp_path / "first", "--json", tmp_path / "in"
    )
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [
        (one["topic"], one["rule"], one["reason"]) for one in found if one["type"] == "finding"
    ] == [("orders", "R5", "record 0: a required header is missing; 3 records break record rules")]
    code, _, err = run(*LOCAL, *rules, tmp_path / "in")
    assert (code, "--record-rules needs PATH… and --deep" in " ".join(err.split())) == (2, True)
    again = ("--deep", "--since", tmp_path / "first", tmp_path / "in")
    assert run(*LOCAL, *rules, *again)[0] == 1
    code, _, err = run(*LOCAL, *again)
    assert (code, "other options" in " ".join(err.split())) == (2, True)
