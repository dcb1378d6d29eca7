"""The ledger's state of one sender."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    COUNTS = 8  # of ClaimsCounts, in its order

cdef enum:
    BATCHES
    SAMPLED
    TRUSTED
    HONEST
    LYING
    UNJUDGED
    UNBOUND
    DEMOTIONS

cdef enum:
    PADS = 8


@cython.final
cdef class Counts:
    cdef int64_t n[COUNTS]


@cython.final
cdef class SenderTrust:
    cdef Counts own, totals
    cdef object keyed     # block -> 64 secret bytes
    cdef int word         # batchval.core.stages.claims' VERIFY_CLAIMS or TRUST_CLAIMS, or AUDIT
    cdef uint64_t below   # a draw under this falls on the batch
    cdef bint always
    cdef int64_t first_checked, demotion_ms
    cdef int64_t checked  # batches since the sender came, or came back from demotion
    cdef bint demoted
    cdef int64_t demoted_until
    cdef uint64_t pads[PADS]
    cdef int pads_left
    cdef int64_t blocks   # of eight counters that were drawn from, ever

    cdef int count(self, int what, int64_t n) noexcept
    cdef int draw_pads(self) except -1
    cdef int decide(self, uint32_t crc, int64_t now_ms) except -1
    cdef int note(self, int what, int64_t n, int64_t now_ms) noexcept
