from libc.stdint cimport int32_t, int64_t

from batchval.core.stages.verdict cimport Verdict
from batchval.core.codecs.scratch cimport RecordError, Scratch

cdef class ValidationResult:
    cdef Verdict v
    cdef RecordError *errors
    cdef int32_t errors_count
    cdef int32_t errors_seen
    cdef bint offsets_assigned  # LogValidator's stage has run and accepted
    cdef int64_t now
    cdef int64_t first_offset
    cdef object new_bytes  # bytes; the caller's buffer, where ``viewed`` is not negative
    cdef Py_ssize_t viewed  # how many bytes of the caller's buffer are the output
    cdef object text  # a reason that did not come from the core
    cdef object conversion_time
    cdef object record_rules  # a RecordRules, where the errors are about its rules

    cdef int keep_errors(self, Scratch *scratch) except -1
    cdef int keep_broken(self, Scratch *scratch, record_rules) except -1
    cdef int make_space(self, Py_ssize_t count) except -1

cdef str message_of_broken(const RecordError *error, record_rules)
cdef str message_of_error(const RecordError *error, record_rules, int64_t least, int64_t most,
        partition)
