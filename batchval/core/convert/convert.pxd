from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.core.stages.claims_block cimport Claims
from batchval.core.format.header cimport BatchHeader
from batchval.core.stages.verdict cimport AppendContext, Policy, Verdict
from batchval.core.codecs.scratch cimport Scratch

cdef struct Out:  # bytes that grow
    uint8_t *data
    size_t size
    size_t capacity

cdef class Written:
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef size_t capacity
    cdef Py_ssize_t exports  # buffers that refer to the bytes

cdef uint8_t *more(Out *out, size_t n) noexcept nogil
cdef bint put_message(Out *out, int magic, int attributes, int64_t offset, int64_t timestamp,
        const uint8_t *key, int32_t key_length, const uint8_t *value,
        int32_t value_length) noexcept nogil
cdef void seal_message(uint8_t *p, size_t size, int magic, int attributes, int64_t offset,
        int64_t timestamp) noexcept nogil
cdef Written written(Out *out)
cdef bytes bytes_of(const uint8_t *p, size_t n)
cdef bytes rebuild(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch, Verdict *v, Claims *claims=*, bint ids_wanted=*)
cdef void assign_header(uint8_t *p, const BatchHeader *h, const AppendContext *d,
        const Policy *policy,
        const Verdict *v) noexcept nogil
cdef void assign_in_place(uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        const Verdict *v, bint crc_is_right, uint8_t *to) noexcept nogil
