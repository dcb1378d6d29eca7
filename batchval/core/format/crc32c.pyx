"""CRC-32C, the checksum of magic 2 batches; and CRC-32, the checksum of magic 0 and 1 messages and
of gzip members.

The kernels are C, in crc_kernels.c; the fastest that the processor has is chosen when this module
is loaded.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "crc_kernels.h" nogil:
    uint32_t c_crc32c "crc32c"(uint32_t crc, const uint8_t *p, size_t n) noexcept
    uint32_t c_crc32c_by "crc32c_by"(int kernel, uint32_t crc, const uint8_t *p, size_t n) noexcept
    uint32_t c_crc32_ieee "crc32_ieee"(uint32_t crc, const uint8_t *p, size_t n) noexcept
    uint32_t c_crc32c_shift "crc32c_shift"(uint32_t crc, uint64_t n) noexcept
    uint32_t c_crc32_ieee_shift "crc32_ieee_shift"(uint32_t crc, uint64_t n) noexcept
    void crc_init() noexcept
    int crc_kernel() noexcept
    int crc_kernel_usable(int kernel) noexcept
    const char *crc_kernel_name(int kernel) noexcept
    int CRC_KERNELS

crc_init()

# Bytes: about 2-3 µs of work; below, handing over the GIL costs more.
cdef Py_ssize_t NOGIL_ABOVE = 65536


cdef uint32_t crc32c_of(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil:
    return c_crc32c(crc, p, n)


cdef uint32_t crc32_of(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil:
    return c_crc32_ieee(crc, p, n)


cdef uint32_t crc32c_moved(uint32_t crc, uint64_t n) noexcept nogil:
    """Return the crc moved over n further bytes: crc(A' B) = crc(A B) ^ moved(crc(A) ^ crc(A'),
    len(B)).
    """
    return c_crc32c_shift(crc, n)


cdef uint32_t crc32_moved(uint32_t crc, uint64_t n) noexcept nogil:
    return c_crc32_ieee_shift(crc, n)


def crc32c(data, uint32_t crc=0):
    """Return the CRC-32C of a contiguous buffer; ``crc`` is that of the bytes before it."""
    cdef Py_buffer view
    cdef uint32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len > NOGIL_ABOVE:
            with nogil:
                result = c_crc32c(crc, <const uint8_t *>view.buf, view.len)
        else:
            result = c_crc32c(crc, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return result


def crc32c_combine(uint32_t first, uint32_t second, uint64_t length_of_second):
    """Return the CRC-32C of two buffers put together, from their own and the length of the second,
    in O(log length).
    """
    return c_crc32c_shift(first, length_of_second) ^ second


def crc32(data, uint32_t crc=0):
    """Return the CRC-32 (IEEE) of a contiguous buffer, as zlib does."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return c_crc32_ieee(crc, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def crc32_combine(uint32_t first, uint32_t second, uint64_t length_of_second):
    """Return the CRC-32 (IEEE) of two buffers put together, as crc32c_combine does."""
    return c_crc32_ieee_shift(first, length_of_second) ^ second


def kernel():
    """Return the name of the kernel that was chosen."""
    return crc_kernel_name(crc_kernel()).decode()


def usable_kernels():
    """Return the names of all kernels that this processor can run, slowest first."""
    return [crc_kernel_name(k).decode() for k in range(CRC_KERNELS) if crc_kernel_usable(k)]


def crc32c_by(str name, data, uint32_t crc=0):
    """Return the CRC-32C by one named kernel, so that tests can compare kernels."""
    cdef Py_buffer view
    cdef int k, found = -1
    for k in range(CRC_KERNELS):
        if crc_kernel_usable(k) and crc_kernel_name(k).decode() == name:
            found = k
    if found < 0:
        raise ValueError(f"this processor has no CRC-32C kernel {name!r}")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return c_crc32c_by(found, crc, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
