"""Memory of frames: blocks that own themselves, their count, and what is kept of released ones.

    read block  4, 16, 64 or 256 KiB; released ones are kept, at most 32 of a size
    large       above 256 KiB, in whole pages; released ones are kept, 13 MiB in all
    exact       as asked for; never kept

The sizes of new read blocks follow the memory in use and a limit, see ``limit_memory``. Kept memory
is at most 23.6 MiB.

Memory of 256 KiB and more is mapped, so that the system has it back as soon as it is released.
malloc would keep it: the first large block that is freed raises glibc's threshold for mappings, and
the next ones come from a heap that only shrinks at its end. The system takes 90 microseconds for
each MB that it gets back, so a thread of its own gives back 16 MiB and more.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from batchval.protocol.mapped cimport map_memory, remap_memory, unmap_memory

from batchval.protocol.errors import ProtocolError

cdef enum:
    MIN_READ_BLOCK = 4 << 10        # read block; each next kind has four times the size
    PAGE = 4096
    KEPT = 32                 # read blocks of each size: 10.6 MiB
    LARGE_KEPT = 12           # and large blocks, because each page of fresh memory costs a fault
    MAX_LARGE_BYTES = 13 << 20

cdef enum:
    UNLIMITED = 0x7fffffffffffffff

cdef enum:  # kinds of blocks
    READ_4K
    READ_16K
    READ_64K
    READ_256K
    LARGE
    EXACT

cdef uint8_t *kept_read[LARGE][KEPT]
cdef int kept_count[LARGE]
cdef uint8_t *large[LARGE_KEPT]
cdef Py_ssize_t large_sizes[LARGE_KEPT]
cdef Py_ssize_t large_total = 0
cdef int large_count = 0
cdef bint poisoning = False
# changed with the GIL held, as all of this
cdef int64_t in_use = 0
cdef int64_t steps[3]  # bytes in use from which read blocks are smaller
steps[0] = steps[1] = steps[2] = UNLIMITED


def poison_released(bint on):
    """Overwrite released memory, so that tests find late readers. Returns the setting before."""
    global poisoning
    before = poisoning
    poisoning = on
    return bool(before)


cdef bint is_poisoned() noexcept nogil:
    """Return whether released memory is overwritten."""
    return poisoning


cpdef int64_t allocated() noexcept:
    """Return the bytes of all Blocks, CountedBytes and Charges that are alive, without those kept
    for the next reads.

    A large block is counted whole from the start; the system provides its pages as they are filled.
    """
    return in_use


def kept():
    """Return the bytes of released Blocks that are kept for the next ones, at most 24 MiB."""
    cdef int kind
    cdef int64_t total = large_total
    for kind in range(LARGE):
        total += <int64_t>kept_count[kind] * (MIN_READ_BLOCK << 2 * kind)
    return total


def limit_memory(int64_t limit):
    """Make new read blocks smaller as ``allocated()`` nears ``limit`` bytes; 0: no limit.

    A read block has 256 KiB below a quarter of the limit, 64 KiB below a half, 16 KiB below three
    quarters, and 4 KiB above. From a quarter on, a stated length allocates at most four read blocks
    ahead of the bytes that have come. Nothing is refused at the limit itself. Raises ProtocolError
    for a negative limit.
    """
    cdef int n
    if limit < 0:
        raise ProtocolError(f"the limit must be 0 (none) or a number of bytes, not {limit}")
    for n in range(3):
        steps[n] = limit // 4 * (n + 1) + limit % 4 * (n + 1) // 4 if limit else UNLIMITED


cdef inline int read_kind() noexcept:
    """Return the kind of new read blocks."""
    if in_use < steps[0]:
        return READ_256K
    if in_use < steps[1]:
        return READ_64K
    return READ_16K if in_use < steps[2] else READ_4K


cdef Py_ssize_t kind_size() noexcept:
    """Return the size of new read blocks."""
    return MIN_READ_BLOCK << 2 * read_kind()


cdef int64_t trusted() noexcept:
    """Return how many bytes a stated length may allocate before they have come."""
    cdef int kind = read_kind()
    return TRUST if kind == READ_256K else ALWAYS_TRUSTED << 2 * kind


cdef int kind_for(Py_ssize_t size) noexcept:
    """Return the kind of a block for ``size`` bytes.

    Near the limit a block larger than a read block has exactly the size it needs.
    """
    cdef int kind = read_kind()
    if size > BLOCK:
        return LARGE
    if kind < READ_256K and size > MIN_READ_BLOCK << 2 * kind:
        return EXACT
    return kind


cdef uint8_t *acquire(Py_ssize_t size) noexcept:
    return map_memory(size) if size >= BLOCK else <uint8_t *>malloc(size)


cdef void release(uint8_t *memory, Py_ssize_t size) noexcept:
    if size >= BLOCK:
        unmap_memory(memory, size)
    else:
        free(memory)


cdef int large_for(int64_t size) noexcept:
    """Return the smallest kept large block of at least this size; -1 without one.

    Near the limit a block of more than twice the size is not used, because all of it would count
    as in use.
    """
    cdef int i, best = -1
    for i in range(large_count):
        if large_sizes[i] >= size and (best < 0 or large_sizes[i] < large_sizes[best]):
            best = i
    if best >= 0 and in_use >= steps[0] and large_sizes[best] > 2 * size:
        return -1
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
    """Keep a large block, if there is room for it: the larger ones stay, because they also serve
    where a smaller one would.
    """
    global large_count, large_total
    cdef Py_ssize_t freed = 0
    cdef uint8_t *other
    cdef int i, smallest
    if size > MAX_LARGE_BYTES:
        return False
    while large_count == LARGE_KEPT or large_total + size > MAX_LARGE_BYTES:
        smallest = 0
        for i in range(1, large_count):
            if large_sizes[i] < large_sizes[smallest]:
                smallest = i
        if large_sizes[smallest] >= size:
            return False
        other = take_large(smallest, &freed)
        release(other, freed)
    large[large_count] = memory
    large_sizes[large_count] = size
    large_total += size
    large_count += 1
    return True


cdef inline Py_ssize_t whole_pages(Py_ssize_t size) noexcept:
    return (size + PAGE - 1) // PAGE * PAGE


@cython.final
cdef class Block:
    """Memory that is released (or kept for the next Block) when the last slice of it is gone.

    ``size``: bytes wanted at least. ``exact``: no more than that. Raises MemoryError.
    """

    def __cinit__(self, Py_ssize_t size, bint exact=False):
        cdef int kept_one = -1
        if size > <Py_ssize_t>(UNLIMITED - PAGE):
            raise MemoryError()
        self.kind = EXACT if exact else kind_for(size)
        self.size = size
        if self.kind == LARGE:
            self.size = whole_pages(size)
            kept_one = large_for(self.size)
            if kept_one >= 0:
                self.memory = take_large(kept_one, &self.size)
        elif self.kind < LARGE:
            self.size = MIN_READ_BLOCK << 2 * self.kind
            if kept_count[self.kind]:
                kept_count[self.kind] -= 1
                self.memory = kept_read[self.kind][kept_count[self.kind]]
        if self.memory is NULL:
            self.memory = acquire(self.size)
            if self.memory is NULL:
                raise MemoryError()
        self.count(True)

    def __dealloc__(self):
        if self.memory is NULL:
            return
        self.count(False)
        if poisoning:
            memset(self.memory, 0xdb, self.size)
        if in_use >= steps[0] and self.kind != EXACT:  # memory is short
            release(self.memory, self.size)
        elif self.kind < LARGE and kept_count[self.kind] < KEPT:
            kept_read[self.kind][kept_count[self.kind]] = self.memory
            kept_count[self.kind] += 1
        elif self.kind != LARGE or not keep_large(self.memory, self.size):
            release(self.memory, self.size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.memory, self.size, False, flags)

    cdef void count(self, bint is_used) noexcept:
        """Count the block as in use, or as kept for the next who needs one."""
        global in_use
        if is_used != self.counted:
            in_use += self.size if is_used else -self.size
            self.counted = is_used

    cdef bint grow(self, Py_ssize_t size) noexcept:
        """Give a large block ``size`` bytes without a copy. Its memory may move, so nothing else
        may refer to the block. False: not possible, nothing has changed.
        """
        global in_use
        cdef uint8_t *memory
        if self.kind != LARGE or size > <Py_ssize_t>(UNLIMITED - PAGE):
            return False
        size = whole_pages(size)
        memory = remap_memory(self.memory, self.size, size)
        if memory is NULL:
            return False
        in_use += size - self.size
        self.memory = memory
        self.size = size
        return True


@cython.final
cdef class CountedBytes:
    """Bytes that were made elsewhere, counted as in use until the last slice of them is gone."""

    def __cinit__(self, bytes content not None):
        global in_use
        self.content = content
        self.size = PyBytes_GET_SIZE(content)
        in_use += self.size

    def __dealloc__(self):
        global in_use
        in_use -= self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, PyBytes_AS_STRING(self.content), self.size, True, flags)


@cython.final
cdef class Charge:
    """Bytes of memory that work takes while it lasts, counted as in use."""

    def __cinit__(self):
        self.size = 0

    def __dealloc__(self):
        global in_use
        in_use -= self.size

    def count(self, int64_t size):
        """Count so many bytes from now on."""
        global in_use
        if size < 0:
            raise ProtocolError(f"a charge must be 0 or a number of bytes, not {size}")
        in_use += size - self.size
        self.size = size
