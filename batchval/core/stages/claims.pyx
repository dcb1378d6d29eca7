"""Claims about a batch: how they are made, carried and read. batchval.core.stages.stages decides by
them.
"""

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyNumber_Index
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from typing import NamedTuple

from batchval.core.stages.arguments cimport (
    MAX_DECOMPRESSED_LIMIT, NOGIL_COMPRESSED, private_bytes, take_buffer, whole_number,
)
from batchval.core.format.bytes cimport be32, put_be32
from batchval.core.stages.carriers cimport (
    MAX_CARRIER_SIZE, attach_to_payload, carried_block, carrier_size, claims_size, find_claims,
    has_payload_claims, strip_payload,
)
from batchval.core.stages.claims_block cimport (
    ALL_KEYS_NULL, BLOCK_FIELDS, CLAIMED_RECORDS, CLAIMS_CARRIED, CLAIMS_MAGIC, CLAIMS_SIZE,
    CRC_SIZE, MAX_BLOCK_SIZE, MAX_MADE_BLOCK_SIZE, NOTHING_CARRIED, MIN_BLOCK_SIZE,
    UNREADABLE_CLAIMS, VERIFY_CLAIMS, VERSION_1, VERSION_2, Claims, ClaimsCall, attach_into,
    put_block, put_claims, read_block, read_claims, read_tag, read_uvarint, says_less,
    strip_into, true_claims,
)
from batchval.core.codecs.codec_streams cimport DAMAGED, Stream, open_stream, position
from batchval.core.format.header cimport BatchHeader, read_header
from batchval.core.format.layout cimport (
    BATCH_LENGTH, CODEC_MASK, LOG_OVERHEAD, MAGIC, NONE, RECORDS, ZSTD,
)
from batchval.core.records.records cimport (
    BUFFER_PARSER, SKIP_PARSER, WALKED, Checks, Facts, clear_facts, structure_alone, walk,
)
from batchval.core.codecs.scratch cimport Scratch, begin_work, borrow, end_work, give_back
from batchval.core.format.value_ids cimport (
    MAX_IDS_FIELD_SIZE, SCHEMA_IDS_FIELD, ValueIds, no_ids, put_value_ids, read_value_ids, want_ids,
)
from batchval.core.stages.verdict cimport Verdict, clear, note_facts

from batchval.errors import ArgumentValueError, BatchvalError
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

_new_tuple = tuple.__new__

#: The tagged field of PartitionProduceData that carries a tag, in Produce v9 and later.
TAG = 25206


class BatchClaims(NamedTuple):
    """The claims that KAFKA-8364 proposes about a batch, so that a broker does not have to
    decompress it.

    ``batch_min_timestamp``  the lowest timestamp of its records, ms
    ``records_number``       how many there are; also that each parses and that offset deltas are 0 to n - 1
    ``null_keys``            1: every key is null. 2: no key is null. 0: neither, or nothing is known
    ``uncompressed_bytes``   header and records: LogValidator's uncompressedSizeInBytes
    ``max_record_bytes``     the longest record without its length field, which
                             ``max.decompressed.message.bytes`` bounds
    ``fields``               (number, bytes) of each further field, in rising order of numbers;
                             number 1: see ``schema_ids``

    Version 1 has the first three only: both sizes are None, and ``fields`` is empty.
    """

    batch_min_timestamp: int
    records_number: int
    null_keys: int
    uncompressed_bytes: int | None = None
    max_record_bytes: int | None = None
    fields: tuple = ()

    @property
    def all_key_is_null(self):
        """Return the proposal's boolean."""
        return self.null_keys == ALL_KEYS_NULL

    @property
    def version(self):
        """Return 1 without sizes, else 2."""
        return VERSION_1 if self.uncompressed_bytes is None else VERSION_2

    @property
    def schema_ids(self):
        """Return the ids of field 1: each value that is not null begins with a byte 0 and one of
        them. None: nothing is claimed of them.
        """
        cdef ValueIds ids
        cdef int32_t i
        ids_in(self.fields, &ids)
        return tuple([ids.ids[i] for i in range(ids.count)]) if ids.stated else None

    @property
    def no_value_null(self):
        """Return whether field 1 states that no value is null."""
        cdef ValueIds ids
        ids_in(self.fields, &ids)
        return bool(ids.stated and ids.no_null)

    def to_bytes(self):
        """Return the 13 bytes of version 1, as a header of magic 3 carries them."""
        cdef Claims claims
        fill(self, &claims)
        return version_1_bytes(&claims)

    @classmethod
    def from_bytes(cls, data):
        """Read 13 bytes; BatchvalError for any other number of them. No value is refused: a claim
        may be a lie.
        """
        cdef Py_buffer view
        cdef Claims claims
        take_buffer(data, &view)
        try:
            if view.len != CLAIMS_SIZE:
                raise BatchvalError(f"claims must have {CLAIMS_SIZE} bytes, not {view.len}")
            read_claims(<const uint8_t *>view.buf, &claims)
        finally:
            PyBuffer_Release(&view)
        return batch_claims_of(&claims)

    def to_block(self):
        """Return the block of version 2: what a payload carries, and a tag before the crc.

        Raises BatchvalError for claims without sizes, and for fields that make no block.
        """
        cdef Claims claims
        fill(self, &claims)
        return block_of(&claims, self.fields)

    @classmethod
    def from_block(cls, block):
        """Read the bytes of a block; BatchvalError for malformed ones. No value is refused."""
        cdef Py_buffer view
        cdef Claims claims
        block = private_bytes(block)
        take_buffer(block, &view)
        try:
            if not read_block(<const uint8_t *>view.buf, view.len, &claims):
                raise BatchvalError(
                    f"{view.len} bytes that are not a block of claims: expected version "
                    f"{VERSION_2} and {MIN_BLOCK_SIZE} to {MAX_BLOCK_SIZE} bytes, with fields in "
                    "rising order to the end")
            return batch_claims_of(&claims, fields_of((<const char *>view.buf)[:view.len]))
        finally:
            PyBuffer_Release(&view)


cdef object batch_claims_of(const Claims *claims, tuple fields=()):
    # a named tuple's own __new__ is Python, and costs more than the walk over a small batch
    if claims.version == VERSION_1:
        return _new_tuple(BatchClaims, (
            claims.batch_min_timestamp, claims.records_number, claims.null_keys,
            None, None, fields))
    return _new_tuple(BatchClaims, (
        claims.batch_min_timestamp, claims.records_number, claims.null_keys,
        claims.uncompressed_bytes, claims.max_record_bytes, fields))


cdef tuple fields_of(bytes block):
    """Return the fields of a block that was read already."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(block)
    cdef const uint8_t *end = p + PyBytes_GET_SIZE(block)
    cdef uint32_t count = 0, number = 0, size = 0
    fields = []
    p = read_uvarint(p + BLOCK_FIELDS, end, &count)
    while p is not NULL and count:
        count -= 1
        p = read_uvarint(p, end, &number)
        p = read_uvarint(p, end, &size) if p is not NULL else NULL
        if p is NULL or size > <size_t>(end - p):
            break
        fields.append((number, (<const char *>p)[:size]))
        p += size
    return tuple(fields)


cdef tuple fields_made(const Claims *claims):
    """Return the fields that put_block writes."""
    cdef uint8_t[MAX_IDS_FIELD_SIZE] data
    cdef size_t size
    if not claims.schema_ids.stated:
        return ()
    size = put_value_ids(data, &claims.schema_ids)
    return ((SCHEMA_IDS_FIELD, (<const char *>data)[:size]),)


cdef int ids_in(fields, ValueIds *ids) except -1:
    """Read field 1 among (number, bytes)."""
    no_ids(ids)
    for number, content in fields:
        if number == SCHEMA_IDS_FIELD:
            content = bytes(content)
            read_value_ids(
                <const uint8_t *>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content), ids)
    return 0


cdef bytes uvarint(value):
    cdef uint32_t left = <uint32_t>whole_number("a field's number or size", value, 0, 0xFFFFFFFF)
    data = bytearray()
    while left >= 0x80:
        data.append(left & 0x7F | 0x80)
        left >>= 7
    data.append(left)
    return bytes(data)


cdef bytes block_of(const Claims *claims, fields):
    """Return the block of version 2 with these fields."""
    cdef uint8_t data[MAX_MADE_BLOCK_SIZE]
    cdef Claims again
    if claims.version != VERSION_2:
        raise BatchvalError(
            "claims without sizes are of version 1, which no payload carries: "
            "set uncompressed_bytes and max_record_bytes")
    put_block(data, claims)
    block = (<const char *>data)[:BLOCK_FIELDS] + uvarint(len(fields))
    for number, content in fields:
        block += uvarint(number) + uvarint(len(content)) + bytes(content)
    if not read_block(<const uint8_t *>PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block), &again):
        raise BatchvalError(
            f"fields {fields!r} make no block of at most {MAX_BLOCK_SIZE} bytes with numbers in "
            "rising order")
    return block


cdef int fill(values, Claims *claims) except -1:
    """Fill in claims from ``values``: BatchClaims, or a sequence of its first three or five fields.
    """
    cdef Py_ssize_t n = 0
    try:
        values = tuple(values)
        n = len(values)
        if n not in (3, 5, 6):
            raise ValueError(f"{n} values")
        claims.version = VERSION_1
        claims.batch_min_timestamp = PyNumber_Index(values[0])
        claims.records_number = PyNumber_Index(values[1])
        claims.null_keys = PyNumber_Index(values[2])
        claims.uncompressed_bytes = claims.max_record_bytes = 0
        claims.fields_crc = 0
        ids_in(values[5] if n == 6 else (), &claims.schema_ids)
        if n > 3 and values[3] is not None:
            claims.version = VERSION_2
            claims.uncompressed_bytes = PyNumber_Index(values[3])
            claims.max_record_bytes = PyNumber_Index(values[4])
    except (TypeError, ValueError, OverflowError) as error:
        raise BatchvalError(
            "claims must be (int64, int32, int8) or (int64, int32, int8, int32, int32), "
            f"not {values!r}: {error}") from None
    return 0


cdef tuple fields_in(values):
    """Return the further fields of claims that ``fill`` has taken."""
    values = tuple(values)
    return tuple(values[5]) if len(values) == 6 else ()


cdef int take_batch(batch, Py_buffer *view, int magic) except -1:
    """Take a buffer that is exactly one whole batch of this magic."""
    cdef size_t least = CLAIMED_RECORDS if magic == CLAIMS_MAGIC else RECORDS
    cdef const uint8_t *p
    take_buffer(batch, view)
    p = <const uint8_t *>view.buf
    if <size_t>view.len < least or p[MAGIC] != magic or be32(p + BATCH_LENGTH) != view.len - LOG_OVERHEAD:
        PyBuffer_Release(view)
        raise BatchvalError(f"the buffer must be exactly one whole batch of magic {magic}")
    return 0


cdef bint claims_in_records(const uint8_t *p, size_t n, Py_ssize_t header, uint64_t limit,
        bint schema_ids, Scratch *scratch, Claims *claims) noexcept nogil:
    """Walk the records after ``header`` bytes as strict mode does. Return False where no claims
    would be true of them.
    """
    cdef BatchHeader h
    cdef Checks c
    cdef Facts f
    cdef Stream s
    cdef Verdict v
    cdef int codec
    read_header(p, &h)
    codec = h.attributes & CODEC_MASK
    if codec > ZSTD or h.records_count <= 0 or h.last_offset_delta != h.records_count - 1:
        return False
    structure_alone(&c)
    c.extras = True
    clear_facts(&f)
    want_ids(&scratch.seen_ids, schema_ids)
    open_stream(&s, scratch, codec, 2, p + header, n - header, limit, False)
    if s.status == DAMAGED:
        return False
    if walk(&s, &h, &c, &f, BUFFER_PARSER if codec == NONE else SKIP_PARSER) != WALKED:
        return False
    if s.overlong or s.mislabelled:
        return False
    clear(&v)
    note_facts(&f, &v)
    v.walked_size = RECORDS + position(&s)
    v.stated_max_timestamp = h.max_timestamp
    if not true_claims(&v, claims):
        return False
    claims.schema_ids = scratch.seen_ids.ids
    return True


cdef bint claims_unlocked(const uint8_t *p, size_t n, size_t header, uint64_t limit,
        bint schema_ids, Scratch *scratch, Claims *claims) noexcept nogil:
    """Call ``claims_in_records``. The caller has the GIL, which is released when the work is long.
    """
    cdef bint honest
    begin_work(scratch, n >= NOGIL_COMPRESSED)
    honest = claims_in_records(p, n, header, limit, schema_ids, scratch, claims)
    end_work(scratch)
    return honest


def compute(batch, *, max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES, schema_ids=False):
    """Return the claims of a batch of magic 2 (or of magic 3, ignoring those it carries).

    Returns None where no claim could be honest: records that strict mode refuses, a max timestamp
    in the header that is not the highest, more than ``max_decompressed_bytes``. The checksum is not
    verified. ``schema_ids``: field 1 states the ids at the start of the values, where each value
    that is not null has one and there are at most 16.
    """
    cdef Py_buffer view
    cdef Claims claims
    cdef Scratch *scratch
    cdef bint honest, ids_wanted = schema_ids
    cdef int magic
    cdef uint64_t limit = whole_number(
            "max_decompressed_bytes", max_decompressed_bytes, 0, MAX_DECOMPRESSED_LIMIT, "bytes")
    take_buffer(batch, &view)
    magic = (<const uint8_t *>view.buf)[MAGIC] if view.len > MAGIC else 2
    PyBuffer_Release(&view)
    if magic == CLAIMS_MAGIC:
        take_batch(batch, &view, CLAIMS_MAGIC)
    else:
        take_batch(batch, &view, 2)
    try:
        scratch = borrow()
        try:
            honest = claims_unlocked(<const uint8_t *>view.buf, view.len,
                              CLAIMED_RECORDS if magic == CLAIMS_MAGIC else RECORDS, limit,
                              ids_wanted, scratch, &claims)
        finally:
            give_back(scratch)
    finally:
        PyBuffer_Release(&view)
    return batch_claims_of(&claims, fields_made(&claims)) if honest else None


def are_honest(claims, true):
    """Return whether ``claims`` are the ``true`` ones, or claim less: null_keys 0 where a key is
    there.

    ``true`` is what `compute` returns. Of further fields number 1 alone is compared: claims that
    state schema ids are honest if ``true`` states no others, so it needs ``schema_ids``.
    """
    cdef Claims these
    cdef Claims those
    if true is None:
        return False
    fill(claims, &these)
    fill(true, &those)
    return says_less(&these, &those)


def attach(batch, claims=None, *, carrier="header", schema_ids=False):
    """Return the batch, of magic 2, with these claims; None: with those that are true of it.

    ``schema_ids``: as for `compute`, where claims is None; a header of magic 3 has no place for
    them. ``carrier``: ``header`` makes a batch of magic 3; ``payload`` keeps the magic, and needs
    zstd or gzip and claims of version 2. What a payload carries already is replaced. The checksum
    is patched, so that damage to the records shows as before. BatchvalError where no claims are
    true, and where the batch cannot carry any there.
    """
    if carrier not in ("header", "payload"):
        raise ArgumentValueError(f"carrier must be header or payload, not {carrier!r}")
    batch = private_bytes(batch)  # the claims are about the bytes that come out
    if claims is None:
        claims = compute(batch, schema_ids=schema_ids)
        if claims is None:
            raise BatchvalError(
                "no claim about the batch is true: strict mode refuses its records, or its max "
                "timestamp is wrong")
    return with_header(batch, claims) if carrier == "header" else with_payload(batch, claims)


cdef bytes with_header(batch, claims):
    cdef Py_buffer view
    cdef Claims these
    fill(claims, &these)
    take_batch(batch, &view, 2)
    try:
        if view.len > 0x7FFFFFFF - LOG_OVERHEAD - CLAIMS_SIZE:
            raise BatchvalError("the batch is too large for claims in its header")
        out = PyBytes_FromStringAndSize(NULL, view.len + CLAIMS_SIZE)
        attach_into(<uint8_t *>PyBytes_AS_STRING(out), <const uint8_t *>view.buf, view.len, &these)
    finally:
        PyBuffer_Release(&view)
    return out


cdef bytes with_payload(batch, claims):
    cdef Py_buffer view
    cdef Claims these
    cdef size_t size = 0
    fill(claims, &these)
    block = block_of(&these, fields_in(claims))
    batch = without_payload_claims(batch)
    take_batch(batch, &view, 2)
    try:
        if view.len > 0x7FFFFFFF - LOG_OVERHEAD - MAX_CARRIER_SIZE:
            raise BatchvalError("the batch is too large for claims in its payload")
        size = carrier_size(<const uint8_t *>view.buf, view.len, PyBytes_GET_SIZE(block))
        if size == 0:
            raise BatchvalError(
                "the payload cannot carry claims: expected zstd, or gzip whose header has no "
                "extra field and no checksum")
        out = PyBytes_FromStringAndSize(NULL, view.len + size)
        attach_to_payload(
            <uint8_t *>PyBytes_AS_STRING(out), <const uint8_t *>view.buf, view.len,
            <const uint8_t *>PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block))
    finally:
        PyBuffer_Release(&view)
    return out


cdef object without_payload_claims(batch):
    """Return the batch of magic 2 without claims in its payload: the same object where there are
    none.
    """
    cdef Py_buffer view
    cdef size_t gone
    take_batch(batch, &view, 2)
    try:
        gone = claims_size(<const uint8_t *>view.buf, view.len)
        if gone == 0:
            return batch
        out = PyBytes_FromStringAndSize(NULL, view.len - gone)
        strip_payload(
            <uint8_t *>PyBytes_AS_STRING(out), <const uint8_t *>view.buf, view.len, gone)
    finally:
        PyBuffer_Release(&view)
    return out


def strip(batch):
    """Return the batch of magic 2 without the claims in its header (magic 3) or payload; the
    checksum is patched.

    BatchvalError for a batch without claims.
    """
    cdef Py_buffer view
    batch = private_bytes(batch)
    take_buffer(batch, &view)
    magic = (<const uint8_t *>view.buf)[MAGIC] if view.len > MAGIC else CLAIMS_MAGIC
    PyBuffer_Release(&view)
    if magic == 2:
        out = without_payload_claims(batch)
        if out is batch:
            raise BatchvalError(
                "the batch has no claims, neither in a header of magic 3 nor in its payload")
        return out
    take_batch(batch, &view, CLAIMS_MAGIC)
    try:
        out = PyBytes_FromStringAndSize(NULL, view.len - CLAIMS_SIZE)
        strip_into(<uint8_t *>PyBytes_AS_STRING(out), <const uint8_t *>view.buf, view.len, view.len)
    finally:
        PyBuffer_Release(&view)
    return out


def read(batch, tag=None):
    """Return the claims of a batch, in its header (magic 3), its payload or ``tag``; None where
    there are none.

    None also where they are malformed, the tag is another batch's, or the carriers differ. Nothing
    is compared with the records. ``carrier_of`` names the carrier.
    """
    cdef Py_buffer view
    cdef Claims claims
    cdef ClaimsCall call
    batch = private_bytes(batch)
    call.policy = VERIFY_CLAIMS
    call.tagged = False
    call.wants_ids = False
    in_tag = None
    if tag is not None:
        tag = private_bytes(tag)
        take_buffer(tag, &view)
        read_tag(<const uint8_t *>view.buf, view.len, &call)
        in_tag = (<const char *>view.buf)[:max(view.len - CRC_SIZE, 0)]
        PyBuffer_Release(&view)
    take_buffer(batch, &view)
    try:
        if find_in_batch(<const uint8_t *>view.buf, view.len, &call, &claims) != CLAIMS_CARRIED:
            return None
        if claims.fields_crc == 0:
            return batch_claims_of(&claims)
        block = payload_block(<const uint8_t *>view.buf, view.len)
        return batch_claims_of(&claims, fields_of(in_tag if block is None else block))
    finally:
        PyBuffer_Release(&view)


def carrier_of(batch):
    """Return ``header`` or ``payload``, where the batch has claims there, readable or not; else
    None.
    """
    cdef Py_buffer view
    cdef const uint8_t *p
    take_buffer(batch, &view)
    try:
        p = <const uint8_t *>view.buf
        if view.len >= CLAIMED_RECORDS and p[MAGIC] == CLAIMS_MAGIC:
            return "header"
        return "payload" if has_payload_claims(p, view.len) else None
    finally:
        PyBuffer_Release(&view)


cdef int find_in_batch(const uint8_t *p, size_t n, const ClaimsCall *call, Claims *claims) noexcept:
    """Find the claims: NOTHING_CARRIED, CLAIMS_CARRIED or UNREADABLE_CLAIMS."""
    cdef BatchHeader h
    if n >= CLAIMED_RECORDS and p[MAGIC] == CLAIMS_MAGIC:
        read_claims(p + RECORDS, claims)
        return CLAIMS_CARRIED
    if n < RECORDS:
        return UNREADABLE_CLAIMS if call.tagged else NOTHING_CARRIED
    read_header(p, &h)
    return find_claims(call, &h, p, n, claims)


cdef bytes payload_block(const uint8_t *p, size_t n):
    """Return the block in the payload of a batch whose claims were read; None: they were not read
    there.
    """
    cdef Py_ssize_t size = 0
    cdef const uint8_t *block = carried_block(p, n, &size)
    return None if block is NULL else (<const char *>block)[:size]


cdef uint32_t crc_of(crc) except? 0:
    return <uint32_t>whole_number("crc", crc, 0, 0xFFFFFFFF)


def to_tag(claims, crc):
    """Return the bytes of the tagged field, for the batch with this crc. Without sizes it is a tag
    of version 1.
    """
    cdef Claims these
    cdef uint8_t end[CRC_SIZE]
    fill(claims, &these)
    put_be32(end, <int32_t>crc_of(crc))
    bound = (<const char *>end)[:CRC_SIZE]
    if these.version == VERSION_2:
        return block_of(&these, fields_in(claims)) + bound
    return bytes([VERSION_1]) + version_1_bytes(&these) + bound


cdef bytes version_1_bytes(const Claims *claims):
    cdef uint8_t data[CLAIMS_SIZE]
    put_claims(data, claims)
    return (<const char *>data)[:CLAIMS_SIZE]


def from_tag(tag, crc):
    """Return the claims in a tagged field; None where it is malformed, or was made for a batch with
    another crc.
    """
    cdef Py_buffer view
    cdef ClaimsCall call
    cdef uint32_t expected = crc_of(crc)
    tag = private_bytes(tag)
    take_buffer(tag, &view)
    try:
        read_tag(<const uint8_t *>view.buf, view.len, &call)
        if not call.readable or call.crc != expected:
            return None
        if call.claims.version == VERSION_1:
            return batch_claims_of(&call.claims)
        return batch_claims_of(
            &call.claims, fields_of((<const char *>view.buf)[:view.len - CRC_SIZE]))
    finally:
        PyBuffer_Release(&view)
