"""Arguments of the public calls, read and checked."""

from cpython.buffer cimport Py_buffer
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from batchval.core.stages.claims_block cimport ClaimsCall
from batchval.core.records.compiled_rules cimport CompiledRules
from batchval.core.records.sampling cimport Sample
from batchval.core.stages.verdict cimport Policy
from batchval.core.format.layout cimport ATTRIBUTES, CODEC_MASK, MAGIC

cdef extern from *:
    """
    #include <string.h>
    /* Whether a value is an int, and no subclass of it such as bool, that fits 64 bits. A time in
     * milliseconds has two digits of 30 bits; PyLong_AsLongLongAndOverflow takes 50 instructions to
     * read them, which shows where a whole check takes 1,400. */
    static inline int batchval_small_int(PyObject *value, int64_t *number)
    {
        int overflow;
        if (!PyLong_CheckExact(value)) return 0;
    #if PYLONG_BITS_IN_DIGIT == 30
        {
    #if PY_VERSION_HEX >= 0x030C0000  /* the tag is digits << 3 | sign, 0 for a positive number */
            const uintptr_t size = ((PyLongObject *)value)->long_value.lv_tag;
            const digit *digits = ((PyLongObject *)value)->long_value.ob_digit;
            enum { TWO = 2 << 3, ONE = 1 << 3 };
    #else
            const Py_ssize_t size = Py_SIZE(value);
            const digit *digits = ((PyLongObject *)value)->ob_digit;
            enum { TWO = 2, ONE = 1 };
    #endif
            if (size == TWO) {
                *number = (int64_t)digits[1] << 30 | digits[0];
                return 1;
            }
            if (size == ONE) {
                *number = digits[0];
                return 1;
            }
        }
    #endif
        *number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow == 0;
    }
    /* Whether nobody can write to these bytes: they are those of a bytes object, or a memoryview's
     * of one. "Read-only" says less: the maker of a read-only view may hold a writable one of the
     * same memory. The exporter is asked, not the object that was passed, which may hand on
     * another's memory; a subclass of bytes may do that too. */
    static inline int batchval_is_immutable(const Py_buffer *view)
    {
        PyObject *exporter = view->obj;
        if (exporter != NULL && PyMemoryView_Check(exporter))
            exporter = PyMemoryView_GET_BUFFER(exporter)->obj;
        return exporter != NULL && PyBytes_CheckExact(exporter) && view->readonly;
    }
    /* struct's codes b, B and c, with or without a byte order, which one byte does not have */
    static inline int batchval_holds_bytes(const Py_buffer *view)
    {
        const char *format = view->format;
        if (view->itemsize != 1) return 0;
        if (format == NULL || (format[0] == 'B' && format[1] == 0)) return 1;
        if (format[0] != 0 && strchr("@=<>!", format[0]) != NULL) format++;
        return (format[0] == 'B' || format[0] == 'b' || format[0] == 'c') && format[1] == 0;
    }
    """
    bint is_small_int "batchval_small_int"(object value, int64_t *number) noexcept
    bint is_immutable "batchval_is_immutable"(const Py_buffer *view) noexcept
    bint holds_bytes "batchval_holds_bytes"(const Py_buffer *view) noexcept

cdef enum:
    # From these sizes on the work is long whatever comes out of the input: the GIL is released
    # before it begins. Below, it is released as soon as the work turns out to be long
    # (batchval.core.codecs.scratch).
    NOGIL_COMPRESSED = 8192
    NOGIL_FETCHED = 16384  # of a Fetch response, whose batches may be compressed or not
    NOGIL_UNCOMPRESSED = 131072

cdef enum:
    MAX_DECOMPRESSED_LIMIT = 0x7FFFFFFFFFFFFFFF  # bytes: the largest limit that a caller may set

cdef class CompiledPolicy:
    cdef Policy policy
    cdef object source
    cdef CompiledRules rules  # those that the policy points to

cdef int64_t other_number(str name, value, int64_t least, int64_t most, str unit) except? -1
cdef int produce_version_of(value) except -1
cdef Py_ssize_t position_in(value, Py_ssize_t size) except -1
cdef tuple one_each(values, str name, str of)
cdef str shown(value)
cdef CompiledRules compile_policy(Policy *to, policy)
cdef CompiledPolicy compiled_policy(policy)
cdef uint32_t refusing(extras) except? 0
cdef int origin_number(origin) except -1
cdef int take_buffer(buffer, Py_buffer *view, bint writable=*) except -1
cdef object private_bytes(buffer)
cdef int64_t *every_batch(const uint8_t *p, size_t n, bint claimed, size_t *count) except NULL
cdef int64_t *copy_pairs(ranges, size_t *count) except NULL
cdef int check_pairs(const int64_t *pairs, size_t count, Py_ssize_t size,
        uint64_t *bytes_in_all) except -1
cdef int source_number(source) except -2
cdef int source_of(const uint8_t *p, size_t n) noexcept nogil
cdef int read_claims_call(claims, bint strict, ClaimsCall *call) except -1
cdef tuple read_sample(trust_claims, bint strict, Sample *sample)
cdef bint is_one_claim(claims)


cdef inline int64_t whole_number(
        str name, value, int64_t least, int64_t most, str unit="") except? -1:
    """Return an argument's number: an int, not a bool. ``unit`` is the thing that it counts, for
    messages.

    Raises ArgumentTypeError and ArgumentValueError.
    """
    cdef int64_t number = 0
    if is_small_int(value, &number) and least <= number <= most:
        return number
    return other_number(name, value, least, most, unit)


cdef inline bint is_long(const uint8_t *p, size_t n) noexcept nogil:
    """Return whether the work is long by the size of the input alone."""
    if n < NOGIL_COMPRESSED:
        return False
    if p[MAGIC] >= 2 and p[ATTRIBUTES + 1] & CODEC_MASK:
        return True
    return n >= NOGIL_UNCOMPRESSED
