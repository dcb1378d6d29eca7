"""Writing varints, and the record of magic 2 that is made of them.

    varint   zigzag, then 7 bits a byte, low ones first: as short as can be, at most 10 bytes
    record   length attributes:1 timestamp_delta offset_delta key_length key value_length value
             headers_count headers

All but the attributes are varints; -1 is the length of null. (ByteUtils.writeVarint,
DefaultRecord.writeTo.)
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from batchval.core.records.fields cimport Record


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int size_of_varint(int64_t value) noexcept nogil:
    cdef uint64_t v = zigzag(value)
    cdef int n = 1
    while v >= 0x80:
        v >>= 7
        n += 1
    return n


cdef inline uint8_t *put_varint(uint8_t *p, int64_t value) noexcept nogil:
    """Write a varint. Return where it ends."""
    cdef uint64_t v = zigzag(value)
    while v >= 0x80:
        p[0] = <uint8_t>(v | 0x80)
        v >>= 7
        p += 1
    p[0] = <uint8_t>v
    return p + 1


cdef inline size_t size_of_nullable(int32_t length) noexcept nogil:
    return size_of_varint(length) + <size_t>length if length >= 0 else 1


cdef inline uint8_t *put_nullable(uint8_t *p, const uint8_t *content,
        int32_t length) noexcept nogil:
    """Write the length, then as many bytes; below 0: null."""
    p = put_varint(p, length if length >= 0 else -1)
    if length > 0:
        memcpy(p, content, length)
        p += length
    return p


cdef inline size_t size_of_body(const Record *r, int64_t timestamp_delta,
        int32_t offset_delta) noexcept nogil:
    """Return the size of the fields after the length, in bytes. Key, value and headers are the
    record's; its own offset does not matter.
    """
    return (1 + size_of_varint(timestamp_delta) + size_of_varint(offset_delta) + size_of_nullable(r.key_length)
            + size_of_nullable(r.value_length) + size_of_varint(r.headers_count) + <size_t>r.headers_size)


cdef inline uint8_t *put_record(uint8_t *p, int32_t body_size, const Record *r,
        int64_t timestamp_delta,
        int32_t offset_delta) noexcept nogil:
    p = put_varint(p, body_size)
    p[0] = 0
    p = put_varint(p + 1, timestamp_delta)
    p = put_varint(p, offset_delta)
    p = put_nullable(p, r.key, r.key_length)
    p = put_nullable(p, r.value, r.value_length)
    p = put_varint(p, r.headers_count)
    if r.headers_size:
        memcpy(p, r.headers, r.headers_size)
    return p + r.headers_size
