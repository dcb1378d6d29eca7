"""A Fetch answer cut up as it comes."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.protocol.cursor cimport Cursor
from batchval.protocol.frames cimport Block, FrameSplitter


@cython.final
cdef class FetchPieces:
    cdef readonly int api_version
    cdef readonly int throttle_time_ms, error_code
    cdef object on_partition
    cdef str topic
    cdef int step
    cdef int64_t topics, partitions  # still to come
    cdef bint has_piece
    cdef Py_ssize_t wanted  # bytes of the next piece, as far as that is known

    cdef Py_ssize_t cut(self, object view, const uint8_t *data, Py_ssize_t at, Py_ssize_t end,
            bint whole) except -1
    cdef void partition_end(self, Cursor *c) noexcept
    cdef int hand_on(self, object piece, bint ended) except -1


@cython.final
cdef class FetchSplitter:
    cdef FrameSplitter plain
    cdef dict expected
    cdef FetchPieces pieces  # of the answer that is coming; None: plain reads
    cdef Block block
    cdef object view         # of the block
    cdef Py_ssize_t at, end  # what has come and is not cut
    cdef int64_t coming      # of the answer, after that
    cdef bytes head
    cdef bint failed
    cdef readonly bint has_piece  # the last bytes completed a partition

    cdef int begin(self) except -1
    cdef int64_t read_size(self)
    cdef list go_on(self)
    cdef int make_space(self) except -1
    cdef int leave(self) except -1
