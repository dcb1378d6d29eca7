"""``batchval dump``: the header fields of every batch, and records when asked for.

Rows are printed as JSON, as words that can be searched, or in 80 columns of a terminal:

position=0 size_in_bytes=96 magic=2 …         a batch, all fields
| offset=0 timestamp=… key=… value=…          one of its records

 position            offsets  records     bytes  codec   max timestamp (UTC)
        0               0-99      100     1,096  lz4     2026-11-21 12:00:00
          producer 2005 epoch 1 sequence 0-99, transactional
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.commands import Command
from batchval.cli.exit import FINDINGS, UNREADABLE
from batchval.cli.options import DASH, accept_claims_option, json_option, paths_argument, spooled
from batchval.cli.output import note_empty_files, print_json
from batchval.report.units import printable

if TYPE_CHECKING:
    from batchval.core.batches.batch import DecodedRecord
    from batchval.core.batches.columns import BatchColumns
    from batchval.segment.reader import Damage, SegmentReader, Stretch

__all__ = ["HEADER", "Dump", "Selection", "compact_lines", "plain_lines", "rows"]

_LONG = 2**63 - 1


@click.command(
    "dump",
    cls=Command,
    examples=(
        "batchval dump 00000000000000000000.log",
        "batchval dump --records --offset 117 --limit 1 /var/lib/kafka/data/orders-0",
        "batchval dump --bad --json /var/lib/kafka/data/orders-0",
        "cat 00000000000000000000.log | batchval dump -",
    ),
)
@paths_argument
@click.option("--records", "with_records", is_flag=True, help="Also the records of every batch.")
@click.option(
    "--offset",
    type=click.IntRange(0, _LONG),
    metavar="N",
    help="First offset to show, in every file.",
)
@click.option(
    "--limit", type=click.IntRange(1, _LONG), metavar="N", help="Largest number of batches to show."
)
@click.option(
    "--bad", "only_bad", is_flag=True, help="Only the batches that check refuses, and damage."
)
@accept_claims_option
@json_option
def command(
    paths: tuple[Path, ...],
    with_records: bool,
    offset: int | None,
    limit: int | None,
    only_bad: bool,
    accept_claims_header: bool,
    as_json: bool,
) -> int:
    """Show every batch of PATH…: segments (.log), folders of segments, files of batches in a row.

    PATH may be - for standard input. All header fields have Kafka's names; on a terminal a shorter
    form is shown. Exit code 1 if bytes are damaged, a checksum is wrong, --bad shows a batch, or
    records that were asked for cannot be read; 3 if a file cannot be read.
    """

    dump = Dump(
        Selection(offset, only_bad),
        limit=limit,
        with_records=with_records,
        accept_claims_header=accept_claims_header,
        as_json=as_json,
    )
    return dump.run(paths)


_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.+-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INDENT = " " * 14
_OFFSETS = 17  # columns
HEADER = f"{'position':>12}  {'offsets':>{_OFFSETS}}  {'records':>7}  {'bytes':>9}  {'codec':<6}  max timestamp (UTC)"


def plain_lines(row: dict[str, Any]) -> Iterator[str]:
    """Yield a line for a batch or a damaged place, and one for each record, as NAME=VALUE words."""
    records = row.get("records") or []
    yield " ".join(f"{name}={_word(value)}" for name, value in row.items() if name != "records")
    for record in records:
        yield "| " + " ".join(f"{name}={_word(value)}" for name, value in record.items())


def compact_lines(row: dict[str, Any], width: int) -> Iterator[str]:
    """Yield a line for a batch or a damaged place, one for unusual header fields, and one for each
    record.

    Records are cut at ``width`` columns.
    """
    if "damage" in row:
        yield f"{row['position']:>12}  {row['size_in_bytes']:,} damaged bytes"
        yield from _wrapped(row["reason"], width)
        return
    count = "?" if row["records_count"] < 0 else f"{row['records_count']:,}"
    codec, size = f"{row['compression_type']}", f"{row['size_in_bytes']:,}"
    yield (
        f"{row['position']:>12}  {_offsets(row):>{_OFFSETS}}  {count:>7}  {size:>9}  {codec:<6}  "
        f"{_time(row['max_timestamp'])}"
    )
    if notes := ", ".join(_notes(row)):
        yield from _wrapped(notes, width)
    for record in row.get("records") or []:
        line = f"{_INDENT}{record['offset']}  {_shown(record)}"
        yield line if len(line) <= width else line[: width - 1] + "…"


def _offsets(row: dict[str, Any]) -> str:
    """Return ``first-last``, or ``first+delta`` where that is too long for its column."""
    first, last = row["base_offset"], row["last_offset"]
    text = f"{first}" if first == last else f"{first}-{last}"
    return text if len(text) <= _OFFSETS else f"{first}+{last - first}"


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(width, 40), initial_indent=_INDENT, subsequent_indent=_INDENT)


def _notes(row: dict[str, Any]) -> Iterator[str]:
    """Yield the unusual header fields."""
    if row["magic"] != 2:
        yield f"magic {row['magic']}"
    if row["producer_id"] >= 0:
        sequence = f"{row['base_sequence']}"
        if row["last_sequence"] != row["base_sequence"]:
            sequence += f"-{row['last_sequence']}"
        yield f"producer {row['producer_id']} epoch {row['producer_epoch']} sequence {sequence}"
    names = {"is_transactional": "transactional", "is_control_batch": "control"}
    yield from (word for name, word in names.items() if row[name])
    if row["timestamp_type"] == "LogAppendTime":
        yield "LogAppendTime"
    if not row["is_valid"]:
        yield "wrong checksum"
    if row.get("rule") is not None:
        yield f"{row['rule']} {row['slug']}: {row['reason']}"
    if "records_error" in row:
        yield f"records cannot be read: {row['records_error']}"


def _shown(record: dict[str, Any]) -> str:
    if "control_type" in record:
        return f"{record['control_type']}"
    headers = f" headers={_word(record['headers'])}" if record["headers"] else ""
    return f"{_time(record['timestamp'])}  key={_word(record['key'])} value={_word(record['value'])}{headers}"


def _time(milliseconds: int) -> str:
    """Return a time in UTC, ``-`` for -1, and the number itself where no calendar has it."""
    if milliseconds == -1:
        return "-"
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{milliseconds}"


def _word(value: Any) -> str:
    """Return plain text without blanks, or JSON without control characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return value
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


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
    from batchval.segment.reader import Damage, SegmentFile

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
    from batchval.segment.file_formats import START_SIZE, foreign_reason
    from batchval.segment.findings import damage_reason

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
    from batchval.core.batches.validator import LogValidator
    from batchval.policy import TopicPolicy
    from batchval.segment.options import Options

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
    from batchval.rules import Rule

    checked = {name: row.pop(name) for name in _CHECKED}
    if checked["rule"] is None:
        return not row["is_valid"]
    row["rule"] = checked["rule"]
    row["slug"] = next(rule.slug for rule in Rule if rule.id == checked["rule"])
    row["reason"] = checked["reason"]
    return True


def _batch(row: dict[str, Any], part: Stretch, with_records: bool) -> dict[str, Any]:
    """Return a batch's row with its claims and records, and its position in the file."""
    from batchval.core.batches.batch import RecordBatch
    from batchval.core.format.layout import CLAIMS_MAGIC
    from batchval.errors import NotABatch

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
    import base64

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
    from batchval.core.claims import read as read_claims

    claims = read_claims(batch)
    if claims is None:  # smaller than its header
        return {}
    return {
        "batch_min_timestamp": claims.batch_min_timestamp,
        "records_number": claims.records_number,
        "null_keys": claims.null_keys,
    }


class Dump:
    """One run: prints rows, counts them, and knows the exit code."""

    def __init__(
        self,
        selection: Selection,
        *,
        limit: int | None,
        with_records: bool,
        accept_claims_header: bool,
        as_json: bool,
    ) -> None:
        self._selection = selection
        self._limit = limit
        self._with_records = with_records
        self._accept_claims_header = accept_claims_header
        self._as_json = as_json
        self._compact = not as_json and sys.stdout.isatty()
        self._printed = 0
        self._failed = self._unreadable = False

    def run(self, paths: tuple[Path, ...]) -> int:
        """Print the rows of all files and return the exit code."""
        with spooled(paths) as (files, copy):
            chosen = list(self._readable(files))
            for file in chosen:
                name = DASH if file == copy else file
                self._file(file, name, len(chosen) > 1)
                if self._is_full:
                    break
        if not self._printed and chosen and self._selection.offset is not None and not self._failed:
            _say(f"no batch has offset {self._selection.offset} or a higher one")
        note_empty_files("dump", paths)
        return UNREADABLE if self._unreadable else FINDINGS if self._failed else 0

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and self._printed >= self._limit

    def _readable(self, paths: list[Path]) -> Iterator[Path]:
        """Yield the files to read: not those that end before the offset, by the next one's name."""
        from batchval.segment.check import find_files, is_segment

        wanted = self._selection.offset
        found = list(find_files(paths))
        for (file, error), (following, _) in zip(found, [*found[1:], (Path(), None)], strict=True):
            if error is not None:
                self._complain(file, error)
                continue
            neighbours = (
                is_segment(file) and is_segment(following) and file.parent == following.parent
            )
            if wanted is None or not neighbours or int(following.stem) > wanted:
                yield file

    def _file(self, file: Path, name: Path, several: bool) -> None:
        heading = True
        for row in self._rows(file, name):
            self._printed += 1
            self._failed = self._failed or not row.get("is_valid", False) or "records_error" in row
            self._failed = self._failed or row.get("rule") is not None
            if self._as_json:
                kind = "damage" if "damage" in row else "batch"
                print_json({"type": kind, "file": str(name), **row})
            else:
                for line in self._lines(row, name, several, heading):
                    click.echo(line)
            heading = False
            if self._is_full:
                return

    def _rows(self, file: Path, name: Path) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file up to the first byte that cannot be read."""
        try:
            yield from rows(file, self._with_records, self._accept_claims_header, self._selection)
        except OSError as error:
            self._complain(name, error)

    def _lines(
        self, row: dict[str, Any], name: Path, several: bool, heading: bool
    ) -> Iterator[str]:
        import shutil

        if not self._compact:
            yield from plain_lines({"file": str(name), **row} if several else row)
            return
        if heading:
            if several:
                yield printable(name)
            yield HEADER
        yield from compact_lines(row, shutil.get_terminal_size((80, 24)).columns)

    def _complain(self, file: Path, error: OSError) -> None:
        self._unreadable = True
        _say(f"{error.filename or file}: {error.strerror or error}")


def _say(line: str) -> None:
    sys.stdout.flush()
    click.echo(f"batchval dump: {printable(line)}", err=True)
