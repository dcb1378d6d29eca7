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
    assert (row["is_transactional"], row["is_control_batch"], row["is_valid"]) == (True, False, True)
    assert row["delete_horizon_ms"] is None


def test_records(run: Run, tmp_path: Path) -> None:
    parts = [
        record(0, key=b"k", value="ü".encode(), headers=[(b"h", b"v"), (b"n", None)], timestamp_delta=5),
        record(1, key=None, value=None),
        record(2, key=b"", value=b"\xff\x00"),
    ]
    code, (row,) = dump(run, tmp_path, batch(parts, base_offset=10, producer_id=1, producer_epoch=0, base_sequence=4))
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
    assert (two["key"], two["value"], two["key_size"], two["value_size"], two["sequence"]) == (None, None, -1, -1, 5)
    assert (three["key"], three["value"]) == ("", {"base64": base64.b64encode(b"\xff\x00").decode()})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 17), {"control_type": "COMMIT", "coordinator_epoch": 17}),
        (struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 3), {"control_type": "ABORT", "coordinator_epoch": 3}),
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
    assert {name: got[name] for name in got if name in ("control_type", "coordinator_epoch")} == expected


def test_magic_0_and_1(run: Run, tmp_path: Path) -> None:
    inner = [message(1, offset=i, key=b"k%d" % i) for i in range(3)]
    code, rows = dump(run, tmp_path, message(0, offset=7, value=None), wrapper(inner, GZIP, offset=12))
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
    code, rows = dump(run, tmp_path, batch(records(2), attributes=GZIP), batch(records(2), records_count=3), batch())
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
    path.write_bytes(batch([record(0, key=b"\x1b[31m", value=b"two words\n", headers=[(b"h", b"\xc2\x9b")])]))
    code, out, _ = run("dump", "--records", path)
    assert code == 0
    first, second = out.splitlines()
    assert first.startswith("position=0 size_in_bytes=")
    assert "is_control_batch=false delete_horizon_ms=- attributes=0" in first
    assert second == (
        f'| offset=0 timestamp={NOW} sequence=-1 key_size=5 value_size=10 key="\\u001b[31m" value="two words\\n" '
        'headers=[["h", "\\u009b"]]'
    )
