"""Frames from a stream: int32 length (big-endian), then so many bytes.

Bytes come in pieces of any size; frames go out as memoryviews that keep their memory alive: nothing
is used again while a slice of it is held. A length is checked when its four bytes have come, before
a byte of the frame is stored, and allocates at most ``TRUST`` bytes ahead of those that have come.
A larger frame grows by doubling: where the system can move pages (Linux) and nothing else refers to
the memory, without a copy.

Two ways in: ``get_buffer`` and ``buffer_updated``, as asyncio.BufferedProtocol has them (no copy),
and ``feed``, which takes bytes that were read elsewhere (whole frames in them are slices of them).

A frame that is not whole yet can be streamed: see ``FrameSplitter.stream_partial``.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove

from batchval.protocol.frame_memory cimport (
    ALWAYS_TRUSTED, BLOCK, TRUST, Block, kind_size, large_for, trusted,
)
from batchval.protocol.cursor cimport bswap32
from batchval.protocol.primitives cimport take_buffer

# for callers, who need not know where blocks come from
from batchval.protocol.frame_memory import allocated, kept  # no-cython-lint
from batchval.protocol.frame_memory import limit_memory, poison_released  # no-cython-lint
from batchval.protocol.errors import ProtocolError

cdef extern from *:
    Py_ssize_t Py_REFCNT(PyObject *one)

# Kafka's socket.request.max.bytes
MAX_FRAME_BYTES = 100 << 20

cdef enum:
    SHORT_READ = 4 << 10      # see SpareBlock.shorten
    FEW_FRAMES = 128          # of a read for a loop, as far as they are as large as the last one
    FEW_BYTES = 16 << 10      # which it brings however small they are
    SHORT_STEP = 4 << 10      # by which a frame grows where memory is almost used up
    ENOUGH = 16 << 10         # fewer free bytes than this in a block are not worth a read
    SMALL = 32 << 10          # a read of no more is copied, so that it holds no whole block
    EVEN_FROM = 4 << 10       # frames that are smaller are copied where they are cut
    FIRST = 16                # bytes of a partial frame that are shown: length, ids, throttle time


class FrameError(ProtocolError):
    """A length that no frame has, which ends the stream.

    ``stated`` is the length, ``limit`` the largest allowed, ``first_bytes`` what was there (16 at
    most), ``peer`` what it looks like ("HTTP", "TLS") or None, ``frames`` the whole frames that
    came before it in the same read.
    """

    def __init__(self, what, stated, limit, first_bytes, peer, frames):
        super().__init__(what)
        self.stated = stated
        self.limit = limit
        self.first_bytes = first_bytes
        self.peer = peer
        self.frames = frames

    def __reduce__(self):
        """Pickle frames, which are views of the reader's memory, as bytes."""
        restored, (kind, args, attributes) = super().__reduce__()
        attributes["frames"] = [bytes(frame) for frame in self.frames]
        return restored, (kind, args, attributes)


cdef object guessed(const uint8_t *data, Py_ssize_t size):
    """Return the name of the protocol whose first bytes these are, if not Kafka's."""
    cdef bytes first = data[:min(size, 4)]
    if first.startswith((b"GET ", b"POST", b"PUT ", b"HEAD", b"HTTP", b"DELE", b"OPTI", b"CONN",
            b"PATC", b"PRI ")):
        return "HTTP"
    if size >= 3 and (data[0] == 0x15 or data[0] == 0x16) and data[1] == 3 and data[2] <= 4:
        return "TLS"
    return None


@cython.final
cdef class SpareBlock:
    """A read block that splitters of one event loop share for reads that may bring nothing.

    A transport whose buffer was filled asks for the next one, and often nothing comes. The splitter
    owns that block only from the first byte on, so that a connection that waits holds none. Only
    for transports that read into a buffer as soon as they have it (asyncio's selector loop and
    uvloop do), all of them on one thread.

    ``is_short``  reads of these splitters bring 4 KiB at most, see ``shorten``
    """

    def __cinit__(self):
        self.is_short = False

    def shorten(self, bint on):
        """Let reads bring 4 KiB at most, for example as long as other work is due."""
        if on != self.is_short:
            self.is_short = on
            self.view = self.block = None


@cython.final
cdef class FrameSplitter:
    """A splitter of one direction of a connection into frames.

    ``max_frame_bytes``  the largest frame, without its length (Kafka's socket.request.max.bytes:
                         100 MiB). It may be set at any time and holds for the frames whose length
                         is read from then on: one that has begun may go on
    ``whole``            frames start with their four bytes of length, to be forwarded as they are
    ``spare``            a SpareBlock for ``get_buffer``, or None

    A bad length raises FrameError from ``feed`` and ``buffer_updated``, and again at every later
    call: the stream cannot be read on.

    A partial frame can be streamed. ``partial`` shows what has come of it, ``partial_size`` its
    size, and ``stream_partial`` hands it out. While ``streaming`` is above 0 the next bytes belong
    to that frame: a read hands out those that have come as the first item of its list, before whole
    frames. No memory is allocated for the rest of the frame: its pieces are slices of read blocks.
    """

    def __cinit__(self, Py_ssize_t max_frame_bytes=MAX_FRAME_BYTES, *, bint whole=False,
            SpareBlock spare=None):
        self.max_frame_bytes = max_frame_bytes
        self.whole = whole
        self.begun = self.coming = 0
        self.block = None
        self.view = None
        self.start = self.end = self.stashed = self.last = 0
        self.failed = None
        self.spare = spare
        self.offered = False

    @property
    def max_frame_bytes(self):
        return self.limit

    @max_frame_bytes.setter
    def max_frame_bytes(self, Py_ssize_t max_frame_bytes):
        if not 0 < max_frame_bytes <= 0x7fffffff:
            raise ProtocolError(f"max_frame_bytes must be 1 to {0x7fffffff}, not {max_frame_bytes}")
        self.limit = max_frame_bytes

    @property
    def buffered(self):
        """Return the bytes of an unfinished frame that are held, its length included."""
        return self.stashed + self.end - self.start

    @property
    def held_bytes(self):
        """Return the memory held for the unfinished frame, without this object."""
        return 0 if self.block is None else self.block.size

    @property
    def partial(self):
        """Return what has come of the unfinished frame, with its length when ``whole``.

        A read-only memoryview; None below 16 bytes (with the length) and for a streamed frame.

        A view that is kept makes the splitter copy the frame when it grows.
        """
        cdef Py_ssize_t filled = self.buffered
        if filled < FIRST:
            return None
        if self.block is None:
            shown = PyMemoryView_FromObject(
                PyBytes_FromStringAndSize(<const char *>self.stash, filled))
            return shown if self.whole else shown[4:]
        return self.view[self.start + self.skipped():self.end].toreadonly()

    @property
    def partial_size(self):
        """Return the stated size of the unfinished frame, with its length.

        0 before its length has come, and for a streamed frame.
        """
        cdef Py_ssize_t filled = self.buffered
        return 0 if filled < 4 else filled + self.lacking()

    @property
    def streaming(self):
        """Return the bytes still to come of the streamed frame; 0: items are whole frames."""
        return self.coming

    def stream_partial(self):
        """Hand out what has come of the unfinished frame, and from now on its bytes as they come.

        Returns what ``partial`` shows, writable. Raises ProtocolError where ``partial`` is None.
        """
        cdef Py_ssize_t filled = self.buffered, start = self.start
        cdef Block copy
        if self.failed is not None:
            raise FrameError(*self.failed, [])
        if filled < FIRST:
            raise ProtocolError(
                f"a frame can be streamed when {FIRST} bytes of it have come, not {filled}")
        coming = self.lacking()
        if self.block is None:
            copy = Block(filled, True)
            memcpy(copy.memory, self.stash, filled)
            piece = PyMemoryView_FromObject(copy)[self.skipped():]
            self.stashed = 0
        else:
            piece = self.view[start + self.skipped():self.end]
            self.start = self.end
        self.coming = coming
        self.begun = 0
        self.settle()
        return piece

    cdef Py_ssize_t skipped(self):
        """Return how much of a frame's start is not handed out."""
        return 0 if self.whole else 4

    cdef int64_t stated(self, const uint8_t *data):
        cdef uint32_t v
        memcpy(&v, data, 4)
        return <int32_t>bswap32(v)

    cdef object refusal(self, const uint8_t *data, Py_ssize_t size, list frames):
        cdef int64_t stated = self.stated(data)
        first = PyBytes_FromStringAndSize(<const char *>data, min(size, 16))
        peer = guessed(data, size)
        if peer is not None:
            what = f"expected Kafka's protocol, but the stream starts with {first!r} ({peer})"
        elif stated < 0:
            what = f"frame length {stated} is negative"
        else:
            what = f"frame length {stated} is above the limit of {self.limit} bytes"
        self.failed = (what, stated, self.limit, first, peer)
        self.block = self.view = None
        self.start = self.end = self.stashed = 0
        self.begun = 0
        return FrameError(*self.failed, frames)

    cdef Py_ssize_t carve(self, object view, const uint8_t *data, Py_ssize_t at, Py_ssize_t end,
            list frames) except -1:
        """Append the frames of data[at:end], which ``view`` shows, as slices of it: first what
        belongs to the streamed one, then whole ones. Returns where the unfinished one starts.
        """
        cdef int64_t stated, allowed = max(<int64_t>self.limit, self.begun)
        cdef Py_ssize_t size
        if self.coming and at < end:
            size = min(self.coming, <int64_t>(end - at))
            frames.append(view[at:at + size])
            at += size
            self.coming -= size
        while end - at >= 4:
            stated = self.stated(data + at)
            if stated < 0 or stated > allowed:
                raise self.refusal(data + at, end - at, frames)
            if stated > end - at - 4:
                self.begun = stated
                return at
            frames.append(view[at if self.whole else at + 4:at + 4 + stated])
            at += 4 + stated
            self.last = 4 + stated
            allowed = self.limit
        self.begun = 0
        return at

    cdef int make_space(self, Py_ssize_t wanted) except -1:
        """Provide a block with ``wanted`` bytes after the unfinished ones, which move to its start.
        """
        cdef Block fresh
        cdef Py_ssize_t filled = self.end - self.start if self.stashed == 0 else self.stashed
        if self.block is not None and self.block.size > BLOCK:
            if self.grow(filled, filled + wanted):
                return 0
        fresh = Block(filled + wanted)
        if self.stashed:
            memcpy(fresh.memory, self.stash, self.stashed)
            self.stashed = 0
        elif filled:
            memcpy(fresh.memory, self.block.memory + self.start, filled)
        self.block = fresh
        self.view = PyMemoryView_FromObject(fresh)
        self.start = 0
        self.end = filled
        return 0

    cdef bint grow(self, Py_ssize_t filled, Py_ssize_t size) except -1:
        """Enlarge a large block without a copy, so that the frame is not held twice. False: slices
        of it are held elsewhere, a kept block is large enough, or the system cannot.
        """
        cdef bint grown = False
        if large_for(size) >= 0:
            return False
        self.view = None  # refers to the block
        if Py_REFCNT(<PyObject *>self.block) == 1:
            if self.start:
                memmove(self.block.memory, self.block.memory + self.start, filled)
                self.start = 0
                self.end = filled
            grown = self.block.grow(size)
        self.view = PyMemoryView_FromObject(self.block)
        return grown

    cdef int settle(self) except -1:
        """Put a small rest into the stash after a read, so that a waiting connection holds no
        block.

        A block with pieces of a streamed frame stays while it has room for more of them: each piece
        holds all of it.
        """
        cdef Py_ssize_t filled = self.end - self.start
        if filled <= STASH and self.block is not None:
            if self.coming and self.start:
                if self.block.size - self.end >= min(ENOUGH, self.block.size >> 2):
                    return 0
            if filled:
                memcpy(self.stash, self.block.memory + self.start, filled)
            self.stashed = filled
            self.block = self.view = None
            self.start = self.end = 0
        return 0

    cdef int64_t lacking(self):
        """Return the bytes that the unfinished frame, or its length, still lacks.
        """
        cdef const uint8_t *data = self.stash
        cdef Py_ssize_t filled = self.stashed
        if self.block is not None:
            data = self.block.memory + self.start
            filled = self.end - self.start
        # at least one: a caller that still writes to its buffer may change the stated length
        return 4 - filled if filled < 4 else max(self.stated(data) + 4 - filled, <int64_t>1)

    cdef int reserve(self) except -1:
        """Reserve space after the unfinished frame: for what it lacks, or as much of it as the
        bytes that have come allow.
        """
        cdef int64_t wanted = self.lacking()
        cdef int64_t filled = self.buffered
        cdef int64_t free, ahead
        if filled + wanted > ALWAYS_TRUSTED:
            ahead = trusted()
            # a kept block costs nothing, unless memory is short
            if filled + wanted > ahead and (ahead < TRUST or large_for(filled + wanted) < 0):
                wanted = min(wanted, max(ahead - filled, filled))
                if ahead < TRUST:  # memory is short: a frame grows by steps instead of doubling
                    wanted = min(wanted, max(ahead, min(filled // 8, <int64_t>TRUST)))
                if ahead == ALWAYS_TRUSTED and filled > ALWAYS_TRUSTED:
                    wanted = min(wanted, SHORT_STEP)
        if self.block is None:
            self.make_space(wanted)
            return 0
        free = self.block.size - self.end
        if free < min(wanted, ENOUGH) or (self.start > 0 and free < wanted):
            self.make_space(wanted)
        return 0

    cdef int carve_block(self, list frames) except -1:
        """Append the whole frames of the block; those of a small read are cut from a copy."""
        cdef Block copy
        cdef Py_ssize_t size = self.end
        if self.start > 0 or not self.is_copied(size):
            self.start = self.carve(self.view, self.block.memory, self.start, size, frames)
        else:
            copy = Block(size, True)
            memcpy(copy.memory, self.block.memory, size)
            self.start = self.carve(PyMemoryView_FromObject(copy), copy.memory, 0, size, frames)
            if self.start == size:
                self.start = self.end = 0  # nothing refers to the block: read there again
                if self.spare is not None and self.spare.block is None:
                    self.block.count(False)
                    self.spare.block = self.block
                    self.spare.view = self.view
                    self.block = self.view = None
        return 0

    cdef bint offer(self) except -1:
        """Offer the spare block, after a copy of the stash; return whether it is large enough for
        the unfinished frame.
        """
        cdef SpareBlock spare = self.spare
        cdef Py_ssize_t wanted = SHORT_READ if spare.is_short else kind_size()
        if self.stashed and self.stashed + self.lacking() > wanted:
            return False
        if spare.block is None or spare.block.size != wanted:
            spare.view = None
            spare.block = Block(wanted, spare.is_short)
            spare.block.count(False)
            spare.view = PyMemoryView_FromObject(spare.block)
        memcpy(spare.block.memory, self.stash, self.stashed)
        self.offered = True
        return True

    cdef uint8_t *room(self, Py_ssize_t *size) except NULL:
        """Return where the next bytes go, and how many fit; for callers without memoryviews.

        Of a stream of equal frames so many fit that a read ends with a frame: the rest of one that
        is cut would be copied to the next block.
        """
        cdef SpareBlock spare = self.spare
        cdef uint8_t *at
        if self.failed is not None:
            raise FrameError(*self.failed, [])
        if spare is not None and self.block is None and self.last > BLOCK \
                and not self.stashed and trusted() == TRUST and large_for(self.last) >= 0:
            self.make_space(self.last)  # as the frame before: a kept block costs nothing
        elif spare is not None and self.block is None and self.offer():
            at = spare.block.memory + self.stashed
            size[0] = self.even(self.few(spare.block.size - self.stashed))
            return at
        self.offered = False
        self.reserve()
        size[0] = self.block.size - self.end
        if spare is not None and spare.is_short:
            size[0] = min(size[0], <Py_ssize_t>SHORT_READ)
        size[0] = self.even(self.few(size[0]))
        return self.block.memory + self.end

    cdef Py_ssize_t few(self, Py_ssize_t free):
        """Return as much of ``free`` as brings few frames of the size of the last one, or the rest
        of the unfinished one: the cycle collector looks at each that is not taken at once.
        """
        cdef int64_t few = max(FEW_BYTES, FEW_FRAMES * min(self.last, <Py_ssize_t>BLOCK))
        if few < free:
            few = max(few, self.coming or self.lacking())
        return <Py_ssize_t>min(<int64_t>free, few)

    cdef bint is_scarce(self) noexcept:
        """Return whether memory is short, or reads are to be (``SpareBlock.shorten``)."""
        return trusted() < TRUST or self.spare is not None and self.spare.is_short

    cdef void forget_room(self) noexcept:
        """Hold no block that nothing came into."""
        if self.block is not None and not self.end:
            self.block = self.view = None

    cdef Py_ssize_t even(self, Py_ssize_t free):
        """Return as much of ``free`` as ends with a frame of the size of the last one; all of it
        where memory is short.
        """
        cdef int64_t rest = 0
        if self.last < EVEN_FROM or self.coming or self.last > free or trusted() < TRUST:
            return free
        if self.stashed or self.end > self.start:
            if self.buffered < 4:
                return free
            rest = self.lacking()
        if rest >= free:
            return free
        return <Py_ssize_t>(rest + (free - rest) // self.last * self.last)

    cdef int take_offered(self) except -1:
        """Own the block that was offered: bytes have come."""
        self.offered = False
        if self.block is not None or self.spare.block is None:
            return 0  # not what get_buffer gave: buffer_updated refuses it
        self.block = self.spare.block
        self.block.count(True)
        self.view = self.spare.view
        self.spare.block = self.spare.view = None
        self.start = 0
        self.end = self.stashed
        self.stashed = 0
        return 0

    cdef bint is_copied(self, Py_ssize_t size):
        """Return whether the first ``size`` bytes of the block are few, and something of them goes
        out.
        """
        if size > SMALL or size > self.block.size >> 3:
            return False
        if self.coming:
            return size > 0
        return size >= 4 and self.stated(self.block.memory) <= size - 4

    def clear(self):
        """Release the memory of the unfinished frame. Nothing may be read after that."""
        self.block = self.view = None
        self.start = self.end = self.stashed = 0
        self.begun = self.coming = 0
        self.offered = False

    def get_buffer(self, Py_ssize_t size_hint=-1):
        """Return the buffer for the next bytes: a writable memoryview, never empty."""
        if self.failed is not None:
            return PyMemoryView_FromObject(Block(1))  # of no use
        if self.spare is not None and self.block is None and self.offer():
            return self.spare.view[self.stashed:][:self.few(self.spare.block.size)]
        self.offered = False
        self.reserve()
        if self.spare is not None and self.spare.is_short:
            return self.view[self.end:self.end + SHORT_READ]
        return self.view[self.end:]

    cpdef list buffer_updated(self, Py_ssize_t count):
        """Take ``count`` bytes read into ``get_buffer``'s memory; return the frames that are whole
        now.
        """
        cdef list frames = []
        if self.failed is not None:
            raise FrameError(*self.failed, frames)
        if self.offered and count > 0:
            self.take_offered()
        if self.block is None or count < 0 or count > self.block.size - self.end:
            raise ProtocolError(f"{count} bytes do not fit what get_buffer gave")
        self.end += count
        self.carve_block(frames)
        self.settle()
        return frames

    def feed(self, data):
        """Take bytes that were read elsewhere; return the frames that are whole now.

        ``data`` must not change afterwards.
        """
        cdef list frames = []
        cdef Py_buffer source
        cdef const uint8_t *bytes_
        cdef Py_ssize_t at = 0, piece
        if self.failed is not None:
            raise FrameError(*self.failed, frames)
        self.offered = False
        take_buffer(data, &source)
        bytes_ = <const uint8_t *>source.buf
        try:
            if self.coming and self.block is not None:
                self.block = self.view = None  # all of it was handed out
                self.start = self.end = 0
            while at < source.len:
                if self.stashed == 0 and self.block is None:
                    view = PyMemoryView_FromObject(data)
                    if view.format != "B" or view.ndim != 1:
                        view = view.cast("B")
                    at = self.carve(view, bytes_, at, source.len, frames)
                if at == source.len:
                    break
                self.reserve()
                piece = min(<int64_t>min(source.len - at, self.block.size - self.end),
                        self.lacking())
                memcpy(self.block.memory + self.end, bytes_ + at, piece)
                self.end += piece
                at += piece
                self.start = self.carve(self.view, self.block.memory, self.start, self.end, frames)
                if self.start == self.end:  # it is whole: on with slices of the data
                    self.block = self.view = None
                    self.start = self.end = 0
            self.settle()
        finally:
            PyBuffer_Release(&source)
        return frames
