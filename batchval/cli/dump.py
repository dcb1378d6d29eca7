"""``batchval dump``: the base row of every batch, and records when asked for."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from batchval.cli.options import accept_claims_option, json_option
from batchval.core.batch import DecodedRecord, NotABatch, RecordBatch
from batchval.core.claims import read as read_claims
from batchval.core.columns import SCHEMA_VERSION
from batchval.core.layout import CLAIMS_MAGIC
from batchval.segment.reader import Damage, SegmentFile

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
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.+-]+")


def _value(data: bytes | None) -> str | dict[str, str] | None:
    """Text where it is text; else base64 that says so."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _marker(key: bytes, value: bytes | None) -> dict[str, Any]:
    """Of a control record: its type, and the coordinator's epoch where it ends a transaction (EndTransactionMarker)."""
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
        row |= _marker(record.key, record.value)
    return row


def _claims(batch: memoryview) -> dict[str, Any]:
    """By the names of the proposal; the keys as they stand there, 0, 1 or 2."""
    claims = read_claims(batch)
    if claims is None:  # smaller than its header
        return {}
    return {
        "batch_min_timestamp": claims.batch_min_timestamp,
        "records_number": claims.records_number,
        "null_keys": claims.null_keys,
    }


def rows(path: Path, with_records: bool, accept_claims_header: bool = False) -> Iterator[dict[str, Any]]:
    """A dict a batch, in order; damage shows as a row of its own."""
    with SegmentFile(path, accept_claims_header=accept_claims_header) as segment:
        for part in segment.stretches():
            if isinstance(part, Damage):
                yield {"position": part.position, "size_in_bytes": part.size, "damage": part.kind}
                continue
            for row in part.columns.rows():
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
                yield row


def _text(row: dict[str, Any]) -> Iterator[str]:
    records = row.pop("records", None) or []
    yield " ".join(f"{name}={_plain(value)}" for name, value in row.items())
    for record in records:
        yield "| " + " ".join(f"{name}={_plain(value)}" for name, value in record.items())


def _plain(value: Any) -> str:
    """One word, or JSON that no terminal takes for a command."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


@click.command("dump", short_help="Show every batch of a file, and its records.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Show every record of every batch.")
@accept_claims_option
@json_option
def command(file: Path, with_records: bool, accept_claims_header: bool, as_json: bool) -> int:
    """Shows every batch of FILE (a segment, or batches back to back): all header fields, by Kafka's names.

    Exit code 1 if bytes are no batch, a checksum is wrong, or records that were asked for cannot be read.
    """
    failed = False
    for row in rows(file, with_records, accept_claims_header):
        failed = failed or not row.get("is_valid", False) or "records_error" in row
        if as_json:
            click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "file": str(file), **row}))
        else:
            for line in _text(row):
                click.echo(line)
    return 1 if failed else 0
