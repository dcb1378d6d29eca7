"""The walk of a batch's records, with a verdict."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from batchval.core.codecs.codec_streams cimport Stream
from batchval.core.format.header cimport Entry
from batchval.core.records.records cimport Checks, Facts
from batchval.core.codecs.scratch cimport Scratch
from batchval.core.stages.verdict cimport AppendContext, Policy, Verdict

cdef struct Walk:  # a walk by the skip parser whose answer was not yet taken for a verdict
    Stream stream
    Facts facts
    int answer

cdef void fill_checks(Checks *c, const AppendContext *d, const Policy *policy) noexcept nogil
cdef bint no_array_holds(const Entry *b, Verdict *v) noexcept nogil
cdef bint check_checksum(const Entry *b, Verdict *v) noexcept nogil
cdef bint take(int answer, const Facts *f, int magic, Verdict *v) noexcept nogil
cdef bint walk_batch(const Entry *b, int parser, bint opens_empty, const Checks *c,
        const AppendContext *d, Scratch *scratch,
        Facts *f, int64_t *expected, Verdict *v) noexcept nogil
cdef void mark_meters(const Scratch *scratch, Verdict *v) noexcept nogil
cdef bint record_errors(const Scratch *scratch, const Checks *c, Verdict *v) noexcept nogil
cdef bint estimate(const Entry *b, const Checks *c, const AppendContext *d, bint sizes,
        Scratch *scratch,
        Verdict *v) noexcept nogil
cdef bint read_records(const uint8_t *p, size_t n, int64_t most, const AppendContext *d,
        const Policy *policy, Scratch *scratch, Verdict *v) noexcept nogil
cdef bint check_unopened(const Entry *b, Verdict *v) noexcept nogil
cdef bint check_stored_batch(const Entry *entry, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        Verdict *v) noexcept nogil


cdef inline bint cannot_list(const Entry *b, Verdict *v) noexcept nogil:
    """Return whether DefaultRecordBatch.iterator fails to make a list of all records of a
    compressed batch, as long as the header states.
    """
    return b.magic >= 2 and no_array_holds(b, v)
