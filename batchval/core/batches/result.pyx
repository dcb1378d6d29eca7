"""The result of a call of the validator. Numbers stay as the core has them until a property is
read.
"""

cimport cython
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from typing import NamedTuple

from batchval.core.stages.verdict cimport (
    METER_CHECKSUM, METER_MAGIC, METER_NO_KEY, METER_OFFSET, METER_SEQUENCE, Verdict,
)
from batchval.core.stages.claims cimport batch_claims_of
from batchval.core.stages.claims_block cimport Claims, true_claims
from batchval.core.format.layout cimport (
    KEY_MISSING, NONE, PATH_CLAIMS, RECORD_MAGIC_DIFFERS, TIMESTAMP_OUT_OF_RANGE,
    TIMESTAMP_TYPE_BY_PRODUCER, ZSTD,
)
from batchval.core.codecs.scratch cimport ERRORS_KEPT, RecordError, Scratch

from batchval.core.format.reasons import REASONS, sentence
from batchval.core.records.record_errors import broken_rule, broken_rules
from batchval.errors import BatchvalError, ErrorCode
from batchval.record_rules import RecordRules
from batchval.rules import by_number, extras_of
from batchval.types import CompressionType

PATHS = (None, "claims", "shallow", "full", "rebuilt")
CLAIMS = (None, "trusted", "honest", "lying", "unjudged", "unbound")
FIGURES = ("header", "records", "claims", "sample")

_CODES = {int(code): code for code in ErrorCode}
_METERS = {"magic": METER_MAGIC, "offset": METER_OFFSET, "sequence": METER_SEQUENCE,
        "checksum": METER_CHECKSUM,
        "nokey": METER_NO_KEY}


class RejectedBatch(BatchvalError):
    """A refusal, raised by ``result.raise_for_error()`` only."""

    def __init__(self, result):
        super().__init__(f"{result.error_code.name} by rule {result.rule}: {result.reason}")
        self.result = result


class RecordValidationStats(NamedTuple):
    """Kafka's class of this name.

    ``temporary_memory_bytes``: what Kafka would hold next to the input; None where nothing was
    decompressed and no size was claimed.
    ``num_records_converted``: records in rebuilt batches. ``conversion_time_nanos``: None unless
    the validator has a clock.
    """

    temporary_memory_bytes: int | None
    num_records_converted: int
    conversion_time_nanos: int | None


def message_of(int rule, long long timestamp, long long offset, long long least, long long most,
        partition=None):
    """Return Kafka's sentence about a refused record.

    ``least``, ``most``: the allowed timestamps, ms. ``partition``: ``orders-3``, None: not known.
    Source: LogValidator.validateKey, validateTimestamp, validateRecord; where Kafka's sentence
    holds the whole record, this one has its offset.
    """
    place = "" if partition is None else f" in topic partition {partition}"
    if rule == KEY_MISSING:
        return f"Compacted topic cannot accept message without key{place}"
    if rule == TIMESTAMP_OUT_OF_RANGE:
        return (f"Timestamp {timestamp} of message with offset {offset} is out of range. "
                f"The timestamp should be within [{least}, {most}]")
    if rule == TIMESTAMP_TYPE_BY_PRODUCER:
        return (f"Invalid timestamp type in message with offset {offset}. "
                "Producer should not set timestamp type to LogAppendTime.")
    if rule == RECORD_MAGIC_DIFFERS:
        return f"The magic of log record with offset {offset} does not match outer magic{place}"
    return "Invalid record"


cdef str message_of_broken(const RecordError *error, record_rules):
    """Return the message of a record that breaks a record rule."""
    return broken_rule(record_rules, error.rule, error.which, error.kind, error.timestamp,
            error.second)


cdef str message_of_error(const RecordError *error, record_rules, int64_t least, int64_t most,
        partition):
    """Return the message of one record error. ``record_rules``: None where Kafka's rules refused.

    ``least``, ``most``, ``partition``: see message_of.
    """
    if record_rules is None:
        return message_of(error.rule, error.timestamp, error.second, least, most, partition)
    return message_of_broken(error, record_rules)


@cython.final
@cython.freelist(64)
cdef class ValidationResult:
    """The result for one buffer. Refusals are results; ``raise_for_error`` raises them."""

    def __cinit__(self):
        self.errors = NULL
        self.errors_count = 0
        self.errors_seen = 0
        self.offsets_assigned = False
        self.new_bytes = None
        self.viewed = -1
        self.text = None
        self.conversion_time = None
        self.record_rules = None

    def __dealloc__(self):
        free(self.errors)

    cdef int keep_errors(self, Scratch *scratch) except -1:
        if scratch.errors_count == 0:
            return 0
        self.make_space(scratch.errors_count)
        memcpy(self.errors, scratch.errors, scratch.errors_count * sizeof(RecordError))
        self.errors_seen = scratch.errors_seen
        return 0

    cdef int keep_broken(self, Scratch *scratch, record_rules) except -1:
        """Keep the records that break record rules, and a reason that names the first."""
        self.make_space(scratch.broken_count)
        memcpy(self.errors, scratch.broken, scratch.broken_count * sizeof(RecordError))
        self.errors_seen = scratch.broken_seen
        self.record_rules = record_rules
        self.text = broken_rules(
            self.errors[0].index, message_of_broken(&self.errors[0], record_rules),
            self.errors_seen)
        return 0

    cdef int make_space(self, Py_ssize_t count) except -1:
        """Allocate memory for so many record errors, of a result that has none."""
        if count == 0:
            return 0
        if count > ERRORS_KEPT:
            raise ValueError(f"{count} record errors are more than {ERRORS_KEPT}")
        self.errors = <RecordError *>malloc(count * sizeof(RecordError))
        if self.errors is NULL:
            raise MemoryError()
        self.errors_count = <int32_t>count
        return 0

    @property
    def ok(self):
        """Return whether the batch is accepted."""
        return self.v.rule == 0

    def __bool__(self):
        return self.v.rule == 0

    @property
    def error_code(self):
        """Return Kafka's error; NONE where the batch is accepted."""
        return _CODES[self.v.error_code]

    @property
    def rule(self):
        """Return the rule that refused, None where none did."""
        return by_number(self.v.rule)

    @property
    def reports(self):
        """Return the extras that apply to an accepted batch and were set to ``report``."""
        return extras_of(self.v.reports)

    @property
    def reason(self):
        """Return precisely what is wrong, as one line; empty where nothing is."""
        if self.v.rule == 0:
            return ""
        if self.text is not None:
            return self.text
        return sentence(self.v.reason, self.v.record, self.v.a,
                self.v.b) or by_number(self.v.rule).summary

    @property
    def record_errors(self):
        """Return [(batch_index, message)] as a ProduceResponse v8 carries them: the first 1,000."""
        cdef int32_t i
        return [(self.errors[i].index, message_of_error(
                    &self.errors[i], self.record_rules, self.v.a, self.v.b, None))
                for i in range(self.errors_count)]

    @property
    def record_error_rules(self):
        """Return [(batch_index, Rule)] for the same records."""
        cdef int32_t i
        return [(self.errors[i].index,
                by_number(self.errors[i].rule)) for i in range(self.errors_count)]

    @property
    def record_errors_count(self):
        """Return how many records were refused; ``record_errors`` holds the first 1,000 of them."""
        return self.errors_seen

    @property
    def path(self):
        """Return how records were checked: ``claims``, ``shallow``, ``full`` or ``rebuilt``; None
        where they were not.
        """
        return PATHS[self.v.path]

    @property
    def records_count(self):
        """Return the number of records in accepted batches; for a follower's or Raft leader's
        append, as the headers state it.
        """
        return self.v.records_count if self.v.rule == 0 else 0

    @property
    def max_timestamp(self):
        """Return the greatest timestamp that the log would note; None where LogValidator's stage
        did not accept.
        """
        return self.v.max_timestamp if self.offsets_assigned else None

    @property
    def append_time(self):
        """Return the time of the append, ms; None where LogValidator's stage did not accept, or was
        not called.
        """
        return self.now if self.offsets_assigned and not self.v.kept else None

    @property
    def next_offset(self):
        """Return the offset after the last record; None where LogValidator's stage did not accept.
        """
        if not self.offsets_assigned:
            return None
        return self.v.last_offset + 1 if self.v.kept else self.first_offset + self.v.records_count

    @property
    def size_maybe_changed(self):
        """Return whether the batch was, or would be, built anew, or loses the claims in its header.
        """
        return bool(self.v.rebuild or self.v.stripped) if self.offsets_assigned else None

    @property
    def in_place(self):
        """Return whether the batch keeps its bytes but for assigned fields."""
        return (not self.v.rebuild and not self.v.stripped) if self.offsets_assigned else None

    @property
    def converted(self):
        """Return how many records went into rebuilt batches."""
        return self.v.records_count if self.offsets_assigned and self.v.rebuild else 0

    @property
    def output(self):
        """Return the bytes for the log, with offsets assigned; None unless ``validate`` accepted.
        """
        if self.viewed < 0:
            return self.new_bytes
        return memoryview(self.new_bytes).cast("B")[:self.viewed]

    @property
    def stats(self):
        """Return Kafka's RecordValidationStats; None where LogValidator's stage did not accept."""
        if not self.offsets_assigned:
            return None
        held = self.v.temporary_bytes
        if self.v.path == PATH_CLAIMS and held == 0:
            held = None  # claims of version 1 have no sizes
        return RecordValidationStats(held, self.converted, self.conversion_time)

    @property
    def claims(self):
        """Return the outcome of the batch's claims; None where there were none, or they were
        ignored.

        ``trusted``: they settled it, no record was read. ``honest``, ``lying``: compared with the
        records; a batch that decompresses to more than the limit (S8) is ``lying``. ``unjudged``:
        the batch was refused before its records were read to the end. ``unbound``: they are
        malformed, were made for another batch, or its tag and its payload differ.
        """
        return CLAIMS[self.v.claims]

    @property
    def batch_claims(self):
        """Return the BatchClaims that are true of the one batch just walked; None where none would
        be, or none was walked.
        """
        cdef Claims claims
        if self.v.rule or not true_claims(&self.v, &claims):
            return None
        return batch_claims_of(&claims)

    @property
    def meters(self):
        """Return which of Kafka's validator meters the batch would have marked, and how often."""
        return {name: self.v.meters[meter] for name,
                meter in _METERS.items() if self.v.meters[meter]}

    @property
    def valid_bytes(self):
        """Return the bytes of whole batches; later bytes are trimmed."""
        return self.v.valid_bytes

    @property
    def source(self):
        """Return the codec that the batch loop found."""
        return CompressionType(self.v.source)

    @property
    def skipped_batches(self):
        """Return the batches that a follower does not take because their leader epoch is ahead
        (rule 11).
        """
        return self.v.skipped_batches

    @property
    def position(self):
        """Return where in the buffer the refused batch starts; None where none was refused."""
        return self.v.error_batch if self.v.rule and self.v.error_batch >= 0 else None

    def raise_for_error(self):
        """Raise RejectedBatch where the batch is refused."""
        if self.v.rule:
            raise RejectedBatch(self)

    def __repr__(self):
        claims = f" claims={self.claims}" if self.v.claims else ""
        if self.v.rule:
            return (f"<ValidationResult {self.error_code.name} rule={self.rule}{claims}: "
                    f"{self.reason}>")
        output = "" if self.new_bytes is None else f" output={len(self.output)} bytes"
        return (f"<ValidationResult ok path={self.path} records={self.v.records_count} "
                f"reports={[r.id for r in self.reports]}{claims}{output}>")

    def __eq__(self, other):
        """Return whether all public fields are equal; of ``output`` the bytes."""
        if not isinstance(other, ValidationResult):
            return NotImplemented
        return all([getattr(self, name) == getattr(other, name) for name in _FIELDS])

    def __hash__(self):
        return hash((self.v.error_code, self.v.rule, self.v.valid_bytes, self.records_count,
                     self.reason, self.position))

    def __reduce__(self):
        cdef int32_t i
        errors = [(self.errors[i].index, self.errors[i].rule, self.errors[i].timestamp,
                   self.errors[i].second, self.errors[i].which, self.errors[i].kind)
                  for i in range(self.errors_count)]
        output = None if self.new_bytes is None else bytes(self.output)
        return _restored, ({
            "verdict": self.v,
            "errors": errors,
            "errors_seen": self.errors_seen,
            "offsets_assigned": self.offsets_assigned,
            "now": self.now,
            "first_offset": self.first_offset,
            "output": output,
            "text": self.text,
            "conversion_time": self.conversion_time,
            "record_rules": self.record_rules,
        },)

    def __copy__(self):
        return self  # immutable

    def __deepcopy__(self, memo):
        """Return the same result, unless its output is a view of the caller's buffer: that is
        copied.
        """
        if self.viewed < 0:
            return self
        restore, arguments = self.__reduce__()
        return restore(*arguments)


# Every public field, in the order of the class.
_FIELDS = tuple([name for name, member in vars(ValidationResult).items()
                 if isinstance(member, type(ValidationResult.ok))])


def _restored(state):
    """Return the result that was pickled. BatchvalError where ``state`` is not one of this
    version.
    """
    cdef ValidationResult result = ValidationResult.__new__(ValidationResult)
    cdef int32_t i
    try:
        result.v = state["verdict"]
        result.errors_seen = state["errors_seen"]
        result.offsets_assigned = state["offsets_assigned"]
        result.now = state["now"]
        result.first_offset = state["first_offset"]
        result.new_bytes = only(bytes, state["output"])
        result.text = only(str, state["text"])
        result.conversion_time = state["conversion_time"]
        errors = list(state["errors"])
        result.make_space(len(errors))
        result.record_rules = only(RecordRules, state["record_rules"])
        for i, (index, rule, timestamp, second, which, kind) in enumerate(errors):
            result.errors[i] = RecordError(index, rule, timestamp, second, which, kind)
        if not is_sound(result):
            raise ValueError("a number is outside its range")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BatchvalError(
            f"not a pickled ValidationResult of this version of batchval: {error!r}") from None
    return result


cdef object only(kind, value):
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")
    return value


cdef bint is_sound(ValidationResult result) except -1:
    """Return whether the numbers of a pickled state are valid for the fields that look them up."""
    cdef const Verdict *v = &result.v
    cdef int32_t i
    if v.path >= len(PATHS) or v.claims >= len(CLAIMS) or v.error_code not in _CODES:
        return False
    if not 0 <= v.reason < len(REASONS) or not NONE <= v.source <= ZSTD:
        return False
    if v.rule and by_number(v.rule) is None:
        return False
    for i in range(result.errors_count):
        if by_number(result.errors[i].rule) is None:
            return False
        if result.record_rules is not None:
            message_of_broken(&result.errors[i], result.record_rules)
    return True
