"""The records of a magic 2 batch, field by field, malformed where Kafka's parsers find them
malformed.

    length attributes:1 timestamp_delta offset_delta key_length key value_length value
    headers_count (key_length key value_length value)*                     lengths: zigzag varints

Kafka has three parsers which do not agree. The skip parser reads a record's length and never uses
it; the stream and buffer parsers compare the record with it, and so does the skip parser of older
releases, which reads the record in pieces of 2048 bytes. All three take a negative length for null,
and neither checks whether varints are padded. One walk serves them: the differences are checked at
the record's two ends.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.format cimport reasons
from batchval.core.format.bytes cimport hidden, likely, span
from batchval.core.records.compiled_rules cimport (
    MAX_NAME_BYTES, Asked, HeaderName, Rules, ask_header, ask_key, ask_value, end_record, name_of,
    rules_that_ask_nothing, start_record,
)
from batchval.core.codecs.codec_streams cimport (
    ENDED, LIMIT_HIT, MORE, NO_MEMORY, THROWS_BUFFER_UNDERFLOW, THROWS_EOF, UNLIMITED, Stream,
    position, refill,
)
from batchval.core.format.header cimport BatchHeader
from batchval.core.format.layout cimport (
    CONTROL_BIT, KEY_MISSING, LOG_APPEND_TIME_BIT, MAX_ARRAY_LENGTH, NO_TIMESTAMP, S3_BIT, S4_BIT,
    S5_BIT, S7, S9, S10_BIT,
    TIMESTAMP_OUT_OF_RANGE, TIMESTAMP_TYPE_BY_PRODUCER,
)
from batchval.core.records.record_fields cimport (
    FOUND, PAST_BODY, TOO_LONG, Look, Reader, look_at, pull, read_piece, skip, skip_pieces, varint,
    varlong,
)
from batchval.core.codecs.scratch cimport Scratch, add_error, set_offset
from batchval.core.format.utf8 cimport is_utf8
from batchval.core.format.value_ids cimport SeenIds, note_value, start_ids

cdef enum:  # bytes
    MAX_VARINT = 5
    MAX_VARLONG = 10


# ---- one record's rules --------------------------------------------------------------------------

cdef bint check_record(Scratch *scratch, const Checks *c, bint log_append_time, int32_t index,
        int64_t timestamp, bint has_key) noexcept nogil:
    """Follow LogValidator.validateKey, then validateTimestamp; the first error of a record is the
    one that counts.

    The arithmetic wraps at 64 bits, as Java's. False: no memory.
    """
    cdef int64_t difference
    if c.compacted and not has_key:
        return add_error(scratch, index, KEY_MISSING, timestamp)
    if c.create_time and timestamp != NO_TIMESTAMP:
        difference = <int64_t>(<uint64_t>c.now - <uint64_t>timestamp)
        if difference > c.before_max or <int64_t>(0 - <uint64_t>difference) > c.after_max:
            return add_error(scratch, index, TIMESTAMP_OUT_OF_RANGE, timestamp)
        if not c.parsers.refuses_append_time:
            return True
    if log_append_time:
        return add_error(scratch, index, TIMESTAMP_TYPE_BY_PRODUCER, timestamp)
    return True


# ---- plain records -------------------------------------------------------------------------------

cdef inline int32_t walk_plain(Reader *r, const BatchHeader *h, const Checks *c, Facts *f,
        int32_t i, const Rules *rules, SeenIds *seen) noexcept nogil:
    """Call take_plain for a walk that has other facts too."""
    cdef PlainFacts plain
    cdef const uint8_t *start = r.p
    cdef int32_t first = i
    # Once a record's offset was odd, each must be checked; walk_one notes the first whose offset
    # may be odd.
    if f.found & S3_BIT or (h.base_offset != 0 and f.in_order) or not may_be_plain(h, c, rules):
        return i
    plain.min_timestamp = f.min_timestamp
    plain.max_timestamp = f.max_timestamp
    plain.null_keys = 0
    plain.longest = f.longest
    i = take_plain(&r.p, r.end, h, c, &plain, i, rules, seen)
    f.min_timestamp = plain.min_timestamp
    f.max_timestamp = plain.max_timestamp
    f.null_keys += plain.null_keys
    f.longest = plain.longest
    f.records += i - first
    f.sizes = <int32_t>(<uint32_t>f.sizes + <uint32_t>(r.p - start))
    return i


cdef bint walk_plain_buffer(const uint8_t *p, const uint8_t *end, const BatchHeader *h,
        const Checks *c,
        PlainFacts *f) noexcept nogil:
    """Walk the uncompressed records p[0:end] of a batch with base offset 0, if every one is plain.

    Returns False where they have to be walked field by field.
    """
    f.min_timestamp = 0x7FFFFFFFFFFFFFFF
    f.max_timestamp = NO_TIMESTAMP
    f.null_keys = 0
    f.longest = 0
    if not may_be_plain(h, c, c.rules):
        return False
    if c.rules is NULL:
        return take_plain(&p, end, h, c, f, 0, NULL, NULL) == h.records_count and p == end
    return take_plain(&p, end, h, c, f, 0, c.rules, NULL) == h.records_count and p == end


# ---- the walk ------------------------------------------------------------------------------------

cdef inline int32_t size_of_length(int32_t length) noexcept nogil:
    """Return writing.size_of_varint in 32 bits, which saves 2 % of each record's time."""
    cdef uint32_t v = (<uint32_t>length << 1) ^ <uint32_t>(length >> 31)
    cdef int32_t n = 1
    while v >= 0x80:
        v >>= 7
        n += 1
    return n


cdef int stopped(Stream *s, Facts *f, int32_t record, bint in_record,
        bint takes_eof) noexcept nogil:
    """Stop: the stream does not go on, and the parser wanted more. ``takes_eof``: it says so of an
    EOFException, too.
    """
    f.record = record
    if s.status == ENDED or s.status == MORE:  # MORE: a soft end
        f.reason = reasons.RECORD_CUT_OFF
        f.needed = 0
        return MALFORMED
    if s.status == LIMIT_HIT:
        f.reason = reasons.DECOMPRESSED_LIMIT
        f.a = <int64_t>s.limit
        return OVER_LIMIT
    if s.status == NO_MEMORY:
        return OUT_OF_MEMORY
    f.reason = s.reason
    f.a = s.detail
    if s.throws == THROWS_BUFFER_UNDERFLOW and in_record:
        return MALFORMED  # readPartiallyFrom catches it and says "invalid record structure"
    if s.throws == THROWS_EOF and takes_eof:
        f.needed = 0
        return MALFORMED
    f.cause = S7
    return BROKER_FAILS


cdef inline int malformed(Stream *s, const Reader *r, Facts *f, int32_t record, int reason,
        int64_t a=0,
        int64_t b=0) noexcept nogil:
    f.record = record
    f.reason = reason
    f.a = a
    f.b = b
    f.needed = s.delivered - span(r.p, r.end)
    return MALFORMED


cdef int field_failed(Stream *s, const Reader *r, const Checks *c, Facts *f, int32_t record,
        int found, int parser) noexcept nogil:
    if found == TOO_LONG:
        return malformed(s, r, f, record, reasons.RECORD_VARINT)
    if found == PAST_BODY or s.delivered >= r.body_end:
        return malformed(s, r, f, record, reasons.RECORD_FIELD_PAST_END)
    return stopped(s, f, record, parser == SKIP_PARSER, c.parsers.sums_fields)


cdef inline int walk_headers(Stream *s, Reader *r, const Checks *c, Facts *f, int32_t record,
        int32_t headers, int parser, const Rules *rules, Asked *asked,
        bint summed) noexcept nogil:
    """Walk a record's headers: WALKED, or why not. ``rules``: those that name headers, NULL."""
    cdef Look look
    cdef int32_t length = 0, i = 0
    cdef int found
    cdef const uint8_t *head = NULL
    cdef const HeaderName *name = NULL
    while i < headers:
        if summed:
            read_piece(s, r, MAX_VARINT)
        found = varint(s, r, &length)
        if found != FOUND:
            return field_failed(s, r, c, f, record, found, parser)
        if length < 0:
            return malformed(s, r, f, record, reasons.HEADER_KEY_LENGTH, length)
        if c.extras and length and <uint64_t>length > r.body_end - (s.delivered - span(r.p, r.end)):
            return field_failed(s, r, c, f, record, PAST_BODY, parser)
        if summed:
            skip_pieces(s, r, length)
        head = r.p
        name = NULL
        if likely(span(r.p, r.end) >= <uint64_t>length, 1):
            if rules is not NULL and length <= MAX_NAME_BYTES and rules.sizes[length]:
                name = name_of(rules, head, length)
            # The names that rules check are UTF-8.
            if c.extras and name is NULL and not is_utf8(head, length):
                f.found |= S5_BIT
            r.p += length
        else:
            look.asks_utf8 = c.extras
            found = look_at(s, r, length, &look, &head)
            if not look.is_utf8:
                f.found |= S5_BIT
            if found != FOUND:
                return field_failed(s, r, c, f, record, found, parser)
            if rules is not NULL and length <= MAX_NAME_BYTES and rules.sizes[length]:
                name = name_of(rules, head, length)
        if summed:
            read_piece(s, r, MAX_VARINT)
        found = varint(s, r, &length)
        if found != FOUND:
            return field_failed(s, r, c, f, record, found, parser)
        if length < -1:
            f.found |= S5_BIT
        if summed:
            skip_pieces(s, r, length)
        if rules is not NULL and name is not NULL:
            look.asks_utf8 = False
            found = look_at(s, r, length, &look, &head)
            if likely(found == FOUND, 1):
                ask_header(rules, asked, name, head, length)
        else:
            found = skip(s, r, length)
        if found != FOUND:
            return field_failed(s, r, c, f, record, found, parser)
        i += 1
    return WALKED


cdef void note_odd_delta(const BatchHeader *h, Facts *f, int32_t i,
        int32_t offset_delta) noexcept nogil:
    """Note deltas that are not 0 to n - 1, and whether they ascend at least, as the cleaner leaves
    them.
    """
    if not f.found & S3_BIT:
        f.found |= S3_BIT
        f.previous_delta = i - 1
    if offset_delta <= f.previous_delta or offset_delta > h.last_offset_delta:
        f.deltas_ascend = False
    f.previous_delta = offset_delta


cdef int odd_length(Stream *s, const Reader *r, const Checks *c, Facts *f, int32_t record,
        int32_t length, int parser) noexcept nogil:
    """Check a compressed record's length below 0 or above the limit.

    Returns WALKED where this parser reads the length and never uses it, or as many bytes as come.
    """
    if not c.parsers.checks_length and parser == SKIP_PARSER and not (
            c.parsers.sums_fields and length < 0):
        return WALKED
    if length < 0 and c.parsers.sums_fields and parser == STREAM_PARSER:
        # ByteBuffer.allocate fails, and nothing catches its IllegalArgumentException
        f.record = record
        f.reason = reasons.RECORD_LENGTH_NEGATIVE
        f.cause = S9
        f.a = length
        return BROKER_FAILS
    if length < 0:
        return malformed(s, r, f, record, reasons.RECORD_LENGTH_NEGATIVE, length)
    if c.parsers.checks_length:
        return malformed(s, r, f, record, reasons.RECORD_LENGTH_ABOVE_MAX, length, c.max_body)
    f.record = record
    f.reason = reasons.RECORD_LENGTH_NO_ARRAY
    f.cause = S9
    f.a = length
    f.b = c.max_body
    return BROKER_FAILS


cdef int cut_record(Stream *s, const Reader *r, const BatchHeader *h, const Checks *c, Facts *f,
        int32_t record, int32_t length) noexcept nogil:
    """Follow DefaultRecord.readFrom(ByteBuffer) where fewer bytes are left than the record states.
    """
    if c.parsers.refuses_cut_records:
        return malformed(s, r, f, record, reasons.RECORD_LENGTH_PAST_END, length)
    # It returns null. After the last record the iterator checks that no byte is left.
    if record == h.records_count - 1 and r.p < r.end:
        return malformed(s, r, f, record, reasons.BYTES_AFTER_RECORDS, h.records_count)
    f.record = record
    f.reason = reasons.RECORD_LENGTH_PAST_END
    f.cause = S9
    f.a = length
    return BROKER_FAILS


cdef inline int walk_one(Stream *s, Reader *r, const BatchHeader *h, const Checks *c, Facts *f,
        int32_t i,
        int parser, const Rules *rules, bint summed) noexcept nogil:
    cdef int32_t length = 0, offset_delta = 0, key_length = 0, value_length = 0, headers = 0, errors
    cdef int64_t timestamp_delta = 0, timestamp, body = 0
    cdef uint64_t start, taken, delivered
    cdef const uint8_t *next_record
    cdef int found, answer
    cdef uint8_t attributes
    cdef const uint8_t *head = NULL
    cdef Look look
    cdef Asked asked
    found = varint(s, r, &length)
    if found != FOUND:
        if found == TOO_LONG and (parser == BUFFER_PARSER or c.parsers.sums_fields):
            # Outside the parser's try block: the IllegalArgumentException reaches the client as -1.
            f.record = i
            f.reason = reasons.RECORD_LENGTH_VARINT
            f.cause = S9
            return BROKER_FAILS
        if found == TOO_LONG:
            return malformed(s, r, f, i, reasons.RECORD_LENGTH_VARINT)
        return stopped(s, f, i, False, c.parsers.sums_fields)
    if parser != BUFFER_PARSER:
        if length < 0 or length > c.max_body:
            answer = odd_length(s, r, c, f, i, length, parser)
            if answer != WALKED:
                return answer
    elif length > 0 and span(r.p, r.end) < <uint64_t>length:
        return cut_record(s, r, h, c, f, i, length)
    start = s.delivered - span(r.p, r.end)
    if parser == STREAM_PARSER or summed:
        r.body_end = start + <uint64_t>length
        r.window_end = start
    delivered = s.delivered
    next_record = hidden(r.p + length) if length >= 0 and span(r.p,
            r.end) >= <uint64_t>length else NULL

    if summed:
        read_piece(s, r, 1)
    if likely(r.p < r.end, 1):
        attributes = r.p[0]
        r.p += 1
    else:
        s.at = r.p
        found = pull(s, &body)
        r.p = s.at
        r.end = s.end
        if found != FOUND:
            return field_failed(s, r, c, f, i, found, parser)
        attributes = <uint8_t>body
    if attributes:
        f.found |= S5_BIT
    if summed:
        read_piece(s, r, MAX_VARLONG)
    found = varlong(s, r, &timestamp_delta)
    if found != FOUND:
        return field_failed(s, r, c, f, i, found, parser)
    if summed:
        read_piece(s, r, MAX_VARINT)
    found = varint(s, r, &offset_delta)
    if found != FOUND:
        return field_failed(s, r, c, f, i, found, parser)
    if summed:
        read_piece(s, r, MAX_VARINT)
    found = varint(s, r, &key_length)
    if found != FOUND:
        return field_failed(s, r, c, f, i, found, parser)
    if summed:
        skip_pieces(s, r, key_length)
    if rules is NULL:
        found = skip(s, r, key_length)
    else:
        start_record(rules, &asked)
        look.asks_utf8 = rules.utf8_keys
        found = look_at(s, r, key_length, &look, &head)
    if found != FOUND:
        return field_failed(s, r, c, f, i, found, parser)
    if rules is not NULL:
        ask_key(rules, &asked, head, key_length, look.is_utf8)
    if summed:
        read_piece(s, r, MAX_VARINT)
    found = varint(s, r, &value_length)
    if found != FOUND:
        return field_failed(s, r, c, f, i, found, parser)
    if summed:
        skip_pieces(s, r, value_length)
    if rules is NULL:
        found = skip(s, r, value_length)
    else:
        look.asks_utf8 = False
        found = look_at(s, r, value_length, &look, &head)
    if found != FOUND:
        return field_failed(s, r, c, f, i, found, parser)
    if rules is not NULL:
        ask_value(rules, &asked, head, value_length)
        if s.scratch.seen_ids.wanted:
            note_value(&s.scratch.seen_ids, head, value_length)
    if summed:
        read_piece(s, r, MAX_VARINT)
    found = varint(s, r, &headers)
    if found != FOUND:
        return field_failed(s, r, c, f, i, found, parser)
    r.had_headers = headers != 0
    if headers:
        if headers < 0:
            return malformed(s, r, f, i, reasons.HEADERS_COUNT, headers)
        if headers > MAX_ARRAY_LENGTH and parser != SKIP_PARSER and (
                not c.parsers.bounds_header_counts):
            f.record = i
            f.reason = reasons.HEADERS_COUNT_NO_ARRAY
            f.cause = S9
            f.a = headers
            f.b = MAX_ARRAY_LENGTH
            return BROKER_FAILS
        if f.headers_record < 0:
            f.headers_record = i
        if rules is not NULL and rules.names_asked:
            answer = walk_headers(s, r, c, f, i, headers, parser, rules, &asked,
                    summed)
        else:
            answer = walk_headers(s, r, c, f, i, headers, parser, NULL, NULL, summed)
        if answer != WALKED:
            return answer

    # A later block may lie where the first one lay.
    if likely(r.p == next_record and s.delivered == delivered, 1):
        r.p = next_record
    else:
        taken = s.delivered - span(r.p, r.end) - start
        if <int64_t>taken != length:
            if parser != SKIP_PARSER or summed:
                return malformed(s, r, f, i, reasons.RECORD_LENGTH_WRONG, length, <int64_t>taken)
            f.found |= S4_BIT
    if key_length < 0:
        f.null_keys += 1
        if key_length < -1:
            f.found |= S5_BIT
    if value_length < -1:
        f.found |= S5_BIT
    if offset_delta != i or f.found & S3_BIT:
        note_odd_delta(h, f, i, offset_delta)
    if <int64_t>(<uint64_t>h.base_offset + <uint64_t><int64_t>offset_delta) != i and f.in_order:
        f.in_order = False
        f.odd_record = i
        f.odd_delta = offset_delta
    if h.attributes & LOG_APPEND_TIME_BIT:
        timestamp = h.max_timestamp
    else:
        timestamp = <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>timestamp_delta)
    if timestamp < NO_TIMESTAMP:
        f.found |= S10_BIT
        if f.negative_record < 0:
            f.negative_record = i
            f.negative_timestamp = timestamp
    if timestamp < f.min_timestamp:
        f.min_timestamp = timestamp
    if timestamp > f.max_timestamp:
        f.max_timestamp = timestamp
    f.sizes = <int32_t>(<uint32_t>f.sizes + <uint32_t>length + <uint32_t>size_of_length(length))
    if length > f.longest:
        f.longest = length
    f.records += 1
    if c.check_records:
        errors = s.scratch.errors_seen
        if not check_record(s.scratch, c, h.attributes & LOG_APPEND_TIME_BIT, i, timestamp,
                key_length >= 0):
            return OUT_OF_MEMORY
        if s.scratch.errors_seen > errors:
            set_offset(s.scratch,
                    <int64_t>(<uint64_t>h.base_offset + <uint64_t><int64_t>offset_delta))
    if rules is not NULL and not end_record(
            rules, &asked, key_length, value_length, headers, i, s.scratch):
        return OUT_OF_MEMORY
    return WALKED


cdef inline int walk_all(Stream *s, const BatchHeader *h, const Checks *c, Facts *f, int parser,
        const Rules *rules, bint summed) noexcept nogil:
    cdef Reader r
    cdef int32_t i = 0, keys_missing = -1
    cdef int answer
    cdef SeenIds *seen = NULL
    if rules is not NULL and s.scratch.seen_ids.wanted:
        seen = &s.scratch.seen_ids
        start_ids(seen)
    # The first block is fetched before the first record, so that this one too can be plain.
    if s.at == s.end and h.records_count > 0 and not refill(s):
        s.soft_end_unread = s.soft_end  # walk_one reads it
    r.p = s.at
    r.end = s.end
    r.body_end = <uint64_t>UNLIMITED
    r.had_headers = False
    while True:
        # After a record with headers another one follows most often, which walk_one reads.
        if not r.had_headers:
            i = walk_plain(&r, h, c, f, i, rules, seen)
        if i >= h.records_count:
            break
        if i == h.records_count - 1:
            keys_missing = s.scratch.keys_missing
        answer = walk_one(s, &r, h, c, f, i, parser, rules, summed)
        if answer != WALKED:
            s.at = r.p
            if parser == STREAM_PARSER and r.body_end < <uint64_t>UNLIMITED:
                f.needed = r.body_end  # Kafka has the whole body before it parses it
            elif summed and answer == MALFORMED and r.body_end < <uint64_t>UNLIMITED:
                f.needed = r.window_end
            return answer
        r.body_end = <uint64_t>UNLIMITED
        i += 1
    s.at = r.p
    # Kafka probes for one byte more; an empty batch is not opened at all.
    if h.records_count > 0:
        if s.at < s.end or refill(s):
            answer = malformed_after(s, f, h.records_count)
        elif s.status != ENDED and not s.soft_end:
            answer = stopped(s, f, h.records_count, False, False)
        else:
            answer = WALKED
        if answer != WALKED:
            # It probes before it returns the last record, whose key is therefore not checked.
            if keys_missing >= 0:
                s.scratch.keys_missing = keys_missing
            return answer
    if h.records_count > 0 and h.records_count - 1 > h.last_offset_delta:
        f.found |= S3_BIT
        f.deltas_ascend = False
    return WALKED


cdef int malformed_after(Stream *s, Facts *f, int32_t records) noexcept nogil:
    f.record = records
    f.reason = reasons.BYTES_AFTER_RECORDS
    f.a = records
    f.needed = position(s) + 1
    return MALFORMED


cdef int walk_summed(Stream *s, const BatchHeader *h, const Checks *c, Facts *f,
        const Rules *rules) noexcept nogil:
    """Walk as the skip parser does that compares a record's length with its fields: a function of
    its own, since what it notes at each field would slow down the others.
    """
    return walk_all(s, h, c, f, SKIP_PARSER, rules, True)


cdef int walk(Stream *s, const BatchHeader *h, const Checks *c, Facts *f,
        int parser) noexcept nogil:
    """Walk all records that the header counts. Facts must have been cleared; errors of single
    records go to the scratch.
    """
    cdef const Rules *rules
    if h.records_count < 0:
        f.reason = reasons.RECORDS_COUNT_NEGATIVE
        f.a = h.records_count
        return MALFORMED
    if not h.attributes & CONTROL_BIT and (c.rules is not NULL or s.scratch.seen_ids.wanted):
        rules = c.rules if c.rules is not NULL else rules_that_ask_nothing()
        if parser == SKIP_PARSER and c.parsers.sums_fields:
            return walk_summed(s, h, c, f, rules)
        return walk_all(s, h, c, f, parser, rules, False)
    if parser == SKIP_PARSER and c.parsers.sums_fields:
        return walk_summed(s, h, c, f, NULL)
    return walk_all(s, h, c, f, parser, NULL, False)
