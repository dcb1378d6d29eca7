"""A block of columns: one allocation, in which each stored column is a run of values."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from batchval.core.batches.arrow cimport ArrowColumn


cdef class Layout:
    cdef readonly tuple names
    cdef readonly int schema_version
    cdef tuple dtypes
    cdef dict places
    cdef size_t *widths  # bytes of a value


cdef class ColumnBlock:
    cdef uint8_t *block
    cdef uint8_t **pointers  # to each run: the struct of pointers of the subclass
    cdef const size_t *widths
    cdef size_t capacity  # rows
    cdef size_t width  # stored columns
    cdef size_t exports  # buffers that others hold on the block
    cdef readonly Py_ssize_t count
    cdef Layout layout
    cdef dict cache  # derived columns; None until one is read

    cdef bint reserve(self, size_t count) noexcept nogil
    cdef object column(self, str name)
    cdef object stored(self, str name)
    cdef void renew(self) noexcept
    cdef list rows_between(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step)

    # A subclass overrides these.
    cdef tuple column_names(self)
    cdef object derived(self, str name)
    cdef object row_type(self)
    cdef list row_columns(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step)
    cdef tuple arrow_names(self)
    cdef ArrowColumn arrow_column(self, str name)
    cdef void settle(self) noexcept
    cdef object write_state(self)
    cdef int read_state(self, state) except -1
    cdef int share(self, ColumnBlock source) except -1
