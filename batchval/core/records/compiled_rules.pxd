"""A topic's record rules in the form that the walk checks, and the rules that one record has broken
so far; and the checks of a record's fields, inline, for the walk over records.

    start_record   then ask_key, ask_value and ask_header in the order of the record's fields
    end_record     what only the whole record says; a broken rule goes to the scratch

Of the rules that a record breaks the one with the lowest number counts. No allocation, no Python
object, each field is read once.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from batchval.core.format.bytes cimport be32, le32, le64, likely
from batchval.core.format.layout cimport R1, R2, R3, R4, R5, R6, R7, R8
from batchval.core.codecs.scratch cimport Scratch, add_broken
from batchval.core.format.value_ids cimport SeenIds, ValueIds

cdef enum:
    MAX_SCHEMAS = 8  # batchval.record_rules.MAX_SCHEMA_IDS
    MAX_NAME_BYTES = 255  # bytes: MAX_HEADER_NAME_BYTES
    HEAD = 256  # bytes of a field that is read across blocks; holds the longest name
    NAME_PLACES = 512
    SCHEMA_PREFIX = 5  # magic:1 id:4
    GUID_SIZE = 16

cdef enum:  # RecordError.kind: what is wrong with a schema id, or with its field
    NUMBER_NOT_ALLOWED = 1
    GUID_NOT_ALLOWED
    TOO_SHORT  # for magic and id
    WRONG_MAGIC
    NO_HEADER
    NULL_HEADER
    WRONG_HEADER_SIZE
    WRONG_HEADER_VERSION
    UNREADABLE  # a message's field runs past its end

cdef enum:  # IdSet's mark of an empty place: no id has this number
    EMPTY_PLACE = -1

cdef struct IdSet:  # open addressing, at most half full
    int64_t *places
    int32_t shift  # of a hash, to a place
    uint64_t mask  # the last place
    size_t count

cdef struct Schema:
    bint any_allowed
    bint of_key  # what the schema describes: else the value
    IdSet ids
    uint8_t *guids  # sorted, 16 bytes each
    size_t guids_count

cdef struct HeaderName:
    const uint8_t *name
    int32_t size
    int16_t required  # position in required_headers, -1
    int16_t forbidden
    int16_t schema  # in header_schemas

cdef struct Rules:
    # lengths as zigzag varints, for records that lie whole in a block; null, 1, is within both
    uint32_t most_key
    uint32_t most_value
    int32_t max_key
    int32_t max_value
    int32_t max_headers
    bint refuse_tombstones
    bint utf8_keys
    bint plain  # records without headers can be in order
    bint names_asked
    const Schema *value_schema  # NULL: not checked
    const Schema *key_schema
    uint8_t value_schema_at, key_schema_at  # in RecordRules.schema_ids
    Schema schemas[MAX_SCHEMAS]
    int32_t schemas_count
    int32_t header_schemas[MAX_SCHEMAS]  # positions in schemas
    int32_t header_schemas_count
    uint64_t required  # a bit for each required header
    HeaderName *names
    int32_t names_count
    uint8_t name_places[NAME_PLACES]  # a name's position + 1, 0: empty
    bint sizes[MAX_NAME_BYTES + 1]  # of names

cdef struct Found:  # of one schema id
    uint8_t kind  # 0: allowed
    int64_t first
    int64_t second

cdef struct Asked:  # one record, while its fields are read
    int32_t rule  # the lowest that is broken, NO_RULE
    uint8_t kind
    uint8_t which
    int64_t first
    int64_t second
    uint64_t met  # required headers
    Found headers[MAX_SCHEMAS]  # the last header of each schema

cdef enum:
    NO_RULE = 0x7FFF

cdef enum:
    NO_ID_YET = 0xFFFFFFFFFFFFFFFF

cdef class CompiledRules:
    cdef Rules rules
    cdef bytes text  # of the names
    cdef int compile(self, rules) except -1
    cdef int fill_names(self, rules) except -1

cdef inline bint asks_value_schema(const Rules *rules) noexcept nogil:
    """Return whether a topic's rules, NULL for none, check the schema ids of values."""
    return rules is not NULL and rules.value_schema is not NULL

cdef CompiledRules compiled_rules(rules)
cdef const Rules *rules_that_ask_nothing() noexcept nogil
cdef bint ids_keep_rules(const Rules *rules, const ValueIds *ids, bint keys_null,
        int32_t longest) noexcept nogil
cdef void ask_schema_header(const Schema *schema, Found *found, const uint8_t *p,
        int32_t length) noexcept nogil
cdef bint value_keeps_rules(const Rules *rules, const uint8_t *value, uint32_t zigzag,
        uint64_t *known, SeenIds *seen) noexcept nogil
cdef bint key_keeps_rules(const Rules *rules, const uint8_t *key, uint32_t key_length,
        uint64_t *last_id) noexcept nogil
cdef bint ask_legacy_record(const Rules *rules, const uint8_t *key, int32_t key_length,
        bint key_readable, const uint8_t *value, int32_t value_length, bint value_readable,
        int32_t index, Scratch *scratch) noexcept nogil


cdef inline uint64_t place_of(const IdSet *ids, int64_t number) noexcept nogil:
    """Return a place by Fibonacci hashing: registries count their ids up, and neighbours get places
    far apart.
    """
    return <uint64_t>number * <uint64_t>0x9E3779B97F4A7C15 >> ids.shift


cdef inline bint has_number(const IdSet *ids, int64_t number) noexcept nogil:
    cdef uint64_t at = place_of(ids, number)
    cdef int64_t found
    while True:
        found = ids.places[at & ids.mask]
        # First: -1, which a record may hold, must not be found in an empty place.
        if found == EMPTY_PLACE:
            return False
        if found == number:
            return True
        at += 1


cdef inline bint starts_with_id(const Schema *schema, const uint8_t *p, uint32_t zigzag,
        uint64_t *last) noexcept nogil:
    """Return whether a field of this length, which is not null, starts with an allowed id. ``last``
    is the previous id in wire order, or NO_ID_YET: most records of a batch have the same.
    """
    cdef uint32_t stored
    if zigzag < SCHEMA_PREFIX << 1 or p[0] != 0:
        return False
    memcpy(&stored, p + 1, 4)
    if likely(stored == last[0], 1):
        return True
    if not schema.any_allowed and not has_number(&schema.ids, be32(p + 1)):
        return False
    last[0] = stored
    return True


cdef inline void ask_number(const Schema *schema, Found *found, int64_t number) noexcept nogil:
    found.first = number
    found.kind = 0
    if not schema.any_allowed and not has_number(&schema.ids, number):
        found.kind = NUMBER_NOT_ALLOWED


cdef inline uint32_t place_of_name(const uint8_t *p, int32_t size) noexcept nogil:
    """Return a place in Rules.name_places: of all bytes, 8 at a time."""
    cdef uint64_t x = <uint64_t>size
    cdef int32_t left = size
    while left > 8:
        x = (x ^ le64(p)) * <uint64_t>0x9E3779B97F4A7C15
        x ^= x >> 32
        p += 8
        left -= 8
    if size >= 8:
        x ^= le64(p + left - 8)
    elif size >= 4:
        x ^= <uint64_t>le32(p) << 32 ^ le32(p + size - 4)
    elif size:
        x ^= <uint64_t>p[0] << 32 ^ <uint64_t>p[size >> 1] << 24 ^ <uint64_t>p[size - 1] << 16
    return <uint32_t>(x * <uint64_t>0x9E3779B97F4A7C15 >> 55)  # NAME_PLACES is 1 << 9


cdef inline void broken(Asked *asked, int32_t rule, uint8_t which=0, int64_t first=0,
        int64_t second=0, uint8_t kind=0) noexcept nogil:
    if rule >= asked.rule:
        return
    asked.rule = rule
    asked.which = which
    asked.kind = kind
    asked.first = first
    asked.second = second


cdef inline void ask_prefix(const Schema *schema, Found *found, const uint8_t *p,
        int32_t length) noexcept nogil:
    """Check the start of a value or key, of which p has up to SCHEMA_PREFIX bytes."""
    if length < SCHEMA_PREFIX:
        found.kind = TOO_SHORT
        found.first = length
    elif p[0] != 0:
        found.kind = WRONG_MAGIC
        found.first = p[0]
    else:
        ask_number(schema, found, be32(p + 1))


cdef inline void start_record(const Rules *rules, Asked *asked) noexcept nogil:
    cdef int32_t i
    asked.rule = NO_RULE
    asked.met = 0
    for i in range(rules.header_schemas_count):
        asked.headers[i].kind = NO_HEADER
        asked.headers[i].first = 0
        asked.headers[i].second = 0


cdef inline void ask_key(const Rules *rules, Asked *asked, const uint8_t *head, int32_t length,
        bint utf8) noexcept nogil:
    """Check a key. ``head``: its first bytes, up to SCHEMA_PREFIX. A length below 0 is null."""
    cdef Found found
    if length < 0:
        return
    if rules.key_schema is not NULL:
        ask_prefix(rules.key_schema, &found, head, length)
        if found.kind:
            broken(asked, R1, rules.key_schema_at, found.first, 0, found.kind)
    if length > rules.max_key:
        broken(asked, R2, 0, length)
    if not utf8:
        broken(asked, R8, 0, length)


cdef inline void ask_value(const Rules *rules, Asked *asked, const uint8_t *head,
        int32_t length) noexcept nogil:
    cdef Found found
    if length < 0:
        if rules.refuse_tombstones:
            broken(asked, R7)
        return
    if rules.value_schema is not NULL:
        ask_prefix(rules.value_schema, &found, head, length)
        if found.kind:
            broken(asked, R1, rules.value_schema_at, found.first, 0, found.kind)
    if length > rules.max_value:
        broken(asked, R3, 0, length)


cdef inline const HeaderName *name_of(const Rules *rules, const uint8_t *p,
        int32_t size) noexcept nogil:
    """Return the name among those that rules check, NULL. The caller has checked ``sizes``."""
    cdef uint32_t place = place_of_name(p, size)
    cdef const HeaderName *name
    while rules.name_places[place]:
        name = &rules.names[rules.name_places[place] - 1]
        if name.size == size and memcmp(name.name, p, size) == 0:
            return name
        place = (place + 1) & (NAME_PLACES - 1)
    return NULL


cdef inline void ask_header(const Rules *rules, Asked *asked, const HeaderName *name,
        const uint8_t *head, int32_t length) noexcept nogil:
    """Check a header. ``head``: the first bytes of its value, up to HEADER_GUID."""
    if name.required >= 0:
        asked.met |= <uint64_t>1 << name.required
    if name.forbidden >= 0:
        broken(asked, R6, <uint8_t>name.forbidden)
    if name.schema >= 0:
        ask_schema_header(&rules.schemas[rules.header_schemas[name.schema]],
                &asked.headers[name.schema], head, length)


cdef inline bint end_record(const Rules *rules, Asked *asked, int32_t key_length,
        int32_t value_length, int32_t headers, int32_t index, Scratch *scratch) noexcept nogil:
    """Check the whole record. Return False without memory."""
    cdef int32_t i
    cdef uint64_t missing
    cdef const Found *found
    for i in range(rules.header_schemas_count):
        found = &asked.headers[i]
        if found.kind == 0 or (key_length if rules.schemas[rules.header_schemas[i]].of_key
                               else value_length) < 0:
            continue
        broken(asked, R1, rules.header_schemas[i], found.first, found.second, found.kind)
    if headers > rules.max_headers:
        broken(asked, R4, 0, headers)
    missing = rules.required & ~asked.met
    if missing:
        i = 0
        while not missing >> i & 1:
            i += 1
        broken(asked, R5, <uint8_t>i)
    if asked.rule == NO_RULE:
        return True
    return add_broken(scratch, index, asked.rule, asked.which, asked.kind, asked.first,
            asked.second)
