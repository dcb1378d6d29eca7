"""A Produce response as its walk sees it."""

cimport cython
from libc.stdint cimport int32_t

from batchval.protocol.walkers.views cimport FrameView


@cython.final
@cython.no_gc
cdef class ProduceResponseView(FrameView):
    cdef const int32_t *row(self, Py_ssize_t i) except NULL
    cdef const int32_t *topic_row(self, Py_ssize_t i)
    cdef const int32_t *root(self)
