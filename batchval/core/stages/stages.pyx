"""Validate the records of one partition: Kafka's stages by origin, a fast path for ordinary
batches, and claims.

    validate_partition  one call's verdict
    accept_plain        the batch that no stage would stop, in one pass: with claims that settle it
                        nothing is decompressed
    validate_carried    a batch of magic 3, as the batch of magic 2 that it carries

Claims can only speed up an acceptance. A batch that they would refuse is decided by the stages,
with Kafka's own code and record errors; and wherever records were walked to their end, claims are
compared with them.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.format cimport reasons
from batchval.core.stages.append cimport append_assigned, append_kept, keeps_offsets
from batchval.core.format.bytes cimport be16
from batchval.core.stages.carriers cimport find_claims, read_payload
from batchval.core.stages.claims_block cimport (
    ALL_KEYS_NULL, CLAIMED_RECORDS, CLAIMS_CARRIED, CLAIMS_HONEST, CLAIMS_LYING, CLAIMS_MAGIC,
    CLAIMS_SIZE,
    CLAIMS_TRUSTED, CLAIMS_UNBOUND, CLAIMS_UNJUDGED, IGNORE_CLAIMS, NOTHING_CARRIED, TRUST_CLAIMS,
    NO_KEY_NULL, SOME_KEYS_NULL, UNREADABLE_CLAIMS, VERSION_2, Claims, read_claims, says_less,
    settles, settles_at_rest, strip_into, strongest_null_keys, true_claims,
)
from batchval.core.records.compiled_rules cimport Rules, asks_value_schema, ids_keep_rules
from batchval.core.format.crc32c cimport crc32c_of
from batchval.core.codecs.codec_streams cimport DAMAGED, open_stream, position, stated_size
from batchval.core.format.header cimport BatchHeader, Entry, computed_crc, read_header, stored_crc
from batchval.core.stages.analyze cimport analyze_batches, validate_request
from batchval.core.stages.assign_offsets cimport validate_and_assign
from batchval.core.format.value_ids cimport covers, want_ids
from batchval.core.stages.verdict cimport (
    AppendContext, Policy, Verdict, attributes_of, clear, conclude, conclude_rules, note_facts,
    refuse,
)
from batchval.core.stages.batch_records cimport Walk, check_stored_batch, check_unopened
from batchval.core.format.layout cimport *
from batchval.core.records.records cimport (
    SKIP_PARSER, WALKED, Checks, PlainFacts, clear_facts, walk, walk_plain_buffer,
)
from batchval.core.records.sampling cimport Sample, is_drawn
from batchval.core.codecs.scratch cimport Scratch, copy_reserve, no_errors, none_broken


# ---- ordinary batches ----------------------------------------------------------------------------

cdef inline bint is_plain(const BatchHeader *h, size_t n, const Call *call) noexcept nogil:
    """Return whether this is one whole batch of a current client that no header rule affects, and
    which keeps its bytes.
    """
    cdef const Policy *policy = call.policy
    cdef int codec = h.attributes & CODEC_MASK
    if h.magic != 2 or h.batch_length != <int64_t>n - LOG_OVERHEAD or n > <uint64_t>policy.max_message_bytes:
        return False
    if (codec == ZSTD and call.context.produce_version < 7) or h.base_offset != 0:
        return False
    if codec > ZSTD or (policy.target != PRODUCER
            and policy.target != codec) or h.attributes & CONTROL_BIT:
        return False
    if not 0 < h.records_count <= call.plain_records or h.last_offset_delta != h.records_count - 1:
        return False
    return h.producer_id <= NO_PRODUCER_ID or (
            h.base_sequence >= 0 and h.producer_epoch >= NO_PRODUCER_EPOCH)


cdef bint walk_plain_compressed(const uint8_t *p, size_t n, const BatchHeader *h, const Call *call,
        Walk *w, Verdict *v) noexcept nogil:
    """Return whether Kafka would accept the records p[0:n] and leave them in place. If it would not,
    the scratch has the walk for the stages, which do the same one.
    """
    clear_facts(&w.facts)
    no_errors(call.scratch)
    open_stream(&w.stream, call.scratch, h.attributes & CODEC_MASK, 2, p, n, call.context.limit,
            False)
    if w.stream.status == DAMAGED:
        return False
    w.answer = walk(&w.stream, h, &call.checks, &w.facts, SKIP_PARSER)
    if (w.answer != WALKED or call.scratch.errors_seen or not w.facts.in_order
            or w.stream.halted):
        call.scratch.walk = w
        return False
    if w.stream.overlong or w.stream.mislabelled:
        w.facts.found |= S7_BIT
    note_facts(&w.facts, v)
    v.found = w.facts.found
    v.temporary_bytes = v.walked_uncompressed
    v.path = PATH_SHALLOW
    v.walked_size = RECORDS + position(&w.stream)
    return True


cdef inline bint walk_plain_uncompressed(const uint8_t *p, size_t n, const BatchHeader *h,
        const Checks *c,
        Verdict *v) noexcept nogil:
    cdef PlainFacts f
    if not walk_plain_buffer(p, p + n, h, c, &f):
        return False
    v.path = PATH_FULL
    v.walked_null_keys = f.null_keys
    v.walked_min_timestamp = f.min_timestamp
    v.walked_max_timestamp = f.max_timestamp
    v.walked_uncompressed = <int32_t>(n + RECORDS)
    v.walked_size = n + RECORDS
    v.walked_longest = f.longest
    return True


cdef inline bint keep_rules(const Claims *claims, const Rules *rules) noexcept nogil:
    """Return whether no record breaks a record rule, by these claims. ``rules`` may be NULL."""
    if rules is NULL:
        return True
    return claims.version == VERSION_2 and ids_keep_rules(
        rules, &claims.schema_ids, claims.null_keys == ALL_KEYS_NULL, claims.max_record_bytes)


cdef inline bint claims_suffice(const uint8_t *records, size_t n, const BatchHeader *h,
        const Call *call,
        const Claims *claims) noexcept nogil:
    """Return whether claims accept an ordinary batch. One whose frame states a size over the limit
    is read, whatever its claims are; the stages refuse what S1 refuses.
    """
    if not keep_rules(claims, call.checks.rules):
        return False
    if h.attributes & UNUSED_BITS and call.context.refuse & S1_BIT:
        return False
    if not settles(claims, h, &call.checks, call.context.limit):
        return False
    return stated_size(h.attributes & CODEC_MASK, records, n) <= call.context.limit


cdef bint accept_plain(const uint8_t *p, size_t n, size_t header, const BatchHeader *h,
        const Call *call,
        const Claims *trusted, Walk *w, Verdict *v) noexcept nogil:
    """Run the three stages in one, for the batch that passes them all. Return False where the
    stages have to decide; the records are then not walked again, if they were (``w``).

    ``p[0:n]`` is the batch as it came, its records after ``header`` bytes; ``h`` is the header of
    magic 2 to be validated, with the crc of the bytes that came. ``trusted`` is NULL without
    claims that may be trusted.
    """
    if not is_plain(h, n - header + RECORDS, call):
        return False
    if crc32c_of(0, p + ATTRIBUTES, n - ATTRIBUTES) != h.crc:
        return False
    v.source = h.attributes & CODEC_MASK
    v.target = v.source
    v.batches = 1
    v.valid_bytes = n
    v.error_batch = 0
    v.records_count = h.records_count
    if trusted is not NULL and v.source != NONE and claims_suffice(p + header, n - header, h, call,
            trusted):
        v.path = PATH_CLAIMS
        v.claims = CLAIMS_TRUSTED
        v.max_timestamp = h.max_timestamp
        v.temporary_bytes = trusted.uncompressed_bytes if trusted.version == VERSION_2 else 0
    else:
        if v.source == NONE:
            # The stages' walk collects the ids of values.
            if call.scratch.seen_ids.wanted or not walk_plain_uncompressed(
                    p + header, n - header, h, &call.checks, v):
                return False
        elif not walk_plain_compressed(p + header, n - header, h, call, w, v):
            return False
        v.walked = 1
        v.walked_records = h.records_count
        v.max_timestamp = v.walked_max_timestamp
    v.stated_max_timestamp = h.max_timestamp
    if h.attributes & UNUSED_BITS:
        v.found |= S1_BIT
    if call.policy.log_append_time:
        v.max_timestamp = call.context.now
    return True


# ---- the stages ----------------------------------------------------------------------------------

cdef void validate_by_stages(const uint8_t *p, size_t n, const Call *call,
        Verdict *v) noexcept nogil:
    """Run Kafka's checks for this origin, in its order: the first refusal is the verdict.

        CLIENT                     request, batches, messages, append
        COORDINATOR                batches, messages, append
        REPLICATION, RAFT_LEADER   batches, append: LogValidator is not called
    """
    cdef const AppendContext *d = call.context
    if d.origin == CLIENT and not validate_request(p, n, d, v):
        return
    if not analyze_batches(p, n, d, call.policy, call.scratch, v):
        return
    if v.valid_bytes:
        if keeps_offsets(d):
            if not append_kept(p, n, d, call.policy, call.scratch, v):
                return
        elif (not validate_and_assign(p, v.valid_bytes, d, call.policy, call.scratch, v)
                or not append_assigned(p, d, call.policy, call.scratch, v)):
            return
    if v.whole_bytes < <int64_t>n:
        v.found |= S2_BIT
    if (d.origin == CLIENT and v.valid_bytes and p[MAGIC] == 2
            and be16(p + ATTRIBUTES) & UNUSED_BITS):
        v.found |= S1_BIT


# ---- claims --------------------------------------------------------------------------------------

cdef inline void note_header(const BatchHeader *h, Verdict *v) noexcept nogil:
    """Note what claims state of records and header together; without clients' checks it may differ.
    """
    v.stated_max_timestamp = h.max_timestamp
    if h.last_offset_delta != h.records_count - 1:
        v.walked_found |= S3_BIT


cdef int honesty(const Claims *claims, const Verdict *v, const Scratch *scratch) noexcept nogil:
    """Compare claims with what a walk found, before the verdict is concluded.

    S8 is a lie: claims promise that the payload decompresses whole, within the limit of the reader.
    Without this a sender of decompression bombs would pay for none of those that a sample finds.
    """
    cdef Claims true
    if v.rule == S8:
        return CLAIMS_LYING
    if v.walked == 0:
        # the walk itself refused: what claims say above all is that records can be read. Of a
        # record above the topic's limit version 1 says nothing, and version 2 its size
        if v.reason == reasons.RECORD_LENGTH_ABOVE_MAX and (
                claims.version != VERSION_2 or claims.max_record_bytes > v.b):
            return CLAIMS_UNJUDGED
        if v.rule == RECORD_MALFORMED or v.cause == S7:
            return CLAIMS_LYING
        return CLAIMS_UNJUDGED
    if v.walked > 1:
        return CLAIMS_UNJUDGED
    if not true_claims(v, &true):
        return CLAIMS_LYING
    true.schema_ids = scratch.seen_ids.ids
    return CLAIMS_HONEST if says_less(claims, &true) else CLAIMS_LYING


cdef void validate_carried(const uint8_t *p, size_t n, BatchHeader *h, const Call *call,
        Verdict *v) noexcept nogil:
    """Validate a buffer that begins with a whole batch of magic 3; ``h`` becomes the header of the
    batch that it carries.

    The verdict is that batch's, and is concluded; claims that lie refuse what would be accepted
    without them.
    """
    cdef Claims claims
    cdef Walk w
    cdef size_t size = <size_t>h.batch_length + LOG_OVERHEAD
    cdef Scratch *scratch = call.scratch
    cdef int policy = call.claims.policy
    read_claims(p + RECORDS, &claims)
    h.magic = 2
    h.batch_length -= CLAIMS_SIZE
    if not accept_plain(p, n, CLAIMED_RECORDS, h, call, &claims if policy == TRUST_CLAIMS else NULL,
            &w, v):
        scratch.walk = NULL  # its positions are not those of the copy
        clear(v)
        if not copy_reserve(scratch, n - CLAIMS_SIZE):
            v.out_of_memory = True
            return
        strip_into(scratch.copy, p, n, size)
        validate_by_stages(scratch.copy, n - CLAIMS_SIZE, call, v)
        note_header(h, v)
        # of the buffer that came
        if v.valid_bytes:
            v.valid_bytes += CLAIMS_SIZE
        if v.error_batch > 0:
            v.error_batch += CLAIMS_SIZE
        elif v.rule == CRC_MISMATCH:
            v.a = h.crc
            v.b = crc32c_of(0, p + ATTRIBUTES, size - ATTRIBUTES)
    v.stripped = True
    if policy != IGNORE_CLAIMS and v.claims != CLAIMS_TRUSTED:
        v.claims = honesty(&claims, v, scratch)
    conclude(call.context, v)
    if v.claims == CLAIMS_LYING and v.rule == 0:
        # The claims are bytes of the batch: as malformed as any other field that is wrong.
        refuse(v, L7, INVALID_RECORD, reasons.LYING_CLAIMS)
    conclude_rules(scratch, v)


# ---- at rest -------------------------------------------------------------------------------------

cdef int carried_at_rest(const Entry *b, BatchHeader *h, Claims *claims) noexcept nogil:
    """Read the header and the payload's claims of a batch of magic 2 of a segment.

    Returns NOTHING_CARRIED also where a broker wrote the timestamps, or the batch is its own:
    claims are not used there.
    """
    if b.magic != 2 or b.size < RECORDS:
        return NOTHING_CARRIED
    read_header(b.p, h)
    if h.attributes & (LOG_APPEND_TIME_BIT | CONTROL_BIT):
        return NOTHING_CARRIED
    return read_payload(b.p + RECORDS, b.size - RECORDS, h.attributes & CODEC_MASK, claims)


cdef void judge_payload_claims(const BatchHeader *h, const StoredFacts *rest,
        const Scratch *scratch, Verdict *v) noexcept nogil:
    """Compare the claims in the payload of a batch of a segment with its records, before the
    verdict is concluded.

    They change no verdict here: every reader skips them.
    """
    if rest.carried == NOTHING_CARRIED:
        return
    note_header(h, v)
    v.claims = CLAIMS_UNBOUND
    if rest.carried == CLAIMS_CARRIED:
        v.claims = honesty(&rest.claims, v, scratch)


cdef void refuse_lie(const Claims *claims, const Scratch *scratch, Verdict *v) noexcept nogil:
    """Refuse with L7, with the first claim that the records contradict."""
    cdef int8_t null_keys = strongest_null_keys(v.walked_null_keys, v.walked_records)
    if v.walked_records != claims.records_number:
        refuse(v, L7, INVALID_RECORD, reasons.CLAIMED_COUNT, claims.records_number,
                v.walked_records)
    elif v.walked_min_timestamp != claims.batch_min_timestamp:
        refuse(v, L7, INVALID_RECORD, reasons.CLAIMED_MIN_TIMESTAMP, claims.batch_min_timestamp,
                v.walked_min_timestamp)
    elif v.walked_max_timestamp != v.stated_max_timestamp:
        refuse(v, L7, INVALID_RECORD, reasons.CLAIMED_MAX_TIMESTAMP, v.stated_max_timestamp,
                v.walked_max_timestamp)
    elif v.walked_uncompressed != claims.uncompressed_bytes:
        refuse(v, L7, INVALID_RECORD, reasons.CLAIMED_UNCOMPRESSED_BYTES,
                claims.uncompressed_bytes, v.walked_uncompressed)
    elif v.walked_longest != claims.max_record_bytes:
        refuse(v, L7, INVALID_RECORD, reasons.CLAIMED_MAX_RECORD_BYTES, claims.max_record_bytes,
                v.walked_longest)
    elif null_keys != claims.null_keys and not (
            claims.null_keys == SOME_KEYS_NULL and null_keys == NO_KEY_NULL):
        refuse(v, L7, INVALID_RECORD, reasons.CLAIMED_NULL_KEYS, claims.null_keys, null_keys)
    elif claims.schema_ids.stated and not covers(&claims.schema_ids, &scratch.seen_ids.ids):
        refuse(v, L7, INVALID_RECORD, reasons.CLAIMED_SCHEMA_IDS)
    else:
        refuse(v, L7, INVALID_RECORD, reasons.CLAIMED_ORDER)


cdef void rest_on_claims(const Entry *b, const BatchHeader *h, const AppendContext *d,
        const Policy *policy,
        const Sample *sample, Scratch *scratch, Verdict *v, StoredFacts *rest) noexcept nogil:
    """Validate a batch of a segment with readable claims: by them, or by its records where the
    sample draws it or the claims do not settle it. Claims that lie are L7.
    """
    cdef bint settled = keep_rules(&rest.claims, policy.rules) and settles_at_rest(
        &rest.claims, h, d.limit)
    if settled and stated_size(
            h.attributes & CODEC_MASK, b.p + RECORDS, b.size - RECORDS) > d.limit:
        settled = False
    if settled and not is_drawn(sample, h.base_offset, h.crc):
        if check_unopened(b, v):
            v.path = PATH_CLAIMS
            v.claims = CLAIMS_TRUSTED
            v.records_count = h.records_count
            v.max_timestamp = h.max_timestamp
            v.temporary_bytes = rest.claims.uncompressed_bytes
            rest.figures = FIGURES_CLAIMS
        conclude(d, v)
        return
    check_stored_batch(b, d, policy, scratch, v)
    judge_payload_claims(h, rest, scratch, v)
    if v.rule == S8 and <int64_t>rest.claims.uncompressed_bytes - RECORDS > <int64_t>d.limit:
        v.claims = CLAIMS_UNJUDGED  # they do not promise that it fits
    conclude(d, v)
    if v.claims == CLAIMS_LYING and v.rule == 0:
        refuse_lie(&rest.claims, scratch, v)
    if v.rule != CRC_MISMATCH:
        rest.figures = FIGURES_SAMPLE if settled else FIGURES_RECORDS


cdef void check_stored(const Entry *b, const AppendContext *d, const Policy *policy, bint deep,
        const Sample *sample, Scratch *scratch, Verdict *v, StoredFacts *rest) noexcept nogil:
    """Validate a batch of a segment: by Kafka's rules and its claims, then by record rules."""
    none_broken(scratch)
    check_stored_entry(b, d, policy, deep, sample, scratch, v, rest)
    conclude_rules(scratch, v)


cdef void check_stored_entry(const Entry *b, const AppendContext *d, const Policy *policy,
        bint deep,
        const Sample *sample, Scratch *scratch, Verdict *v, StoredFacts *rest) noexcept nogil:
    """Validate as check_stored does, without record rules.

    The claims in a header of magic 3 are compared with the records wherever those are walked: L7.
    Without ``deep`` a compressed payload is not decompressed, and the path is none. ``sample``: the
    claims in a payload are taken for its records, except those of batches that it draws. NULL: they
    are not.
    """
    cdef Claims claims
    cdef BatchHeader h
    cdef Entry carried
    cdef uint32_t computed
    cdef bint closed = (not deep and attributes_of(b) & CODEC_MASK
            and (b.magic != CLAIMS_MAGIC or b.size >= CLAIMED_RECORDS))
    rest.figures = FIGURES_HEADER
    rest.carried = NOTHING_CARRIED
    if sample is not NULL or not closed:
        rest.carried = carried_at_rest(b, &h, &rest.claims)
    want_ids(&scratch.seen_ids, rest.carried == CLAIMS_CARRIED and rest.claims.schema_ids.stated)
    if sample is not NULL and rest.carried == CLAIMS_CARRIED:
        rest_on_claims(b, &h, d, policy, sample, scratch, v, rest)
        return
    if closed:
        check_unopened(b, v)
        conclude(d, v)
        if b.magic == CLAIMS_MAGIC:
            v.claims = CLAIMS_UNJUDGED
        elif rest.carried == UNREADABLE_CLAIMS:
            v.claims = CLAIMS_UNBOUND
        return
    if b.magic != CLAIMS_MAGIC:
        check_stored_batch(b, d, policy, scratch, v)
        judge_payload_claims(&h, rest, scratch, v)
        conclude(d, v)
        if v.rule != CRC_MISMATCH:
            rest.figures = FIGURES_RECORDS
        return
    computed = computed_crc(b)
    if b.size < CLAIMED_RECORDS:
        refuse(v, CRC_MISMATCH, CORRUPT_MESSAGE, reasons.SMALLER_THAN_HEADER, b.size)
    elif computed != stored_crc(b):
        refuse(v, CRC_MISMATCH, CORRUPT_MESSAGE, reasons.WRONG_CRC, stored_crc(b), computed)
    elif not copy_reserve(scratch, b.size - CLAIMS_SIZE):
        v.out_of_memory = True
    else:
        strip_into(scratch.copy, b.p, b.size, b.size)
        carried.p = scratch.copy
        carried.size = b.size - CLAIMS_SIZE
        carried.size_field = b.size_field - CLAIMS_SIZE
        carried.magic = 2
        read_header(carried.p, &h)
        read_claims(b.p + RECORDS, &claims)
        check_stored_batch(&carried, d, policy, scratch, v)
        v.stripped = True
        # Where a broker wrote the timestamps, or the batch is its own, claims are not used.
        if not h.attributes & (LOG_APPEND_TIME_BIT | CONTROL_BIT):
            note_header(&h, v)
            v.claims = honesty(&claims, v, scratch)
        if v.walked_size:
            v.walked_size += CLAIMS_SIZE
        conclude(d, v)
        rest.figures = FIGURES_RECORDS
        if v.claims == CLAIMS_LYING and v.rule == 0:
            refuse(v, L7, INVALID_RECORD, reasons.LYING_CLAIMS)


# ---- the verdict ---------------------------------------------------------------------------------

cdef void validate_partition(const uint8_t *p, size_t n, const Call *call, Verdict *v,
        BatchHeader *h) noexcept nogil:
    """Decide one call's verdict. ``h`` becomes the header of the first batch, if that is of magic 2
    or 3.
    """
    clear(v)
    if n >= RECORDS:
        read_header(p, h)
    validate_headed(p, n, call, v, h)


cdef inline bint wants_ids(const Call *call, const BatchHeader *h, bint carried,
        const Claims *claims) noexcept nogil:
    """Return whether the walk has to collect the ids of values: they are claimed, or new claims
    state them.
    """
    if carried and claims.schema_ids.stated:
        return True
    return (call.claims.wants_ids and h.attributes & CODEC_MASK
            and asks_value_schema(call.checks.rules))


cdef void validate_headed(const uint8_t *p, size_t n, const Call *call, Verdict *v,
        BatchHeader *h) noexcept nogil:
    cdef Claims claims
    cdef Walk w
    cdef int carried = NOTHING_CARRIED
    cdef bint trusted
    none_broken(call.scratch)
    want_ids(&call.scratch.seen_ids, False)
    if n >= RECORDS:
        if (h.magic == CLAIMS_MAGIC and call.policy.accept_claims_header and call.context.strict
                and CLAIMED_RECORDS - LOG_OVERHEAD <= h.batch_length <= <int64_t>n - LOG_OVERHEAD):
            validate_carried(p, n, h, call, v)
            return
        carried = find_claims(call.claims, h, p, n, &claims)
        trusted = carried == CLAIMS_CARRIED and call.claims.policy == TRUST_CLAIMS
        want_ids(&call.scratch.seen_ids, wants_ids(call, h, carried == CLAIMS_CARRIED, &claims))
        if not accept_plain(p, n, RECORDS, h, call, &claims if trusted else NULL, &w, v):
            clear(v)
            validate_by_stages(p, n, call, v)
            call.scratch.walk = NULL
            note_header(h, v)
    else:
        validate_by_stages(p, n, call, v)
        if call.claims.tagged and call.claims.policy != IGNORE_CLAIMS:
            carried = UNREADABLE_CLAIMS
    if carried != NOTHING_CARRIED and v.claims != CLAIMS_TRUSTED:
        v.claims = CLAIMS_UNBOUND
        if carried == CLAIMS_CARRIED:
            v.claims = honesty(&claims, v, call.scratch)
    if v.found or v.rule:
        conclude(call.context, v)
    conclude_rules(call.scratch, v)


cdef bint rests_on_claims(const uint8_t *p, size_t n, const Call *call,
        BatchHeader *h) noexcept nogil:
    """Return whether an ordinary compressed batch is accepted on its claims; ``h`` is then the
    header that was validated.
    """
    cdef Claims claims
    cdef size_t header = RECORDS
    cdef bint carried = h.magic == CLAIMS_MAGIC
    if carried:
        if not call.policy.accept_claims_header or not call.context.strict or n < CLAIMED_RECORDS:
            return False
        read_claims(p + RECORDS, &claims)
        header = CLAIMED_RECORDS
        h.magic = 2
        h.batch_length -= CLAIMS_SIZE
    elif find_claims(call.claims, h, p, n, &claims) != CLAIMS_CARRIED:
        return False
    if is_plain(h, n - header + RECORDS, call):
        if claims_suffice(p + header, n - header, h, call, &claims):
            if crc32c_of(0, p + ATTRIBUTES, n - ATTRIBUTES) == h.crc:
                return True
    if carried:
        h.magic = CLAIMS_MAGIC
        h.batch_length += CLAIMS_SIZE
    return False


cdef int validate_row(const uint8_t *p, size_t n, const Call *call, Verdict *v,
        BatchHeader *h) noexcept nogil:
    """Validate one batch of many. Return PATH_FULL or PATH_CLAIMS for an ordinary batch that this
    fast path accepts, else 0: the verdict has the answer.
    """
    cdef PlainFacts f
    if n >= RECORDS:
        read_header(p, h)
        if h.attributes & (CODEC_MASK | UNUSED_BITS) == 0 and is_plain(h, n, call):
            if crc32c_of(0, p + ATTRIBUTES, n - ATTRIBUTES) == h.crc and not call.claims.tagged:
                if walk_plain_buffer(p + RECORDS, p + n, h, &call.checks, &f):
                    return PATH_FULL
        elif call.claims.policy == TRUST_CLAIMS and h.attributes & CODEC_MASK and not h.attributes & UNUSED_BITS:
            if rests_on_claims(p, n, call, h):
                return PATH_CLAIMS
    clear(v)
    validate_headed(p, n, call, v, h)
    return 0
