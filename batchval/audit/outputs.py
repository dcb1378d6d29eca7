"""Tables of an audit in its folder: Parquet, through pyarrow.fs, the same bytes for the same
input.

    batches/topic=<name>/hour=<2026-11-21-14>/
                               rows (batchval.audit.batch_files); their topic and hour (UTC, or
                               none) are in the folders' names, as Hive wants it
    errors/                    part-0.parquet: findings
    summary/                   part-0.parquet: counts by hour
    segments/                  part-0.parquet: the manifest of what was read
    transactions/              part-0.parquet: transactions by partition
    runs/                      part-0.parquet: a row for this run and each before it
    _batchval_audit, _SUCCESS  whose folder this is; that the run came to its end

Files are written under another name and moved, so that none is seen half: a task that runs again
writes the same to the same place. A run removes what an earlier one has left in these folders, and
what it did not write itself.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from batchval.audit.arrow_rows import TABLES_VERSION, TIME
from batchval.audit.hours import EXTREMES, SUMS
from batchval.errors import BatchvalError
from batchval.segment.store import one_line, shown, text_of, with_place
from batchval.segment.uris import plain_uri, refusal, split

__all__ = [
    "ERRORS",
    "RUNS",
    "SEGMENTS",
    "SUMMARY",
    "TRANSACTIONS",
    "ParquetFile",
    "ended",
    "finish",
    "not_written",
    "place_of",
    "prepare",
    "with_numbers",
    "write_table",
]

#: Findings, and files that could not be read (rule UNREADABLE, without a position). ``state``: new,
#: open or gone, by an earlier audit (--since).
ERRORS = pa.schema(
    [
        *(
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("segment", pa.int64()),
            ("position", pa.int64()),
        ),
        *(("offset", pa.int64()), ("max_timestamp", pa.timestamp("ms", "UTC"))),
        *(("rule", pa.string()), ("slug", pa.string())),
        *(("error_code", pa.int16()), ("error_name", pa.string())),
        *(
            ("reason", pa.string()),
            ("file", pa.string()),
            ("level", pa.string()),
            ("follows", pa.int64()),
        ),
        *(("state", pa.string()), ("first_seen", pa.timestamp("ms", "UTC"))),
        *(("broker", pa.string()), ("cluster", pa.string())),
    ]
)
#: A row is a partition of a broker, an hour (UTC) and a codec. ``codec`` is null for batches whose
#: header cannot be believed, and for bytes in no batch. Uncompressed bytes are null where payloads
#: were not opened.
SUMMARY = pa.schema(
    [
        *(("cluster", pa.string()), ("broker", pa.string()), ("topic", pa.string())),
        *(("partition", pa.int32()), ("hour", TIME), ("codec", pa.string())),
        *((name, pa.int64()) for name in SUMS),
        *((name, TIME if name.endswith("timestamp") else pa.int64()) for name in EXTREMES),
    ]
)
_PRODUCER = pa.struct(
    [
        *(("producer_id", pa.int64()), ("max_timestamp", pa.int64())),
        *(("sequence", pa.int32()), ("producer_epoch", pa.int16())),
    ]
)
#: The manifest: a row a segment, or a file that could not be read (``unreadable`` says why).
#: ``last_*``: its last batch that was believed; then, the partition's state there, from which a
#: later run goes on. ``read_at``: when all of it was read last. ``state``: JSON that only --since
#: reads.
SEGMENTS = pa.schema(
    [
        *(
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("base_offset", pa.int64()),
            ("size", pa.int64()),
        ),
        *(("mtime_ns", pa.int64()), ("file", pa.string()), ("unreadable", pa.string())),
        *(
            ("batches", pa.int64()),
            ("records", pa.int64()),
            ("findings", pa.int64()),
            ("thinned", pa.bool_()),
        ),
        *(("last_position", pa.int64()), ("last_size", pa.int64()), ("last_crc", pa.int64())),
        *(("last_offset", pa.int64()), ("leader_epoch", pa.int32()), ("after_damage", pa.bool_())),
        ("producers", pa.list_(_PRODUCER)),
        ("read_at", pa.timestamp("ms", "UTC")),
        ("state", pa.string()),
    ]
)
#: A row for each run, the earlier ones too. Bytes are those that were read. ``findings``: new and
#: open ones.
RUNS = pa.schema(
    [
        *(("run_id", pa.string()), ("started_at", pa.timestamp("ms", "UTC"))),
        *(("ended_at", pa.timestamp("ms", "UTC")), ("version", pa.string())),
        *(("engine", pa.string()), ("paths", pa.list_(pa.string()))),
        *(("options", pa.string()), ("since", pa.string())),
        *((name, pa.int64()) for name in ("segments", "skipped", "reread", "grown", "batches")),
        *((name, pa.int64()) for name in ("bytes", "findings", "new", "open", "gone")),
        *((name, pa.int64()) for name in ("notes", "unreadable", "moved")),
        ("exit_code", pa.int32()),
    ]
)

_OPEN_TRANSACTION = pa.struct(
    [
        *(("producer_id", pa.int64()), ("producer_epoch", pa.int16())),
        *((name, pa.int64()) for name in ("first_offset", "last_offset")),
        *(("first_timestamp", TIME), ("last_timestamp", TIME)),
        *((name, pa.int64()) for name in ("age_ms", "limit_ms")),
        *((name, pa.bool_()) for name in ("is_hanging", "is_certain")),
    ]
)
#: A row for each partition folder with transactional batches or markers
#: (docs/reference/cli/json.md).
TRANSACTIONS = pa.schema(
    [
        *(("topic", pa.string()), ("partition", pa.int32()), ("folder", pa.string())),
        *(
            (name, pa.int64())
            for name in ("last_stable_offset", "log_end_offset", "open", "hanging")
        ),
        *((name, pa.int64()) for name in ("committed", "aborted", "markers_without_data")),
        ("is_certain", pa.bool_()),
        ("open_transactions", pa.list_(_OPEN_TRANSACTION)),
    ]
)

_TABLES = ("errors", "summary", "segments", "transactions", "runs")
_OURS, _DONE = "_batchval_audit", "_SUCCESS"
_WRITTEN = re.compile(r"(?s).*\.parquet|\..*\.parquet\.[0-9a-f]{32}|\..*\.crc|_SUCCESS")


@functools.lru_cache(maxsize=8)
def place_of(out: str) -> tuple[Any, str]:
    """Return the file system of a URI or local path, and the path in it. Raises BatchvalError."""
    out = plain_uri(out)
    reason = refusal(out)
    if reason is None and text_of(out) != out:
        reason = "the name is not UTF-8: expected a folder or URI whose name is"
    if reason:
        raise BatchvalError(f"{shown(out)}: {reason}")
    try:
        if "://" in out:
            split(out)
            filesystem, path = fs.FileSystem.from_uri(out)
        else:
            filesystem, path = fs.LocalFileSystem(), out
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BatchvalError(f"{shown(out)}: {one_line(error)}") from None
    return filesystem, path.rstrip("/") or "/"


def prepare(out: str) -> None:
    """Prepare the folder: remove the files of an earlier audit.

    Raises BatchvalError for files of others, and OSError where the folder cannot be written.
    """
    place, path = place_of(out)
    try:
        if place.get_file_info(path).type == fs.FileType.File:
            raise BatchvalError(f"{shown(out)}: cannot be written: this is a file, not a folder")
        place.create_dir(path, recursive=True)
        names = {
            info.base_name
            for info in place.get_file_info(fs.FileSelector(path, allow_not_found=True))
        }
        theirs = sorted(names & {"batches", *_TABLES})
        if theirs and _OURS not in names:
            raise BatchvalError(
                f"{shown(out)}: has {theirs[0]}/, which no audit wrote: use an empty folder"
            )
        for name in theirs:
            if other := _foreign(place, f"{path}/{name}"):
                raise BatchvalError(
                    f"{shown(out)}: {other} would be removed, but no audit wrote it: use "
                    "an empty folder"
                )
        if _DONE in names:
            place.delete_file(f"{path}/{_DONE}")
        _put(place, f"{path}/{_OURS}", b"")
        for name in theirs:
            place.delete_dir(f"{path}/{name}")
    except OSError as error:
        raise not_written(out, error) from None
    except pa.ArrowException as error:
        raise BatchvalError(f"{shown(out)}: cannot be written: {one_line(error)}") from None


def _foreign(place: Any, folder: str) -> str | None:
    """Return a file that no audit has written, and that must not be removed with the others."""
    for info in place.get_file_info(fs.FileSelector(folder, recursive=True)):
        if info.type == fs.FileType.File and not _WRITTEN.fullmatch(info.base_name):
            return str(info.path)
    return None


def ended(folder: str) -> None:
    """Raise BatchvalError if an audit in this folder was interrupted or is running, and OSError if
    it cannot be read.
    """
    place, path = place_of(folder)
    try:
        ours, done = place.get_file_info([f"{path}/{_OURS}", f"{path}/{_DONE}"])
    except OSError as error:
        raise with_place(error, "cannot be read", shown(folder)) from None
    except pa.ArrowException as error:
        raise BatchvalError(f"{shown(folder)}: cannot be read: {one_line(error)}") from None
    if ours.type == fs.FileType.File and done.type != fs.FileType.File:
        why = "the audit in this folder is incomplete: it was interrupted, or is running"
        raise BatchvalError(f"{shown(folder)}: {why}")


def not_written(out: str, error: OSError) -> OSError:
    """Return the error with a text for a person. An incomplete output counts as not written."""
    return with_place(error, "cannot be written", shown(out))


def finish(out: str, tables: dict[str, pa.Table]) -> None:
    """Write the tables, and mark the run as complete. Raises OSError."""
    try:
        _finish(*place_of(out), tables)
    except OSError as error:
        raise not_written(out, error) from error


def _finish(place: Any, path: str, tables: dict[str, pa.Table]) -> None:
    for name, table in tables.items():
        place.create_dir(f"{path}/{name}", recursive=True)
        write_table(place, f"{path}/{name}/part-0.parquet", table)
    _put(place, f"{path}/{_DONE}", b"")


def discard(out: str) -> None:
    """Remove the files that an audit has begun and not ended.

    Does not raise: another error is under way.
    """
    place, path = place_of(out)
    with contextlib.suppress(OSError, pa.ArrowException):
        for info in place.get_file_info(
            fs.FileSelector(path, allow_not_found=True, recursive=True)
        ):
            if info.type == fs.FileType.File and info.base_name.startswith("."):
                place.delete_file(info.path)


def _put(place: Any, path: str, data: bytes) -> None:
    with place.open_output_stream(path) as stream:
        stream.write(data)


def with_numbers(table: pa.Table) -> pa.Table:
    """Return a table with milliseconds for times: Python has none for the years of damaged ones."""
    fields = [
        one.with_type(pa.int64()) if pa.types.is_timestamp(one.type) else one
        for one in table.schema
    ]
    return table.cast(pa.schema(fields))


def write_table(place: Any, path: str, table: pa.Table) -> None:
    """Write a table with its schema's version."""
    metadata = {**(table.schema.metadata or {}), b"schema_version": str(TABLES_VERSION)}
    table = table.replace_schema_metadata(metadata)
    writer = ParquetFile(place, path, table.schema, use_dictionary=True)
    try:
        writer.write(table)
        writer.close()
    except BaseException:
        writer.abort()
        raise


class ParquetFile:
    """A Parquet file that gets its name when it is complete."""

    def __init__(
        self, place: Any, path: str, schema: pa.Schema, use_dictionary: bool | Sequence[str]
    ) -> None:
        self.path = path
        self._place = place
        folder, _, name = path.rpartition("/")
        self._temporary = f"{folder}/.{name}.{uuid4().hex}"
        self._stream = place.open_output_stream(self._temporary)
        self._writer = pq.ParquetWriter(
            self._stream, schema, compression="zstd", use_dictionary=use_dictionary
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
        self._stream.close()
        self._place.move(self._temporary, self.path)

    def abort(self) -> None:
        for close in (
            self._writer.close,
            self._stream.close,
            lambda: self._place.delete_file(self._temporary),
        ):
            try:
                close()
            except (OSError, ValueError, pa.ArrowException):  # the error was raised before
                continue
