"""Blocks: the records of one partition as they are received, in memory of their own."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct Block:  # its records follow it
    void *next  # the block that came before, in a stream's list
    int64_t space  # bytes that it holds
    int64_t size  # bytes that have come; in the end those of whole batches
    int64_t fetch_offset  # that was asked for
    int64_t next_offset
    int64_t high_watermark
    int32_t slot


cdef inline uint8_t *content(Block *block) noexcept nogil:
    return <uint8_t *>block + sizeof(Block)


cdef Block *new_block(int64_t size) noexcept nogil
cdef Block *grown_block(Block *block, int64_t size) noexcept nogil
cdef void release_block(Block *block) noexcept nogil
cdef object view_of(Block *block)
