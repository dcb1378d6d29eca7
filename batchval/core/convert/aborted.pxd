"""The aborted transactions of a Fetch response."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

cdef struct AbortedTransaction:
    int64_t producer_id
    int64_t first_offset

cdef struct Aborted:
    size_t count
    AbortedTransaction *each  # in the order of producer id and first offset
    uint8_t *ended  # their marker has been read
    int64_t reached  # the highest offset of the batches with a producer id

cdef class AbortedTransactions:
    cdef Aborted all
    cdef bint in_use  # by a call that has released the GIL
    cdef tuple not_ended(self)

cdef void end_aborted(Aborted *all, int64_t producer_id) noexcept nogil
cdef bint is_aborted(const Aborted *all, int64_t producer_id) noexcept nogil


cdef inline void reach(Aborted *all, int64_t last_offset) noexcept nogil:
    """Begin the transactions up to the last offset of a batch with a producer id."""
    if last_offset > all.reached:
        all.reached = last_offset
