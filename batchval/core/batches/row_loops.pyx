"""Many batches validated, a row each: the loops of check_ranges and check_batches."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from batchval.core.stages.claims_block cimport (
    CLAIMED_RECORDS, CLAIMS_CARRIED, CLAIMS_MAGIC, CLAIMS_SIZE, CLAIMS_TRUSTED, Claims, ClaimsCall,
    read_claims,
)
from batchval.core.batches.columns cimport (
    BatchColumns, put_accepted, put_empty_row, put_header_row, put_row, put_verdict,
)
from batchval.core.stages.stages cimport Call, StoredFacts, fill_call, check_stored, validate_row
from batchval.core.format.header cimport (
    BATCH, BatchHeader, Entry, has_right_crc, next_batch, next_claimed_batch,
)
from batchval.core.stages.verdict cimport AppendContext, Policy, Verdict, clear
from batchval.core.stages.batch_records cimport fill_checks
from batchval.core.format.layout cimport *
from batchval.core.records.sampling cimport Sample
from batchval.core.codecs.scratch cimport Scratch, begin_work, end_work, spend


cdef enum:
    ROW_WORK = 64  # what a row costs in addition to its records, in bytes that are walked


cdef inline int first_batch(const uint8_t *p, size_t n, bint claimed, Entry *b) noexcept nogil:
    return next_claimed_batch(p, n, b) if claimed else next_batch(p, n, b)


cdef inline void as_it_came(BatchColumns columns, size_t i) noexcept nogil:
    """Set a row to the bytes that came, not to the batch that they carry."""
    columns.runs.magic[i] = CLAIMS_MAGIC
    columns.runs.size_in_bytes[i] += CLAIMS_SIZE


cdef void validate_rows(const uint8_t *p, const int64_t *range_of, const Policy **policy_of,
        const Policy *policy, size_t count, const AppendContext *d, const ClaimsCall *call,
        const ClaimsCall *calls,
        Scratch *scratch, BatchColumns columns, bint is_long, uint64_t bytes_in_all) noexcept nogil:
    """Validate every range. The caller has the GIL, which is released when the work is long. Ranges
    may overlap: the sum of their lengths counts, not the buffer's.
    """
    cdef Entry b
    cdef BatchHeader h
    cdef Call c
    cdef Verdict v
    cdef size_t i
    cdef int64_t start, length
    cdef int path
    begin_work(scratch, is_long)
    spend(scratch, (bytes_in_all >> 2) + count * ROW_WORK)
    fill_call(&c, d, policy, call, scratch)
    for i in range(count):
        start = range_of[2 * i]
        length = range_of[2 * i + 1]
        if policy_of is not NULL and c.policy is not policy_of[i]:
            c.policy = policy_of[i]
            fill_checks(&c.checks, d, c.policy)
        if calls is not NULL:
            c.claims = &calls[i]
        columns.runs.length[i] = length
        columns.count = i + 1
        path = validate_row(p + start, length, &c, &v, &h)
        if path:
            put_header_row(&columns.runs, i, &h, start, True)
            put_accepted(&columns.runs, i, path)
            if path == PATH_CLAIMS:
                columns.runs.claims[i] = CLAIMS_TRUSTED
                if p[start + MAGIC] == CLAIMS_MAGIC:
                    as_it_came(columns, i)
            continue
        if v.out_of_memory:
            columns.count = i
            break
        if v.batches and length >= RECORDS and h.magic == 2:
            put_header_row(&columns.runs, i, &h, start, True)
            if v.stripped:
                as_it_came(columns, i)
        elif first_batch(p + start, length, d.strict and c.policy.accept_claims_header,
                &b) == BATCH:
            put_row(&columns.runs, i, &b, start, has_right_crc(&b))  # it was not verified yet
        else:
            put_empty_row(&columns.runs, i, start)
        put_verdict(&columns.runs, i, &v)
    end_work(scratch)


cdef void put_claims_columns(BatchColumns columns, size_t i, const Claims *claims) noexcept nogil:
    columns.runs.batch_min_timestamp[i] = claims.batch_min_timestamp
    columns.runs.records_number[i] = claims.records_number
    columns.runs.null_keys[i] = claims.null_keys


cdef void put_rest(BatchColumns columns, size_t i, const Entry *b, const Verdict *v,
        const StoredFacts *rest, bint trusts) noexcept nogil:
    """Fill in the columns that only a check at rest has."""
    cdef Claims claims
    columns.clear_rest(i)
    columns.runs.figures[i] = rest.figures
    if v.rule == CRC_MISMATCH:
        return
    if v.walked_size and v.walked:
        columns.runs.uncompressed_size[i] = v.walked_size
        if b.magic >= 2:
            columns.runs.max_record_bytes[i] = v.walked_longest
    if rest.figures == FIGURES_CLAIMS:
        columns.runs.uncompressed_size[i] = rest.claims.uncompressed_bytes
        columns.runs.max_record_bytes[i] = rest.claims.max_record_bytes
    if trusts and rest.carried == CLAIMS_CARRIED:
        put_claims_columns(columns, i, &rest.claims)
    if b.magic == CLAIMS_MAGIC and b.size >= CLAIMED_RECORDS:
        read_claims(b.p + RECORDS, &claims)
        put_claims_columns(columns, i, &claims)


cdef int check_stored_rows(const uint8_t *p, size_t n, size_t at, const AppendContext *d,
        const Policy *policy, bint deep, const Sample *sample, Scratch *scratch,
        BatchColumns columns, size_t *end) noexcept nogil:
    """Validate every whole batch from ``at`` on. Return next_batch's last answer, -1: no memory.
    ``end``: where the walk stopped.
    """
    cdef Entry b
    cdef Verdict v
    cdef StoredFacts rest
    cdef size_t i = 0
    cdef int found
    cdef bint claimed = policy.accept_claims_header and d.strict
    while True:
        found = first_batch(p + at, n - at, claimed, &b)
        end[0] = at
        if found != BATCH:
            return found
        clear(&v)
        check_stored(&b, d, policy, deep, sample, scratch, &v, &rest)
        if v.out_of_memory:
            return -1
        if <Py_ssize_t>i == <Py_ssize_t>columns.capacity and not columns.reserve(2 * i if i else 64):
            return -1
        put_row(&columns.runs, i, &b, at, v.rule != CRC_MISMATCH)
        put_verdict(&columns.runs, i, &v)
        columns.runs.length[i] = b.size
        put_rest(columns, i, &b, &v, &rest, sample is not NULL)
        i += 1
        columns.count = i
        at += b.size
