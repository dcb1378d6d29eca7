"""Run receivers on their sockets: one thread without the GIL, from first Fetch to last answer.

It makes system calls on descriptors, as a gate's connections do (docs/adr/0015): recv, send, poll
and setsockopt on sockets that Python has connected, read and write on two pipes that Python has
made. It opens and closes nothing.

    thread   poll, then of each readable socket: recv, the steps of its stream, and the next
             request where an answer has ended
    wake     a byte in this pipe ends a poll: partitions were added, or the thread has to stop
    notify   the thread writes a byte, one until Python looks: a block has come, a partition was
             returned, a connection has ended, the quota is used up

Sockets must not block, and nobody else may read from them or write to them. Before their transport
is closed, the receiver is removed.
"""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from batchval.core.codecs.scratch cimport Scratch, borrow, give_back
from batchval.fetch.receive cimport (
    Stream, note_latency, seen, stream_awaits, stream_fed, stream_space, swap,
)
from batchval.fetch.receive_request cimport stream_request
from batchval.fetch.receiver cimport Receiver
from batchval.fetch.turn_lock cimport (
    Turns, close_turns, give_turn, let_others_in, open_turns, step_aside, step_in, take_turn,
)

cdef enum:
    ONE_MS = 1000000
    PATIENCE_MS = 20  # for bytes that are worth a read
    READS = 8  # of one socket, before the others have their turn
    THROTTLED_FROM = 8  # the version from which the client has to wait (KIP-219)

cdef int64_t MAX_POLL_NS = <int64_t>60000 * ONE_MS  # of a poll

cdef struct PolledConnection:  # a connection
    Stream *stream  # NULL: removed
    PolledConnection *next  # in the list of those that the thread has not seen
    int socket
    int awaited  # bytes that end a poll
    bint is_slow  # they did not come in time: whatever comes ends the next one
    bint is_ended  # by the broker, or because of what it sent
    bint is_late  # no answer in time
    bint has_notified  # Python that the quota is used up
    int64_t asked_ns
    int64_t silent_until_ns

cdef struct Loop:
    Turns turns
    PolledConnection *added
    PolledConnection **lines  # the thread's, as ``entries`` are
    PollEntry *entries  # one more than lines: the pipe
    int count
    int space
    int wake
    int notify
    int64_t timeout_ms  # of an answer
    bint is_stopped
    bint must_notify
    int has_notified  # Python, which has not looked yet
    int has_ended  # a line of those that are here


cdef void run_loop(Loop *l, Scratch *scratch) noexcept nogil:
    cdef int i
    step_in(&l.turns)
    while not l.is_stopped and take_in(l):
        wait(l)
        if l.entries[0].revents:
            drain(l.wake)
        for i in range(l.count):
            if l.entries[i + 1].revents and not l.lines[i].is_ended and not l.is_stopped:
                serve(l, l.lines[i], scratch)
    step_aside(&l.turns)


cdef bint take_in(Loop *l) noexcept nogil:
    """Take over the lines that were added, and free those that were removed. False: no memory."""
    cdef PolledConnection *line
    cdef int i, kept = 0, count = l.count
    cdef void *grown
    for i in range(count):
        if l.lines[i].stream is NULL:
            free(l.lines[i])
        else:
            l.lines[kept] = l.lines[i]
            kept += 1
    l.count = kept
    while l.added is not NULL or l.space == 0:
        if l.count == l.space:
            grown = realloc(l.lines, (l.space + 8) * sizeof(PolledConnection *))
            if grown is NULL:
                return False
            l.lines = <PolledConnection **>grown
            grown = realloc(l.entries, (l.space + 9) * sizeof(PollEntry))
            if grown is NULL:
                return False
            l.entries = <PollEntry *>grown
            l.space += 8
            continue
        line = l.added
        l.added = line.next
        if line.stream is NULL:  # removed before this thread has seen it
            free(line)
            continue
        l.lines[l.count] = line
        l.count += 1
    return True


cdef void wait(Loop *l) noexcept nogil:
    """Send what may be sent, then wait until something can be read or a time is over."""
    cdef int i, awaited, ready
    cdef int64_t now = now_ns(), rest, soonest = MAX_POLL_NS
    cdef PolledConnection *line
    l.entries[0].fd = l.wake
    l.entries[0].events = POLLIN
    for i in range(l.count):
        line = l.lines[i]
        if not line.is_ended:
            rest = ask_in_time(l, line, now)
            if 0 < rest < soonest:
                soonest = rest
            awaited = 1 if line.is_slow else stream_awaits(line.stream)
            if awaited != line.awaited:
                line.awaited = awaited
                await_bytes(line.socket, awaited)
            if awaited > 1:
                soonest = min(soonest, PATIENCE_MS * ONE_MS)
        l.entries[i + 1].fd = -1 if line.is_ended else line.socket
        l.entries[i + 1].events = POLLIN
        if line.stream.out_at < line.stream.out_end:
            l.entries[i + 1].events = POLLIN | POLLOUT
    if l.must_notify:
        l.must_notify = False
        notify(l)
    step_aside(&l.turns)
    ready = poll(l.entries, l.count + 1, <int>((soonest + ONE_MS - 1) // ONE_MS))
    step_in(&l.turns)
    if ready == 0:
        for i in range(l.count):
            l.lines[i].is_slow = l.lines[i].awaited > 1


cdef int64_t ask_in_time(Loop *l, PolledConnection *line, int64_t now) noexcept nogil:
    """Send what may be sent; return the ns until the next look, 0 or less: when something comes."""
    ask(l, line, now)
    if not line.stream.under_way:
        return line.silent_until_ns - now
    if now - line.asked_ns >= l.timeout_ms * ONE_MS:
        line.is_late = True
        end(l, line)
    return line.asked_ns + l.timeout_ms * ONE_MS - now


cdef void notify(Loop *l) noexcept nogil:
    if not swap(&l.has_notified, True):
        ring(l.notify)


cdef void end(Loop *l, PolledConnection *line) noexcept nogil:
    line.is_ended = l.has_ended = l.must_notify = True


cdef void ask(Loop *l, PolledConnection *line, int64_t now) noexcept nogil:
    """Send the next request where none is under way, and what is left of the last."""
    cdef Stream *s = line.stream
    cdef long sent
    if not s.under_way:
        if now < line.silent_until_ns:
            return
        if not stream_request(s):
            if s.is_used_up and not line.has_notified:
                line.has_notified = l.must_notify = True
            return
        line.asked_ns = now
    while s.out_at < s.out_end:
        sent = transmit(line.socket, s.out + s.out_at, s.out_end - s.out_at)
        if sent == LATER:
            return
        if sent < 0:
            end(l, line)
            return
        s.out_at += sent


cdef void serve(Loop *l, PolledConnection *line, Scratch *scratch) noexcept nogil:
    """Read what has come."""
    cdef Stream *s = line.stream
    cdef size_t space = 0
    cdef uint8_t *target
    cdef long size
    cdef int64_t now, before
    cdef bint is_whole
    cdef int _i
    for _i in range(READS):
        target = stream_space(s, &space)
        size = receive(line.socket, target, space)
        if size == LATER:
            return
        if size < 0:
            end(l, line)
            return
        line.is_slow = False
        before = s.totals.records
        is_whole = stream_fed(s, size, scratch)
        now = now_ns()
        if s.totals.records != before:
            s.totals.last_ns = now
        if is_whole:
            note_latency(&s.totals, now - line.asked_ns)
            if s.version >= THROTTLED_FROM:
                # after a longer silence the broker may as well be gone
                line.silent_until_ns = now + min(s.throttle_ms, l.timeout_ms) * <int64_t>ONE_MS
            ask(l, line, now)
        if swap(&s.has_new, False):
            notify(l)  # at once: this may read for long
        if s.failure is not NULL:
            end(l, line)
            return
        if s.returned:
            l.must_notify = True
        if <size_t>size < space:
            return
        let_others_in(&l.turns)
        if line.stream is NULL or l.is_stopped:
            return


@cython.final
cdef class ReceiveLoop:
    """Receivers and their sockets. ``run`` is the thread's function; everything else is for one
    other thread.

    ``wake`` is the end of a pipe that is read here, ``notify`` one that is written; neither may
    block. ``timeout_ms`` is how long an answer may take.
    """

    cdef Loop loop
    cdef dict lines  # Receiver -> address of its line
    cdef int wake_end

    def __cinit__(self, int wake, int wake_end, int notify, int64_t timeout_ms):
        memset(&self.loop, 0, sizeof(Loop))
        if open_turns(&self.loop.turns):
            raise MemoryError()
        self.lines = {}
        self.loop.wake = wake
        self.loop.notify = notify
        self.loop.timeout_ms = timeout_ms
        self.wake_end = wake_end

    def __dealloc__(self):
        cdef int i
        cdef PolledConnection *line
        for i in range(self.loop.count):
            free(self.loop.lines[i])
        while self.loop.added is not NULL:
            line = self.loop.added
            self.loop.added = line.next
            free(line)
        free(self.loop.lines)
        free(self.loop.entries)
        close_turns(&self.loop.turns)

    cdef int begin(self) except -1:
        with nogil:
            take_turn(&self.loop.turns)
        return 0

    def run(self):
        """Serve the sockets until ``stop``. Raises RuntimeError where a thread does so already."""
        cdef Scratch *scratch
        self.begin()
        before = self.loop.turns.is_running
        self.loop.turns.is_running = True
        give_turn(&self.loop.turns)
        if before:
            raise RuntimeError("a ReceiveLoop runs once")
        scratch = borrow()
        with nogil:
            run_loop(&self.loop, scratch)
        give_back(scratch)

    def stop(self):
        """End ``run``."""
        self.begin()
        self.loop.is_stopped = True
        ring(self.wake_end)
        give_turn(&self.loop.turns)

    def wake(self):
        """Let the thread look for partitions to ask for."""
        ring(self.wake_end)

    def add(self, Receiver receiver not None, int socket):
        """Run a receiver on this socket from now on. Raises RuntimeError if a loop runs it."""
        cdef PolledConnection *line
        if receiver.keeper is not None:
            raise RuntimeError("a loop runs this receiver already")
        line = <PolledConnection *>calloc(1, sizeof(PolledConnection))
        if line is NULL:
            raise MemoryError()
        line.stream = &receiver.stream
        line.socket = socket
        self.begin()
        line.next = self.loop.added
        self.loop.added = line
        receiver.turns = &self.loop.turns
        receiver.keeper = self
        give_turn(&self.loop.turns)
        self.lines[receiver] = <size_t>line
        self.wake()

    def remove(self, Receiver receiver not None):
        """Stop using its socket; what is under way is lost. Positions can still be asked for."""
        cdef PolledConnection *line = <PolledConnection *><size_t>self.lines.pop(receiver)
        self.begin()
        line.stream = NULL
        line.is_ended = True
        receiver.turns = &receiver.own_turns
        give_turn(&self.loop.turns)
        self.wake()

    def ended(self):
        """Return [(receiver, why)] of connections that ended; "" where the broker closed it."""
        cdef PolledConnection *line
        found = []
        if not seen(&self.loop.has_ended):
            return found  # without a turn
        self.begin()
        try:
            for receiver, address in self.lines.items():
                line = <PolledConnection *><size_t>address
                if line.is_ended:
                    late = f"no answer in {self.loop.timeout_ms} ms" if line.is_late else ""
                    found.append((receiver, receiver.failure or late))
            self.loop.has_ended = bool(found)
        finally:
            give_turn(&self.loop.turns)
        return found

    def drain(self, int notified):
        """Empty the pipe that ``notify`` writes to, before a look at what has come."""
        drain(notified)
        swap(&self.loop.has_notified, False)
