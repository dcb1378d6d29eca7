"""The layout of Fetch answers, for walkers that read them while they come.

Versions 4 to 12 are read in parts, up to an array or a partition's records:

    answer     head, topics, tagged fields
    topic      topic, partitions, tagged fields
    partition  partition, an aborted for each aborted transaction, records_size, the records,
               tagged fields

``most`` is how many elements an array may have, -1: as many as bytes are left. ``fetch_tail`` walks
later versions in steps.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.protocol.cursor cimport (
    Cursor, count_up_to, not_null, read_int16, read_int32, read_int64, skip, skip_tags, stated_size,
    string_length, take,
)

cdef enum:  # kinds of steps
    LENGTH   # of the frame
    BYTES    # ``argument`` of them
    STRING   # uvarint length + 1; ``argument``: whether it may be null
    RECORDS  # the same, any size
    ARRAY    # uvarint count + 1; ``argument``: whether it may be null
    END      # of an element
    TAGS     # uvarint count, then (uvarint tag, uvarint size, bytes) each
    TAIL     # what may name addresses, up to the end of the frame


cdef struct FetchedHead:
    int32_t throttle_time_ms
    int32_t error_code
    int64_t responses  # how many; -1: null


cdef inline void read_fetch_head(Cursor *c, int version, int64_t most,
        FetchedHead *p) noexcept nogil:
    """Read int32 throttle_time_ms, int16 error_code (from 7), int32 session_id (from 7), count of
    responses.
    """
    p.throttle_time_ms = read_int32(c)
    p.error_code = 0
    if version >= 7:
        p.error_code = read_int16(c)
        skip(c, 4)
    p.responses = count_up_to(c, most)
    not_null(c, p.responses)


cdef struct FetchedTopic:
    const uint8_t *topic
    int64_t topic_size
    int64_t partitions  # how many; -1: null


cdef inline void read_fetch_topic(Cursor *c, int version, int64_t most,
        FetchedTopic *p) noexcept nogil:
    """Read string topic, count of partitions."""
    p.topic_size = string_length(c)
    not_null(c, p.topic_size)
    p.topic = NULL
    if not c.wrong:
        p.topic = take(c, p.topic_size)
    p.partitions = count_up_to(c, most)
    not_null(c, p.partitions)


cdef struct FetchedPartition:
    int32_t partition_index
    int32_t error_code
    int64_t high_watermark
    int64_t aborted_transactions  # how many; -1: null


cdef inline void read_fetch_partition(Cursor *c, int version, int64_t most,
        FetchedPartition *p) noexcept nogil:
    """Read int32 partition_index, int16 error_code, int64 high_watermark, int64 last_stable_offset,
    int64 log_start_offset (from 5), count of aborted_transactions.
    """
    p.partition_index = read_int32(c)
    p.error_code = read_int16(c)
    p.high_watermark = read_int64(c)
    skip(c, 8)
    if version >= 5:
        skip(c, 8)
    p.aborted_transactions = count_up_to(c, most)


cdef inline int64_t read_fetch_records_size(Cursor *c, int version) noexcept nogil:
    """Read int32 preferred_read_replica (from 11), size of records."""
    if version >= 11:
        skip(c, 4)
    return stated_size(c)


cdef inline void skip_fetch_aborted(Cursor *c, int version) noexcept nogil:
    """Skip int64 producer_id, int64 first_offset."""
    skip(c, 16)
    skip_tags(c)


cdef inline list fetch_response_steps():
    """Return the steps over FetchResponse 16 to 18, length and header first."""
    return [
        (LENGTH, 0),
        (BYTES, 4),
        (TAGS, 0),
        (BYTES, 10),
        (ARRAY, 0),
        (BYTES, 16),
        (ARRAY, 0),
        (BYTES, 30),
        (ARRAY, 1),
        (BYTES, 16),
        (TAGS, 0),
        (END, 0),
        (BYTES, 4),
        (RECORDS, 1),
        (TAGS, 0),
        (END, 0),
        (TAGS, 0),
        (END, 0),
        (TAIL, 0),
    ]


cdef inline list share_fetch_response_steps():
    """Return the steps over ShareFetchResponse 1 to 2, length and header first."""
    return [
        (LENGTH, 0),
        (BYTES, 4),
        (TAGS, 0),
        (BYTES, 6),
        (STRING, 1),
        (BYTES, 4),
        (ARRAY, 0),
        (BYTES, 16),
        (ARRAY, 0),
        (BYTES, 6),
        (STRING, 1),
        (BYTES, 2),
        (STRING, 1),
        (BYTES, 8),
        (TAGS, 0),
        (RECORDS, 0),
        (ARRAY, 0),
        (BYTES, 18),
        (TAGS, 0),
        (END, 0),
        (TAGS, 0),
        (END, 0),
        (TAGS, 0),
        (END, 0),
        (TAIL, 0),
    ]
