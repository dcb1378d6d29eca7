"""The next Fetch of a stream."""

from libc.stddef cimport size_t

from batchval.fetch.receive cimport Stream

cdef size_t stream_request(Stream *s) noexcept nogil
