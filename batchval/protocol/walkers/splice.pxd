"""A frame written again around slices of another: what stays is handed on as slices, what is small
is copied.
"""

cimport cython
from libc.stdint cimport uint8_t

from batchval.protocol.primitives cimport Writer

cdef enum:
    WORTH_A_SLICE = 1024  # fewer bytes are copied: a chunk more costs a write more than they do


@cython.final
cdef class Splicer:
    cdef Writer w
    cdef object whole          # the frame, as a memoryview of bytes
    cdef const uint8_t *base
    cdef Py_ssize_t start, end  # kept, and not written yet

    cdef int keep(self, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int keep_to(self, Py_ssize_t end) except -1
    cdef int jump(self, Py_ssize_t to) except -1
    cdef int settle(self) except -1
    cdef int put_length(self, Py_ssize_t size, int fixed) except -1
    cdef int put(self, bytes data) except -1
    cdef int copy(self, const uint8_t *source, Py_ssize_t size) except -1
    cdef uint8_t *grow(self, Py_ssize_t size) except NULL
    cdef list finish(self)

cdef Splicer splicer(object whole, const uint8_t *base, bint flexible)
