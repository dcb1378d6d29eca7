"""The records of one batch of any magic, walked to their end, with the resulting verdict: for the
stages and at rest.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from batchval.core.format cimport reasons
from batchval.core.format.bytes cimport be32
from batchval.core.records.chunked cimport as_read
from batchval.core.codecs.codec_streams cimport DAMAGED, Stream, open_stream, position
from batchval.core.format.header cimport (
    BATCH, NO_MORE, BatchHeader, Entry, computed_crc, next_batch, read_header, stored_crc,
)
from batchval.core.format.layout cimport *
from batchval.core.records.legacy cimport (
    CORRUPT, LEGACY_BROKEN, LEGACY_RECORD, NO_LEGACY_RECORD, LegacyRecord, LegacyRecords,
    legacy_key, legacy_value, next_legacy_record,
    open_legacy_records, walk_legacy_records,
)
from batchval.core.records.records cimport (
    BROKER_FAILS, BUFFER_PARSER, MALFORMED, OVER_LIMIT, SKIP_PARSER, STREAM_PARSER, WALKED, Checks,
    Facts, clear_facts,
    plain_range, walk,
)
from batchval.core.records.replay cimport DAMAGE_FIRST, HALTS_FIRST, damage_comes_first
from batchval.core.codecs.scratch cimport Scratch, no_errors
from batchval.core.stages.verdict cimport (
    METER_CHECKSUM, METER_MAGIC, METER_NO_KEY, AppendContext, Policy, Verdict, add_facts,
    attributes_of, broker_fails,
    note_facts, refuse, refuse_batch_rule,
)


cdef void fill_checks(Checks *c, const AppendContext *d, const Policy *policy) noexcept nogil:
    c.now = d.now
    c.before_max = policy.before_max
    c.after_max = policy.after_max
    c.parsers = d.parsers
    c.max_body = policy.max_body if c.parsers.checks_length else d.largest_record
    c.compacted = policy.compacted
    c.create_time = not policy.log_append_time
    c.check_records = d.profile == PRODUCE_PROFILE
    c.extras = d.strict
    c.rules = policy.rules
    plain_range(c)


cdef bint check_checksum(const Entry *b, Verdict *v) noexcept nogil:
    cdef uint32_t stored, computed
    if b.magic >= 2 and b.size < RECORDS:
        return refuse(v, CRC_MISMATCH, CORRUPT_MESSAGE, reasons.SMALLER_THAN_HEADER, b.size)
    stored = stored_crc(b)
    computed = computed_crc(b)
    if stored != computed:
        return refuse(v, CRC_MISMATCH, CORRUPT_MESSAGE, reasons.WRONG_CRC, stored, computed)
    return True


cdef bint take(int answer, const Facts *f, int magic, Verdict *v) noexcept nogil:
    """Make a walk's answer the verdict, unless it is WALKED."""
    cdef int rule = RECORD_MALFORMED if magic == 2 else WRAPPER_MALFORMED
    if answer == WALKED:
        return True
    v.record = f.record
    if answer == MALFORMED:
        if f.reason == reasons.INNER_COMPRESSED:
            rule = INNER_CODEC_SET
        return refuse(v, rule, INVALID_RECORD, f.reason, f.a, f.b)
    if answer == BROKER_FAILS:
        return broker_fails(v, CODEC_ID_UNKNOWN if f.cause == S6 else rule, f.cause, f.reason, f.a,
                f.b)
    if answer == CORRUPT:
        if f.cause == INNER_CRC_MISMATCH:
            v.meters[METER_CHECKSUM] += 1
        return refuse(v, f.cause, CORRUPT_MESSAGE, f.reason, f.a, f.b)
    if answer == OVER_LIMIT:
        return refuse(v, S8, INVALID_RECORD, f.reason, f.a, f.b)
    v.out_of_memory = True
    return False


cdef inline bint wrapper_is_damaged(int answer, const Entry *b, Scratch *scratch,
        const AppendContext *d, Facts *f, Verdict *v) noexcept nogil:
    """Return whether Kafka meets the stream's damage before it sees why the messages of a wrapper
    cannot be opened.
    """
    if answer != MALFORMED and answer != CORRUPT:
        return False
    if damage_comes_first(b, scratch, f, SKIP_PARSER, d.limit) != DAMAGE_FIRST:
        return False
    v.record = f.record
    broker_fails(v, WRAPPER_MALFORMED, S7, f.reason)
    return True


cdef int walk_halting(const Entry *b, const BatchHeader *h, int parser, const Checks *c,
        const AppendContext *d, Scratch *scratch, Facts *f) noexcept nogil:
    """Walk a batch of magic 2 whose stream halts, over the bytes that Kafka's parser would get."""
    cdef Stream s
    cdef int answer
    cdef uint8_t *read
    clear_facts(f)
    no_errors(scratch)
    read = as_read(&s, scratch, attributes_of(b) & CODEC_MASK, 2, b.p + RECORDS, b.size - RECORDS,
            d.limit, parser, h.records_count, c.max_body)
    if read is NULL:
        f.record = 0
        f.reason = reasons.RECORD_CUT_OFF
        return MALFORMED
    answer = walk(&s, h, c, f, parser)
    f.needed = 0  # nothing comes before anything else: the bytes end where Kafka's reads fail
    free(read)
    return answer


cdef inline void note_broken_batch(Scratch *scratch, const Verdict *v) noexcept nogil:
    if scratch.broken_seen and scratch.broken_batch < 0:
        scratch.broken_batch = v.error_batch


cdef inline const Walk *earlier_walk(const Entry *b, int parser,
        Scratch *scratch) noexcept nogil:
    """Return the walk over this batch that this call has done already, once; NULL: none."""
    cdef const Walk *earlier = <const Walk *>scratch.walk
    scratch.walk = NULL
    if earlier is NULL:
        return NULL
    if (parser == SKIP_PARSER and b.magic == 2 and earlier.stream.payload == b.p + RECORDS
            and earlier.stream.source_end == b.p + b.size):
        return earlier
    no_errors(scratch)  # the buffer has changed
    return NULL


cdef bint walk_batch(const Entry *b, int parser, bint opens_empty, const Checks *c,
        const AppendContext *d, Scratch *scratch,
        Facts *f, int64_t *expected, Verdict *v) noexcept nogil:
    """Walk one batch's records, of any magic. The parser counts for magic 2 alone."""
    cdef BatchHeader h
    cdef Stream s
    cdef LegacyRecords m
    cdef int answer, first
    cdef int codec = attributes_of(b) & CODEC_MASK
    cdef const Walk *earlier = earlier_walk(b, parser, scratch)
    if b.magic < 2:
        answer = open_legacy_records(&m, b, scratch, c, d.limit, f)
        if answer == WALKED:
            answer = walk_legacy_records(&m, scratch, c, f, expected)
            if m.overlong or m.mislabelled:
                f.found |= S7_BIT
            v.walked_size = <uint32_t>f.sizes
            note_broken_batch(scratch, v)
        elif wrapper_is_damaged(answer, b, scratch, d, f, v):
            return False
        return take(answer, f, b.magic, v)
    if b.size < RECORDS:
        return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS, b.size)
    read_header(b.p, &h)
    if h.records_count == 0 and not (opens_empty and codec != NONE):
        v.walked_size = RECORDS
        return True  # Kafka does not read the codec
    if codec > ZSTD:
        return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, codec)
    if earlier is not NULL:
        s = earlier.stream
        f[0] = earlier.facts
        answer = earlier.answer
    else:
        open_stream(&s, scratch, codec, 2, b.p + RECORDS, b.size - RECORDS, d.limit, False)
        if s.status == DAMAGED:
            return broker_fails(v, RECORD_MALFORMED, S7, s.reason, s.detail)
        answer = walk(&s, &h, c, f, parser)
    if not s.halted and answer == MALFORMED and codec != NONE and f.needed:
        first = damage_comes_first(b, scratch, f, parser, d.limit)
        if first == DAMAGE_FIRST:
            v.record = f.record
            return broker_fails(v, RECORD_MALFORMED, S7, f.reason)
        if first == HALTS_FIRST:
            s.halted = s.mislabelled = True
    if s.halted:
        answer = walk_halting(b, &h, parser, c, d, scratch, f)
    if s.overlong or s.mislabelled:
        f.found |= S7_BIT
    expected[0] += f.records
    v.walked_size = RECORDS + position(&s)
    note_broken_batch(scratch, v)
    return take(answer, f, 2, v)


cdef void mark_meters(const Scratch *scratch, Verdict *v) noexcept nogil:
    """Mark the meters. Kafka marks them record by record, also when the batch then fails for
    another reason.
    """
    v.meters[METER_NO_KEY] += scratch.keys_missing
    v.meters[METER_MAGIC] += scratch.magics_differing


cdef bint record_errors(const Scratch *scratch, const Checks *c, Verdict *v) noexcept nogil:
    """Follow processRecordErrors: return True if there are none. The bounds of timestamps wrap at
    64 bits, as Java's.
    """
    cdef int rule
    if scratch.errors_seen == 0:
        return True
    v.record = scratch.errors[0].index
    rule = scratch.last_rule if scratch.one_rule else RECORD_ERRORS
    if scratch.bad_timestamp and c.create_time:
        return refuse(v, rule, INVALID_TIMESTAMP, reasons.TIMESTAMPS_REFUSED,
                      <int64_t>(<uint64_t>c.now - <uint64_t>c.before_max),
                      <int64_t>(<uint64_t>c.now + <uint64_t>c.after_max))
    return refuse(v, rule, INVALID_TIMESTAMP if scratch.bad_timestamp else INVALID_RECORD,
                  reasons.RECORDS_REFUSED, scratch.errors_seen)


cdef bint no_array_holds(const Entry *b, Verdict *v) noexcept nogil:
    cdef int codec = attributes_of(b) & CODEC_MASK
    if not NONE < codec <= ZSTD or b.size < RECORDS:
        return False
    if be32(b.p + RECORDS_COUNT) <= MAX_ARRAY_LENGTH:
        return False
    broker_fails(v, RECORD_MALFORMED, S9, reasons.RECORDS_COUNT_NO_ARRAY,
            be32(b.p + RECORDS_COUNT), MAX_ARRAY_LENGTH)
    return True


cdef bint estimate(const Entry *b, const Checks *c, const AppendContext *d, bint sizes,
        Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Follow RecordBatch.iterator to its end; for AbstractRecords.estimateSizeInBytes (sizes)
    fields are read too.
    """
    cdef Facts f
    cdef int64_t expected = 0
    if b.magic < 2:
        return estimate_messages(b, c, d, sizes, scratch, v)
    if cannot_list(b, v):
        return False
    clear_facts(&f)
    return walk_batch(b, STREAM_PARSER if attributes_of(b) & CODEC_MASK else BUFFER_PARSER, False,
            c, d, scratch, &f,
            &expected, v)


cdef bint estimate_messages(const Entry *b, const Checks *c, const AppendContext *d, bint sizes,
        Scratch *scratch,
        Verdict *v, int64_t most=0x7FFFFFFF, int64_t *read=NULL) noexcept nogil:
    """Read a batch's records. Unlike the validator this checks no message's magic or checksum, only
    key and value.
    """
    cdef LegacyRecords m
    cdef LegacyRecord message
    cdef Facts f
    cdef int answer
    cdef int32_t i = 0, length = 0
    clear_facts(&f)
    answer = open_legacy_records(&m, b, scratch, c, d.limit, &f)
    if wrapper_is_damaged(answer, b, scratch, d, &f, v):
        return False
    while answer == WALKED:
        if read is not NULL:
            read[0] = i
        if i >= most:
            return True
        answer = next_legacy_record(&m, &message, i, &f)
        if answer == NO_LEGACY_RECORD:
            return True
        if answer != LEGACY_RECORD:
            break
        if sizes and (legacy_key(message.p, message.size, &length) == LEGACY_BROKEN
                or legacy_value(message.p, message.size, &length) == LEGACY_BROKEN):
            v.record = i
            return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.MESSAGE_FIELDS)
        i += 1
        answer = WALKED
    return take(answer, &f, b.magic, v)


cdef bint read_first(const Entry *b, int32_t most, const Checks *c, const AppendContext *d,
        Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Read the first records of an uncompressed batch of magic 2 that states more of them: it is
    not read to its end.
    """
    cdef BatchHeader h
    cdef Stream s
    cdef Facts f
    cdef int answer
    read_header(b.p, &h)
    h.records_count = most
    clear_facts(&f)
    open_stream(&s, scratch, NONE, 2, b.p + RECORDS, b.size - RECORDS, d.limit, False)
    answer = walk(&s, &h, c, &f, BUFFER_PARSER)
    if answer == MALFORMED and f.reason == reasons.BYTES_AFTER_RECORDS:
        return True
    return take(answer, &f, 2, v)


cdef bint read_records(const uint8_t *p, size_t n, int64_t most, const AppendContext *d,
        const Policy *policy, Scratch *scratch, Verdict *v) noexcept nogil:
    """Follow MemoryRecords.records(), up to ``most`` of them: Kafka puts their offsets into the
    text of an exception. What does not parse is thrown instead. Compressed records are read batch
    by batch, uncompressed ones one by one.
    """
    cdef Checks c
    cdef Entry b
    cdef size_t at = 0
    cdef int found
    cdef int64_t left = most, count
    fill_checks(&c, d, policy)
    c.max_body = d.largest_record
    c.check_records = False
    c.rules = NULL
    while left > 0:
        found = next_batch(p + at, n - at, &b)
        if found == NO_MORE:
            return True
        v.error_batch = at
        if found != BATCH:
            return refuse_batch_rule(v, found, &b)
        count = 0
        if b.magic < 2:
            if not estimate_messages(&b, &c, d, False, scratch, v, left, &count):
                return False
        else:
            if b.size >= RECORDS:
                count = be32(b.p + RECORDS_COUNT)
            if count > left and attributes_of(&b) & CODEC_MASK == NONE:
                return read_first(&b, <int32_t>left, &c, d, scratch, v)
            if not estimate(&b, &c, d, False, scratch, v):
                return False
        left -= count
        at += b.size
    return True


# ---- at rest -------------------------------------------------------------------------------------

cdef bint check_unopened(const Entry *b, Verdict *v) noexcept nogil:
    """Check what a compressed batch of a segment shows without being decompressed: checksum, codec,
    count.
    """
    cdef int32_t count
    if not check_checksum(b, v):
        return False
    if attributes_of(b) & CODEC_MASK > ZSTD:
        return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID,
                attributes_of(b) & CODEC_MASK)
    if b.magic >= 2:
        count = be32(b.p + RECORDS_COUNT)
        if count < 0:
            return refuse(v, RECORD_MALFORMED, INVALID_RECORD, reasons.RECORDS_COUNT_NEGATIVE,
                    count)
    return True


cdef bint check_stored_batch(const Entry *b, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Check one batch of a segment: checksum, codec, every record.

    Control batches, LogAppendTime and empty batches are legal."""
    cdef Checks c
    cdef Facts f
    cdef int64_t expected = 0
    cdef int codec
    no_errors(scratch)
    fill_checks(&c, d, policy)
    c.max_body = d.largest_record
    v.path = PATH_FULL
    if not check_checksum(b, v):
        return False
    codec = attributes_of(b) & CODEC_MASK
    if codec > ZSTD:
        return broker_fails(v, CODEC_ID_UNKNOWN, S6, reasons.CODEC_ID, codec)
    if b.magic == 2 and codec:
        v.path = PATH_SHALLOW
    clear_facts(&f)
    if not walk_batch(b, SKIP_PARSER if codec else BUFFER_PARSER, False, &c, d, scratch, &f,
            &expected, v):
        return False
    note_facts(&f, v)
    if not record_errors(scratch, &c, v):
        return False
    if f.deltas_ascend:
        f.found &= ~<uint32_t>S3_BIT  # the cleaner leaves gaps; order is what counts here
    add_facts(&f, v)
    return True
