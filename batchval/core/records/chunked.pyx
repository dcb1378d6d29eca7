"""A stream that halts before its end, read as Kafka's parsers read it.

An lz4 block that decompresses to nothing, or a broken second header in a snappy stream, makes one
read of Kafka's stream class answer 0 or -1 bytes although more follow. ChunkedBytesStream, which
holds up to 2048 bytes between that class and the parser, passes this on as an end, as a byte 0xFF
or not at all, and its skip may take later bytes before those that it holds. This module reads such
a payload as these classes do, and writes down what the parser gets:

    skip parser      the fields of records; of keys, values and headers no bytes, but a length of 0
    stream parser    whole records
    a wrapper        whole entries

Before ChunkedBytesStream (Kafka 3.6) the parser read the stream class itself: bytes one by one for
the length of a record, then the whole record (the skip parser: 2048 bytes at a time), where a read
of 0 bytes is no end. One byte wanted of an lz4 block without content is a BufferUnderflowException.

Such a payload is then walked as if it had come uncompressed. No compressor writes one: this module
does not have to be fast.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from batchval.core.format.bytes cimport be32, span
from batchval.core.codecs.codec_streams cimport DAMAGED, ENDED, Stream, open_stream, refill
from batchval.core.format.layout cimport LEGACY_MIN_SIZE, LOG_OVERHEAD, LZ4, NONE
from batchval.core.format cimport reasons
from batchval.core.records.record_fields cimport PIECE
from batchval.core.records.records cimport STREAM_PARSER
from batchval.core.codecs.scratch cimport Scratch

cdef enum:
    FILL = 2048  # ChunkedBytesStream's buffer for lz4 and snappy
    MAX_REWRITTEN_BYTES = 64 << 20  # bytes; a payload that would need more is refused as malformed

cdef enum:  # what a read answers instead of a number of bytes
    NOTHING = 0
    END = -1
    THROWN = -2  # the stream's status says what
    TOO_LONG = -3  # a varint

cdef struct Chunked:
    Stream s
    bint lz4
    bint unbuffered  # before ChunkedBytesStream
    const uint8_t *piece  # of the decompressed block or chunk: what the stream class still holds
    const uint8_t *piece_end
    uint8_t[FILL] held
    int held_at
    int held_end
    uint8_t *out
    size_t size
    size_t out_capacity
    bint too_much


# ---- the stream class ----------------------------------------------------------------------------

cdef int next_piece(Chunked *c) noexcept nogil:
    """Read the next piece. Return 1 for a piece with content, NOTHING where the stream halts."""
    c.s.at = c.s.end
    if refill(&c.s):
        c.piece = c.s.at
        c.piece_end = c.s.end
        c.s.at = c.s.end
        return 1
    c.piece = c.piece_end = NULL
    if c.s.soft_end:
        return NOTHING
    return END if c.s.status == ENDED else THROWN


cdef bint write(Chunked *c, const uint8_t *p, uint64_t n) noexcept nogil:
    cdef size_t size
    cdef uint8_t *grown
    if n > c.out_capacity - c.size:
        size = 2 * (c.size + n)
        grown = <uint8_t *>realloc(c.out, size) if size <= 2 * MAX_REWRITTEN_BYTES else NULL
        if grown is NULL:
            c.too_much = True
            return False
        c.out = grown
        c.out_capacity = size
    memcpy(c.out + c.size, p, n)
    c.size += n
    return True


cdef int64_t read_source(Chunked *c, uint8_t *to, uint64_t n) noexcept nogil:
    """Follow InputStream.read(byte[], int, int): read into ``to``, else into the written output.

    lz4 reads to the end of a block at most, snappy on into the next chunk.
    """
    cdef uint64_t got = 0, part
    cdef int found
    while True:
        if c.piece == c.piece_end:
            found = next_piece(c)
            if found == THROWN:
                return THROWN
            if found == END or (found == NOTHING and not c.lz4):
                return <int64_t>got if got else END
            if found == NOTHING:
                return 0
        part = span(c.piece, c.piece_end)
        if part > n - got:
            part = n - got
        if to is not NULL:
            memcpy(to + got, c.piece, part)
        elif not write(c, c.piece, part):
            return THROWN
        c.piece += part
        got += part
        if c.lz4 or got == n:
            return <int64_t>got


cdef int64_t available(Chunked *c) noexcept nogil:
    cdef int found
    if c.piece == c.piece_end and not c.lz4:
        found = next_piece(c)
        if found == THROWN:
            return THROWN
    return <int64_t>span(c.piece, c.piece_end)


# ---- the stream class alone ----------------------------------------------------------------------

cdef int take_directly(Chunked *c) noexcept nogil:
    """Follow read(): return a byte, END or THROWN."""
    cdef int found
    if c.piece == c.piece_end:
        found = next_piece(c)
        if found == NOTHING and c.lz4:
            c.s.status = DAMAGED
            c.s.reason = reasons.LZ4_EMPTY_BLOCK
            return THROWN
        if found != 1:
            return THROWN if found == THROWN else END
    c.piece += 1
    return (c.piece - 1)[0]


cdef int64_t read_directly(Chunked *c, uint64_t n) noexcept nogil:
    """Follow DataInputStream.readFully and Utils.readFully: return ``n``, END or THROWN."""
    cdef uint64_t left = n
    cdef int64_t got
    while left:
        got = read_source(c, NULL, left)
        if got < 0:
            return got
        left -= got
    return <int64_t>n


cdef bint copy_record_directly(Chunked *c, int parser, int32_t max_body) noexcept nogil:
    """Copy the bytes of one record that the parser gets. Return False where it stops."""
    cdef uint32_t v = 0
    cdef int32_t length
    cdef uint64_t left, part
    cdef size_t start = c.size
    cdef int64_t found
    cdef int n = 0, b
    cdef uint8_t byte = 0x80
    while byte >= 0x80 and n < 5:
        b = take_directly(c)
        if b < 0:
            c.size = start
            return False
        byte = <uint8_t>b
        if not write(c, &byte, 1):
            return False
        v |= <uint32_t>(byte & 0x7F) << (7 * n)
        n += 1
    length = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
    if byte >= 0x80 or length <= 0 or (parser == STREAM_PARSER and length > max_body):
        return False
    left = length
    while left:
        part = PIECE if parser != STREAM_PARSER and left > PIECE else left
        start = c.size
        found = read_directly(c, part)
        if found < 0:
            if found == THROWN:
                c.size = start  # it parses what it has read whole
            return False
        left -= part
    return True


# ---- ChunkedBytesStream --------------------------------------------------------------------------

cdef int64_t fill(Chunked *c) noexcept nogil:
    """Fill the buffer. Return how many bytes it holds, or THROWN."""
    cdef int64_t n
    if c.held_at == c.held_end:
        c.held_at = c.held_end = 0
        n = read_source(c, c.held, FILL)
        if n == THROWN:
            return THROWN
        c.held_end = <int>n if n > 0 else 0
    return c.held_end - c.held_at


cdef int take(Chunked *c) noexcept nogil:
    """Follow read(): return a byte, END or THROWN."""
    cdef int64_t n = fill(c)
    if n <= 0:
        return THROWN if n == THROWN else END
    c.held_at += 1
    return c.held[c.held_at - 1]


cdef uint64_t skip_held(Chunked *c, uint64_t n) noexcept nogil:
    cdef uint64_t part = c.held_end - c.held_at
    if part > n:
        part = n
    c.held_at += <int>part
    return part


cdef int64_t skip(Chunked *c, uint64_t n) noexcept nogil:
    """Follow skip(long): return how many bytes were skipped, or THROWN. For lz4 the stream class
    skips, whatever this buffer holds.
    """
    cdef uint64_t left = n - skip_held(c, n), part
    cdef int64_t found
    while left:
        if c.lz4:
            if c.piece == c.piece_end and next_piece(c) == THROWN:
                return THROWN
            part = span(c.piece, c.piece_end)
            if part > left:
                part = left
            c.piece += part
            left -= part
            if part:
                continue
            found = take(c)
            if found == THROWN:
                return THROWN
            if found == END:
                break
            left -= 1
        else:
            found = fill(c)
            if found == THROWN:
                return THROWN
            if found == 0:
                break
            left -= skip_held(c, left)
    return <int64_t>(n - left)


cdef int64_t read_once(Chunked *c, uint64_t n) noexcept nogil:
    cdef int64_t found
    if c.held_at == c.held_end and n >= FILL:
        return read_source(c, NULL, n)
    found = fill(c)
    if found <= 0:
        return THROWN if found == THROWN else END
    if <uint64_t>found > n:
        found = <int64_t>n
    if not write(c, c.held + c.held_at, found):
        return THROWN
    c.held_at += <int>found
    return found


cdef int64_t read_many(Chunked *c, uint64_t n) noexcept nogil:
    """Follow read(byte[], int, int): go on while the stream class reports more bytes as available.
    """
    cdef uint64_t got = 0
    cdef int64_t found
    if n == 0:
        return 0
    while True:
        found = read_once(c, n - got)
        if found == THROWN:
            return THROWN
        if found <= 0:
            return <int64_t>got if got else found
        got += found
        if got == n:
            return <int64_t>got
        found = available(c)
        if found <= 0:
            return THROWN if found == THROWN else <int64_t>got


cdef bint read_fully(Chunked *c, uint64_t n, bint *thrown) noexcept nogil:
    """Follow Utils.readFully: return True if all bytes came."""
    cdef uint64_t left = n
    cdef int64_t found
    while left:
        found = read_many(c, left)
        if found < 0:
            thrown[0] = found == THROWN
            return False
        left -= found
    return True


# ---- the parsers ---------------------------------------------------------------------------------

cdef int read_varint(Chunked *c, int most, bint keep_positive, int32_t *value) noexcept nogil:
    """Copy a varint; for an int above 0 write a 0, unless it is to be kept. An end is read as the
    byte 0xFF.
    """
    cdef uint8_t[10] raw
    cdef uint8_t zero = 0
    cdef uint32_t v = 0
    cdef int n = 0, b
    cdef bint written
    while True:
        b = take(c)
        if b == THROWN:
            return THROWN
        raw[n] = <uint8_t>b  # END, cast as Java casts it
        if n < 5:
            v |= <uint32_t>(raw[n] & 0x7F) << (7 * n)
        n += 1
        if raw[n - 1] < 0x80 or n == most:
            break
    value[0] = <int32_t>(v >> 1) ^ -<int32_t>(v & 1)
    if raw[n - 1] < 0x80 and value[0] > 0 and not keep_positive:
        written = write(c, &zero, 1)
    else:
        written = write(c, raw, n)
    if not written:
        return THROWN
    return 0 if raw[n - 1] < 0x80 else TOO_LONG


cdef bint skip_fully(Chunked *c, int64_t n) noexcept nogil:
    """Follow Utils.skipFully: where nothing was skipped it reads one byte, and goes on unless that
    is an end.
    """
    cdef int64_t skipped
    while n > 0:
        skipped = skip(c, n)
        if skipped == THROWN:
            return False
        if skipped == 0:
            if take(c) < 0:
                return False
            skipped = 1
        n -= skipped
    return True


cdef bint skip_field(Chunked *c, int32_t *length) noexcept nogil:
    """Skip a length and so many bytes. Return False where the parser stops: it never gets past the
    length, of which nothing is written then.
    """
    cdef size_t start = c.size
    if read_varint(c, 5, False, length) != 0:
        return False
    if length[0] <= 0 or skip_fully(c, length[0]):
        return True
    c.size = start
    return False


cdef bint skip_record(Chunked *c, int32_t max_body) noexcept nogil:
    cdef int32_t length = 0, headers = 0, _i
    cdef int attributes
    cdef uint8_t byte
    if read_varint(c, 5, True, &length) != 0 or length < 0 or length > max_body:
        return False
    attributes = take(c)
    if attributes == THROWN:
        return False
    byte = <uint8_t>attributes
    if (not write(c, &byte, 1) or read_varint(c, 10, True, &length) != 0
            or read_varint(c, 5, True, &length) != 0):
        return False
    if (not skip_field(c, &length) or not skip_field(c, &length)
            or read_varint(c, 5, True, &headers) != 0):
        return False
    for _i in range(headers):
        if not skip_field(c, &length) or length < 0 or not skip_field(c, &length):
            return False
    return headers >= 0


cdef bint copy_record(Chunked *c, int32_t max_body) noexcept nogil:
    cdef int32_t length = 0
    cdef size_t start = c.size
    cdef bint thrown = False
    cdef int found = read_varint(c, 5, True, &length)
    if found == 0 and 0 <= length <= max_body:
        if read_fully(c, length, &thrown):
            return True
        found = THROWN if thrown else END
    if found == THROWN:
        c.size = start  # it has the whole body before it looks into it
    return False


cdef bint copy_entry_directly(Chunked *c, int32_t max_body) noexcept nogil:
    cdef size_t start = c.size
    cdef int32_t size
    if read_directly(c, LOG_OVERHEAD) < 0:
        c.size = start
        return False
    size = be32(c.out + start + 8)
    if size < LEGACY_MIN_SIZE or size > max_body:
        return False
    if read_directly(c, size) < 0:
        c.size = start
        return False
    return True


cdef bint copy_entry(Chunked *c, int32_t max_body) noexcept nogil:
    cdef size_t start = c.size
    cdef bint thrown = False
    cdef int32_t size
    if c.unbuffered:
        return copy_entry_directly(c, max_body)
    if not read_fully(c, LOG_OVERHEAD, &thrown):
        c.size = start
        return False
    size = be32(c.out + start + 8)
    if size < LEGACY_MIN_SIZE or size > max_body:
        return False
    if not read_fully(c, size, &thrown):
        c.size = start
        return False
    return True


cdef void read_records(Chunked *c, int32_t records, int parser, int32_t max_body) noexcept nogil:
    cdef int32_t _i
    cdef int probe
    cdef uint8_t byte
    for _i in range(records):
        if c.unbuffered:
            if not copy_record_directly(c, parser, max_body):
                return
        elif parser == STREAM_PARSER:
            if not copy_record(c, max_body):
                return
        elif not skip_record(c, max_body):
            return
    probe = take_directly(c) if c.unbuffered else take(c)
    if probe >= 0:
        byte = <uint8_t>probe
        write(c, &byte, 1)


cdef uint8_t *as_read(Stream *s, Scratch *scratch, int codec, int magic, const uint8_t *payload,
        size_t n, uint64_t limit, int parser, int32_t records, int32_t max_body) noexcept nogil:
    """Open ``s`` over the bytes that Kafka's parser gets of a payload; the caller frees the bytes.
    Return NULL where they are too many.

    For magic 0 and 1 these are the entries of a wrapper, whatever parser and records are.
    """
    cdef Chunked c
    cdef uint8_t first = 0
    open_stream(&c.s, scratch, codec, magic, payload, n, limit, False)
    c.lz4 = codec == LZ4
    c.unbuffered = scratch.unbuffered
    c.piece = c.piece_end = NULL
    c.held_at = c.held_end = 0
    c.out = NULL
    c.size = c.out_capacity = 0
    c.too_much = False
    if not write(&c, &first, 1):
        return NULL
    c.size = 0
    if magic < 2:
        while copy_entry(&c, max_body):
            pass
    else:
        read_records(&c, records, parser, max_body)
    if c.too_much:
        free(c.out)
        return NULL
    open_stream(s, scratch, NONE, magic, c.out, c.size, limit, False)
    if c.s.status > ENDED:
        s.status = s.pending = c.s.status
        s.reason = c.s.reason
        s.detail = c.s.detail
        s.throws = c.s.throws
    s.mislabelled = True
    return c.out
