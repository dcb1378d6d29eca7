"""gzip members, and the inflate in them (inflate.c)."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

cdef extern from "../codecs/inflate.h" nogil:
    ctypedef struct Inflate:
        const uint8_t *at "in"
        const uint8_t *end "in_end"
    int INFLATE_DONE, INFLATE_FULL, INFLATE_SHORT, INFLATE_BAD, INFLATE_HISTORY

cdef enum:
    JAVA_INPUT = 8192  # bytes of the payload that Kafka's GZIPInputStream fetches at a time

cdef const uint8_t *gzip_header(const uint8_t *p, const uint8_t *end) noexcept nogil
cdef const uint8_t *next_gzip_member(const uint8_t *trailer, const uint8_t *end,
        const uint8_t **fetched, bint sees_more) noexcept nogil
cdef void inflate_open(Inflate *s, const uint8_t *p, const uint8_t *end) noexcept nogil
cdef int inflate_on(Inflate *s, uint8_t *window, size_t *at, size_t end) noexcept nogil
cdef size_t inflate_size() noexcept nogil
