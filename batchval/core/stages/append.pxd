"""Kafka's checks between LogValidator and the log's file."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from batchval.core.format.layout cimport RAFT_LEADER, REPLICATION
from batchval.core.codecs.scratch cimport Scratch
from batchval.core.stages.verdict cimport AppendContext, Policy, Verdict

cdef inline bint keeps_offsets(const AppendContext *d) noexcept nogil:
    """Return whether records are stored as they came: a follower's append, and a Raft leader's."""
    return d.origin == REPLICATION or d.origin == RAFT_LEADER


cdef bint append_assigned(const uint8_t *p, const AppendContext *d, const Policy *policy,
        Scratch *scratch,
        Verdict *v) noexcept nogil
cdef bint append_kept(const uint8_t *p, size_t n, const AppendContext *d, const Policy *policy,
        Scratch *scratch, Verdict *v) noexcept nogil
