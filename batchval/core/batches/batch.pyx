"""One batch by Kafka's names: a RecordBatch, and its records, which are decoded on demand."""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t

from batchval.core.format cimport reasons
from batchval.core.stages.arguments cimport (
    MAX_DECOMPRESSED_LIMIT, NOGIL_COMPRESSED, NOGIL_UNCOMPRESSED, is_immutable, position_in,
    take_buffer,
    whole_number,
)
from batchval.core.format.bytes cimport be32, be64
from batchval.core.stages.claims_block cimport ALL_KEYS_NULL, CLAIMED_RECORDS, CLAIMS_MAGIC
from batchval.core.batches.columns cimport tail_of
from batchval.core.records.fields cimport Record, headers_of, read_record
from batchval.core.codecs.codec_streams cimport (
    DAMAGED, LIMIT_HIT, NO_MEMORY, Stream, copy_unlocked, open_stream, unpack,
)
from batchval.core.format.header cimport (
    BATCH, BatchHeader, Entry, has_right_crc, next_claimed_batch, read_header, stored_crc,
)
from batchval.core.format.layout cimport *
from batchval.core.records.legacy cimport (
    LEGACY_BROKEN, LEGACY_NULL, LEGACY_RECORD, NO_LEGACY_RECORD, LegacyRecord, LegacyRecords,
    legacy_key, legacy_value, next_legacy_record,
    open_legacy_records,
)
from batchval.core.records.records cimport (
    BUFFER_PARSER, WALKED, Checks, Facts, clear_facts, structure_alone, walk,
)
from batchval.core.codecs.scratch cimport (
    GIL_YIELD_INTERVAL, Scratch, begin_work, borrow, end_work, give_back,
)

from batchval.core.format.reasons import sentence
from batchval.errors import NotABatch
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES, CompressionType, TimestampType


# Called with the GIL, which is released when the work is long.

cdef int unpack_unlocked(Stream *s, Scratch *scratch, int codec, const uint8_t *p, size_t n,
        uint64_t limit) noexcept nogil:
    cdef int status
    begin_work(scratch, n > NOGIL_COMPRESSED)
    status = unpack(s, scratch, codec, p, n, limit)
    end_work(scratch)
    return status


cdef int walk_unlocked(Stream *s, const BatchHeader *h, const Checks *c, Facts *f) noexcept nogil:
    cdef int answer
    begin_work(s.scratch, s.delivered > NOGIL_COMPRESSED)
    answer = walk(s, h, c, f, BUFFER_PARSER)
    end_work(s.scratch)
    return answer


cdef int open_unlocked(LegacyRecords *m, const Entry *b, Scratch *scratch, const Checks *c,
        uint64_t limit, Facts *f) noexcept nogil:
    cdef int answer
    begin_work(scratch, b.size > NOGIL_COMPRESSED)
    answer = open_legacy_records(m, b, scratch, c, limit, f)
    end_work(scratch)
    return answer


cdef object NOT_MADE = object()  # a key, value or header tuple that was not requested yet


@cython.final
@cython.no_gc  # it refers to bytes and to views of bytes alone: no cycle can be made of it
@cython.freelist(64)
cdef class DecodedRecord:
    """One record. Its key, value and headers become Python objects when they are first asked for.

    ``key`` and ``value`` are bytes, or None for null; ``record_columns`` gives views. ``headers``
    is a tuple of (str, bytes or None). ``sequence`` is -1 without a producer. ``size_in_bytes``
    counts the length field. Unpacks into these eight values in the order of
    ``DecodedRecord.__match_args__``.
    """
    cdef Record record
    cdef readonly int32_t sequence
    cdef object owner  # of the memory that `record` points into
    cdef object made_key
    cdef object made_value
    cdef object made_headers

    __match_args__ = (
        "offset", "timestamp", "sequence", "key", "value", "headers", "attributes", "size_in_bytes",
    )

    def __init__(self, int64_t offset, int64_t timestamp, int32_t sequence, key, value,
            tuple headers not None, int32_t attributes, int32_t size_in_bytes):
        self.record.offset = offset
        self.record.timestamp = timestamp
        self.sequence = sequence
        self.made_key = None if key is None else bytes(key)
        self.made_value = None if value is None else bytes(value)
        self.made_headers = headers
        self.record.attributes = attributes
        self.record.size = size_in_bytes

    @property
    def offset(self):
        return self.record.offset

    @property
    def timestamp(self):
        return self.record.timestamp

    @property
    def attributes(self):
        return self.record.attributes

    @property
    def size_in_bytes(self):
        return self.record.size

    @property
    def key(self):
        if self.made_key is NOT_MADE:
            self.made_key = field_of(self.record.key, self.record.key_length)
        return self.made_key

    @property
    def value(self):
        if self.made_value is NOT_MADE:
            self.made_value = field_of(self.record.value, self.record.value_length)
        return self.made_value

    @property
    def headers(self):
        if self.made_headers is NOT_MADE:
            self.made_headers = headers_of(&self.record)
        return self.made_headers

    cdef tuple values(self):
        return (self.record.offset, self.record.timestamp, self.sequence, self.key, self.value,
                self.headers, self.record.attributes, self.record.size)

    def __iter__(self):
        return iter(self.values())

    def __eq__(self, other):
        if not isinstance(other, DecodedRecord):
            return NotImplemented
        return self.values() == (<DecodedRecord>other).values()

    def __hash__(self):
        return hash(self.values())

    def __reduce__(self):
        return DecodedRecord, self.values()

    def __repr__(self):
        return (f"DecodedRecord(offset={self.record.offset}, timestamp={self.record.timestamp}, "
                f"key={self.key!r}, value={self.value!r}, headers={self.headers!r})")


@cython.final
@cython.no_gc  # as DecodedRecord
cdef class Records:
    """The records of one batch of magic 2 or 3, decoded one at a time."""
    cdef object owner  # of the memory that `p` points into
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef BatchHeader header
    cdef int32_t taken

    def __iter__(self):
        return self

    def __length_hint__(self):
        return max(self.header.records_count - self.taken, 0)

    def __next__(self):
        cdef DecodedRecord made
        if self.taken >= self.header.records_count:
            raise StopIteration
        if self.taken % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
            with nogil:
                pass
        made = DecodedRecord.__new__(DecodedRecord)
        self.p = read_record(self.p, self.end, &self.header, &made.record)
        if self.p is NULL:
            raise NotABatch(f"record {self.taken} is not what it was when the batch was walked")
        self.taken += 1
        made.sequence = -1
        if self.header.base_sequence >= 0:
            made.sequence = incremented(self.header.base_sequence,
                    <int32_t>(made.record.offset - self.header.base_offset))
        made.owner = self.owner
        made.made_key = NOT_MADE
        made.made_value = NOT_MADE
        made.made_headers = NOT_MADE if made.record.headers_count else ()
        return made


@cython.final
# In a cycle that dies CPython may clear the memoryview before our buffer of it is released.
@cython.no_gc
cdef class RecordBatch:
    """The batch at ``position`` of a contiguous buffer, which is held, not copied: while this is
    alive, a bytearray cannot be resized nor a mapping closed. The header's fields are those of the
    time when this was made.

    Raises NotABatch without a whole batch of magic 0, 1 or 2, or of magic 3 with claims in
    its header. The checksum is not verified: see ``is_valid``. Fields that a message of magic 0 or
    1 does not have are None, or Kafka's default for it (-1).
    """
    cdef Py_buffer view
    cdef bint held
    cdef Entry entry
    cdef BatchHeader header
    cdef int records_at
    cdef object owner

    def __cinit__(self, buffer, position=0):
        cdef Py_ssize_t start
        cdef int found
        self.held = False
        take_buffer(buffer, &self.view)
        self.held = True
        self.owner = buffer
        start = whole_number("position", position, INT64_MIN, INT64_MAX)
        if start < 0 or start > self.view.len:
            raise NotABatch(
                f"position {position} is outside the buffer of {self.view.len} bytes")
        found = next_claimed_batch(
                <const uint8_t *>self.view.buf + start, self.view.len - start, &self.entry)
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
        """Return the bytes of the whole batch, with its 12 bytes of log overhead."""
        return self.entry.size

    @property
    def batch_length(self):
        return self.entry.size_field

    @property
    def base_offset(self):
        """Return the first record's offset. A wrapper of magic 0 or 1 is decompressed for it."""
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
        """Return whether the checksum is right."""
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
        """Return the last sequence. Kafka's sequences wrap from 2^31 - 1 to 0."""
        if self.entry.magic < 2 or self.header.base_sequence == -1:
            return -1
        return incremented(self.header.base_sequence, self.header.last_offset_delta)

    @property
    def records_count(self):
        """Return the header's number of records; None for magic 0 and 1, whose headers have none.
        """
        return self.header.records_count if self.entry.magic >= 2 else None

    @property
    def compression_type(self):
        """Return a CompressionType, or the bare number where Kafka has no such codec."""
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
        """Return the time from which the cleaner may drop tombstones or markers of this batch; None
        where none is set.
        """
        if self.entry.magic >= 2 and self.flags() & DELETE_HORIZON_BIT:
            return self.header.base_timestamp
        return None

    @property
    def batch_min_timestamp(self):
        """Return the claim of KAFKA-8364; None without claims."""
        return be64(self.entry.p + RECORDS) if self.entry.magic == CLAIMS_MAGIC else None

    @property
    def records_number(self):
        """Return the claim of KAFKA-8364; None without claims."""
        return be32(self.entry.p + RECORDS + 8) if self.entry.magic == CLAIMS_MAGIC else None

    @property
    def all_key_is_null(self):
        """Return the claim of KAFKA-8364; None without claims."""
        return self.entry.p[RECORDS + 12] == ALL_KEYS_NULL if self.entry.magic == CLAIMS_MAGIC else None

    def records(self, *, max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
        """Return an iterator over the batch's records, each a DecodedRecord, in order.

        Raises NotABatch, before the first record, where records cannot be read or decompress to
        more than ``max_decompressed_bytes``. A buffer that can change is copied by this call: what
        is written into it later changes no record.
        """
        cdef Entry entry = self.entry
        cdef uint64_t limit = whole_number(
                "max_decompressed_bytes", max_decompressed_bytes, 0, MAX_DECOMPRESSED_LIMIT,
                "bytes")
        cdef bytes own = self.private_copy()
        if self.entry.magic >= 2:
            return self.default_records(limit, own)
        if own is not None:
            entry.p = <const uint8_t *>PyBytes_AS_STRING(own)
        return iter(legacy_records(&entry, limit))

    def __iter__(self):
        """Return ``records()``."""
        return self.records()

    def __len__(self):
        """Return the number of records: the header's of magic 2 and 3, else messages are counted.

        Raises NotABatch for a negative number.
        """
        if self.entry.magic < 2:
            return len(list(self.records()))
        if self.header.records_count < 0:
            raise NotABatch(f"records_count is {self.header.records_count}, but cannot be negative")
        return self.header.records_count

    def __bool__(self):
        return True

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<const char *>self.entry.p, self.entry.size)

    def __eq__(self, other):
        """Return whether the bytes of two batches are equal."""
        cdef RecordBatch batch
        if not isinstance(other, RecordBatch):
            return NotImplemented
        batch = other
        return bytes(self) == bytes(batch) if self.entry.size == batch.entry.size else False

    __hash__ = None  # the buffer may change

    def __reduce__(self):
        """Pickle and copy the batch's bytes, without what else is in the buffer."""
        return RecordBatch, (bytes(self),)

    cdef bytes private_copy(self):
        """Return a copy of the batch's bytes; None where nobody can change the buffer, so that they
        can be read in place.
        """
        if is_immutable(&self.view):
            return None
        return PyBytes_FromStringAndSize(<const char *>self.entry.p, self.entry.size)

    cdef Records default_records(self, uint64_t limit, bytes own):
        """Return the records of a batch of magic 2 or 3. ``own``: its private copy, or None."""
        cdef Records found = Records.__new__(Records)
        cdef const uint8_t *p = self.entry.p
        if own is not None:
            p = <const uint8_t *>PyBytes_AS_STRING(own)
        cdef bytes content = self.unpacked(p + self.records_at, limit)
        found.header = self.header
        if content is not None:
            own = content
            found.p = <const uint8_t *>PyBytes_AS_STRING(content)
            found.end = found.p + PyBytes_GET_SIZE(content)
        else:
            found.p = p + self.records_at
            found.end = p + self.entry.size
        # Without a copy the buffer is bytes or a memoryview of bytes, which lock nothing.
        found.owner = self if own is None else own
        return found

    cdef bytes unpacked(self, const uint8_t *p, uint64_t limit):
        """Return the records at ``p``, decompressed; None where they are not compressed. Either way
        they have been walked.
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
                raise NotABatch(sentence(reasons.CODEC_ID, -1, codec, 0))
            if codec != NONE and self.header.records_count != 0:
                unpack_unlocked(&s, scratch, codec, p, size, limit)
                if s.status == LIMIT_HIT:
                    raise NotABatch(
                        f"the records decompress to more than max_decompressed_bytes, {limit}")
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
                f"{codec_name(self.flags() & CODEC_MASK)} size={self.size_in_bytes}>")


cdef str codec_name(int codec):
    return CompressionType(codec).kafka_name if codec <= ZSTD else f"codec {codec}"


cdef int32_t incremented(int64_t sequence, int64_t by) noexcept:
    """Follow DefaultRecordBatch.incrementSequence, whose ints wrap."""
    if sequence > <int32_t>(0x7FFFFFFF - by):
        return <int32_t>(by - (0x7FFFFFFF - sequence) - 1)
    return <int32_t>(sequence + by)


cdef inline object field_of(const uint8_t *p, Py_ssize_t length):
    """Return the bytes of a key or value; None for a negative length, which is null."""
    if length < 0:
        return None
    if length <= NOGIL_COMPRESSED:
        return PyBytes_FromStringAndSize(<const char *>p, length)
    field = PyBytes_FromStringAndSize(NULL, length)
    copy_unlocked(<uint8_t *>PyBytes_AS_STRING(field), p, length)
    return field


cdef list legacy_records(const Entry *entry, uint64_t limit):
    """Return the messages of a batch in memory that nobody else writes to."""
    cdef Scratch *scratch = borrow()
    cdef LegacyRecords m
    cdef LegacyRecord message
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
            if len(records) % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
                with nogil:
                    pass
            answer = next_legacy_record(&m, &message, <int32_t>len(records), &f)
            if answer == NO_LEGACY_RECORD:
                return records
            if answer != LEGACY_RECORD:
                break
            key = legacy_key(message.p, message.size, &key_length)
            value = legacy_value(message.p, message.size, &value_length)
            if key == LEGACY_BROKEN or value == LEGACY_BROKEN:
                raise NotABatch(f"message {len(records)}: its key or value runs past its end")
            records.append(DecodedRecord(
                message.offset, message.timestamp, -1,
                field_of(message.p + key, -1 if key == LEGACY_NULL else key_length),
                field_of(message.p + value, -1 if value == LEGACY_NULL else value_length),
                (), message.p[5], message.size + LOG_OVERHEAD))
            answer = WALKED
        raise NotABatch(sentence(f.reason, f.record, f.a, f.b))
    finally:
        give_back(scratch)


@cython.final
cdef class Batches:
    """The whole batches of a buffer, found one at a time.

    ``position`` is where the next batch is expected. After the last one it is where the walk
    stopped, and ``tail`` is the reason, as that of ``scan_batches``: None at the buffer's end, else
    ``partial``, ``zeros``, ``size`` or ``magic``.
    """
    cdef object buffer
    cdef readonly Py_ssize_t position
    cdef readonly object tail
    cdef bint stopped

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordBatch batch
        if self.stopped:
            raise StopIteration
        try:
            batch = RecordBatch(self.buffer, self.position)
        except NotABatch:
            self.stop()
            raise StopIteration from None
        self.position += batch.entry.size
        return batch

    cdef int stop(self) except -1:
        """Keep why no batch was found at ``position``."""
        cdef Py_buffer view
        cdef Entry entry
        cdef const uint8_t *p
        cdef int found
        self.stopped = True
        take_buffer(self.buffer, &view)
        try:
            if self.position > view.len:
                self.tail = "partial"  # the buffer has become shorter
                return 0
            p = <const uint8_t *>view.buf + self.position
            found = next_claimed_batch(p, view.len - self.position, &entry)
            if found == BATCH:  # of magic 2 or 3, and too small for its own header
                found = BATCH_SIZE_TOO_SMALL
            self.tail = tail_of(p, view.len - self.position, found)
        finally:
            PyBuffer_Release(&view)
        return 0


def batches(buffer, position=0):
    """Return an iterator over the whole batches from ``position`` on, each a RecordBatch.

    It stops at the buffer's end or at the first bytes that are not a whole batch; its ``position``
    and ``tail`` are then where and why. Each batch is read when it is requested, and holds the
    buffer.
    """
    cdef Batches found = Batches.__new__(Batches)
    cdef Py_buffer view
    take_buffer(buffer, &view)
    try:
        found.position = position_in(position, view.len)
    finally:
        PyBuffer_Release(&view)
    found.buffer = buffer
    return found
