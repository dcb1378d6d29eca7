"""The fields of a magic 2 record, which may stand across two blocks of a stream.

    varint, varlong   Kafka's zigzag numbers
    skip              the bytes of a key, a value or a header
    look_at           skips, and keeps the bytes that record rules and the check for UTF-8 read

A field that lies whole in its block is read here; record_fields.pyx reads the others.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.format.bytes cimport likely, span
from batchval.core.records.compiled_rules cimport HEAD
from batchval.core.codecs.codec_streams cimport Stream
from batchval.core.format.utf8 cimport is_utf8

cdef enum:
    FOUND
    CUT_OFF  # the stream does not go on; its status says why
    TOO_LONG  # an IllegalArgumentException in Kafka
    PAST_BODY  # the field is longer than the record

cdef enum:
    PIECE = 2048  # bytes: DefaultRecordBatch.MAX_SKIP_BUFFER_SIZE

cdef struct Reader:
    const uint8_t *p
    const uint8_t *end
    uint64_t body_end  # where in the stream the record ends, if the parser keeps to that
    uint64_t window_end  # up to where Kafka's parser has read, if it reads a record piece by piece
    bint had_headers  # the record that was read last

cdef struct Look:
    uint8_t head[HEAD]  # the field's first bytes, where it stands across blocks
    bint asks_utf8
    bint is_utf8

cdef int pull(Stream *s, int64_t *byte) noexcept nogil
cdef int varint_across(Stream *s, int32_t *value) noexcept nogil
cdef int varlong_across(Stream *s, int64_t *value) noexcept nogil
cdef int skip_across(Stream *s, uint64_t n) noexcept nogil
cdef int look_across(Stream *s, Reader *r, int32_t n, Look *look) noexcept nogil


cdef inline void read_piece(const Stream *s, Reader *r, uint64_t wanted) noexcept nogil:
    """Note what DefaultRecord.readMore reads before a field of up to ``wanted`` bytes."""
    cdef uint64_t at = s.delivered - span(r.p, r.end)
    if at + wanted > r.window_end and r.window_end < r.body_end:
        r.window_end = at + PIECE if r.body_end - at > PIECE else r.body_end


cdef inline void skip_pieces(const Stream *s, Reader *r, int32_t n) noexcept nogil:
    """Note what DefaultRecord.skipLengthDelimitedField reads to skip ``n`` bytes."""
    cdef uint64_t end = s.delivered - span(r.p, r.end)
    if n <= 0:
        return
    end += n
    if end > r.window_end:
        r.window_end += (end - r.window_end + PIECE - 1) // PIECE * PIECE
        if r.window_end > r.body_end:
            r.window_end = r.body_end


cdef inline int varint(Stream *s, Reader *r, int32_t *value) noexcept nogil:
    cdef uint32_t v
    cdef int found
    if likely(r.p < r.end, 1):
        v = r.p[0]
        if likely(v < 0x80, 1):
            r.p += 1
            value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
            return FOUND
        if r.end - r.p > 1 and r.p[1] < 0x80:
            v = (v & 0x7F) | (<uint32_t>r.p[1] << 7)
            r.p += 2
            value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
            return FOUND
    s.at = r.p
    found = varint_across(s, value)
    r.p = s.at
    r.end = s.end
    return found


cdef inline int varlong(Stream *s, Reader *r, int64_t *value) noexcept nogil:
    cdef uint64_t v
    cdef int found
    if likely(r.p < r.end, 1):
        v = r.p[0]
        if likely(v < 0x80, 1):
            r.p += 1
            value[0] = <int64_t>(v >> 1) ^ -<int64_t>(v & 1)
            return FOUND
        if r.end - r.p > 1 and r.p[1] < 0x80:
            v = (v & 0x7F) | (<uint64_t>r.p[1] << 7)
            r.p += 2
            value[0] = <int64_t>(v >> 1) ^ -<int64_t>(v & 1)
            return FOUND
    s.at = r.p
    found = varlong_across(s, value)
    r.p = s.at
    r.end = s.end
    return found


cdef inline int skip(Stream *s, Reader *r, int32_t n) noexcept nogil:
    """Skip bytes as DefaultRecord.skipBytes does: nothing for a length of 0 or below."""
    cdef int found
    if n <= 0:
        return FOUND
    if likely(span(r.p, r.end) >= <uint64_t>n, 1):
        r.p += n
        return FOUND
    if <uint64_t>n > r.body_end - (s.delivered - span(r.p, r.end)):
        return PAST_BODY
    s.at = r.p
    found = skip_across(s, n)
    r.p = s.at
    r.end = s.end
    return found


cdef inline int look_at(Stream *s, Reader *r, int32_t n, Look *look,
        const uint8_t **head) noexcept nogil:
    """Skip a field as skip; ``head`` is where its first bytes are, up to HEAD of them."""
    look.is_utf8 = True
    head[0] = r.p
    if n <= 0:
        return FOUND
    if likely(span(r.p, r.end) >= <uint64_t>n, 1):
        if look.asks_utf8:
            look.is_utf8 = is_utf8(r.p, n)
        r.p += n
        return FOUND
    if <uint64_t>n > r.body_end - (s.delivered - span(r.p, r.end)):
        return PAST_BODY
    head[0] = look.head
    return look_across(s, r, n, look)
