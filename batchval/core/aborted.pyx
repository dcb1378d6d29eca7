"""The aborted transactions of a Fetch answer: which batches read_committed leaves out.

    answer    (producer id, first offset) of each transaction that was aborted and has records in it
    batches   those of a transaction between its first offset and its ABORT marker are left out

As Kafka's consumer does it (CompletedFetch.nextFetchedRecord): a transaction begins with the first
batch of any producer that reaches its first offset, and an ABORT marker ends all that have begun.
"""

from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from batchval.core.arguments cimport one_each, shown, whole_number

from batchval.errors import ArgumentTypeError

cdef enum:
    BREATH = 1024  # pairs that are read before others may have the GIL


cdef int read_aborted(Aborted *to, aborted) except -1:
    cdef size_t i
    pairs = []
    for i, pair in enumerate(one_each(aborted, "aborted", "pairs (producer id, first offset)")):
        if i % BREATH == BREATH - 1:
            with nogil:
                pass
        try:
            producer_id, offset = pair
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"aborted[{i}] must be a pair (producer id, first offset), "
                f"not {shown(pair)}") from None
        pairs.append((whole_number(f"aborted[{i}], producer id", producer_id, INT64_MIN, INT64_MAX),
                whole_number(f"aborted[{i}], first offset", offset, INT64_MIN, INT64_MAX)))
    if not pairs:
        return 0
    pairs.sort()
    to.producer_ids = <int64_t *>calloc(len(pairs), 8)
    to.first_offsets = <int64_t *>calloc(len(pairs), 8)
    to.ended = <uint8_t *>calloc(len(pairs), 1)
    if to.producer_ids is NULL or to.first_offsets is NULL or to.ended is NULL:
        raise MemoryError()
    to.count = len(pairs)
    to.reached = INT64_MIN
    for i, (producer_id, offset) in enumerate(pairs):
        to.producer_ids[i] = producer_id
        to.first_offsets[i] = offset
    return 0


cdef tuple not_ended(const Aborted *all):
    cdef size_t i
    return tuple([(all.producer_ids[i], all.first_offsets[i])
            for i in range(all.count) if not all.ended[i]])


cdef int64_t latest_begun(const Aborted *all, int64_t producer_id) noexcept nogil:
    """Return the place of this producer's latest transaction among those that began at or before
    the offset that was reached; -1 where there is none.
    """
    cdef size_t low = 0, high = all.count, middle
    while low < high:
        middle = low + (high - low) // 2
        if (all.producer_ids[middle] < producer_id or (all.producer_ids[middle] == producer_id
                and all.first_offsets[middle] <= all.reached)):
            low = middle + 1
        else:
            high = middle
    return <int64_t>low - 1 if low and all.producer_ids[low - 1] == producer_id else -1


cdef void end_aborted(Aborted *all, int64_t producer_id) noexcept nogil:
    """An ABORT marker ends all transactions of its producer that have begun."""
    cdef int64_t i = latest_begun(all, producer_id)
    while i >= 0 and all.producer_ids[i] == producer_id and not all.ended[i]:
        all.ended[i] = True
        i -= 1


cdef bint is_aborted(const Aborted *all, int64_t producer_id) noexcept nogil:
    cdef int64_t i = latest_begun(all, producer_id)
    return i >= 0 and not all.ended[i]


cdef void free_aborted(Aborted *all) noexcept:
    free(all.producer_ids)
    free(all.first_offsets)
    free(all.ended)
