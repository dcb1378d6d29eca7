"""The aborted transactions of a Fetch answer."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

cdef struct Aborted:  # transactions, in the order of producer id and first offset
    size_t count
    int64_t *producer_ids
    int64_t *first_offsets
    uint8_t *ended  # their marker has been read
    int64_t reached  # the highest offset of the batches with a producer id

cdef int read_aborted(Aborted *to, aborted) except -1
cdef void free_aborted(Aborted *all) noexcept
cdef tuple not_ended(const Aborted *all)
cdef void end_aborted(Aborted *all, int64_t producer_id) noexcept nogil
cdef bint is_aborted(const Aborted *all, int64_t producer_id) noexcept nogil


cdef inline void reach(Aborted *all, int64_t last_offset) noexcept nogil:
    """Begin the transactions up to the last offset of a batch with a producer id."""
    if last_offset > all.reached:
        all.reached = last_offset
