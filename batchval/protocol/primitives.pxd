"""The reader and the writer that messages are made with, and the check that every buffer enters
by.
"""

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t, uint64_t

from batchval.protocol.cursor cimport Cursor

cdef int take_buffer(object buffer, Py_buffer *view) except -1
cdef object explained(const Cursor *c)


@cython.final
@cython.no_gc
cdef class Reader:
    cdef Py_buffer view
    cdef bint held
    cdef object whole  # a memoryview, for slices
    cdef Cursor c

    cdef int check(self) except -1
    cdef bytes cut(self, Py_ssize_t size)


@cython.final
cdef class Writer:
    cdef list chunks
    cdef uint8_t *block
    cdef Py_ssize_t used, capacity, chunk_bytes  # chunk_bytes: of chunks already written
    cdef bint has_length
    cdef public bint flexible

    cdef uint8_t *grow(self, Py_ssize_t size) except NULL
    cdef int put(self, const uint8_t *source, Py_ssize_t size) except -1
    cdef int length(self, Py_ssize_t size, int fixed) except -1
    cdef int flush(self) except -1
