"""Count how long requests take, by the sessions of one listening port.

    UnderWay  of one session: when each request that awaits an answer was taken, and sent on
    Traffic   of one listening port: requests by API and version, histograms by API

Times are nanoseconds of the monotonic clock. Everything here runs on the event loop.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

cdef enum:
    FREE = -1
    FIRST_PLACES = 8     # of a session that pipelines little
    KEPT_PLACES = 64     # that an idle session keeps
    MAX_MEASURED_REQUESTS = 2048   # requests of one session that are measured at a time: 48 kB
    WIRE_IDS = 0x7fffffff

#: Upper bounds of a histogram's buckets, in seconds; the last bucket has none.
BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)

cdef int64_t[BUCKETS - 1] bounds_ns
for _i, _bound in enumerate(BOUNDS_S):
    bounds_ns[_i] = round(_bound * 1e9)


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef int64_t wall_ms() noexcept nogil:
    """Return the time of the wall clock in ms."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


def clock_ns():
    """Return the time as Traffic and UnderWay count it."""
    return now_ns()


cdef inline int count_in(Buckets *buckets, int64_t ns) noexcept nogil:
    cdef int i = 0
    while i < BUCKETS - 1 and ns > bounds_ns[i]:
        i += 1
    buckets.counts[i] += 1
    buckets.total_ns += ns
    return 0


@cython.final
cdef class Traffic:
    """The counts of one listening port.

    ``requests``            API key << 16 | version -> requests
    ``unmeasured_waiting``  requests that were not measured: their session had too many under way
    ``unmeasured_client``   likewise: the client did not take its answers meanwhile
    """

    def __cinit__(self):
        self.requests = {}

    def __dealloc__(self):
        cdef int key
        for key in range(API_KEYS):
            free(self.of[key])

    cdef Durations *durations_of(self, int key) except NULL:
        if not 0 <= key < API_KEYS:
            raise ValueError(f"API key {key}: expected 0 to {API_KEYS - 1}")
        if self.of[key] is NULL:
            self.of[key] = <Durations *>calloc(1, sizeof(Durations))
            if self.of[key] is NULL:
                raise MemoryError
        return self.of[key]

    cdef int note_request(self, int key, int64_t ns) except -1:
        count_in(&self.durations_of(key).request, ns)
        return 0

    cdef int note_broker(self, int key, int64_t ns) except -1:
        count_in(&self.durations_of(key).broker, ns)
        return 0

    def note(self, int key, int64_t request_ns, int64_t broker_ns):
        """Count one request of an API. A negative duration is not counted."""
        self.durations_of(key)
        if request_ns >= 0:
            self.note_request(key, request_ns)
        if broker_ns >= 0:
            self.note_broker(key, broker_ns)

    def taken(self):
        """Return {API key: its histograms} as they are now, for ``histograms_of`` in any thread."""
        cdef int key
        cdef dict found = {}
        for key in range(API_KEYS):
            if self.of[key] is not NULL:
                found[key] = (<char *>self.of[key])[:sizeof(Durations)]
        return found


def histograms_of(bytes taken):
    """Return the histograms of requests and of brokers in ``taken``: (counts, seconds) each."""
    cdef Durations durations
    if len(taken) != sizeof(Durations):
        raise ValueError(f"{len(taken)} bytes: expected {sizeof(Durations)}")
    memcpy(&durations, <const char *>taken, sizeof(Durations))
    return histogram_of(&durations.request), histogram_of(&durations.broker)


cdef tuple histogram_of(const Buckets *buckets):
    cdef int i
    return tuple([buckets.counts[i] for i in range(BUCKETS)]), buckets.total_ns / 1e9


@cython.final
cdef class UnderWay:
    """The requests of one session that await a broker's answer, by their correlation ids to the
    broker.

    These ids are counted, so the place of a request is its id modulo the number of places. Places
    double while more requests are under way, up to MAX_MEASURED_REQUESTS: those above are not
    measured.
    """

    def __cinit__(self):
        self.clear()

    def __dealloc__(self):
        free(self.places)

    cdef int put(self, int32_t wire_id, int key, int64_t taken_ns) except -1:
        """Note a request that goes to the broker. 0: all places are taken."""
        cdef MeasuredRequest *place
        while self.places is NULL or self.places[wire_id & self.mask].wire_id != FREE:
            if self.mask + 1 >= MAX_MEASURED_REQUESTS:
                return 0
            self.grow()
        place = &self.places[wire_id & self.mask]
        place.taken_ns = taken_ns
        place.sent_ns = 0
        place.wire_id = wire_id
        place.key = key
        self.count += 1
        return 1

    cdef bint pop(self, int32_t wire_id, MeasuredRequest *found) noexcept nogil:
        """Copy the place of a request that is answered, and free it. False: there is none."""
        cdef MeasuredRequest *place
        if self.places is NULL or wire_id < 0:
            return False
        place = &self.places[wire_id & self.mask]
        if place.wire_id != wire_id:
            return False
        found[0] = place[0]
        place.wire_id = FREE
        self.count -= 1
        if not self.count and self.mask >= KEPT_PLACES:
            self.clear()
        return True

    cdef int clear(self) noexcept nogil:
        free(self.places)
        self.places = NULL
        self.mask = -1
        self.count = 0
        return 0

    cdef int grow(self) except -1:
        """Double the slots. Pending ids are consecutive, so they stay apart."""
        cdef int32_t size = FIRST_PLACES if self.places is NULL else 2 * (self.mask + 1)
        cdef int32_t i
        cdef MeasuredRequest *places = <MeasuredRequest *>calloc(size, sizeof(MeasuredRequest))
        if places is NULL:
            raise MemoryError
        for i in range(size):
            places[i].wire_id = FREE
        for i in range(self.mask + 1):
            if self.places[i].wire_id != FREE:
                places[self.places[i].wire_id & (size - 1)] = self.places[i]
        free(self.places)
        self.places = places
        self.mask = size - 1
        return 0

    cdef int mark_sent(self, int32_t first, int32_t last, int64_t ns) noexcept nogil:
        """Note when the requests ``first`` to ``last`` went to the broker."""
        cdef int32_t wire_id = first
        cdef MeasuredRequest *place
        if self.places is NULL:
            return 0
        while True:
            place = &self.places[wire_id & self.mask]
            if place.wire_id == wire_id:
                place.sent_ns = ns
            if wire_id == last:
                return 0
            wire_id = (wire_id + 1) & WIRE_IDS

    cdef int forget(self, bint whole) noexcept nogil:
        """Do not measure what is under way now, or not the broker's part of it. Return how many."""
        cdef int32_t i
        cdef int found = self.count
        if whole:
            self.clear()
        elif found:
            for i in range(self.mask + 1):
                self.places[i].sent_ns = 0
        return found
