"""The frame formats of Kafka's four codecs, walked as Kafka's own stream classes walk them.

    gzip     members one after the other (batchval.core.codecs.gzip)             GZIPInputStream
    snappy   82 "SNAPPY" 0 version:4 version:4 (size:4 BE, raw block)*, or one raw block
                                                                                 SnappyInputStream
    lz4      184D2204:4 LE flags:1 BD:1 [size:8] HC:1 (size:4 LE, block, [xxh32])* 0:4 [xxh32]
                                                                                 Lz4BlockInputStream
    zstd     (FD2FB528:4 LE header, blocks, [xxh64])*, skippable frames between
                                                                          ZstdInputStreamNoFinalizer

Bytes that those classes skip (after the end, lz4's content checksum) are skipped here too, and
noted for ``strict``. A length or window size in a header reserves no memory: output grows with the
bytes that come out.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy, memmove

from batchval.compression.native_pointers cimport Blocks
from batchval.core.format cimport reasons
from batchval.core.format.bytes cimport be32, le16, le24, le32, le64, span
from batchval.core.format.crc32c cimport crc32_of
from batchval.core.codecs.gzip cimport (
    INFLATE_BAD, INFLATE_DONE, INFLATE_HISTORY, INFLATE_SHORT, Inflate, gzip_header, inflate_on,
    inflate_open,
    inflate_size, next_gzip_member,
)
from batchval.core.format.layout cimport GZIP, LZ4, NONE, SNAPPY, ZSTD
from batchval.core.codecs.scratch cimport Scratch, arena_reserve, ring_reserve, spend
from batchval.core.codecs.snappy cimport SNAPPY_SLACK, snappy_decode, snappy_length
from batchval.core.format.xxh32 cimport xxh32_add, xxh32_of, xxh32_start, xxh32_value

from batchval.compression import packages

cdef enum:
    # What a byte of compressed input may cost, and a piece of a payload in addition to its bytes,
    # in bytes that are walked: tables are built, memory is taken.
    INPUT_WORK = 8
    PIECE_WORK = 1024
    LARGE_PIECE = 262144  # may come out of one piece; a larger one is announced before
    UNLOCK_ABOVE = 65536  # bytes to copy

    GZIP_WINDOW = 32768 + 262144  # history, and what one refill brings
    GZIP_MIN_REFILL = 65536  # no refill starts with less free space

    SNAPPY_MAX_CHUNK = 512 << 20
    # how far beyond the limit a chunk is still unpacked, for the bytes before it
    SNAPPY_OVERSHOOT = 4 << 20
    SNAPPY_MAX_EXPANSION = 22  # a copy element makes 64 bytes out of 3

    LZ4_MAGIC = 0x184D2204
    LZ4_DICTIONARY_OR_RESERVED = 3
    LZ4_CONTENT_CHECKSUM = 4
    LZ4_CONTENT_SIZE = 8
    LZ4_BLOCK_CHECKSUM = 16
    LZ4_INDEPENDENT = 32
    LZ4_MAX_EXPANSION = 255

    ZSTD_SKIPPABLE = 0x184D2A50
    ZSTD_BLOCK_MAXIMUM = 1 << 17
    ZSTD_BLOCK_HEADER = 1  # ZSTD_nextInputType_e
    ZSTD_LAST_BLOCK = 3
    ZSTD_WINDOW_MAXIMUM = (1 << 27) + 1
    ZSTD_JAVA_SOURCE = 131075  # what Kafka's stream class holds of the input at a time
    ZSTD_JAVA_CHUNK = 16384  # and what it asks for
    # level 3, as Kafka's producer writes it
    ZSTD_MIN_RING = (2 << 20) + 2 * ZSTD_BLOCK_MAXIMUM + 512

cdef enum:
    ZSTD_MAGIC = 0xFD2FB528


# ---- common ground -------------------------------------------------------------------------------

cdef inline bint ended(Stream *s, const uint8_t *after) noexcept nogil:
    """End the stream as Kafka sees it; bytes that are left are noted."""
    s.pending = ENDED
    s.overlong = after != s.source_end
    s.source = s.source_end
    return False


cdef inline bint damaged(Stream *s, int reason, int delivery, int64_t detail=0) noexcept nogil:
    s.pending = DAMAGED
    s.reason = reason
    s.delivery = delivery
    s.detail = detail
    s.throws = THROWS_KAFKA_EXCEPTION
    return False


cdef inline bint underflow(Stream *s) noexcept nogil:
    """Fail as Lz4BlockInputStream does where a checksum is missing: with a
    BufferUnderflowException, not an IOException.
    """
    damaged(s, reasons.LZ4_CUT_OFF, ALL_BEFORE)
    s.throws = THROWS_BUFFER_UNDERFLOW
    return False


cdef inline bint no_memory(Stream *s) noexcept nogil:
    s.pending = NO_MEMORY
    return False


cdef inline bint deliver(Stream *s, const uint8_t *p, uint64_t n) noexcept nogil:
    """Give new bytes to the reader. Those above the limit are withheld."""
    if n > s.limit - s.delivered:
        n = s.limit - s.delivered
        s.pending = LIMIT_HIT
    s.at = p
    s.end = p + n
    s.delivered += n
    return n > 0


cdef inline void halted(Stream *s) noexcept nogil:
    """Answer -1, as Kafka's stream class does here. It goes on at the next read."""
    s.soft_end = True
    s.halted = True
    s.mislabelled = True


cdef void open_stream(Stream *s, Scratch *scratch, int codec, int magic, const uint8_t *p, size_t n,
        uint64_t limit,
        bint keep) noexcept nogil:
    """Start at a payload's first byte. Where Kafka's stream class would throw already, the status
    is set.
    """
    s.at = p
    s.end = p
    s.delivered = 0
    s.status = MORE
    s.pending = MORE
    s.reason = reasons.NO_REASON
    s.detail = 0
    s.throws = THROWS_KAFKA_EXCEPTION
    s.delivery = ALL_BEFORE
    s.codec = codec
    s.magic = magic
    s.keep = keep
    s.soft_end = False
    s.soft_end_unread = False
    s.halted = False
    s.overlong = False
    s.mislabelled = False
    s.payload = p
    s.source = p
    s.source_end = p + n
    s.limit = limit
    s.scratch = scratch
    scratch.opened = NULL
    if codec == NONE:
        s.end = p + n
        s.delivered = n
        s.status = ENDED
        spend(scratch, n)
        return
    spend(scratch, n * INPUT_WORK)
    if codec == GZIP:
        open_gzip(s)
    elif codec == SNAPPY:
        open_snappy(s)
    elif codec == LZ4:
        open_lz4(s)
    else:
        s.state.zstd.in_frame = False
        s.state.zstd.ring_at = NULL
        s.state.zstd.whole_end = NULL
    if s.pending == DAMAGED or s.pending == NO_MEMORY:
        s.status = s.pending


cdef bint refill(Stream *s) noexcept nogil:
    """Bring the next bytes. Return False where there are none, with the reason in status.

    What the reader has not taken is lost, unless the arena keeps everything: then it stays before
    the new bytes.
    """
    cdef bint brought = False
    cdef uint64_t unread = span(s.at, s.end)
    if s.status != MORE:
        return False
    s.soft_end = False
    while not brought and s.pending == MORE and not s.soft_end:
        if s.codec == GZIP:
            brought = refill_gzip(s)
        elif s.codec == SNAPPY:
            brought = refill_snappy(s)
        elif s.codec == LZ4:
            brought = refill_lz4(s)
        elif s.scratch.blocks is not NULL:
            brought = refill_zstd(s)
        else:
            brought = refill_zstd_by_package(s)
        spend(s.scratch, span(s.at, s.end) + PIECE_WORK if brought else PIECE_WORK)
    if s.keep:
        s.end = s.scratch.arena + s.delivered
        s.at = (s.at if brought else s.end) - unread
    if not brought and not s.soft_end:
        s.status = s.pending
    return brought


cdef int unpack(Stream *s, Scratch *scratch, int codec, const uint8_t *source, size_t size,
        uint64_t limit) noexcept nogil:
    """Decompress all of a payload of magic 2 into the scratch's arena, ``s.delivered`` bytes.
    Return the final status.
    """
    open_stream(s, scratch, codec, 2, source, size, limit, True)
    while True:
        s.at = s.end
        if not refill(s) and not s.soft_end:
            return s.status


# ---- gzip ----------------------------------------------------------------------------------------

cdef bint open_member(Stream *s, const uint8_t *after_header) noexcept nogil:
    inflate_open(<Inflate *>s.scratch.inflate, after_header, s.source_end)
    s.state.gzip.produced = 0
    s.state.gzip.crc = 0
    return False


cdef bint open_gzip(Stream *s) noexcept nogil:
    cdef const uint8_t *after = gzip_header(s.source, s.source_end)
    if after is NULL:
        return damaged(s, reasons.GZIP_HEADER, ALL_BEFORE)
    if s.scratch.inflate is NULL:
        s.scratch.inflate = malloc(inflate_size())
        if s.scratch.inflate is NULL:
            return no_memory(s)
    s.state.gzip.at = 0
    s.state.gzip.fetched = after
    return open_member(s, after)


cdef inline void gzip_cut_off(Stream *s) noexcept nogil:
    damaged(s, reasons.GZIP_CUT_OFF, ALL_BEFORE)
    s.throws = THROWS_EOF


cdef bint refill_gzip(Stream *s) noexcept nogil:
    cdef Inflate *inflate = <Inflate *>s.scratch.inflate
    cdef size_t at = s.state.gzip.at, begin, end
    cdef uint64_t left = s.limit - s.delivered
    cdef const uint8_t *p
    cdef int status
    if not arena_reserve(s.scratch, at + GZIP_MIN_REFILL if s.keep else GZIP_WINDOW):
        return no_memory(s)
    end = s.scratch.arena_size if s.keep else GZIP_WINDOW
    if end - at < GZIP_MIN_REFILL:
        memmove(s.scratch.arena, s.scratch.arena + at - INFLATE_HISTORY, INFLATE_HISTORY)
        at = INFLATE_HISTORY
    if end - at > left + 1:
        end = at + left + 1
    begin = at
    status = inflate_on(inflate, s.scratch.arena, &at, end)
    s.state.gzip.at = at
    s.state.gzip.produced += at - begin
    s.state.gzip.crc = crc32_of(s.state.gzip.crc, s.scratch.arena + begin, at - begin)
    if status == INFLATE_SHORT:
        gzip_cut_off(s)
    elif status == INFLATE_BAD:
        damaged(s, reasons.GZIP_DATA, LOST_ABRUPTLY)
    elif status == INFLATE_DONE:
        p = inflate.at
        if span(p, s.source_end) < 8:
            gzip_cut_off(s)
        elif le32(p) != s.state.gzip.crc or le32(p + 4) != <uint32_t>s.state.gzip.produced:
            damaged(s, reasons.GZIP_TRAILER, ALL_BEFORE)
        else:
            # Another member may follow; anything else ends the stream without an error.
            s.source = p + 8
            p = next_gzip_member(
                    p, s.source_end, &s.state.gzip.fetched, not s.scratch.unbuffered)
            if p is NULL:
                ended(s, s.source)
            else:
                open_member(s, p)
    return deliver(s, s.scratch.arena + begin, at - begin)


# ---- snappy --------------------------------------------------------------------------------------

cdef const uint8_t *SNAPPY_HEADER = b"\x82SNAPPY\x00"
cdef enum:
    SNAPPY_HEADER_SIZE = 16  # the eight bytes, version:4, compatible version:4


cdef bint open_snappy(Stream *s) noexcept nogil:
    cdef uint64_t n = span(s.source, s.source_end)
    if n == 0:
        return damaged(s, reasons.STREAM_EMPTY, ALL_BEFORE)
    s.state.xerial = n >= SNAPPY_HEADER_SIZE and memcmp(s.source, SNAPPY_HEADER, 8) == 0
    if s.state.xerial:
        s.source += SNAPPY_HEADER_SIZE  # the first header's versions are not read
        return False
    # The whole payload is one raw block, which Kafka unpacks before it reads the first record.
    if snappy_block(s, n):
        s.pending = ENDED if s.pending == MORE else s.pending
    return False


cdef bint snappy_block(Stream *s, uint64_t n) noexcept nogil:
    """Unpack the block of `n` bytes at `source` and deliver it. Return False where no byte came
    out, or where it is damaged.
    """
    cdef int header = 0
    cdef int64_t length = snappy_length(s.source, n, &header)
    cdef uint64_t base = s.delivered if s.keep else 0
    if length < 0 or length > SNAPPY_MAX_EXPANSION * <int64_t>n:
        return damaged(s, reasons.SNAPPY_BLOCK, LOST_ABRUPTLY)
    if length > SNAPPY_OVERSHOOT and <uint64_t>length - SNAPPY_OVERSHOOT > s.limit - s.delivered:
        s.pending = LIMIT_HIT
        return False
    if not arena_reserve(s.scratch, base + length + SNAPPY_SLACK):
        return no_memory(s)
    if length > LARGE_PIECE:
        spend(s.scratch, length)
    if not snappy_decode(s.source + header, n - header, s.scratch.arena + base, length):
        return damaged(s, reasons.SNAPPY_BLOCK, LOST_ABRUPTLY)
    s.source += n
    return deliver(s, s.scratch.arena + base, length)


cdef bint refill_snappy(Stream *s) noexcept nogil:
    cdef int64_t size
    cdef uint64_t left = span(s.source, s.source_end)
    if not s.state.xerial:
        s.pending = ENDED
        return False
    if left < 4:
        return ended(s, s.source)
    size = be32(s.source)
    if size == be32(SNAPPY_HEADER):
        # A second stream after the first: here the versions do count.
        if left < SNAPPY_HEADER_SIZE:
            return damaged(s, reasons.SNAPPY_CUT_OFF, LOST_ABRUPTLY)
        s.source += SNAPPY_HEADER_SIZE
        if memcmp(s.source - SNAPPY_HEADER_SIZE, SNAPPY_HEADER, 8) != 0:
            halted(s)
        elif be32(s.source - 8) < 1:
            return damaged(s, reasons.SNAPPY_HEADER, LOST_ABRUPTLY)
        return False
    if size < 0 or size > SNAPPY_MAX_CHUNK:
        return damaged(s, reasons.SNAPPY_CHUNK_SIZE, LOST_ABRUPTLY, size)
    if <uint64_t>size > left - 4:
        return damaged(s, reasons.SNAPPY_CUT_OFF, LOST_ABRUPTLY)
    s.source += 4
    return snappy_block(s, size)


# ---- lz4 -----------------------------------------------------------------------------------------

cdef bint open_lz4(Stream *s) noexcept nogil:
    cdef const uint8_t *p = s.source
    cdef uint8_t flags, block_descriptor
    cdef uint64_t descriptor = 2
    if span(p, s.source_end) < 6:
        return damaged(s, reasons.LZ4_CUT_OFF, ALL_BEFORE)
    if le32(p) != <uint32_t>LZ4_MAGIC:
        return damaged(s, reasons.LZ4_MAGIC, ALL_BEFORE)
    flags = p[4]
    block_descriptor = p[5]
    if flags & LZ4_DICTIONARY_OR_RESERVED or not flags & LZ4_INDEPENDENT or flags >> 6 != 1:
        return damaged(s, reasons.LZ4_DESCRIPTOR, ALL_BEFORE)
    if block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        return damaged(s, reasons.LZ4_DESCRIPTOR, ALL_BEFORE)
    s.state.lz4.flags = flags
    s.state.lz4.block_maximum = <uint32_t>1 << (8 + 2 * (block_descriptor >> 4))
    if flags & LZ4_CONTENT_SIZE:
        descriptor += 8
        if span(p, s.source_end) < 4 + descriptor:
            return damaged(s, reasons.LZ4_CUT_OFF, ALL_BEFORE)
        s.state.lz4.content_size = le64(p + 6)
    if s.magic != 0:  # clients of magic 0 wrote a wrong checksum, which Kafka forgives
        if span(p, s.source_end) < 4 + descriptor + 1:
            return damaged(s, reasons.LZ4_CUT_OFF, ALL_BEFORE)
        if p[4 + descriptor] != <uint8_t>(xxh32_of(p + 4, descriptor) >> 8):
            return damaged(s, reasons.LZ4_DESCRIPTOR_CHECKSUM, ALL_BEFORE)
    elif span(p, s.source_end) < 4 + descriptor + 1:
        return damaged(s, reasons.LZ4_CUT_OFF, ALL_BEFORE)
    s.source = p + 4 + descriptor + 1
    if flags & LZ4_CONTENT_CHECKSUM:
        xxh32_start(&s.state.lz4.content)
    return False


cdef bint end_lz4(Stream *s) noexcept nogil:
    if s.state.lz4.flags & LZ4_CONTENT_CHECKSUM:
        if span(s.source, s.source_end) < 4:
            return underflow(s)
        if le32(s.source) != xxh32_value(&s.state.lz4.content):
            s.mislabelled = True
        s.source += 4
    if s.state.lz4.flags & LZ4_CONTENT_SIZE and s.state.lz4.content_size != s.delivered:
        s.mislabelled = True
    return ended(s, s.source)


cdef int64_t lz4_block_by_package(Stream *s, const uint8_t *p, uint32_t size, uint32_t capacity,
        uint64_t base) noexcept with gil:
    """Decompress a block as LZ4_decompress_safe does, through Python."""
    cdef bytes block
    try:
        block = packages.lz4_block(PyBytes_FromStringAndSize(<const char *>p, size), capacity)
    except packages.LZ4_ERRORS:
        return -1
    copy_unlocked(s.scratch.arena + base, <const uint8_t *>PyBytes_AS_STRING(block),
            PyBytes_GET_SIZE(block))
    return PyBytes_GET_SIZE(block)


cdef bint refill_lz4(Stream *s) noexcept nogil:
    cdef const uint8_t *p
    cdef uint32_t size, capacity
    cdef bint stored
    cdef int64_t n
    cdef uint64_t base = s.delivered if s.keep else 0
    if span(s.source, s.source_end) < 4:
        return damaged(s, reasons.LZ4_CUT_OFF, ALL_BEFORE)
    size = le32(s.source)
    stored = size >> 31
    size &= 0x7FFFFFFF
    s.source += 4
    if size == 0:
        return end_lz4(s)
    if size > s.state.lz4.block_maximum:
        return damaged(s, reasons.LZ4_BLOCK_SIZE, ALL_BEFORE, size)
    if span(s.source, s.source_end) < size:
        return damaged(s, reasons.LZ4_CUT_OFF, ALL_BEFORE)
    p = s.source
    if stored:
        n = size
        if s.keep:
            if not arena_reserve(s.scratch, base + size):
                return no_memory(s)
            memcpy(s.scratch.arena + base, p, size)
    else:
        # no block makes more than 255 bytes out of one: what it may make is never more than it can
        capacity = s.state.lz4.block_maximum
        if <uint64_t>size * LZ4_MAX_EXPANSION < capacity:
            capacity = size * LZ4_MAX_EXPANSION
        if not arena_reserve(s.scratch, base + capacity):
            return no_memory(s)
        if capacity > LARGE_PIECE:
            spend(s.scratch, capacity)
        if s.scratch.blocks is not NULL:
            n = s.scratch.blocks.lz4_decompress_safe(
                    <const char *>p, <char *>s.scratch.arena + base, <int>size, <int>capacity)
        else:
            n = lz4_block_by_package(s, p, size, capacity, base)
        if n < 0:
            return damaged(s, reasons.LZ4_BLOCK, ALL_BEFORE)
    s.source += size
    if s.state.lz4.flags & LZ4_BLOCK_CHECKSUM:
        if span(s.source, s.source_end) < 4:
            return underflow(s)
        if le32(s.source) != xxh32_of(p, size):
            return damaged(s, reasons.LZ4_BLOCK_CHECKSUM, ALL_BEFORE)
        s.source += 4
    if n == 0:
        halted(s)
        return False
    if not stored or s.keep:
        p = s.scratch.arena + base
    if s.state.lz4.flags & LZ4_CONTENT_CHECKSUM:
        xxh32_add(&s.state.lz4.content, p, n)
    return deliver(s, p, n)


# ---- zstd ----------------------------------------------------------------------------------------

cdef struct FrameHeader:
    uint64_t size
    uint64_t window
    int64_t content_size  # -1: not stated
    bint has_checksum
    bint skippable


cdef bint may_become_a_frame(const uint8_t *p, uint64_t n) noexcept nogil:
    """Return whether these few bytes are the start of one of the two magic numbers."""
    cdef uint8_t[4] start
    if n >= 4:
        return le32(p) == <uint32_t>ZSTD_MAGIC or le32(p) & 0xFFFFFFF0U == <uint32_t>ZSTD_SKIPPABLE
    start[0:4] = [0x28, 0xB5, 0x2F, 0xFD]
    if memcmp(p, start, n) == 0:
        return True
    start[0:4] = [0x50, 0x2A, 0x4D, 0x18]
    start[0] |= p[0] & 0x0F
    return memcmp(p, start, n) == 0


cdef int zstd_frame_header(const uint8_t *p, uint64_t n, FrameHeader *h) noexcept nogil:
    """Read a frame header. Return a reason, or 0. A frame is: magic:4, descriptor:1, [window:1],
    [dictionary id], [content size].
    """
    cdef uint8_t descriptor
    cdef int content_size_bytes, dictionary_bytes
    cdef uint64_t content
    if n < 5:
        return reasons.ZSTD_CUT_OFF if may_become_a_frame(p, n) else reasons.ZSTD_MAGIC
    if le32(p) & 0xFFFFFFF0U == <uint32_t>ZSTD_SKIPPABLE:
        if n < 8:
            return reasons.ZSTD_CUT_OFF
        h.skippable = True
        h.size = 8 + <uint64_t>le32(p + 4)
        return reasons.NO_REASON if h.size <= n else reasons.ZSTD_CUT_OFF
    if le32(p) != <uint32_t>ZSTD_MAGIC:
        return reasons.ZSTD_MAGIC
    descriptor = p[4]
    h.skippable = False
    h.has_checksum = descriptor & 4
    content_size_bytes = 1 << (descriptor >> 6) if descriptor >> 6 or descriptor & 32 else 0
    dictionary_bytes = 1 << (descriptor & 3) >> 1  # none, 1, 2, 4
    h.size = 5 + dictionary_bytes + content_size_bytes + (0 if descriptor & 32 else 1)
    if n < h.size:
        return reasons.ZSTD_CUT_OFF
    if descriptor & 8:  # a reserved bit, which zstd checks only in a whole header
        return reasons.ZSTD_FRAME_HEADER
    h.content_size = -1
    if content_size_bytes:
        p += h.size - content_size_bytes
        if content_size_bytes == 1:
            content = p[0]
        elif content_size_bytes == 2:
            content = le16(p) + 256
        elif content_size_bytes == 4:
            content = le32(p)
        else:
            content = le64(p)
        h.content_size = <int64_t>content if content <= <uint64_t>UNLIMITED else <int64_t>UNLIMITED
        p -= h.size - content_size_bytes
        h.window = content
    if not descriptor & 32:
        h.window = <uint64_t>1 << (10 + (p[5] >> 3))
        h.window += (h.window >> 3) * (p[5] & 7)
    return reasons.NO_REASON


cdef uint64_t zstd_frame_size(const uint8_t *p, const uint8_t *end,
        const FrameHeader *h) noexcept nogil:
    """Return the bytes of the whole frame, 0 where it is cut off or a block header is invalid; no
    block is opened.
    """
    cdef const uint8_t *start = p
    cdef uint32_t block
    p += h.size
    while True:
        if span(p, end) < 3:
            return 0
        block = le24(p)
        p += 3
        if block >> 1 & 3 == 3 or span(p, end) < (1 if block >> 1 & 3 == 1 else block >> 3):
            return 0
        p += 1 if block >> 1 & 3 == 1 else block >> 3
        if block & 1:
            break
    if h.has_checksum:
        if span(p, end) < 4:
            return 0
        p += 4
    return p - start


cdef bint zstd_cut_off(Stream *s) noexcept nogil:
    """End a payload that ends inside a frame. Kafka's stream class lowers its flag of a whole frame
    only when it fetches input: if one ended in the same fetch, it takes this for the end.
    """
    cdef uint64_t size = s.source_end - s.payload
    cdef uint64_t last_fetch = (size - 1) // ZSTD_JAVA_SOURCE * ZSTD_JAVA_SOURCE if size else 0
    if s.state.zstd.whole_end is NULL or <uint64_t>(s.state.zstd.whole_end - s.payload) <= last_fetch:
        return damaged(s, reasons.ZSTD_CUT_OFF, ALL_BEFORE)
    ended(s, s.source)
    s.overlong = True
    return False


cdef bint open_zstd_frame(Stream *s, FrameHeader *h) noexcept nogil:
    """Read the header at `source`. Return True where a frame with content starts; else the stream
    is after it.
    """
    cdef int reason
    if s.source == s.source_end:
        return ended(s, s.source)
    # The bytes before `source` were delivered with their frame, so any content may follow.
    s.state.zstd.frame_start = s.delivered
    reason = zstd_frame_header(s.source, span(s.source, s.source_end), h)
    if reason == reasons.ZSTD_CUT_OFF:
        return zstd_cut_off(s)
    if reason:
        return damaged(s, reason, LOST_ABRUPTLY)
    if h.skippable:
        s.source += h.size
        s.state.zstd.whole_end = s.source
        return False
    return True


cdef bint refill_zstd(Stream *s) noexcept nogil:
    """Decompress one block. The ring is both output and window, so the frame's window size costs
    nothing by itself.
    """
    cdef FrameHeader h
    cdef uint64_t size, reserve, history, here
    cdef size_t n, need, capacity
    cdef int kind
    cdef uint8_t *to
    cdef const Blocks *blocks = s.scratch.blocks
    if s.scratch.zstd_dctx is NULL:
        s.scratch.zstd_dctx = blocks.zstd_create_dctx()
        if s.scratch.zstd_dctx is NULL:
            return no_memory(s)
    if not s.state.zstd.in_frame:
        if not open_zstd_frame(s, &h):
            return False
        # Kafka's library decodes a small whole frame in one pass, and then checks neither window
        # nor block sizes.
        if 0 <= h.content_size <= ZSTD_JAVA_CHUNK:
            size = zstd_frame_size(s.source, s.source_end, &h)
            if 0 < size <= ZSTD_JAVA_SOURCE:
                if not ring_reserve(s.scratch, ZSTD_MIN_RING):
                    return no_memory(s)
                n = blocks.zstd_decompress_dctx(
                        s.scratch.zstd_dctx, s.scratch.ring, h.content_size, s.source, size)
                if blocks.zstd_is_error(n):
                    return damaged(s, reasons.ZSTD_BLOCK, LOST_ABRUPTLY)
                s.source += size
                s.state.zstd.whole_end = s.source
                if h.window > ZSTD_WINDOW_MAXIMUM:
                    s.mislabelled = True
                return deliver_from_ring(s, s.scratch.ring, n)
        if h.window > ZSTD_WINDOW_MAXIMUM:
            return damaged(s, reasons.ZSTD_WINDOW, LOST_ABRUPTLY, <int64_t>h.window)
        # No match reaches further back than what was produced, and no more than the limit is
        # produced.
        history = h.window
        if s.limit - s.delivered < history:
            history = s.limit - s.delivered
        reserve = history + 2 * ZSTD_BLOCK_MAXIMUM + 512
        if not ring_reserve(s.scratch, reserve if reserve > ZSTD_MIN_RING else ZSTD_MIN_RING):
            return no_memory(s)
        s.state.zstd.ring_at = s.scratch.ring
        s.state.zstd.in_frame = True
        s.state.zstd.raw_block = False
        # Where the whole content would fit Kafka's window buffer, that buffer is as large as the
        # stated content.
        history = 2 * (h.window if h.window < ZSTD_BLOCK_MAXIMUM else ZSTD_BLOCK_MAXIMUM) + h.window + 64
        s.state.zstd.content_left = h.content_size if 0 <= h.content_size <= <int64_t>history else <uint64_t>UNLIMITED
        blocks.zstd_decompress_begin(s.scratch.zstd_dctx)
    while True:
        need = blocks.zstd_next_src_size(s.scratch.zstd_dctx)
        if need == 0:
            s.state.zstd.in_frame = False
            s.state.zstd.whole_end = s.source
            return False
        here = span(s.source, s.source_end)
        kind = blocks.zstd_next_input_type(s.scratch.zstd_dctx)
        if kind == ZSTD_BLOCK_HEADER:
            s.state.zstd.raw_block = here > 0 and s.source[0] & 6 == 0
        # but not of a checksum
        elif s.state.zstd.raw_block and kind <= ZSTD_LAST_BLOCK and 0 < here < need:
            need = here
        if here < need:
            return zstd_cut_off(s)
        if s.state.zstd.ring_at + ZSTD_BLOCK_MAXIMUM + 64 > s.scratch.ring + s.scratch.ring_size:
            s.state.zstd.ring_at = s.scratch.ring
        to = s.state.zstd.ring_at
        capacity = s.scratch.ring + s.scratch.ring_size - to
        if s.state.zstd.content_left < capacity:
            capacity = s.state.zstd.content_left
        n = blocks.zstd_decompress_continue(s.scratch.zstd_dctx, to, capacity, s.source, need)
        if blocks.zstd_is_error(n):
            return damaged(s, reasons.ZSTD_BLOCK, LOST_ABRUPTLY)
        s.source += need
        if n:
            s.state.zstd.content_left -= n
            s.state.zstd.ring_at += n
            return deliver_from_ring(s, to, n)
        if kind != ZSTD_BLOCK_HEADER:
            spend(s.scratch, PIECE_WORK)  # tables may have been built for nothing


cdef bint deliver_from_ring(Stream *s, const uint8_t *p, uint64_t n) noexcept nogil:
    if not s.keep:
        return deliver(s, p, n)
    if not arena_reserve(s.scratch, s.delivered + n):
        return no_memory(s)
    memcpy(s.scratch.arena + s.delivered, p, n)
    return deliver(s, s.scratch.arena + s.delivered, n)


cdef bint refill_zstd_by_package(Stream *s) noexcept with gil:
    """Decompress up to ZSTD_JAVA_CHUNK bytes, through Python. The answers are those of refill_zstd.
    """
    cdef FrameHeader h
    cdef uint64_t base = s.delivered if s.keep else 0, n
    cdef bint small, grown
    try:
        if not s.state.zstd.in_frame:
            if not open_zstd_frame(s, &h):
                return False
            n = zstd_frame_size(s.source, s.source_end, &h)
            small = 0 <= h.content_size <= ZSTD_JAVA_CHUNK and 0 < n <= ZSTD_JAVA_SOURCE
            if h.window > ZSTD_WINDOW_MAXIMUM:
                if not small:
                    return damaged(s, reasons.ZSTD_WINDOW, LOST_ABRUPTLY, <int64_t>h.window)
                s.mislabelled = True
            s.state.zstd.whole_size = n
            # Only this frame is copied: copying all that is left, for each of many small frames,
            # would be quadratic.
            n = n if n else span(s.source, s.source_end)
            content = PyBytes_FromStringAndSize(NULL, n)
            copy_unlocked(<uint8_t *>PyBytes_AS_STRING(content), s.source, n)
            keep_frame(s.scratch, packages.ZstdFrame(content, s.state.zstd.whole_size == 0))
            s.state.zstd.in_frame = True
        frame = <object>s.scratch.zstd_frame
        with nogil:  # what there is may be copied
            grown = arena_reserve(s.scratch, base + ZSTD_JAVA_CHUNK)
        if not grown:
            return no_memory(s)
        n = frame.readinto(PyMemoryView_FromMemory(
                <char *>s.scratch.arena + base, ZSTD_JAVA_CHUNK, PyBUF_WRITE))
        if frame.damaged:
            damaged(s, reasons.ZSTD_BLOCK, LOST_ABRUPTLY)
        elif n < ZSTD_JAVA_CHUNK:
            keep_frame(s.scratch, None)
            s.state.zstd.in_frame = False
            if s.state.zstd.whole_size == 0:
                zstd_cut_off(s)
            else:
                s.source += s.state.zstd.whole_size
                s.state.zstd.whole_end = s.source
    except MemoryError:
        return no_memory(s)
    return deliver(s, s.scratch.arena + base, n)


cdef int keep_frame(Scratch *scratch, frame) except -1:
    """Keep the decoder for the next refill, in place of the one before."""
    if scratch.zstd_frame is not NULL:
        Py_DECREF(<object>scratch.zstd_frame)
        scratch.zstd_frame = NULL
    if frame is not None:
        Py_INCREF(frame)
        scratch.zstd_frame = <void *>frame
    return 0


cdef void copy_unlocked(uint8_t *to, const uint8_t *source, size_t n) noexcept:
    """Copy bytes as memcpy does; others may have the GIL while it is long."""
    if n < UNLOCK_ABOVE:
        memcpy(to, source, n)
        return
    with nogil:
        memcpy(to, source, n)


# ---- what a frame says of itself -----------------------------------------------------------------

cdef uint64_t stated_size(int codec, const uint8_t *p, uint64_t n) noexcept nogil:
    """Return the decompressed size that the first zstd or lz4 frame states; 0 where none does. It
    has not been verified.
    """
    cdef FrameHeader h
    if codec == LZ4 and n >= 14 and le32(p) == <uint32_t>LZ4_MAGIC and p[4] & LZ4_CONTENT_SIZE:
        return le64(p + 6)
    while codec == ZSTD and zstd_frame_header(p, n, &h) == reasons.NO_REASON:
        if not h.skippable:
            return <uint64_t>h.content_size if h.content_size > 0 else 0
        p += h.size
        n -= h.size
    return 0
