"""Batches of a Fetch response, converted down to the message sets that old consumers read.

    Fetch 0 and 1    messages of magic 0
    Fetch 2 and 3    messages of magic 1
    since Fetch 4    batches of magic 2, which Kafka 3.9 converted (RecordsUtil.downConvert) and
                     Kafka 4 does not (KIP-724, KIP-896)

Input, as a broker sends it:

    batch*  [the first bytes of a batch, because the response has a maximum size]

Output, for each batch that is newer than the requested magic:

    not compressed   one message a record, with the record's offset
    compressed       one wrapper with all messages; magic 1 counts their offsets from 0, magic 0
                     keeps them. zstd becomes gzip, which every client reads

Control batches and headers have no place in these formats. A batch of the requested magic or an
older one is copied. Records are read and written without the GIL.

Of a compressed batch the decompressed records are held, at most ``max_decompressed_bytes``. The
messages, which for tiny records are five times as large, are compressed a piece at a time.
"""

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove, memset

from batchval.core.format cimport reasons
from batchval.core.convert.aborted cimport (
    Aborted, AbortedTransactions, end_aborted, is_aborted, reach,
)
from batchval.core.stages.arguments cimport (
    MAX_DECOMPRESSED_LIMIT, NOGIL_FETCHED, is_immutable, position_in, take_buffer, whole_number,
)
from batchval.core.format.bytes cimport be16, be64, put_be32
from batchval.core.records.chunked cimport as_read
from batchval.core.convert.convert cimport Out, bytes_of, more, put_message, seal_message
from batchval.core.records.fields cimport Record, read_record
from batchval.core.codecs.codec_streams cimport (
    DAMAGED, LIMIT_HIT, NO_MEMORY, Stream, open_stream, unpack,
)
from batchval.core.format.header cimport (
    BATCH, NO_MORE, BatchHeader, Entry, computed_crc, next_batch, read_header, stored_crc,
)
from batchval.core.format.layout cimport (
    BATCH_SIZE_OVERFLOW, BATCH_SIZE_TOO_SMALL, CODEC_MASK, CONTROL_BIT, GZIP, LEGACY_ATTRIBUTES,
    LEGACY_OVERHEAD_V0, LEGACY_OVERHEAD_V1, LOG_APPEND_TIME_BIT, MARKER_ABORT,
    MARKER_KEY_SIZE, MARKER_TYPE, NONE, NO_TIMESTAMP, RECORDS, TRANSACTIONAL_BIT, ZSTD,
)
from batchval.core.records.legacy cimport (
    LEGACY_BROKEN, LEGACY_RECORD, NO_LEGACY_RECORD, LegacyRecord, LegacyRecords, legacy_key,
    legacy_value,
    next_legacy_record, open_legacy_records,
)
from batchval.core.records.records cimport (
    BUFFER_PARSER, OUT_OF_MEMORY, OVER_LIMIT, STREAM_PARSER, WALKED, Checks, Facts, clear_facts,
    structure_alone, walk,
)
from batchval.core.codecs.scratch cimport (
    Scratch, begin_work, borrow, copy_reserve, end_work, give_back, spend,
)

from collections import namedtuple

from batchval.compression.compressors import ALIGNED as _ALIGNED
from batchval.compression.compressors import compressing
from batchval.core.format.reasons import sentence
from batchval.errors import BatchvalError, NotABatch
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef enum:
    SET_PIECE = 262144  # bytes of messages that are compressed at a time

cdef enum:  # what a step came to
    CONVERTED  # or left out
    SET_PART  # messages that are to be compressed; more follow
    SET_MADE  # the last of them
    NO_BATCH_LEFT
    NO_MEMORY_LEFT
    # The batch cannot be converted.
    FOR_REASON  # batchval.core.format.reasons
    CHANGED
    BATCH_OFFSETS
    RECORD_OFFSET
    TOO_LARGE
    HEAVY  # as ``max_batch_work`` is

cdef struct Conversion:  # of one call
    const uint8_t *p
    size_t size
    size_t at  # of the next batch
    bint copies  # the buffer may change: each batch is copied first
    int to_magic
    int64_t least_offset
    uint64_t limit  # of what a batch decompresses to
    bint limit_is_work  # the limit is most_batch_work, which is less than what is allowed
    uint64_t most_work
    uint64_t most_batch_work
    uint64_t work  # bytes that were read, decompressed and written into wrappers
    bint check_crcs
    Aborted *aborted
    Scratch *scratch
    Out out  # what is ready, and what has been made of the batch that is being converted
    Out set  # messages that are to be compressed
    int64_t first_offset  # of the first batch that was read
    int64_t next_offset  # after the last one
    int64_t batches
    int64_t records
    # The batch that is being converted.
    size_t batch_size
    int64_t batch_base
    int64_t batch_last
    bint inside  # records or messages of it are still to be converted
    bint by_records  # magic 2
    size_t start  # of its wrapper or of its messages in ``out``
    uint64_t compressed  # bytes of its messages that were
    BatchHeader header  # magic 2
    const uint8_t *at_record
    const uint8_t *end
    uint64_t unpacked  # bytes that it has decompressed to
    uint8_t *owned  # the memory of its records, where the scratch does not have them
    int64_t base  # what a wrapper of magic 1 counts from
    LegacyRecords messages  # magic 1
    int32_t index  # of the next record or message
    int codec
    bint log_append_time
    int64_t last_offset  # of its records so far
    int64_t max_timestamp
    int32_t count
    # Why it stopped.
    int32_t record
    int32_t reason
    int64_t a
    int64_t b


DownConverted = namedtuple(
    "DownConverted", "output records first_offset next_offset position is_partial aborted")
DownConverted.__doc__ = """What ``down_convert`` made.

``output``: the message sets, whole messages alone. ``records``: how many of them were converted;
those of batches that passed unchanged are not counted. ``first_offset``: the base offset of the
first batch that was read, and ``next_offset`` the one that follows the last, whether or not records
of it could be expressed; both are the argument ``first_offset`` where no batch was read.
``position``: where to go on in the buffer. ``is_partial``: a batch that is not whole starts there.
``aborted``: the transactions of the argument whose marker has not been read, for the next call.
"""


class NotConverted(NotABatch):
    """A batch of a Fetch response that cannot be converted down.

    ``converted`` is the DownConverted of the batches before it; its ``position`` is that of the
    batch at fault. ``is_heavy``: it takes more work than ``max_batch_work``, and no other fault was
    found.
    """

    is_heavy = False


# ---- failures ------------------------------------------------------------------------------------

cdef int fails(Conversion *d, int reason, int32_t record=0, int64_t a=0,
        int64_t b=0) noexcept nogil:
    d.reason = reason
    d.record = record
    d.a = a
    d.b = b
    return FOR_REASON


cdef int fails_by(Conversion *d, int kind, int32_t record=0, int64_t a=0,
        int64_t b=0) noexcept nogil:
    d.record = record
    d.a = a
    d.b = b
    return kind


cdef int not_a_batch(Conversion *d, int found, const Entry *entry) noexcept nogil:
    if found == BATCH_SIZE_TOO_SMALL:
        return fails(d, reasons.SIZE_BELOW_14, 0, entry.size_field)
    if found == BATCH_SIZE_OVERFLOW:
        return fails(d, reasons.SIZE_OVERFLOWS, 0, entry.size_field)
    return fails(d, reasons.MAGIC_NOT_0_1_2, 0, entry.magic)


cdef int over_limit(Conversion *d) noexcept nogil:
    if d.limit_is_work:
        return fails_by(d, HEAVY)
    return fails(d, reasons.DECOMPRESSED_LIMIT, 0, <int64_t>d.limit)


cdef int stream_fails(Conversion *d, const Stream *s) noexcept nogil:
    """Return CONVERTED where the stream has ended well, else the failure."""
    if s.status == NO_MEMORY:
        return NO_MEMORY_LEFT
    if s.status == LIMIT_HIT:
        return over_limit(d)
    if s.status == DAMAGED:
        return fails(d, s.reason, 0, s.detail)
    return CONVERTED


# ---- messages ------------------------------------------------------------------------------------

cdef inline void begin_set(Conversion *d, int codec, bint log_append_time) noexcept nogil:
    d.compressed = d.unpacked = 0
    d.index = 0
    d.codec = codec
    d.log_append_time = log_append_time
    d.last_offset = -1
    d.max_timestamp = NO_TIMESTAMP
    d.count = 0


cdef int put(Conversion *d, int64_t offset, const Record *r) noexcept nogil:
    """Append one message to those of the batch. SET_PART where they are to be compressed."""
    cdef bint is_wrapped = d.codec != NONE
    cdef Out *to = &d.set if is_wrapped else &d.out
    cdef uint64_t before = d.compressed + d.set.size if is_wrapped else d.out.size - d.start
    cdef int64_t size = LEGACY_OVERHEAD_V1
    if r.key_length > 0:
        size += r.key_length
    if r.value_length > 0:
        size += r.value_length
    if <int64_t>before + size > INT32_MAX:
        return fails_by(d, TOO_LARGE)
    if d.count and offset <= d.last_offset:
        return fails_by(d, RECORD_OFFSET, d.index, offset, d.last_offset + 1)
    if not put_message(to, d.to_magic, LOG_APPEND_TIME_BIT if d.log_append_time else 0,
            offset - d.base if d.to_magic == 1 and is_wrapped else offset, r.timestamp,
            r.key, r.key_length, r.value, r.value_length):
        return NO_MEMORY_LEFT
    if is_wrapped and d.compressed + d.set.size > d.most_batch_work:
        return fails_by(d, HEAVY)
    d.last_offset = offset
    if r.timestamp > d.max_timestamp:
        d.max_timestamp = r.timestamp
    d.count += 1
    return SET_PART if is_wrapped and d.set.size >= SET_PIECE else CONVERTED


cdef int end_set(Conversion *d) noexcept nogil:
    """End a set of messages. Return SET_MADE where there are messages to compress."""
    d.inside = False
    return SET_MADE if d.codec != NONE and d.count else CONVERTED


# ---- magic 2 -------------------------------------------------------------------------------------

cdef int open_records(Conversion *d, const Entry *b) noexcept nogil:
    """Decompress the records and walk them."""
    cdef const BatchHeader *h = &d.header
    cdef int codec = h.attributes & CODEC_MASK, answer
    cdef uint64_t size = b.size - RECORDS
    cdef Stream s
    cdef Checks c
    cdef Facts f
    d.at_record = b.p + RECORDS
    if codec != NONE:
        unpack(&s, d.scratch, codec, d.at_record, size, d.limit)
        d.at_record = d.scratch.arena
        if s.halted:  # the records are those that Kafka's parser gets
            d.owned = as_read(&s, d.scratch, codec, 2, b.p + RECORDS, size, d.limit, STREAM_PARSER,
                    h.records_count, INT32_MAX)
            if d.owned is NULL:
                return NO_MEMORY_LEFT
            d.at_record = d.owned
        answer = stream_fails(d, &s)
        if answer != CONVERTED:
            return answer
        size = s.delivered
        d.unpacked = size
        d.work += size
    d.end = d.at_record + size
    structure_alone(&c)
    clear_facts(&f)
    open_stream(&s, d.scratch, NONE, 2, d.at_record, size, size, False)
    answer = walk(&s, h, &c, &f, BUFFER_PARSER)
    if answer == OUT_OF_MEMORY:
        return NO_MEMORY_LEFT
    return CONVERTED if answer == WALKED else fails(d, f.reason, f.record, f.a, f.b)


cdef int convert_records(Conversion *d) noexcept nogil:
    """Convert the records that were walked, from the next one on. Return SET_PART where others have
    to be compressed first.
    """
    cdef const BatchHeader *h = &d.header
    cdef Record r
    cdef int answer
    while d.index < h.records_count:
        d.at_record = read_record(d.at_record, d.end, h, &r)
        if d.at_record is NULL:
            return fails(d, reasons.RECORD_CUT_OFF, d.index)
        if not h.base_offset <= r.offset <= d.batch_last:
            return fails_by(d, RECORD_OFFSET, d.index, r.offset, h.base_offset)
        answer = CONVERTED
        if d.codec != NONE or r.offset >= d.least_offset:
            if d.count == 0:
                d.base = r.offset
            answer = put(d, r.offset, &r)
        if answer > SET_PART:
            return answer
        d.index += 1
        if answer == SET_PART:
            return answer
    return end_set(d)


cdef int take_marker(Conversion *d, const Entry *b) noexcept nogil:
    """Read how a transaction ended from the first record of a control batch with a producer id."""
    cdef Record r
    cdef int answer = open_records(d, b)
    if answer != CONVERTED:
        return answer
    if read_record(d.at_record, d.end, &d.header, &r) is NULL:
        return fails(d, reasons.RECORD_CUT_OFF)
    if r.key_length < MARKER_KEY_SIZE or be16(r.key) < 0:
        return fails(d, reasons.MARKER_KEY, 0, r.key_length)
    if be16(r.key + MARKER_TYPE) == MARKER_ABORT:
        end_aborted(d.aborted, d.header.producer_id)
    return CONVERTED


cdef int convert_batch(Conversion *d, const Entry *b) noexcept nogil:
    cdef BatchHeader *h = &d.header
    cdef int codec, answer = CONVERTED
    cdef int64_t last
    cdef bint has_aborted
    if b.size < RECORDS:
        return fails(d, reasons.SMALLER_THAN_HEADER, 0, b.size)
    read_header(b.p, h)
    last = <int64_t>(<uint64_t>h.base_offset + <uint64_t><int64_t>h.last_offset_delta)
    if h.base_offset < 0 or last < h.base_offset or last == INT64_MAX:
        return fails_by(d, BATCH_OFFSETS, 0, h.base_offset, h.last_offset_delta)
    d.batch_base = h.base_offset
    d.batch_last = last
    codec = h.attributes & CODEC_MASK
    has_aborted = d.aborted.count and h.producer_id >= 0
    if codec > ZSTD and (has_aborted or not h.attributes & CONTROL_BIT):
        return fails(d, reasons.CODEC_ID, 0, codec)
    if d.check_crcs and stored_crc(b) != computed_crc(b):
        return fails(d, reasons.WRONG_CRC, 0, stored_crc(b), computed_crc(b))
    begin_set(d, codec if codec != ZSTD else GZIP,
            d.to_magic > 0 and h.attributes & LOG_APPEND_TIME_BIT)
    if has_aborted:
        reach(d.aborted, last)
    if h.attributes & CONTROL_BIT:
        if has_aborted and h.records_count:
            answer = take_marker(d, b)
    elif h.records_count and not (has_aborted and h.attributes & TRANSACTIONAL_BIT
            and is_aborted(d.aborted, h.producer_id)):
        answer = open_records(d, b)
        if answer == CONVERTED:
            spend(d.scratch, d.end - d.at_record)
            d.inside = True
            answer = convert_records(d)
    return answer


# ---- magic 0 and 1 -------------------------------------------------------------------------------

cdef int convert_messages(Conversion *d, const Entry *b) noexcept nogil:
    cdef int64_t last = be64(b.p)
    cdef int codec = b.p[LEGACY_ATTRIBUTES] & CODEC_MASK
    cdef uint8_t *to
    if last < 0 or last == INT64_MAX:
        return fails_by(d, BATCH_OFFSETS, 0, last)
    d.batch_base = d.batch_last = last
    if codec > ZSTD:
        return fails(d, reasons.CODEC_ID, 0, codec)
    if codec == ZSTD:
        return fails(d, reasons.WRAPPER_ZSTD, 0, b.magic)
    if b.magic > d.to_magic:
        if d.check_crcs and stored_crc(b) != computed_crc(b):
            return fails(d, reasons.WRONG_CRC, 0, stored_crc(b), computed_crc(b))
        begin_set(d, codec, False)
        return open_each(d, b)
    spend(d.scratch, b.size)
    to = more(&d.out, b.size)
    if to is NULL:
        return NO_MEMORY_LEFT
    memcpy(to, b.p, b.size)
    return CONVERTED


cdef int put_again(Conversion *d, const LegacyRecord *message) noexcept nogil:
    """Append a message of magic 1 as one of magic 0."""
    cdef Record r
    cdef int64_t key = legacy_key(message.p, message.size, &r.key_length)
    cdef int64_t value = legacy_value(message.p, message.size, &r.value_length)
    if key == LEGACY_BROKEN or value == LEGACY_BROKEN:
        return fails(d, reasons.MESSAGE_FIELDS, d.index)
    r.timestamp = message.timestamp
    r.key = message.p + key  # of null the length is negative
    r.value = message.p + value
    return put(d, message.offset, &r)


cdef int message_fails(Conversion *d, int answer, const Facts *f) noexcept nogil:
    if answer == OUT_OF_MEMORY:
        return NO_MEMORY_LEFT
    if answer == OVER_LIMIT:
        return over_limit(d)
    return fails(d, f.reason, f.record, f.a, f.b)


cdef int open_each(Conversion *d, const Entry *b) noexcept nogil:
    cdef Checks c
    cdef Facts f
    cdef int answer
    structure_alone(&c)
    clear_facts(&f)
    answer = open_legacy_records(&d.messages, b, d.scratch, &c, d.limit, &f)
    if answer != WALKED:
        return message_fails(d, answer, &f)
    d.unpacked = d.messages.end - d.messages.at
    d.inside = True
    return convert_each(d)


cdef int convert_each(Conversion *d) noexcept nogil:
    """Convert the messages from the next one on. Return SET_PART where others have to be compressed
    first.
    """
    cdef LegacyRecord message
    cdef Facts f
    cdef int answer
    clear_facts(&f)
    while True:
        answer = next_legacy_record(&d.messages, &message, d.index, &f)
        if answer == NO_LEGACY_RECORD:
            return end_set(d)
        if answer != LEGACY_RECORD:
            return message_fails(d, answer, &f)
        answer = CONVERTED
        if d.codec != NONE or message.offset >= d.least_offset:
            answer = put_again(d, &message)
        if answer > SET_PART:
            return answer
        d.index += 1
        if answer == SET_PART:
            return answer


# ---- the walk ------------------------------------------------------------------------------------

cdef void end_batch(Conversion *d) noexcept nogil:
    d.inside = False
    d.set.size = 0
    free(d.owned)
    d.owned = NULL


cdef void pass_batch(Conversion *d) noexcept nogil:
    """Count the batch that was read, and go on to the next."""
    if d.batches == 0:
        d.first_offset = d.batch_base
    d.batches += 1
    d.next_offset = d.batch_last + 1
    d.records += d.count
    d.at += d.batch_size
    end_batch(d)


cdef int convert_next(Conversion *d) noexcept nogil:
    cdef Entry b
    cdef uint64_t size
    cdef int found
    if d.inside:
        return convert_records(d) if d.by_records else convert_each(d)
    d.start = d.out.size
    found = next_batch(d.p + d.at, d.size - d.at, &b)
    if found == NO_MORE:
        return NO_BATCH_LEFT
    if found != BATCH:
        return not_a_batch(d, found, &b)
    if d.copies:
        size = b.size
        if not copy_reserve(d.scratch, size):
            return NO_MEMORY_LEFT
        memcpy(d.scratch.copy, d.p + d.at, size)
        if next_batch(d.scratch.copy, size, &b) != BATCH or b.size != size:
            return fails_by(d, CHANGED)
    d.batch_size = b.size
    d.work += b.size
    d.count = 0
    d.by_records = b.magic == 2
    return convert_batch(d, &b) if d.by_records else convert_messages(d, &b)


cdef bint goes_on(const Conversion *d, size_t most) noexcept nogil:
    return d.inside or (d.out.size < most and d.work < d.most_work)


cdef int convert_on(Conversion *d, size_t most) noexcept nogil:
    """Convert until messages are to be compressed, ``most`` bytes are ready, ``most_work`` is done,
    or no batch can be converted.

    Called with the GIL, which is released when the work is long.
    """
    cdef int answer = CONVERTED
    begin_work(d.scratch, d.inside or d.size - d.at > NOGIL_FETCHED)
    while answer == CONVERTED and goes_on(d, most):
        answer = convert_next(d)
        if answer == CONVERTED:
            pass_batch(d)
    end_work(d.scratch)
    return answer


cdef bint append(Out *to, bytes content) noexcept:
    """Append content. Return False without memory."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(content)
    cdef size_t size = PyBytes_GET_SIZE(content)
    cdef uint8_t *at
    with nogil:
        at = more(to, size)
        if at is not NULL:
            memcpy(at, p, size)
    return at is not NULL


cdef int compress_part(Conversion *d, object stream, bint is_last) except -1:
    """Compress messages of the batch, and put them into its wrapper in ``out``, which has room for
    its first bytes.
    """
    cdef size_t size = d.set.size if is_last else d.set.size - d.set.size % <size_t>_ALIGNED
    cdef size_t at = 0
    cdef size_t overhead = LEGACY_OVERHEAD_V0 if d.to_magic == 0 else LEGACY_OVERHEAD_V1
    cdef bint is_reserved = True
    if d.compressed == 0:
        with nogil:  # what there is may be copied
            is_reserved = more(&d.out, overhead) is not NULL
        if not is_reserved or not append(&d.out, stream.head):
            return NO_MEMORY_LEFT
    d.work += size
    d.compressed += size
    # one message may be large: Python frees what it has with the GIL, 0.1 ms a MiB
    while at < size:
        if not append(&d.out, stream.write(bytes_of(d.set.data + at, min(size - at, SET_PIECE)))):
            return NO_MEMORY_LEFT
        at += min(size - at, SET_PIECE)
    d.set.size -= size
    memmove(d.set.data, d.set.data + size, d.set.size)
    if is_last and not append(&d.out, stream.finish()):
        return NO_MEMORY_LEFT
    if d.out.size - d.start > INT32_MAX:
        return fails_by(d, TOO_LARGE)
    return CONVERTED


cdef void close_wrapper(Conversion *d) noexcept nogil:
    """Write the first bytes of the wrapper, whose key is null."""
    cdef uint8_t *p = d.out.data + d.start
    cdef size_t size = d.out.size - d.start
    cdef size_t overhead = LEGACY_OVERHEAD_V0 if d.to_magic == 0 else LEGACY_OVERHEAD_V1
    if d.by_records and d.log_append_time:
        d.max_timestamp = d.header.max_timestamp
    put_be32(p + overhead - 8, -1)
    put_be32(p + overhead - 4, <int32_t>(size - overhead))
    seal_message(p, size, d.to_magic, d.codec | (LOG_APPEND_TIME_BIT if d.log_append_time else 0),
            d.last_offset, d.max_timestamp)
    pass_batch(d)


cdef int64_t held(const Conversion *d) noexcept nogil:
    """Return the memory that a batch takes whose messages are compressed."""
    return d.unpacked + (d.batch_size if d.copies else 0) + d.out.size + d.set.size


cdef int convert_all(Conversion *d, size_t most, object on_held) except -1:
    """Convert, and compress what is to be compressed. Return why it stopped."""
    cdef int stopped = CONVERTED, made
    stream = None
    while stopped == CONVERTED and goes_on(d, most):
        stopped = convert_on(d, most)
        if stopped == SET_PART or stopped == SET_MADE:
            if d.compressed == 0:
                stream = compressing(d.codec, d.to_magic)
            if on_held is not None:
                on_held(held(d))
            made = compress_part(d, stream, stopped == SET_MADE)
            if made == CONVERTED and stopped == SET_MADE:
                with nogil:
                    close_wrapper(d)
            stopped = made
    if stopped != CONVERTED and stopped != NO_BATCH_LEFT:
        d.out.size = d.start
    return stopped


cdef str why(int stopped, const Conversion *d):
    if stopped == FOR_REASON:
        return sentence(d.reason, d.record, d.a, d.b) or "its records are damaged"
    return {
        CHANGED: "the buffer changed while it was read",
        BATCH_OFFSETS: f"offset {d.a} and last offset delta {d.b} are not those of a log",
        RECORD_OFFSET: (
            f"record {d.record}: offset {d.a}, expected {d.b} or above, "
            "within the offsets of its batch"),
        TOO_LARGE: f"its messages take more than {INT32_MAX} bytes",
        HEAVY: f"its records or messages take more than max_batch_work, {d.most_batch_work} bytes",
    }[stopped]


cdef object result_of(const Conversion *d, bint is_partial, object aborted):
    return DownConverted(bytes_of(d.out.data, d.out.size), d.records, d.first_offset,
            d.next_offset, d.at, is_partial, aborted)


def down_convert(buffer, to_magic, *, first_offset=0,
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES, aborted=(), position=0,
        max_bytes=None, bint check_crcs=False, max_work=None, max_batch_work=None, on_held=None):
    """Convert the whole batches from ``position`` on to messages of magic 0 or 1: a DownConverted.

    As Kafka 3.9 did for Fetch 0 to 3: offsets, keys, values and timestamps stay, control batches
    and headers are left out, of batches that are not compressed also records below
    ``first_offset``. zstd becomes gzip. It stops after the batch with which the output has
    ``max_bytes``; the next call goes on at the result's ``position``.

    ``aborted``: (producer id, first offset) of each aborted transaction of the response, for
    read_committed: their records are left out as Kafka's consumer leaves them out. Where it is an
    AbortedTransactions, the result has the same one, for the next call. ``check_crcs``: verify the
    checksum of each batch that is converted, since its messages get new ones.

    ``max_work``: stop after the batch with which this many bytes have been read, decompressed and
    written into wrappers, whatever the output has. ``max_batch_work``: a batch that decompresses to
    more bytes, or whose wrapper is to hold more, raises NotConverted with ``is_heavy``; a call
    without this argument may convert it.

    ``on_held``: called with the bytes that a compressed batch takes, each time before messages of
    it are compressed. They are free again when this function returns.

    A buffer that can change is copied batch by batch. Raises NotConverted, with the result of the
    batches before, where a batch cannot be read or decompresses to more than
    ``max_decompressed_bytes``; BatchvalError for arguments that are not allowed.
    """
    cdef Conversion d
    cdef Py_buffer view
    cdef size_t most = <size_t>-1
    cdef int stopped
    cdef AbortedTransactions transactions
    memset(&d, 0, sizeof(Conversion))
    d.to_magic = whole_number("to_magic", to_magic, 0, 1)
    d.least_offset = whole_number("first_offset", first_offset, INT64_MIN, INT64_MAX)
    d.first_offset = d.next_offset = d.least_offset
    d.limit = whole_number(
            "max_decompressed_bytes", max_decompressed_bytes, 0, MAX_DECOMPRESSED_LIMIT, "bytes")
    if max_bytes is not None:
        most = whole_number("max_bytes", max_bytes, 1, INT64_MAX, "bytes")
    d.most_work = d.most_batch_work = <uint64_t>-1
    if max_work is not None:
        d.most_work = whole_number("max_work", max_work, 1, INT64_MAX, "bytes")
    if max_batch_work is not None:
        d.most_batch_work = whole_number("max_batch_work", max_batch_work, 1, INT64_MAX, "bytes")
    if d.most_batch_work < d.limit:
        d.limit = d.most_batch_work
        d.limit_is_work = True
    d.check_crcs = check_crcs
    if isinstance(aborted, AbortedTransactions):
        transactions = aborted
    else:
        transactions = AbortedTransactions(aborted)
    if transactions.in_use:
        raise BatchvalError("aborted is in use by another call: one call at a time may use it")
    d.aborted = &transactions.all
    take_buffer(buffer, &view)
    transactions.in_use = True
    try:
        d.p = <const uint8_t *>view.buf
        d.size = view.len
        d.at = position_in(position, view.len)
        d.copies = not is_immutable(&view)
        d.scratch = borrow()
        try:
            stopped = convert_all(&d, most, on_held)
        finally:
            give_back(d.scratch)
        if stopped == NO_MEMORY_LEFT:
            raise MemoryError()
        result = result_of(&d, stopped == NO_BATCH_LEFT and d.at < d.size,
                transactions if transactions is aborted else transactions.not_ended())
    finally:
        transactions.in_use = False
        PyBuffer_Release(&view)
        release(&d)
    if stopped > NO_MEMORY_LEFT:
        error = NotConverted(
            f"the batch at byte {d.at} (offset {d.next_offset} expected) cannot be converted: "
            f"{why(stopped, &d)}")
        error.converted = result
        error.is_heavy = stopped == HEAVY
        raise error
    return result


cdef void release(Conversion *d) noexcept:
    with nogil:
        free(d.out.data)
        free(d.set.data)
        free(d.owned)
