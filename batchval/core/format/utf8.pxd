"""UTF-8, checked as the bytes come: header keys may stand across two blocks of a stream."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    NOT_ASCII = 0x8080808080808080  # bits of 8 bytes

cdef struct Utf8:
    uint8_t left  # continuation bytes to come
    uint8_t low  # bounds of the next one
    uint8_t high


cdef inline void utf8_start(Utf8 *u) noexcept nogil:
    u.left = 0
    u.low = 0x80
    u.high = 0xBF


cdef inline bint utf8_add(Utf8 *u, const uint8_t *p, uint64_t n) noexcept nogil:
    """Add bytes. Return False where they cannot be UTF-8."""
    cdef uint8_t b
    cdef uint64_t eight = 0
    if not u.left:
        # Most text begins with ASCII, or is all of it.
        while n >= 8:
            memcpy(&eight, p, 8)
            if eight & <uint64_t>NOT_ASCII:
                break
            p += 8
            n -= 8
    while n:
        b = p[0]
        p += 1
        n -= 1
        if u.left:
            if b < u.low or b > u.high:
                return False
            u.left -= 1
            u.low = 0x80
            u.high = 0xBF
        elif b < 0x80:
            continue
        elif b < 0xC2 or b > 0xF4:
            return False
        elif b < 0xE0:
            u.left = 1
        elif b < 0xF0:
            u.left = 2
            if b == 0xE0:
                u.low = 0xA0  # shorter forms exist
            elif b == 0xED:
                u.high = 0x9F  # surrogates
        else:
            u.left = 3
            if b == 0xF0:
                u.low = 0x90
            elif b == 0xF4:
                u.high = 0x8F  # above U+10FFFF
    return True


cdef inline bint is_utf8(const uint8_t *p, uint64_t n) noexcept nogil:
    cdef Utf8 u
    utf8_start(&u)
    return utf8_add(&u, p, n) and u.left == 0
