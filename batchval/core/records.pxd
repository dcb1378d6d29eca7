"""The records of a magic 2 batch, walked once."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core cimport reasons
from batchval.core.compiled_rules cimport Rules
from batchval.core.codec_streams cimport Stream
from batchval.core.header cimport BatchHeader
from batchval.core.scratch cimport Scratch

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

cdef struct Checks:
    int64_t now
    int64_t before_max
    int64_t after_max
    int32_t max_body  # of a compressed record
    # the length that a compressed record states is checked before its bytes are read; else max_body
    # is the longest array of a JVM
    bint checks_length
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
    c.checks_length = True
    c.compacted = False
    c.create_time = False
    c.check_records = False
    c.extras = False
    c.rules = NULL
    plain_range(c)
