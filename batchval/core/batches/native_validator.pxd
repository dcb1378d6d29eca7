"""A validator for native code, which needs only an acceptance for most batches."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from batchval.core.stages.claims_block cimport Claims, ClaimsCall
from batchval.core.batches.validator cimport LogValidator

cdef struct Accepted:  # facts about a batch in addition to the path
    int answer       # the outcome of its claims (Verdict.claims)
    int64_t work     # bytes that were walked
    bint has_claims  # it was walked, and these are true of it
    Claims claims

cdef int accepts(LogValidator validator, const uint8_t *p, size_t n, int64_t now_ms,
        int produce_version,
        const ClaimsCall *claims, Accepted *found) except -1
cdef bint accepted_by_claims(LogValidator validator, const uint8_t *p, size_t n, int64_t now_ms,
        int produce_version,
        const ClaimsCall *claims) noexcept
