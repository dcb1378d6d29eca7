"""Walkers: each message once over, its positions into the rows of positions.pxd.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.protocol.cursor cimport (
    TRAILING_BYTES, Cursor, NOT_THIS_VERSION, close_tag, fail, find_bytes, find_string, not_null,
    open_tag, position, read_count, read_int16, read_int32, read_uvarint, skip, skip_bytes,
    skip_string, skip_tags,
)
from batchval.protocol.walkers.tables cimport Tables, new_row


cdef void produce_request_partition_produce_data(Cursor *c, int version, Tables *t, int32_t parent) noexcept nogil:
    cdef int32_t *row
    row = new_row(&t.tables[2], PRODUCE_REQUEST_PARTITION_COLUMNS, c)
    if row is NULL:
        return
    row[PRODUCE_REQUEST_PARTITION_START] = <int32_t>position(c)
    row[PRODUCE_REQUEST_PARTITION_PARENT] = parent
    row[PRODUCE_REQUEST_PARTITION_INDEX] = read_int32(c)
    find_bytes(c, &row[PRODUCE_REQUEST_PARTITION_RECORDS], True)
    row[PRODUCE_REQUEST_PARTITION_TAGS] = <int32_t>position(c)
    skip_tags(c)
    row[PRODUCE_REQUEST_PARTITION_END] = <int32_t>position(c)


cdef void produce_request_topic_produce_data(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n
    cdef int32_t *row
    row = new_row(&t.tables[1], PRODUCE_REQUEST_TOPIC_COLUMNS, c)
    if row is NULL:
        return
    row[PRODUCE_REQUEST_TOPIC_START] = <int32_t>position(c)
    if version <= 12:
        find_string(c, &row[PRODUCE_REQUEST_TOPIC_NAME], False)
    if version >= 13:
        row[PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT] = <int32_t>position(c)
        skip(c, 16)
    row[PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT] = <int32_t>position(c)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        produce_request_partition_produce_data(c, version, t, <int32_t>t.tables[1].count - 1)
        if c.wrong:
            return
    row[PRODUCE_REQUEST_TOPIC_TAGS] = <int32_t>position(c)
    skip_tags(c)
    row[PRODUCE_REQUEST_TOPIC_END] = <int32_t>position(c)


cdef void locate_produce_request(Cursor *c, int version, Tables *t) noexcept nogil:
    """ProduceRequest, versions 0 to 13; the cursor stands at the body."""
    cdef int64_t _i, n
    cdef int32_t *row
    if version < 0 or version > 13:
        fail(c, NOT_THIS_VERSION)
        return
    row = new_row(&t.tables[0], PRODUCE_REQUEST_ROOT_COLUMNS, c)
    if row is NULL:
        return
    if version >= 3:
        find_string(c, &row[PRODUCE_REQUEST_ROOT_TRANSACTIONAL_ID], True)
    row[PRODUCE_REQUEST_ROOT_ACKS] = read_int16(c)
    row[PRODUCE_REQUEST_ROOT_TIMEOUT_MS] = read_int32(c)
    row[PRODUCE_REQUEST_ROOT_TOPIC_DATA_AT] = <int32_t>position(c)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        produce_request_topic_produce_data(c, version, t)
        if c.wrong:
            return
    row[PRODUCE_REQUEST_ROOT_TAGS] = <int32_t>position(c)
    skip_tags(c)
    if c.at != c.end:
        fail(c, TRAILING_BYTES)


cdef void produce_response_batch_index_and_error_message(Cursor *c, int version, Tables *t) noexcept nogil:
    skip(c, 4)
    skip_string(c, True)
    skip_tags(c)


cdef void produce_response_partition_produce_response(Cursor *c, int version, Tables *t, int32_t parent) noexcept nogil:
    cdef int64_t _i, n
    cdef int32_t *row
    row = new_row(&t.tables[2], PRODUCE_RESPONSE_PARTITION_COLUMNS, c)
    if row is NULL:
        return
    row[PRODUCE_RESPONSE_PARTITION_START] = <int32_t>position(c)
    row[PRODUCE_RESPONSE_PARTITION_PARENT] = parent
    row[PRODUCE_RESPONSE_PARTITION_INDEX] = read_int32(c)
    row[PRODUCE_RESPONSE_PARTITION_ERROR_CODE_AT] = <int32_t>position(c)
    row[PRODUCE_RESPONSE_PARTITION_ERROR_CODE] = read_int16(c)
    row[PRODUCE_RESPONSE_PARTITION_BASE_OFFSET_AT] = <int32_t>position(c)
    skip(c, 8)
    row[PRODUCE_RESPONSE_PARTITION_LOG_APPEND_TIME_MS_AT] = <int32_t>position(c)
    skip(c, 8)
    if version >= 5:
        skip(c, 8)
    if version >= 8:
        n = read_count(c)
        not_null(c, n)
        for _i in range(n):
            produce_response_batch_index_and_error_message(c, version, t)
            if c.wrong:
                return
        skip_string(c, True)
    skip_tags(c)
    row[PRODUCE_RESPONSE_PARTITION_END] = <int32_t>position(c)


cdef void produce_response_topic_produce_response(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n
    cdef int32_t *row
    row = new_row(&t.tables[1], PRODUCE_RESPONSE_TOPIC_COLUMNS, c)
    if row is NULL:
        return
    row[PRODUCE_RESPONSE_TOPIC_START] = <int32_t>position(c)
    if version <= 12:
        find_string(c, &row[PRODUCE_RESPONSE_TOPIC_NAME], False)
    if version >= 13:
        skip(c, 16)
    row[PRODUCE_RESPONSE_TOPIC_PARTITION_RESPONSES_AT] = <int32_t>position(c)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        produce_response_partition_produce_response(c, version, t, <int32_t>t.tables[1].count - 1)
        if c.wrong:
            return
    row[PRODUCE_RESPONSE_TOPIC_TAGS] = <int32_t>position(c)
    skip_tags(c)
    row[PRODUCE_RESPONSE_TOPIC_END] = <int32_t>position(c)


cdef void produce_response_node_endpoint(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int32_t *row
    row = new_row(&t.tables[3], NODE_COLUMNS, c)
    if row is NULL:
        return
    row[NODE_TAG_AT] = t.tag_at
    row[NODE_TAG_END] = t.tag_end
    row[NODE_NODE_ID] = read_int32(c)
    row[NODE_HOST_AT] = <int32_t>position(c)
    find_string(c, &row[NODE_HOST], False)
    row[NODE_PORT_AT] = <int32_t>position(c)
    skip(c, 4)
    skip_string(c, True)
    skip_tags(c)


cdef void produce_response_node_endpoints(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        produce_response_node_endpoint(c, version, t)
        if c.wrong:
            return


cdef void locate_produce_response(Cursor *c, int version, Tables *t) noexcept nogil:
    """ProduceResponse, versions 3 to 13; the cursor stands at the body."""
    cdef int64_t _i, n
    cdef int64_t tag, size_at
    cdef const uint8_t *outer
    cdef int32_t *row
    if version < 3 or version > 13:
        fail(c, NOT_THIS_VERSION)
        return
    row = new_row(&t.tables[0], PRODUCE_RESPONSE_ROOT_COLUMNS, c)
    if row is NULL:
        return
    row[PRODUCE_RESPONSE_ROOT_RESPONSES_AT] = <int32_t>position(c)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        produce_response_topic_produce_response(c, version, t)
        if c.wrong:
            return
    row[PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS_AT] = <int32_t>position(c)
    row[PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS] = read_int32(c)
    if version >= 9:
        n = read_uvarint(c)
        for _i in range(n):
            outer = open_tag(c, &tag, &size_at)
            if tag == 0 and version >= 10:
                t.tag_at = <int32_t>size_at
                t.tag_end = <int32_t>position(c)
                produce_response_node_endpoints(c, version, t)
                t.tag_at = t.tag_end = -1
            else:
                c.at = c.end
            close_tag(c, outer)
            if c.wrong:
                return


cdef void metadata_response_metadata_response_broker(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int32_t *row
    row = new_row(&t.tables[0], NODE_COLUMNS, c)
    if row is NULL:
        return
    row[NODE_TAG_AT] = t.tag_at
    row[NODE_TAG_END] = t.tag_end
    row[NODE_NODE_ID] = read_int32(c)
    row[NODE_HOST_AT] = <int32_t>position(c)
    find_string(c, &row[NODE_HOST], False)
    row[NODE_PORT_AT] = <int32_t>position(c)
    skip(c, 4)
    if version >= 1:
        skip_string(c, True)
    skip_tags(c)


cdef void locate_metadata_response(Cursor *c, int version, Tables *t) noexcept nogil:
    """MetadataResponse, versions 0 to 13; the cursor stands at the body."""
    cdef int64_t _i, n
    if version < 0 or version > 13:
        fail(c, NOT_THIS_VERSION)
        return
    if version >= 3:
        skip(c, 4)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        metadata_response_metadata_response_broker(c, version, t)
        if c.wrong:
            return


cdef void find_coordinator_response_coordinator(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int32_t *row
    row = new_row(&t.tables[0], NODE_COLUMNS, c)
    if row is NULL:
        return
    row[NODE_TAG_AT] = t.tag_at
    row[NODE_TAG_END] = t.tag_end
    skip_string(c, False)
    row[NODE_NODE_ID] = read_int32(c)
    row[NODE_HOST_AT] = <int32_t>position(c)
    find_string(c, &row[NODE_HOST], False)
    row[NODE_PORT_AT] = <int32_t>position(c)
    skip(c, 4)
    skip(c, 2)
    skip_string(c, True)
    skip_tags(c)


cdef void locate_find_coordinator_response(Cursor *c, int version, Tables *t) noexcept nogil:
    """FindCoordinatorResponse, versions 0 to 6; the cursor stands at the body."""
    cdef int64_t _i, n
    cdef int32_t *row
    if version < 0 or version > 6:
        fail(c, NOT_THIS_VERSION)
        return
    if version >= 1:
        skip(c, 4)
    if version <= 3:
        skip(c, 2)
    if 1 <= version <= 3:
        skip_string(c, True)
    if version <= 3:
        row = new_row(&t.tables[0], NODE_COLUMNS, c)
        if row is NULL:
            return
        row[NODE_TAG_AT] = t.tag_at
        row[NODE_TAG_END] = t.tag_end
        row[NODE_NODE_ID] = read_int32(c)
        row[NODE_HOST_AT] = <int32_t>position(c)
        find_string(c, &row[NODE_HOST], False)
        row[NODE_PORT_AT] = <int32_t>position(c)
        skip(c, 4)
    if version >= 4:
        n = read_count(c)
        not_null(c, n)
        for _i in range(n):
            find_coordinator_response_coordinator(c, version, t)
            if c.wrong:
                return


cdef void describe_cluster_response_describe_cluster_broker(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int32_t *row
    row = new_row(&t.tables[0], NODE_COLUMNS, c)
    if row is NULL:
        return
    row[NODE_TAG_AT] = t.tag_at
    row[NODE_TAG_END] = t.tag_end
    row[NODE_NODE_ID] = read_int32(c)
    row[NODE_HOST_AT] = <int32_t>position(c)
    find_string(c, &row[NODE_HOST], False)
    row[NODE_PORT_AT] = <int32_t>position(c)
    skip(c, 4)
    skip_string(c, True)
    if version >= 2:
        skip(c, 1)
    skip_tags(c)


cdef void locate_describe_cluster_response(Cursor *c, int version, Tables *t) noexcept nogil:
    """DescribeClusterResponse, versions 0 to 2; the cursor stands at the body."""
    cdef int64_t _i, n
    if version < 0 or version > 2:
        fail(c, NOT_THIS_VERSION)
        return
    skip(c, 4)
    skip(c, 2)
    skip_string(c, True)
    if version >= 1:
        skip(c, 1)
    skip_string(c, False)
    skip(c, 4)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        describe_cluster_response_describe_cluster_broker(c, version, t)
        if c.wrong:
            return


cdef void fetch_response_aborted_transaction(Cursor *c, int version, Tables *t) noexcept nogil:
    skip(c, 8)
    skip(c, 8)
    skip_tags(c)


cdef void fetch_response_partition_data(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n
    skip(c, 4)
    skip(c, 2)
    skip(c, 8)
    skip(c, 8)
    if version >= 5:
        skip(c, 8)
    n = read_count(c)
    for _i in range(n):
        fetch_response_aborted_transaction(c, version, t)
        if c.wrong:
            return
    if version >= 11:
        skip(c, 4)
    skip_bytes(c, True)
    skip_tags(c)


cdef void fetch_response_fetchable_topic_response(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n
    if version <= 12:
        skip_string(c, False)
    if version >= 13:
        skip(c, 16)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        fetch_response_partition_data(c, version, t)
        if c.wrong:
            return
    skip_tags(c)


cdef void fetch_response_node_endpoint(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int32_t *row
    row = new_row(&t.tables[0], NODE_COLUMNS, c)
    if row is NULL:
        return
    row[NODE_TAG_AT] = t.tag_at
    row[NODE_TAG_END] = t.tag_end
    row[NODE_NODE_ID] = read_int32(c)
    row[NODE_HOST_AT] = <int32_t>position(c)
    find_string(c, &row[NODE_HOST], False)
    row[NODE_PORT_AT] = <int32_t>position(c)
    skip(c, 4)
    skip_string(c, True)
    skip_tags(c)


cdef void fetch_response_node_endpoints(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        fetch_response_node_endpoint(c, version, t)
        if c.wrong:
            return


cdef void locate_fetch_response(Cursor *c, int version, Tables *t) noexcept nogil:
    """FetchResponse, versions 4 to 18; the cursor stands at the body."""
    cdef int64_t _i, n
    cdef int64_t tag, size_at
    cdef const uint8_t *outer
    if version < 4 or version > 18:
        fail(c, NOT_THIS_VERSION)
        return
    if version < 16:
        return
    skip(c, 4)
    if version >= 7:
        skip(c, 2)
        skip(c, 4)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        fetch_response_fetchable_topic_response(c, version, t)
        if c.wrong:
            return
    if version >= 12:
        n = read_uvarint(c)
        for _i in range(n):
            outer = open_tag(c, &tag, &size_at)
            if tag == 0 and version >= 16:
                t.tag_at = <int32_t>size_at
                t.tag_end = <int32_t>position(c)
                fetch_response_node_endpoints(c, version, t)
                t.tag_at = t.tag_end = -1
            else:
                c.at = c.end
            close_tag(c, outer)
            if c.wrong:
                return


cdef void share_fetch_response_leader_id_and_epoch(Cursor *c, int version, Tables *t) noexcept nogil:
    skip(c, 4)
    skip(c, 4)
    skip_tags(c)


cdef void share_fetch_response_acquired_records(Cursor *c, int version, Tables *t) noexcept nogil:
    skip(c, 8)
    skip(c, 8)
    skip(c, 2)
    skip_tags(c)


cdef void share_fetch_response_partition_data(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n
    skip(c, 4)
    skip(c, 2)
    skip_string(c, True)
    skip(c, 2)
    skip_string(c, True)
    share_fetch_response_leader_id_and_epoch(c, version, t)
    skip_bytes(c, False)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        share_fetch_response_acquired_records(c, version, t)
        if c.wrong:
            return
    skip_tags(c)


cdef void share_fetch_response_share_fetchable_topic_response(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n
    skip(c, 16)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        share_fetch_response_partition_data(c, version, t)
        if c.wrong:
            return
    skip_tags(c)


cdef void locate_share_fetch_response(Cursor *c, int version, Tables *t) noexcept nogil:
    """ShareFetchResponse, versions 1 to 2; the cursor stands at the body."""
    cdef int64_t _i, n
    if version < 1 or version > 2:
        fail(c, NOT_THIS_VERSION)
        return
    skip(c, 4)
    skip(c, 2)
    skip_string(c, True)
    skip(c, 4)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        share_fetch_response_share_fetchable_topic_response(c, version, t)
        if c.wrong:
            return
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        fetch_response_node_endpoint(c, version, t)
        if c.wrong:
            return


cdef void share_acknowledge_response_partition_data(Cursor *c, int version, Tables *t) noexcept nogil:
    skip(c, 4)
    skip(c, 2)
    skip_string(c, True)
    share_fetch_response_leader_id_and_epoch(c, version, t)
    skip_tags(c)


cdef void share_acknowledge_response_share_acknowledge_topic_response(Cursor *c, int version, Tables *t) noexcept nogil:
    cdef int64_t _i, n
    skip(c, 16)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        share_acknowledge_response_partition_data(c, version, t)
        if c.wrong:
            return
    skip_tags(c)


cdef void locate_share_acknowledge_response(Cursor *c, int version, Tables *t) noexcept nogil:
    """ShareAcknowledgeResponse, versions 1 to 2; the cursor stands at the body."""
    cdef int64_t _i, n
    if version < 1 or version > 2:
        fail(c, NOT_THIS_VERSION)
        return
    skip(c, 4)
    skip(c, 2)
    skip_string(c, True)
    if version >= 2:
        skip(c, 4)
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        share_acknowledge_response_share_acknowledge_topic_response(c, version, t)
        if c.wrong:
            return
    n = read_count(c)
    not_null(c, n)
    for _i in range(n):
        fetch_response_node_endpoint(c, version, t)
        if c.wrong:
            return
