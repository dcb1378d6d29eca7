"""batches/: rows of batches in Parquet, a file for each task, topic and hour.

    batches/topic=<name>/hour=<2026-11-21-14>/<partition>-<segment>-<start>-<digest>-<n>.parquet

Partition, segment and start are those of the first range of the topic in the task, the digest is of
all its ranges of the topic. ``n`` counts how often files were closed before: after each topic, and
where too many were open. A task that is run again writes the same bytes to the same names.

The rows of a range stand together in each file. So where a broker replaces a segment while it is
read, and the range is read again in another task, its earlier rows can be taken out of the file.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from batchval.audit.arrow_rows import row_schema
from batchval.audit.hours import HOUR_MS, hour_of
from batchval.audit.outputs import ParquetFile, not_written, place_of
from batchval.segment.options import Options
from batchval.segment.ranges import Range, Task

__all__ = ["BatchFiles", "FileRows", "file_schema", "keep"]

#: A range's batches of more hours than these lie together, in the folder for no hour: a file costs
#: a millisecond.
HOURS = 48
#: files of a task that are open at a time
_MAX_OPEN_FILES = 256
_NO_HOUR = "none"  # pyarrow finds no type for Hive's own word for null, where it is the only hour
_FLUSH = 1 << 16  # rows
_MAX_TOPIC_LENGTH = 200  # of an escaped topic in a folder's name
_KAFKAS = 249  # of a topic's name; a longer one, with "topic=", is too long for a file system
#: columns of few values, for which Parquet has dictionaries
_WORDS = (
    *(
        "cluster",
        "broker",
        "file",
        "compression_type",
        "timestamp_type",
        "rule",
        "error_name",
        "reason",
    ),
    *("validation_path", "null_keys", "figures"),
)
#: what decides in which hour's file a row lies
_SORTED_BY = ("is_valid", "max_timestamp")


#: rows of one range in one file: its name below the audit's folder, the first row there, how many
FileRows: TypeAlias = "tuple[str, int, int]"


@dataclass
class _Open:
    """A file that rows are added to. ``held`` are not written yet."""

    file: ParquetFile
    rows: int = 0
    held: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table) -> None:
        self.held.append(table)
        self.rows += table.num_rows

    def flush(self) -> None:
        if self.held:
            self.file.write(pa.concat_tables(self.held))
            self.held.clear()


class BatchFiles:
    """The rows of one task: ``begin`` a range, ``add`` its rows, ``end`` it; at last ``close``.

    ``options``: those that rows must be made with, which have the columns that tell the hour.
    """

    def __init__(self, out: str, task: Task, options: Options) -> None:
        self._place, self._root = place_of(out)
        self._schema = file_schema(options)
        self.options = replace(options, columns=(*self._schema.names, *_SORTED_BY))
        self._task = task
        self._topic: str | None = None
        self._prefix = ""
        self._turn = 0
        self._open: dict[str, _Open] = {}
        self._held = 0
        self._hours: set[str] = set()
        self._rows: dict[str, list[int]] = {}  # of the range: file -> first row, rows

    def begin(self, part: Range) -> None:
        """Start a range. Files of another topic are closed."""
        if part.segment.topic != self._topic:
            self.close()
            self._topic = part.segment.topic
            self._prefix = _prefix([one for one in self._task if one.segment.topic == self._topic])
        self._hours, self._rows = set(), {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of the range, in order."""
        if not rows.num_rows:
            return
        table = pa.Table.from_batches([rows])
        valid = table["is_valid"].fill_null(False).to_numpy()
        stamps = table["max_timestamp"].cast(pa.int64()).fill_null(-1).to_numpy()
        hours = np.where(valid, stamps // HOUR_MS, -1)
        table = table.select(self._schema.names)
        found, inverse = np.unique(hours, return_inverse=True)
        for n, hour in enumerate(found.tolist()):
            of_hour = (
                table if len(found) == 1 else table.take(pa.array(np.flatnonzero(inverse == n)))
            )
            self._add(self._folder(hour_of(hour * HOUR_MS)), of_hour)
        self._held += rows.num_rows
        if self._held >= _FLUSH:
            self._flush()

    def _folder(self, hour: int | None) -> str:
        # with a T before the hour, Spark would take it for a date
        name = _NO_HOUR if hour is None else str(np.datetime64(hour, "h")).replace("T", "-")
        if name not in self._hours and len(self._hours) >= HOURS:
            return _NO_HOUR
        self._hours.add(name)
        return name

    def _add(self, hour: str, table: pa.Table) -> None:
        if hour not in self._open:
            if len(self._open) >= _MAX_OPEN_FILES:
                self.close()
            self._open[hour] = self._new(hour)
        one = self._open[hour]
        self._rows.setdefault(self._name(one), [one.rows, 0])[1] += table.num_rows
        one.add(table)

    def _new(self, hour: str) -> _Open:
        assert self._topic is not None
        folder = f"{self._root}/batches/topic={_folder_name(self._topic)}/hour={hour}"
        self._place.create_dir(folder, recursive=True)
        return _Open(
            ParquetFile(
                self._place,
                f"{folder}/{self._prefix}-{self._turn}.parquet",
                self._schema,
                _words(self._schema),
            )
        )

    def _name(self, one: _Open) -> str:
        return one.file.path[len(self._root) :].lstrip("/")

    def end(self) -> tuple[FileRows, ...]:
        """Return where the rows of the range are."""
        return tuple((name, first, count) for name, (first, count) in sorted(self._rows.items()))

    def _flush(self) -> None:
        for one in self._open.values():
            one.flush()
        self._held = 0

    def close(self) -> None:
        """Rename the temporary files to their names."""
        self._flush()
        self._turn += bool(self._open)
        for hour, one in list(self._open.items()):
            one.file.close()
            del self._open[hour]  # abort leaves what has its name

    def abort(self) -> None:
        """Remove the temporary files."""
        for one in self._open.values():
            one.file.abort()
        self._open.clear()


def file_schema(options: Options) -> pa.Schema:
    """Return the columns of the files: those that the options name, without the topic."""
    whole = row_schema(options.columns)
    return pa.schema([one for one in whole if one.name != "topic"], whole.metadata)


def _words(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name in _WORDS]


def _prefix(ranges: list[Range]) -> str:
    digest = hashlib.sha256()
    for one in ranges:
        digest.update(
            f"{one.segment.uri}\0{one.start}\0{one.end}\0".encode("utf-8", "surrogateescape")
        )
    segment, start, _ = ranges[0]
    return f"{segment.partition}-{segment.base_offset:020}-{start:012}-{digest.hexdigest()[:12]}"


def _folder_name(topic: str) -> str:
    """Return a topic as Hive and Spark escape it; one that is too long is cut and gets a digest."""
    name = quote(topic, safe="", errors="backslashreplace")
    if len(name) > (_MAX_TOPIC_LENGTH if name != topic else _KAFKAS):
        return f"{name[:_MAX_TOPIC_LENGTH]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return name


# ---- what is kept --------------------------------------------------------------------------------


def keep(out: str, written: Iterable[FileRows], kept: Iterable[FileRows]) -> None:
    """Remove from batches/ rows of results that were dropped, and files of other runs.

    ``written``: of all results, ``kept``: of those that count. Raises OSError.
    """
    try:
        _keep(out, _by_name(written), _by_name(kept))
    except OSError as error:
        raise not_written(out, error) from error


def _by_name(rows: Iterable[FileRows]) -> Mapping[str, set[FileRows]]:
    found: dict[str, set[FileRows]] = defaultdict(set)
    for one in rows:
        found[one[0]].add(one)
    return found


def _keep(
    out: str, written: Mapping[str, set[FileRows]], kept: Mapping[str, set[FileRows]]
) -> None:
    place, path = place_of(out)
    selector = fs.FileSelector(f"{path}/batches", allow_not_found=True, recursive=True)
    for info in place.get_file_info(selector):
        if info.type != fs.FileType.File:
            continue
        name = info.path.lstrip("/")[len(path.lstrip("/")) :].lstrip("/")
        if name not in kept:
            place.delete_file(info.path)
        elif written[name] - kept[name]:
            _rewrite(place, f"{path}/{name}", sorted(kept[name]))


def _rewrite(place: fs.FileSystem, path: str, kept: list[FileRows]) -> None:
    """Write a file again with these rows alone."""
    with place.open_input_file(path) as stream:
        table = pq.ParquetFile(stream).read(use_threads=False)
    slices = [table.slice(first, count) for _, first, count in kept]
    file = ParquetFile(place, path, table.schema, _words(table.schema))
    try:
        file.write(pa.concat_tables(slices))
        file.close()
    except BaseException:
        file.abort()
        raise
