"""The fast path of one session."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from batchval.core.gate cimport Accepted, LogValidator
from batchval.ledger.sender_trust cimport SenderTrust
from batchval.protocol.walkers.tables cimport Tables
from batchval.protocol.frames cimport FrameSplitter
from batchval.proxy.session.socket_transport cimport Passage, Passed, SocketTransport
from batchval.proxy.watch.request_latency cimport API_KEYS, MeasuredRequest, Traffic, UnderWay

cdef enum:
    PATHS = 5    # of ValidationResult.path
    USES = 16    # pairs of API and version that are counted without Python's objects


cdef struct Route:
    int16_t first, last  # versions carried; last below first: none is
    int32_t changed_from  # answers of this version on are not passed on as they are
    bint checks_broker  # requests that only brokers send are not taken


@cython.final
cdef class Routes:
    cdef Route of[API_KEYS]


cdef struct Use:  # requests of one API in one version
    int32_t pair  # key << 16 | version
    int64_t requests  # since they were taken last
    int64_t counted  # of these, in the counters


cdef struct ServedCounts:  # what a client got, since it was taken last
    int64_t request_bytes, answer_bytes, answers, total_ns, most_ns


cdef struct Run:  # consecutive frames that go on together
    uint8_t *start
    uint8_t *end
    Py_ssize_t frames


@cython.final
cdef class FastPath:
    cdef Routes routes
    cdef object gate, ledger, counters, answers, append, popleft, validators_of, topic_names
    cdef LogValidator quick, whole
    cdef str sender
    cdef bint validates, makes_claims, makes_payloads, only_one
    cdef Py_ssize_t inline_compressed, inline_uncompressed
    cdef int64_t inline_work
    cdef SenderTrust trust
    cdef Tables t
    cdef public int32_t sent, received
    cdef readonly str decision
    cdef readonly bint spent, tried, is_clients
    cdef int64_t work     # of the call: bytes that were walked
    # of the batch validated last
    cdef Accepted found
    cdef int64_t most_bytes  # what its topic allows
    # of the call
    cdef const uint8_t *base  # of the request, after its length
    cdef int64_t now_ms
    cdef Run run
    cdef object run_first
    cdef object named     # the topic of a request with topic ids
    cdef int64_t taken, taken_bytes, produced, partitions, dropped, tags_added, payloads_added
    # of the client that the requests come from
    cdef bytes client_id  # its first bytes
    cdef Py_ssize_t client_id_size
    cdef object client_changed
    cdef Use uses[USES]   # a place stays with its pair
    cdef list use_keys    # the pairs as objects
    cdef int used, use    # places; that of the request before
    cdef Traffic traffic  # of the listening port
    cdef dict more_uses
    # how long its requests take
    cdef UnderWay under_way
    # of the answer that ``receive`` has noted; taken_ns 0: none
    cdef MeasuredRequest received_place
    cdef public int64_t since_ns
    cdef readonly int64_t taken_ns
    cdef ServedCounts served
    cdef int64_t by_path[PATHS]

    cpdef Py_ssize_t take(self, list frames, Py_ssize_t i, int64_t now_ms, list out) except -1
    cpdef Py_ssize_t give(self, list frames, Py_ssize_t i, list out) except -1
    cdef int add(self, object frame, uint8_t *start, uint8_t *end, list out) except -1
    cdef int flush(self, list out) except -1
    cdef int other(self, object frame, uint8_t *p, Py_ssize_t size, int key, int version,
            int32_t correlation_id, list out) except -1
    cdef int produce(self, object frame, uint8_t *p, Py_ssize_t size, int version,
            int32_t correlation_id, list out) except -1
    cdef int validate(self, const uint8_t *batch, Py_ssize_t size, int version, const uint8_t *tag,
            Py_ssize_t tag_size) except -1
    cdef list with_claims(self, object frame, Py_ssize_t size, const int32_t *row, int version)
    cdef bytes topic_id(self)
    cdef object topic(self)
    cdef bint names_nobody(self, const uint8_t *p, Py_ssize_t size, int version)
    cdef bint is_same_client(self, const uint8_t *p, Py_ssize_t size) noexcept
    cdef int change_client(self, const uint8_t *p, Py_ssize_t size) except -1
    cdef int find_use(self, int32_t pair) except -1
    cdef int count_uses(self) except -1
    cdef int note_place(self, int key, int64_t taken_ns) except -1
    cdef int note_answer(self, const MeasuredRequest *place, int64_t now) except -1
    cdef int note_request(self, int key, int64_t ns) except -1
    cdef int count(self) except -1


cdef class TurnLimits:
    cdef public double spent_s
    cdef public int64_t blocks_limit, large


@cython.final
cdef class RequestPassage(Passage):
    cdef FastPath path
    cdef TurnLimits budget
    cdef double turn_s
    cdef public Py_ssize_t most_waiting


@cython.final
cdef class AnswerPassage(Passage):
    cdef FastPath path
    cdef TurnLimits budget
    cdef Py_ssize_t streamed_from
