"""Messages of magic 0 and 1, alone or inside a compressed wrapper."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

from batchval.core.format.header cimport Entry
from batchval.core.records.records cimport Checks, Facts
from batchval.core.codecs.scratch cimport Scratch

cdef struct LegacyRecord:
    const uint8_t *p  # the record: crc:4 magic:1 attributes:1 [timestamp:8] key value
    int64_t size
    int64_t offset  # absolute
    int64_t timestamp  # as Kafka reads it: the wrapper's where that has the LogAppendTime bit

cdef struct LegacyRecords:  # of one batch, in order
    bint deep  # inside a wrapper
    int8_t magic  # of the batch
    bint log_append_time
    int64_t wrapper_timestamp
    int64_t base  # to add to an inner offset
    const uint8_t *at
    const uint8_t *end
    Entry entry
    bint overlong
    bint mislabelled

cdef struct PlainMessages:  # what walk_plain_messages has walked
    int64_t count
    int64_t max_timestamp  # of all of them
    int64_t timestamp  # of the last one, as the three below
    uint64_t at
    uint64_t size
    bint is_key_null

cdef int64_t LEGACY_NULL
cdef int64_t LEGACY_BROKEN

cdef int64_t legacy_key(const uint8_t *p, int64_t size, int32_t *length) noexcept nogil
cdef int64_t legacy_value(const uint8_t *p, int64_t size, int32_t *length) noexcept nogil
cdef int open_legacy_records(LegacyRecords *m, const Entry *entry, Scratch *scratch,
        const Checks *c, uint64_t limit,
        Facts *f) noexcept nogil
cdef int reopen_legacy_records(LegacyRecords *m, const Entry *entry,
        Scratch *scratch) noexcept nogil
cdef int next_legacy_record(LegacyRecords *m, LegacyRecord *message, int32_t index,
        Facts *f) noexcept nogil
cdef uint64_t walk_plain_messages(const uint8_t *p, uint64_t n, const Checks *c,
        PlainMessages *found) noexcept nogil
cdef int walk_legacy_records(LegacyRecords *m, Scratch *scratch, const Checks *c, Facts *f,
        int64_t *expected) noexcept nogil

cdef enum:  # next_legacy_record, in addition to records.MALFORMED and BROKER_FAILS
    LEGACY_RECORD = 100
    NO_LEGACY_RECORD = 101
    CORRUPT = 102  # walk_legacy_records, open_legacy_records: CorruptRecordException
