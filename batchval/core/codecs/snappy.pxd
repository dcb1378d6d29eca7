from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    SNAPPY_SLACK = 64  # bytes that snappy_decode may spill after the last one

cdef int64_t snappy_length(const uint8_t *p, size_t n, int *header) noexcept nogil
cdef bint snappy_decode(const uint8_t *p, size_t n, uint8_t *to, size_t length) noexcept nogil
