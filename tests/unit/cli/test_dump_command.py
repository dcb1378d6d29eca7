"""``batchval dump``: the base row of every batch, and its records."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import (
    CODECS,
    GZIP,
    NOW,
    batch,
    fields,
    message,
    record,
    records,
    wrapper,
)

Run = Callable[..., tuple[int, str, str]]

BASE_ROW = [
    "schema_version",
    "type",
    "file",
    "position",
    "size_in_bytes",
    "magic",
    "base_offset",
    "last_offset",
    "records_count",
    "partition_leader_epoch",
    "compression_type",
    "timestamp_type",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
    "is_transactional",
    "is_control_batch",
    "delete_horizon_ms",
    "attributes",
    "last_offset_delta",
    "crc",
    "is_valid",
]


def dump(
    run: Run, folder: Path, *parts: bytes, words: tuple[str, ...] = ("--records",)
) -> tuple[int, list[dict[str, Any]]]:
    path = folder / "a.bin"
    path.write_bytes(b"".join(parts))
    code, out, err = run("dump", "--json", *words, path)
    assert err == ""
    return code, [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("codec", CODECS)
def test_the_row_schema(run: Run, tmp_path: Path, codec: str) -> None:
    data = batch(
        records(3),
        codec=CODECS[codec],
        base_offset=70,
        partition_leader_epoch=5,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        attributes=0x10,
    )
    code, (row,) = dump(run, tmp_path, data, words=())
    assert code == 0
    assert list(row) == BASE_ROW
    header = fields(data)
    for name in header.keys() - {"batch_length"}:
        assert row[name] == header[name]
    assert row["schema_version"] == 1
    assert row["size_in_bytes"] == len(data)
    assert row["last_offset"] == 72
    assert row["last_sequence"] == 0  # sequences wrap
    assert row["compression_type"] == codec
    assert row["timestamp_type"] == "CreateTime"
    assert (row["is_transactional"], row["is_control_batch"], row["is_valid"]) == (
        True,
        False,
        True,
    )
    assert row["delete_horizon_ms"] is None


def test_records(run: Run, tmp_path: Path) -> None:
    parts = [
        record(
            0, key=b"k", value="ü".encode(), headers=[(b"h", b"v"), (b"n", None)], timestamp_delta=5
        ),
        record(1, key=None, value=None),
        record(2, key=b"", value=b"\xff\x00"),
    ]
    code, (row,) = dump(
        run,
        tmp_path,
        batch(parts, base_offset=10, producer_id=1, producer_epoch=0, base_sequence=4),
    )
    assert code == 0
    one, two, three = row["records"]
    assert one == {
        "offset": 10,
        "timestamp": NOW + 5,
        "sequence": 4,
        "key_size": 1,
        "value_size": 2,
        "key": "k",
        "value": "ü",
        "headers": [["h", "v"], ["n", None]],
    }
    assert (two["key"], two["value"], two["key_size"], two["value_size"], two["sequence"]) == (
        None,
        None,
        -1,
        -1,
        5,
    )
    assert (three["key"], three["value"]) == (
        "",
        {"base64": base64.b64encode(b"\xff\x00").decode()},
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (
            struct.pack(">hh", 0, 1),
            struct.pack(">hi", 0, 17),
            {"control_type": "COMMIT", "coordinator_epoch": 17},
        ),
        (
            struct.pack(">hh", 0, 0),
            struct.pack(">hi", 0, 3),
            {"control_type": "ABORT", "coordinator_epoch": 3},
        ),
        (struct.pack(">hh", 0, 0), b"\0", {"control_type": "ABORT", "coordinator_epoch": None}),
        (struct.pack(">hh", 0, 0), None, {"control_type": "ABORT", "coordinator_epoch": None}),
        (struct.pack(">hh", 0, 2), b"x", {"control_type": "LEADER_CHANGE"}),
        (struct.pack(">hh", 0, 99), b"x", {"control_type": 99}),
        (b"\0\0", b"x", {"control_type": None}),
        (None, b"x", {}),
    ],
)
def test_control_records(
    run: Run, tmp_path: Path, key: bytes | None, value: bytes | None, expected: dict[str, Any]
) -> None:
    code, (row,) = dump(run, tmp_path, batch([record(0, key=key, value=value)], attributes=0x20))
    assert code == 0
    got = row["records"][0]
    assert {
        name: got[name] for name in got if name in ("control_type", "coordinator_epoch")
    } == expected


def test_magic_0_and_1(run: Run, tmp_path: Path) -> None:
    inner = [message(1, offset=i, key=b"k%d" % i) for i in range(3)]
    code, rows = dump(
        run, tmp_path, message(0, offset=7, value=None), wrapper(inner, GZIP, offset=12)
    )
    assert code == 0
    assert [row["magic"] for row in rows] == [0, 1]
    assert rows[0]["timestamp_type"] == "NoTimestampType"
    assert rows[0]["records"][0]["value"] is None
    assert [r["offset"] for r in rows[1]["records"]] == [10, 11, 12]
    assert [r["key"] for r in rows[1]["records"]] == ["k0", "k1", "k2"]


def test_damage_shows_and_reading_goes_on(run: Run, tmp_path: Path) -> None:
    good = batch(records(2))
    code, rows = dump(run, tmp_path, good, b"\xff" * 20, good, good[:30])
    assert code == 1
    assert [row.get("damage") for row in rows] == [None, "size", None, "partial"]
    assert [row["position"] for row in rows] == [0, len(good), len(good) + 20, 2 * len(good) + 20]


def test_records_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    code, rows = dump(
        run,
        tmp_path,
        batch(records(2), attributes=GZIP),
        batch(records(2), records_count=3),
        batch(),
    )
    assert code == 1
    assert [row["records"] is None for row in rows] == [True, True, False]
    assert "gzip" in rows[0]["records_error"]
    # nobody asked for them
    assert dump(run, tmp_path, batch(records(2), attributes=GZIP), words=())[0] == 0


def test_a_wrong_checksum_is_exit_1(run: Run, tmp_path: Path) -> None:
    code, rows = dump(run, tmp_path, batch(crc=5), batch())
    assert code == 1
    assert [row["is_valid"] for row in rows] == [False, True]


def test_text(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(
        batch([record(0, key=b"\x1b[31m", value=b"two words\n", headers=[(b"h", b"\xc2\x9b")])])
    )
    code, out, _ = run("dump", "--records", path)
    assert code == 0
    first, second = out.splitlines()
    assert first.startswith("position=0 size_in_bytes=")
    assert "is_control_batch=false delete_horizon_ms=- attributes=0" in first
    assert second == (
        f'| offset=0 timestamp={NOW} sequence=-1 key_size=5 value_size=10 key="\\u001b[31m" value="two words\\n" '
        'headers=[["h", "\\u009b"]]'
    )


def test_damage_has_a_reason(run: Run, tmp_path: Path) -> None:
    _, rows = dump(run, tmp_path, batch(), b"\xff" * 20, batch())
    assert [(row["type"], row.get("reason")) for row in rows] == [
        ("batch", None),
        (
            "damage",
            "the size field is -1: expected 14 to 2147483635; "
            "the next batch that can be proven is 20 bytes on",
        ),
        ("batch", None),
    ]


# ---- several files, and parts of them ----------------------------------------------------------

SEGMENTS = Path(__file__).parents[3] / "fixtures" / "segments"


def offsets(out: str) -> list[tuple[int, int]]:
    rows = [json.loads(line) for line in out.splitlines()]
    return [(row["base_offset"], row["last_offset"]) for row in rows]


def test_a_folder_is_read_in_order(run: Run) -> None:
    code, out, err = run("dump", "--json", SEGMENTS / "rolled-0")
    found = offsets(out)
    assert (code, err, len(found)) == (0, "", 36)
    assert found == sorted(found)
    files = [SEGMENTS / "rolled-0" / f"{base:020}.log" for base in (0, 30, 60)]
    assert run("dump", "--json", *files) == (code, out, err)


@pytest.mark.parametrize("offset", [0, 1, 29, 30, 45, 89])
def test_offset_starts_at_the_batch_that_holds_it(run: Run, offset: int) -> None:
    _, whole, _ = run("dump", "--json", SEGMENTS / "rolled-0")
    code, out, err = run("dump", "--json", "--offset", offset, SEGMENTS / "rolled-0")
    assert (code, err) == (0, "")
    assert offsets(out) == [(first, last) for first, last in offsets(whole) if last >= offset]
    assert offsets(out)[0][0] <= offset


def test_an_offset_after_the_end(run: Run) -> None:
    code, out, err = run("dump", "--offset", 90, SEGMENTS / "rolled-0")
    assert (code, out, err) == (0, "", "batchval dump: no batch has offset 90 or a higher one\n")


def test_segments_that_end_before_the_offset_are_not_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def noted(path: Path, *_: object) -> list[dict[str, Any]]:
        opened.append(int(path.stem))
        return []

    monkeypatch.setattr("batchval.cli.dump.rows", noted)
    run("dump", "--offset", 30, SEGMENTS / "rolled-0")
    assert opened == [30, 60]


@pytest.mark.parametrize("limit", [1, 2, 13, 36, 100])
def test_limit_counts_batches_of_all_files(run: Run, limit: int) -> None:
    _, whole, _ = run("dump", "--json", SEGMENTS / "rolled-0")
    code, out, _ = run("dump", "--json", "--limit", limit, SEGMENTS / "rolled-0")
    assert (code, out.splitlines()) == (0, whole.splitlines()[:limit])


def test_bad_shows_what_check_refuses(run: Run, tmp_path: Path) -> None:
    """Check a wrong checksum, a record with attributes (S5), and damage, without the good
    batches.
    """
    good, s5 = batch(records(2)), batch([record(0, attributes=1)])
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(good + batch(records(2), crc=5) + s5 + good + good[:30])
    code, out, _ = run("dump", "--bad", "--json", path)
    crc, attributes, damage = (json.loads(line) for line in out.splitlines())
    assert code == 1
    assert (crc["rule"], crc["slug"], crc["is_valid"]) == ("14", "crc-mismatch", False)
    assert crc["reason"].startswith("Record is corrupt (stored crc = 5, computed crc = ")
    assert (attributes["rule"], attributes["is_valid"]) == ("S5", True)
    assert (damage["type"], damage["damage"]) == ("damage", "partial")
    assert run("dump", "--bad", SEGMENTS / "rolled-0") == (0, "", "")


def test_files_of_several_are_named(run: Run, tmp_path: Path) -> None:
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(batch())
    code, out, err = run("dump", tmp_path / "none", tmp_path)
    assert (code, err) == (3, f"batchval dump: {tmp_path / 'none'}: No such file or directory\n")
    assert [line.split()[0] for line in out.splitlines()] == [
        f'file="{tmp_path / name}"' for name in ("a.bin", "b.bin")
    ]


# ---- a terminal --------------------------------------------------------------------------------


def test_lines_of_80_columns(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "a.log"
    long = record(0, key=b"k" * 100, value=b"\x1b[31m" * 50)
    plain = batch(records(100), codec=CODECS["lz4"], base_offset=10**12)
    transactional = batch(
        [long], attributes=0x10, producer_id=10**18, producer_epoch=3, base_sequence=5, crc=1
    )
    path.write_bytes(plain + transactional + batch([long]) + b"\xff" * 50)
    code, out, _ = run("dump", "--records", path)
    head, first, *rest = out.splitlines()
    assert code == 1
    assert head.split() == [
        "position",
        "offsets",
        "records",
        "bytes",
        "codec",
        "max",
        "timestamp",
        "(UTC)",
    ]
    assert first.split()[:1] + first.split()[2:5] == ["0", "100", f"{len(plain)}", "lz4"]
    assert f"{10**12}+99" in first
    assert all(len(line) <= 80 for line in out.splitlines() if line != str(path))
    assert "\x1b" not in out
    assert "wrong checksum" in out
    assert "transactional" in out
    assert "the size field is " in out
    assert sum(line.endswith("…") for line in rest) == 2


def test_the_header_of_each_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, _ = run("dump", SEGMENTS / "rolled-0")
    heads = [line for line in out.splitlines() if line.endswith("(UTC)")]
    names = [line for line in out.splitlines() if line.endswith(".log")]
    assert (len(heads), len(names)) == (3, 3)
