"""A validator asked by native code, about batches of which there is nothing to say."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from batchval.core.claims cimport Claims, ClaimsCall
from batchval.core.validator cimport LogValidator

cdef struct Accepted:  # what is known of a batch besides the path
    int answer       # what came of its claims (Verdict.claims)
    int64_t work     # bytes that were walked
    bint has_claims  # it was walked, and these are true of it
    Claims claims

cdef int accepts(LogValidator validator, const uint8_t *p, size_t n, int64_t now_ms,
        int produce_version,
        const ClaimsCall *claims, Accepted *found) except -1
cdef bint rests(LogValidator validator, const uint8_t *p, size_t n, int64_t now_ms,
        int produce_version,
        const ClaimsCall *claims) noexcept
