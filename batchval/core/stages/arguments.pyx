"""Arguments of the public calls, read and checked. Every mistake is one BatchvalError that names
what was expected.

    numbers                      ints in their ranges: no bool, no float
    policies, origins, extras    to numbers, a policy once for each object
    buffers                      of bytes alone; which of them nobody can change (arguments.pxd)
    ranges                       copied, then checked
    claims=                      (tag bytes or None, "ignore" | "verify" | "trust")
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer,
    PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.number cimport PyIndex_Check, PyNumber_Index
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from batchval.core.stages.claims_block cimport (
    IGNORE_CLAIMS, TRUST_CLAIMS, VERIFY_CLAIMS, ClaimsCall, read_tag,
)
from batchval.core.records.compiled_rules cimport CompiledRules, compiled_rules
from batchval.core.format.header cimport BATCH, Entry, next_batch, next_claimed_batch
from batchval.core.records.sampling cimport SAMPLE_KEY_SIZE, Sample
from batchval.core.codecs.scratch cimport GIL_YIELD_INTERVAL
from batchval.core.stages.verdict cimport Policy
from batchval.core.format.layout cimport *

from batchval.errors import ArgumentTypeError, ArgumentValueError
from batchval.policy import TopicPolicy
from batchval.rules import EXTRA_IDS, EXTRAS, Rule
from batchval.types import NEWEST_PRODUCE_VERSION, AppendOrigin

_ORIGINS = {origin.name: int(origin) for origin in AppendOrigin}
_CODECS = {"none": NONE, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4,
        "zstd": ZSTD,
        "producer": PRODUCER}


# ---- numbers -------------------------------------------------------------------------------------

cdef int64_t other_number(str name, value, int64_t least, int64_t most, str unit) except? -1:
    """Return the number of an int of another type, such as numpy's, or raise an ArgumentTypeError
    or ArgumentValueError.
    """
    if isinstance(value, bool) or not PyIndex_Check(value):
        raise ArgumentTypeError(
            f"{name} must be {wanted(least, most, unit)}, "
            f"not {shown(value)} ({type(value).__name__})")
    try:
        number = PyNumber_Index(value)
    except TypeError as error:  # an array, say, of more than one number
        raise ArgumentTypeError(
            f"{name} must be {wanted(least, most, unit)}, not {shown(value)}: {error}") from None
    if not least <= number <= most:
        raise ArgumentValueError(
            f"{name} must be {wanted(least, most, unit)}, not {shown(value)}")
    return number


cdef str wanted(int64_t least, int64_t most, str unit):
    """Return what an argument may be, for messages. The ends of an int64 are written as powers."""
    low = "-2^63" if least == INT64_MIN else str(least)
    high = "2^63 - 1" if most == INT64_MAX else str(most)
    return f"a whole number{f' of {unit}' if unit else ''} from {low} to {high}"


cdef str shown(value):
    """Return a value as text for a message, in at most 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no int of more than 4,300 digits
        return "a number of more than 4,300 digits"
    return text if len(text) <= 80 else text[:80] + "..."


def checked_number(str name, value, int64_t least, int64_t most):
    """Return an argument's number, for callers in Python. Raises as ``whole_number`` does."""
    return whole_number(name, value, least, most)


cdef int produce_version_of(value) except -1:
    return whole_number("produce_version", value, 0, NEWEST_PRODUCE_VERSION)


cdef Py_ssize_t position_in(value, Py_ssize_t size) except -1:
    """Return a position in a buffer of ``size`` bytes, its end included."""
    cdef int64_t position = whole_number("position", value, INT64_MIN, INT64_MAX)
    if not 0 <= position <= size:
        raise ArgumentValueError(f"position {position} is outside the buffer of {size} bytes")
    return position


cdef tuple one_each(values, str name, str of):
    """Return a copy of a sequence: the caller's own may change."""
    try:
        return tuple(values)
    except TypeError:
        raise ArgumentTypeError(f"{name} must be {of}, not {shown(values)}") from None


# ---- policies, origins, extras -------------------------------------------------------------------

cdef CompiledRules compile_policy(Policy *to, policy):
    """Fill in ``to``. It points into the returned object, which the caller keeps as long."""
    cdef CompiledRules rules
    if not isinstance(policy, TopicPolicy):
        raise ArgumentTypeError(f"policy must be a TopicPolicy, not {type(policy).__name__}")
    to.before_max = policy.message_timestamp_before_max_ms
    to.after_max = policy.message_timestamp_after_max_ms
    to.max_message_bytes = policy.max_message_bytes
    to.max_body = policy.max_decompressed_message_bytes
    to.target = _CODECS[policy.compression_type]
    to.level = DEFAULT_LEVEL if policy.compression_level is None else policy.compression_level
    to.compacted = policy.is_compacted
    to.log_append_time = policy.message_timestamp_type == "LogAppendTime"
    to.accept_claims_header = policy.accept_claims_header
    rules = compiled_rules(policy.record_rules)
    to.rules = NULL if rules is None else &rules.rules
    return rules


@cython.final
cdef class CompiledPolicy:
    """A TopicPolicy as the core reads it, made once for each object."""


cdef enum:
    MAX_COMPILED = 10000
    # with record rules, which may list 100,000 ids each
    MAX_COMPILED_WITH_RULES = 256

# id of a TopicPolicy, which is kept alive by its entry
cdef dict COMPILED = {}
cdef dict COMPILED_WITH_RULES = {}


cdef CompiledPolicy compiled_policy(policy):
    cdef CompiledPolicy compiled = COMPILED.get(id(policy))
    if compiled is None:
        compiled = COMPILED_WITH_RULES.get(id(policy))
    if compiled is None or compiled.source is not policy:
        compiled = CompiledPolicy()
        compiled.rules = compile_policy(&compiled.policy, policy)
        compiled.source = policy
        entries, most = (COMPILED, MAX_COMPILED) if compiled.rules is None else (
            COMPILED_WITH_RULES, MAX_COMPILED_WITH_RULES)
        if len(entries) >= most:
            entries.clear()
        entries[id(policy)] = compiled
    return compiled


cdef uint32_t refusing(extras) except? 0:
    """Return the rules that refuse, as bits: bit n for each extra Sn."""
    cdef uint32_t mask = (2 << LAST_EXTRA) - 2
    if extras is None:
        return mask
    try:
        settings = dict(extras)
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"extras must be a mapping like {{'S1': 'report'}}, not {shown(extras)}") from None
    for name, setting in settings.items():
        rule = name if isinstance(name, Rule) else Rule.__members__.get(str(name))
        if rule not in EXTRAS:
            raise ArgumentValueError(f"unknown extra {name!r}: expected {EXTRA_IDS}")
        if setting not in ("refuse", "report"):
            raise ArgumentValueError(
                f"extra {rule.id} must be refuse or report, not {setting!r}")
        if setting == "report":
            if rule is Rule.S8:
                raise ArgumentValueError(
                    "S8 always refuses: what was not decompressed cannot be accepted")
            mask &= ~(<uint32_t>1 << <int>(rule.number - EXTRA))
    return mask


cdef int origin_number(origin) except -1:
    if isinstance(origin, AppendOrigin):
        return origin
    if isinstance(origin, str) and origin in _ORIGINS:
        return _ORIGINS[origin]
    names = ", ".join(o.name for o in AppendOrigin)
    kind = ArgumentValueError if isinstance(origin, str) else ArgumentTypeError
    raise kind(f"origin must be one of {names} or an AppendOrigin, not {shown(origin)}")


# ---- buffers and ranges --------------------------------------------------------------------------

cdef int take_buffer(buffer, Py_buffer *view, bint writable=False) except -1:
    """Take a contiguous buffer of bytes. Arrays of other items are refused: only the bytes that
    happen to hold them would be validated.
    """
    if PyBytes_CheckExact(buffer) and not writable:
        return PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(buffer, view,
                PyBUF_ND | PyBUF_FORMAT | (PyBUF_WRITABLE if writable else 0))
    except (BufferError, TypeError, ValueError) as error:
        if writable:
            raise ArgumentTypeError(
                f"in_place=True requires a writable, contiguous buffer: {error}") from None
        raise ArgumentTypeError(f"expected a contiguous buffer of bytes: {error}") from None
    if not holds_bytes(view):
        format = "B" if view.format is NULL else (<bytes>view.format).decode("ascii", "replace")
        PyBuffer_Release(view)
        raise ArgumentTypeError(
            "expected a contiguous buffer of bytes (format b, B or c), "
            f"not items of format {format!r}; "
            "memoryview(...).cast('B') and numpy's view('u1') show the bytes of other items")
    return 0


cdef object private_bytes(buffer):
    """Return the buffer itself where nobody can change it, else a copy of its bytes."""
    cdef Py_buffer view
    take_buffer(buffer, &view)
    try:
        if is_immutable(&view):
            return buffer
        return PyBytes_FromStringAndSize(<const char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef int64_t *every_batch(const uint8_t *p, size_t n, bint claimed, size_t *count) except NULL:
    """Return (start, length) of every whole batch. The caller frees it."""
    cdef Entry b
    cdef size_t at = 0, i = 0
    cdef int64_t *pairs
    with nogil:
        while (next_claimed_batch(p + at, n - at, &b) if claimed else next_batch(p + at, n - at,
                &b)) == BATCH:
            at += b.size
            i += 1
    count[0] = i
    pairs = new_pairs(i)
    at = 0
    i = 0
    with nogil:
        while i < count[0]:  # the buffer may have changed: no more pairs than fit
            if (next_claimed_batch(p + at, n - at, &b) if claimed else next_batch(p + at, n - at,
                    &b)) != BATCH:
                break
            pairs[2 * i] = at
            pairs[2 * i + 1] = b.size
            at += b.size
            i += 1
    count[0] = i
    return pairs


cdef int64_t *new_pairs(size_t count) except NULL:
    cdef int64_t *pairs = <int64_t *>malloc((2 * count + 1) * sizeof(int64_t))
    if pairs is NULL:
        raise MemoryError()
    return pairs


@cython.boundscheck(True)  # tuples come from the caller
cdef int64_t *copy_pairs(ranges, size_t *count) except NULL:
    """Return the (start, length) pairs of a sequence of tuples or a buffer of int64. The caller
    frees them. They are not checked yet: the caller's own may change, while they are converted or
    later.
    """
    cdef Py_buffer view
    cdef int64_t *pairs
    cdef size_t i
    if isinstance(ranges, (list, tuple)):
        ranges = tuple(ranges)
        count[0] = len(ranges)
        pairs = new_pairs(count[0])
        try:
            for i in range(count[0]):
                if i % GIL_YIELD_INTERVAL == GIL_YIELD_INTERVAL - 1:
                    with nogil:
                        pass
                pair = ranges[i]
                try:
                    start, length = pair
                except (TypeError, ValueError):
                    raise ArgumentTypeError(
                        f"range {i} must be a pair (start, length), not {shown(pair)}") from None
                if not is_small_int(start, &pairs[2 * i]):
                    pairs[2 * i] = whole_number(
                        f"start of range {i}", start, INT64_MIN, INT64_MAX)
                if not is_small_int(length, &pairs[2 * i + 1]):
                    pairs[2 * i + 1] = whole_number(
                        f"length of range {i}", length, INT64_MIN, INT64_MAX)
        except BaseException:
            free(pairs)
            raise
        return pairs
    try:
        PyObject_GetBuffer(ranges, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)
    except (BufferError, TypeError, ValueError) as error:
        raise ArgumentTypeError(f"ranges must be (start, length) pairs: {error}") from None
    try:
        if (view.itemsize != 8 or view.len % 16 or view.format is NULL
                or view.format[0] not in b"lq" or view.format[1] != 0):
            raise ArgumentTypeError("ranges must be (start, length) pairs of int64")
        count[0] = view.len // (2 * sizeof(int64_t))
        pairs = new_pairs(count[0])
        if count[0]:
            memcpy(pairs, view.buf, view.len)
        return pairs
    finally:
        PyBuffer_Release(&view)


cdef int check_pairs(const int64_t *pairs, size_t count, Py_ssize_t size,
        uint64_t *bytes_in_all) except -1:
    """Check the ranges. ``bytes_in_all`` becomes the sum of their lengths."""
    cdef size_t i
    if count < 4096:
        i = pairs_inside(pairs, count, size, bytes_in_all)
    else:
        with nogil:
            i = pairs_inside(pairs, count, size, bytes_in_all)
    if i < count:
        raise ArgumentValueError(
            f"range {i}, {pairs[2 * i + 1]} bytes from {pairs[2 * i]}, is not inside the buffer of {size} bytes")
    return 0


cdef size_t pairs_inside(const int64_t *pairs, size_t count, Py_ssize_t size,
        uint64_t *bytes_in_all) noexcept nogil:
    """Return how many pairs come before the first that is not inside the buffer."""
    cdef size_t i
    cdef uint64_t total = 0
    for i in range(count):
        if pairs[2 * i] < 0 or pairs[2 * i + 1] < 0 or pairs[2 * i] > size or pairs[2 * i + 1] > size - pairs[2 * i]:
            return i
        total += <uint64_t>pairs[2 * i + 1]
    bytes_in_all[0] = total
    return count


cdef int source_number(source) except -2:
    """Return a codec's number; -1 for another name."""
    return -1 if not isinstance(source, str) or source == "producer" else _CODECS.get(source, -1)


cdef int source_of(const uint8_t *p, size_t n) noexcept nogil:
    """Return the last codec among the batches, as the batch loop keeps it."""
    cdef Entry b
    cdef size_t at = 0
    cdef int codec, source = NONE
    while next_batch(p + at, n - at, &b) == BATCH:
        codec = (b.p[ATTRIBUTES + 1] if b.magic == 2 else b.p[LEGACY_ATTRIBUTES]) & CODEC_MASK
        if NONE < codec <= ZSTD:
            source = codec
        at += b.size
    return source


# ---- claims --------------------------------------------------------------------------------------

_CLAIMS_POLICIES = {"ignore": IGNORE_CLAIMS, "verify": VERIFY_CLAIMS, "trust": TRUST_CLAIMS}


cdef int read_claims_call(claims, bint strict, ClaimsCall *call) except -1:
    """Read None, or (tag bytes or None, "ignore" | "verify" | "trust")."""
    cdef Py_buffer view
    call.policy = IGNORE_CLAIMS
    call.tagged = False
    call.wants_ids = False
    if claims is None:
        return 0
    try:
        tag, policy = claims
        call.policy = _CLAIMS_POLICIES[policy]
    except (TypeError, ValueError, KeyError):
        raise ArgumentValueError(
            "claims must be (tag bytes or None, ignore or verify or trust), "
            f"not {shown(claims)}") from None
    if call.policy != IGNORE_CLAIMS and not strict:
        raise ArgumentValueError(
            "claims need strict mode: kafka mode gives Kafka's answer, which knows no claims")
    if tag is not None:
        take_buffer(tag, &view)
        read_tag(<const uint8_t *>view.buf, view.len, call)
        PyBuffer_Release(&view)
    return 0


cdef tuple read_sample(trust_claims, bint strict, Sample *sample):
    """Read (rate, key of 16 bytes), and return a copy.

    Raises ArgumentTypeError and ArgumentValueError.
    """
    if not strict:
        raise ArgumentValueError(
            "trust_claims cannot be combined with mode='kafka', which does not read claims")
    try:
        rate, key = trust_claims
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"trust_claims must be (rate, key of {SAMPLE_KEY_SIZE} bytes), "
            f"not {shown(trust_claims)}") from None
    if isinstance(rate, bool) or not isinstance(rate, (int, float)):
        raise ArgumentTypeError(
            f"the rate of trust_claims must be a number above 0 and at most 1, not {shown(rate)}")
    if not 0 < rate <= 1:
        raise ArgumentValueError(
            f"the rate of trust_claims must be above 0 and at most 1, not {shown(rate)}")
    if not isinstance(key, bytes):
        raise ArgumentTypeError(
            f"the key of trust_claims must be {SAMPLE_KEY_SIZE} bytes, not {shown(key)}")
    if len(key) != SAMPLE_KEY_SIZE:
        raise ArgumentValueError(
            f"the key of trust_claims must be {SAMPLE_KEY_SIZE} bytes, not {len(key)}")
    threshold = round(float(rate) * 2**64)
    sample.all = threshold >= 2**64
    sample.threshold = 0 if sample.all else threshold
    sample.k0 = int.from_bytes(key[:8], "little")
    sample.k1 = int.from_bytes(key[8:], "little")
    return float(rate), bytes(key)


cdef bint is_one_claim(claims):
    """Return whether claims are for all ranges alike, and not a sequence of one for each."""
    return claims is None or (isinstance(claims, tuple) and len(claims) == 2
            and isinstance(claims[1], str))
