"""A compressed payload as its reader sees it: block after block, in memory that is used again."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.codecs.scratch cimport Scratch
from batchval.core.format.xxh32 cimport Xxh32

cdef enum:  # Stream.status
    MORE
    ENDED  # Kafka's stream classes would answer -1: end of stream
    DAMAGED  # they would throw
    LIMIT_HIT  # more than `limit` bytes
    NO_MEMORY

cdef enum:  # what Kafka's stream classes throw on damage
    THROWS_KAFKA_EXCEPTION
    THROWS_EOF  # which older releases take for a malformed record
    THROWS_BUFFER_UNDERFLOW  # which DefaultRecord takes for a malformed record

# how many of the good bytes before the damage Kafka gets to see (batchval.core.records.replay)
cdef enum:
    ALL_BEFORE
    LOST_ABRUPTLY

cdef enum:
    UNLIMITED = 0x7FFFFFFFFFFFFFFF

cdef struct GzipState:
    uint64_t produced  # by this member
    uint32_t crc
    size_t at  # where in the arena the next bytes go
    # end of what Java has read of the payload when the member's deflate data begin
    const uint8_t *fetched

cdef struct Lz4State:
    uint32_t block_maximum
    uint8_t flags
    uint64_t content_size  # where the flags say that it is stated
    Xxh32 content

cdef struct ZstdState:
    bint in_frame
    uint8_t *ring_at
    bint raw_block  # whose bytes Kafka's library hands on as they come, even if the end is missing
    uint64_t frame_start  # position in the stream of the frame's first byte
    uint64_t content_left  # of the stated content, where Kafka's buffer is not larger
    const uint8_t *whole_end  # after the last whole frame
    uint64_t whole_size  # bytes of the frame that the package decodes, 0 where it is cut off

cdef union CodecState:
    GzipState gzip
    Lz4State lz4
    ZstdState zstd
    bint xerial

cdef struct Stream:
    const uint8_t *at  # the next byte for the reader
    const uint8_t *end  # after the last one that is there
    uint64_t delivered  # bytes up to `end`, from the stream's start
    int32_t status
    int32_t pending  # status to take when `at` has reached `end`
    int32_t reason  # batchval.core.format.reasons, with its number in detail
    int64_t detail
    uint8_t throws
    uint8_t delivery
    uint8_t codec
    uint8_t magic
    bint keep  # the arena keeps everything; else bytes before `at` are dropped
    bint soft_end  # Kafka would see one -1 here and then go on
    bint soft_end_unread  # it was met, but that -1 was not read yet
    bint halted  # there was a soft end: batchval.core.records.chunked has what Kafka reads
    bint overlong  # bytes after the end, which Kafka never reads
    bint mislabelled  # something that Kafka does not check is wrong
    const uint8_t *payload
    const uint8_t *source
    const uint8_t *source_end
    uint64_t limit
    Scratch *scratch
    CodecState state

cdef void open_stream(Stream *s, Scratch *scratch, int codec, int magic, const uint8_t *p, size_t n,
        uint64_t limit,
        bint keep) noexcept nogil
cdef bint refill(Stream *s) noexcept nogil
cdef int unpack(Stream *s, Scratch *scratch, int codec, const uint8_t *source, size_t size,
        uint64_t limit) noexcept nogil
cdef uint64_t stated_size(int codec, const uint8_t *p, uint64_t n) noexcept nogil

cdef void copy_unlocked(uint8_t *to, const uint8_t *source, size_t n) noexcept

cdef inline uint64_t position(const Stream *s) noexcept nogil:
    """Return how many bytes the reader has taken."""
    return s.delivered - <uint64_t>(s.end - s.at)
