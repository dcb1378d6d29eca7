"""A pool of scratch memory: each running call holds one Scratch, so that calls may run without the
GIL.

A call releases the GIL when its work turns out to be long, at whatever place:

    begin_work   long by the size of the input: releases at once. Else there is a budget
    spend        takes from the budget before each block is decompressed or walked; releases when
                 it is used up
    end_work     takes the GIL again, if it was released

The size of a batch does not show what it decompresses to: 6 kB of zstd hold 10 million records.
Most batches are small both ways, and the release would cost them more than it gives the others.

Sizes follow bytes that were really produced. The ring alone is reserved ahead, by mmap: pages that
nothing was written to cost no memory.
"""

from cpython.ref cimport Py_DECREF
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc

from batchval.compression.native_pointers cimport CURRENT
from batchval.core.format.layout cimport (
    KEY_MISSING, RECORD_MAGIC_DIFFERS, TIMESTAMP_OUT_OF_RANGE, TIMESTAMP_TYPE_BY_PRODUCER,
)
from batchval.core.format.value_ids cimport want_ids

cdef extern from *:
    """
    #if defined(CYTHON_TRACE) && CYTHON_TRACE
    #define BV_TRACED 1
    #else
    #define BV_TRACED 0
    #endif
    """
    const bint TRACED "BV_TRACED"  # by BATCHVAL_BUILD=trace

cdef extern from "sys/mman.h" nogil:
    void *mmap(void *address, size_t size, int protection, int flags, int fd, long offset) noexcept
    int munmap(void *address, size_t size) noexcept
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    void *MAP_FAILED

cdef enum:
    POOL_SIZE = 64
    KEEP_ARENA = 4 << 20  # larger ones are freed after use
    KEEP_RING = 8 << 20
    PAGE = 4096

cdef Scratch *POOL[POOL_SIZE]
cdef int POOLED = 0


cdef Scratch *borrow() except NULL:
    """Borrow a Scratch for the time of one call. Needs the GIL, which guards the pool."""
    global POOLED
    cdef Scratch *scratch
    if POOLED:
        POOLED -= 1
        scratch = POOL[POOLED]
    else:
        scratch = <Scratch *>calloc(1, sizeof(Scratch))
        if scratch is NULL:
            raise MemoryError()
        scratch.work_left = UNLIMITED_WORK
        scratch.blocks = CURRENT
    if scratch.blocks is not CURRENT:
        if scratch.zstd_dctx is not NULL:
            scratch.blocks.zstd_free_dctx(scratch.zstd_dctx)  # of another library, maybe
            scratch.zstd_dctx = NULL
        scratch.blocks = CURRENT
    # The earlier call's input may be gone, and another at its address.
    scratch.opened = NULL
    scratch.walk = NULL
    scratch.unbuffered = False
    no_errors(scratch)
    want_ids(&scratch.seen_ids, False)
    return scratch


# ---- the GIL -------------------------------------------------------------------------------------

cdef void release_gil(Scratch *scratch) noexcept nogil:
    scratch.work_left = UNLIMITED_WORK
    # Cython traces the lines of a function that is not nogil as if it held the GIL.
    if not TRACED:
        scratch.thread_state = PyEval_SaveThread()


cdef void take_gil(Scratch *scratch) noexcept nogil:
    PyEval_RestoreThread(scratch.thread_state)
    scratch.thread_state = NULL


# ---- memory --------------------------------------------------------------------------------------


cdef void shrink(Scratch *scratch) noexcept nogil:
    """Free the memory that a batch of hostile size has taken; the system takes a millisecond for
    some MiB.
    """
    if scratch.arena_size > KEEP_ARENA:
        free(scratch.arena)
        scratch.arena = NULL
        scratch.arena_size = 0
    if scratch.copy_size > KEEP_ARENA:
        free(scratch.copy)
        scratch.copy = NULL
        scratch.copy_size = 0
    if scratch.ring_size > KEEP_RING:
        munmap(scratch.ring, scratch.ring_size)
        scratch.ring = NULL
        scratch.ring_size = 0
    scratch.has_grown = False


cdef void give_back(Scratch *scratch) noexcept:
    global POOLED
    if scratch.zstd_frame is not NULL:
        Py_DECREF(<object>scratch.zstd_frame)
        scratch.zstd_frame = NULL
    if scratch.has_grown:
        with nogil:
            shrink(scratch)
    if POOLED < POOL_SIZE:
        POOL[POOLED] = scratch
        POOLED += 1
        return
    free(scratch.arena)
    free(scratch.copy)
    if scratch.ring is not NULL:
        munmap(scratch.ring, scratch.ring_size)
    if scratch.zstd_dctx is not NULL:
        scratch.blocks.zstd_free_dctx(scratch.zstd_dctx)
    free(scratch.inflate)
    free(scratch.errors)
    free(scratch.broken)
    free(scratch)


cdef bint arena_reserve(Scratch *scratch, size_t size) noexcept nogil:
    """Reserve at least ``size`` bytes; the arena keeps its content, its address may change. Return
    False without memory.
    """
    cdef uint8_t *grown
    cdef size_t doubled = scratch.arena_size * 2
    if size <= scratch.arena_size:
        return True
    if size < doubled:
        size = doubled
    grown = <uint8_t *>realloc(scratch.arena, size)
    if grown is NULL:
        return False
    scratch.arena = grown
    scratch.arena_size = size
    scratch.has_grown |= size > KEEP_ARENA
    return True


cdef bint copy_reserve(Scratch *scratch, size_t size) noexcept nogil:
    """Reserve at least ``size`` bytes; the content is lost. Return False without memory."""
    if size <= scratch.copy_size:
        return True
    free(scratch.copy)
    scratch.copy = <uint8_t *>malloc(size)
    scratch.copy_size = 0 if scratch.copy is NULL else size
    scratch.has_grown |= size > KEEP_ARENA
    return scratch.copy is not NULL


cdef uint8_t *copy_lend(Scratch *scratch, size_t *size) noexcept nogil:
    """Return the memory of ``copy``, NULL where there is none. Its user may enlarge it and returns
    it with copy_back.

    The system maps new memory page by page, which costs more than to write records to it.
    """
    cdef uint8_t *lent = scratch.copy
    size[0] = scratch.copy_size
    scratch.copy = NULL
    scratch.copy_size = 0
    return lent


cdef void copy_back(Scratch *scratch, uint8_t *copy, size_t size) noexcept nogil:
    """Take back the memory of ``copy_lend``, or other memory in its place."""
    scratch.copy = copy
    scratch.copy_size = size
    scratch.has_grown |= size > KEEP_ARENA


cdef bint ring_reserve(Scratch *scratch, size_t size) noexcept nogil:
    """Reserve at least ``size`` bytes of address space; the ring's content is lost. Return False
    without address space.
    """
    cdef void *mapped
    size = (size + PAGE - 1) & ~(<size_t>PAGE - 1)
    if size <= scratch.ring_size:
        return True
    mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            -1, 0)
    if mapped == MAP_FAILED:
        return False
    if scratch.ring is not NULL:
        munmap(scratch.ring, scratch.ring_size)
    scratch.ring = <uint8_t *>mapped
    scratch.ring_size = size
    scratch.has_grown |= size > KEEP_RING
    return True


cdef void no_errors(Scratch *scratch) noexcept nogil:
    scratch.errors_count = 0
    scratch.errors_seen = 0
    scratch.keys_missing = 0
    scratch.magics_differing = 0
    scratch.last_rule = 0
    scratch.one_rule = True
    scratch.bad_timestamp = False
    none_broken(scratch)


cdef bint keep_error(RecordError **errors, int32_t *count, int32_t index, int32_t rule,
        int64_t first, int64_t second=0, uint8_t which=0, uint8_t kind=0) noexcept nogil:
    """Keep one of the first ERRORS_KEPT errors. False: no memory."""
    cdef RecordError *error
    if count[0] == ERRORS_KEPT:
        return True
    if errors[0] is NULL:
        errors[0] = <RecordError *>malloc(ERRORS_KEPT * sizeof(RecordError))
        if errors[0] is NULL:
            return False
    error = &errors[0][count[0]]
    error.index = index
    error.rule = rule
    error.timestamp = first
    error.second = second
    error.which = which
    error.kind = kind
    count[0] += 1
    return True


cdef bint add_error(Scratch *scratch, int32_t index, int32_t rule,
        int64_t timestamp) noexcept nogil:
    """Add one entry to record_errors. Return False without memory.

    The offset is the index, as clients number magic 0 and 1; set_offset replaces it for magic 2.
    """
    if rule == TIMESTAMP_OUT_OF_RANGE or rule == TIMESTAMP_TYPE_BY_PRODUCER:
        scratch.bad_timestamp = True
    elif rule == KEY_MISSING:
        scratch.keys_missing += 1
    elif rule == RECORD_MAGIC_DIFFERS:
        scratch.magics_differing += 1
    if scratch.errors_seen and rule != scratch.last_rule:
        scratch.one_rule = False
    scratch.last_rule = rule
    scratch.errors_seen += 1
    return keep_error(&scratch.errors, &scratch.errors_count, index, rule, timestamp, index)


cdef void set_offset(Scratch *scratch, int64_t offset) noexcept nogil:
    """Set the record's offset in the error that was just added, if it was kept."""
    if scratch.errors_seen == scratch.errors_count:
        scratch.errors[scratch.errors_count - 1].second = offset


cdef bint add_broken(Scratch *scratch, int32_t index, int32_t rule, uint8_t which, uint8_t kind,
        int64_t first, int64_t second) noexcept nogil:
    """Add one record that breaks a record rule. Return False without memory."""
    scratch.broken_seen += 1
    return keep_error(&scratch.broken, &scratch.broken_count, index, rule, first, second, which,
            kind)
