"""The sample of batches at rest whose claims are verified, drawn with a key.

    message    base offset:8, crc:4, little-endian
    drawn      SipHash-2-4(key, message) < round(rate * 2^64)

The writers of a log cannot choose which batches are drawn, because they do not know the key. The
same key draws the same batches again, however a segment is cut into ranges. SipHash: Aumasson and
Bernstein, 2012, https://www.aumasson.jp/siphash/siphash.pdf.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    SAMPLE_KEY_SIZE = 16
    MESSAGE_SIZE = 12

cdef struct Sample:
    uint64_t k0
    uint64_t k1
    uint64_t threshold
    bint all  # the threshold is 2^64


cdef inline uint64_t turned(uint64_t x, int by) noexcept nogil:
    return (x << by) | (x >> (64 - by))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = turned(v[1], 13) ^ v[0]
    v[0] = turned(v[0], 32)
    v[2] += v[3]
    v[3] = turned(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = turned(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = turned(v[1], 17) ^ v[2]
    v[2] = turned(v[2], 32)


cdef inline uint64_t sip_hash(const Sample *s, uint64_t first, uint32_t last) noexcept nogil:
    """Return SipHash-2-4 of MESSAGE_SIZE bytes: ``first`` and ``last``, little-endian."""
    cdef uint64_t[4] v
    cdef uint64_t end = (<uint64_t>MESSAGE_SIZE << 56) | last
    v[0] = s.k0 ^ <uint64_t>0x736F6D6570736575
    v[1] = s.k1 ^ <uint64_t>0x646F72616E646F6D
    v[2] = s.k0 ^ <uint64_t>0x6C7967656E657261
    v[3] = s.k1 ^ <uint64_t>0x7465646279746573
    v[3] ^= first
    sip_round(v)
    sip_round(v)
    v[0] ^= first
    v[3] ^= end
    sip_round(v)
    sip_round(v)
    v[0] ^= end
    v[2] ^= 0xFF
    sip_round(v)
    sip_round(v)
    sip_round(v)
    sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline bint is_drawn(const Sample *s, int64_t base_offset, uint32_t crc) noexcept nogil:
    return s.all or sip_hash(s, <uint64_t>base_offset, crc) < s.threshold
