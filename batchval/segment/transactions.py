"""Transactions of one partition: open ones, aborted ranges and the last stable offset.

What follows from batches and markers is what Kafka's ProducerStateManager does:

* a transactional data batch opens a transaction at its base offset if its producer has none open;
* a marker ends its producer's transaction, whatever the epochs are. A marker without an open
  transaction has no effect;
* an aborted transaction gets an entry in the .txnindex of the segment that holds its marker.
  The entry's last stable offset is the first offset of the oldest transaction that another
  producer has open, or the offset after the marker.

A follower appends what one fetch response brings in one step: it opens all transactions of the
response, and only then ends them. So its entry can hold the first offset of the next transaction
where the leader's holds the offset after the marker. ``AbortedRange.next_first_offset`` is this
second legal value.

A marker, which the transaction coordinator writes, is a batch of magic 2 with the control bit and a
producer id, never compressed. Its first record is

    key    version:int16 type:int16 (0 abort, 1 commit)
    value  version:int16 coordinator_epoch:int32
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from batchval.core.batches.columns import BatchColumns
from batchval.core.format.layout import RECORDS

__all__ = [
    "ABORT",
    "COMMIT",
    "LATE_TRANSACTION_BUFFER_MS",
    "NONE",
    "NO_MARKER",
    "TRANSACTION_MAX_TIMEOUT_MS",
    "UNREADABLE",
    "AbortedRange",
    "HangingTransaction",
    "OpenTransaction",
    "Transactions",
    "marker_kinds",
]

ABORT, COMMIT = 0, 1

NO_MARKER, UNREADABLE = -1, -2

_MARKER_BATCH = 78  # a marker's whole batch, as every Kafka release up to 4.4 writes it

_MARKER_RECORD = np.arange(RECORDS, _MARKER_BATCH)

_MAX_MARKER_BYTES = 1024  # bytes of records that are looked at

_VERSION_AND_TYPE = struct.Struct(">hh")

_VERSION = struct.Struct(">h")

_MARKER_VALUE_SIZE = 6


def marker_kinds(columns: BatchColumns, data: memoryview) -> _Array | None:
    """Return what each batch is as a marker: 0 abort, 1 commit, below 0 none. None: no marker is
    there.

    ``data`` holds the bytes that positions of ``columns`` count from.
    """
    control = columns["is_control_batch"]
    if not control.any():
        return None
    asked = control & columns["is_valid"] & (columns["producer_id"] >= 0)
    rows = np.flatnonzero(asked & (columns["records_count"] != 0))
    found = np.full(len(columns), NO_MARKER, "i1")
    if len(rows):
        found[rows] = _kinds(columns, rows, data)
    return found


def _kinds(columns: BatchColumns, rows: _Array, data: memoryview) -> _Array:
    """Return what the first records of control batches are: 0 and 1, -1 other kinds, -2 none."""
    read = np.frombuffer(data, np.uint8)
    positions = columns["position"][rows].astype("<i8")
    sizes = columns["size_in_bytes"][rows]
    is_plain = columns["compression_type"][rows] == 0
    found = np.full(len(rows), UNREADABLE, "i1")
    usual = is_plain & (sizes == _MARKER_BATCH) & (positions >= 0)
    usual = np.flatnonzero(usual & (positions <= len(read) - _MARKER_BATCH))
    record = read[positions[usual][:, None] + _MARKER_RECORD]
    # length 16, attributes, two deltas of one byte, a key of 4 bytes, a value of 6, no headers
    expected = (record[:, 0] == 32) & (record[:, 2] < 128) & (record[:, 3] < 128)
    expected &= (record[:, 4] == 8) & (record[:, 5] < 128) & (record[:, 7] == 0)
    expected &= (record[:, 8] <= 1) & (record[:, 9] == 12) & (record[:, 10] < 128)
    found[usual[expected]] = record[expected, 8]
    is_read = np.zeros(len(rows), bool)
    is_read[usual[expected]] = True
    for i in np.flatnonzero(~is_read & is_plain).tolist():
        start = int(positions[i])
        stop = start + min(int(sizes[i]), RECORDS + _MAX_MARKER_BYTES)
        found[i] = _kind(bytes(data[start + RECORDS : stop]))
    return found


def _kind(record: bytes) -> int:
    """Return what a record of a control batch is, as EndTransactionMarker.deserialize reads it."""
    try:
        _, at = _varint(record, 0)
        _, at = _varint(record, at + 1)  # after the attributes
        _, at = _varint(record, at)
        size, at = _varint(record, at)
        version, kind = _VERSION_AND_TYPE.unpack_from(record, at)
        if size < _VERSION_AND_TYPE.size or version < 0:
            return UNREADABLE
        if kind not in (ABORT, COMMIT):
            return NO_MARKER
        value_size, at = _varint(record, at + size)
        (version,) = _VERSION.unpack_from(record, at)
    except (IndexError, ValueError, struct.error):
        return UNREADABLE
    if not _MARKER_VALUE_SIZE <= value_size <= len(record) - at or version < 0:
        return UNREADABLE
    return int(kind)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and where it ends. Raises IndexError or ValueError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("a varint of more than 10 bytes")


#: Kafka's default of transaction.max.timeout.ms.
TRANSACTION_MAX_TIMEOUT_MS = 900_000

#: Kafka's margin, which it adds before it counts a transaction as late (ProducerStateManager,
#: KIP-664).
LATE_TRANSACTION_BUFFER_MS = 300_000

_HIGHEST = 2**63 - 1

#: Absent offset, timestamp or marker.
NONE = -1

_LOG_APPEND_TIME = 8

_TRANSACTIONAL_OR_CONTROL = 16 | 32

#: One row for each abort marker. ``order`` counts transactional batches and markers.
_ABORTS = np.dtype(
    [
        ("producer_id", "<i8"),
        ("first_offset", "<i8"),
        ("last_offset", "<i8"),
        ("last_stable_offset", "<i8"),
        ("next_first_offset", "<i8"),
        ("certain_from", "<i8"),
        ("segment", "<i8"),
        ("position", "<i8"),
        ("order", "<i8"),
    ]
)

_Array = npt.NDArray[Any]


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended. Timestamps are max_timestamp of batches, in ms."""

    producer_id: int
    producer_epoch: int  # of the last batch
    first_offset: int
    last_offset: int  # of the last batch so far
    segment: int  # where the first batch is
    position: int
    first_timestamp: int
    last_timestamp: int
    broker_timestamp: int  # a broker's clock at the first batch or later; -1 if none is known
    is_certain: bool  # False where damage or a gap follows the first batch


class AbortedRange(NamedTuple):
    """One abort marker and the transaction that it ended.

    first_offset: -1 if the log has no batch of the transaction. It is a marker without data, or
        the data is below the log's start, was cleaned or is damaged.
    next_first_offset: the second legal value of last_stable_offset; -1 if absent.
    certain_from: the log has no damage and no gap between this offset and the marker; -1 if it
        has none at all before the marker.
    segment, position: where the marker is.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    next_first_offset: int
    certain_from: int
    segment: int
    position: int


class HangingTransaction(NamedTuple):
    """A transaction that has been open for longer than a coordinator allows (KIP-664).

    is_certain: False if the age rests on clocks of clients, if the limit is only assumed, or if
        the marker may be in damage.
    """

    transaction: OpenTransaction
    age_ms: int
    limit_ms: int
    is_certain: bool
    rule: str
    reason: str


class _Open(NamedTuple):
    """An OpenTransaction while the log is read."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    segment: int
    position: int
    first_timestamp: int
    last_timestamp: int
    broker_timestamp: int
    order: int

    def then(self, later: _Open) -> _Open:
        return self._replace(
            producer_epoch=later.producer_epoch,
            last_offset=later.last_offset,
            last_timestamp=later.last_timestamp,
        )


class _Ended(NamedTuple):
    """A producer's first marker. Its transaction may have begun before what was read."""

    has_data: bool
    kind: int
    order: int


class _First(NamedTuple):
    """The first batch that is believed."""

    offset: int
    has_base: bool  # base_offset is the first record's (magic 2)
    after_damage: bool


#: The attributes of Transactions that are numbers or tuples of numbers, and those by producer id.
_PLAIN = (
    *("last_offset", "newest_timestamp", "newest_broker_timestamp", "certain_from"),
    *("after_damage", "_first", "_events", "_committed", "_aborted", "_without_data"),
    *("_first_marker_timestamp", "_first_data", "_other_data"),
)

_BY_PRODUCER = (("_unended", _Open), ("_ended", _Ended), ("_open", _Open))


class Transactions:
    """Joinable state of one partition's transactions.

    It is fed successive stretches of one partition, in order. Pieces that were read by different
    workers are joined, and have the results of one reader: what a piece cannot know (is its first
    marker's transaction open before it?) stays unresolved until an earlier piece is joined. A
    state is small: an entry for each producer and for each abort marker.
    """

    def __init__(self) -> None:
        self.last_offset: int | None = None
        self.newest_timestamp = NONE
        #: The newest time that a broker's clock stamped: of markers and LogAppendTime batches.
        self.newest_broker_timestamp = NONE
        #: neither damage nor a gap is between this offset and the end; -1: none at all
        self.certain_from = NONE
        self.after_damage = False
        self._first: _First | None = None
        self._events = 0
        self._committed = 0
        self._aborted = 0
        self._without_data = 0
        # By producer id: without a marker so far; the first marker; open after a marker.
        self._unended: dict[int, _Open] = {}
        self._ended: dict[int, _Ended] = {}
        self._open: dict[int, _Open] = {}
        self._first_marker_timestamp = NONE
        # The first transactional data batch, and the first of another producer: (id, offset).
        self._first_data: tuple[int, int] | None = None
        self._other_data: tuple[int, int] | None = None
        self._aborts: list[_Array] = []
        # Those of _aborts that have rows without next_first_offset, and their producers.
        self._pending: list[_Array] = []
        self._pending_producers: set[int] = set()

    # ---- what was found --------------------------------------------------------------------------

    @property
    def open(self) -> list[OpenTransaction]:
        """Return the transactions that are open at the end, the oldest first."""
        return [
            OpenTransaction(
                *found[:-1],
                is_certain=found.first_offset >= self.certain_from and not self.after_damage,
            )
            for found in self._open_ones()
        ]

    def aborted(self, segment: int | None = None) -> list[AbortedRange]:
        """Return the abort markers in order, of one segment or of all."""
        rows = self._all_aborts()
        if segment is not None:
            rows = rows[rows["segment"] == segment]
        return [AbortedRange(*row[:-1]) for row in rows.tolist()]

    @property
    def committed_count(self) -> int:
        """Return the number of transactions that a marker committed."""
        heads = self._ended.values()
        return self._committed + sum(end.has_data and end.kind == COMMIT for end in heads)

    @property
    def aborted_count(self) -> int:
        """Return the number of transactions with data that a marker aborted."""
        heads = self._ended.values()
        return self._aborted + sum(end.has_data and end.kind == ABORT for end in heads)

    @property
    def markers_without_data(self) -> int:
        """Return the number of markers that ended no transaction here: they are legal."""
        return self._without_data + sum(not end.has_data for end in self._ended.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest open transaction."""
        return min((found.first_offset for found in self._open_ones()), default=None)

    @property
    def last_stable_offset(self) -> int | None:
        """Return where read_committed readers stop, if all is replicated; None without batches."""
        if self.last_offset is None or self.first_unstable_offset is not None:
            return self.first_unstable_offset
        return self.last_offset + 1

    def hanging(
        self,
        now_ms: int | None = None,
        *,
        transaction_max_timeout_ms: int | None = None,
        margin_ms: int = LATE_TRANSACTION_BUFFER_MS,
    ) -> list[HangingTransaction]:
        """Return open transactions that are older than transaction.max.timeout.ms and a margin.

        The age ends at ``now_ms``, or without it at the newest timestamp of the partition. It
        begins where a broker's clock was first seen after the first batch (LogAppendTime, or any
        marker). Without one it begins at the producer's last timestamp, as in Kafka's
        ``kafka-transactions.sh find-hanging``; a client's clock is not certain, however.
        ``transaction_max_timeout_ms``: the broker's setting; None: Kafka's default is assumed.
        """
        assumed = transaction_max_timeout_ms is None
        timeout = TRANSACTION_MAX_TIMEOUT_MS if assumed else transaction_max_timeout_ms
        limit = margin_ms + (timeout or 0)
        found = []
        for transaction in self.open:
            end = self.newest_broker_timestamp if now_ms is None else now_ms
            start = transaction.broker_timestamp
            is_brokers = start > 0 and end > 0
            if not is_brokers:
                end = self.newest_timestamp if now_ms is None else now_ms
                start = transaction.last_timestamp
            age = end - start
            if start <= 0 or age <= limit:
                continue
            reason = (
                f"the transaction of producer id {transaction.producer_id} at offset "
                f"{transaction.first_offset} is open for {age} ms, the limit is {limit} ms"
            )
            certain = is_brokers and not assumed and transaction.is_certain
            found.append(HangingTransaction(transaction, age, limit, certain, "L16", reason))
        return found

    # ---- to keep ---------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values, which ``from_json`` reads."""
        fresh = Transactions()
        found = {name: getattr(self, name) for name in _PLAIN}
        found = {name: value for name, value in found.items() if value != getattr(fresh, name)}
        for name, _ in _BY_PRODUCER:
            if values := getattr(self, name):
                found[name] = list(values.items())
        if len(rows := self._all_aborts()):
            found["_aborts"] = rows.tolist()
        return found

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Transactions:
        """Return a state that goes on from where ``to_json`` was called."""
        made = Transactions()
        for name in _PLAIN:
            value = found.get(name, getattr(made, name))
            setattr(made, name, tuple(value) if isinstance(value, list) else value)
        made._first = made._first and _First(*made._first)
        for name, kind in _BY_PRODUCER:
            setattr(made, name, {key: kind(*value) for key, value in found.get(name, ())})
        if rows := found.get("_aborts"):
            made._keep(np.array([tuple(row) for row in rows], _ABORTS))
        return made

    # ---- reading ---------------------------------------------------------------------------------

    def damaged(self) -> None:
        """Note that batches may be missing here, with markers of any producer."""
        self.after_damage = True

    def feed(
        self,
        columns: BatchColumns,
        kinds: _Array | None,
        base: int = 0,
        *,
        segment: int = 0,
        breaks: Sequence[int] = (),
    ) -> None:
        """Read the next stretch.

        Positions of ``columns`` count from file position ``base``. ``kinds``: what ``marker_kinds``
        says of the rows. ``segment``: the base offset in the file's name. ``breaks``: rows that
        damage precedes, ascending. Same as ``damaged`` between two stretches.
        """
        if not len(columns):
            return
        if len(breaks) or not self._feed_plain(columns):
            read = Transactions()
            read._read(columns, kinds, base, segment, breaks)
            self.join(read)

    def _feed_plain(self, columns: BatchColumns) -> bool:
        """Read a stretch of valid batches without transactions, gaps or magic 0 and 1."""
        flags = int(np.bitwise_or.reduce(columns["attributes"]))
        if flags & _TRANSACTIONAL_OR_CONTROL:
            return False
        if np.count_nonzero(columns["is_valid"]) < len(columns):
            return False
        offsets, last, timestamps = (
            columns["base_offset"],
            columns["last_offset"],
            columns["max_timestamp"],
        )
        if np.count_nonzero(offsets[1:] - last[:-1] != 1) or columns["magic"][0] < 2:
            return False
        self._meet(_First(int(offsets[0]), True, False))
        self.last_offset = int(last[-1])
        self.after_damage = False
        self.newest_timestamp = max(self.newest_timestamp, int(np.maximum.reduce(timestamps)))
        if flags & _LOG_APPEND_TIME:
            self._stamped(timestamps[columns["attributes"] & _LOG_APPEND_TIME != 0])
        return True

    def _stamped(self, timestamps: _Array) -> None:
        newest = int(timestamps.max(initial=NONE))
        self.newest_broker_timestamp = max(self.newest_broker_timestamp, newest)

    def _meet(self, first: _First) -> None:
        """Note a gap between the last batch so far and the next, which is about to be taken."""
        after_damage = self.after_damage or first.after_damage
        start = first.offset
        broken = after_damage
        if self.last_offset is not None:
            start = max(start, min(self.last_offset, _HIGHEST - 1) + 1)
            broken |= first.offset <= self.last_offset
            broken |= first.has_base and first.offset != self.last_offset + 1
        if broken:
            self.certain_from = max(self.certain_from, start)
        if self._first is None:
            self._first = first._replace(after_damage=after_damage)

    def _read(
        self,
        columns: BatchColumns,
        kinds: _Array | None,
        base: int,
        segment: int,
        breaks: Sequence[int],
    ) -> None:
        """Read one stretch into an empty state."""
        rows = np.flatnonzero(columns["is_valid"])
        self.after_damage = not len(rows) or bool(rows[-1] < len(columns) - 1)
        if not len(rows):
            return
        is_v2 = columns["magic"][rows] >= 2
        producers = columns["producer_id"][rows]
        kinds = np.full(len(rows), NO_MARKER, "i1") if kinds is None else kinds[rows]
        certain = self._certain(columns, rows, is_v2, kinds, breaks)
        self._first = _First(int(columns["base_offset"][rows[0]]), bool(is_v2[0]), bool(rows[0]))
        self.last_offset = int(columns["last_offset"][rows[-1]])
        self.certain_from = max(self._first.offset if rows[0] else NONE, int(certain[-1]))
        timestamps, is_marker = columns["max_timestamp"][rows], kinds >= 0
        self.newest_timestamp = max(NONE, int(timestamps.max()))
        is_brokers = is_v2 & (columns["attributes"][rows] & _LOG_APPEND_TIME != 0)
        self._stamped(timestamps[is_marker | is_brokers])
        data_rows = columns["is_transactional"][rows] & (producers >= 0)
        data_rows &= ~columns["is_control_batch"][rows]
        events = np.flatnonzero(is_marker | data_rows)
        if len(events):
            fields = {
                name: columns[name][rows[events]]
                for name in ("base_offset", "last_offset", "max_timestamp", "producer_epoch")
            }
            fields["producer_id"], fields["kind"] = producers[events], kinds[events]
            fields["position"] = columns["position"][rows[events]].astype("<i8") + base
            fields["is_brokers"], fields["certain_from"] = is_brokers[events], certain[events]
            self._find(fields, segment)

    def _certain(
        self,
        columns: BatchColumns,
        rows: _Array,
        is_v2: _Array,
        kinds: _Array,
        breaks: Sequence[int],
    ) -> _Array:
        """Return for each row from which offset on nothing is missing; -1: since the first row."""
        offsets, last = columns["base_offset"][rows], columns["last_offset"][rows]
        found = np.full(len(rows), NONE, "<i8")
        before = np.minimum(last[:-1], _HIGHEST - 1) + 1
        after = offsets[1:]
        broken = (np.diff(rows) > 1) | (after < before) | (is_v2[1:] & (after != before))
        if len(breaks):
            broken |= np.diff(np.searchsorted(breaks, rows, "right")) > 0
        found[1:][broken] = np.maximum(before, after)[broken]
        unreadable = kinds == UNREADABLE
        found[unreadable] = np.minimum(last[unreadable], _HIGHEST - 1) + 1
        if rows[0]:
            found[0] = max(found[0], offsets[0])
        return np.asarray(np.maximum.accumulate(found))

    def _find(self, fields: dict[str, _Array], segment: int) -> None:
        """Group the stretch's transactional batches and markers into transactions."""
        count = self._events = len(fields["kind"])
        producers, offsets, kinds = fields["producer_id"], fields["base_offset"], fields["kind"]
        is_marker = kinds >= 0
        order = np.argsort(producers, kind="stable")
        ends_here = is_marker[order]
        is_head = np.ones(count, bool)
        is_head[1:] = producers[order][1:] != producers[order][:-1]
        begins = is_head.copy()
        begins[1:] |= ends_here[:-1]
        starts = np.flatnonzero(begins)
        stops = np.append(starts[1:], count) - 1
        is_head, is_ended = is_head[starts], ends_here[stops]
        has_data = stops - starts + 1 > is_ended
        first, last = order[starts], order[stops - is_ended]  # of the data, where there is any
        end = order[stops]  # the marker, where there is one
        kind = np.where(is_ended, kinds[end], NO_MARKER)

        markers = np.flatnonzero(is_marker)
        if len(markers):
            self._first_marker_timestamp = int(fields["max_timestamp"][markers[0]])
        known = ~is_head & is_ended
        self._committed = int((known & has_data & (kind == COMMIT)).sum())
        self._aborted = int((known & has_data & (kind == ABORT)).sum())
        self._without_data = int((known & ~has_data).sum())
        for i in np.flatnonzero(is_head & is_ended).tolist():
            producer = int(producers[end[i]])
            self._ended[producer] = _Ended(bool(has_data[i]), int(kind[i]), int(end[i]))
        for i in np.flatnonzero(~is_ended).tolist():
            opened = self._opened(fields, int(first[i]), int(last[i]), markers, segment)
            (self._unended if is_head[i] else self._open)[opened.producer_id] = opened

        data = np.flatnonzero(~is_marker)
        if len(data):
            self._first_data = (int(producers[data[0]]), int(offsets[data[0]]))
            others = data[producers[data] != producers[data[0]]]
            if len(others):
                self._other_data = (int(producers[others[0]]), int(offsets[others[0]]))
        aborting = np.flatnonzero(kind == ABORT)
        if not len(aborting):
            return
        aborting = aborting[np.argsort(end[aborting])]
        at = end[aborting]
        rows = np.empty(len(at), _ABORTS)
        rows["producer_id"], rows["last_offset"], rows["order"] = producers[at], offsets[at], at
        rows["first_offset"] = np.where(has_data[aborting], offsets[first[aborting]], NONE)
        rows["certain_from"], rows["position"] = fields["certain_from"][at], fields["position"][at]
        rows["segment"] = segment
        rows["last_stable_offset"] = np.minimum(offsets[at], _HIGHEST - 1) + 1
        rows["next_first_offset"] = _next_of_another(producers, offsets, data, at)
        by_first = np.flatnonzero(has_data)[np.argsort(first[has_data])]
        first, until = first[by_first], np.where(is_ended, end, count)[by_first]
        _cap(rows, offsets[first], until, first)
        self._keep(rows)

    def _opened(
        self,
        fields: dict[str, _Array],
        first: int,
        last: int,
        markers: _Array,
        segment: int,
    ) -> _Open:
        """Return the transaction whose first and last batch are these."""
        timestamp = int(fields["max_timestamp"][first])
        clock = NONE
        if fields["is_brokers"][first]:
            clock = timestamp
        elif (i := int(np.searchsorted(markers, first))) < len(markers):
            clock = int(fields["max_timestamp"][markers[i]])
        return _Open(
            int(fields["producer_id"][first]),
            int(fields["producer_epoch"][last]),
            int(fields["base_offset"][first]),
            int(fields["last_offset"][last]),
            segment,
            int(fields["position"][first]),
            timestamp,
            int(fields["max_timestamp"][last]),
            clock,
            first,
        )

    # ---- two that meet ---------------------------------------------------------------------------

    def join(self, later: Transactions) -> None:
        """Take over what ``later`` read: afterwards this was fed both, in this order."""
        if later._first is None:
            self.after_damage |= later.after_damage
            return
        self._meet(later._first)
        self._clock(later)
        aborts = later._all_aborts().copy()
        if len(aborts):
            aborts["order"] += self._events
            np.maximum(aborts["certain_from"], self.certain_from, out=aborts["certain_from"])
            self._cap_later(aborts, later)
        self._settle(later)
        self._take_over(later, aborts)
        if len(aborts):
            self._keep(aborts)
        self._events += later._events
        self._committed += later._committed
        self._aborted += later._aborted
        self._without_data += later._without_data
        self.last_offset = later.last_offset
        self.after_damage = later.after_damage
        self.certain_from = max(self.certain_from, later.certain_from)
        self.newest_timestamp = max(self.newest_timestamp, later.newest_timestamp)
        newest = later.newest_broker_timestamp
        self.newest_broker_timestamp = max(self.newest_broker_timestamp, newest)

    def _clock(self, later: Transactions) -> None:
        """Give open transactions the time of the first marker after them."""
        timestamp = later._first_marker_timestamp
        if timestamp == NONE:
            return
        for opened in (self._unended, self._open):
            for producer, found in opened.items():
                if found.broker_timestamp == NONE:
                    opened[producer] = found._replace(broker_timestamp=timestamp)
        if self._first_marker_timestamp == NONE:
            self._first_marker_timestamp = timestamp

    def _cap_later(self, aborts: _Array, later: Transactions) -> None:
        """Let transactions that are open here hold back the last stable offsets of ``later``."""
        opened = self._open_ones()
        if not opened:
            return
        until = np.full(len(opened), _HIGHEST)
        for i, found in enumerate(opened):
            if (end := later._ended.get(found.producer_id)) is not None:
                until[i] = end.order + self._events
        offsets = np.array([found.first_offset for found in opened], "<i8")
        _cap(aborts, offsets, until, np.full(len(opened), -1))

    def _settle(self, later: Transactions) -> None:
        """Give aborts at the end the first batch that another producer writes after them."""
        if later._first_data is None:
            return
        first, other = later._first_data, later._other_data
        if self._pending and not (other is None and self._pending_producers == {first[0]}):
            left = []
            for rows in self._pending:
                waits = rows["next_first_offset"] == NONE
                rows["next_first_offset"][waits & (rows["producer_id"] != first[0])] = first[1]
                if other is not None:
                    rows["next_first_offset"][waits & (rows["producer_id"] == first[0])] = other[1]
                elif (rows["next_first_offset"] == NONE).any():
                    left.append(rows)
            self._pending = left
            self._pending_producers = {first[0]} if left else set()
        if self._first_data is None:
            self._first_data, self._other_data = first, other
        elif self._other_data is None:
            self._other_data = first if first[0] != self._first_data[0] else other

    def _take_over(self, later: Transactions, aborts: _Array) -> None:
        """Resolve what ``later`` could not know of its producers."""
        shift = self._events
        for producer, end in later._ended.items():
            before = self._open.pop(producer, None) or self._unended.pop(producer, None)
            has_data = end.has_data or before is not None
            order = end.order + shift
            if before is not None and end.kind == ABORT:
                at = np.searchsorted(aborts["order"], order)
                aborts["first_offset"][at] = before.first_offset
            if producer not in self._ended:
                self._ended[producer] = _Ended(has_data, end.kind, order)
            elif not has_data:
                self._without_data += 1
            elif end.kind == COMMIT:
                self._committed += 1
            else:
                self._aborted += 1
        for producer, found in later._unended.items():
            into = self._open if producer in self._ended else self._unended
            before = into.get(producer)
            moved = found._replace(order=found.order + shift)
            into[producer] = moved if before is None else before.then(moved)
        for producer, found in later._open.items():
            self._open[producer] = found._replace(order=found.order + shift)

    def _keep(self, rows: _Array) -> None:
        self._aborts.append(rows)
        waits = rows["next_first_offset"] == NONE
        if waits.any():
            self._pending.append(rows)
            self._pending_producers.update(rows["producer_id"][waits].tolist())

    def _all_aborts(self) -> _Array:
        return np.concatenate([np.empty(0, _ABORTS), *self._aborts])

    def _open_ones(self) -> list[_Open]:
        opened = [*self._unended.values(), *self._open.values()]
        return sorted(opened, key=lambda found: found.order)


def _cap(rows: _Array, offsets: _Array, until: _Array, orders: _Array) -> None:
    """Lower last_stable_offset of aborts to the oldest transaction that is open at their markers.

    ``offsets``, ``until``, ``orders``: first offsets, the orders of markers and of first batches of
    transactions, by ascending orders. A transaction's own marker ends it, so it is not open there.
    """
    if not len(offsets):
        return
    at = np.searchsorted(np.maximum.accumulate(until), rows["order"], side="right")
    is_open = at < len(offsets)
    at[~is_open] = 0
    is_open &= orders[at] < rows["order"]
    rows["last_stable_offset"][is_open] = offsets[at[is_open]]


def _next_of_another(producers: _Array, offsets: _Array, data: _Array, markers: _Array) -> _Array:
    """Return the offset of the next data batch after each marker that another producer wrote."""
    found = np.full(len(markers), NONE, "<i8")
    if not len(data):
        return found
    wrote = producers[data]
    changes = np.flatnonzero(wrote[1:] != wrote[:-1]) + 1
    at = np.searchsorted(data, markers)
    inside = np.minimum(at, len(data) - 1)
    is_own = wrote[inside] == producers[markers]
    change = np.searchsorted(changes, inside, side="right")
    after = np.append(changes, len(data))[change]
    at = np.where((at < len(data)) & is_own, after, at)
    is_there = at < len(data)
    found[is_there] = offsets[data[at[is_there]]]
    return found
