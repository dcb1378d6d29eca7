"""Blocks of memory that own themselves, and the splitter that cuts them into frames."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    STASH = 512  # an unfinished frame of no more than this keeps no block
    TRUST = (1 << 20) + 4096  # bought at most on a length's word

cdef int large_for(int64_t size) noexcept


@cython.final
cdef class Block:
    cdef uint8_t *memory
    cdef Py_ssize_t size
    cdef bint pooled, large


@cython.final
cdef class FrameSplitter:
    cdef readonly Py_ssize_t max_frame_bytes
    cdef readonly bint whole
    cdef Block block
    cdef object view      # of the block
    cdef Py_ssize_t start, end  # the unfinished frame in the block, its length prefix included
    cdef Py_ssize_t stashed
    cdef uint8_t stash[STASH]
    cdef object failed

    cdef int make_room(self, Py_ssize_t wanted) except -1
    cdef Py_ssize_t carve(self, object view, const uint8_t *data, Py_ssize_t at, Py_ssize_t end, list frames) except -1
    cdef int carve_block(self, list frames) except -1
    cdef int64_t lacking(self)
    cdef int reserve(self) except -1
    cdef int settle(self) except -1
    cdef int64_t stated(self, const uint8_t *data)
    cdef object refusal(self, const uint8_t *data, Py_ssize_t size, list frames)
