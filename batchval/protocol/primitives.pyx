"""Reader and Writer: a message's fields in order, from and to bytes (cursor.pxd says how each type
lies there).

Whatever the bytes, a Reader raises nothing but ProtocolError, and buys no memory for what is not
there: counts are compared with the bytes left, strings and bytes are copied after they were found
whole, records are slices.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.protocol.cursor cimport (
    TRAILING_BYTES, Cursor, MAX_STRING, NULL_HERE, bytes_length, fail, not_null,
    open_cursor, position, put_int16, put_int32, put_int64, put_uvarint, read_count, read_int8,
    read_int16, read_int32, read_int64, read_uvarint, string_length, take, uvarint_size,
)

from batchval.protocol.errors import ProtocolError

# what cursor.pxd's Wrong means
WORDS = (
    "nothing is wrong",
    "the bytes end before the field does",
    "a varint of more than 32 bits",
    "a length below -1",
    "null where null is not allowed",
    "a string of more than 32767 bytes",
    "more elements than bytes are left",
    "a tagged field that does not fill its size",
    "bytes after the end of the message",
    "no memory",
    "a version that is not known here",
    "more topics or partitions than are allowed",
    "more tagged fields than are allowed",
)

ZERO_UUID = bytes(16)


cdef int take_buffer(object buffer, Py_buffer *view) except -1:
    try:
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
    except (BufferError, TypeError, ValueError) as error:
        raise ProtocolError(f"a contiguous buffer of bytes is needed: {error}") from None
    return 0


cdef object explained(const Cursor *c):
    return ProtocolError(WORDS[c.wrong], c.where - c.start)


@cython.final
# no_gc: CPython crashes on a memoryview in a garbage cycle that is cleared before the buffer taken
# of it is released
@cython.no_gc
cdef class Reader:
    """A reader of a message's fields, in order, from any contiguous buffer. Holds the buffer.
    """

    def __cinit__(self, buffer, bint flexible=False):
        self.held = False
        take_buffer(buffer, &self.view)
        self.held = True
        self.whole = None
        open_cursor(&self.c, <const uint8_t *>self.view.buf, self.view.len, flexible)
        self.whole = buffer

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef int check(self) except -1:
        if self.c.wrong:
            raise explained(&self.c)
        return 0

    cdef bytes cut(self, Py_ssize_t size):
        """Return the next bytes, which the length's reader has found to be there."""
        cdef bytes found = PyBytes_FromStringAndSize(<const char *>self.c.at, size)
        self.c.at += size
        return found

    @property
    def flexible(self):
        """Return whether lengths are compact and tagged fields follow."""
        return self.c.flexible

    @flexible.setter
    def flexible(self, bint value):
        self.c.flexible = value

    @property
    def position(self):
        """Return the bytes read so far."""
        return position(&self.c)

    @property
    def remaining(self):
        return self.c.end - self.c.at

    def finish(self):
        """Raise ProtocolError if bytes are left."""
        if self.c.at != self.c.end:
            fail(&self.c, TRAILING_BYTES)
        self.check()

    cpdef object boolean(self):
        cdef int value = read_int8(&self.c)
        self.check()
        return value != 0

    cpdef object int8(self):
        cdef int value = read_int8(&self.c)
        self.check()
        return value

    cpdef object int16(self):
        cdef int value = read_int16(&self.c)
        self.check()
        return value

    def uint16(self):
        cdef int value = read_int16(&self.c)
        self.check()
        return <uint16_t>value

    cpdef object int32(self):
        cdef int32_t value = read_int32(&self.c)
        self.check()
        return value

    def uint32(self):
        cdef int32_t value = read_int32(&self.c)
        self.check()
        return <uint32_t>value

    cpdef object int64(self):
        cdef int64_t value = read_int64(&self.c)
        self.check()
        return value

    def float64(self):
        cdef int64_t bits = read_int64(&self.c)
        cdef double value
        self.check()
        memcpy(&value, &bits, 8)
        return value

    def uvarint(self):
        cdef int64_t value = read_uvarint(&self.c)
        self.check()
        return value

    def varint(self):
        """Read a zigzag varint."""
        cdef int64_t value = read_uvarint(&self.c)
        self.check()
        return (value >> 1) ^ -(value & 1)

    cpdef object uuid(self):
        """Read a uuid of 16 bytes; all zeros mean none in Kafka."""
        cdef const uint8_t *p = take(&self.c, 16)
        self.check()
        return PyBytes_FromStringAndSize(<const char *>p, 16)

    cpdef object string(self):
        """Read a string. Malformed UTF-8 becomes U+FFFD, as in Kafka."""
        cdef int64_t size = string_length(&self.c)
        not_null(&self.c, size)
        self.check()
        text = PyUnicode_DecodeUTF8(<char *>self.c.at, size, "replace")
        self.c.at += size
        return text

    cpdef object nullable_string(self):
        cdef int64_t size = string_length(&self.c)
        self.check()
        if size < 0:
            return None
        text = PyUnicode_DecodeUTF8(<char *>self.c.at, size, "replace")
        self.c.at += size
        return text

    cpdef object data(self):
        """Read bytes into a copy."""
        cdef int64_t size = bytes_length(&self.c)
        not_null(&self.c, size)
        self.check()
        return self.cut(size)

    def nullable_data(self):
        cdef int64_t size = bytes_length(&self.c)
        self.check()
        return None if size < 0 else self.cut(size)

    cpdef object records(self):
        """Record batches: a slice of the buffer, never a copy."""
        view = self.nullable_records()
        if view is None:
            fail(&self.c, NULL_HERE)
            self.check()
        return view

    cpdef object nullable_records(self):
        cdef int64_t size = bytes_length(&self.c)
        cdef Py_ssize_t at = position(&self.c)
        self.check()
        if size < 0:
            return None
        if type(self.whole) is not memoryview or self.whole.format != "B":
            self.whole = PyMemoryView_FromObject(self.whole).cast("B")
        self.c.at += size
        return self.whole[at:at + size]

    cpdef int64_t count(self) except? -1:
        """Read the count of an array."""
        cdef int64_t count = read_count(&self.c)
        not_null(&self.c, count)
        self.check()
        return count

    cpdef int64_t nullable_count(self) except? -1:
        """Read the count of an array, -1 for null."""
        cdef int64_t count = read_count(&self.c)
        self.check()
        return count

    cpdef object int32_array(self):
        cdef int64_t count = read_count(&self.c), _i
        cdef list found = []
        not_null(&self.c, count)
        self.check()
        for _i in range(count):
            found.append(read_int32(&self.c))
            self.check()
        return found

    cpdef object rest(self):
        """Return a copy of what is left (of a tagged field)."""
        return self.cut(self.c.end - self.c.at)

    cpdef object unknown_tags(self):
        """Read the tagged fields that follow, all unknown, as ((tag, bytes), …); () where the
        version has no place for them.
        """
        cdef int64_t count = read_uvarint(&self.c) if self.c.flexible else 0, _i, tag, size
        cdef list found
        self.check()
        if count == 0:
            return ()
        found = []
        for _i in range(count):
            tag = read_uvarint(&self.c)
            size = read_uvarint(&self.c)
            if size > self.c.end - self.c.at:
                take(&self.c, <uint64_t>size)
            self.check()
            found.append((tag, self.cut(size)))
        return tuple(found)


@cython.final
cdef class Writer:
    """A writer of a message's fields, in order. ``finish`` returns what was written, record batches
    as the objects that were passed.

    With ``has_length`` the first four bytes are the frame's length, filled in by ``finish``.
    """

    def __cinit__(self, bint flexible=False, bint has_length=False):
        self.chunks = []
        self.block = NULL
        self.used = self.capacity = self.chunk_bytes = 0
        self.has_length = has_length
        self.flexible = flexible
        if has_length:
            put_int32(self.grow(4), 0)

    def __dealloc__(self):
        PyMem_Free(self.block)

    cdef uint8_t *grow(self, Py_ssize_t size) except NULL:
        """Reserve ``size`` more bytes, counted as used."""
        cdef uint8_t *at
        cdef Py_ssize_t capacity
        if size > self.capacity - self.used:
            capacity = 2 * self.capacity + size + 64
            at = <uint8_t *>PyMem_Realloc(self.block, capacity)
            if at is NULL:
                raise MemoryError()
            self.block = at
            self.capacity = capacity
        at = self.block + self.used
        self.used += size
        return at

    cdef int put(self, const uint8_t *source, Py_ssize_t size) except -1:
        memcpy(self.grow(size), source, size)
        return 0

    cdef int length(self, Py_ssize_t size, int fixed) except -1:
        """Write a length or count (-1: null), in ``fixed`` bytes where lengths are not compact."""
        if size > 0x7fffffff:
            raise ProtocolError(f"{size} bytes or elements are more than a length can say")
        if self.flexible:
            put_uvarint(self.grow(uvarint_size(size + 1)), size + 1)
        elif fixed == 2:
            put_int16(self.grow(2), <int16_t>size)
        else:
            put_int32(self.grow(4), <int32_t>size)
        return 0

    cdef int flush(self) except -1:
        if self.used:
            self.chunks.append(PyBytes_FromStringAndSize(<char *>self.block, self.used))
            self.chunk_bytes += self.used
            self.used = 0
        return 0

    cpdef object boolean(self, value):
        self.grow(1)[0] = 1 if value else 0

    cpdef object int8(self, int8_t value):
        self.grow(1)[0] = <uint8_t>value

    cpdef object int16(self, int16_t value):
        put_int16(self.grow(2), value)

    def uint16(self, uint16_t value):
        put_int16(self.grow(2), <int16_t>value)

    cpdef object int32(self, int32_t value):
        put_int32(self.grow(4), value)

    def uint32(self, uint32_t value):
        put_int32(self.grow(4), <int32_t>value)

    cpdef object int64(self, int64_t value):
        put_int64(self.grow(8), value)

    def float64(self, double value):
        cdef int64_t bits
        memcpy(&bits, &value, 8)
        put_int64(self.grow(8), bits)

    def uvarint(self, uint32_t value):
        put_uvarint(self.grow(uvarint_size(value)), value)

    def varint(self, int32_t value):
        """Write a zigzag varint."""
        cdef uint32_t coded = (<uint32_t>value << 1) ^ <uint32_t>(value >> 31)
        put_uvarint(self.grow(uvarint_size(coded)), coded)

    def uuid(self, bytes value not None):
        if len(value) != 16:
            raise ProtocolError(f"a UUID has 16 bytes, not {len(value)}")
        self.put(value, 16)

    cpdef object string(self, str value):
        if value is None:
            raise ProtocolError("null where this version allows no null")
        self.nullable_string(value)

    cpdef object nullable_string(self, str value):
        cdef bytes coded
        if value is None:
            self.length(-1, 2)
            return
        coded = value.encode()
        if len(coded) > MAX_STRING:
            raise ProtocolError(f"a string of {len(coded)} bytes: {MAX_STRING} is the most")
        self.length(len(coded), 2)
        self.put(coded, len(coded))

    cpdef object data(self, value):
        if value is None:
            raise ProtocolError("null where this version allows no null")
        self.nullable_data(value)

    def nullable_data(self, value):
        cdef Py_buffer view
        if value is None:
            self.length(-1, 4)
            return
        take_buffer(value, &view)
        try:
            self.length(view.len, 4)
            self.put(<const uint8_t *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cpdef object records(self, value):
        if value is None:
            raise ProtocolError("null where this version allows no null")
        self.nullable_records(value)

    cpdef object nullable_records(self, value):
        """Record batches: handed on, not copied."""
        if value is None:
            self.length(-1, 4)
            return
        self.record_pieces([value])

    def record_pieces(self, list pieces not None):
        """Record batches in pieces: handed on, not copied."""
        cdef list views
        cdef Py_ssize_t size = 0
        try:
            views = [PyMemoryView_FromObject(piece).cast("B") for piece in pieces]
        except (BufferError, TypeError, ValueError) as error:
            raise ProtocolError(f"a contiguous buffer of bytes is needed: {error}") from None
        for view in views:
            size += len(view)
        self.length(size, 4)
        for view in views:
            if len(view):
                self.flush()
                self.chunks.append(view)
                self.chunk_bytes += len(view)

    def count(self, Py_ssize_t value):
        """Write the count of an array; -1 for null."""
        self.length(value, 4)

    def int32_array(self, value):
        self.length(len(value), 4)
        for one in value:
            self.int32(one)

    cpdef object tags(self, fields):
        """Write tagged fields from (tag, bytes) pairs, in the order of their tags, as Kafka does.
        Where the version has no place for them there must be none.
        """
        cdef int64_t last = -1
        if not self.flexible:
            if fields:
                raise ProtocolError("this version cannot carry a tagged field")
            return
        if not fields:
            self.grow(1)[0] = 0
            return
        self.uvarint(len(fields))
        for tag, content in sorted(fields):
            if tag == last:
                raise ProtocolError(f"tag {tag} twice")
            last = tag
            self.uvarint(tag)
            self.uvarint(len(content))
            self.put(content, len(content))

    def finish(self):
        """Return what was written: bytes, and record batches between them. Empties the writer.
        """
        cdef Py_ssize_t size
        cdef list chunks
        cdef bytes first
        self.flush()
        chunks, self.chunks = self.chunks, []
        size, self.chunk_bytes = self.chunk_bytes, 0
        if self.has_length:
            size -= 4
            if size > 0x7fffffff:
                raise ProtocolError(f"a frame of {size} bytes is more than its length can say")
            first = chunks[0]
            # made in flush, and nobody else has it yet
            put_int32(<uint8_t *><char *>first, <int32_t>size)
        return chunks

    def getvalue(self):
        """Return what was written as one bytes object."""
        return b"".join(self.finish())
