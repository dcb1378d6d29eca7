"""Memory of blocks, which any thread allocates and releases, with or without the GIL.

    small    below 256 KiB: malloc and free
    mapped   whole pages. Released ones are kept for the next blocks, at most 16 MiB in all: the
             processor's cache still has them, and each page of fresh memory costs a fault

A block belongs to the process: it may outlive the receiver, the loop and the consumer. The lock of
the kept ones is never waited for, since a process that was forked may have it taken for ever.
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from batchval.protocol.frame_memory cimport is_poisoned
from batchval.protocol.mapped cimport map_memory, remap_memory, unmap_memory

cdef extern from *:
    """
    /* Another thread has the lock for less than a microsecond, unless it lost its processor. */
    static int batchval_try_lock(char *lock) {
        int i;
        for (i = 0; i < 200; i++)
            if (!__atomic_test_and_set(lock, __ATOMIC_ACQUIRE)) return 1;
        return 0;
    }

    static void batchval_unlock(char *lock) { __atomic_clear(lock, __ATOMIC_RELEASE); }
    """
    bint try_lock "batchval_try_lock"(char *lock) noexcept nogil
    void unlock "batchval_unlock"(char *lock) noexcept nogil

cdef enum:
    MAPPED = 256 << 10
    PAGE = 4096
    KEPT = 32
    MAX_KEPT_BYTES = 16 << 20  # bytes
    MAX_TIMES_WANTED = 4  # times the size that is wanted, of a kept block

cdef char lock = 0
# changed by the thread that has the lock: the block that was released last is the last of these
cdef Block *kept[KEPT]
cdef int kept_count = 0
cdef int64_t kept_total = 0  # bytes


def kept_bytes():
    """Return the bytes of released blocks that are kept for the next ones."""
    return kept_total


cdef inline int64_t whole_size(const Block *block) noexcept nogil:
    return block.space + <int64_t>sizeof(Block)


cdef Block *without(int i) noexcept nogil:
    """Take a kept block. For the thread that has the lock."""
    global kept_count, kept_total
    cdef Block *block = kept[i]
    kept_count -= 1
    for i in range(i, kept_count):
        kept[i] = kept[i + 1]
    kept_total -= whole_size(block)
    return block


cdef Block *kept_one(int64_t size) noexcept nogil:
    """Take the block that was released last of those with so many bytes; NULL: there is none."""
    cdef Block *block = NULL
    cdef int i
    if not try_lock(&lock):
        return NULL
    for i in range(kept_count - 1, -1, -1):
        if size <= whole_size(kept[i]) <= MAX_TIMES_WANTED * size:
            block = without(i)
            break
    unlock(&lock)
    return block


cdef Block *new_block(int64_t size) noexcept nogil:
    """Return a block for so many bytes at least; NULL: no memory."""
    cdef int64_t whole = size + sizeof(Block)
    cdef Block *block
    if whole < MAPPED:
        block = <Block *>malloc(whole)
    else:
        whole = (whole + PAGE - 1) // PAGE * PAGE
        block = kept_one(whole)
        if block is not NULL:
            block.size = 0
            return block
        block = <Block *>map_memory(whole)
    if block is not NULL:
        block.space = whole - sizeof(Block)
        block.size = 0
    return block


cdef Block *grown_block(Block *block, int64_t size) noexcept nogil:
    """Return a block with the same bytes that holds so many; NULL: no memory, no change."""
    cdef int64_t whole = (size + <int64_t>sizeof(Block) + PAGE - 1) // PAGE * PAGE
    cdef Block *grown = NULL
    if whole_size(block) >= MAPPED and whole >= MAPPED:
        grown = <Block *>remap_memory(<uint8_t *>block, whole_size(block), whole)
        if grown is not NULL:
            grown.space = whole - sizeof(Block)
            return grown
    grown = new_block(size)
    if grown is NULL:
        return NULL
    grown.size = block.size
    memcpy(content(grown), content(block), block.size)
    release_block(block)
    return grown


cdef void release_block(Block *block) noexcept nogil:
    """Keep the memory for the next blocks in place of what was kept longest, or unmap it."""
    global kept_count, kept_total
    cdef Block *unused = NULL
    cdef Block *following
    cdef int64_t whole = whole_size(block)
    if is_poisoned():
        memset(content(block), 0xdb, block.size)
    if whole < MAPPED:
        free(block)
        return
    if whole > MAX_KEPT_BYTES or not try_lock(&lock):
        unmap_memory(<uint8_t *>block, whole)
        return
    while kept_count == KEPT or kept_total + whole > MAX_KEPT_BYTES:
        following = without(0)
        following.next = unused
        unused = following
    kept[kept_count] = block
    kept_count += 1
    kept_total += whole
    unlock(&lock)
    while unused is not NULL:
        following = <Block *>unused.next
        unmap_memory(<uint8_t *>unused, whole_size(unused))
        unused = following


@cython.final
cdef class ReceivedRecords:
    """Whole batches of one partition as received, read-only; freed with the last view of them."""

    cdef Block *block

    def __dealloc__(self):
        if self.block is not NULL:
            release_block(self.block)

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.block is NULL:
            raise BufferError("no records: a Receiver makes these objects")
        PyBuffer_FillInfo(view, self, content(self.block), self.block.size, True, flags)


cdef object view_of(Block *block):
    """Return a view of a block's bytes, which owns the block."""
    cdef ReceivedRecords records = ReceivedRecords.__new__(ReceivedRecords)
    records.block = block
    return PyMemoryView_FromObject(records)
