"""The batch-level fields of KAFKA-8364: 13 bytes, big-endian, and what they settle.

    batch_min_timestamp:8 records_number:4 null_keys:1

In the header carrier they stand between the header of a batch of magic 3 and its records, under the CRC. In the tag
carrier they stand in a tagged field of a produce request: version:1 claims:13 crc:4, the crc being the batch's own.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.bytes cimport be32, be64, put_be32, put_be64
from batchval.core.crc32c cimport crc32c_moved, crc32c_of
from batchval.core.header cimport BatchHeader
from batchval.core.layout cimport *
from batchval.core.records cimport Checks

cdef enum:  # null_keys
    SOME_KEYS_NULL = 0  # or nothing is known
    ALL_KEYS_NULL = 1
    NO_KEY_NULL = 2

cdef enum:
    CLAIMS_SIZE = 13
    CLAIMED_RECORDS = 74  # where the records of a batch of magic 3 start: RECORDS + CLAIMS_SIZE
    CLAIMS_MAGIC = 3
    TAG_VERSION = 1
    TAG_SIZE = 18

cdef enum:
    # bit n: extra Sn, which no records under honest claims meet
    AGAINST_CLAIMS = S3_BIT | S4_BIT | S5_BIT | S7_BIT | S10_BIT

cdef enum:  # what a call says of claims
    IGNORE_CLAIMS
    VERIFY_CLAIMS
    TRUST_CLAIMS

cdef enum:  # Verdict.claims
    NO_CLAIMS
    CLAIMS_TRUSTED  # they settled it, nothing was decompressed
    CLAIMS_HONEST
    CLAIMS_LYING
    CLAIMS_UNJUDGED  # refused before the records were walked
    CLAIMS_UNBOUND  # a tag that is none, or another batch's

cdef struct Claims:
    int64_t batch_min_timestamp
    int32_t records_number
    int8_t null_keys

cdef struct ClaimsCall:  # for one batch
    int policy
    bint tagged
    size_t tag_size
    uint8_t tag[TAG_SIZE]  # if it has this size


cdef inline void read_claims(const uint8_t *p, Claims *claims) noexcept nogil:
    """The 13 bytes at p."""
    claims.batch_min_timestamp = be64(p)
    claims.records_number = be32(p + 8)
    claims.null_keys = <int8_t>p[12]


cdef inline void put_claims(uint8_t *p, const Claims *claims) noexcept nogil:
    put_be64(p, claims.batch_min_timestamp)
    put_be32(p + 8, claims.records_number)
    p[12] = <uint8_t>claims.null_keys


cdef inline bint read_tag(const uint8_t *p, size_t n, uint32_t crc, Claims *claims) noexcept nogil:
    """False: no tag of this version, or not made for the batch with this crc."""
    if n != TAG_SIZE or p[0] != TAG_VERSION or <uint32_t>be32(p + 1 + CLAIMS_SIZE) != crc:
        return False
    read_claims(p + 1, claims)
    return True


cdef inline int8_t strongest_null_keys(int32_t null_keys, int32_t records) noexcept nogil:
    return NO_KEY_NULL if null_keys == 0 else ALL_KEYS_NULL if null_keys == records else SOME_KEYS_NULL


cdef inline bint settles(const Claims *claims, const BatchHeader *h, const Checks *c) noexcept nogil:
    """Whether the claims answer all that LogValidator asks of a compressed batch's records, and answer yes.

    False: the slow path decides, be it that the claims say too little or that they would refuse.
    """
    if h.attributes & LOG_APPEND_TIME_BIT or claims.records_number != h.records_count or not c.all_plain:
        return False
    if claims.batch_min_timestamp < 0 or claims.batch_min_timestamp > h.max_timestamp:
        return False
    if claims.batch_min_timestamp < c.plain_least or h.max_timestamp > c.plain_most:
        return False
    if c.check_records and c.compacted:
        return claims.null_keys == NO_KEY_NULL
    return claims.null_keys == SOME_KEYS_NULL or claims.null_keys == ALL_KEYS_NULL or claims.null_keys == NO_KEY_NULL


cdef inline uint32_t crc_of_other_header(uint32_t crc, const uint8_t *before, size_t size_before,
        const uint8_t *after, size_t size_after, uint64_t tail) noexcept nogil:
    """The crc once the bytes under it before the ``tail`` are others. What is wrong with the tail stays wrong."""
    return crc ^ crc32c_moved(crc32c_of(0, before, size_before) ^ crc32c_of(0, after, size_after), tail)


cdef inline void attach_into(uint8_t *to, const uint8_t *p, size_t n, const Claims *claims) noexcept nogil:
    """A batch of magic 2, p[0:n], as one of magic 3 in to[0:n + 13]. Each byte at p is read
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
    """The other way: p[0:n] begins with a batch of magic 3 of ``size`` bytes; to has room for n -
    13. Each byte at p is read once, and its size field not at all."""
    cdef uint8_t[CLAIMED_RECORDS] header
    memcpy(header, p, CLAIMED_RECORDS)
    memcpy(to, header, RECORDS)
    memcpy(to + RECORDS, p + CLAIMED_RECORDS, n - CLAIMED_RECORDS)
    put_be32(to + BATCH_LENGTH, <int32_t>(size - LOG_OVERHEAD - CLAIMS_SIZE))
    to[MAGIC] = 2
    put_be32(to + CRC, <int32_t>crc_of_other_header(
        <uint32_t>be32(header + CRC), header + ATTRIBUTES, CLAIMED_RECORDS - ATTRIBUTES,
        to + ATTRIBUTES, RECORDS - ATTRIBUTES, size - CLAIMED_RECORDS))
