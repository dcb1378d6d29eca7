"""Messages of magic 0 and 1, as LegacyRecord and AbstractLegacyRecordBatch read them.

    crc:4 magic:1 attributes:1 [timestamp:8 if magic 1] key_length:4 key value_length:4 value

A message with a codec is a wrapper: its value is a compressed run of entries (offset:8 size:4
message). Kafka reads all entries before it looks into the first, drops a last one that is cut off,
and counts the offsets of magic 1 from the wrapper's, which is that of the last entry.

Fields are read only where Kafka reads them: a magic 1 message of 14 bytes passes if its key is not
read.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from batchval.core.format cimport reasons
from batchval.core.format.bytes cimport be32, be64, span
from batchval.core.records.chunked cimport as_read
from batchval.core.records.compiled_rules cimport ask_legacy_record
from batchval.core.format.crc32c cimport crc32_of
from batchval.core.codecs.codec_streams cimport (
    DAMAGED, LIMIT_HIT, NO_MEMORY, UNLIMITED, Stream, open_stream, refill,
)
from batchval.core.format.header cimport BATCH, Entry, next_batch
from batchval.core.format.layout cimport (
    CODEC_MASK, INNER_CRC_MISMATCH, INNER_SIZE_TOO_SMALL, LEGACY_ATTRIBUTES, LEGACY_KEY_V1,
    LEGACY_MIN_SIZE, LEGACY_OVERHEAD_V1, LEGACY_TIMESTAMP, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, NONE,
    NO_TIMESTAMP,
    RECORD_MAGIC_DIFFERS, S5_BIT, S6, S7, S9, S10_BIT, TIMESTAMP_TYPE_BY_PRODUCER,
    WRAPPER_MALFORMED, ZSTD,
)
from batchval.core.records.records cimport (
    BROKER_FAILS, MALFORMED, OUT_OF_MEMORY, OVER_LIMIT, WALKED, Checks, Facts, check_record,
    clear_facts, structure_alone,
)
from batchval.core.codecs.scratch cimport Scratch, add_error, arena_reserve, spend

cdef enum:  # offsets in a record, which starts at its crc
    RECORD_MAGIC = 4
    RECORD_ATTRIBUTES = 5
    RECORD_TIMESTAMP = 6
    RECORD_KEY_V0 = 6
    RECORD_KEY_V1 = 14

cdef int64_t LEGACY_NULL = -1
cdef int64_t LEGACY_BROKEN = -2


# ---- fields of one message -----------------------------------------------------------------------

cdef inline int64_t key_field(const uint8_t *p) noexcept nogil:
    return RECORD_KEY_V0 if p[RECORD_MAGIC] == 0 else RECORD_KEY_V1


cdef inline int64_t delimited(const uint8_t *p, int64_t size, int64_t at,
        int32_t *length) noexcept nogil:
    """Return where the bytes of a length-prefixed field start; LEGACY_NULL for null, LEGACY_BROKEN
    where Kafka would throw.
    """
    if at < 0 or at + 4 > size:
        return LEGACY_BROKEN
    length[0] = be32(p + at)
    if length[0] < 0:
        return LEGACY_NULL
    if length[0] > size - at - 4:
        return LEGACY_BROKEN
    return at + 4


cdef int64_t legacy_key(const uint8_t *p, int64_t size, int32_t *length) noexcept nogil:
    """Follow LegacyRecord.key()."""
    return delimited(p, size, key_field(p), length)


cdef int64_t legacy_value(const uint8_t *p, int64_t size, int32_t *length) noexcept nogil:
    """Follow LegacyRecord.value(): its place follows from the key's length alone, with Java's
    32-bit sum.
    """
    cdef int64_t at = key_field(p)
    cdef int32_t key_length
    if at + 4 > size:
        return LEGACY_BROKEN
    key_length = be32(p + at)
    at = <int32_t>(<uint32_t>at + 4 + <uint32_t>(key_length if key_length > 0 else 0))
    return delimited(p, size, at, length)


cdef bint is_readable(const LegacyRecord *m) noexcept nogil:
    """Return whether key and value can be read. Kafka prints a refused message into the error;
    where that throws the batch fails.
    """
    cdef int32_t length
    return legacy_key(m.p, m.size, &length) != LEGACY_BROKEN and legacy_value(m.p, m.size,
            &length) != LEGACY_BROKEN


# ---- the messages of a batch ---------------------------------------------------------------------

cdef inline int fails(Facts *f, int32_t record, int reason, int cause, int64_t a=0,
        int64_t b=0) noexcept nogil:
    f.record = record
    f.reason = reason
    f.cause = cause
    f.a = a
    f.b = b
    return BROKER_FAILS


cdef inline int malformed(Facts *f, int32_t record, int reason, int64_t a=0,
        int64_t b=0) noexcept nogil:
    f.record = record
    f.reason = reason
    f.a = a
    f.b = b
    f.cause = WRAPPER_MALFORMED
    return MALFORMED


cdef inline int64_t timestamp_of(const LegacyRecords *m, const uint8_t *p) noexcept nogil:
    """Follow LegacyRecord.timestamp(): every message that Kafka takes has these 14 bytes."""
    if p[RECORD_MAGIC] == 0:
        return NO_TIMESTAMP
    if m.deep and m.log_append_time and p[RECORD_MAGIC] == 1:
        return m.wrapper_timestamp
    return be64(p + RECORD_TIMESTAMP)


cdef bint available(Stream *s, uint64_t n) noexcept nogil:
    """Return whether n bytes are there, and bring them if possible; the arena keeps what is before.
    """
    while span(s.at, s.end) < n:
        if not refill(s) and not s.soft_end:
            return False
    return True


cdef int read_entries(Stream *s, LegacyRecords *m, const Checks *c, Facts *f) noexcept nogil:
    """Follow DataLogInputStream.nextBatch for all entries, up to one that is cut off. Sets m.end
    after the last whole one.
    """
    cdef int32_t size, count = 0
    cdef uint64_t whole = 0
    while available(s, LOG_OVERHEAD):
        size = be32(s.at + 8)
        if size < LEGACY_MIN_SIZE:
            malformed(f, count, reasons.INNER_SIZE, size)
            f.needed = whole + LOG_OVERHEAD
            f.cause = INNER_SIZE_TOO_SMALL
            return CORRUPT
        if size > c.max_body:
            if not c.parsers.checks_length:
                return fails(f, count, reasons.INNER_SIZE_NO_ARRAY, S9, size, c.max_body)
            f.needed = whole + LOG_OVERHEAD
            return malformed(f, count, reasons.INNER_SIZE_ABOVE_MAX, size, c.max_body)
        if not available(s, LOG_OVERHEAD + <uint64_t>size):
            break
        s.at += LOG_OVERHEAD + size
        whole += LOG_OVERHEAD + <uint64_t>size
        count += 1
    if s.status == DAMAGED:
        return fails(f, count, s.reason, S7, s.detail)
    if s.status == LIMIT_HIT:
        f.reason = reasons.DECOMPRESSED_LIMIT
        f.a = <int64_t>s.limit
        return OVER_LIMIT
    if s.status == NO_MEMORY:
        return OUT_OF_MEMORY
    if count == 0:
        return malformed(f, 0, reasons.WRAPPER_EMPTY)
    spend(s.scratch, whole)
    m.at = s.scratch.arena
    m.end = s.scratch.arena + whole
    return WALKED


cdef int read_halting(Stream *halting, LegacyRecords *m, const Checks *c, Facts *f) noexcept nogil:
    """Read entries, as read_entries does, over the bytes that Kafka would get of a wrapper whose
    stream halts.
    """
    cdef Stream s
    cdef Scratch *scratch = halting.scratch
    cdef uint64_t size
    cdef int answer
    cdef uint8_t *read = as_read(&s, scratch, halting.codec, halting.magic, halting.payload,
            span(halting.payload, halting.source_end), halting.limit, 0, 0, c.max_body)
    if read is NULL:
        return malformed(f, 0, reasons.WRAPPER_EMPTY)
    size = span(s.at, s.end)
    if not arena_reserve(scratch, size):
        free(read)
        return OUT_OF_MEMORY
    memcpy(scratch.arena, read, size)
    free(read)
    s.at = scratch.arena
    s.end = scratch.arena + size
    answer = read_entries(&s, m, c, f)
    f.needed = 0
    return answer


cdef void read_wrapper(LegacyRecords *m, const Entry *entry) noexcept nogil:
    """Set all of ``m`` but the place of its messages and the fields that depend on them."""
    cdef const uint8_t *record = entry.p + LOG_OVERHEAD
    cdef uint8_t attributes = record[RECORD_ATTRIBUTES]
    m.entry = entry[0]
    m.magic = entry.magic
    m.log_append_time = entry.magic == 1 and attributes & LOG_APPEND_TIME_BIT
    m.wrapper_timestamp = be64(record + RECORD_TIMESTAMP) if entry.magic == 1 else NO_TIMESTAMP
    m.base = 0
    m.overlong = False
    m.mislabelled = False
    m.deep = attributes & CODEC_MASK


cdef bint count_from_wrapper(LegacyRecords *m, int64_t *last) noexcept nogil:
    """Set ``m.base``. False: the wrapper's offset is below that of its last entry, ``last``."""
    cdef int64_t wrapper_offset = be64(m.entry.p)
    if m.magic == 1 and wrapper_offset != 0:
        last[0] = last_offset(m)
        if wrapper_offset < last[0]:
            return False
        m.base = <int64_t>(<uint64_t>wrapper_offset - <uint64_t>last[0])
    return True


cdef int open_legacy_records(LegacyRecords *m, const Entry *entry, Scratch *scratch,
        const Checks *c, uint64_t limit,
        Facts *f) noexcept nogil:
    """Follow AbstractLegacyRecordBatch.iterator. A wrapper's entries go to the scratch's arena."""
    cdef const uint8_t *record = entry.p + LOG_OVERHEAD
    cdef int64_t size = <int64_t>entry.size - LOG_OVERHEAD, value, last = 0
    cdef int32_t length = 0, answer
    cdef uint8_t attributes = record[RECORD_ATTRIBUTES]
    cdef Stream s
    read_wrapper(m, entry)
    if not m.deep:
        spend(scratch, entry.size)
        m.at = entry.p
        m.end = entry.p + entry.size
        return WALKED
    if attributes & CODEC_MASK > ZSTD:
        return fails(f, 0, reasons.CODEC_ID, S6, attributes & CODEC_MASK)
    if attributes & CODEC_MASK == ZSTD:
        return malformed(f, 0, reasons.WRAPPER_ZSTD, entry.magic)
    value = legacy_value(record, size, &length)
    if value == LEGACY_BROKEN:
        return fails(f, 0, reasons.MESSAGE_FIELDS, S9)
    if value == LEGACY_NULL:
        return malformed(f, 0, reasons.WRAPPER_NULL)
    open_stream(&s, scratch, attributes & CODEC_MASK, entry.magic, record + value, length, limit,
            True)
    answer = read_entries(&s, m, c, f)
    if s.halted:
        answer = read_halting(&s, m, c, f)
    if answer != WALKED:
        return answer
    m.overlong = s.overlong
    m.mislabelled = s.mislabelled
    if not count_from_wrapper(m, &last):
        return malformed(f, 0, reasons.WRAPPER_OFFSET, be64(entry.p), last)
    scratch.opened = entry.p
    scratch.opened_size = m.end - m.at
    return WALKED


cdef int reopen_legacy_records(LegacyRecords *m, const Entry *entry,
        Scratch *scratch) noexcept nogil:
    """Open a batch whose messages were walked earlier in the same call.

    What the arena still holds is not decompressed again. That is the last wrapper: of a message set
    with more of them, the others are.
    """
    cdef Checks c
    cdef Facts f
    cdef int64_t last
    if scratch.opened != entry.p:
        structure_alone(&c)
        clear_facts(&f)
        return open_legacy_records(m, entry, scratch, &c, <uint64_t>UNLIMITED, &f)
    read_wrapper(m, entry)
    m.at = scratch.arena
    m.end = scratch.arena + scratch.opened_size
    count_from_wrapper(m, &last)
    return WALKED


cdef int64_t last_offset(const LegacyRecords *m) noexcept nogil:
    cdef const uint8_t *p = m.at
    cdef int64_t offset = 0
    while p < m.end:
        offset = be64(p)
        p += LOG_OVERHEAD + be32(p + 8)
    return offset


cdef int next_legacy_record(LegacyRecords *m, LegacyRecord *message, int32_t index,
        Facts *f) noexcept nogil:
    """Read the next message: LEGACY_RECORD, NO_LEGACY_RECORD, or why the iterator throws."""
    cdef uint8_t codec
    if m.at >= m.end:
        return NO_LEGACY_RECORD
    message.p = m.at + LOG_OVERHEAD
    # A message alone lies in the caller's buffer, where its size may have changed since the batch
    # was found whole.
    message.size = be32(m.at + 8) if m.deep else <int64_t>m.entry.size - LOG_OVERHEAD
    message.offset = <int64_t>(<uint64_t>be64(m.at) + <uint64_t>m.base)
    message.timestamp = timestamp_of(m, message.p)
    m.at += LOG_OVERHEAD + message.size
    if m.deep:
        codec = message.p[RECORD_ATTRIBUTES] & CODEC_MASK
        if codec > ZSTD:
            return fails(f, index, reasons.CODEC_ID, S6, codec)
        if codec != NONE:
            return malformed(f, index, reasons.INNER_COMPRESSED)
    return LEGACY_RECORD


# ---- the walk ------------------------------------------------------------------------------------

cdef int check_legacy_record(const LegacyRecords *m, const LegacyRecord *message, Scratch *scratch,
        const Checks *c, Facts *f,
        int32_t i, bint *refused) noexcept nogil:
    """Follow LogValidator.validateRecord for one message. Return WALKED, or what is thrown at once.
    """
    cdef uint32_t stored, computed
    cdef int32_t errors = scratch.errors_seen
    cdef int64_t key = key_field(message.p)
    refused[0] = False
    if message.p[RECORD_MAGIC] != <uint8_t>m.magic:
        refused[0] = True
        if not add_error(scratch, i, RECORD_MAGIC_DIFFERS, message.timestamp):
            return OUT_OF_MEMORY
        return WALKED if is_readable(message) else fails(f, i, reasons.MESSAGE_FIELDS, S9)
    if m.deep:
        stored = <uint32_t>be32(message.p)
        computed = crc32_of(0, message.p + RECORD_MAGIC, message.size - RECORD_MAGIC)
        if stored != computed:
            malformed(f, i, reasons.INNER_CRC, stored, computed)
            f.cause = INNER_CRC_MISMATCH
            return CORRUPT
    if not c.check_records:
        return WALKED
    if c.compacted and message.size < key + 4:
        return fails(f, i, reasons.MESSAGE_FIELDS, S9)
    if not check_record(scratch, c, m.log_append_time, i, message.timestamp,
            not c.compacted or be32(message.p + key) >= 0):
        return OUT_OF_MEMORY
    refused[0] = scratch.errors_seen > errors
    if (refused[0] and m.log_append_time and scratch.last_rule == TIMESTAMP_TYPE_BY_PRODUCER
            and not is_readable(message)):
        return fails(f, i, reasons.MESSAGE_FIELDS, S9)
    return WALKED


cdef void note(const LegacyRecord *message, Facts *f, int32_t i) noexcept nogil:
    """Note facts that strict mode or a rebuild refuses."""
    cdef int32_t key_length = 0, value_length = 0
    cdef int64_t key = legacy_key(message.p, message.size, &key_length)
    cdef int64_t value = legacy_value(message.p, message.size, &value_length)
    if (key == LEGACY_NULL and key_length < -1) or (value == LEGACY_NULL and value_length < -1):
        f.found |= S5_BIT
    if (key == LEGACY_BROKEN or value == LEGACY_BROKEN) and f.broken_record < 0:
        f.broken_record = i
    if key == LEGACY_NULL:
        f.null_keys += 1
    if message.timestamp < NO_TIMESTAMP:
        f.found |= S10_BIT
        if f.negative_record < 0:
            f.negative_record = i
            f.negative_timestamp = message.timestamp


cdef bint ask_rules(const LegacyRecord *message, Scratch *scratch, const Checks *c,
        int32_t index) noexcept nogil:
    """Check the record rules of one message. Return False without memory."""
    cdef int32_t key_length = -1, value_length = -1
    cdef int64_t key = legacy_key(message.p, message.size, &key_length)
    cdef int64_t value = legacy_value(message.p, message.size, &value_length)
    return ask_legacy_record(c.rules,
            message.p + key if key >= 0 else NULL, key_length, key != LEGACY_BROKEN,
            message.p + value if value >= 0 else NULL, value_length, value != LEGACY_BROKEN,
            index, scratch)


cdef int walk_legacy_records(LegacyRecords *m, Scratch *scratch, const Checks *c, Facts *f,
        int64_t *expected) noexcept nogil:
    """Walk all messages of the batch; `expected` counts them over all batches of a message set."""
    cdef LegacyRecord message
    cdef int32_t i = 0, answer
    cdef bint refused = False
    while True:
        answer = next_legacy_record(m, &message, i, f)
        if answer == NO_LEGACY_RECORD:
            break
        if answer != LEGACY_RECORD:
            return answer
        answer = check_legacy_record(m, &message, scratch, c, f, i, &refused)
        if answer != WALKED:
            return answer
        note(&message, f, i)
        # The index in the message set, of which each message alone is a batch.
        if c.rules is not NULL and not ask_rules(&message, scratch, c, <int32_t>expected[0]):
            return OUT_OF_MEMORY
        if not refused:
            if message.timestamp > f.max_timestamp:
                f.max_timestamp = message.timestamp
            if message.offset != expected[0] and f.in_order:
                f.in_order = False
                f.odd_record = i
                f.odd_delta = message.offset
            f.sizes = <int32_t>(<uint32_t>f.sizes + <uint32_t>(message.size + LOG_OVERHEAD))
        if message.timestamp < f.min_timestamp:
            f.min_timestamp = message.timestamp
        expected[0] += 1
        f.records += 1
        i += 1
    return WALKED


# ---- plain messages ------------------------------------------------------------------------------

cdef inline bint is_plain(const Entry *b, const Checks *c, PlainMessages *found) noexcept nogil:
    """Return whether the message of magic 1 is uncompressed, and neither Kafka's rules for records
    nor an extra finds anything in it.
    """
    cdef int64_t timestamp, value
    cdef int32_t key_length, value_length
    if b.size < LEGACY_OVERHEAD_V1 or b.p[LEGACY_ATTRIBUTES] & (CODEC_MASK | LOG_APPEND_TIME_BIT):
        return False
    timestamp = be64(b.p + LEGACY_TIMESTAMP)
    key_length = be32(b.p + LEGACY_KEY_V1)
    value = LEGACY_KEY_V1 + 4 + <int64_t>(key_length if key_length > 0 else 0)
    if (timestamp < c.plain_least or timestamp > c.plain_most or key_length < -1
            or (key_length < 0 and c.compacted) or value + 4 > <int64_t>b.size):
        return False
    value_length = be32(b.p + value)
    if value_length < -1 or value_length > <int64_t>b.size - value - 4:
        return False
    found.timestamp = timestamp
    found.is_key_null = key_length < 0
    return True


cdef uint64_t walk_plain_messages(const uint8_t *p, uint64_t n, const Checks *c,
        PlainMessages *found) noexcept nogil:
    """Walk the plain messages of magic 1 that p[0:n] begins with. Return how many bytes they take.
    """
    cdef Entry b
    cdef uint64_t at = 0
    found.count = 0
    found.max_timestamp = NO_TIMESTAMP
    if not c.all_plain or c.rules is not NULL:
        return 0
    while next_batch(p + at, n - at, &b) == BATCH and b.magic == 1 and is_plain(&b, c, found):
        found.count += 1
        if found.timestamp > found.max_timestamp:
            found.max_timestamp = found.timestamp
        found.at = at
        found.size = b.size
        at += b.size
    return at
