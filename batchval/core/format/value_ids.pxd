"""The schema ids at the start of a batch's values: field 1 of claims, and what a walk collects.

    field 1   flags:1 (id:4)*    flags, bit 0: no value is null; ids: int32, big-endian, rising

Each value that is not null begins with a byte 0 and one of the ids (Confluent's wire format). A
field 1 of another form is ignored, as a field with an unknown number is.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.format.bytes cimport be32, put_be32

cdef enum:
    SCHEMA_IDS_FIELD = 1
    MAX_CLAIMED_IDS = 16
    NO_VALUE_NULL = 1  # bit of the flags
    VALUE_ID_SIZE = 4
    MAX_IDS_FIELD_SIZE = 65  # flags and 16 ids
    VALUE_ID_PREFIX = 5  # magic:1 id:4

cdef enum:
    NO_ID_NOTED = 0xFFFFFFFFFFFFFFFF

cdef struct ValueIds:
    bint stated  # False: the values have no ids, or too many, or no claim
    bint no_null
    int32_t count
    int32_t[MAX_CLAIMED_IDS] ids  # rising

cdef struct SeenIds:  # while records are walked
    bint wanted
    uint64_t last  # the id noted last, as it lies, or NO_ID_NOTED
    ValueIds ids


cdef inline void no_ids(ValueIds *to) noexcept nogil:
    to.stated = False
    to.no_null = False
    to.count = 0


cdef inline void read_value_ids(const uint8_t *p, size_t n, ValueIds *to) noexcept nogil:
    """Read the content of field 1. ``stated`` is False for a content of another form."""
    cdef size_t at = 1
    cdef int32_t number
    no_ids(to)
    if n < 1 or n > MAX_IDS_FIELD_SIZE or (n - 1) % VALUE_ID_SIZE or p[0] & ~<uint8_t>NO_VALUE_NULL:
        return
    while at < n:
        number = be32(p + at)
        if to.count and number <= to.ids[to.count - 1]:
            return
        to.ids[to.count] = number
        to.count += 1
        at += VALUE_ID_SIZE
    to.no_null = p[0] & NO_VALUE_NULL
    to.stated = True


cdef inline size_t put_value_ids(uint8_t *p, const ValueIds *ids) noexcept nogil:
    """Write the content of field 1. Return its size, MAX_IDS_FIELD_SIZE at most."""
    cdef int32_t i
    p[0] = NO_VALUE_NULL if ids.no_null else 0
    for i in range(ids.count):
        put_be32(p + 1 + VALUE_ID_SIZE * i, ids.ids[i])
    return 1 + VALUE_ID_SIZE * <size_t>ids.count


cdef inline bint covers(const ValueIds *claimed, const ValueIds *found) noexcept nogil:
    """Return whether the claimed ids are true of values with the found ones, which may be fewer."""
    cdef int32_t i, at = 0
    if not found.stated or (claimed.no_null and not found.no_null):
        return False
    for i in range(found.count):
        while at < claimed.count and claimed.ids[at] < found.ids[i]:
            at += 1
        if at == claimed.count or claimed.ids[at] != found.ids[i]:
            return False
    return True


cdef inline void want_ids(SeenIds *seen, bint wanted) noexcept nogil:
    seen.wanted = wanted
    no_ids(&seen.ids)


cdef inline void start_ids(SeenIds *seen) noexcept nogil:
    """Begin a batch: no value was noted yet."""
    seen.last = NO_ID_NOTED
    seen.ids.stated = True
    seen.ids.no_null = True
    seen.ids.count = 0


cdef inline void add_id(ValueIds *ids, int32_t number) noexcept nogil:
    cdef int32_t i = ids.count, at = ids.count
    while at and ids.ids[at - 1] >= number:
        at -= 1
    if at < ids.count and ids.ids[at] == number:
        return
    if ids.count == MAX_CLAIMED_IDS:
        ids.stated = False
        return
    while i > at:
        ids.ids[i] = ids.ids[i - 1]
        i -= 1
    ids.ids[at] = number
    ids.count += 1


cdef inline void note_value(SeenIds *seen, const uint8_t *p, int32_t length) noexcept nogil:
    """Note a value by its first bytes. A length below 0 is null."""
    cdef uint32_t stored
    if not seen.ids.stated:
        return
    if length < 0:
        seen.ids.no_null = False
    elif length < VALUE_ID_PREFIX or p[0] != 0:
        seen.ids.stated = False
    else:
        memcpy(&stored, p + 1, VALUE_ID_SIZE)
        if stored != seen.last:
            seen.last = stored
            add_id(&seen.ids, be32(p + 1))
