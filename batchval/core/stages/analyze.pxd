"""The first two stages of a broker's append."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from batchval.core.codecs.scratch cimport Scratch
from batchval.core.stages.verdict cimport AppendContext, Policy, Verdict

cdef bint validate_request(const uint8_t *p, size_t n, const AppendContext *d,
        Verdict *v) noexcept nogil
cdef bint validate_first_batch(const uint8_t *p, size_t n, bint claimed, Verdict *v,
        bint *transactional) noexcept nogil
cdef bint analyze_batches(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        Verdict *v) noexcept nogil
