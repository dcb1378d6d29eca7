"""Verdicts on the partitions of one Produce request, a row each, and what a batch will cost."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t

from batchval.core.gate cimport (
    ATTRIBUTES, CODEC_MASK, MAGIC, RECORDS, RECORDS_COUNT, AppendContext, Claims, ClaimsCall,
    LogValidator, Policy, RecordError, Scratch, Verdict, be32,
)
from batchval.protocol.walkers.produce cimport ProduceRequestView

cdef enum:
    BATCH_WORK = 64   # what a partition costs whatever it holds
    RECORD_WORK = 6   # what a record costs whatever it holds
    MIN_RECORD_BYTES = 7  # bytes
    # A refusal is remembered that took this much work, and so many times its size: nearly all that
    # releases the GIL.
    MIN_KNOWN_WORK = 65536
    KNOWN_WORK_TIMES = 16
    MAX_TOPIC_LENGTH = 249  # bytes of a topic's name; topics.py has the same

cdef struct VerdictRow:
    int64_t a, b             # of the reason
    Claims claims            # those that are true of the batch, if it has_claims
    bint has_claims
    int32_t record
    int32_t errors_at, errors_count  # in Verdicts.errors
    int32_t errors_seen
    int16_t error_code
    int16_t rule             # 0: accepted
    int16_t reason
    uint16_t reports         # bit n: extra Sn
    uint8_t path
    uint8_t outcome          # of the claims that came
    uint8_t decision         # IGNORE_CLAIMS, VERIFY_CLAIMS or TRUST_CLAIMS
    bint tagged              # one claims tag came, and is to be read
    bint keeps_tag           # the claims go on as a tag
    bint forwarded           # of a request that is converted: there is something that goes on
    bint done


cdef enum Side:  # of a timestamp, by the bounds of a topic at some time
    TOO_OLD
    WITHIN
    TOO_NEW


@cython.final
cdef class KnownRefusal:
    cdef VerdictRow row
    cdef readonly bytes digest
    cdef LogValidator validator
    cdef bytes errors        # RecordErrors
    cdef int32_t errors_seen
    cdef tuple broken        # as in Verdicts.broken, or None
    cdef bint is_timed       # records were looked at whose timestamps were all on this side
    cdef int64_t least, most
    cdef Side side

    cdef bint holds(self, LogValidator validator, int64_t now)


@cython.final
cdef class Verdicts:
    cdef ProduceRequestView request
    cdef VerdictRow *rows
    cdef RecordError *errors
    cdef int32_t errors_count
    cdef Py_ssize_t next_row
    cdef Py_ssize_t heavy_row  # -1, or the one that decompresses to more than heavy_limit
    cdef uint64_t heavy_limit
    cdef Py_ssize_t failed_at
    cdef Py_ssize_t reason_at  # the partition of ``reason_text``, -1: none
    cdef object reason_text
    cdef int64_t now_ms
    cdef list validators
    # new claims state the ids of values, where a topic has a rule for them
    cdef public bint states_ids
    cdef bint converts       # Produce 0 to 2: what goes on are batches of magic 2
    cdef list converted      # for each partition the batch in the place of what came, or None
    cdef readonly object goes_on
    cdef dict overrides      # {partition: its validator, in place of its topic's}
    cdef dict own            # {partition: (rule's name, record errors, reason)}, refused in Python
    cdef dict broken  # partition -> (RecordRules, reason), where record rules refused
    cdef object table        # KnownRefusals, or None
    cdef str sender          # whose refusals are remembered
    cdef object known        # {place: KnownRefusal} of that sender, or None
    cdef int64_t read_bytes  # of records, decompressed, since ``take_read_bytes``
    cdef readonly Py_ssize_t repeated  # partitions that were refused by one of them

    cdef const uint8_t *batch(self, Py_ssize_t i, Py_ssize_t *size)
    cdef LogValidator validator_at(self, Py_ssize_t i, LogValidator one)
    cdef Py_ssize_t topic_at(self, Py_ssize_t i)
    cdef int read_call(self, Py_ssize_t i, void *call) except -1
    cdef int fail_all(self, Py_ssize_t index) except -1
    cdef int put(self, VerdictRow *row, const Verdict *v) except -1
    cdef int keep_errors(self, VerdictRow *row, const RecordError *errors, int32_t count,
            int32_t seen) except -1
    cdef int set_call(self, AppendContext *d) except -1
    cdef int validate_one(self, Py_ssize_t i, const AppendContext *d, const Policy *policy,
            const ClaimsCall *call, Scratch *scratch, Verdict *v, int64_t *spent,
            int64_t *in_all) except -1
    cdef bint take_known(self, Py_ssize_t i, LogValidator validator) except -1
    cdef int remember(self, Py_ssize_t i, LogValidator validator, const Policy *policy,
            Scratch *scratch, const Verdict *v) except -1
    cdef int64_t convert(self, Py_ssize_t i, const AppendContext *d, const Policy *policy,
            Scratch *scratch, Verdict *v, Claims *claims) except -1
    cdef int64_t convert_observed(self, Py_ssize_t i, const AppendContext *d, const Policy *policy,
            const ClaimsCall *call, Scratch *scratch) except -1
    cdef int keep_broken(self, Py_ssize_t i, Scratch *scratch, record_rules) except -1
    cdef bytes outgoing_batch(self, Py_ssize_t i, LogValidator one, bint attached)
    cdef bytes outgoing_converted(self, Py_ssize_t i, LogValidator one, bint attached)
    cdef VerdictRow *row_at(self, Py_ssize_t i) except NULL
    cdef bint same_refusal(self, Py_ssize_t before, Py_ssize_t i)
    cdef tuple refusal(self, Py_ssize_t i, bint has_text, topic_of)


cdef tuple place_of(const uint8_t *p, Py_ssize_t n, int version)
cdef Side side_of(const Policy *policy, int64_t timestamp, int64_t now) noexcept nogil
cdef bytes tag_of(const Claims *claims, const uint8_t *batch)
cdef bytes carrying(const uint8_t *p, Py_ssize_t n, const Claims *claims, int64_t most)


cdef inline bint is_compressed(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    """Return whether a batch may be compressed: before magic 2 its messages may be."""
    return n > ATTRIBUTES + 1 and (p[MAGIC] < 2 or p[ATTRIBUTES + 1] & CODEC_MASK != 0)


cdef inline int64_t announced_work(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    """Return the work that a batch announces by its size and its header: bytes walked, about 4 ns
    each. What a compressed batch decompresses to is bounded in other ways.
    """
    cdef int64_t records
    if n < RECORDS or p[MAGIC] < 2:
        return BATCH_WORK + n
    records = max(be32(p + RECORDS_COUNT), 0)
    if not p[ATTRIBUTES + 1] & CODEC_MASK:
        records = min(records, n // MIN_RECORD_BYTES)
    return BATCH_WORK + (n >> 3) + RECORD_WORK * records
