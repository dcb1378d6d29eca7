"""Latencies in microseconds, counted and never sampled; and the monotonic clock they are read from.

Counters lie as HdrHistogram lays them out for three significant digits: values below 2048 µs have
one each, and above, each doubling has 1024, so a counter is never wider than 1/1024 of what it
counts (0.098 %). A value v with its highest bit at e ≥ 11 has counter ((e - 10) << 10) + (v >> (e -
10)). The sum is exact, in 64 bits: 2**63 - 1 µs, which is 153 billion latencies of a minute. What
would overflow is refused, and nothing of it counted.

A latency is the difference of two instants that were both truncated to whole microseconds before
(KAFKA-7722): now_ns // 1000 - stamp_ns // 1000.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from batchval.errors import BatchvalError

cdef extern from *:
    int __builtin_clzll(unsigned long long) noexcept nogil

MAX_SUM = INT64_MAX  # µs
COUNTERS = 2048 + 1024 * 52  # up to 2**63 - 1 µs


cdef inline int64_t clock_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * <int64_t> 1_000_000_000 + now.tv_nsec


cdef inline int64_t counter_of(int64_t value) noexcept nogil:
    if value < 2048:
        return value
    cdef int shift = 53 - __builtin_clzll(<unsigned long long> value)
    return (<int64_t> shift << 10) + (value >> shift)


cdef inline int64_t middle_of(int64_t counter) noexcept nogil:
    """Return the value in the middle of what a counter counts: at most 0.049 % from each."""
    if counter < 2048:
        return counter
    cdef int shift = <int> (counter >> 10) - 1
    return (((counter & 1023) | 1024) << shift) + (<int64_t> 1 << (shift - 1))


cdef inline int64_t first_of(int64_t counter) noexcept nogil:
    """Return the smallest value that a counter counts."""
    if counter < 2048:
        return counter
    return ((counter & 1023) | 1024) << ((counter >> 10) - 1)


class SumOverflowError(BatchvalError, OverflowError):
    """The sum of the latencies of a run, or of merged runs, does not fit."""


def sum_overflow():
    """Return what is raised where MAX_SUM would be passed."""
    return SumOverflowError(
        "the sum of the latencies would be above 2**63 - 1 µs (153 billion latencies of a minute): "
        "measure fewer records in one run, or merge fewer results"
    )


def now_ns():
    """Return the nanoseconds of time.monotonic_ns's clock."""
    return clock_ns()


def stamp_many(int64_t[::1] out not None):
    """Write the present time, in ns of the monotonic clock, into every element of ``out``; return
    it.
    """
    cdef int64_t now = clock_ns()
    cdef Py_ssize_t n
    for n in range(out.shape[0]):
        out[n] = now
    return now


cdef class Histogram:
    """Counts of latencies in µs. Of one thread; those of several are merged, exactly."""

    def __cinit__(self):
        # pages nobody counts in are never touched
        self.counters = <uint64_t *> calloc(COUNTERS, sizeof(uint64_t))
        if self.counters is NULL:
            raise MemoryError
        self.reported = NULL  # until the first window
        self._count = 0
        self._sum = 0
        self._max = 0
        self._min = INT64_MAX
        self._window_max = 0
        self._window_count = 0
        self._window_sum = 0

    def __dealloc__(self):
        free(self.counters)
        free(self.reported)

    cdef int _begin(self, int64_t smallest, int64_t largest, uint64_t total) except -1:
        """Raise unless latencies from smallest to largest, total in sum, can be counted."""
        if smallest < 0:
            raise ValueError("a latency below 0: the two instants are not of one clock")
        if total > <uint64_t> (INT64_MAX - self._sum):
            raise sum_overflow()
        if smallest < self._min:
            self._min = smallest
        if largest > self._max:
            self._max = largest
        if largest > self._window_max:
            self._window_max = largest
        return 0

    def record(self, int64_t us):
        """Count one latency. Raises ValueError below 0, OverflowError for a sum above MAX_SUM.
        """
        self._begin(us, us, <uint64_t> us)
        self.counters[counter_of(us)] += 1
        self._count += 1
        self._sum += us

    def record_repeated(self, int64_t us, int64_t times):
        """Count the same latency several times."""
        if times <= 0:
            if times < 0:
                raise ValueError("a latency cannot have happened less than 0 times")
            return
        if us > 0 and us > (INT64_MAX - self._sum) // times:
            raise sum_overflow()
        self._begin(us, us, 0)
        self.counters[counter_of(us)] += <uint64_t> times
        self._count += times
        self._sum += us * times

    def record_many(self, const int64_t[::1] us not None):
        """Count many latencies: all, or none where it raises (as ``record``)."""
        self._many(us, 0)

    def record_since(self, const int64_t[::1] stamps_ns not None, int64_t now_ns):
        """Count the latency of each stamp at the time now_ns, both truncated to µs before the
        subtraction.
        """
        if now_ns < 0 or now_ns == INT64_MAX:
            raise ValueError("an instant that no clock has")
        self._many(stamps_ns, now_ns + 1)

    cdef int _many(self, const int64_t[::1] values, int64_t now_and_one) except -1:
        """Count values: latencies if now_and_one is 0, else stamps of the time now_and_one - 1."""
        cdef Py_ssize_t n = values.shape[0], i
        cdef int64_t value, smallest = INT64_MAX, largest = -1, now_us = (now_and_one - 1) // 1000
        cdef uint64_t total = 0, before
        cdef bint too_much = False
        if n == 0:
            return 0
        # all are looked at before the first is counted
        for i in range(n):
            value = values[i] if now_and_one == 0 else now_us - values[i] // 1000
            if value < smallest:
                smallest = value
            if value > largest:
                largest = value
            before = total
            total += <uint64_t> value
            too_much |= total < before
        if too_much and smallest >= 0:
            raise sum_overflow()
        self._begin(smallest, largest, total)
        for i in range(n):
            value = values[i] if now_and_one == 0 else now_us - values[i] // 1000
            # of an array that is written to meanwhile: a counter that there is, within what _begin
            # has noted
            self.counters[counter_of(min(max(value, smallest), largest))] += 1
        self._count += n
        self._sum += <int64_t> total
        return 0

    def merge(self, Histogram other not None):
        """Add another histogram's counts, exactly as if all had been recorded here."""
        cdef Py_ssize_t i
        if other._count == 0:
            return
        self._begin(other._min, other._max, <uint64_t> other._sum)
        for i in range(counter_of(other._max) + 1):
            self.counters[i] += other.counters[i]
        self._count += other._count
        self._sum += other._sum

    def window(self):
        """Return a Histogram of what was recorded since the last call of this.

        Its smallest value is that of its lowest counter: within 0.1 %, exact below 2048 µs.
        """
        cdef Histogram made = Histogram()
        cdef int64_t i, lowest = -1
        cdef uint64_t since
        if self.reported is NULL:
            self.reported = <uint64_t *> calloc(COUNTERS, sizeof(uint64_t))
            if self.reported is NULL:
                raise MemoryError
        if self._count > self._window_count:
            for i in range(counter_of(self._min), counter_of(self._max) + 1):
                since = self.counters[i] - self.reported[i]
                if since:
                    made.counters[i] = since
                    self.reported[i] = self.counters[i]
                    if lowest < 0:
                        lowest = i
            made._count = self._count - self._window_count
            made._sum = self._sum - self._window_sum
            made._max = self._window_max
            made._min = max(first_of(lowest), self._min)
        self._window_count = self._count
        self._window_sum = self._sum
        self._window_max = 0
        return made

    def percentile(self, double percent):
        """Return the latency at index floor(percent / 100 × count) of all, sorted, as Kafka does.

        Within 0.1 %; exact below 2048 µs.

        0 of an empty histogram. ValueError unless 0 ≤ percent ≤ 100, of which 6 decimals count.
        """
        if not 0 <= percent <= 100:
            raise ValueError("a percentile is from 0 to 100")
        if self._count == 0:
            return 0
        # whole numbers of Python, of any size: in binary fractions 99.9 / 100 × 1000 may be below
        # 999
        cdef int64_t place = round(percent * 1_000_000) * (<object> self._count) // 100_000_000, i
        cdef uint64_t seen = 0
        if place >= self._count - 1:
            return self._max
        for i in range(counter_of(self._min), counter_of(self._max) + 1):
            seen += self.counters[i]
            if seen > <uint64_t> place:
                return min(max(middle_of(i), self._min), self._max)
        return self._max

    @property
    def count(self):
        return self._count

    @property
    def sum(self):
        """Return the exact sum, in µs."""
        return self._sum

    @property
    def mean(self):
        """Return the mean from the exact sum, in µs; 0.0 of an empty histogram."""
        return (<object> self._sum) / self._count if self._count else 0.0

    @property
    def min(self):
        return self._min if self._count else 0

    @property
    def max(self):
        return self._max

    @property
    def stddev(self):
        """Return the standard deviation in µs, each value taken as the middle of its counter.
        """
        if self._count == 0:
            return 0.0
        cdef double mean = <double> self._sum / <double> self._count, squares = 0, away
        cdef int64_t i
        for i in range(counter_of(self._min), counter_of(self._max) + 1):
            if self.counters[i]:
                away = min(max(middle_of(i), self._min), self._max) - mean
                squares += away * away * <double> self.counters[i]
        # Python's power: C's would be of complex numbers, in a library that is not linked
        cdef object variance = squares / <double> self._count
        return variance ** 0.5

    def counts(self):
        """Return [(counter, count)] of the counters above 0, in the order of their values."""
        cdef int64_t i
        found = []
        if self._count:
            for i in range(counter_of(self._min), counter_of(self._max) + 1):
                if self.counters[i]:
                    found.append((i, self.counters[i]))
        return found

    def __eq__(self, other):
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.to_json() == other.to_json()

    __hash__ = None

    def to_json(self):
        """Return a dict for json.dumps, from which from_json makes an equal histogram. Values in
        µs.
        """
        return {
            "unit": "us",
            "layout": "hdr-3",
            "count": self.count,
            "sum": self.sum,
            "min": self.min,
            "max": self.max,
            "counts": [list(pair) for pair in self.counts()],
        }

    @staticmethod
    def from_json(data):
        """Return the histogram of to_json's data. Raises ValueError for other or contradictory
        data.
        """
        cdef Histogram made = Histogram()
        cdef int64_t counter, times, last = -1
        try:
            if data["unit"] != "us" or data["layout"] != "hdr-3":
                raise ValueError("not a histogram of µs in the layout hdr-3")
            for counter, times in data["counts"]:
                if not last < counter < COUNTERS or times <= 0 or made._count > INT64_MAX - times:
                    raise ValueError("a histogram's counters are in order, each above 0")
                made.counters[counter] = <uint64_t> times
                made._count += times
                last = counter
            if made._count != data["count"]:
                raise ValueError("a histogram whose counters do not add up to its count")
            if made._count:
                made._sum, made._min, made._max = data["sum"], data["min"], data["max"]
                if not 0 <= made._min <= made._max <= made._sum or (
                    counter_of(made._min) != data["counts"][0][0] or counter_of(made._max) != last
                ):
                    raise ValueError("a histogram whose smallest or largest value is not in its counters")
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not a histogram: {type(error).__name__}: {error}") from None
        return made
