"""Receive the records of each partition into a block of memory that the caller gets.

    received   what the buffer has already is copied; the rest comes into the block itself, which
               grows with it
    whole      a walk over the headers finds where whole batches end. They are the caller's, and the
               partition's position moves past them
    damaged    the batches before the damage are the caller's, and the partition is returned

A partition that has MOST_WAITING blocks which the caller has not used is not asked for. The list of
blocks takes no lock: the thread adds to it while the caller takes it.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from batchval.core.batches.fetched cimport WHOLE, Counts, count_each, no_counts
from batchval.core.codecs.scratch cimport Scratch
from batchval.fetch.receive cimport (
    BROKEN, DAMAGED, PARTITION_TAGS, TAKEN, Share, Stream, added, is_awaited, lacking, note_counts,
    note_lag, pass_over, push, return_share, skip_records, take_list,
)
from batchval.fetch.receive_memory cimport Block, content, grown_block, new_block, release_block
from batchval.protocol.frame_memory cimport TRUST

from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef uint64_t DECOMPRESSED_LIMIT = DEFAULT_MAX_DECOMPRESSED_BYTES


cdef int take_block(Stream *s, int64_t there, Scratch *scratch) noexcept nogil:
    """Take what has come of a partition's records, or pass over what nobody wants."""
    if s.current < 0 or not is_awaited(&s.shares[s.current]):
        if s.block is not NULL:
            release_block(s.block)
            s.block = NULL
        if s.part_left:
            return skip_records(s, s.part_left)
    elif s.part_left or s.block is not NULL:
        if s.block is NULL:
            s.block = new_block(s.part_left if s.part_left < TRUST else TRUST)
        if s.block is NULL:
            s.failure = "no memory for a block"
            return BROKEN
        fill(s, there)
        if s.part_left:
            return await_more(s)
        end_block(s, &s.shares[s.current], scratch)
    s.current = -1
    s.step = PARTITION_TAGS
    return TAKEN


cdef void fill(Stream *s, int64_t there) noexcept nogil:
    """Copy from the buffer what it has of the block."""
    cdef int64_t size = min(there, min(s.part_left, s.block.space - s.block.size))
    if size:
        memcpy(content(s.block) + s.block.size, s.buffer + s.at, size)
        s.block.size += size
        s.part_left -= size
        pass_over(s, size)


cdef int await_more(Stream *s) noexcept nogil:
    """Let a full block grow as the bytes that have come allow."""
    cdef int64_t size = s.block.size
    cdef Block *grown
    if size == s.block.space:
        grown = grown_block(s.block, size + min(size, s.part_left))
        if grown is NULL:
            s.failure = "no memory for a block"
            return BROKEN
        s.block = grown
    return lacking(s, 1) if s.at == s.end else TAKEN


cdef void end_block(Stream *s, Share *share, Scratch *scratch) noexcept nogil:
    """Hand the whole batches over, if there are any."""
    cdef Block *block = s.block
    cdef Counts c
    cdef bint is_sound = find_end(block, share.position, s.check_crcs, scratch, &c)
    s.block = NULL
    if c.next_offset > share.position:
        give(s, share, block, &c)
    else:
        # whole batches that lead no further: the caller asks again, and waits in between
        is_sound = is_sound and block.size == 0
        release_block(block)
    if not is_sound:
        return_share(s, share, DAMAGED)


cdef bint find_end(Block *block, int64_t first, bint check_crcs, Scratch *scratch,
        Counts *c) noexcept nogil:
    """Count the whole batches, and cut off what follows. False: it cannot be read."""
    cdef bint is_sound
    no_counts(c, first)
    is_sound = count_each(content(block), block.size, first, False, check_crcs, DECOMPRESSED_LIMIT,
            scratch, c) == WHOLE
    block.size = c.at
    if not is_sound:  # counts of the damaged batch are not believed
        no_counts(c, first)
        count_each(content(block), block.size, first, False, False, DECOMPRESSED_LIMIT, scratch, c)
    return is_sound


cdef void give(Stream *s, Share *share, Block *block, const Counts *c) noexcept nogil:
    block.slot = s.current
    block.fetch_offset = share.position
    block.next_offset = c.next_offset
    block.high_watermark = share.high_watermark
    note_counts(s, share, c)
    note_lag(s, share)
    s.has_new = True
    added(&share.waiting, 1)
    push(&s.blocks, block)


cdef int64_t drop_blocks(Stream *s, int32_t slot, int64_t position) noexcept nogil:
    """Release the blocks of a slot (-1: of all) that the caller has not got, while no thread adds
    any. Returns the offset of the first of these, else ``position``.
    """
    cdef Block *block = <Block *>take_list(&s.blocks)
    cdef Block *older
    cdef void **end = &s.blocks
    while block is not NULL:
        older = <Block *>block.next
        if slot < 0 or block.slot == slot:
            position = block.fetch_offset
            release_block(block)
        else:
            block.next = NULL
            end[0] = block
            end = &block.next
        block = older
    return position
