"""RecordRules in the form that the walk checks: numbers, sets and names.

    compiled_rules     once for each RecordRules that is alive
    ids_keep_rules     whether claims settle the rules
    ask_legacy_record  a message of magic 0 or 1

The ids and names are those of the topic's owner: a client that sends records cannot make a set
slow.
"""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from batchval.core.format.bytes cimport be32, be64
from batchval.core.format.layout cimport R1, R2, R3, R7, R8
from batchval.core.codecs.scratch cimport Scratch
from batchval.core.format.utf8 cimport is_utf8
from batchval.core.format.value_ids cimport SeenIds, ValueIds, note_value

from batchval.record_rules import COMPILED_RULES, RecordRules

cdef enum:
    INT_MAX = 0x7FFFFFFF
    MAX_SHORT_FIELD = 1 << 20  # a plain field is shorter: its length is a varint of 3 bytes

cdef enum:  # a header that holds a schema id, by its size
    HEADER_INT = 4
    HEADER_VERSIONED_INT = 5  # version:1 id:4
    HEADER_LONG = 8
    HEADER_GUID = 17  # version:1 guid:16
    GUID_VERSION = 1


# ---- compiled once -------------------------------------------------------------------------------

cdef int fill_ids(IdSet *ids, numbers) except -1:
    cdef uint64_t size = 4, at
    cdef int64_t number
    ids.shift = 62
    while size < 2 * <uint64_t>len(numbers):
        size *= 2
        ids.shift -= 1
    ids.places = <int64_t *>malloc(size * sizeof(int64_t))
    if ids.places is NULL:
        raise MemoryError()
    ids.mask = size - 1
    ids.count = len(numbers)
    for at in range(size):
        ids.places[at] = EMPTY_PLACE
    for number in numbers:
        at = place_of(ids, number)
        while ids.places[at & ids.mask] != EMPTY_PLACE:
            at += 1
        ids.places[at & ids.mask] = number
    return 0


cdef int fill_schema(Schema *schema, wanted) except -1:
    cdef bytes guids
    schema.any_allowed = wanted.any_allowed
    schema.of_key = wanted.of == "key"
    fill_ids(&schema.ids, wanted.ids or ())
    guids = b"".join(sorted([bytes.fromhex(guid.replace("-", "")) for guid in wanted.guids or ()]))
    schema.guids_count = len(guids) // GUID_SIZE
    schema.guids = <uint8_t *>malloc(len(guids) + 1)
    if schema.guids is NULL:
        raise MemoryError()
    memcpy(schema.guids, <const uint8_t *>guids, len(guids))
    return 0


cdef inline uint32_t zigzag_of(int32_t most) noexcept nogil:
    return 0xFFFFFFFF if most >= MAX_SHORT_FIELD else (<uint32_t>most << 1) + 1


@cython.final
cdef class CompiledRules:
    """The memory of one RecordRules."""

    def __cinit__(self):
        memset(&self.rules, 0, sizeof(Rules))

    def __dealloc__(self):
        cdef int i
        for i in range(MAX_SCHEMAS):
            free(self.rules.schemas[i].ids.places)
            free(self.rules.schemas[i].guids)
        free(self.rules.names)

    cdef int compile(self, rules) except -1:
        cdef Rules *r = &self.rules
        cdef int32_t i
        r.max_key = INT_MAX if rules.max_key_bytes is None else rules.max_key_bytes
        r.max_value = INT_MAX if rules.max_value_bytes is None else rules.max_value_bytes
        r.max_headers = INT_MAX if rules.max_headers is None else rules.max_headers
        r.most_key = zigzag_of(r.max_key)
        r.most_value = zigzag_of(r.max_value)
        r.refuse_tombstones = rules.tombstones == "refuse"
        r.utf8_keys = rules.utf8_keys
        r.schemas_count = len(rules.schema_ids)
        for i, wanted in enumerate(rules.schema_ids):
            fill_schema(&r.schemas[i], wanted)
            if wanted.place == "value":
                r.value_schema = &r.schemas[i]
                r.value_schema_at = i
            elif wanted.place == "key":
                r.key_schema = &r.schemas[i]
                r.key_schema_at = i
            else:
                r.header_schemas[r.header_schemas_count] = i
                r.header_schemas_count += 1
        self.fill_names(rules)
        r.required = (<uint64_t>0 - 1) >> (64 - len(rules.required_headers)) if (
            rules.required_headers) else 0
        r.plain = r.required == 0 and r.header_schemas_count == 0
        return 0

    cdef int fill_names(self, rules) except -1:
        """Lay out the names of headers that the rules check, each once."""
        cdef Rules *r = &self.rules
        cdef HeaderName *name
        cdef uint32_t place
        cdef Py_ssize_t at = 0
        roles = {}  # name -> [position in required, in forbidden, in header schemas]
        for i, header in enumerate(rules.required_headers):
            roles.setdefault(header, [-1, -1, -1])[0] = i
        for i, header in enumerate(rules.forbidden_headers):
            roles.setdefault(header, [-1, -1, -1])[1] = i
        for i in range(r.header_schemas_count):
            header = rules.schema_ids[r.header_schemas[i]].header
            roles.setdefault(header, [-1, -1, -1])[2] = i
        self.text = "".join(roles).encode()
        r.names_count = len(roles)
        r.names_asked = r.names_count > 0
        r.names = <HeaderName *>calloc(r.names_count + 1, sizeof(HeaderName))
        if r.names is NULL:
            raise MemoryError()
        for i, (header, (required, forbidden, schema)) in enumerate(roles.items()):
            name = &r.names[i]
            name.name = <const uint8_t *>self.text + at
            name.size = len(header.encode())
            name.required = required
            name.forbidden = forbidden
            name.schema = schema
            at += name.size
            r.sizes[name.size] = True
            place = place_of_name(name.name, name.size)
            while r.name_places[place]:
                place = (place + 1) & (NAME_PLACES - 1)
            r.name_places[place] = i + 1
        return 0


cdef CompiledRules compiled_rules(rules):
    """Return the compiled form, None where no record can break a rule."""
    cdef CompiledRules compiled
    if rules is None or rules.asks_nothing:
        return None
    compiled = COMPILED_RULES.get(rules)
    if compiled is None:
        compiled = CompiledRules()
        compiled.compile(rules)
        COMPILED_RULES[rules] = compiled
    return compiled


cdef CompiledRules _NOTHING = CompiledRules()
_NOTHING.compile(RecordRules())
cdef const Rules *NOTHING = &_NOTHING.rules


cdef const Rules *rules_that_ask_nothing() noexcept nogil:
    """Return rules for a walk that only looks at values."""
    return NOTHING


# ---- by claims -----------------------------------------------------------------------------------

cdef bint ids_keep_rules(const Rules *rules, const ValueIds *ids, bint keys_null,
        int32_t longest) noexcept nogil:
    """Return whether claims prove that no record breaks a rule. ``longest``: no record, and so no
    key and no value, has more bytes. Of headers claims say nothing.
    """
    cdef int32_t i
    if rules.names_asked or rules.header_schemas_count or rules.max_headers < INT_MAX:
        return False
    if not keys_null and (
            rules.key_schema is not NULL or rules.utf8_keys or longest > rules.max_key):
        return False
    if longest > rules.max_value or (rules.refuse_tombstones and not (
            ids.stated and ids.no_null)):
        return False
    if rules.value_schema is NULL:
        return True
    if not ids.stated:
        return False
    for i in range(ids.count):
        if not rules.value_schema.any_allowed and not has_number(
                &rules.value_schema.ids, ids.ids[i]):
            return False
    return True


# ---- one field -----------------------------------------------------------------------------------

cdef bint has_guid(const Schema *schema, const uint8_t *p) noexcept nogil:
    cdef size_t low = 0, high = schema.guids_count, middle
    cdef int order
    while low < high:
        middle = (low + high) >> 1
        order = memcmp(p, schema.guids + middle * GUID_SIZE, GUID_SIZE)
        if order == 0:
            return True
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return False


cdef void ask_schema_header(const Schema *schema, Found *found, const uint8_t *p,
        int32_t length) noexcept nogil:
    found.first = length
    if length < 0:
        found.kind = NULL_HEADER
    elif length == HEADER_INT:
        ask_number(schema, found, be32(p))
    elif length == HEADER_LONG:
        ask_number(schema, found, be64(p))
    elif length != HEADER_VERSIONED_INT and length != HEADER_GUID:
        found.kind = WRONG_HEADER_SIZE
    elif p[0] != (GUID_VERSION if length == HEADER_GUID else 0):
        found.kind = WRONG_HEADER_VERSION
        found.first = p[0]
        found.second = length
    elif length == HEADER_VERSIONED_INT:
        ask_number(schema, found, be32(p + 1))
    else:
        found.kind = 0
        found.first = be64(p + 1)
        found.second = be64(p + 9)
        if not schema.any_allowed and not has_guid(schema, p + 1):
            found.kind = GUID_NOT_ALLOWED


cdef bint value_keeps_rules(const Rules *rules, const uint8_t *value, uint32_t zigzag,
        uint64_t *known, SeenIds *seen) noexcept nogil:
    """Return whether a value of this length breaks neither the rule about tombstones nor that about
    its schema id. Notes it for ``seen``, which may be NULL, and its id in ``known``.
    """
    if seen is not NULL:
        note_value(seen, value, -1 if zigzag & 1 else <int32_t>(zigzag >> 1))
    if zigzag & 1:
        return not rules.refuse_tombstones
    return rules.value_schema is NULL or starts_with_id(rules.value_schema, value, zigzag, known)


cdef bint key_keeps_rules(const Rules *rules, const uint8_t *key, uint32_t key_length,
        uint64_t *last_id) noexcept nogil:
    """Return whether a key that is not null is UTF-8 and starts with a schema id, where the rules
    require it. A function of its own leaves the loop's registers to the loop.
    """
    if rules.utf8_keys and not is_utf8(key, key_length >> 1):
        return False
    return rules.key_schema is NULL or starts_with_id(rules.key_schema, key, key_length, last_id)


# ---- messages of magic 0 and 1 -------------------------------------------------------------------

cdef bint ask_legacy_record(const Rules *rules, const uint8_t *key, int32_t key_length,
        bint key_readable, const uint8_t *value, int32_t value_length, bint value_readable,
        int32_t index, Scratch *scratch) noexcept nogil:
    """Check a message of magic 0 or 1, which has no headers. A message whose fields run past its
    end breaks any rule.
    """
    cdef Asked asked
    cdef bint utf8 = True
    start_record(rules, &asked)
    if key_readable:
        if rules.utf8_keys and key_length > 0:
            utf8 = is_utf8(key, key_length)
        ask_key(rules, &asked, key, key_length, utf8)
    else:
        if rules.key_schema is not NULL:
            broken(&asked, R1, rules.key_schema_at, 0, 0, UNREADABLE)
        if rules.max_key < INT_MAX:
            broken(&asked, R2, 0, 0, 0, UNREADABLE)
        if rules.utf8_keys:
            broken(&asked, R8, 0, 0, 0, UNREADABLE)
    if value_readable:
        ask_value(rules, &asked, value, value_length)
    else:
        if rules.value_schema is not NULL:
            broken(&asked, R1, rules.value_schema_at, 0, 0, UNREADABLE)
        if rules.max_value < INT_MAX:
            broken(&asked, R3, 0, 0, 0, UNREADABLE)
        if rules.refuse_tombstones:
            broken(&asked, R7, 0, 0, 0, UNREADABLE)
    return end_record(rules, &asked, key_length if key_readable else 0,
            value_length if value_readable else 0, 0, index, scratch)
