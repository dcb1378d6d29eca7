"""The first two stages of a broker's door."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from batchval.core.scratch cimport Scratch
from batchval.core.verdict cimport Door, Policy, Verdict

cdef bint judge_request(const uint8_t *p, size_t n, const Door *d, Verdict *v) noexcept nogil
cdef bint judge_first_batch(const uint8_t *p, size_t n, bint claimed, Verdict *v,
        bint *transactional) noexcept nogil
cdef bint judge_batches(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil
