"""Read answers to Fetch (4 to 12) without the GIL. Their records are counted or handed over.

The layout of an answer is that of ``protocol.walkers.fetch_layout``, after int32 length and int32
correlation_id.

A stream is what one connection asks for and gets. Its memory is one buffer, which holds a batch at
most, and the block that records come into where they are handed over. What a length states is
allocated a little ahead of the bytes that have come.

Whatever is unusual is left to the caller: a partition with an error code, with damage or with
aborted transactions is returned with its position, and nothing more is asked for it here.

Records are counted batch by batch as they come. Where headers are believed, no more than a batch's
header has to be there at once. Records that are handed over come into a block of memory for each
partition, which the caller gets:

    received   what the buffer has already is copied; the rest comes into the block itself, which
               grows with it
    whole      a walk over the headers finds where whole batches end. They are the caller's, and the
               partition's position moves past them
    damaged    the batches before the damage are the caller's, and the partition is returned

A partition that has MAX_WAITING_BLOCKS which the caller has not used is not asked for. The list of
blocks takes no lock: the thread adds to it while the caller takes it.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy, memmove

from batchval.core.format.bytes cimport be64
from batchval.core.batches.fetched cimport (
    BELOW, WHOLE, Counts, count_each, count_entry, no_counts,
)
from batchval.core.format.header cimport BATCH, NO_MORE, Entry, next_batch
from batchval.core.format.layout cimport LOG_OVERHEAD, MAGIC, RECORDS
from batchval.core.codecs.scratch cimport Scratch
from batchval.fetch.receive_memory cimport Block, content, grown_block, new_block, release_block
from batchval.protocol.frame_memory cimport TRUST
from batchval.protocol.cursor cimport (
    COUNT_TOO_LARGE, CUT, LENGTH_NEGATIVE, Cursor, fail, open_cursor, position, read_int32,
    skip_tags,
)
from batchval.protocol.walkers.fetch_layout cimport (
    FetchedHead, FetchedPartition, FetchedTopic, read_fetch_head, read_fetch_partition,
    read_fetch_records_size, read_fetch_topic, skip_fetch_aborted,
)

from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef uint64_t DECOMPRESSED_LIMIT = DEFAULT_MAX_DECOMPRESSED_BYTES

cdef enum:
    SMALL = 64 << 10  # no field but records is larger
    TOGETHER = 256 << 10  # bytes of a partition's records that are read at once


cdef uint8_t *stream_space(Stream *s, size_t *size) noexcept nogil:
    """Return where to put the next bytes, and how many at most (never 0)."""
    cdef int64_t most, ahead = SPARE if s.is_large and s.mode == GIVE_BLOCKS else READ
    if is_direct(s):
        size[0] = min(s.block.space - s.block.size, s.part_left)
        return content(s.block) + s.block.size
    most = s.at + max(s.wanted, ahead) + SPARE
    size[0] = (most if most < s.size else s.size) - s.end
    return s.buffer + s.end


cdef int stream_awaits(const Stream *s) noexcept nogil:
    """Return how many bytes are worth a read: where many records are to come, some at once."""
    return TOGETHER if s.part_left - (s.end - s.at) >= TOGETHER else 1


cdef inline bint is_direct(const Stream *s) noexcept nogil:
    """Return whether the next bytes come into the block: the buffer has none of it any more."""
    return s.block is not NULL and s.at == s.end


cdef bint stream_fed(Stream *s, size_t size, Scratch *scratch) noexcept nogil:
    """Take bytes put into the space. True: the answer is whole, another request may follow."""
    cdef int came = TAKEN
    if is_direct(s):
        s.block.size += size
        s.part_left -= size
        s.frame_left -= size
    else:
        s.end += size
    while s.failure is NULL:
        came = take_step(s, scratch)
        if came == LACKING:
            make_space(s)
            return False
        if s.step == FRAME and not s.under_way:
            if s.at < s.end:
                s.failure = "bytes came after the answer"
                return False
            s.at = s.end = 0
            return True
    return False


cdef int take_step(Stream *s, Scratch *scratch) noexcept nogil:
    """Take the next step if its bytes are there."""
    cdef int64_t there = s.end - s.at
    cdef int came
    if s.step == FRAME:
        return take_frame(s, there)
    if s.step == SKIP or s.step == REST:
        return take_skipped(s, there)
    if s.step == NEXT_BATCH and s.mode == GIVE_BLOCKS:
        return take_block(s, there, scratch)
    if s.step == NEXT_BATCH:
        return take_batch(s, there, scratch)
    came = take_fields(s, there if there < s.frame_left else s.frame_left)
    if came == LACKING and there >= s.frame_left:
        s.failure = "an answer that ends too early"
        return BROKEN
    if came == LACKING and there >= SMALL:
        s.failure = "a field that is too large"
        return BROKEN
    return came


cdef int take_frame(Stream *s, int64_t there) noexcept nogil:
    cdef Cursor c
    cdef int32_t length, correlation_id
    if there < 8:
        return lacking(s, 8)
    open_cursor(&c, s.buffer + s.at, there, False)
    length = read_int32(&c)
    correlation_id = read_int32(&c)
    if length < 4 or length > s.frame_limit:
        s.failure = "a length that no answer has"
        return BROKEN
    if not s.under_way or correlation_id != s.correlation_id:
        s.failure = "an answer to another request"
        return BROKEN
    s.frame_left = length + <int64_t>4
    pass_over(s, 8)
    s.step = HEAD
    return TAKEN


cdef int take_skipped(Stream *s, int64_t there) noexcept nogil:
    """Skip bytes of a batch, or of the frame after the message (which Kafka's clients ignore)."""
    cdef int64_t *left = &s.skip_left if s.step == SKIP else &s.frame_left
    cdef int64_t size = there if there < left[0] else left[0]
    if s.step == SKIP:
        s.skip_left -= size
        s.part_left -= size
    pass_over(s, size)
    if left[0] > 0:
        return lacking(s, 1)
    if s.step == SKIP:
        s.step = NEXT_BATCH
    else:
        end_answer(s)
    return TAKEN


cdef int take_fields(Stream *s, int64_t there) noexcept nogil:
    """Take small fields, all of a step or none."""
    cdef Cursor c
    open_cursor(&c, s.buffer + s.at, there, s.version >= FLEXIBLE)
    if s.step == HEAD:
        take_head(s, &c)
    elif s.step == TOPIC:
        take_topic(s, &c)
    elif s.step == PARTITION:
        take_partition(s, &c)
    elif s.step == ABORTED_ONE:
        skip_fetch_aborted(&c, s.version)
        if not c.wrong:
            s.aborted_left -= 1
            s.step = ABORTED_ONE if s.aborted_left else RECORDS_SIZE
    elif s.step == RECORDS_SIZE:
        take_records_size(s, &c)
    else:
        skip_tags(&c)
        if not c.wrong:
            end_tags(s)
    if c.wrong == CUT:
        return lacking(s, there + 1)
    if c.wrong:
        s.failure = "an answer that cannot be read"
        return BROKEN
    pass_over(s, position(&c))
    return TAKEN


cdef void take_head(Stream *s, Cursor *c) noexcept nogil:
    cdef FetchedHead head
    skip_tags(c)  # of the response header
    read_fetch_head(c, s.version, s.frame_left, &head)
    if c.wrong:
        return
    s.throttle_ms = head.throttle_time_ms if head.throttle_time_ms > 0 else 0
    if head.error_code:
        return_all(s)
    s.topics_left = head.responses
    s.next_in_order = 0
    s.step = TOPIC if head.responses else ANSWER_TAGS


cdef void take_topic(Stream *s, Cursor *c) noexcept nogil:
    cdef FetchedTopic f
    cdef int32_t i
    read_fetch_topic(c, s.version, s.frame_left, &f)
    if c.wrong:
        return
    s.topic = -1
    for i in range(s.topic_count):
        if s.topics[i].size == f.topic_size and memcmp(
                s.topics[i].name, f.topic, f.topic_size) == 0:
            s.topic = i
            break
    s.partitions_left = f.partitions
    s.step = PARTITION if f.partitions else TOPIC_TAGS


cdef void take_partition(Stream *s, Cursor *c) noexcept nogil:
    cdef FetchedPartition f
    cdef Share *share
    read_fetch_partition(c, s.version, s.frame_left, &f)
    if c.wrong:
        return
    s.current = slot_of(s, f.partition_index)
    if s.current >= 0:
        share = &s.shares[s.current]
        share.high_watermark = f.high_watermark
        if f.error_code:
            return_share(s, share, f.error_code)
        elif f.aborted_transactions > 0 and s.isolation:
            return_share(s, share, ABORTED)
    s.aborted_left = f.aborted_transactions
    s.step = ABORTED_ONE if f.aborted_transactions > 0 else RECORDS_SIZE


cdef int32_t slot_of(Stream *s, int32_t index) noexcept nogil:
    """Return the slot that was asked for, nearly always the next one; -1: nobody asked."""
    cdef int32_t i, slot
    cdef const Share *share
    if s.topic < 0:
        return -1
    for i in range(s.next_in_order, s.share_count + s.next_in_order):
        slot = s.order[i % s.share_count]
        share = &s.shares[slot]
        if share.topic == s.topic and share.index == index and is_awaited(share):
            s.next_in_order = (i + 1) % s.share_count
            return slot
    return -1


cdef void take_records_size(Stream *s, Cursor *c) noexcept nogil:
    cdef int64_t size = read_fetch_records_size(c, s.version)
    if c.wrong:
        return
    if size < -1:
        fail(c, LENGTH_NEGATIVE)
    elif size > s.frame_left - position(c):
        fail(c, COUNT_TOO_LARGE)
    else:
        s.part_left = size if size > 0 else 0
        s.is_large = size > SMALL
        s.step = NEXT_BATCH


cdef void end_tags(Stream *s) noexcept nogil:
    if s.step == PARTITION_TAGS:
        s.partitions_left -= 1
        s.step = PARTITION if s.partitions_left else TOPIC_TAGS
    elif s.step == TOPIC_TAGS:
        s.topics_left -= 1
        s.step = TOPIC if s.topics_left else ANSWER_TAGS
    else:
        s.step = REST


cdef void end_answer(Stream *s) noexcept nogil:
    cdef int32_t i
    for i in range(s.share_count):
        s.shares[i].is_asked = s.shares[i].is_stale = False
    s.under_way = False
    s.step = FRAME
    s.wanted = 8


cdef void return_all(Stream *s) noexcept nogil:
    cdef int32_t i
    for i in range(s.share_count):
        if is_awaited(&s.shares[i]):
            return_share(s, &s.shares[i], REFUSED)


cdef void make_space(Stream *s) noexcept nogil:
    """Make space for what is awaited, as far as the bytes that have come allow; never none."""
    cdef int64_t held = s.end - s.at, size = s.wanted + SPARE
    cdef uint8_t *grown
    if held == 0:
        s.at = s.end = 0
    elif s.at and (s.at + size > s.size or s.end == s.size):
        memmove(s.buffer, s.buffer + s.at, held)
        s.at = 0
        s.end = held
    if size > TRUST and size > 2 * held:
        size = 2 * held if 2 * held > TRUST else TRUST
    if size <= s.size and s.end < s.size:
        return
    grown = <uint8_t *>realloc(s.buffer, size)
    if grown is NULL:
        s.failure = "no memory for a batch"
        return
    s.buffer = grown
    s.size = size


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


cdef int64_t drop_blocks(Stream *s, int32_t slot, int64_t offset) noexcept nogil:
    """Release the blocks of a slot (-1: of all) that the caller has not got, while no thread adds
    any. Returns the offset of the first of these, else ``offset``.
    """
    cdef Block *block = <Block *>take_list(&s.blocks)
    cdef Block *older
    cdef void **end = &s.blocks
    while block is not NULL:
        older = <Block *>block.next
        if slot < 0 or block.slot == slot:
            offset = block.fetch_offset
            release_block(block)
        else:
            block.next = NULL
            end[0] = block
            end = &block.next
        block = older
    return offset
