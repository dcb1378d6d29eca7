"""Arrow's C data interface: numpy columns and bytes that others hold, as Arrow arrays without a
copy.
"""

from libc.stdint cimport int32_t, int64_t


cdef class ArrowColumn:
    cdef readonly Py_ssize_t length
    cdef readonly Py_ssize_t null_count
    cdef readonly bytes format
    cdef readonly bint nullable
    cdef list buffers  # objects with the buffer protocol, None for a buffer that is absent
    cdef Py_ssize_t variadic  # how many of the last buffers hold the values of views; -1: no views
    cdef tuple names  # of the children
    cdef list children
    cdef ArrowColumn dictionary
    cdef dict metadata


cdef ArrowColumn column_of(array, valid=*)
cdef ArrowColumn dictionary_of(codes, tuple names, valid=*)
cdef ArrowColumn struct_of(tuple names, list columns, Py_ssize_t length, dict metadata)
cdef ArrowColumn views_of(Py_ssize_t count, const int64_t *position, const int32_t *length,
        const int32_t *source, list data)
