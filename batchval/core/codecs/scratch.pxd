"""Memory that a call borrows: grown once, used again by the next call, freed between batches of
hostile size.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from batchval.compression.native_pointers cimport Blocks
from batchval.core.format.value_ids cimport SeenIds

cdef extern from *:
    ctypedef struct PyThreadState:
        pass
    PyThreadState *PyEval_SaveThread() noexcept nogil
    void PyEval_RestoreThread(PyThreadState *state) noexcept nogil

cdef struct RecordError:
    int32_t index  # of the record in its batch
    int32_t rule
    int64_t timestamp  # of a record rule: what was found (batchval.core.records.compiled_rules)
    int64_t second  # of Kafka's rules: the record's offset
    uint8_t which  # of the rule's parts, in the order of RecordRules
    uint8_t kind

cdef struct Scratch:
    uint8_t *arena  # decompressed bytes; may move when it grows
    size_t arena_size
    # The wrapper of magic 0 or 1 whose entries the arena holds until a stream is opened, or NULL.
    const uint8_t *opened
    size_t opened_size  # of these entries
    # The call follows a Kafka before 3.6, which reads the streams of codecs without a
    # ChunkedBytesStream, from a source that does not say how much it has.
    bint unbuffered
    uint8_t *ring  # zstd's output, which is its own window: never moves within a frame
    size_t ring_size
    # A batch without the claims in its header, or records that are written anew.
    uint8_t *copy
    size_t copy_size
    bint has_grown  # beyond what give_back keeps
    void *zstd_dctx
    void *zstd_frame  # packages.ZstdFrame, a reference of our own
    void *inflate
    # The provider of this call, whose functions made zstd_dctx; NULL: the Python packages.
    const Blocks *blocks
    int64_t work_left  # until the GIL is released: see begin_work
    PyThreadState *thread_state  # of the caller, while the GIL is released
    RecordError *errors  # the first errors_count of errors_seen
    int32_t errors_count
    int32_t errors_seen
    int32_t keys_missing
    int32_t magics_differing
    int32_t last_rule
    bint one_rule  # all errors broke the same
    bint bad_timestamp  # one was about a timestamp
    RecordError *broken  # record rules: the first broken_count of broken_seen records
    int32_t broken_count
    int32_t broken_seen
    int64_t broken_batch  # position of the batch with the first of them, -1: not known
    # The batch_records.Walk of this call's batch, whose errors are above, until it is taken; NULL.
    const void *walk
    SeenIds seen_ids  # of the batch walked last, where they are wanted

cdef enum:
    # Bytes that may be walked with the GIL held. The worst records cost 5 ns a byte.
    WORK_WITH_GIL = 65536
    # Objects that are made or read before other threads may have the GIL.
    GIL_YIELD_INTERVAL = 1024
    ERRORS_KEPT = 1000  # of a batch's record errors; all are counted

cdef enum:
    UNLIMITED_WORK = 0x7FFFFFFFFFFFFFFF

cdef Scratch *borrow() except NULL
cdef void give_back(Scratch *scratch) noexcept
cdef void release_gil(Scratch *scratch) noexcept nogil
cdef void take_gil(Scratch *scratch) noexcept nogil
cdef bint copy_reserve(Scratch *scratch, size_t size) noexcept nogil
cdef uint8_t *copy_lend(Scratch *scratch, size_t *size) noexcept nogil
cdef void copy_back(Scratch *scratch, uint8_t *copy, size_t size) noexcept nogil
cdef bint arena_reserve(Scratch *scratch, size_t size) noexcept nogil
cdef bint ring_reserve(Scratch *scratch, size_t size) noexcept nogil
cdef void no_errors(Scratch *scratch) noexcept nogil
cdef bint add_error(Scratch *scratch, int32_t index, int32_t rule, int64_t timestamp) noexcept nogil
cdef void set_offset(Scratch *scratch, int64_t offset) noexcept nogil
cdef bint add_broken(Scratch *scratch, int32_t index, int32_t rule, uint8_t which, uint8_t kind,
        int64_t first, int64_t second) noexcept nogil


cdef inline void none_broken(Scratch *scratch) noexcept nogil:
    """Clear the records that have broken a record rule."""
    scratch.broken_count = 0
    scratch.broken_seen = 0
    scratch.broken_batch = -1


cdef inline void begin_work(Scratch *scratch, bint is_long) noexcept nogil:
    """Begin work. The caller has the GIL. Until end_work no Python object may be touched."""
    scratch.work_left = WORK_WITH_GIL
    if is_long:
        release_gil(scratch)


cdef inline void end_work(Scratch *scratch) noexcept nogil:
    scratch.work_left = UNLIMITED_WORK
    if scratch.thread_state is not NULL:
        take_gil(scratch)


cdef inline void spend(Scratch *scratch, uint64_t work) noexcept nogil:
    """Announce work about to be done, in bytes that are walked. Between begin_work and end_work the
    GIL is released once more was announced than may be done with it."""
    scratch.work_left -= <int64_t>work
    if scratch.work_left < 0:
        release_gil(scratch)
