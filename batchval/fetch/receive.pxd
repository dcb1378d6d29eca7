"""One connection that fetches: its partitions, its request, and what comes of the answer."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.core.batches.fetched cimport Counts
from batchval.core.codecs.scratch cimport Scratch
from batchval.fetch.receive_memory cimport Block

cdef enum:
    FIRST_VERSION = 4
    LAST_VERSION = 12
    FLEXIBLE = 12
    READ = 256 << 10  # bytes of the buffer at first, and of a read where no batch is larger
    SPARE = 4 << 10  # beyond a batch that is awaited, so that the next header comes with it
    MAX_WAITING_BLOCKS = 2  # blocks of a partition: with so many it is not asked for

cdef enum:  # Stream.mode
    COUNT_HEADERS  # the headers of batches are believed
    COUNT_RECORDS  # every record is read
    GIVE_BLOCKS  # the records of each partition are a block for the caller

cdef enum:  # Stream.step: what comes next
    FRAME
    HEAD
    TOPIC
    PARTITION
    ABORTED_ONE
    RECORDS_SIZE
    NEXT_BATCH  # or the rest of a block
    SKIP  # the rest of a batch, or of a partition's records
    PARTITION_TAGS
    TOPIC_TAGS
    ANSWER_TAGS
    REST  # of the frame

cdef extern from *:
    """
    /* Takes up to so many of what is left; several threads may. */
    static inline int64_t batchval_take_some(int64_t *left, int64_t most) {
        int64_t before = __atomic_load_n(left, __ATOMIC_RELAXED), taken;
        do {
            taken = before < most ? before : most;
            if (taken <= 0) return 0;
        } while (!__atomic_compare_exchange_n(left, &before, before - taken, 1, __ATOMIC_RELAXED,
                                              __ATOMIC_RELAXED));
        return taken;
    }
    """
    int64_t take_some "batchval_take_some"(int64_t *left, int64_t most) noexcept nogil

cdef extern from *:
    """
    /* A list that a thread adds to, and another takes whole. Its elements begin with ``next``. */
    static inline void batchval_push(void **newest, void *element) {
        void *before = __atomic_load_n(newest, __ATOMIC_RELAXED);
        do *(void **)element = before;
        while (!__atomic_compare_exchange_n(newest, &before, element, 1, __ATOMIC_RELEASE,
                                            __ATOMIC_RELAXED));
    }

    static inline void *batchval_take_list(void **newest) {
        return __atomic_exchange_n(newest, NULL, __ATOMIC_ACQUIRE);
    }

    static inline int batchval_seen(const int *number) {
        return __atomic_load_n(number, __ATOMIC_RELAXED);
    }

    static inline int batchval_added(int *number, int more) {
        return __atomic_add_fetch(number, more, __ATOMIC_RELAXED);
    }

    static inline int batchval_swap(int *flag, int value) {
        return __atomic_exchange_n(flag, value, __ATOMIC_ACQ_REL);
    }

    /* What a thread wrote before it is seen by those that read after it, and the other way. */
    static inline void batchval_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    """
    void push "batchval_push"(void **newest, void *element) noexcept nogil
    void *take_list "batchval_take_list"(void **newest) noexcept nogil
    int seen "batchval_seen"(const int *number) noexcept nogil
    int added "batchval_added"(int *number, int more) noexcept nogil
    int swap "batchval_swap"(int *flag, int value) noexcept nogil
    void fence "batchval_fence"() noexcept nogil

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
    int waiting  # blocks that the caller has not used yet
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
    int mode
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
    int under_way
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
    bint is_large  # the last partition's part
    int32_t next_in_order  # where the next partition is looked for first
    int32_t throttle_ms  # that the last answer asks for
    const char *failure  # why nothing more is read
    int returned  # shares that the caller has not taken back
    bint is_used_up  # the quota
    Totals totals
    # blocks
    Block *block  # that is received into
    void *blocks  # for the caller: the newest
    int has_new  # since the loop has looked

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
    """Return whether the share still awaits its answer: a pause can make it stale."""
    return share.is_asked and not share.is_stale and (
            share.state == WANTED or share.state == PAUSED)


cdef inline int skip_records(Stream *s, int64_t size) noexcept nogil:
    s.skip_left = size
    s.step = SKIP
    return TAKEN


cdef inline void note_counts(Stream *s, Share *share, const Counts *c) noexcept nogil:
    """Move the position past what was counted."""
    share.is_served = True
    share.position = c.next_offset
    s.totals.records += c.records
    s.totals.bytes += c.bytes
    s.totals.batches += c.batches
    s.totals.wire_bytes += c.wire_bytes


cdef inline void note_lag(Stream *s, const Share *share) noexcept nogil:
    s.totals.lag = max(s.totals.lag, share.high_watermark - share.position)


cdef inline void return_share(Stream *s, Share *share, int32_t code) noexcept nogil:
    share.state = RETURNED
    share.code = code
    s.returned += 1


cdef inline void note_latency(Totals *t, int64_t latency_ns) noexcept nogil:
    t.answers += 1
    t.latency_ns += latency_ns
    t.latency_ns_max = max(t.latency_ns_max, latency_ns)


cdef uint8_t *stream_space(Stream *s, size_t *size) noexcept nogil
cdef bint stream_fed(Stream *s, size_t size, Scratch *scratch) noexcept nogil
cdef int stream_awaits(const Stream *s) noexcept nogil
cdef int64_t drop_blocks(Stream *s, int32_t slot, int64_t offset) noexcept nogil
