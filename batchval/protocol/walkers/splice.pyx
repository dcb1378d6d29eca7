"""A frame written again around slices of another (see splice.pxd)."""

cimport cython
from libc.stdint cimport uint8_t

from batchval.protocol.primitives cimport Writer


@cython.final
cdef class Splicer:
    """``keep`` what stays, in order, and write what is new between; neighbours that stay become one
    slice.
    """

    cdef int keep(self, Py_ssize_t start, Py_ssize_t end) except -1:
        if start != self.end:
            self.jump(start)
        self.end = end
        return 0

    cdef int keep_to(self, Py_ssize_t end) except -1:
        """Keep the bytes from the current position to ``end``."""
        self.end = end
        return 0

    cdef int jump(self, Py_ssize_t to) except -1:
        """Leave out the bytes before ``to``."""
        self.settle()
        self.start = self.end = to
        return 0

    cdef int settle(self) except -1:
        """Write out what is kept; the writer continues after it."""
        cdef Py_ssize_t size = self.end - self.start
        if size >= WORTH_A_SLICE:
            self.w.flush()
            self.w.chunks.append(self.whole[self.start:self.end])
            self.w.chunk_bytes += size
        elif size > 0:
            self.w.put(self.base + self.start, size)
        self.start = self.end
        return 0

    cdef int put_length(self, Py_ssize_t size, int fixed) except -1:
        self.settle()
        return self.w.length(size, fixed)

    cdef int put(self, bytes data) except -1:
        self.settle()
        if len(data) < WORTH_A_SLICE:
            return self.w.put(data, len(data))
        self.w.flush()
        self.w.chunks.append(data)
        self.w.chunk_bytes += len(data)
        return 0

    cdef int copy(self, const uint8_t *source, Py_ssize_t size) except -1:
        """Write bytes of another frame."""
        self.settle()
        return self.w.put(source, size)

    cdef uint8_t *grow(self, Py_ssize_t size) except NULL:
        self.settle()
        return self.w.grow(size)

    cdef list finish(self):
        self.settle()
        return self.w.finish()


cdef Splicer splicer(object whole, const uint8_t *base, bint flexible):
    cdef Splicer made = Splicer()
    made.w = Writer(flexible, True)
    made.whole = whole
    made.base = base
    made.start = made.end = 0
    return made
