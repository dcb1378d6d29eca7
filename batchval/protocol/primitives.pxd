"""The reader and the writer that messages are made with, and the check that every buffer enters
by.
"""

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

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
    cpdef object boolean(self)
    cpdef object int8(self)
    cpdef object int16(self)
    cpdef object int32(self)
    cpdef object int64(self)
    cpdef object uuid(self)
    cpdef object string(self)
    cpdef object nullable_string(self)
    cpdef object data(self)
    cpdef object records(self)
    cpdef object nullable_records(self)
    cpdef object int32_array(self)
    cpdef object rest(self)
    cpdef object unknown_tags(self)
    cpdef int64_t count(self) except? -1
    cpdef int64_t nullable_count(self) except? -1


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
    cpdef object boolean(self, value)
    cpdef object int8(self, int8_t value)
    cpdef object int16(self, int16_t value)
    cpdef object int32(self, int32_t value)
    cpdef object int64(self, int64_t value)
    cpdef object string(self, str value)
    cpdef object nullable_string(self, str value)
    cpdef object data(self, value)
    cpdef object records(self, value)
    cpdef object nullable_records(self, value)
    cpdef object tags(self, fields)
