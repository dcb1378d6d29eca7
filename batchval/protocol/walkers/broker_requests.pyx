"""Requests of brokers, controllers and operators: whole APIs, and those in APIs that clients use,
too.

    Fetch 0 to 14, ListOffsets, OffsetForLeaderEpoch from version 3 on
        header, int32 replica_id, …                     a broker states its own id
    Fetch from version 15 on (KIP-903)
        header, the body up to rack_id, tagged field 1: int32 replica_id, int64 replica_epoch, tags
    FindCoordinator from version 6 on
        header, int8 key_type, …                        2 for the state of share groups (KIP-932)
    AddPartitionsToTxn from version 4 on                of several transactions (KIP-890)

A consumer has the replica id -1, Kafka's tools have -2 (FetchRequest.DEBUGGING_CONSUMER_ID). -3
(FUTURE_LOCAL_REPLICA_ID) is a broker's copy of its own log: like a follower, it reads above the
high watermark.
"""

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.protocol.walkers.api_keys cimport (
    ADD_PARTITIONS_TO_TXN, FETCH, FIND_COORDINATOR, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH,
)
from batchval.protocol.cursor cimport (
    TAG_SIZE_LIES, Cursor, close_tag, fail, not_null, open_cursor, open_tag, read_count, read_int8,
    read_int16, read_int32, read_uvarint, skip, skip_string, skip_tags,
)
from batchval.protocol.primitives cimport explained, take_buffer

from batchval.protocol import apis

cdef enum:
    FUTURE_LOCAL_REPLICA = -3
    # FetchRequest.json
    FETCH_FLEXIBLE_FROM = 12
    REPLICA_STATE_FROM = 15
    DIRECTORY_IDS_FROM = 17
    HIGH_WATERMARK_FROM = 18
    BEFORE_TOPICS = 21         # bytes: max_wait_ms to session_epoch
    TOPIC_ID_SIZE = 16
    PARTITION_SIZE = 32        # without its tagged fields
    CLUSTER_ID_TAG = 0
    REPLICA_STATE_TAG = 1
    REPLICA_EPOCH_SIZE = 8
    DIRECTORY_ID_TAG = 0
    DIRECTORY_ID_SIZE = 16
    HIGH_WATERMARK_TAG = 1
    HIGH_WATERMARK_SIZE = 8
    # the definitions of the other requests
    LIST_OFFSETS_FLEXIBLE_FROM = 6
    LEADER_EPOCH_REPLICA_FROM = 3
    LEADER_EPOCH_FLEXIBLE_FROM = 4
    SHARE_COORDINATOR_FROM = 6  # below it Kafka refuses the type
    SHARE_COORDINATOR = 2
    LAST_CLIENT_ADD_PARTITIONS = 3  # AddPartitionsToTxnRequest.LAST_CLIENT_VERSION

BROKER_APIS = frozenset(apis.ApiKey[name] for name in (
    # Kafka asks for CLUSTER_ACTION; of the first, ALTER on the cluster suffices
    "WRITE_TXN_MARKERS",
    "INITIALIZE_SHARE_GROUP_STATE",
    "READ_SHARE_GROUP_STATE",
    "WRITE_SHARE_GROUP_STATE",
    "DELETE_SHARE_GROUP_STATE",
    "READ_SHARE_GROUP_STATE_SUMMARY",
    # ALTER on the cluster: operators move replicas, and change who belongs to the cluster
    "ALTER_REPLICA_LOG_DIRS",
    "UNREGISTER_BROKER",
    "ADD_RAFT_VOTER",
    "REMOVE_RAFT_VOTER",
    "UNREGISTER_CONTROLLER",
))
SHARED_WITH_BROKERS = frozenset(
    {FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, FIND_COORDINATOR, ADD_PARTITIONS_TO_TXN})


cdef bint comes_from_broker(Cursor *c, int key, int version) noexcept nogil:
    """Return whether a broker sends this request of SHARED_WITH_BROKERS. The cursor stands at its
    header.

    ``c.wrong`` is set where what tells it cannot be read.
    """
    if key == ADD_PARTITIONS_TO_TXN:
        return version > LAST_CLIENT_ADD_PARTITIONS
    skip(c, 8)  # key, version, correlation id
    skip_string(c, True)
    if key == FETCH:
        c.flexible = version >= FETCH_FLEXIBLE_FROM
        skip_tags(c)
        if version >= REPLICA_STATE_FROM:
            return find_replica_state(c, version)
    elif key == LIST_OFFSETS:
        c.flexible = version >= LIST_OFFSETS_FLEXIBLE_FROM
        skip_tags(c)
    elif key == FIND_COORDINATOR:
        if version < SHARE_COORDINATOR_FROM:
            return False
        c.flexible = True
        skip_tags(c)
        return read_int8(c) == SHARE_COORDINATOR
    elif version < LEADER_EPOCH_REPLICA_FROM:
        return False
    else:
        c.flexible = version >= LEADER_EPOCH_FLEXIBLE_FROM
        skip_tags(c)
    return is_replica(read_int32(c))


cdef inline bint is_replica(int32_t replica_id) noexcept nogil:
    return replica_id >= 0 or replica_id == FUTURE_LOCAL_REPLICA


cdef bint find_replica_state(Cursor *c, int version) noexcept nogil:
    """Walk the body of a Fetch request. Kafka takes the last of several fields: here each counts.
    """
    cdef int64_t _i, _j, n, partitions
    cdef bint found = False
    skip(c, BEFORE_TOPICS)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        skip(c, TOPIC_ID_SIZE)
        partitions = read_count(c)
        not_null(c, partitions)
        for _j in range(partitions):
            skip(c, PARTITION_SIZE)
            if c.at < c.end and c.at[0] == 0:
                c.at += 1
            else:
                skip_partition_tags(c, version)
            if c.wrong:
                return False
        skip_tags(c)
        if c.wrong:
            return False
    n = read_count(c)  # forgotten topics
    not_null(c, n)
    for _i in range(n):
        skip(c, TOPIC_ID_SIZE)
        partitions = read_count(c)
        not_null(c, partitions)
        if partitions > 0:
            skip(c, 4 * partitions)
        skip_tags(c)
        if c.wrong:
            return False
    skip_string(c, False)  # rack_id
    n = read_uvarint(c)
    for _i in range(n):
        found |= is_replica_tag(c)
        if c.wrong:
            return False
    return found


cdef void skip_partition_tags(Cursor *c, int version) noexcept nogil:
    """Skip the tagged fields of a partition, of which a follower sends two.

    Kafka reads fields that it knows by their type, whatever size was stated.
    """
    cdef int64_t _i, tag, size, n = read_uvarint(c)
    for _i in range(n):
        tag = read_uvarint(c)
        size = read_uvarint(c)
        if tag == DIRECTORY_ID_TAG and version >= DIRECTORY_IDS_FROM and size != DIRECTORY_ID_SIZE:
            fail(c, TAG_SIZE_LIES)
        if (tag == HIGH_WATERMARK_TAG and version >= HIGH_WATERMARK_FROM
                and size != HIGH_WATERMARK_SIZE):
            fail(c, TAG_SIZE_LIES)
        skip(c, size)
        if c.wrong:
            return


cdef bint is_replica_tag(Cursor *c) noexcept nogil:
    """Read the next tagged field of the body; return whether it names a replica."""
    cdef int64_t tag, size_at
    cdef bint found = False
    cdef const uint8_t *outer = open_tag(c, &tag, &size_at)
    if tag == CLUSTER_ID_TAG:
        skip_string(c, True)
    elif tag == REPLICA_STATE_TAG:
        found = is_replica(read_int32(c))
        skip(c, REPLICA_EPOCH_SIZE)
        skip_tags(c)
    elif not c.wrong:
        c.at = c.end
    close_tag(c, outer)
    return found


def is_from_broker(frame):
    """Return whether only a broker sends this request (its header first, without the length); False
    for APIs that are not in SHARED_WITH_BROKERS. Raises ProtocolError.
    """
    cdef Py_buffer view
    cdef Cursor c
    cdef int key, version
    cdef bint found
    take_buffer(frame, &view)
    try:
        open_cursor(&c, <const uint8_t *>view.buf, view.len, False)
        key, version = read_int16(&c), read_int16(&c)
        c.at = c.start
        found = key in SHARED_WITH_BROKERS and comes_from_broker(&c, key, version)
        if c.wrong:
            raise explained(&c)
        return found
    finally:
        PyBuffer_Release(&view)
