"""What a stream that counts does with records."""

from libc.stdint cimport int64_t

from batchval.core.codecs.scratch cimport Scratch
from batchval.fetch.receive cimport Stream

cdef int take_batch(Stream *s, int64_t there, Scratch *scratch) noexcept nogil
