"""Many batches judged, a row each: the loops behind check_ranges and check_batches."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from batchval.core.claims cimport CLAIMS_MAGIC, CLAIMS_SIZE, CLAIMS_TRUSTED, ClaimsCall
from batchval.core.columns cimport BatchColumns, put_accepted, put_empty_row, put_header_row, put_row, put_verdict
from batchval.core.door cimport Call, judge_resting, judge_row
from batchval.core.header cimport BATCH, BatchHeader, Entry, has_right_crc, next_batch, next_claimed_batch
from batchval.core.verdict cimport Door, Policy, Verdict, clear
from batchval.core.walks cimport fill_checks
from batchval.core.layout cimport *
from batchval.core.scratch cimport Scratch


cdef inline int first_batch(const uint8_t *p, size_t n, bint claimed, Entry *b) noexcept nogil:
    return next_claimed_batch(p, n, b) if claimed else next_batch(p, n, b)


cdef inline void as_it_came(BatchColumns columns, size_t i) noexcept nogil:
    """A row is about the bytes that came, not about the batch that they carry."""
    columns.runs.magic[i] = CLAIMS_MAGIC
    columns.runs.size_in_bytes[i] += CLAIMS_SIZE


cdef void judge_rows(const uint8_t *p, const int64_t *range_of, const Policy **policy_of,
        const Policy *policy, size_t count, const Door *d, const ClaimsCall *call, const ClaimsCall *calls,
        Scratch *scratch, BatchColumns columns) noexcept nogil:
    cdef Entry b
    cdef BatchHeader h
    cdef Call c
    cdef Verdict v
    cdef size_t i
    cdef int64_t start, length
    cdef int path
    c.door = d
    c.policy = policy
    c.claims = call
    c.scratch = scratch
    fill_checks(&c.checks, d, policy)
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
        path = judge_row(p + start, length, &c, &v, &h)
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
            return
        if v.batches and length >= RECORDS and h.magic == 2:
            put_header_row(&columns.runs, i, &h, start, True)
            if v.stripped:
                as_it_came(columns, i)
        elif first_batch(p + start, length, d.strict and c.policy.accept_claims_header, &b) == BATCH:
            put_row(&columns.runs, i, &b, start, has_right_crc(&b))  # nobody had asked yet
        else:
            put_empty_row(&columns.runs, i, start)
        put_verdict(&columns.runs, i, &v)


cdef void judge_resting_rows(const uint8_t *p, size_t n, size_t at, const Door *d, const Policy *policy,
        Scratch *scratch, BatchColumns columns) noexcept nogil:
    cdef Entry b
    cdef Verdict v
    cdef bint claimed = policy.accept_claims_header and d.strict
    # no more than the scan has counted: another thread may have written to the buffer since
    while columns.count < columns.capacity:
        if first_batch(p + at, n - at, claimed, &b) != BATCH:
            break
        clear(&v)
        judge_resting(&b, d, policy, scratch, &v)
        if v.out_of_memory:
            return
        put_row(&columns.runs, columns.count, &b, at, v.rule != CRC_MISMATCH)
        put_verdict(&columns.runs, columns.count, &v)
        columns.runs.length[columns.count] = b.size
        columns.count += 1
        at += b.size
