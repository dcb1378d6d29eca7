"""The input and output of a validation: a policy, a call's context, a verdict."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.format cimport reasons
from batchval.core.records.compiled_rules cimport Rules
from batchval.core.format.header cimport Entry
from batchval.core.format.layout cimport ATTRIBUTES, LEGACY_ATTRIBUTES, RECORD_RULE, RECORDS
from batchval.core.records.records cimport Facts, Parsers
from batchval.core.codecs.scratch cimport Scratch, borrow

cdef struct Policy:  # a TopicPolicy, compiled
    int64_t before_max
    int64_t after_max
    int32_t max_message_bytes
    int32_t max_body
    int8_t target  # a codec, or PRODUCER
    int32_t level  # of the target codec, or DEFAULT_LEVEL
    bint compacted
    bint log_append_time
    bint accept_claims_header
    const Rules *rules  # NULL: none; its owner is kept next to the policy

cdef struct AppendContext:  # the arguments of a call and of the validator
    int64_t now
    int64_t first_offset
    int32_t leader_epoch
    int16_t produce_version
    int8_t origin
    int8_t to_magic
    int8_t profile
    bint strict
    # the columns of batchval.kafka_versions
    bint drops_newer_epochs
    bint checks_order_at_once
    bint asks_marker_versions
    bint measures_markers
    bint rebuilds_empty_batches
    bint knows_magic_0_has_no_time
    int16_t first_checked_produce_version
    Parsers parsers
    uint8_t kept_attributes  # the bits that stay where a header is written anew
    int32_t largest_record
    uint32_t refuse  # bit n: extra Sn refuses
    uint64_t limit  # of decompressed bytes a batch

cdef inline Scratch *borrow_for(const AppendContext *d) except NULL:
    """Borrow a Scratch for a call of this validator. Needs the GIL."""
    cdef Scratch *scratch = borrow()
    scratch.unbuffered = d.parsers.sums_fields
    return scratch


cdef enum:  # Verdict.meters, in Kafka's words
    METER_MAGIC
    METER_OFFSET
    METER_SEQUENCE
    METER_CHECKSUM
    METER_NO_KEY
    METERS

cdef struct Verdict:
    int16_t error_code
    int16_t rule  # 0: accepted
    uint8_t path
    int8_t source  # codec found by the batch loop
    int8_t target
    bint out_of_memory  # no verdict
    bint rebuild  # LogValidator would make new batches
    bint kept  # offsets were taken as they came, and no record was looked at
    bint late  # a refusal came after LogValidator, where Kafka has built the new batches already
    int16_t reason
    int16_t cause  # with UNKNOWN_SERVER_ERROR: the extra that names why
    int32_t record
    int64_t a
    int64_t b
    uint32_t found  # bit n: extra Sn applies
    uint32_t reports
    int32_t records_count
    int32_t batches
    int32_t skipped_batches  # rule 11
    int32_t temporary_bytes
    int64_t valid_bytes
    int64_t whole_bytes  # of all batches, those that a follower skips among them
    int64_t last_offset  # of the last batch, where offsets are kept
    int64_t max_timestamp
    int64_t error_batch  # position of the batch that was refused
    int32_t meters[METERS]
    # of the last batch that was walked to its end
    int32_t walked  # how many were
    uint32_t walked_found
    int32_t walked_records
    int32_t walked_null_keys
    int64_t walked_min_timestamp
    int64_t walked_max_timestamp
    int64_t walked_size  # of the batch, decompressed; 0: not known
    int32_t walked_uncompressed  # Kafka's uncompressedSizeInBytes, wrapped as its int
    int32_t walked_longest  # record, without its length field
    int64_t stated_max_timestamp  # by the header of the first batch
    uint8_t claims  # batchval.core.stages.claims
    bint stripped  # a batch of magic 3 was validated as the one of magic 2 that it carries

cdef void clear(Verdict *v) noexcept nogil
cdef bint refuse(Verdict *v, int rule, int code, int reason, int64_t a=*,
        int64_t b=*) noexcept nogil
cdef bint broker_fails(Verdict *v, int rule, int cause, int reason, int64_t a=*,
        int64_t b=*) noexcept nogil
cdef bint refuse_batch_rule(Verdict *v, int rule, const Entry *entry) noexcept nogil
cdef void conclude(const AppendContext *d, Verdict *v) noexcept nogil
cdef void conclude_rules(const Scratch *scratch, Verdict *v) noexcept nogil


cdef inline bint has_record_errors(const Verdict *v) noexcept nogil:
    """Return whether Kafka's rules refused single records: the scratch holds them."""
    return v.reason in (reasons.RECORDS_REFUSED, reasons.TIMESTAMPS_REFUSED)


cdef inline bint breaks_record_rule(const Verdict *v) noexcept nogil:
    """Return whether the verdict is conclude_rules': the scratch holds the records at fault."""
    return v.rule > RECORD_RULE


cdef inline int attributes_of(const Entry *b) noexcept nogil:
    """Return the byte that holds codec and flags: every batch that next_batch accepts has it."""
    return b.p[ATTRIBUTES + 1] if b.magic >= 2 else b.p[LEGACY_ATTRIBUTES]


cdef inline void note_facts(const Facts *f, Verdict *v) noexcept nogil:
    """Note the facts of a walk to the end, whatever becomes of the batch: claims are compared with
    them.
    """
    v.walked += 1
    v.walked_found = f.found
    v.walked_records = f.records
    v.walked_null_keys = f.null_keys
    v.walked_min_timestamp = f.min_timestamp
    v.walked_max_timestamp = f.max_timestamp
    v.walked_uncompressed = <int32_t>(<uint32_t>f.sizes + RECORDS)
    v.walked_longest = f.longest


cdef inline void add_facts(const Facts *f, Verdict *v) noexcept nogil:
    v.found |= f.found
    v.records_count += f.records
    if f.max_timestamp > v.max_timestamp:
        v.max_timestamp = f.max_timestamp
