"""The partitions of one Produce request, validated: about 90 bytes each until it is settled.

    resolve   each topic's validator; version 13 has ids, which need names
    scan      what fails the whole request
    decide    what to do with claims, and the partitions that claims alone let in
    validate     one partition after the other, as far as the caller allows; a batch whose refusal
                 is known is not read (batchval.proxy.produce.produce_validator)
    reopen, refuse   by what only Python code knows: registries, custom rules
    then      counts, refusals, the texts of a partition

A request may hold thousands of partitions of 6 bytes: what is done for each costs less than a
microsecond, and others may have the GIL between every 256. What is long releases it by itself
(batchval.core.codecs.scratch).

The message sets of Produce 0 to 2 are converted to batches of magic 2 in the same pass, as Kafka
3.9 does. What is built has no form that an extra could report, so it is not validated again; its
claims are counted while it is built.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from batchval.core.gate cimport (
    ATTRIBUTES, BATCH_LENGTH, CLAIMS_MAGIC, CLAIMS_TRUSTED, CODEC_MASK, CRC, CRC_SIZE,
    ERRORS_KEPT, EXTRA, IGNORE_CLAIMS, INVALID_TIMESTAMP, MAX_MADE_BLOCK_SIZE, LAST_EXTRA,
    LOG_OVERHEAD, MAGIC, MESSAGE_TOO_LARGE, NONE, NO_TIMESTAMP, PATH_CLAIMS, PRODUCER,
    REBUILT_BATCH_TOO_LARGE, RECORDS, S8, S8_BIT, TRUST_CLAIMS, UNKNOWN_SERVER_ERROR,
    UNLIMITED_WORK, VERIFY_CLAIMS, WORK_WITH_GIL, ZSTD, AppendContext, BatchHeader, Call,
    Claims, ClaimsCall, LogValidator, Policy, RecordError, Scratch, Verdict, accepted_by_claims,
    asks_value_schema, attach_to_payload, be32, begin_work, borrow_for, breaks_record_rule,
    carrier_size, claims_size, clear, conclude, end_work, fill_call, give_back,
    has_payload_claims, has_record_errors, is_long, message_of_broken, message_of_error,
    put_be32, put_block, read_tag, reasons, rebuild, refuse, source_of, strip_payload,
    true_claims, validate_first_batch, validate_request, validate_row,
)
from batchval.ledger.sender_trust cimport COUNTS, TRUSTED, SenderTrust
from batchval.protocol.walkers.produce cimport OLDEST_OF_KAFKA_4, ProduceRequestView
from batchval.protocol.walkers.tables cimport row_of
from batchval.protocol.walkers.tags cimport TaggedField
from batchval.protocol.walkers.positions cimport (
    PRODUCE_REQUEST_PARTITION_COLUMNS, PRODUCE_REQUEST_PARTITION_PARENT,
    PRODUCE_REQUEST_PARTITION_RECORDS, PRODUCE_REQUEST_PARTITION_RECORDS_SIZE,
    PRODUCE_REQUEST_TOPIC_NAME, PRODUCE_REQUEST_TOPIC_NAME_SIZE, PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT,
)

from batchval.core.format.reasons import sentence
from batchval.core.records.record_errors import broken_rules, rejection
from batchval.core.batches import result
from batchval.errors import ErrorCode
from batchval.rules import by_number, extras_of

cdef enum:
    NO_LEADER_EPOCH = -1
    GIL_YIELD_INTERVAL = 256  # partitions between which others may have the GIL
    DIGEST_WORK = 512  # a digest costs this besides its bytes
    RELEASED_WORK = 1 << 20  # what a batch counts as that was validated without the GIL
    UNKNOWN_ID = -1  # the rule of a topic id without a name
    OWN = -2  # the rule of a partition that Python code has refused
    RULES = 100  # numbers of rules
    MAX_REASON_BYTES = 512 << 10  # bytes of reasons in the answer to one request

#: ``Verdicts.validate``: all partitions are validated; some are left; the next one is heavy.
VALIDATED, LEFT, HEAVY = 0, 1, 2
#: The rule's name of a partition whose topic id has no name.
UNKNOWN_TOPIC_ID = "unknown-topic-id"
#: Kafka's sentence for it (org.apache.kafka.common.protocol.Errors).
UNKNOWN_ID_TEXT = "This server does not host this topic ID."

_DECISIONS = {"ignore": IGNORE_CLAIMS, "verify": VERIFY_CLAIMS, "trust": TRUST_CLAIMS}
_CODES = {int(code): code.name for code in ErrorCode}


cdef inline void breathe(Py_ssize_t i):
    """Let others have the GIL now and then."""
    if i % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
        with nogil:
            pass


#: {number of a rule or an extra: its slug}
cdef dict SLUGS = {n: by_number(n).slug for n in range(256) if by_number(n) is not None}


cdef str slug_of(int rule):
    """Return a rule's name, for counters and log lines."""
    if rule == UNKNOWN_ID:
        return UNKNOWN_TOPIC_ID
    return <str>SLUGS.get(rule, "unknown")


cdef list slugs_of(int reports):
    """Return the names of extras that are only reported."""
    return [rule.slug for rule in extras_of(reports)] if reports else []


cdef tuple place_of(const uint8_t *p, Py_ssize_t n, int version):
    """Return where a refusal is remembered: see ``Place`` in gate.py."""
    return <uint32_t>be32(p + CRC), n, version


cdef Side side_of(const Policy *policy, int64_t timestamp, int64_t now) noexcept nogil:
    """Return the side of a timestamp of -1 or above, as ``check_record`` compares it."""
    cdef int64_t difference = <int64_t>(<uint64_t>now - <uint64_t>timestamp)
    if difference > policy.before_max:
        return TOO_OLD
    return TOO_NEW if <int64_t>(0 - <uint64_t>difference) > policy.after_max else WITHIN


@cython.final
cdef class KnownRefusal:
    """The refusal of one batch, and what it depends on besides its bytes: the validator, and the
    time where the timestamps of records are compared with it.
    """

    @property
    def size(self):
        """Return the bytes of memory that it takes, about."""
        cdef Py_ssize_t text = 0 if self.broken is None else len(self.broken[1])
        return sizeof(VerdictRow) + 512 + len(self.errors) + 4 * text

    cdef bint holds(self, LogValidator validator, int64_t now):
        """Return whether the same batch is refused now, in the same way."""
        if validator is not self.validator:
            return False
        if not self.is_timed:
            return True
        return (side_of(&validator.compiled, self.least, now) == self.side
                and side_of(&validator.compiled, self.most, now) == self.side)


@cython.final
cdef class Verdicts:
    """Verdicts on the partitions of one Produce request, in its order.

    ``goes_on(i)`` says of a partition that breaks a rule whether it is forwarded all the same; it
    is asked of requests that are converted. None: no such partition is forwarded.
    """

    def __cinit__(self, *args):
        self.rows = NULL
        self.errors = NULL

    def __dealloc__(self):
        free(self.rows)
        free(self.errors)

    def __init__(self, ProduceRequestView request not None, int64_t now_ms, goes_on=None):
        if self.rows is not NULL:
            raise TypeError("verdicts are made once")
        self.request = request
        self.now_ms = now_ms
        self.failed_at = self.reason_at = -1
        self.heavy_row = -1
        self.goes_on = goes_on
        self.converts = request.api_version < OLDEST_OF_KAFKA_4
        self.converted = [None] * request.count if self.converts else None
        self.broken = {}
        self.rows = <VerdictRow *>calloc(request.count + 1, sizeof(VerdictRow))
        if self.rows is NULL:
            raise MemoryError()

    def __len__(self):
        return self.request.count

    cdef const uint8_t *batch(self, Py_ssize_t i, Py_ssize_t *size):
        """Return the records of a partition; null has no bytes."""
        cdef const int32_t *row = row_of(
            &self.request.t.tables[2], i, PRODUCE_REQUEST_PARTITION_COLUMNS)
        size[0] = max(row[PRODUCE_REQUEST_PARTITION_RECORDS_SIZE], 0)
        return self.request.base() + row[PRODUCE_REQUEST_PARTITION_RECORDS]

    cdef Py_ssize_t topic_at(self, Py_ssize_t i):
        return row_of(&self.request.t.tables[2], i, PRODUCE_REQUEST_PARTITION_COLUMNS)[
            PRODUCE_REQUEST_PARTITION_PARENT]

    cdef LogValidator validator_at(self, Py_ssize_t i, LogValidator one):
        """Return the validator of a partition's topic; None for an id without a name."""
        if self.overrides is not None and i in self.overrides:
            return self.overrides[i]
        return one if self.validators is None else self.validators[self.topic_at(i)]

    cdef VerdictRow *row_at(self, Py_ssize_t i) except NULL:
        if i < 0 or i >= self.request.count:
            raise IndexError(f"partition {i} of {self.request.count}")
        return &self.rows[i]

    # ---- before records are looked at --------------------------------------------------------

    def resolve(self, LogValidator one, bint only_one, validators_of, topic_names):
        """Find each topic's validator. ``validators_of(name)`` gives a pair, the second with the
        whole limit; ``topic_names(id)`` gives a name or None. With ``only_one`` no name matters.
        """
        cdef Py_ssize_t t
        cdef const int32_t *row
        cdef int32_t size, id_at
        cdef const uint8_t *base = self.request.base()
        if only_one and self.request.api_version < 13:
            return
        found = []
        for t in range(self.request.t.tables[1].count):
            breathe(t)
            row = self.request.topic_row(t)
            id_at = row[PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT]
            size = row[PRODUCE_REQUEST_TOPIC_NAME_SIZE]
            name = None
            if id_at >= 0:
                name = topic_names(PyBytes_FromStringAndSize(<const char *>base + id_at, 16))
                if name is None:
                    found.append(None)
                    continue
            elif 0 <= size <= MAX_TOPIC_LENGTH:
                name = PyUnicode_DecodeUTF8(
                    <const char *>base + row[PRODUCE_REQUEST_TOPIC_NAME], size, "replace")
            found.append(one if only_one else validators_of(name)[1])
        self.validators = found

    def scan(self, LogValidator one not None):
        """Return whether one partition fails the whole request: all are refused with its code then.
        See LogValidator.scan_produce_request.
        """
        cdef AppendContext d = one.context
        cdef Verdict v
        cdef bint transactional, passes = True, own, seen = False
        cdef Py_ssize_t i, n
        cdef const uint8_t *p
        self.set_call(&d)
        if self.request.count < 2:
            return False
        for own in (False, True):
            for i in range(self.request.count):
                if seen and not own:
                    break
                breathe(i)
                p = self.batch(i, &n)
                clear(&v)
                if not own:
                    passes = validate_first_batch(p, n, False, &v, &transactional)
                    seen = transactional
                elif self.validators is not None and self.validators[self.topic_at(i)] is None:
                    continue
                elif n <= MAGIC or p[MAGIC] != CLAIMS_MAGIC:
                    passes = validate_request(p, n, &d, &v) or v.error_code != UNKNOWN_SERVER_ERROR
                if not passes:
                    conclude(&d, &v)
                    self.put(&self.rows[i], &v)
                    self.fail_all(i)
                    return True
        return False

    cdef int set_call(self, AppendContext *d) except -1:
        """Set what is the same for all partitions of the request."""
        d.now = self.now_ms
        d.produce_version = <int16_t>self.request.api_version
        if self.converts:  # as Kafka 3.9: rules 5 to 8 are not asked of old versions
            d.first_checked_produce_version = OLDEST_OF_KAFKA_4
        return 0

    cdef int fail_all(self, Py_ssize_t index) except -1:
        """Set the verdict on this partition for all partitions."""
        cdef Py_ssize_t i
        self.failed_at = index
        for i in range(self.request.count):
            self.rows[i] = self.rows[index]
        self.next_row = self.request.count
        return 0

    def decide(self, LogValidator one not None, ledger, str sender, decision=None):
        """Decide what to do with each partition's claims, and accept what claims alone let in.

        ``decision`` is what the ledger has decided already of the one partition there is.
        """
        cdef SenderTrust trust = None
        cdef TaggedField field
        cdef ClaimsCall call
        cdef Py_ssize_t i, n
        cdef const uint8_t *p
        cdef VerdictRow *row
        cdef LogValidator validator
        for i in range(self.request.count):
            breathe(i)
            p = self.batch(i, &n)
            row = &self.rows[i]
            row.tagged = self.request.find_claims(self.request.partition_row(i), &field) == 1
            if not row.tagged and not has_payload_claims(p, n):
                continue
            validator = self.validator_at(i, one)
            if n <= ATTRIBUTES + 1 or validator is None:
                row.tagged = False
                continue
            if decision is not None:
                row.decision = _DECISIONS[decision]
            else:
                if trust is None:
                    trust = ledger.trust_of(sender, self.now_ms)
                row.decision = trust.decide(<uint32_t>be32(p + CRC), self.now_ms)
            if row.decision != TRUST_CLAIMS or not p[ATTRIBUTES + 1] & CODEC_MASK or p[MAGIC] < 2:
                continue
            self.read_call(i, &call)
            if accepted_by_claims(validator, p, n, self.now_ms, self.request.api_version, &call):
                row.done = True
                row.forwarded = True
                row.path = PATH_CLAIMS
                row.outcome = CLAIMS_TRUSTED

    cdef int read_call(self, Py_ssize_t i, void *to) except -1:
        """Read the claims of a partition with the core's reader."""
        cdef ClaimsCall *call = <ClaimsCall *>to
        cdef TaggedField field
        cdef VerdictRow *row = &self.rows[i]
        call.policy = row.decision
        call.tagged = False
        call.wants_ids = self.states_ids
        # the frame may have changed since the tag was seen
        if row.tagged and self.request.find_claims(self.request.partition_row(i), &field) == 1:
            read_tag(self.request.base() + field.content, field.size, call)
        return 0

    def remember_for(self, table not None, str sender not None):
        """Take refusals that the table knows of this sender, and add others to it."""
        self.table = table
        self.sender = sender

    def take_read_bytes(self):
        """Return the bytes of records that were read since the last call, about."""
        cdef int64_t found = self.read_bytes
        self.read_bytes = 0
        return found

    def announced(self):
        """Return (compressed bytes, other bytes, work) of the partitions not validated yet."""
        cdef Py_ssize_t i, n
        cdef int64_t compressed = 0, other = 0, work = 0
        cdef const uint8_t *p
        for i in range(self.request.count):
            if self.rows[i].done:
                continue
            p = self.batch(i, &n)
            work += announced_work(p, n)
            if is_compressed(p, n):
                compressed += n
            else:
                other += n
        return compressed, other, work

    def converts_little(self, LogValidator one not None):
        """Return whether nothing has to be decompressed or compressed to convert the request."""
        cdef Py_ssize_t i, n
        cdef const uint8_t *p
        cdef LogValidator validator
        for i in range(self.request.count):
            validator = self.validator_at(i, one)
            p = self.batch(i, &n)
            if validator.compiled.target > NONE or source_of(p, n) != NONE:
                return False
        return True

    # ---- the records -------------------------------------------------------------------------

    def validate(self, LogValidator one not None, int64_t least_limit, int64_t times,
            int64_t batch_work, int64_t work):
        """Validate partitions until all are done (VALIDATED), ``work`` is used up (LEFT) or one is
        HEAVY.

        A batch is heavy if it decompresses to more than the larger of ``least_limit`` and ``times``
        its own size, or announces more than ``batch_work``. With ``least_limit`` 0 none is.
        """
        cdef AppendContext d
        cdef Policy policy
        cdef Claims made
        cdef ClaimsCall call
        cdef Verdict v
        cdef Scratch *scratch
        cdef LogValidator validator
        cdef VerdictRow *row
        cdef const uint8_t *p
        cdef Py_ssize_t i, n
        cdef int path
        cdef int64_t spent = 0, in_all = 0, announced
        if self.table is not None:
            self.known = self.table.of(self.sender)  # another request may have been refused meanwhile
        for i in range(self.next_row, self.request.count):
            breathe(i)
            row = &self.rows[i]
            self.next_row = i
            if row.done:
                continue
            if work <= 0:
                return LEFT
            validator = self.validator_at(i, one)
            if validator is None:
                row.rule = UNKNOWN_ID
                row.error_code = <int16_t>ErrorCode.UNKNOWN_TOPIC_ID
                row.done = True
                work -= BATCH_WORK
                continue
            p = self.batch(i, &n)
            if self.known is not None and self.take_known(i, validator):
                work -= DIGEST_WORK + n
                continue
            announced = announced_work(p, n)
            d = validator.context
            self.set_call(&d)
            policy = validator.compiled
            if self.converts and policy.target == ZSTD:
                policy.target = PRODUCER  # Produce 3 carries no zstd: the broker compresses
            if least_limit:
                if announced > batch_work:
                    return HEAVY
                d.limit = min(d.limit, <uint64_t>max(least_limit, times * n))
                if i == self.heavy_row and d.limit <= self.heavy_limit:
                    return HEAVY
            self.read_call(i, &call)
            scratch = borrow_for(&d)
            try:
                path = self.validate_one(i, &d, &policy, &call, scratch, &v, &spent, &in_all)
                self.read_bytes += in_all
                if path:
                    row.path = path
                    row.outcome = CLAIMS_TRUSTED if path == PATH_CLAIMS else 0
                    row.forwarded = True
                elif v.rule == S8 and d.limit < validator.context.limit:
                    self.heavy_row = i
                    self.heavy_limit = d.limit
                    return HEAVY
                else:
                    if self.converts and v.rule == 0:
                        spent += self.convert(i, &d, &policy, scratch, &v, &made)
                    self.put(row, &v)
                    if row.has_claims:
                        row.claims.schema_ids = scratch.seen_ids.ids
                    if has_record_errors(&v):
                        self.keep_errors(row, scratch.errors, scratch.errors_count,
                                         scratch.errors_seen)
                    elif breaks_record_rule(&v):
                        self.keep_broken(i, scratch, validator.policy.record_rules)
                    if (v.rule and self.table is not None
                            and in_all >= max(MIN_KNOWN_WORK, KNOWN_WORK_TIMES * n)):
                        self.remember(i, validator, &policy, scratch, &v)
                    if self.converts and v.rule == 0 and self.converted[i] is not None:
                        row.claims = made
                        row.has_claims = True
                    elif v.rule and self.goes_on is not None and self.goes_on(i):
                        spent += self.convert_observed(i, &d, &policy, &call, scratch)
            finally:
                give_back(scratch)
            row.done = True
            work -= spent + announced
        self.next_row = self.request.count
        return VALIDATED

    cdef int validate_one(self, Py_ssize_t i, const AppendContext *d, const Policy *policy,
            const ClaimsCall *call, Scratch *scratch, Verdict *v, int64_t *spent,
            int64_t *in_all) except -1:
        """Validate one partition; return the path by which its ordinary batch may enter, or 0.

        ``spent`` counts work with the GIL, and RELEASED_WORK for the rest; ``in_all`` counts all.
        """
        cdef Call c
        cdef BatchHeader h
        cdef Py_ssize_t n
        cdef const uint8_t *p = self.batch(i, &n)
        cdef int path
        fill_call(&c, d, policy, call, scratch)
        begin_work(scratch, is_long(p, n))
        path = validate_row(p, n, &c, v, &h)
        spent[0] = WORK_WITH_GIL - scratch.work_left
        in_all[0] = spent[0]
        if scratch.thread_state is not NULL:
            spent[0] = RELEASED_WORK
            in_all[0] = UNLIMITED_WORK - scratch.work_left + WORK_WITH_GIL
        end_work(scratch)
        if not path and v.out_of_memory:
            raise MemoryError()
        return path

    cdef int64_t convert(self, Py_ssize_t i, const AppendContext *d, const Policy *policy,
            Scratch *scratch, Verdict *v, Claims *claims) except -1:
        """Build the batch of magic 2 in the place of what ``v`` has accepted; return the work.

        ``v`` becomes a refusal if the batch is larger than its topic allows. ``claims`` state
        schema ids for the topics for which those of other batches state them.
        """
        cdef AppendContext building = d[0]
        cdef Policy unstamped = policy[0]
        cdef bint ids_wanted
        cdef Py_ssize_t n
        cdef const uint8_t *p = self.batch(i, &n)
        if not v.valid_bytes:
            return 0  # Kafka answers without an error, and writes nothing
        self.rows[i].forwarded = True
        if not v.rebuild:
            return 0
        ids_wanted = self.states_ids and v.target != NONE and asks_value_schema(policy.rules)
        building.leader_epoch = NO_LEADER_EPOCH
        unstamped.log_append_time = False  # the broker writes these times, and takes none
        built = rebuild(
            p, v.valid_bytes, &building, &unstamped, scratch, v, claims, ids_wanted)
        if len(built) <= policy.max_message_bytes:
            self.converted[i] = built
        else:
            self.rows[i].forwarded = False
            refuse(v, REBUILT_BATCH_TOO_LARGE, MESSAGE_TOO_LARGE, reasons.REBUILT_LARGER_THAN_MAX,
                   len(built), policy.max_message_bytes)
            conclude(d, v)
        return len(built)

    cdef int64_t convert_observed(self, Py_ssize_t i, const AppendContext *d, const Policy *policy,
            const ClaimsCall *call, Scratch *scratch) except -1:
        """Convert what breaks a rule of its topic and goes on all the same; return the work. What
        cannot be read cannot be converted, and does not go on.
        """
        cdef AppendContext open_context = d[0]
        cdef Policy boundless = policy[0]
        cdef Claims unused
        cdef Verdict v
        cdef int64_t spent = 0, in_all = 0
        open_context.refuse &= S8_BIT
        boundless.before_max = boundless.after_max = INT64_MAX
        boundless.max_message_bytes = INT32_MAX
        boundless.max_body = INT32_MAX
        boundless.compacted = False
        boundless.rules = NULL
        if self.validate_one(i, &open_context, &boundless, call, scratch, &v, &spent, &in_all):
            self.rows[i].forwarded = True
        elif v.rule == 0:
            spent += self.convert(i, &open_context, &boundless, scratch, &v, &unused)
        return spent

    cdef int put(self, VerdictRow *row, const Verdict *v) except -1:
        """Keep the fields of a verdict that are read later."""
        row.error_code = v.error_code
        row.rule = v.rule
        row.reason = v.reason
        row.record = v.record
        row.a = v.a
        row.b = v.b
        row.reports = <int>v.reports
        row.path = v.path
        row.outcome = v.claims
        row.done = True
        row.has_claims = v.rule == 0 and true_claims(v, &row.claims)
        return 0

    cdef int keep_errors(self, VerdictRow *row, const RecordError *errors, int32_t count,
            int32_t seen) except -1:
        """Keep the record errors of a partition: of a request 1,000 are kept, and all counted."""
        row.errors_seen = seen
        count = min(count, ERRORS_KEPT - self.errors_count)
        if count <= 0:
            return 0
        if self.errors is NULL:
            self.errors = <RecordError *>malloc(ERRORS_KEPT * sizeof(RecordError))
            if self.errors is NULL:
                raise MemoryError()
        memcpy(self.errors + self.errors_count, errors, count * sizeof(RecordError))
        row.errors_at = self.errors_count
        row.errors_count = count
        self.errors_count += count
        return 0

    cdef int keep_broken(self, Py_ssize_t i, Scratch *scratch, record_rules) except -1:
        """Collect the records of a partition that break its topic's record rules."""
        first = message_of_broken(&scratch.broken[0], record_rules)
        text = broken_rules(scratch.broken[0].index, first, scratch.broken_seen)
        self.broken[i] = (record_rules, text)
        return self.keep_errors(&self.rows[i], scratch.broken, scratch.broken_count,
                                scratch.broken_seen)

    # ---- refusals that are known ---------------------------------------------------------------

    cdef bint take_known(self, Py_ssize_t i, LogValidator validator) except -1:
        """Refuse a partition as the same batch of its sender was refused before; return whether it
        was.
        """
        cdef Py_ssize_t n
        cdef const uint8_t *p = self.batch(i, &n)
        cdef VerdictRow *row = &self.rows[i]
        cdef KnownRefusal refusal
        if n < RECORDS or row.tagged or row.decision != IGNORE_CLAIMS or self.goes_on is not None:
            return False
        refusal = self.known.get(place_of(p, n, self.request.api_version))
        if refusal is None or not refusal.holds(validator, self.now_ms):
            return False
        if self.table.digest(self.request.records(i)) != refusal.digest:
            return False
        row[0] = refusal.row
        if row.reason == reasons.TIMESTAMPS_REFUSED:  # the bounds are those of now
            row.a = <int64_t>(<uint64_t>self.now_ms - <uint64_t>validator.compiled.before_max)
            row.b = <int64_t>(<uint64_t>self.now_ms + <uint64_t>validator.compiled.after_max)
        if refusal.broken is not None:
            self.broken[i] = refusal.broken
        if refusal.errors_seen:
            self.keep_errors(
                row, <const RecordError *>PyBytes_AS_STRING(refusal.errors),
                <int32_t>(len(refusal.errors) // <Py_ssize_t>sizeof(RecordError)),
                refusal.errors_seen)
        self.repeated += 1
        return True

    cdef int remember(self, Py_ssize_t i, LogValidator validator, const Policy *policy,
            Scratch *scratch, const Verdict *v) except -1:
        """Remember the refusal of a partition, if nothing but its bytes, its validator and the side
        of its timestamps decides it.
        """
        cdef Py_ssize_t n
        cdef const uint8_t *p = self.batch(i, &n)
        cdef VerdictRow *row = &self.rows[i]
        cdef KnownRefusal refusal
        if n < RECORDS or row.tagged or row.decision != IGNORE_CLAIMS or self.goes_on is not None:
            return 0
        if v.source == NONE or v.walked > 1 or (self.overrides is not None and i in self.overrides):
            return 0
        refusal = KnownRefusal.__new__(KnownRefusal)
        if v.walked:
            refusal.is_timed = True
            refusal.least = v.walked_min_timestamp
            refusal.most = v.walked_max_timestamp
            refusal.side = side_of(policy, refusal.least, self.now_ms)
            if refusal.least < NO_TIMESTAMP or side_of(
                    policy, refusal.most, self.now_ms) != refusal.side:
                return 0
        refusal.validator = validator
        refusal.row = row[0]
        refusal.row.errors_at = refusal.row.errors_count = refusal.row.errors_seen = 0
        refusal.errors = b""
        if has_record_errors(v):
            refusal.errors_seen = scratch.errors_seen
            refusal.errors = (<const char *>scratch.errors)[
                :scratch.errors_count * sizeof(RecordError)]
        elif breaks_record_rule(v):
            refusal.errors_seen = scratch.broken_seen
            refusal.errors = (<const char *>scratch.broken)[
                :scratch.broken_count * sizeof(RecordError)]
            refusal.broken = self.broken[i]
        refusal.digest = self.table.digest(self.request.records(i))
        self.known = self.table.add(
            self.sender, place_of(p, n, self.request.api_version), refusal)
        return 0

    # ---- what Python code knows of them --------------------------------------------------------

    def reopen(self, Py_ssize_t i, LogValidator validator not None):
        """Forget the verdict on a partition: ``validate`` checks it again by this validator."""
        cdef VerdictRow *row = self.row_at(i)
        cdef VerdictRow kept = row[0]
        cdef Py_ssize_t n
        if self.failed_at >= 0:
            raise ValueError("the whole request is refused")
        if kept.errors_count:
            memmove(self.errors + kept.errors_at, self.errors + kept.errors_at + kept.errors_count,
                    (self.errors_count - kept.errors_at - kept.errors_count) * sizeof(RecordError))
            self.errors_count -= kept.errors_count
            for n in range(self.request.count):
                if self.rows[n].errors_at > kept.errors_at:
                    self.rows[n].errors_at -= kept.errors_count
        self.broken.pop(i, None)
        memset(row, 0, sizeof(VerdictRow))
        row.tagged = kept.tagged
        row.decision = kept.decision
        if self.converts:
            self.converted[i] = None
        if self.overrides is None:
            self.overrides = {}
        self.overrides[i] = validator
        self.next_row = min(self.next_row, i)

    def refuse(self, Py_ssize_t i, str name, int error_code, list errors not None,
            str reason not None):
        """Refuse a partition by a rule of this name. ``errors`` are (batch index, message), of
        which those are kept that the request may still hold.
        """
        cdef VerdictRow *row = self.row_at(i)
        kept = errors[:max(0, ERRORS_KEPT - self.errors_count)]
        more = len(errors) - len(kept)
        if more:
            reason = f"{reason}; {more} more of the record errors are not listed"
        self.errors_count += len(kept)
        row.rule = OWN
        row.error_code = <int16_t>error_code
        row.has_claims = False
        row.path = 0
        row.errors_seen = len(errors)
        if self.goes_on is None or not self.goes_on(i):
            row.forwarded = False
        if self.own is None:
            self.own = {}
        self.own[i] = (name, kept, reason)

    # ---- what follows ------------------------------------------------------------------------

    @property
    def done(self):
        """Return whether every partition has its verdict."""
        return self.next_row == self.request.count

    @property
    def is_failed(self):
        """Return whether one partition has failed the whole request."""
        return self.failed_at >= 0

    def counts(self):
        """Return (refused by rule, reported by extra, accepted by path, claims by outcome): dicts
        of names to numbers, the last by the position in ClaimsCounts.
        """
        cdef int64_t rules[RULES]
        cdef int64_t extras[LAST_EXTRA + 1]
        cdef int64_t paths[5]
        cdef int64_t outcomes[COUNTS]
        cdef int64_t unknown = 0
        cdef Py_ssize_t i
        cdef int n
        cdef const VerdictRow *row
        own = {}
        for n in range(RULES):
            rules[n] = 0
        for n in range(LAST_EXTRA + 1):
            extras[n] = 0
        for n in range(5):
            paths[n] = 0
        for n in range(COUNTS):
            outcomes[n] = 0
        for i in range(self.request.count):
            row = &self.rows[i]
            if row.rule == UNKNOWN_ID:
                unknown += 1
            elif row.rule == OWN:
                name = self.own[i][0]
                own[name] = own.get(name, 0) + 1
            elif row.rule:
                rules[row.rule % RULES] += 1
            else:
                paths[row.path] += 1
            for n in range(1, LAST_EXTRA + 1):
                if row.reports >> n & 1:
                    extras[n] += 1
            if row.outcome:
                outcomes[TRUSTED + row.outcome - CLAIMS_TRUSTED] += 1  # both in the same order
        refused = {slug_of(n): rules[n] for n in range(RULES) if rules[n]}
        if unknown:
            refused[UNKNOWN_TOPIC_ID] = unknown
        refused.update(own)
        return (
            refused,
            {slug_of(EXTRA + n): extras[n] for n in range(1, LAST_EXTRA + 1) if extras[n]},
            {result.PATHS[n] or "none": paths[n] for n in range(5) if paths[n]},
            {n: outcomes[n] for n in range(COUNTS) if outcomes[n]},
        )

    def noted(self, Py_ssize_t most):
        """Return the first ``most`` partitions refused or reported, and how many there are."""
        cdef Py_ssize_t i, count = 0
        found = []
        for i in range(self.request.count):
            if self.rows[i].rule or self.rows[i].reports:
                count += 1
                if count <= most:
                    found.append(i)
        return found, count

    def ok(self, Py_ssize_t i):
        """Return whether a partition's records are accepted."""
        return self.row_at(i).rule == 0

    def error_code(self, Py_ssize_t i):
        """Return Kafka's error; 0 where records are accepted."""
        return self.row_at(i).error_code

    def error(self, Py_ssize_t i):
        """Return the name of Kafka's error; empty where records are accepted."""
        return "" if self.row_at(i).rule == 0 else _CODES[self.row_at(i).error_code]

    def rule(self, Py_ssize_t i):
        """Return the name of the rule that refused; empty where none did."""
        cdef int rule = self.row_at(i).rule
        if rule == OWN:
            return self.own[i][0]
        return "" if rule == 0 else slug_of(rule)

    def path(self, Py_ssize_t i):
        """Return how records were validated, as ``ValidationResult.path``."""
        return result.PATHS[self.row_at(i).path]

    def reports(self, Py_ssize_t i):
        """Return the names of extras that are only reported."""
        return tuple(slugs_of(self.row_at(i).reports))

    def reason(self, Py_ssize_t i):
        """Return what is wrong, as one line; empty where nothing is."""
        cdef VerdictRow *row = self.row_at(i)
        if row.rule == 0:
            return ""
        if row.rule == UNKNOWN_ID:
            return UNKNOWN_ID_TEXT
        if row.rule == OWN:
            return self.own[i][2]
        if i in self.broken:
            return self.broken[i][1]
        if i == self.reason_at:
            return self.reason_text
        text = sentence(row.reason, row.record, row.a, row.b) or by_number(row.rule).summary
        if self.failed_at >= 0 and i != self.failed_at:
            return f"partition {self.failed_at} fails the whole request: {text}"
        return text

    def record_errors(self, Py_ssize_t i, topic=None):
        """Return [(batch_index, message)] of a partition: the first 1,000 of the request are kept.

        ``topic``: its name, None: not known.
        """
        cdef VerdictRow *row = self.row_at(i)
        cdef int32_t n
        cdef RecordError *e = self.errors
        if row.rule == OWN:
            return list(self.own[i][1])
        record_rules = self.broken[i][0] if i in self.broken else None
        partition = None if topic is None else f"{topic}-{self.request.partition(i)}"
        return [(e[n].index, message_of_error(&e[n], record_rules, row.a, row.b, partition))
                for n in range(row.errors_at, row.errors_at + row.errors_count)]

    def keep(self, goes_on=None):
        """Return for each partition whether it goes on. ``goes_on(i)`` may let a refused one pass;
        of a request that is converted, what was converted goes on.
        """
        cdef Py_ssize_t i
        found = []
        if self.converts:
            for i in range(self.request.count):
                breathe(i)
                found.append(bool(self.rows[i].forwarded))
            return found
        for i in range(self.request.count):
            breathe(i)
            found.append(self.rows[i].rule == 0 or (goes_on is not None and bool(goes_on(i))))
        return found

    def refusals(self, list keep not None, topic_of=None):
        """Return for each partition that does not go on (error code, record errors, reason), else
        None: see produce_answer.refuse. Reasons of more than 512 KiB in all are left out. The code
        of an old version's empty message set is 0. ``topic_of(i)``: the topic's name, or None.
        """
        cdef Py_ssize_t i, before = -1
        cdef int64_t left = MAX_REASON_BYTES
        cdef Py_ssize_t size = 0
        cdef tuple refusal = None
        if len(keep) != self.request.count:
            raise ValueError(f"{len(keep)} answers for {self.request.count} partitions")
        found = []
        for i in range(self.request.count):
            breathe(i)
            if keep[i]:
                found.append(None)
                continue
            # most refusals of a large request are the same
            if before < 0 or (size and left <= 0) or not self.same_refusal(before, i):
                refusal = self.refusal(i, left > 0, topic_of)
                size = 0 if refusal[2] is None else len(refusal[2])
                before = i
            left -= size
            found.append(refusal)
        return found

    cdef bint same_refusal(self, Py_ssize_t before, Py_ssize_t i):
        """Return whether both partitions have the same answer."""
        cdef VerdictRow *one = &self.rows[before]
        cdef VerdictRow *other = &self.rows[i]
        if one.errors_seen or other.errors_seen or before == self.failed_at or one.rule == OWN:
            return False
        if one.rule != other.rule or one.reason != other.reason or i == self.failed_at:
            return False
        return (one.error_code == other.error_code and one.record == other.record
                and one.a == other.a and one.b == other.b)

    cdef tuple refusal(self, Py_ssize_t i, bint has_text, topic_of):
        """Return the answer to one partition."""
        cdef VerdictRow *row = &self.rows[i]
        text = None
        if row.rule == OWN:
            return row.error_code, self.own[i][1], self.own[i][2] if has_text else None
        topic = topic_of(i) if row.errors_count and topic_of is not None else None
        errors = self.record_errors(i, topic) if row.errors_count else ()
        if has_text:
            if row.errors_seen and i not in self.broken:
                text = rejection(errors, row.errors_seen, row.error_code == INVALID_TIMESTAMP)
            else:
                text = self.reason(i)
                self.reason_at, self.reason_text = i, text  # a log line has it, too
            if row.errors_seen > row.errors_count:
                more = row.errors_seen - row.errors_count
                text = f"{text}; {more} more of the record errors are not listed"
        return row.error_code, errors, text

    def outgoing(self, LogValidator one not None, str carrier, keep, bint has_tags):
        """Return (tags, batches): what goes on in place of the claims that came, one a partition.

        ``carrier``: where the claims of compressed batches that were walked and accepted go:
        ``none``, ``tag`` or ``payload``. A payload that cannot carry them, or whose batch would
        become larger than its topic allows, leaves them to the tag. A tag or None; the batch, where
        its bytes change, or None. ``keep``: for each partition whether it goes on; None: all do.
        ``has_tags``: the request's version has tagged fields.
        """
        cdef Py_ssize_t i, n
        cdef const uint8_t *p
        cdef VerdictRow *row
        cdef bint claimed
        tags = []
        batches = []
        for i in range(self.request.count):
            breathe(i)
            row = &self.rows[i]
            p = self.batch(i, &n)
            tag = batch = None
            if keep is None or keep[i]:
                if self.converts and self.converted[i] is not None:
                    tags.append(None)
                    batches.append(self.outgoing_converted(i, one, carrier == "payload"))
                    continue
                claimed = (carrier != "none" and row.rule == 0 and row.has_claims
                           and n > ATTRIBUTES + 1 and p[ATTRIBUTES + 1] & CODEC_MASK)
                row.keeps_tag = claimed
                if has_payload_claims(p, n) or (claimed and carrier == "payload"):
                    batch = self.outgoing_batch(i, one, claimed and carrier == "payload")
                if row.keeps_tag and has_tags:
                    if batch is not None:
                        p = <const uint8_t *>PyBytes_AS_STRING(batch)
                    tag = tag_of(&row.claims, p)
            tags.append(tag)
            batches.append(batch)
        return tags, batches

    cdef bytes outgoing_converted(self, Py_ssize_t i, LogValidator one, bint attached):
        """Return the batch that a partition's message set became, with its claims in the payload if
        ``attached`` is set and they fit.
        """
        cdef bytes built = self.converted[i]
        cdef bytes carrier = None
        if attached and self.rows[i].has_claims:
            carrier = carrying(
                <const uint8_t *>PyBytes_AS_STRING(built), len(built), &self.rows[i].claims,
                self.validator_at(i, one).compiled.max_message_bytes)
        return built if carrier is None else carrier

    cdef bytes outgoing_batch(self, Py_ssize_t i, LogValidator one, bint attached):
        """Return the batch of a partition without the claims of its payload, and with its own there
        if ``attached`` is set and they fit; ``keeps_tag`` then says that they did not. None: as it
        came.
        """
        cdef Py_ssize_t n
        cdef const uint8_t *p = self.batch(i, &n)
        cdef bytes stripped = None, carrier
        cdef size_t gone = claims_size(p, n)
        if gone:
            stripped = PyBytes_FromStringAndSize(NULL, n - gone)
            strip_payload(<uint8_t *>PyBytes_AS_STRING(stripped), p, n, gone)
            n -= gone
            p = <const uint8_t *>PyBytes_AS_STRING(stripped)
        if not attached:
            return stripped
        carrier = carrying(
            p, n, &self.rows[i].claims, self.validator_at(i, one).compiled.max_message_bytes)
        if carrier is None:
            return stripped
        self.rows[i].keeps_tag = False
        return carrier

    def has_payload_claims(self):
        """Return whether any batch carries claims in its payload, readable or not."""
        cdef Py_ssize_t i, n
        cdef const uint8_t *p
        for i in range(self.request.count):
            p = self.batch(i, &n)
            if has_payload_claims(p, n):
                return True
        return False


cdef bytes carrying(const uint8_t *p, Py_ssize_t n, const Claims *claims, int64_t most):
    """Return the batch p[0:n] with claims in its payload. None: it has no place for them, would
    have more than ``most`` bytes, or has other batches after it, which its crc does not cover.
    """
    cdef uint8_t block[MAX_MADE_BLOCK_SIZE]
    cdef size_t size = put_block(block, claims)
    cdef size_t more = carrier_size(p, n, size)
    if more == 0 or n + <int64_t>more > most or be32(p + BATCH_LENGTH) != n - LOG_OVERHEAD:
        return None
    out = PyBytes_FromStringAndSize(NULL, n + more)
    attach_to_payload(<uint8_t *>PyBytes_AS_STRING(out), p, n, block, size)
    return out


cdef bytes tag_of(const Claims *claims, const uint8_t *batch):
    """Return the claims tag of a batch: a block and the batch's crc."""
    cdef uint8_t[MAX_MADE_BLOCK_SIZE + CRC_SIZE] tag
    cdef size_t size = put_block(tag, claims)
    put_be32(tag + size, be32(batch + CRC))
    return (<const char *>tag)[:size + CRC_SIZE]
