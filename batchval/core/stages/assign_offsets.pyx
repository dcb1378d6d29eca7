"""LogValidator.validateMessagesAndAssignOffsets, rules 18-39, with its three methods. Nothing here
writes to the batch.

    in_place_uncompressed, convert_uncompressed, compressed

Each walks the batches anew with next_batch (rules 1-4), as Kafka does. They return False once they
have set the verdict.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.format cimport reasons
from batchval.core.format.bytes cimport be16, be32, be64
from batchval.core.format.header cimport BATCH, NO_MORE, Entry, next_batch
from batchval.core.format.layout cimport *
from batchval.core.records.legacy cimport PlainMessages, walk_plain_messages
from batchval.core.records.records cimport (
    BUFFER_PARSER, SKIP_PARSER, STREAM_PARSER, Checks, Facts, clear_facts,
)
from batchval.core.codecs.scratch cimport Scratch, no_errors, spend
from batchval.core.stages.verdict cimport (
    METER_MAGIC, METER_OFFSET, METER_SEQUENCE, AppendContext, Policy, Verdict, add_facts,
    attributes_of, broker_fails,
    note_facts, refuse, refuse_batch_rule,
)
from batchval.core.stages.batch_records cimport (
    cannot_list, estimate, fill_checks, mark_meters, record_errors, walk_batch,
)


cdef bint validate_and_assign(const uint8_t *p, size_t n, const AppendContext *d,
        const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Validate the records. v.source is the codec that the batch loop found. On acceptance the
    verdict holds all but the new bytes.
    """
    cdef bint accepted
    v.target = v.source if policy.target == PRODUCER else policy.target
    if scratch.walk is NULL:
        no_errors(scratch)
    accepted = run_method(p, n, d, policy, scratch, v)
    if scratch.walk is not NULL:  # the buffer has changed
        no_errors(scratch)
    mark_meters(scratch, v)
    return accepted


cdef bint run_method(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        Verdict *v) noexcept nogil:
    if v.source != NONE or v.target != NONE:
        return compressed(p, n, d, policy, scratch, v)
    if all_have_magic(p, n, d.to_magic, v):
        return in_place_uncompressed(p, n, d, policy, scratch, v)
    if v.rule:
        return False
    return convert_uncompressed(p, n, d, policy, scratch, v)


cdef bint all_have_magic(const uint8_t *p, size_t n, int magic, Verdict *v) noexcept nogil:
    """Return whether all batches have this magic. False with a rule: the batches cannot be walked.
    """
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


cdef bint first_of_one(const uint8_t *p, size_t n, int source, Entry *first,
        Verdict *v) noexcept nogil:
    """Follow getFirstBatchAndMaybeValidateNoMoreBatches."""
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


cdef bint validate_batch(const Entry *first, const Entry *b, const AppendContext *d,
        Verdict *v) noexcept nogil:
    """Check rules 21 to 28. A batch of magic 2 that is smaller than its header fails where Kafka
    would read after its end.
    """
    cdef int32_t count, delta, sequence
    cdef int64_t producer_id = NO_PRODUCER_ID
    cdef bint transactional = False
    if b.magic != first.magic:
        v.meters[METER_MAGIC] += 1
        return refuse(v, BATCH_MAGIC_DIFFERS, INVALID_RECORD, reasons.OTHER_MAGIC, b.magic,
                first.magic)
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
            return refuse(v, RECORDS_COUNT_UNLIKE_OFFSETS, INVALID_RECORD, reasons.COUNT_AND_DELTA,
                    count, delta)
        if attributes_of(b) & CONTROL_BIT:
            v.meters[METER_OFFSET] += 1
            return refuse(v, CONTROL_BATCH_BY_CLIENT, INVALID_RECORD, reasons.CONTROL)
        producer_id = be64(b.p + PRODUCER_ID)
        sequence = be32(b.p + BASE_SEQUENCE)
        if producer_id > NO_PRODUCER_ID and sequence < 0:
            v.meters[METER_SEQUENCE] += 1
            return refuse(v, BASE_SEQUENCE_NEGATIVE, INVALID_RECORD, reasons.SEQUENCE, sequence,
                    producer_id)
    transactional = attributes_of(b) & TRANSACTIONAL_BIT
    if transactional and d.to_magic < 2:
        return refuse(v, TRANSACTION_BEFORE_MAGIC_2, UNSUPPORTED_FOR_MESSAGE_FORMAT,
                reasons.TRANSACTIONAL, d.to_magic)
    if b.size < RECORDS:
        return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS, b.size)
    producer_id = be64(b.p + PRODUCER_ID)
    if producer_id > NO_PRODUCER_ID and d.to_magic < 2:
        return refuse(v, PRODUCER_ID_BEFORE_MAGIC_2, UNSUPPORTED_FOR_MESSAGE_FORMAT,
                reasons.IDEMPOTENT, d.to_magic,
                producer_id)
    return True


cdef bint in_place_uncompressed(const uint8_t *p, size_t n, const AppendContext *d,
        const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Follow LogValidator.assignOffsetsNonCompressed."""
    cdef Entry first, b
    cdef Checks c
    cdef Facts f
    cdef size_t at = 0
    cdef int found
    cdef int64_t expected = 0
    fill_checks(&c, d, policy)
    # The topic's limit does not apply, not even to a batch that is mislabelled as uncompressed.
    c.max_body = d.largest_record
    if not first_of_one(p, n, NONE, &first, v):
        return False
    v.path = PATH_FULL
    while True:
        if first.magic == 1:
            at += take_plain_messages(p, n, at, &c, scratch, &expected, v)
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            break
        v.error_batch = at
        if found != BATCH:
            return refuse_batch_rule(v, found, &b)
        if not validate_batch(&first, &b, d, v) or cannot_list(&b, v):
            return False
        clear_facts(&f)
        if not walk_batch(&b, STREAM_PARSER if attributes_of(&b) & CODEC_MASK else BUFFER_PARSER,
                False, &c, d,
                scratch, &f, &expected, v):
            return False
        note_facts(&f, v)
        if not record_errors(scratch, &c, v):
            return False
        if not can_set_max_timestamp(&b, d.now if policy.log_append_time else f.max_timestamp,
                policy, v):
            return False
        add_facts(&f, v)
        at += b.size
    if policy.log_append_time:
        v.max_timestamp = (
            NO_TIMESTAMP if d.to_magic == 0 and d.knows_magic_0_has_no_time else d.now)
    elif d.to_magic == 0:
        v.max_timestamp = NO_TIMESTAMP
    return True


cdef uint64_t take_plain_messages(const uint8_t *p, size_t n, size_t at, const Checks *c,
        Scratch *scratch, int64_t *expected, Verdict *v) noexcept nogil:
    """Walk the plain messages of magic 1 from ``at`` on, each a batch, without their Facts. Return
    how many bytes they take.
    """
    cdef PlainMessages messages
    cdef uint64_t size = walk_plain_messages(p + at, n - at, c, &messages)
    if messages.count == 0 or scratch.walk is not NULL:
        return 0
    spend(scratch, size)
    v.error_batch = at + messages.at
    v.walked += messages.count
    v.walked_found = 0
    v.walked_records = 1
    v.walked_null_keys = messages.is_key_null
    v.walked_min_timestamp = v.walked_max_timestamp = messages.timestamp
    v.walked_uncompressed = <int32_t>(<uint32_t>messages.size + RECORDS)
    v.walked_longest = 0
    v.walked_size = messages.size
    v.records_count += messages.count
    if messages.max_timestamp > v.max_timestamp:
        v.max_timestamp = messages.max_timestamp
    expected[0] += messages.count
    return size


cdef inline bint can_set_max_timestamp(const Entry *b, int64_t timestamp, const Policy *policy,
        Verdict *v) noexcept nogil:
    """Check the codec where DefaultRecordBatch.setMaxTimestamp changes something: the codec of a
    batch without records was not checked before.
    """
    cdef int codec = attributes_of(b) & CODEC_MASK
    if codec <= ZSTD or b.magic < 2 or (be64(b.p + MAX_TIMESTAMP) == timestamp
            and (attributes_of(b) & LOG_APPEND_TIME_BIT != 0) == policy.log_append_time):
        return True
    return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, codec)


cdef bint cannot_build(const Entry *first, const AppendContext *d, bint zstd,
        Verdict *v) noexcept nogil:
    """Check what MemoryRecordsBuilder's constructor refuses."""
    if d.to_magic == 2:
        return False
    if first.magic == 2 and attributes_of(first) & TRANSACTIONAL_BIT:
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_TRANSACTIONAL, d.to_magic)
        return True
    if zstd:
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_ZSTD, d.to_magic)
        return True
    return False


cdef int64_t without_offset(int64_t records, int64_t earlier,
        const AppendContext *d) noexcept nogil:
    """Return the first of ``records`` records that gets no new offset because offsets end at 2^63 -
    1; ``earlier`` records have theirs. Return ``records`` if all get one.
    """
    cdef int64_t following = MAX_OFFSET - earlier
    if d.first_offset > 0:
        following -= d.first_offset
    return following + 1 if following < records - 1 else records


cdef bint cannot_append(const Facts *f, int64_t records, int64_t earlier, const AppendContext *d,
        const Policy *policy, Verdict *v) noexcept nogil:
    """Check what MemoryRecordsBuilder.appendWithOffset refuses in ``records`` records, whose facts
    are ``f``; ``earlier`` were appended before.

    It throws at the first record of which it refuses something. For each record it checks the
    offset, the timestamp and the headers, and then writes it, with the broker's clock below magic
    2.
    """
    cdef int64_t end = without_offset(records, earlier, d)
    cdef int64_t negative = f.negative_record, headers = f.headers_record
    if negative < 0 or negative >= end:
        negative = end
    if headers < 0 or headers >= end or d.to_magic == 2:
        headers = end
    # The clock is written with the very first record.
    if (policy.log_append_time and d.to_magic < 2 and d.now < NO_TIMESTAMP
            and (earlier > 0 or (end > 0 and negative > 0 and headers > 0))):
        broker_fails(v, REBUILD_IMPOSSIBLE, S10, reasons.REBUILD_CLOCK, d.now, d.to_magic)
        return True
    if negative < end and negative <= headers:
        v.record = <int32_t>negative
        broker_fails(v, REBUILD_IMPOSSIBLE, S10, reasons.REBUILD_TIMESTAMP, f.negative_timestamp)
        return True
    if headers < end:
        v.record = <int32_t>headers
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_HEADERS, d.to_magic)
        return True
    if end < records:
        v.record = <int32_t>(earlier + end)
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_OFFSET, d.first_offset)
        return True
    return False


cdef bint cannot_close(const Entry *first, const AppendContext *d, Verdict *v) noexcept nogil:
    """Follow MemoryRecordsBuilder.validateProducerState for the first batch, whose state the new
    one takes over.
    """
    cdef int64_t producer_id
    # It can be smaller than its header only where the buffer has changed meanwhile.
    if first.magic < 2 or first.size < RECORDS:
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


cdef bint cannot_tell(const AppendContext *d, const Policy *policy, Verdict *v) noexcept nogil:
    """Return whether MemoryRecordsBuilder.info throws: it unboxes the last offset, which a batch
    without records lacks. Since Kafka 3.8 it does so with LogAppendTime only.
    """
    if v.records_count == 0 and (
            d.to_magic == 2 or v.target != NONE if policy.log_append_time
            else not d.rebuilds_empty_batches):
        broker_fails(v, REBUILD_IMPOSSIBLE, S9, reasons.REBUILD_NO_RECORD)
        return True
    return False


cdef inline void rebuilt_max_timestamp(const AppendContext *d, const Policy *policy,
        Verdict *v) noexcept nogil:
    if policy.log_append_time:
        v.max_timestamp = d.now
    elif d.to_magic == 0:
        v.max_timestamp = NO_TIMESTAMP


cdef bint convert_uncompressed(const uint8_t *p, size_t n, const AppendContext *d,
        const Policy *policy, Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Follow LogValidator.convertAndAssignOffsetsNonCompressed.

    It estimates the new size first, so it parses before it validates.
    """
    cdef Entry first, b
    cdef Checks c
    cdef Facts f
    cdef size_t at = 0
    cdef int found, parser
    cdef int32_t before
    cdef int64_t expected = 0
    cdef bint walked
    v.path = PATH_REBUILT
    v.rebuild = True
    fill_checks(&c, d, policy)
    c.max_body = d.largest_record
    c.check_records = False
    c.rules = NULL
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
    c.max_body = d.largest_record
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
        # Records are written as they are validated, up to the first that is refused: a record that
        # cannot be written throws before a later one is validated.
        before = scratch.errors[0].index if scratch.errors_seen else f.records
        if cannot_append(&f, before, v.records_count, d, policy, v):
            return False
        if not walked or not record_errors(scratch, &c, v):
            return False
        add_facts(&f, v)
        at += b.size
    if cannot_close(&first, d, v) or cannot_tell(d, policy, v):
        return False
    rebuilt_max_timestamp(d, policy, v)
    return True


cdef bint compressed(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Follow LogValidator.validateMessagesAndAssignOffsetsCompressed, and the parse of
    buildRecordsAndAssignOffsets.
    """
    cdef Entry first, b
    cdef Checks c
    cdef Facts f
    cdef size_t at = 0
    cdef int found, parser, codec
    cdef int64_t expected = 0, earlier = 0
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
        in_place = True  # a control batch is not rebuilt
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
        if not record_errors(scratch, &c, v):
            return False
        if b.magic > 0 and d.to_magic > 0 and not f.in_order:
            in_place = False
        add_facts(&f, v)
        v.temporary_bytes = <int32_t>(<uint32_t>v.temporary_bytes + <uint32_t>f.sizes)
        unreadable = unreadable or f.broken_record >= 0
        if appended.negative_record < 0 and appended.headers_record < 0:
            appended = f
            earlier = v.records_count - f.records
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
    if (cannot_build(&first, d, v.target == ZSTD, v)
            or cannot_append(&appended, v.records_count - earlier, earlier, d, policy, v)
            or cannot_close(&first, d, v) or cannot_tell(d, policy, v)):
        return False
    rebuilt_max_timestamp(d, policy, v)
    return True
