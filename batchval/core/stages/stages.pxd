"""All stages of both profiles."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from batchval.core.stages.claims_block cimport Claims, ClaimsCall
from batchval.core.format.header cimport BatchHeader, Entry
from batchval.core.format.layout cimport CLIENT, MAX_OFFSET
from batchval.core.stages.verdict cimport AppendContext, Policy, Verdict
from batchval.core.stages.batch_records cimport fill_checks
from batchval.core.records.records cimport Checks
from batchval.core.records.sampling cimport Sample
from batchval.core.codecs.scratch cimport Scratch

cdef enum:
    MAX_RECORD_COUNT = 0x7FFFFFFF  # of records, by the header's field

cdef struct Call:  # the input in addition to the bytes
    const AppendContext *context
    const Policy *policy
    const ClaimsCall *claims
    Scratch *scratch
    int32_t plain_records  # of an ordinary batch at most; 0: no batch of this call is one
    Checks checks  # of context and policy

cdef struct StoredFacts:  # facts about a batch at rest, in addition to the verdict
    Claims claims  # where ``carried`` is CLAIMS_CARRIED: those in the payload
    int carried
    uint8_t figures

cdef void validate_partition(const uint8_t *p, size_t n, const Call *call, Verdict *v,
        BatchHeader *h) noexcept nogil
cdef int validate_row(const uint8_t *p, size_t n, const Call *call, Verdict *v,
        BatchHeader *h) noexcept nogil
cdef bint rests_on_claims(const uint8_t *p, size_t n, const Call *call,
        BatchHeader *h) noexcept nogil
cdef void check_stored(const Entry *b, const AppendContext *d, const Policy *policy, bint deep,
        const Sample *sample, Scratch *scratch, Verdict *v, StoredFacts *rest) noexcept nogil


cdef inline void fill_call(Call *c, const AppendContext *d, const Policy *policy,
        const ClaimsCall *claims,
        Scratch *scratch) noexcept nogil:
    c.context = d
    c.policy = policy
    c.claims = claims
    c.scratch = scratch
    c.plain_records = 0
    if d.origin == CLIENT and d.to_magic == 2 and d.leader_epoch >= 0 and d.first_offset >= 0:
        c.plain_records = <int32_t>min(MAX_OFFSET - d.first_offset, MAX_RECORD_COUNT)
    fill_checks(&c.checks, d, policy)
