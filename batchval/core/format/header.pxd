"""The header of a batch, and the steps from one batch to the next."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.format.bytes cimport be16, be32, be64, once, put_be16, put_be32, put_be64
from batchval.core.format.crc32c cimport crc32_of, crc32c_of
from batchval.core.format.layout cimport *

cdef struct BatchHeader:
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t batch_length
    int32_t partition_leader_epoch
    int32_t last_offset_delta
    int32_t base_sequence
    int32_t records_count
    uint32_t crc
    int16_t attributes
    int16_t producer_epoch
    int8_t magic

cdef enum:  # next_batch
    BATCH
    NO_MORE
    # Or a rule's number: BATCH_SIZE_TOO_SMALL, BATCH_SIZE_OVERFLOW, MAGIC_UNKNOWN; none of them is
    # 0 or 1.

cdef struct Entry:
    const uint8_t *p
    uint64_t size  # with log overhead; p[0:size] is inside the buffer
    int64_t size_field
    int8_t magic


cdef enum:
    MAX_BATCH_OFFSETS = 0x80000000  # of one batch: its last_offset_delta is an int32


cdef inline bint follows_offset(int64_t offset, int64_t before) noexcept nogil:
    """Return whether an offset is higher than that of the batch before, by what a batch can hold.
    """
    return <uint64_t>offset - <uint64_t>before - 1 < <uint64_t>MAX_BATCH_OFFSETS - 1


cdef inline int next_batch(const uint8_t *p, uint64_t left, Entry *entry) noexcept nogil:
    """Read the batch at p as ByteBufferLogInputStream.nextBatch does: BATCH, NO_MORE or the number
    of the rule it breaks.
    """
    cdef int32_t size
    if left < LOG_OVERHEAD:
        return NO_MORE
    size = be32(p + BATCH_LENGTH)
    entry.size_field = size
    if size < LEGACY_MIN_SIZE:
        return BATCH_SIZE_TOO_SMALL
    if left <= MAGIC:
        return NO_MORE
    entry.magic = <int8_t>once(p[MAGIC])
    if entry.magic < 0 or entry.magic > 2:
        return MAGIC_UNKNOWN
    if size > 0x7FFFFFFF - LOG_OVERHEAD:
        return BATCH_SIZE_OVERFLOW
    entry.p = p
    entry.size = <uint64_t>size + LOG_OVERHEAD
    return BATCH if entry.size <= left else NO_MORE


cdef inline int next_claimed_batch(const uint8_t *p, uint64_t left, Entry *entry) noexcept nogil:
    """Read a batch as next_batch does, where batches of magic 3 are batches too."""
    cdef int32_t size
    if left <= MAGIC or p[MAGIC] != 3:
        return next_batch(p, left, entry)
    size = be32(p + BATCH_LENGTH)
    entry.size_field = size
    if size < LEGACY_MIN_SIZE:
        return BATCH_SIZE_TOO_SMALL
    if size > 0x7FFFFFFF - LOG_OVERHEAD:
        return BATCH_SIZE_OVERFLOW
    entry.p = p
    entry.size = <uint64_t>size + LOG_OVERHEAD
    entry.magic = 3
    return BATCH if entry.size <= left else NO_MORE


cdef inline void read_header(const uint8_t *p, BatchHeader *h) noexcept nogil:
    """Read the 61 bytes at p."""
    h.base_offset = be64(p + BASE_OFFSET)
    h.batch_length = be32(p + BATCH_LENGTH)
    h.partition_leader_epoch = be32(p + PARTITION_LEADER_EPOCH)
    h.magic = <int8_t>p[MAGIC]
    h.crc = <uint32_t>be32(p + CRC)
    h.attributes = be16(p + ATTRIBUTES)
    h.last_offset_delta = be32(p + LAST_OFFSET_DELTA)
    h.base_timestamp = be64(p + BASE_TIMESTAMP)
    h.max_timestamp = be64(p + MAX_TIMESTAMP)
    h.producer_id = be64(p + PRODUCER_ID)
    h.producer_epoch = be16(p + PRODUCER_EPOCH)
    h.base_sequence = be32(p + BASE_SEQUENCE)
    h.records_count = be32(p + RECORDS_COUNT)


cdef inline void write_header(uint8_t *p, const BatchHeader *h) noexcept nogil:
    """Write the 61 bytes that read_header reads."""
    put_be64(p + BASE_OFFSET, h.base_offset)
    put_be32(p + BATCH_LENGTH, h.batch_length)
    put_be32(p + PARTITION_LEADER_EPOCH, h.partition_leader_epoch)
    p[MAGIC] = <uint8_t>h.magic
    put_be32(p + CRC, <int32_t>h.crc)
    put_be16(p + ATTRIBUTES, h.attributes)
    put_be32(p + LAST_OFFSET_DELTA, h.last_offset_delta)
    put_be64(p + BASE_TIMESTAMP, h.base_timestamp)
    put_be64(p + MAX_TIMESTAMP, h.max_timestamp)
    put_be64(p + PRODUCER_ID, h.producer_id)
    put_be16(p + PRODUCER_EPOCH, h.producer_epoch)
    put_be32(p + BASE_SEQUENCE, h.base_sequence)
    put_be32(p + RECORDS_COUNT, h.records_count)


cdef inline uint32_t stored_crc(const Entry *b) noexcept nogil:
    return <uint32_t>be32(b.p + (CRC if b.magic >= 2 else LEGACY_CRC))


cdef inline uint32_t computed_crc(const Entry *b) noexcept nogil:
    """Return the CRC-32C from the attributes on for magic 2, the CRC-32 from the magic on before.
    """
    if b.magic >= 2:
        return crc32c_of(0, b.p + ATTRIBUTES, b.size - ATTRIBUTES)
    return crc32_of(0, b.p + LEGACY_MAGIC, b.size - LEGACY_MAGIC)


cdef inline bint has_right_crc(const Entry *b) noexcept nogil:
    """Return whether the checksum is right; a batch smaller than its own header has none."""
    return (b.magic < 2 or b.size >= RECORDS) and stored_crc(b) == computed_crc(b)
