"""LogValidator: the one door to the core for whole buffers.

    check      the profile's whole door; never writes
    validate   the same, then assigns offsets and what else a broker's append writes
    check_request, analyze, validate_messages_and_assign_offsets   the stages alone
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.compression.blocks cimport native
from batchval.core cimport reasons
from batchval.core.convert cimport assign_in_place, rebuild
from batchval.core.frames cimport UNLIMITED
from batchval.core.header cimport BATCH, Entry, next_batch
from batchval.core.judge cimport Door, Policy, Verdict, clear, conclude, judge, judge_batches, judge_messages, judge_request
from batchval.core.layout cimport *
from batchval.core.result cimport ValidationResult
from batchval.core.scratch cimport Scratch, borrow, give_back

from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from batchval.rules import EXTRAS, Rule
from batchval.types import AppendOrigin

cdef enum:
    # Below these sizes a call is over before another thread has got hold of the GIL.
    NOGIL_COMPRESSED = 8192
    NOGIL_UNCOMPRESSED = 131072

DEFAULT_MAX_DECOMPRESSED_BYTES = 64 << 20

_ORIGINS = {origin.name: int(origin) for origin in AppendOrigin} | {int(origin): int(origin) for origin in AppendOrigin}
_CODECS = {"none": NONE, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD, "producer": PRODUCER}


cdef int compile_policy(Policy *to, policy) except -1:
    if not isinstance(policy, TopicPolicy):
        raise BatchvalError(f"policy must be a TopicPolicy, not {type(policy).__name__}")
    to.before_max = policy.message_timestamp_before_max_ms
    to.after_max = policy.message_timestamp_after_max_ms
    to.max_message_bytes = policy.max_message_bytes
    to.max_body = policy.max_decompressed_message_bytes
    to.target = _CODECS[policy.compression_type]
    to.compacted = policy.is_compacted
    to.log_append_time = policy.message_timestamp_type == "LogAppendTime"
    to.accept_claims_header = policy.accept_claims_header
    return 0


cdef uint32_t refusing(extras) except? 0:
    """Bit n for each extra Sn that refuses."""
    cdef uint32_t mask = (1 << 11) - 2
    if not extras:
        return mask
    for name, setting in dict(extras).items():
        rule = name if isinstance(name, Rule) else Rule.__members__.get(str(name))
        if rule not in EXTRAS:
            raise BatchvalError(f"extras are S1 to S10, not {name!r}")
        if setting not in ("refuse", "report"):
            raise BatchvalError(f"extra {rule.id} can be set to refuse or report, not {setting!r}")
        if setting == "report":
            if rule is Rule.S8:
                raise BatchvalError("S8 always refuses: what was not decompressed cannot be accepted")
            mask &= ~(<uint32_t>1 << <int>(rule.number - EXTRA))
    return mask


cdef int origin_number(origin) except -1:
    try:
        return _ORIGINS[origin]
    except (KeyError, TypeError):
        raise BatchvalError(f"origin must be one of {', '.join(o.name for o in AppendOrigin)}, not {origin!r}") from None


cdef int take_buffer(buffer, Py_buffer *view, int flags) except -1:
    try:
        PyObject_GetBuffer(buffer, view, flags)
    except (BufferError, TypeError, ValueError) as error:
        if flags & PyBUF_WRITABLE:
            raise BatchvalError(f"in_place needs a writable, contiguous buffer: {error}") from None
        raise BatchvalError(f"a contiguous buffer of bytes is needed: {error}") from None
    return 0


cdef inline bint is_long(const uint8_t *p, size_t n) noexcept:
    """Is the work worth handing the GIL to others?"""
    if n < NOGIL_COMPRESSED or not native():
        return False
    if p[MAGIC] == 2 and p[ATTRIBUTES + 1] & CODEC_MASK:
        return True
    return n >= NOGIL_UNCOMPRESSED


@cython.final
cdef class LogValidator:
    """Kafka 4.4.0's LogValidator with the checks around it, for one topic's policy.

    ``mode``      ``strict`` (default): Kafka's rules and the extras S1 to S10; never answers UNKNOWN_SERVER_ERROR.
                  ``kafka``: Kafka's own answer, with its disagreeing parsers and its failures, and without limit.
    ``profile``   ``produce`` (default): the broker's door. ``log``: what may lie in a segment.
    ``extras``    {"S1": "report", ...}: extras that shall only be reported; the others refuse.
    ``max_decompressed_bytes``  bounds a whole batch in strict mode (S8).
    ``clock_ns``  a function that gives nanoseconds, for the conversion time in Kafka's statistics.

    A validator holds no scratch memory of its own and may be used by many threads at once. Any contiguous buffer is
    accepted. A refusal is a result; BatchvalError is raised for a caller's mistake alone.
    """
    cdef readonly object policy
    cdef readonly str mode
    cdef readonly str profile
    cdef readonly object max_decompressed_bytes
    cdef object clock_ns
    cdef Policy compiled
    cdef Door door

    def __init__(self, policy=None, *, mode="strict", profile="produce", extras=None, max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES, clock_ns=None):
        if mode not in ("strict", "kafka"):
            raise BatchvalError(f"mode must be strict or kafka, not {mode!r}")
        if profile not in ("produce", "log"):
            raise BatchvalError(f"profile must be produce or log, not {profile!r}")
        if not isinstance(max_decompressed_bytes, int) or not 0 <= max_decompressed_bytes < 1 << 62:
            raise BatchvalError(f"max_decompressed_bytes must be a whole number from 0 on, not {max_decompressed_bytes!r}")
        self.policy = TopicPolicy() if policy is None else policy
        compile_policy(&self.compiled, self.policy)
        self.mode = mode
        self.profile = profile
        self.max_decompressed_bytes = max_decompressed_bytes
        self.clock_ns = clock_ns
        self.door.strict = mode == "strict"
        self.door.refuse = refusing(extras)
        self.door.limit = <uint64_t>max_decompressed_bytes if self.door.strict else <uint64_t>UNLIMITED
        self.door.profile = PRODUCE_PROFILE if profile == "produce" else LOG_PROFILE
        self.door.to_magic = 2
        self.door.produce_version = 9
        self.door.origin = CLIENT

    cdef int open_door(self, Door *d, now_ms, origin, int produce_version, first_offset, int leader_epoch, int to_magic) except -1:
        d[0] = self.door
        if now_ms is None:
            if self.door.profile == PRODUCE_PROFILE:
                raise BatchvalError("now_ms is needed: core reads no clock")
            d.now = 0
        else:
            d.now = now_ms
        if origin is not CLIENT_NAME:
            d.origin = origin_number(origin)
        d.produce_version = produce_version
        d.first_offset = first_offset
        d.leader_epoch = leader_epoch
        if not 0 <= to_magic <= 2:
            raise BatchvalError(f"to_magic must be 0, 1 or 2, not {to_magic}")
        d.to_magic = to_magic
        return 0

    def check(self, buffer, *, now_ms=None, origin="CLIENT", int produce_version=9, first_offset=0, int leader_epoch=0, int to_magic=2):
        """Judges the records of one partition and writes nothing.

        Where ``validate`` would build the batch anew, this parses as the rebuild does, answers with rules 1 to 39 and
        says ``rebuilt``; rule 40 on the rebuilt size is left to whoever appends.
        """
        cdef Door d
        cdef Py_buffer view
        cdef Scratch *scratch
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        self.open_door(&d, now_ms, origin, produce_version, first_offset, leader_epoch, to_magic)
        take_buffer(buffer, &view, PyBUF_SIMPLE)
        try:
            scratch = borrow()
            try:
                self.judge_into(result, <const uint8_t *>view.buf, view.len, &d, scratch)
            finally:
                give_back(scratch)
        finally:
            PyBuffer_Release(&view)
        return result

    cdef int judge_into(self, ValidationResult result, const uint8_t *p, size_t n, const Door *d, Scratch *scratch) except -1:
        clear(&result.v)
        result.now = d.now
        result.first_offset = d.first_offset
        if is_long(p, n):
            with nogil:
                judge(p, n, d, &self.compiled, scratch, &result.v)
        else:
            judge(p, n, d, &self.compiled, scratch, &result.v)
        return self.finish(result, scratch)

    cdef int finish(self, ValidationResult result, const Scratch *scratch) except -1:
        if result.v.out_of_memory:
            raise MemoryError()
        result.judged_messages = result.v.rule == 0
        if result.v.rule:
            result.keep_errors(scratch)
        return 0

    def validate(self, buffer, *, now_ms=None, first_offset=0, int leader_epoch=0, bint in_place=False, origin="CLIENT", int produce_version=9, int to_magic=2):
        """Judges, then does what a broker's append does: offsets from ``first_offset``, leader epoch, timestamps.

        The bytes for the log are in ``result.output``: a changed copy, or with ``in_place=True`` a view of the buffer
        itself, which is left as it was by a refusal. A batch that has to be built anew comes as new bytes either way.
        """
        cdef Door d
        cdef Py_buffer view
        cdef Scratch *scratch
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        self.open_door(&d, now_ms, origin, produce_version, first_offset, leader_epoch, to_magic)
        if self.door.profile != PRODUCE_PROFILE:
            raise BatchvalError("validate appends to a log; the log profile only checks")
        take_buffer(buffer, &view, PyBUF_WRITABLE if in_place else PyBUF_SIMPLE)
        try:
            scratch = borrow()
            try:
                self.judge_into(result, <const uint8_t *>view.buf, view.len, &d, scratch)
                if result.v.rule == 0:
                    self.assign(result, buffer, &view, result.v.valid_bytes, &d, scratch, in_place, True)
            finally:
                give_back(scratch)
        finally:
            PyBuffer_Release(&view)
        return result

    cdef int assign(self, ValidationResult result, buffer, Py_buffer *view, size_t n, const Door *d, Scratch *scratch, bint in_place, bint crc_is_right) except -1:
        cdef uint8_t *p = <uint8_t *>view.buf
        cdef Entry b
        cdef size_t at = 0
        cdef const uint8_t *built
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
        if not in_place:
            result.new_bytes = PyBytes_FromStringAndSize(<const char *>p, n)
            p = <uint8_t *>PyBytes_AS_STRING(result.new_bytes)
        else:
            result.new_bytes = memoryview(buffer).cast("B")[:n]
        if n:
            assign_in_place(p, n, d, &self.compiled, scratch, &result.v, crc_is_right)
        return 0

    cdef int refuse_size(self, ValidationResult result, int64_t size) except -1:
        result.v.rule = REBUILT_BATCH_TOO_LARGE
        result.v.error_code = MESSAGE_TOO_LARGE
        result.v.reason = reasons.REBUILT_LARGER_THAN_MAX
        result.v.a = size
        result.v.b = self.compiled.max_message_bytes
        result.v.reports = 0
        result.judged_messages = False
        return 0

    def check_request(self, buffer, *, int produce_version=9):
        """The check of a produce request alone: rules 5 to 8 (ProduceRequest.validateRecords)."""
        cdef Door d = self.door
        cdef Py_buffer view
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        d.produce_version = produce_version
        take_buffer(buffer, &view, PyBUF_SIMPLE)
        try:
            clear(&result.v)
            judge_request(<const uint8_t *>view.buf, view.len, &d, &result.v)
            conclude(&d, &result.v)
        finally:
            PyBuffer_Release(&view)
        return result

    def analyze(self, buffer, *, origin="CLIENT", int leader_epoch=0):
        """The broker's batch loop alone: rules 1 to 4 and 9 to 16 (UnifiedLog.analyzeAndValidateRecords).

        ``result.valid_bytes`` and ``result.source`` say what it found.
        """
        cdef Door d = self.door
        cdef Py_buffer view
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        d.origin = origin_number(origin)
        d.leader_epoch = leader_epoch
        take_buffer(buffer, &view, PyBUF_SIMPLE)
        try:
            clear(&result.v)
            judge_batches(<const uint8_t *>view.buf, view.len, &d, &self.compiled, &result.v)
            conclude(&d, &result.v)
        finally:
            PyBuffer_Release(&view)
        return result

    def validate_messages_and_assign_offsets(self, buffer, *, now_ms=None, source=None, first_offset=0, int leader_epoch=0, origin="CLIENT", int to_magic=2):
        """Kafka's LogValidator alone: rules 18 to 39, and the only door to magic 0 and 1.

        ``source`` is the codec as the batch loop found it (a name); None looks for it as that loop does.
        """
        cdef Door d
        cdef Py_buffer view
        cdef Scratch *scratch
        cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
        self.open_door(&d, now_ms, origin, 9, first_offset, leader_epoch, to_magic)
        if source is not None and source not in _CODECS or source == "producer":
            raise BatchvalError(f"source must be none, gzip, snappy, lz4 or zstd, not {source!r}")
        take_buffer(buffer, &view, PyBUF_SIMPLE)
        try:
            clear(&result.v)
            result.now = d.now
            result.first_offset = d.first_offset
            result.v.source = source_of(<const uint8_t *>view.buf, view.len) if source is None else <int>_CODECS[source]
            scratch = borrow()
            try:
                with nogil:
                    judge_messages(<const uint8_t *>view.buf, view.len, &d, &self.compiled, scratch, &result.v)
                    conclude(&d, &result.v)
                self.finish(result, scratch)
                if result.v.rule == 0:
                    self.assign(result, buffer, &view, view.len, &d, scratch, False, False)
            finally:
                give_back(scratch)
        finally:
            PyBuffer_Release(&view)
        return result


cdef str CLIENT_NAME = "CLIENT"


cdef int source_of(const uint8_t *p, size_t n) noexcept:
    """The last codec among the batches, as the batch loop keeps it."""
    cdef Entry b
    cdef size_t at = 0
    cdef int codec, source = NONE
    while next_batch(p + at, n - at, &b) == BATCH:
        codec = (b.p[ATTRIBUTES + 1] if b.magic == 2 else b.p[LEGACY_ATTRIBUTES]) & CODEC_MASK
        if NONE < codec <= ZSTD:
            source = codec
        at += b.size
    return source
