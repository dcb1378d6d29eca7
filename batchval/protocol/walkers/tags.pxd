"""Finding one tagged field among a struct's."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.protocol.cursor cimport Cursor, open_cursor, position, read_uvarint, take

cdef struct TaggedField:
    int found           # how often the tag stands there
    int64_t fields      # how many fields there are
    # of the field, its tag first; the last one's, where it stands more than once
    Py_ssize_t start
    Py_ssize_t content
    Py_ssize_t size     # of the content


cdef inline bint find_tag(const uint8_t *base, Py_ssize_t at, Py_ssize_t end, int64_t wanted,
        TaggedField *field) noexcept nogil:
    """Find a tag in the tagged fields at base[at:end]. Return False if they are malformed.

    Positions count from base.
    """
    cdef Cursor c
    cdef int64_t n, tag, length, start
    field.found = 0
    open_cursor(&c, base, end, True)
    c.at += at
    n = field.fields = read_uvarint(&c)
    while n > 0 and not c.wrong:
        n -= 1
        start = position(&c)
        tag = read_uvarint(&c)
        length = read_uvarint(&c)
        if tag == wanted:
            field.found += 1
            field.start = start
            field.content = position(&c)
            field.size = length
        take(&c, length)
    return not c.wrong
