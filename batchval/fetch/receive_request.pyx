"""Write the next Fetch (4 to 12) of a stream without the GIL.

    frame      int32 length, int16 api_key 1, int16 version, int32 correlation_id, client_id,
               tagged fields (12)
    request    int32 replica_id -1, max_wait_ms, min_bytes, max_bytes, int8 isolation, session 0
               and epoch -1 (from 7), topics, forgotten topics (from 7), rack (from 11), tagged
               fields
    partition  int32 index, leader epoch (from 9), int64 offset, last fetched epoch -1 (12), log
               start offset -1 (from 5), int32 max_bytes, tagged fields
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from batchval.fetch.receive cimport (
    FLEXIBLE, MAX_WAITING_BLOCKS, WANTED, Share, Stream, Topic, fence, seen,
)
from batchval.protocol.cursor cimport put_int16, put_int32, put_int64, put_uvarint

cdef enum:
    FETCH_KEY = 1
    OVER_A_REQUEST = 80  # bytes that it takes at most, names and partitions aside
    OVER_A_TOPIC = 16  # the same, its name and partitions aside
    OVER_A_PARTITION = 40


cdef size_t stream_request(Stream *s) noexcept nogil:
    """Write the next Fetch to ``out``, and return its size; 0 where nothing is to be asked for."""
    cdef int32_t i, wanted = 0, topics = 0
    cdef size_t size
    if s.quota is not NULL and s.quota[0] <= 0:
        s.is_used_up = True
        return 0
    s.is_used_up = False
    fence()  # a caller that saw the last request under way does not wake this thread
    if is_held_back(s):
        return 0
    set_order(s)
    for i in range(s.topic_count):
        s.topics[i].count = 0
    size = OVER_A_REQUEST + (s.client_id_size if s.client_id_size > 0 else 0)
    for i in range(s.share_count):
        if s.shares[s.order[i]].state == WANTED:
            if chain(s, s.order[i]):
                topics += 1
                size += OVER_A_TOPIC + s.topics[s.shares[s.order[i]].topic].size
            size += OVER_A_PARTITION
            wanted += 1
    if not wanted or not make_out(s, size):
        return 0
    s.correlation_id = (s.correlation_id + 1) & 0x7fffffff
    s.out_at = 0
    s.out_end = write_request(s, topics)
    s.under_way = True
    s.totals.requests += 1
    return s.out_end


cdef bint is_held_back(Stream *s) noexcept nogil:
    """Return whether a partition has its full number of waiting blocks.

    The other partitions wait with it: an answer without their records would come when the wait
    time is over, and no request could be sent until then.
    """
    cdef int32_t i
    for i in range(s.share_count):
        if s.shares[i].state == WANTED and seen(&s.shares[i].waiting) >= MAX_WAITING_BLOCKS:
            return True
    return False


cdef void set_order(Stream *s) noexcept nogil:
    """Put those that were served last at the end: none starves where an answer is full."""
    cdef int32_t i, at = 0, is_served
    for is_served in range(2):
        for i in range(s.share_count):
            if s.shares[s.order[i]].is_served == is_served:
                s.spare_order[at] = s.order[i]
                at += 1
    s.order, s.spare_order = s.spare_order, s.order
    for i in range(s.share_count):
        s.shares[i].is_served = False


cdef bint chain(Stream *s, int32_t slot) noexcept nogil:
    """Add a partition to its topic. True: it is the first."""
    cdef Topic *topic = &s.topics[s.shares[slot].topic]
    s.shares[slot].next_slot = -1
    if topic.count:
        s.shares[topic.last].next_slot = slot
    else:
        topic.first = slot
    topic.last = slot
    topic.count += 1
    return topic.count == 1


cdef bint make_out(Stream *s, size_t size) noexcept nogil:
    if size > s.out_size:
        free(s.out)
        s.out = <uint8_t *>malloc(size)
        s.out_size = 0 if s.out is NULL else size
    if s.out is NULL:
        s.failure = "no memory for a request"
    return s.out is not NULL


cdef uint8_t *put_count(uint8_t *p, bint is_flexible, int32_t count) noexcept nogil:
    return put_uvarint(p, <uint64_t>count + 1) if is_flexible else put_int32(p, count)


cdef uint8_t *put_tags(uint8_t *p, bint is_flexible) noexcept nogil:
    """Write empty tagged fields where the version has them."""
    return put_uvarint(p, 0) if is_flexible else p


cdef size_t write_request(Stream *s, int32_t topics) noexcept nogil:
    cdef bint is_flexible = s.version >= FLEXIBLE
    cdef uint8_t *p = put_int16(s.out + 4, FETCH_KEY)
    cdef int32_t i, slot
    p = put_int32(put_int16(p, s.version), s.correlation_id)
    p = put_int16(p, s.client_id_size)
    if s.client_id_size > 0:
        memcpy(p, s.client_id, s.client_id_size)
        p += s.client_id_size
    p = put_int32(put_tags(p, is_flexible), -1)  # not a replica
    p = put_int32(put_int32(put_int32(p, s.max_wait_ms), s.min_bytes), s.max_bytes)
    p[0] = <uint8_t>s.isolation
    p += 1
    if s.version >= 7:
        p = put_int32(put_int32(p, 0), -1)  # without a session
    p = put_count(p, is_flexible, topics)
    for i in range(s.share_count):  # topics in the order of their first partitions
        slot = s.order[i]
        if s.shares[slot].state == WANTED and s.topics[s.shares[slot].topic].first == slot:
            p = put_topic(s, p, &s.topics[s.shares[slot].topic])
    if s.version >= 7:
        p = put_count(p, is_flexible, 0)  # forgotten topics
    if s.version >= 11:
        p = put_uvarint(p, 1) if is_flexible else put_int16(p, 0)  # rack
    p = put_tags(p, is_flexible)
    put_int32(s.out, <int32_t>(p - s.out) - 4)
    return p - s.out


cdef uint8_t *put_topic(Stream *s, uint8_t *p, const Topic *topic) noexcept nogil:
    cdef bint is_flexible = s.version >= FLEXIBLE
    cdef int32_t slot = topic.first
    p = put_uvarint(p, topic.size + 1) if is_flexible else put_int16(p, topic.size)
    memcpy(p, topic.name, topic.size)
    p = put_count(p + topic.size, is_flexible, topic.count)
    while slot >= 0:
        p = put_partition(s, p, &s.shares[slot])
        slot = s.shares[slot].next_slot
    return put_tags(p, is_flexible)


cdef uint8_t *put_partition(Stream *s, uint8_t *p, Share *share) noexcept nogil:
    share.is_asked = True
    share.is_stale = False
    p = put_int32(p, share.index)
    if s.version >= 9:
        p = put_int32(p, share.leader_epoch)
    p = put_int64(p, share.position)
    if s.version >= 12:
        p = put_int32(p, -1)  # last fetched epoch
    if s.version >= 5:
        p = put_int64(p, -1)  # log start offset
    return put_tags(put_int32(p, s.partition_max_bytes), s.version >= FLEXIBLE)
