"""The records of a magic 2 batch, walked once; and plain records, which no check can refuse, read in
one loop (take_plain).

A plain record lies whole in the block, has its stated length, no attributes, no headers, the offset
delta of its index and a timestamp that needs no second look, and breaks no record rule. Real
traffic is nearly all plain.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.format cimport reasons
from batchval.core.format.bytes cimport hidden, likely, short_varint, span
from batchval.core.codecs.codec_streams cimport Stream
from batchval.core.records.compiled_rules cimport (
    NO_ID_YET, SCHEMA_PREFIX, Rules, key_keeps_rules, value_keeps_rules,
)
from batchval.core.format.header cimport BatchHeader
from batchval.core.format.layout cimport LOG_APPEND_TIME_BIT
from batchval.core.codecs.scratch cimport Scratch
from batchval.core.format.value_ids cimport SeenIds

cdef enum:  # walk's answer
    WALKED
    MALFORMED  # Kafka: InvalidRecordException
    # An exception of Kafka's that is not an API error; the extra that names its cause is in
    # Facts.cause.
    BROKER_FAILS
    OVER_LIMIT
    OUT_OF_MEMORY

cdef enum:  # Kafka's record parsers
    SKIP_PARSER  # compressed and in place: DefaultRecord.readPartiallyFrom
    STREAM_PARSER  # compressed and to be rebuilt: DefaultRecord.readFrom(InputStream)
    BUFFER_PARSER  # uncompressed: DefaultRecord.readFrom(ByteBuffer)

cdef struct Parsers:  # columns of batchval.kafka_versions, which one store copies
    # the length that a compressed record states is checked before its bytes are read; else
    # Checks.max_body is the longest array of a JVM
    uint8_t checks_length
    uint8_t sums_fields  # and codecs' streams are read without a ChunkedBytesStream
    uint8_t refuses_cut_records
    uint8_t refuses_append_time
    uint8_t bounds_header_counts

cdef struct Checks:
    int64_t now
    int64_t before_max
    int64_t after_max
    int32_t max_body  # of a compressed record
    Parsers parsers
    bint compacted
    bint create_time  # the topic's timestamp type
    bint check_records  # key and timestamp rules are checked (not at rest)
    bint extras  # S3 to S5 and S10 are checked
    bint all_plain  # the two below replace check_record
    int64_t plain_least  # timestamps in which check_record finds nothing, 0 or above
    int64_t plain_most
    const Rules *rules  # of the topic's owner; NULL: none are checked

cdef struct Facts:
    int64_t min_timestamp
    int64_t max_timestamp  # -1 where no record has a greater one
    int32_t records
    int32_t null_keys
    int32_t sizes  # sum of Record.sizeInBytes(), wrapped as Kafka's int
    int32_t longest  # the longest record, without its length field
    uint32_t found  # bit n: extra Sn
    bint in_order  # every record.offset() is its index
    bint deltas_ascend  # within last_offset_delta
    int32_t previous_delta  # once one was odd
    int32_t record  # the record that `reason` is about
    int32_t reason
    int32_t cause  # an extra's number, with BROKER_FAILS
    int64_t a
    int64_t b
    int32_t odd_record  # the first record whose offset is not its index
    int64_t odd_delta
    int32_t negative_record  # the first with a timestamp below -1, which no builder writes
    int64_t negative_timestamp
    int32_t headers_record  # the first with headers, which magic 0 and 1 cannot hold
    int32_t broken_record  # the first message whose key or value cannot be read
    # bytes of the stream that Kafka would have read before it found a record malformed
    uint64_t needed

cdef struct PlainFacts:  # as in Facts
    int64_t min_timestamp
    int64_t max_timestamp
    int32_t null_keys
    int32_t longest

cdef int walk(Stream *s, const BatchHeader *h, const Checks *c, Facts *f, int parser) noexcept nogil
cdef bint check_record(Scratch *scratch, const Checks *c, bint log_append_time, int32_t index,
        int64_t timestamp, bint has_key) noexcept nogil
cdef bint walk_plain_buffer(const uint8_t *p, const uint8_t *end, const BatchHeader *h,
        const Checks *c,
        PlainFacts *f) noexcept nogil


cdef inline void clear_facts(Facts *f) noexcept nogil:
    f.min_timestamp = 0x7FFFFFFFFFFFFFFF
    f.max_timestamp = -1
    f.records = 0
    f.null_keys = 0
    f.sizes = 0
    f.longest = 0
    f.found = 0
    f.in_order = True
    f.deltas_ascend = True
    f.previous_delta = -1
    f.record = -1
    f.reason = reasons.NO_REASON
    f.cause = 0
    f.a = 0
    f.b = 0
    f.odd_record = -1
    f.odd_delta = 0
    f.negative_record = -1
    f.negative_timestamp = 0
    f.headers_record = -1
    f.broken_record = -1
    f.needed = 0


cdef inline void plain_range(Checks *c) noexcept nogil:
    """Fill in the bounds that walk_plain checks instead of check_record. No timestamp is negative
    there, so nothing overflows.
    """
    c.all_plain = True
    c.plain_least = 0
    c.plain_most = 0x7FFFFFFFFFFFFFFF
    if not c.check_records or not c.create_time:
        return
    if c.now < 0 or c.before_max < 0 or c.after_max < 0:
        c.all_plain = False
        return
    if c.before_max < c.now:
        c.plain_least = c.now - c.before_max
    if c.after_max < c.plain_most - c.now:
        c.plain_most = c.now + c.after_max


cdef inline void structure_alone(Checks *c) noexcept nogil:
    """Set the checks of a walk that reads the fields of records only."""
    c.now = 0
    c.before_max = 0
    c.after_max = 0
    c.max_body = 0x7FFFFFFF
    c.parsers.checks_length = True
    c.parsers.sums_fields = False
    c.parsers.refuses_cut_records = True
    c.parsers.refuses_append_time = False
    c.parsers.bounds_header_counts = True
    c.compacted = False
    c.create_time = False
    c.check_records = False
    c.extras = False
    c.rules = NULL
    plain_range(c)

cdef enum:
    # bytes: the fields before the key are at most 13 long here, and 4 more may be read after it
    PLAIN_MIN_BYTES = 20
    PLAIN_TAIL = 4
    KNOWN_IDS = 4  # schema ids of values that are kept, by their last bits


cdef inline int32_t take_plain(const uint8_t **from_, const uint8_t *end, const BatchHeader *h,
        const Checks *c, PlainFacts *f, int32_t i, const Rules *rules,
        SeenIds *seen) noexcept nogil:
    """Take as many records from index ``i`` on as are plain. Return the index of the first other
    record: Kafka's parsers could disagree about it, and walk_one reads it. ``rules`` and ``seen``
    may be NULL.
    """
    cdef const uint8_t *at = from_[0]
    cdef const uint8_t *p
    cdef const uint8_t *next_record
    cdef uint32_t length = 0, timestamp_delta = 0, offset_delta = 0, key_length = 0, value_length = 0
    cdef uint32_t most_body = <uint32_t>c.max_body, longest = <uint32_t>f.longest
    cdef int64_t timestamp, delta, base = h.base_timestamp, delta_mask = -1, least = c.plain_least, most = c.plain_most
    cdef int64_t lowest = f.min_timestamp, highest = f.max_timestamp
    cdef int32_t count = h.records_count, null_keys = 0
    cdef bint key_needed = c.check_records and c.compacted
    cdef uint32_t value_zigzag
    cdef bint key_asked = False, value_asked = False, value_known
    cdef uint64_t last_key_id = NO_ID_YET
    cdef uint64_t[KNOWN_IDS] known
    cdef uint32_t stored = 0, place = 0
    if rules is not NULL:
        key_asked = rules.utf8_keys or rules.key_schema is not NULL
        value_asked = rules.refuse_tombstones or rules.value_schema is not NULL or seen is not NULL
        for place in range(KNOWN_IDS):
            known[place] = NO_ID_YET
    if h.attributes & LOG_APPEND_TIME_BIT:
        delta_mask = 0
        base = h.max_timestamp
    while i < count and span(at, end) >= PLAIN_MIN_BYTES:
        p = short_varint(at, &length)
        # Record.sizeInBytes() is not the sum of the bytes where the length is padded
        if p is NULL or length & 1 or (p - at > 1 and length < 0x80) or (p - at > 2
                and length < 0x4000):
            break
        length >>= 1
        if length > span(p, end) or length > most_body or p[0] != 0:
            break
        next_record = hidden(p + length)
        p = short_varint(p + 1, &timestamp_delta)
        if p is NULL:
            break
        p = short_varint(p, &offset_delta)
        if p is NULL or offset_delta != <uint32_t>i << 1:
            break
        p = short_varint(p, &key_length)
        if p is NULL:
            break
        if key_length & 1:
            if key_length != 1 or key_needed:  # 1 is -1, null
                break
        else:
            if (key_length >> 1) + PLAIN_TAIL > span(p, end):
                break
            if rules is not NULL and key_asked and not key_keeps_rules(
                    rules, p, key_length, &last_key_id):
                break
            p += key_length >> 1
        p = short_varint(p, &value_length)
        if p is NULL:
            break
        value_zigzag = value_length
        if value_length & 1:
            if value_length != 1:
                break
            value_length = 0
        # After the value stands the headers count, 0, and then the next record.
        if span(p, next_record) != (value_length >> 1) + 1 or (next_record - 1)[0] != 0:
            break
        if rules is not NULL:
            if key_length > rules.most_key or value_zigzag > rules.most_value:
                break
            if value_asked:
                place = 0
                if likely(value_zigzag >= SCHEMA_PREFIX << 1, 1):
                    memcpy(&stored, p + 1, 4)
                    place = stored >> 24 & (KNOWN_IDS - 1)
                    value_known = known[place] == stored and p[0] == 0
                else:
                    value_known = False
                if not likely(value_known, 1) and not value_keeps_rules(
                        rules, p, value_zigzag, &known[place], seen):
                    break
        delta = (<int64_t>(timestamp_delta >> 1) ^ -<int64_t>(timestamp_delta & 1)) & delta_mask
        timestamp = <int64_t>(<uint64_t>base + <uint64_t>delta)
        if timestamp < least or timestamp > most:
            break
        if timestamp < lowest:
            lowest = timestamp
        if timestamp > highest:
            highest = timestamp
        if length > longest:
            longest = length
        null_keys += key_length & 1
        at = next_record
        i += 1
    f.min_timestamp = lowest
    f.max_timestamp = highest
    f.null_keys += null_keys
    f.longest = <int32_t>longest
    from_[0] = at
    return i


cdef inline bint may_be_plain(const BatchHeader *h, const Checks *c,
        const Rules *rules) noexcept nogil:
    if rules is not NULL and not rules.plain:
        return False
    return c.all_plain and not (c.check_records and h.attributes & LOG_APPEND_TIME_BIT)
