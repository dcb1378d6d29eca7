"""Batches searched for and proven in bytes that may be damaged, where size fields do not lead on.

    SearchWindow    any number of searches and proofs, in time in proportion to the window's size
    resynchronise   the next batch that its own checksum proves
    follow          the chain of size fields, without checksums
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from batchval.core.stages.arguments cimport take_buffer, whole_number
from batchval.core.format.bytes cimport all_zero, be32, be64
from batchval.core.format.crc32c cimport crc32_moved, crc32_of, crc32c_moved, crc32c_of
from batchval.core.format.header cimport (
    BATCH, NO_MORE, Entry, computed_crc, follows_offset, next_claimed_batch, stored_crc,
)
from batchval.core.format.layout cimport *

cdef enum:
    CHECKPOINT = 512  # bytes between two noted checksums


# Checksums of the beginnings of a buffer: with them the checksum of any stretch costs the same.
cdef struct Prefixes:
    const uint8_t *p
    uint64_t n
    uint64_t work  # bytes that were summed up one candidate at a time
    uint32_t *castagnoli
    uint32_t *ieee


cdef uint32_t *note_prefixes(const Prefixes *s, bint castagnoli) noexcept nogil:
    """Compute the checksums of the beginnings. Return NULL without memory."""
    cdef uint64_t i, count = s.n // CHECKPOINT + 1
    cdef uint32_t *noted = <uint32_t *>malloc(count * sizeof(uint32_t))
    if noted is NULL:
        return NULL
    noted[0] = 0
    for i in range(1, count):
        if castagnoli:
            noted[i] = crc32c_of(noted[i - 1], s.p + (i - 1) * CHECKPOINT, CHECKPOINT)
        else:
            noted[i] = crc32_of(noted[i - 1], s.p + (i - 1) * CHECKPOINT, CHECKPOINT)
    return noted


cdef uint32_t crc_of_stretch(const Prefixes *s, uint64_t start, uint64_t end,
        bint castagnoli) noexcept nogil:
    cdef uint64_t a = start // CHECKPOINT, b = end // CHECKPOINT
    if castagnoli:
        return crc32c_of(s.castagnoli[b], s.p + b * CHECKPOINT,
                end - b * CHECKPOINT) ^ crc32c_moved(
            crc32c_of(s.castagnoli[a], s.p + a * CHECKPOINT, start - a * CHECKPOINT), end - start)
    return crc32_of(s.ieee[b], s.p + b * CHECKPOINT, end - b * CHECKPOINT) ^ crc32_moved(
        crc32_of(s.ieee[a], s.p + a * CHECKPOINT, start - a * CHECKPOINT), end - start)


cdef bint crc_is_right(Prefixes *s, uint64_t at, const Entry *b) noexcept nogil:
    """Return whether a batch's CRC is right. Every byte of a buffer may look like the start of a
    long batch; the prefixes keep the cost linear.
    """
    cdef bint castagnoli = b.magic >= 2
    if b.size <= CHECKPOINT or s.work <= s.n:
        s.work += b.size
        return stored_crc(b) == computed_crc(b)
    if castagnoli and s.castagnoli is NULL:
        s.castagnoli = note_prefixes(s, True)
    if not castagnoli and s.ieee is NULL:
        s.ieee = note_prefixes(s, False)
    if (s.castagnoli if castagnoli else s.ieee) is NULL:
        return stored_crc(b) == computed_crc(b)
    return stored_crc(b) == crc_of_stretch(
        s, at + (ATTRIBUTES if castagnoli else LEGACY_MAGIC), at + b.size, castagnoli)


cdef enum:  # SearchWindow.leads_on
    NOWHERE = -1
    TO_ZEROS = -2
    BEYOND = -3

NOT_A_BATCH, ZEROS_FOLLOW, NEEDS_MORE = NOWHERE, TO_ZEROS, BEYOND


@cython.final
cdef class SearchWindow:
    """Bytes in which batches are searched and proven.

    Any number of calls takes time in proportion to the size of the window and their number: the
    checksum of a stretch follows from checksums of beginnings of the window. ``is_end``: the window
    ends where its file ends. ``largest``: bytes of the largest batch that is accepted.
    """

    cdef Py_buffer view
    cdef bint is_held, is_end
    cdef Prefixes s
    cdef int most
    cdef uint64_t largest

    def __cinit__(self, buffer, largest, *, bint is_end=True, bint accept_claims_header=False):
        self.largest = whole_number("largest", largest, 0, INT64_MAX, "bytes")
        take_buffer(buffer, &self.view)
        self.is_held = True
        self.is_end = is_end
        self.most = 3 if accept_claims_header else 2
        self.s.p = <const uint8_t *>self.view.buf
        self.s.n = self.view.len

    def __dealloc__(self):
        free(self.s.castagnoli)
        free(self.s.ieee)
        if self.is_held:
            PyBuffer_Release(&self.view)

    def next(self, position):
        """Return where the next batch starts, and how far this is known.

        (found, end): ``found`` is the first position from ``position`` on where a right checksum
        proves a batch, -1 for none. Positions from ``end`` on must be searched in a window that
        starts there.
        """
        cdef int64_t at = max(whole_number("position", position, INT64_MIN, INT64_MAX), 0)
        cdef int64_t found = -1
        with nogil:
            found = self.search(&at)
        return found, at

    cdef int64_t search(self, int64_t *at) noexcept nogil:
        cdef Entry b
        cdef int64_t n = self.s.n, stop = n - (MAGIC if self.is_end else RECORDS)
        cdef int state
        while at[0] < stop:
            state = looks_like_a_batch(self.s.p + at[0], n - at[0], self.most, &b)
            if state != UNLIKELY and b.size <= self.largest:
                if state == CUT_OFF:
                    if not self.is_end:
                        return -1
                elif crc_is_right(&self.s, at[0], &b):
                    return at[0]
            at[0] += 1
        if self.is_end:
            at[0] = max(at[0], n)
        return -1

    def leads_on(self, position, int links):
        """Return where the size of the batch with a wrong checksum at ``position`` leads.

        (answer, place): ``answer`` is the place where the size is believed. The size is believed if
        it leads to the end of the file, to a header of the same magic whose offset is higher but
        not by much, to a batch with a right checksum, or to another batch for which this holds (at
        most ``links`` batches of ``largest`` bytes in all). Else ``answer`` is NOT_A_BATCH (the
        size is not believed), NEEDS_MORE (the window does not show it) or ZEROS_FOLLOW (it is
        believed if only zeros follow from ``place`` to the end of the file).
        """
        cdef int64_t at = whole_number("position", position, 0, INT64_MAX)
        cdef int64_t place = 0
        cdef int64_t answer
        with nogil:
            answer = self.follow_damaged(at, links, &place)
        return answer, place

    cdef int64_t follow_damaged(self, int64_t at, int links, int64_t *place) noexcept nogil:
        cdef const uint8_t *p = self.s.p
        cdef int64_t n = self.s.n, size, left
        cdef uint64_t budget = self.largest
        cdef Entry b
        if n - at < LOG_OVERHEAD + LEGACY_MIN_SIZE:
            return NOWHERE if self.is_end else BEYOND
        size = <int64_t>be32(p + at + BATCH_LENGTH) + LOG_OVERHEAD
        if size < LOG_OVERHEAD + LEGACY_MIN_SIZE or <uint64_t>size > self.largest:
            return NOWHERE
        while True:
            place[0] = at + size
            left = n - place[0]
            if self.is_end and left <= 0:
                return place[0] if left == 0 else NOWHERE
            if not self.is_end and left < RECORDS:
                return BEYOND
            b.p = p + place[0]
            if (left > MAGIC and b.p[MAGIC] == p[at + MAGIC]
                    and follows_offset(be64(b.p), be64(p + at))):
                return place[0]
            if all_zero(b.p, min(left, <int64_t>RECORDS)):
                return TO_ZEROS
            if left <= MAGIC or b.p[MAGIC] > self.most:
                return NOWHERE
            size = <int64_t>be32(b.p + BATCH_LENGTH) + LOG_OVERHEAD
            if size < LOG_OVERHEAD + LEGACY_MIN_SIZE or <uint64_t>size > budget:
                return NOWHERE
            if size > left:
                return NOWHERE if self.is_end else BEYOND
            budget -= size
            b.size = size
            b.magic = b.p[MAGIC]
            if (b.magic < 2 or size >= RECORDS) and crc_is_right(&self.s, place[0], &b):
                return place[0]
            links -= 1
            if links <= 0:
                return NOWHERE
            at = place[0]

    def is_proven(self, position):
        """Return whether the batch at ``position`` has a right checksum; None: not known here."""
        cdef int64_t at = whole_number("position", position, 0, INT64_MAX)
        cdef int64_t left = <int64_t>self.s.n - at
        cdef Entry b
        cdef int found = 0
        if left < RECORDS and not self.is_end:
            return None
        if left <= MAGIC:
            return False
        b.p = self.s.p + at
        b.magic = b.p[MAGIC]
        b.size = <uint64_t>(<int64_t>be32(b.p + BATCH_LENGTH) + LOG_OVERHEAD)
        if b.p[MAGIC] > self.most:
            return False
        if b.size < LOG_OVERHEAD + LEGACY_MIN_SIZE or b.size > self.largest:
            return False
        if <int64_t>b.size > left:
            return False if self.is_end else None
        with nogil:
            found = (b.magic < 2 or b.size >= RECORDS) and crc_is_right(&self.s, at, &b)
        return bool(found)


def resynchronise(buffer, position=0, *, bint accept_claims_header=False):
    """Return where the next batch starts, at or after ``position``, as its own CRC proves; -1 where
    there is none.

    For going on after damage: a wrong size field does not lead to the next batch. Takes time in
    proportion to the buffer's size, whatever it holds. Batches of magic 3 are accepted only with
    ``accept_claims_header``.
    """
    window = SearchWindow(buffer, INT64_MAX, accept_claims_header=accept_claims_header)
    return window.next(position)[0]


def follow(buffer, largest, *, bint accept_claims_header=False):
    """Follow the size fields from the header at the buffer's start, without verifying checksums.
    Return (last, next).

    ``last`` is the position of the last header that the one before leads to: of the same magic,
    with an offset that is higher, and not by far. ``next`` is where it points; the header there
    lies outside the buffer, or does not follow it. Where ``next`` is ``last``, its size is
    impossible, or above ``largest`` bytes.
    """
    cdef Py_buffer view
    cdef int64_t last = 0, following = 0
    cdef int64_t size = whole_number("largest", largest, INT64_MIN, INT64_MAX, "bytes")
    cdef int most = 3 if accept_claims_header else 2
    take_buffer(buffer, &view)
    try:
        with nogil:
            follow_sizes(<const uint8_t *>view.buf, view.len, size, most, &last, &following)
        return last, following
    finally:
        PyBuffer_Release(&view)


cdef void follow_sizes(const uint8_t *p, int64_t n, int64_t largest, int most, int64_t *last,
        int64_t *following) noexcept nogil:
    cdef int64_t size
    if n <= MAGIC or p[MAGIC] > most:
        return
    while True:
        size = be32(p + last[0] + BATCH_LENGTH)
        if not LEGACY_MIN_SIZE <= size <= largest - LOG_OVERHEAD:
            following[0] = last[0]
            return
        following[0] = last[0] + size + LOG_OVERHEAD
        if following[0] + MAGIC >= n:
            return
        if p[following[0] + MAGIC] != p[last[0] + MAGIC]:
            return
        if not follows_offset(be64(p + following[0]), be64(p + last[0])):
            return
        last[0] = following[0]


cdef enum:  # looks_like_a_batch
    UNLIKELY
    LIKELY
    CUT_OFF  # the buffer ends before the batch does


cdef inline int looks_like_a_batch(
        const uint8_t *p, size_t left, int most, Entry *b) noexcept nogil:
    """Check the cheap conditions first: a checksum over megabytes is only worth a likely place."""
    cdef int found
    if p[MAGIC] > most:
        return UNLIKELY
    found = next_claimed_batch(p, left, b)
    if found != BATCH and found != NO_MORE:
        return UNLIKELY
    if b.magic >= 2:
        if b.size < RECORDS or left < RECORDS or p[ATTRIBUTES] != 0:
            return UNLIKELY
        if p[ATTRIBUTES + 1] & CODEC_MASK > ZSTD or p[ATTRIBUTES + 1] & 0x80:
            return UNLIKELY
        if be32(p + LAST_OFFSET_DELTA) < 0 or be32(p + RECORDS_COUNT) < 0:
            return UNLIKELY
    elif left <= LEGACY_ATTRIBUTES or p[LEGACY_ATTRIBUTES] & 0xF0:
        return UNLIKELY
    elif p[LEGACY_ATTRIBUTES] & CODEC_MASK > LZ4:
        return UNLIKELY
    elif not lengths_fit(p, left, b):
        return UNLIKELY
    return LIKELY if found == BATCH else CUT_OFF


cdef inline bint lengths_fit(const uint8_t *p, int64_t left, const Entry *b) noexcept nogil:
    """Return whether key and value of a message of magic 0 or 1 fill it, as far as the buffer
    shows.

    Without this check every byte of a file of zeros and ones can be worth a checksum.
    """
    cdef int64_t at = LEGACY_KEY_V1 if b.magic else LEGACY_KEY_V0
    cdef int64_t key, value, rest
    if at + 4 > left:
        return b.size > <uint64_t>left
    key = be32(p + at)
    at += 8 + max(key, 0)
    rest = <int64_t>b.size - at
    if key < -1 or rest < 0:
        return False
    if at > left:
        return True
    value = be32(p + at - 4)
    return value >= -1 and max(value, 0) == rest
