"""Whether a request comes from a broker, for the fast path of the gate."""

from batchval.protocol.cursor cimport Cursor

cdef bint comes_from_broker(Cursor *c, int key, int version) noexcept nogil
