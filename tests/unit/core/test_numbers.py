"""The numbers that the core shares with Python: rules, reasons, origins, paths. Those that
tools/generate_rules.py does not write are read from layout.pxd.
"""

from __future__ import annotations

import re
from pathlib import Path

import batchval
from batchval.core.batches.result import PATHS, message_of
from batchval.core.format.reasons import REASONS, count_of_broken, sentence
from batchval.errors import ErrorCode
from batchval.rules import EXTRAS, Rule, by_number
from batchval.types import AppendOrigin, CompressionType, TimestampType

FORMAT = Path(batchval.__file__).parent / "core" / "format"
LAYOUT = {
    name: int(value, 0)
    for name, value in re.findall(
        r"^    ([A-Z0-9_]+) = (-?[0-9xA-F]+)", (FORMAT / "layout.pxd").read_text(), re.M
    )
}


def test_every_reason_is_a_sentence() -> None:
    for i, (name, text) in enumerate(REASONS.items()):
        text_made = sentence(i, 7, 123456, -9)
        assert text_made.removesuffix(count_of_broken(123456)) == text.format(
            i=7, a=123456, b=-9, n=-8
        )
        assert "{" not in text_made
        assert bool(text_made) == (name not in ("NO_REASON", "EXTRA_FOUND"))


def test_numbers_are_one_a_rule() -> None:
    assert (
        len({r.number for r in Rule})
        == len({r.slug for r in Rule})
        == len({r.id for r in Rule})
        == len(Rule)
    )
    assert [r.number for r in EXTRAS] == list(range(51, 51 + len(EXTRAS)))
    assert (Rule.CRC_MISMATCH.number, Rule.L1.number, Rule.R1.number) == (14, 71, 91)
    assert by_number(0) is None


def test_enumerations_have_the_cores_numbers() -> None:
    assert LAYOUT["OK"] == ErrorCode.NONE
    for member in (*AppendOrigin, *CompressionType):
        assert LAYOUT[member.name] == member
    assert LAYOUT["LOG_APPEND_TIME"] == TimestampType.LOG_APPEND_TIME
    assert LAYOUT["CREATE_TIME"] == TimestampType.CREATE_TIME
    for number, path in enumerate(PATHS):
        assert LAYOUT["PATH_" + (path or "unknown").upper()] == number


def test_offsets_of_fields_follow_from_their_widths() -> None:
    """DefaultRecordBatch and LegacyRecord, summed up again."""
    widths = {
        "BASE_OFFSET": 8,
        "BATCH_LENGTH": 4,
        "PARTITION_LEADER_EPOCH": 4,
        "MAGIC": 1,
        "CRC": 4,
        "ATTRIBUTES": 2,
        "LAST_OFFSET_DELTA": 4,
        "BASE_TIMESTAMP": 8,
        "MAX_TIMESTAMP": 8,
        "PRODUCER_ID": 8,
        "PRODUCER_EPOCH": 2,
        "BASE_SEQUENCE": 4,
        "RECORDS_COUNT": 4,
        "RECORDS": 0,
    }
    at = 0
    for name, width in widths.items():
        assert LAYOUT[name] == at, name
        at += width
    at = LAYOUT["LOG_OVERHEAD"]
    assert at == 12
    for name, width in (("CRC", 4), ("MAGIC", 1), ("ATTRIBUTES", 1), ("TIMESTAMP", 8)):
        assert LAYOUT[f"LEGACY_{name}"] == at
        at += width
    assert (LAYOUT["LEGACY_KEY_V0"], LAYOUT["LEGACY_KEY_V1"]) == (18, at)
    assert (LAYOUT["LEGACY_OVERHEAD_V0"], LAYOUT["LEGACY_OVERHEAD_V1"]) == (18 + 8, at + 8)
    assert LAYOUT["LEGACY_MIN_SIZE"] == 14


def test_messages_of_record_errors() -> None:
    for rule in (
        Rule.KEY_MISSING,
        Rule.TIMESTAMP_OUT_OF_RANGE,
        Rule.TIMESTAMP_TYPE_BY_PRODUCER,
        Rule.RECORD_MAGIC_DIFFERS,
    ):
        assert message_of(rule.number, 5, 0, 0, 9, "t-0") != "Invalid record"
    assert message_of(Rule.TIMESTAMP_OUT_OF_RANGE.number, -7, 3, -1, 9) == (
        "Timestamp -7 of message with offset 3 is out of range. "
        "The timestamp should be within [-1, 9]"
    )
    assert message_of(Rule.KEY_MISSING.number, 5, 0, 0, 9, "t-0") == (
        "Compacted topic cannot accept message without key in topic partition t-0"
    )
    assert message_of(0, 0, 0, 0, 0) == "Invalid record"
