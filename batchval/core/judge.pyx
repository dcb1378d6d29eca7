"""The stages of a broker's door, in Kafka's order of questions. Nothing here writes to the batch.

    judge_request    ProduceRequest.validateRecords                      rules 5-8
    judge_batches    UnifiedLog.analyzeAndValidateRecords                rules 9-16
    judge_messages   LogValidator.validateMessagesAndAssignOffsets       rules 18-39, with its three methods:
                     in_place_uncompressed, convert_uncompressed, compressed
    judge_at_rest    what may lie in a segment

batchval.core.door puts them one behind the other.

Each stage walks the batches anew with next_batch (rules 1-4), as Kafka does. They return False once the verdict is in.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from batchval.core cimport reasons
from batchval.core.bytes cimport be16, be32, be64
from batchval.core.frames cimport DAMAGED, Stream, open_stream
from batchval.core.header cimport (
    BATCH, NO_MORE, BatchHeader, Entry, computed_crc, next_batch, read_header, stored_crc,
)
from batchval.core.layout cimport *
from batchval.core.legacy cimport (
    CORRUPT, LEGACY_BROKEN, MESSAGE, NO_MESSAGE, Message, Messages, legacy_key, legacy_value, next_message,
    open_messages, walk_messages,
)
from batchval.core.records cimport (
    BROKER_FAILS, BUFFER_PARSER, MALFORMED, OVER_LIMIT, SKIP_PARSER, STREAM_PARSER, WALKED, Checks, Facts,
    clear_facts, plain_range, walk,
)
from batchval.core.replay cimport damage_comes_first
from batchval.core.scratch cimport Scratch, no_errors

cdef enum:
    NO_PRODUCER_ID = -1
    NO_TIMESTAMP = -1
    LARGEST_BODY = 0x7FFFFFF7  # what Kafka's iterators allow a record where nobody tells them max.decompressed


# ---- verdicts ------------------------------------------------------------------------------------------------------

cdef Verdict NONE_YET
memset(&NONE_YET, 0, sizeof(Verdict))
NONE_YET.record = -1
NONE_YET.max_timestamp = NO_TIMESTAMP
NONE_YET.target = NONE
NONE_YET.error_batch = -1


cdef void clear(Verdict *v) noexcept nogil:
    v[0] = NONE_YET


cdef bint refuse(Verdict *v, int rule, int code, int reason, int64_t a=0, int64_t b=0) noexcept nogil:
    v.rule = rule
    v.error_code = code
    v.reason = reason
    v.a = a
    v.b = b
    return False


cdef bint broker_fails(Verdict *v, int rule, int cause, int reason, int64_t a=0, int64_t b=0) noexcept nogil:
    v.cause = cause
    return refuse(v, rule, UNKNOWN_SERVER_ERROR, reason, a, b)


cdef bint refuse_batch_rule(Verdict *v, int rule, const Entry *entry) noexcept nogil:
    """What next_batch found wrong: rules 2, 3 and 4."""
    if rule == BATCH_SIZE_TOO_SMALL:
        return refuse(v, rule, CORRUPT_MESSAGE, reasons.SIZE_BELOW_14, entry.size_field)
    if rule == BATCH_SIZE_OVERFLOW:
        return broker_fails(v, rule, S9, reasons.SIZE_OVERFLOWS, entry.size_field)
    return refuse(v, MAGIC_UNKNOWN, CORRUPT_MESSAGE, reasons.MAGIC_NOT_0_1_2, entry.magic)


cdef inline int attributes_of(const Entry *b) noexcept nogil:
    """The byte that holds codec and flags: every batch that next_batch lets through has it."""
    return b.p[ATTRIBUTES + 1] if b.magic == 2 else b.p[LEGACY_ATTRIBUTES]


# ---- the request ---------------------------------------------------------------------------------------------------

cdef bint judge_request(const uint8_t *p, size_t n, const Door *d, Verdict *v) noexcept nogil:
    cdef Entry first, second
    cdef int found = next_batch(p, n, &first)
    if found == NO_MORE:
        return refuse(v, REQUEST_WITHOUT_BATCH, INVALID_RECORD, reasons.NO_BATCH)
    if found != BATCH:
        return refuse_batch_rule(v, found, &first)
    if first.magic != 2:
        return refuse(v, REQUEST_MAGIC_NOT_2, INVALID_RECORD, reasons.MAGIC_NOT_2, first.magic)
    if d.produce_version < 7:
        if attributes_of(&first) & CODEC_MASK == ZSTD:
            return refuse(v, REQUEST_ZSTD_TOO_OLD, UNSUPPORTED_COMPRESSION_TYPE, reasons.ZSTD_BEFORE_V7,
                    d.produce_version)
        if attributes_of(&first) & CODEC_MASK > ZSTD:
            return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, attributes_of(&first) & CODEC_MASK)
    found = next_batch(p + first.size, n - first.size, &second)
    if found == BATCH:
        return refuse(v, REQUEST_MORE_THAN_ONE_BATCH, INVALID_RECORD, reasons.SECOND_BATCH)
    if found != NO_MORE:
        return refuse_batch_rule(v, found, &second)
    return True


# ---- the batch loop ------------------------------------------------------------------------------------------------

cdef bint judge_batches(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """On acceptance valid_bytes and source are set; bytes behind valid_bytes are trimmed by the broker."""
    cdef Entry b
    cdef size_t at = 0
    cdef int found
    cdef int32_t epoch
    cdef int64_t last_offset = -1, this_offset
    cdef bint in_order = True, skipping = False
    cdef int64_t odd_offset = 0, odd_before = 0
    v.valid_bytes = 0
    v.source = NONE
    while True:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            return True
        v.error_batch = at
        if found != BATCH:
            return refuse_batch_rule(v, found, &b)
        epoch = be32(b.p + PARTITION_LEADER_EPOCH) if b.magic == 2 else -1
        if d.origin == RAFT_LEADER and epoch != d.leader_epoch:
            return refuse(v, RAFT_LEADER_EPOCH_DIFFERS, INVALID_RECORD, reasons.LEADER_EPOCH, epoch, d.leader_epoch)
        if d.origin == CLIENT and b.magic == 2 and be64(b.p) != 0:
            return refuse(v, BASE_OFFSET_NOT_ZERO, INVALID_RECORD, reasons.BASE_OFFSET, be64(b.p))
        # an append as follower: what a newer leader wrote may be cut off again, so it is not taken (KAFKA-18723)
        skipping = skipping or (d.origin == REPLICATION and epoch != -1 and epoch > d.leader_epoch)
        if skipping:
            v.skipped_batches += 1
        else:
            if not judge_batch(&b, d, policy, v, &this_offset):
                return False
            if last_offset >= this_offset and in_order:
                in_order = False
                odd_offset = this_offset
                odd_before = last_offset
            last_offset = this_offset
            v.valid_bytes += b.size
            v.batches += 1
            if attributes_of(&b) & CODEC_MASK:
                v.source = attributes_of(&b) & CODEC_MASK
        # offsets are assigned elsewhere for these two, so here they must ascend
        if not in_order and (d.origin == REPLICATION or d.origin == RAFT_LEADER):
            if not read_all_records(p, n, d, policy, scratch, v):
                return False
            v.error_batch = at
            return broker_fails(v, OFFSETS_OUT_OF_ORDER, S9, reasons.LAST_OFFSET_ORDER, odd_offset, odd_before)
        at += b.size


cdef bint read_all_records(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """The text of Kafka's OffsetsOutOfOrderException names the offset of every record of the buffer, batches that were
    not looked at yet among them. What does not parse there is thrown instead."""
    cdef Entry b
    cdef Checks c
    cdef size_t at = 0
    cdef int found
    fill_checks(&c, d, policy)
    c.max_body = LARGEST_BODY
    c.check_records = False
    while True:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            return True
        v.error_batch = at
        if found != BATCH:
            return refuse_batch_rule(v, found, &b)
        if not estimate(&b, &c, d, False, scratch, v):
            return False
        at += b.size


cdef inline bint judge_batch(const Entry *b, const Door *d, const Policy *policy, Verdict *v,
        int64_t *last_offset) noexcept nogil:
    if b.magic == 2:
        if b.size < LAST_OFFSET_DELTA + 4:
            return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS, b.size)
        last_offset[0] = <int64_t>(<uint64_t>be64(b.p) + <uint64_t><int64_t>be32(b.p + LAST_OFFSET_DELTA))
    else:
        last_offset[0] = be64(b.p)
    # a follower takes what its leader took, whatever its own limit says
    if b.size > <uint64_t>policy.max_message_bytes and d.origin != REPLICATION:
        return refuse(v, BATCH_TOO_LARGE, MESSAGE_TOO_LARGE, reasons.LARGER_THAN_MAX, b.size, policy.max_message_bytes)
    if not judge_checksum(b, v):
        return False
    if attributes_of(b) & CODEC_MASK > ZSTD:
        return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, attributes_of(b) & CODEC_MASK)
    return True


cdef inline bint judge_checksum(const Entry *b, Verdict *v) noexcept nogil:
    cdef uint32_t stored, computed
    if b.magic == 2 and b.size < RECORDS:
        return refuse(v, CRC_MISMATCH, CORRUPT_MESSAGE, reasons.SMALLER_THAN_HEADER, b.size)
    stored = stored_crc(b)
    computed = computed_crc(b)
    if stored != computed:
        return refuse(v, CRC_MISMATCH, CORRUPT_MESSAGE, reasons.WRONG_CRC, stored, computed)
    return True


# ---- LogValidator --------------------------------------------------------------------------------------------------

cdef bint judge_messages(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """v.source says which codec the batch loop found. On acceptance the verdict holds all but the new bytes."""
    cdef bint accepted
    v.target = v.source if policy.target == PRODUCER else policy.target
    no_errors(scratch, d.strict)
    accepted = validate_messages(p, n, d, policy, scratch, v)
    mark_meters(scratch, v)
    return accepted


cdef bint validate_messages(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    if v.source != NONE or v.target != NONE:
        return compressed(p, n, d, policy, scratch, v)
    if all_have_magic(p, n, d.to_magic, v):
        return in_place_uncompressed(p, n, d, policy, scratch, v)
    if v.rule:
        return False
    return convert_uncompressed(p, n, d, policy, scratch, v)


cdef bint all_have_magic(const uint8_t *p, size_t n, int magic, Verdict *v) noexcept nogil:
    """False with a rule: the batches cannot be walked."""
    cdef Entry b
    cdef size_t at = 0
    cdef int found
    while True:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            return True
        if found != BATCH:
            v.error_batch = at
            return refuse_batch_rule(v, found, &b)
        if b.magic != magic:
            return False
        at += b.size


cdef bint first_of_one(const uint8_t *p, size_t n, int source, Entry *first, Verdict *v) noexcept nogil:
    """getFirstBatchAndMaybeValidateNoMoreBatches."""
    cdef Entry second
    cdef int found = next_batch(p, n, first)
    if found == NO_MORE:
        return refuse(v, VALIDATOR_WITHOUT_BATCH, INVALID_RECORD, reasons.NO_BATCH)
    if found != BATCH:
        return refuse_batch_rule(v, found, first)
    if first.magic == 2 or source != NONE:
        found = next_batch(p + first.size, n - first.size, &second)
        if found == BATCH:
            return refuse(v, VALIDATOR_MORE_THAN_ONE_BATCH, INVALID_RECORD, reasons.SECOND_BATCH)
        if found != NO_MORE:
            return refuse_batch_rule(v, found, &second)
    return True


cdef bint validate_batch(const Entry *first, const Entry *b, const Door *d, Verdict *v) noexcept nogil:
    """Rules 21-28. A batch of magic 2 that is smaller than its header fails where Kafka would read behind its end."""
    cdef int32_t count, delta, sequence
    cdef int64_t producer_id = NO_PRODUCER_ID
    cdef bint transactional = False
    if b.magic != first.magic:
        v.meters[METER_MAGIC] += 1
        return refuse(v, BATCH_MAGIC_DIFFERS, INVALID_RECORD, reasons.OTHER_MAGIC, b.magic, first.magic)
    if b.magic < 2:
        return True
    if d.origin == CLIENT:
        if b.size < LAST_OFFSET_DELTA + 4:
            return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS, b.size)
        delta = be32(b.p + LAST_OFFSET_DELTA)
        if delta < 0:
            v.meters[METER_OFFSET] += 1
            return refuse(v, OFFSET_RANGE_EMPTY, INVALID_RECORD, reasons.OFFSET_RANGE, delta)
        if b.size < RECORDS:
            return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS, b.size)
        count = be32(b.p + RECORDS_COUNT)
        if count <= 0:
            v.meters[METER_OFFSET] += 1
            return refuse(v, RECORDS_COUNT_NOT_POSITIVE, INVALID_RECORD, reasons.COUNT, count)
        if <int64_t>delta + 1 != count:
            v.meters[METER_OFFSET] += 1
            return refuse(v, RECORDS_COUNT_UNLIKE_OFFSETS, INVALID_RECORD, reasons.COUNT_AND_DELTA, count, delta)
        if attributes_of(b) & CONTROL_BIT:
            v.meters[METER_OFFSET] += 1
            return refuse(v, CONTROL_BATCH_BY_CLIENT, INVALID_RECORD, reasons.CONTROL)
        producer_id = be64(b.p + PRODUCER_ID)
        sequence = be32(b.p + BASE_SEQUENCE)
        if producer_id > NO_PRODUCER_ID and sequence < 0:
            v.meters[METER_SEQUENCE] += 1
            return refuse(v, BASE_SEQUENCE_NEGATIVE, INVALID_RECORD, reasons.SEQUENCE, sequence, producer_id)
    transactional = attributes_of(b) & TRANSACTIONAL_BIT
    if transactional and d.to_magic < 2:
        return refuse(v, TRANSACTION_BEFORE_MAGIC_2, UNSUPPORTED_FOR_MESSAGE_FORMAT, reasons.TRANSACTIONAL, d.to_magic)
    if b.size < RECORDS:
        return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS, b.size)
    producer_id = be64(b.p + PRODUCER_ID)
    if producer_id > NO_PRODUCER_ID and d.to_magic < 2:
        return refuse(v, PRODUCER_ID_BEFORE_MAGIC_2, UNSUPPORTED_FOR_MESSAGE_FORMAT, reasons.IDEMPOTENT, d.to_magic,
                producer_id)
    return True


cdef void fill_checks(Checks *c, const Door *d, const Policy *policy) noexcept nogil:
    c.now = d.now
    c.before_max = policy.before_max
    c.after_max = policy.after_max
    c.max_body = policy.max_body
    c.compacted = policy.compacted
    c.create_time = not policy.log_append_time
    c.check_records = d.profile == PRODUCE_PROFILE
    c.extras = d.strict
    plain_range(c)


cdef bint take(int answer, const Facts *f, int magic, Verdict *v) noexcept nogil:
    """A walk's answer becomes the verdict, unless it is WALKED."""
    cdef int rule = RECORD_MALFORMED if magic == 2 else WRAPPER_MALFORMED
    if answer == WALKED:
        return True
    v.record = f.record
    if answer == MALFORMED:
        if f.reason == reasons.INNER_COMPRESSED:
            rule = INNER_CODEC_SET
        return refuse(v, rule, INVALID_RECORD, f.reason, f.a, f.b)
    if answer == BROKER_FAILS:
        return broker_fails(v, CODEC_ID_UNKNOWN if f.cause == S6 else rule, f.cause, f.reason, f.a, f.b)
    if answer == CORRUPT:
        if f.cause == INNER_CRC_MISMATCH:
            v.meters[METER_CHECKSUM] += 1
        return refuse(v, f.cause, CORRUPT_MESSAGE, f.reason, f.a, f.b)
    if answer == OVER_LIMIT:
        return refuse(v, S8, INVALID_RECORD, f.reason, f.a, f.b)
    v.out_of_memory = True
    return False


cdef inline bint wrapper_is_damaged(int answer, const Entry *b, Scratch *scratch, const Checks *c, const Door *d,
        Facts *f, Verdict *v) noexcept nogil:
    """Of a wrapper whose messages could not be opened: did Kafka meet the stream's damage before it saw why?"""
    if (answer != MALFORMED and answer != CORRUPT) or not damage_comes_first(b, scratch, c, f, SKIP_PARSER, d.limit):
        return False
    v.record = f.record
    broker_fails(v, WRAPPER_MALFORMED, S7, f.reason)
    return True


cdef bint walk_batch(const Entry *b, int parser, bint opens_empty, const Checks *c, const Door *d, Scratch *scratch,
        Facts *f, int64_t *expected, Verdict *v) noexcept nogil:
    """One batch's records, of any magic. The parser counts for magic 2 alone."""
    cdef BatchHeader h
    cdef Stream s
    cdef Messages m
    cdef int answer
    cdef int codec = attributes_of(b) & CODEC_MASK
    if b.magic < 2:
        answer = open_messages(&m, b, scratch, c, d.limit, f)
        if answer == WALKED:
            answer = walk_messages(&m, scratch, c, f, expected)
            if m.overlong or m.mislabelled:
                f.found |= 1 << 7
        elif wrapper_is_damaged(answer, b, scratch, c, d, f, v):
            return False
        return take(answer, f, b.magic, v)
    if b.size < RECORDS:
        return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS, b.size)
    read_header(b.p, &h)
    if h.records_count == 0 and not (opens_empty and codec != NONE):
        return True  # Kafka does not even look at the codec
    if codec > ZSTD:
        return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, codec)
    open_stream(&s, scratch, codec, 2, b.p + RECORDS, b.size - RECORDS, d.limit, False)
    if s.status == DAMAGED:
        return broker_fails(v, RECORD_MALFORMED, S7, s.reason, s.detail)
    answer = walk(&s, &h, c, f, parser)
    if answer == MALFORMED and codec != NONE and f.needed and damage_comes_first(b, scratch, c, f, parser, d.limit):
        v.record = f.record
        return broker_fails(v, RECORD_MALFORMED, S7, f.reason)
    if s.overlong or s.mislabelled:
        f.found |= 1 << 7
    expected[0] += f.records
    return take(answer, f, 2, v)


cdef void mark_meters(const Scratch *scratch, Verdict *v) noexcept nogil:
    """Kafka marks them record by record, also when the batch then fails for another reason."""
    v.meters[METER_NO_KEY] += scratch.keys_missing
    v.meters[METER_MAGIC] += scratch.magics_differing


cdef bint record_errors(const Scratch *scratch, Verdict *v) noexcept nogil:
    """processRecordErrors: True if there are none."""
    if scratch.errors_seen == 0:
        return True
    v.record = scratch.errors[0].index
    return refuse(v, scratch.last_rule if scratch.one_rule else RECORD_ERRORS,
                  INVALID_TIMESTAMP if scratch.bad_timestamp else INVALID_RECORD, reasons.RECORDS_REFUSED,
                  scratch.errors_seen)


cdef inline void note_facts(const Facts *f, Verdict *v) noexcept nogil:
    """What a walk to the end found, whatever becomes of the batch: claims are held against it."""
    v.walked += 1
    v.walked_found = f.found
    v.walked_records = f.records
    v.walked_null_keys = f.null_keys
    v.walked_min_timestamp = f.min_timestamp
    v.walked_max_timestamp = f.max_timestamp


cdef inline void add_facts(const Facts *f, Verdict *v) noexcept nogil:
    v.found |= f.found
    v.records_count += f.records
    if f.max_timestamp > v.max_timestamp:
        v.max_timestamp = f.max_timestamp


cdef bint in_place_uncompressed(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """LogValidator.assignOffsetsNonCompressed."""
    cdef Entry first, b
    cdef Checks c
    cdef Facts f
    cdef size_t at = 0
    cdef int found
    cdef int64_t expected = 0
    fill_checks(&c, d, policy)
    c.max_body = LARGEST_BODY  # not the topic's limit, not even for a batch mislabelled as uncompressed
    if not first_of_one(p, n, NONE, &first, v):
        return False
    v.path = PATH_FULL
    while True:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            break
        v.error_batch = at
        if found != BATCH:
            return refuse_batch_rule(v, found, &b)
        if not validate_batch(&first, &b, d, v):
            return False
        clear_facts(&f)
        if not walk_batch(&b, STREAM_PARSER if attributes_of(&b) & CODEC_MASK else BUFFER_PARSER, False, &c, d,
                scratch, &f, &expected, v):
            return False
        note_facts(&f, v)
        if not record_errors(scratch, v):
            return False
        if not can_set_max_timestamp(&b, d.now if policy.log_append_time else f.max_timestamp, policy, v):
            return False
        add_facts(&f, v)
        at += b.size
    if policy.log_append_time:
        v.max_timestamp = NO_TIMESTAMP if d.to_magic == 0 else d.now
    elif d.to_magic == 0:
        v.max_timestamp = NO_TIMESTAMP
    return True


cdef inline bint can_set_max_timestamp(const Entry *b, int64_t timestamp, const Policy *policy,
        Verdict *v) noexcept nogil:
    """DefaultRecordBatch.setMaxTimestamp asks for the codec, where it changes anything: of a batch without records
    nobody has asked before."""
    cdef int codec = attributes_of(b) & CODEC_MASK
    if codec <= ZSTD or b.magic < 2 or (be64(b.p + MAX_TIMESTAMP) == timestamp
            and (attributes_of(b) & LOG_APPEND_TIME_BIT != 0) == policy.log_append_time):
        return True
    return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, codec)


cdef bint cannot_build(const Entry *first, const Door *d, bint zstd, Verdict *v) noexcept nogil:
    """What MemoryRecordsBuilder's constructor refuses."""
    if d.to_magic == 2:
        return False
    if first.magic == 2 and attributes_of(first) & TRANSACTIONAL_BIT:
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_TRANSACTIONAL, d.to_magic)
        return True
    if zstd:
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_ZSTD, d.to_magic)
        return True
    return False


cdef bint cannot_append(const Facts *f, const Door *d, int32_t before, Verdict *v) noexcept nogil:
    """What MemoryRecordsBuilder.appendWithOffset refuses, in the records before index `before`."""
    cdef int32_t negative = f.negative_record, headers = f.headers_record if d.to_magic < 2 else -1
    if negative >= before:
        negative = -1
    if headers >= before:
        headers = -1
    if negative >= 0 and (headers < 0 or negative <= headers):
        v.record = negative
        broker_fails(v, REBUILD_IMPOSSIBLE, S10, reasons.REBUILD_TIMESTAMP, f.negative_timestamp)
        return True
    if headers >= 0:
        v.record = headers
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_HEADERS, d.to_magic)
        return True
    return False


cdef bint cannot_close(const Entry *first, const Door *d, Verdict *v) noexcept nogil:
    """MemoryRecordsBuilder.validateProducerState: of the first batch, whose state the new one takes over."""
    cdef int64_t producer_id
    if first.magic < 2:
        return False
    producer_id = be64(first.p + PRODUCER_ID)
    if producer_id == NO_PRODUCER_ID:
        if attributes_of(first) & TRANSACTIONAL_BIT:
            broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_NO_PRODUCER_ID)
            return True
        return False
    if be16(first.p + PRODUCER_EPOCH) == -1:
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_PRODUCER_EPOCH, producer_id)
        return True
    if be32(first.p + BASE_SEQUENCE) < 0:
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_SEQUENCE, producer_id)
        return True
    if d.to_magic < 2:
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.IDEMPOTENT, d.to_magic, producer_id)
        return True
    return False


cdef bint cannot_tell(const Door *d, const Policy *policy, Verdict *v) noexcept nogil:
    """MemoryRecordsBuilder.info: with LogAppendTime it unboxes the last offset, which a batch without records lacks."""
    if v.records_count == 0 and policy.log_append_time and (d.to_magic == 2 or v.target != NONE):
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_NO_RECORD)
        return True
    return False


cdef inline void rebuilt_max_timestamp(const Door *d, const Policy *policy, Verdict *v) noexcept nogil:
    if policy.log_append_time:
        v.max_timestamp = d.now
    elif d.to_magic == 0:
        v.max_timestamp = NO_TIMESTAMP


cdef bint convert_uncompressed(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """LogValidator.convertAndAssignOffsetsNonCompressed.

    It estimates the new size first, so it parses before it asks."""
    cdef Entry first, b
    cdef Checks c
    cdef Facts f
    cdef size_t at = 0
    cdef int found, parser
    cdef int64_t expected = 0
    cdef bint walked
    v.path = PATH_REBUILT
    v.rebuild = True
    fill_checks(&c, d, policy)
    c.max_body = LARGEST_BODY
    c.check_records = False
    while True:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            break
        v.error_batch = at
        if found != BATCH:
            return refuse_batch_rule(v, found, &b)
        if not estimate(&b, &c, d, True, scratch, v):
            return False
        at += b.size
    if not first_of_one(p, n, NONE, &first, v) or cannot_build(&first, d, False, v):
        return False
    fill_checks(&c, d, policy)
    c.max_body = LARGEST_BODY
    at = 0
    while True:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            break
        v.error_batch = at
        if not validate_batch(&first, &b, d, v):
            return False
        clear_facts(&f)
        parser = STREAM_PARSER if attributes_of(&b) & CODEC_MASK else BUFFER_PARSER
        walked = walk_batch(&b, parser, False, &c, d, scratch, &f, &expected, v)
        # records are written as they are validated, up to the first that is refused: one that cannot be written
        # throws before a later one is looked at
        if cannot_append(&f, d, scratch.errors[0].index if scratch.errors_seen else 0x7FFFFFFF, v):
            return False
        if not walked or not record_errors(scratch, v):
            return False
        add_facts(&f, v)
        at += b.size
    if cannot_close(&first, d, v) or cannot_tell(d, policy, v):
        return False
    rebuilt_max_timestamp(d, policy, v)
    return True


cdef bint estimate(const Entry *b, const Checks *c, const Door *d, bint sizes, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """RecordBatch.iterator, to its end; for AbstractRecords.estimateSizeInBytes (sizes) fields are read too."""
    cdef Facts f
    cdef int64_t expected = 0
    clear_facts(&f)
    if b.magic < 2:
        return estimate_messages(b, c, d, sizes, scratch, v)
    return walk_batch(b, STREAM_PARSER if attributes_of(b) & CODEC_MASK else BUFFER_PARSER, False, c, d, scratch, &f,
            &expected, v)


cdef bint estimate_messages(const Entry *b, const Checks *c, const Door *d, bint sizes, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Unlike the validator this asks no message for its magic or checksum, only for key and value."""
    cdef Messages m
    cdef Message message
    cdef Facts f
    cdef int answer
    cdef int32_t i = 0, length = 0
    clear_facts(&f)
    answer = open_messages(&m, b, scratch, c, d.limit, &f)
    if wrapper_is_damaged(answer, b, scratch, c, d, &f, v):
        return False
    while answer == WALKED:
        answer = next_message(&m, &message, i, &f)
        if answer == NO_MESSAGE:
            return True
        if answer != MESSAGE:
            break
        if sizes and (legacy_key(message.p, message.size, &length) == LEGACY_BROKEN
                or legacy_value(message.p, message.size, &length) == LEGACY_BROKEN):
            v.record = i
            return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.MESSAGE_FIELDS)
        i += 1
        answer = WALKED
    return take(answer, &f, b.magic, v)


cdef bint compressed(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """LogValidator.validateMessagesAndAssignOffsetsCompressed, and the parse of buildRecordsAndAssignOffsets."""
    cdef Entry first, b
    cdef Checks c
    cdef Facts f
    cdef size_t at = 0
    cdef int found, parser, codec
    cdef int64_t expected = 0
    cdef bint in_place = v.source == v.target
    cdef bint skipped_keys = False, unreadable = False
    cdef Facts appended
    fill_checks(&c, d, policy)
    clear_facts(&appended)
    if not first_of_one(p, n, v.source, &first, v):
        return False
    if first.magic != d.to_magic or d.to_magic == 0:
        in_place = False
    if v.source == NONE and first.magic == 2 and attributes_of(&first) & CONTROL_BIT:
        in_place = True  # a control batch stays as it is
    if in_place:
        v.path = PATH_SHALLOW if first.magic == 2 and attributes_of(&first) & CODEC_MASK else PATH_FULL
    else:
        v.path = PATH_REBUILT
    while True:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            break
        v.error_batch = at
        if found != BATCH:
            return refuse_batch_rule(v, found, &b)
        if not validate_batch(&first, &b, d, v):
            return False
        codec = attributes_of(&b) & CODEC_MASK
        if codec > ZSTD:
            return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, codec)
        if d.to_magic == 2:
            v.temporary_bytes += RECORDS
        elif codec != NONE:
            v.temporary_bytes += LEGACY_OVERHEAD_V0 if d.to_magic == 0 else LEGACY_OVERHEAD_V1
        skipped_keys = codec != NONE and in_place and first.magic == 2
        parser = SKIP_PARSER if skipped_keys else STREAM_PARSER if codec != NONE else BUFFER_PARSER
        clear_facts(&f)
        if not walk_batch(&b, parser, parser == STREAM_PARSER, &c, d, scratch, &f, &expected, v):
            return False
        note_facts(&f, v)
        if not record_errors(scratch, v):
            return False
        if b.magic > 0 and d.to_magic > 0 and not f.in_order:
            in_place = False
        add_facts(&f, v)
        v.temporary_bytes = <int32_t>(<uint32_t>v.temporary_bytes + <uint32_t>f.sizes)
        unreadable = unreadable or f.broken_record >= 0
        if appended.negative_record < 0 and appended.headers_record < 0:
            appended = f
        at += b.size
    if in_place:
        if policy.log_append_time:
            v.max_timestamp = d.now
        elif first.magic == 0 or d.to_magic == 0:
            v.max_timestamp = NO_TIMESTAMP
        return True
    if skipped_keys and v.records_count:
        v.record = f.odd_record
        return broker_fails(v, RECORD_MALFORMED, S3, reasons.OFFSET_DELTAS, f.odd_delta)
    v.path = PATH_REBUILT
    v.rebuild = True
    if unreadable:
        return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.MESSAGE_FIELDS)
    if (cannot_build(&first, d, v.target == ZSTD, v) or cannot_append(&appended, d, 0x7FFFFFFF, v)
            or cannot_close(&first, d, v) or cannot_tell(d, policy, v)):
        return False
    rebuilt_max_timestamp(d, policy, v)
    return True


# ---- at rest -------------------------------------------------------------------------------------------------------

cdef bint judge_at_rest(const Entry *b, const Door *d, const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """One batch of a segment: checksum, codec, every record.

    Control batches, LogAppendTime and empty batches are legal."""
    cdef Checks c
    cdef Facts f
    cdef int64_t expected = 0
    cdef int codec
    no_errors(scratch, d.strict)
    fill_checks(&c, d, policy)
    c.max_body = LARGEST_BODY
    v.path = PATH_FULL
    if not judge_checksum(b, v):
        return False
    codec = attributes_of(b) & CODEC_MASK
    if codec > ZSTD:
        return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, codec)
    if b.magic == 2 and codec:
        v.path = PATH_SHALLOW
    clear_facts(&f)
    if not walk_batch(b, SKIP_PARSER if codec else BUFFER_PARSER, False, &c, d, scratch, &f, &expected, v):
        return False
    note_facts(&f, v)
    if not record_errors(scratch, v):
        return False
    if f.deltas_ascend:
        f.found &= ~<uint32_t>(1 << 3)  # the cleaner leaves gaps; order is what counts here
    add_facts(&f, v)
    return True


# ---- the end -------------------------------------------------------------------------------------------------------

cdef inline int16_t code_of_extra(int rule) noexcept nogil:
    if rule == S6:
        return UNSUPPORTED_COMPRESSION_TYPE
    return INVALID_TIMESTAMP if rule == S10 else INVALID_RECORD


cdef void conclude(const Door *d, Verdict *v) noexcept nogil:
    """Strict: the broker's failures get the code of their cause, and what Kafka would accept meets the extras."""
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
    for extra in range(1, 11):
        if v.found & d.refuse & (1 << extra):
            v.rule = EXTRA + extra
            v.error_code = code_of_extra(v.rule)
            v.reason = reasons.EXTRA_FOUND
            return
