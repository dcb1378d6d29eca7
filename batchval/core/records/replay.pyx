"""The order of a malformed record and a damaged stream in one payload.

Kafka reads a payload in chunks, and a read that reaches damage delivers nothing, not even the good
bytes before it. So a record that does not parse is answered with INVALID_RECORD if its bytes had
arrived, and with UNKNOWN_SERVER_ERROR if the chunk that held them also held the damage. The size of
the chunks matters only for a batch with both faults; this module then replays the reads, by
position alone:

    ChunkedBytesStream   fills 16384 bytes (gzip, zstd) or 2048 (snappy); larger wishes go past it,
                         straight down
    GZIPInputStream      inflates from 8192 bytes of input at a time, and stops there or at the end
                         of a member
    SnappyInputStream    goes on into the next chunk until the wish is filled
    ZstdInputStream      stops at the end of a frame; decodes the block after the wish if its bytes
                         are there
    Lz4BlockInputStream  stops at the end of a block, so all before the damage arrives

Before ChunkedBytesStream a BufferedInputStream did the same for gzip and zstd, and nothing stood
before SnappyInputStream.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove

from batchval.core.format.bytes cimport be32, span
from batchval.core.codecs.codec_streams cimport (
    DAMAGED, LOST_ABRUPTLY, THROWS_EOF, Stream, open_stream, refill,
)
from batchval.core.codecs.gzip cimport (
    INFLATE_BAD, INFLATE_DONE, INFLATE_FULL, INFLATE_HISTORY, JAVA_INPUT, Inflate, gzip_header,
    inflate_on, inflate_open, next_gzip_member,
)
from batchval.core.format.header cimport Entry
from batchval.core.format.layout cimport (
    ATTRIBUTES, CODEC_MASK, GZIP, LEGACY_ATTRIBUTES, LOG_OVERHEAD, LZ4, NONE, RECORDS, SNAPPY, ZSTD,
)
from batchval.core.records.legacy cimport legacy_value
from batchval.core.records.records cimport STREAM_PARSER, Facts
from batchval.core.codecs.scratch cimport Scratch

cdef enum:
    MAX_FILL = 16384
    SNAPPY_FILL = 2048

    AHEAD_WINDOW = 65536

cdef struct GzipAhead:  # inflates as far as the input allows that Java has read
    Inflate *inflate
    uint8_t *window
    size_t window_at
    const uint8_t *input_end  # after what Java has read
    uint64_t produced  # all members together
    bint sees_more  # of next_gzip_member
    int status  # INFLATE_SHORT: more input is wanted; INFLATE_DONE: the member's end; INFLATE_BAD

cdef struct Replay:
    int codec
    # Position of the first byte that never comes, and how many the arena holds where it keeps them.
    uint64_t damage
    bint abrupt  # good bytes of the failing read are lost
    uint64_t frame_start  # zstd: the damaged frame's first byte
    const uint8_t *payload
    const uint8_t *payload_end
    GzipAhead *gzip
    uint64_t fill  # ChunkedBytesStream's buffer
    uint64_t source_at  # what the codec's stream has delivered
    uint64_t buffered  # of that, what ChunkedBytesStream still holds


cdef void look_ahead(GzipAhead *g) noexcept nogil:
    """Inflate until the input that Java holds is used up, or the member ends."""
    cdef size_t before
    g.inflate.end = g.input_end
    while True:
        before = g.window_at
        g.status = inflate_on(g.inflate, g.window, &g.window_at, AHEAD_WINDOW)
        g.produced += g.window_at - before
        if g.status != INFLATE_FULL:
            return
        memmove(g.window, g.window + g.window_at - INFLATE_HISTORY, INFLATE_HISTORY)
        g.window_at = INFLATE_HISTORY


cdef bint next_member(Replay *r) noexcept nogil:
    """Read after a member's end: its trailer, and the next header. Return False where Java throws
    or ends.
    """
    cdef GzipAhead *g = r.gzip
    cdef const uint8_t *after
    if r.damage == g.produced or span(g.inflate.at, r.payload_end) < 8:
        return False
    after = next_gzip_member(
            g.inflate.at, r.payload_end, &g.input_end, g.sees_more)
    if after is NULL:
        return False
    inflate_open(g.inflate, after, g.input_end)
    g.window_at = 0
    return True


cdef uint64_t read_gzip(Replay *r, uint64_t wish) noexcept nogil:
    cdef GzipAhead *g = r.gzip
    cdef uint64_t at = r.source_at
    while True:
        if g.status == INFLATE_BAD:
            # zlib goes on to the next symbol even when the output is full.
            return 0 if at + wish >= g.produced else wish
        if at < g.produced:
            return wish if wish < g.produced - at else g.produced - at
        if g.status == INFLATE_DONE:
            if not next_member(r):
                return 0
        elif g.input_end == r.payload_end:
            return 0
        else:
            g.input_end = g.input_end + JAVA_INPUT if span(g.input_end,
                    r.payload_end) > JAVA_INPUT else r.payload_end
        look_ahead(g)


cdef bint start_gzip(Replay *r, GzipAhead *g, Scratch *scratch) noexcept nogil:
    cdef const uint8_t *after = gzip_header(r.payload, r.payload_end)
    if after is NULL or scratch.inflate is NULL:  # it was one a moment ago: the buffer has changed
        return False
    g.window = <uint8_t *>malloc(AHEAD_WINDOW)
    if g.window is NULL:
        return False
    g.inflate = <Inflate *>scratch.inflate
    g.window_at = 0
    g.input_end = after
    g.produced = 0
    g.sees_more = not scratch.unbuffered
    inflate_open(g.inflate, after, after)
    look_ahead(g)
    r.gzip = g
    return True


cdef uint64_t read_down(Replay *r, uint64_t wish) noexcept nogil:
    """Replay one read of the codec's stream. Return how many bytes it delivers, 0 where it throws.
    """
    cdef uint64_t at = r.source_at, n = wish
    if r.codec == GZIP:
        n = read_gzip(r, wish)
    elif r.codec == ZSTD:
        if at < r.frame_start:
            # Frames before the damaged one are whole. Where exactly each ends only shifts where
            # fills begin.
            n = wish if wish < r.frame_start - at else r.frame_start - at
        elif r.abrupt:
            n = 0 if at + wish >= r.damage else wish
        else:
            n = wish if wish < r.damage - at else r.damage - at
    else:
        n = 0 if at + wish > r.damage else wish
    r.source_at += n
    return n


cdef bint take_byte(Replay *r) noexcept nogil:
    cdef uint64_t n
    if r.buffered == 0:
        n = read_down(r, r.fill)
        if n == 0:
            return False
        r.buffered = n
    r.buffered -= 1
    return True


cdef bint take_bulk(Replay *r, uint64_t n) noexcept nogil:
    """Follow Utils.readFully over ChunkedBytesStream.read."""
    cdef uint64_t got
    while n:
        if r.buffered == 0:
            got = read_down(r, n if n >= r.fill else r.fill)
            if got == 0:
                return False
            if n >= r.fill:
                n -= got
                continue
            r.buffered = got
        got = n if n < r.buffered else r.buffered
        r.buffered -= got
        n -= got
    return True


cdef int find_damage(Replay *r, Scratch *scratch, int magic, uint64_t needed, uint64_t limit,
        bint keep) noexcept nogil:
    """Decode up to one chunk after what was needed. Return DAMAGE_FIRST where there is damage by
    then, with its place in r.
    """
    cdef Stream s
    open_stream(&s, scratch, r.codec, magic, r.payload, span(r.payload, r.payload_end), limit, keep)
    while s.delivered <= needed + MAX_FILL:
        s.at = s.end
        if not refill(&s):
            if not s.soft_end:
                break
            # No read goes on from here before all is there.
            return RECORD_FIRST if s.delivered >= needed else HALTS_FIRST
    if scratch.unbuffered and magic == 2 and s.throws == THROWS_EOF:
        return RECORD_FIRST  # either is INVALID_RECORD
    r.damage = s.delivered
    r.abrupt = s.delivery == LOST_ABRUPTLY
    r.frame_start = s.state.zstd.frame_start if r.codec == ZSTD else 0
    return DAMAGE_FIRST if s.status == DAMAGED else RECORD_FIRST


cdef bint bytes_arrive(Replay *r, uint64_t needed) noexcept nogil:
    """Return whether the bytes arrive for the skip parser: every byte comes through the buffer."""
    cdef uint64_t at = 0
    while at < needed:
        if not take_byte(r):
            return False
        at += 1 + r.buffered
        r.buffered = 0
    return True


cdef bint records_arrive(Replay *r, const uint8_t *data, uint64_t needed) noexcept nogil:
    """Return whether the records arrive for the stream parser: a length byte by byte, then the body
    in bulk. The records before the last are whole.
    """
    cdef uint64_t at = 0, v
    cdef int shift
    while at < needed:
        v = 0
        shift = 0
        while True:
            if not take_byte(r) or at >= r.damage:
                return False
            v |= <uint64_t>(data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80 or shift > 28 or at >= needed:
                break
        v >>= 1  # lengths of whole records are positive
        if at >= needed:
            return True
        if not take_bulk(r, v if v < needed - at else needed - at):
            return False
        at += v
    return True


cdef bint entries_arrive(Replay *r, const uint8_t *data, uint64_t needed) noexcept nogil:
    """Return whether the entries of a wrapper arrive: offset and size in bulk, then the message."""
    cdef uint64_t at = 0
    while at < needed:
        if not take_bulk(r, LOG_OVERHEAD) or at + LOG_OVERHEAD > r.damage:
            return False
        at += LOG_OVERHEAD
        if at >= needed:
            return True
        if not take_bulk(r, be32(data + at - 4)):
            return False
        at += be32(data + at - 4)
    return True


cdef bint arrives(Replay *r, const Entry *b, const uint8_t *data, uint64_t needed,
        int parser) noexcept nogil:
    if b.magic < 2:
        return entries_arrive(r, data, needed)
    if parser == STREAM_PARSER:
        return records_arrive(r, data, needed)
    return bytes_arrive(r, needed)


cdef int damage_comes_first(const Entry *b, Scratch *scratch, Facts *f, int parser,
        uint64_t limit) noexcept nogil:
    """Return DAMAGE_FIRST where Kafka throws over the stream before it has the `needed` bytes that
    show a record or entry as malformed, HALTS_FIRST where the stream halts before that.

    Nothing after `limit` is read: `needed` may be the length that a record states, and takes no
    memory.
    """
    cdef Replay r
    cdef GzipAhead ahead
    cdef int32_t length = 0
    cdef int64_t value
    cdef bint arrived, keep
    cdef int found
    if f.needed == 0:
        return RECORD_FIRST
    if b.magic == 2:
        r.codec = b.p[ATTRIBUTES + 1] & CODEC_MASK
        r.payload = b.p + RECORDS
        r.payload_end = b.p + b.size
    else:
        r.codec = b.p[LEGACY_ATTRIBUTES] & CODEC_MASK
        value = legacy_value(b.p + LOG_OVERHEAD, b.size - LOG_OVERHEAD, &length)
        if value < 0:  # null, or past the end: the buffer has changed since it was opened
            return RECORD_FIRST
        r.payload = b.p + LOG_OVERHEAD + value
        r.payload_end = r.payload + length
    if r.codec == NONE:
        return RECORD_FIRST
    keep = r.codec != LZ4 and (b.magic < 2 or parser == STREAM_PARSER)
    found = find_damage(&r, scratch, b.magic, f.needed, limit, keep)
    if found != DAMAGE_FIRST:
        return found
    # Only a body that was stated too long reaches for bytes after the damage.
    if r.codec == LZ4 or (r.codec == SNAPPY and scratch.unbuffered):
        return DAMAGE_FIRST if r.damage < f.needed else RECORD_FIRST
    r.fill = SNAPPY_FILL if r.codec == SNAPPY else MAX_FILL
    r.source_at = 0
    r.buffered = 0
    r.gzip = NULL
    if r.codec == GZIP and not start_gzip(&r, &ahead, scratch):
        return RECORD_FIRST
    arrived = arrives(&r, b, scratch.arena, f.needed, parser)
    if r.gzip is not NULL:
        free(ahead.window)
    return RECORD_FIRST if arrived else DAMAGE_FIRST
