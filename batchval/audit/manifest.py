"""The table segments/: what an audit has read, and its state there.

With it a later audit reads only what is new.

A segment of the same file, size and time of its last write is not read again. One that has more
bytes, and in which the last batch of then (by its checksum, offset and epoch) still lies, is read
from there. Any other is read whole (batchval.segment.manifest_entry).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from batchval.audit.finding_states import findings_of, unreadable_of
from batchval.audit.outputs import SEGMENTS, ended, with_numbers
from batchval.audit.stored_audit import read
from batchval.core.batches.columns import SCHEMA_VERSION
from batchval.core.batches.continuity import PRODUCERS, Continuity
from batchval.core.format.layout import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CRC,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAGIC,
    PARTITION_LEADER_EPOCH,
    RECORDS,
)
from batchval.errors import BatchvalError
from batchval.kafka_versions import find_release
from batchval.segment.findings import Finding
from batchval.segment.manifest_entry import Entry, Reading
from batchval.segment.options import Options
from batchval.segment.range_check import Last
from batchval.segment.store import SegmentInfo, Store, folder_and_name, one_line, shown, text_of
from batchval.segment.topic_rules import rules_digest

__all__ = ["Manifest", "options_json", "to_table"]

_OPTIONS: Final = b"batchval.options"
_PLACE: Final = ("topic", "partition", "base_offset", "size", "mtime_ns", "file", "unreadable")
_COUNTS: Final = ("batches", "records", "findings", "thinned")
_STORED: Final = (
    *(
        "deep",
        "mode",
        "cleanup_policy",
        "accept_claims_header",
        "max_decompressed_bytes",
    ),
    *("producer_id_expiration_ms", "trust_claims"),
)


def options_json(options: Options) -> str:
    """Return the options that findings depend on as JSON. Audits with different options cannot
    continue each other.
    """
    stored = {name: getattr(options, name) for name in _STORED}
    stored["kafka_version"] = options.release.name
    stored["record_rules"] = rules_digest(options.record_rules)
    return json.dumps({"schema_version": SCHEMA_VERSION, **stored}, sort_keys=True)


def to_table(entries: Sequence[Entry], options: Options) -> pa.Table:
    """Return the manifest. It has the producers of each partition's last two segments."""
    plain = (*_PLACE, *_COUNTS, "read_at")
    columns: dict[str, Any] = {name: [getattr(entry, name) for entry in entries] for name in plain}
    columns["state"] = [json.dumps(entry.state(), default=int) for entry in entries]
    columns["file"] = [text_of(entry.file) for entry in entries]
    for name in Last._fields:
        columns[f"last_{name}"] = [
            getattr(entry.last, name) if entry.last else None for entry in entries
        ]
    for name in ("last_offset", "leader_epoch", "after_damage"):
        columns[name] = [getattr(entry.continuity, name) for entry in entries]
    columns["producers"] = _producers([entry.continuity.producers for entry in entries])
    arrays = [
        columns[one.name] if one.name == "producers" else pa.array(columns[one.name], one.type)
        for one in SEGMENTS
    ]
    return pa.Table.from_arrays(
        arrays, schema=SEGMENTS.with_metadata({_OPTIONS: options_json(options)})
    )


def _producers(states: Sequence[np.ndarray]) -> pa.Array:
    kind = SEGMENTS.field("producers").type
    all_of_them = np.concatenate([np.empty(0, PRODUCERS), *states])
    fields = [
        pa.array(np.ascontiguousarray(all_of_them[one.name]), one.type) for one in kind.value_type
    ]
    offsets = np.cumsum([0, *map(len, states)]).astype("<i4")
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
    )


class Manifest:
    """An earlier audit: its segments and findings. Made by ``read``."""

    def __init__(self, entries: Iterable[Entry], errors: pa.Table, runs: pa.Table) -> None:
        self.findings: Sequence[Finding] = findings_of(errors)
        self.unreadable: Mapping[str, int] = unreadable_of(errors)
        self.runs = runs
        self.began = _last_reread(runs)
        self._named = {
            entry.file: entry for entry in entries if entry.unreadable is None and entry.is_settled
        }
        self._before: dict[str, str] = {}
        folders: dict[str, list[Entry]] = {}
        for entry in self._named.values():
            folders.setdefault(folder_and_name(entry.file)[0], []).append(entry)
        for inside in folders.values():
            names = [
                one.file for one in sorted(inside, key=lambda one: (one.base_offset or 0, one.file))
            ]
            self._before.update(zip(names[1:], names, strict=False))

    @staticmethod
    def read(uri: str, options: Options) -> Manifest:
        """Read an audit's folder. Raises OutputError where it is none, BatchvalError where the
        audit has not come to its end, or is of other options or of an earlier release."""
        ended(uri)
        table = read(uri, "segments")
        if not set(SEGMENTS.names) <= set(table.column_names):
            why = "the audit was written by an earlier release; audit once without --since"
            raise BatchvalError(f"{shown(uri)}: cannot resume: {why}")
        errors, runs = read(uri, "errors"), read(uri, "runs")
        stored = (table.schema.metadata or {}).get(_OPTIONS, b"{}").decode()
        differing = _differing(stored, options)
        if differing:
            others = f"other options ({', '.join(differing)})"
            raise BatchvalError(f"{shown(uri)}: cannot resume: the earlier audit used {others}")
        try:
            return Manifest(map(_entry, with_numbers(table).to_pylist()), errors, runs)
        except (KeyError, TypeError, ValueError) as error:
            raise BatchvalError(
                f"{shown(uri)}: this folder has no manifest of an audit: {one_line(error)}"
            ) from None

    def find(self, segment: SegmentInfo) -> tuple[Reading, Entry | None]:
        """Return how much of a segment must be read, and its entry where that is not all."""
        entry = self._named.get(_name(segment))
        reading = Reading.WHOLE if entry is None else entry.reading(segment)
        if entry is None or reading is Reading.WHOLE:
            return Reading.WHOLE, None
        if reading is Reading.GROWN and not _has_grown(segment, entry):
            return Reading.WHOLE, None
        return reading, entry

    def follows(self, segment: SegmentInfo, before: SegmentInfo | None) -> bool:
        """Return whether ``before`` was the segment before this one then, too."""
        return self._before.get(_name(segment)) == (before and _name(before))

    def is_another(self, segment: SegmentInfo) -> bool:
        """Return whether the log is new, or its size or time differs from the earlier run."""
        entry = self._named.get(_name(segment))
        return entry is None or entry.is_another(segment)


def _last_reread(runs: pa.Table) -> int:
    """Return when the last run began that read segments because of their age, or else the first
    one. Milliseconds."""
    rows: Sequence[dict[str, Any]] = with_numbers(runs).to_pylist()
    again = [row["started_at"] for row in rows if row["reread"]]
    return int(again[-1] if again else rows[0]["started_at"] if rows else 0)


def _has_grown(segment: SegmentInfo, entry: Entry) -> bool:
    """Return whether the last batch that the entry knows is still there."""
    assert entry.last is not None
    store, path = Store.of(segment.uri)
    try:
        with store.open(path) as file:
            header = bytes(file.read(entry.last.position, RECORDS)[:RECORDS])
    except OSError:
        return False  # the range that reads it reports the error
    size = int.from_bytes(header[BATCH_LENGTH:LOG_OVERHEAD], "big") + LOG_OVERHEAD
    crc = int.from_bytes(header[CRC:ATTRIBUTES], "big")
    return (size, crc) == (entry.last.size, entry.last.crc) and _is_there(header, entry)


def _is_there(header: bytes, entry: Entry) -> bool:
    """Return whether the segment still has the last batch. A checksum covers neither offset nor
    epoch: records that are sent again to a new leader of a truncated log have the same one.
    """
    magic = header[MAGIC] if len(header) == RECORDS else 0
    offset, epoch = int.from_bytes(header[:BATCH_LENGTH], "big", signed=True), -1
    if magic >= 2:
        offset += int.from_bytes(header[LAST_OFFSET_DELTA:BASE_TIMESTAMP], "big", signed=True)
        epoch = int.from_bytes(header[PARTITION_LEADER_EPOCH:MAGIC], "big", signed=True)
    return offset == entry.continuity.last_offset and epoch in (-1, entry.continuity.leader_epoch)


def _name(segment: SegmentInfo) -> str:
    """Return the name that the manifest has, which holds no credentials."""
    return text_of(shown(segment.uri))


def _differing(stored: str, options: Options) -> list[str]:
    """Return the options in ``name=value`` form that the earlier audit had other values of.

    An option that the earlier release did not have has its default.
    """
    ours = json.loads(options_json(options))
    try:
        theirs = json.loads(stored)
    except ValueError:
        theirs = {}
    if not isinstance(theirs, dict):
        theirs = {}
    defaults = json.loads(options_json(Options())) | {"record_rules": ""}
    theirs = {**defaults, **theirs}
    return [
        f"{name}={json.dumps(theirs[name])}"
        for name in ours
        if ours[name] != theirs[name]
        and not (name == "kafka_version" and _finds_the_same(theirs[name], options))
    ]


def _finds_the_same(kafka_version: object, options: Options) -> bool:
    """Return whether the earlier audit's release of Kafka has the same row."""
    try:
        return find_release(cast(str, kafka_version)).row == options.release.row
    except BatchvalError:
        return False


def _entry(row: dict[str, Any]) -> Entry:
    last = None
    if row["last_position"] is not None:
        last = Last(row["last_position"], row["last_size"], row["last_crc"])
    state = Continuity()
    state.last_offset, state.leader_epoch = row["last_offset"], row["leader_epoch"]
    state.after_damage = row["after_damage"]
    fields = PRODUCERS.names or ()
    state.producers = np.array(
        [tuple(one[name] for name in fields) for one in row["producers"] or ()], PRODUCERS
    )
    entry = Entry(
        **{name: row[name] for name in (*_PLACE, *_COUNTS)},
        last=last,
        continuity=state,
        read_at=row["read_at"],
    )
    entry.restore(json.loads(row["state"]))
    return entry
