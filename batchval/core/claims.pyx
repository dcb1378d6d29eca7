"""Claims about a batch: made, carried, read. What a validator makes of them is batchval.core.door's matter."""

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.number cimport PyNumber_Index
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from typing import NamedTuple

from batchval.core.arguments cimport (
    MOST_DECOMPRESSED, private_bytes, take_buffer, whole_number,
)
from batchval.core.frames cimport DAMAGED, Stream, open_stream
from batchval.core.header cimport BatchHeader, read_header
from batchval.core.records cimport (
    BUFFER_PARSER, SKIP_PARSER, WALKED, Checks, Facts, clear_facts, structure_alone, walk,
)
from batchval.core.scratch cimport Scratch, begin_work, borrow, end_work, give_back

from batchval.errors import BatchvalError
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

#: The tagged field of PartitionProduceData that carries a tag, in Produce v9 and later.
TAG = 25206

cdef enum:
    NOGIL_ABOVE = 8192  # bytes


class BatchClaims(NamedTuple):
    """What KAFKA-8364 proposes to say of a batch, so that nobody has to decompress it to find out.

    ``batch_min_timestamp``  the lowest timestamp of its records, ms
    ``records_number``       how many there are; also that each parses and that offset deltas are 0 to n - 1
    ``null_keys``            1: every key is null. 2: no key is null. 0: neither, or nothing is known
    """

    batch_min_timestamp: int
    records_number: int
    null_keys: int

    @property
    def all_key_is_null(self):
        """The proposal's boolean."""
        return self.null_keys == ALL_KEYS_NULL

    def to_bytes(self):
        """The 13 bytes."""
        cdef Claims claims
        cdef uint8_t data[CLAIMS_SIZE]
        fill(self, &claims)
        put_claims(data, &claims)
        return PyBytes_FromStringAndSize(<const char *>data, CLAIMS_SIZE)

    @classmethod
    def from_bytes(cls, data):
        """From 13 bytes; BatchvalError for any other number of them. No value is refused: a claim may be a lie."""
        cdef Py_buffer view
        cdef Claims claims
        take_buffer(data, &view)
        try:
            if view.len != CLAIMS_SIZE:
                raise BatchvalError(f"claims are {CLAIMS_SIZE} bytes, not {view.len}")
            read_claims(<const uint8_t *>view.buf, &claims)
        finally:
            PyBuffer_Release(&view)
        return cls(claims.batch_min_timestamp, claims.records_number, claims.null_keys)


cdef int fill(values, Claims *claims) except -1:
    try:
        batch_min_timestamp, records_number, null_keys = values
        claims.batch_min_timestamp = PyNumber_Index(batch_min_timestamp)
        claims.records_number = PyNumber_Index(records_number)
        claims.null_keys = PyNumber_Index(null_keys)
    except (TypeError, ValueError, OverflowError) as error:
        raise BatchvalError(f"claims are (int64, int32, int8), not {values!r}: {error}") from None
    return 0


cdef int take_batch(batch, Py_buffer *view, int magic) except -1:
    """A buffer that is one whole batch of this magic and nothing else."""
    cdef size_t least = CLAIMED_RECORDS if magic == CLAIMS_MAGIC else RECORDS
    cdef const uint8_t *p
    take_buffer(batch, view)
    p = <const uint8_t *>view.buf
    if <size_t>view.len < least or p[MAGIC] != magic or be32(p + BATCH_LENGTH) != view.len - LOG_OVERHEAD:
        PyBuffer_Release(view)
        raise BatchvalError(f"not one whole batch of magic {magic}")
    return 0


cdef bint facts_of(const uint8_t *p, size_t n, Py_ssize_t header, uint64_t limit, Scratch *scratch,
        Facts *f) noexcept nogil:
    """Strict's walk over the records behind ``header`` bytes. False: it does not pass."""
    cdef BatchHeader h
    cdef Checks c
    cdef Stream s
    cdef int codec
    read_header(p, &h)
    codec = h.attributes & CODEC_MASK
    if codec > ZSTD or h.records_count <= 0 or h.last_offset_delta != h.records_count - 1:
        return False
    structure_alone(&c)
    c.extras = True
    clear_facts(f)
    open_stream(&s, scratch, codec, 2, p + header, n - header, limit, False)
    if s.status == DAMAGED or walk(&s, &h, &c, f, BUFFER_PARSER if codec == NONE else SKIP_PARSER) != WALKED:
        return False
    return not (s.overlong or s.mislabelled or f.found & AGAINST_CLAIMS or f.max_timestamp != h.max_timestamp)


cdef bint facts_unlocked(const uint8_t *p, size_t n, size_t header, uint64_t limit,
        Scratch *scratch, Facts *f) noexcept nogil:
    """Called with the GIL, which is released when the work is long."""
    cdef bint honest
    begin_work(scratch, n >= NOGIL_ABOVE)
    honest = facts_of(p, n, header, limit, scratch, f)
    end_work(scratch)
    return honest


def compute(batch, *, max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
    """The claims of a batch of magic 2 (or of magic 3, without regard to those it carries).

    None where no claim could be honest: records that strict mode refuses, a max timestamp in the header that is not
    the highest, more than ``max_decompressed_bytes``. The checksum is not asked.
    """
    cdef Py_buffer view
    cdef Facts f
    cdef Scratch *scratch
    cdef bint honest
    cdef int magic
    cdef uint64_t limit = whole_number(
            "max_decompressed_bytes", max_decompressed_bytes, 0, MOST_DECOMPRESSED, "bytes")
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
            honest = facts_unlocked(<const uint8_t *>view.buf, view.len,
                              CLAIMED_RECORDS if magic == CLAIMS_MAGIC else RECORDS, limit,
                              scratch, &f)
        finally:
            give_back(scratch)
    finally:
        PyBuffer_Release(&view)
    return BatchClaims(f.min_timestamp, f.records, strongest_null_keys(f.null_keys, f.records)) if honest else None


def attach(batch, claims=None):
    """The batch, of magic 2, as one of magic 3 with these claims; None: with those that are true of it.

    The checksum is patched, so that damage to the records shows as before. BatchvalError where there are no true ones.
    """
    cdef Py_buffer view
    cdef Claims these
    batch = private_bytes(batch)  # the claims are about the bytes that come out
    if claims is None:
        claims = compute(batch)
        if claims is None:
            raise BatchvalError(
                "no claim about it would be true: strict mode refuses its records, or its max timestamp is wrong")
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


def strip(batch):
    """The batch of magic 2 that a batch of magic 3 carries; the checksum is patched."""
    cdef Py_buffer view
    batch = private_bytes(batch)
    take_batch(batch, &view, CLAIMS_MAGIC)
    try:
        out = PyBytes_FromStringAndSize(NULL, view.len - CLAIMS_SIZE)
        strip_into(<uint8_t *>PyBytes_AS_STRING(out), <const uint8_t *>view.buf, view.len, view.len)
    finally:
        PyBuffer_Release(&view)
    return out


def read(batch):
    """The claims in the header of a batch of magic 3; None where the batch is of another magic."""
    cdef Py_buffer view
    cdef Claims claims
    cdef const uint8_t *p
    take_buffer(batch, &view)
    try:
        p = <const uint8_t *>view.buf
        if view.len < CLAIMED_RECORDS or p[MAGIC] != CLAIMS_MAGIC:
            return None
        read_claims(p + RECORDS, &claims)
    finally:
        PyBuffer_Release(&view)
    return BatchClaims(claims.batch_min_timestamp, claims.records_number, claims.null_keys)


cdef uint32_t crc_of(crc) except? 0:
    return <uint32_t>whole_number("crc", crc, 0, 0xFFFFFFFF)


def to_tag(claims, crc):
    """The bytes of the tagged field, for the batch with this crc."""
    cdef Claims these
    cdef uint8_t data[TAG_SIZE]
    fill(claims, &these)
    data[0] = TAG_VERSION
    put_claims(data + 1, &these)
    put_be32(data + 1 + CLAIMS_SIZE, <int32_t>crc_of(crc))
    return PyBytes_FromStringAndSize(<const char *>data, TAG_SIZE)


def from_tag(tag, crc):
    """The claims in a tagged field; None where it is none that we know, or was made for a batch with another crc."""
    cdef Py_buffer view
    cdef Claims claims
    cdef uint32_t expected = crc_of(crc)
    take_buffer(tag, &view)
    try:
        if not read_tag(<const uint8_t *>view.buf, view.len, expected, &claims):
            return None
    finally:
        PyBuffer_Release(&view)
    return BatchClaims(claims.batch_min_timestamp, claims.records_number, claims.null_keys)
