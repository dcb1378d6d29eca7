"""A validator asked by native code, about batches of which there is nothing to say."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from batchval.core.claims cimport ClaimsCall
from batchval.core.validator cimport LogValidator

cdef int accepts(LogValidator validator, const uint8_t *p, size_t n, int64_t now_ms, int produce_version,
        const ClaimsCall *claims, int *answer, int64_t *work) except -1
cdef bint rests(LogValidator validator, const uint8_t *p, size_t n, int64_t now_ms, int produce_version,
        const ClaimsCall *claims) noexcept
