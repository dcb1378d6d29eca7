"""Rows of ``batchval dump``: one for each batch of a file, and one for each damaged place."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchval.core.batch import DecodedRecord, NotABatch, RecordBatch
from batchval.core.claims import read as read_claims
from batchval.core.columns import BatchColumns
from batchval.core.layout import CLAIMS_MAGIC
from batchval.core.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.rules import Rule
from batchval.segment.findings import damage_reason
from batchval.segment.foreign import START_SIZE, foreign_reason
from batchval.segment.options import Options
from batchval.segment.reader import Damage, SegmentFile, SegmentReader, Stretch

__all__ = ["Selection", "rows"]

_CONTROL_TYPES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
_CONTROL_KEY_SIZE = 4  # version:2 type:2
_MARKER_SIZE = 6  # version:2 coordinator epoch:4
#: what a check adds to the base row; of these a row of --bad has rule and reason
_CHECKED = ("rule", "error_code", "path", "claims", "reports", "reason")


@dataclass(frozen=True)
class Selection:
    """Which batches have a row.

    ``offset``    begin with the batch that holds this offset, or the first one after it
    ``only_bad``  batches that ``batchval check`` refuses with its defaults, and damage
    """

    offset: int | None = None
    only_bad: bool = False


_ALL = Selection()


def rows(
    path: Path, with_records: bool, accept_claims_header: bool = False, selection: Selection = _ALL
) -> Iterator[dict[str, Any]]:
    """Yield a dict for each selected batch of a file, in order; a damaged place has a row of its
    own.

    Raises OSError if the file cannot be read.
    """
    before = selection.offset is not None
    with SegmentFile(path, accept_claims_header=accept_claims_header) as segment:
        for part in segment.stretches():
            if isinstance(part, Damage):
                if not before:
                    yield _damage(path, part, segment)
                continue
            columns = (
                _judged(path, part, accept_claims_header) if selection.only_bad else part.columns
            )
            for row in columns.rows():
                if before and row["last_offset"] < selection.offset:
                    continue
                before = False
                if selection.only_bad and not _mark_bad(row):
                    continue
                yield _batch(row, part, with_records)


def _damage(path: Path, damage: Damage, segment: SegmentReader) -> dict[str, Any]:
    reason = damage_reason(damage, segment.size)[1]
    if damage.position == 0 and damage.size >= segment.size:
        reason = foreign_reason(path, bytes(segment.read(0, START_SIZE))) or reason
    return {
        "position": damage.position,
        "size_in_bytes": damage.size,
        "damage": damage.kind,
        "reason": reason,
    }


def _judged(path: Path, part: Stretch, accept_claims_header: bool) -> BatchColumns:
    """Return the columns of a check with the profile of the file's name, and every other
    default.
    """
    profile = Options().profile_of(path)
    validator = LogValidator(
        TopicPolicy(accept_claims_header=accept_claims_header), profile=profile
    )
    if profile == "log":
        return validator.check_batches(part.data)
    return validator.check_ranges(part.data, now_ms=int(time.time() * 1000))


def _mark_bad(row: dict[str, Any]) -> bool:
    """Leave only rule and reason of a check's columns in a row. Return whether the batch is
    refused.
    """
    checked = {name: row.pop(name) for name in _CHECKED}
    if checked["rule"] is None:
        return not row["is_valid"]
    row["rule"] = checked["rule"]
    row["slug"] = next(rule.slug for rule in Rule if rule.id == checked["rule"])
    row["reason"] = checked["reason"]
    return True


def _batch(row: dict[str, Any], part: Stretch, with_records: bool) -> dict[str, Any]:
    """Return a batch's row with its claims and records, and its position in the file."""
    if row["magic"] == CLAIMS_MAGIC:
        end = row["position"] + row["size_in_bytes"]
        row.update(_claims(part.data[row["position"] : end]))
    if with_records:
        try:
            batch = RecordBatch(part.data, row["position"])
            row["records"] = [_record(r, row["is_control_batch"]) for r in batch.records()]
        except NotABatch as error:
            row["records"] = None
            row["records_error"] = str(error)
    row["position"] += part.position
    return row


def _value(data: memoryview | bytes | None) -> str | dict[str, str] | None:
    """Return UTF-8 as text, other bytes as ``{"base64": …}``."""
    if data is None:
        return None
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _marker(key: bytes, value: bytes | None) -> dict[str, Any]:
    """Return the type of a control record, with the coordinator's epoch if it ends a transaction.

    Source: EndTransactionMarker, ControlRecordType.
    """
    if len(key) < _CONTROL_KEY_SIZE:
        return {"control_type": None}
    number = int.from_bytes(key[2:4], "big", signed=True)
    row: dict[str, Any] = {"control_type": _CONTROL_TYPES.get(number, number)}
    if row["control_type"] in ("ABORT", "COMMIT"):
        whole = value is not None and len(value) >= _MARKER_SIZE
        row["coordinator_epoch"] = (
            int.from_bytes(value[2:6], "big", signed=True) if value is not None and whole else None
        )
    return row


def _record(record: DecodedRecord, control: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": record.sequence,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "key": _value(record.key),
        "value": _value(record.value),
        "headers": [[key, _value(value)] for key, value in record.headers],
    }
    if control and record.key is not None:
        row |= _marker(bytes(record.key), None if record.value is None else bytes(record.value))
    return row


def _claims(batch: memoryview) -> dict[str, Any]:
    """Return the claims of a batch by the names of KAFKA-8364; null_keys is 0, 1 or 2."""
    claims = read_claims(batch)
    if claims is None:  # smaller than its header
        return {}
    return {
        "batch_min_timestamp": claims.batch_min_timestamp,
        "records_number": claims.records_number,
        "null_keys": claims.null_keys,
    }
