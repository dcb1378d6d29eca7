from libc.stdint cimport int64_t, uint64_t


cdef class Histogram:
    cdef uint64_t *counters
    cdef uint64_t *reported
    cdef int64_t _count, _sum, _min, _max
    cdef int64_t _window_count, _window_sum, _window_max
    cdef int _begin(self, int64_t smallest, int64_t largest, uint64_t total) except -1
    cdef int _many(self, const int64_t[::1] values, int64_t now_and_one) except -1
