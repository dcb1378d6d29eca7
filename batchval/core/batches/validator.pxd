"""LogValidator, as its native callers see it (native_validator.pyx)."""

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from batchval.core.stages.claims_block cimport ClaimsCall
from batchval.core.records.compiled_rules cimport CompiledRules
from batchval.core.format.header cimport BatchHeader
from batchval.core.batches.result cimport ValidationResult
from batchval.core.codecs.scratch cimport Scratch
from batchval.core.stages.verdict cimport AppendContext, Policy

cdef enum:
    SOURCE_UNKNOWN = -1  # the codec that a message set came with: unknown, to be found


@cython.final
cdef class LogValidator:
    cdef readonly object policy
    cdef readonly str mode
    cdef readonly str profile
    cdef readonly str kafka_version  # of the release
    cdef object release
    cdef readonly object max_decompressed_bytes
    cdef object clock_ns
    cdef Policy compiled
    cdef CompiledRules rules  # those that ``compiled`` points to
    cdef AppendContext context

    cdef dict settings(self)
    cdef bint accepts_claims(self) noexcept nogil
    cdef int open_context(self, AppendContext *d, now_ms, origin, produce_version, first_offset,
            leader_epoch,
            to_magic) except -1
    cdef ValidationResult check_log(self, buffer)
    cdef int validate_into(self, ValidationResult result, const uint8_t *p, size_t n,
            const AppendContext *d,
            const ClaimsCall *claims, Scratch *scratch, BatchHeader *h) except -1
    cdef int convert_into(self, ValidationResult result, const uint8_t *p, size_t n, bytes own,
            const AppendContext *d, int source) except -1
    cdef bint assigns_in_place(self, ValidationResult result, uint8_t *p, size_t n,
            const AppendContext *d, int source) except -1
    cdef void judge_records(self, ValidationResult result, const uint8_t *p, size_t n,
            const AppendContext *d, int source, Scratch *scratch) noexcept nogil
    cdef int finish(self, ValidationResult result, Scratch *scratch) except -1
    cdef int assign(self, ValidationResult result, const uint8_t *p, size_t n, bytes own, kept,
            const Py_buffer *view, const AppendContext *d, Scratch *scratch,
            bint crc_is_right) except -1
    cdef int size_comes_first(self, ValidationResult result, const uint8_t *p, bytes own,
            const Py_buffer *view, const AppendContext *d, Scratch *scratch) except -1
    cdef int refuse_size(self, ValidationResult result, int64_t size) except -1
