"""A pool of scratch memory: each running call holds one Scratch, so that calls may run without the GIL.

Sizes follow bytes that were really produced. The ring alone is reserved ahead, by mmap: pages that nothing was
written to cost no memory.
"""

from cpython.ref cimport Py_DECREF
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc

from batchval.compression.blocks cimport BLOCKS
from batchval.core.layout cimport (
    KEY_MISSING, RECORD_MAGIC_DIFFERS, TIMESTAMP_OUT_OF_RANGE, TIMESTAMP_TYPE_BY_PRODUCER,
)

cdef extern from "sys/mman.h" nogil:
    void *mmap(void *address, size_t size, int protection, int flags, int fd, long offset) noexcept
    int munmap(void *address, size_t size) noexcept
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    void *MAP_FAILED

cdef enum:
    POOL_SIZE = 64
    KEEP_ARENA = 4 << 20  # larger ones are freed after use
    KEEP_RING = 8 << 20
    KEEP_ERRORS = 4096
    # Record errors that are kept; all are counted. A batch of 1 MiB can hold 150,000 records, and a compressed one
    # hundreds of millions: Kafka would list every one, and 2^24 entries are more than a broker's default heap has
    # room for.
    ERRORS_IN_STRICT = 1 << 16
    ERRORS_IN_KAFKA = 1 << 24
    PAGE = 4096

cdef Scratch *POOL[POOL_SIZE]
cdef int POOLED = 0


cdef Scratch *borrow() except NULL:
    """A Scratch for the time of one call. Needs the GIL, which is what guards the pool."""
    global POOLED
    cdef Scratch *scratch
    if POOLED:
        POOLED -= 1
        scratch = POOL[POOLED]
    else:
        scratch = <Scratch *>calloc(1, sizeof(Scratch))
        if scratch is NULL:
            raise MemoryError()
    no_errors(scratch, True)
    return scratch


cdef void give_back(Scratch *scratch) noexcept:
    global POOLED
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
    if scratch.errors_size > KEEP_ERRORS:
        free(scratch.errors)
        scratch.errors = NULL
        scratch.errors_size = 0
    if scratch.zstd_frame is not NULL:
        Py_DECREF(<object>scratch.zstd_frame)
        scratch.zstd_frame = NULL
    if POOLED < POOL_SIZE:
        POOL[POOLED] = scratch
        POOLED += 1
        return
    free(scratch.arena)
    free(scratch.copy)
    if scratch.ring is not NULL:
        munmap(scratch.ring, scratch.ring_size)
    if scratch.zstd_dctx is not NULL:
        BLOCKS.zstd_free_dctx(scratch.zstd_dctx)
    free(scratch.inflate)
    free(scratch.errors)
    free(scratch)


cdef bint arena_reserve(Scratch *scratch, size_t size) noexcept nogil:
    """At least ``size`` bytes; what the arena holds stays, its address may not. False: no memory."""
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
    return True


cdef bint copy_reserve(Scratch *scratch, size_t size) noexcept nogil:
    """At least ``size`` bytes; what was there is gone. False: no memory."""
    if size <= scratch.copy_size:
        return True
    free(scratch.copy)
    scratch.copy = <uint8_t *>malloc(size)
    scratch.copy_size = 0 if scratch.copy is NULL else size
    return scratch.copy is not NULL


cdef bint ring_reserve(Scratch *scratch, size_t size) noexcept nogil:
    """At least ``size`` bytes of address space; what the ring held is gone. False: no address space."""
    cdef void *mapped
    size = (size + PAGE - 1) & ~(<size_t>PAGE - 1)
    if size <= scratch.ring_size:
        return True
    mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if mapped == MAP_FAILED:
        return False
    if scratch.ring is not NULL:
        munmap(scratch.ring, scratch.ring_size)
    scratch.ring = <uint8_t *>mapped
    scratch.ring_size = size
    return True


cdef void no_errors(Scratch *scratch, bint strict) noexcept nogil:
    scratch.errors_count = 0
    scratch.errors_seen = 0
    scratch.errors_most = ERRORS_IN_STRICT if strict else ERRORS_IN_KAFKA
    scratch.keys_missing = 0
    scratch.magics_differing = 0
    scratch.last_rule = 0
    scratch.one_rule = True
    scratch.bad_timestamp = False


cdef bint add_error(Scratch *scratch, int32_t index, int32_t rule, int64_t timestamp) noexcept nogil:
    """One more entry of record_errors. False: no memory."""
    cdef RecordError *grown
    cdef int32_t size
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
    if scratch.errors_count == scratch.errors_most:
        return True
    if scratch.errors_count == scratch.errors_size:
        size = 64 if scratch.errors_size == 0 else scratch.errors_size * 2
        grown = <RecordError *>realloc(scratch.errors, size * sizeof(RecordError))
        if grown is NULL:
            return False
        scratch.errors = grown
        scratch.errors_size = size
    scratch.errors[scratch.errors_count].index = index
    scratch.errors[scratch.errors_count].rule = rule
    scratch.errors[scratch.errors_count].timestamp = timestamp
    scratch.errors_count += 1
    return True
