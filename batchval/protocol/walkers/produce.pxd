"""A Produce request as its walk sees it."""

cimport cython
from libc.stdint cimport int32_t

from batchval.protocol.cursor cimport Cursor
from batchval.protocol.walkers.splice cimport Splicer
from batchval.protocol.walkers.tables cimport Tables
from batchval.protocol.walkers.tags cimport TaggedField
from batchval.protocol.walkers.views cimport FrameView


cdef enum:
    CLAIMS_FIELD = 25206  # of PartitionProduceData, from version 9 on
    # Tagged fields of a request, of all its structs together. A client of Kafka writes none.
    MAX_TAGGED_FIELDS = 65536
    OLDEST_OF_KAFKA_4 = 3  # KIP-896 removed the versions below


cdef bytes claims_field(object content)
cdef void walk_bounded_request(Cursor *c, int version, Tables *t, Py_ssize_t most,
        int oldest=*) noexcept nogil


@cython.final
@cython.no_gc
cdef class ProduceRequestView(FrameView):
    cdef int32_t client_id_at, client_id_size
    cdef int32_t body_at  # of the flexible header's tagged fields, from version 9 on
    cdef Py_ssize_t count
    cdef dict names  # topic row -> str

    cdef const int32_t *partition_row(self, Py_ssize_t i) except NULL
    cdef const int32_t *topic_row(self, Py_ssize_t i)
    cdef const int32_t *root(self)
    cdef int find_claims(self, const int32_t *row, TaggedField *field) except -1
    cdef bytes tags_with(self, const int32_t *row, object claims)
    cdef int write_topics(self, Splicer s, object keep, object claims, object batches) except -1
