"""Records of many batches as columns.

A record of the usual kind, with one-digit fields, no headers and the offset that its place demands,
is read by ``fill_plain`` in one pass with its batch. A batch with any other record is walked as
``RecordBatch.records()`` walks it, and then read field by field, so both accept the same batches.

Positions count in one run of bytes. That is the buffer itself while no batch is compressed; else
the records of all batches are put into a ``Content`` one after the other.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, Py_buffer, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from collections import namedtuple

from batchval.core.format cimport reasons
from batchval.core.stages.arguments cimport (
    MAX_DECOMPRESSED_LIMIT, NOGIL_UNCOMPRESSED, position_in, private_bytes, take_buffer,
    whole_number,
)
from batchval.core.batches.arrow cimport ArrowColumn, views_of
from batchval.core.batches.block cimport ColumnBlock, Layout
from batchval.core.format.bytes cimport hidden, span, short_varint
from batchval.core.stages.claims_block cimport CLAIMED_RECORDS, CLAIMS_MAGIC
from batchval.core.batches.columns cimport tail_of
from batchval.core.records.fields cimport Record, after_headers, headers_of, read_field, read_record
from batchval.core.codecs.codec_streams cimport (
    DAMAGED, LIMIT_HIT, NO_MEMORY, UNLIMITED, Stream, open_stream, unpack,
)
from batchval.core.format.header cimport (
    BATCH, BatchHeader, Entry, computed_crc, has_right_crc, next_claimed_batch, read_header,
    stored_crc,
)
from batchval.core.format.layout cimport *
from batchval.core.records.legacy cimport (
    LEGACY_BROKEN, LEGACY_RECORD, NO_LEGACY_RECORD, LegacyRecord, LegacyRecords, legacy_key,
    legacy_value, next_legacy_record,
    open_legacy_records,
)
from batchval.core.records.records cimport (
    BUFFER_PARSER, PLAIN_MIN_BYTES, PLAIN_TAIL, WALKED, Checks, Facts, clear_facts, structure_alone,
    walk,
)
from batchval.core.codecs.scratch cimport Scratch, begin_work, borrow, end_work, give_back

from batchval.core.format.reasons import sentence
from batchval.errors import BatchvalError, NotABatch
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

#: Raised with every change of the columns or their meaning.
SCHEMA_VERSION = 1

cdef Layout LAYOUT = Layout((
    ("offset", "<i8"), ("timestamp", "<i8"), ("key_position", "<i8"), ("value_position", "<i8"),
    ("batch", "<i4"), ("key_length", "<i4"), ("value_length", "<i4"), ("headers_count", "<i4"),
), SCHEMA_VERSION)

cdef enum:
    COLUMNS = 8
    RECORD_MIN_BYTES = 7  # bytes of the smallest record of magic 2
    MIN_ROWS = 16

cdef enum:  # how the reading of one batch ends
    TAKEN
    REFUSED  # ColumnsWalk.facts has the reason
    WRONG_CHECKSUM
    UNKNOWN_CODEC
    BROKEN_MESSAGE  # a key or value of magic 0 or 1 runs past the end of its message
    TOO_MUCH  # to decompress
    NO_SPACE  # no memory

cdef struct RecordRuns:
    int64_t *offset
    int64_t *timestamp
    int64_t *key_position
    int64_t *value_position
    int32_t *batch
    int32_t *key_length
    int32_t *value_length
    int32_t *headers_count


cdef bint find_last(const uint8_t *p, const uint8_t *end, int32_t count, const uint8_t *key,
        Py_ssize_t key_size, const uint8_t **value, int32_t *size) noexcept nogil:
    """Find the last of ``count`` headers from ``p`` on whose key has these bytes. Return False if
    the headers are cut off.

    ``value``: NULL where it is null, or there is none.
    """
    cdef int32_t length = 0, _i
    cdef bint is_it
    value[0] = NULL
    size[0] = 0
    for _i in range(count):
        if p is not NULL:
            p = read_field(p, end, &length)
        if p is NULL or length < 0:  # the key of a header is never null
            return False
        is_it = length == key_size and memcmp(p, key, key_size) == 0
        p = read_field(p + length, end, &length)
        if p is NULL:
            return False
        if is_it:
            value[0] = p if length >= 0 else NULL
            size[0] = max(length, 0)
        p += length if length > 0 else 0
    return p is not NULL


RecordRow = namedtuple("RecordRow", "batch offset timestamp key value headers_count")
RecordRow.__module__ = __name__
RecordRow.__doc__ = """A record: its batch's index, and fields; key and value are bytes or None."""


@cython.final
@cython.no_gc
cdef class Content:
    """Records of several batches, decompressed, one after the other."""
    cdef uint8_t *p
    cdef size_t size
    cdef size_t capacity

    def __dealloc__(self):
        free(self.p)

    def __getbuffer__(self, Py_buffer *view, int flags):
        """Export the bytes, read-only: they no longer change."""
        PyBuffer_FillInfo(view, self, self.p if self.p is not NULL else <uint8_t *>&self.size,
                self.size, 1, flags)

    cdef uint8_t *append(self, const uint8_t *p, size_t n) noexcept nogil:
        """Copy n bytes to the end and return where they are now. NULL: no memory."""
        cdef uint8_t *grown
        cdef size_t size = self.size + n
        if size > self.capacity or self.p is NULL:
            if self.capacity and size < 2 * self.capacity:
                size = 2 * self.capacity
            grown = <uint8_t *>realloc(self.p, size if size else 1)
            if grown is NULL:
                return NULL
            self.p = grown
            self.capacity = size
        grown = self.p + self.size
        memcpy(grown, p, n)
        self.size += n
        return grown


@cython.final
cdef class RecordColumns(ColumnBlock):
    """A row for each record of many batches. Iteration gives ``RecordRow``s.

    Positions and lengths are bytes, and positions count in ``data``; the length of a null is -1.
    ``batch`` is the index of the record's batch, in the order of the buffer.
    ``end`` and ``tail`` are those of ``scan_batches``. Arrow consumers also see the columns ``key``
    and ``value``, of type binary_view, without a copy.
    """
    cdef RecordRuns runs
    cdef object owner  # of the bytes that positions count in: a Content, bytes or a view of bytes
    cdef readonly Py_ssize_t end
    cdef readonly object tail

    def __cinit__(self):
        self.layout = LAYOUT
        self.widths = LAYOUT.widths
        self.pointers = <uint8_t **>&self.runs
        self.width = COLUMNS
        self.owner = b""

    @property
    def data(self):
        """Return the bytes that positions count in, as a read-only memoryview."""
        return memoryview(self.owner).cast("B").toreadonly()

    def key(self, row):
        """Return the key of a row as bytes; None for null. IndexError where there is none."""
        cdef Py_ssize_t i = self.checked_row(row)
        return self.field(self.runs.key_position[i], self.runs.key_length[i])

    def value(self, row):
        """Return the value of a row as bytes; None for null. IndexError where there is none."""
        cdef Py_ssize_t i = self.checked_row(row)
        return self.field(self.runs.value_position[i], self.runs.value_length[i])

    def headers(self, row):
        """Return the headers of a row as pairs of str and bytes or None.

        IndexError for a row that is not there.
        """
        cdef Py_buffer view
        cdef Record r
        cdef const uint8_t *end
        cdef const uint8_t *after
        cdef int64_t at
        cdef int32_t length
        cdef Py_ssize_t i = self.checked_row(row)
        r.headers_count = self.runs.headers_count[i]
        if r.headers_count <= 0:
            return ()
        length = max(self.runs.value_length[i], 0)
        at = self.runs.value_position[i] + length
        PyObject_GetBuffer(self.owner, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= at < view.len:
                raise self.outside(at, 1)
            end = <const uint8_t *>view.buf + view.len
            r.headers = read_field(<const uint8_t *>view.buf + at, end, &length)
            after = NULL
            if r.headers is not NULL:
                after = after_headers(r.headers, end, r.headers_count)
            if after is NULL:
                raise self.outside(at, view.len - at)
            r.headers_size = <int32_t>(after - r.headers)
            return headers_of(&r)
        finally:
            PyBuffer_Release(&view)

    def last_header(self, row, str name not None):
        """Return the value of a row's last header of this name as bytes; None for null, and where
        there is none.

        The other headers are not made: a record may have millions. IndexError for a row that is not
        there.
        """
        cdef Py_buffer view
        cdef const uint8_t *end
        cdef const uint8_t *p
        cdef bytes wanted = name.encode("utf-8", "replace")
        cdef const uint8_t *key = <const uint8_t *>PyBytes_AS_STRING(wanted)
        cdef Py_ssize_t key_size = PyBytes_GET_SIZE(wanted)
        cdef int64_t at
        cdef int32_t length = 0, size = 0
        cdef const uint8_t *value = NULL
        cdef bint is_whole
        cdef Py_ssize_t i = self.checked_row(row)
        if self.runs.headers_count[i] <= 0:
            return None
        at = self.runs.value_position[i] + max(self.runs.value_length[i], 0)
        PyObject_GetBuffer(self.owner, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= at < view.len:
                raise self.outside(at, 1)
            end = <const uint8_t *>view.buf + view.len
            p = read_field(<const uint8_t *>view.buf + at, end, &length)
            with nogil:
                is_whole = find_last(p, end, length, key, key_size, &value, &size)
            if not is_whole:
                raise self.outside(at, view.len - at)
            return None if value is NULL else PyBytes_FromStringAndSize(<const char *>value, size)
        finally:
            PyBuffer_Release(&view)

    cdef Py_ssize_t checked_row(self, row) except -1:
        cdef int64_t i = whole_number("row", row, INT64_MIN, INT64_MAX)
        if i < 0:
            i += self.count
        if not 0 <= i < self.count:
            raise IndexError(f"row {row} of {self.count}")
        return i

    cdef object field(self, int64_t position, int32_t length):
        cdef Py_buffer view
        if length < 0:
            return None
        PyObject_GetBuffer(self.owner, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= position <= view.len or length > view.len - position:
                raise self.outside(position, length)
            return PyBytes_FromStringAndSize(<const char *>view.buf + position, length)
        finally:
            PyBuffer_Release(&view)

    cdef object outside(self, int64_t position, int64_t length):
        return BatchvalError(f"{length} bytes at {position} are not inside data")

    cdef object row_type(self):
        return RecordRow

    cdef list row_columns(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step):
        numbers = [self.column(name)[start:stop:step].tolist()
                for name in ("batch", "offset", "timestamp", "headers_count")]
        keys = [self.key(i) for i in range(start, stop, step)]
        values = [self.value(i) for i in range(start, stop, step)]
        return [*numbers[:3], keys, values, numbers[3]]

    # ---- Arrow -----------------------------------------------------------------------------------

    cdef tuple arrow_names(self):
        return ("key", "value") + self.column_names()

    cdef ArrowColumn arrow_column(self, str name):
        if name == "key":
            return self.arrow_keys()
        if name == "value":
            return self.arrow_values()
        return ColumnBlock.arrow_column(self, name)

    def arrow_keys(self):
        """Return the keys as an Arrow array of type binary_view over ``data``."""
        return views_of(self.count, self.runs.key_position, self.runs.key_length, NULL,
                [self.owner])

    def arrow_values(self):
        """Return the values as an Arrow array of type binary_view over ``data``."""
        return views_of(self.count, self.runs.value_position, self.runs.value_length, NULL,
                [self.owner])

    # ---- copies ----------------------------------------------------------------------------------

    cdef object write_state(self):
        return bytes(self.owner), self.end, self.tail

    cdef int read_state(self, state) except -1:
        self.owner, self.end, self.tail = state
        return 0

    def __repr__(self):
        return f"<RecordColumns {self.count} records>"


# ---- one call ------------------------------------------------------------------------------------

cdef struct ColumnsWalk:
    const uint8_t *start  # of the bytes that positions count in, where they are not copied
    bint copies
    bint check_crcs
    uint64_t left  # bytes that may still be decompressed
    int32_t batch
    Scratch *scratch
    Facts facts


cdef int32_t fill_plain(const uint8_t *at, const uint8_t *end, const BatchHeader *h,
        RecordRuns *runs, size_t row, int64_t shift) noexcept nogil:
    """Fill the rows of a batch whose records p[0:end] are all plain. Return how many were.

    Plain is what ``batchval.core.records.records`` takes for plain, and any timestamp that does not
    overflow. A position is an address plus ``shift``. The caller has made room for every record
    that the bytes can hold.
    """
    cdef const uint8_t *p
    cdef const uint8_t *next_record
    cdef uint32_t length = 0, timestamp_delta = 0, offset_delta = 0, key_length = 0
    cdef uint32_t value_length = 0, key_size, value_size
    cdef int64_t base = h.base_timestamp, mask = -1, delta
    cdef int64_t *timestamps = runs.timestamp + row
    cdef int64_t *key_positions = runs.key_position + row
    cdef int64_t *value_positions = runs.value_position + row
    cdef int32_t *key_lengths = runs.key_length + row
    cdef int32_t *value_lengths = runs.value_length + row
    cdef int32_t i = 0, count = h.records_count
    if h.attributes & LOG_APPEND_TIME_BIT:
        mask = 0
        base = h.max_timestamp
    while i < count and span(at, end) >= PLAIN_MIN_BYTES:
        p = short_varint(at, &length)
        if p is NULL or length & 1:
            return i
        length >>= 1
        if length > span(p, end) or p[0] != 0:
            return i
        next_record = hidden(p + length)
        p = short_varint(p + 1, &timestamp_delta)
        if p is NULL:
            return i
        p = short_varint(p, &offset_delta)
        if p is NULL or offset_delta != <uint32_t>i << 1:
            return i
        p = short_varint(p, &key_length)
        if p is NULL:
            return i
        key_size = key_length >> 1
        if key_length & 1:
            if key_length != 1:  # 1 is -1, null
                return i
        elif key_size + PLAIN_TAIL > span(p, end):
            return i
        key_positions[i] = <int64_t>p + shift
        key_lengths[i] = <int32_t>key_size - <int32_t>(key_length & 1)
        p = short_varint(p + key_size, &value_length)
        if p is NULL:
            return i
        value_size = value_length >> 1
        if value_length & 1 and value_length != 1:
            return i
        # The headers count, 0, stands after the value, and then the next record.
        if span(p, next_record) != value_size + 1 or (next_record - 1)[0] != 0:
            return i
        value_positions[i] = <int64_t>p + shift
        value_lengths[i] = <int32_t>value_size - <int32_t>(value_length & 1)
        delta = (<int64_t>(timestamp_delta >> 1) ^ -<int64_t>(timestamp_delta & 1)) & mask
        timestamps[i] = <int64_t>(<uint64_t>base + <uint64_t>delta)
        at = next_record
        i += 1
    return i if at == end else 0


cdef void fill_even(const ColumnsWalk *w, RecordRuns *runs, size_t row, size_t count,
        int64_t offset) noexcept nogil:
    """Fill what follows from the place of ``count`` plain records."""
    cdef size_t i
    cdef int64_t *offsets = runs.offset + row
    cdef int32_t *batches = runs.batch + row
    cdef int32_t *headers = runs.headers_count + row
    for i in range(count):
        offsets[i] = <int64_t>(<uint64_t>offset + i)
    for i in range(count):
        batches[i] = w.batch
    for i in range(count):
        headers[i] = 0


cdef int fill_any(ColumnsWalk *w, RecordColumns columns, const uint8_t *p, uint64_t n,
        const BatchHeader *h, int64_t shift) noexcept nogil:
    """Walk the records p[0:n] of a batch as a reader of uncompressed records does; fill rows."""
    cdef Stream s
    cdef Checks checks
    cdef Record r
    cdef RecordRuns *runs = &columns.runs
    cdef const uint8_t *end = p + n
    cdef size_t row = columns.count
    cdef int32_t i
    open_stream(&s, w.scratch, NONE, 2, p, n, UNLIMITED, False)
    structure_alone(&checks)
    clear_facts(&w.facts)
    if walk(&s, h, &checks, &w.facts, BUFFER_PARSER) != WALKED:
        return REFUSED
    for i in range(h.records_count):  # which the walk has found in the bytes
        p = read_record(p, end, h, &r)
        if p is NULL:
            w.facts.reason = reasons.NO_REASON
            w.facts.record = i
            return REFUSED
        runs.offset[row] = r.offset
        runs.timestamp[row] = r.timestamp
        runs.key_position[row] = <int64_t>r.key + shift
        runs.value_position[row] = <int64_t>r.value + shift
        runs.batch[row] = w.batch
        runs.key_length[row] = r.key_length if r.key_length >= 0 else -1
        runs.value_length[row] = r.value_length if r.value_length >= 0 else -1
        runs.headers_count[row] = r.headers_count
        row += 1
    columns.count = row
    return TAKEN


cdef int fill_records(ColumnsWalk *w, RecordColumns columns, const uint8_t *p, uint64_t n,
        const BatchHeader *h, int64_t shift) noexcept nogil:
    """Fill the rows of the uncompressed records p[0:n]."""
    cdef uint64_t most = n // RECORD_MIN_BYTES
    if h.records_count > 0:
        if most > <uint64_t>h.records_count:
            most = h.records_count
        if not columns.reserve(columns.count + most):
            return NO_SPACE
        if most == <uint64_t>h.records_count and fill_plain(
                p, p + n, h, &columns.runs, columns.count, shift) == h.records_count:
            fill_even(w, &columns.runs, columns.count, most, h.base_offset)
            columns.count += most
            return TAKEN
    return fill_any(w, columns, p, n, h, shift)


cdef int take_default(ColumnsWalk *w, RecordColumns columns, Content content,
        const Entry *b) noexcept nogil:
    """Fill the rows of a batch of magic 2 or 3."""
    cdef Stream s
    cdef BatchHeader h
    cdef int codec, at = CLAIMED_RECORDS if b.magic == CLAIMS_MAGIC else RECORDS
    cdef const uint8_t *p = b.p + at
    cdef uint64_t n = b.size - at
    cdef const uint8_t *start = w.start
    read_header(b.p, &h)
    codec = h.attributes & CODEC_MASK
    if codec > ZSTD:
        w.facts.a = codec
        return UNKNOWN_CODEC
    if h.records_count == 0:
        return TAKEN
    if codec != NONE:
        unpack(&s, w.scratch, codec, p, n, w.left)
        if s.status == LIMIT_HIT:
            return TOO_MUCH
        if s.status == NO_MEMORY:
            return NO_SPACE
        if s.status == DAMAGED:
            w.facts.reason = s.reason
            w.facts.record = -1
            w.facts.a = s.detail
            return REFUSED
        n = s.delivered
        w.left -= n
        p = w.scratch.arena
    if w.copies:
        p = content.append(p, n)
        if p is NULL:
            return NO_SPACE
        start = content.p
    return fill_records(w, columns, p, n, &h, -<int64_t>start)


cdef int take_messages(ColumnsWalk *w, RecordColumns columns, Content content,
        const Entry *b) noexcept nogil:
    """Fill the rows of a message of magic 0 or 1, or of those in a wrapper."""
    cdef LegacyRecords m
    cdef LegacyRecord message
    cdef Checks checks
    cdef const uint8_t *p
    cdef const uint8_t *from_ = b.p
    cdef uint64_t n = b.size
    cdef int64_t shift, key, value
    cdef int32_t key_length = 0, value_length = 0, index = 0
    cdef size_t row
    cdef int answer
    structure_alone(&checks)
    clear_facts(&w.facts)
    answer = open_legacy_records(&m, b, w.scratch, &checks, w.left, &w.facts)
    if answer != WALKED:
        return REFUSED
    if m.deep:
        from_ = m.at
        n = span(m.at, m.end)
        w.left -= min(n, w.left)
    shift = -<int64_t>w.start
    if w.copies:
        p = content.append(from_, n)
        if p is NULL:
            return NO_SPACE
        shift = (p - content.p) - <int64_t>from_
    while True:
        answer = next_legacy_record(&m, &message, index, &w.facts)
        if answer == NO_LEGACY_RECORD:
            return TAKEN
        if answer != LEGACY_RECORD:
            return REFUSED
        key = legacy_key(message.p, message.size, &key_length)
        value = legacy_value(message.p, message.size, &value_length)
        if key == LEGACY_BROKEN or value == LEGACY_BROKEN:
            w.facts.record = index
            return BROKEN_MESSAGE
        row = columns.count
        if row == columns.capacity and not columns.reserve(row + MIN_ROWS):
            return NO_SPACE
        columns.runs.offset[row] = message.offset
        columns.runs.timestamp[row] = message.timestamp
        columns.runs.key_position[row] = <int64_t>message.p + max(key, 0) + shift
        columns.runs.value_position[row] = <int64_t>message.p + max(value, 0) + shift
        columns.runs.batch[row] = w.batch
        columns.runs.key_length[row] = -1 if key < 0 else key_length
        columns.runs.value_length[row] = -1 if value < 0 else value_length
        columns.runs.headers_count[row] = 0
        columns.count += 1
        index += 1


cdef bint is_compressed(const Entry *b) noexcept nogil:
    return b.p[ATTRIBUTES + 1 if b.magic >= 2 else LEGACY_ATTRIBUTES] & CODEC_MASK


cdef inline int next_readable(const uint8_t *p, uint64_t left, Entry *b) noexcept nogil:
    """Return the next batch as next_claimed_batch does; a batch of magic 2 or 3 that is too small
    for its header is not readable.
    """
    cdef int found = next_claimed_batch(p, left, b)
    if found == BATCH and b.magic >= 2 and b.size < (
            CLAIMED_RECORDS if b.magic == CLAIMS_MAGIC else RECORDS):
        return BATCH_SIZE_TOO_SMALL
    return found


cdef bint any_compressed(const uint8_t *p, uint64_t n) noexcept nogil:
    """Return whether positions must count in a Content, because a batch is compressed."""
    cdef Entry b
    while next_readable(p, n, &b) == BATCH:
        if is_compressed(&b):
            return True
        p += b.size
        n -= b.size
    return False


cdef int take_batches(ColumnsWalk *w, RecordColumns columns, Content content, const uint8_t *p,
        uint64_t n,
        Entry *b, uint64_t *end) noexcept nogil:
    """Fill the rows of every batch. ``end``: where the walk stopped, at ``b`` if not TAKEN."""
    cdef uint64_t at = 0
    cdef int answer = TAKEN
    while next_readable(p + at, n - at, b) == BATCH:
        if w.check_crcs and not has_right_crc(b):
            answer = WRONG_CHECKSUM
        elif b.magic >= 2:
            answer = take_default(w, columns, content, b)
        else:
            answer = take_messages(w, columns, content, b)
        if answer != TAKEN:
            break
        w.batch += 1
        at += b.size
    end[0] = at
    return answer


cdef object problem(int answer, const ColumnsWalk *w, const Entry *b, int64_t position, limit):
    """Return the exception for an answer that is not TAKEN."""
    where = f"batch {w.batch} at position {position}"
    if answer == NO_SPACE:
        return MemoryError()
    if answer == WRONG_CHECKSUM:
        return NotABatch(f"{where}: its checksum is {stored_crc(b):#010x}, but its bytes have"
                f" {computed_crc(b):#010x}; check_crcs=False reads it nevertheless")
    if answer == UNKNOWN_CODEC:
        return NotABatch(f"{where}: {sentence(reasons.CODEC_ID, -1, w.facts.a, 0)}")
    if answer == TOO_MUCH or w.facts.reason == reasons.DECOMPRESSED_LIMIT:
        return NotABatch(f"{where}: more than max_decompressed_bytes={limit} to decompress")
    if answer == BROKEN_MESSAGE:
        return NotABatch(f"{where}: the key or value of message {w.facts.record} runs past its end")
    return NotABatch(f"{where}: "
            f"{sentence(w.facts.reason, w.facts.record, w.facts.a, w.facts.b)}")


def record_columns(buffer, position=0, *, bint check_crcs=True,
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
    """Return the records of every whole batch from ``position`` on as RecordColumns.

    Stops where ``batches()`` stops; ``end`` and ``tail`` say where and why. Takes batches of every
    magic, 3 included, and of control records too. A buffer that can change is copied first.
    ``max_decompressed_bytes`` bounds what all batches together decompress to.

    Raises NotABatch for a batch whose records cannot be read, whose checksum is wrong unless
    ``check_crcs`` is False, or that exceeds the limit. BatchvalError for wrong arguments.
    """
    cdef Py_buffer view
    cdef ColumnsWalk w
    cdef Entry b
    cdef RecordColumns columns = RecordColumns.__new__(RecordColumns)
    cdef Content content = None
    cdef uint64_t at = 0, limit, n
    cdef const uint8_t *p
    cdef Py_ssize_t start
    cdef int answer
    limit = whole_number(
            "max_decompressed_bytes", max_decompressed_bytes, 0, MAX_DECOMPRESSED_LIMIT, "bytes")
    owner = private_bytes(buffer)
    take_buffer(owner, &view)
    try:
        start = position_in(position, view.len)
        p = <const uint8_t *>view.buf + start
        n = view.len - start
        w.start = <const uint8_t *>view.buf
        w.check_crcs = check_crcs
        w.left = limit
        w.batch = 0
        w.facts.reason = reasons.NO_REASON
        w.copies = any_compressed(p, n)
        if w.copies:
            owner = content = Content.__new__(Content)
        w.scratch = borrow()
        begin_work(w.scratch, n >= NOGIL_UNCOMPRESSED)
        answer = take_batches(&w, columns, content, p, n, &b, &at)
        end_work(w.scratch)
        give_back(w.scratch)
        if answer != TAKEN:
            raise problem(answer, &w, &b, start + at, max_decompressed_bytes)
        columns.end = start + at
        if at < n:
            columns.tail = tail_of(p + at, n - at, next_readable(p + at, n - at, &b))
    finally:
        PyBuffer_Release(&view)
    columns.owner = owner
    return columns
