"""What a stream that hands records over does with them."""

from libc.stdint cimport int32_t, int64_t

from batchval.core.codecs.scratch cimport Scratch
from batchval.fetch.receive cimport Stream

cdef int take_block(Stream *s, int64_t there, Scratch *scratch) noexcept nogil
cdef int64_t drop_blocks(Stream *s, int32_t slot, int64_t position) noexcept nogil
