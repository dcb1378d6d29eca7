"""One connection that fetches: the partitions it asks for, its request, and what comes of the
answer.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.core.scratch cimport Scratch

cdef enum:
    FIRST_VERSION = 4
    LAST_VERSION = 12
    FLEXIBLE = 12
    READ = 256 << 10  # bytes of the buffer at first, and of a read where no batch is larger
    SPARE = 4 << 10  # beyond a batch that is awaited, so that the next header comes with it

cdef extern from *:
    """
    /* Takes up to so many of what is left; several threads may. */
    static inline int64_t batchval_take_some(int64_t *left, int64_t most) {
        int64_t before = __atomic_load_n(left, __ATOMIC_RELAXED), taken;
        do {
            taken = before < most ? before : most;
            if (taken <= 0) return 0;
        } while (!__atomic_compare_exchange_n(left, &before, before - taken, 1, __ATOMIC_RELAXED,
        __ATOMIC_RELAXED)); return taken;
    }
    """
    int64_t take_some "batchval_take_some"(int64_t *left, int64_t most) noexcept nogil

cdef enum:  # Share.state
    FREE  # the slot has no partition
    WANTED
    PAUSED
    RETURNED  # to the caller, with ``code``

cdef enum:  # Share.code, where it is not an error code of the broker's
    DAMAGED = -100  # a batch that cannot be read
    ABORTED = -101  # aborted transactions, which read_committed leaves out
    REFUSED = -102  # the answer as a whole had an error code

cdef struct Share:  # a partition's slot
    int64_t position  # the offset that is asked for next
    int64_t high_watermark
    int32_t topic
    int32_t index
    int32_t leader_epoch
    int32_t next_slot  # of the same topic, in the request that is written
    int32_t code
    int state
    bint is_asked  # in the request under way
    bint is_stale  # what comes for it is not wanted any more
    bint is_served  # by the last answer

cdef struct Topic:
    uint8_t *name
    int32_t size
    int32_t first  # slots in the request that is written
    int32_t last
    int32_t count

cdef struct Totals:  # since they were taken last
    int64_t records
    int64_t bytes
    int64_t batches
    int64_t wire_bytes
    int64_t requests
    int64_t answers
    int64_t latency_ns  # from request to answer, of all answers
    int64_t latency_ns_max
    int64_t lag  # records between a position and the high watermark at most; below 0: not known
    int64_t last_ns  # when the last records came, by the monotonic clock; 0: nobody says

cdef struct Stream:
    # settings
    int version
    bint is_walked  # every record; else the headers of batches are believed
    bint check_crcs
    int isolation
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int32_t partition_max_bytes
    int64_t frame_limit
    uint8_t *client_id
    int32_t client_id_size  # -1: null
    int64_t *quota  # records that may still be counted, by all streams that share it
    # partitions
    Share *shares
    int32_t *order  # of slots in requests
    int32_t *spare_order
    int32_t share_count
    Topic *topics
    int32_t topic_count
    # the request
    uint8_t *out
    size_t out_size
    size_t out_at
    size_t out_end
    int32_t correlation_id
    bint under_way
    # the answer
    uint8_t *buffer
    int64_t size
    int64_t at
    int64_t end
    int64_t wanted  # bytes that the next step needs, from ``at`` on
    int64_t frame_left  # of the frame, from ``at`` on
    int64_t part_left  # of the partition's records, from ``at`` on
    int64_t skip_left
    int64_t topics_left
    int64_t partitions_left
    int64_t aborted_left
    int step
    int32_t topic  # of the answer; -1: unknown
    int32_t current  # slot whose records come; -1: nobody's
    int32_t next_in_order  # where the next partition is looked for first
    int32_t throttle_ms  # that the last answer asks for
    const char *failure  # why nothing more is read
    int32_t returned  # shares that the caller has not taken back
    bint is_used_up  # the quota
    Totals totals

cdef enum:  # what a step comes to
    LACKING  # bytes
    TAKEN
    BROKEN


cdef inline int lacking(Stream *s, int64_t wanted) noexcept nogil:
    s.wanted = wanted
    return LACKING


cdef inline void pass_over(Stream *s, int64_t size) noexcept nogil:
    s.at += size
    s.frame_left -= size


cdef inline bint is_awaited(const Share *share) noexcept nogil:
    return share.is_asked and not share.is_stale and share.state == WANTED


cdef inline void return_share(Stream *s, Share *share, int32_t code) noexcept nogil:
    share.state = RETURNED
    share.code = code
    s.returned += 1


cdef uint8_t *stream_space(Stream *s, size_t *size) noexcept nogil
cdef bint stream_fed(Stream *s, size_t size, Scratch *scratch) noexcept nogil
