"""gzip members (RFC 1952), as java.util.zip.GZIPInputStream reads them.

    1F 8B 8 flags:1 mtime:4 xfl:1 os:1
    [extra: length:2, bytes] [name 0] [comment 0] [crc-16 of all that:2]
    deflate data
    crc-32 of the content:4 LE, its size modulo 2^32:4 LE
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from batchval.core.format.bytes cimport le16, span
from batchval.core.format.crc32c cimport crc32_of

cdef extern from "../codecs/inflate.h" nogil:
    void c_inflate_init "inflate_init"() noexcept
    void c_inflate_start "inflate_start"(Inflate *s, const uint8_t *p, const uint8_t *end) noexcept
    int c_inflate_run "inflate_run"(Inflate *s, uint8_t *window, size_t *at, size_t end) noexcept

c_inflate_init()

cdef enum:
    FLAG_HEADER_CRC = 2
    FLAG_EXTRA = 4
    FLAG_NAME = 8
    FLAG_COMMENT = 16

    NO_MEMBER = 26  # bytes: a trailer, and too few bytes for a header and a trailer


cdef const uint8_t *after_zero(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end and p[0] != 0:
        p += 1
    return p + 1 if p < end else NULL


cdef const uint8_t *gzip_header(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Return the place after the header of a member; NULL where GZIPInputStream would throw."""
    cdef const uint8_t *start = p
    cdef uint8_t flags
    cdef uint32_t extra
    if span(p, end) < 10 or p[0] != 0x1F or p[1] != 0x8B or p[2] != 8:
        return NULL
    flags = p[3]
    p += 10
    if flags & FLAG_EXTRA:
        if span(p, end) < 2:
            return NULL
        extra = le16(p)
        p += 2
        if span(p, end) < extra:
            return NULL
        p += extra
    if flags & FLAG_NAME:
        p = after_zero(p, end)
    if p is not NULL and flags & FLAG_COMMENT:
        p = after_zero(p, end)
    if p is NULL:
        return NULL
    if flags & FLAG_HEADER_CRC:
        if span(p, end) < 2 or le16(p) != crc32_of(0, start, p - start) & 0xFFFF:
            return NULL
        p += 2
    return p


cdef const uint8_t *next_gzip_member(const uint8_t *trailer, const uint8_t *end,
        const uint8_t **fetched, bint sees_more) noexcept nogil:
    """Return the deflate data of the member that follows ``trailer``, NULL where the stream ends
    with it.

    JDK 17 looks for another member only if its source has more bytes, or if more than 26 (the
    trailer, a header of 10 and a trailer) are left of the piece that it holds (GZIPInputStream,
    JDK-7036144). JDK 25 looks for one in any case.
    ``sees_more``: its source says how many bytes it has, as Kafka's does since 3.6.
    ``fetched`` is the end of what it held when this member's data began, and is moved to where the
    next one begins.
    """
    cdef const uint8_t *held = fetched[0]
    cdef const uint8_t *data
    while held < trailer:
        held = held + JAVA_INPUT if span(held, end) > JAVA_INPUT else end
    if not sees_more and span(trailer, held) <= NO_MEMBER:
        return NULL
    if held < trailer + 8:
        held = trailer + 8  # read one by one, as are header bytes
    if held == end and span(trailer, end) <= NO_MEMBER:
        return NULL
    data = gzip_header(trailer + 8, end)
    if data is not NULL:
        fetched[0] = held if held > data else data
    return data


cdef void inflate_open(Inflate *s, const uint8_t *p, const uint8_t *end) noexcept nogil:
    c_inflate_start(s, p, end)


cdef int inflate_on(Inflate *s, uint8_t *window, size_t *at, size_t end) noexcept nogil:
    return c_inflate_run(s, window, at, end)


cdef size_t inflate_size() noexcept nogil:
    return sizeof(Inflate)


def inflate(bytes data, size_t limit=1 << 30):
    """Decompress raw deflate data: (status, content so far, bytes of input used); for tests that
    compare it with zlib.

    The status is ``done``, ``full`` (more than ``limit`` bytes), ``short`` or ``bad``.
    """
    cdef Inflate s
    cdef const uint8_t *p = data
    cdef size_t at = 0, size = 1 << 16
    cdef int status
    out = bytearray(size)
    c_inflate_start(&s, p, p + len(data))
    while True:
        status = c_inflate_run(&s, out, &at, size)
        if status != INFLATE_FULL or size >= limit:
            break
        size = min(2 * size, limit)
        out.extend(bytes(size - len(out)))
    return ("done", "full", "short", "bad")[status], bytes(out[:at]), s.at - p
