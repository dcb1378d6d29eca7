"""Claims in front of a compressed payload, where the log keeps them: found, attached, stripped.

    zstd   a skippable frame before the first frame   184D2A5B:4 LE size:4 LE "BV" block
    gzip   a subfield of the first member's header    1F 8B 8 flags:1 mtime:4 xfl:1 os:1 extra
           extra, with flags & 4                      size:2 LE (id:2 size:2 LE bytes)*; "BV": block

(RFC 8878, 3.1.2; RFC 1952, 2.3.1.) Kafka and its clients skip both. Kafka's lz4 and snappy have no
place that every client skips. Claims stand first: claims at another place are not read. A change of
a payload's beginning patches the batch's length and its CRC, so that damage elsewhere still shows.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove

from batchval.core.format.bytes cimport be32, le16, le32, put_be32
from batchval.core.stages.claims_block cimport (
    CLAIMS_CARRIED, IGNORE_CLAIMS, NOTHING_CARRIED, UNREADABLE_CLAIMS, Claims, ClaimsCall,
    crc_of_other_header, differ, read_block,
)
from batchval.core.format.crc32c cimport crc32c_moved, crc32c_of
from batchval.core.format.header cimport BatchHeader
from batchval.core.format.layout cimport *

cdef enum:
    SKIPPABLE_MAGIC = 0x184D2A5B
    SKIPPABLE_HEADER = 8
    ID_SIZE = 2

    GZIP_FLAGS = 3
    GZIP_HEADER = 10
    FLAG_HEADER_CRC = 2  # nothing can be changed in such a header without its own checksum
    FLAG_EXTRA = 4
    EXTRA_HEADER = 2
    SUBFIELD_HEADER = 4


cdef inline void put_le16(uint8_t *p, size_t value) noexcept nogil:
    p[0] = <uint8_t>value
    p[1] = <uint8_t>(value >> 8)


cdef inline bint is_id(const uint8_t *p) noexcept nogil:
    return p[0] == c"B" and p[1] == c"V"


cdef bint starts_frame(const uint8_t *p, size_t n) noexcept nogil:
    """Return whether a zstd payload starts with the frame of claims, whole or not."""
    return (n >= SKIPPABLE_HEADER + ID_SIZE and le32(p) == <uint32_t>SKIPPABLE_MAGIC
            and le32(p + 4) >= ID_SIZE and is_id(p + SKIPPABLE_HEADER))


cdef size_t claims_frame(const uint8_t *p, size_t n) noexcept nogil:
    """Return the size of the frame of claims at the start of a zstd payload; 0: none is whole.
    """
    cdef size_t size
    if not starts_frame(p, n):
        return 0
    size = le32(p + 4)
    return SKIPPABLE_HEADER + size if ID_SIZE <= size <= n - SKIPPABLE_HEADER else 0


cdef bint has_gzip_header(const uint8_t *p, size_t n) noexcept nogil:
    return n >= GZIP_HEADER and p[0] == 0x1F and p[1] == 0x8B and p[2] == 8


cdef bint starts_extra(const uint8_t *p, size_t n) noexcept nogil:
    """Return whether claims stand first in the extra field of a gzip payload, whole or not."""
    return (has_gzip_header(p, n) and p[GZIP_FLAGS] & FLAG_EXTRA
            and n >= GZIP_HEADER + EXTRA_HEADER + ID_SIZE
            and le16(p + GZIP_HEADER) >= ID_SIZE and is_id(p + GZIP_HEADER + EXTRA_HEADER))


cdef size_t claims_extra(const uint8_t *p, size_t n) noexcept nogil:
    """Return the size of a gzip payload's extra field with claims, which may be changed; 0: there
    is none.
    """
    cdef size_t size
    if not starts_extra(p, n) or p[GZIP_FLAGS] & FLAG_HEADER_CRC:
        return 0
    size = le16(p + GZIP_HEADER)
    return size if ID_SIZE <= size <= n - GZIP_HEADER - EXTRA_HEADER else 0


cdef size_t subfield(const uint8_t *p, size_t n) noexcept nogil:
    """Return the size of the subfield at the start of p[0:n]; 0: it is not whole."""
    cdef size_t size
    if n < SUBFIELD_HEADER:
        return 0
    size = SUBFIELD_HEADER + le16(p + ID_SIZE)
    return size if size <= n else 0


cdef bint are_others(const uint8_t *p, size_t n) noexcept nogil:
    """Return whether p[0:n] is whole subfields without claims."""
    cdef size_t size
    while n:
        size = subfield(p, n)
        if size == 0 or is_id(p):
            return False
        p += size
        n -= size
    return True


cdef bint read_extra(const uint8_t *p, size_t n, Claims *claims) noexcept nogil:
    """Read the subfields p[0:n], of which the first has claims. False: they cannot be read."""
    cdef size_t size = subfield(p, n)
    if size == 0 or not read_block(p + SUBFIELD_HEADER, size - SUBFIELD_HEADER, claims):
        return False
    return are_others(p + size, n - size)


cdef int read_payload(const uint8_t *p, size_t n, int codec, Claims *claims) noexcept nogil:
    """Read the claims at the start of the payload p[0:n].

    Returns NOTHING_CARRIED, CLAIMS_CARRIED or UNREADABLE_CLAIMS.
    """
    cdef size_t size
    cdef bint readable
    if codec == ZSTD:
        if not starts_frame(p, n):
            return NOTHING_CARRIED
        size = claims_frame(p, n)
        readable = size and read_block(
            p + SKIPPABLE_HEADER + ID_SIZE, size - SKIPPABLE_HEADER - ID_SIZE, claims)
    elif codec == GZIP:
        if not starts_extra(p, n):
            return NOTHING_CARRIED
        size = claims_extra(p, n)
        readable = size and read_extra(p + GZIP_HEADER + EXTRA_HEADER, size, claims)
    else:
        return NOTHING_CARRIED
    return CLAIMS_CARRIED if readable else UNREADABLE_CLAIMS


cdef int find_claims(const ClaimsCall *call, const BatchHeader *h, const uint8_t *p, size_t n,
        Claims *claims) noexcept nogil:
    """Find the claims of the batch of at least RECORDS bytes at the start of p[0:n], whose header
    is ``h``.

    Returns NOTHING_CARRIED, CLAIMS_CARRIED or UNREADABLE_CLAIMS: a tag that is malformed or another
    batch's, claims in the payload that are malformed, or two carriers that differ. Claims in a
    header of magic 3 are not looked for.
    """
    cdef int carried = NOTHING_CARRIED
    cdef int codec = h.attributes & CODEC_MASK
    if call.policy == IGNORE_CLAIMS:
        return NOTHING_CARRIED
    if h.magic == 2 and (codec == ZSTD or codec == GZIP):
        if RECORDS <= <int64_t>h.batch_length + LOG_OVERHEAD <= <int64_t>n:
            carried = read_payload(
                p + RECORDS, h.batch_length + LOG_OVERHEAD - RECORDS, codec, claims)
    if not call.tagged or carried == UNREADABLE_CLAIMS:
        return carried
    if h.magic != 2 or not call.readable or call.crc != h.crc:
        return UNREADABLE_CLAIMS
    if carried == NOTHING_CARRIED:
        claims[0] = call.claims
        return CLAIMS_CARRIED
    return UNREADABLE_CLAIMS if differ(claims, &call.claims) else CLAIMS_CARRIED


# ---- changing a batch ----------------------------------------------------------------------------

cdef inline int codec_of(const uint8_t *p) noexcept nogil:
    return p[ATTRIBUTES + 1] & CODEC_MASK


cdef inline void put_id(uint8_t *p) noexcept nogil:
    p[0] = c"B"
    p[1] = c"V"


cdef size_t put_frame(uint8_t *to, const uint8_t *block, size_t size) noexcept nogil:
    """Write a skippable frame with a block. Return its size."""
    put_le16(to, SKIPPABLE_MAGIC & 0xFFFF)
    put_le16(to + 2, SKIPPABLE_MAGIC >> 16)
    put_le16(to + 4, ID_SIZE + size)
    put_le16(to + 6, 0)
    put_id(to + SKIPPABLE_HEADER)
    memcpy(to + SKIPPABLE_HEADER + ID_SIZE, block, size)
    return SKIPPABLE_HEADER + ID_SIZE + size


cdef size_t put_extra(uint8_t *to, const uint8_t *block, size_t size) noexcept nogil:
    """Write an extra field with a block, its own size first. Return its size."""
    put_le16(to, SUBFIELD_HEADER + size)
    put_id(to + EXTRA_HEADER)
    put_le16(to + EXTRA_HEADER + ID_SIZE, size)
    memcpy(to + EXTRA_HEADER + SUBFIELD_HEADER, block, size)
    return EXTRA_HEADER + SUBFIELD_HEADER + size


cdef size_t carrier_size(const uint8_t *p, size_t n, size_t block_size) noexcept nogil:
    """Return by how much a block makes the batch of magic 2 p[0:n] longer, in its payload.

    0 where the payload cannot carry a block: the codec is neither zstd nor gzip, or the gzip header
    has an extra field or a checksum already.
    """
    if codec_of(p) == ZSTD:
        return SKIPPABLE_HEADER + ID_SIZE + block_size
    if codec_of(p) != GZIP or not has_gzip_header(p + RECORDS, n - RECORDS):
        return 0
    if p[RECORDS + GZIP_FLAGS] & (FLAG_EXTRA | FLAG_HEADER_CRC):
        return 0
    return EXTRA_HEADER + SUBFIELD_HEADER + block_size


cdef void attach_to_payload(uint8_t *to, const uint8_t *p, size_t n, const uint8_t *block,
        size_t block_size) noexcept nogil:
    """Write the batch of magic 2 p[0:n] with a block in its payload.

    ``to`` has carrier_size bytes more.
    """
    cdef size_t kept = RECORDS, at
    if codec_of(p) == ZSTD:
        memcpy(to, p, kept)
        at = kept + put_frame(to + kept, block, block_size)
    else:
        kept += GZIP_HEADER
        memcpy(to, p, kept)
        to[RECORDS + GZIP_FLAGS] |= FLAG_EXTRA
        at = kept + put_extra(to + kept, block, block_size)
    memcpy(to + at, p + kept, n - kept)
    put_be32(to + BATCH_LENGTH, <int32_t>(at + n - kept - LOG_OVERHEAD))
    put_be32(to + CRC, <int32_t>crc_of_other_header(
        <uint32_t>be32(p + CRC), p + ATTRIBUTES, kept - ATTRIBUTES,
        to + ATTRIBUTES, at - ATTRIBUTES, n - kept))


cdef size_t claims_frames(const uint8_t *p, size_t n) noexcept nogil:
    """Return the size of all frames with claims at the start of a zstd payload."""
    cdef size_t at = 0, size = claims_frame(p, n)
    while size:
        at += size
        size = claims_frame(p + at, n - at)
    return at


cdef size_t claims_subfields(const uint8_t *p, size_t n) noexcept nogil:
    """Return the size of all subfields with claims at the start of p[0:n]; n where one is not
    whole.
    """
    cdef size_t at = 0, size
    while n - at >= ID_SIZE and is_id(p + at):
        size = subfield(p + at, n - at)
        if size == 0:
            return n
        at += size
    return at


cdef bint has_payload_claims(const uint8_t *p, size_t n) noexcept nogil:
    """Return whether p[0:n] is one batch with claims, readable or not, that can be taken out of its
    payload.
    """
    if n < RECORDS or p[MAGIC] != 2 or be32(p + BATCH_LENGTH) != <int64_t>n - LOG_OVERHEAD:
        return False
    if codec_of(p) == ZSTD:
        return claims_frame(p + RECORDS, n - RECORDS) != 0
    return codec_of(p) == GZIP and claims_extra(p + RECORDS, n - RECORDS) != 0


cdef const uint8_t *carried_block(const uint8_t *p, size_t n, Py_ssize_t *size) noexcept nogil:
    """Find the block in the payload of the batch p[0:n], whose claims can be read; NULL: it has
    none.
    """
    if not has_payload_claims(p, n):
        return NULL
    p += RECORDS
    if codec_of(p - RECORDS) == ZSTD:
        size[0] = le32(p + 4) - ID_SIZE
        return p + SKIPPABLE_HEADER + ID_SIZE
    p += GZIP_HEADER + EXTRA_HEADER
    size[0] = le16(p + ID_SIZE)
    return p + SUBFIELD_HEADER


cdef size_t claims_size(const uint8_t *p, size_t n) noexcept nogil:
    """Return how many bytes of claims stand in the payload of the batch p[0:n]."""
    cdef size_t extra, gone
    if not has_payload_claims(p, n):
        return 0
    p += RECORDS
    n -= RECORDS
    if codec_of(p - RECORDS) == ZSTD:
        return claims_frames(p, n)
    extra = claims_extra(p, n)
    gone = claims_subfields(p + GZIP_HEADER + EXTRA_HEADER, extra)
    return gone if gone < extra else extra + EXTRA_HEADER


cdef void strip_payload(uint8_t *to, const uint8_t *p, size_t n, size_t gone) noexcept nogil:
    """Write the batch p[0:n] without the ``gone`` bytes of claims_size. ``to`` may be ``p``.

    The rest does not begin with claims. The bytes after them move once.
    """
    cdef size_t kept = RECORDS, extra = 0, tail
    cdef uint32_t crc = <uint32_t>be32(p + CRC)
    if codec_of(p) == GZIP:
        kept += GZIP_HEADER
        extra = le16(p + kept)
        if gone < extra:  # other subfields stay, after the size of the extra field
            kept += EXTRA_HEADER
    tail = n - kept - gone
    crc ^= crc32c_moved(crc32c_of(0, p + ATTRIBUTES, kept + gone - ATTRIBUTES), tail)
    memmove(to, p, kept)
    memmove(to + kept, p + kept + gone, tail)
    if gone < extra:
        put_le16(to + kept - EXTRA_HEADER, extra - gone)
    elif extra:
        to[RECORDS + GZIP_FLAGS] &= <uint8_t>~FLAG_EXTRA
    put_be32(to + BATCH_LENGTH, <int32_t>(kept + tail - LOG_OVERHEAD))
    crc ^= crc32c_moved(crc32c_of(0, to + ATTRIBUTES, kept - ATTRIBUTES), tail)
    put_be32(to + CRC, <int32_t>crc)
