"""Reading Kafka's types from bytes that a stranger sent: every read goes through one check.

    int8 int16 int32 int64     big-endian, two's complement
    uvarint                    7 bits a byte, low ones first, at most 5 bytes; varint: the same, zigzag
    string  int16 length       compact (flexible versions): uvarint length + 1, 0 is null
    bytes, records  int32      likewise
    array   int32 count        likewise
    tagged fields              uvarint count, then (uvarint tag, uvarint size, bytes) each; flexible versions only

A length is compared unsigned with the bytes that are there, so negative and huge are one refusal.
The first failure stays: the cursor stands at its end then, what is read is 0, and loops look at
``wrong``.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "batchval reads and writes wire formats on little-endian machines only"
    #endif
    """
    uint16_t bswap16 "__builtin_bswap16"(uint16_t) noexcept nogil
    uint32_t bswap32 "__builtin_bswap32"(uint32_t) noexcept nogil
    uint64_t bswap64 "__builtin_bswap64"(uint64_t) noexcept nogil

cdef enum Wrong:  # in the order of primitives.WORDS
    FINE = 0
    CUT
    VARINT_TOO_LONG
    LENGTH_NEGATIVE
    NULL_HERE
    STRING_TOO_LONG
    COUNT_TOO_LARGE
    TAG_SIZE_LIES
    TRAILING_BYTES
    NO_MEMORY
    NOT_THIS_VERSION
    TOO_MANY_ROWS
    TOO_MANY_TAGS

cdef enum:
    MAX_STRING = 0x7fff

cdef enum:
    UNLIMITED_TAGS = 0x7fffffffffffffff

cdef struct Cursor:
    const uint8_t *start
    const uint8_t *at
    const uint8_t *end
    const uint8_t *where  # of the first wrong thing
    int wrong
    bint flexible
    int64_t tags_left  # tagged fields that may still come


cdef inline void open_cursor(Cursor *c, const uint8_t *start, Py_ssize_t size,
        bint flexible) noexcept nogil:
    c.start = start
    c.at = start
    c.end = start + size
    c.where = start
    c.wrong = FINE
    c.flexible = flexible
    c.tags_left = UNLIMITED_TAGS


cdef inline int64_t position(const Cursor *c) noexcept nogil:
    return c.at - c.start


cdef inline void fail(Cursor *c, int wrong) noexcept nogil:
    if c.wrong == FINE:
        c.wrong = wrong
        c.where = c.at
    c.at = c.end


cdef inline const uint8_t *take(Cursor *c, uint64_t size) noexcept nogil:
    """Return the next ``size`` bytes, NULL where fewer are left: the only bounds check."""
    cdef const uint8_t *at = c.at
    if size > <uint64_t>(c.end - at):
        fail(c, CUT)
        return NULL
    c.at = at + size
    return at


cdef inline int32_t read_int8(Cursor *c) noexcept nogil:
    cdef const uint8_t *p = take(c, 1)
    return 0 if p is NULL else <int32_t>(<signed char>p[0])


cdef inline int32_t read_int16(Cursor *c) noexcept nogil:
    cdef const uint8_t *p = take(c, 2)
    cdef uint16_t v
    if p is NULL:
        return 0
    memcpy(&v, p, 2)
    return <int16_t>bswap16(v)


cdef inline int32_t read_int32(Cursor *c) noexcept nogil:
    cdef const uint8_t *p = take(c, 4)
    cdef uint32_t v
    if p is NULL:
        return 0
    memcpy(&v, p, 4)
    return <int32_t>bswap32(v)


cdef inline int64_t read_int64(Cursor *c) noexcept nogil:
    cdef const uint8_t *p = take(c, 8)
    cdef uint64_t v
    if p is NULL:
        return 0
    memcpy(&v, p, 8)
    return <int64_t>bswap64(v)


cdef inline int64_t read_uvarint(Cursor *c) noexcept nogil:
    """Read a number from 0 to 2^32 - 1. Refuses a sixth byte and bits above the 32nd.

    Kafka drops such bits, and a gate must not.
    """
    cdef const uint8_t *at = c.at
    cdef uint64_t value = 0
    cdef int shift
    for shift in range(0, 35, 7):
        if at >= c.end:
            fail(c, CUT)
            return 0
        value |= (<uint64_t>(at[0] & 0x7f)) << shift
        if at[0] < 0x80:
            if value > 0xffffffffu:
                break
            c.at = at + 1
            return <int64_t>value
        at += 1
    fail(c, VARINT_TOO_LONG)
    return 0


cdef inline int64_t checked_length(Cursor *c, int64_t length) noexcept nogil:
    """Return a length, -1 for null. Refuses lower ones and more than is left."""
    if length < -1:
        fail(c, LENGTH_NEGATIVE)
        return -1
    if length > c.end - c.at:
        fail(c, CUT)
        return -1
    return length


cdef inline int64_t string_length(Cursor *c) noexcept nogil:
    """Return a string's length, -1 for null, once its bytes are known to be there."""
    cdef int64_t length = read_uvarint(c) - 1 if c.flexible else read_int16(c)
    if c.wrong:
        return -1
    if length > MAX_STRING:
        fail(c, STRING_TOO_LONG)
        return -1
    return checked_length(c, length)


cdef inline int64_t stated_size(Cursor *c) noexcept nogil:
    """Return an array's count, or the length of bytes or records, as stated; -1 for null."""
    return read_uvarint(c) - 1 if c.flexible else read_int32(c)


cdef inline int64_t bytes_length(Cursor *c) noexcept nogil:
    """Return the length of bytes or records, -1 for null, once the bytes are known to be there."""
    cdef int64_t length = stated_size(c)
    return -1 if c.wrong else checked_length(c, length)


cdef inline int64_t count_up_to(Cursor *c, int64_t most) noexcept nogil:
    """Return an array's count, -1 for null.

    An element takes at least one byte: a count above ``most`` is refused before any allocation. -1:
    above the bytes that are left.
    """
    cdef int64_t count = stated_size(c)
    if c.wrong:
        return -1
    if count < -1:
        fail(c, LENGTH_NEGATIVE)
        return -1
    if count > (c.end - c.at if most < 0 else most):
        fail(c, COUNT_TOO_LARGE)
        return -1
    return count


cdef inline int64_t read_count(Cursor *c) noexcept nogil:
    """Return an array's count, -1 for null: as many as bytes are left at most."""
    return count_up_to(c, -1)


cdef inline void not_null(Cursor *c, int64_t length) noexcept nogil:
    if length < 0:
        fail(c, NULL_HERE)


cdef inline void skip(Cursor *c, uint64_t size) noexcept nogil:
    take(c, size)


cdef inline void skip_string(Cursor *c, bint nullable) noexcept nogil:
    cdef int64_t length = string_length(c)
    if length >= 0:
        c.at += length
    elif not nullable:
        fail(c, NULL_HERE)


cdef inline void skip_bytes(Cursor *c, bint nullable) noexcept nogil:
    cdef int64_t length = bytes_length(c)
    if length >= 0:
        c.at += length
    elif not nullable:
        fail(c, NULL_HERE)


cdef inline void note_slice(Cursor *c, int32_t *slice, int64_t size) noexcept nogil:
    """Write position and size (-1: null) of the bytes that follow, and skip them."""
    slice[0] = <int32_t>position(c)
    slice[1] = <int32_t>size
    if size > 0:
        c.at += size


cdef inline void find_string(Cursor *c, int32_t *slice, bint nullable) noexcept nogil:
    cdef int64_t size = string_length(c)
    if not nullable:
        not_null(c, size)
    note_slice(c, slice, size)


cdef inline void find_bytes(Cursor *c, int32_t *slice, bint nullable) noexcept nogil:
    cdef int64_t size = bytes_length(c)
    if not nullable:
        not_null(c, size)
    note_slice(c, slice, size)


cdef inline const uint8_t *open_tag(Cursor *c, int64_t *tag, int64_t *size_at) noexcept nogil:
    """Enter the next tagged field: the cursor ends where it does.

    Return the end that ``close_tag`` restores.
    """
    cdef const uint8_t *outer = c.end
    cdef int64_t size
    tag[0] = read_uvarint(c)
    size_at[0] = position(c)
    size = read_uvarint(c)
    if size > c.end - c.at:
        fail(c, CUT)
    else:
        c.end = c.at + size
    return outer


cdef inline void close_tag(Cursor *c, const uint8_t *outer) noexcept nogil:
    """Leave a tagged field, which must fill its size.

    Kafka reads on where the field ends, whatever size was stated.
    """
    if c.at != c.end:
        fail(c, TAG_SIZE_LIES)
    c.end = outer
    if c.wrong:
        c.at = outer


cdef inline void skip_tags(Cursor *c) noexcept nogil:
    cdef int64_t _i, count
    if not c.flexible:
        return
    count = read_uvarint(c)
    c.tags_left -= count
    if c.tags_left < 0:
        fail(c, TOO_MANY_TAGS)
        return
    for _i in range(count):
        read_uvarint(c)
        take(c, <uint64_t>read_uvarint(c))
        if c.wrong:
            return


# ---- writing: the caller has reserved the bytes --------------------------------------------------

cdef inline uint8_t *put_int16(uint8_t *p, int16_t value) noexcept nogil:
    cdef uint16_t v = bswap16(<uint16_t>value)
    memcpy(p, &v, 2)
    return p + 2


cdef inline uint8_t *put_int32(uint8_t *p, int32_t value) noexcept nogil:
    cdef uint32_t v = bswap32(<uint32_t>value)
    memcpy(p, &v, 4)
    return p + 4


cdef inline uint8_t *put_int64(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t v = bswap64(<uint64_t>value)
    memcpy(p, &v, 8)
    return p + 8


cdef inline uint8_t *put_uvarint(uint8_t *p, uint64_t value) noexcept nogil:
    while value > 0x7f:
        p[0] = <uint8_t>(value | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef inline int uvarint_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value > 0x7f:
        value >>= 7
        size += 1
    return size
