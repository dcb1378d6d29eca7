"""Many batches validated, a row each."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from batchval.core.stages.claims_block cimport ClaimsCall
from batchval.core.batches.columns cimport BatchColumns
from batchval.core.stages.verdict cimport AppendContext, Policy
from batchval.core.records.sampling cimport Sample
from batchval.core.codecs.scratch cimport Scratch

cdef void validate_rows(const uint8_t *p, const int64_t *range_of, const Policy **policy_of,
        const Policy *policy, size_t count, const AppendContext *d, const ClaimsCall *call,
        const ClaimsCall *calls,
        Scratch *scratch, BatchColumns columns, bint is_long, uint64_t bytes_in_all) noexcept nogil
cdef int check_stored_rows(const uint8_t *p, size_t n, size_t at, const AppendContext *d,
        const Policy *policy, bint deep, const Sample *sample, Scratch *scratch,
        BatchColumns columns, size_t *end) noexcept nogil
