"""Plain records, which no check can refuse, read in one loop.

A plain record lies whole in the block, has its stated length, no attributes, no headers, the offset
delta of its index and a timestamp that needs no second look, and breaks no record rule. Real
traffic is nearly all plain.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.bytes cimport hidden, likely, span, short_varint
from batchval.core.compiled_rules cimport (
    NO_ID_YET, SCHEMA_PREFIX, Rules, key_keeps_rules, value_keeps_rules,
)
from batchval.core.header cimport BatchHeader
from batchval.core.layout cimport LOG_APPEND_TIME_BIT
from batchval.core.records cimport Checks, PlainFacts
from batchval.core.value_ids cimport SeenIds

cdef enum:
    # bytes: the fields before the key are at most 13 long here, and 4 more may be read after it
    PLAIN_LEAST = 20
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
    while i < count and span(at, end) >= PLAIN_LEAST:
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
