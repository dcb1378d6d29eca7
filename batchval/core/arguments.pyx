"""What a caller hands over, as the core reads it. Every mistake is one BatchvalError that says what was expected.

    policies, origins, extras    to numbers, a policy once for each object
    buffers and ranges           checked before anything is read
    claims=                      (tag bytes or None, "ignore" | "verify" | "trust")
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from batchval.core.claims cimport IGNORE_CLAIMS, TAG_SIZE, TRUST_CLAIMS, VERIFY_CLAIMS, ClaimsCall
from batchval.core.header cimport BATCH, Entry, next_batch, next_claimed_batch
from batchval.core.verdict cimport Policy
from batchval.core.layout cimport *

from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from batchval.rules import EXTRAS, Rule
from batchval.types import AppendOrigin

_ORIGINS = {origin.name: int(origin) for origin in AppendOrigin} | {int(origin): int(origin) for origin in AppendOrigin}
_CODECS = {"none": NONE, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD,
        "producer": PRODUCER}


cdef int compile_policy(Policy *to, policy) except -1:
    if not isinstance(policy, TopicPolicy):
        raise BatchvalError(f"policy must be a TopicPolicy, not {type(policy).__name__}")
    to.before_max = policy.message_timestamp_before_max_ms
    to.after_max = policy.message_timestamp_after_max_ms
    to.max_message_bytes = policy.max_message_bytes
    to.max_body = policy.max_decompressed_message_bytes
    to.target = _CODECS[policy.compression_type]
    to.compacted = policy.is_compacted
    to.log_append_time = policy.message_timestamp_type == "LogAppendTime"
    to.accept_claims_header = policy.accept_claims_header
    return 0


@cython.final
cdef class CompiledPolicy:
    """A TopicPolicy as the core reads it, made once for each object."""


cdef dict COMPILED = {}  # id of a TopicPolicy, which is kept alive by its entry


cdef CompiledPolicy compiled_policy(policy):
    cdef CompiledPolicy compiled = COMPILED.get(id(policy))
    if compiled is None or compiled.source is not policy:
        compiled = CompiledPolicy()
        compile_policy(&compiled.policy, policy)
        compiled.source = policy
        if len(COMPILED) > 10000:
            COMPILED.clear()
        COMPILED[id(policy)] = compiled
    return compiled


cdef uint32_t refusing(extras) except? 0:
    """Bit n for each extra Sn that refuses."""
    cdef uint32_t mask = (1 << 11) - 2
    if extras is None:
        return mask
    try:
        settings = dict(extras)
    except (TypeError, ValueError):
        raise BatchvalError(f"extras must be a mapping like {{'S1': 'report'}}, not {extras!r}") from None
    for name, setting in settings.items():
        rule = name if isinstance(name, Rule) else Rule.__members__.get(str(name))
        if rule not in EXTRAS:
            raise BatchvalError(f"extras are S1 to S10, not {name!r}")
        if setting not in ("refuse", "report"):
            raise BatchvalError(f"extra {rule.id} can be set to refuse or report, not {setting!r}")
        if setting == "report":
            if rule is Rule.S8:
                raise BatchvalError("S8 always refuses: what was not decompressed cannot be accepted")
            mask &= ~(<uint32_t>1 << <int>(rule.number - EXTRA))
    return mask


cdef int origin_number(origin) except -1:
    try:
        return _ORIGINS[origin]
    except (KeyError, TypeError):
        names = ", ".join(o.name for o in AppendOrigin)
        raise BatchvalError(f"origin must be one of {names}, not {origin!r}") from None


# ---- buffers and ranges --------------------------------------------------------------------------------------------

cdef int take_buffer(buffer, Py_buffer *view, int flags) except -1:
    try:
        PyObject_GetBuffer(buffer, view, flags)
    except (BufferError, TypeError, ValueError) as error:
        if flags & PyBUF_WRITABLE:
            raise BatchvalError(f"in_place needs a writable, contiguous buffer: {error}") from None
        raise BatchvalError(f"a contiguous buffer of bytes is needed: {error}") from None
    return 0


cdef int64_t *every_batch(const uint8_t *p, size_t n, bint claimed, size_t *count) except NULL:
    """(start, length) of every whole batch, to be freed by the caller."""
    cdef Entry b
    cdef size_t at = 0, i = 0
    cdef int64_t *pairs
    with nogil:
        while (next_claimed_batch(p + at, n - at, &b) if claimed else next_batch(p + at, n - at, &b)) == BATCH:
            at += b.size
            i += 1
    count[0] = i
    pairs = <int64_t *>malloc((2 * i + 1) * sizeof(int64_t))
    if pairs is NULL:
        raise MemoryError()
    at = 0
    i = 0
    with nogil:
        while i < count[0]:  # another process may write to a mapping
            if (next_claimed_batch(p + at, n - at, &b) if claimed else next_batch(p + at, n - at, &b)) != BATCH:
                break
            pairs[2 * i] = at
            pairs[2 * i + 1] = b.size
            at += b.size
            i += 1
    count[0] = i
    return pairs


cdef int take_pairs(ranges, Py_buffer *pairs) except -1:
    try:
        PyObject_GetBuffer(ranges, pairs, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)
    except (BufferError, TypeError, ValueError) as error:
        raise BatchvalError(f"ranges must be (start, length) pairs: {error}") from None
    if (pairs.itemsize != 8 or pairs.len % 16 or pairs.format is NULL or pairs.format[0] not in b"lq"
            or pairs.format[1] != 0):
        PyBuffer_Release(pairs)
        raise BatchvalError("ranges must be (start, length) pairs of int64")
    return 0


cdef int check_pairs(const int64_t *pairs, size_t count, Py_ssize_t size) except -1:
    cdef size_t i
    if count < 4096:
        i = pairs_inside(pairs, count, size)
    else:
        with nogil:
            i = pairs_inside(pairs, count, size)
    if i < count:
        raise BatchvalError(
            f"range {i}, {pairs[2 * i + 1]} bytes from {pairs[2 * i]}, is not inside the buffer of {size} bytes")
    return 0


cdef size_t pairs_inside(const int64_t *pairs, size_t count, Py_ssize_t size) noexcept nogil:
    """How many pairs come before the first that is not inside the buffer."""
    cdef size_t i
    for i in range(count):
        if pairs[2 * i] < 0 or pairs[2 * i + 1] < 0 or pairs[2 * i] > size or pairs[2 * i + 1] > size - pairs[2 * i]:
            return i
    return count


cdef int source_number(source) except -2:
    """A codec's; -1 where it is none."""
    return -1 if source == "producer" else _CODECS.get(source, -1)


cdef int source_of(const uint8_t *p, size_t n) noexcept nogil:
    """The last codec among the batches, as the batch loop keeps it."""
    cdef Entry b
    cdef size_t at = 0
    cdef int codec, source = NONE
    while next_batch(p + at, n - at, &b) == BATCH:
        codec = (b.p[ATTRIBUTES + 1] if b.magic == 2 else b.p[LEGACY_ATTRIBUTES]) & CODEC_MASK
        if NONE < codec <= ZSTD:
            source = codec
        at += b.size
    return source


# ---- claims --------------------------------------------------------------------------------------------------------

_CLAIMS_POLICIES = {"ignore": IGNORE_CLAIMS, "verify": VERIFY_CLAIMS, "trust": TRUST_CLAIMS}


cdef int read_claims_call(claims, bint strict, ClaimsCall *call) except -1:
    """None, or (tag bytes or None, "ignore" | "verify" | "trust")."""
    cdef Py_buffer view
    call.policy = IGNORE_CLAIMS
    call.tagged = False
    if claims is None:
        return 0
    try:
        tag, policy = claims
        call.policy = _CLAIMS_POLICIES[policy]
    except (TypeError, ValueError, KeyError):
        raise BatchvalError(f"claims must be (tag bytes or None, ignore or verify or trust), not {claims!r}") from None
    if call.policy != IGNORE_CLAIMS and not strict:
        raise BatchvalError("claims need strict mode: kafka mode gives Kafka's answer, which knows no claims")
    if tag is not None:
        take_buffer(tag, &view, PyBUF_SIMPLE)
        call.tagged = True
        call.tag_size = view.len
        if view.len == TAG_SIZE:
            memcpy(call.tag, view.buf, TAG_SIZE)
        PyBuffer_Release(&view)
    return 0


cdef bint is_one_claim(claims):
    """For all ranges alike, and not a sequence of one for each."""
    return claims is None or (isinstance(claims, tuple) and len(claims) == 2 and isinstance(claims[1], str))
