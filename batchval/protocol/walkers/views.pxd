"""A walked frame: the buffer that is held, and the rows of its walk."""

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, uint8_t

from batchval.protocol.cursor cimport Cursor
from batchval.protocol.walkers.tables cimport Tables


@cython.no_gc
cdef class FrameView:
    cdef Py_buffer view
    cdef bint held
    cdef object whole   # a memoryview of bytes
    cdef Tables t
    cdef Cursor c
    cdef readonly int api_version
    cdef readonly int32_t correlation_id

    cdef int hold(self, object frame) except -1
    cdef const uint8_t *base(self)
    cdef bytes cut(self, Py_ssize_t start, Py_ssize_t end)
    cdef object text(self, Py_ssize_t start, Py_ssize_t size)
    cdef int finish_walk(self) except -1
