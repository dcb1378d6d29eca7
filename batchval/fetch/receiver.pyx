"""Receiver: the partitions that one connection asks for. It knows bytes alone, never a socket."""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from batchval.core.stages.arguments cimport take_buffer
from batchval.core.codecs.scratch cimport Scratch, borrow, give_back
from batchval.fetch.receive cimport (
    COUNT_HEADERS, COUNT_RECORDS, FIRST_VERSION, FREE, GIVE_BLOCKS, LAST_VERSION,
    MAX_WAITING_BLOCKS,
    PAUSED, READ, RETURNED, SPARE, WANTED, Share, Stream, Topic, added, drop_blocks, fence, seen,
    stream_fed, stream_space, take_list, take_some,
)
from batchval.fetch.receive_memory cimport Block, release_block, view_of
from batchval.fetch.receive_request cimport stream_request
from batchval.fetch.turn_lock cimport close_turns, give_turn, open_turns, take_turn

from collections import namedtuple

from batchval.errors import BatchvalError

cdef enum:
    MAX_TOPIC_BYTES = 249  # Kafka's limit

cdef dict MODES = {"headers": COUNT_HEADERS, "records": COUNT_RECORDS, "blocks": GIVE_BLOCKS}

Counted = namedtuple("Counted", (
    *("records", "bytes", "batches", "wire_bytes", "requests", "answers"),
    *("latency_ns", "latency_ns_max", "lag", "last_ns"),
))
Counted.__doc__ = """What came since it was asked for last.

``bytes`` are those of keys and values; where headers are believed, those of whole batches, as
``wire_bytes`` are. ``lag`` is the most records between a position and the high watermark, below 0
where nothing came. ``last_ns`` is when the last records came (time.monotonic_ns); it is 0, as
latencies are, where no loop reads.
"""


@cython.final
cdef class Quota:
    """The records that may still be counted, by all receivers that share it, in any threads."""

    def __cinit__(self, int64_t left):
        self.left = left

    @property
    def remaining(self):
        return self.left

    def take(self, int64_t most):
        """Take up to ``most`` of what is left, and return how many."""
        return take_some(&self.left, most)


@cython.final
cdef class Receiver:
    """The partitions that one connection asks for.

    ``version``              of Fetch, 4 to 12
    ``decode``               "headers" counts and believes the headers of batches, "records" counts
                             and reads each record, "blocks" hands the batches over
    ``quota``                records are counted up to it, and nothing is asked for after that
    ``frame_limit``          bytes of the largest answer

    Slots are numbers that ``add`` returns. ``request`` and ``feed`` are for callers that have the
    socket; where a ReceiveLoop has it, its thread does that, and every method waits until the
    thread stands aside.
    """

    def __cinit__(self, int version, *, str decode="headers", client_id=None,
            int max_wait_ms=500, int min_bytes=1, int max_bytes=52428800,
            int partition_max_bytes=1048576, int isolation=0, bint check_crcs=False,
            int frame_limit=104857600, Quota quota=None):
        cdef bytes name = client_id.encode() if client_id is not None else b""
        if not FIRST_VERSION <= version <= LAST_VERSION:
            raise BatchvalError(
                f"version of Fetch is {version}: expected {FIRST_VERSION} to {LAST_VERSION}")
        if decode not in MODES:
            raise BatchvalError(f"decode is {decode!r}: expected headers, records or blocks")
        if len(name) > 0x7fff:
            raise BatchvalError(f"client_id has {len(name)} bytes: expected at most 32767")
        memset(&self.stream, 0, sizeof(Stream))
        self.turns = NULL
        if open_turns(&self.own_turns):
            raise MemoryError()
        self.turns = &self.own_turns
        self.topic_numbers = {}
        self.quota = quota
        self.stream.version = version
        self.stream.mode = MODES[decode]
        self.stream.check_crcs = check_crcs
        self.stream.isolation = isolation
        self.stream.max_wait_ms = max_wait_ms
        self.stream.min_bytes = min_bytes
        self.stream.max_bytes = max_bytes
        self.stream.partition_max_bytes = partition_max_bytes
        self.stream.frame_limit = frame_limit
        self.stream.quota = &quota.left if quota is not None else NULL
        self.stream.client_id_size = len(name) if client_id is not None else -1
        self.stream.client_id = <uint8_t *>malloc(len(name) + 1)
        self.stream.size = READ + SPARE
        self.stream.buffer = <uint8_t *>malloc(self.stream.size)
        self.stream.current = -1
        self.stream.wanted = 8
        self.stream.totals.lag = -1
        if self.stream.client_id is NULL or self.stream.buffer is NULL:
            raise MemoryError()
        memcpy(self.stream.client_id, <const char *>name, len(name))

    def __dealloc__(self):
        cdef int32_t i
        drop_blocks(&self.stream, -1, 0)
        if self.stream.block is not NULL:
            release_block(self.stream.block)
        for i in range(self.stream.topic_count):
            free(self.stream.topics[i].name)
        free(self.stream.topics)
        free(self.stream.shares)
        free(self.stream.order)
        free(self.stream.spare_order)
        free(self.stream.out)
        free(self.stream.client_id)
        free(self.stream.buffer)
        if self.turns is not NULL:
            close_turns(&self.own_turns)

    cdef int begin(self) except -1:
        """Wait until nobody else touches the stream."""
        with nogil:
            take_turn(self.turns)
        return 0

    cdef int begin_alone(self) except -1:
        """Begin an answer for a caller that has the socket."""
        if self.keeper is not None:
            raise RuntimeError("a loop runs this receiver")
        return self.begin()

    cdef Share *share(self, int32_t slot) except NULL:
        if not 0 <= slot < self.stream.share_count or self.stream.shares[slot].state == FREE:
            give_turn(self.turns)
            raise BatchvalError(f"slot {slot} has no partition")
        return &self.stream.shares[slot]

    cdef int32_t topic_number(self, bytes name) except -1:
        cdef Stream *s = &self.stream
        cdef Topic *grown
        if name in self.topic_numbers:
            return self.topic_numbers[name]
        grown = <Topic *>realloc(s.topics, (s.topic_count + 1) * sizeof(Topic))
        if grown is NULL:
            raise MemoryError()
        s.topics = grown
        memset(&grown[s.topic_count], 0, sizeof(Topic))
        grown[s.topic_count].name = <uint8_t *>malloc(len(name) + 1)
        if grown[s.topic_count].name is NULL:
            raise MemoryError()
        memcpy(grown[s.topic_count].name, <const char *>name, len(name))
        grown[s.topic_count].size = len(name)
        self.topic_numbers[name] = s.topic_count
        s.topic_count += 1
        return s.topic_count - 1

    cdef int32_t free_slot(self) except -1:
        """Return a slot that no answer in flight uses."""
        cdef Stream *s = &self.stream
        cdef int32_t slot, space
        cdef void *grown
        if self.freed:
            for slot in range(s.share_count):
                if s.shares[slot].state == FREE and not s.shares[slot].is_asked:
                    self.freed -= 1
                    return slot
        slot = s.share_count
        space = slot + 1
        grown = realloc(s.shares, space * sizeof(Share))
        if grown is NULL:
            raise MemoryError()
        s.shares = <Share *>grown
        grown = realloc(s.order, space * sizeof(int32_t))
        if grown is NULL:
            raise MemoryError()
        s.order = <int32_t *>grown
        grown = realloc(s.spare_order, space * sizeof(int32_t))
        if grown is NULL:
            raise MemoryError()
        s.spare_order = <int32_t *>grown
        memset(&s.shares[slot], 0, sizeof(Share))
        s.order[slot] = slot
        s.share_count = space
        return slot

    def add(self, str topic, int32_t partition, int64_t position, int32_t leader_epoch=-1,
            int waiting=0):
        """Ask for a partition from the next request on, and return its slot.

        ``waiting``: how many of its blocks the caller has got otherwise, and not used yet.
        """
        cdef bytes name = topic.encode()
        cdef Share *share
        cdef int32_t slot
        if not 0 < len(name) <= MAX_TOPIC_BYTES:
            raise BatchvalError(
                f"topic has {len(name)} bytes: expected 1 to {MAX_TOPIC_BYTES}")
        self.begin()
        try:
            slot = self.free_slot()
            share = &self.stream.shares[slot]
            memset(share, 0, sizeof(Share))
            share.topic = self.topic_number(name)
            share.index = partition
            share.position = position
            share.leader_epoch = leader_epoch
            share.high_watermark = -1
            share.waiting = waiting
            share.state = WANTED
        finally:
            give_turn(self.turns)
        return slot

    def seek(self, int32_t slot, int64_t position, int32_t leader_epoch=-1):
        """Ask from there on; what is under way for the partition, or waits, is not wanted."""
        self.begin()
        share = self.share(slot)
        drop_blocks(&self.stream, slot, position)
        share.waiting = 0
        share.position = position
        share.leader_epoch = leader_epoch
        share.is_stale = share.is_asked
        give_turn(self.turns)

    def pause(self, int32_t slot, bint is_paused):
        """Ask for it no more, or again. What is under way is not counted; a block still comes."""
        self.begin()
        share = self.share(slot)
        if share.state != RETURNED:
            share.state = PAUSED if is_paused else WANTED
            share.is_stale = share.is_asked and self.stream.mode != GIVE_BLOCKS or share.is_stale
        give_turn(self.turns)

    def drop(self, int32_t slot):
        """Free a slot; return the partition's position, before the blocks that were not taken."""
        self.begin()
        share = self.share(slot)
        position = drop_blocks(&self.stream, slot, share.position)
        if share.state == RETURNED:
            self.stream.returned -= 1
        share.state = FREE
        self.freed += 1
        give_turn(self.turns)
        return position

    def returned(self):
        """Free returned slots: [(slot, code, position)]. ``code`` is the broker's, or below -1."""
        cdef int32_t slot
        cdef list found = []
        if not seen(&self.stream.returned):
            return found
        self.begin()
        try:
            for slot in range(self.stream.share_count):
                share = &self.stream.shares[slot]
                if share.state == RETURNED:
                    found.append((slot, share.code, share.position))
                    share.state = FREE
                    self.freed += 1
            self.stream.returned = 0
        finally:
            give_turn(self.turns)
        return found

    def blocks(self):
        """Return the blocks that came since the last call, in the order of each partition: [(slot,
        records, fetch_offset, next_offset, high_watermark)]. Waits for nobody.

        ``records`` is a read-only view that owns its memory, of whole batches. The first may begin
        below ``fetch_offset``.
        """
        cdef Block *block = <Block *>take_list(&self.stream.blocks)
        cdef Block *older
        cdef list found = []
        while block is not NULL:
            older = <Block *>block.next
            found.append((block.slot, view_of(block), block.fetch_offset, block.next_offset,
                    block.high_watermark))
            block = older
        found.reverse()
        return found

    def used(self, int32_t slot):
        """Note that a block was used. True: wake the loop to ask for more. Waits for nobody."""
        if not 0 <= slot < self.stream.share_count:
            raise BatchvalError(f"slot {slot} has no partition")
        if added(&self.stream.shares[slot].waiting, -1) != MAX_WAITING_BLOCKS - 1:
            return False
        fence()
        return not seen(&self.stream.under_way)

    def positions(self):
        """Return [(slot, position, high watermark)]; -1: not known yet."""
        cdef int32_t slot
        cdef list found = []
        self.begin()
        try:
            for slot in range(self.stream.share_count):
                if self.stream.shares[slot].state != FREE:
                    share = &self.stream.shares[slot]
                    found.append((slot, share.position, share.high_watermark))
        finally:
            give_turn(self.turns)
        return found

    def counted(self):
        """Return what came since the last call."""
        cdef Stream *s = &self.stream
        self.begin()
        found = s.totals
        memset(&s.totals, 0, sizeof(s.totals))
        s.totals.lag = -1
        give_turn(self.turns)
        return Counted(found.records, found.bytes, found.batches, found.wire_bytes, found.requests,
            found.answers, found.latency_ns, found.latency_ns_max, found.lag, found.last_ns)

    @property
    def failure(self):
        """Return why reading has stopped; None while it goes on."""
        return None if self.stream.failure is NULL else (<bytes>self.stream.failure).decode()

    @property
    def is_under_way(self):
        """Return whether an answer is awaited."""
        return bool(self.stream.under_way)

    @property
    def throttle_ms(self):
        """Return how long the last answer asks its client to wait, in ms."""
        return self.stream.throttle_ms

    @property
    def held_bytes(self):
        """Return the memory held for answers, in bytes."""
        return self.stream.size + (0 if self.stream.block is NULL else self.stream.block.space)

    def request(self):
        """Return the next request; None where none is needed, or an answer is awaited."""
        cdef size_t size = 0
        self.begin_alone()
        if not self.stream.under_way and self.stream.failure is NULL:
            size = stream_request(&self.stream)
        frame = PyBytes_FromStringAndSize(<const char *>self.stream.out, size) if size else None
        give_turn(self.turns)
        return frame

    def feed(self, data):
        """Take bytes of the answer. True: it is whole, and another request may follow."""
        cdef Py_buffer view
        cdef Scratch *scratch
        cdef Py_ssize_t at = 0
        cdef size_t space = 0
        cdef uint8_t *target
        cdef bint is_whole = False
        self.begin_alone()
        give_turn(self.turns)
        take_buffer(data, &view)
        scratch = borrow()
        with nogil:
            while at < view.len and self.stream.failure is NULL:
                target = stream_space(&self.stream, &space)
                if space > <size_t>(view.len - at):
                    space = view.len - at
                memcpy(target, <const uint8_t *>view.buf + at, space)
                at += space
                is_whole = stream_fed(&self.stream, space, scratch)
        give_back(scratch)
        PyBuffer_Release(&view)
        return bool(is_whole)
