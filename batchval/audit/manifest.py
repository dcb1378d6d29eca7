"""segments/: what an audit has read, and where it was then. With it a later audit reads what is new alone.

A segment with the same topic, partition, base offset, size and time of its last write is not read again; one that has
grown behind its last batch (told by that batch's checksum, offset and epoch) is read from there; any other is read
whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from batchval.audit.outputs import SEGMENTS, ended, place_of
from batchval.core.columns import SCHEMA_VERSION
from batchval.core.continuity import PRODUCERS, Continuity
from batchval.core.layout import (
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
from batchval.segment.judge import Last
from batchval.segment.options import Options
from batchval.segment.partition import Entry
from batchval.segment.store import SegmentInfo, Store, one_line, shown, text_of

__all__ = ["Manifest", "options_word", "to_table"]

_OPTIONS: Final = b"batchval.options"
_STORED: Final = (
    *("deep", "mode", "kafka_version", "cleanup_policy", "accept_claims_header", "max_decompressed_bytes"),
    "producer_id_expiration_ms",
)


def options_word(options: Options) -> str:
    """The options that findings depend on. Audits that differ in them do not go on from each other."""
    stored = {name: getattr(options, name) for name in _STORED}
    return json.dumps({"schema_version": SCHEMA_VERSION, **stored}, sort_keys=True)


def to_table(entries: Sequence[Entry], options: Options) -> pa.Table:
    """The manifest. The producers are those behind each partition's last two segments: more is never asked."""
    plain = ("topic", "partition", "base_offset", "size", "mtime_ns", "file", "unreadable")
    counts = ("batches", "records", "findings", "thinned")
    columns: dict[str, Any] = {name: [getattr(entry, name) for entry in entries] for name in (*plain, *counts)}
    columns["file"] = [text_of(entry.file) for entry in entries]
    for name in Last._fields:
        columns[f"last_{name}"] = [getattr(entry.last, name) if entry.last else None for entry in entries]
    for name in ("last_offset", "leader_epoch", "after_damage"):
        columns[name] = [getattr(entry.continuity, name) for entry in entries]
    columns["producers"] = _producers([entry.continuity.producers for entry in entries])
    arrays = [
        columns[one.name] if one.name == "producers" else pa.array(columns[one.name], one.type) for one in SEGMENTS
    ]
    return pa.Table.from_arrays(arrays, schema=SEGMENTS.with_metadata({_OPTIONS: options_word(options)}))


def _producers(states: Sequence[np.ndarray]) -> pa.Array:
    kind = SEGMENTS.field("producers").type
    all_of_them = np.concatenate([np.empty(0, PRODUCERS), *states])
    fields = [pa.array(np.ascontiguousarray(all_of_them[one.name]), one.type) for one in kind.value_type]
    offsets = np.cumsum([0, *map(len, states)]).astype("<i4")
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(fields, fields=list(kind.value_type)))


class Manifest:
    """An earlier audit's. Make one with ``read``."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._same: dict[tuple[Any, ...], list[Entry]] = {}
        self._named: dict[str, Entry] = {}
        for entry in entries:
            if entry.unreadable is None:
                self._same.setdefault(_key(entry), []).append(entry)
                self._named[entry.file] = entry

    @staticmethod
    def read(uri: str, options: Options) -> Manifest:
        """From an audit's folder, its segments/ or a file there. BatchvalError: it is none, or of other options."""
        place, path = place_of(uri)
        ended(uri)
        try:
            if place.get_file_info(f"{path}/segments").type == fs.FileType.Directory:
                path += "/segments"
            table = pq.read_table(path, filesystem=place)
        except (OSError, pa.ArrowException) as error:
            raise BatchvalError(f"{shown(uri)}: no manifest of an audit: {one_line(error)}") from None
        if not set(SEGMENTS.names) <= set(table.column_names):
            raise BatchvalError(f"{shown(uri)}: no manifest of an audit: other columns than its segments/ has")
        stored = (table.schema.metadata or {}).get(_OPTIONS, b"{}").decode()
        differing = _differing(stored, options)
        if differing:
            others = ", ".join(differing)
            raise BatchvalError(f"{shown(uri)}: cannot resume: the earlier audit used other options ({others})")
        return Manifest(_entry(row) for row in table.to_pylist())

    def same(self, segment: SegmentInfo) -> Entry | None:
        """The entry of a segment that nobody has written to since."""
        found = self._same.get(_key(segment), [])
        return next((entry for entry in found if entry.file == _name(segment)), found[0] if found else None)

    def grown(self, segment: SegmentInfo) -> Entry | None:
        """The entry of a segment to which batches were added since, and which is the same up to there."""
        entry = self._named.get(_name(segment))
        if entry is None or entry.last is None or segment.size < entry.end:
            return None
        store, path = Store.of(segment.uri)
        try:
            with store.open(path) as file:
                header = bytes(file.read(entry.last.position, RECORDS)[:RECORDS])
        except OSError:
            return None  # whoever reads it will say why
        size = int.from_bytes(header[BATCH_LENGTH:LOG_OVERHEAD], "big") + LOG_OVERHEAD
        crc = int.from_bytes(header[CRC:ATTRIBUTES], "big")
        return entry if (size, crc) == (entry.last.size, entry.last.crc) and _is_there(header, entry) else None


def _is_there(header: bytes, entry: Entry) -> bool:
    """A checksum is of neither offset nor epoch: records sent again to a new leader of a log cut off have the same."""
    magic = header[MAGIC] if len(header) == RECORDS else 0
    offset, epoch = int.from_bytes(header[:BATCH_LENGTH], "big", signed=True), -1
    if magic >= 2:
        offset += int.from_bytes(header[LAST_OFFSET_DELTA:BASE_TIMESTAMP], "big", signed=True)
        epoch = int.from_bytes(header[PARTITION_LEADER_EPOCH:MAGIC], "big", signed=True)
    return offset == entry.continuity.last_offset and epoch in (-1, entry.continuity.leader_epoch)


def _name(segment: SegmentInfo) -> str:
    """As the manifest has it, in which no credentials are kept."""
    return text_of(shown(segment.uri))


def _key(one: Entry | SegmentInfo) -> tuple[Any, ...]:
    return one.topic, one.partition, one.base_offset, one.size, one.mtime_ns


def _differing(stored: str, options: Options) -> list[str]:
    """Return the options in ``name=value`` form that the earlier audit had other values of.

    An option that the earlier release did not have has its default.
    """
    ours = json.loads(options_word(options))
    try:
        theirs = json.loads(stored)
    except ValueError:
        theirs = {}
    if not isinstance(theirs, dict):
        theirs = {}
    theirs = {**{name: getattr(Options(), name) for name in _STORED}, **theirs}
    return [f"{name}={json.dumps(theirs.get(name))}" for name in ours if ours[name] != theirs.get(name)]


def _entry(row: dict[str, Any]) -> Entry:
    last = None
    if row["last_position"] is not None:
        last = Last(row["last_position"], row["last_size"], row["last_crc"])
    state = Continuity()
    state.last_offset, state.leader_epoch = row["last_offset"], row["leader_epoch"]
    state.after_damage = row["after_damage"]
    fields = PRODUCERS.names or ()
    state.producers = np.array([tuple(one[name] for name in fields) for one in row["producers"] or ()], PRODUCERS)
    names = ("topic", "partition", "base_offset", "size", "mtime_ns", "file", "unreadable")
    counts = ("batches", "records", "findings", "thinned")
    return Entry(**{name: row[name] for name in (*names, *counts)}, last=last, continuity=state)
