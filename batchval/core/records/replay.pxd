from libc.stdint cimport uint64_t

from batchval.core.format.header cimport Entry
from batchval.core.records.records cimport Facts
from batchval.core.codecs.scratch cimport Scratch

cdef enum:
    RECORD_FIRST
    DAMAGE_FIRST
    HALTS_FIRST  # batchval.core.records.chunked has what Kafka reads then

cdef int damage_comes_first(const Entry *b, Scratch *scratch, Facts *f, int parser,
        uint64_t limit) noexcept nogil
