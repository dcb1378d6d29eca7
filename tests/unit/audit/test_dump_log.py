"""The audit's rows are a superset of what Kafka's dump-log says: equal fields, batch by batch, on
the same files.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchval.audit.arrow_rows import read_range
from batchval.segment.options import Options
from batchval.segment.ranges import cut
from batchval.segment.store import SegmentInfo, Store
from tests.system.interop.dump_log import dump
from tests.system.interop.kafka_broker import ToolMissing
from tests.unit.segment.test_fixtures import NAMES

SEGMENTS = Path(__file__).resolve().parents[3] / "fixtures" / "segments"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Rows = dict[str, list[dict[str, Any]]]


def audited(root: Path, split_bytes: int = 3_000, **options: Any) -> Rows:
    """Return the batches of an audit's rows by file."""
    found: Rows = {}
    asked = Options(rows="all", columns=("all",), split_bytes=split_bytes, **options)
    for folder in sorted({file.parent for file in root.glob("*/*.log")}):
        store, path = Store.of(str(folder))
        for segment in store.list_segments(path):
            assert isinstance(segment, SegmentInfo)
            rows: list[dict[str, Any]] = []
            for range_ in cut(segment, split_bytes, store):
                rows += [row for block in read_range(range_, asked) for row in block.to_pylist()]
            found[f"{folder.name}/{segment.base_offset:020}.log"] = [
                row for row in rows if row["magic"] is not None
            ]
    return found


def plain(value: Any) -> Any:
    """Return a time as Kafka prints it."""
    return (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value


def assert_equal_fields(ours: Rows, theirs: list[dict[str, Any]]) -> int:
    by_file: Rows = {}
    for row in theirs:
        if "stops" not in row:
            by_file.setdefault(row["file"], []).append(row)
    assert {name for name, rows in ours.items() if rows} == set(by_file)
    for name, expected in by_file.items():
        stated = [{kafka: plain(row[own]) for kafka, own in NAMES.items()} for row in ours[name]]
        assert stated == [{kafka: row[kafka] for kafka in NAMES} for row in expected], name
    return sum(map(len, by_file.values()))


@pytest.mark.parametrize("deep", [False, True])
def test_rows_are_what_was_dumped(deep: bool) -> None:
    expected = [
        json.loads(line) for line in (SEGMENTS / "expected.jsonl").read_text("utf-8").splitlines()
    ]
    assert assert_equal_fields(audited(SEGMENTS, deep=deep), expected) > 300


@pytest.mark.jvm
def test_rows_are_what_kafka_dumps_now(tmp_path: Path) -> None:
    for folder in ("codec-none-0", "codec-lz4-0", "compacted-0", "rolled-0", "transactional-0"):
        shutil.copytree(SEGMENTS / folder, tmp_path / folder)
    # a bit of a record flips: the tool goes on, and says that this batch is not valid
    file = tmp_path / "codec-none-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[len(data) - 5] ^= 0x10
    file.write_bytes(data)
    try:
        theirs = dump(tmp_path, deep=False)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    ours = audited(tmp_path)
    assert assert_equal_fields(ours, theirs) > 80
    assert [row["isvalid"] for row in theirs].count(False) == 1
    (bad,) = [row for rows in ours.values() for row in rows if row["rule"] is not None]
    assert (bad["topic"], bad["rule"], bad["is_valid"]) == ("codec-none", "14", False)
