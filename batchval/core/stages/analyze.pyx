"""The first two stages of a broker's append, in the order of Kafka's checks.

    1  validate_first_batch  RequestUtils.hasTransactionalRecords  rules 2-4, of a whole request
       validate_request      ProduceRequest.validateRecords        rules 5-8
    2  analyze_batches       UnifiedLog.analyzeAndValidateRecords  rules 9-16

Stage 3 is batchval.core.stages.assign_offsets, stage 4 batchval.core.stages.append;
batchval.core.stages.stages calls them in this order.

Each stage walks the batches anew with next_batch (rules 1-4), as Kafka does. It returns False once
it has set the verdict.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from batchval.core.format cimport reasons
from batchval.core.stages.append cimport keeps_offsets
from batchval.core.format.bytes cimport be32, be64
from batchval.core.format.header cimport BATCH, NO_MORE, Entry, next_batch, next_claimed_batch
from batchval.core.format.layout cimport *
from batchval.core.codecs.scratch cimport Scratch
from batchval.core.stages.verdict cimport (
    AppendContext, Policy, Verdict, attributes_of, broker_fails, refuse, refuse_batch_rule,
)
from batchval.core.stages.batch_records cimport check_checksum, read_records

cdef enum:
    ALL_RECORDS = 0x7FFFFFFFFFFFFFFF  # for the text of OffsetsOutOfOrderException


# ---- the request ---------------------------------------------------------------------------------

cdef bint validate_first_batch(const uint8_t *p, size_t n, bint claimed, Verdict *v,
        bint *transactional) noexcept nogil:
    """Check one partition as RequestUtils.hasTransactionalRecords does: a batch that cannot be
    iterated fails the whole request.
    """
    cdef Entry first
    cdef int found = next_claimed_batch(p, n, &first) if claimed else next_batch(p, n, &first)
    transactional[0] = False
    if found == NO_MORE:
        return True
    if found != BATCH:
        return refuse_batch_rule(v, found, &first)
    transactional[0] = first.magic >= 2 and attributes_of(&first) & TRANSACTIONAL_BIT
    return True


cdef bint validate_request(const uint8_t *p, size_t n, const AppendContext *d,
        Verdict *v) noexcept nogil:
    cdef Entry first, second
    cdef int found
    if d.produce_version < d.first_checked_produce_version:
        return True
    found = next_batch(p, n, &first)
    if found == NO_MORE:
        return refuse(v, REQUEST_WITHOUT_BATCH, INVALID_RECORD, reasons.NO_BATCH)
    if found != BATCH:
        return refuse_batch_rule(v, found, &first)
    if first.magic != 2:
        return refuse(v, REQUEST_MAGIC_NOT_2, INVALID_RECORD, reasons.MAGIC_NOT_2, first.magic)
    if d.produce_version < 7:
        if attributes_of(&first) & CODEC_MASK == ZSTD:
            return refuse(v, REQUEST_ZSTD_TOO_OLD, UNSUPPORTED_COMPRESSION_TYPE,
                    reasons.ZSTD_BEFORE_V7,
                    d.produce_version)
        if attributes_of(&first) & CODEC_MASK > ZSTD:
            return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID,
                    attributes_of(&first) & CODEC_MASK)
    found = next_batch(p + first.size, n - first.size, &second)
    if found == BATCH:
        return refuse(v, REQUEST_MORE_THAN_ONE_BATCH, INVALID_RECORD, reasons.SECOND_BATCH)
    if found != NO_MORE:
        return refuse_batch_rule(v, found, &second)
    return True


# ---- the batch loop ------------------------------------------------------------------------------

cdef bint analyze_batches(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Walk the batches. On acceptance valid_bytes, whole_bytes and source are set; the broker trims
    what follows valid_bytes.
    """
    cdef Entry b
    cdef size_t at = 0
    cdef int found
    cdef int32_t epoch
    cdef int64_t last_offset = -1, this_offset
    cdef bint in_order = True, skipping = False
    cdef size_t odd_at = 0
    cdef int64_t odd_offset = 0, odd_before = 0
    cdef int codec = NONE
    v.valid_bytes = 0
    v.source = NONE
    while True:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            v.whole_bytes = at
            return in_order or not keeps_offsets(d) or refuse_order(
                    p, n, d, policy, scratch, v, odd_at, odd_offset, odd_before)
        v.error_batch = at
        if found != BATCH:
            return refuse_batch_rule(v, found, &b)
        epoch = be32(b.p + PARTITION_LEADER_EPOCH) if b.magic == 2 else -1
        if d.origin == RAFT_LEADER and epoch != d.leader_epoch:
            return refuse(v, RAFT_LEADER_EPOCH_DIFFERS, INVALID_RECORD, reasons.LEADER_EPOCH, epoch,
                    d.leader_epoch)
        if d.origin == CLIENT and b.magic == 2 and be64(b.p) != 0:
            return refuse(v, BASE_OFFSET_NOT_ZERO, INVALID_RECORD, reasons.BASE_OFFSET, be64(b.p))
        # An append as follower: the data of a newer leader may be truncated again, so it is not
        # taken (KAFKA-18723).
        skipping = skipping or (d.origin == REPLICATION and epoch != -1 and epoch > d.leader_epoch
                and d.drops_newer_epochs)
        if skipping:
            v.skipped_batches += 1
        else:
            if not analyze_batch(&b, d, policy, v, &this_offset, &codec):
                return False
            if last_offset >= this_offset and in_order:
                in_order = False
                odd_at = at
                odd_offset = this_offset
                odd_before = last_offset
            last_offset = this_offset
            v.valid_bytes += b.size
            v.batches += 1
            if codec:
                v.source = codec
        if not in_order and keeps_offsets(d) and d.checks_order_at_once:
            return refuse_order(p, n, d, policy, scratch, v, odd_at, odd_offset, odd_before)
        at += b.size


cdef bint refuse_order(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch, Verdict *v, size_t odd_at, int64_t odd_offset,
        int64_t odd_before) noexcept nogil:
    """Refuse offsets that do not ascend, where the origin assigns none. Kafka reads all records for
    the text of its exception.
    """
    if not read_records(p, n, ALL_RECORDS, d, policy, scratch, v):
        return False
    v.error_batch = odd_at
    return broker_fails(v, OFFSETS_OUT_OF_ORDER, S9, reasons.LAST_OFFSET_ORDER, odd_offset,
            odd_before)


cdef inline bint analyze_batch(const Entry *b, const AppendContext *d, const Policy *policy,
        Verdict *v,
        int64_t *last_offset, int *codec) noexcept nogil:
    if b.magic == 2:
        if b.size < LAST_OFFSET_DELTA + 4:
            return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS, b.size)
        last_offset[0] = <int64_t>(<uint64_t>be64(b.p) + <uint64_t><int64_t>be32(b.p + LAST_OFFSET_DELTA))
    else:
        last_offset[0] = be64(b.p)
    # A follower takes what its leader took, whatever its own limit is.
    if b.size > <uint64_t>policy.max_message_bytes and d.origin != REPLICATION:
        return refuse(v, BATCH_TOO_LARGE, MESSAGE_TOO_LARGE, reasons.LARGER_THAN_MAX, b.size,
                policy.max_message_bytes)
    if not check_checksum(b, v):
        return False
    codec[0] = attributes_of(b) & CODEC_MASK
    if codec[0] > ZSTD:
        return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, codec[0])
    return True
