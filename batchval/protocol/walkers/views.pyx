"""A walked frame: holds its buffer and its rows, frees both (see views.pxd)."""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t

from batchval.protocol.cursor cimport open_cursor
from batchval.protocol.primitives cimport explained, take_buffer
from batchval.protocol.walkers.tables cimport close_tables, open_tables

from batchval.protocol.errors import ProtocolError


@cython.no_gc  # as Reader: see there
cdef class FrameView:
    """A frame (without its length) and what a walk has found in it. The frame is held as long as
    this is.
    """

    def __cinit__(self, *args, **kwargs):
        self.held = False
        open_tables(&self.t)

    def __dealloc__(self):
        close_tables(&self.t)
        if self.held:
            PyBuffer_Release(&self.view)

    cdef int hold(self, object frame) except -1:
        take_buffer(frame, &self.view)
        self.held = True
        if self.view.len > 0x7fffffff:
            raise ProtocolError(f"a frame of {self.view.len} bytes is more than its length can say")
        if type(frame) is memoryview and frame.format == "B":
            self.whole = frame
        else:
            self.whole = PyMemoryView_FromObject(frame).cast("B")
        open_cursor(&self.c, <const uint8_t *>self.view.buf, self.view.len, False)
        return 0

    cdef const uint8_t *base(self):
        return <const uint8_t *>self.view.buf

    cdef bytes cut(self, Py_ssize_t start, Py_ssize_t end):
        """Return a copy of some bytes."""
        return PyBytes_FromStringAndSize(<const char *>self.base() + start, end - start)

    cdef object text(self, Py_ssize_t start, Py_ssize_t size):
        return PyUnicode_DecodeUTF8(<char *>self.base() + start, size, "replace")

    cdef int finish_walk(self) except -1:
        if self.c.wrong:
            raise explained(&self.c)
        return 0
