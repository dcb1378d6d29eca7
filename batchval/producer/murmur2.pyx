"""Hash keys as Kafka's producers do: murmur2 of 32 bits with the seed 0x9747b28c.

As org.apache.kafka.common.utils.Utils.murmur2 has it: words little-endian, the result taken as
positive by cutting off its sign (Utils.toPositive), not by its absolute value.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t

from batchval.core.format.bytes cimport le32

cdef uint32_t SEED = 0x9747B28C
cdef uint32_t M = 0x5BD1E995


cdef uint32_t hash_of(const uint8_t *p, size_t n) noexcept nogil:
    cdef uint32_t h = SEED ^ <uint32_t>n
    cdef uint32_t k
    while n >= 4:
        k = le32(p) * M
        k ^= k >> 24
        h = (h * M) ^ (k * M)
        p += 4
        n -= 4
    if n == 3:
        h ^= <uint32_t>p[2] << 16
    if n >= 2:
        h ^= <uint32_t>p[1] << 8
    if n >= 1:
        h ^= p[0]
        h *= M
    h ^= h >> 13
    h *= M
    return h ^ (h >> 15)


def murmur2(data):
    """Return the hash of a bytes-like object as a Java int."""
    cdef Py_buffer view
    cdef int32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        result = <int32_t>hash_of(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return result


def partition_of(key, int32_t partitions):
    """Return the partition that Kafka's producer chooses. Raises ValueError below 1 partition."""
    if partitions < 1:
        raise ValueError(f"invalid number of partitions {partitions}: expected at least 1")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
