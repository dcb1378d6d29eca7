"""Count the records of an answer to Fetch, batch by batch as they come.

Where headers are believed, no more than a batch's header has to be there at once.
"""

from libc.stdint cimport int64_t, uint64_t

from batchval.core.format.bytes cimport be64
from batchval.core.batches.fetched cimport BELOW, WHOLE, Counts, count_entry, no_counts
from batchval.core.format.header cimport BATCH, NO_MORE, Entry, next_batch
from batchval.core.format.layout cimport LOG_OVERHEAD, MAGIC, RECORDS
from batchval.core.codecs.scratch cimport Scratch
from batchval.fetch.receive cimport (
    COUNT_HEADERS, COUNT_RECORDS, DAMAGED, PARTITION_TAGS, TAKEN, Share, Stream, is_awaited,
    lacking, note_counts, note_lag, return_share, skip_records, take_some,
)

from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef uint64_t DECOMPRESSED_LIMIT = DEFAULT_MAX_DECOMPRESSED_BYTES


cdef int take_batch(Stream *s, int64_t there, Scratch *scratch) noexcept nogil:
    """Count the next batch of the partition, or pass over what nobody wants."""
    cdef Share *share
    cdef Entry b
    cdef int found
    cdef int64_t needed
    if not s.part_left:
        end_records(s)
        s.step = PARTITION_TAGS
        return TAKEN
    if s.current < 0 or not is_awaited(&s.shares[s.current]) or s.part_left < LOG_OVERHEAD:
        return skip_records(s, s.part_left)
    if there < MAGIC + 1 and there < s.part_left:
        return lacking(s, MAGIC + 1)
    share = &s.shares[s.current]
    found = next_batch(s.buffer + s.at, s.part_left, &b)
    if found == NO_MORE:  # cut off: it comes whole with the next answer
        return skip_records(s, s.part_left)
    if found != BATCH:
        return_share(s, share, DAMAGED)
        return skip_records(s, s.part_left)
    needed = b.size
    if b.magic >= 2 and s.mode == COUNT_HEADERS and not s.check_crcs and needed > RECORDS:
        needed = RECORDS
    if there < needed:
        return lacking(s, needed)
    count(s, share, &b, scratch)
    return skip_records(s, b.size)


cdef void end_records(Stream *s) noexcept nogil:
    if s.current >= 0 and is_awaited(&s.shares[s.current]) and s.shares[s.current].is_served:
        note_lag(s, &s.shares[s.current])
    s.current = -1


cdef void count(Stream *s, Share *share, const Entry *b, Scratch *scratch) noexcept nogil:
    """Count a batch, as far as the quota allows, and move the position past it."""
    cdef Counts c
    cdef int64_t granted
    cdef int stopped
    no_counts(&c, share.position)
    stopped = count_entry(b, share.position, s.mode == COUNT_RECORDS, s.check_crcs,
            DECOMPRESSED_LIMIT, scratch, &c)
    if stopped != WHOLE and stopped != BELOW:
        return_share(s, share, DAMAGED)
        return
    if s.quota is not NULL and c.records > 0:
        granted = take_some(s.quota, c.records)
        if granted == 0:
            share.is_stale = True  # what follows is not counted either
            return
        if granted < c.records:
            cut(s, b, share.position, granted, scratch, &c)
            share.is_stale = True
    note_counts(s, share, &c)


cdef void cut(Stream *s, const Entry *b, int64_t begin, int64_t granted, Scratch *scratch,
        Counts *c) noexcept nogil:
    """Keep of what was counted the first ``granted`` records: the quota ends in this batch."""
    cdef Counts rest
    cdef int64_t low = begin, high = c.next_offset, middle
    if b.magic >= 2 and be64(b.p) > low:
        low = be64(b.p)
    no_counts(&rest, low)
    # offsets may have gaps, and a header may state any number of records
    while high - low > 1:
        middle = low + (high - low) // 2
        no_counts(&rest, middle)
        count_entry(b, middle, s.mode == COUNT_RECORDS, False, DECOMPRESSED_LIMIT, scratch, &rest)
        if c.records - rest.records <= granted:
            low = middle
        else:
            high = middle
    if s.mode == COUNT_RECORDS:
        no_counts(&rest, low)
        count_entry(b, low, True, False, DECOMPRESSED_LIMIT, scratch, &rest)
        c.bytes -= rest.bytes
    else:
        c.bytes = c.bytes * granted // c.records
    c.records = granted
    c.next_offset = low
