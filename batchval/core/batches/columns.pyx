"""Many batches at once: scan_batches, and the columns that scans and checks return.

A scan reads each header and verifies each CRC; it reads no record. Its row is the base row of the
whole project: ``batchval dump --json`` and Spark show it, checks add ``rule``, ``error_code``,
``path``, ``reports``, ``claims`` and ``reason``.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from collections import namedtuple

import numpy

from batchval.core.stages.arguments cimport NOGIL_UNCOMPRESSED, position_in, take_buffer
from batchval.core.batches.arrow cimport ArrowColumn, column_of, dictionary_of
from batchval.core.batches.block cimport ColumnBlock, Layout
from batchval.core.format.bytes cimport all_zero, be64
from batchval.core.format.header cimport (
    BATCH, BatchHeader, Entry, follows_offset, has_right_crc, next_batch, next_claimed_batch,
    read_header, stored_crc,
)
from batchval.core.format.layout cimport *

from batchval.core.format.reasons import sentence
from batchval.core.batches.result import CLAIMS, FIGURES, PATHS
from batchval.errors import BatchvalError
from batchval.rules import Rule, by_number, extras_of
from batchval.types import CompressionType, TimestampType

#: Raised with every change of the base row's columns or their meaning.
SCHEMA_VERSION = 1

cdef Layout LAYOUT = Layout((  # as in Rows
    ("position", "<i8"), ("base_offset", "<i8"), ("base_timestamp", "<i8"),
    ("max_timestamp", "<i8"), ("producer_id", "<i8"),
    ("size_in_bytes", "<i4"), ("partition_leader_epoch", "<i4"), ("crc", "<u4"),
    ("last_offset_delta", "<i4"), ("base_sequence", "<i4"), ("records_count", "<i4"),
    ("attributes", "<i2"), ("producer_epoch", "<i2"), ("magic", "i1"), ("is_valid", "?"),
    # of a check alone
    ("length", "<i8"), ("reason_a", "<i8"), ("reason_b", "<i8"), ("reason_record", "<i4"),
    ("reason", "<i2"), ("rule", "<i2"), ("error_code", "<i2"), ("reports", "<u4"),
    ("path", "u1"), ("claims", "u1"),
    # of a check at rest alone
    ("uncompressed_size", "<i8"), ("batch_min_timestamp", "<i8"), ("records_number", "<i4"),
    ("null_keys", "i1"), ("max_record_bytes", "<i4"), ("figures", "u1"),
), SCHEMA_VERSION)


#: The base row's columns: those that a scan reads, and those that are derived from them.
BASE_COLUMNS = (
    "position", "size_in_bytes", "magic", "base_offset", "last_offset", "records_count",
    "partition_leader_epoch", "compression_type", "timestamp_type", "base_timestamp",
    "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "last_sequence",
    "is_transactional", "is_control_batch", "delete_horizon_ms", "attributes", "last_offset_delta",
    "crc", "is_valid",
)
CHECK_COLUMNS = ("rule", "error_code", "path", "reports", "claims")
NO_DELETE_HORIZON = -1

BatchRow = namedtuple("BatchRow", BASE_COLUMNS, module=__name__)
BatchRow.__doc__ = """One batch of a scan. Codecs and timestamp types are Kafka's names.

A codec that Kafka does not know is a number. ``delete_horizon_ms`` is None for a batch without
one.
"""
CheckedRow = namedtuple("CheckedRow", (*BASE_COLUMNS, *CHECK_COLUMNS, "reason"), module=__name__)
CheckedRow.__doc__ = """One checked batch: the base row, then the verdict.

``rule`` is the id of the rule that refused, None for an accepted batch; ``reports`` are the ids of
extras that only report; ``path`` and ``claims`` are names or None; ``reason`` says what is wrong,
and is empty for an accepted batch.
"""

# By the 3 bits of attributes, and by the number plus 1.
_CODECS = (*[codec.kafka_name for codec in CompressionType], "5", "6", "7")
_TIMESTAMP_TYPES = tuple([TimestampType(number).kafka_name for number in (-1, 0, 1)])
_RULES = tuple([rule.id for rule in Rule])
# By the rule's number: its place in _RULES.
_RULE_CODES = numpy.full(1 + max([rule.number for rule in Rule]), -1, "<i2")
_RULE_CODES[0] = 0  # an accepted row: null
_RULE_CODES[[rule.number for rule in Rule]] = range(len(_RULES))


@cython.final
cdef class BatchColumns(ColumnBlock):
    """A row for each batch: the base row, after a check its verdict too.

    ``end`` is where the walk stopped, ``tail`` the reason (None: at the buffer's end): ``partial``,
    ``zeros``, ``size`` or ``magic``. In arrays, rules, paths and codecs are numbers; in rows and in
    Arrow they are names.

    A check at rest has six columns more, which ``names`` leaves out. ``uncompressed_size``: header
    and decompressed payload; ``max_record_bytes``: the longest record without its length field; -1
    where they are not known. ``batch_min_timestamp``, ``records_number``, ``null_keys``: the claims
    in a header of magic 3, with ``trust_claims`` also those in a payload; ``null_keys`` is -1 for a
    batch without claims. ``figures``: where these figures come from, a number of
    ``batchval.core.batches.result.FIGURES``.
    """

    def __cinit__(self, bint checked=False):
        self.layout = LAYOUT
        self.widths = LAYOUT.widths
        self.pointers = <uint8_t **>&self.runs
        self.checked = checked
        self.width = CHECKED_COLUMNS if checked else SCAN_COLUMNS
        self.end = 0

    cdef tuple column_names(self):
        return BASE_COLUMNS + CHECK_COLUMNS if self.checked else BASE_COLUMNS

    cdef object derived(self, str name):
        attributes = self["attributes"] if name != "attributes" else None
        is_v2 = self["magic"] >= 2
        if name == "last_offset":
            return self["base_offset"] + self["last_offset_delta"]
        if name == "compression_type":
            return (attributes & CODEC_MASK).astype("i1")
        if name == "timestamp_type":
            kind = ((attributes & LOG_APPEND_TIME_BIT) != 0).astype("i1")
            kind[self["magic"] == 0] = -1
            return kind
        if name == "is_transactional":
            return is_v2 & ((attributes & TRANSACTIONAL_BIT) != 0)
        if name == "is_control_batch":
            return is_v2 & ((attributes & CONTROL_BIT) != 0)
        if name == "delete_horizon_ms":
            return numpy.where(is_v2 & ((attributes & DELETE_HORIZON_BIT) != 0),
                    self["base_timestamp"],
                    NO_DELETE_HORIZON)
        if name == "last_sequence":
            # DefaultRecordBatch.incrementSequence, with its 32-bit arithmetic
            base = self["base_sequence"].astype("<i8")
            delta = self["last_offset_delta"].astype("<i8")
            wraps = base > (0x7FFFFFFF - delta).astype("<i4")
            last = numpy.where(wraps, delta - (0x7FFFFFFF - base) - 1, base + delta).astype("<i4")
            return numpy.where(base == -1, numpy.int32(-1), last)
        raise KeyError(name)

    def ok(self):
        """Return which rows of a check were accepted."""
        return self["rule"] == 0

    @property
    def all_ok(self):
        """Return whether a check accepted every row. It needs no numpy: the proxy calls it for each
        request.
        """
        cdef Py_ssize_t i
        if not self.checked:
            raise KeyError("rule")
        for i in range(self.count):
            if self.runs.rule[i]:
                return False
        return True

    def count_claims(self):
        """Return how many rows of a check have each answer of batchval.core.batches.result.CLAIMS,
        in its order.
        """
        cdef Py_ssize_t i
        cdef Py_ssize_t[6] counts
        if not self.checked:
            raise KeyError("claims")
        for i in range(6):
            counts[i] = 0
        for i in range(self.count):
            counts[self.runs.claims[i]] += 1
        return counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]

    def reason_of(self, Py_ssize_t i):
        """Return the precise reason of row i of a check, as one line."""
        if self["rule"][i] == 0:
            return ""
        text = sentence(int(self.stored("reason")[i]), int(self.stored("reason_record")[i]),
                int(self.stored("reason_a")[i]), int(self.stored("reason_b")[i]))
        return text or by_number(int(self["rule"][i])).summary

    def result(self, Py_ssize_t i):
        """Return the whole ValidationResult of row i of a check. The batch is validated again, as
        the buffer holds it by then.

        BatchvalError where that cannot be read any more, or has no batch there.
        """
        if self.rejudge is None:
            raise BatchvalError(self.why_no_results())
        if not 0 <= i < self.count:
            raise IndexError(i)
        return self.rejudge(self.runs.position[i], self.runs.length[i], i)

    cdef str why_no_results(self):
        if not self.checked:
            return "a scan has no results: it reads no record. Call check_batches or check_ranges"
        if self.is_restored:
            return ("columns of another process have no results: the buffer that they describe"
                    " stayed where they were pickled")
        return "columns of several buffers have no results"

    cdef void clear_rest(self, size_t i) noexcept nogil:
        """Set row i of a check at rest to: payload unknown, no claims."""
        self.runs.uncompressed_size[i] = -1
        self.runs.batch_min_timestamp[i] = -1
        self.runs.records_number[i] = -1
        self.runs.null_keys[i] = -1
        self.runs.max_record_bytes[i] = -1
        self.runs.figures[i] = FIGURES_HEADER

    def first_doubtful(self, Py_ssize_t start=0):
        """Return the first row from ``start`` on whose size is not proven by these columns; -1:
        none.

        A right checksum proves the size that it was computed over. After a batch with a wrong one,
        the next must be proven, or follow it: of the same magic, with an offset that is higher, and
        not by far.
        """
        cdef Py_ssize_t i
        for i in range(max(start, 0), self.count):
            if self.runs.is_valid[i]:
                continue
            if i + 1 == self.count:
                return i
            if not self.runs.is_valid[i + 1] and (
                    self.runs.magic[i + 1] != self.runs.magic[i]
                    or not follows_offset(
                            self.runs.base_offset[i + 1], self.runs.base_offset[i])):
                return i
        return -1

    def keep(self, Py_ssize_t count):
        """Drop the rows after the first ``count``: the walk is taken to have stopped there."""
        if not 0 <= count <= self.count:
            raise IndexError(count)
        if count == self.count:
            return
        self.end = int(self.runs.position[count])
        self.tail = None
        self.count = count
        self.renew()

    def extend(self, BatchColumns other, int64_t shift):
        """Append the rows of other columns of the same kind, their positions moved by ``shift``.

        For adding up blocks. BufferError while arrays over these columns exist.
        """
        cdef size_t i
        cdef Py_ssize_t row
        if self.count == 0 and self.capacity == 0:
            self.width = other.width
            self.checked = other.checked
        if self.width != other.width:
            raise BatchvalError("columns of a scan and of a check cannot be combined")
        if self.exports:
            raise BufferError("these columns cannot change while arrays over them exist")
        if not self.reserve(self.count + other.count):
            raise MemoryError()
        for i in range(self.width if other.count else 0):  # without rows there may be no memory
            memcpy(self.pointers[i] + self.count * self.widths[i], other.pointers[i],
                    other.count * self.widths[i])
        for row in range(self.count, self.count + other.count):
            self.runs.position[row] += shift
        self.count += other.count
        self.end = other.end + shift
        self.tail = other.tail
        self.rejudge = None
        self.is_restored = False
        self.renew()

    # ---- rows and Arrow --------------------------------------------------------------------------

    cdef object row_type(self):
        return CheckedRow if self.checked else BatchRow

    cdef list row_columns(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step):
        cdef dict lists = {name: self.column(name)[start:stop:step].tolist()
                for name in self.column_names()}
        lists["compression_type"] = [_CODECS[codec] if codec <= ZSTD else codec
                for codec in lists["compression_type"]]
        lists["timestamp_type"] = [_TIMESTAMP_TYPES[kind + 1] for kind in lists["timestamp_type"]]
        lists["delete_horizon_ms"] = [None if ms == NO_DELETE_HORIZON else ms
                for ms in lists["delete_horizon_ms"]]
        if self.checked:
            lists["reason"] = [self.reason_of(start + i * step) if rule else ""
                    for i, rule in enumerate(lists["rule"])]
            lists["rule"] = [rule_name(rule) for rule in lists["rule"]]
            lists["path"] = [PATHS[path] for path in lists["path"]]
            lists["claims"] = [CLAIMS[answer] for answer in lists["claims"]]
            lists["reports"] = [report_names(bits) for bits in lists["reports"]]
        return [lists[name] for name in self.row_type()._fields]

    def rows(self):
        """Yield each row as a dict of what an iteration yields."""
        cdef tuple names = self.row_type()._fields
        cdef dict empty = dict.fromkeys(names)  # a copy has its final size
        cdef dict row
        cdef Py_ssize_t i
        for values in self:
            row = empty.copy()
            for i in range(len(names)):
                row[names[i]] = (<tuple>values)[i]
            yield row

    cdef ArrowColumn arrow_column(self, str name):
        """Return codecs, rules and the like as names; null where a row has None."""
        column = self.column(name)
        if name == "compression_type":
            return dictionary_of(column, _CODECS)
        if name == "timestamp_type":
            return dictionary_of(column + 1, _TIMESTAMP_TYPES)
        if name == "delete_horizon_ms":
            return column_of(column, column != NO_DELETE_HORIZON)
        if name in ("rule", "path", "claims"):
            valid = column != 0
            if name == "rule":
                return dictionary_of(_RULE_CODES[column], _RULES, valid)
            return dictionary_of(column - valid, PATHS[1:] if name == "path" else CLAIMS[1:], valid)
        return column_of(column)

    def __repr__(self):
        return f"<BatchColumns {self.count} batches, {'checked' if self.checked else 'scanned'}>"

    # ---- copies ----------------------------------------------------------------------------------

    cdef void settle(self) noexcept:
        """Clear the reasons of accepted rows, which were not written."""
        cdef Py_ssize_t i
        for i in range(self.count if self.checked else 0):
            if self.runs.rule[i] == 0:
                self.runs.reason_a[i] = 0
                self.runs.reason_b[i] = 0
                self.runs.reason_record[i] = 0
                self.runs.reason[i] = 0

    cdef object write_state(self):
        return self.end, self.tail

    cdef int read_state(self, state) except -1:
        if self.width not in (SCAN_COLUMNS, CHECKED_COLUMNS, RESTING_COLUMNS):
            raise BatchvalError(f"cannot restore BatchColumns with {self.width} stored columns")
        self.checked = self.width > SCAN_COLUMNS
        self.end, self.tail = state
        self.is_restored = True
        if self.checked and ((self.column("path") >= len(PATHS)).any()
                or (self.column("claims") >= len(CLAIMS)).any()):
            raise BatchvalError("cannot restore BatchColumns: a row has an unknown path or answer"
                    " on claims")
        if self.width == RESTING_COLUMNS and (self.column("figures") >= len(FIGURES)).any():
            raise BatchvalError("cannot restore BatchColumns: a row has an unknown source of its"
                    " figures")
        return 0

    cdef int share(self, ColumnBlock source) except -1:
        cdef BatchColumns other = source
        self.rejudge = other.rejudge
        self.is_restored = other.is_restored
        return 0


cdef object rule_name(int number):
    """Return the id of a rule, None for 0: the row was accepted."""
    rule = by_number(number)
    return None if rule is None else rule.id


cdef list report_names(unsigned int bits):
    return [rule.id for rule in extras_of(bits)]


cdef void put_row(Rows *rows, size_t i, const Entry *b, int64_t position,
        bint is_valid) noexcept nogil:
    cdef BatchHeader h
    if b.magic >= 2 and b.size >= RECORDS:
        read_header(b.p, &h)
        put_header_row(rows, i, &h, position, is_valid)
        rows.magic[i] = b.magic
        return
    rows.position[i] = position
    rows.size_in_bytes[i] = <int32_t>b.size
    rows.magic[i] = b.magic
    rows.is_valid[i] = is_valid
    # Magic 0 and 1 (or a magic 2 stump): the offset is the last one, and counts are not known
    # without decompressing.
    rows.base_offset[i] = be64(b.p)
    rows.base_timestamp[i] = be64(b.p + LEGACY_TIMESTAMP) if b.magic == 1 else -1
    rows.max_timestamp[i] = rows.base_timestamp[i]
    rows.producer_id[i] = -1
    rows.partition_leader_epoch[i] = -1
    rows.crc[i] = stored_crc(b)
    rows.last_offset_delta[i] = 0
    rows.base_sequence[i] = -1
    rows.records_count[i] = -1
    rows.attributes[i] = b.p[LEGACY_ATTRIBUTES] if b.magic < 2 else 0
    rows.producer_epoch[i] = -1


cdef void put_empty_row(Rows *rows, size_t i, int64_t position) noexcept nogil:
    """Fill the row of a range that holds no whole batch."""
    rows.position[i] = position
    rows.size_in_bytes[i] = 0
    rows.magic[i] = -1
    rows.is_valid[i] = False
    rows.base_offset[i] = -1
    rows.base_timestamp[i] = -1
    rows.max_timestamp[i] = -1
    rows.producer_id[i] = -1
    rows.partition_leader_epoch[i] = -1
    rows.crc[i] = 0
    rows.last_offset_delta[i] = 0
    rows.base_sequence[i] = -1
    rows.records_count[i] = -1
    rows.attributes[i] = 0
    rows.producer_epoch[i] = -1


cdef object tail_of(const uint8_t *p, size_t left, int found):
    """Return why the walk stopped before the buffer's end."""
    if left == 0:
        return None
    if found == MAGIC_UNKNOWN:
        return "magic"
    if found == BATCH_SIZE_OVERFLOW or found == BATCH_SIZE_TOO_SMALL:
        return "zeros" if all_zero(p, left) else "size"
    return "zeros" if all_zero(p, left) else "partial"


cdef int scan(const uint8_t *p, size_t n, bint claimed, BatchColumns columns,
        size_t *end) noexcept nogil:
    """Fill a row for each batch. Return next_batch's last answer; -1: no memory."""
    cdef Entry b
    cdef size_t at = 0, count = 0
    cdef int found
    while True:
        found = next_claimed_batch(p + at, n - at, &b) if claimed else next_batch(p + at, n - at,
                &b)
        if found != BATCH:
            break
        if count == columns.capacity:
            columns.count = count
            if not columns.reserve(2 * count if count else 64):
                return -1
        put_row(&columns.runs, count, &b, at, has_right_crc(&b))
        count += 1
        at += b.size
    columns.count = count
    end[0] = at
    return found


def scan_batches(buffer, position=0, *, bint accept_claims_header=False):
    """Return header and CRC of every whole batch from ``position`` on; no record is read.

    Stops at the buffer's end, at a batch that is not whole, and at bytes that are not a batch;
    ``columns.end`` and ``columns.tail`` are where and why. Positions are counted from the buffer's
    start. Batches of magic 3 are accepted only with ``accept_claims_header``.
    """
    cdef Py_buffer view
    cdef BatchColumns columns = BatchColumns.__new__(BatchColumns)  # cheaper than a call
    cdef size_t end = 0
    cdef Py_ssize_t start
    cdef int found
    cdef const uint8_t *p
    take_buffer(buffer, &view)
    try:
        start = position_in(position, view.len)
        p = <const uint8_t *>view.buf + start
        if view.len - start >= NOGIL_UNCOMPRESSED:
            with nogil:
                found = scan(p, view.len - start, accept_claims_header, columns, &end)
        else:
            found = scan(p, view.len - start, accept_claims_header, columns, &end)
        if found < 0:
            raise MemoryError()
        if start:
            for i in range(columns.count):
                columns.runs.position[i] += start
        columns.end = start + end
        columns.tail = tail_of(p + end, view.len - start - end, found)
    finally:
        PyBuffer_Release(&view)
    return columns
