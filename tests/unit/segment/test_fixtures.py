"""Real segments: every field of every batch as Kafka's own dump-log says
(fixtures/segments/expected.jsonl).
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from batchval.cli.dump import rows
from batchval.rules import Rule
from batchval.segment.check import Options, Summary, check_paths
from batchval.segment.findings import Level
from batchval.segment.reader import Damage, SegmentFile

SEGMENTS = Path(__file__).parents[3] / "fixtures" / "segments"
EXPECTED: dict[str, list[dict[str, Any]]] = defaultdict(list)
for _line in (SEGMENTS / "expected.jsonl").read_text("utf-8").splitlines():
    _row = json.loads(_line)
    EXPECTED[_row["file"]].append(_row)

#: dump-log's names and ours
NAMES = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "records_count",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "partition_leader_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control_batch",
    "deleteHorizonMs": "delete_horizon_ms",
    "position": "position",
    "timestampType": "timestamp_type",
    "maxTimestamp": "max_timestamp",
    "size": "size_in_bytes",
    "magic": "magic",
    "compresscodec": "compression_type",
    "crc": "crc",
    "isvalid": "is_valid",
}


def test_every_segment_has_expectations() -> None:
    found = {str(path.relative_to(SEGMENTS)) for path in SEGMENTS.rglob("*.log")}
    assert found == set(EXPECTED)
    assert sum(map(len, EXPECTED.values())) > 300


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_batches_are_what_kafka_dumps(name: str) -> None:
    ours = [row for row in rows(SEGMENTS / name, True) if "damage" not in row]
    batches = [row for row in EXPECTED[name] if "stops" not in row]
    assert len(ours) == len(batches)
    for row, expected in zip(ours, batches, strict=True):
        assert {theirs: row[own] for theirs, own in NAMES.items()} == {
            theirs: expected[theirs] for theirs in NAMES
        }
        records = row["records"]
        assert len(records) == expected["records"]
        assert sum(record["key_size"] == -1 for record in records) == expected["nullKeys"]
        assert sum(record["value_size"] == -1 for record in records) == expected["nullValues"]
        if "marker" in expected:
            assert [record["control_type"] for record in records] == [expected["marker"]]
            assert records[0]["coordinator_epoch"] >= 0


def test_a_fixture_with_a_different_field_would_be_seen() -> None:
    name = "codec-none-0/00000000000000000000.log"
    row = next(rows(SEGMENTS / name, False))
    assert row["crc"] == EXPECTED[name][0]["crc"] != EXPECTED[name][1]["crc"]


@pytest.mark.parametrize("folder", sorted({Path(name).parent for name in EXPECTED}))
def test_a_real_partition_is_clean(folder: Path) -> None:
    summary = Summary()
    found = list(check_paths([SEGMENTS / folder], Options(), summary))
    batches = [
        row for name, rows in EXPECTED.items() if Path(name).parent == folder for row in rows
    ]
    notes = {"live-preallocated-0": [Rule.L1], "transactional-open-0": [Rule.L16]}
    assert [f.rule for f in found] == notes.get(folder.name, [])
    assert all(f.level is Level.NOTE for f in found)
    assert summary.batches == sum("stops" not in row for row in batches)
    assert summary.records == sum(row.get("count", 0) for row in batches)
    assert summary.unreadable == []


def test_the_zeros_of_preallocation_are_one_finding_at_their_place() -> None:
    name = "live-preallocated-0/00000000000000000000.log"
    batches = [row for row in EXPECTED[name] if "stops" not in row]
    end = batches[-1]["position"] + batches[-1]["size"]
    with SegmentFile(SEGMENTS / name) as segment:
        assert list(segment.stretches())[-1] == Damage(end, 8192 - end, "zeros")
