"""Frames from a stream: int32 length (big-endian), then so many bytes.

Bytes come in as they come, one at a time or a hundred frames at once; frames go out as memoryviews that keep their
memory alive: nothing is recycled while a slice of it is held. A length is judged when its four bytes are there, before
a byte of the frame is stored, and buys at most ``TRUST`` bytes ahead of those that have come; a frame larger than that
grows by doubling, so no byte is copied more than twice.

Two ways in: ``get_buffer`` and ``buffer_updated``, as asyncio.BufferedProtocol has them (no copy), and ``feed``, which
takes bytes that somebody else has read (whole frames in them are slices of them).
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo, PyBuffer_Release
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from batchval.protocol.cursor cimport bswap32
from batchval.protocol.primitives cimport take_buffer

from batchval.protocol.errors import ProtocolError

# Kafka's socket.request.max.bytes
MAX_FRAME_BYTES = 100 << 20

cdef enum:
    BLOCK = 256 << 10         # what is read into at a time
    ENOUGH = 16 << 10         # less room than this in a block is not worth a read
    SMALL = 32 << 10          # a read of no more than this is copied out, so that small frames pin no whole block
    KEPT = 32                 # blocks kept for whoever reads next: 8 MiB
    LARGE_KEPT = 8            # and larger ones, 64 MiB in all: fresh memory costs a fault a page
    MOST_LARGE = 64 << 20
    LARGEST_KEPT = 16 << 20

cdef uint8_t *kept[KEPT]
cdef int kept_count = 0
cdef uint8_t *large[LARGE_KEPT]
cdef Py_ssize_t large_sizes[LARGE_KEPT]
cdef Py_ssize_t large_total = 0
cdef int large_count = 0
cdef bint poisoning = False


def poison_released(bint on):
    """For tests: released memory is overwritten, so that whoever reads it late is found out. Gives what was set."""
    global poisoning
    before = poisoning
    poisoning = on
    return bool(before)


class FrameError(ProtocolError):
    """A length that no frame has, which ends the stream.

    ``stated`` is the length, ``limit`` the largest allowed, ``first_bytes`` what was there (16 at most), ``peer`` what
    it looks like ("HTTP", "TLS") or None, ``frames`` the whole frames that came before it in the same read.
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
    """Whose first bytes these are, if not Kafka's."""
    cdef bytes first = data[:min(size, 4)]
    if first.startswith((b"GET ", b"POST", b"PUT ", b"HEAD", b"HTTP", b"DELE", b"OPTI", b"CONN", b"PATC", b"PRI ")):
        return "HTTP"
    if size >= 3 and data[0] == 0x16 and data[1] == 3 and data[2] <= 4:
        return "TLS"
    return None


cdef int large_for(int64_t size) noexcept:
    """The smallest large block at hand that holds as much; -1: none does."""
    cdef int i, best = -1
    for i in range(large_count):
        if large_sizes[i] >= size and (best < 0 or large_sizes[i] < large_sizes[best]):
            best = i
    return best


cdef uint8_t *take_large(int i, Py_ssize_t *size) noexcept:
    global large_count, large_total
    cdef uint8_t *memory = large[i]
    size[0] = large_sizes[i]
    large_total -= size[0]
    large_count -= 1
    large[i] = large[large_count]
    large_sizes[i] = large_sizes[large_count]
    return memory


cdef bint keep_large(uint8_t *memory, Py_ssize_t size) noexcept:
    """Of more than can be kept the larger ones stay: they serve whatever the smaller ones would."""
    global large_count, large_total
    cdef Py_ssize_t freed
    cdef int i, smallest
    if size > LARGEST_KEPT:
        return False
    while large_count == LARGE_KEPT or large_total + size > MOST_LARGE:
        smallest = 0
        for i in range(1, large_count):
            if large_sizes[i] < large_sizes[smallest]:
                smallest = i
        if large_sizes[smallest] >= size:
            return False
        free(take_large(smallest, &freed))
    large[large_count] = memory
    large_sizes[large_count] = size
    large_total += size
    large_count += 1
    return True


@cython.final
cdef class Block:
    """Memory of its own, freed (or kept for the next) when the last slice of it is gone."""

    def __cinit__(self, Py_ssize_t size, bint exact=False):
        global kept_count
        cdef int i
        self.pooled = size <= BLOCK and not exact
        self.large = size > BLOCK and not exact
        self.size = BLOCK if self.pooled else size
        i = large_for(size) if self.large else -1
        if i >= 0:
            self.memory = take_large(i, &self.size)
        elif self.pooled and kept_count:
            kept_count -= 1
            self.memory = kept[kept_count]
        else:
            self.memory = <uint8_t *>malloc(self.size)
        if self.memory is NULL:
            raise MemoryError()

    def __dealloc__(self):
        global kept_count
        if self.memory is NULL:
            return
        if poisoning:
            memset(self.memory, 0xdb, self.size)
        if self.pooled and kept_count < KEPT:
            kept[kept_count] = self.memory
            kept_count += 1
        elif not (self.large and keep_large(self.memory, self.size)):
            free(self.memory)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.memory, self.size, False, flags)


@cython.final
cdef class FrameSplitter:
    """Cuts one direction of one connection into frames.

    ``max_frame_bytes``  the largest frame, without its length (Kafka's socket.request.max.bytes: 100 MiB)
    ``whole``            frames start with their four bytes of length, to be forwarded as they are

    A bad length raises FrameError from ``feed`` and ``buffer_updated``, and again at every later call: the stream
    cannot be read on.
    """

    def __cinit__(self, Py_ssize_t max_frame_bytes=MAX_FRAME_BYTES, *, bint whole=False):
        if not 0 < max_frame_bytes <= 0x7fffffff:
            raise ProtocolError(f"max_frame_bytes must be 1 to {0x7fffffff}, not {max_frame_bytes}")
        self.max_frame_bytes = max_frame_bytes
        self.whole = whole
        self.block = None
        self.view = None
        self.start = self.end = self.stashed = 0
        self.failed = None

    @property
    def buffered(self):
        """Bytes of an unfinished frame that are held, its length included."""
        return self.stashed + self.end - self.start

    @property
    def held_bytes(self):
        """Memory held for the unfinished frame, this object aside."""
        return 0 if self.block is None else self.block.size

    cdef int64_t stated(self, const uint8_t *data):
        cdef uint32_t v
        memcpy(&v, data, 4)
        return <int32_t>bswap32(v)

    cdef object refusal(self, const uint8_t *data, Py_ssize_t size, list frames):
        cdef int64_t stated = self.stated(data)
        first = PyBytes_FromStringAndSize(<const char *>data, min(size, 16))
        peer = guessed(data, size)
        if peer is not None:
            what = f"{peer} was spoken where Kafka is: the stream starts with {first!r}"
        elif stated < 0:
            what = f"a frame of {stated} bytes was stated"
        else:
            what = f"a frame of {stated} bytes was stated, above the limit of {self.max_frame_bytes}"
        self.failed = (what, stated, self.max_frame_bytes, first, peer)
        self.block = self.view = None
        self.start = self.end = self.stashed = 0
        return FrameError(*self.failed, frames)

    cdef Py_ssize_t carve(self, object view, const uint8_t *data, Py_ssize_t at, Py_ssize_t end, list frames) except -1:
        """Appends the whole frames of data[at:end] as slices of the view; gives where the unfinished one starts."""
        cdef int64_t stated
        while end - at >= 4:
            stated = self.stated(data + at)
            if stated < 0 or stated > self.max_frame_bytes:
                raise self.refusal(data + at, end - at, frames)
            if stated > end - at - 4:
                break
            frames.append(view[at if self.whole else at + 4:at + 4 + stated])
            at += 4 + stated
        return at

    cdef int make_room(self, Py_ssize_t wanted) except -1:
        """A block with room for ``wanted`` bytes behind what is unfinished, which moves there."""
        cdef Block fresh
        cdef Py_ssize_t filled = self.end - self.start if self.stashed == 0 else self.stashed
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

    cdef int settle(self) except -1:
        """After a read: a small rest goes into the stash, so that a connection that waits holds no block."""
        cdef Py_ssize_t filled = self.end - self.start
        if filled <= STASH and self.block is not None:
            if filled:
                memcpy(self.stash, self.block.memory + self.start, filled)
            self.stashed = filled
            self.block = self.view = None
            self.start = self.end = 0
        return 0

    cdef int64_t lacking(self):
        """Bytes that the unfinished frame still lacks; of its length, as long as that is not whole."""
        cdef const uint8_t *data = self.stash
        cdef Py_ssize_t filled = self.stashed
        if self.block is not None:
            data = self.block.memory + self.start
            filled = self.end - self.start
        # at least one: a caller that still writes to its buffer may change the stated length
        return 4 - filled if filled < 4 else max(self.stated(data) + 4 - filled, <int64_t>1)

    cdef int reserve(self) except -1:
        """Room behind what is unfinished: for what it lacks, or as much of that as has been earned."""
        cdef int64_t wanted = self.lacking()
        cdef int64_t filled = self.buffered
        cdef int64_t room
        if filled + wanted > TRUST and large_for(filled + wanted) < 0:  # what is at hand is not bought
            wanted = min(wanted, max(TRUST - filled, filled))
        if self.block is None:
            self.make_room(wanted)
            return 0
        room = self.block.size - self.end
        if room < min(wanted, ENOUGH) or (self.start > 0 and room < wanted):
            self.make_room(wanted)
        return 0

    cdef int carve_block(self, list frames) except -1:
        """The whole frames of the block; those of a small read are cut from a copy."""
        cdef Block copy
        cdef Py_ssize_t size = self.end
        if self.start > 0 or size > SMALL or size < 4 or self.stated(self.block.memory) > size - 4:
            self.start = self.carve(self.view, self.block.memory, self.start, size, frames)
        else:
            copy = Block(size, True)
            memcpy(copy.memory, self.block.memory, size)
            self.start = self.carve(PyMemoryView_FromObject(copy), copy.memory, 0, size, frames)
        return 0

    def get_buffer(self, Py_ssize_t size_hint=-1):
        """Where the next bytes go: a writable memoryview, never empty."""
        if self.failed is not None:
            return PyMemoryView_FromObject(Block(BLOCK))  # whoever reads on reads into the void
        self.reserve()
        return self.view[self.end:]

    def buffer_updated(self, Py_ssize_t count):
        """``count`` bytes were read into ``get_buffer``'s: the frames that are whole now."""
        cdef list frames = []
        if self.failed is not None:
            raise FrameError(*self.failed, frames)
        if self.block is None or count < 0 or count > self.block.size - self.end:
            raise ProtocolError(f"{count} bytes do not fit what get_buffer gave")
        self.end += count
        self.carve_block(frames)
        self.settle()
        return frames

    def feed(self, data):
        """Bytes that were read elsewhere: the frames that are whole now. ``data`` must not change afterwards."""
        cdef list frames = []
        cdef Py_buffer source
        cdef const uint8_t *bytes_
        cdef Py_ssize_t at = 0, piece
        if self.failed is not None:
            raise FrameError(*self.failed, frames)
        take_buffer(data, &source)
        bytes_ = <const uint8_t *>source.buf
        try:
            while at < source.len:
                if self.stashed == 0 and self.block is None:
                    view = PyMemoryView_FromObject(data)
                    if view.format != "B" or view.ndim != 1:
                        view = view.cast("B")
                    at = self.carve(view, bytes_, at, source.len, frames)
                if at == source.len:
                    break
                self.reserve()
                piece = min(<int64_t>min(source.len - at, self.block.size - self.end), self.lacking())
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
