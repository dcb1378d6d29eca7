"""The fields of a record that a walk has found whole. Nothing here asks for bounds: walk first."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.bytes cimport be64
from batchval.core.layout cimport ATTRIBUTES, BASE_OFFSET, BASE_TIMESTAMP, LOG_APPEND_TIME_BIT, MAX_TIMESTAMP


cdef const uint8_t *read_varint(const uint8_t *p, int64_t *value) noexcept nogil:
    """Of a record that has been walked: no bounds to ask."""
    cdef uint64_t v = 0
    cdef int shift = 0
    while p[0] >= 0x80:
        v |= <uint64_t>(p[0] & 0x7F) << shift
        shift += 7
        p += 1
    v |= <uint64_t>p[0] << shift
    value[0] = <int64_t>(v >> 1) ^ -<int64_t>(v & 1)
    return p + 1


cdef const uint8_t *read_int(const uint8_t *p, int32_t *value) noexcept nogil:
    """As Kafka's readVarint: of a fifth byte only 4 bits count."""
    cdef uint32_t v = 0
    cdef int shift = 0
    while p[0] >= 0x80:
        v |= <uint32_t>(p[0] & 0x7F) << shift
        shift += 7
        p += 1
    v |= <uint32_t>p[0] << shift
    value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
    return p + 1


cdef const uint8_t *read_record(const uint8_t *p, const uint8_t *header, Record *r) noexcept nogil:
    """A walked record of magic 2; returns where the next starts."""
    cdef int32_t length = 0, offset_delta = 0, _i, size = 0
    cdef int64_t timestamp_delta = 0
    cdef const uint8_t *start = p
    p = read_int(p, &length)
    r.attributes = p[0]
    p = read_varint(p + 1, &timestamp_delta)
    p = read_int(p, &offset_delta)
    p = read_int(p, &r.key_length)
    r.key = p
    p += r.key_length if r.key_length > 0 else 0
    p = read_int(p, &r.value_length)
    r.value = p
    p += r.value_length if r.value_length > 0 else 0
    p = read_int(p, &r.headers_count)
    r.headers = p
    for _i in range(2 * r.headers_count):
        p = read_int(p, &size)
        p += size if size > 0 else 0
    r.headers_size = <int32_t>(p - r.headers)
    r.size = <int32_t>(p - start)
    r.offset = <int64_t>(<uint64_t>be64(header + BASE_OFFSET) + <uint64_t><int64_t>offset_delta)
    if header[ATTRIBUTES + 1] & LOG_APPEND_TIME_BIT:
        r.timestamp = be64(header + MAX_TIMESTAMP)
    else:
        r.timestamp = <int64_t>(<uint64_t>be64(header + BASE_TIMESTAMP) + <uint64_t>timestamp_delta)
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
        return 3 if n >= 3 and 0x80 <= p[2] <= 0xBF else 1
    for i in range(2, size):
        if n <= i or p[i] < 0x80 or p[i] > 0xBF:
            return i
    valid[0] = True
    return size


cdef uint64_t java_string_into(uint8_t *to, uint64_t most, const uint8_t *p, uint64_t n) noexcept nogil:
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
    """Header keys go through a Java String: what is not UTF-8 comes out as replacement characters."""
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
