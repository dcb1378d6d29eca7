"""The splitter that cuts a stream into frames, and the blocks that it reads into."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from batchval.protocol.frame_memory cimport TRUST, Block, large_for

cdef enum:
    STASH = 512  # an unfinished frame of no more than this keeps no block


@cython.final
cdef class SpareBlock:
    cdef Block block  # None: a splitter has taken it
    cdef object view  # of the block
    cdef readonly bint is_short


@cython.final
cdef class FrameSplitter:
    cdef Py_ssize_t limit  # max_frame_bytes
    cdef int64_t begun     # the stated size of the unfinished frame, which may go on; 0: unknown
    cdef int64_t coming    # of the streamed frame; above 0: nothing from start to end
    cdef readonly bint whole
    cdef Block block
    cdef object view      # of the block
    cdef Py_ssize_t start, end  # the unfinished frame in the block, its length prefix included
    cdef Py_ssize_t stashed
    cdef uint8_t stash[STASH]
    cdef object failed
    cdef SpareBlock spare
    cdef bint offered     # get_buffer gave the spare block; the stash stays until bytes have come
    cdef Py_ssize_t last  # the size of the last whole frame, with its length

    cdef bint grow(self, Py_ssize_t filled, Py_ssize_t size) except -1
    cdef bint is_copied(self, Py_ssize_t size)
    cdef Py_ssize_t skipped(self)
    cdef int make_space(self, Py_ssize_t wanted) except -1
    cdef Py_ssize_t carve(self, object view, const uint8_t *data, Py_ssize_t at, Py_ssize_t end,
            list frames) except -1
    cdef int carve_block(self, list frames) except -1
    cpdef list buffer_updated(self, Py_ssize_t count)
    cdef uint8_t *room(self, Py_ssize_t *size) except NULL
    cdef Py_ssize_t few(self, Py_ssize_t free)
    cdef bint is_scarce(self) noexcept
    cdef void forget_room(self) noexcept
    cdef bint offer(self) except -1
    cdef Py_ssize_t even(self, Py_ssize_t free)
    cdef int take_offered(self) except -1
    cdef int64_t lacking(self)
    cdef int reserve(self) except -1
    cdef int settle(self) except -1
    cdef int64_t stated(self, const uint8_t *data)
    cdef object refusal(self, const uint8_t *data, Py_ssize_t size, list frames)
