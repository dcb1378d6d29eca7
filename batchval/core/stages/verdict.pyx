"""Verdicts, from nothing known to the answer that the caller gets."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from batchval.core.format cimport reasons
from batchval.core.records.compiled_rules cimport NUMBER_NOT_ALLOWED
from batchval.core.format.header cimport Entry
from batchval.core.format.layout cimport *
from batchval.core.codecs.scratch cimport RecordError, Scratch

cdef Verdict NONE_YET
memset(&NONE_YET, 0, sizeof(Verdict))
NONE_YET.record = -1
NONE_YET.max_timestamp = NO_TIMESTAMP
NONE_YET.target = NONE
NONE_YET.error_batch = -1


cdef void clear(Verdict *v) noexcept nogil:
    v[0] = NONE_YET


cdef bint refuse(Verdict *v, int rule, int code, int reason, int64_t a=0,
        int64_t b=0) noexcept nogil:
    v.rule = rule
    v.error_code = code
    v.reason = reason
    v.a = a
    v.b = b
    return False


cdef bint broker_fails(Verdict *v, int rule, int cause, int reason, int64_t a=0,
        int64_t b=0) noexcept nogil:
    v.cause = cause
    return refuse(v, rule, UNKNOWN_SERVER_ERROR, reason, a, b)


cdef bint refuse_batch_rule(Verdict *v, int rule, const Entry *entry) noexcept nogil:
    """Refuse by what next_batch found wrong: rules 2, 3 and 4."""
    if rule == BATCH_SIZE_TOO_SMALL:
        return refuse(v, rule, CORRUPT_MESSAGE, reasons.SIZE_BELOW_14, entry.size_field)
    if rule == BATCH_SIZE_OVERFLOW:
        return broker_fails(v, rule, S9, reasons.SIZE_OVERFLOWS, entry.size_field)
    return refuse(v, MAGIC_UNKNOWN, CORRUPT_MESSAGE, reasons.MAGIC_NOT_0_1_2, entry.magic)


cdef void conclude(const AppendContext *d, Verdict *v) noexcept nogil:
    """Conclude a verdict. In strict mode the broker's failures get the code of their cause, and
    extras apply to batches that Kafka would accept.
    """
    cdef int extra
    if not d.strict:
        v.found = 0
        return
    if v.error_code == UNKNOWN_SERVER_ERROR:
        v.rule = v.cause
        v.error_code = code_of_extra(v.rule)
        v.found = 0
        return
    if v.rule:
        v.found = 0
        return
    v.reports = v.found & ~d.refuse
    for extra in range(1, LAST_EXTRA + 1):
        if v.found & d.refuse & (1 << extra):
            v.rule = EXTRA + extra
            v.error_code = code_of_extra(v.rule)
            v.reason = reasons.EXTRA_FOUND
            return


cdef int reason_of_broken(const RecordError *error) noexcept nogil:
    """Return the reason of a broken rule. R1 has two sentences, the other rules one each, in order."""
    if error.rule == R1:
        if error.kind == NUMBER_NOT_ALLOWED:
            return reasons.RECORD_SCHEMA_ID
        return reasons.RECORD_SCHEMA_FORM
    return reasons.RECORD_KEY_SIZE + error.rule - R2


cdef void conclude_rules(const Scratch *scratch, Verdict *v) noexcept nogil:
    """Refuse an accepted batch that breaks a record rule: checked last, in both modes."""
    if v.rule or scratch.broken_seen == 0 or v.out_of_memory:
        return
    v.reports = 0
    v.record = scratch.broken[0].index
    if scratch.broken_batch >= 0:
        v.error_batch = scratch.broken_batch
    refuse(v, scratch.broken[0].rule, INVALID_RECORD, reason_of_broken(&scratch.broken[0]),
            scratch.broken_seen, scratch.broken[0].timestamp)
