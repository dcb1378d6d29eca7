"""The fields of a record of magic 2 in memory that nobody else writes to. NULL where they run past its end.

Whoever calls has walked the records before, which finds the same; the bounds are asked again because a mistake here
would hand out, or write into a batch, the memory that follows.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

import re

from batchval.core.bytes cimport room
from batchval.core.header cimport BatchHeader
from batchval.core.layout cimport LOG_APPEND_TIME_BIT


cdef const uint8_t *read_varint(const uint8_t *p, const uint8_t *end, int64_t *value) noexcept:
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


cdef const uint8_t *read_int(const uint8_t *p, const uint8_t *end, int32_t *value) noexcept:
    """As Kafka's readVarint: of a fifth byte only 4 bits count."""
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


cdef const uint8_t *read_field(const uint8_t *p, const uint8_t *end, int32_t *length) noexcept:
    """A length, below 0 for null, and where so many bytes start."""
    p = read_int(p, end, length)
    if p is NULL or (length[0] > 0 and <uint64_t>length[0] > room(p, end)):
        return NULL
    return p


cdef const uint8_t *read_record(const uint8_t *p, const uint8_t *end, const BatchHeader *h, Record *r) noexcept:
    """A record that a walk has accepted; returns where the next starts."""
    cdef int32_t length = 0, offset_delta = 0, _i
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
    for _i in range(r.headers_count):
        p = read_field(p, end, &length)
        if p is NULL or length < 0:  # the key of a header is never null
            return NULL
        p = read_field(p + length, end, &length)
        if p is NULL:
            return NULL
        p += length if length > 0 else 0
    r.headers_size = <int32_t>(p - r.headers)
    r.size = <int32_t>(p - start)
    r.offset = <int64_t>(<uint64_t>h.base_offset + <uint64_t><int64_t>offset_delta)
    if h.attributes & LOG_APPEND_TIME_BIT:
        r.timestamp = h.max_timestamp
    else:
        r.timestamp = <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>timestamp_delta)
    return p


# new String(bytes, UTF_8) makes one U+FFFD of an encoded surrogate, also of one whose last byte is missing
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


cdef bytes java_string(const uint8_t *p, int32_t n):
    """Header keys go through a Java String: what is not UTF-8 comes out as replacement characters."""
    raw = PyBytes_FromStringAndSize(<const char *>p, n)
    try:
        raw.decode("utf-8")
        return raw
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xef\xbf\xbd", raw).decode("utf-8", "replace").encode("utf-8")
