"""New bytes for a batch that was accepted: written over the old ones, or built anew.

    assign_in_place   base offset, leader epoch, timestamp type, max timestamp: what a broker writes
                      into a batch
    rebuild           MemoryRecordsBuilder: other magic, other codec, or inner offsets that have to
                      be counted anew

Both read the bytes that validate_and_assign read, in memory that nobody else writes to: it has
found that neither can fail, and that every record parses and can be written. Records are read and
written without the GIL.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from batchval.compression.compressors import compress

from batchval.core.format.bytes cimport be32, be64, put_be16, put_be32, put_be64
from batchval.core.records.chunked cimport as_read
from batchval.core.stages.claims_block cimport VERSION_2, Claims, strongest_null_keys
from batchval.core.format.crc32c cimport crc32_of, crc32c_moved, crc32c_of
from batchval.core.records.fields cimport Record, java_string_into, read_field, read_record
from batchval.core.codecs.codec_streams cimport NO_MEMORY, UNLIMITED, Stream, copy_unlocked, unpack
from batchval.core.format.header cimport (
    BATCH, BatchHeader, Entry, next_batch, read_header, write_header,
)
from batchval.core.format.value_ids cimport SeenIds, note_value, start_ids
from batchval.core.stages.verdict cimport AppendContext, Policy, Verdict
from batchval.core.format.layout cimport *
from batchval.core.records.legacy cimport (
    LEGACY_BROKEN, LEGACY_RECORD, LegacyRecord, LegacyRecords, legacy_key, legacy_value,
    next_legacy_record,
    reopen_legacy_records,
)
from batchval.core.records.records cimport STREAM_PARSER, WALKED, Facts, clear_facts
from batchval.core.codecs.scratch cimport Scratch, copy_back, copy_lend
from batchval.core.records.writing cimport (
    put_nullable, put_record, put_varint, size_of_body, size_of_nullable, size_of_varint,
)

from batchval.errors import BatchvalError

cdef enum:
    UNLOCK_ABOVE = 65536  # bytes to free
    PATCH_FROM = 2048  # bytes after the header from which patching the crc beats computing it


# ---- in place ------------------------------------------------------------------------------------

cdef uint32_t put_max_timestamp(uint8_t *p, bint log_append_time, int64_t timestamp,
        uint8_t kept) noexcept nogil:
    """Write the max timestamp into the 61 bytes of a header. Return the change of the checksum,
    before it is moved over what follows. Writing the attributes loses their bits that are not in
    ``kept``, as it does in Kafka.
    """
    cdef uint32_t before = crc32c_of(0, p + ATTRIBUTES, RECORDS - ATTRIBUTES)
    cdef uint8_t flags = p[ATTRIBUTES + 1] & kept
    put_be16(p + ATTRIBUTES, flags | (LOG_APPEND_TIME_BIT if log_append_time else 0))
    put_be64(p + MAX_TIMESTAMP, timestamp)
    return before ^ crc32c_of(0, p + ATTRIBUTES, RECORDS - ATTRIBUTES)


cdef bint set_max_timestamp(uint8_t *p, uint64_t size, bint log_append_time, int64_t timestamp,
        bint crc_is_right, uint8_t kept) noexcept nogil:
    """Follow DefaultRecordBatch.setMaxTimestamp. Return False where there was nothing to write."""
    cdef uint32_t crc
    cdef uint64_t tail = size - RECORDS
    if ((p[ATTRIBUTES + 1] & LOG_APPEND_TIME_BIT != 0) == log_append_time
            and be64(p + MAX_TIMESTAMP) == timestamp):
        return False
    crc = put_max_timestamp(p, log_append_time, timestamp, kept)
    if crc_is_right and tail >= PATCH_FROM:
        crc = <uint32_t>be32(p + CRC) ^ crc32c_moved(crc, tail)
    else:
        crc = crc32c_of(0, p + ATTRIBUTES, size - ATTRIBUTES)
    put_be32(p + CRC, <int32_t>crc)
    return True


cdef bint set_legacy_timestamp(uint8_t *p, uint64_t size, bint log_append_time,
        int64_t timestamp) noexcept nogil:
    """Follow ByteBufferLegacyRecordBatch.setMaxTimestamp, for magic 1. Return False where there was
    nothing to write.
    """
    cdef uint8_t attributes = p[LEGACY_ATTRIBUTES]
    if (attributes & LOG_APPEND_TIME_BIT != 0) == log_append_time and be64(p + LEGACY_TIMESTAMP) == timestamp:
        return False
    p[LEGACY_ATTRIBUTES] = (attributes & CODEC_MASK) | (LOG_APPEND_TIME_BIT if log_append_time else 0)
    put_be64(p + LEGACY_TIMESTAMP, timestamp)
    put_be32(p + LEGACY_CRC, <int32_t>crc32_of(0, p + LEGACY_MAGIC, size - LEGACY_MAGIC))
    return True


cdef inline void put_field(uint8_t *to, const uint8_t *p, size_t at, size_t size) noexcept nogil:
    memcpy(to + at, p + at, size)


cdef void put_assigned(uint8_t *to, const uint8_t *p, int magic, int to_magic,
        bint stamped) noexcept nogil:
    """Write what was assigned in the batch at ``p`` into the caller's own bytes of it, of which
    nothing is read.
    """
    put_field(to, p, BASE_OFFSET, 8)
    if magic == 2 and to_magic == 2:
        put_field(to, p, PARTITION_LEADER_EPOCH, 4)
    if not stamped:
        return
    if magic == 2:
        put_field(to, p, CRC, 4)
        put_field(to, p, ATTRIBUTES, 2)
        put_field(to, p, MAX_TIMESTAMP, 8)
    else:
        put_field(to, p, LEGACY_CRC, 4)
        put_field(to, p, LEGACY_ATTRIBUTES, 1)
        put_field(to, p, LEGACY_TIMESTAMP, 8)


cdef void assign_header(uint8_t *p, const BatchHeader *h, const AppendContext *d,
        const Policy *policy,
        const Verdict *v) noexcept nogil:
    """Assign in place for the batch of magic 2 at p whose header and checksum were validated. Its
    bytes may have changed since: nothing of it is read.
    """
    cdef uint8_t[RECORDS] header
    cdef uint64_t tail = <uint64_t>h.batch_length + LOG_OVERHEAD - RECORDS
    cdef bint stamped = ((h.attributes & LOG_APPEND_TIME_BIT != 0) != policy.log_append_time
            or h.max_timestamp != v.max_timestamp)
    write_header(header, h)
    put_be64(header, d.first_offset + v.records_count - 1 - h.last_offset_delta)
    put_be32(header + PARTITION_LEADER_EPOCH, d.leader_epoch)
    if stamped:
        put_be32(header + CRC, <int32_t>(h.crc ^ crc32c_moved(
                put_max_timestamp(header, policy.log_append_time, v.max_timestamp,
                        d.kept_attributes), tail)))
    put_assigned(p, header, 2, 2, stamped)


cdef void assign_in_place(uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        const Verdict *v, bint crc_is_right, uint8_t *to) noexcept nogil:
    """Write offsets from d.first_offset on into p[0:n]; and the same fields into the caller's
    bytes, if ``to`` is not NULL. crc_is_right: the checksum has been verified, so it may be
    patched.

    p[0:n] are private bytes, or the caller's own. Those may have changed since they were validated:
    what is written stays inside each batch, whatever its bytes are now. scratch: NULL where no
    message was compressed, so that one that is now has changed, and is not decompressed.
    """
    cdef Entry b
    cdef size_t at = 0
    cdef int64_t offset = d.first_offset, timestamp
    cdef bint stamped
    while next_batch(p + at, n - at, &b) == BATCH:
        if b.magic == 2:
            if b.size < RECORDS:
                return  # it has changed
            offset += v.records_count
            put_be64(p + at, offset - 1 - be32(p + at + LAST_OFFSET_DELTA))
            if d.to_magic == 2:
                put_be32(p + at + PARTITION_LEADER_EPOCH, d.leader_epoch)
            stamped = d.to_magic > 0 and set_max_timestamp(
                    p + at, b.size, policy.log_append_time, v.max_timestamp, crc_is_right,
                    d.kept_attributes)
            if to is not NULL:
                put_assigned(to + at, p + at, b.magic, d.to_magic, stamped)
            return
        # Each message or wrapper of the set has its own.
        if v.source != NONE or v.target != NONE:
            offset += v.records_count
            timestamp = v.max_timestamp
        elif b.p[LEGACY_ATTRIBUTES] & CODEC_MASK:  # in spite of the codec that the caller named
            if scratch is NULL:
                return  # it has changed
            offset += count_and_max(&b, scratch, &timestamp)
        else:
            offset += 1
            timestamp = NO_TIMESTAMP
            if b.magic == 1 and be64(b.p + LEGACY_TIMESTAMP) > NO_TIMESTAMP:
                timestamp = be64(b.p + LEGACY_TIMESTAMP)
        put_be64(p + at, offset - 1)
        stamped = False
        if b.magic == 1 and d.to_magic > 0:
            stamped = set_legacy_timestamp(
                    p + at, b.size, policy.log_append_time,
                    d.now if policy.log_append_time else timestamp)
        if to is not NULL:
            put_assigned(to + at, p + at, b.magic, d.to_magic, stamped)
        at += b.size


cdef int64_t count_and_max(const Entry *b, Scratch *scratch, int64_t *timestamp) noexcept nogil:
    cdef LegacyRecords m
    cdef LegacyRecord message
    cdef Facts f
    cdef int64_t count = 0
    timestamp[0] = NO_TIMESTAMP
    clear_facts(&f)
    if reopen_legacy_records(&m, b, scratch) != WALKED:
        return 0
    while next_legacy_record(&m, &message, 0, &f) == LEGACY_RECORD:
        count += 1
        if message.timestamp > timestamp[0]:
            timestamp[0] = message.timestamp
    return count


# ---- writing -------------------------------------------------------------------------------------

cdef bint reserve(Out *out, size_t capacity) noexcept nogil:
    """Reserve memory for ``capacity`` bytes in all. Return False without memory."""
    cdef uint8_t *grown
    if capacity <= out.capacity:
        return True
    if out.size == 0:  # realloc has nothing to copy
        free(out.data)
        out.data = NULL
        out.capacity = 0
    grown = <uint8_t *>realloc(out.data, capacity)
    if grown is NULL:
        return False
    out.data = grown
    out.capacity = capacity
    return True


cdef uint8_t *more(Out *out, size_t n) noexcept nogil:
    """Return the place of n bytes after the content, which the caller then fills. NULL: no memory.
    """
    cdef size_t wanted = out.size + n, capacity
    if wanted > out.capacity:
        capacity = 2 * out.capacity if 2 * out.capacity > wanted else wanted
        if not reserve(out, capacity if capacity > 4096 else 4096):
            return NULL
    out.size = wanted
    return out.data + wanted - n


cdef inline void put_legacy_nullable(uint8_t *to, const uint8_t *p, int32_t length) noexcept nogil:
    put_be32(to, length if length >= 0 else -1)
    if length > 0:
        memcpy(to + 4, p, length)


cdef bint put_message(Out *out, int magic, int attributes, int64_t offset, int64_t timestamp,
        const uint8_t *key, int32_t key_length, const uint8_t *value,
        int32_t value_length) noexcept nogil:
    """Write a message of magic 0 or 1 with its log overhead. A negative length is null. False: no
    memory. The caller has found that the size fits an int.
    """
    cdef size_t key_size = key_length if key_length > 0 else 0
    cdef size_t value_size = value_length if value_length > 0 else 0
    cdef size_t overhead = LEGACY_OVERHEAD_V0 if magic == 0 else LEGACY_OVERHEAD_V1
    cdef size_t size = overhead + key_size + value_size
    cdef uint8_t *p = more(out, size)
    if p is NULL:
        return False
    put_legacy_nullable(p + overhead - 8, key, key_length)
    put_legacy_nullable(p + overhead - 4 + key_size, value, value_length)
    seal_message(p, size, magic, attributes, offset, timestamp)
    return True


cdef void seal_message(uint8_t *p, size_t size, int magic, int attributes, int64_t offset,
        int64_t timestamp) noexcept nogil:
    """Write what comes before the key of a message of ``size`` bytes in all, its checksum last."""
    put_be64(p, offset)
    put_be32(p + 8, <int32_t>(size - LOG_OVERHEAD))
    p[LEGACY_MAGIC] = magic
    p[LEGACY_ATTRIBUTES] = attributes
    if magic > 0:
        put_be64(p + LEGACY_TIMESTAMP, timestamp)
    put_be32(p + LEGACY_CRC, <int32_t>crc32_of(0, p + LEGACY_MAGIC, size - LEGACY_MAGIC))


@cython.final
cdef class Written:
    """Bytes that were written, for ``compress``: they are not copied, and are freed without the
    GIL.
    """

    def __cinit__(self):
        self.data = NULL
        self.size = 0
        self.capacity = 0
        self.exports = 0

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    def __dealloc__(self):
        if self.capacity < UNLOCK_ABOVE:
            free(self.data)
            return
        with nogil:
            free(self.data)


cdef Written written(Out *out):
    """Take over the bytes."""
    cdef Written result = Written.__new__(Written)
    result.data = out.data
    result.size = out.size
    result.capacity = out.capacity
    out.data = NULL
    out.size = 0
    out.capacity = 0
    return result


cdef bytes compressed(Out *out, int codec, int magic, level):
    """Return the payload that holds these bytes. ``out`` becomes empty, and keeps its memory unless
    a buffer still refers to it.
    """
    cdef Written records = written(out)
    payload = compress(codec, records, magic, level)
    if records.exports == 0:
        out.data = records.data
        out.capacity = records.capacity
        records.data = NULL
        records.size = 0
        records.capacity = 0
    return payload


cdef bytes bytes_of(const uint8_t *p, size_t n):
    result = PyBytes_FromStringAndSize(NULL, n)
    copy_unlocked(<uint8_t *>PyBytes_AS_STRING(result), p, n)
    return result


cdef bint canonical_headers(Out *out, const Record *r) noexcept nogil:
    """Write the headers as Kafka writes them: shortest varints, -1 for null, keys re-encoded.
    Return False without memory.
    """
    cdef const uint8_t *p = r.headers
    cdef const uint8_t *end = p + r.headers_size
    cdef uint8_t *to
    cdef uint64_t made
    cdef int32_t _i, size = 0
    out.size = 0
    for _i in range(r.headers_count):  # read_record has found them whole
        p = read_field(p, end, &size)
        made = java_string_into(NULL, <uint64_t>-1, p, size)
        to = more(out, size_of_varint(<int64_t>made) + made)
        if to is NULL:
            return False
        java_string_into(put_varint(to, <int64_t>made), made, p, size)
        p = read_field(p + size, end, &size)
        to = more(out, size_of_nullable(size))
        if to is NULL:
            return False
        put_nullable(to, p, size)
        p += size if size > 0 else 0
    return True


# ---- the builder ---------------------------------------------------------------------------------

cdef struct Builder:  # MemoryRecordsBuilder for one batch, or for a set of uncompressed messages
    Out out  # records, without batch header or wrapper
    Out headers  # of the record that is being appended
    int magic
    int codec
    bint log_append_time
    int64_t base_offset
    int64_t now
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t count
    int32_t sizes
    # The claims about records of magic 2.
    int64_t min_timestamp
    int32_t null_keys
    int32_t longest
    SeenIds seen_ids  # of the values, where they are wanted


cdef bint append(Builder *b, const Record *r) noexcept nogil:
    """Append a record. Return False without memory."""
    cdef size_t before = b.out.size
    cdef int64_t timestamp = r.timestamp
    if b.count == 0:
        b.base_timestamp = timestamp
    if b.magic == 2:
        if not append_record(b, r):
            return False
    else:
        if b.log_append_time:
            timestamp = b.now
        if not append_message(b, r, timestamp):
            return False
    if b.magic > 0 and timestamp > b.max_timestamp:
        b.max_timestamp = timestamp
    b.count += 1
    b.sizes = <int32_t>(<uint32_t>b.sizes + <uint32_t>(b.out.size - before))
    return True


cdef bint append_record(Builder *b, const Record *r) noexcept nogil:
    cdef int64_t delta = <int64_t>(<uint64_t>r.timestamp - <uint64_t>b.base_timestamp)
    cdef Record canonical = r[0]
    cdef size_t body
    cdef uint8_t *to
    canonical.headers_size = 0
    if r.headers_count:
        if not canonical_headers(&b.headers, r):
            return False
        canonical.headers = b.headers.data
        canonical.headers_size = <int32_t>b.headers.size
    body = size_of_body(&canonical, delta, b.count)
    to = more(&b.out, size_of_varint(<int32_t>body) + body)
    if to is NULL:
        return False
    put_record(to, <int32_t>body, &canonical, delta, b.count)
    if b.count == 0 or r.timestamp < b.min_timestamp:
        b.min_timestamp = r.timestamp
    if r.key_length < 0:
        b.null_keys += 1
    if <int32_t>body > b.longest:
        b.longest = <int32_t>body
    if b.seen_ids.wanted:
        note_value(&b.seen_ids, r.value, r.value_length)
    return True


cdef bint append_message(Builder *b, const Record *r, int64_t timestamp) noexcept nogil:
    cdef bint relative = b.magic > 0 and b.codec != NONE
    return put_message(&b.out, b.magic,
            LOG_APPEND_TIME_BIT if b.magic > 0 and b.log_append_time else 0,
            b.count + (0 if relative else b.base_offset), timestamp,
            r.key, r.key_length, r.value, r.value_length)


cdef bytes build(Builder *b, const uint8_t *first, int first_magic, int32_t leader_epoch, level):
    """Return the finished bytes. Producer state is the first batch's. ``level`` is None for the
    codec's default.
    """
    cdef int16_t attributes = b.codec | (LOG_APPEND_TIME_BIT if b.log_append_time else 0)
    cdef const uint8_t *content = b.out.data
    cdef uint8_t *p
    cdef size_t size = b.out.size
    if b.count == 0:
        return b""
    if b.magic < 2 and b.codec == NONE:
        return bytes_of(b.out.data, b.out.size)
    if b.magic < 2:
        return build_wrapper(b, compressed(&b.out, b.codec, b.magic, level))
    if b.codec != NONE:
        payload = compressed(&b.out, b.codec, 2, level)
        content = <const uint8_t *>PyBytes_AS_STRING(payload)
        size = PyBytes_GET_SIZE(payload)
    batch = PyBytes_FromStringAndSize(NULL, RECORDS + size)
    p = <uint8_t *>PyBytes_AS_STRING(batch)
    copy_unlocked(p + RECORDS, content, size)
    size += RECORDS
    memset(p, 0, RECORDS)
    if first_magic == 2:
        attributes |= first[ATTRIBUTES + 1] & TRANSACTIONAL_BIT
        memcpy(p + PRODUCER_ID, first + PRODUCER_ID, RECORDS_COUNT - PRODUCER_ID)
    else:
        memset(p + PRODUCER_ID, 0xFF, RECORDS_COUNT - PRODUCER_ID)
    put_be64(p + BASE_OFFSET, b.base_offset)
    put_be32(p + BATCH_LENGTH, <int32_t>(size - LOG_OVERHEAD))
    put_be32(p + PARTITION_LEADER_EPOCH, leader_epoch)
    p[MAGIC] = 2
    put_be16(p + ATTRIBUTES, attributes)
    put_be32(p + LAST_OFFSET_DELTA, b.count - 1)
    put_be64(p + BASE_TIMESTAMP, b.base_timestamp)
    put_be64(p + MAX_TIMESTAMP, b.now if b.log_append_time else b.max_timestamp)
    put_be32(p + RECORDS_COUNT, b.count)
    with nogil:
        put_be32(p + CRC, <int32_t>crc32c_of(0, p + ATTRIBUTES, size - ATTRIBUTES))
    return batch


cdef bytes build_wrapper(Builder *b, bytes payload):
    cdef Out wrapper
    cdef const uint8_t *content = <const uint8_t *>PyBytes_AS_STRING(payload)
    cdef int32_t size = <int32_t>PyBytes_GET_SIZE(payload)
    cdef bint done
    wrapper.data = NULL
    wrapper.size = 0
    wrapper.capacity = 0
    try:
        with nogil:
            done = put_message(&wrapper, b.magic,
                    b.codec | (LOG_APPEND_TIME_BIT if b.magic > 0 and b.log_append_time else 0),
                    b.base_offset + b.count - 1, b.now if b.log_append_time else b.max_timestamp,
                    NULL, -1, content, size)
        if not done:
            raise MemoryError()
        return bytes_of(wrapper.data, wrapper.size)
    finally:
        with nogil:
            free(wrapper.data)


cdef enum:  # append_batch
    APPENDED
    NO_MEMORY_LEFT
    UNLIKE_BEFORE  # the records are not those that validate_and_assign found


cdef int append_batch(Builder *builder, const Entry *b, Scratch *scratch) noexcept nogil:
    cdef BatchHeader h
    cdef Record r
    cdef Stream s
    cdef LegacyRecords m
    cdef LegacyRecord message
    cdef Facts f
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef uint8_t *read = NULL
    cdef int codec, answer
    cdef int64_t key, value
    if b.magic == 2:
        read_header(b.p, &h)
        p = b.p + RECORDS
        end = b.p + b.size
        codec = h.attributes & CODEC_MASK
        if codec != NONE:
            if unpack(&s, scratch, codec, p, b.size - RECORDS, <uint64_t>UNLIMITED) == NO_MEMORY:
                return NO_MEMORY_LEFT
            p = scratch.arena
            end = p + s.delivered
            if s.halted:  # the records are those that Kafka's parser got
                read = as_read(&s, scratch, codec, 2, b.p + RECORDS, b.size - RECORDS,
                        <uint64_t>UNLIMITED, STREAM_PARSER, h.records_count, 0x7FFFFFFF)
                if read is NULL:
                    return NO_MEMORY_LEFT
                p = read
                end = read + s.delivered
        answer = append_records(builder, p, end, &h)
        free(read)
        return answer
    clear_facts(&f)
    if reopen_legacy_records(&m, b, scratch) != WALKED:
        return NO_MEMORY_LEFT
    r.headers_count = 0
    while next_legacy_record(&m, &message, 0, &f) == LEGACY_RECORD:
        key = legacy_key(message.p, message.size, &r.key_length)
        value = legacy_value(message.p, message.size, &r.value_length)
        if key == LEGACY_BROKEN or value == LEGACY_BROKEN:
            return UNLIKE_BEFORE
        r.timestamp = message.timestamp
        r.key = message.p + key
        r.value = message.p + value
        if not append(builder, &r):
            return NO_MEMORY_LEFT
    return APPENDED


cdef int append_records(Builder *builder, const uint8_t *p, const uint8_t *end,
        const BatchHeader *h) noexcept nogil:
    cdef Record r
    cdef int32_t _i
    for _i in range(h.records_count):
        p = read_record(p, end, h, &r)
        if p is NULL:
            return UNLIKE_BEFORE
        if not append(builder, &r):
            return NO_MEMORY_LEFT
    return APPENDED


cdef int append_all(Builder *builder, const uint8_t *p, size_t n, Scratch *scratch) noexcept nogil:
    cdef Entry b
    cdef size_t at = 0
    cdef int answer
    while next_batch(p + at, n - at, &b) == BATCH:
        answer = append_batch(builder, &b, scratch)
        if answer != APPENDED:
            return answer
        at += b.size
    return APPENDED


cdef void claims_of_built(const Builder *b, Claims *claims) noexcept nogil:
    """Fill in the claims that are true of the batch of magic 2 just built."""
    claims.version = VERSION_2
    claims.batch_min_timestamp = b.min_timestamp
    claims.records_number = b.count
    claims.null_keys = strongest_null_keys(b.null_keys, b.count)
    claims.uncompressed_bytes = <int32_t>(<uint32_t>b.sizes + RECORDS)
    claims.max_record_bytes = b.longest
    claims.fields_crc = 0
    claims.schema_ids = b.seen_ids.ids


cdef bytes rebuild(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch, Verdict *v, Claims *claims=NULL, bint ids_wanted=False):
    """Build all accepted records in new bytes, and complete the verdict's statistics. ``claims``,
    if it is not NULL, become those of the new batch, which is of magic 2 then. They state the
    schema ids of its values if ``ids_wanted`` is set, and each value has one.
    """
    cdef Builder builder
    cdef Entry first
    cdef int answer
    # A record of magic 2 is never longer than the message that it was; longer ones make the buffer
    # grow.
    cdef size_t expected = <size_t>v.walked_size if <size_t>v.walked_size > n else n
    memset(&builder, 0, sizeof(Builder))
    builder.magic = d.to_magic
    builder.codec = v.target
    builder.log_append_time = policy.log_append_time
    builder.base_offset = d.first_offset
    builder.now = d.now
    builder.base_timestamp = NO_TIMESTAMP
    builder.max_timestamp = NO_TIMESTAMP
    if ids_wanted:
        builder.seen_ids.wanted = True
        start_ids(&builder.seen_ids)
    try:
        with nogil:
            answer = NO_MEMORY_LEFT
            builder.out.data = copy_lend(scratch, &builder.out.capacity)
            if reserve(&builder.out, expected):
                answer = append_all(&builder, p, n, scratch)
        if answer == NO_MEMORY_LEFT:
            raise MemoryError()
        if answer == UNLIKE_BEFORE:
            raise BatchvalError("the batch does not hold the records that were just found in it; "
                    "has its memory been changed?")
        next_batch(p, n, &first)
        level = None if policy.level == DEFAULT_LEVEL else policy.level
        if claims is not NULL:
            claims_of_built(&builder, claims)
        result = build(&builder, first.p, first.magic, d.leader_epoch, level)
    finally:
        copy_back(scratch, builder.out.data, builder.out.capacity)
        with nogil:
            free(builder.headers.data)
    v.temporary_bytes = <int32_t>(
        <uint32_t>v.temporary_bytes + <uint32_t>builder.sizes + <uint32_t>header_size(d.to_magic,
                v.target))
    return result


cdef inline int32_t header_size(int magic, int codec) noexcept:
    if magic == 2:
        return RECORDS
    if codec == NONE:
        return 0
    return LEGACY_OVERHEAD_V0 if magic == 0 else LEGACY_OVERHEAD_V1
