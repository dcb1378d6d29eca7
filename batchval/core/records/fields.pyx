"""The fields of a record of magic 2 in memory that nobody else writes to. NULL where they run past
its end.

The caller has walked the records before, which finds the same. The bounds are checked again because
a mistake here would return the memory that follows, or write it into a batch.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.format.bytes cimport span
from batchval.core.format.header cimport BatchHeader
from batchval.core.format.layout cimport LOG_APPEND_TIME_BIT
from batchval.core.codecs.scratch cimport GIL_YIELD_INTERVAL


cdef const uint8_t *read_varint(const uint8_t *p, const uint8_t *end,
        int64_t *value) noexcept nogil:
    cdef uint64_t v = 0
    cdef int shift = 0
    cdef uint8_t b
    while p < end and shift < 70:
        b = p[0]
        p += 1
        v |= <uint64_t>(b & 0x7F) << shift
        if b < 0x80:
            value[0] = <int64_t>(v >> 1) ^ -<int64_t>(v & 1)
            return p
        shift += 7
    return NULL


cdef const uint8_t *read_int(const uint8_t *p, const uint8_t *end, int32_t *value) noexcept nogil:
    """Read an int as Kafka's readVarint does: of a fifth byte only 4 bits count."""
    cdef uint32_t v = 0
    cdef int shift = 0
    cdef uint8_t b
    while p < end and shift < 35:
        b = p[0]
        p += 1
        v |= <uint32_t>(b & 0x7F) << shift
        if b < 0x80:
            value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
            return p
        shift += 7
    return NULL


cdef const uint8_t *read_field(const uint8_t *p, const uint8_t *end,
        int32_t *length) noexcept nogil:
    """Read a length, below 0 for null, and return where so many bytes start."""
    p = read_int(p, end, length)
    if p is NULL or (length[0] > 0 and <uint64_t>length[0] > span(p, end)):
        return NULL
    return p


cdef const uint8_t *after_headers(const uint8_t *p, const uint8_t *end,
        int32_t count) noexcept nogil:
    """Return where ``count`` headers from ``p`` on end; NULL where one runs past ``end``."""
    cdef int32_t length = 0, _i
    for _i in range(count):
        p = read_field(p, end, &length)
        if p is NULL or length < 0:  # the key of a header is never null
            return NULL
        p = read_field(p + length, end, &length)
        if p is NULL:
            return NULL
        p += length if length > 0 else 0
    return p


cdef const uint8_t *read_record(const uint8_t *p, const uint8_t *end, const BatchHeader *h,
        Record *r) noexcept nogil:
    """Read a record that a walk has accepted. Return where the next starts."""
    cdef int32_t length = 0, offset_delta = 0
    cdef int64_t timestamp_delta = 0
    cdef const uint8_t *start = p
    p = read_int(p, end, &length)
    if p is NULL or p == end:
        return NULL
    r.attributes = p[0]
    p = read_varint(p + 1, end, &timestamp_delta)
    if p is NULL:
        return NULL
    p = read_int(p, end, &offset_delta)
    if p is NULL:
        return NULL
    r.key = read_field(p, end, &r.key_length)
    if r.key is NULL:
        return NULL
    r.value = read_field(r.key + (r.key_length if r.key_length > 0 else 0), end, &r.value_length)
    if r.value is NULL:
        return NULL
    p = read_int(r.value + (r.value_length if r.value_length > 0 else 0), end, &r.headers_count)
    if p is NULL or r.headers_count < 0:
        return NULL
    r.headers = p
    p = after_headers(p, end, r.headers_count)
    if p is NULL:
        return NULL
    r.headers_size = <int32_t>(p - r.headers)
    r.size = <int32_t>(p - start)
    r.offset = <int64_t>(<uint64_t>h.base_offset + <uint64_t><int64_t>offset_delta)
    if h.attributes & LOG_APPEND_TIME_BIT:
        r.timestamp = h.max_timestamp
    else:
        r.timestamp = <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>timestamp_delta)
    return p


cdef const uint8_t *REPLACEMENT = b"\xef\xbf\xbd"


cdef uint64_t valid_or_not(const uint8_t *p, uint64_t n, bint *valid) noexcept nogil:
    """Return the length of the character of UTF-8 at ``p``, or of what Java replaces there by one
    U+FFFD: the longest start of a character, a byte that cannot start one, an encoded surrogate."""
    cdef uint8_t first = p[0], low = 0x80, high = 0xBF
    cdef uint64_t size, i
    valid[0] = True
    if first < 0x80:
        return 1
    valid[0] = False
    if first < 0xC2 or first > 0xF4:
        return 1
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first == 0xE0:
        low = 0xA0
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if n < 2 or p[1] < low or p[1] > high:
        return 1
    if first == 0xED and p[1] >= 0xA0:
        return 3 if n >= 3 and 0x80 <= p[2] <= 0xBF else 2  # its last byte may be missing
    for i in range(2, size):
        if n <= i or p[i] < 0x80 or p[i] > 0xBF:
            return i
    valid[0] = True
    return size


cdef uint64_t java_string_into(uint8_t *to, uint64_t most, const uint8_t *p,
        uint64_t n) noexcept nogil:
    """Write the bytes of a Java String made of these, as UTF-8: at most ``most``. Returns how many;
    with NULL it only counts."""
    cdef uint64_t made = 0, size, piece
    cdef bint valid = True
    while n:
        size = valid_or_not(p, n, &valid)
        piece = size if valid else 3
        if piece > most - made:
            break
        if to is not NULL:
            memcpy(to + made, p if valid else REPLACEMENT, piece)
        made += piece
        p += size
        n -= size
    return made


cdef bytes java_string(const uint8_t *p, int32_t n):
    """Return a header key as Java's String makes it: bytes that are not UTF-8 become replacement
    characters.
    """
    cdef uint64_t size = n, made
    cdef uint8_t *to
    raw = PyBytes_FromStringAndSize(<const char *>p, n)
    p = <const uint8_t *>PyBytes_AS_STRING(raw)
    with nogil:
        made = java_string_into(NULL, <uint64_t>-1, p, size)
    string = PyBytes_FromStringAndSize(NULL, made)
    to = <uint8_t *>PyBytes_AS_STRING(string)
    with nogil:
        java_string_into(to, made, p, size)
    return string


cdef tuple headers_of(const Record *r):
    """Return the headers of a record as pairs of str and bytes or None."""
    cdef const uint8_t *p = r.headers
    cdef const uint8_t *end = p + r.headers_size
    cdef int32_t _i, size = 0
    headers = []
    for _i in range(r.headers_count):  # read_record has found them whole
        if _i % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
            with nogil:
                pass
        p = read_field(p, end, &size)
        key = java_string(p, size).decode("utf-8")
        p = read_field(p + size, end, &size)
        headers.append((key, None if size < 0 else PyBytes_FromStringAndSize(<const char *>p,
                size)))
        p += size if size > 0 else 0
    return tuple(headers)
