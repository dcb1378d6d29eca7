"""The fast path of one session: frames that need no more than another correlation id.

    request   length:4 api_key:2 api_version:2 correlation_id:4 …     gets the id by which the broker is asked
    answer    length:4 correlation_id:4 …                             gets the client's own back

Most Produce requests hold one batch that is accepted; its claims, if it has any, are a tag that is
cut out where it stands, and claims that were computed here are put in. Requests and answers that
need more are not touched: ``take`` and ``give`` return how far they came, and a handler takes the
next one.

In the queue of answers an int stands for one that is passed on: the client's correlation id, with
the version above its 32 bits if it is a Produce answer or, marked by bit 48, a Fetch answer: both
say how long the client is to wait.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memmove

from batchval.core.gate cimport (
    ATTRIBUTES, CLAIMS_TRUSTED, CODEC_MASK, CRC, IGNORE_CLAIMS, MAGIC, NO_CLAIMS, PATH_CLAIMS,
    TRUST_CLAIMS, Accepted, ClaimsCall, LogValidator, accepted_by_claims, accepts, be16, be32,
    has_payload_claims, read_tag,
)
from batchval.ledger.sender_trust cimport TRUSTED
from batchval.protocol.walkers.api_keys cimport API_VERSIONS, FETCH, PRODUCE
from batchval.protocol.walkers.broker_requests cimport comes_from_broker
from batchval.protocol.cursor cimport (
    Cursor, open_cursor, position, put_int32, read_int16, skip, skip_tags,
)
from batchval.protocol.frame_memory cimport Block, allocated
from batchval.protocol.frames cimport FrameSplitter
from batchval.protocol.walkers.produce cimport CLAIMS_FIELD, claims_field, walk_bounded_request
from batchval.protocol.walkers.splice cimport Splicer, splicer
from batchval.protocol.walkers.tables cimport close_tables, open_tables, row_of
from batchval.protocol.walkers.tags cimport TaggedField, find_tag
from batchval.proxy.session.socket_transport cimport (
    ALL, LOOK, OPEN, REST, SPENT, STOPPED, Passage, Passed, SocketTransport,
)
from batchval.proxy.watch.request_latency cimport (
    MeasuredRequest, Traffic, UnderWay, now_ns, wall_ms,
)
from batchval.proxy.produce.verdicts cimport MAX_TOPIC_LENGTH, announced_work, carrying, tag_of
from batchval.protocol.walkers.positions cimport (
    PRODUCE_REQUEST_PARTITION_COLUMNS, PRODUCE_REQUEST_PARTITION_END,
    PRODUCE_REQUEST_PARTITION_RECORDS,
    PRODUCE_REQUEST_PARTITION_RECORDS_SIZE, PRODUCE_REQUEST_PARTITION_START,
    PRODUCE_REQUEST_PARTITION_TAGS, PRODUCE_REQUEST_ROOT_ACKS,
    PRODUCE_REQUEST_ROOT_COLUMNS, PRODUCE_REQUEST_TOPIC_COLUMNS, PRODUCE_REQUEST_TOPIC_NAME,
    PRODUCE_REQUEST_TOPIC_NAME_SIZE, PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT, locate_produce_response,
)

from batchval.core.batches import result

cdef extern from *:
    # cpython.memoryview of Cython 3.3 says Py_buffer *: GCC 14 refuses what it generates
    PyObject *PyMemoryView_GET_BASE(object view)

cdef enum:
    FETCH_FLEXIBLE_FROM = 12
    FETCH_BIT = 48
    FLEXIBLE_FROM = 9
    NODE_ENDPOINTS_FROM = 10
    TOPIC_IDS_FROM = 13
    TOPIC_ID_SIZE = 16
    INDEX_SIZE = 4  # of a partition, before its records
    NODES = 3  # the table of the answer's walk
    REQUEST_HEADER = 12
    ANSWER_HEADER = 8
    MIN_BYTES_WITH_CODEC = ATTRIBUTES + 2
    MAX_PASSED = 1 << 20  # bytes of a request that is written at once
    MAX_WORK = 256 << 10  # bytes walked in one call between two looks at the clock
    SLICE_NS = 1_000_000  # of a call, at such a look: others have their turn
    EACH_COMPRESSED = 4 << 10  # what a decoder costs before its first byte, in bytes walked
    EACH_CLIENT = 4 << 10  # what another client id costs, in bytes walked
    CLIENT_ID = REQUEST_HEADER + 2  # where it stands, after its size
    NULL_CLIENT_ID = -1
    NO_CLIENT = -2  # no request has come yet
    MAX_CLIENT_ID_BYTES = 256  # bytes that are compared


cdef inline int32_t following(int32_t wire_id) noexcept nogil:
    return <int32_t>((<uint32_t>wire_id + 1) & 0x7fffffff)


cdef int pass_on(object to, list out) except -1:
    """Write frames to the other side of a session."""
    if type(to) is SocketTransport:
        if (<SocketTransport>to).life == OPEN:
            (<SocketTransport>to).send(out)
    else:
        to.writelines(out)
    return 0


cdef inline object a_view(object frame):
    if not PyMemoryView_Check(frame):
        raise TypeError(f"frames are memoryviews, as FrameSplitter gives them, not {type(frame).__name__}")
    return frame


cdef inline void forget_rows(Tables *t) noexcept nogil:
    """Clear the rows and keep their memory for the next walk."""
    cdef int i
    for i in range(4):
        t.tables[i].count = 0
    t.tag_at = t.tag_end = -1


cdef inline Py_ssize_t drop_tag(uint8_t *p, Py_ssize_t size, Py_ssize_t tags,
        Py_ssize_t end) noexcept:
    """Empty the tagged fields at base[tags:end], base after the length; return the new size."""
    cdef uint8_t *base = p + 4
    base[tags] = 0
    memmove(base + tags + 1, base + end, size - 4 - end)
    size -= end - (tags + 1)
    put_int32(p, <int32_t>(size - 4))
    return size


@cython.final
cdef class Routes:
    """The APIs that pass through: {key: (first version, last, first with changed answers)}.

    ``clients_only``  keys of APIs whose requests do not pass through if only brokers send them
    """

    def __init__(self, routes, clients_only=()):
        cdef int key
        for key in range(API_KEYS):
            self.of[key].first = 0
            self.of[key].last = -1
            self.of[key].checks_broker = key in clients_only
        for key, (first, last, changed_from) in routes.items():
            if 0 <= key < API_KEYS:
                self.of[key].first = first
                self.of[key].last = last
                self.of[key].changed_from = changed_from


@cython.final
cdef class FastPath:
    """The fast path of one session. ``answers`` is its queue (a deque), which the session shares.

    ``topic_names``         {topic id: name} of the topics that brokers have confirmed
    ``spent``               ``take`` has stopped because validating in this turn of the loop took
                            enough
    ``is_clients``          a client may send the request at which ``take`` stopped; False where that
                            was not looked at
    ``tried``               the batch at which ``take`` stopped decompresses to too much: validate
                            it in a thread
    ``sent``, ``received``  correlation ids towards the broker: of the last request, of the last
                            answer
    ``decision``            what the ledger decided for the claims of the request at which ``take``
                            stopped, or None
    ``taken_ns``            when the requests came that are being taken
    ``since_ns``            set it where they came before and had to wait for their turn; else 0
    """

    def __cinit__(self, *args):
        open_tables(&self.t)

    def __dealloc__(self):
        close_tables(&self.t)

    def __init__(self, Routes routes, gate, counters, answers, topic_names, Traffic traffic=None):
        self.routes = routes
        self.follow(gate)
        self.counters = counters
        self.answers = answers
        self.append = answers.append
        self.popleft = answers.popleft
        self.topic_names = topic_names
        self.sender = ""
        self.client_id_size = NO_CLIENT
        self.more_uses = {}
        self.use_keys = []
        self.traffic = Traffic() if traffic is None else traffic
        self.under_way = UnderWay()

    def follow(self, gate):
        """Validate by this gate from the next request on. Not within ``take``."""
        self.gate = gate
        self.ledger = gate.ledger
        self.validators_of = gate.validators_of
        self.quick = gate.quick
        self.whole = gate.validator
        self.validates = gate.validates
        self.makes_claims = gate.claims_out != "none"
        self.makes_payloads = gate.claims_out == "payload"
        self.inline_compressed = gate.inline_compressed
        self.inline_uncompressed = gate.inline_uncompressed
        self.inline_work = gate.inline_work

    def watch(self, client_changed):
        """Call ``client_changed(client_id)`` before the first request of each client id is counted.

        It gets at most MAX_CLIENT_ID_BYTES bytes, or None for null.
        """
        self.client_changed = client_changed

    def route(self, Routes routes not None):
        """Take these from the next request on."""
        self.routes = routes

    def name(self, str sender):
        """Set the sender to whom the connection's claims belong."""
        self.sender = sender

    def measure(self, Traffic traffic not None):
        """Count requests and their durations in ``traffic`` from now on."""
        self.count_uses()
        self.traffic = traffic

    # ---- requests --------------------------------------------------------------------------------

    cpdef Py_ssize_t take(self, list frames, Py_ssize_t i, int64_t now_ms,
            list out) except -1:
        """Take requests from the i-th on while the fast path suffices, and append what goes to the
        broker to ``out``.

        Return the number of the first request that was not taken.
        """
        cdef uint8_t *p
        cdef Py_ssize_t size
        cdef int key, version
        cdef int32_t correlation_id
        cdef int yes
        cdef bint failed = True
        cdef int32_t before = self.sent
        cdef int64_t most_work = MAX_WORK, began = now_ns()
        self.now_ms = now_ms
        self.taken_ns = self.since_ns or began
        self.only_one = self.gate.topics.only_one
        self.decision = None
        self.trust = None
        self.spent = self.tried = self.is_clients = False
        self.work = 0
        try:
            while i < len(frames):
                if self.work > most_work:
                    if now_ns() - began > SLICE_NS:
                        self.spent = True
                        break
                    most_work = self.work + MAX_WORK
                frame = a_view(frames[i])
                p = <uint8_t *>PyMemoryView_GET_BUFFER(frame).buf
                size = PyMemoryView_GET_BUFFER(frame).len
                if size < REQUEST_HEADER or PyMemoryView_GET_BUFFER(frame).readonly:
                    break
                key = be16(p + 4)
                version = be16(p + 6)
                correlation_id = be32(p + 8)
                self.is_clients = False
                if not 0 <= key < API_KEYS:
                    break
                if not self.routes.of[key].first <= version <= self.routes.of[key].last:
                    break
                if not self.is_same_client(p, size):
                    self.change_client(p, size)
                if key == PRODUCE:
                    yes = self.produce(frame, p, size, version, correlation_id, out)
                else:
                    yes = self.other(frame, p, size, key, version, correlation_id, out)
                if not yes:
                    break
                if self.use >= self.used or (key << 16 | version) != self.uses[self.use].pair:
                    self.find_use(key << 16 | version)
                self.uses[self.use].requests += 1
                self.taken += 1
                self.taken_bytes += size
                self.served.request_bytes += size
                i += 1
            failed = False
        finally:
            if failed:
                self.run.frames = 0
                self.run_first = None
        self.flush(out)
        self.count()
        if self.sent != before:
            self.under_way.mark_sent(following(before), self.sent, now_ns())
        return i

    cdef int other(self, object frame, uint8_t *p, Py_ssize_t size, int key, int version,
            int32_t correlation_id, list out) except -1:
        cdef Cursor c
        if self.routes.of[key].checks_broker:
            open_cursor(&c, p + 4, size - 4, False)
            if comes_from_broker(&c, key, version) or c.wrong:
                return False
            self.work += position(&c)
            self.is_clients = True
        if key == API_VERSIONS or version >= self.routes.of[key].changed_from:
            return False
        if key == FETCH:
            self.append(<int64_t>1 << FETCH_BIT | <int64_t>version << 32 | <uint32_t>correlation_id)
        else:
            self.append(correlation_id)
        self.sent = following(self.sent)
        self.note_place(key, self.taken_ns)
        put_int32(p + 8, self.sent)
        self.add(frame, p, p + size, out)
        return True

    cdef int produce(self, object frame, uint8_t *p, Py_ssize_t size, int version,
            int32_t correlation_id, list out) except -1:
        cdef Cursor c
        cdef TaggedField tag
        cdef const int32_t *row
        cdef uint8_t *base = p + 4
        cdef Py_ssize_t client_id_size, batch_size
        cdef int path = -1
        cdef list chunks = None
        self.base = base
        self.found.has_claims = False
        open_cursor(&c, base, size - 4, False)
        skip(&c, 8)
        client_id_size = read_int16(&c)
        if client_id_size < -1:
            return False
        skip(&c, max(client_id_size, 0))
        c.flexible = version >= FLEXIBLE_FROM
        forget_rows(&self.t)
        # a second partition ends the walk: no table grows here
        walk_bounded_request(&c, version, &self.t, 1)
        if c.wrong or self.t.tables[2].count != 1 or self.t.tables[1].count != 1:
            return False
        row = row_of(&self.t.tables[2], 0, PRODUCE_REQUEST_PARTITION_COLUMNS)
        if version >= TOPIC_IDS_FROM:
            self.named = self.topic_names.get(self.topic_id())
            if self.named is None:
                return False  # the broker has to be asked
        batch_size = row[PRODUCE_REQUEST_PARTITION_RECORDS_SIZE]
        tag.found = 0
        tag.content = tag.size = 0
        if version >= FLEXIBLE_FROM:
            if not find_tag(base, row[PRODUCE_REQUEST_PARTITION_TAGS],
                    row[PRODUCE_REQUEST_PARTITION_END], CLAIMS_FIELD, &tag):
                return False
            if (tag.found and tag.fields != 1) or (tag.fields and self.makes_claims):
                return False  # others' fields stay, or new claims take the place of those
        if has_payload_claims(base + row[PRODUCE_REQUEST_PARTITION_RECORDS], max(batch_size, 0)):
            return False  # they do not go on, and the batch becomes shorter
        if self.validates:
            if batch_size < MIN_BYTES_WITH_CODEC:
                return False
            if tag.found:
                path = self.validate(base + row[PRODUCE_REQUEST_PARTITION_RECORDS], batch_size,
                        version, base + tag.content, tag.size)
            else:
                path = self.validate(base + row[PRODUCE_REQUEST_PARTITION_RECORDS], batch_size,
                        version, NULL, 0)
            if path == 0:
                return False
            self.by_path[path] += 1
            self.partitions += 1
        if tag.found:
            self.dropped += 1
            size = drop_tag(
                p, size, row[PRODUCE_REQUEST_PARTITION_TAGS], row[PRODUCE_REQUEST_PARTITION_END]
            )
        self.produced += 1
        if row_of(&self.t.tables[0], 0,
                PRODUCE_REQUEST_ROOT_COLUMNS)[PRODUCE_REQUEST_ROOT_ACKS] == 0:
            put_int32(p + 8, 0)
        else:
            self.append(<int64_t>version << 32 | <uint32_t>correlation_id)
            self.sent = following(self.sent)
            self.note_place(PRODUCE, self.taken_ns)
            put_int32(p + 8, self.sent)
        if self.makes_claims and self.found.has_claims:
            chunks = self.with_claims(frame, size, row, version)
        if chunks is None:
            self.add(frame, p, p + size, out)
        else:
            self.flush(out)
            out.extend(chunks)
        return True

    cdef list with_claims(self, object frame, Py_ssize_t size, const int32_t *row, int version):
        """Return the frame, whose partition has no tagged fields, with the claims of its batch;
        None where they have no place.
        """
        cdef Splicer s
        cdef const uint8_t *batch = self.base + row[PRODUCE_REQUEST_PARTITION_RECORDS]
        cdef bytes carried = None
        if not batch[ATTRIBUTES + 1] & CODEC_MASK:
            return None
        if self.makes_payloads:
            carried = carrying(batch, row[PRODUCE_REQUEST_PARTITION_RECORDS_SIZE],
                               &self.found.claims, self.most_bytes)
        if carried is None and version < FLEXIBLE_FROM:
            return None
        s = splicer(frame[4:], self.base, version >= FLEXIBLE_FROM)
        if carried is not None:
            s.keep(0, row[PRODUCE_REQUEST_PARTITION_START] + INDEX_SIZE)
            s.put_length(len(carried), 4)
            s.put(carried)
            s.keep(row[PRODUCE_REQUEST_PARTITION_TAGS], size - 4)
            self.payloads_added += 1
        else:
            s.keep(0, row[PRODUCE_REQUEST_PARTITION_TAGS])
            s.put(b"\1" + claims_field(tag_of(&self.found.claims, batch)))
            s.keep(row[PRODUCE_REQUEST_PARTITION_END], size - 4)
            self.tags_added += 1
        return s.finish()

    cdef int validate(self, const uint8_t *batch, Py_ssize_t size, int version, const uint8_t *tag,
            Py_ssize_t tag_size) except -1:
        """Return the path by which the batch was accepted; 0: the full check must decide."""
        cdef ClaimsCall call
        cdef LogValidator quick = self.quick, whole = self.whole
        cdef bint is_compressed = batch[ATTRIBUTES + 1] & CODEC_MASK
        cdef Accepted *found = &self.found
        cdef int path
        if batch[MAGIC] < 2:
            return 0
        if announced_work(batch, size) > self.inline_work:
            return 0
        if not is_compressed and size > self.inline_uncompressed:
            return 0
        if not self.only_one:
            quick, whole = self.validators_of(
                    self.topic() if version < TOPIC_IDS_FROM else self.named)
            if quick is None:
                return 0  # custom rules look at the records
        self.most_bytes = quick.compiled.max_message_bytes
        call.policy = IGNORE_CLAIMS
        call.tagged = False
        call.wants_ids = self.makes_claims
        if tag is not NULL and self.ledger is not None:
            if not whole.context.strict:
                return 0
            if self.trust is None:
                self.trust = self.ledger.trust_of(self.sender, self.now_ms)
            call.policy = self.trust.decide(<uint32_t>be32(batch + CRC), self.now_ms)
            read_tag(tag, tag_size, &call)
            if call.policy == TRUST_CLAIMS and accepted_by_claims(
                    whole, batch, size, self.now_ms, version, &call):
                self.trust.note(TRUSTED, 1, self.now_ms)
                return PATH_CLAIMS
            self.decision = "trust" if call.policy == TRUST_CLAIMS else "verify"
        if is_compressed and size > self.inline_compressed:
            return 0
        path = accepts(quick, batch, size, self.now_ms, version, &call, found)
        self.work += found.work + (EACH_COMPRESSED if is_compressed else 0)
        self.tried = not path and found.work > MAX_WORK
        if path:
            self.decision = None
            if found.answer != NO_CLAIMS:  # both in the same order
                self.trust.note(TRUSTED + found.answer - CLAIMS_TRUSTED, 1, self.now_ms)
        return path

    cdef bytes topic_id(self):
        """Return the first topic's id."""
        cdef const int32_t *row = row_of(&self.t.tables[1], 0, PRODUCE_REQUEST_TOPIC_COLUMNS)
        return (<char *>self.base + row[PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT])[:TOPIC_ID_SIZE]

    cdef object topic(self):
        """Return the first topic's name; None for a name that no topic can have."""
        cdef const int32_t *row = row_of(&self.t.tables[1], 0, PRODUCE_REQUEST_TOPIC_COLUMNS)
        if not 0 <= row[PRODUCE_REQUEST_TOPIC_NAME_SIZE] <= MAX_TOPIC_LENGTH:
            return None
        return PyUnicode_DecodeUTF8(<char *>self.base + row[PRODUCE_REQUEST_TOPIC_NAME],
                                    row[PRODUCE_REQUEST_TOPIC_NAME_SIZE], "replace")

    # ---- answers ---------------------------------------------------------------------------------

    cpdef Py_ssize_t give(self, list frames, Py_ssize_t i, list out) except -1:
        """Take answers from the i-th on while they pass unchanged, and append what goes to the
        client to ``out``.

        Return the number of the first answer that was not taken: it needs more, is out of turn, or
        the next in the queue is none of the broker's.
        """
        cdef uint8_t *p
        cdef Py_ssize_t size
        cdef int32_t wire_id
        cdef int64_t answer
        cdef Py_ssize_t at
        cdef int key, version
        cdef int64_t now = 0
        cdef MeasuredRequest place
        while i < len(frames):
            frame = a_view(frames[i])
            p = <uint8_t *>PyMemoryView_GET_BUFFER(frame).buf
            size = PyMemoryView_GET_BUFFER(frame).len
            if size < ANSWER_HEADER or not self.answers or PyMemoryView_GET_BUFFER(frame).readonly:
                break
            wire_id = be32(p + 4)
            first = self.answers[0]
            if type(first) is not int or self.received == self.sent or wire_id != following(self.received):
                break
            answer = first
            if answer > 0x7fffffff:
                version = (answer >> 32) & 0xffff
                if answer >> FETCH_BIT:
                    key = FETCH
                    at = 8 if version < FETCH_FLEXIBLE_FROM else 9
                else:
                    key = PRODUCE
                    if (version >= NODE_ENDPOINTS_FROM
                            and not self.names_nobody(p + 4, size - 4, version)):
                        break
                    # throttle_time_ms comes last, before the empty tagged fields
                    at = size - (4 if version < FLEXIBLE_FROM else 5)
                if ANSWER_HEADER <= at <= size - 4 and be32(p + at) > 0:
                    self.counters.throttled(key, be32(p + at))
            self.popleft()
            self.received = wire_id
            if self.under_way.pop(wire_id, &place):
                if not now:
                    now = now_ns()
                self.note_answer(&place, now)
            put_int32(p + 4, <int32_t>answer)
            self.add(frame, p, p + size, out)
            i += 1
            self.taken += 1
            self.taken_bytes += size
        self.flush(out)
        if self.taken:
            self.counters.answers_total += self.taken
            self.counters.answer_bytes_total += self.taken_bytes
            self.served.answer_bytes += self.taken_bytes
            self.taken = self.taken_bytes = 0
        return i

    cdef bint names_nobody(self, const uint8_t *p, Py_ssize_t size, int version):
        """Return whether a Produce answer is well-formed and has no broker's address in it."""
        cdef Cursor c
        open_cursor(&c, p, size, version >= FLEXIBLE_FROM)
        skip(&c, 4)
        forget_rows(&self.t)
        skip_tags(&c)
        locate_produce_response(&c, version, &self.t)
        return not c.wrong and self.t.tables[NODES].count == 0

    # ---- how long it took ------------------------------------------------------------------------

    def begin(self):
        """Note when the requests came that are taken now."""
        self.taken_ns = self.since_ns or now_ns()

    def send(self, int key, int64_t taken_ns):
        """Return the correlation id of the next request to the broker, and measure its answer.

        ``taken_ns`` is 0 for a request of the gate's own.
        """
        self.sent = following(self.sent)
        if taken_ns and key >= 0:
            self.note_place(key, taken_ns)
            self.under_way.mark_sent(self.sent, self.sent, now_ns())
        return self.sent

    def receive(self, int32_t wire_id, Py_ssize_t size):
        """Note an answer of the broker that ``give`` has not taken. ``finish`` comes next."""
        cdef MeasuredRequest *place = &self.received_place
        self.received = wire_id
        self.served.answer_bytes += size
        if not self.under_way.pop(wire_id, place):
            place.taken_ns = 0
        elif place.sent_ns:
            self.traffic.note_broker(place.key, now_ns() - place.sent_ns)

    def finish(self, bint answers):
        """Count the request whose answer ``receive`` has noted; unless ``answers``, forget it."""
        if answers and self.received_place.taken_ns:
            self.note_request(self.received_place.key, now_ns() - self.received_place.taken_ns)
        self.received_place.taken_ns = 0

    def answered(self, int key, int64_t taken_ns):
        """Count a request whose answer was made here, or took longer than a call."""
        if taken_ns and key >= 0:
            self.note_request(key, now_ns() - taken_ns)

    def forget(self, bint whole):
        """Do not measure what is under way: the broker was not read for a while.

        ``whole``  because of the client, which did not take its answers
        """
        cdef int found = self.under_way.forget(whole)
        if whole:
            self.traffic.unmeasured_client += found

    def take_served(self):
        """Return bytes in, bytes out, answers, their ns and the longest, since the last call."""
        cdef ServedCounts s = self.served
        self.served = ServedCounts(0, 0, 0, 0, 0)
        return s.request_bytes, s.answer_bytes, s.answers, s.total_ns, s.most_ns

    cdef int note_place(self, int key, int64_t taken_ns) except -1:
        if not self.under_way.put(self.sent, key, taken_ns):
            self.traffic.unmeasured_waiting += 1
        return 0

    cdef int note_answer(self, const MeasuredRequest *place, int64_t now) except -1:
        if place.sent_ns:
            self.traffic.note_broker(place.key, now - place.sent_ns)
        return self.note_request(place.key, now - place.taken_ns)

    cdef int note_request(self, int key, int64_t ns) except -1:
        self.traffic.note_request(key, ns)
        self.served.answers += 1
        self.served.total_ns += ns
        self.served.most_ns = max(self.served.most_ns, ns)
        return 0

    # ---- what goes on ----------------------------------------------------------------------------

    cdef int add(self, object frame, uint8_t *start, uint8_t *end, list out) except -1:
        """Send consecutive frames on as one slice."""
        # different blocks may be adjacent in memory, too
        if (self.run.frames and start == self.run.end
                and PyMemoryView_GET_BASE(frame) == PyMemoryView_GET_BASE(self.run_first)):
            self.run.end = end
            self.run.frames += 1
            return 0
        self.flush(out)
        self.run_first = frame
        self.run.start = start
        self.run.end = end
        self.run.frames = 1
        return 0

    cdef int flush(self, list out) except -1:
        cdef Block block
        cdef object first = self.run_first
        cdef Py_ssize_t size = self.run.end - self.run.start, at
        if not self.run.frames:
            return 0
        self.run_first = None
        if size != PyMemoryView_GET_BUFFER(first).len:
            block = <Block?><object>PyMemoryView_GET_BASE(first)
            at = self.run.start - block.memory
            first = PyMemoryView_FromObject(block)[at:at + size]
        self.run.frames = 0
        out.append(first)
        return 0

    # ---- who asks for what -----------------------------------------------------------------------

    cdef bint is_same_client(self, const uint8_t *p, Py_ssize_t size) noexcept:
        """Return whether the client id is that of the request before, or cannot be read."""
        cdef Py_ssize_t length
        if size < CLIENT_ID:
            return True
        length = be16(p + REQUEST_HEADER)
        if length > size - CLIENT_ID or length < NULL_CLIENT_ID:
            return True
        if length != self.client_id_size:
            return False
        return length <= 0 or not memcmp(p + CLIENT_ID, PyBytes_AS_STRING(self.client_id),
                                         min(length, MAX_CLIENT_ID_BYTES))

    cdef int change_client(self, const uint8_t *p, Py_ssize_t size) except -1:
        cdef Py_ssize_t length = be16(p + REQUEST_HEADER)
        self.work += EACH_CLIENT
        client_id = None
        if length >= 0:
            client_id = (<const char *>p + CLIENT_ID)[:min(length, MAX_CLIENT_ID_BYTES)]
        if self.client_changed is not None:
            self.client_changed(client_id)
        self.client_id = client_id
        self.client_id_size = length
        return 0

    def note(self, frame, int key, int version):
        """Count a request that ``take`` has not taken."""
        cdef const uint8_t *p = <const uint8_t *>PyMemoryView_GET_BUFFER(a_view(frame)).buf
        cdef Py_ssize_t size = PyMemoryView_GET_BUFFER(frame).len
        if not self.is_same_client(p, size):
            self.change_client(p, size)
        self.find_use(key << 16 | version)
        self.uses[self.use].requests += 1
        self.served.request_bytes += size
        self.count_uses()

    @property
    def last(self):
        """Return API key << 16 | version of the last request; -1 where there was none."""
        return self.uses[self.use].pair if self.used else -1

    def take_uses(self):
        """Return {API key << 16 | version: requests} since the last call."""
        cdef int i
        cdef dict taken = self.more_uses
        self.count_uses()
        self.more_uses = {}
        for i in range(self.used):
            if self.uses[i].requests:
                key = self.use_keys[i]
                taken[key] = taken.get(key, 0) + self.uses[i].requests
                self.uses[i].requests = self.uses[i].counted = 0
        return taken

    cdef int find_use(self, int32_t pair) except -1:
        """Make the place of a pair the one that counts; when all are taken, they start anew."""
        cdef int i
        for i in range(self.used):
            if self.uses[i].pair == pair:
                self.use = i
                return 0
        if self.used == USES:
            self.more_uses = self.take_uses()
            self.used = 0
            self.use_keys.clear()
        self.use_keys.append(pair)
        self.use = self.used
        self.uses[self.use].pair = pair
        self.uses[self.use].requests = self.uses[self.use].counted = 0
        self.used += 1
        return 0

    cdef int count_uses(self) except -1:
        """Add to the traffic what was not counted yet."""
        cdef int i
        cdef int64_t total
        cdef dict by_version = self.traffic.requests
        for i in range(self.used):
            if self.uses[i].requests != self.uses[i].counted:
                key = self.use_keys[i]
                total = by_version.get(key, 0)
                by_version[key] = total + self.uses[i].requests - self.uses[i].counted
                self.uses[i].counted = self.uses[i].requests
        return 0

    cdef int count(self) except -1:
        """Report the counts once a call: additions in Python cost more than the frames do."""
        cdef int path
        counters = self.counters
        if not self.taken:
            return 0
        counters.requests_total += self.taken
        counters.request_bytes_total += self.taken_bytes
        self.taken = self.taken_bytes = 0
        self.count_uses()
        if not self.produced:
            return 0
        counters.produce_requests_total += self.produced
        counters.produce_partitions_total += self.partitions
        self.produced = self.partitions = 0
        by_path = counters.batches_by_path
        for path in range(PATHS):
            if self.by_path[path]:
                name = result.PATHS[path] or "none"
                by_path[name] = by_path.get(name, 0) + self.by_path[path]
                self.by_path[path] = 0
        if self.dropped:
            counters.claims_tags_dropped_total += self.dropped
            counters.requests_rewritten_total += self.dropped
            self.dropped = 0
        if self.tags_added or self.payloads_added:
            counters.claims_tags_added_total += self.tags_added
            counters.claims_payloads_added_total += self.payloads_added
            counters.requests_rewritten_total += self.tags_added + self.payloads_added
            self.tags_added = self.payloads_added = 0
        return 0


# ---- past the session ----------------------------------------------------------------------------


cdef class TurnLimits:
    """What the passages of all sessions ask at each read. The budget, which is one, writes it.

    ``blocks_limit``  above so many bytes in blocks, a session that has read something is looked at
    ``large``         bytes of a request from which on it counts as large
    ``spent_s``       what sessions have used of this turn of the loop, besides the fast path
    """

    def is_turn_long(self):
        """Return whether this turn of the loop has lasted so long that reads end."""
        return False


@cython.final
cdef class RequestPassage(Passage):
    """The way of requests that go by the fast path alone, from a client's socket to the broker's.

    ``turn_s``        seconds of work on this turn of the loop, from which on others go first
    ``most_waiting``  answers that may wait
    """

    def __init__(self, FastPath path not None, TurnLimits budget not None, double turn_s,
            Py_ssize_t most_waiting):
        self.path = path
        self.budget = budget
        self.turn_s = turn_s
        self.most_waiting = most_waiting

    cdef Passed take(self, FrameSplitter splitter, list frames) except *:
        cdef list out = []
        cdef Py_ssize_t taken
        cdef TurnLimits budget = self.budget
        self.taken = self.work = 0
        if budget.spent_s > self.turn_s:
            return REST
        if not frames:
            if splitter.partial_size > budget.large or budget.is_turn_long():
                return REST
        elif PyMemoryView_GET_BUFFER(frames[0]).len > MAX_PASSED:
            return REST  # it is written in parts
        else:
            self.taken = taken = self.path.take(frames, 0, wall_ms(), out)
            self.passed += taken
            self.work = self.path.work
            if out:
                pass_on(self.to, out)
            if taken < len(frames):
                return SPENT if self.path.spent else STOPPED
        if allocated() > budget.blocks_limit or len(self.path.answers) > self.most_waiting:
            return LOOK
        return ALL


@cython.final
cdef class AnswerPassage(Passage):
    """The way of answers that get back the client's correlation id and nothing else.

    ``streamed_from``  bytes of an unfinished answer from which on the session is asked
    """

    def __init__(self, FastPath path not None, TurnLimits budget not None,
            Py_ssize_t streamed_from):
        self.path = path
        self.budget = budget
        self.streamed_from = streamed_from

    cdef Passed take(self, FrameSplitter splitter, list frames) except *:
        cdef list out = []
        cdef Py_ssize_t taken
        self.taken = 0
        if not frames:
            if splitter.partial_size > self.streamed_from:
                return REST
        else:
            self.taken = taken = self.path.give(frames, 0, out)
            self.passed += taken
            if out:
                pass_on(self.to, out)
            if taken < len(frames):
                return REST
            answers = self.path.answers
            if answers and type(answers[0]) is not int:
                return LOOK  # it may be one that was made here
        return LOOK if allocated() > self.budget.blocks_limit else ALL
