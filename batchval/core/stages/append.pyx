"""The second half of UnifiedLog.append: rules 41 to 47, for an empty log that starts at the call's
first offset.

    append_assigned   the batch of a client or coordinator, which LogValidator has accepted
    append_kept       a follower's and a Raft leader's batches, whose offsets are taken as they came

Kafka checks in this order: the offset against the log's end (41), leader epochs (42), producers
batch by batch (43 to 46), the offsets against the segment (47). An empty log has no producer state:
only the batches of this append are compared with each other.

The first record of a control batch with a producer id is a transaction marker
(EndTransactionMarker):

    key    version:2 type:2                 type 0 is ABORT, 1 is COMMIT
    value  version:2 coordinator_epoch:4
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from batchval.core.format cimport reasons
from batchval.core.format.bytes cimport be16, be32, be64
from batchval.core.records.chunked cimport as_read
from batchval.core.codecs.codec_streams cimport LIMIT_HIT, NO_MEMORY, Stream, unpack
from batchval.core.records.fields cimport read_field
from batchval.core.format.header cimport BATCH, BatchHeader, Entry, next_batch, read_header
from batchval.core.format.layout cimport *
from batchval.core.records.records cimport STREAM_PARSER
from batchval.core.codecs.scratch cimport Scratch
from batchval.core.stages.verdict cimport (
    AppendContext, Policy, Verdict, attributes_of, broker_fails, refuse,
)
from batchval.core.stages.batch_records cimport read_records

cdef enum:
    NO_COORDINATOR_EPOCH = -1
    NAMED_OFFSETS = 10  # records that Kafka reads for the text of UnexpectedAppendOffsetException
    FEW_PRODUCERS = 16

cdef struct Producer:  # ProducerStateEntry
    int64_t id
    int32_t coordinator_epoch
    int16_t epoch
    bint in_transaction
    bint known

cdef struct Producers:
    Producer few[FEW_PRODUCERS]
    Producer *table
    size_t mask


# ---- producers -----------------------------------------------------------------------------------

# Random for each process: a sender that does not know it cannot choose ids that collide in the
# table.
cdef uint64_t SECRET = <uint64_t><int64_t>hash("producers")


cdef inline uint64_t place_of(int64_t id) noexcept nogil:
    """Mix the id as Splitmix64 does: every bit of the id affects every bit of the place."""
    cdef uint64_t x = <uint64_t>id ^ SECRET
    x = (x ^ x >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ x >> 27) * <uint64_t>0x94D049BB133111EB
    return x ^ x >> 31


cdef bint open_producers(Producers *all, size_t batches) noexcept nogil:
    """Make a table for one producer a batch. Return False without memory."""
    cdef size_t size = FEW_PRODUCERS
    memset(&all.few, 0, sizeof(all.few))
    while size < 2 * batches:
        size *= 2
    all.mask = size - 1
    all.table = &all.few[0] if size == FEW_PRODUCERS else <Producer *>calloc(size, sizeof(Producer))
    return all.table is not NULL


cdef void close_producers(Producers *all) noexcept nogil:
    if all.table is not &all.few[0]:
        free(all.table)


cdef Producer *producer_of(Producers *all, int64_t id) noexcept nogil:
    """Return the state of a producer so far, or an empty one (ProducerStateManager.prepareUpdate).
    """
    cdef size_t at = place_of(id)
    cdef Producer *found
    while True:
        found = &all.table[at & all.mask]
        if not found.known:
            found.id = id
            found.epoch = NO_PRODUCER_EPOCH
            found.coordinator_epoch = NO_COORDINATOR_EPOCH
            found.in_transaction = False
            found.known = True
            return found
        if found.id == id:
            return found
        at += 1


cdef inline bint epoch_is_refused(const BatchHeader *h, const Producer *state,
        const AppendContext *d,
        Verdict *v) noexcept nogil:
    """Check the epoch as ProducerAppendInfo.checkProducerEpoch does: a follower takes what its
    leader took.
    """
    if h.producer_epoch >= state.epoch or d.origin == REPLICATION:
        return False
    refuse(v, PRODUCER_EPOCH_TOO_LOW, INVALID_PRODUCER_EPOCH, reasons.PRODUCER_EPOCH,
            h.producer_epoch, state.epoch)
    return True


cdef bint append_data(const BatchHeader *h, bint transactional, Producer *state,
        const AppendContext *d,
        Verdict *v) noexcept nogil:
    """Follow ProducerAppendInfo.appendDataBatch."""
    if epoch_is_refused(h, state, d, v):
        return False
    state.epoch = h.producer_epoch
    if state.in_transaction and not transactional:
        return refuse(v, TRANSACTION_NOT_ENDED, INVALID_TXN_STATE, reasons.OUTSIDE_TRANSACTION,
                h.producer_id)
    state.in_transaction = transactional
    return True


cdef bint append_marker(const BatchHeader *h, int32_t coordinator_epoch, Producer *state,
        const AppendContext *d, Verdict *v) noexcept nogil:
    """Follow ProducerAppendInfo.appendEndTxnMarker."""
    if d.origin == RAFT_LEADER and d.asks_marker_versions:
        # A marker comes with its transaction's version, which this origin cannot state.
        return broker_fails(v, TRANSACTION_MARKER_MALFORMED, S9, reasons.MARKER_ORIGIN,
                h.producer_id)
    if epoch_is_refused(h, state, d, v):
        return False
    if coordinator_epoch < state.coordinator_epoch and d.origin != REPLICATION:
        return refuse(v, COORDINATOR_EPOCH_TOO_LOW, TRANSACTION_COORDINATOR_FENCED,
                reasons.COORDINATOR_EPOCH, coordinator_epoch, state.coordinator_epoch)
    state.epoch = h.producer_epoch
    state.coordinator_epoch = coordinator_epoch
    state.in_transaction = False
    return True


cdef bint append_batch(const Entry *b, bint control, Producers *all, const AppendContext *d,
        const Policy *policy, Scratch *scratch, Verdict *v) noexcept nogil:
    """Follow UnifiedLog.updateProducers for one batch of magic 2."""
    cdef BatchHeader h
    cdef int32_t coordinator_epoch = 0
    read_header(b.p, &h)
    if h.producer_id <= NO_PRODUCER_ID:
        return True
    if not control:
        return append_data(&h, attributes_of(b) & TRANSACTIONAL_BIT,
                producer_of(all, h.producer_id), d, v)
    if h.records_count == 0:
        return True  # the cleaner has removed the transaction
    if not read_marker(b, &h, d, policy, scratch, v, &coordinator_epoch):
        return False
    return append_marker(&h, coordinator_epoch, producer_of(all, h.producer_id), d, v)


# ---- transaction markers -------------------------------------------------------------------------

cdef const uint8_t *skip_varint(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Return the first byte after a varint; NULL where the bytes end first."""
    while p is not NULL and p < end:
        p += 1
        if (p - 1)[0] < 0x80:
            return p
    return NULL


cdef bint take_marker(const uint8_t *p, const uint8_t *end, const AppendContext *d, Verdict *v,
        int32_t *coordinator_epoch) noexcept nogil:
    """Follow EndTransactionMarker.deserialize for the record at p. It has been walked; every read
    is bounded again.
    """
    cdef int32_t length = 0
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value
    p = skip_varint(p, end)
    if p is not NULL and p < end:
        p = skip_varint(skip_varint(p + 1, end), end)
    if p is not NULL:
        key = read_field(p, end, &length)
    if key is NULL or length < 0:
        return broker_fails(v, TRANSACTION_MARKER_MALFORMED, S9, reasons.MARKER_KEY, -1)
    if length < MARKER_KEY_SIZE or be16(key) < 0:
        return refuse(v, TRANSACTION_MARKER_MALFORMED, INVALID_RECORD, reasons.MARKER_KEY, length)
    if not MARKER_ABORT <= be16(key + MARKER_TYPE) <= MARKER_COMMIT:
        return broker_fails(v, TRANSACTION_MARKER_MALFORMED, S9, reasons.MARKER_TYPE,
                be16(key + MARKER_TYPE))
    value = read_field(key + length, end, &length)
    if value is not NULL and 0 <= length < MARKER_VALUE_SIZE and d.measures_markers:
        return refuse(v, TRANSACTION_MARKER_MALFORMED, INVALID_RECORD, reasons.MARKER_VALUE, length)
    if value is NULL or length < MARKER_COORDINATOR_EPOCH:
        return broker_fails(v, TRANSACTION_MARKER_MALFORMED, S9, reasons.MARKER_VALUE, length)
    if be16(value) < 0:
        return refuse(v, TRANSACTION_MARKER_MALFORMED, INVALID_RECORD, reasons.MARKER_VALUE, length)
    if length < MARKER_VALUE_SIZE:
        return broker_fails(v, TRANSACTION_MARKER_MALFORMED, S9, reasons.MARKER_VALUE, length)
    coordinator_epoch[0] = be32(value + MARKER_COORDINATOR_EPOCH)
    return True


cdef bint read_marker(const Entry *b, const BatchHeader *h, const AppendContext *d,
        const Policy *policy,
        Scratch *scratch, Verdict *v, int32_t *coordinator_epoch) noexcept nogil:
    """Read the first record of a control batch. Kafka reads all of a compressed batch for it."""
    cdef Stream s
    cdef int status
    cdef uint8_t *read
    cdef bint taken
    if not read_records(b.p, b.size, 1, d, policy, scratch, v):
        return False
    if attributes_of(b) & CODEC_MASK == NONE:
        return take_marker(b.p + RECORDS, b.p + b.size, d, v, coordinator_epoch)
    status = unpack(&s, scratch, attributes_of(b) & CODEC_MASK, b.p + RECORDS, b.size - RECORDS,
            d.limit)
    if status == NO_MEMORY:
        v.out_of_memory = True
        return False
    if status == LIMIT_HIT:
        return refuse(v, S8, INVALID_RECORD, reasons.DECOMPRESSED_LIMIT, <int64_t>d.limit)
    if not s.halted:
        return take_marker(scratch.arena, scratch.arena + s.delivered, d, v, coordinator_epoch)
    read = as_read(&s, scratch, attributes_of(b) & CODEC_MASK, 2, b.p + RECORDS, b.size - RECORDS,
            d.limit, STREAM_PARSER, h.records_count, d.largest_record)
    if read is NULL:
        v.out_of_memory = True
        return False
    taken = take_marker(read, read + s.delivered, d, v, coordinator_epoch)
    free(read)
    return taken


# ---- the append ----------------------------------------------------------------------------------

cdef inline bint has_fields(const Entry *b) noexcept nogil:
    """Return whether the batch has its fields. The batch loop has checked this, but the buffer may
    have changed since.
    """
    return b.magic < 2 or b.size >= RECORDS


cdef bint no_batch(Verdict *v) noexcept nogil:
    return broker_fails(v, FIELDS_OUT_OF_BOUNDS, S9, reasons.TOO_SMALL_FOR_FIELDS)


cdef inline bint note_epoch(int32_t epoch, int64_t base_offset, Verdict *v) noexcept nogil:
    """Follow LeaderEpochFileCache.assign."""
    if epoch < 0 or base_offset < 0:
        return broker_fails(v, LEADER_EPOCH_INVALID, S9, reasons.EPOCH_ENTRY, epoch, base_offset)
    return True


cdef inline bint fits_segment(int64_t base, int64_t last_offset, Verdict *v) noexcept nogil:
    """Follow LogSegment.append: an index holds offsets as 32 bits above the segment's base offset.
    The log's end, one above the last offset, must be an offset too (UnifiedLog.updateLogEndOffset).
    """
    cdef int64_t above = <int64_t>(<uint64_t>last_offset - <uint64_t>base)
    if 0 <= above <= 0x7FFFFFFF and base <= last_offset < MAX_OFFSET:
        return True
    return broker_fails(v, OFFSETS_OUTSIDE_SEGMENT, S9, reasons.SEGMENT_RANGE, last_offset, base)


cdef bint append_assigned(const uint8_t *p, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        Verdict *v) noexcept nogil:
    """Append the one batch that LogValidator leaves. ``v.late`` is set where this function refuses.
    """
    cdef Entry b
    cdef Producers all
    cdef int64_t base = d.first_offset
    if d.to_magic < 2 or (v.rebuild and v.records_count == 0):
        return True  # current brokers do not write this; the builder leaves no batch
    v.late = True
    if next_batch(p, v.valid_bytes, &b) != BATCH or not has_fields(&b):
        return no_batch(v)
    v.error_batch = 0
    if not v.rebuild:
        base = <int64_t>(<uint64_t>base + <uint64_t><int64_t>v.records_count - 1
                         - <uint64_t><int64_t>be32(p + LAST_OFFSET_DELTA))
    if not note_epoch(d.leader_epoch, base, v):
        return False
    if b.magic == 2:
        open_producers(&all, 1)
        # the builder drops the control bit
        if not append_batch(&b, not v.rebuild and attributes_of(&b) & CONTROL_BIT, &all, d, policy,
                scratch, v):
            return False
    if not fits_segment(d.first_offset,
            <int64_t>(<uint64_t>d.first_offset + <uint64_t><int64_t>v.records_count - 1), v):
        return False
    v.late = False
    return True


cdef inline int64_t last_offset_of(const Entry *b) noexcept nogil:
    if b.magic < 2:
        return be64(b.p)
    return <int64_t>(<uint64_t>be64(b.p) + <uint64_t><int64_t>be32(b.p + LAST_OFFSET_DELTA))


cdef inline int64_t max_timestamp_of(const Entry *b) noexcept nogil:
    if b.magic == 2:
        return be64(b.p + MAX_TIMESTAMP)
    return be64(b.p + LEGACY_TIMESTAMP) if b.magic == 1 else NO_TIMESTAMP


cdef bint append_kept(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch, Verdict *v) noexcept nogil:
    """Append the batches p[0:v.valid_bytes]. On acceptance the verdict has the figures of their
    headers.
    """
    cdef Entry b
    cdef Producers all
    cdef size_t at = 0
    cdef int64_t first_offset, base, records = 0
    cdef int32_t left
    cdef bint accepted = True, names_first
    v.late = True
    v.kept = True
    if next_batch(p, v.valid_bytes, &b) != BATCH or not has_fields(&b):
        return no_batch(v)
    # The header of magic 0 and 1 has the last offset only.
    names_first = b.magic == 2
    first_offset = be64(p)
    if not names_first or first_offset < 0:
        first_offset = last_offset_of(&b)
    if first_offset < d.first_offset:
        if not read_records(p, n, NAMED_OFFSETS, d, policy, scratch, v):
            return False
        v.error_batch = 0
        return broker_fails(v, OFFSET_BELOW_LOG_END, S9, reasons.BELOW_LOG_END, first_offset,
                d.first_offset)
    while at < <size_t>v.valid_bytes and next_batch(p + at, v.valid_bytes - at, &b) == BATCH:
        v.error_batch = at
        if not has_fields(&b):
            return no_batch(v)
        if b.magic == 2 and not note_epoch(be32(b.p + PARTITION_LEADER_EPOCH), be64(b.p), v):
            return False
        if max_timestamp_of(&b) > v.max_timestamp:
            v.max_timestamp = max_timestamp_of(&b)
        records += 1 if b.magic < 2 else max(be32(b.p + RECORDS_COUNT), 0)
        v.last_offset = last_offset_of(&b)
        at += b.size
    v.records_count = <int32_t>min(records, <int64_t>0x7FFFFFFF)
    if not open_producers(&all, v.batches):
        v.out_of_memory = True
        return False
    at = 0
    # A buffer that changes meanwhile may hold more batches than the table has places for.
    left = v.batches
    while (accepted and left > 0 and at < <size_t>v.valid_bytes
            and next_batch(p + at, v.valid_bytes - at, &b) == BATCH):
        left -= 1
        v.error_batch = at
        if b.magic == 2 and has_fields(&b):
            accepted = append_batch(&b, attributes_of(&b) & CONTROL_BIT, &all, d, policy, scratch,
                    v)
        at += b.size
    close_producers(&all)
    if not accepted:
        return False
    base = d.first_offset
    if not 0 <= <int64_t>(<uint64_t>v.last_offset - <uint64_t>base) <= 0x7FFFFFFF:
        # A new segment starts at the first offset, where the header has it.
        if names_first:
            base = first_offset
        elif v.last_offset - 0x7FFFFFFF > base:
            base = v.last_offset - 0x7FFFFFFF
    return fits_segment(base, v.last_offset, v)
