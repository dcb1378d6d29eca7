"""Topic ids and names, from Metadata responses and Produce requests.

    Metadata response   correlation_id [tags] [throttle_time_ms] brokers [cluster_id]
                        [controller_id] topics: (error_code name [topic_id] [is_internal] partitions
                        [operations] tags)
    Produce request     topics: (topic_id partitions tags), from version 13 on (KIP-516)

A Metadata response may hold hundreds of thousands of partitions: ``TopicsInMetadata`` is read in
pieces of bounded cost.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t

from batchval.protocol.cursor cimport (
    Cursor, fail, not_null, position, read_count, read_int16, read_int32, skip, skip_string,
    skip_tags, string_length, NOT_THIS_VERSION,
)
from batchval.protocol.walkers.produce cimport ProduceRequestView
from batchval.protocol.walkers.views cimport FrameView
from batchval.protocol.walkers.positions cimport PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT

cdef enum:
    # MetadataResponse.json
    LAST_VERSION = 13
    IS_INTERNAL_FROM = 1
    CONTROLLER_FROM = 1
    CLUSTER_ID_FROM = 2
    THROTTLE_FROM = 3
    OFFLINE_FROM = 5
    LEADER_EPOCH_FROM = 7
    OPERATIONS_FROM = 8
    FLEXIBLE_FROM = 9
    TOPIC_IDS_FROM = 10
    NO_NAME_FROM = 12  # a topic that was asked for by an id that nobody knows
    ID_SIZE = 16
    MAX_WALKED_BYTES = 64 << 10  # that one call walks, up to the end of a topic: below 1 ms


cdef void skip_int32s(Cursor *c) noexcept nogil:
    cdef int64_t n = read_count(c)
    not_null(c, n)
    if n > 0:
        skip(c, 4 * n)


cdef void skip_brokers(Cursor *c, int version) noexcept nogil:
    cdef int64_t _i, n
    if version >= THROTTLE_FROM:
        skip(c, 4)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        skip(c, 4)
        skip_string(c, False)
        skip(c, 4)
        if version >= 1:
            skip_string(c, True)  # rack
        skip_tags(c)
        if c.wrong:
            return
    if version >= CLUSTER_ID_FROM:
        skip_string(c, True)
    if version >= CONTROLLER_FROM:
        skip(c, 4)


cdef void skip_partitions(Cursor *c, int version) noexcept nogil:
    cdef int64_t _i, n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        skip(c, 10 if version < LEADER_EPOCH_FROM else 14)
        skip_int32s(c)
        skip_int32s(c)
        if version >= OFFLINE_FROM:
            skip_int32s(c)
        skip_tags(c)
        if c.wrong:
            return


@cython.final
@cython.no_gc
cdef class TopicsInMetadata(FrameView):
    """The topics of a Metadata response's frame (without its length) that have no error.

    ``next()`` gives those of the next 64 KiB as (topic id, name); ``done`` says whether there are
    more. The id is b"" where the response has none. Raises ProtocolError.
    """

    cdef int64_t left
    cdef bint flexible

    def __init__(self, frame, int api_version):
        cdef Cursor *c = &self.c
        self.hold(frame)
        self.api_version = api_version
        self.correlation_id = read_int32(c)
        c.flexible = api_version >= FLEXIBLE_FROM
        if not 0 <= api_version <= LAST_VERSION:
            fail(c, NOT_THIS_VERSION)
        skip_tags(c)
        skip_brokers(c, api_version)
        self.left = read_count(c)
        not_null(c, self.left)
        self.finish_walk()

    @property
    def done(self):
        """Return whether all topics have been read."""
        return self.left == 0

    def next(self):
        """Return the next topics, of at least one if there is one."""
        cdef Cursor *c = &self.c
        cdef int64_t size, name, topic_id, end = position(c) + MAX_WALKED_BYTES
        cdef int error
        found = []
        while self.left > 0 and position(c) < end:
            self.left -= 1
            topic_id = -1
            with nogil:
                error = read_int16(c)
                size = string_length(c)
                if self.api_version < NO_NAME_FROM:
                    not_null(c, size)
                name = position(c)
                if size > 0:
                    c.at += size
                if self.api_version >= TOPIC_IDS_FROM:
                    topic_id = position(c)
                    skip(c, ID_SIZE)
                if self.api_version >= IS_INTERNAL_FROM:
                    skip(c, 1)
                skip_partitions(c, self.api_version)
                if self.api_version >= OPERATIONS_FROM:
                    skip(c, 4)
                skip_tags(c)
            self.finish_walk()
            if error == 0 and size > 0:
                found.append((self.id_at(topic_id), self.text(name, size)))
        return found

    cdef bytes id_at(self, int64_t at):
        """Return a topic id; b"" where there is none, or zeros, as of a broker without topic
        ids.
        """
        cdef bytes found
        if at < 0:
            return b""
        found = PyBytes_FromStringAndSize(<const char *>self.base() + at, ID_SIZE)
        return b"" if found == bytes(ID_SIZE) else found


def topics_in_metadata(frame, int api_version):
    """Return all topics of a Metadata response's frame (without its length) that have no error, as
    (topic id, name). The id is b"" where the response has none. Raises ProtocolError.
    """
    cdef TopicsInMetadata topics = TopicsInMetadata(frame, api_version)
    found = []
    while topics.left:
        found += topics.next()
    return found


def ids_in_produce(ProduceRequestView request not None):
    """Return the topic ids of a Produce request, each once, in order; none before version 13."""
    cdef Py_ssize_t i
    cdef int32_t at
    cdef dict found = {}
    for i in range(request.t.tables[1].count):
        at = request.topic_row(i)[PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT]
        if at < 0:
            break
        found[PyBytes_FromStringAndSize(<const char *>request.base() + at, ID_SIZE)] = None
    return list(found)
