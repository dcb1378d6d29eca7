"""The fields of a record of magic 2, in memory that nobody else writes to."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from batchval.core.format.header cimport BatchHeader

cdef struct Record:
    int64_t offset
    int32_t attributes
    int32_t size  # with its length field
    int64_t timestamp
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers
    int32_t key_length  # negative: null
    int32_t value_length
    int32_t headers_count
    int32_t headers_size

cdef const uint8_t *read_field(const uint8_t *p, const uint8_t *end, int32_t *length) noexcept nogil
cdef const uint8_t *after_headers(const uint8_t *p, const uint8_t *end,
        int32_t count) noexcept nogil
cdef const uint8_t *read_record(const uint8_t *p, const uint8_t *end, const BatchHeader *h,
        Record *r) noexcept nogil
cdef uint64_t java_string_into(uint8_t *to, uint64_t most, const uint8_t *p,
        uint64_t n) noexcept nogil
cdef bytes java_string(const uint8_t *p, int32_t n)
cdef tuple headers_of(const Record *r)
