from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from batchval.core.claims cimport Claims
from batchval.core.header cimport BatchHeader
from batchval.core.verdict cimport Door, Policy, Verdict
from batchval.core.scratch cimport Scratch

cdef bytes rebuild(const uint8_t *p, size_t n, const Door *d, const Policy *policy,
        Scratch *scratch, Verdict *v, Claims *claims=*)
cdef void assign_header(uint8_t *p, const BatchHeader *h, const Door *d, const Policy *policy,
        const Verdict *v) noexcept nogil
cdef void assign_in_place(uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        const Verdict *v, bint crc_is_right, uint8_t *to) noexcept nogil
