"""The validator for native callers, which need only an acceptance for most batches.

    accepts             the path by which a batch is accepted
    accepted_by_claims  whether the claims alone accept it; settled_by_claims calls it for Python

A refusal has no reason here: the caller calls ``LogValidator.check`` for it.
"""

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int64_t, uint8_t

from batchval.core.stages.arguments cimport NOGIL_UNCOMPRESSED, is_long, take_buffer
from batchval.core.stages.claims_block cimport (
    CLAIMS_TRUSTED, NO_CLAIMS, TRUST_CLAIMS, ClaimsCall, read_tag, true_claims,
)
from batchval.core.stages.stages cimport Call, fill_call, validate_row, rests_on_claims
from batchval.core.format.header cimport BatchHeader, read_header
from batchval.core.format.layout cimport CODEC_MASK, PATH_CLAIMS, RECORDS, UNUSED_BITS
from batchval.core.codecs.scratch cimport UNLIMITED_WORK, WORK_WITH_GIL, Scratch
from batchval.core.codecs.scratch cimport begin_work, end_work, give_back
from batchval.core.batches.validator cimport LogValidator
from batchval.core.stages.verdict cimport AppendContext, Verdict, borrow_for


cdef inline void prepare(LogValidator validator, AppendContext *d, Call *c, int64_t now_ms,
        int produce_version, const ClaimsCall *claims, Scratch *scratch) noexcept:
    d[0] = validator.context
    d.now = now_ms
    d.produce_version = <int16_t>produce_version
    fill_call(c, d, &validator.compiled, claims, scratch)


cdef int validate_one(const uint8_t *p, size_t n, const Call *call, Verdict *v,
        BatchHeader *h, int64_t *work) noexcept nogil:
    """Validate one batch. The caller has the GIL, which long work releases. ``work``: bytes that
    were walked.
    """
    cdef int path
    cdef bint released = is_long(p, n)
    begin_work(call.scratch, released)
    path = validate_row(p, n, call, v, h)
    if call.scratch.thread_state is NULL:
        work[0] = WORK_WITH_GIL - call.scratch.work_left
    else:
        work[0] = UNLIMITED_WORK - call.scratch.work_left + (0 if released else WORK_WITH_GIL)
    end_work(call.scratch)
    return path


cdef int accepts(LogValidator validator, const uint8_t *p, size_t n, int64_t now_ms,
        int produce_version,
        const ClaimsCall *claims, Accepted *found) except -1:
    """Return the accepted path, or 0 when LogValidator.check must decide."""
    cdef AppendContext d
    cdef Call c
    cdef BatchHeader h
    cdef Verdict v
    cdef int path
    prepare(validator, &d, &c, now_ms, produce_version, claims,
            borrow_for(&validator.context))
    found.has_claims = False
    path = validate_one(p, n, &c, &v, &h, &found.work)
    found.has_claims = path == 0 and true_claims(&v, &found.claims)
    if found.has_claims:
        found.claims.schema_ids = c.scratch.seen_ids.ids
    give_back(c.scratch)
    if path:
        found.answer = CLAIMS_TRUSTED if path == PATH_CLAIMS else NO_CLAIMS
        return path
    found.answer = NO_CLAIMS
    if v.out_of_memory or v.rule or v.reports:
        found.has_claims = False
        return 0
    found.answer = v.claims
    return v.path


cdef bint accepted_by_claims(LogValidator validator, const uint8_t *p, size_t n, int64_t now_ms,
        int produce_version,
        const ClaimsCall *claims) noexcept:
    """Return whether the claims alone accept the batch. Nothing is decompressed."""
    cdef AppendContext d
    cdef Call c
    cdef BatchHeader h
    cdef bint yes
    if n < RECORDS or claims.policy != TRUST_CLAIMS or not validator.context.strict:
        return False
    read_header(p, &h)
    if not h.attributes & CODEC_MASK or h.attributes & UNUSED_BITS:
        return False
    prepare(validator, &d, &c, now_ms, produce_version, claims, NULL)
    if n < NOGIL_UNCOMPRESSED:
        return rests_on_claims(p, n, &c, &h)
    with nogil:
        yes = rests_on_claims(p, n, &c, &h)
    return yes


def settled_by_claims(LogValidator validator, batch, tag, int64_t now_ms, int produce_version):
    """Return whether the claims alone accept the batch; where not, LogValidator.check must decide.

    The claims are in ``tag``, which may be None, or in the batch's payload. Nothing is
    decompressed.
    """
    cdef Py_buffer view, tag_view
    cdef ClaimsCall call
    call.policy = TRUST_CLAIMS
    call.tagged = False
    call.wants_ids = False
    if tag is not None:
        take_buffer(tag, &tag_view)
        read_tag(<const uint8_t *>tag_view.buf, tag_view.len, &call)
        PyBuffer_Release(&tag_view)
    take_buffer(batch, &view)
    try:
        return bool(accepted_by_claims(
                validator, <const uint8_t *>view.buf, view.len, now_ms, produce_version, &call))
    finally:
        PyBuffer_Release(&view)
