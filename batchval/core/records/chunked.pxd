from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint64_t

from batchval.core.codecs.codec_streams cimport Stream
from batchval.core.codecs.scratch cimport Scratch

cdef uint8_t *as_read(Stream *s, Scratch *scratch, int codec, int magic, const uint8_t *payload,
        size_t n, uint64_t limit, int parser, int32_t records, int32_t max_body) noexcept nogil
