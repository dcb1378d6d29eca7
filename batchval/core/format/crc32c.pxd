from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef uint32_t crc32c_of(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
cdef uint32_t crc32_of(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
cdef uint32_t crc32c_moved(uint32_t crc, uint64_t n) noexcept nogil
cdef uint32_t crc32_moved(uint32_t crc, uint64_t n) noexcept nogil
