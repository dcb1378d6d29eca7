"""Blocks of memory that own themselves."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    BLOCK = 256 << 10         # the largest read block
    TRUST = (1 << 20) + 4096  # allocated at most because of a stated length
    ALWAYS_TRUSTED = 16 << 10  # the same, where memory is short

cpdef int64_t allocated() noexcept
cdef int large_for(int64_t size) noexcept
cdef int64_t trusted() noexcept
cdef Py_ssize_t kind_size() noexcept
cdef bint is_poisoned() noexcept nogil


@cython.final
cdef class Block:
    cdef uint8_t *memory
    cdef Py_ssize_t size
    cdef int kind
    cdef bint counted  # among those in use

    cdef void count(self, bint is_used) noexcept
    cdef bint grow(self, Py_ssize_t size) noexcept


@cython.final
cdef class CountedBytes:
    cdef bytes content
    cdef Py_ssize_t size


@cython.final
cdef class Charge:
    cdef int64_t size
