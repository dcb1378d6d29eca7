"""Fixed-width fields: big-endian as Kafka writes them, little-endian as lz4 and zstd do.

The caller has checked that the field fits. A buffer may change while it is read: a value that
bounds a later read is read once, into a local, and never from the buffer again.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "batchval reads and writes wire formats on little-endian machines only"
    #endif
    """
    uint16_t bswap16 "__builtin_bswap16"(uint16_t) noexcept nogil
    uint32_t bswap32 "__builtin_bswap32"(uint32_t) noexcept nogil
    uint64_t bswap64 "__builtin_bswap64"(uint64_t) noexcept nogil

cdef extern from *:
    """
    /* For a bound that is read as it lies: without this the compiler may read it a second time
     * instead of keeping it in a register. Where bytes are swapped or put together first, it
     * cannot. */
    static inline uint32_t batchval_once(uint32_t v) { __asm__("" : "+r"(v)); return v; }
    """
    uint32_t once "batchval_once"(uint32_t) noexcept nogil


cdef inline int16_t be16(const uint8_t *p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return <int16_t>bswap16(v)


cdef inline int32_t be32(const uint8_t *p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return <int32_t>bswap32(v)


cdef inline int64_t be64(const uint8_t *p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return <int64_t>bswap64(v)


cdef inline uint32_t le16(const uint8_t *p) noexcept nogil:
    return p[0] | (<uint32_t>p[1] << 8)


cdef inline uint32_t le24(const uint8_t *p) noexcept nogil:
    return p[0] | (<uint32_t>p[1] << 8) | (<uint32_t>p[2] << 16)


cdef inline uint32_t le32(const uint8_t *p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t le64(const uint8_t *p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline void put_be16(uint8_t *p, int16_t value) noexcept nogil:
    cdef uint16_t v = bswap16(<uint16_t>value)
    memcpy(p, &v, 2)


cdef inline void put_be32(uint8_t *p, int32_t value) noexcept nogil:
    cdef uint32_t v = bswap32(<uint32_t>value)
    memcpy(p, &v, 4)


cdef inline void put_be64(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t v = bswap64(<uint64_t>value)
    memcpy(p, &v, 8)


cdef inline uint64_t span(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Return how many bytes there are. Lengths from the wire are compared with it unsigned, so that
    a negative one is too long.
    """
    return <uint64_t>(end - at)


cdef inline bint all_zero(const uint8_t *p, uint64_t n) noexcept nogil:
    cdef uint64_t i
    for i in range(n):
        if p[i]:
            return False
    return True


cdef extern from *:
    """
    /* The next record starts where the length states it; not to derive it from the fields' ends
     * lets the processor run ahead into it while these are still being read. */
    static inline const uint8_t *batchval_hidden(const uint8_t *p)
    {
        __asm__("" : "+r"(p));
        return p;
    }
    """
    bint likely "__builtin_expect"(bint, long) noexcept nogil
    const uint8_t *hidden "batchval_hidden"(const uint8_t *p) noexcept nogil


cdef inline const uint8_t *short_varint(const uint8_t *p, uint32_t *zigzag) noexcept nogil:
    """Read a varint of at most 3 bytes; else return NULL. The caller has checked that 3 bytes are
    there.
    """
    cdef uint32_t v = p[0]
    if v < 0x80:
        zigzag[0] = v
        return p + 1
    v = (v & 0x7F) | (<uint32_t>p[1] << 7)
    if v < 0x4000:
        zigzag[0] = v
        return p + 2
    v = (v & 0x3FFF) | (<uint32_t>p[2] << 14)
    zigzag[0] = v
    return p + 3 if v < 0x200000 else NULL
