"""A raw snappy block: its length as a varint, then elements.

    literal       tag & 3 == 0: length - 1 in the tag's upper 6 bits, or 60-63: in 1-4 bytes after
                  it; then the bytes
    copy, near    tag & 3 == 1: length 4-11 in 3 bits, offset in the tag's upper 3 bits and a byte
    copy, far     tag & 3 == 2: length 1-64 in 6 bits, offset in 2 bytes; tag & 3 == 3: offset in
                  4 bytes

Accepts what snappy's own decoder accepts: the elements make exactly the stated length, and nothing
follows.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

from batchval.core.format.bytes cimport le16, le32, once, span

cdef extern from *:
    bint unlikely "__builtin_expect"(bint, bint) noexcept nogil


cdef int64_t snappy_length(const uint8_t *p, size_t n, int *header) noexcept nogil:
    """Return the stated length, -1 where the varint is broken; header: how many bytes it takes."""
    cdef int64_t length = 0
    cdef int i
    cdef uint8_t b
    for i in range(5):
        if <size_t>i >= n:
            return -1
        b = p[i]
        if i == 4 and b >= 16:
            return -1
        length |= <int64_t>(b & 0x7F) << (7 * i)
        if b < 0x80:
            header[0] = i + 1
            return length
    return -1


# An element by its tag: its length in bits 0-7, the upper part of its offset in bits 8-23, its own
# size above. A literal counts as a copy from 16 back, which is always valid. Rare elements have
# length 0: long literals, and copies with offsets of four bytes.
cdef uint32_t ELEMENTS[256]
cdef uint32_t OFFSET_MASKS[4]
OFFSET_MASKS[:] = [0, 0xFF, 0xFFFF, 0]

cdef enum:
    NEAR = 16  # copies from nearer may overlap within 16 bytes
    LAST_IN = 72  # bytes that an element's tag, and 64 after it, may read
    LAST_OUT = 64


cdef uint32_t element(uint32_t tag):
    cdef uint32_t size = (tag >> 2) + 1
    if tag & 3 == 0:
        return (size if size <= 60 else 0) | NEAR << 8 | (size + 1) << 24
    if tag & 3 == 1:
        return (4 + (tag >> 2 & 7)) | (tag >> 5) << 16 | 2 << 24
    return size | 3 << 24 if tag & 3 == 2 else NEAR << 8


cdef int _tag
for _tag in range(256):
    ELEMENTS[_tag] = element(_tag)


cdef inline void take_ordinary(const uint8_t **from_, const uint8_t *last, const uint8_t *start,
        uint8_t **into,
        uint8_t *brim) noexcept nogil:
    """Decode as many elements as need no second look: no long literal, no copy from nearer than 16
    bytes, none from before the start.

    Which kind an element is cannot be foreseen, so nothing here branches on it: a literal is a copy
    from the input.
    """
    cdef const uint8_t *p = from_[0]
    cdef const uint8_t *source
    cdef uint8_t *to = into[0]
    cdef uint64_t offset, is_copy
    cdef uint32_t tag = p[0], about, ahead
    while p < last and to < brim:
        about = ELEMENTS[tag]
        offset = (le32(p + 1) & OFFSET_MASKS[tag & 3]) + (about >> 8 & 0xFFFF)
        ahead = about >> 24
        about &= 0xFF
        if unlikely(offset - NEAR > span(start, to) - NEAR or about == 0, 0):
            break
        is_copy = <uint64_t>(tag & 3 == 0) - 1
        source = <const uint8_t *>((<uintptr_t>(p + 1) & ~is_copy) | ((<uintptr_t>to - offset) & is_copy))
        memcpy(to, source, 16)
        memcpy(to + 16, source + 16, 16)
        if unlikely(about > 32, 0):
            memcpy(to + 32, source + 32, 16)
            memcpy(to + 48, source + 48, 16)
        to += about
        p += ahead
        tag = p[0]
    from_[0] = p
    into[0] = to


cdef bint snappy_decode(const uint8_t *p, size_t n, uint8_t *to, size_t length) noexcept nogil:
    """Decode the elements after the stated length. ``to`` has space for ``length + SNAPPY_SLACK``
    bytes.
    """
    cdef const uint8_t *end = p + n
    cdef uint8_t *start = to
    cdef uint8_t *stop = to + length
    cdef const uint8_t *source
    cdef uint8_t *target
    cdef uint32_t tag, offset, extra
    cdef size_t size
    while p < end:
        if span(p, end) > LAST_IN and span(to, stop) > LAST_OUT and span(start, to) >= NEAR:
            take_ordinary(&p, end - LAST_IN, start, &to, stop - LAST_OUT)
        tag = p[0]
        p += 1
        if tag & 3 == 0:
            size = (tag >> 2) + 1
            if size <= 16 and span(p, end) >= 16 and span(to, stop) >= size:
                memcpy(to, p, 16)
                to += size
                p += size
                continue
            if size > 60:
                extra = <uint32_t>size - 60
                if span(p, end) >= 4:
                    size = <size_t>(le32(p) & (0xFFFFFFFFU >> (8 * (4 - extra)))) + 1
                # A short literal with a long length, which no compressor writes.
                elif span(p, end) >= extra:
                    size = <size_t>(p[0] | (<uint32_t>p[1] << 8 if extra > 1 else 0) | (<uint32_t>p[2] << 16
                            if extra > 2 else 0)) + 1
                else:
                    return False
                p += extra
            if span(p, end) < size or span(to, stop) < size:
                return False
            memcpy(to, p, size)
            to += size
            p += size
            continue
        if tag & 3 == 1:
            if p == end:
                return False
            size = ((tag >> 2) & 7) + 4
            offset = ((tag >> 5) << 8) | p[0]
            p += 1
        elif tag & 3 == 2:
            if span(p, end) < 2:
                return False
            size = (tag >> 2) + 1
            offset = le16(p)
            p += 2
        else:
            if span(p, end) < 4:
                return False
            size = (tag >> 2) + 1
            offset = once(le32(p))
            p += 4
        if offset == 0 or offset > span(start, to) or span(to, stop) < size:
            return False
        source = to - offset
        target = to
        to += size
        if offset >= 16:
            memcpy(target, source, 16)
            if size > 16:
                memcpy(target + 16, source + 16, 16)
                if size > 32:
                    memcpy(target + 32, source + 32, 16)
                    memcpy(target + 48, source + 48, 16)
        elif offset >= 8:
            while target < to:
                memcpy(target, source, 8)
                target += 8
                source += 8
        elif offset == 1:
            memset(target, source[0], size)
        else:
            while target < to:
                target[0] = source[0]
                target += 1
                source += 1
    return to == stop


def decode(bytes block, size_t limit=1 << 31):
    """Return the content of one raw block; ValueError where it is malformed or longer than
    ``limit``.
    """
    cdef const uint8_t *p = block
    cdef int header = 0
    cdef int64_t length = snappy_length(p, len(block), &header)
    if length < 0 or <size_t>length > limit or length > 22 * <int64_t>len(block):
        raise ValueError("malformed snappy block")
    out = bytearray(length + SNAPPY_SLACK)
    cdef uint8_t *to = out
    if not snappy_decode(p + header, len(block) - header, to, length):
        raise ValueError("malformed snappy block")
    return bytes(out[:length])
