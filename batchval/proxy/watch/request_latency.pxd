"""How long requests take, counted by the sessions of one listening port."""

cimport cython
from libc.stdint cimport int32_t, int64_t

cdef enum:
    API_KEYS = 128  # that may be known
    BUCKETS = 16    # of a histogram: those of BOUNDS_S, and one above


cdef struct Buckets:  # one histogram, not cumulative
    int64_t counts[BUCKETS]
    int64_t total_ns


cdef struct Durations:  # of one API
    Buckets request, broker


cdef struct MeasuredRequest:  # a request that the broker has not answered
    int64_t taken_ns
    int64_t sent_ns  # 0: the broker's part is not measured
    int32_t wire_id  # FREE: none
    int32_t key


cdef int64_t now_ns() noexcept nogil
cdef int64_t wall_ms() noexcept nogil


@cython.final
cdef class Traffic:
    cdef readonly dict requests
    cdef public int64_t unmeasured_waiting, unmeasured_client
    cdef Durations *of[API_KEYS]

    cdef Durations *durations_of(self, int key) except NULL
    cdef int note_request(self, int key, int64_t ns) except -1
    cdef int note_broker(self, int key, int64_t ns) except -1


@cython.final
cdef class UnderWay:
    cdef MeasuredRequest *places
    cdef int32_t mask  # their number - 1
    cdef readonly int count

    cdef int put(self, int32_t wire_id, int key, int64_t taken_ns) except -1
    cdef bint pop(self, int32_t wire_id, MeasuredRequest *found) noexcept nogil
    cdef int clear(self) noexcept nogil
    cdef int grow(self) except -1
    cdef int mark_sent(self, int32_t first, int32_t last, int64_t ns) noexcept nogil
    cdef int forget(self, bint whole) noexcept nogil
