"""The batch-level fields of KAFKA-8364, big-endian, and the checks that they settle.

    version 1    batch_min_timestamp:8 records_number:4 null_keys:1
    block        version:1 = 2, version 1's fields, uncompressed_bytes:4 max_record_bytes:4 fields
    fields       count, then (number, size, bytes) in rising order; all but bytes: unsigned varints
                 number 1: batchval.core.format.value_ids
    tag          version:1 = 1, version 1's fields, crc:4   or   block crc:4; the crc of the batch

A tag stands in a tagged field of a produce request. Version 1's fields also stand between the
header of a batch of magic 3 and its records, a block in front of a compressed payload
(batchval.core.stages.carriers); both are under the batch's CRC.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.format.bytes cimport be32, be64, put_be32, put_be64, span
from batchval.core.format.crc32c cimport crc32c_moved, crc32c_of
from batchval.core.format.header cimport BatchHeader
from batchval.core.format.layout cimport *
from batchval.core.records.records cimport Checks
from batchval.core.format.value_ids cimport (
    MAX_IDS_FIELD_SIZE, SCHEMA_IDS_FIELD, ValueIds, covers, no_ids, put_value_ids, read_value_ids,
)
from batchval.core.stages.verdict cimport Verdict

cdef enum:  # null_keys
    SOME_KEYS_NULL = 0  # or unknown
    ALL_KEYS_NULL = 1
    NO_KEY_NULL = 2

cdef enum:
    CLAIMS_SIZE = 13  # of version 1's fields
    CLAIMED_RECORDS = 74  # where the records of a batch of magic 3 start: RECORDS + CLAIMS_SIZE
    CLAIMS_MAGIC = 3
    VERSION_1 = 1
    VERSION_2 = 2
    # Starts of the parts of a block.
    BLOCK_UNCOMPRESSED_BYTES = 14
    BLOCK_MAX_RECORD_BYTES = 18
    BLOCK_FIELDS = 22
    MIN_BLOCK_SIZE = 23
    MAX_BLOCK_SIZE = 256
    CRC_SIZE = 4
    TAG_1_SIZE = 18
    MAX_MADE_BLOCK_SIZE = MIN_BLOCK_SIZE + 2 + MAX_IDS_FIELD_SIZE  # with field 1, number:1 size:1

cdef enum:  # a call's policy for claims
    IGNORE_CLAIMS
    VERIFY_CLAIMS
    TRUST_CLAIMS

cdef enum:  # claims that a batch and its tag carry
    NOTHING_CARRIED
    CLAIMS_CARRIED
    UNREADABLE_CLAIMS

cdef enum:  # Verdict.claims
    NO_CLAIMS
    CLAIMS_TRUSTED  # they settled it, nothing was decompressed
    CLAIMS_HONEST
    CLAIMS_LYING
    CLAIMS_UNJUDGED  # refused before the records were walked
    CLAIMS_UNBOUND  # claims that cannot be read, are another batch's, or differ from each other

cdef struct Claims:
    int64_t batch_min_timestamp
    int32_t records_number
    int8_t null_keys
    int8_t version
    # these three: of version 2 only
    int32_t uncompressed_bytes  # LogValidator's uncompressedSizeInBytes: header and records
    int32_t max_record_bytes  # the longest record, without its length field
    uint32_t fields_crc  # of what follows; 0 without fields
    ValueIds schema_ids  # field 1

cdef struct ClaimsCall:  # for one batch
    int policy
    bint tagged
    bint readable  # the tag
    bint wants_ids  # claims for a topic with a rule for the ids of values are made of the walk
    uint32_t crc  # of the batch that the tag was made for
    Claims claims  # of the tag


cdef inline const uint8_t *read_uvarint(const uint8_t *p, const uint8_t *end,
        uint32_t *value) noexcept nogil:
    """Read an unsigned varint of 32 bits; NULL for a cut off or padded one."""
    cdef uint64_t v = 0
    cdef uint8_t byte
    cdef int shift = 0
    while p < end and shift < 35:
        byte = p[0]
        p += 1
        v |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <uint32_t>v
            if v >> 32 or (byte == 0 and shift):
                return NULL
            return p
        shift += 7
    return NULL


cdef inline bint read_fields(const uint8_t *p, size_t n, ValueIds *ids) noexcept nogil:
    """Return whether n bytes are the fields of a block, whatever their numbers mean; read number 1.
    """
    cdef const uint8_t *end = p + n
    cdef uint32_t count = 0, number = 0, size = 0
    cdef int64_t previous = -1
    p = read_uvarint(p, end, &count)
    while p is not NULL and count:
        count -= 1
        p = read_uvarint(p, end, &number)
        if p is not NULL:
            p = read_uvarint(p, end, &size)
        if p is NULL or number <= previous or size > span(p, end):
            return False
        if number == SCHEMA_IDS_FIELD:
            read_value_ids(p, size, ids)
        previous = number
        p += size
    return p == end


cdef inline void read_claims(const uint8_t *p, Claims *claims) noexcept nogil:
    """Read version 1's fields, 13 bytes at p."""
    claims.version = VERSION_1
    claims.fields_crc = 0
    no_ids(&claims.schema_ids)
    claims.batch_min_timestamp = be64(p)
    claims.records_number = be32(p + 8)
    claims.null_keys = <int8_t>p[12]


cdef inline void put_claims(uint8_t *p, const Claims *claims) noexcept nogil:
    put_be64(p, claims.batch_min_timestamp)
    put_be32(p + 8, claims.records_number)
    p[12] = <uint8_t>claims.null_keys


cdef inline bint read_block(const uint8_t *p, size_t n, Claims *claims) noexcept nogil:
    """Read a block of n bytes. False: it is malformed, or of another version."""
    if n < MIN_BLOCK_SIZE or n > MAX_BLOCK_SIZE or p[0] != VERSION_2:
        return False
    read_claims(p + 1, claims)
    claims.version = VERSION_2
    claims.uncompressed_bytes = be32(p + BLOCK_UNCOMPRESSED_BYTES)
    claims.max_record_bytes = be32(p + BLOCK_MAX_RECORD_BYTES)
    if n == MIN_BLOCK_SIZE:
        return p[BLOCK_FIELDS] == 0
    claims.fields_crc = crc32c_of(0, p + BLOCK_FIELDS, n - BLOCK_FIELDS)
    return read_fields(p + BLOCK_FIELDS, n - BLOCK_FIELDS, &claims.schema_ids)


cdef inline size_t put_block(uint8_t *p, const Claims *claims) noexcept nogil:
    """Write a block of version 2, with field 1 where it is stated. Return its size,
    MAX_MADE_BLOCK_SIZE at most.
    """
    cdef size_t size
    p[0] = VERSION_2
    put_claims(p + 1, claims)
    put_be32(p + BLOCK_UNCOMPRESSED_BYTES, claims.uncompressed_bytes)
    put_be32(p + BLOCK_MAX_RECORD_BYTES, claims.max_record_bytes)
    p[BLOCK_FIELDS] = 0
    if not claims.schema_ids.stated:
        return MIN_BLOCK_SIZE
    size = put_value_ids(p + MIN_BLOCK_SIZE + 2, &claims.schema_ids)
    p[BLOCK_FIELDS] = 1
    p[MIN_BLOCK_SIZE] = SCHEMA_IDS_FIELD
    p[MIN_BLOCK_SIZE + 1] = <uint8_t>size
    return MIN_BLOCK_SIZE + 2 + size


cdef inline void read_tag(const uint8_t *p, size_t n, ClaimsCall *call) noexcept nogil:
    """Read a tag of n bytes: ``call.readable``, and its content."""
    call.tagged = True
    call.readable = False
    if n == TAG_1_SIZE and p[0] == VERSION_1:
        read_claims(p + 1, &call.claims)
    elif n < CRC_SIZE or not read_block(p, n - CRC_SIZE, &call.claims):
        return
    call.readable = True
    call.crc = <uint32_t>be32(p + n - CRC_SIZE)


cdef inline bint differ(const Claims *one, const Claims *other) noexcept nogil:
    """Return whether two carriers of a batch differ: where one is of version 1, in its three
    fields.
    """
    if (one.batch_min_timestamp != other.batch_min_timestamp
            or one.records_number != other.records_number or one.null_keys != other.null_keys):
        return True
    if one.version == VERSION_1 or other.version == VERSION_1:
        return False
    return (one.uncompressed_bytes != other.uncompressed_bytes
            or one.max_record_bytes != other.max_record_bytes or one.fields_crc != other.fields_crc)


cdef inline int8_t strongest_null_keys(int32_t null_keys, int32_t records) noexcept nogil:
    return NO_KEY_NULL if null_keys == 0 else ALL_KEYS_NULL if null_keys == records else SOME_KEYS_NULL


cdef inline bint true_claims(const Verdict *v, Claims *claims) noexcept nogil:
    """Fill in the claims that are true of the one batch just walked. Return False where no claim
    would be. The ids of its values are in the scratch, and the caller adds them.

    ``v`` is the verdict, refusal or not: claims are about the records alone.
    """
    if v.walked != 1 or v.walked_records <= 0 or v.walked_found & AGAINST_CLAIMS:
        return False
    if v.walked_max_timestamp != v.stated_max_timestamp or v.walked_size != v.walked_uncompressed:
        return False
    claims.version = VERSION_2
    claims.batch_min_timestamp = v.walked_min_timestamp
    claims.records_number = v.walked_records
    claims.null_keys = strongest_null_keys(v.walked_null_keys, v.walked_records)
    claims.uncompressed_bytes = v.walked_uncompressed
    claims.max_record_bytes = v.walked_longest
    claims.fields_crc = 0
    no_ids(&claims.schema_ids)
    return True


cdef inline bint says_less(const Claims *claims, const Claims *true) noexcept nogil:
    """Return whether claims are the true ones, or claim less: null_keys 0, which claims nothing
    where a key is there, or more schema ids than the values have.
    """
    cdef Claims least = true[0]
    if claims.null_keys == SOME_KEYS_NULL and true.null_keys == NO_KEY_NULL:
        least.null_keys = SOME_KEYS_NULL
    least.fields_crc = claims.fields_crc
    if claims.schema_ids.stated and not covers(&claims.schema_ids, &true.schema_ids):
        return False
    return not differ(claims, &least)


cdef inline bint sizes_settle(const Claims *claims, const Checks *c, uint64_t limit) noexcept nogil:
    """Return whether the sizes are claimed and within the limits of a batch and of a record.

    Version 1 has no sizes: a topic that bounds a record more tightly than a batch needs the
    records. (``max_body`` is that bound, ``max.decompressed.message.bytes``.)
    """
    cdef int64_t records
    if claims.version == VERSION_1:
        return c.max_body >= 0 and <uint64_t>c.max_body >= limit
    records = <int64_t>claims.uncompressed_bytes - RECORDS
    return (0 <= records and <uint64_t>records <= limit
            and 0 <= claims.max_record_bytes <= c.max_body and claims.max_record_bytes <= records)


cdef inline bint settles(const Claims *claims, const BatchHeader *h, const Checks *c,
        uint64_t limit) noexcept nogil:
    """Return whether the claims prove that LogValidator accepts the records of a compressed batch.

    False: the slow path decides, because the claims are incomplete or because they would refuse.
    """
    if not sizes_settle(claims, c, limit):
        return False
    if h.attributes & LOG_APPEND_TIME_BIT or claims.records_number != h.records_count or not c.all_plain:
        return False
    if claims.batch_min_timestamp < 0 or claims.batch_min_timestamp > h.max_timestamp:
        return False
    if claims.batch_min_timestamp < c.plain_least or h.max_timestamp > c.plain_most:
        return False
    if c.check_records and c.compacted:
        return claims.null_keys == NO_KEY_NULL
    return claims.null_keys == SOME_KEYS_NULL or claims.null_keys == ALL_KEYS_NULL or claims.null_keys == NO_KEY_NULL


cdef inline bint settles_at_rest(const Claims *claims, const BatchHeader *h,
        uint64_t limit) noexcept nogil:
    """Return whether the claims of a batch of a segment agree with its header and with each other,
    so that they may be taken for its records.

    A batch with a delete horizon was written by the cleaner, which drops claims.
    """
    cdef int64_t records = <int64_t>claims.uncompressed_bytes - RECORDS
    if claims.version != VERSION_2 or h.attributes & DELETE_HORIZON_BIT:
        return False
    if claims.records_number != h.records_count or h.records_count <= 0:
        return False
    if h.last_offset_delta != h.records_count - 1:
        return False
    if claims.batch_min_timestamp < 0 or claims.batch_min_timestamp > h.max_timestamp:
        return False
    if not SOME_KEYS_NULL <= claims.null_keys <= NO_KEY_NULL:
        return False
    return (0 <= records and <uint64_t>records <= limit
            and 0 <= claims.max_record_bytes and claims.max_record_bytes <= records)


cdef inline uint32_t crc_of_other_header(uint32_t crc, const uint8_t *before, size_t size_before,
        const uint8_t *after, size_t size_after, uint64_t tail) noexcept nogil:
    """Return the crc after the bytes under it before the ``tail`` have changed. A fault in the tail
    still shows.
    """
    return crc ^ crc32c_moved(crc32c_of(0, before, size_before) ^ crc32c_of(0, after, size_after),
            tail)


cdef inline void attach_into(uint8_t *to, const uint8_t *p, size_t n,
        const Claims *claims) noexcept nogil:
    """Write a batch of magic 2, p[0:n], as one of magic 3 into to[0:n + 13]. Each byte at p is read
    once.
    """
    cdef uint8_t[RECORDS] header
    memcpy(header, p, RECORDS)
    memcpy(to, header, RECORDS)
    put_claims(to + RECORDS, claims)
    memcpy(to + CLAIMED_RECORDS, p + RECORDS, n - RECORDS)
    put_be32(to + BATCH_LENGTH, <int32_t>(n - LOG_OVERHEAD + CLAIMS_SIZE))
    to[MAGIC] = CLAIMS_MAGIC
    put_be32(to + CRC, <int32_t>crc_of_other_header(
        <uint32_t>be32(header + CRC), header + ATTRIBUTES, RECORDS - ATTRIBUTES,
        to + ATTRIBUTES, CLAIMED_RECORDS - ATTRIBUTES, n - RECORDS))


cdef inline void strip_into(uint8_t *to, const uint8_t *p, size_t n, size_t size) noexcept nogil:
    """Write p[0:n], which begins with a batch of magic 3 of ``size`` bytes, as magic 2. ``to`` has
    space for n - 13 bytes. Each byte at p is read once, and its size field not at all.
    """
    cdef uint8_t[CLAIMED_RECORDS] header
    memcpy(header, p, CLAIMED_RECORDS)
    memcpy(to, header, RECORDS)
    memcpy(to + RECORDS, p + CLAIMED_RECORDS, n - CLAIMED_RECORDS)
    put_be32(to + BATCH_LENGTH, <int32_t>(size - LOG_OVERHEAD - CLAIMS_SIZE))
    to[MAGIC] = 2
    put_be32(to + CRC, <int32_t>crc_of_other_header(
        <uint32_t>be32(header + CRC), header + ATTRIBUTES, CLAIMED_RECORDS - ATTRIBUTES,
        to + ATTRIBUTES, RECORDS - ATTRIBUTES, size - CLAIMED_RECORDS))
