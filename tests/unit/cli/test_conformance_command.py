"""``batchval conformance``: what it takes for a case, and how it says what it found."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import GZIP, NOW, batch, of_wrong_length, records

Run = Callable[..., tuple[int, str, str]]
DATA = batch(records(2))
OUT = b"\0\0\0\0\0\0\0\x64" + DATA[8:12] + b"\0\0\0\7" + DATA[16:]
OK: dict[str, Any] = {"ok": True}
CASE: dict[str, Any] = {
    "id": "one",
    "cfg": {"now": NOW, "first_offset": 100, "leader_epoch": 7},
    "batch_hex": DATA.hex(),
    "expect": {
        "request": OK,
        "analyze": OK,
        "validate": OK
        | {
            "next_offset": 102,
            "max_timestamp": NOW,
            "size_maybe_changed": False,
            "in_place": True,
            "converted": 0,
            "out_sha256": hashlib.sha256(OUT).hexdigest(),
        },
    },
}


def case(**changes: Any) -> dict[str, Any]:
    """Return CASE with changed dotted names; None removes a name."""
    copy: dict[str, Any] = json.loads(json.dumps(CASE))
    for name, value in changes.items():
        at = copy
        *path, last = name.split("__")
        for step in path:
            at = at.setdefault(step, {})
        if value is None:
            del at[last]
        else:
            at[last] = value
    return copy


def write(folder: Path, *lines: object, name: str = "cases.jsonl") -> Path:
    path = folder / name
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["cases.jsonl", "cases.jsonl.gz"])
def test_agreement(run: Run, tmp_path: Path, name: str) -> None:
    code, out, err = run("conformance", write(tmp_path, CASE, "", "  ", case(id="two"), name=name))
    assert (code, out, err) == (0, "conformance: 2 of 2 agree\n", "")


DIFFERENT = {
    "request": ({"expect__request": {"ok": False, "code": 87}}, "request: code expected 87, got 0"),
    "analyze": ({"expect__analyze": {"ok": False, "code": 2}}, "analyze: code expected 2, got 0"),
    "validate": (
        {"expect__validate": {"ok": False, "code": -1}},
        "validate: code expected -1, got 0",
    ),
    "skipped": (
        {"expect__validate": {"skipped": True}},
        "validate: skipped expected True, got False",
    ),
    "next_offset": (
        {"expect__validate__next_offset": 103},
        "validate: next_offset expected 103, got 102",
    ),
    "max_timestamp": (
        {"expect__validate__max_timestamp": 5},
        f"validate: max_timestamp expected 5, got {NOW}",
    ),
    "in_place": (
        {"expect__validate__in_place": False},
        "validate: in_place expected False, got True",
    ),
    "converted": ({"expect__validate__converted": 2}, "validate: converted expected 2, got 0"),
    "bytes": ({"expect__validate__out_sha256": "00"}, "validate: out_sha256 expected '00', got '"),
    "no bytes": (
        {"expect__validate__out_sha256": None},
        "validate: out_sha256 expected None, got '",
    ),
    "strict": (
        {"expect_strict": {"ok": False, "rule": "S1"}},
        "strict: ok expected False, got True",
    ),
    "another batch": ({"batch_hex": DATA[:-1].hex() + "01"}, "request: "),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_disagreement(run: Run, tmp_path: Path, what: str) -> None:
    changes, line = DIFFERENT[what]
    path = write(tmp_path, CASE, case(**changes))
    code, out, err = run("conformance", path)
    first, *_, last = out.splitlines()
    if what == "another batch":  # its checksum is wrong now
        assert first == "one analyze: code expected 0, got 2"
    else:
        assert first.startswith(f"one {line}")
    assert (code, last, err) == (1, "conformance: 1 of 2 agree", "")


def test_record_errors_are_compared(run: Run, tmp_path: Path) -> None:
    refused = {"ok": False, "code": 32, "record_errors": [0, 1]}
    assert run("conformance", write(tmp_path, case(cfg__now=0, expect__validate=refused)))[0] == 0
    refused["record_errors"] = [0]
    code, out, _ = run("conformance", write(tmp_path, case(cfg__now=0, expect__validate=refused)))
    assert code == 1
    assert out.startswith("one validate: record_errors expected [0], got [0, 1]\n")


def test_strict_expectations(run: Run, tmp_path: Path) -> None:
    odd = batch(records(2), attributes=0x80)
    base = case(batch_hex=odd.hex(), expect__validate=None)
    refused = base | {"expect_strict": {"ok": False, "code": 87, "rule": "S1", "reports": []}}
    reported = base | {"expect_strict": {"ok": True, "code": 0, "rule": None, "reports": ["S1"]}}
    reported["cfg"] = base["cfg"] | {"extras": {"S1": "report"}}
    assert run("conformance", write(tmp_path, refused, reported))[:2] == (
        0,
        "conformance: 2 of 2 agree\n",
    )
    reported["cfg"] = base["cfg"]
    assert run("conformance", write(tmp_path, refused, reported))[0] == 1


def test_json(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, CASE, case(id="two", expect__validate__next_offset=5), "junk")
    code, out, err = run("conformance", "--json", path)
    assert code == 3
    assert [json.loads(line) for line in out.splitlines()] == [
        {
            "schema_version": 1,
            "type": "disagreement",
            "case_id": "two",
            "stage": "validate",
            "what": "next_offset",
            "expected": 5,
            "got": 102,
        },
        {"schema_version": 1, "type": "summary", "agree": 1, "total": 2, "unreadable": 1},
    ]
    assert err.splitlines()[-1] == "conformance: 1 of 2 agree"


NO_CASES: dict[str, Any] = {
    "junk": "junk",
    "half": json.dumps(CASE)[:-20],
    "list": [CASE],
    "number": 5,
    "null": "null",
    "deep": "[" * 100_000,
    "not utf-8": "\udcff",
    "nan": case(cfg__now=float("nan")),
    "no batch": case(batch_hex=None),
    "half a byte": case(batch_hex="0"),
    "no hex": case(batch_hex="zz"),
    "batch is a list": case(batch_hex=[1]),
    "no expect": case(expect=None),
    "no stage": case(expect={}),
    "stage is a word": case(expect__request="ok"),
    "expect is a list": case(expect=[]),
    "cfg is a list": case(cfg=[]),
    "now is a word": case(cfg__now="soon"),
    "now is true": case(cfg__now=True),
    "now is too large": case(cfg__now=2**63),
    "epoch is too large": case(cfg__leader_epoch=2**31),
    "magic 3": case(cfg__to_magic=3),
    "origin": case(cfg__origin="NOBODY"),
    "source": case(cfg__source="brotli"),
    "target": case(cfg__target="none"),
    "ts_type": case(cfg__ts_type="Never"),
    "compact is a number": case(cfg__compact=1),
    "negative limit": case(cfg__max_message_bytes=-1),
    "extras": case(cfg__extras={"S99": "report"}),
    "profile": case(profile="fetch"),
    "strict is a word": case(expect_strict="ok"),
}


@pytest.mark.parametrize("what", NO_CASES)
def test_a_line_that_is_not_a_case(run: Run, tmp_path: Path, what: str) -> None:
    line = NO_CASES[what]
    path = tmp_path / "cases.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_bytes(
        b"%s\n%s\n%s\n"
        % (
            json.dumps(CASE).encode(),
            text.encode("utf-8", "surrogateescape"),
            json.dumps(CASE).encode(),
        )
    )
    code, out, err = run("conformance", path)
    assert code == 3
    assert out.splitlines()[-1] == "conformance: 2 of 2 agree"
    assert len(err.splitlines()) == 1
    assert err.startswith(f"batchval conformance: {path}:2: ")
    assert len(err) < 500


def test_many_bad_lines_are_counted_not_listed(run: Run, tmp_path: Path) -> None:
    code, out, err = run("conformance", write(tmp_path, CASE, *["junk"] * 500))
    assert (code, out) == (3, "conformance: 1 of 1 agree\n")
    assert err.splitlines()[-1] == "batchval conformance: … and 480 more"
    assert len(err.splitlines()) == 21


def test_a_file_of_something_else_has_one_line(run: Run, tmp_path: Path) -> None:
    texts = write(tmp_path, *["# a text"] * 30)
    other = write(tmp_path, *[{"schema": 1, "batch": ""}] * 30, name="other.jsonl")
    code, out, err = run("conformance", texts, other)
    assert (code, out) == (3, "conformance: 0 of 0 agree\n")
    assert err.splitlines() == [
        f"batchval conformance: {texts}:1: not a case: not JSON (column 1)",
        f"batchval conformance: {other}: these are cases of batchval-fixtures: use --exec CMD",
    ]
    code, _, err = run("conformance", "--exec", "true", write(tmp_path, CASE))
    assert (code, "this is a case for batchval itself: leave out --exec" in err) == (3, True)


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "empty folder", "pipe", "null", "cut off", "no gzip", "damaged"]
)
def test_no_input_is_a_failure(run: Run, tmp_path: Path, kind: str) -> None:
    path = tmp_path / (
        "cases.jsonl.gz" if kind in ("cut off", "no gzip", "damaged") else "cases.jsonl"
    )
    packed = gzip.compress(b" " * 2000)
    content = {
        "empty": b"",
        "cut off": packed[:-20],
        "no gzip": b"{}",
        "damaged": packed[:15] + b"\xff" + packed[16:],
    }
    if kind in content:
        path.write_bytes(content[kind])
    elif kind == "empty folder":
        path = tmp_path
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "null":
        path = Path("/dev/null")
    code, out, err = run("conformance", path)
    assert (code, out) == (3, "conformance: 0 of 0 agree\n")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n", ":1: not a case: not JSON (column 1)"),
        ("{}{", ":1: not a case: more than one document (column 3)"),
        ('{"batch_hex": "0g"}', ":1: not a case: batch_hex is not hexadecimal"),
        ("PAR1", ": this is not JSON: it looks like a Parquet file"),
        ("\0\1\n\n", ": this is not JSON: the file is not text in UTF-8"),
        ("", ": the file is empty"),
    ],
)
@pytest.mark.parametrize("runner", [(), ("--exec", "true")])
def test_a_foreign_file_is_named(
    run: Run, tmp_path: Path, text: str, reason: str, runner: tuple[str, ...]
) -> None:
    path = write(tmp_path, text)
    code, _, err = run("conformance", *runner, path)
    if not (runner and "batch_hex" in text):
        assert (code, err) == (3, f"batchval conformance: {path}{reason}\n")


def test_folders_are_read_in_the_order_of_names(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    write(tmp_path / "b", case(id="second", expect__request={"ok": False, "code": 1}))
    write(tmp_path, case(id="first", expect__request={"ok": False, "code": 1}), name="a.jsonl.gz")
    write(tmp_path, "junk", name="notes.txt")
    code, out, err = run("conformance", tmp_path)
    assert (code, err) == (1, "")
    starts = [line.split()[0] for line in out.splitlines()]
    assert list(dict.fromkeys(starts)) == ["first", "second", "conformance:"]


def test_an_unreadable_file_does_not_hide_the_others(run: Run, tmp_path: Path) -> None:
    code, out, err = run("conformance", tmp_path / "none.jsonl", write(tmp_path, CASE))
    assert (code, out) == (3, "conformance: 1 of 1 agree\n")
    assert err == f"batchval conformance: {tmp_path / 'none.jsonl'}: No such file or directory\n"


def test_a_case_is_compared_with_the_version_that_it_names(run: Run, tmp_path: Path) -> None:
    """Check a wrong record length, which Kafka before 4.4 accepts."""
    data = of_wrong_length(GZIP)
    refused = {"error": "InvalidRecordException", "code": 87}
    one = case(batch_hex=data.hex(), kafka_version="4.4", expect__validate=refused)
    path = write(
        tmp_path,
        one,
        one | {"id": "two", "kafka_version": "3.9"},
        one | {"id": "three", "kafka_version": "4.1"},
    )
    code, out, _ = run("conformance", path)
    assert code == 1
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "two validate",
        "three validate",
        "conformance",
    ]
    del one["kafka_version"]
    path = write(tmp_path, one)
    assert [run("conformance", path, *more)[0] for more in ((), ("--kafka-version", "4.1"))] == [
        0,
        1,
    ]


@pytest.mark.parametrize("version", ["2.7", 3.9, None])
def test_a_case_of_an_unknown_version_is_none(run: Run, tmp_path: Path, version: object) -> None:
    path = write(tmp_path, CASE | {"kafka_version": version})
    code, _, err = run("conformance", path)
    assert code == 3
    assert "kafka_version must be" in err
