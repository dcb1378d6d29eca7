"""One batch by Kafka's names: RecordBatch, and its records when somebody asks for them."""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from collections import namedtuple

from batchval.core.arguments cimport NOGIL_UNCOMPRESSED, is_immutable, take_buffer
from batchval.core.bytes cimport be32, be64
from batchval.core.claims cimport ALL_KEYS_NULL, CLAIMED_RECORDS, CLAIMS_MAGIC
from batchval.core.fields cimport Record, java_string, read_field, read_record
from batchval.core.frames cimport (
    DAMAGED, LIMIT_HIT, NO_MEMORY, Stream, copy_unlocked, open_stream, unpack,
)
from batchval.core.header cimport (
    BATCH, BatchHeader, Entry, has_right_crc, next_claimed_batch, read_header, stored_crc,
)
from batchval.core.layout cimport *
from batchval.core.legacy cimport (
    LEGACY_BROKEN, LEGACY_NULL, MESSAGE, NO_MESSAGE, Message, Messages, legacy_key, legacy_value, next_message,
    open_messages,
)
from batchval.core.records cimport BUFFER_PARSER, WALKED, Checks, Facts, clear_facts, structure_alone, walk
from batchval.core.scratch cimport Scratch, begin_work, borrow, end_work, give_back

from batchval.core.reasons import sentence
from batchval.errors import BatchvalError
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES, CompressionType, TimestampType

cdef enum:
    NOGIL_ABOVE = 8192  # bytes
    BREATH = 1024  # objects that are made before others may have the GIL


# Called with the GIL, which is released when the work is long.

cdef int unpack_unlocked(Stream *s, Scratch *scratch, int codec, const uint8_t *p, size_t n,
        uint64_t limit) noexcept nogil:
    cdef int status
    begin_work(scratch, n > NOGIL_ABOVE)
    status = unpack(s, scratch, codec, p, n, limit)
    end_work(scratch)
    return status


cdef int walk_unlocked(Stream *s, const BatchHeader *h, const Checks *c, Facts *f) noexcept nogil:
    cdef int answer
    begin_work(s.scratch, s.delivered > NOGIL_ABOVE)
    answer = walk(s, h, c, f, BUFFER_PARSER)
    end_work(s.scratch)
    return answer


cdef int open_unlocked(Messages *m, const Entry *b, Scratch *scratch, const Checks *c,
        uint64_t limit, Facts *f) noexcept nogil:
    cdef int answer
    begin_work(scratch, b.size > NOGIL_ABOVE)
    answer = open_messages(m, b, scratch, c, limit, f)
    end_work(scratch)
    return answer


class NotABatch(BatchvalError, ValueError):
    """The bytes hold no whole batch, or records that cannot be read."""


DecodedRecord = namedtuple("DecodedRecord", "offset timestamp sequence key value headers attributes size_in_bytes")
DecodedRecord.__doc__ = """One record.

Keys and values are memoryviews of bytes that nobody changes (None for null), valid as long as they
are held; header keys are str. ``size_in_bytes`` counts the length field. ``sequence`` is -1 without
a producer."""


@cython.final
@cython.no_gc  # in a cycle that dies CPython may clear the memoryview before our buffer of it is released
cdef class RecordBatch:
    """The batch at ``position`` of a contiguous buffer, which is held, not copied: while this is
    alive, a bytearray cannot be resized nor a mapping closed. The header's fields are those of the
    time when this was made.

    Raises NotABatch where there is no whole batch of magic 0, 1 or 2, or of magic 3 with claims in its header. The
    checksum is not asked: see ``is_valid``.
    Fields that a message of magic 0 or 1 does not have are None, or what Kafka says of it (-1).
    """
    cdef Py_buffer view
    cdef bint held
    cdef Entry entry
    cdef BatchHeader header
    cdef int records_at
    cdef object owner

    def __cinit__(self, buffer, Py_ssize_t position=0):
        cdef int found
        self.held = False
        take_buffer(buffer, &self.view)
        self.held = True
        self.owner = buffer
        if position < 0 or position > self.view.len:
            raise NotABatch(f"position {position} is outside the buffer")
        found = next_claimed_batch(<const uint8_t *>self.view.buf + position, self.view.len - position, &self.entry)
        if found != BATCH:
            raise NotABatch(f"no whole batch at position {position}")
        if self.entry.magic >= 2:
            self.records_at = CLAIMED_RECORDS if self.entry.magic == CLAIMS_MAGIC else RECORDS
            if self.entry.size < <uint64_t>self.records_at:
                raise NotABatch(f"{self.entry.size} bytes are fewer than a batch's header")
            read_header(self.entry.p, &self.header)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    @property
    def magic(self):
        return self.entry.magic

    @property
    def size_in_bytes(self):
        """Bytes of the whole batch, with its 12 bytes of log overhead."""
        return self.entry.size

    @property
    def batch_length(self):
        return self.entry.size_field

    @property
    def base_offset(self):
        """The first record's offset; of a wrapper of magic 0 or 1 that takes decompressing it."""
        if self.entry.magic >= 2:
            return self.header.base_offset
        for record in self.records():
            return record.offset

    @property
    def last_offset(self):
        if self.entry.magic >= 2:
            return <int64_t>(<uint64_t>self.header.base_offset + <uint64_t><int64_t>self.header.last_offset_delta)
        return be64(self.entry.p)

    @property
    def partition_leader_epoch(self):
        return self.header.partition_leader_epoch if self.entry.magic >= 2 else -1

    @property
    def crc(self):
        return stored_crc(&self.entry)

    @property
    def is_valid(self):
        """Whether the checksum is right."""
        cdef bint right
        if self.entry.size < NOGIL_UNCOMPRESSED:
            return has_right_crc(&self.entry)
        with nogil:
            right = has_right_crc(&self.entry)
        return right

    cdef int flags(self):
        if self.entry.magic >= 2:
            return self.header.attributes & 0xFF
        return self.entry.p[LEGACY_ATTRIBUTES]

    @property
    def attributes(self):
        return self.header.attributes if self.entry.magic >= 2 else self.entry.p[LEGACY_ATTRIBUTES]

    @property
    def last_offset_delta(self):
        return self.header.last_offset_delta if self.entry.magic >= 2 else None

    @property
    def base_timestamp(self):
        return self.header.base_timestamp if self.entry.magic >= 2 else None

    @property
    def max_timestamp(self):
        if self.entry.magic >= 2:
            return self.header.max_timestamp
        return be64(self.entry.p + LEGACY_TIMESTAMP) if self.entry.magic == 1 else -1

    @property
    def producer_id(self):
        return self.header.producer_id if self.entry.magic >= 2 else -1

    @property
    def producer_epoch(self):
        return self.header.producer_epoch if self.entry.magic >= 2 else -1

    @property
    def base_sequence(self):
        return self.header.base_sequence if self.entry.magic >= 2 else -1

    @property
    def last_sequence(self):
        """Kafka's sequences wrap from 2^31 - 1 to 0."""
        if self.entry.magic < 2 or self.header.base_sequence == -1:
            return -1
        return incremented(self.header.base_sequence, self.header.last_offset_delta)

    @property
    def records_count(self):
        """As the header says; None for magic 0 and 1, which do not say."""
        return self.header.records_count if self.entry.magic >= 2 else None

    @property
    def compression_type(self):
        """A CompressionType, or the bare number where Kafka knows no such codec."""
        codec = self.flags() & CODEC_MASK
        return CompressionType(codec) if codec <= ZSTD else codec

    @property
    def timestamp_type(self):
        if self.entry.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType.LOG_APPEND_TIME if self.flags() & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self):
        return self.entry.magic >= 2 and bool(self.flags() & TRANSACTIONAL_BIT)

    @property
    def is_control_batch(self):
        return self.entry.magic >= 2 and bool(self.flags() & CONTROL_BIT)

    @property
    def delete_horizon_ms(self):
        """The time from which the cleaner may drop tombstones or markers of this batch; None where none is set."""
        if self.entry.magic >= 2 and self.flags() & DELETE_HORIZON_BIT:
            return self.header.base_timestamp
        return None

    @property
    def batch_min_timestamp(self):
        """The claim of KAFKA-8364; None without claims."""
        return be64(self.entry.p + RECORDS) if self.entry.magic == CLAIMS_MAGIC else None

    @property
    def records_number(self):
        """The claim of KAFKA-8364; None without claims."""
        return be32(self.entry.p + RECORDS + 8) if self.entry.magic == CLAIMS_MAGIC else None

    @property
    def all_key_is_null(self):
        """The claim of KAFKA-8364; None without claims."""
        return self.entry.p[RECORDS + 12] == ALL_KEYS_NULL if self.entry.magic == CLAIMS_MAGIC else None

    def records(self, *, max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
        """Yields a DecodedRecord for each record, in order.

        Raises NotABatch, before the first record, where records cannot be read or decompress to more than
        ``max_decompressed_bytes``. Keys and values of an uncompressed batch are views: of the
        buffer itself where that is ``bytes`` or a memoryview of them, else of a copy of the batch,
        which is made by this call.
        """
        cdef Entry entry = self.entry
        cdef bytes own = self.private_copy()
        if self.entry.magic >= 2:
            return self.default_records(max_decompressed_bytes, own)
        if own is not None:
            entry.p = <const uint8_t *>PyBytes_AS_STRING(own)
        return iter(legacy_records(&entry, max_decompressed_bytes))

    cdef bytes private_copy(self):
        """The batch's bytes; None where nobody can change the buffer, and they may be read where
        they are.
        """
        if is_immutable(&self.view):
            return None
        return PyBytes_FromStringAndSize(<const char *>self.entry.p, self.entry.size)

    def default_records(self, uint64_t limit, bytes own=None):
        """Of a batch of magic 2 or 3. ``own``: its private copy, if it has been made already."""
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef Record r
        cdef int32_t _i, sequence
        cdef const uint8_t *base
        if own is None:
            own = self.private_copy()
        elif <uint64_t>PyBytes_GET_SIZE(own) != self.entry.size:
            raise ValueError(f"{len(own)} bytes are not a copy of a batch of {self.entry.size}")
        p = self.entry.p if own is None else <const uint8_t *>PyBytes_AS_STRING(own)
        p += self.records_at
        cdef bytes content = self.unpacked(p, limit)
        if content is not None:
            own = content
            p = <const uint8_t *>PyBytes_AS_STRING(content)
            end = p + PyBytes_GET_SIZE(content)
        else:
            end = p + self.entry.size - self.records_at
        if own is not None:
            view = memoryview(own)
            base = <const uint8_t *>PyBytes_AS_STRING(own)
        else:
            view = memoryview(self.owner).cast("B")
            base = <const uint8_t *>self.view.buf
        for _i in range(self.header.records_count):
            p = read_record(p, end, &self.header, &r)
            if p is NULL:
                raise NotABatch(f"record {_i} is not what it was when the batch was walked")
            sequence = -1
            if self.header.base_sequence >= 0:
                sequence = incremented(self.header.base_sequence, <int32_t>(r.offset - self.header.base_offset))
            key = view[r.key - base:r.key - base + r.key_length] if r.key_length >= 0 else None
            value = view[r.value - base:r.value - base + r.value_length] if r.value_length >= 0 else None
            headers = headers_of(&r) if r.headers_count else ()
            yield DecodedRecord(r.offset, r.timestamp, sequence, key, value, headers, r.attributes, r.size)

    cdef bytes unpacked(self, const uint8_t *p, uint64_t limit):
        """The records at ``p``, decompressed; None where they are not compressed. Either way they
        have been walked.
        """
        cdef Scratch *scratch = borrow()
        cdef uint64_t size = self.entry.size - self.records_at
        cdef Stream s
        cdef Checks c
        cdef Facts f
        cdef int codec = self.flags() & CODEC_MASK, answer
        cdef bytes content = None
        try:
            if codec > ZSTD:
                raise NotABatch(f"compression codec {codec}")
            if codec != NONE and self.header.records_count != 0:
                unpack_unlocked(&s, scratch, codec, p, size, limit)
                if s.status == LIMIT_HIT:
                    raise NotABatch(f"more than {limit} bytes decompressed")
                if s.status == DAMAGED:
                    raise NotABatch(sentence(s.reason, -1, s.detail, 0))
                if s.status == NO_MEMORY:
                    raise MemoryError()
                content = PyBytes_FromStringAndSize(NULL, s.delivered)
                copy_unlocked(<uint8_t *>PyBytes_AS_STRING(content), scratch.arena, s.delivered)
                open_stream(&s, scratch, NONE, 2, <const uint8_t *>PyBytes_AS_STRING(content),
                        PyBytes_GET_SIZE(content), limit, False)
            else:
                open_stream(&s, scratch, NONE, 2, p, size, limit, False)
            structure_alone(&c)
            c.extras = False
            clear_facts(&f)
            if self.header.records_count:
                answer = walk_unlocked(&s, &self.header, &c, &f)
                if answer != WALKED:
                    raise NotABatch(sentence(f.reason, f.record, f.a, f.b))
            return content
        finally:
            give_back(scratch)

    def __repr__(self):
        return (f"<RecordBatch magic={self.magic} last_offset={self.last_offset} records_count={self.records_count} "
                f"{self.compression_type!s} size={self.size_in_bytes}>")


cdef int32_t incremented(int64_t sequence, int64_t by) noexcept:
    """DefaultRecordBatch.incrementSequence, whose ints wrap."""
    if sequence > <int32_t>(0x7FFFFFFF - by):
        return <int32_t>(by - (0x7FFFFFFF - sequence) - 1)
    return <int32_t>(sequence + by)


cdef inline object copy_of(const uint8_t *p, Py_ssize_t size):
    return memoryview(PyBytes_FromStringAndSize(<const char *>p, size))


cdef list legacy_records(const Entry *entry, uint64_t limit):
    """The messages of a batch in memory that nobody else writes to."""
    cdef Scratch *scratch = borrow()
    cdef Messages m
    cdef Message message
    cdef Checks c
    cdef Facts f
    cdef int answer
    cdef int32_t key_length = 0, value_length = 0
    cdef int64_t key, value
    records = []
    try:
        structure_alone(&c)
        clear_facts(&f)
        answer = open_unlocked(&m, entry, scratch, &c, limit, &f)
        while answer == WALKED:
            if len(records) % BREATH == BREATH - 1:
                with nogil:
                    pass
            answer = next_message(&m, &message, <int32_t>len(records), &f)
            if answer == NO_MESSAGE:
                return records
            if answer != MESSAGE:
                break
            key = legacy_key(message.p, message.size, &key_length)
            value = legacy_value(message.p, message.size, &value_length)
            if key == LEGACY_BROKEN or value == LEGACY_BROKEN:
                raise NotABatch(f"message {len(records)}: its key or value runs past its end")
            records.append(DecodedRecord(
                message.offset, message.timestamp, -1,
                None if key == LEGACY_NULL else copy_of(message.p + key, key_length),
                None if value == LEGACY_NULL else copy_of(message.p + value, value_length),
                (), message.p[5], message.size + LOG_OVERHEAD))
            answer = WALKED
        raise NotABatch(sentence(f.reason, f.record, f.a, f.b))
    finally:
        give_back(scratch)


cdef tuple headers_of(const Record *r):
    cdef const uint8_t *p = r.headers
    cdef const uint8_t *end = p + r.headers_size
    cdef int32_t _i, size = 0
    headers = []
    for _i in range(r.headers_count):  # read_record has found them whole
        if _i % BREATH == BREATH - 1:
            with nogil:
                pass
        p = read_field(p, end, &size)
        key = java_string(p, size).decode("utf-8")
        p = read_field(p + size, end, &size)
        headers.append((key, None if size < 0 else PyBytes_FromStringAndSize(<const char *>p, size)))
        p += size if size > 0 else 0
    return tuple(headers)


def batches(buffer):
    """Yields a RecordBatch for each whole batch of a buffer, from its start to the first bytes that
    are none.

    Each is looked for when it is asked for, and holds the buffer.
    """
    cdef Py_ssize_t position = 0
    size = memoryview(buffer).nbytes
    while position < size:
        try:
            batch = RecordBatch(buffer, position)
        except NotABatch:
            return
        yield batch
        position += batch.size_in_bytes
