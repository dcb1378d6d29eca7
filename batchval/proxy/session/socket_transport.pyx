"""Plain TCP connections of sessions, read and written when the event loop says they are ready.

    readable   one call receives into the memory of the protocol's splitter and cuts frames; those
               that need nothing more go by a ``Passage`` to the other side of the session
    written    at once, as much as the kernel takes; the rest when it takes more

What a passage does not take, the protocol gets: ``frames_came(frames, outcome, error)``. Otherwise
this is a transport as asyncio's are: its protocol has ``connection_made``, ``pause_writing``,
``resume_writing``, ``eof_received`` and ``connection_lost``. Connections with TLS have asyncio's.

Two states, and what moves them:

    life       OPEN ── close ──► CLOSING, where bytes wait, ── all is written ──► LOST
               OPEN ── close, where none wait ──► LOST      any ── abort, an error ──► LOST
    reading    OFF ── resume ──► READ ── pause ──► PAUSED ── resume ──► READ
               PAUSED ── the loop has said often that it can be read ──► OFF
               any ── the end of file, close, abort ──► OFF

With the consumer's receive loop, the one native module that makes system calls on descriptors
(docs/adr/0020): recv, sendmsg and shutdown on a socket that Python has connected and closes.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t
from libc.string cimport memset, strerror

from batchval.protocol.frames cimport FrameSplitter

from batchval.protocol.frames import FrameError

cdef extern from "<errno.h>" nogil:
    int errno, EAGAIN

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int, void *, size_t, int)
    ssize_t sendmsg(int, const msghdr *, int)
    int shutdown(int, int)
    int SHUT_WR
    int MSG_DONTWAIT, MSG_PEEK
    int MSG_NOSIGNAL

    cdef struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

cdef enum:
    MIN_TURN = 512 << 10  # bytes that a turn of the loop receives for a connection; of frames that
    MAX_TURN = 1 << 20    # are larger, one, so that it is judged while it is in cache
    MOST_IGNORED = 8      # turns of the loop in which it may say that a paused socket can be read
    PIECES = 32           # pieces of one call of the kernel
    HIGH = 64 << 10       # bytes that may wait, unless ``set_write_buffer_limits`` says otherwise

#: what a passage says, for sessions
PASSED_REST, PASSED_STOPPED, PASSED_SPENT, PASSED_LOOK = REST, STOPPED, SPENT, LOOK

LIFE = "open", "closing", "lost"
READING = "off", "paused", "read"


cdef class Passage:
    """A way to the other side of a session for frames that it need not see, as long as it is open.

    ``to``  the transport of the other side
    """

    def take_passed(self):
        """Return how many frames have passed since the last call."""
        passed, self.passed = self.passed, 0
        return passed

    cdef Passed take(self, FrameSplitter splitter, list frames) except *:
        """Send the first ``taken`` frames on."""
        self.taken = 0
        return REST

    cdef void end(self) noexcept:
        """Forget the other side: nothing passes any more."""
        self.is_open = False
        self.to = None


@cython.final
cdef class SocketTransport:
    """The transport of one connection, whose socket it owns.

    ``protocol``  has ``splitter``, into whose memory bytes are received
    ``address``   the peer's, where it is known
    ``passage``   where frames go without the session, or None
    """

    def __cinit__(self):
        self.fd = -1

    def __init__(self, loop, sock not None, protocol, address=None):
        self.loop = loop
        self.sock = sock
        self.fd = sock.fileno()
        self.protocol = protocol
        self.splitter = protocol.splitter
        self.extra = {"socket": sock, "peername": address}
        self.pending = []
        self.high = HIGH
        sock.setblocking(False)

    def start(self):
        """Tell the protocol of its connection, and read it unless it asks for a pause.

        Raises OSError, and closes the socket, where the peer has left: the protocol is not called.
        """
        try:
            if self.extra["peername"] is None:
                self.extra["peername"] = self.sock.getpeername()
            self.extra["sockname"] = self.sock.getsockname()
        except OSError:
            self.life = LOST
            self.protocol = None
            self.sock.close()
            raise
        self.ask()
        try:
            self.protocol.connection_made(self)
        except BaseException:
            self.stop()
            raise

    def __repr__(self):
        """Return the peer's address, the states, and how many bytes wait."""
        return (f"<SocketTransport {self.extra['peername']}: {LIFE[self.life]}, "
                f"reading {READING[self.reading]}, {self.unwritten} bytes wait>")

    # ---- reading ---------------------------------------------------------------------------------

    def __call__(self):
        """Receive what has come. The loop calls it when the socket can be read."""
        if self.reading != READ:
            self.ignored += 1
            if self.ignored > MOST_IGNORED:
                self.stop()
        elif not self.goes_on:
            self._read(True)

    def _read(self, bint is_ready):
        """Read; an error of the protocol ends the connection, and the loop reports it."""
        try:
            self.readable(is_ready)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.loop.call_exception_handler(
                {"message": "a connection could not be read", "exception": error,
                 "transport": self, "protocol": self.protocol})
            self._abort(error)

    cdef int go_on(self) except -1:
        """Read in the next turn of the loop, whether it says that the socket can be read or not."""
        if not self.goes_on:
            self.goes_on = True
            self.loop.call_soon(self._go_on)
        return 0

    def _go_on(self):
        self.goes_on = False
        self._read(False)

    cdef bint has_more(self) except -1:
        """Return whether bytes or an end of file wait: room for what may never come would count as
        held.
        """
        cdef char first
        if recv(self.fd, &first, 1, MSG_DONTWAIT | MSG_PEEK) >= 0:
            return True
        if errno != EAGAIN:
            self.fail(errno)
        return False

    cdef int readable(self, bint is_ready) except -1:
        """Receive, and pass on what is whole: so much in a turn that others have theirs.

        It ends where nothing is left, or asks for another turn: uvloop calls once for a socket with
        an error, also where bytes come before the error.
        """
        cdef Py_ssize_t count, taken
        cdef Py_ssize_t left = max(MIN_TURN, min(self.splitter.last, <Py_ssize_t>MAX_TURN))
        cdef Passed outcome
        while self.reading == READ:
            if not is_ready and not self.has_more():
                return 0
            is_ready = False
            if left <= 0:
                self.go_on()
                return 0
            count = self.receive()
            if count < 0:
                return 0
            if count == 0:
                self.stop()
                if not self.protocol.eof_received():
                    self.close()
                return 0
            left -= count
            if self.splitter.is_scarce():
                left = 0  # one read, as long as others may need the time or the memory
            try:
                frames = self.splitter.buffer_updated(count)
            except FrameError as error:
                self.protocol.frames_came(error.frames, REST, error)
                return 0
            outcome = REST
            taken = 0
            if self.passage is not None and self.passage.is_open:
                outcome = self.passage.take(self.splitter, frames)
                left -= max(<int64_t>0, self.passage.work - count)
                taken = self.passage.taken
            if outcome != ALL:
                self.protocol.frames_came(frames[taken:] if taken else frames, outcome, None)
        return 0

    cdef Py_ssize_t receive(self) except -2:
        """Return how many bytes have come; 0 for the end of file, -1 for nothing more now."""
        cdef Py_ssize_t room = 0, count
        cdef uint8_t *at = self.splitter.room(&room)
        cdef int fd = self.fd, number
        room = min(room, <Py_ssize_t>MAX_TURN)
        count = recv(fd, at, room, MSG_DONTWAIT)
        number = errno
        if count <= 0:
            self.splitter.forget_room()
            if count < 0 and number != EAGAIN:
                self.fail(number)
        return count

    cdef int ask(self) except -1:
        """Read, and let the loop say when the socket can be read."""
        self.reading = READ
        self.loop.add_reader(self.fd, self)
        return 0

    def pause_reading(self):
        """Do not read until ``resume_reading``.

        The loop is told when it has said several times that the socket can be read: most pauses are
        shorter, and to tell it and ask again takes eight system calls.
        """
        if self.reading == READ:
            self.reading = PAUSED
            self.ignored = 0

    def resume_reading(self):
        """Read again."""
        if self.reading == PAUSED:
            self.reading = READ
            self.go_on()
        elif self.reading == OFF and self.life == OPEN:
            self.ask()

    # ---- writing ---------------------------------------------------------------------------------

    def write(self, data):
        """Write bytes: now as many as the kernel takes, the rest later."""
        if self.life == OPEN:
            self.send([data])

    def writelines(self, list_of_data):
        """Write pieces in their order."""
        if self.life == OPEN:
            self.send(list_of_data if type(list_of_data) is list else list(list_of_data))

    cdef int send(self, list pieces) except -1:
        cdef Py_buffer views[PIECES]
        cdef iovec parts[PIECES]
        cdef msghdr message
        cdef Py_ssize_t at = 0, sent, size, end = len(pieces)
        cdef int n, held, fd = self.fd, number = 0
        while at < end and not self.unwritten:
            n = held = 0
            size = 0
            try:
                while n < PIECES and at + n < end:
                    PyObject_GetBuffer(pieces[at + n], &views[n], PyBUF_SIMPLE)
                    held += 1
                    parts[n].iov_base = views[n].buf
                    parts[n].iov_len = views[n].len
                    size += views[n].len
                    n += 1
                memset(&message, 0, sizeof(message))
                message.msg_iov = parts
                message.msg_iovlen = n
                sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
                number = errno
            finally:
                for n in range(held):
                    PyBuffer_Release(&views[n])
            if sent < 0:
                if number != EAGAIN:
                    self.fail(number)
                    return 0
                sent = 0
            if sent == size:
                at += held
                continue
            while at < end and sent >= len(pieces[at]):
                sent -= len(pieces[at])
                at += 1
            self.wait(pieces[at], sent)
            at += 1
        while at < end:
            self.wait(pieces[at], 0)
            at += 1
        if self.unwritten > self.high and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()
        return 0

    cdef int wait(self, object piece, Py_ssize_t offset) except -1:
        """Keep what the kernel does not take."""
        cdef Py_ssize_t size = len(piece) - offset
        if not size:
            return 0
        self.pending.append(memoryview(piece)[offset:] if offset else piece)
        if not self.unwritten:
            self.loop.add_writer(self.fd, self._writable)
        self.unwritten += size
        return 0

    def _writable(self):
        """Write what waits."""
        cdef list pieces = self.pending
        if not self.unwritten:
            return
        self.forget_unwritten()
        self.send(pieces)
        if self.life == LOST:
            return
        if self.is_full and self.unwritten <= self.high >> 2:
            self.is_full = False
            self.protocol.resume_writing()
        if not self.unwritten:
            if self.ends:
                self._send_end()
            if self.life == CLOSING:
                self._lose(None)

    cdef int forget_unwritten(self) except -1:
        """Let nothing wait any more."""
        if self.unwritten:
            self.pending = []
            self.unwritten = 0
            self.loop.remove_writer(self.fd)
        return 0

    def can_write_eof(self):
        """Return True: the socket can send an end of file."""
        return True

    def write_eof(self):
        """Send an end of file once all is written, and still read."""
        self.ends = True
        if not self.unwritten and self.life == OPEN:
            self._send_end()

    def _send_end(self):
        self.ends = False
        if shutdown(self.fd, SHUT_WR) < 0:
            self.fail(errno)

    def set_write_buffer_limits(self, high=None, low=None):
        """Let the protocol pause above ``high`` bytes that wait, and go on at a quarter of it."""
        self.high = HIGH if high is None else high
        if self.unwritten > self.high and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()

    def get_write_buffer_size(self):
        """Return the bytes that the kernel has not taken."""
        return self.unwritten

    # ---- the end ---------------------------------------------------------------------------------

    cdef int stop(self) except -1:
        """Read no more, and ask the loop no more."""
        if self.reading != OFF:
            self.reading = OFF
            self.loop.remove_reader(self.fd)
        return 0

    cdef int fail(self, int number) except -1:
        """End at once because of an error of the kernel."""
        self._abort(OSError(number, strerror(number).decode()))
        return 0

    def is_closing(self):
        """Return whether it closes, or has."""
        return self.life != OPEN

    def close(self):
        """Close once all is written. Nothing is read any more."""
        if self.life != OPEN:
            return
        self.stop()
        self.life = CLOSING
        if not self.unwritten:
            self._lose(None)

    def abort(self):
        """Close at once."""
        self._abort(None)

    def _abort(self, error):
        if self.life == LOST:
            return
        self.stop()
        self.forget_unwritten()
        self._lose(error)

    def _lose(self, error):
        """Tell the protocol in a later turn of the loop, as asyncio does."""
        self.life = LOST
        self.loop.call_soon(self._lost, error)

    def _lost(self, error):
        protocol, self.protocol = self.protocol, None
        passage, self.passage = self.passage, None
        try:
            protocol.connection_lost(error)
        finally:
            if passage is not None:
                passage.end()
            self.fd = -1
            self.sock.close()
            self.splitter = None

    def get_extra_info(self, name, default=None):
        """Return ``socket``, ``peername`` or ``sockname``; ``default`` for other names."""
        return self.extra.get(name, default)

    def get_protocol(self):
        """Return the protocol; None once the connection is lost."""
        return self.protocol

    def set_protocol(self, protocol):
        """Let another protocol have the connection."""
        self.protocol = protocol
        self.splitter = protocol.splitter
