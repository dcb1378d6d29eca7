"""A batch of magic 2, built where it grows: 61 bytes for the header, then record after record.

    base_offset:8 batch_length:4 partition_leader_epoch:4 magic:1 crc:4 | attributes:2
    last_offset_delta:4 base_timestamp:8 max_timestamp:8 producer_id:8 producer_epoch:2
    base_sequence:4 records_count:4 records...

``finish`` writes the header and compresses. ``seal`` writes the sender and the crc, each time the
batch is sent with another producer id, epoch or sequence. (MemoryRecordsBuilder,
DefaultRecordBatch, DefaultRecord.) Keys, values and headers are copied as they are appended: a
buffer may change afterwards.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, Py_buffer, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8String
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from batchval.compression.compressors import compress_in_one_piece

from batchval.core.stages.arguments cimport take_buffer
from batchval.core.format.bytes cimport be32, put_be16, put_be32, put_be64
from batchval.core.stages.carriers cimport (
    MAX_CARRIER_SIZE, attach_to_payload, carrier_size, claims_size, strip_payload,
)
from batchval.core.stages.claims cimport batch_claims_of, fields_made
from batchval.core.stages.claims_block cimport (
    MAX_MADE_BLOCK_SIZE, VERSION_2, Claims, put_block, strongest_null_keys,
)
from batchval.core.format.crc32c cimport crc32c_of
from batchval.core.records.fields cimport Record, read_record
from batchval.core.format.header cimport BatchHeader, read_header
from batchval.core.format.layout cimport *
from batchval.core.format.value_ids cimport SeenIds, note_value, start_ids, want_ids
from batchval.core.records.writing cimport put_record, put_varint, size_of_body, size_of_varint

from batchval.core.stages.claims import to_tag

cdef enum:
    RECORD_OVERHEAD = 36  # at most: five varints of an int32, one of an int64, the attributes
    INITIAL = 16384

cdef size_t MAX_SIZE = 0x7FFFFFFF

#: The largest overhead of a record, in addition to its key, value and headers, in bytes.
MAX_RECORD_OVERHEAD = RECORD_OVERHEAD
#: The size of a batch's header, in bytes.
BATCH_OVERHEAD = RECORDS


@cython.final
cdef class RecordValues:
    """The values and stamps of one ``send_many``: buffers that are held until ``close``.

    ``values``: one bytes-like, which is the value of every record, or a sequence of bytes-likes,
    copied to a tuple.
    ``stamps``: a contiguous buffer of int64, one a record; their number is that of the records.
    """
    cdef readonly Py_ssize_t count
    cdef tuple values  # None: one value for all
    cdef Py_buffer value
    cdef Py_buffer stamps
    cdef bint has_value, has_stamps

    def __cinit__(self, values, stamps):
        PyObject_GetBuffer(stamps, &self.stamps, PyBUF_ND | PyBUF_FORMAT)
        self.has_stamps = True
        if self.stamps.itemsize != 8 or self.stamps.format == NULL or self.stamps.format[0] not in (c"q", c"l"):
            raise TypeError("stamps must be a buffer of int64 (array('q'), numpy.int64)")
        self.count = self.stamps.len // 8
        if PyObject_CheckBuffer(values):
            take_buffer(values, &self.value)
            self.has_value = True
        else:
            self.values = tuple(values)
            if len(self.values) != self.count:
                raise ValueError(
                    f"got {len(self.values)} values and {self.count} stamps: expected as many")

    def __dealloc__(self):
        if self.has_stamps:
            PyBuffer_Release(&self.stamps)
        if self.has_value:
            PyBuffer_Release(&self.value)

    cpdef close(self):
        """Release the buffers."""
        if self.has_stamps:
            PyBuffer_Release(&self.stamps)
            self.has_stamps = False
        if self.has_value:
            PyBuffer_Release(&self.value)
            self.has_value = False
        self.values = None
        self.count = 0

    cpdef Py_ssize_t largest(self) except -1:
        """Return the size of the largest value, in bytes."""
        cdef Py_ssize_t most = 0
        if self.has_value:
            return self.value.len
        for value in self.values or ():
            most = max(most, size_of_value(value))
        return most

    cpdef Py_ssize_t fitting(self, Py_ssize_t free_bytes) except -1:
        """Return how many of the records fit into so many bytes, each counted at its largest
        possible size.
        """
        cdef Py_ssize_t n = 0
        if free_bytes <= 0:
            return 0
        if self.has_value:
            return min(self.count, free_bytes // (self.value.len + RECORD_OVERHEAD))
        for value in self.values:
            free_bytes -= size_of_value(value) + RECORD_OVERHEAD
            if free_bytes < 0:
                break
            n += 1
        return n


cdef Py_ssize_t size_of_value(value) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t size
    if PyBytes_CheckExact(value):
        return PyBytes_GET_SIZE(value)
    take_buffer(value, &view)
    size = view.len
    PyBuffer_Release(&view)
    return size


@cython.final
cdef class BatchBuilder:
    """One batch. ``limit`` is its largest size before compression, header included, in bytes.

    A first record is taken whatever its size. ``recycled``: a bytearray that nobody uses any more.
    ``schema_ids``: the claims state the ids at the start of the values, if each value has one.
    """
    cdef bytearray data  # header and records, not compressed
    cdef bytearray stamp_data
    cdef bytearray packed  # the finished batch: ``data`` where nothing is compressed
    cdef size_t used, packed_size
    cdef readonly int32_t count
    cdef readonly Py_ssize_t limit
    cdef readonly int64_t base_timestamp, max_timestamp, min_timestamp
    cdef readonly int64_t value_bytes
    cdef int32_t null_keys
    cdef size_t longest  # record, without its length field
    cdef readonly int codec
    cdef object level
    cdef int32_t stamped
    cdef bint sealed
    cdef readonly bint carries_claims  # in its payload
    cdef SeenIds seen_ids  # of the values, where they are wanted
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch
    cdef readonly int32_t base_sequence

    def __cinit__(self, Py_ssize_t limit, int codec=0, level=None, bytearray recycled=None,
            bint schema_ids=False):
        self.limit = limit
        want_ids(&self.seen_ids, schema_ids)
        if schema_ids:
            start_ids(&self.seen_ids)
        self.codec = codec
        self.level = level
        self.data = recycled if recycled is not None else PyByteArray_FromStringAndSize(
            NULL, max(RECORDS, min(limit, INITIAL)))
        self.used = RECORDS
        self.base_timestamp = self.max_timestamp = self.min_timestamp = NO_TIMESTAMP
        self.producer_id = self.producer_epoch = self.base_sequence = -1

    cdef uint8_t *grow(self, size_t n) except NULL:
        """Return where the next n bytes go."""
        cdef size_t wanted = self.used + n
        cdef size_t there = len(self.data)
        if wanted > there:
            if wanted > MAX_SIZE:
                raise OverflowError("the batch would have more than 2 GiB")
            PyByteArray_Resize(self.data, max(wanted, min(2 * there, max(<size_t>self.limit,
                    wanted))))
        return <uint8_t *>PyByteArray_AS_STRING(self.data) + self.used

    cdef inline void note(self, int64_t timestamp) noexcept:
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = self.min_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        elif timestamp < self.min_timestamp:
            self.min_timestamp = timestamp

    cdef int put(self, const Record *r) except -1:
        """Write a record after the others. Return 1, or 0 where it does not fit."""
        cdef int64_t delta = 0 if self.count == 0 else <int64_t>(<uint64_t>r.timestamp - <uint64_t>self.base_timestamp)
        cdef size_t body = size_of_body(r, delta, self.count)
        cdef size_t size = size_of_varint(body) + body
        if self.count and (self.used + size > <size_t>self.limit or self.count == 0x7FFFFFFF):
            return 0
        put_record(self.grow(size), <int32_t>body, r, delta, self.count)
        self.used += size
        self.note(r.timestamp)
        self.null_keys += r.key_length < 0
        if self.seen_ids.wanted:
            note_value(&self.seen_ids, r.value, r.value_length)
        self.longest = max(self.longest, body)
        self.value_bytes += max(r.key_length, 0) + max(r.value_length, 0)
        self.count += 1
        return 1

    cdef int put_sized(self, Record *r, const void *value, Py_ssize_t size) except -1:
        """Write a record that has only this value, as ``put`` does."""
        if size + RECORD_OVERHEAD > <Py_ssize_t>MAX_SIZE:
            raise OverflowError("the record has more than 2 GiB")
        r.value = <const uint8_t *>value
        r.value_length = <int32_t>size
        return self.put(r)

    cdef int put_value(self, Record *r, value) except -1:
        cdef Py_buffer view
        if PyBytes_CheckExact(value):
            return self.put_sized(r, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        if value is None:
            r.value_length = -1
            return self.put(r)
        take_buffer(value, &view)
        try:
            return self.put_sized(r, view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    def append(self, key, value, headers, int64_t timestamp):
        """Append one record. Return False where it does not fit; then nothing has changed.

        ``key`` and ``value`` are bytes-likes or None, ``headers`` pairs of str and bytes-like or
        None. ValueError where the batch is finished.
        """
        cdef Py_buffer k, v
        cdef Record r
        cdef bint has_key = key is not None, has_value = value is not None
        cdef tuple pairs = tuple(headers)
        cdef bytes packed = pack_headers(pairs) if pairs else b""
        if has_key:
            take_buffer(key, &k)
        try:
            if has_value:
                take_buffer(value, &v)
            try:
                if self.packed is not None:  # perhaps by one of the buffers that were taken
                    raise ValueError("the batch is finished")
                if ((k.len if has_key else 0) + (v.len if has_value else 0) + len(packed)
                        + RECORD_OVERHEAD > MAX_SIZE):
                    raise OverflowError("the record has more than 2 GiB")
                r.timestamp = timestamp
                r.key = <const uint8_t *>k.buf if has_key else NULL
                r.key_length = <int32_t>k.len if has_key else -1
                r.value = <const uint8_t *>v.buf if has_value else NULL
                r.value_length = <int32_t>v.len if has_value else -1
                r.headers = <const uint8_t *>PyBytes_AS_STRING(packed)
                r.headers_count = <int32_t>len(pairs)
                r.headers_size = <int32_t>len(packed)
                return self.put(&r) == 1
            finally:
                if has_value:
                    PyBuffer_Release(&v)
        finally:
            if has_key:
                PyBuffer_Release(&k)

    def append_many(self, RecordValues source not None, Py_ssize_t first, Py_ssize_t count,
            Py_ssize_t step, int64_t timestamp):
        """Append the records number first, first + step, …, at most ``count`` of them, without
        keys. Return how many fitted.

        Their stamps are kept after those of earlier calls.
        """
        cdef Py_ssize_t taken = 0, at = first
        cdef Record r
        cdef int64_t *to
        if first < 0 or step < 1 or count < 0 or (count
                and first + (count - 1) * step >= source.count):
            raise IndexError("record index out of range")
        if self.stamp_data is None:
            self.stamp_data = PyByteArray_FromStringAndSize(NULL, 8 * min(count, 1024))
        r.timestamp = timestamp
        r.key = r.headers = NULL
        r.key_length = -1
        r.headers_count = r.headers_size = 0
        while taken < count:
            if not (self.put_sized(&r, source.value.buf, source.value.len) if source.has_value
                    else self.put_value(&r, source.values[at])):
                break
            if at >= source.count:  # reading a value's bytes has closed it
                raise IndexError("record index out of range")
            if 8 * (<Py_ssize_t>self.stamped + 1) > len(self.stamp_data):
                PyByteArray_Resize(self.stamp_data, 16 * (<Py_ssize_t>self.stamped + 1))
            to = <int64_t *>PyByteArray_AS_STRING(self.stamp_data)
            to[self.stamped] = (<const int64_t *>source.stamps.buf)[at]
            self.stamped += 1
            taken += 1
            at += step
        return taken

    @property
    def size(self):
        """Return the bytes of header and records, before compression."""
        return self.used

    @property
    def is_finished(self):
        """Return whether ``finish`` was called."""
        return self.packed is not None

    @property
    def wire_size(self):
        """Return the size of the finished batch, in bytes; 0 before."""
        return self.packed_size

    @property
    def crc(self):
        """Return the checksum of the sealed batch."""
        return <uint32_t>be32(self.bytes_at(CRC))

    @property
    def stamps(self):
        """Return the stamps of ``append_many``, in order: a memoryview of int64."""
        if not self.stamped:
            return memoryview(b"").cast("q")
        return memoryview(self.stamp_data)[: 8 * <Py_ssize_t>self.stamped].cast("q")

    @property
    def claims(self):
        """Return the BatchClaims that batchval.core.stages.claims.compute would find."""
        cdef Claims claims
        self.fill_claims(&claims)
        return batch_claims_of(&claims, fields_made(&claims))

    cdef void fill_claims(self, Claims *claims) noexcept:
        claims.version = VERSION_2
        claims.batch_min_timestamp = self.min_timestamp
        claims.records_number = self.count
        claims.null_keys = strongest_null_keys(self.null_keys, self.count)
        claims.uncompressed_bytes = <int32_t>self.used
        claims.max_record_bytes = <int32_t>self.longest
        claims.fields_crc = 0
        claims.schema_ids = self.seen_ids.ids

    def tag(self):
        """Return the claims as the tagged field of a Produce request carries them, bound to the
        sealed batch.
        """
        return to_tag(self.claims, self.crc)

    cdef uint8_t *bytes_at(self, size_t at):
        return <uint8_t *>PyByteArray_AS_STRING(self.packed if self.packed is not None else self.data) + at

    def payload(self):
        """Return the records, not compressed. No record can be added while a view of them exists.
        """
        return memoryview(self.data)[RECORDS:self.used]

    def finish(self, bytes payload=None, Py_ssize_t claims_limit=0):
        """Compress, and write all of the header that does not depend on the sender. ValueError
        without a record.

        ``payload``: the records, already compressed with this batch's codec. ``claims_limit``:
        claims go into the payload of a batch that stays within this size, in bytes, if its codec
        can carry them; ``carries_claims`` is then set.
        """
        cdef uint8_t *p
        cdef size_t size = self.used
        if self.packed is not None:
            return
        if self.count == 0:
            raise ValueError("a batch must have a record")
        if self.codec != NONE:
            if payload is None:
                payload = compress_in_one_piece(self.codec, self.payload(), 2, self.level)
            size = RECORDS + len(payload)
            if size > MAX_SIZE:
                raise OverflowError("the batch would have more than 2 GiB")
            self.packed = PyByteArray_FromStringAndSize(NULL, size)
            memcpy(PyByteArray_AS_STRING(self.packed) + RECORDS, PyBytes_AS_STRING(payload),
                    size - RECORDS)
            if claims_limit > 0 and size + MAX_CARRIER_SIZE <= MAX_SIZE:
                size = self.carry_claims(size, claims_limit)
        else:
            self.packed = self.data
        self.packed_size = size
        p = <uint8_t *>PyByteArray_AS_STRING(self.packed)
        put_be64(p + BASE_OFFSET, 0)
        put_be32(p + BATCH_LENGTH, <int32_t>(size - LOG_OVERHEAD))
        put_be32(p + PARTITION_LEADER_EPOCH, -1)
        p[MAGIC] = 2
        put_be32(p + LAST_OFFSET_DELTA, self.count - 1)
        put_be64(p + BASE_TIMESTAMP, self.base_timestamp)
        put_be64(p + MAX_TIMESTAMP, self.max_timestamp)
        put_be32(p + RECORDS_COUNT, self.count)

    cdef size_t carry_claims(self, size_t size, size_t limit) except 0:
        """Put claims into the payload of ``packed``, which has no header. Return the size with
        them.
        """
        cdef Claims claims
        cdef uint8_t block[MAX_MADE_BLOCK_SIZE]
        cdef size_t block_size
        cdef uint8_t *p = <uint8_t *>PyByteArray_AS_STRING(self.packed)
        cdef size_t more
        self.fill_claims(&claims)
        block_size = put_block(block, &claims)
        memset(p, 0, RECORDS)
        put_be16(p + ATTRIBUTES, <int16_t>self.codec)
        more = carrier_size(p, size, block_size)
        if more == 0 or size + more > limit:
            return size
        out = PyByteArray_FromStringAndSize(NULL, size + more)
        attach_to_payload(<uint8_t *>PyByteArray_AS_STRING(out), p, size, block, block_size)
        self.packed = out
        self.carries_claims = True
        return size + more

    def drop_claims(self):
        """Take the claims out of the payload of a finished batch, which has to be sealed again."""
        cdef uint8_t *p = self.bytes_at(0)
        cdef size_t gone
        if self.packed is None or not self.carries_claims:
            return
        gone = claims_size(p, self.packed_size)
        strip_payload(p, p, self.packed_size, gone)
        self.packed_size -= gone
        self.carries_claims = False
        self.sealed = False

    def seal(self, int64_t producer_id=-1, int producer_epoch=-1, int32_t base_sequence=-1,
            bint transactional=False, bint control=False, log_append_time=None):
        """Set the sender and compute the crc; the same sender costs nothing a second time. -1: not
        idempotent.

        ``log_append_time``  milliseconds: the broker's clock is the timestamp of all records
        """
        cdef int attributes
        cdef uint8_t *p
        if self.packed is None:
            self.finish()
        if self.sealed and (self.producer_id, self.producer_epoch, self.base_sequence) == (
                producer_id, producer_epoch, base_sequence):
            return
        p = self.bytes_at(0)
        attributes = self.codec
        if transactional:
            attributes |= TRANSACTIONAL_BIT
        if control:
            attributes |= CONTROL_BIT
        if log_append_time is not None:
            attributes |= LOG_APPEND_TIME_BIT
            put_be64(p + MAX_TIMESTAMP, log_append_time)
        put_be16(p + ATTRIBUTES, <int16_t>attributes)
        put_be64(p + PRODUCER_ID, producer_id)
        put_be16(p + PRODUCER_EPOCH, <int16_t>producer_epoch)
        put_be32(p + BASE_SEQUENCE, base_sequence)
        with nogil:
            put_be32(p + CRC, <int32_t>crc32c_of(0, p + ATTRIBUTES, self.packed_size - ATTRIBUTES))
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.sealed = True

    def place(self, int64_t base_offset, int32_t partition_leader_epoch):
        """Write the fields of a finished batch that its crc does not cover."""
        cdef uint8_t *p
        if self.packed is None:
            raise ValueError("the batch is not finished")
        p = self.bytes_at(0)
        put_be64(p + BASE_OFFSET, base_offset)
        put_be32(p + PARTITION_LEADER_EPOCH, partition_leader_epoch)

    def view(self):
        """Return the finished batch, as it is to be sent. It must not be kept beyond ``recycle``.
        """
        if self.packed is None:
            raise ValueError("the batch is not finished")
        return memoryview(self.packed)[: self.packed_size]

    def split(self):
        """Return two batches of half of the records each, not finished; [] where there is one
        record. (KAFKA-3995.)
        """
        cdef BatchBuilder half
        cdef BatchHeader h
        cdef Record r
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef int32_t _i, first = self.count // 2, n = 0
        if self.count < 2:
            return []
        halves = []
        self.finish()
        # the header is in ``data`` only where nothing is compressed
        memcpy(PyByteArray_AS_STRING(self.data), self.bytes_at(0), RECORDS)
        read_header(<const uint8_t *>PyByteArray_AS_STRING(self.data), &h)
        p = <const uint8_t *>PyByteArray_AS_STRING(self.data) + RECORDS
        end = p + self.used - RECORDS
        for n in (first, self.count - first):
            half = BatchBuilder(max(<Py_ssize_t>self.used, self.limit) + 64, self.codec, self.level)
            for _i in range(n):
                p = read_record(p, end, &h, &r)
                if p is NULL:
                    raise ValueError("the batch does not hold the records that were put into it")
                half.put(&r)
            halves.append(half)
        if self.stamped:
            stamps = self.stamps.cast("B")
            for half, part in zip(halves, (stamps[: 8 * first], stamps[8 * first:]), strict=True):
                half.stamp_data = bytearray(part)
                half.stamped = half.count
        return halves

    def recycle(self):
        """Return the buffer for another batch; None while a view of it exists. This batch ends with
        it.
        """
        data, self.data, self.packed = self.data, bytearray(RECORDS), None
        self.packed_size = 0
        self.used = RECORDS
        try:
            data.append(0)  # BufferError while a view of it exists
        except BufferError:
            return None
        return data


cdef bytes content_of(value):
    """Return a copy of a buffer's bytes. (``bytes`` takes numbers too.)"""
    cdef Py_buffer view
    take_buffer(value, &view)
    try:
        return (<const char *>view.buf)[:view.len]
    finally:
        PyBuffer_Release(&view)


cdef bytes pack_headers(tuple headers):
    """Return the headers as bytes: key length, key, value length or -1, value of each."""
    cdef uint8_t number[10]
    cdef Py_ssize_t n
    cdef bytes coded, content
    parts = []
    for key, value in headers:
        coded = PyUnicode_AsUTF8String(key)
        n = put_varint(number, len(coded)) - number
        parts += ((<const char *>number)[:n], coded)
        content = None if value is None else content_of(value)
        n = put_varint(number, -1 if content is None else len(content)) - number
        parts += ((<const char *>number)[:n], content or b"")
    return b"".join(parts)
