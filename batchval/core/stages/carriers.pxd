"""Claims in front of a compressed payload (batchval.core.stages.claims)."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from batchval.core.stages.claims_block cimport Claims, ClaimsCall
from batchval.core.format.header cimport BatchHeader

cdef enum:
    # The most that carriers add to a batch.
    MAX_CARRIER_SIZE = 266

cdef int read_payload(const uint8_t *p, size_t n, int codec, Claims *claims) noexcept nogil
cdef int find_claims(const ClaimsCall *call, const BatchHeader *h, const uint8_t *p, size_t n,
        Claims *claims) noexcept nogil
cdef const uint8_t *carried_block(const uint8_t *p, size_t n, Py_ssize_t *size) noexcept nogil
cdef bint has_payload_claims(const uint8_t *p, size_t n) noexcept nogil
cdef size_t carrier_size(const uint8_t *p, size_t n, size_t block_size) noexcept nogil
cdef void attach_to_payload(uint8_t *to, const uint8_t *p, size_t n, const uint8_t *block,
        size_t block_size) noexcept nogil
cdef size_t claims_size(const uint8_t *p, size_t n) noexcept nogil
cdef void strip_payload(uint8_t *to, const uint8_t *p, size_t n, size_t gone) noexcept nogil
