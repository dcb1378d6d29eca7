"""Plain TCP connections of sessions, read and written when the event loop says they are ready."""

cimport cython
from libc.stdint cimport int64_t

from batchval.protocol.frames cimport FrameSplitter

cdef enum Passed:
    ALL      # all frames went on, and the session has nothing to do
    REST     # the session takes the frames that are left
    STOPPED  # as REST, and the fast path cannot take the first of them
    SPENT    # as REST, and this turn of the loop has done enough for the session
    LOOK     # all went on; the session looks at what is held and at what waits


cdef class Passage:
    cdef public bint is_open  # the session writes it
    cdef public object to     # the transport of the other side
    cdef Py_ssize_t taken     # of the frames of the last call
    cdef int64_t work         # of the last call, in bytes walked; 0: about those that came
    cdef int64_t passed       # frames, since ``take_passed``
    cdef Passed take(self, FrameSplitter splitter, list frames) except *
    cdef void end(self) noexcept


@cython.final
cdef class SocketTransport:
    cdef int fd
    cdef object loop, sock, protocol, extra
    cdef FrameSplitter splitter  # of the protocol: received bytes go into its memory
    cdef public Passage passage  # where frames go without the session; None: all go to the protocol
    cdef bint is_read            # the protocol takes what comes
    cdef bint is_told            # the loop says when the socket can be read
    cdef int ignored             # how often it has said so since the protocol paused
    cdef bint is_watched         # the loop says when the socket can be written
    cdef bint closing, lost
    cdef bint ends               # an end of file follows what waits
    cdef bint goes_on            # another turn was asked for, and reads
    cdef list pending            # what the kernel has not taken
    cdef Py_ssize_t unwritten, high
    cdef bint is_full

    cdef Py_ssize_t receive(self) except -2
    cdef int send(self, list pieces) except -1
    cdef int wait(self, object piece, Py_ssize_t offset) except -1
    cdef int fail(self, int number) except -1
    cdef bint has_more(self) except -1
    cdef int readable(self, bint is_ready) except -1
    cdef int go_on(self) except -1
    cdef int ask(self) except -1
    cdef int stop(self) except -1
