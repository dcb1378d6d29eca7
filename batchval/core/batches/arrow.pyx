"""Arrow's C data interface: numpy columns and bytes that others hold, as Arrow arrays without a
copy.

Source: https://arrow.apache.org/docs/format/CDataInterface.html, CStreamInterface.html and
CDataInterface/PyCapsuleInterface.html. Nothing here needs pyarrow.

An exported array holds a Py_buffer on each object whose memory it shows. So its memory lives as
long as the array, and what can be resized (a bytearray, the block of columns) refuses that while
the array exists. A consumer may move each child out of its parent and release it alone: each has
buffers of its own. It may do so in any thread, with or without the GIL, and after the interpreter's
end: then only C memory is freed.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

import numpy

from batchval.core.stages.arguments cimport take_buffer
from batchval.errors import BatchvalError

cdef extern from *:  # Python.h
    int Py_IsInitialized() noexcept nogil

cdef enum:
    NULLABLE = 2  # ARROW_FLAG_NULLABLE
    NO_MEMORY = 12  # ENOMEM
    VIEW = 16  # bytes of a view
    INLINE = 12  # bytes of a value that fits into its view
    PREFIX = 4
    NULL_VALUE = -1  # the length of a value that is null
    # A view counts its offset from the start of a data buffer, in 31 bits. Longer memory is shown
    # as several buffers, one starting each 2**30 bytes. They overlap: a value lies whole in the
    # buffer that its first byte chooses.
    WINDOW_BITS = 30

cdef int64_t WINDOW = <int64_t>1 << WINDOW_BITS
cdef int64_t MAX_VALUE_BYTES = (<int64_t>1 << 31) - 1  # of a value

# numpy's kind and width: Arrow's format
_FORMATS = {"i1": b"c", "u1": b"C", "i2": b"s", "u2": b"S", "i4": b"i", "u4": b"I", "i8": b"l",
        "u8": b"L", "f4": b"f", "f8": b"g"}


# ---- the C structures ----------------------------------------------------------------------------

cdef struct ArrowSchema:
    const char *format
    const char *name
    const char *metadata
    int64_t flags
    int64_t n_children
    ArrowSchema **children
    ArrowSchema *dictionary
    void (*release)(ArrowSchema *) noexcept nogil
    void *private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept nogil
    void *private_data

cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept nogil
    int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
    const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
    void (*release)(ArrowArrayStream *) noexcept nogil
    void *private_data

cdef struct Held:  # an array's private data
    Py_ssize_t count  # buffers that are held so far
    Py_buffer *views
    int64_t *sizes  # of variadic buffers: the buffer after them

cdef struct Pending:  # a stream's private data
    PyObject *column
    bint is_done


# ---- releasing -----------------------------------------------------------------------------------

cdef void release_schema(ArrowSchema *schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release is not NULL:
            schema.children[i].release(schema.children[i])
        free(schema.children[i])
    free(schema.children)
    if schema.dictionary is not NULL:
        if schema.dictionary.release is not NULL:
            schema.dictionary.release(schema.dictionary)
        free(schema.dictionary)
    free(<void *>schema.format)
    free(<void *>schema.name)
    free(<void *>schema.metadata)
    schema.release = NULL


cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef int64_t i
    cdef Held *held = <Held *>array.private_data
    for i in range(array.n_children):
        if array.children[i].release is not NULL:  # NULL: the consumer moved it
            array.children[i].release(array.children[i])
        free(array.children[i])
    free(array.children)
    if array.dictionary is not NULL:
        if array.dictionary.release is not NULL:
            array.dictionary.release(array.dictionary)
        free(array.dictionary)
    if held is not NULL:
        if held.count and Py_IsInitialized():
            let_go(held)
        free(held.views)
        free(held.sizes)
        free(held)
    free(array.buffers)
    array.release = NULL


cdef void let_go(Held *held) noexcept with gil:
    cdef Py_ssize_t i
    for i in range(held.count):
        PyBuffer_Release(&held.views[i])


cdef void release_stream(ArrowArrayStream *stream) noexcept nogil:
    cdef Pending *pending = <Pending *>stream.private_data
    if Py_IsInitialized():
        forget(pending)
    free(pending)
    stream.release = NULL


cdef void forget(Pending *pending) noexcept with gil:
    Py_DECREF(<object>pending.column)


# Destructors: a consumer that took a structure out of its capsule has set release to NULL there.

cdef void delete_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:
        schema.release(schema)
    free(schema)


cdef void delete_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    free(array)


cdef void delete_stream(object capsule) noexcept:
    cdef ArrowArrayStream *stream
    stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release is not NULL:
        stream.release(stream)
    free(stream)


# ---- filling -------------------------------------------------------------------------------------

cdef char *copied(bytes text) except NULL:
    cdef size_t size = len(text) + 1
    cdef char *p = <char *>malloc(size)
    if p is NULL:
        raise MemoryError()
    memcpy(p, <const char *>text, size)
    return p


cdef void *zeroed(size_t count, size_t size) except NULL:
    cdef void *p = calloc(count if count else 1, size)
    if p is NULL:
        raise MemoryError()
    return p


cdef bytes encoded_metadata(dict metadata):
    """Return pairs as Arrow lays them: int32 count, then int32 length and bytes of each key and
    value.
    """
    parts = [numpy.int32(len(metadata)).tobytes()]
    for pair in metadata.items():
        for text in pair:
            data = str(text).encode()
            parts += [numpy.int32(len(data)).tobytes(), data]
    return b"".join(parts)


cdef int fill_schema(ArrowColumn column, str name, ArrowSchema *out) except -1:
    cdef Py_ssize_t i
    cdef bytes metadata
    memset(out, 0, sizeof(ArrowSchema))
    out.release = release_schema
    try:
        out.format = copied(column.format)
        out.name = copied(name.encode())
        out.flags = NULLABLE if column.nullable else 0
        if column.metadata:
            metadata = encoded_metadata(column.metadata)
            out.metadata = copied(metadata)
        if column.children:
            out.children = <ArrowSchema **>zeroed(len(column.children), sizeof(ArrowSchema *))
            for i in range(len(column.children)):
                out.children[i] = <ArrowSchema *>zeroed(1, sizeof(ArrowSchema))
                out.n_children = i + 1
                fill_schema(column.children[i], column.names[i], out.children[i])
        if column.dictionary is not None:
            out.dictionary = <ArrowSchema *>zeroed(1, sizeof(ArrowSchema))
            fill_schema(column.dictionary, "", out.dictionary)
    except BaseException:
        release_schema(out)
        raise
    return 0


cdef int hold_buffers(ArrowColumn column, ArrowArray *out) except -1:
    """Take a Py_buffer on each of the column's buffers; the array releases what is held if one
    cannot be had.
    """
    cdef Py_ssize_t i, count = len(column.buffers), first = count - column.variadic
    cdef Held *held = <Held *>zeroed(1, sizeof(Held))
    out.private_data = held
    held.views = <Py_buffer *>zeroed(count, sizeof(Py_buffer))
    out.n_buffers = count + (column.variadic >= 0)
    out.buffers = <const void **>zeroed(out.n_buffers, sizeof(void *))
    if column.variadic >= 0:
        held.sizes = <int64_t *>zeroed(column.variadic, sizeof(int64_t))
        out.buffers[count] = held.sizes
    for i in range(count):
        buffer = column.buffers[i]
        if buffer is None:
            continue
        PyObject_GetBuffer(buffer, &held.views[held.count], PyBUF_SIMPLE)
        out.buffers[i] = held.views[held.count].buf
        if column.variadic >= 0 and i >= first:
            held.sizes[i - first] = held.views[held.count].len
        held.count += 1
    return 0


cdef int fill_array(ArrowColumn column, ArrowArray *out) except -1:
    cdef Py_ssize_t i
    memset(out, 0, sizeof(ArrowArray))
    out.release = release_array
    out.length = column.length
    out.null_count = column.null_count
    try:
        hold_buffers(column, out)
        if column.children:
            out.children = <ArrowArray **>zeroed(len(column.children), sizeof(ArrowArray *))
            for i in range(len(column.children)):
                out.children[i] = <ArrowArray *>zeroed(1, sizeof(ArrowArray))
                out.n_children = i + 1
                fill_array(column.children[i], out.children[i])
        if column.dictionary is not None:
            out.dictionary = <ArrowArray *>zeroed(1, sizeof(ArrowArray))
            fill_array(column.dictionary, out.dictionary)
    except BaseException:
        release_array(out)
        raise
    return 0


# ---- a stream of one array -----------------------------------------------------------------------

cdef int stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept with gil:
    try:
        fill_schema(<ArrowColumn>(<Pending *>stream.private_data).column, "", out)
    except BaseException:
        return NO_MEMORY
    return 0


cdef int stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept with gil:
    cdef Pending *pending = <Pending *>stream.private_data
    if pending.is_done:
        memset(out, 0, sizeof(ArrowArray))  # release is NULL: the end
        return 0
    try:
        fill_array(<ArrowColumn>pending.column, out)
    except BaseException:
        return NO_MEMORY
    pending.is_done = True
    return 0


cdef const char *stream_error(ArrowArrayStream *stream) noexcept nogil:
    return NULL


# ---- what is exported ----------------------------------------------------------------------------

@cython.final
cdef class ArrowColumn:
    """An Arrow array over memory that others hold, for every consumer of the PyCapsule interface.

    ``pyarrow.array(column)``, ``polars.Series(column)`` and their like read it without a copy.
    """

    def __cinit__(self):
        """Make an empty column of nulls."""
        self.format = b"n"
        self.buffers = []
        self.variadic = -1

    def __len__(self):
        return self.length

    def __repr__(self):
        return (f"<ArrowColumn {self.length} of format {self.format.decode()!r},"
                f" {self.null_count} null>")

    def __arrow_c_schema__(self):
        """Return the type as a PyCapsule that holds an ArrowSchema."""
        cdef ArrowSchema *schema = <ArrowSchema *>zeroed(1, sizeof(ArrowSchema))
        capsule = PyCapsule_New(schema, "arrow_schema", delete_schema)
        fill_schema(self, "", schema)
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        """Return type and data as a pair of PyCapsules.

        ``requested_schema`` is ignored, as the protocol allows: the consumer casts.
        """
        cdef ArrowArray *array = <ArrowArray *>zeroed(1, sizeof(ArrowArray))
        capsule = PyCapsule_New(array, "arrow_array", delete_array)
        fill_array(self, array)
        return self.__arrow_c_schema__(), capsule

    def __arrow_c_stream__(self, requested_schema=None):
        """Return a PyCapsule that holds an ArrowArrayStream of one array.

        ``requested_schema`` is ignored, as the protocol allows: the consumer casts.
        """
        cdef Pending *pending
        cdef ArrowArrayStream *stream = <ArrowArrayStream *>zeroed(1, sizeof(ArrowArrayStream))
        capsule = PyCapsule_New(stream, "arrow_array_stream", delete_stream)
        pending = <Pending *>zeroed(1, sizeof(Pending))
        Py_INCREF(self)
        pending.column = <PyObject *>self
        stream.private_data = pending
        stream.get_schema = stream_schema
        stream.get_next = stream_next
        stream.get_last_error = stream_error
        stream.release = release_stream
        return capsule


cdef ArrowColumn made(bytes format, Py_ssize_t length, list buffers):
    cdef ArrowColumn column = ArrowColumn.__new__(ArrowColumn)
    column.format = format
    column.length = length
    column.buffers = buffers
    return column


cdef object packed(array):
    """Return booleans as Arrow has them: a bit each, from the lowest on, in whole words of 8
    bytes.
    """
    bits = numpy.packbits(array, bitorder="little")
    words = numpy.zeros((len(bits) + 7) // 8 * 8, "u1")
    words[:len(bits)] = bits
    return words


cdef int take_nulls(ArrowColumn column, valid) except -1:
    column.nullable = True
    column.null_count = column.length - int(numpy.count_nonzero(valid))
    if column.null_count:
        column.buffers[0] = packed(valid)
    return 0


cdef ArrowColumn column_of(array, valid=None):
    """Return numbers or booleans as an Arrow column. Numbers are shared, booleans are packed.

    ``valid``: an array of booleans, False where the row has no value; None: no row can be null.
    """
    cdef ArrowColumn column
    kind = array.dtype.str
    if kind == "|b1":
        column = made(b"b", len(array), [None, packed(array)])
    elif kind[0] == ">" or kind[1:] not in _FORMATS:
        raise BatchvalError(f"a column of type {array.dtype} cannot be exported to Arrow: expected"
                " integers, floats or booleans in the machine's byte order")
    else:
        column = made(_FORMATS[kind[1:]], len(array), [None, numpy.ascontiguousarray(array)])
    if valid is not None:
        take_nulls(column, valid)
    return column


cdef ArrowColumn dictionary_of(codes, tuple names, valid=None):
    """Return small numbers as indices of ``names``: a dictionary-encoded column of text.

    ``codes`` are integers from 0 to ``len(names) - 1``, in null rows too: consumers may look before
    they ask.
    """
    cdef ArrowColumn column
    wrong = (codes < 0) | (codes >= len(names))
    if wrong.any():
        code = int(codes[wrong.argmax()])
        raise BatchvalError(f"code {code} has no name: expected 0 to {len(names) - 1}")
    column = column_of(codes, valid)
    column.dictionary = text_of(names)
    return column


cdef ArrowColumn text_of(tuple names):
    encoded = [name.encode() for name in names]
    offsets = numpy.zeros(len(names) + 1, "<i4")
    numpy.cumsum([len(data) for data in encoded], out=offsets[1:])
    return made(b"u", len(names), [None, offsets, b"".join(encoded)])


cdef ArrowColumn struct_of(tuple names, list columns, Py_ssize_t length, dict metadata):
    """Return columns of equal length as one struct, which consumers read as a record batch."""
    cdef ArrowColumn column = made(b"+s", length, [None])
    column.names = names
    column.children = columns
    column.metadata = metadata
    return column


# ---- bytes by reference --------------------------------------------------------------------------

cdef struct Source:  # the memory of one of the objects that hold values
    const uint8_t *p
    int64_t size
    int32_t first  # its first data buffer


cdef Py_ssize_t put_views(uint8_t *view, Py_ssize_t count, const int64_t *position,
        const int32_t *length, const int32_t *source, const Source *sources,
        Py_ssize_t sources_count) noexcept nogil:
    """Write the views. Return the first value that does not lie in its source; -1: none."""
    cdef Py_ssize_t i
    cdef int32_t size, place, buffer_index, offset
    cdef int64_t at
    cdef const Source *s
    for i in range(count):
        size = length[i]
        at = position[i]
        if size > 0:
            place = source[i] if source is not NULL else 0
            if not 0 <= place < sources_count:
                return i
            s = &sources[place]
            if at < 0 or at > s.size or size > s.size - at:
                return i
        elif size < NULL_VALUE:
            return i
        memset(view, 0, VIEW)
        if size > 0:
            memcpy(view, &size, 4)
            if size <= INLINE:
                memcpy(view + 4, s.p + at, size)
            else:
                memcpy(view + 4, s.p + at, PREFIX)
                buffer_index = s.first + <int32_t>(at >> WINDOW_BITS)
                offset = <int32_t>(at & (WINDOW - 1))
                memcpy(view + 8, &buffer_index, 4)
                memcpy(view + 12, &offset, 4)
        view += VIEW
    return -1


cdef list windows(data, int64_t size):
    """Return the data buffers of one object: windows of it that start each 2**30 bytes."""
    memory = memoryview(data).cast("B")
    return [memory[start:start + WINDOW + MAX_VALUE_BYTES] for start in range(0, size, WINDOW)]


cdef ArrowColumn views_of(Py_ssize_t count, const int64_t *position, const int32_t *length,
        const int32_t *source, list data):
    """Return values that lie in the caller's buffers as a binary_view column (format ``vz``) over
    those buffers.

    Value i is the ``length[i]`` bytes at ``position[i]`` of ``data[source[i]]``; ``source`` NULL:
    all in ``data[0]``. A length of -1 is a null. A view holds values of up to 12 bytes itself, and
    the first 4 bytes of longer ones: a buffer that changes after this call changes the longer
    values only. BatchvalError for a value that is not whole in its buffer.
    """
    cdef Py_ssize_t i, wrong, held = 0
    cdef Py_buffer *buffers = <Py_buffer *>zeroed(len(data), sizeof(Py_buffer))
    cdef Source *sources = NULL
    cdef uint8_t[::1] view
    cdef ArrowColumn column
    views = numpy.empty(max(count, 1) * VIEW, "u1")
    view = views
    shown = []
    try:
        sources = <Source *>zeroed(len(data), sizeof(Source))
        for i in range(len(data)):
            take_buffer(data[i], &buffers[i])
            held = i + 1
            sources[i].p = <const uint8_t *>buffers[i].buf
            sources[i].size = buffers[i].len
            sources[i].first = <int32_t>len(shown)
            shown += windows(data[i], buffers[i].len)
        with nogil:
            wrong = put_views(&view[0], count, position, length, source, sources, held)
        if wrong >= 0:
            raise BatchvalError(f"value {wrong} ({length[wrong]} bytes at {position[wrong]}) does"
                    " not lie in its buffer")
    finally:
        for i in range(held):
            PyBuffer_Release(&buffers[i])
        free(buffers)
        free(sources)
    column = made(b"vz", count, [None, views[:count * VIEW], *shown])
    column.variadic = len(shown)
    column.nullable = True
    if count:
        take_nulls(column, numpy.asarray(<int32_t[:count]>(<int32_t *>length)) >= 0)
    return column


def binary_views(data, position, length):
    """Return the values at ``position`` of ``data`` as a column of Arrow's type binary_view,
    without a copy.

    ``position`` and ``length`` are arrays of integers, in bytes; a length of -1 is a null. ``data``
    is held as long as the column lives. BatchvalError for a value that is not whole in ``data``.

    >>> len(binary_views(b"keyvalue", [0, 3], [3, 5]))
    2
    """
    cdef const int64_t[::1] positions = own_integers(position, "position")
    cdef const int64_t[::1] wide = own_integers(length, "length")
    cdef const int32_t[::1] lengths
    cdef Py_ssize_t count = positions.shape[0]
    if count != wide.shape[0]:
        raise BatchvalError(f"{count} positions and {wide.shape[0]} lengths: expected as many of"
                " each")
    if count == 0:
        return views_of(0, NULL, NULL, NULL, [data])
    if numpy.max(wide) > MAX_VALUE_BYTES:
        raise BatchvalError(
            f"a length of {numpy.max(wide)} bytes: expected at most {MAX_VALUE_BYTES}")
    lengths = numpy.clip(wide, NULL_VALUE - 1, MAX_VALUE_BYTES).astype("<i4")
    return views_of(count, &positions[0], &lengths[0], NULL, [data])


cdef object own_integers(values, str name):
    """Return a copy, which nobody else can change while it is read without the GIL."""
    array = numpy.array(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise BatchvalError(f"{name} must be a list or array of integers, not {array.ndim}"
                f" dimensions of {array.dtype}")
    return array.astype("<i8")
