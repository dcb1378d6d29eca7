"""The public entry point: LogValidator validates complete buffers.

    check                  all rules of the profile; never writes
    validate               the same, then assigns offsets and what else a broker's append writes
    check_produce_request  all partitions of a produce request, which may fail as a whole
    check_request, analyze, validate_messages_and_assign_offsets
                           the stages alone
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from batchval.core.format cimport reasons
from batchval.core.stages.arguments cimport (
    NOGIL_COMPRESSED, NOGIL_UNCOMPRESSED, CompiledPolicy, check_pairs, compile_policy,
    compiled_policy, copy_pairs, every_batch, is_immutable, is_long, is_one_claim, one_each,
    origin_number, position_in, produce_version_of, read_claims_call, read_sample, refusing, shown,
    source_number, source_of, take_buffer, whole_number,
)
from batchval.core.format.bytes cimport be32
from batchval.core.batches.columns cimport RESTING_COLUMNS, BatchColumns, tail_of
from batchval.core.stages.claims_block cimport CLAIMS_MAGIC, CLAIMS_SIZE, ClaimsCall, strip_into
from batchval.core.convert.convert cimport assign_header, assign_in_place, rebuild
from batchval.core.stages.stages cimport (
    Call, StoredFacts, fill_call, validate_partition, check_stored,
)
from batchval.core.codecs.codec_streams cimport UNLIMITED, copy_unlocked
from batchval.core.format.header cimport BATCH, BatchHeader, Entry, next_batch, next_claimed_batch
from batchval.core.stages.analyze cimport analyze_batches, validate_first_batch, validate_request
from batchval.core.stages.assign_offsets cimport validate_and_assign
from batchval.core.stages.verdict cimport (
    AppendContext, Policy, Verdict, borrow_for, breaks_record_rule, clear, conclude,
    conclude_rules,
    has_record_errors,
)
from batchval.core.format.layout cimport *
from batchval.core.batches.result cimport ValidationResult
from batchval.core.batches.row_loops cimport check_stored_rows, validate_rows
from batchval.core.records.sampling cimport Sample
from batchval.core.codecs.scratch cimport (
    GIL_YIELD_INTERVAL, Scratch, begin_work, end_work, give_back,
)

from batchval import kafka_versions
from batchval.core.batches.continuity import Continuity
from batchval.errors import ArgumentTypeError, ArgumentValueError, BatchvalError
from batchval.policy import TopicPolicy
from batchval.rules import extras_of
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef str CLIENT_NAME = "CLIENT"
# Defaults of arguments that every validator has set already (LogValidator.__init__).
cdef object ZERO = 0, DEFAULT_PRODUCE_VERSION = 9, DEFAULT_MAGIC = 2

cdef int64_t MAX_BATCH_LIMIT = (1 << 62) - 1
cdef str ONE_A_PARTITION = "a TopicPolicy, or one for each partition"

# Ends of a segment's stretch before the end of its buffer: rule, reason, code.
TAILS = {
    "partial": (L1, reasons.PARTIAL_BATCH, CORRUPT_MESSAGE),
    "zeros": (L1, reasons.ZEROS_TO_THE_END, CORRUPT_MESSAGE),
    "size": (BATCH_SIZE_TOO_SMALL, reasons.SIZE_BELOW_14, CORRUPT_MESSAGE),
    "magic": (MAGIC_UNKNOWN, reasons.MAGIC_NOT_0_1_2, CORRUPT_MESSAGE),
}
TAIL_TEXTS = {
    "partial": "{} bytes of a batch that is not whole",
    "zeros": "{} zero bytes to the end",
    "size": "an impossible batch size, {} bytes before the end",
    "magic": "an unknown magic, {} bytes before the end",
}


cdef bytes private_copy(const Py_buffer *view):
    """Return a copy of the bytes of a buffer that can change; None where it can be read in place.
    """
    if is_immutable(view):
        return None
    return copied(<const uint8_t *>view.buf, view.len)


cdef bytes copied(const uint8_t *p, size_t n):
    copy = PyBytes_FromStringAndSize(NULL, n)
    copy_unlocked(<uint8_t *>PyBytes_AS_STRING(copy), p, n)
    return copy


cdef void validate_one(const uint8_t *p, size_t n, const Call *call, Verdict *v,
        BatchHeader *h) noexcept nogil:
    """Validate one buffer. The caller has the GIL, which is released when the work is long."""
    begin_work(call.scratch, is_long(p, n))
    validate_partition(p, n, call, v, h)
    end_work(call.scratch)


cdef inline bint writes(const Verdict *v) noexcept nogil:
    """Return whether there are bytes to write, or to build for their size alone."""
    return v.rule == 0 or (v.late and v.rebuild)


cdef inline bint stays(const Verdict *v, const BatchHeader *h,
        const AppendContext *d) noexcept nogil:
    """Return whether the one batch of magic 2 whose header is ``h`` was accepted, as it came."""
    return (v.rule == 0 and not v.rebuild and v.batches == 1 and v.valid_bytes >= RECORDS
            and h.magic == 2 and d.to_magic == 2
            and v.valid_bytes == <int64_t>h.batch_length + LOG_OVERHEAD)


cdef void assign_unlocked(uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch, const Verdict *v, bint crc_is_right, uint8_t *to) noexcept nogil:
    """Assign in place. The caller has the GIL, which is released when the work is long: checksums
    may have to be computed anew.
    """
    begin_work(scratch, n >= NOGIL_UNCOMPRESSED)
    assign_in_place(p, n, d, policy, scratch, v, crc_is_right, to)
    end_work(scratch)


cdef list records_of(partitions):
    """Return the records of each partition; None stands for none."""
    return [b"" if records is None else records
            for records in one_each(partitions, "partitions", "a sequence of buffers")]


cdef list refusals_of_all(const Verdict *v, Py_ssize_t index, Py_ssize_t count):
    """Return the verdict on partition ``index``, for each partition of its request."""
    cdef ValidationResult one
    cdef Py_ssize_t i
    results = []
    for i in range(count):
        one = ValidationResult.__new__(ValidationResult)
        one.v = v[0]
        one.v.error_batch = 0 if i == index else -1
        results.append(one)
    reason = f"partition {index} fails the whole request: {results[index].reason}"
    for i in range(count):
        if i != index:
            one = results[i]
            one.text = reason
    return results


@cython.final
cdef class RejudgeAtRest:
    """A maker of the ValidationResult of one row of check_batches, on demand."""
    cdef object validator
    cdef object buffer
    cdef bint deep
    cdef object trust_claims

    def __call__(self, position, length, i):
        return self.validator.rejudge_at_rest(
            self.buffer, position, deep=self.deep, trust_claims=self.trust_claims)


@cython.final
cdef class Rejudge:
    """A maker of the ValidationResult of one row of check_ranges, on demand."""
    cdef object validator
    cdef object buffer
    cdef object policies
    cdef object now_ms
    cdef object origin
    cdef int produce_version
    cdef int64_t first_offset
    cdef int leader_epoch
    cdef int to_magic
    cdef object claims

    def __call__(self, start, length, i):
        validator = self.validator
        if self.policies is not None:
            policy = self.policies if isinstance(self.policies, TopicPolicy) else self.policies[i]
            validator = validator.with_policy(policy)
        claims = self.claims if is_one_claim(self.claims) else self.claims[i]
        try:
            data = memoryview(self.buffer).cast("B")
        except (BufferError, TypeError, ValueError) as error:
            raise BatchvalError(f"the buffer of row {i} cannot be read any more: {error}") from None
        if start + length > len(data):
            raise BatchvalError(
                f"row {i} is {length} bytes from {start}, "
                f"but its buffer has only {len(data)} bytes now")
        return validator.check(
            data[start:start + length], now_ms=self.now_ms, origin=self.origin,
            produce_version=self.produce_version, first_offset=self.first_offset,
            leader_epoch=self.leader_epoch, to_magic=self.to_magic, claims=claims)


@cython.final
cdef class LogValidator:
    """Kafka's LogValidator with the checks around it, for one topic's policy.

    ``mode``      ``strict`` (default): Kafka's rules and the extras S1 and up; never answers
                  UNKNOWN_SERVER_ERROR.
                  ``kafka``: Kafka's own answer, with its disagreeing parsers and its failures.
    ``profile``   ``produce`` (default): the rules of a broker's append. ``log``: a segment's rules.
    ``extras``    {"S1": "report", ...}: extras that are only reported; the others refuse.
    ``max_decompressed_bytes``  bounds what a whole batch decompresses to (S8). None: 64 MiB in
                  strict mode, no limit in kafka mode.
    ``kafka_version``  whose answers: a release such as ``4.2.1``, or ``4.2`` for its newest patch;
                  by default ``4.4.0``. The attribute holds the full number. Without a policy the
                  topic has the defaults of that release. NewerKafkaWarning: batchval does not know
                  the release yet, and answers as the newest that it knows.
    ``clock_ns``  a function that gives nanoseconds, for the conversion time in Kafka's statistics.

    A validator holds no scratch memory of its own and may be used by many threads at once. Any
    contiguous buffer of bytes is accepted. Checks read it in place: if it changes meanwhile, the
    verdict may be wrong. Calls that build output read a private copy, unless the buffer cannot
    change. A refusal is a result; BatchvalError is raised for a caller's mistake alone.
    """
    def __init__(self, policy=None, *, mode="strict", profile="produce", extras=None,
            max_decompressed_bytes=None, clock_ns=None,
            kafka_version=kafka_versions.DEFAULT_KAFKA_VERSION):
        if mode not in ("strict", "kafka"):
            raise ArgumentValueError(f"mode must be strict or kafka, not {mode!r}")
        if profile not in ("produce", "log"):
            raise ArgumentValueError(f"profile must be produce or log, not {profile!r}")
        if extras and mode == "kafka":
            raise ArgumentValueError(
                "extras cannot be combined with mode='kafka', which follows Kafka alone: "
                "leave them out, or choose mode='strict'")
        if clock_ns is not None and not callable(clock_ns):
            raise ArgumentTypeError(
                f"clock_ns must be a function that returns nanoseconds, not {clock_ns!r}")
        if max_decompressed_bytes is None and mode == "strict":
            max_decompressed_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES
        if max_decompressed_bytes is not None:
            max_decompressed_bytes = whole_number(
                    "max_decompressed_bytes", max_decompressed_bytes, 0, MAX_BATCH_LIMIT, "bytes")
        release = kafka_versions.release_of(kafka_version)
        row = release.row
        if policy is None:
            policy = TopicPolicy.from_kafka_config({}, kafka_version=release)
        self.policy = policy
        self.rules = compile_policy(&self.compiled, self.policy)
        self.mode = mode
        self.profile = profile
        self.max_decompressed_bytes = max_decompressed_bytes
        self.clock_ns = clock_ns
        self.release = release
        self.kafka_version = release.name
        self.context.drops_newer_epochs = row.drops_newer_epochs
        self.context.checks_order_at_once = row.checks_order_at_once
        self.context.asks_marker_versions = row.asks_marker_versions
        self.context.measures_markers = row.measures_markers
        self.context.rebuilds_empty_batches = row.rebuilds_empty_batches
        self.context.knows_magic_0_has_no_time = row.knows_magic_0_has_no_time
        self.context.first_checked_produce_version = row.first_checked_produce_version
        self.context.parsers.checks_length = row.checks_record_length
        self.context.parsers.sums_fields = row.sums_record_fields
        self.context.parsers.refuses_cut_records = row.refuses_cut_records
        self.context.parsers.refuses_append_time = row.refuses_append_time
        self.context.parsers.bounds_header_counts = row.bounds_header_counts
        self.context.kept_attributes = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT | (
                DELETE_HORIZON_BIT if row.keeps_delete_horizon else 0)
        self.context.largest_record = row.largest_record
        self.context.strict = mode == "strict"
        self.context.refuse = refusing(extras)
        self.context.limit = (<uint64_t>UNLIMITED if max_decompressed_bytes is None
                           else <uint64_t>max_decompressed_bytes)
        self.context.profile = PRODUCE_PROFILE if profile == "produce" else LOG_PROFILE
        self.context.to_magic = 2
        self.context.produce_version = 9
        self.context.origin = CLIENT

    cdef dict settings(self):
        """Return every argument of the constructor but the policy."""
        return {
            "mode": self.mode,
            "profile": self.profile,
            "extras": {rule.id: "report" for rule in extras_of(~self.context.refuse)},
            "max_decompressed_bytes": self.max_decompressed_bytes,
            "clock_ns": self.clock_ns,
            "kafka_version": self.release,
        }

    def __repr__(self):
        arguments = self.settings() | {"kafka_version": self.kafka_version}
        settings = "".join([f", {name}={value!r}" for name, value in arguments.items()])
        return f"LogValidator({self.policy!r}{settings})"

    def __eq__(self, other):
        cdef LogValidator that
        if not isinstance(other, LogValidator):
            return NotImplemented
        that = other
        return self.policy == that.policy and self.settings() == that.settings()

    def __hash__(self):
        return hash((self.policy, self.mode, self.profile, self.max_decompressed_bytes,
                     self.kafka_version))

    def __reduce__(self):
        return _validator, (self.policy, self.settings())

    def __copy__(self):
        return self  # immutable

    def __deepcopy__(self, memo):
        return self

    def with_policy(self, policy):
        """Return the same validator for another topic."""
        return _validator(policy, self.settings())

    cdef bint accepts_claims(self) noexcept nogil:
        """Return whether batches of magic 3 are accepted: never in kafka mode."""
        return self.compiled.accept_claims_header and self.context.strict

    cdef int open_context(self, AppendContext *d, now_ms, origin, produce_version, first_offset,
            leader_epoch,
            to_magic) except -1:
        d[0] = self.context
        if now_ms is not None:
            d.now = whole_number("now_ms", now_ms, INT64_MIN, INT64_MAX, "milliseconds")
        elif self.context.profile == PRODUCE_PROFILE:
            raise ArgumentTypeError("now_ms is required (milliseconds since the epoch)")
        if origin is not CLIENT_NAME:
            d.origin = origin_number(origin)
        if produce_version is not DEFAULT_PRODUCE_VERSION:
            d.produce_version = produce_version_of(produce_version)
        if first_offset is not ZERO:
            d.first_offset = whole_number("first_offset", first_offset, INT64_MIN, INT64_MAX)
        if leader_epoch is not ZERO:
            d.leader_epoch = whole_number("leader_epoch", leader_epoch, INT32_MIN, INT32_MAX)
        if to_magic is not DEFAULT_MAGIC:
            d.to_magic = whole_number("to_magic", to_magic, 0, 2)
        return 0

    def check(self, buffer, *, now_ms=None, origin="CLIENT", produce_version=9, first_offset=0,
            leader_epoch=0, to_magic=2, claims=None):
        """Validate the records of one partition, or with the log profile a stretch of a segment.
        Nothing is written.

        Where ``validate`` would build the batch anew, this parses as the rebuild does, checks all
        rules but 40 and sets the path ``rebuilt``; the caller that appends must check rule 40 on
        the rebuilt size.

        ``claims`` is (tag bytes or None, ``"ignore"`` | ``"verify"`` | ``"trust"``); the tag, or
        the header of a batch of magic 3, holds the claims themselves. None ignores them.
        """
        cdef AppendContext d
        cdef ClaimsCall call
        cdef Py_buffer view
        cdef BatchHeader h
        cdef Scratch *scratch
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        self.open_context(&d, now_ms, origin, produce_version, first_offset, leader_epoch, to_magic)
        if d.profile == LOG_PROFILE:
            if claims is not None:
                raise ArgumentValueError(
                    "claims cannot be combined with profile='log': "
                    "at rest the claims in a header are always verified")
            return self.check_log(buffer)
        read_claims_call(claims, d.strict, &call)
        take_buffer(buffer, &view)
        try:
            scratch = borrow_for(&self.context)
            try:
                self.validate_into(
                        result, <const uint8_t *>view.buf, view.len, &d, &call, scratch, &h)
            finally:
                give_back(scratch)
        finally:
            PyBuffer_Release(&view)
        return result

    cdef ValidationResult check_log(self, buffer):
        """Return the first finding of a stretch of a segment: of single batches, of its end, or
        between batches.
        """
        cdef BatchColumns columns = self.check_batches(buffer)
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        cdef int64_t left
        clear(&result.v)
        result.v.path = PATH_FULL
        result.v.valid_bytes = columns.end
        result.v.records_count = min(int(columns["records_count"][columns["is_valid"]].clip(0).sum()), 0x7FFFFFFF)
        first = None
        bad = columns["rule"].nonzero()[0]
        if len(bad):
            first = (int(columns["position"][bad[0]]), int(bad[0]), None)
        for finding in Continuity(compacted=self.policy.is_compacted).feed(columns):
            if first is None or finding.position < first[0]:
                first = (finding.position, -1, finding)
            break
        if first is None and columns.tail is not None:
            left = memoryview(buffer).nbytes - columns.end
            result.v.error_batch = columns.end
            result.v.rule, reason, code = TAILS[columns.tail]
            result.v.reason = reason
            result.v.error_code = code
            result.v.a = left
            result.text = TAIL_TEXTS[columns.tail].format(left)
        elif first is not None and first[2] is None:
            return columns.result(first[1])
        elif first is not None:
            result.v.rule = first[2].rule.number
            result.v.error_code = first[2].rule.error_code
            result.v.error_batch = first[0]
            result.text = first[2].reason
        else:
            reports = 0
            for row_reports in columns["reports"]:
                reports |= int(row_reports)
            result.v.reports = reports
        return result

    def check_batches(self, buffer, position=0, *, bint deep=True, trust_claims=None):
        """Validate every whole batch of a stretch of a segment from ``position`` on, one row each.
        Needs the log profile.

        Without ``deep`` compressed payloads are not decompressed: checksum, codec and count are
        checked, and the row's path is none; uncompressed batches are walked either way. Each batch
        is validated alone; batchval.core.batches.continuity compares successive ones. ``columns.end``
        and ``columns.tail`` are where and why the walk stopped, as with ``scan_batches``.

        ``trust_claims`` is (rate, key): claims in the payload of zstd and gzip batches are taken
        for their records where they agree with the header, and nothing is decompressed. A sample of
        these batches, ``rate`` of them, is decompressed and compared; claims that lie are L7. The
        same ``key`` of 16 bytes draws the same batches; the writer of the segment must not know it.
        """
        cdef Sample sample
        cdef const Sample *drawing = NULL
        cdef BatchColumns columns
        cdef AppendContext d = self.context
        cdef Py_buffer view
        cdef Scratch *scratch
        cdef const uint8_t *p
        cdef size_t end = 0
        cdef Py_ssize_t start
        cdef int found
        if self.context.profile != LOG_PROFILE:
            raise ArgumentValueError(
                "check_batches requires profile='log': call check_ranges for produce requests")
        cdef RejudgeAtRest again
        if trust_claims is not None:
            trust_claims = read_sample(trust_claims, d.strict, &sample)
            drawing = &sample
        columns = BatchColumns.__new__(BatchColumns, True)
        columns.width = RESTING_COLUMNS
        take_buffer(buffer, &view)
        try:
            start = position_in(position, view.len)
            p = <const uint8_t *>view.buf
            scratch = borrow_for(&self.context)
            try:
                with nogil:
                    found = check_stored_rows(
                            p, view.len, start, &d, &self.compiled, deep, drawing, scratch,
                            columns, &end)
            finally:
                give_back(scratch)
            if found < 0:
                raise MemoryError()
            columns.end = end
            columns.tail = tail_of(p + end, view.len - end, found)
        finally:
            PyBuffer_Release(&view)
        again = RejudgeAtRest.__new__(RejudgeAtRest)
        again.validator = self
        again.buffer = buffer
        again.deep = deep
        again.trust_claims = trust_claims
        columns.rejudge = again
        return columns

    def rejudge_at_rest(self, buffer, position, *, bint deep=True, trust_claims=None):
        """Return the ValidationResult of the batch at ``position``, with the log profile."""
        cdef Sample sample
        cdef const Sample *drawing = NULL
        cdef StoredFacts rest
        cdef AppendContext d = self.context
        cdef Py_buffer view
        cdef Scratch *scratch
        cdef Entry b
        cdef Py_ssize_t start
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        if trust_claims is not None:
            read_sample(trust_claims, d.strict, &sample)
            drawing = &sample
        take_buffer(buffer, &view)
        try:
            clear(&result.v)
            start = position_in(position, view.len)
            if next_claimed_batch(<const uint8_t *>view.buf + start, view.len - start, &b) != BATCH:
                raise BatchvalError(f"no whole batch at position {position}: has the buffer changed?")
            scratch = borrow_for(&self.context)
            try:
                with nogil:
                    check_stored(
                        &b, &d, &self.compiled, deep, drawing, scratch, &result.v, &rest)
                result.v.error_batch = start
                result.v.valid_bytes = b.size
                self.finish(result, scratch)
                result.offsets_assigned = False
            finally:
                give_back(scratch)
        finally:
            PyBuffer_Release(&view)
        return result

    @cython.boundscheck(True)  # tuples come from the caller
    def check_ranges(self, buffer, ranges=None, policies=None, *, now_ms=None, origin="CLIENT",
            produce_version=9, first_offset=0, leader_epoch=0, to_magic=2, claims=None):
        """Validate a whole produce request in one call: ``check`` for each range of the buffer, one
        row each.

        ``ranges``    (start, length) pairs: a sequence of tuples, or a contiguous buffer of int64
                      (numpy, array), copied; None takes every whole batch of the buffer as a range
                      of its own.
        ``policies``  None (the validator's own), one TopicPolicy for all, or one a range.
        ``claims``    as for ``check``: one for all, or a sequence of one (or None) a range.

        Columns hold numbers; ``columns.result(i)`` makes the whole ValidationResult of a row, on
        demand.
        """
        cdef AppendContext d
        cdef Py_buffer view
        cdef Scratch *scratch
        cdef BatchColumns columns = BatchColumns.__new__(BatchColumns, True)
        cdef int64_t *range_of = NULL
        cdef const Policy **policy_of = NULL
        cdef size_t count, i
        cdef uint64_t bytes_in_all
        cdef CompiledPolicy one
        cdef Rejudge again
        cdef ClaimsCall one_call
        cdef ClaimsCall *calls = NULL
        self.open_context(&d, now_ms, origin, produce_version, first_offset, leader_epoch, to_magic)
        if d.profile == LOG_PROFILE:
            if ranges is not None:
                raise ArgumentValueError(
                    "ranges cannot be combined with profile='log', which checks every batch: "
                    "leave ranges out, or call check_batches")
            if claims is not None:
                raise ArgumentValueError(
                    "claims cannot be combined with profile='log': "
                    "at rest the claims in a header are always verified")
            return self.check_batches(buffer)
        take_buffer(buffer, &view)
        try:
            if ranges is None:
                range_of = every_batch(
                        <const uint8_t *>view.buf, view.len, self.accepts_claims(), &count)
            else:
                range_of = copy_pairs(ranges, &count)
            check_pairs(range_of, count, view.len, &bytes_in_all)
            kept = None
            if policies is None:
                pass
            elif isinstance(policies, TopicPolicy):
                one = compiled_policy(policies)
                kept = one
            else:
                policies = one_each(policies, "policies", "a TopicPolicy, or one for each range")
                if len(policies) != <Py_ssize_t>count:
                    raise ArgumentValueError(
                        f"got {len(policies)} policies for {count} ranges: expected one for each")
                policy_of = <const Policy **>malloc((count + 1) * sizeof(Policy *))
                if policy_of is NULL:
                    raise MemoryError()
                kept = []
                for i in range(count):
                    if i % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
                        with nogil:
                            pass
                    one = compiled_policy(policies[i])
                    kept.append(one)
                    policy_of[i] = &one.policy
            if is_one_claim(claims):
                read_claims_call(claims, d.strict, &one_call)
            else:
                if not isinstance(claims, (list, tuple)):
                    raise ArgumentTypeError(
                        "claims must be one (tag, policy) or a list of one for each range, "
                        f"not {shown(claims)}")
                claims = tuple(claims)  # as policies
                if len(claims) != <Py_ssize_t>count:
                    raise ArgumentValueError(
                        f"got {len(claims)} claims for {count} ranges: expected one for each")
                calls = <ClaimsCall *>malloc((count + 1) * sizeof(ClaimsCall))
                if calls is NULL:
                    raise MemoryError()
                for i in range(count):
                    if i % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
                        with nogil:
                            pass
                    read_claims_call(claims[i], d.strict, &calls[i])
            if not columns.reserve(count + 1):
                raise MemoryError()
            scratch = borrow_for(&self.context)
            try:
                validate_rows(<const uint8_t *>view.buf, range_of, policy_of,
                        &one.policy if kept is not None and policy_of is NULL else &self.compiled,
                        count, &d, &one_call, calls, scratch, columns,
                        view.len >= NOGIL_COMPRESSED, bytes_in_all)
            finally:
                give_back(scratch)
            if <size_t>columns.count < count:
                raise MemoryError()
            columns.end = view.len
            again = Rejudge.__new__(Rejudge)
            again.validator = self
            again.buffer = buffer
            again.policies = policies
            again.now_ms = now_ms
            again.origin = origin
            again.produce_version = d.produce_version
            again.first_offset = d.first_offset
            again.leader_epoch = d.leader_epoch
            again.to_magic = d.to_magic
            again.claims = claims
            columns.rejudge = again
        finally:
            free(range_of)
            free(policy_of)
            free(calls)
            PyBuffer_Release(&view)
        return columns

    cdef int validate_into(self, ValidationResult result, const uint8_t *p, size_t n,
            const AppendContext *d,
            const ClaimsCall *claims, Scratch *scratch, BatchHeader *h) except -1:
        cdef Call c
        fill_call(&c, d, &self.compiled, claims, scratch)
        result.now = d.now
        result.first_offset = d.first_offset
        validate_one(p, n, &c, &result.v, h)
        return self.finish(result, scratch)

    cdef int finish(self, ValidationResult result, Scratch *scratch) except -1:
        if result.v.out_of_memory:
            raise MemoryError()
        result.offsets_assigned = result.v.rule == 0
        if has_record_errors(&result.v):
            result.keep_errors(scratch)
        elif breaks_record_rule(&result.v):
            result.keep_broken(scratch, self.policy.record_rules)
        return 0

    def validate(self, buffer, *, now_ms=None, first_offset=0, leader_epoch=0, bint in_place=False,
            origin="CLIENT", produce_version=9, to_magic=2, claims=None):
        """Validate, then do what a broker's append does: assign offsets from ``first_offset``,
        leader epoch, timestamps.

        The bytes for the log are in ``result.output``: a changed copy, or with ``in_place=True`` a
        view of the buffer itself, which a refusal leaves unchanged. A batch that has to be built
        anew comes as new bytes either way. Output is built from a copy that was validated, where
        the buffer can change. With ``in_place`` a batch of magic 2 that keeps its bytes is
        validated and written in place: at positions that are inside the buffer whatever becomes of
        its bytes. ``claims`` as for ``check``; of a batch of magic 3 the output is the batch that
        it carries, which cannot be written in place.
        """
        cdef AppendContext d
        cdef ClaimsCall call
        cdef Py_buffer view
        cdef BatchHeader h
        cdef Scratch *scratch
        cdef const uint8_t *p
        cdef bytes own
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        self.open_context(&d, now_ms, origin, produce_version, first_offset, leader_epoch, to_magic)
        if self.context.profile != PRODUCE_PROFILE:
            raise ArgumentValueError(
                "validate requires profile='produce': the log profile only checks. Call check")
        read_claims_call(claims, d.strict, &call)
        take_buffer(buffer, &view, in_place)
        try:
            p = <const uint8_t *>view.buf
            if in_place and self.accepts_claims() and view.len > MAGIC and p[MAGIC] == CLAIMS_MAGIC:
                raise ArgumentValueError(
                    "in_place=True is not supported for magic 3: "
                    "removing the claims shortens the batch")
            scratch = borrow_for(&self.context)
            try:
                if in_place:
                    self.validate_into(result, p, view.len, &d, &call, scratch, &h)
                    if not writes(&result.v):
                        return result
                    if stays(&result.v, &h, &d):
                        result.new_bytes = buffer
                        result.viewed = result.v.valid_bytes
                        if not result.v.kept:
                            assign_header(<uint8_t *>view.buf, &h, &d, &self.compiled, &result.v)
                        return result
                own = private_copy(&view)
                if own is not None:
                    p = <const uint8_t *>PyBytes_AS_STRING(own)
                self.validate_into(result, p, view.len, &d, &call, scratch, &h)
                if result.v.rule == 0:
                    self.assign(result, p, result.v.valid_bytes, own, buffer if in_place else None,
                            &view, &d, scratch, True)
                elif result.v.late and result.v.rebuild:
                    self.size_comes_first(result, p, own, &view, &d, scratch)
            finally:
                give_back(scratch)
        finally:
            PyBuffer_Release(&view)
        return result

    cdef int size_comes_first(self, ValidationResult result, const uint8_t *p, bytes own,
            const Py_buffer *view, const AppendContext *d, Scratch *scratch) except -1:
        """Build a batch that rules 41 to 47 refuse, for its size: rule 40 comes before them."""
        cdef ValidationResult built = ValidationResult.__new__(ValidationResult)
        if d.strict and result.v.found & d.refuse & S7_BIT:
            return 0  # a stream that Kafka reads in another way: the result of a rebuild is unknown
        built.v = result.v
        built.v.rule = 0
        self.assign(built, p, result.v.valid_bytes, own, None, view, d, scratch, True)
        if built.v.rule:
            result.v = built.v
        return 0

    cdef int assign(self, ValidationResult result, const uint8_t *p, size_t n, bytes own, kept,
            const Py_buffer *view, const AppendContext *d, Scratch *scratch,
            bint crc_is_right) except -1:
        """Write the validated bytes p[0:n] to ``result.output``. ``own``: p's bytes, a private
        copy, None where p is the caller's and immutable. ``kept``: the caller's buffer, to be
        written to; None: it stays unchanged.
        """
        cdef Entry b
        cdef size_t at = 0
        cdef const uint8_t *built
        cdef uint8_t *to = NULL
        if result.v.stripped and n > 0:  # a follower may have skipped it
            own = PyBytes_FromStringAndSize(NULL, n - CLAIMS_SIZE)
            built = <const uint8_t *>PyBytes_AS_STRING(own)
            with nogil:
                strip_into(<uint8_t *>built, p, n, be32(p + BATCH_LENGTH) + LOG_OVERHEAD)
            p = built
            n -= CLAIMS_SIZE
        if result.v.rebuild:
            started = self.clock_ns() if self.clock_ns is not None else None
            output = rebuild(p, n, d, &self.compiled, scratch, &result.v)
            if started is not None:
                result.conversion_time = self.clock_ns() - started
            built = <const uint8_t *>PyBytes_AS_STRING(output)
            if crc_is_right and d.origin != REPLICATION:
                while next_batch(built + at, len(output) - at, &b) == BATCH:
                    if b.size > <uint64_t>self.compiled.max_message_bytes:
                        self.refuse_size(result, b.size)
                        return 0
                    at += b.size
            result.new_bytes = output
            return 0
        if own is None or (kept is None and <size_t>PyBytes_GET_SIZE(own) != n):
            own = copied(p, n)
        if kept is None:
            result.new_bytes = own
        else:
            result.new_bytes = kept
            result.viewed = n
            to = <uint8_t *>view.buf
        if n and not result.v.kept:  # these bytes are not shared yet
            assign_unlocked(
                    <uint8_t *>PyBytes_AS_STRING(own), n, d, &self.compiled, scratch, &result.v,
                    crc_is_right, to)
        return 0

    cdef int refuse_size(self, ValidationResult result, int64_t size) except -1:
        result.v.rule = REBUILT_BATCH_TOO_LARGE
        result.v.error_code = MESSAGE_TOO_LARGE
        result.v.reason = reasons.REBUILT_LARGER_THAN_MAX
        result.v.a = size
        result.v.b = self.compiled.max_message_bytes
        result.v.reports = 0
        result.offsets_assigned = False
        return 0

    def scan_produce_request(self, partitions, policies=None, *, produce_version=9):
        """Return None, or the refusal of every partition where one of them fails the whole produce
        request.

        ``partitions`` holds the records of each partition in the order of the request; None stands
        for no records. KafkaApis looks at the first batch of each, up to the first that is
        transactional, before it checks any partition for itself
        (RequestUtils.hasTransactionalRecords): rules 2 and 4 fail the whole request there. Rule 3
        and a codec that does not exist do so wherever they are met, for they are not errors of
        Kafka's API. Kafka answers every partition with the code, and appends nothing.
        """
        cdef AppendContext d = self.context
        cdef Py_buffer view
        cdef Policy policy = self.compiled
        cdef object _rules = self.rules  # what the policy points to lives as long
        cdef Verdict v
        cdef bint transactional, passes, own, seen = False
        cdef Py_ssize_t i
        buffers = records_of(partitions)
        if policies is not None and not isinstance(policies, TopicPolicy):
            policies = one_each(policies, "policies", ONE_A_PARTITION)
            if len(policies) != len(buffers):
                raise ArgumentValueError(
                    f"got {len(policies)} policies for {len(buffers)} partitions: "
                    "expected one for each")
        d.produce_version = produce_version_of(produce_version)
        # Two rounds, as in Kafka: of all partitions, then each partition's own check.
        for own in (False, True):
            for i in range(len(buffers)):
                if seen and not own:
                    break
                if policies is not None:
                    _rules = compile_policy(&policy,
                            policies if isinstance(policies, TopicPolicy) else policies[i])
                clear(&v)
                take_buffer(buffers[i], &view)
                try:
                    if not own:
                        passes = validate_first_batch(<const uint8_t *>view.buf, view.len,
                                policy.accept_claims_header and d.strict, &v, &transactional)
                        seen = transactional
                    elif view.len > MAGIC and (<const uint8_t *>view.buf)[MAGIC] == CLAIMS_MAGIC:
                        passes = True
                    else:
                        passes = (validate_request(<const uint8_t *>view.buf, view.len, &d, &v)
                                  or v.error_code != UNKNOWN_SERVER_ERROR)
                finally:
                    PyBuffer_Release(&view)
                if not passes:
                    conclude(&d, &v)
                    return refusals_of_all(&v, i, len(buffers))
        return None

    def check_produce_request(self, partitions, policies=None, *, now_ms, produce_version=9,
            claims=None):
        """Return the ValidationResult of each partition of a produce request, in order.

        ``partitions``, ``policies`` and ``claims`` as for ``scan_produce_request`` and
        ``check_ranges``. Where that scan finds something, every partition is refused with its code:
        nothing of the request may be forwarded.
        """
        buffers = records_of(partitions)
        if policies is None or isinstance(policies, TopicPolicy):
            validators = [self if policies is None else self.with_policy(policies)] * len(buffers)
        else:
            policies = one_each(policies, "policies", ONE_A_PARTITION)
            validators = [self.with_policy(policy) for policy in policies]
        one = is_one_claim(claims)
        if not one:
            claims = one_each(claims, "claims", "one (tag, policy), or one for each partition")
        if not one and len(claims) != len(buffers):
            raise ArgumentValueError(
                f"got {len(claims)} claims for {len(buffers)} partitions: expected one for each")
        refused = self.scan_produce_request(buffers, policies, produce_version=produce_version)
        if refused is not None:
            return refused
        return [
            validator.check(records, now_ms=now_ms, produce_version=produce_version,
                            claims=claims if one else claims[i])
            for i, (validator, records) in enumerate(zip(validators, buffers))
        ]

    def check_request(self, buffer, *, produce_version=9):
        """Check a produce request alone: rules 5 to 8 (ProduceRequest.validateRecords)."""
        cdef AppendContext d = self.context
        cdef Py_buffer view
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        d.produce_version = produce_version_of(produce_version)
        take_buffer(buffer, &view)
        try:
            clear(&result.v)
            # This reads two headers and no record.
            validate_request(<const uint8_t *>view.buf, view.len, &d, &result.v)
            conclude(&d, &result.v)
        finally:
            PyBuffer_Release(&view)
        return result

    def analyze(self, buffer, *, origin="CLIENT", leader_epoch=0):
        """Run the broker's batch loop alone: rules 1 to 4 and 9 to 16
        (UnifiedLog.analyzeAndValidateRecords).

        ``result.valid_bytes`` and ``result.source`` have its results.
        """
        cdef AppendContext d = self.context
        cdef Py_buffer view
        cdef Scratch *scratch
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        d.origin = origin_number(origin)
        d.leader_epoch = whole_number("leader_epoch", leader_epoch, INT32_MIN, INT32_MAX)
        take_buffer(buffer, &view)
        try:
            clear(&result.v)
            scratch = borrow_for(&self.context)
            try:
                begin_work(scratch, is_long(<const uint8_t *>view.buf, view.len))
                analyze_batches(<const uint8_t *>view.buf, view.len, &d, &self.compiled, scratch,
                        &result.v)
                conclude(&d, &result.v)
                end_work(scratch)
                self.finish(result, scratch)
                result.offsets_assigned = False
            finally:
                give_back(scratch)
        finally:
            PyBuffer_Release(&view)
        return result

    def validate_messages_and_assign_offsets(self, buffer, *, now_ms=None, source=None,
            first_offset=0,
            leader_epoch=0, origin="CLIENT", to_magic=2, bint in_place=False):
        """Run Kafka's LogValidator alone: rules 18 to 39. Only this method accepts magic 0 and 1.

        ``source`` is the codec as the batch loop found it (a name); None looks for it as that loop
        does. ``result.output`` as for ``validate``: a changed copy, or with ``in_place=True`` a
        view of the buffer itself, unless the batch has to be built anew.
        """
        cdef AppendContext d
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef bytes own
        cdef int codec = SOURCE_UNKNOWN
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        self.open_context(&d, now_ms, origin, 9, first_offset, leader_epoch, to_magic)
        if source is not None:
            codec = source_number(source)
            if codec < 0:
                raise ArgumentValueError(
                    f"source must be none, gzip, snappy, lz4 or zstd, not {shown(source)}")
        take_buffer(buffer, &view, in_place)
        try:
            p = <const uint8_t *>view.buf
            if in_place and self.assigns_in_place(result, <uint8_t *>view.buf, view.len, &d, codec):
                if result.v.rule == 0:
                    result.new_bytes = buffer
                    result.viewed = view.len
                return result
            own = private_copy(&view)
            if own is not None:
                p = <const uint8_t *>PyBytes_AS_STRING(own)
            self.convert_into(result, p, view.len, own, &d, codec)
        finally:
            PyBuffer_Release(&view)
        return result

    cdef bint assigns_in_place(self, ValidationResult result, uint8_t *p, size_t n,
            const AppendContext *d, int source) except -1:
        """Validate p[0:n], and assign in it what the verdict leaves to assign. Return False where
        the result needs bytes that nobody else can change: those of a rebuild, and messages that
        are compressed in spite of ``source``.
        """
        cdef Scratch *scratch
        cdef int codec = source_of(p, n)
        if source != SOURCE_UNKNOWN and source != codec:
            return False
        scratch = borrow_for(&self.context)
        try:
            begin_work(scratch, is_long(p, n))
            self.judge_records(result, p, n, d, codec, scratch)
            if not (result.v.rule or result.v.rebuild or result.v.kept):
                assign_in_place(p, n, d, &self.compiled, NULL, &result.v, False, NULL)
            end_work(scratch)
            self.finish(result, scratch)
        finally:
            give_back(scratch)
        return not result.v.rebuild

    cdef void judge_records(self, ValidationResult result, const uint8_t *p, size_t n,
            const AppendContext *d, int source, Scratch *scratch) noexcept nogil:
        """Run LogValidator's stage on p[0:n], whose codec is ``source``."""
        clear(&result.v)
        result.now = d.now
        result.first_offset = d.first_offset
        result.v.source = source
        validate_and_assign(p, n, d, &self.compiled, scratch, &result.v)
        conclude(d, &result.v)
        conclude_rules(scratch, &result.v)

    cdef int convert_into(self, ValidationResult result, const uint8_t *p, size_t n, bytes own,
            const AppendContext *d, int source) except -1:
        """Run validate_messages_and_assign_offsets for native callers: p[0:n] is validated and
        built.

        ``own``: p's bytes, a private copy; None where p is the caller's, which must not change
        before this returns. ``source``: the codec's number, or SOURCE_UNKNOWN. Long work is done
        without the GIL.
        """
        cdef Scratch *scratch = borrow_for(&self.context)
        try:
            begin_work(scratch, is_long(p, n))
            self.judge_records(result, p, n, d,
                    source_of(p, n) if source == SOURCE_UNKNOWN else source, scratch)
            end_work(scratch)
            self.finish(result, scratch)
            if result.v.rule == 0:
                self.assign(result, p, n, own, None, NULL, d, scratch, False)
        finally:
            give_back(scratch)
        return 0


def _validator(policy, settings):
    """Make a validator from its pickled policy and settings."""
    return LogValidator(policy, **settings)
