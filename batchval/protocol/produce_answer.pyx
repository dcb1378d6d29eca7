"""The answer to a Produce request (versions 3 to 13): looked at, written without a broker, merged with a broker's.

    topics: (name or id, partitions: (index error_code base_offset log_append_time_ms log_start_offset (5+)
             record_errors error_message (8+) tags) tags) throttle_time_ms tags

A refused partition is answered as a broker answers it: its error, offsets and times -1, and from version 8 on the
records that were the reason, and a sentence. An answer never says of a partition what nobody has decided.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t

from batchval.protocol.cursor cimport (
    Cursor, open_cursor, put_int16, put_int32, put_int64, read_int32, read_int64, skip_tags,
)
from batchval.protocol.produce cimport ProduceRequestView
from batchval.protocol.splice cimport Splicer, splicer
from batchval.protocol.tables cimport row_of
from batchval.protocol.views cimport FrameView
from batchval.protocol.walks cimport (
    PRODUCE_REQUEST_PARTITION_COLUMNS, PRODUCE_REQUEST_PARTITION_INDEX, PRODUCE_REQUEST_PARTITION_PARENT,
    PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT, PRODUCE_REQUEST_TOPIC_START, PRODUCE_RESPONSE_PARTITION_BASE_OFFSET_AT,
    PRODUCE_RESPONSE_PARTITION_COLUMNS, PRODUCE_RESPONSE_PARTITION_END, PRODUCE_RESPONSE_PARTITION_ERROR_CODE,
    PRODUCE_RESPONSE_PARTITION_ERROR_CODE_AT, PRODUCE_RESPONSE_PARTITION_INDEX, PRODUCE_RESPONSE_PARTITION_PARENT,
    PRODUCE_RESPONSE_PARTITION_START, PRODUCE_RESPONSE_ROOT_COLUMNS, PRODUCE_RESPONSE_ROOT_RESPONSES_AT,
    PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS, PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS_AT, PRODUCE_RESPONSE_TOPIC_COLUMNS,
    PRODUCE_RESPONSE_TOPIC_END, PRODUCE_RESPONSE_TOPIC_NAME, PRODUCE_RESPONSE_TOPIC_NAME_SIZE,
    PRODUCE_RESPONSE_TOPIC_PARTITION_RESPONSES_AT, PRODUCE_RESPONSE_TOPIC_START, PRODUCE_RESPONSE_TOPIC_TAGS,
    walk_produce_response,
)

from batchval.protocol.errors import ProtocolError

cdef enum:
    FLEXIBLE_FROM = 9
    RECORD_ERRORS_FROM = 8
    LOG_START_OFFSET_FROM = 5


@cython.final
@cython.no_gc
cdef class ProduceResponseView(FrameView):
    """A Produce response's frame, without its length; its version is the request's. Raises ProtocolError."""

    def __init__(self, frame, int api_version):
        cdef Cursor *c = &self.c
        self.hold(frame)
        self.api_version = api_version
        self.correlation_id = read_int32(c)
        c.flexible = api_version >= FLEXIBLE_FROM
        with nogil:
            skip_tags(c)
            walk_produce_response(c, api_version, &self.t)
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
        """The topic's name of partition ``i``; None from version 13 on."""
        cdef const int32_t *row = self.topic_row(self.row(i)[PRODUCE_RESPONSE_PARTITION_PARENT])
        if row[PRODUCE_RESPONSE_TOPIC_NAME_SIZE] < 0:
            return None
        return self.text(row[PRODUCE_RESPONSE_TOPIC_NAME], row[PRODUCE_RESPONSE_TOPIC_NAME_SIZE])

    def partition(self, Py_ssize_t i):
        return self.row(i)[PRODUCE_RESPONSE_PARTITION_INDEX]

    def error_code(self, Py_ssize_t i):
        return self.row(i)[PRODUCE_RESPONSE_PARTITION_ERROR_CODE]

    def error_code_at(self, Py_ssize_t i):
        """Where the error code (int16) stands in the frame."""
        return self.row(i)[PRODUCE_RESPONSE_PARTITION_ERROR_CODE_AT]

    def base_offset(self, Py_ssize_t i):
        cdef Cursor c
        open_cursor(&c, self.base(), self.view.len, False)
        c.at += self.row(i)[PRODUCE_RESPONSE_PARTITION_BASE_OFFSET_AT]
        return read_int64(&c)

    def base_offset_at(self, Py_ssize_t i):
        """Where the base offset (int64) stands in the frame."""
        return self.row(i)[PRODUCE_RESPONSE_PARTITION_BASE_OFFSET_AT]


cdef int put_refusal(Splicer s, int version, int32_t partition, object refusal) except -1:
    """One partition's answer: (error_code, [(batch_index, message or None)], error_message or None)."""
    cdef uint8_t *p
    cdef int32_t index
    error_code, record_errors, message = refusal
    if error_code == 0:
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


cdef dict topics_of(ProduceResponseView answer):
    """Topic's head (name or id, as it is written) -> [row, {partition: row}], in the answer's order."""
    cdef Py_ssize_t i
    cdef const int32_t *row
    cdef list by_row = []
    found = {}
    for i in range(answer.t.tables[1].count):
        row = answer.topic_row(i)
        head = bytes(answer.whole[row[PRODUCE_RESPONSE_TOPIC_START]:row[PRODUCE_RESPONSE_TOPIC_PARTITION_RESPONSES_AT]])
        entry = found.get(head)
        if entry is None:
            entry = found[head] = (i, {})
        by_row.append(entry)
    for i in range(answer.t.tables[2].count):
        row = row_of(&answer.t.tables[2], i, PRODUCE_RESPONSE_PARTITION_COLUMNS)
        by_row[row[PRODUCE_RESPONSE_PARTITION_PARENT]][1][row[PRODUCE_RESPONSE_PARTITION_INDEX]] = i
    return found


cdef int put_partition(Splicer s, ProduceResponseView answer, Py_ssize_t i) except -1:
    cdef const int32_t *row = answer.row(i)
    s.keep(row[PRODUCE_RESPONSE_PARTITION_START], row[PRODUCE_RESPONSE_PARTITION_END])
    return 0


cdef int put_topics(Splicer s, ProduceRequestView request, list refusals, ProduceResponseView answer) except -1:
    """The topics in the order of the request; what the answer has beside them comes last."""
    cdef Py_ssize_t i = 0, topic
    cdef const int32_t *row
    cdef int version = request.api_version
    answered = {} if answer is None else topics_of(answer)
    planned = []  # (head, [partition and its refusal, or its row in the answer], row of the answer's topic or -1)
    for topic in range(request.t.tables[1].count):
        row = request.topic_row(topic)
        head = bytes(request.whole[row[PRODUCE_REQUEST_TOPIC_START]:row[PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT]])
        number, rows = answered.get(head, (-1, {}))
        parts = []
        while i < request.count:
            row = row_of(&request.t.tables[2], i, PRODUCE_REQUEST_PARTITION_COLUMNS)
            if row[PRODUCE_REQUEST_PARTITION_PARENT] != topic:
                break
            if refusals[i] is not None:
                parts.append((row[PRODUCE_REQUEST_PARTITION_INDEX], refusals[i]))
            elif (there := rows.pop(row[PRODUCE_REQUEST_PARTITION_INDEX], None)) is not None:
                parts.append(there)
            i += 1
        if parts:
            planned.append((head, parts, number))
    for head, (number, rows) in answered.items():
        if rows:
            planned.append((head, list(rows.values()), number))
    s.put_length(len(planned), 4)
    for head, parts, number in planned:
        s.put(head)
        s.put_length(len(parts), 4)
        for part in parts:
            if isinstance(part, tuple):
                put_refusal(s, version, part[0], part[1])
            else:
                put_partition(s, answer, part)
        if number >= 0:
            row = answer.topic_row(number)
            s.keep(row[PRODUCE_RESPONSE_TOPIC_TAGS], row[PRODUCE_RESPONSE_TOPIC_END])
        elif version >= FLEXIBLE_FROM:
            s.grow(1)[0] = 0
    return 0


cdef list checked(ProduceRequestView request, object refusals):
    found = list(refusals)
    if len(found) != request.count:
        raise ProtocolError(f"{len(found)} answers for {request.count} partitions")
    return found


def refuse(ProduceRequestView request not None, refusals, *, correlation_id=None, int throttle_time_ms=0):
    """The frame that answers a request no partition of which was forwarded, in chunks.

    ``refusals``  for each partition (error_code, [(batch_index, message or None), …], error_message or None);
                  before version 8 only the code is written
    """
    cdef Splicer s = splicer(b"", b"", request.api_version >= FLEXIBLE_FROM)
    cdef list given = checked(request, refusals)
    if None in given:
        raise ProtocolError("a partition without a refusal cannot be answered here")
    put_int32(s.grow(4), request.correlation_id if correlation_id is None else correlation_id)
    if request.api_version >= FLEXIBLE_FROM:
        s.grow(1)[0] = 0
    put_topics(s, request, given, None)
    put_int32(s.grow(4), throttle_time_ms)
    if request.api_version >= FLEXIBLE_FROM:
        s.grow(1)[0] = 0
    return s.finish()


def merge(ProduceRequestView request not None, refusals, ProduceResponseView answer not None, *, correlation_id=None):
    """The frame that answers a request some partitions of which were forwarded, in chunks.

    ``refusals``  as for ``refuse``, None for the partitions that the broker's ``answer`` is about
    Topics and partitions stand in the request's order, the broker's own as it wrote them; throttle_time_ms and tagged
    fields are the broker's.
    """
    cdef Splicer s
    cdef const int32_t *root = answer.root()
    if answer.api_version != request.api_version:
        raise ProtocolError(f"an answer of version {answer.api_version} to a request of {request.api_version}")
    s = splicer(answer.whole, answer.base(), request.api_version >= FLEXIBLE_FROM)
    put_int32(s.grow(4), request.correlation_id if correlation_id is None else correlation_id)
    s.keep(4, root[PRODUCE_RESPONSE_ROOT_RESPONSES_AT])
    put_topics(s, request, checked(request, refusals), answer)
    s.keep(root[PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS_AT], answer.view.len)
    return s.finish()
