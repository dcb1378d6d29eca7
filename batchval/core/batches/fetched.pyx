"""The records of a Fetch response's partition, counted in place: one batch after the other, the
last one often cut off.

    walk_fetched(records, fetch_offset) → records and their key and value bytes,
                                          and the offset to go on at

Left out, as Kafka's consumer leaves them out: records below ``fetch_offset`` (a broker sends whole
batches), control batches (their offsets are counted all the same), and a batch at the end that is
not whole. Nothing beyond the buffer is read, whatever lengths it holds or however it changes
meanwhile; NotABatch names the position of bytes that cannot be read. Takes no lock while it counts.
"""

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.format cimport reasons
from batchval.core.stages.arguments cimport (
    MAX_DECOMPRESSED_LIMIT, NOGIL_FETCHED, take_buffer, whole_number,
)
from batchval.core.format.bytes cimport be64, span
from batchval.core.codecs.codec_streams cimport LIMIT_HIT, NO_MEMORY, Stream, unpack
from batchval.core.codecs.codec_streams cimport DAMAGED as STREAM_DAMAGED
from batchval.core.format.header cimport (
    BATCH, NO_MORE, BatchHeader, Entry, computed_crc, has_right_crc, next_batch, read_header,
    stored_crc,
)
from batchval.core.format.layout cimport (
    BATCH_SIZE_OVERFLOW, BATCH_SIZE_TOO_SMALL, CODEC_MASK, CONTROL_BIT, NONE, RECORDS, ZSTD,
)
from batchval.core.records.legacy cimport (
    LEGACY_BROKEN, LEGACY_NULL, LEGACY_RECORD, NO_LEGACY_RECORD, LegacyRecord, LegacyRecords,
    legacy_key, legacy_value, next_legacy_record,
    open_legacy_records,
)
from batchval.core.records.records cimport WALKED, Checks, Facts, clear_facts, structure_alone
from batchval.core.codecs.scratch cimport Scratch, begin_work, borrow, end_work, give_back

from collections import namedtuple

from batchval.core.format.reasons import sentence
from batchval.errors import BatchvalError, NotABatch
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

Fetched = namedtuple("Fetched", "records key_value_bytes next_offset batches wire_bytes end")
Fetched.__doc__ = """The counts of ``walk_fetched``.

``next_offset`` is the offset after the last whole batch, ``fetch_offset`` where there is none.
``wire_bytes`` counts whole batches as they were sent. ``end`` is where they end in the buffer.
"""


cdef inline const uint8_t *varint(const uint8_t *p, const uint8_t *end,
        int32_t *value) noexcept nogil:
    """Read a varint. Return NULL where it is not whole, or longer than 5 bytes."""
    cdef uint32_t v
    cdef int i
    if span(p, end) >= 2:
        v = p[0]
        if v < 0x80:
            value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
            return p + 1
        if p[1] < 0x80:
            v = (v & 0x7F) | (<uint32_t>p[1] << 7)
            value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
            return p + 2
    v = 0
    for i in range(5):
        if p == end:
            return NULL
        v |= <uint32_t>(p[0] & 0x7F) << (7 * i)
        p += 1
        if (p - 1)[0] < 0x80:
            value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
            return p
    return NULL


cdef inline const uint8_t *past_varlong(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef int _i
    for _i in range(10):
        if p == end:
            return NULL
        p += 1
        if (p - 1)[0] < 0x80:
            return p
    return NULL


cdef inline const uint8_t *past_field(const uint8_t *p, const uint8_t *end,
        int32_t *length) noexcept nogil:
    """Read a length, 0 for null, and skip so many bytes."""
    p = varint(p, end, length)
    if p is NULL:
        return NULL
    if length[0] < 0:
        length[0] = 0
    return p + length[0] if <uint64_t>length[0] <= span(p, end) else NULL


cdef const uint8_t *past_headers(const uint8_t *p, const uint8_t *end,
        int32_t count) noexcept nogil:
    cdef int32_t length = 0, _i
    if count < 0:
        return NULL
    for _i in range(count):
        p = varint(p, end, &length)
        # A header's key is never null.
        if p is NULL or length < 0 or <uint64_t>length > span(p, end):
            return NULL
        p = past_field(p + length, end, &length)
        if p is NULL:
            return NULL
    return p


cdef bint count_records(const uint8_t *p, const uint8_t *end, const BatchHeader *h, int64_t first,
        Counts *c) noexcept nogil:
    """Count the records p[0:end] of a batch; ``first``: the least offset that counts. Return False
    where c.record cannot be read, or bytes are left after the last.
    """
    cdef int32_t i, length = 0, delta = 0, key = 0, value = 0, headers = 0
    cdef const uint8_t *body_end
    cdef int64_t least = first - h.base_offset if first > h.base_offset else -0x80000000
    cdef int64_t records = 0, size = 0
    for i in range(h.records_count):
        c.record = i
        p = varint(p, end, &length)
        if p is NULL or length < 1 or <uint64_t>length > span(p, end):
            return False
        body_end = p + length
        p = past_varlong(p + 1, body_end)  # after the attributes
        if p is NULL:
            return False
        p = varint(p, body_end, &delta)
        if p is NULL:
            return False
        p = past_field(p, body_end, &key)
        if p is NULL:
            return False
        p = past_field(p, body_end, &value)
        if p is NULL:
            return False
        p = varint(p, body_end, &headers)
        if p is NULL:
            return False
        if headers:
            p = past_headers(p, body_end, headers)
        if p != body_end:
            return False
        if delta >= least:
            records += 1
            size += <int64_t>key + value
    if p != end:
        because(c, reasons.BYTES_AFTER_RECORDS, h.records_count)
        return False
    c.records += records
    c.bytes += size
    return True


cdef void because(Counts *c, int reason, int64_t a, int64_t b=0) noexcept nogil:
    """Note why a batch cannot be read."""
    c.reason = reason
    c.a = a
    c.b = b


cdef inline int reach(int64_t base, int64_t last, int64_t first, Counts *c) noexcept nogil:
    """Return WHOLE where some of a batch's offsets may count, BELOW where none does, or
    BAD_OFFSETS.
    """
    # The next offset would be invalid.
    if base < 0 or last < base or last == INT64_MAX:
        because(c, reasons.NO_REASON, base, last)
        return BAD_OFFSETS
    return BELOW if last < first else WHOLE


cdef int count_batch(const Entry *b, int64_t first, bint walk, uint64_t limit, Scratch *scratch,
        Counts *c) noexcept nogil:
    """Count a batch of magic 2."""
    cdef BatchHeader h
    cdef Stream s
    cdef int codec, stopped
    cdef int64_t last, left
    cdef const uint8_t *records = b.p + RECORDS
    cdef const uint8_t *end = b.p + b.size
    if b.size < RECORDS:
        because(c, reasons.SMALLER_THAN_HEADER, b.size)
        return BAD_BATCH
    read_header(b.p, &h)
    last = <int64_t>(<uint64_t>h.base_offset + <uint64_t><int64_t>h.last_offset_delta)
    stopped = reach(h.base_offset, last, first, c)
    if stopped != WHOLE:
        return stopped
    c.next_offset = last + 1
    if h.attributes & CONTROL_BIT:
        return WHOLE
    if h.records_count < 0:
        because(c, reasons.RECORDS_COUNT_NEGATIVE, h.records_count)
        return BAD_COUNT
    if not walk:
        left = last - first + 1
        if first <= h.base_offset or left > h.records_count:
            left = h.records_count
        c.records += left
        c.bytes += <int64_t>b.size
        return WHOLE
    codec = h.attributes & CODEC_MASK
    if codec > ZSTD:
        because(c, reasons.CODEC_ID, codec)
        return BAD_CODEC
    if codec != NONE:
        if h.records_count == 0:  # the cleaner has removed all of it
            return WHOLE
        stopped = unpack(&s, scratch, codec, records, b.size - RECORDS, limit)
        if stopped == LIMIT_HIT:
            return OVER_LIMIT
        if stopped == NO_MEMORY:
            return OUT_OF_MEMORY
        if stopped == STREAM_DAMAGED:
            because(c, s.reason, s.detail)
            return BAD_STREAM
        records = scratch.arena
        end = records + s.delivered
    return WHOLE if count_records(records, end, &h, first, c) else BAD_RECORD


cdef int count_messages(const Entry *b, int64_t first, bint walk, uint64_t limit, Scratch *scratch,
        Counts *c) noexcept nogil:
    """Count messages of magic 0 or 1. Only reading a wrapper shows how many it holds."""
    cdef LegacyRecords m
    cdef LegacyRecord message
    cdef Checks checks
    cdef Facts f
    cdef int answer
    cdef int32_t i = 0, key_length = 0, value_length = 0
    cdef int64_t key, value, last = be64(b.p)
    answer = reach(last, last, first, c)
    if answer != WHOLE:
        return answer
    structure_alone(&checks)
    clear_facts(&f)
    answer = open_legacy_records(&m, b, scratch, &checks, limit, &f)
    while answer == WALKED:
        answer = next_legacy_record(&m, &message, i, &f)
        if answer == NO_LEGACY_RECORD:
            c.next_offset = last + 1
            if not walk:
                c.bytes += <int64_t>b.size
            return WHOLE
        if answer != LEGACY_RECORD:
            break
        key = legacy_key(message.p, message.size, &key_length)
        value = legacy_value(message.p, message.size, &value_length)
        if key == LEGACY_BROKEN or value == LEGACY_BROKEN:
            c.record = i
            because(c, reasons.MESSAGE_FIELDS, 0)
            return BAD_MESSAGE
        if message.offset >= first:
            c.records += 1
            if walk:
                if key != LEGACY_NULL:
                    c.bytes += key_length
                if value != LEGACY_NULL:
                    c.bytes += value_length
        i += 1
        answer = WALKED
    c.record = f.record
    because(c, f.reason, f.a, f.b)
    return BAD_MESSAGE


cdef int count_all(const uint8_t *p, size_t n, int64_t first, bint walk, bint check_crcs,
        uint64_t limit,
        Scratch *scratch, Counts *c) noexcept nogil:
    """Count all batches. The caller has the GIL, which is released when the work is long."""
    cdef int stopped
    begin_work(scratch, n > NOGIL_FETCHED)
    stopped = count_each(p, n, first, walk, check_crcs, limit, scratch, c)
    end_work(scratch)
    return stopped


cdef void not_a_batch(int found, const Entry *b, Counts *c) noexcept nogil:
    if found == BATCH_SIZE_TOO_SMALL:
        because(c, reasons.SIZE_BELOW_14, b.size_field)
    elif found == BATCH_SIZE_OVERFLOW:
        because(c, reasons.SIZE_OVERFLOWS, b.size_field)
    else:
        because(c, reasons.MAGIC_NOT_0_1_2, b.magic)


cdef int count_each(const uint8_t *p, size_t n, int64_t first, bint walk, bint check_crcs,
        uint64_t limit, Scratch *scratch, Counts *c) noexcept nogil:
    cdef Entry b
    cdef int found, stopped
    while True:
        found = next_batch(p + c.at, n - c.at, &b)
        if found == NO_MORE:
            return WHOLE
        if found != BATCH:
            not_a_batch(found, &b, c)
            return BAD_BATCH
        stopped = count_entry(&b, first, walk, check_crcs, limit, scratch, c)
        if stopped != WHOLE and stopped != BELOW:
            return stopped
        c.at += b.size


cdef int count_entry(const Entry *b, int64_t first, bint walk, bint check_crcs, uint64_t limit,
        Scratch *scratch, Counts *c) noexcept nogil:
    """Count one batch of any magic: WHOLE, BELOW (all its offsets are below ``first``), or why it
    cannot be read.

    Without ``walk`` and ``check_crcs`` no more than the header of a batch of magic 2 is read.
    """
    cdef int stopped
    if check_crcs and not has_right_crc(b):
        if b.magic >= 2 and b.size < RECORDS:
            because(c, reasons.SMALLER_THAN_HEADER, b.size)
        else:
            because(c, reasons.WRONG_CRC, stored_crc(b), computed_crc(b))
        return BAD_CRC
    if b.magic >= 2:
        stopped = count_batch(b, first, walk, limit, scratch, c)
    else:
        stopped = count_messages(b, first, walk, limit, scratch, c)
    if stopped == WHOLE or stopped == BELOW:
        c.batches += 1
        c.wire_bytes += <int64_t>b.size
    return stopped


def walk_fetched(buffer, fetch_offset=0, str decode="records", bint check_crcs=False, *,
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
    """Count the records of whole batches at or after ``fetch_offset``. Return a ``Fetched``.

    ``decode``: "records" reads each record, decompressed where need be, and adds up key and value
    bytes (null is 0); "headers" believes the batches' headers, and ``key_value_bytes`` are whole
    batches as they were sent. Checksums are verified with ``check_crcs``. Raises NotABatch
    (position and reason) where bytes cannot be read, or a batch has more than
    ``max_decompressed_bytes``; BatchvalError for a buffer that is not contiguous.
    """
    cdef Py_buffer view
    cdef Scratch *scratch
    cdef Counts c
    cdef bint walk = decode == "records"
    cdef int64_t wanted = whole_number("fetch_offset", fetch_offset, INT64_MIN, INT64_MAX)
    cdef uint64_t limit = whole_number(
            "max_decompressed_bytes", max_decompressed_bytes, 0, MAX_DECOMPRESSED_LIMIT, "bytes")
    cdef int stopped
    if not walk and decode != "headers":
        raise BatchvalError(f"decode must be records or headers, not {decode!r}")
    take_buffer(buffer, &view)
    try:
        no_counts(&c, wanted)
        scratch = borrow()
        try:
            stopped = count_all(<const uint8_t *>view.buf, view.len, wanted, walk, check_crcs,
                    limit, scratch, &c)
        finally:
            give_back(scratch)
    finally:
        PyBuffer_Release(&view)
    if stopped == OUT_OF_MEMORY:
        raise MemoryError()
    if stopped != WHOLE:
        raise NotABatch(
            f"the batch at byte {c.at} cannot be read: {reason_text(stopped, &c, limit)}")
    return Fetched(c.records, c.bytes, c.next_offset, c.batches, c.wire_bytes, c.at)


cdef str reason_text(int stopped, const Counts *c, uint64_t limit):
    """Return what is wrong with the batch at which the walk stopped."""
    if c.reason:
        return sentence(c.reason, c.record, c.a, c.b)
    if stopped == BAD_OFFSETS:
        return (f"base offset {c.a} and last offset {c.b} are not valid: "
                "expected 0 <= base <= last < 2^63 - 1")
    if stopped == BAD_RECORD:
        return f"record {c.record} is malformed"
    if stopped == OVER_LIMIT:
        return f"it decompresses to more than max_decompressed_bytes, {limit}"
    return "its messages are damaged"
