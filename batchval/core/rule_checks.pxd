"""Record rules, checked field by field; inline, for the walk over records.

    start_record   then ask_key, ask_value and ask_header in the order of the record's fields
    end_record     what only the whole record says; a broken rule goes to the scratch

Of the rules that a record breaks the one with the lowest number counts. No allocation, no Python
object, each field is read once.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from batchval.core.compiled_rules cimport (
    NAME_PLACES, NO_HEADER, NO_RULE, SCHEMA_PREFIX, TOO_SHORT, WRONG_MAGIC, Asked, Found,
    HeaderName, Rules, Schema, ask_number, ask_schema_header, place_of_name,
)
from batchval.core.bytes cimport be32
from batchval.core.layout cimport R1, R2, R3, R4, R5, R6, R7, R8
from batchval.core.scratch cimport Scratch, add_broken


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
