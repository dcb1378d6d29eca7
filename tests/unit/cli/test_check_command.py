"""``batchval check`` as a person or a script meets it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.batches import NOW, ZSTD, batch, of_wrong_length, record, records

Run = Callable[..., tuple[int, str, str]]
SEGMENTS = Path(__file__).parents[3] / "fixtures" / "segments"
NAME = "00000000000000000000.log"
GOOD = batch(records(3), partition_leader_epoch=1)
BAD = GOOD[:-1] + b"\xff"


def write(folder: Path, *parts: bytes, name: str = NAME) -> Path:
    path = folder / name
    path.write_bytes(b"".join(parts))
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Write a good batch, one with a wrong checksum, and an incomplete one."""
    return write(
        tmp_path,
        GOOD,
        batch(records(3), base_offset=3, crc=1),
        batch(records(3), base_offset=6)[:40],
    )


def test_a_clean_segment(run: Run, tmp_path: Path) -> None:
    code, out, err = run("check", write(tmp_path, GOOD))
    assert (code, err) == (0, "")
    assert out == f"1 file, 1 batch, 3 records, {len(GOOD)} B (1 full): 0 findings\n"


def test_the_table(run: Run, mixed: Path) -> None:
    code, out, err = run("check", mixed)
    assert (code, err) == (1, "")
    head, *rows, hint, last = out.splitlines()
    assert hint == "batchval rule 14 explains the first finding"
    assert head.split() == ["file", "position", "offset", "rule", "reason"]
    assert [row.split()[:4] for row in rows] == [
        [str(mixed), str(len(GOOD)), "3", "14"],
        [str(mixed), str(2 * len(GOOD)), "L1", "partial-batch"],
    ]
    assert "stored crc = 1, computed" in rows[0]
    assert last.endswith(": 2 findings")


def test_json_lines(run: Run, mixed: Path) -> None:
    code, out, _ = run("check", "--json", mixed)
    *findings, summary = map(json.loads, out.splitlines())
    assert code == 1
    assert [list(finding) for finding in findings] == [
        [
            *("schema_version", "type", "file", "position", "offset", "rule", "slug"),
            *("error_code", "reason", "follows", "broker"),
        ]
    ] * 2
    assert [{k: v for k, v in f.items() if k != "reason"} for f in findings] == [
        {
            "schema_version": 1,
            "type": "finding",
            "file": str(mixed),
            "position": position,
            "offset": offset,
            "rule": rule,
            "slug": slug,
            "error_code": "CORRUPT_MESSAGE",
            "follows": 0,
            "broker": None,
        }
        for position, offset, rule, slug in (
            (len(GOOD), 3, "14", "crc-mismatch"),
            (2 * len(GOOD), None, "L1", "partial-batch"),
        )
    ]
    assert summary == {
        "schema_version": 1,
        "type": "summary",
        "kafka_version": "4.4.0",
        "files": 1,
        "batches": 2,
        "records": 3,
        "bytes": 2 * len(GOOD) + 40,
        "paths": {"full": 2},
        "claims": {},
        "findings": 2,
        "reports": 0,
        "notes": 0,
        "moved": 0,
        "unsettled": [],
        "unreadable": [],
    }


def test_more_findings_than_a_table_holds(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, *([BAD] * 250), GOOD)
    code, out, _ = run("check", path)
    assert code == 1
    assert "150 more places with the same cause" in out
    assert out.count("crc-mismatch") == 100
    _, out, _ = run("check", "--json", path)
    assert len(out.splitlines()) == 101


def test_real_segments(run: Run) -> None:
    code, out, _ = run("check", SEGMENTS)
    assert code == 0
    assert "live-preallocated-0" in out
    assert "24 files, 328 batches, 4,305 records" in out


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "rules"),
    [
        ([], 1, ["S5"]),
        (["--mode", "kafka"], 0, []),
        (["--extra", "S5=report"], 0, ["S5"]),
        (["--extra", "s5=report", "--extra", "S1=refuse"], 0, ["S5"]),
        (["--extra", "S5=refuse"], 1, ["S5"]),
        (["--as", "log"], 1, ["S5"]),
        (["--now", "0"], 1, ["36"]),
        (
            ["--now", "0", "--config", "message.timestamp.after.max.ms=9223372036854775807"],
            1,
            ["S5"],
        ),
        (["--config", "max.message.bytes=10"], 1, ["13"]),
        (["--config", "cleanup.policy=compact"], 1, ["35"]),
        (["--cleanup-policy", "compact"], 1, ["35"]),
        (["--max-decompressed-bytes", "1"], 1, ["S5"]),
    ],
)
def test_options(run: Run, tmp_path: Path, words: list[str], code: int, rules: list[str]) -> None:
    path = write(tmp_path, batch([record(0, attributes=1)]), name="one.bin")
    got, out, _ = run("check", "--json", "--now", NOW, *words, path)
    assert got == code
    assert [json.loads(line)["rule"] for line in out.splitlines()[:-1]] == rules


def test_decompression_is_limited(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, batch([record(0, value=bytes(5000))], codec=ZSTD))
    assert run("check", "--max-decompressed-bytes", 5100, path)[0] == 0
    code, out, _ = run("check", "--max-decompressed-bytes", 5000, path)
    assert code == 1
    assert "S8 decompressed-too-large" in out


@pytest.mark.parametrize(
    "words", [["--cleanup-policy", "compact"], ["--config", "cleanup.policy=compact"], []]
)
def test_cleanup_policy_of_segments(run: Run, tmp_path: Path, words: list[str]) -> None:
    path = write(tmp_path, GOOD, batch(records(3), base_offset=9, partition_leader_epoch=1))
    (tmp_path.parent / "cleaner-offset-checkpoint").write_text("0\n0\n")
    assert run("check", *words, path)[0] == (0 if words else 1)


WRONG = {
    "no path": ["check"],
    "unknown option": ["check", "--frobnicate", "x"],
    "unknown command": ["chek", "x"],
    "as": ["check", "--as", "lag", "x"],
    "mode": ["check", "--mode", "loose", "x"],
    "extra without setting": ["check", "--extra", "S1", "x"],
    "extra of another name": ["check", "--extra", "S99=report", "x"],
    "extra with another word": ["check", "--extra", "S1=ignore", "x"],
    "S8 reported": ["check", "--extra", "S8=report", "x"],
    "config without value": ["check", "--config", "max.message.bytes", "x"],
    "config unknown": ["check", "--config", "max.mesage.bytes=1", "x"],
    "config no number": ["check", "--config", "max.message.bytes=big", "x"],
    "config negative": ["check", "--config", "max.message.bytes=-1", "x"],
    "config word": ["check", "--config", "compression.type=brotli", "x"],
    "cleanup policy": ["check", "--cleanup-policy", "never", "x"],
    "now": ["check", "--now", "today", "x"],
    "limit": ["check", "--max-decompressed-bytes", "-1", "x"],
    "dump nothing": ["dump"],
    "dump offset": ["dump", "--offset", "-1", "a"],
    "dump limit": ["dump", "--limit", "0", "a"],
    "rule unknown": ["rule", "99"],
    "conformance nothing": ["conformance"],
    "group option": ["--frobnicate"],
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_usage_is_one_line_and_exit_2(run: Run, what: str) -> None:
    code, out, err = run(*WRONG[what])
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("batchval")


def test_an_unknown_configuration_key_is_named_with_the_nearest(run: Run, tmp_path: Path) -> None:
    """Check that Kafka's other keys have no effect, so that a whole topic configuration can be
    passed.
    """
    file = write(tmp_path, GOOD, name="a.bin")
    code, _, err = run("check", "--config", "max.mesage.bytes=1", file)
    assert code == 2
    assert (
        "--config: unknown topic configuration key: 'max.mesage.bytes' (nearest known key: max.message.bytes)"
        in err
    )
    others = ("retention.ms=-1", "message.format.version=3.0-IV1", "compression.gzip.level=9")
    assert run("check", *(word for other in others for word in ("--config", other)), file)[0] == 0


def test_now_beyond_64_bits_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    code, _, err = run("check", "--now", 2**70, write(tmp_path, GOOD, name="a.bin"))
    assert (code, len(err.splitlines())) == (2, 1)


# ---- files of other kinds ------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["check", "dump"])
@pytest.mark.parametrize("kind", ["missing", "pipe", "null", "loop", "under a file", "long name"])
def test_what_cannot_be_read_is_exit_3(run: Run, tmp_path: Path, command: str, kind: str) -> None:
    path: Path | str = tmp_path / NAME
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "null":
        path = "/dev/null"
    elif kind == "loop":
        Path(path).symlink_to(path)
    elif kind == "under a file":
        path = write(tmp_path, GOOD) / "x"
    elif kind == "long name":
        path = tmp_path / ("x" * 5000)
    code, _, err = run(command, path)
    assert code == 3
    assert len(err.splitlines()) == 1


def test_dump_of_a_folder(run: Run, tmp_path: Path) -> None:
    code, _, err = run("dump", tmp_path)
    assert (code, err) == (3, f"batchval dump: {tmp_path}: no segments in this folder\n")
    path = write(tmp_path, GOOD)
    code, out, _ = run("dump", tmp_path)
    assert (code, out) == run("dump", path)[:2]


def test_a_folder_that_cannot_be_made_is_exit_3(run: Run, tmp_path: Path) -> None:
    out = write(tmp_path, b"", name="file") / "out"
    code, _, err = run("check", "--salvage", out, SEGMENTS / "codec-zstd-0")
    assert (code, err) == (3, f"batchval check: {out}: cannot be written: Not a directory\n")


def test_a_full_disk_is_exit_3(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("batchval.segment.salvage.Salvage._write_segments", full)
    out = tmp_path / "out"
    code, _, err = run("check", "--salvage", out, SEGMENTS / "codec-zstd-0")
    line = f"{out / 'codec-zstd-0'}: cannot be written: No space left on device"
    assert (code, err) == (3, f"batchval check: {line}\n")
    assert not (out / "lost.jsonl").exists()


def test_without_permission(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, GOOD)

    def refused(name: object, *_: object) -> int:  # root would be let in
        raise PermissionError(errno.EACCES, "Permission denied", str(name))

    monkeypatch.setattr("batchval.segment.source.os.open", refused)
    code, _, err = run("check", path)
    assert (code, err) == (3, f"batchval check: {path}: Permission denied\n")


def test_a_folder_that_cannot_be_listed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t-0").mkdir()
    write(tmp_path, GOOD)
    listing = os.scandir

    def refused(name: str) -> object:
        if os.fspath(name).endswith("t-0"):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return listing(name)

    monkeypatch.setattr("os.scandir", refused)
    code, out, err = run("check", tmp_path)
    assert (code, err) == (3, f"batchval check: {tmp_path / 't-0'}: Permission denied\n")
    assert "1 batch" in out


@pytest.mark.parametrize("command", ["check", "dump"])
@pytest.mark.parametrize("name", ["junk.bin", NAME])
@pytest.mark.parametrize(
    "content",
    [
        b"\x7fELF" + os.urandom(5000),
        b"#!/bin/sh\necho hello\n",
        b"\xff" * 4096,
        b"\0" * 4096,
        b"\0",
        os.urandom(3),
    ],
    ids=["elf", "text", "ones", "zeros", "zero", "three"],
)
def test_binary_junk_is_a_finding(
    run: Run, tmp_path: Path, command: str, name: str, content: bytes
) -> None:
    code, out, err = run(command, write(tmp_path, content, name=name))
    preallocated = command == "check" and not content.strip(b"\0") and name.startswith("0")
    assert (code, err) == (0 if preallocated else 1, "")
    assert out


@pytest.mark.parametrize("command", ["check", "dump"])
def test_an_empty_file_is_clean(run: Run, tmp_path: Path, command: str) -> None:
    path = write(tmp_path)
    code, _, err = run(command, path)
    assert (code, err) == (0, f"batchval {command}: {path}: the file is empty\n")


# ---- several at once -----------------------------------------------------------------------------


def test_unreadable_counts_more_than_findings(run: Run, mixed: Path, tmp_path: Path) -> None:
    code, out, err = run("check", mixed, tmp_path / "none")
    assert code == 3
    assert "2 findings" in out
    assert err == f"batchval check: {tmp_path / 'none'}: No such file or directory\n"


def test_wrong_usage_counts_more_than_unreadable(run: Run, tmp_path: Path) -> None:
    assert run("check", "--extra", "S9", tmp_path / "none")[0] == 2


def test_an_error_of_our_own_counts_more(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of\nluck")

    monkeypatch.setattr("batchval.report.tables.findings_table", broken)
    code, _, err = run("check", mixed, tmp_path / "none")
    assert code == 4
    assert (
        err
        == "batchval check: internal error: RuntimeError: out of luck (BATCHVAL_TRACEBACK=1 shows where)\n"
    )


def test_interrupted_counts_most(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("batchval.report.tables.findings_table", interrupted)
    code, _, err = run("check", mixed, tmp_path / "none")
    assert code == 130
    assert err.strip() == "batchval check: interrupted"


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "[red]x[bold].log",
        "[b]\\[.log",
        "\x1b[31mred.log",
        "a\nb.log",
        "ü – 日本.log",
        b"\xff\xfe.log",
    ],
)
def test_any_file_name(run: Run, tmp_path: Path, name: str | bytes) -> None:
    path = Path(
        os.fsdecode(
            os.fsencode(tmp_path) + b"/" + (name if isinstance(name, bytes) else name.encode())
        )
    )
    path.write_bytes(GOOD[:50])
    code, out, _ = run("check", path)
    assert code == 1
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4
    code, out, _ = run("check", "--json", path)
    assert os.fsencode(json.loads(out.splitlines()[0])["file"]) == os.fsencode(path)
    assert run("dump", path)[0] == 1
    code, out, _ = run("dump", "--json", path)
    assert os.fsencode(json.loads(out.splitlines()[0])["file"]) == os.fsencode(path)


def test_the_version_of_kafka(run: Run, tmp_path: Path) -> None:
    """Check a record that is a day ahead, which brokers before 4.0 accept without a limit of the
    topic.
    """
    file = write(tmp_path, batch(records(1), base_timestamp=NOW + 86_400_000), name="batches.bin")
    words = ("check", "--now", NOW, file)
    assert run(*words, "--kafka-version", "3.9")[0] == 0
    for version in (("--kafka-version", "4.1"), ("--kafka-version", "4.4"), ()):
        code, out, _ = run(*words, *version)
        assert (code, "36 timestamp-out-of-range" in out) == (1, True)
    hour = ("--config", "message.timestamp.after.max.ms=3600000")
    assert run(*words, "--kafka-version", "3.9", *hour)[0] == 1


def test_a_release_of_kafka_is_named(run: Run, tmp_path: Path) -> None:
    """Name a minor, a newer release and an unknown one: what answers is said, once."""
    file = write(tmp_path, GOOD)
    said = {
        "4.2.1": ("4.2.1", ""),
        "4.3": ("4.3.1", "--kafka-version 4.3 means 4.3.1, its newest patch release"),
        "4.5": (
            "4.5.0",
            "warning: Kafka 4.5.0 is newer than this batchval, which answers as Kafka 4.4.0 does",
        ),
    }
    for asked, (name, text) in said.items():
        code, out, err = run("check", "--json", "--kafka-version", asked, file)
        assert (code, err) == (0, text and f"batchval check: {text}\n")
        assert json.loads(out)["kafka_version"] == name
    code, _, err = run("check", "--kafka-version", "2.7", file)
    assert code == 2
    assert "must be a release from 2.8.0 to 4.4.0" in err
    assert "(nearest: 2.8.0)" in err


def test_the_version_of_kafka_changes_the_rule_that_names_a_length(
    run: Run, tmp_path: Path
) -> None:
    data = of_wrong_length(ZSTD)
    file = write(tmp_path, data, name="batches.bin")
    for version, mode, code, rule in (
        ("3.9", "strict", 1, "S4"),
        ("3.9", "kafka", 0, ""),
        ("4.4", "strict", 1, "29"),
        ("4.4", "kafka", 1, "29"),
    ):
        found, out, _ = run(
            "check", "--json", "--now", NOW, "--mode", mode, "--kafka-version", version, file
        )
        rules = [
            line["rule"] for line in map(json.loads, out.splitlines()) if line["type"] == "finding"
        ]
        assert (found, rules) == (code, [rule] if rule else [])


# ---- files that are not segments ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("README.md", b"# batchval\n\nDecides whether a batch may enter a log.\n", "text"),
        ("notes.log", "ein paar Wörter, die kein Segment sind\n".encode(), "text"),
        (
            "00000000000000000000.index",
            bytes([0, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0, 99, 0, 0, 2, 0]),
            "an offset index of Kafka",
        ),
        ("00000000000000000000.timeindex", b"\0\0\1" * 40, "a time index of Kafka"),
        ("00000000000000000042.snapshot", b"\0\1\2\3" * 20, "a producer snapshot of Kafka"),
        ("leader-epoch-checkpoint", b"0\n1\n0 0\n", "a leader epoch checkpoint of Kafka"),
        ("a.gz", b"\x1f\x8b\x08" + bytes(range(100)), "gzip data"),
        ("a.parquet", b"PAR1" + bytes(range(100)), "a Parquet file"),
        ("a.jar", b"PK\x03\x04" + bytes(range(100)), "a ZIP or JAR file"),
        ("photo.log", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(range(100)), "a JPEG image"),
        ("a.tar", b"a.log" + bytes(600), "a tar archive"),
        ("a.json", "{}".encode("utf-16"), "text in UTF-16"),
    ],
)
@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_file_that_is_not_a_segment_is_named(
    run: Run, tmp_path: Path, command: str, name: str, content: bytes, kind: str
) -> None:
    code, out, err = run(command, write(tmp_path, content, name=name))
    assert (code, err) == (1, "")
    assert f"this is not a segment: the file holds no record batch; it looks like {kind}" in out
    if command == "check":
        code, _, err = run("claims", "verify", tmp_path / name)
        assert code == 3
        assert f"this is not a segment: the file holds no record batch; it looks like {kind}" in err


def test_unknown_bytes_are_damage(run: Run, tmp_path: Path) -> None:
    _, out, _ = run("check", write(tmp_path, b"\xff" * 100))
    assert "the size field is -1: expected 14 to 2147483635; no batch follows" in out
    assert "not a segment" not in out  # nothing shows what it is


def test_a_missing_file_prints_the_error_alone(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert run("check", path) == (3, "", f"batchval check: {path}: No such file or directory\n")
    code, out, _ = run("check", "--json", path)
    assert (code, json.loads(out)["unreadable"]) == (3, [f"{path}: No such file or directory"])


def test_the_first_finding_is_explained_by_a_command(run: Run, mixed: Path) -> None:
    _, out, _ = run("check", mixed)
    (hint,) = [line for line in out.splitlines() if line.startswith("batchval rule")]
    words = hint.removesuffix(" explains the first finding").split()
    assert run(*words[1:])[1].startswith("14 crc-mismatch")


RULES = '{"orders-*": {"schema_id": {"ids": [7]}}, "*": {"max_value_bytes": 3}}'


def test_record_rules_by_topic(run: Run, tmp_path: Path) -> None:
    with_id = [
        record(0, value=b"\0\0\0\0\x07long"),
        record(1, value=b"\0\0\0\0\x08"),
        record(2, value=b"v"),
    ]
    stored = batch(with_id, codec=ZSTD, partition_leader_epoch=1)
    for topic in ("orders-eu-0", "other-0"):
        (tmp_path / topic).mkdir()
        write(tmp_path / topic, stored)
    (rules := tmp_path / "rules.json").write_text(RULES, "utf-8")
    for value in (RULES, str(rules)):
        code, out, err = run("check", "--json", "--record-rules", value, tmp_path)
        assert (code, err) == (1, "")
        *findings, summary = map(json.loads, out.splitlines())
        assert [
            (Path(one["file"]).parent.name, one["rule"], one["reason"]) for one in findings
        ] == [
            (
                "orders-eu-0",
                "R1",
                "record 1: schema id 8 is not allowed; 2 records break record rules",
            ),
            (
                "other-0",
                "R3",
                "record 0: value of 9 bytes is longer than max_value_bytes;"
                " 2 records break record rules",
            ),
        ]
        assert summary["findings"] == 2
    assert run("check", tmp_path)[0] == 0
    # of a file without a topic: the rules of *
    request = tmp_path / "request.bin"
    request.write_bytes(stored)
    code, out, _ = run("check", "--record-rules", RULES, "--now", NOW, request)
    assert (code, "R3 record-value-too-large" in out) == (1, True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("missing.json", "--record-rules: cannot read missing.json: No such file"),
        ("{", "--record-rules: record rules are not JSON"),
        (
            '{"*": {"max_key": 1}}',
            "record rules of '*': unknown record rule 'max_key': allowed are schema_id",
        ),
        ('{"*": {}, "*": {}}', "record rules have the key '*' twice"),
        ('{"*": 5}', "record rules of '*': record rules must be a mapping, not 5"),
        ("empty", "--record-rules: empty: the file is empty"),
        ("a.log", "--record-rules: a.log: this is not JSON: it looks like a segment of Kafka"),
        ("a.yaml", "--record-rules: a.yaml: record rules are not JSON (line 1, column 1)"),
    ],
)
def test_wrong_record_rules(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (("empty", b""), ("a.log", GOOD), ("a.yaml", b"a: 1")):
        write(tmp_path, content, name=name)
    code, _, err = run("check", "--record-rules", value, write(tmp_path, GOOD))
    assert (code, message in " ".join(err.split())) == (2, True)
