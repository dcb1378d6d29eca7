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

cdef enum Life:
    OPEN     # what is written is sent
    CLOSING  # nothing more is written; what waits is still sent
    LOST     # nothing is sent; the protocol is told in a later turn of the loop

cdef enum Reading:
    OFF      # the loop is not asked when the socket can be read
    PAUSED   # it is asked, and what it says is ignored
    READ     # what comes is read; only where the life is OPEN


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
    cdef Life life
    cdef Reading reading
    cdef int ignored             # times the loop has said that it can be read, since a pause
    cdef bint goes_on            # another turn was asked for, and reads
    cdef list pending            # what the kernel has not taken
    cdef Py_ssize_t unwritten    # its bytes; if any, the loop says when it can be written
    cdef Py_ssize_t high
    cdef bint is_full            # the protocol was told to write no more
    cdef bint ends               # an end of file follows what waits

    cdef Py_ssize_t receive(self) except -2
    cdef int send(self, list pieces) except -1
    cdef int wait(self, object piece, Py_ssize_t offset) except -1
    cdef int forget_unwritten(self) except -1
    cdef int fail(self, int number) except -1
    cdef bint has_more(self) except -1
    cdef int readable(self, bint is_ready) except -1
    cdef int go_on(self) except -1
    cdef int ask(self) except -1
    cdef int stop(self) except -1
