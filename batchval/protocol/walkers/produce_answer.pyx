"""The answer to a Produce request (versions 0 to 13): looked at, written without a broker, merged
with a broker's.

    versions 3 to 13  topics: (name or id, partitions: (index error_code base_offset
                      log_append_time_ms log_start_offset (5+) record_errors error_message (8+)
                      tags) tags) throttle_time_ms tags
    versions 0 to 2   topics: (name, partitions: (index error_code base_offset
                      log_append_time_ms (2))) throttle_time_ms (1 and 2)

A refused partition is answered as a broker answers it: its error, offsets and times -1, and from
version 8 on the records that were the reason, and a sentence. An answer has a result only for
partitions that the gate or the broker has decided on.

No broker of Kafka 4 knows versions 0 to 2. Its answer of version 3 is lowered, with codes that
clients of the time know (batchval.protocol.old_versions).
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, qsort

from batchval.protocol.cursor cimport (
    Cursor, open_cursor, put_int16, put_int32, put_int64, read_int32, read_int64, skip_tags,
)
from batchval.protocol.walkers.produce cimport OLDEST_OF_KAFKA_4, ProduceRequestView
from batchval.protocol.walkers.splice cimport Splicer, splicer
from batchval.protocol.walkers.tables cimport row_of
from batchval.protocol.walkers.views cimport FrameView
from batchval.protocol.walkers.positions cimport (
    PRODUCE_REQUEST_PARTITION_COLUMNS, PRODUCE_REQUEST_PARTITION_INDEX,
    PRODUCE_REQUEST_PARTITION_PARENT,
    PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT, PRODUCE_REQUEST_TOPIC_START,
    PRODUCE_RESPONSE_PARTITION_BASE_OFFSET_AT,
    PRODUCE_RESPONSE_PARTITION_COLUMNS, PRODUCE_RESPONSE_PARTITION_END,
    PRODUCE_RESPONSE_PARTITION_ERROR_CODE,
    PRODUCE_RESPONSE_PARTITION_ERROR_CODE_AT, PRODUCE_RESPONSE_PARTITION_INDEX,
    PRODUCE_RESPONSE_PARTITION_LOG_APPEND_TIME_MS_AT, PRODUCE_RESPONSE_PARTITION_PARENT,
    PRODUCE_RESPONSE_PARTITION_START, PRODUCE_RESPONSE_ROOT_COLUMNS,
    PRODUCE_RESPONSE_ROOT_RESPONSES_AT,
    PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS, PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS_AT,
    PRODUCE_RESPONSE_TOPIC_COLUMNS,
    PRODUCE_RESPONSE_TOPIC_END, PRODUCE_RESPONSE_TOPIC_NAME, PRODUCE_RESPONSE_TOPIC_NAME_SIZE,
    PRODUCE_RESPONSE_TOPIC_PARTITION_RESPONSES_AT, PRODUCE_RESPONSE_TOPIC_START,
    PRODUCE_RESPONSE_TOPIC_TAGS,
    locate_produce_response,
)

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.old_versions import ERROR_CODES

cdef object OLD_CODES = ERROR_CODES[ApiKey.PRODUCE]

cdef enum:
    APPEND_TIME_FROM = 2
    THROTTLE_FROM = 1
    FLEXIBLE_FROM = 9
    RECORD_ERRORS_FROM = 8
    LOG_START_OFFSET_FROM = 5
    GIL_YIELD_INTERVAL = 512  # partitions between which other threads may have the GIL


cdef inline void breathe(Py_ssize_t i):
    if i % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
        with nogil:
            pass


@cython.final
@cython.no_gc
cdef class ProduceResponseView(FrameView):
    """A Produce response's frame, without its length; its version is the request's. Raises
    ProtocolError.
    """

    def __init__(self, frame, int api_version):
        cdef Cursor *c = &self.c
        self.hold(frame)
        self.api_version = api_version
        self.correlation_id = read_int32(c)
        c.flexible = api_version >= FLEXIBLE_FROM
        with nogil:
            skip_tags(c)
            locate_produce_response(c, api_version, &self.t)
        self.finish_walk()

    def __len__(self):
        return self.t.tables[2].count

    cdef const int32_t *row(self, Py_ssize_t i) except NULL:
        if i < 0 or i >= self.t.tables[2].count:
            raise IndexError(f"partition {i} of {self.t.tables[2].count}")
        return row_of(&self.t.tables[2], i, PRODUCE_RESPONSE_PARTITION_COLUMNS)

    cdef const int32_t *topic_row(self, Py_ssize_t i):
        return row_of(&self.t.tables[1], i, PRODUCE_RESPONSE_TOPIC_COLUMNS)

    cdef const int32_t *root(self):
        return row_of(&self.t.tables[0], 0, PRODUCE_RESPONSE_ROOT_COLUMNS)

    @property
    def throttle_time_ms(self):
        return self.root()[PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS]

    def topic(self, Py_ssize_t i):
        """Return the topic's name of partition ``i``; None from version 13 on."""
        cdef const int32_t *row = self.topic_row(self.row(i)[PRODUCE_RESPONSE_PARTITION_PARENT])
        if row[PRODUCE_RESPONSE_TOPIC_NAME_SIZE] < 0:
            return None
        return self.text(row[PRODUCE_RESPONSE_TOPIC_NAME], row[PRODUCE_RESPONSE_TOPIC_NAME_SIZE])

    def partition(self, Py_ssize_t i):
        return self.row(i)[PRODUCE_RESPONSE_PARTITION_INDEX]

    def error_code(self, Py_ssize_t i):
        return self.row(i)[PRODUCE_RESPONSE_PARTITION_ERROR_CODE]

    def base_offset(self, Py_ssize_t i):
        cdef Cursor c
        open_cursor(&c, self.base(), self.view.len, False)
        c.at += self.row(i)[PRODUCE_RESPONSE_PARTITION_BASE_OFFSET_AT]
        return read_int64(&c)


cdef int put_refusal(Splicer s, int version, int32_t partition, object refusal) except -1:
    """Write one partition's answer.

    ``refusal``: (error_code, [(batch_index, message or None)], error_message or None).
    """
    cdef uint8_t *p
    cdef int32_t index
    error_code, record_errors, message = refusal
    # of an old version: a message set without a message, of which Kafka writes nothing
    if error_code == 0 and version >= OLDEST_OF_KAFKA_4:
        raise ProtocolError("a refusal needs an error: a success is never invented")
    p = s.grow(22 + (8 if version >= LOG_START_OFFSET_FROM else 0))
    p = put_int32(p, partition)
    p = put_int16(p, error_code)
    p = put_int64(p, -1)  # base_offset
    p = put_int64(p, -1)  # log_append_time_ms
    if version >= LOG_START_OFFSET_FROM:
        put_int64(p, -1)
    if version >= RECORD_ERRORS_FROM:
        s.w.length(len(record_errors), 4)
        for index, reason in record_errors:
            put_int32(s.w.grow(4), index)
            s.w.nullable_string(reason)
            if version >= FLEXIBLE_FROM:
                s.w.grow(1)[0] = 0
        s.w.nullable_string(message)
    if version >= FLEXIBLE_FROM:
        s.w.grow(1)[0] = 0
    return 0


# ---- topics --------------------------------------------------------------------------------------

cdef struct Answered:  # a partition of the broker's answer
    int32_t topic  # the first of the answer's topics with the same name or id
    int32_t index
    int32_t row
    int32_t used


cdef int by_topic_and_index(const void *one, const void *other) noexcept nogil:
    cdef const Answered *a = <const Answered *>one
    cdef const Answered *b = <const Answered *>other
    if a.topic != b.topic:
        return -1 if a.topic < b.topic else 1
    if a.index != b.index:
        return -1 if a.index < b.index else 1
    return -1 if a.row < b.row else 1


@cython.final
cdef class Merging:
    """The match of a request's partitions with those of the broker's answer, which may stand in any
    order: arrays of the size of both.

    ``row_for``     for each of the request's partitions its row in the answer, or -1
    ``topic_for``   for each of the request's topics its topic in the answer, or -1
    ``parts``       for each of the request's topics how many of its partitions are written
    """

    cdef Answered *answered  # by topic and index
    cdef Answered **by_row
    cdef int32_t *row_for
    cdef int32_t *topic_for
    cdef int32_t *parts
    cdef Py_ssize_t count

    def __dealloc__(self):
        free(self.answered)
        free(self.by_row)
        free(self.row_for)
        free(self.topic_for)
        free(self.parts)

    cdef int prepare(self, Py_ssize_t partitions, Py_ssize_t topics, Py_ssize_t answered) except -1:
        self.count = answered
        self.answered = <Answered *>malloc((answered + 1) * sizeof(Answered))
        self.by_row = <Answered **>malloc((answered + 1) * sizeof(Answered *))
        self.row_for = <int32_t *>malloc((partitions + 1) * sizeof(int32_t))
        self.topic_for = <int32_t *>malloc((topics + 1) * sizeof(int32_t))
        self.parts = <int32_t *>malloc((topics + 1) * sizeof(int32_t))
        if (self.answered is NULL or self.by_row is NULL or self.row_for is NULL
                or self.topic_for is NULL or self.parts is NULL):
            raise MemoryError()
        return 0

    cdef dict read_answer(self, ProduceResponseView answer):
        """Return a dict of a topic's head (name or id, as written) to its number, the first of
        several.
        """
        cdef Py_ssize_t i
        cdef const int32_t *row
        cdef list first = []
        cdef dict found = {}
        for i in range(answer.t.tables[1].count):
            row = answer.topic_row(i)
            first.append(found.setdefault(
                answer.cut(row[PRODUCE_RESPONSE_TOPIC_START],
                           row[PRODUCE_RESPONSE_TOPIC_PARTITION_RESPONSES_AT]), i))
        for i in range(self.count):
            row = row_of(&answer.t.tables[2], i, PRODUCE_RESPONSE_PARTITION_COLUMNS)
            self.answered[i].topic = first[row[PRODUCE_RESPONSE_PARTITION_PARENT]]
            self.answered[i].index = row[PRODUCE_RESPONSE_PARTITION_INDEX]
            self.answered[i].row = <int32_t>i
            self.answered[i].used = False
        with nogil:
            qsort(self.answered, self.count, sizeof(Answered), by_topic_and_index)
            for i in range(self.count):
                self.by_row[self.answered[i].row] = &self.answered[i]
        return found

    cdef int32_t find(self, int32_t topic, int32_t index) noexcept nogil:
        """Return the row of one partition in the answer, each row once; -1 without one."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        cdef Answered *at
        while low < high:
            middle = (low + high) // 2
            at = &self.answered[middle]
            if at.topic < topic or (at.topic == topic and at.index < index):
                low = middle + 1
            else:
                high = middle
        if low == self.count:
            return -1
        at = &self.answered[low]
        if at.topic != topic or at.index != index or at.used:
            return -1
        at.used = True
        return at.row


cdef int put_partition(Splicer s, ProduceResponseView answer, Py_ssize_t i) except -1:
    cdef const int32_t *row = answer.row(i)
    s.keep(row[PRODUCE_RESPONSE_PARTITION_START], row[PRODUCE_RESPONSE_PARTITION_END])
    return 0


cdef int put_topic_end(Splicer s, ProduceResponseView answer, Py_ssize_t number,
        int version) except -1:
    """Write the tagged fields of a topic: the broker's own, where it is in the answer."""
    cdef const int32_t *row
    if number >= 0:
        row = answer.topic_row(number)
        s.keep(row[PRODUCE_RESPONSE_TOPIC_TAGS], row[PRODUCE_RESPONSE_TOPIC_END])
    elif version >= FLEXIBLE_FROM:
        s.grow(1)[0] = 0
    return 0


cdef int put_topics(Splicer s, ProduceRequestView request, list refusals,
        ProduceResponseView answer) except -1:
    """Write the topics in the order of the request; what else is in the answer comes last."""
    cdef Merging m = Merging()
    cdef Py_ssize_t i = 0, topic, topics = request.t.tables[1].count
    cdef Py_ssize_t answered = 0 if answer is None else answer.t.tables[2].count
    cdef const int32_t *row
    cdef int32_t found
    cdef int version = request.api_version
    cdef int64_t written = 0
    cdef dict numbers = {}
    m.prepare(request.count, topics, answered)
    if answer is not None:
        numbers = m.read_answer(answer)
    for i in range(topics):
        m.parts[i] = 0
        m.topic_for[i] = -1
        if numbers:
            row = request.topic_row(i)
            m.topic_for[i] = numbers.get(
                request.cut(row[PRODUCE_REQUEST_TOPIC_START],
                            row[PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT]), -1)
    for i in range(request.count):
        row = row_of(&request.t.tables[2], i, PRODUCE_REQUEST_PARTITION_COLUMNS)
        topic = row[PRODUCE_REQUEST_PARTITION_PARENT]
        found = -1
        if refusals[i] is None and m.topic_for[topic] >= 0:
            found = m.find(m.topic_for[topic], row[PRODUCE_REQUEST_PARTITION_INDEX])
        m.row_for[i] = found
        if refusals[i] is not None or found >= 0:
            m.parts[topic] += 1
            written += m.parts[topic] == 1
    others = others_of(m, answer)
    s.put_length(written + len(others), 4)
    i = 0
    for topic in range(topics):
        breathe(topic)
        row = request.topic_row(topic)
        if m.parts[topic]:
            s.copy(request.base() + row[PRODUCE_REQUEST_TOPIC_START],
                   row[PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT] - row[PRODUCE_REQUEST_TOPIC_START])
            s.put_length(m.parts[topic], 4)
        while i < request.count:
            breathe(i)
            row = row_of(&request.t.tables[2], i, PRODUCE_REQUEST_PARTITION_COLUMNS)
            if row[PRODUCE_REQUEST_PARTITION_PARENT] != topic:
                break
            if refusals[i] is not None:
                put_refusal(s, version, row[PRODUCE_REQUEST_PARTITION_INDEX], refusals[i])
            elif m.row_for[i] >= 0:
                put_partition(s, answer, m.row_for[i])
            i += 1
        if m.parts[topic]:
            put_topic_end(s, answer, m.topic_for[topic], version)
    for topic, rows in others.items():
        row = answer.topic_row(topic)
        s.keep(row[PRODUCE_RESPONSE_TOPIC_START],
               row[PRODUCE_RESPONSE_TOPIC_PARTITION_RESPONSES_AT])
        s.put_length(len(rows), 4)
        for i in rows:
            put_partition(s, answer, i)
        put_topic_end(s, answer, topic, version)
    return 0


cdef dict others_of(Merging m, ProduceResponseView answer):
    """Return the answer's partitions that the request does not have: topic -> rows, in its
    order.
    """
    cdef Py_ssize_t i
    cdef dict found = {}
    for i in range(m.count):
        if not m.by_row[i].used:
            found.setdefault(m.by_row[i].topic, []).append(i)
    return found


cdef list checked(ProduceRequestView request, object refusals):
    found = list(refusals)
    if len(found) != request.count:
        raise ProtocolError(f"{len(found)} answers for {request.count} partitions")
    return found


def refuse(ProduceRequestView request not None, refusals, *, correlation_id=None,
        int throttle_time_ms=0):
    """Return the frame that answers a request of which nothing was forwarded, in chunks.

    ``refusals``  for each partition (error_code, [(batch_index, message or None), …],
                  error_message or None); before version 8 only the code is written
    """
    cdef Splicer s = splicer(b"", b"", request.api_version >= FLEXIBLE_FROM)
    cdef list checked_refusals = checked(request, refusals)
    if None in checked_refusals:
        raise ProtocolError("a partition without a refusal cannot be answered here")
    put_int32(s.grow(4), request.correlation_id if correlation_id is None else correlation_id)
    if request.api_version >= FLEXIBLE_FROM:
        s.grow(1)[0] = 0
    put_topics(s, request, checked_refusals, None)
    put_int32(s.grow(4), throttle_time_ms)
    if request.api_version >= FLEXIBLE_FROM:
        s.grow(1)[0] = 0
    return lowered_if_old(s.finish(), request.api_version)


def merge(ProduceRequestView request not None, refusals, ProduceResponseView answer not None, *,
        correlation_id=None):
    """Return the frame that answers a request that was forwarded in part, in chunks.

    ``refusals``  as for ``refuse``, None for the partitions that the broker's ``answer`` is about

    Topics and partitions stand in the request's order, the broker's own as it wrote them;
    throttle_time_ms and tagged fields are the broker's.
    """
    cdef Splicer s
    cdef const int32_t *root = answer.root()
    if answer.api_version != request.written_version:
        raise ProtocolError(f"an answer of version {answer.api_version} to a request of {request.api_version}")
    s = splicer(answer.whole, answer.base(), request.api_version >= FLEXIBLE_FROM)
    put_int32(s.grow(4), request.correlation_id if correlation_id is None else correlation_id)
    s.keep(4, root[PRODUCE_RESPONSE_ROOT_RESPONSES_AT])
    put_topics(s, request, checked(request, refusals), answer)
    s.keep(root[PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS_AT], answer.view.len)
    return lowered_if_old(s.finish(), request.api_version)


# ---- versions 0 to 2 -----------------------------------------------------------------------------

cdef list lowered_if_old(list chunks, int version):
    """Return an answer of the written version in the request's version."""
    if version >= OLDEST_OF_KAFKA_4:
        return chunks
    return lower(ProduceResponseView(memoryview(b"".join(chunks))[4:], OLDEST_OF_KAFKA_4), version)


def lower(ProduceResponseView answer not None, int version, *, correlation_id=None):
    """Return the frame that answers a request of version 0, 1 or 2, in chunks.

    ``answer`` is a broker's answer of version 3.
    """
    cdef Splicer s
    cdef Py_ssize_t i
    cdef const int32_t *row
    cdef const int32_t *root = answer.root()
    cdef int32_t at
    if answer.api_version != OLDEST_OF_KAFKA_4 or not 0 <= version < OLDEST_OF_KAFKA_4:
        raise ProtocolError(
            f"an answer of version {answer.api_version} cannot be lowered to {version}")
    s = splicer(answer.whole, answer.base(), False)
    put_int32(s.grow(4), answer.correlation_id if correlation_id is None else correlation_id)
    s.jump(root[PRODUCE_RESPONSE_ROOT_RESPONSES_AT])
    for i in range(answer.t.tables[2].count):
        breathe(i)
        row = row_of(&answer.t.tables[2], i, PRODUCE_RESPONSE_PARTITION_COLUMNS)
        code = OLD_CODES.get(row[PRODUCE_RESPONSE_PARTITION_ERROR_CODE])
        if code is not None:
            at = row[PRODUCE_RESPONSE_PARTITION_ERROR_CODE_AT]
            s.keep_to(at)
            put_int16(s.grow(2), code)
            s.jump(at + 2)
        if version < APPEND_TIME_FROM:
            s.keep_to(row[PRODUCE_RESPONSE_PARTITION_LOG_APPEND_TIME_MS_AT])
            s.jump(row[PRODUCE_RESPONSE_PARTITION_END])
    s.keep_to(root[PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS_AT])
    if version >= THROTTLE_FROM:
        s.keep_to(answer.view.len)
    return s.finish()
