"""A Produce request (versions 0 to 13) on its way through a gate: looked at where it lies, written
again if it must be.

    header, [transactional_id (3+)] acks timeout_ms,
        topics: (name or id, partitions: (index, [records] tags) tags) tags

Nothing is decoded but what is asked for. ``rewritten`` gives the frame around untouched slices:
with another correlation id, without the partitions that were refused, with a claims tag put in or
taken out of each partition. The tag is 25206 in PartitionProduceData (Produce 9 and up, the
flexible versions); brokers ignore unknown tags. Versions 0 to 2, which Kafka 4 no longer knows,
are read where the caller allows it; they are written as version 3.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.protocol.cursor cimport (
    Cursor, open_cursor, position, put_int16, put_int32, put_uvarint, read_int16, read_int32,
    read_uvarint, skip, skip_tags, take, fail, LENGTH_NEGATIVE, NOT_THIS_VERSION, TOO_MANY_ROWS,
)
from batchval.protocol.primitives cimport explained
from batchval.protocol.walkers.splice cimport Splicer, splicer
from batchval.protocol.walkers.tables cimport Tables, row_of
from batchval.protocol.walkers.tags cimport TaggedField, find_tag
from batchval.protocol.walkers.positions cimport (
    PRODUCE_REQUEST_PARTITION_COLUMNS, PRODUCE_REQUEST_PARTITION_END,
    PRODUCE_REQUEST_PARTITION_INDEX,
    PRODUCE_REQUEST_PARTITION_PARENT, PRODUCE_REQUEST_PARTITION_RECORDS,
    PRODUCE_REQUEST_PARTITION_RECORDS_SIZE,
    PRODUCE_REQUEST_PARTITION_START, PRODUCE_REQUEST_PARTITION_TAGS, PRODUCE_REQUEST_ROOT_ACKS,
    PRODUCE_REQUEST_ROOT_COLUMNS, PRODUCE_REQUEST_ROOT_TAGS, PRODUCE_REQUEST_ROOT_TIMEOUT_MS,
    PRODUCE_REQUEST_ROOT_TOPIC_DATA_AT, PRODUCE_REQUEST_ROOT_TRANSACTIONAL_ID,
    PRODUCE_REQUEST_ROOT_TRANSACTIONAL_ID_SIZE, PRODUCE_REQUEST_TOPIC_COLUMNS,
    PRODUCE_REQUEST_TOPIC_END,
    PRODUCE_REQUEST_TOPIC_NAME, PRODUCE_REQUEST_TOPIC_NAME_SIZE,
    PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT,
    PRODUCE_REQUEST_TOPIC_START, PRODUCE_REQUEST_TOPIC_TAGS, PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT,
    locate_produce_request,
)

from batchval.protocol.errors import ProtocolError

CLAIMS_TAG = CLAIMS_FIELD

cdef enum:
    FLEXIBLE_FROM = 9


cdef bytes claims_field(object content):
    """Return the tagged field of claims: its tag, its size, its content."""
    cdef uint8_t head[16]
    cdef uint8_t *end = put_uvarint(put_uvarint(head, CLAIMS_FIELD), len(content))
    return PyBytes_FromStringAndSize(<char *>head, end - head) + bytes(content)


cdef void walk_bounded_request(Cursor *c, int version, Tables *t, Py_ssize_t most,
        int oldest=OLDEST_OF_KAFKA_4) noexcept nogil:
    """Walk a request from its header's tagged fields on. More than ``most`` topics or partitions
    (0: any number) are wrong before a table grows for them; so is a version below ``oldest``.
    """
    if version < oldest:
        fail(c, NOT_THIS_VERSION)
        return
    t.tables[1].most = most
    t.tables[2].most = most
    c.tags_left = MAX_TAGGED_FIELDS
    skip_tags(c)
    locate_produce_request(c, version, t)


@cython.final
@cython.no_gc
cdef class ProduceRequestView(FrameView):
    """A Produce request's frame, without its length. Partitions are counted through all topics, in
    request order.

    ``max_partitions`` bounds its partitions, and its topics; 0 does not. ``oldest`` is the first
    version that is read. Raises ProtocolError where the bytes are not a Produce request within
    these bounds, whatever they are.
    """

    def __init__(self, frame, *, Py_ssize_t max_partitions=0, int oldest=OLDEST_OF_KAFKA_4):
        cdef Cursor *c = &self.c
        cdef int key, size
        self.hold(frame)
        self.names = {}
        key = read_int16(c)
        self.api_version = read_int16(c)
        self.correlation_id = read_int32(c)
        if key != 0:
            raise ProtocolError(f"a Produce request has the key 0, not {key}", 0)
        size = read_int16(c)
        if size < -1:
            fail(c, LENGTH_NEGATIVE)
        self.client_id_at = <int32_t>position(c)
        self.client_id_size = size
        skip(c, max(size, 0))
        self.body_at = <int32_t>position(c)
        c.flexible = self.api_version >= FLEXIBLE_FROM
        with nogil:
            walk_bounded_request(c, self.api_version, &self.t, max_partitions, oldest)
        if c.wrong == TOO_MANY_ROWS:
            raise ProtocolError(
                f"more than {max_partitions} partitions or topics in one request", position(c))
        if c.wrong == NOT_THIS_VERSION:
            raise ProtocolError(f"Produce version {self.api_version} is not known here", 2)
        self.finish_walk()
        self.count = self.t.tables[2].count

    def __len__(self):
        return self.count

    @property
    def size(self):
        """Return the size of the frame, without its length."""
        return self.view.len

    @property
    def size_without_records(self):
        """Return the size of all but the record batches: names, numbers and tagged fields."""
        cdef Py_ssize_t i
        cdef int64_t records = 0
        for i in range(self.count):
            records += max(self.partition_row(i)[PRODUCE_REQUEST_PARTITION_RECORDS_SIZE], 0)
        return self.view.len - records

    cdef const int32_t *partition_row(self, Py_ssize_t i) except NULL:
        if i < 0 or i >= self.count:
            raise IndexError(f"partition {i} of {self.count}")
        return row_of(&self.t.tables[2], i, PRODUCE_REQUEST_PARTITION_COLUMNS)

    cdef const int32_t *topic_row(self, Py_ssize_t i):
        return row_of(&self.t.tables[1], i, PRODUCE_REQUEST_TOPIC_COLUMNS)

    cdef const int32_t *root(self):
        return row_of(&self.t.tables[0], 0, PRODUCE_REQUEST_ROOT_COLUMNS)

    @property
    def is_raised(self):
        """Return whether ``rewritten`` writes another version, because this one is below 3."""
        return self.api_version < OLDEST_OF_KAFKA_4

    @property
    def written_version(self):
        """Return the version that ``rewritten`` writes."""
        return max(self.api_version, OLDEST_OF_KAFKA_4)

    @property
    def client_id(self):
        return None if self.client_id_size < 0 else self.text(self.client_id_at,
                self.client_id_size)

    @property
    def transactional_id(self):
        cdef int32_t size = self.root()[PRODUCE_REQUEST_ROOT_TRANSACTIONAL_ID_SIZE]
        return None if size < 0 else self.text(self.root()[PRODUCE_REQUEST_ROOT_TRANSACTIONAL_ID],
                size)

    @property
    def acks(self):
        return self.root()[PRODUCE_REQUEST_ROOT_ACKS]

    @property
    def timeout_ms(self):
        return self.root()[PRODUCE_REQUEST_ROOT_TIMEOUT_MS]

    @property
    def expects_response(self):
        return self.root()[PRODUCE_REQUEST_ROOT_ACKS] != 0

    def topic(self, Py_ssize_t i, Py_ssize_t longest=-1):
        """Return the topic's name of partition ``i``, at most ``longest`` bytes of it (-1: all).

        None from version 13 on, which has ids.
        """
        cdef int32_t number = self.partition_row(i)[PRODUCE_REQUEST_PARTITION_PARENT]
        cdef const int32_t *row = self.topic_row(number)
        cdef int32_t size = row[PRODUCE_REQUEST_TOPIC_NAME_SIZE]
        if size < 0:
            return None
        if 0 <= longest < size:
            return self.text(row[PRODUCE_REQUEST_TOPIC_NAME], longest)
        name = self.names.get(number)
        if name is None:
            name = self.text(row[PRODUCE_REQUEST_TOPIC_NAME], size)
            self.names[number] = name
        return name

    def topic_id(self, Py_ssize_t i):
        """Return the topic's id (16 bytes) of partition ``i``; None before version 13."""
        cdef int32_t at = self.topic_row(self.partition_row(i)[PRODUCE_REQUEST_PARTITION_PARENT])[
            PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT]
        return None if at < 0 else PyBytes_FromStringAndSize(<char *>self.base() + at, 16)

    def partition(self, Py_ssize_t i):
        """Return the partition's number in its topic."""
        return self.partition_row(i)[PRODUCE_REQUEST_PARTITION_INDEX]

    def records(self, Py_ssize_t i):
        """Return the record batches, a slice of the frame; None for null."""
        cdef const int32_t *row = self.partition_row(i)
        cdef Py_ssize_t at = row[PRODUCE_REQUEST_PARTITION_RECORDS], size = row[PRODUCE_REQUEST_PARTITION_RECORDS_SIZE]
        return None if size < 0 else self.whole[at:at + size]

    def ranges(self):
        """Return (start, length) in the frame of each partition's record batches, for check_ranges.

        Null has length 0.
        """
        cdef const int32_t *row
        cdef Py_ssize_t i
        cdef list found = []
        for i in range(self.count):
            row = row_of(&self.t.tables[2], i, PRODUCE_REQUEST_PARTITION_COLUMNS)
            found.append((row[PRODUCE_REQUEST_PARTITION_RECORDS],
                    max(row[PRODUCE_REQUEST_PARTITION_RECORDS_SIZE], 0)))
        return found

    cdef int find_claims(self, const int32_t *row, TaggedField *field) except -1:
        """Return how often the partition has the claims tag."""
        field.found = 0
        if self.api_version < FLEXIBLE_FROM:
            return 0
        if not find_tag(self.base(), row[PRODUCE_REQUEST_PARTITION_TAGS],
                row[PRODUCE_REQUEST_PARTITION_END],
                        CLAIMS_FIELD, field):
            raise ProtocolError("the frame changed after it was walked")
        return field.found

    def claims(self, Py_ssize_t i):
        """Return the content of the claims tag of partition ``i``. None without one, or with
        several.
        """
        cdef TaggedField field
        if self.find_claims(self.partition_row(i), &field) != 1:
            return None
        return PyBytes_FromStringAndSize(<char *>self.base() + field.content, field.size)

    @property
    def has_claims(self):
        """Return whether any partition has a claims tag."""
        cdef TaggedField field
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.find_claims(self.partition_row(i), &field):
                return True
        return False

    cdef bytes tags_with(self, const int32_t *row, object claims):
        """Return the partition's tagged fields with these claims instead of any others, in the
        order of their tags.
        """
        cdef Cursor c
        cdef int64_t n, tag, length, start
        cdef bytes wanted
        cdef uint8_t head[16]
        cdef uint8_t *end
        fields = []
        open_cursor(&c, self.base(), row[PRODUCE_REQUEST_PARTITION_END], True)
        c.at += row[PRODUCE_REQUEST_PARTITION_TAGS]
        n = read_uvarint(&c)
        while n > 0 and not c.wrong:
            n -= 1
            start = position(&c)
            tag = read_uvarint(&c)
            length = read_uvarint(&c)
            take(&c, length)
            if claims is not None and tag > CLAIMS_FIELD:
                fields.append(claims_field(claims))
                claims = None
            if tag != CLAIMS_FIELD:
                fields.append(PyBytes_FromStringAndSize(<char *>self.base() + start,
                        position(&c) - start))
        if c.wrong:
            raise explained(&c)
        if claims is not None:
            fields.append(claims_field(claims))
        end = put_uvarint(head, len(fields))
        wanted = PyBytes_FromStringAndSize(<char *>head, end - head)
        return wanted + b"".join(fields)

    def rewritten(self, *, correlation_id=None, keep=None, claims=None, batches=None):
        """Return the frame to send on, with its length, in chunks. What stays is slices of this
        frame.

        A version below 3 is written as version 3: its records must be batches of magic 2 then.

        ``keep``     None for all partitions, or for each whether it stays (at least one must;
                     topics left empty go)
        ``claims``   None to leave tags as they came, or for each partition bytes to put in,
                     None to have no claims
        ``batches``  None to leave records as they came, or for each partition the bytes in their
                     place, None as they came
        """
        cdef Splicer s = splicer(self.whole, self.base(), self.api_version >= FLEXIBLE_FROM)
        cdef Py_ssize_t size = self.view.len
        s.keep(0, 2)
        if self.api_version < OLDEST_OF_KAFKA_4:
            put_int16(s.grow(2), OLDEST_OF_KAFKA_4)
            s.jump(4)
        else:
            s.keep(2, 4)
        if correlation_id is not None:
            put_int32(s.grow(4), correlation_id)
        else:
            s.keep(4, 8)
        s.keep(8, self.body_at)
        if self.api_version < OLDEST_OF_KAFKA_4:
            put_int16(s.grow(2), -1)  # transactional_id
        if keep is None and claims is None and batches is None:
            s.keep(self.body_at, size)
            return s.finish()
        for each in (keep, claims, batches):
            if each is not None and len(each) != self.count:
                raise ProtocolError(f"{len(each)} answers for {self.count} partitions")
        self.write_topics(s, keep, claims, batches)
        s.keep(self.root()[PRODUCE_REQUEST_ROOT_TAGS], size)
        return s.finish()

    cdef int write_topics(self, Splicer s, object keep, object claims, object batches) except -1:
        """Write the topics, each with the partitions that stay."""
        cdef Py_ssize_t topics = self.t.tables[1].count, topic, i, first = 0, last, staying
        cdef const int32_t *row
        cdef const int32_t *part
        cdef int32_t start
        cdef list kept = [0] * topics
        for i in range(self.count):
            if keep is None or keep[i]:
                row = self.partition_row(i)
                kept[row[PRODUCE_REQUEST_PARTITION_PARENT]] += 1
        if keep is not None and not any(kept):
            raise ProtocolError("a request without partitions is not sent on")
        s.keep(self.body_at, self.root()[PRODUCE_REQUEST_ROOT_TOPIC_DATA_AT])
        s.put_length(topics if keep is None else sum(1 for n in kept if n), 4)
        for topic in range(topics):
            row = self.topic_row(topic)
            staying = kept[topic]
            last = first
            while last < self.count and self.partition_row(last)[PRODUCE_REQUEST_PARTITION_PARENT] == topic:
                last += 1
            if keep is None or staying:
                s.keep(row[PRODUCE_REQUEST_TOPIC_START],
                        row[PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT])
                s.put_length(staying, 4)
                for i in range(first, last):
                    if keep is not None and not keep[i]:
                        continue
                    part = self.partition_row(i)
                    if batches is None or batches[i] is None:
                        s.keep(part[PRODUCE_REQUEST_PARTITION_START],
                                part[PRODUCE_REQUEST_PARTITION_TAGS])
                    else:
                        start = part[PRODUCE_REQUEST_PARTITION_START]
                        s.keep(start, start + 4)
                        s.put_length(len(batches[i]), 4)
                        s.put(batches[i])
                    if claims is None:
                        s.keep(part[PRODUCE_REQUEST_PARTITION_TAGS],
                                part[PRODUCE_REQUEST_PARTITION_END])
                    elif self.api_version >= FLEXIBLE_FROM:
                        s.put(self.tags_with(part, claims[i]))
                    elif claims[i] is not None:
                        raise ProtocolError(f"Produce version {self.api_version} has no tagged fields for claims")
                s.keep(row[PRODUCE_REQUEST_TOPIC_TAGS], row[PRODUCE_REQUEST_TOPIC_END])
            first = last
        return 0
