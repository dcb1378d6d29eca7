"""New bytes for a batch that was accepted: written over the old ones, or built anew.

    assign_in_place   base offset, leader epoch, timestamp type, max timestamp: what a broker writes into a batch
    rebuild           MemoryRecordsBuilder: other magic, other codec, or inner offsets that have to be counted anew

Both read the bytes that judge_messages read, in memory that nobody else writes to: it has found that neither can fail,
and that every record parses and can be written.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from batchval.compression.compressors import compress

from batchval.core.bytes cimport be32, be64, put_be16, put_be32, put_be64
from batchval.core.chunked cimport as_read
from batchval.core.crc32c cimport crc32_of, crc32c_moved, crc32c_of
from batchval.core.fields cimport Record, java_string, read_field, read_record
from batchval.core.frames cimport NO_MEMORY, UNLIMITED, Stream, unpack
from batchval.core.header cimport BATCH, BatchHeader, Entry, next_batch, read_header
from batchval.core.verdict cimport Door, Policy, Verdict
from batchval.core.layout cimport *
from batchval.core.legacy cimport (
    LEGACY_BROKEN, MESSAGE, Message, Messages, legacy_key, legacy_value, next_message, open_messages,
)
from batchval.core.records cimport STREAM_PARSER, WALKED, Checks, Facts, clear_facts, structure_alone
from batchval.core.scratch cimport Scratch
from batchval.core.writing cimport (
    put_nullable, put_record, put_varint, size_of_body, size_of_nullable, size_of_varint,
)

from batchval.errors import BatchvalError

cdef enum:
    NO_TIMESTAMP = -1
    NO_PRODUCER_ID = -1
    PATCH_FROM = 2048  # bytes behind the header from which patching the crc beats computing it


# ---- in place ------------------------------------------------------------------------------------------------------

cdef bint set_max_timestamp(uint8_t *p, uint64_t size, bint log_append_time, int64_t timestamp,
        bint crc_is_right) noexcept:
    """DefaultRecordBatch.setMaxTimestamp. Writing the attributes loses their unused bits, as it does in Kafka.

    False: there was nothing to write."""
    cdef uint8_t flags = p[ATTRIBUTES + 1]
    cdef uint32_t before, crc
    cdef uint64_t tail = size - RECORDS
    if (flags & LOG_APPEND_TIME_BIT != 0) == log_append_time and be64(p + MAX_TIMESTAMP) == timestamp:
        return False
    before = crc32c_of(0, p + ATTRIBUTES, RECORDS - ATTRIBUTES)
    flags &= CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
    put_be16(p + ATTRIBUTES, flags | (LOG_APPEND_TIME_BIT if log_append_time else 0))
    put_be64(p + MAX_TIMESTAMP, timestamp)
    if crc_is_right and tail >= PATCH_FROM:
        crc = <uint32_t>be32(p + CRC) ^ crc32c_moved(before ^ crc32c_of(0, p + ATTRIBUTES, RECORDS - ATTRIBUTES), tail)
    else:
        crc = crc32c_of(0, p + ATTRIBUTES, size - ATTRIBUTES)
    put_be32(p + CRC, <int32_t>crc)
    return True


cdef bint set_legacy_timestamp(uint8_t *p, uint64_t size, bint log_append_time, int64_t timestamp) noexcept:
    """ByteBufferLegacyRecordBatch.setMaxTimestamp, for magic 1. False: there was nothing to write."""
    cdef uint8_t attributes = p[LEGACY_ATTRIBUTES]
    if (attributes & LOG_APPEND_TIME_BIT != 0) == log_append_time and be64(p + LEGACY_TIMESTAMP) == timestamp:
        return False
    p[LEGACY_ATTRIBUTES] = (attributes & CODEC_MASK) | (LOG_APPEND_TIME_BIT if log_append_time else 0)
    put_be64(p + LEGACY_TIMESTAMP, timestamp)
    put_be32(p + LEGACY_CRC, <int32_t>crc32_of(0, p + LEGACY_MAGIC, size - LEGACY_MAGIC))
    return True


cdef inline void put_field(uint8_t *to, const uint8_t *p, size_t at, size_t size) noexcept:
    memcpy(to + at, p + at, size)


cdef void put_assigned(uint8_t *to, const uint8_t *p, const Entry *b, int to_magic, bint stamped) noexcept:
    """What was assigned in the batch at ``p``, into the caller's own bytes of it. Of those nothing is read."""
    put_field(to, p, BASE_OFFSET, 8)
    if b.magic == 2 and to_magic == 2:
        put_field(to, p, PARTITION_LEADER_EPOCH, 4)
    if not stamped:
        return
    if b.magic == 2:
        put_field(to, p, CRC, 4)
        put_field(to, p, ATTRIBUTES, 2)
        put_field(to, p, MAX_TIMESTAMP, 8)
    else:
        put_field(to, p, LEGACY_CRC, 4)
        put_field(to, p, LEGACY_ATTRIBUTES, 1)
        put_field(to, p, LEGACY_TIMESTAMP, 8)


cdef void assign_in_place(uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch,
        const Verdict *v, bint crc_is_right, uint8_t *to) noexcept:
    """Offsets from d.first_offset on, into the private bytes p[0:n]; and the same fields into the caller's, if ``to``
    is not NULL. crc_is_right: the checksum has been verified, so it may be patched."""
    cdef Entry b
    cdef size_t at = 0
    cdef int64_t offset = d.first_offset, timestamp
    cdef bint by_message, stamped
    while next_batch(p + at, n - at, &b) == BATCH:
        stamped = False
        if b.magic == 2:
            offset += v.records_count
            put_be64(p + at, offset - 1 - be32(p + at + LAST_OFFSET_DELTA))
            if d.to_magic == 2:
                put_be32(p + at + PARTITION_LEADER_EPOCH, d.leader_epoch)
            if d.to_magic > 0:
                stamped = set_max_timestamp(p + at, b.size, policy.log_append_time, v.max_timestamp, crc_is_right)
            if to is not NULL:
                put_assigned(to + at, p + at, &b, d.to_magic, stamped)
            return
        by_message = v.source == NONE and v.target == NONE  # each message or wrapper of the set for itself
        if by_message:
            offset += count_and_max(&b, scratch, &timestamp)
        else:
            offset += v.records_count
            timestamp = v.max_timestamp
        put_be64(p + at, offset - 1)
        if b.magic == 1 and d.to_magic > 0:
            stamped = set_legacy_timestamp(
                p + at, b.size, policy.log_append_time, d.now if policy.log_append_time else timestamp)
        if to is not NULL:
            put_assigned(to + at, p + at, &b, d.to_magic, stamped)
        at += b.size


cdef int64_t count_and_max(const Entry *b, Scratch *scratch, int64_t *timestamp) noexcept:
    cdef Messages m
    cdef Message message
    cdef Checks c
    cdef Facts f
    cdef int64_t count = 0
    structure_alone(&c)
    timestamp[0] = NO_TIMESTAMP
    clear_facts(&f)
    if open_messages(&m, b, scratch, &c, <uint64_t>UNLIMITED, &f) != WALKED:
        return 0
    while next_message(&m, &message, 0, &f) == MESSAGE:
        count += 1
        if message.timestamp > timestamp[0]:
            timestamp[0] = message.timestamp
    return count


# ---- writing -------------------------------------------------------------------------------------------------------

cdef class Out:
    """Bytes that grow."""
    cdef bytearray data
    cdef size_t size

    def __cinit__(self):
        self.data = bytearray(4096)
        self.size = 0

    cdef uint8_t *more(self, size_t n) except NULL:
        """Room for n bytes behind what there is, which the caller then fills."""
        cdef size_t wanted = self.size + n
        if wanted > <size_t>len(self.data):
            PyByteArray_Resize(self.data, max(wanted, 2 * <size_t>len(self.data)))
        self.size = wanted
        return <uint8_t *>PyByteArray_AS_STRING(self.data) + wanted - n

    cdef int put(self, const uint8_t *p, size_t n) except -1:
        if n:
            memcpy(self.more(n), p, n)
        return 0

    cdef int varint(self, int64_t value) except -1:
        put_varint(self.more(size_of_varint(value)), value)
        return 0

    cdef int nullable(self, const uint8_t *p, int32_t length) except -1:
        """Length as a varint, -1 for null; then the bytes."""
        put_nullable(self.more(size_of_nullable(length)), p, length)
        return 0

    cdef int legacy_nullable(self, const uint8_t *p, int32_t length) except -1:
        put_be32(self.more(4), length if length >= 0 else -1)
        return self.put(p, length if length > 0 else 0)

    cdef bytes value(self):
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self.data), self.size)


cdef bytes canonical_headers(const Record *r):
    """The headers as Kafka writes them: shortest varints, -1 for null, keys re-encoded."""
    cdef Out out = Out()
    cdef const uint8_t *p = r.headers
    cdef const uint8_t *end = p + r.headers_size
    cdef int32_t _i, size = 0
    for _i in range(r.headers_count):  # read_record has found them whole
        p = read_field(p, end, &size)
        key = java_string(p, size)
        p = read_field(p + size, end, &size)
        out.varint(<int32_t>PyBytes_GET_SIZE(key))
        out.put(<const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        out.nullable(p, size)
        p += size if size > 0 else 0
    return out.value()


# ---- the builder ---------------------------------------------------------------------------------------------------

cdef class Builder:
    """MemoryRecordsBuilder for one batch, or for a set of uncompressed messages."""
    cdef Out out  # records, without batch header or wrapper
    cdef int magic, codec
    cdef object level  # None: the codec's default
    cdef bint log_append_time
    cdef int64_t base_offset, now, base_timestamp, max_timestamp
    cdef int32_t count, sizes

    cdef int append(self, const Record *r) except -1:
        cdef size_t before = self.out.size
        cdef int64_t timestamp = r.timestamp
        if self.count == 0:
            self.base_timestamp = timestamp
        if self.magic == 2:
            self.append_record(r)
        else:
            if self.log_append_time:
                timestamp = self.now
            self.append_message(r, timestamp)
        if self.magic > 0 and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        self.sizes = <int32_t>(<uint32_t>self.sizes + <uint32_t>(self.out.size - before))
        return 0

    cdef int append_record(self, const Record *r) except -1:
        cdef int64_t delta = <int64_t>(<uint64_t>r.timestamp - <uint64_t>self.base_timestamp)
        cdef Record canonical = r[0]
        cdef size_t body
        headers = canonical_headers(r) if r.headers_count else b""
        canonical.headers = <const uint8_t *>PyBytes_AS_STRING(headers)
        canonical.headers_size = <int32_t>PyBytes_GET_SIZE(headers)
        body = size_of_body(&canonical, delta, self.count)
        put_record(self.out.more(size_of_varint(<int32_t>body) + body), <int32_t>body, &canonical, delta, self.count)
        return 0

    cdef int append_message(self, const Record *r, int64_t timestamp) except -1:
        cdef bint relative = self.magic > 0 and self.codec != NONE
        start_message(self.out, self.count + (0 if relative else self.base_offset), self.magic,
                LOG_APPEND_TIME_BIT if self.magic > 0 and self.log_append_time else 0, timestamp)
        cdef size_t start = self.out.size - (18 if self.magic == 0 else 26)
        self.out.legacy_nullable(r.key, r.key_length)
        self.out.legacy_nullable(r.value, r.value_length)
        end_message(self.out, start)
        return 0

    cdef bytes build(self, const uint8_t *first, int first_magic, int32_t leader_epoch):
        """The finished bytes. Producer state is the first batch's."""
        if self.count == 0:
            return b""
        if self.magic < 2:
            return self.out.value() if self.codec == NONE else self.build_wrapper()
        payload = compress(self.codec, self.out.value(), 2, self.level)
        cdef bytearray batch = bytearray(RECORDS) + payload
        cdef uint8_t *p = <uint8_t *>PyByteArray_AS_STRING(batch)
        cdef size_t size = len(batch)
        cdef int16_t attributes = self.codec | (LOG_APPEND_TIME_BIT if self.log_append_time else 0)
        if first_magic == 2:
            attributes |= first[ATTRIBUTES + 1] & TRANSACTIONAL_BIT
            memcpy(p + PRODUCER_ID, first + PRODUCER_ID, RECORDS_COUNT - PRODUCER_ID)
        else:
            memset_ones(p + PRODUCER_ID, RECORDS_COUNT - PRODUCER_ID)
        put_be64(p + BASE_OFFSET, self.base_offset)
        put_be32(p + BATCH_LENGTH, <int32_t>(size - LOG_OVERHEAD))
        put_be32(p + PARTITION_LEADER_EPOCH, leader_epoch)
        p[MAGIC] = 2
        put_be16(p + ATTRIBUTES, attributes)
        put_be32(p + LAST_OFFSET_DELTA, self.count - 1)
        put_be64(p + BASE_TIMESTAMP, self.base_timestamp)
        put_be64(p + MAX_TIMESTAMP, self.now if self.log_append_time else self.max_timestamp)
        put_be32(p + RECORDS_COUNT, self.count)
        put_be32(p + CRC, <int32_t>crc32c_of(0, p + ATTRIBUTES, size - ATTRIBUTES))
        return bytes(batch)

    cdef bytes build_wrapper(self):
        cdef Out wrapper = Out()
        payload = compress(self.codec, self.out.value(), self.magic, self.level)
        start_message(wrapper, self.base_offset + self.count - 1, self.magic,
                      self.codec | (LOG_APPEND_TIME_BIT if self.magic > 0 and self.log_append_time else 0),
                      self.now if self.log_append_time else self.max_timestamp)
        wrapper.legacy_nullable(NULL, -1)
        wrapper.legacy_nullable(<const uint8_t *>PyBytes_AS_STRING(payload), <int32_t>PyBytes_GET_SIZE(payload))
        end_message(wrapper, 0)
        return wrapper.value()


cdef inline void memset_ones(uint8_t *p, size_t n) noexcept:
    cdef size_t i
    for i in range(n):
        p[i] = 0xFF


cdef int start_message(Out out, int64_t offset, int magic, int attributes, int64_t timestamp) except -1:
    """Offset, size and crc (both still 0), magic, attributes, timestamp."""
    cdef uint8_t *p = out.more(18 if magic == 0 else 26)
    put_be64(p, offset)
    put_be64(p + 8, 0)
    p[LEGACY_MAGIC] = magic
    p[LEGACY_ATTRIBUTES] = attributes
    if magic > 0:
        put_be64(p + LEGACY_TIMESTAMP, timestamp)
    return 0


cdef void end_message(Out out, size_t start) noexcept:
    cdef uint8_t *p = <uint8_t *>PyByteArray_AS_STRING(out.data) + start
    cdef size_t size = out.size - start
    put_be32(p + 8, <int32_t>(size - LOG_OVERHEAD))
    put_be32(p + LEGACY_CRC, <int32_t>crc32_of(0, p + LEGACY_MAGIC, size - LEGACY_MAGIC))


cdef int append_batch(Builder builder, const Entry *b, Scratch *scratch) except -1:
    cdef BatchHeader h
    cdef Record r
    cdef Stream s
    cdef Messages m
    cdef Message message
    cdef Checks c
    cdef Facts f
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef uint8_t *read = NULL
    cdef int32_t _i
    cdef int codec
    cdef int64_t key, value
    if b.magic == 2:
        read_header(b.p, &h)
        p = b.p + RECORDS
        end = b.p + b.size
        codec = h.attributes & CODEC_MASK
        if codec != NONE:
            if unpack(&s, scratch, codec, p, b.size - RECORDS, <uint64_t>UNLIMITED) == NO_MEMORY:
                raise MemoryError()
            p = scratch.arena
            end = p + s.delivered
            if s.halted:  # the records are those that Kafka's parser got
                read = as_read(&s, scratch, codec, 2, b.p + RECORDS, b.size - RECORDS, <uint64_t>UNLIMITED,
                        STREAM_PARSER, h.records_count, 0x7FFFFFFF)
                if read is NULL:
                    raise MemoryError()
                p = read
                end = read + s.delivered
        try:
            for _i in range(h.records_count):
                p = read_record(p, end, &h, &r)
                if p is NULL:
                    raise unlike_before()
                builder.append(&r)
        finally:
            free(read)
        return 0
    structure_alone(&c)
    clear_facts(&f)
    if open_messages(&m, b, scratch, &c, <uint64_t>UNLIMITED, &f) != WALKED:
        raise MemoryError()
    r.headers_count = 0
    while next_message(&m, &message, 0, &f) == MESSAGE:
        key = legacy_key(message.p, message.size, &r.key_length)
        value = legacy_value(message.p, message.size, &r.value_length)
        if key == LEGACY_BROKEN or value == LEGACY_BROKEN:
            raise unlike_before()
        r.timestamp = message.timestamp
        r.key = message.p + key
        r.value = message.p + value
        builder.append(&r)
    return 0


cdef object unlike_before():
    return BatchvalError("the batch does not hold the records that were just found in it; has its memory been changed?")


cdef bytes rebuild(const uint8_t *p, size_t n, const Door *d, const Policy *policy, Scratch *scratch, Verdict *v):
    """All accepted records in new bytes; completes the verdict's statistics and asks rule 40."""
    cdef Builder builder = Builder()
    cdef Entry b, first
    cdef size_t at = 0
    builder.out = Out()
    builder.magic = d.to_magic
    builder.codec = v.target
    builder.level = None if policy.level == DEFAULT_LEVEL else policy.level
    builder.log_append_time = policy.log_append_time
    builder.base_offset = d.first_offset
    builder.now = d.now
    builder.base_timestamp = NO_TIMESTAMP
    builder.max_timestamp = NO_TIMESTAMP
    next_batch(p, n, &first)
    while next_batch(p + at, n - at, &b) == BATCH:
        append_batch(builder, &b, scratch)
        at += b.size
    result = builder.build(first.p, first.magic, d.leader_epoch)
    v.temporary_bytes = <int32_t>(
        <uint32_t>v.temporary_bytes + <uint32_t>builder.sizes + <uint32_t>header_size(d.to_magic, v.target))
    return result


cdef inline int32_t header_size(int magic, int codec) noexcept:
    if magic == 2:
        return RECORDS
    if codec == NONE:
        return 0
    return LEGACY_OVERHEAD_V0 if magic == 0 else LEGACY_OVERHEAD_V1
