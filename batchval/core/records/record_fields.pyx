"""Fields of a record that do not lie whole in their block: byte by byte, block by block."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.format.bytes cimport span
from batchval.core.records.compiled_rules cimport HEAD
from batchval.core.codecs.codec_streams cimport Stream, refill
from batchval.core.format.utf8 cimport Utf8, utf8_add, utf8_start


cdef int pull(Stream *s, int64_t *byte) noexcept nogil:
    """Read one byte, from the next block if need be. A soft end is read as the -1 that Kafka would
    read there.
    """
    if s.at == s.end:
        if s.soft_end_unread:
            s.soft_end_unread = False
            byte[0] = 0xFF
            return FOUND
        if not refill(s):
            if not s.soft_end:
                return CUT_OFF
            byte[0] = 0xFF
            return FOUND
    byte[0] = s.at[0]
    s.at += 1
    return FOUND


cdef int varint_across(Stream *s, int32_t *value) noexcept nogil:
    """Follow ByteUtils.readVarint: at most 5 bytes, of which the last gives 4 bits and may not go
    on.
    """
    cdef uint32_t v = 0
    cdef int64_t b = 0
    cdef int i
    for i in range(5):
        if pull(s, &b) != FOUND:
            return CUT_OFF
        v |= <uint32_t>(b & 0x7F) << (7 * i)
        if b < 0x80:
            value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
            return FOUND
    return TOO_LONG


cdef int varlong_across(Stream *s, int64_t *value) noexcept nogil:
    """Follow ByteUtils.readVarlong: at most 10 bytes, of which the last gives 1 bit and may not go
    on.
    """
    cdef uint64_t v = 0
    cdef int64_t b = 0
    cdef int i
    for i in range(10):
        if pull(s, &b) != FOUND:
            return CUT_OFF
        v |= <uint64_t>(b & 0x7F) << (7 * i)
        if b < 0x80:
            value[0] = <int64_t>(v >> 1) ^ -<int64_t>(v & 1)
            return FOUND
    return TOO_LONG


cdef int pass_soft_end(Stream *s, bint progress) noexcept nogil:
    """Follow Utils.skip over a stream that answers 0, then goes on: one such end is skipped, and
    one more after skipped bytes.
    """
    cdef int ends = 3 if progress else 2
    while s.soft_end:
        ends -= 1
        if ends == 0:
            return CUT_OFF
        if refill(s):
            return FOUND
    return CUT_OFF


cdef int skip_across(Stream *s, uint64_t n) noexcept nogil:
    cdef bint progress = False
    while n > span(s.at, s.end):
        progress = progress or s.at < s.end
        n -= span(s.at, s.end)
        s.at = s.end
        if not refill(s):
            if pass_soft_end(s, progress) != FOUND:
                return CUT_OFF
            progress = False
    s.at += n
    return FOUND


cdef int look_across(Stream *s, Reader *r, int32_t n, Look *look) noexcept nogil:
    """Skip a field as skip_across, keep its first bytes and look whether it is UTF-8."""
    cdef Utf8 u
    cdef uint64_t left = n, part, kept = 0, more
    utf8_start(&u)
    s.at = r.p
    while left:
        if s.at == s.end and not refill(s):
            if pass_soft_end(s, left < <uint64_t>n) != FOUND:
                return CUT_OFF
        part = span(s.at, s.end)
        if part > left:
            part = left
        if kept < HEAD:
            more = HEAD - kept if part > HEAD - kept else part
            memcpy(look.head + kept, s.at, more)
            kept += more
        if look.asks_utf8 and look.is_utf8:
            look.is_utf8 = utf8_add(&u, s.at, part)
        s.at += part
        left -= part
    if u.left:
        look.is_utf8 = False
    r.p = s.at
    r.end = s.end
    return FOUND
