"""Memory that a call borrows: grown once, used again by the next call, given back between batches of hostile size."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct RecordError:
    int32_t index  # of the record in its batch
    int32_t rule
    int64_t timestamp

cdef struct Scratch:
    uint8_t *arena  # decompressed bytes; may move when it grows
    size_t arena_size
    uint8_t *ring  # zstd's output, which is its own window: never moves within a frame
    size_t ring_size
    uint8_t *copy  # a batch without the claims in its header
    size_t copy_size
    void *zstd_dctx
    void *zstd_frame  # packages.ZstdFrame, a reference of our own
    void *inflate
    RecordError *errors  # the first errors_count of errors_seen
    int32_t errors_count
    int32_t errors_size
    int32_t errors_most
    int32_t errors_seen
    int32_t keys_missing
    int32_t magics_differing
    int32_t last_rule
    bint one_rule  # all errors broke the same
    bint bad_timestamp  # one was about a timestamp

cdef Scratch *borrow() except NULL
cdef void give_back(Scratch *scratch) noexcept
cdef bint copy_reserve(Scratch *scratch, size_t size) noexcept nogil
cdef bint arena_reserve(Scratch *scratch, size_t size) noexcept nogil
cdef bint ring_reserve(Scratch *scratch, size_t size) noexcept nogil
cdef void no_errors(Scratch *scratch, bint strict) noexcept nogil
cdef bint add_error(Scratch *scratch, int32_t index, int32_t rule, int64_t timestamp) noexcept nogil
