"""The records that a consumer was sent, counted."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from batchval.core.format.header cimport Entry
from batchval.core.codecs.scratch cimport Scratch

cdef enum:  # why the walk stopped
    WHOLE
    BELOW  # not at all: it ends below the first offset that counts
    BAD_BATCH
    BAD_OFFSETS
    BAD_CRC
    BAD_CODEC
    BAD_COUNT
    BAD_RECORD
    BAD_STREAM
    BAD_MESSAGE
    OVER_LIMIT
    OUT_OF_MEMORY

cdef struct Counts:
    int64_t records
    int64_t bytes
    int64_t next_offset
    int64_t batches
    int64_t wire_bytes
    size_t at  # of the batch that stopped the walk, or where the bytes end that are whole
    int32_t record
    int reason  # batchval.core.format.reasons
    int64_t a
    int64_t b


cdef inline void no_counts(Counts *c, int64_t first) noexcept nogil:
    """Clear the counts; the walk goes on at ``first``."""
    c.records = 0
    c.bytes = 0
    c.next_offset = first
    c.batches = 0
    c.wire_bytes = 0
    c.at = 0
    c.record = -1
    c.reason = 0
    c.a = 0
    c.b = 0


cdef int count_entry(const Entry *b, int64_t first, bint walk, bint check_crcs, uint64_t limit,
        Scratch *scratch, Counts *c) noexcept nogil
cdef int count_each(const uint8_t *p, size_t n, int64_t first, bint walk, bint check_crcs,
        uint64_t limit, Scratch *scratch, Counts *c) noexcept nogil
