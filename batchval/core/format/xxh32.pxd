"""xxHash32, the checksum inside lz4 frames: of the frame descriptor, of blocks, of the content."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.format.bytes cimport le32

cdef struct Xxh32:
    uint32_t sums[4]
    uint64_t total
    uint8_t tail[16]  # the total % 16 bytes that no sums has taken

cdef enum:
    PRIME1 = 0x9E3779B1
    PRIME2 = 0x85EBCA77
    PRIME3 = 0xC2B2AE3D

cdef enum:
    PRIME4 = 0x27D4EB2F
    PRIME5 = 0x165667B1


cdef inline uint32_t rotate(uint32_t v, int n) noexcept nogil:
    return (v << n) | (v >> (32 - n))


cdef inline void xxh32_start(Xxh32 *x) noexcept nogil:
    x.sums[0] = <uint32_t>PRIME1 + <uint32_t>PRIME2
    x.sums[1] = <uint32_t>PRIME2
    x.sums[2] = 0
    x.sums[3] = 0 - <uint32_t>PRIME1
    x.total = 0


cdef inline void xxh32_stripe(Xxh32 *x, const uint8_t *p) noexcept nogil:
    cdef int i
    for i in range(4):
        x.sums[i] = rotate(x.sums[i] + le32(p + 4 * i) * <uint32_t>PRIME2, 13) * <uint32_t>PRIME1


cdef inline void xxh32_add(Xxh32 *x, const uint8_t *p, uint64_t n) noexcept nogil:
    cdef uint64_t have = x.total & 15, take
    x.total += n
    if have:
        take = 16 - have if n >= 16 - have else n
        memcpy(x.tail + have, p, take)
        p += take
        n -= take
        if have + take < 16:
            return
        xxh32_stripe(x, x.tail)
    while n >= 16:
        xxh32_stripe(x, p)
        p += 16
        n -= 16
    if n:
        memcpy(x.tail, p, n)


cdef inline uint32_t xxh32_value(const Xxh32 *x) noexcept nogil:
    cdef uint32_t h
    cdef const uint8_t *p = &x.tail[0]
    cdef uint64_t n = x.total & 15
    if x.total >= 16:
        h = rotate(x.sums[0], 1) + rotate(x.sums[1], 7) + rotate(x.sums[2], 12) + rotate(x.sums[3],
                18)
    else:
        h = <uint32_t>PRIME5
    h += <uint32_t>x.total
    while n >= 4:
        h = rotate(h + le32(p) * <uint32_t>PRIME3, 17) * <uint32_t>PRIME4
        p += 4
        n -= 4
    while n:
        h = rotate(h + p[0] * <uint32_t>PRIME5, 11) * <uint32_t>PRIME1
        p += 1
        n -= 1
    h = (h ^ (h >> 15)) * <uint32_t>PRIME2
    h = (h ^ (h >> 13)) * <uint32_t>PRIME3
    return h ^ (h >> 16)


cdef inline uint32_t xxh32_of(const uint8_t *p, uint64_t n) noexcept nogil:
    cdef Xxh32 x
    xxh32_start(&x)
    xxh32_add(&x, p, n)
    return xxh32_value(&x)
