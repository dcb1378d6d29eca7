"""The fields of a record that a walk has found whole. Nothing here asks for bounds: walk first."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

import re

from batchval.core.bytes cimport be64
from batchval.core.layout cimport ATTRIBUTES, BASE_OFFSET, BASE_TIMESTAMP, LOG_APPEND_TIME_BIT, MAX_TIMESTAMP


cdef const uint8_t *read_varint(const uint8_t *p, int64_t *value) noexcept:
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


cdef const uint8_t *read_int(const uint8_t *p, int32_t *value) noexcept:
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


cdef const uint8_t *read_record(const uint8_t *p, const uint8_t *header, Record *r) noexcept:
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
