"""The answer to a Fetch, cut up while it comes: each partition's records in memory of their own.

The layout of an answer is that of ``protocol.walkers.fetch_layout``, after int32 correlation_id and
tagged fields where flexible (12).

An answer may have 50 MiB and more. Nobody waits for its end, and it is never whole in memory: who
reads a partition finds it in the processor's cache, and the memory is used again when it is let go.
What a length states is bought as FrameSplitter buys it: a little ahead of what has come.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from batchval.protocol.cursor cimport (
    COUNT_TOO_LARGE, CUT, LENGTH_NEGATIVE, Cursor, bswap32, fail, open_cursor, position, skip,
    skip_tags, take,
)
from batchval.protocol.frames cimport TRUST, Block, FrameSplitter, large_for
from batchval.protocol.primitives cimport explained
from batchval.protocol.walkers.fetch_layout cimport (
    FetchedHead, FetchedPartition, FetchedTopic, read_fetch_head, read_fetch_partition,
    read_fetch_records_size, read_fetch_topic, skip_fetch_aborted,
)

from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.fetch import PartitionData
from batchval.protocol.primitives import Reader

cdef enum:
    FIRST = 4  # versions
    LAST = 12
    FLEXIBLE = 12
    SMALL = 64 << 10  # an answer of no more is read whole
    SPARE = 4 << 10  # of the next partition, so that its length is known without another read
    # blocks have so many bytes, or a multiple: the next partition fits where the last was
    STEP = 64 << 10

cdef enum:  # what comes next
    HEAD
    TOPIC
    PARTITION
    TOPIC_END
    ANSWER_END
    NOTHING


@cython.final
cdef class FetchPieces:
    """One answer of this version (4 to 12). ``on_partition(topic, data, ended)`` is called for each
    partition when it is whole; ``ended``: nothing of the answer is still to come.

    ``data`` is a PartitionData whose records are a slice of memory that this partition alone has,
    or of the answer where that came whole. ``throttle_time_ms`` and ``error_code`` are the
    answer's, when it has come.
    """

    def __init__(self, int api_version, on_partition):
        if not FIRST <= api_version <= LAST:
            raise ProtocolError(f"Fetch version is {api_version}: expected {FIRST} to {LAST}")
        self.api_version = api_version
        self.on_partition = on_partition
        self.throttle_time_ms = self.error_code = 0
        self.topic = ""
        self.step = HEAD
        self.topics = self.partitions = 0
        self.wanted = 0
        self.has_piece = False

    def read(self, frame):
        """Read a whole frame (without its length), or what a FetchSplitter returns in its place.

        Raises ProtocolError.
        """
        cdef object view
        if self.step != NOTHING:
            view = PyMemoryView_FromObject(frame).cast("B")
            self.cut(view, <const uint8_t *>PyMemoryView_GET_BUFFER(view).buf, 0, len(view), True)
        return self

    cdef Py_ssize_t cut(self, object view, const uint8_t *data, Py_ssize_t at, Py_ssize_t end,
            bint whole) except -1:
        """Take what is whole of data[at:end], which the view shows. Where it stands afterwards.

        ``whole``: the answer ends there. If not, ``wanted`` is how much the next piece needs at
        least.
        """
        cdef Cursor c
        cdef FetchedHead head
        cdef FetchedTopic topic
        while self.step != NOTHING:
            open_cursor(&c, data + at, end - at, self.api_version >= FLEXIBLE)
            self.wanted = end - at + 1
            if self.step == HEAD:
                skip(&c, 4)
                skip_tags(&c)
                read_fetch_head(&c, self.api_version, -1, &head)
            elif self.step == TOPIC:
                read_fetch_topic(&c, self.api_version, -1, &topic)
            elif self.step == PARTITION:
                self.partition_end(&c)
            else:
                skip_tags(&c)
            if c.wrong:
                if not whole and (c.wrong == CUT or c.wrong == COUNT_TOO_LARGE):
                    return at
                raise explained(&c)
            if self.step == HEAD:
                self.throttle_time_ms = head.throttle_time_ms
                self.error_code = head.error_code
                self.topics = head.responses
                self.step = TOPIC if self.topics else ANSWER_END
            elif self.step == TOPIC:
                self.topic = PyUnicode_DecodeUTF8(
                    <const char *>topic.topic, topic.topic_size, "replace")
                self.partitions = topic.partitions
                self.step = PARTITION if self.partitions else TOPIC_END
            elif self.step == PARTITION:
                self.hand_on(view[at:at + position(&c)], whole)
                self.partitions -= 1
                if not self.partitions:
                    self.step = TOPIC_END
            elif self.step == TOPIC_END:
                self.topics -= 1
                self.step = TOPIC if self.topics else ANSWER_END
            else:
                self.step = NOTHING
            at += position(&c)
        self.wanted = 1
        return end  # bytes after the answer's end are ignored (Response.decode)

    cdef void partition_end(self, Cursor *c) noexcept:
        """Step over a partition. Where its records are cut, it is known how much is wanted."""
        cdef FetchedPartition partition
        cdef int64_t length, _i
        read_fetch_partition(c, self.api_version, -1, &partition)
        for _i in range(partition.aborted_transactions):
            skip_fetch_aborted(c, self.api_version)
            if c.wrong:
                return
        length = read_fetch_records_size(c, self.api_version)
        if c.wrong:
            return
        if length < -1:
            fail(c, LENGTH_NEGATIVE)
        elif length > c.end - c.at:
            self.wanted = position(c) + length + 1
            fail(c, CUT)
        elif length > 0:
            take(c, length)
        skip_tags(c)

    cdef int hand_on(self, object piece, bint ended) except -1:
        reader = Reader(piece, self.api_version >= FLEXIBLE)
        data = PartitionData.read(reader, self.api_version)
        reader.finish()
        self.has_piece = True
        self.on_partition(self.topic, data, ended)
        return 0


@cython.final
cdef class FetchSplitter:
    """A FrameSplitter, but answers that are expected in pieces are reported as they come.

    In the place of such an answer's frame stands its correlation id alone, when it has come whole.
    ``has_piece``: the last bytes completed a partition. ``max_frame_bytes`` as of FrameSplitter,
    which reads everything else. ProtocolError from ``buffer_updated`` for an answer that cannot be
    read, and again at every later call.
    """

    def __cinit__(self, Py_ssize_t max_frame_bytes):
        self.plain = FrameSplitter(max_frame_bytes)
        self.expected = {}
        self.failed = self.has_piece = False
        self.leave()

    def expect(self, int32_t correlation_id, FetchPieces pieces not None):
        """Report the answer to this request in pieces, as it comes."""
        self.expected[correlation_id] = pieces

    def get_buffer(self, Py_ssize_t size_hint=-1):
        """Return the buffer for the next bytes: a writable memoryview, never empty."""
        if self.failed:
            return PyMemoryView_FromObject(Block(STEP))  # further reads go nowhere
        if self.pieces is None:
            return self.plain.get_buffer(size_hint)
        return self.view[self.end:self.end + self.read_size()]

    def buffer_updated(self, Py_ssize_t count):
        """Take ``count`` bytes read into ``get_buffer``'s memory; return frames that are whole."""
        cdef list frames = []
        self.has_piece = False
        if self.failed:
            raise ProtocolError("an answer before this could not be read")
        try:
            if self.pieces is not None:
                if not 0 <= count <= self.read_size():
                    raise ProtocolError(f"{count} bytes do not fit what get_buffer gave")
                self.end += count
                self.coming -= count
                return self.go_on()
            frames = self.plain.buffer_updated(count)
            if self.expected:
                for frame in frames:
                    if len(frame) >= 4:
                        self.expected.pop(int.from_bytes(frame[:4], "big", signed=True), None)
                self.begin()
        except Exception as error:
            self.failed = True
            self.leave()
            if frames:
                error.frames = frames
            raise
        return frames

    cdef int begin(self) except -1:
        """Look whether what is unfinished is such an answer, and take it over."""
        cdef FrameSplitter plain = self.plain
        cdef const uint8_t *data = plain.stash
        cdef Py_ssize_t filled = plain.stashed
        cdef uint32_t correlation_id
        cdef int64_t stated
        if plain.block is not None:
            data = plain.block.memory + plain.start
            filled = plain.end - plain.start
        if filled < 8:
            return 0
        stated = plain.stated(data)
        memcpy(&correlation_id, data + 4, 4)
        if stated <= SMALL or <int32_t>bswap32(correlation_id) not in self.expected:
            return 0
        self.pieces = self.expected.pop(<int32_t>bswap32(correlation_id))
        self.head = PyBytes_FromStringAndSize(<const char *>data + 4, 4)
        self.at = 0
        self.end = filled - 4
        self.coming = stated - self.end
        self.block = Block(self.end + STEP)
        self.view = PyMemoryView_FromObject(self.block)
        memcpy(self.block.memory, data + 4, self.end)
        plain.block = plain.view = None
        plain.start = plain.end = plain.stashed = 0
        self.go_on()
        return 0

    cdef int64_t read_size(self):
        """Return the next piece's size and a little more: what comes after it has to be moved."""
        return min(self.coming, min(self.block.size,
                self.at + self.pieces.wanted + SPARE) - self.end)

    cdef list go_on(self):
        """Cut off what is whole."""
        self.pieces.has_piece = False
        self.at = self.pieces.cut(self.view, self.block.memory, self.at, self.end, self.coming == 0)
        self.has_piece = self.pieces.has_piece
        if self.coming:
            self.make_space()
            return []
        frame = PyMemoryView_FromObject(self.head)
        self.leave()
        return [frame]

    cdef int make_space(self) except -1:
        """Make space for the next piece, as far as the bytes that have come allow; never none."""
        cdef int64_t held = self.end - self.at
        cdef int64_t wanted = min(<int64_t>self.pieces.wanted, held + self.coming)
        cdef int64_t spare = min(<int64_t>SPARE, held + self.coming - wanted)
        cdef Block block
        # what is at hand is not bought
        if wanted + spare > TRUST and large_for(wanted + spare) < 0:
            wanted = min(wanted, max(<int64_t>TRUST, 2 * held))
            spare = 0
        if self.at + wanted <= self.block.size and self.end < self.block.size:
            return 0
        block = Block((wanted + spare + STEP - 1) // STEP * STEP)
        memcpy(block.memory, self.block.memory + self.at, held)
        self.block = block
        self.view = PyMemoryView_FromObject(block)
        self.at = 0
        self.end = held
        return 0

    cdef int leave(self) except -1:
        self.pieces = None
        self.block = self.view = self.head = None
        self.at = self.end = self.coming = 0
        return 0
