"""The ledger's state of one sender, and a decision for each batch: an addition, a comparison, no
call of Python.

    draw = pad of (sender, counter) ^ crc * SPREAD        below the rate * 2^64: this one is checked

A pad is 64 bits of a keyed hash, which no sender ever sees; eight counters' pads come of one hash.
It takes no lock: only the hash lets another thread run, and two that hash at once use a block of
counters each.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from batchval.core.stages.claims_block cimport TRUST_CLAIMS, VERIFY_CLAIMS

cdef enum:
    AUDIT = 100

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15u  # odd: no two checksums meet

_DECISIONS = {VERIFY_CLAIMS: "verify", TRUST_CLAIMS: "trust"}
_WORDS = {"verify": VERIFY_CLAIMS, "trust": TRUST_CLAIMS, "audit": AUDIT}


@cython.final
cdef class Counts:
    """The eight numbers of ClaimsCounts, in its order."""

    def as_tuple(self):
        return tuple([self.n[i] for i in range(COUNTS)])


@cython.final
cdef class SenderTrust:
    """The trust in one sender. ``word``: verify, audit or trust; ``below``: the rate times 2^64;
    ``keyed(block)`` returns 64 secret bytes.
    """

    def __init__(self, str word, object below, int64_t first_checked, int64_t demotion_ms, keyed,
            Counts totals):
        self.own = Counts()
        self.totals = totals
        self.keyed = keyed
        self.follow(word, below)
        self.first_checked = first_checked
        self.demotion_ms = demotion_ms

    def follow(self, str word, object below):
        """Decide by this word and rate from the next batch on. The sender's state stays."""
        self.word = _WORDS[word]
        self.always = below >= 1 << 64
        self.below = 0 if self.always else below

    cdef int count(self, int what, int64_t n) noexcept:
        self.own.n[what] += n
        self.totals.n[what] += n
        return 0

    cdef int draw_pads(self) except -1:
        cdef int64_t block = self.blocks
        cdef bytes found
        self.blocks += 1
        found = self.keyed(block)
        if len(found) != sizeof(self.pads):
            raise ValueError(
                f"a block of pads has {len(found)} bytes: expected {sizeof(self.pads)}")
        memcpy(self.pads, <const char *>found, sizeof(self.pads))
        self.pads_left = PADS
        return 0

    cdef int decide(self, uint32_t crc, int64_t now_ms) except -1:
        """Return VERIFY_CLAIMS or TRUST_CLAIMS."""
        self.count(BATCHES, 1)
        if self.demoted:
            if now_ms < self.demoted_until:
                return VERIFY_CLAIMS
            self.demoted = False
            self.checked = 0
        if self.word != AUDIT:
            return self.word
        # A draw for every batch: the first ones do not reveal later draws.
        if self.pads_left == 0:
            self.draw_pads()
        self.pads_left -= 1
        if self.always or self.pads[self.pads_left] ^ crc * SPREAD < self.below:
            self.count(SAMPLED, 1)
            return VERIFY_CLAIMS
        return VERIFY_CLAIMS if self.checked < self.first_checked else TRUST_CLAIMS

    cdef int note(self, int what, int64_t n, int64_t now_ms) noexcept:
        """Note the outcome. A lie ends the trust for ``demotion_ms``."""
        self.count(what, n)
        if what == HONEST:
            self.checked += n
        elif what == LYING:
            if not self.demoted:
                self.count(DEMOTIONS, 1)
            self.demoted = True
            self.demoted_until = now_ms + self.demotion_ms
            self.checked = 0
        return 0

    def decided(self, uint32_t crc, int64_t now_ms):
        """Call ``decide`` and return its answer as LogValidator's word."""
        return _DECISIONS[self.decide(crc, now_ms)]

    def noted(self, int what, int64_t n, int64_t now_ms):
        """Call ``note``; ``what`` counts ClaimsCounts' fields."""
        if not 0 <= what < COUNTS:
            raise ValueError(f"what is {what}: expected 0 to {COUNTS - 1}")
        self.note(what, n, now_ms)

    def is_demoted(self, int64_t now_ms):
        return self.demoted and now_ms < self.demoted_until

    def counts(self):
        """Return the counts in the order of ClaimsCounts."""
        return self.own.as_tuple()
