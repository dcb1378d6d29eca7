"""What a caller hands over, as the core reads it."""

from cpython.buffer cimport Py_buffer
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t

from batchval.core.claims cimport ClaimsCall
from batchval.core.verdict cimport Policy
from batchval.core.layout cimport ATTRIBUTES, CODEC_MASK, MAGIC

cdef enum:
    # From these sizes on the work is long whatever comes out of the input: the GIL is released before it begins.
    # Below, it is released as soon as the work turns out to be long (batchval.core.scratch).
    NOGIL_COMPRESSED = 8192
    NOGIL_UNCOMPRESSED = 131072

cdef class CompiledPolicy:
    cdef Policy policy
    cdef object source

cdef int compile_policy(Policy *to, policy) except -1
cdef CompiledPolicy compiled_policy(policy)
cdef uint32_t refusing(extras) except? 0
cdef int origin_number(origin) except -1
cdef int take_buffer(buffer, Py_buffer *view, int flags) except -1
cdef int64_t *every_batch(const uint8_t *p, size_t n, bint claimed, size_t *count) except NULL
cdef int take_pairs(ranges, Py_buffer *pairs) except -1
cdef int check_pairs(const int64_t *pairs, size_t count, Py_ssize_t size) except -1
cdef int source_number(source) except -2
cdef int source_of(const uint8_t *p, size_t n) noexcept nogil
cdef int read_claims_call(claims, bint strict, ClaimsCall *call) except -1
cdef bint is_one_claim(claims)


cdef inline bint is_long(const uint8_t *p, size_t n) noexcept nogil:
    """Whether the work is long by the size of the input alone."""
    if n < NOGIL_COMPRESSED:
        return False
    if p[MAGIC] >= 2 and p[ATTRIBUTES + 1] & CODEC_MASK:
        return True
    return n >= NOGIL_UNCOMPRESSED
