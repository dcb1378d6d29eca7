"""What Python sees of a stream."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from batchval.fetch.receive cimport Share, Stream
from batchval.fetch.turn_lock cimport Turns


@cython.final
cdef class Quota:
    cdef int64_t left


@cython.final
cdef class Receiver:
    cdef Stream stream
    cdef Turns own_turns
    cdef Turns *turns  # its own, or those of the loop that runs it
    cdef object keeper  # the loop; None: its own turns
    cdef readonly Quota quota
    cdef dict topic_numbers
    cdef int32_t freed  # slots that may be used again

    cdef int begin(self) except -1
    cdef int begin_alone(self) except -1
    cdef Share *share(self, int32_t slot) except NULL
    cdef int32_t topic_number(self, bytes name) except -1
    cdef int32_t free_slot(self) except -1
