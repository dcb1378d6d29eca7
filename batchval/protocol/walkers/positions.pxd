"""Walkers: where the fields stand that a gate needs.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from batchval.protocol.cursor cimport Cursor
from batchval.protocol.walkers.tables cimport Tables

cdef enum:  # rows of every node table
    NODE_NODE_ID = 0
    NODE_HOST_AT = 1
    NODE_HOST = 2
    NODE_HOST_SIZE = 3
    NODE_PORT_AT = 4
    NODE_TAG_AT = 5
    NODE_TAG_END = 6
    NODE_COLUMNS = 7

cdef enum:  # rows of ProduceRequest's root table
    PRODUCE_REQUEST_ROOT_TRANSACTIONAL_ID = 0
    PRODUCE_REQUEST_ROOT_TRANSACTIONAL_ID_SIZE = 1
    PRODUCE_REQUEST_ROOT_ACKS = 2
    PRODUCE_REQUEST_ROOT_TIMEOUT_MS = 3
    PRODUCE_REQUEST_ROOT_TOPIC_DATA_AT = 4
    PRODUCE_REQUEST_ROOT_TAGS = 5
    PRODUCE_REQUEST_ROOT_COLUMNS = 6

cdef enum:  # rows of ProduceRequest's topic table
    PRODUCE_REQUEST_TOPIC_START = 0
    PRODUCE_REQUEST_TOPIC_NAME = 1
    PRODUCE_REQUEST_TOPIC_NAME_SIZE = 2
    PRODUCE_REQUEST_TOPIC_TOPIC_ID_AT = 3
    PRODUCE_REQUEST_TOPIC_PARTITION_DATA_AT = 4
    PRODUCE_REQUEST_TOPIC_TAGS = 5
    PRODUCE_REQUEST_TOPIC_END = 6
    PRODUCE_REQUEST_TOPIC_COLUMNS = 7

cdef enum:  # rows of ProduceRequest's partition table
    PRODUCE_REQUEST_PARTITION_PARENT = 0
    PRODUCE_REQUEST_PARTITION_START = 1
    PRODUCE_REQUEST_PARTITION_INDEX = 2
    PRODUCE_REQUEST_PARTITION_RECORDS = 3
    PRODUCE_REQUEST_PARTITION_RECORDS_SIZE = 4
    PRODUCE_REQUEST_PARTITION_TAGS = 5
    PRODUCE_REQUEST_PARTITION_END = 6
    PRODUCE_REQUEST_PARTITION_COLUMNS = 7

cdef enum:  # rows of ProduceResponse's root table
    PRODUCE_RESPONSE_ROOT_RESPONSES_AT = 0
    PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS_AT = 1
    PRODUCE_RESPONSE_ROOT_THROTTLE_TIME_MS = 2
    PRODUCE_RESPONSE_ROOT_COLUMNS = 3

cdef enum:  # rows of ProduceResponse's topic table
    PRODUCE_RESPONSE_TOPIC_START = 0
    PRODUCE_RESPONSE_TOPIC_NAME = 1
    PRODUCE_RESPONSE_TOPIC_NAME_SIZE = 2
    PRODUCE_RESPONSE_TOPIC_PARTITION_RESPONSES_AT = 3
    PRODUCE_RESPONSE_TOPIC_TAGS = 4
    PRODUCE_RESPONSE_TOPIC_END = 5
    PRODUCE_RESPONSE_TOPIC_COLUMNS = 6

cdef enum:  # rows of ProduceResponse's partition table
    PRODUCE_RESPONSE_PARTITION_PARENT = 0
    PRODUCE_RESPONSE_PARTITION_START = 1
    PRODUCE_RESPONSE_PARTITION_INDEX = 2
    PRODUCE_RESPONSE_PARTITION_ERROR_CODE = 3
    PRODUCE_RESPONSE_PARTITION_ERROR_CODE_AT = 4
    PRODUCE_RESPONSE_PARTITION_BASE_OFFSET_AT = 5
    PRODUCE_RESPONSE_PARTITION_LOG_APPEND_TIME_MS_AT = 6
    PRODUCE_RESPONSE_PARTITION_END = 7
    PRODUCE_RESPONSE_PARTITION_COLUMNS = 8

cdef void locate_produce_request(Cursor *c, int version, Tables *t) noexcept nogil
cdef void locate_produce_response(Cursor *c, int version, Tables *t) noexcept nogil
cdef void locate_metadata_response(Cursor *c, int version, Tables *t) noexcept nogil
cdef void locate_find_coordinator_response(Cursor *c, int version, Tables *t) noexcept nogil
cdef void locate_describe_cluster_response(Cursor *c, int version, Tables *t) noexcept nogil
cdef void locate_fetch_response(Cursor *c, int version, Tables *t) noexcept nogil
cdef void locate_share_fetch_response(Cursor *c, int version, Tables *t) noexcept nogil
cdef void locate_share_acknowledge_response(Cursor *c, int version, Tables *t) noexcept nogil
