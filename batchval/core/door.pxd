"""The whole door, of both profiles."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from batchval.core.claims cimport ClaimsCall
from batchval.core.header cimport BatchHeader, Entry
from batchval.core.verdict cimport Door, Policy, Verdict
from batchval.core.records cimport Checks
from batchval.core.scratch cimport Scratch

cdef struct Call:  # what is to be known beside the bytes
    const Door *door
    const Policy *policy
    const ClaimsCall *claims
    Scratch *scratch
    Checks checks  # of door and policy

cdef void judge(const uint8_t *p, size_t n, const Call *call, Verdict *v, BatchHeader *h) noexcept nogil
cdef int judge_row(const uint8_t *p, size_t n, const Call *call, Verdict *v, BatchHeader *h) noexcept nogil
cdef bint rests_on_claims(const uint8_t *p, size_t n, const Call *call, BatchHeader *h) noexcept nogil
cdef void judge_resting(const Entry *b, const Door *d, const Policy *policy, bint deep, Scratch *scratch,
        Verdict *v) noexcept nogil
