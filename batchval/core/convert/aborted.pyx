"""The aborted transactions of a Fetch response: which batches read_committed leaves out.

    response  (producer id, first offset) of each transaction that was aborted and has records in
              the response
    batches   those of a transaction between its first offset and its ABORT marker are left out

As Kafka's consumer does it (CompletedFetch.nextFetchedRecord): a transaction begins with the first
batch of any producer that reaches its first offset, and an ABORT marker ends all that have begun.
"""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t
from libc.stdlib cimport calloc, free, qsort

from batchval.core.stages.arguments cimport one_each, shown, whole_number

from batchval.errors import ArgumentTypeError

cdef enum:
    GIL_YIELD_INTERVAL = 256  # pairs that are read or made before others may have the GIL


cdef inline void breathe(size_t pairs) noexcept:
    if pairs % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
        with nogil:
            pass


cdef int in_order(const void *one, const void *other) noexcept nogil:
    cdef const AbortedTransaction *a = <const AbortedTransaction *>one
    cdef const AbortedTransaction *b = <const AbortedTransaction *>other
    if a.producer_id != b.producer_id:
        return 1 if a.producer_id > b.producer_id else -1
    return (a.first_offset > b.first_offset) - (a.first_offset < b.first_offset)


cdef int read_pair(AbortedTransaction *to, size_t i, pair) except -1:
    """Read a pair (producer id, first offset)."""
    try:
        producer_id, offset = pair
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"aborted[{i}] must be a pair (producer id, first offset), not {shown(pair)}") from None
    if type(producer_id) is int and type(offset) is int:
        try:
            to.producer_id = producer_id
            to.first_offset = offset
            return 0
        except OverflowError:
            pass  # the error below names the number
    to.producer_id = whole_number(
            f"aborted[{i}], producer id", producer_id, INT64_MIN, INT64_MAX)
    to.first_offset = whole_number(
            f"aborted[{i}], first offset", offset, INT64_MIN, INT64_MAX)
    return 0


@cython.final
cdef class AbortedTransactions:
    """The aborted transactions of one partition, for the calls that convert its batches in turn.

    Each call of ``down_convert`` notes here which of them have ended. The pairs (producer id, first
    offset) are read once, and not by each call. One call at a time may use it.
    """

    def __cinit__(self, aborted=()):
        cdef tuple pairs = one_each(aborted, "aborted", "pairs (producer id, first offset)")
        cdef size_t i, count = len(pairs)
        self.all.reached = INT64_MIN
        if not count:
            return
        self.all.each = <AbortedTransaction *>calloc(count, sizeof(AbortedTransaction))
        self.all.ended = <uint8_t *>calloc(count, 1)
        if self.all.each is NULL or self.all.ended is NULL:
            raise MemoryError()
        for i, pair in enumerate(pairs):
            breathe(i)
            read_pair(&self.all.each[i], i, pair)
        with nogil:
            qsort(self.all.each, count, sizeof(AbortedTransaction), in_order)
        self.all.count = count

    def __dealloc__(self):
        free(self.all.each)
        free(self.all.ended)

    cdef tuple not_ended(self):
        """Return the pairs whose marker has not been read."""
        cdef size_t i
        cdef list pairs = []
        for i in range(self.all.count):
            breathe(i)
            if not self.all.ended[i]:
                pairs.append((self.all.each[i].producer_id, self.all.each[i].first_offset))
        return tuple(pairs)


cdef int64_t latest_begun(const Aborted *all, int64_t producer_id) noexcept nogil:
    """Return the place of this producer's latest transaction among those that began at or before
    the offset that was reached; -1 where there is none.
    """
    cdef size_t low = 0, high = all.count, middle
    while low < high:
        middle = low + (high - low) // 2
        if (all.each[middle].producer_id < producer_id
                or (all.each[middle].producer_id == producer_id
                    and all.each[middle].first_offset <= all.reached)):
            low = middle + 1
        else:
            high = middle
    return <int64_t>low - 1 if low and all.each[low - 1].producer_id == producer_id else -1


cdef void end_aborted(Aborted *all, int64_t producer_id) noexcept nogil:
    """End all transactions of the producer that have begun, at its ABORT marker."""
    cdef int64_t i = latest_begun(all, producer_id)
    while i >= 0 and all.each[i].producer_id == producer_id and not all.ended[i]:
        all.ended[i] = True
        i -= 1


cdef bint is_aborted(const Aborted *all, int64_t producer_id) noexcept nogil:
    cdef int64_t i = latest_begun(all, producer_id)
    return i >= 0 and not all.ended[i]
