"""Rows of batches as columns: one block of memory, one run in it for each column."""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from batchval.core.batches.block cimport ColumnBlock
from batchval.core.format.header cimport BatchHeader, Entry
from batchval.core.stages.verdict cimport Verdict
from batchval.core.format.layout cimport LOG_OVERHEAD

cdef struct Rows:
    int64_t *position
    int64_t *base_offset
    int64_t *base_timestamp
    int64_t *max_timestamp
    int64_t *producer_id
    int32_t *size_in_bytes
    int32_t *partition_leader_epoch
    uint32_t *crc
    int32_t *last_offset_delta
    int32_t *base_sequence
    int32_t *records_count
    int16_t *attributes
    int16_t *producer_epoch
    int8_t *magic
    uint8_t *is_valid
    # of a check alone
    int64_t *length  # of the range
    int64_t *reason_a
    int64_t *reason_b
    int32_t *reason_record
    int16_t *reason
    int16_t *rule
    int16_t *error_code
    uint32_t *reports
    uint8_t *path
    uint8_t *claims
    # of a check at rest alone
    int64_t *uncompressed_size
    int64_t *batch_min_timestamp  # these three: what the batch claims
    int32_t *records_number
    int8_t *null_keys
    int32_t *max_record_bytes
    uint8_t *figures

cdef enum:  # columns of a scan, of a check, of a check at rest
    SCAN_COLUMNS = 15
    CHECKED_COLUMNS = 25
    RESTING_COLUMNS = 31

cdef class BatchColumns(ColumnBlock):
    cdef Rows runs
    cdef readonly bint checked
    cdef public object end
    cdef public object tail
    cdef object rejudge
    cdef bint is_restored  # from a pickle: it cannot be validated again

    cdef str why_no_results(self)
    cdef void clear_rest(self, size_t i) noexcept nogil

cdef void put_row(Rows *rows, size_t i, const Entry *b, int64_t position,
        bint is_valid) noexcept nogil
cdef object tail_of(const uint8_t *p, size_t left, int found)
cdef void put_empty_row(Rows *rows, size_t i, int64_t position) noexcept nogil


cdef inline void put_header_row(Rows *rows, size_t i, const BatchHeader *h, int64_t position,
        bint is_valid) noexcept nogil:
    rows.position[i] = position
    rows.size_in_bytes[i] = <int32_t>(<uint32_t>h.batch_length + LOG_OVERHEAD)
    rows.magic[i] = 2
    rows.is_valid[i] = is_valid
    rows.base_offset[i] = h.base_offset
    rows.base_timestamp[i] = h.base_timestamp
    rows.max_timestamp[i] = h.max_timestamp
    rows.producer_id[i] = h.producer_id
    rows.partition_leader_epoch[i] = h.partition_leader_epoch
    rows.crc[i] = h.crc
    rows.last_offset_delta[i] = h.last_offset_delta
    rows.base_sequence[i] = h.base_sequence
    rows.records_count[i] = h.records_count
    rows.attributes[i] = h.attributes
    rows.producer_epoch[i] = h.producer_epoch


cdef inline void put_accepted(Rows *rows, size_t i, uint8_t path) noexcept nogil:
    rows.rule[i] = 0
    rows.error_code[i] = 0
    rows.reports[i] = 0
    rows.path[i] = path
    rows.claims[i] = 0


cdef inline void put_verdict(Rows *rows, size_t i, const Verdict *v) noexcept nogil:
    rows.rule[i] = v.rule
    rows.error_code[i] = v.error_code
    rows.reports[i] = v.reports
    rows.path[i] = v.path
    rows.claims[i] = v.claims
    if v.rule:  # an accepted batch needs no reason
        rows.reason_a[i] = v.a
        rows.reason_b[i] = v.b
        rows.reason_record[i] = v.record
        rows.reason[i] = v.reason
